// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `ci/bench` measures and prints: commands beside each other on this machine, attaching and hits in a virtual
//! machine, and docs/performance.md with its plots. Nothing is asserted here.

pub mod commands;
pub mod guest;
pub mod page;

use crate::guest::starts::Start;
use crate::measure::cost::Figure;
use crate::measure::cost::prototypes::Prototypes;
use commands::Comparison;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many functions have more than so many location prototypes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Distribution {
    /// Functions with inline sites that have all their arguments.
    pub functions: usize,
    /// Bounds, and how many functions have more prototypes than that.
    pub above: Vec<(usize, usize)>,
    /// Those with the most: name, sites, prototypes.
    pub most: Vec<(String, usize, usize)>,
}

impl Distribution {
    /// Of a census.
    pub fn of(mut all: Vec<Prototypes>) -> Distribution {
        const BOUNDS: [usize; 7] = [1, 4, 16, 64, 128, 256, 512];
        const MOST: usize = 8;
        all.sort_by_key(|function| std::cmp::Reverse(function.prototypes));
        let above = |bound| all.iter().filter(|function| function.prototypes > bound).count();
        Distribution {
            functions: all.len(),
            above: BOUNDS.iter().map(|&bound| (bound, above(bound))).collect(),
            most: all.iter().take(MOST).map(|f| (f.function.clone(), f.sites, f.prototypes)).collect(),
        }
    }
}

/// Everything that one run of ci/bench has measured on one kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figures {
    /// The kernel's name in kernels/matrix.toml.
    pub kernel: String,
    /// Its architecture, as Debian names it.
    pub arch: String,
    /// What `siteseer encode --json` says about it.
    pub census: serde_json::Value,
    /// Bytes of the image with DWARF.
    pub image: u64,
    /// Bytes of the DWARF.
    pub dwarf: u64,
    /// Bytes of the upstream part, and of our own.
    pub bytes: (u64, u64),
    /// Commands beside each other.
    pub commands: Vec<Comparison>,
    /// Location prototypes.
    pub prototypes: Distribution,
    /// Steps from a tool's start to its first event, in seconds.
    pub startup: BTreeMap<String, f64>,
    /// From a tool's start until it is attached, with plain libbpf and with siteseer.
    pub starts: Vec<Start>,
    /// What else was measured in the virtual machine.
    pub guest: Vec<Figure>,
}
