// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! siteseer beside bpftrace, perf and retsnoop, on the same calls: `ci/compared`.
//!
//! The host asks `perf probe` for definitions of probes, since that needs the image with DWARF, and boots a kernel with
//! the tools. The guest runs each command while a program makes a known number of calls. The page says how many of them
//! each command reported.

pub mod cost;
pub mod guest;
pub mod libraries;
pub mod page;
pub mod wishes;
pub mod work;

use serde::{Deserialize, Serialize};

/// Where the guest finds what it is to run.
pub const ORDERS: &str = "/compared.json";

/// Where the guest has the commands.
pub const FOLDER: &str = "/usr/bin";

/// A tool of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tool {
    /// This project's command.
    Siteseer,
    /// bpftrace, of Debian sid.
    Bpftrace,
    /// perf, of Debian sid.
    Perf,
    /// retsnoop, if the user gives a binary.
    Retsnoop,
}

impl Tool {
    /// All of them, in the page's order.
    pub const ALL: [Tool; 4] = [Tool::Siteseer, Tool::Bpftrace, Tool::Perf, Tool::Retsnoop];

    /// What its command is called.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Siteseer => "siteseer",
            Tool::Bpftrace => "bpftrace",
            Tool::Perf => "perf",
            Tool::Retsnoop => "retsnoop",
        }
    }
}

/// How to read from an output how many calls, or functions, it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The lines with this text.
    Lines(&'static str),
    /// The lines with this text and without a point, which the names of split parts have (`foo.cold`).
    Names(&'static str),
    /// The sum of the first words of the lines with this text.
    First(&'static str),
    /// The sum of the second words of the lines with this text.
    Second(&'static str),
    /// The sum of the last words of the lines with this text.
    Last(&'static str),
    /// The sum of a histogram's numbers, which are before the bars.
    Histogram,
    /// The sum of a histogram's numbers, which are between the first two `|`.
    Column,
}

impl Seen {
    /// The number in an output.
    pub fn count(self, output: &str) -> u64 {
        let number = |word: Option<&str>| word.and_then(|word| word.trim().parse::<u64>().ok()).unwrap_or(0);
        let of = |line: &str| match self {
            Seen::Lines(text) => u64::from(line.contains(text)),
            Seen::Names(text) => u64::from(line.contains(text) && !line.contains('.')),
            Seen::First(text) if line.contains(text) => number(line.split_whitespace().next()),
            Seen::Second(text) if line.contains(text) => number(line.split_whitespace().nth(1)),
            Seen::Last(text) if line.contains(text) => number(line.split_whitespace().next_back()),
            Seen::First(_) | Seen::Second(_) | Seen::Last(_) => 0,
            Seen::Histogram => number(line.split_once('|').and_then(|(row, _)| row.split_whitespace().next_back())),
            Seen::Column => number(line.split('|').nth(1)),
        };
        output.lines().map(of).sum()
    }
}

/// A command that the guest runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// Which wish it is for, or which function's cost is measured.
    pub wish: usize,
    /// The tool, if there is one.
    pub tool: Option<Tool>,
    /// Definitions for the kernel's `kprobe_events`, which `perf probe` printed.
    pub probes: Vec<String>,
    /// What is run first, to its end.
    pub before: Vec<String>,
    /// What runs while the calls are made.
    pub command: String,
    /// What prints the result afterwards.
    pub after: Vec<String>,
    /// The calls: arguments of `calls`. Empty if none are to be made, or if the command makes them.
    pub calls: String,
    /// Whether there is no site data.
    pub without_site_data: bool,
}

/// What a command printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Printed {
    /// The command's wish.
    pub wish: usize,
    /// The tool, if there is one.
    pub tool: Option<Tool>,
    /// The command, which tells those of one tool apart.
    pub command: String,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub messages: String,
    /// Instructions of each call, if the calls were timed.
    pub cost: Option<f64>,
}

/// Words of a command, with single quotation marks as in a shell.
pub fn words(command: &str) -> Vec<String> {
    crate::guest::trace_tool::words(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_outputs() {
        assert_eq!(Seen::Lines("read ").count("read 1\nx\nread 2\n"), 2);
        assert_eq!(Seen::Names("ns_").count("ns_a\nns_a.cold\nx\n"), 1);
        assert_eq!(Seen::First("ns_").count("       CALLS  FUNCTION\n   5  ns_a\n  4  ns_b\n"), 9);
        assert_eq!(Seen::Second("%").count("# Overhead\n  60.00%   3  18\n  40.00%  2  21\n"), 5);
        assert_eq!(Seen::Last("]: ").count("@[18]: 3\n@[21]: 2\n"), 5);
        assert_eq!(Seen::Histogram.count("[1]   1 |@@@@  |\n[2, 4)  7 |@@@|\n"), 8);
        assert_eq!(Seen::Column.count("#  DURATION | COUNT | GRAPH\n 0 - 1 us |  4 | ### |\n"), 4);
    }
}
