// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From a tool's start until its programs are attached, with plain libbpf and with siteseer, in the guest.
//!
//! The tool is this program once more, `siteseer-guest start WITH PROGRAMS`: what a process has read once it keeps, so
//! each start is a process of its own. Its programs are at functions that have one body (start.bpf.c), where siteseer
//! has nothing to add, and everything that it does besides is cost. The parts are the calls that a tool makes.

use crate::guest::case::{Case, Failure, case};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder};
use serde::{Deserialize, Serialize};
use siteseer::Target;
use siteseer_bpf_progs::START;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a tool is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum With {
    /// libbpf alone.
    Plain,
    /// `siteseer::register()`.
    Siteseer,
    /// The same, and there is no site data.
    NoData,
}

impl With {
    /// All.
    pub const ALL: [With; 3] = [With::Plain, With::Siteseer, With::NoData];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            With::Plain => "plain libbpf",
            With::Siteseer => "siteseer",
            With::NoData => "siteseer without site data",
        }
    }
}

/// How many programs a tool has.
pub const PROGRAMS: [usize; 2] = [1, 10];
/// The calls that a tool makes, in order, and all of them.
pub const PARTS: [&str; 5] = ["register", "open", "load", "attach", "all"];

/// One start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// What with.
    pub with: With,
    /// How many programs.
    pub programs: usize,
    /// Seconds, by the names of [`PARTS`].
    pub parts: BTreeMap<String, f64>,
    /// Bytes that were read until all was attached.
    pub read: u64,
}

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![case("starts", "nothing_is_read_that_is_not_needed", nothing_is_read_that_is_not_needed)]
}

// Proves S0.3.
/// What siteseer reads besides what libbpf does: the kernel's types, and little else; none of the tables that the
/// kernel has to write.
fn nothing_is_read_that_is_not_needed(_: &Target) -> Result<String, Failure> {
    const LITTLE: u64 = 512 << 10;
    let types = fs::read("/sys/kernel/btf/vmlinux")?.len() as u64;
    let mut told = Vec::new();
    for programs in PROGRAMS {
        let (plain, own) = (start(With::Plain, programs)?.read, start(With::Siteseer, programs)?.read);
        if own > plain + types + LITTLE {
            return Err(format!("{programs} programs: {own} bytes were read, {plain} by plain libbpf").into());
        }
        // That there is no site data is found out once.
        let without = without_data(|| start(With::NoData, programs))?.read;
        if without > plain + types + LITTLE {
            return Err(format!("{programs} programs without site data: {without} bytes were read").into());
        }
        told.push(format!("{programs}: {} KiB more than plain libbpf", own.saturating_sub(plain) >> 10));
    }
    Ok(told.join("; "))
}

/// Starts a tool of each kind so many times; a line of JSON for each start goes to `results`.
///
/// # Errors
/// If one does not start, or its programs do not run.
pub fn run(rounds: usize, results: &mut impl Write) -> Result<(), Failure> {
    for _ in 0..rounds {
        for programs in PROGRAMS {
            for with in With::ALL {
                let started =
                    if with == With::NoData { without_data(|| start(with, programs)) } else { start(with, programs) };
                writeln!(results, "{}", serde_json::to_string(&started?)?)?;
            }
        }
    }
    Ok(())
}

/// Runs something while the guest's site data is somewhere else.
fn without_data<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    const FOLDER: &str = "/var/cache/siteseer";
    const AWAY: &str = "/var/cache/siteseer.away";
    let result = fs::rename(FOLDER, AWAY).map_err(Failure::from).and_then(|()| run());
    fs::rename(AWAY, FOLDER)?;
    result
}

/// The median of each part over all rounds but the first.
pub fn medians(rounds: &[Start]) -> Vec<Start> {
    let mut medians = Vec::new();
    for programs in PROGRAMS {
        for with in With::ALL {
            let same = |start: &&Start| (start.with, start.programs) == (with, programs);
            let counted: Vec<&Start> = rounds.iter().filter(same).skip(1).collect();
            let of = |part: &str| {
                let mut seconds: Vec<f64> = counted.iter().filter_map(|start| start.parts.get(part).copied()).collect();
                seconds.sort_by(f64::total_cmp);
                seconds.get(seconds.len() / 2).map(|seconds| (part.to_owned(), *seconds))
            };
            let read = counted.iter().map(|start| start.read).max().unwrap_or(0);
            medians.push(Start { with, programs, parts: PARTS.into_iter().filter_map(of).collect(), read });
        }
    }
    medians
}

