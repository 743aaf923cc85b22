// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Real clients of libbpf, with siteseer and without it: Debian's libbpf-tools, as the distribution built them.
//!
//! The tools are stripped programs that were linked with a static libbpf. They are not built again: a library that the
//! dynamic linker loads first (tests/clients/plug.c) calls `siteseer_register()` before `main()`. It must know where
//! the program has libbpf's functions ([`linked`]). There are two such libraries. In one, siteseer calls the libbpf
//! that is in the program. This is what linking with static libraries would give. In the other, each of libbpf's
//! functions in the program jumps to the same function of libbpf.so, which siteseer uses too. That is what linking with
//! shared libraries would give.
//!
//! Both also replace `fentry_can_attach()` by `siteseer_can_attach()`, as siteseer.h recommends for these tools: its
//! first instructions become a jump.
//!
//! | step | where | file |
//! |---|---|---|
//! | tools, libraries and the two plugs | host | [`prepare`] |
//! | each tool starts, known calls are made, it stops | guest | [`guest`], [`workload`], [`programs`] |
//! | the boot | host | [`boot`] |
//! | the runs with siteseer against those without | host | [`judge`], [`page`] |

pub mod boot;
pub mod guest;
pub mod judge;
pub mod linked;
pub mod page;
pub mod prepare;
pub mod programs;
pub mod table;
pub mod workload;

use programs::Program;
use serde::{Deserialize, Serialize};

/// Where the guest has the list of jobs.
pub const JOBS: &str = "/clients/jobs.json";
/// The library with which siteseer uses the program's own libbpf.
pub const PLUG_OWN: &str = "/clients/plug-own.so";
/// The library with which all use libbpf.so.
pub const PLUG_SHARED: &str = "/clients/plug-shared.so";
/// The variable that names the file of addresses for the plug.
pub const MAP: &str = "SITESEER_PLUG_MAP";
/// The variable that has the plug register siteseer.
pub const REGISTER: &str = "SITESEER_PLUG_REGISTER";

/// How a tool is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As Debian ships it.
    Plain,
    /// With siteseer, which uses the tool's own libbpf.
    Siteseer,
    /// With libbpf.so in place of its own.
    SharedPlain,
    /// The same, with siteseer.
    SharedSiteseer,
}

/// Which libbpf is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Linking {
    /// The one in the tool.
    Static,
    /// libbpf.so.
    Shared,
}

impl Linking {
    /// The ways that are compared: without siteseer and with it.
    pub fn ways(self) -> [Way; 2] {
        match self {
            Linking::Static => [Way::Plain, Way::Siteseer],
            Linking::Shared => [Way::SharedPlain, Way::SharedSiteseer],
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Linking::Static => "static",
            Linking::Shared => "shared",
        }
    }
}

/// A tool to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Its name, without Debian's ending; with more words if the tool is also started otherwise.
    pub name: String,
    /// The file in the guest.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The file of addresses for the plug.
    pub map: String,
    /// How it is started, in order.
    pub ways: Vec<Way>,
}

/// A run of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub tool: String,
    /// How it was started.
    pub way: Way,
    /// Seconds until it was attached; nothing if it did not start.
    pub attached: Option<f64>,
    /// Seconds that it took to end.
    pub stopped: f64,
    /// How it ended.
    pub status: String,
    /// Its programs, and how often each ran while the calls were made.
    pub programs: Vec<Program>,
    /// The end of what it printed.
    pub printed: String,
    /// The end of what it wrote to standard error.
    pub messages: String,
}
