// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What was counted, by compiler and by the form of the location, as text and as JSON.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// What values are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct ValueKey {
    /// `gcc-12`, `clang-22`.
    pub(crate) compiler: String,
    /// `x86-64`, `arm64`.
    pub(crate) machine: String,
    /// `body`, `clone`, `inline`.
    pub(crate) site: String,
    /// What the debug information has (`list`, `expression`, ...) and what was made of it (`register`, `memory`, ...).
    pub(crate) form: String,
    /// Why the location is doubtful; `None` if it is certain.
    pub(crate) doubt: Option<String>,
}

/// The outcome for values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Values {
    /// The value was the one passed.
    pub(crate) right: u64,
    /// It was another, or could not be read.
    pub(crate) wrong: u64,
}

impl Values {
    /// How many were compared.
    pub(crate) fn compared(self) -> u64 {
        self.right + self.wrong
    }

    pub(crate) fn add(&mut self, other: Values) {
        self.right += other.right;
        self.wrong += other.wrong;
    }
}

/// The outcome for calls, by compiler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Calls {
    /// Runs of a compiled program.
    pub(crate) runs: u64,
    /// Runs that did not do what the unoptimised program did, or did not end: not counted elsewhere.
    pub(crate) failed_runs: u64,
    /// Calls of a body that does something that cannot be removed.
    pub(crate) calls: u64,
    /// Calls that a site saw.
    pub(crate) seen: u64,
    /// Of them, those that were seen only after the body's first effect.
    pub(crate) late: u64,
    /// Calls that no site saw, if no site of the function in that symbol has a mark.
    pub(crate) missed: u64,
    /// The same, where one does.
    pub(crate) missed_marked: u64,
    /// Those of the missed without a mark that a function made of itself: a recursion may have become a loop.
    pub(crate) missed_recursive: u64,
    /// Hits that are of no call, of sites without and with a mark.
    pub(crate) doubled: u64,
    /// The same of sites with a mark.
    pub(crate) doubled_marked: u64,
    /// Calls at sites that a mark keeps from a complete attachment.
    pub(crate) at_marked: u64,
    /// Sites, and those that were hit.
    pub(crate) sites: u64,
    /// Sites that have a mark about hits.
    pub(crate) marked_sites: u64,
    /// Sites at which no probe can be put.
    pub(crate) unprobeable_sites: u64,
}

impl Calls {
    fn add(&mut self, other: &Calls) {
        for (to, from) in [
            (&mut self.runs, other.runs),
            (&mut self.failed_runs, other.failed_runs),
            (&mut self.calls, other.calls),
            (&mut self.seen, other.seen),
            (&mut self.late, other.late),
            (&mut self.missed, other.missed),
            (&mut self.missed_marked, other.missed_marked),
            (&mut self.missed_recursive, other.missed_recursive),
            (&mut self.doubled, other.doubled),
            (&mut self.doubled_marked, other.doubled_marked),
            (&mut self.at_marked, other.at_marked),
            (&mut self.sites, other.sites),
            (&mut self.marked_sites, other.marked_sites),
            (&mut self.unprobeable_sites, other.unprobeable_sites),
        ] {
            *to += from;
        }
    }
}

/// One thing that is wrong, so that it can be looked at.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    /// The kind of failure. The budget file accepts failures by kind.
    pub(crate) kind: String,
    /// The compiler.
    pub(crate) compiler: String,
    /// How to repeat it.
    pub(crate) repeat: String,
    /// What is wrong.
    pub(crate) text: String,
    /// How often it happened.
    pub(crate) times: u64,
}

/// All counts of a run of an instrument.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    /// Arguments at sites, as they were read.
    pub(crate) values: BTreeMap<ValueKey, Values>,
    /// Calls by compiler.
    pub(crate) calls: BTreeMap<String, Calls>,
    /// Arguments without a location, by compiler and reason, once a site.
    pub(crate) missing: BTreeMap<(String, String), u64>,
    /// Arguments with one, once a site.
    pub(crate) located: BTreeMap<String, u64>,
    /// The first failures of each kind.
    pub(crate) failures: BTreeMap<(String, String), Vec<Failure>>,
    /// Programs that end on no input, or make too many calls.
    pub(crate) untold: u64,
    /// The most that one of the reports that were added has, by compiler and kind.
    most: BTreeMap<(String, &'static str), u64>,
}

/// What the budget judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// How the budget names it.
    pub(crate) kind: &'static str,
    pub(crate) count: u64,
    /// Of how many `what`.
    pub(crate) of: u64,
    pub(crate) what: &'static str,
}

/// How many failures of a kind are kept.
const KEPT: usize = 100;

impl Report {
    /// Counts a value.
    pub(crate) fn value(&mut self, key: ValueKey, is_right: bool) {
        let values = self.values.entry(key).or_default();
        if is_right {
            values.right += 1;
        } else {
            values.wrong += 1;
        }
    }

    /// Keeps a failure, unless there are enough of its kind.
    pub(crate) fn fail(&mut self, failure: Failure) {
        let kept = self.failures.entry((failure.compiler.clone(), failure.kind.clone())).or_default();
        if kept.len() < KEPT {
            kept.push(failure);
        }
    }