/// The parts beside each other, in Markdown.
pub fn table(starts: &[Start]) -> String {
    let words: Vec<&str> = With::ALL.iter().map(|with| with.word()).collect();
    let mut table = format!("| programs | part | {} |\n|---:|---|{}\n", words.join(" | "), "---:|".repeat(words.len()));
    for programs in PROGRAMS {
        for part in PARTS {
            let of = |with: &With| {
                let start = starts.iter().find(|start| (start.with, start.programs) == (*with, programs));
                let seconds = start.and_then(|start| start.parts.get(part));
                seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1000.0))
            };
            let cells: Vec<String> = With::ALL.iter().map(of).collect();
            let _ = writeln!(table, "| {programs} | {part} | {} |", cells.join(" | "));
        }
    }
    table
}

fn start(with: With, programs: usize) -> Result<Start, Failure> {
    let output = Command::new("/proc/self/exe")
        .args(["start", &serde_json::to_string(&with)?, &programs.to_string()])
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} with {programs} programs: {}: {said}", with.word(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The bytes that this process has read so far.
fn bytes_read() -> Result<u64, Failure> {
    let counters = fs::read_to_string("/proc/self/io")?;
    let line = counters.lines().find_map(|line| line.strip_prefix("rchar:"));
    Ok(line.ok_or("/proc/self/io has no rchar")?.trim().parse()?)
}

/// `siteseer-guest start WITH PROGRAMS`: the tool.
///
/// # Errors
/// If it does not start.
pub fn tool(with: &str, programs: usize) -> Result<(), Failure> {
    let with: With = serde_json::from_str(with)?;
    let mut parts = BTreeMap::new();
    let before = bytes_read()?;
    let first = Instant::now();
    let mut begin = first;
    let mut note = |part: &str, begin: &mut Instant| {
        parts.insert(part.to_owned(), begin.elapsed().as_secs_f64());
        *begin = Instant::now();
    };
    if with != With::Plain {
        siteseer::register()?;
    }
    note("register", &mut begin);
    let mut open = ObjectBuilder::default().open_memory(START)?;
    for (nth, mut program) in open.progs_mut().enumerate() {
        program.set_autoload(nth < programs);
    }
    note("open", &mut begin);
    let object = open.load()?;
    note("load", &mut begin);
    let links = object.progs_mut().take(programs).map(|program| program.attach()).collect::<Result<Vec<_>, _>>()?;
    note("attach", &mut begin);
    let mut whole = first;
    note("all", &mut whole);
    let read = bytes_read()? - before;

    let seen = || -> Result<u64, Failure> {
        let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no .bss")?;
        let bytes = bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.ok_or("no value")?;
        Ok(u64::from_ne_bytes(bytes.get(..8).ok_or("a short .bss")?.try_into()?))
    };
    let before = seen()?;
    // The first program is at iterate_dir().
    let _ = fs::read_dir("/")?.count();
    if links.len() != programs || seen()? <= before {
        return Err("attached, called, and not counted".into());
    }
    Ok(writeln!(io::stdout(), "{}", serde_json::to_string(&Start { with, programs, parts, read })?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_does_not_count() {
        let start = |with, all| Start { with, programs: 1, parts: BTreeMap::from([("all".to_owned(), all)]), read: 0 };
        let rounds = [9.0, 1.0, 3.0, 2.0].map(|all| start(With::Siteseer, all));
        let medians = medians(&rounds);
        assert_eq!(medians.len(), With::ALL.len() * PROGRAMS.len());
        let found = medians.iter().find(|start| start.with == With::Siteseer && start.programs == 1).unwrap();
        assert_eq!(found.parts, BTreeMap::from([("all".to_owned(), 2.0)]));
    }
}
