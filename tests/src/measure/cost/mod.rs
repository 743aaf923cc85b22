// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What siteseer costs, measured inside a virtual machine with a clock that counts instructions.
//!
//! The machine has no hardware counters, and a host that is busy makes every clock lie. Under QEMU's `-icount shift=0`
//! the guest's clocks advance by one nanosecond per instruction, and jump where the guest waits for a timer, whatever
//! else the host does. A hit's cost is then a number of instructions, kernel and BPF program together, and the same in
//! every run. An attachment's time is that of a processor that executes one instruction per nanosecond, with grace
//! periods and timers as long as on any other. It may differ from run to run by when a grace period happens to begin.
//!
//! Every figure stands beside that of what one would do without siteseer, measured in the same run, in turn.

pub mod attach;
pub mod hits;
pub mod links;
pub mod perf;
pub mod prototypes;

use crate::guest::case::Failure;
use libbpf_rs::{Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use siteseer::{SourceOptions, Target};
use siteseer_bpf_progs::COST;
use std::io::Write;
use std::time::Duration;

/// What the guest sends: a line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Attaching and detaching.
    Attach(attach::Attaching),
    /// Attaching and detaching, by one link too.
    Linked(links::Linked),
    /// What else is known of that link.
    Links(links::Links),
    /// The cost of a hit.
    Hit(hits::Hit),
    /// Programs of a function with many location prototypes.
    Programs(prototypes::Programs),
    /// A sentence for people: what could not be measured, and why.
    Note(String),
}

/// What measurements share.
pub(crate) struct Bench<'o> {
    pub(crate) target: Target,
    out: &'o mut dyn Write,
}

impl Bench<'_> {
    pub(crate) fn say(&mut self, figure: &Figure) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{}", serde_json::to_string(figure)?)?)
    }
}

/// Loads cost.bpf.c.
fn load() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(COST)?.load()?)
}

/// Lets the kernel finish what it does by itself: optimising kprobes, freeing what was detached. It costs the host
/// nothing.
pub(crate) fn settle() {
    std::thread::sleep(Duration::from_secs(2));
}

/// Measures what is named; `hits`, `attach` and `programs`, if nothing is. `links` needs a kernel with our patch.
///
/// # Errors
/// If the kernel cannot be used at all.
pub fn run(what: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    let mut bench = Bench { target: Target::running(&SourceOptions::default())?, out };
    let wanted = |name: &str| what.is_empty() || what.iter().any(|word| word == name);
    if wanted("hits") {
        hits::run(&mut bench)?;
    }
    if wanted("programs") {
        prototypes::run(&mut bench)?;
    }
    if wanted("attach") {
        attach::run(&mut bench)?;
    }
    if what.iter().any(|word| word == "links") {
        links::run(&mut bench)?;
    }
    Ok(())
}
