// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the host tells the guest to do with a case, and what the guest tells about it. The guest attaches, runs and
//! writes down; the host knows what must come out.

use super::limits::InWay;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The folder in the guest with a folder for each case.
pub const FOLDER: &str = "/suite";
/// A case's [`Job`] in its folder.
pub const JOB: &str = "job.json";
/// A case's module in its folder.
pub const MODULE: &str = "module.ko";
/// A case's BPF programs in its folder.
pub const OBJECT: &str = "prog.bpf.o";

/// One case to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The case.
    pub case: String,
    /// The module's name.
    pub module: String,
    /// The number that is written to its parameter.
    pub run: u32,
    /// Whether calls by other processes count.
    pub any_process: bool,
    /// Symbols for which the addresses are wanted.
    pub symbols: Vec<String>,
    /// What is to be attached, one after the other.
    pub attempts: Vec<Attempt>,
}

/// Programs to attach together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// The programs, in their order.
    pub programs: Vec<String>,
    /// Whether the policy is `complete`; `None` for the section's own.
    pub complete: Option<bool>,
    /// A function in place of the section's.
    pub function: Option<String>,
    /// The file that declares it.
    pub file: Option<String>,
    /// Whether functions of the name with other prototypes are taken too.
    pub all_prototypes: bool,
    /// Whether doubtful arguments are read, too.
    pub accept_doubt: bool,
    /// The cookie.
    pub cookie: u64,
}

/// What was seen of a case: one line of the guest's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The case.
    pub suite: String,
    /// What went wrong with the case as a whole: the module does not load, the programs do not.
    pub broken: Option<String>,
    /// Addresses of the symbols that were asked for, of those that there are.
    pub addresses: BTreeMap<String, u64>,
    /// One for each [`Attempt`].
    pub attempts: Vec<Attempted>,
    /// Milliseconds of the guest's time that it took.
    pub milliseconds: u64,
}

/// The outcome of an [`Attempt`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attempted {
    /// Everything was attached.
    Attached(Attached),
    /// Something was in the way. Nothing is attached, and a run of the calls has shown so.
    Refused(Refused),
    /// An error that is not a refusal.
    Error(String),
}

/// Attached, run, detached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// What was sent while the programs were attached.
    pub events: Vec<Sent>,
    /// What was sent by the calls after they were detached.
    pub after: Vec<Sent>,
    /// Calls for which an argument could not be read.
    pub faults: u64,
    /// Calls that the kernel ran no program for.
    pub missed: u64,
    /// Events that found no room.
    pub lost: u64,
    /// Sites, by kind.
    pub sites: BTreeMap<String, usize>,
    /// Sites that are not attached, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Each site in words.
    pub plan: Vec<SiteLine>,
}

/// Refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why.
    pub reasons: Vec<InWay>,
    /// The error as it is printed.
    pub text: String,
    /// What was sent by calls after the refusal.
    pub after: Vec<Sent>,
}

/// A record of the ring buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The program.
    pub program: String,
    /// The values; `None` for one that the program says is absent.
    pub values: Vec<Option<u64>>,
}

/// A site of a plan, without addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SiteLine {
    /// The function.
    pub function: String,
    /// `body`, `clone`, `inline`.
    pub kind: String,
    /// Whether it is in the kernel's image, not in the case's module.
    pub in_image: bool,
    /// The symbol that holds it.
    pub symbol: String,
    /// File, without folders, and line of where it is called (inline) or declared.
    pub source: String,
    /// The mechanism, or why it is not attached.
    pub outcome: String,
    /// Where each argument is.
    pub arguments: Vec<String>,
}
