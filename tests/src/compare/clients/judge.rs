// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A tool with siteseer against the same tool without it.
//!
//! Each of the tool's own programs is compared with itself: what siteseer's programs see at other sites does not make
//! up for a call that the tool's program missed. The calls are made several times, so that the noise is measured: a
//! program that ran equally often each time without siteseer must run as often each time with it, or as often in all
//! times together. If it did not, the guest's own work is among what it sees, and the difference between the most and
//! the least is what this work can change.

use super::programs::{Program, To, Whose};
use super::table::Known;
use super::{Linking, Run, Way};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What siteseer added to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gain {
    /// The program's name.
    pub program: String,
    /// How often it runs without siteseer.
    pub before: u64,
    /// How often it runs at other sites with siteseer.
    pub added: u64,
}

/// What came out for a tool.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Its name.
    pub tool: String,
    /// Without siteseer, and with it.
    pub runs: [Run; 2],
    /// Programs that siteseer runs at other sites too.
    pub gains: Vec<Gain>,
    /// What was wrong and is known, with the reason.
    pub known: Vec<String>,
    /// What was wrong.
    pub wrong: Vec<String>,
    /// Why it sees no calls.
    pub start_only: Option<String>,
}

impl Verdict {
    /// Calls that the programs on functions see each time, without and with siteseer.
    pub fn calls(&self) -> [u64; 2] {
        let sum = |run: &Run| on_functions(run).map(|program| median(&program.runs)).sum();
        [sum(&self.runs[0]), sum(&self.runs[1])]
    }

    /// How many seconds later it was attached with siteseer.
    pub fn later(&self) -> Option<f64> {
        Some(self.runs[1].attached? - self.runs[0].attached?)
    }

    /// Whether it started in both ways.
    pub fn starts(&self) -> bool {
        self.runs.iter().all(|run| run.attached.is_some())
    }

    /// Whether it has programs on functions.
    pub fn is_on_functions(&self) -> bool {
        self.runs.iter().any(|run| on_functions(run).next().is_some())
    }

    /// Whether it saw calls.
    pub fn sees(&self) -> bool {
        self.calls() != [0, 0]
    }
}

/// The programs on functions.
pub fn on_functions(run: &Run) -> impl Iterator<Item = &Program> {
    run.programs.iter().filter(|program| program.to == To::Function)
}

/// Compares all runs. If there are several of a tool, noise is what all of those without siteseer show, and the last
/// one with siteseer counts.
pub fn judge(runs: &[Run], linking: Linking, known: &BTreeMap<String, Known>) -> Vec<Verdict> {
    let tools: BTreeSet<&str> = runs.iter().map(|run| &run.tool[..]).collect();
    let both = tools.into_iter().filter_map(|tool| {
        let [plain, with] = linking.ways();
        let plain = of(runs, tool, plain).into_iter();
        let plain = plain.reduce(|before, run| Run { programs: together(&before, &run), ..run });
        Some((tool, [plain?, of(runs, tool, with).pop()?]))
    });
    both.map(|(tool, runs)| compare(runs, known.get(tool).unwrap_or(&Known::default()))).collect()
}

fn of(runs: &[Run], tool: &str, way: Way) -> Vec<Run> {
    runs.iter().filter(|run| run.way == way && run.tool == tool).cloned().collect()
}

/// The programs of a run, with what they saw in an earlier one.
fn together(before: &Run, run: &Run) -> Vec<Program> {
    let add = |program: &Program| {
        let mut program = program.clone();
        program.runs.extend(same(before, &program).map(|earlier| earlier.runs.clone()).unwrap_or_default());
        program
    };
    run.programs.iter().map(add).collect()
}

/// The same program of the tool in another run: it has the name, and is loaded for the same function.
fn same<'r>(run: &'r Run, program: &Program) -> Option<&'r Program> {
    run.programs
        .iter()
        .find(|other| (&other.name, other.whose, &other.function) == (&program.name, Whose::Tool, &program.function))
}