    /// Adds another report's counts.
    pub(crate) fn add(&mut self, other: Report) {
        let compilers = other.calls.keys().flat_map(|compiler| other.counts(compiler).map(|count| (compiler, count)));
        let most: Vec<_> = compilers
            .map(|(compiler, Count { kind, count, .. })| {
                ((compiler.clone(), kind), count.max(self.most(compiler, kind)))
            })
            .collect();
        for (key, values) in other.values {
            self.values.entry(key).or_default().add(values);
        }
        for (key, calls) in &other.calls {
            self.calls.entry(key.clone()).or_default().add(calls);
        }
        for (key, count) in other.missing {
            *self.missing.entry(key).or_default() += count;
        }
        for (key, count) in other.located {
            *self.located.entry(key).or_default() += count;
        }
        for failure in other.failures.into_values().flatten() {
            self.fail(failure);
        }
        self.untold += other.untold;
        self.most.extend(most);
    }

    /// What the budget judges, of one compiler.
    pub(crate) fn counts(&self, compiler: &str) -> [Count; 5] {
        let calls = self.calls.get(compiler).copied().unwrap_or_default();
        let values = self.of_compiler(compiler, true);
        let count = |kind, count, of, what| Count { kind, count, of, what };
        [
            count("wrong", values.wrong, values.compared(), "values"),
            count("missed", calls.missed, calls.calls, "calls"),
            count("doubled", calls.doubled, calls.calls, "calls"),
            count("excused", calls.missed_marked + calls.doubled_marked, calls.calls, "calls"),
            count("failed", calls.failed_runs, calls.runs, "runs"),
        ]
    }

    /// The most that one program has.
    pub(crate) fn most(&self, compiler: &str, kind: &'static str) -> u64 {
        self.most.get(&(compiler.to_owned(), kind)).copied().unwrap_or_default()
    }

    /// The values of a compiler, certain ones or doubtful ones.
    pub(crate) fn of_compiler(&self, compiler: &str, certain: bool) -> Values {
        let mut sum = Values::default();
        for (key, values) in &self.values {
            if key.compiler == compiler && key.doubt.is_none() == certain {
                sum.add(*values);
            }
        }
        sum
    }

    /// All of it, for machines.
    pub(crate) fn json(&self) -> serde_json::Value {
        let rows = |key: &ValueKey, values: &Values| {
            serde_json::json!({
                "compiler": key.compiler, "machine": key.machine, "site": key.site, "form": key.form,
                "doubt": key.doubt, "compared": values.compared(), "right": values.right, "wrong": values.wrong,
            })
        };
        let missing: Vec<_> = self
            .missing
            .iter()
            .map(|((compiler, reason), count)| {
                serde_json::json!({ "compiler": compiler, "reason": reason, "arguments": count })
            })
            .collect();
        serde_json::json!({
            "values": self.values.iter().map(|(key, values)| rows(key, values)).collect::<Vec<_>>(),
            "calls": self.calls,
            "untold": self.untold,
            "located": self.located,
            "missing": missing,
            "failures": self.failures.values().flatten().collect::<Vec<_>>(),
        })
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.4}%", part as f64 * 100.0 / whole as f64) }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:>7} {:>6} {:>10} {:>9} {:>8} {:>9} {:>9} {:>8} {:>9} {:>10} {:>10}",
            "compiler", "runs", "failed", "calls", "late", "missed", "", "recursion", "marked", "", "doubled", "marked"
        )?;
        for (compiler, calls) in &self.calls {
            writeln!(
                f,
                "{compiler:<10} {:>7} {:>6} {:>10} {:>9} {:>8} {:>9} {:>9} {:>8} {:>9} {:>10} {:>10}",
                calls.runs,
                calls.failed_runs,
                calls.calls,
                calls.late,
                calls.missed,
                percent(calls.missed, calls.calls),
                calls.missed_recursive,
                calls.missed_marked,
                percent(calls.missed_marked, calls.calls),
                calls.doubled,
                calls.doubled_marked,
            )?;
        }
        writeln!(f, "\n{:<10} {:<9} {:>12} {:>9} {:>10}", "compiler", "", "values", "wrong", "")?;
        for compiler in self.calls.keys() {
            for certain in [true, false] {
                let values = self.of_compiler(compiler, certain);
                let word = if certain { "certain" } else { "doubtful" };
                writeln!(
                    f,
                    "{compiler:<10} {word:<9} {:>12} {:>9} {:>10}",
                    values.compared(),
                    values.wrong,
                    percent(values.wrong, values.compared())
                )?;
            }
        }
        writeln!(
            f,
            "\n{:<10} {:<7} {:<7} {:<34} {:<14} {:>10} {:>8} {:>10}",
            "compiler", "machine", "site", "form", "doubt", "values", "wrong", ""
        )?;
        for (key, values) in &self.values {
            writeln!(
                f,
                "{:<10} {:<7} {:<7} {:<34} {:<14} {:>10} {:>8} {:>10}",
                key.compiler,
                key.machine,
                key.site,
                key.form,
                key.doubt.as_deref().unwrap_or("-"),
                values.compared(),
                values.wrong,
                percent(values.wrong, values.compared())
            )?;
        }
        writeln!(f, "\n{:<10} {:<20} {:>9}   (once a site)", "compiler", "arguments", "")?;
        for (compiler, count) in &self.located {
            writeln!(f, "{compiler:<10} {:<20} {count:>9}", "located")?;
        }
        for ((compiler, reason), count) in &self.missing {
            writeln!(f, "{compiler:<10} {reason:<20} {count:>9}")?;
        }
        Ok(())
    }
}
