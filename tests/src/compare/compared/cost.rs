// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A function that is called a million times: what is counted, and how many instructions each call takes then.
//!
//! The guest's time goes by instructions, so that the time of a call is its instructions.

use super::Seen::{self, First, Last};
use super::{Round, Tool};

/// How often each function is called.
pub const CALLS: u64 = 1_000_000;

/// A function that a system call calls once.
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    /// The function.
    pub function: &'static str,
    /// What is said of it.
    pub about: &'static str,
    /// The system call, as `calls` is told.
    pub call: &'static str,
}

/// One with a body alone, and one that is called in a copy.
pub const BUSY: [Busy; 2] = [
    Busy {
        function: "__x64_sys_umask",
        about: "umask(2) calls its body; it has no copies, so inlining does not matter",
        call: "umask",
    },
    Busy { function: "ksys_semget", about: "semget(2) calls an inlined copy; there is a body too", call: "semget" },
];

/// How its calls are counted. `FUNCTION` and `CALLS` stand for the function and for what calls it.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The tool, if there is one.
    pub tool: Option<Tool>,
    /// Its command.
    pub command: &'static str,
    /// How the calls are read from its output.
    pub seen: Seen,
}

/// All of them, beside no tool at all.
pub const WAYS: [Way; 5] = [
    Way { tool: None, command: "CALLS", seen: Last("none") },
    Way { tool: Some(Tool::Siteseer), command: "siteseer trace FUNCTION --count", seen: First("  ") },
    Way { tool: Some(Tool::Bpftrace), command: "bpftrace -e 'fentry:FUNCTION { @ = count(); }'", seen: Last("@: ") },
    Way { tool: Some(Tool::Bpftrace), command: "bpftrace -e 'kprobe:FUNCTION { @ = count(); }'", seen: Last("@: ") },
    Way { tool: Some(Tool::Perf), command: "perf stat --log-fd 1 -e 'probe:*' CALLS", seen: First("probe:") },
];

impl Way {
    /// The command for a function.
    pub fn of(&self, busy: &Busy) -> String {
        let calls = format!("calls {} {CALLS}", busy.call);
        self.command.replace("FUNCTION", busy.function).replace("CALLS", &calls)
    }

    /// What the guest is to do. The probes are for perf.
    pub fn round(&self, nth: usize, busy: &Busy, probes: &[String]) -> Round {
        let attaches = matches!(self.tool, Some(Tool::Siteseer | Tool::Bpftrace));
        Round {
            wish: nth,
            tool: self.tool,
            probes: if self.tool == Some(Tool::Perf) { probes.to_vec() } else { Vec::new() },
            before: Vec::new(),
            command: self.of(busy),
            after: Vec::new(),
            calls: if attaches { format!("{} {CALLS}", busy.call) } else { String::new() },
            without_site_data: false,
        }
    }
}