fn compare(runs: [Run; 2], known: &Known) -> Verdict {
    let [plain, with] = &runs;
    let mut verdict = Verdict {
        tool: plain.tool.clone(),
        runs: runs.clone(),
        gains: Vec::new(),
        known: Vec::new(),
        wrong: Vec::new(),
        start_only: known.start_only.clone(),
    };
    let mut note = |what: String, reason: Option<&String>| match reason {
        Some(reason) => verdict.known.push(format!("{what}: {reason}")),
        None => verdict.wrong.push(what),
    };
    let words = |run: &Run| match run.attached {
        Some(_) => format!("starts, {}", run.status),
        None => format!("does not start, {}", run.status),
    };
    if words(plain) != words(with) {
        note(format!("plain: {}; with siteseer: {}", words(plain), words(with)), known.differs.as_ref());
    } else if plain.attached.is_none() {
        note(words(plain), known.does_not_start.as_ref());
    } else if known.does_not_start.is_some() {
        note("it starts, and tools.toml says that it does not".to_owned(), None);
    }
    if with.attached.is_some() {
        for before in &plain.programs {
            let name = &before.name;
            match same(with, before) {
                Some(after) if is_less(before, after) => note(
                    format!("{name} ran {:?} times, and {:?} times without siteseer", after.runs, before.runs),
                    known.less.get(name),
                ),
                Some(_) => {}
                None => note(format!("{name} is not loaded as without siteseer"), known.less.get(name)),
            }
        }
    }
    let names: BTreeSet<&str> =
        with.programs.iter().filter(|p| p.whose == Whose::Siteseer).map(|p| &p.name[..]).collect();
    for name in names {
        let all = |run: &Run, whose: Whose| {
            let of = run.programs.iter().filter(|program| program.name == name && program.whose == whose);
            of.map(|program| median(&program.runs)).sum()
        };
        let (before, added) = (all(plain, Whose::Tool), all(with, Whose::Siteseer));
        verdict.gains.push(Gain { program: name.to_owned(), before, added });
    }
    if with.attached.is_some() {
        for (name, calls) in &known.calls {
            let of = with.programs.iter().filter(|program| program.name == *name);
            let seen: u64 = of.map(|program| median(&program.runs)).sum();
            if seen < *calls {
                verdict.wrong.push(format!("{name} ran {seen} times, and {calls} calls were made"));
            }
        }
    }
    if verdict.starts() && verdict.is_on_functions() && verdict.sees() == known.start_only.is_some() {
        let what =
            if verdict.sees() { "it sees calls, and tools.toml says that it does not" } else { "it sees no calls" };
        verdict.wrong.push(what.to_owned());
    }
    verdict
}

/// Whether a program ran less often. One that is not on a function depends on the machine's load, and siteseer does not
/// touch it.
fn is_less(before: &Program, after: &Program) -> bool {
    let least = before.runs.iter().min().copied().unwrap_or(0);
    let most = before.runs.iter().max().copied().unwrap_or(0);
    let noise = most - least;
    let all: u64 = after.runs.iter().sum();
    let (worst, best) = (after.runs.iter().min(), after.runs.iter().max());
    let (worst, best) = (worst.copied().unwrap_or(0), best.copied().unwrap_or(0));
    match before.to {
        // Without noise, each run counts. One at the border of two times may be counted in either: then all of them
        // together are neither fewer nor more. What is seen more often otherwise does not make up for a loss.
        To::Function if noise == 0 => worst < least && all != least * after.runs.len().max(1) as u64,
        // With noise, a call that is always missed lowers all runs, the best one too.
        To::Function => best + noise < least,
        To::Other => least > 0 && after.runs.iter().all(|runs| *runs == 0),
    }
}

