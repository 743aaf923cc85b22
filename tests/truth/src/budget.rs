// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is accepted, by compiler and kind, each with its reason.
//!
//! A budget holds shares, since how much is counted depends on how long an instrument runs. A share that a short run
//! measures scatters about the true one, so what is allowed is what a true share of that size exceeds once in some ten
//! thousand runs. The program with the most of a kind is left out: another is to show what one shows.

use crate::report::{Count, Report};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Why there is no budget.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BudgetError {
    /// The file cannot be read.
    #[error("{}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// It does not say what is accepted.
    #[error("{}", .0.display())]
    Toml(PathBuf, #[source] Box<toml::de::Error>),
}

/// Who writes the programs, if the budget does not say.
const OWN: &str = "own";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    accept: Vec<Accept>,
}

/// What is accepted of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accept {
    /// What a compiler's name begins with.
    compiler: String,
    /// `wrong`, `missed`, `doubled`, `excused`.
    kind: String,
    /// Who writes the programs, if not we: `csmith`.
    generator: Option<String>,
    /// Of a million values, or calls.
    per_million: f64,
    /// Why.
    reason: String,
}

impl Budget {
    /// Reads a budget file.
    pub(crate) fn read(path: &Path) -> Result<Budget, BudgetError> {
        let text = std::fs::read_to_string(path).map_err(|error| BudgetError::File(path.to_owned(), error))?;
        toml::from_str(&text).map_err(|error| BudgetError::Toml(path.to_owned(), Box::new(error)))
    }

    /// What a report has too much of.
    pub(crate) fn exceeded_by(&self, report: &Report, generator: &str) -> Vec<String> {
        // What could not be compiled, encoded or run tells nothing, and is never accepted.
        let is_blank = |kind: &str| matches!(kind, "build" | "program");
        let blank = report.failures.iter().filter(|((_, kind), _)| is_blank(kind));
        let mut lines: Vec<String> = blank
            .flat_map(|(_, failures)| failures)
            .map(|failure| format!("{}: {}", failure.compiler, failure.text))
            .collect();
        for compiler in report.calls.keys() {
            for Count { kind, count, of, what } in report.counts(compiler) {
                let accepted = self.accepted(generator, compiler, kind);
                let share = accepted.map_or(0.0, |accept| accept.per_million);
                // One program's loop may make thousands. It is printed, but does not tell what share is to be expected.
                let judged = count - accepted.map_or(0, |_| report.most(compiler, kind));
                if judged as f64 > allowed(share, of) {
                    let reason = accepted.map_or("nothing is accepted", |accept| &accept.reason);
                    lines.push(format!(
                        "{compiler}: {count} {kind} of {of} {what}, {judged} of them not of the program with the most, \
                         {share} of a million accepted: {reason}"
                    ));
                }
            }
        }
        lines
    }

    /// How many of a million are accepted, and why.
    pub(crate) fn share(&self, compiler: &str, kind: &str) -> (f64, &str) {
        self.accepted(OWN, compiler, kind)
            .map_or((0.0, "nothing is accepted"), |accept| (accept.per_million, &accept.reason))
    }

    fn accepted(&self, generator: &str, compiler: &str, kind: &str) -> Option<&Accept> {
        let is_it = |accept: &&Accept| {
            accept.generator.as_deref().unwrap_or(OWN) == generator
                && compiler.starts_with(&accept.compiler)
                && accept.kind == kind
        };
        self.accept.iter().find(is_it)
    }
}

/// How many of a number are still no sign of a higher share.
fn allowed(per_million: f64, of: u64) -> f64 {
    let expected = per_million * of as f64 / 1e6;
    // Failures come in heaps: one bad place of a program is executed hundreds of times, on all inputs.
    const HEAP: f64 = 600.0;
    expected + 4.0 * (expected * HEAP).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Calls;

    #[test]
    fn nothing_is_accepted_where_nothing_is_written() {
        assert_eq!(allowed(0.0, 1_000_000), 0.0);
    }

    #[test]
    fn one_program_alone_is_not_over_the_budget() {
        let accept = |kind: &str| Accept {
            compiler: "gcc".into(),
            kind: kind.into(),
            generator: None,
            per_million: 100.0,
            reason: String::new(),
        };
        let budget = Budget { accept: vec![accept("doubled"), accept("failed")] };
        let program = |doubled, missed| {
            let calls = Calls { calls: 3000, doubled, missed, ..Calls::default() };
            let mut report = Report::default();
            report.calls.insert("gcc-14".to_owned(), calls);
            report
        };
        let exceeded = |programs: &[(u64, u64)]| {
            let mut report = Report::default();
            programs.iter().for_each(|&(doubled, missed)| report.add(program(doubled, missed)));
            budget.exceeded_by(&report, OWN).len()
        };
        assert_eq!(exceeded(&[(6560, 0), (0, 0)]), 0);
        assert_eq!(exceeded(&[(6560, 0), (0, 0), (600, 0)]), 1);
        assert_eq!(exceeded(&[(0, 1), (0, 0)]), 1, "a kind that nothing is accepted of");
    }

    #[test]
    fn long_runs_come_close_to_the_share() {
        assert!(allowed(100.0, 1_000_000_000) < 1.4 * 100_000.0);
        assert!(allowed(100.0, 1_000) > 1.0);
    }
}
