// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Real clients of libbpf, with siteseer and without it: libbpf-tools, from the sources of Debian's package.
//!
//! Each tool is linked in four ways (tests/clients/build.mk): with a static or a shared libbpf, without siteseer or
//! with it. With siteseer, it also has the object of tests/clients/constructor.c. Everything else is compiled once.
//!
//! | step | where | file |
//! |---|---|---|
//! | tools are built, libraries are found | host | [`build`], [`prepare`] |
//! | each tool starts, known calls are made, it stops | guest | [`guest`], [`workload`], [`programs`] |
//! | the boot | host | [`boot`] |
//! | the runs with siteseer against those without | host | [`judge`], [`page`] |

pub mod boot;
pub mod build;
pub mod guest;
pub mod judge;
pub mod page;
pub mod prepare;
pub mod programs;
pub mod table;
pub mod workload;

use programs::Program;
use serde::{Deserialize, Serialize};

/// Where the guest has the list of jobs.
pub const JOBS: &str = "/clients/jobs.json";
/// How a tool is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// With libbpf.a.
    Plain,
    /// With libsiteseer.a and libbpf.a.
    Siteseer,
    /// With libbpf.so.
    SharedPlain,
    /// With libsiteseer.so and libbpf.so.
    SharedSiteseer,
}

impl Way {
    /// The folder of its programs, in the build and in the guest.
    pub fn folder(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Siteseer => "siteseer",
            Way::SharedPlain => "shared_plain",
            Way::SharedSiteseer => "shared_siteseer",
        }
    }

    /// A program in the guest.
    pub fn program(self, file: &str) -> String {
        format!("/clients/{}/{file}", self.folder())
    }
}

/// Which libbpf is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Linking {
    /// libbpf.a.
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
    /// Its name; with more words if the tool is also started otherwise.
    pub name: String,
    /// The name that it is started by.
    pub tool: String,
    /// Its file. Some have several names.
    pub file: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How it is linked, in order.
    pub ways: Vec<Way>,
}

/// A run of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub tool: String,
    /// How it was linked.
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