/// The one in the middle. If their number is even, it is the lesser of the two in the middle.
fn median(runs: &[u64]) -> u64 {
    let mut runs = runs.to_vec();
    runs.sort_unstable();
    runs.get(runs.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, whose: Whose, runs: &[u64]) -> Program {
        let function = (whose == Whose::Tool).then(|| "f".to_owned());
        Program { name: name.to_owned(), whose, to: To::Function, function, runs: runs.to_vec() }
    }

    fn run(way: Way, programs: Vec<Program>) -> Run {
        Run {
            tool: "t".to_owned(),
            way,
            attached: Some(0.1),
            stopped: 0.0,
            status: "exit 0".to_owned(),
            programs,
            printed: String::new(),
            messages: String::new(),
        }
    }

    fn both(plain: &[u64], with: &[u64]) -> [Run; 2] {
        [(Way::Plain, plain), (Way::Siteseer, with)].map(|(way, runs)| run(way, vec![program("p", Whose::Tool, runs)]))
    }

    fn wrong(plain: &[u64], with: &[u64], known: &Known) -> Vec<String> {
        compare(both(plain, with), known).wrong
    }

    #[test]
    fn noise_is_what_repetitions_show_and_nothing_else() {
        let known = Known::default();
        assert!(wrong(&[5, 5, 5], &[5, 5, 5], &known).is_empty());
        assert_eq!(
            wrong(&[5, 5, 5], &[5, 4, 5], &known),
            ["p ran [5, 4, 5] times, and [5, 5, 5] times without siteseer"]
        );
        assert!(wrong(&[5, 5, 5], &[5, 4, 6], &known).is_empty(), "one run was counted later");
        assert_eq!(wrong(&[5, 5, 5], &[4, 4, 6], &known).len(), 1);
        assert_eq!(wrong(&[5, 5, 5], &[4, 5, 7], &known).len(), 1, "what is more does not make up for what is less");
        assert_eq!(wrong(&[5, 5, 5], &[], &known).len(), 1);
        assert_eq!(wrong(&[1, 1, 1], &[0, 0, 0], &known).len(), 1);
        assert!(wrong(&[100, 103, 101], &[98, 102, 100], &known).is_empty());
        assert_eq!(wrong(&[100, 103, 101], &[90, 96, 95], &known).len(), 1, "further below than the noise");
        assert!(wrong(&[100, 103, 101], &[90, 102, 91], &known).is_empty(), "once as often");
        let reason = Known { less: BTreeMap::from([("p".to_owned(), "a reason".to_owned())]), ..Known::default() };
        let listed = compare(both(&[5, 5, 5], &[4, 4, 4]), &reason);
        assert!(listed.wrong.is_empty() && listed.known[0].ends_with(": a reason"), "{listed:?}");
        let [first, _] = both(&[98, 98, 98], &[]);
        let all = [vec![first], both(&[100, 100, 100], &[99, 99, 99]).to_vec()].concat();
        assert!(judge(&all, Linking::Static, &BTreeMap::new())[0].wrong.is_empty(), "other runs show noise");
    }

    #[test]
    fn what_is_seen_at_copies_does_not_make_up_for_the_body() {
        let [plain, mut with] = both(&[5, 5, 5], &[4, 4, 4]);
        with.programs.push(program("p", Whose::Siteseer, &[50, 50, 50]));
        let verdict = compare([plain.clone(), with.clone()], &Known::default());
        assert_eq!(verdict.wrong.len(), 1, "{verdict:?}");
        assert_eq!(verdict.gains, [Gain { program: "p".to_owned(), before: 5, added: 50 }]);
        assert_eq!(verdict.calls(), [5, 54]);
        let made = |calls| Known { calls: BTreeMap::from([("p".to_owned(), calls)]), ..Known::default() };
        assert_eq!([54, 55].map(|calls| compare([plain.clone(), with.clone()], &made(calls)).wrong.len()), [1, 2]);
        with.programs.remove(0);
        assert_eq!(
            compare([plain.clone(), with.clone()], &Known::default()).wrong,
            ["p is not loaded as without siteseer"]
        );
        with.programs = vec![Program { function: Some("g".to_owned()), ..program("p", Whose::Tool, &[5, 5, 5]) }];
        assert_eq!(compare([plain, with], &Known::default()).wrong.len(), 1, "it names another function");
    }

    #[test]
    fn a_tool_that_starts_in_one_way_or_sees_no_calls_requires_a_reason() {
        let start = |starts: [bool; 2], known: &Known| {
            let mut runs = both(&[5, 5, 5], &[5, 5, 5]);
            for (run, starts) in runs.iter_mut().zip(starts) {
                run.attached = starts.then_some(0.1);
            }
            compare(runs, known).wrong.len()
        };
        let nowhere = Known { does_not_start: Some("no device".to_owned()), ..Known::default() };
        assert_eq!(start([true, true], &Known::default()), 0);
        assert_eq!(start([true, false], &Known::default()), 1);
        assert_eq!(start([false, true], &Known::default()), 1);
        assert_eq!(start([false, false], &Known::default()), 1);
        assert_eq!(start([false, false], &nowhere), 0);
        assert_eq!(start([true, true], &nowhere), 1);
        let quiet = Known { start_only: Some("no file system".to_owned()), ..Known::default() };
        assert_eq!(wrong(&[0, 0, 0], &[0, 0, 0], &Known::default()), ["it sees no calls"]);
        assert!(wrong(&[0, 0, 0], &[0, 0, 0], &quiet).is_empty());
        assert_eq!(wrong(&[5, 5, 5], &[5, 5, 5], &quiet).len(), 1);
    }
}
