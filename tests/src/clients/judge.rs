// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A tool with siteseer against the same tool without it.

use super::programs::{Program, To};
use super::table::Known;
use super::{Linking, Run, Way};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A program sees the workload's calls and some of the guest's own, which differ from run to run: by so many, and by one in so many.
const NOISE: (u64, u64) = (10, 20);

/// What came out for a tool.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Its name.
    pub tool: String,
    /// Without siteseer, and with it.
    pub runs: [Run; 2],
    /// Programs on functions that saw more with siteseer: name, runs without and with.
    pub more: Vec<(String, u64, u64)>,
    /// What was wrong and is known, with the reason.
    pub known: Vec<String>,
    /// What was wrong.
    pub wrong: Vec<String>,
}

impl Verdict {
    /// Runs of programs on functions, without and with siteseer.
    pub fn calls(&self) -> [u64; 2] {
        let sum = |run: &Run| {
            let on_functions = run.programs.values().filter(|program| program.to == To::Function);
            on_functions.map(|program| program.runs).sum()
        };
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
}

/// Compares all runs. If there are several of a tool, the last ones count.
pub fn judge(runs: &[Run], linking: Linking, known: &BTreeMap<String, Known>) -> Vec<Verdict> {
    let last = |way: Way, tool: &str| runs.iter().rfind(|run| run.way == way && run.tool == tool).cloned();
    let tools: BTreeSet<&str> = runs.iter().map(|run| &run.tool[..]).collect();
    let both = tools.into_iter().filter_map(|tool| {
        let [plain, with] = linking.ways().map(|way| last(way, tool));
        Some((tool, [plain?, with?]))
    });
    both.map(|(tool, runs)| compare(runs, known.get(tool).unwrap_or(&Known::default()))).collect()
}

fn compare(runs: [Run; 2], known: &Known) -> Verdict {
    let [plain, with] = &runs;
    let mut verdict = Verdict {
        tool: plain.tool.clone(),
        runs: runs.clone(),
        more: Vec::new(),
        known: Vec::new(),
        wrong: Vec::new(),
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
        for (name, before) in &plain.programs {
            let after = with.programs.get(name).map_or(0, |program| program.runs);
            if is_less(before, after) {
                note(
                    format!("{name} ran {after} times, and {} times without siteseer", before.runs),
                    known.less.get(name),
                );
            }
        }
    }
    for (name, after) in with.programs.iter().filter(|(_, program)| program.to == To::Function) {
        let before = plain.programs.get(name).map_or(0, |program| program.runs);
        if is_less(after, before) {
            verdict.more.push((name.clone(), before, after.runs));
        }
    }
    verdict
}

/// Whether so many runs are less than those of the program. What is not on a function depends on the machine's load.
fn is_less(program: &Program, runs: u64) -> bool {
    match program.to {
        To::Function => runs + NOISE.0 + program.runs / NOISE.1 < program.runs,
        To::Other => program.runs > NOISE.0 && runs == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(attached: Option<f64>, runs: u64) -> Run {
        let program = Program { to: To::Function, count: 1, runs, missed: 0 };
        Run {
            tool: "t".to_owned(),
            way: Way::Plain,
            attached,
            stopped: 0.0,
            status: "exit 0".to_owned(),
            programs: BTreeMap::from([("p".to_owned(), program)]),
            printed: String::new(),
            messages: String::new(),
        }
    }

    #[test]
    fn a_tool_that_sees_less_or_starts_in_one_way_is_wrong_unless_there_is_a_reason() {
        let known = Known::default();
        let same = compare([run(Some(0.1), 100), run(Some(0.2), 95)], &known);
        assert!(same.wrong.is_empty() && same.more.is_empty() && same.starts(), "{same:?}");
        let less = || [run(Some(0.1), 100), run(Some(0.2), 80)];
        assert_eq!(compare(less(), &known).wrong, ["p ran 80 times, and 100 times without siteseer"]);
        let reason = Known { less: BTreeMap::from([("p".to_owned(), "a reason".to_owned())]), ..Known::default() };
        let listed = compare(less(), &reason);
        assert!(listed.wrong.is_empty() && listed.known[0].ends_with(": a reason"), "{listed:?}");
        let more = compare([run(Some(0.1), 100), run(Some(0.2), 300)], &known);
        assert_eq!((more.more, more.wrong.len()), (vec![("p".to_owned(), 100, 300)], 0));
        assert_eq!(compare([run(Some(0.1), 1), run(None, 1)], &known).wrong.len(), 1);
        assert_eq!(compare([run(None, 1), run(Some(0.1), 1)], &known).wrong.len(), 1);
        assert_eq!(compare([run(None, 1), run(None, 1)], &known).wrong.len(), 1);
        let listed = Known { does_not_start: Some("no device".to_owned()), ..Known::default() };
        assert!(compare([run(None, 1), run(None, 1)], &listed).wrong.is_empty());
        assert_eq!(compare([run(Some(0.1), 1), run(Some(0.1), 1)], &listed).wrong.len(), 1);
    }
}
