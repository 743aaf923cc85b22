// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The result of a run over kernels: what the page, the chart and the JSON file are made from.

use super::judge::{Status, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Cases by kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// The kernels, in the matrix's order.
    pub kernels: Vec<KernelRun>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// The outcome of a kernel's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRun {
    /// Its name in kernels/matrix.toml.
    pub name: String,
    /// `uname -r`; empty if the kernel is not there.
    pub release: String,
    /// What it was made with, in words; empty if that is not known.
    pub made_with: String,
    /// What went wrong with the run as a whole: no kernel, no boot, a complaint of the kernel.
    pub problem: Option<String>,
    /// Seconds from QEMU's start to its end.
    pub seconds: u64,
}

impl KernelRun {
    /// A kernel that did not run.
    pub fn failed(name: &str, release: &str, problem: impl Into<String>) -> KernelRun {
        KernelRun {
            name: name.to_owned(),
            release: release.to_owned(),
            made_with: String::new(),
            problem: Some(problem.into()),
            seconds: 0,
        }
    }
}

/// A case on all kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The group: `suite` for a case with a module, `truth` for a function of the kernel itself.
    pub group: String,
    /// The case.
    pub name: String,
    /// A few words.
    pub title: String,
    /// A sentence or two.
    pub about: String,
    /// By kernel.
    pub cells: BTreeMap<String, Verdict>,
}

impl Results {
    /// The cell of a case and a kernel.
    pub fn cell(&self, row: &Row, kernel: &KernelRun) -> Option<Verdict> {
        row.cells.get(&kernel.name).cloned()
    }

    /// The results of another run with other kernels besides, in the order that is given.
    ///
    /// # Errors
    /// If the runs have a kernel in common, or not the same cases: they are not of one state of the tree.
    pub fn join(mut self, other: Results, order: &[&str]) -> Result<Results, String> {
        if let Some(both) = other.kernels.iter().find(|kernel| self.kernels.iter().any(|own| own.name == kernel.name)) {
            return Err(format!("two results have {}", both.name));
        }
        let mut others = other.rows;
        for row in &mut self.rows {
            let is_same = |other: &Row| (&other.group, &other.name) == (&row.group, &row.name);
            let Some(at) = others.iter().position(is_same) else {
                return Err(format!("only one of two results has {}::{}", row.group, row.name));
            };
            row.cells.extend(others.remove(at).cells);
        }
        if let Some(row) = others.first() {
            return Err(format!("only one of two results has {}::{}", row.group, row.name));
        }
        self.kernels.extend(other.kernels);
        self.kernels.sort_by_key(|kernel| order.iter().position(|name| *name == kernel.name));
        Ok(self)
    }

    /// How many cells of a kernel have each status.
    pub fn counts(&self, kernel: &str) -> BTreeMap<Status, usize> {
        let mut counts = BTreeMap::new();
        for verdict in self.rows.iter().filter_map(|row| row.cells.get(kernel)) {
            *counts.entry(verdict.status).or_default() += 1;
        }
        counts
    }

    /// What failed: kernels, and cases on kernels, also those that are known to.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for kernel in &self.kernels {
            if let Some(problem) = &kernel.problem {
                failures.push(format!("{}: {problem}", kernel.name));
            }
        }
        for row in &self.rows {
            for (kernel, verdict) in &row.cells {
                if matches!(verdict.status, Status::Fail | Status::Known) {
                    failures.push(format!("{kernel}::{}::{}: {}", row.group, row.name, verdict.detail));
                }
            }
        }
        failures
    }

    /// Cases that no kernel exercised: they show nothing.
    pub fn never_exercised(&self) -> Vec<&Row> {
        let shown = |row: &&Row| row.cells.values().all(|verdict| verdict.status == Status::NotExercised);
        self.rows.iter().filter(shown).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Results {
        let kernel = |name: &str, problem: Option<&str>| KernelRun {
            name: name.to_owned(),
            release: "7.3.4".to_owned(),
            made_with: "gcc 14, x86_64".to_owned(),
            problem: problem.map(str::to_owned),
            seconds: 60,
        };
        let row = |name: &str, cells: &[(&str, Status, &str)]| Row {
            group: "suite".to_owned(),
            name: name.to_owned(),
            title: format!("The <{name}>"),
            about: "About | it.".to_owned(),
            cells: cells
                .iter()
                .map(|(kernel, status, detail)| ((*kernel).to_owned(), Verdict::new(*status, *detail)))
                .collect(),
        };
        Results {
            kernels: vec![kernel("one", None), kernel("two", Some("it does not boot"))],
            rows: vec![
                row("good", &[("one", Status::Pass, "1 as expected"), ("two", Status::Fail, "wrong\nvalue")]),
                row("gone", &[("one", Status::NotExercised, "GCC did not")]),
                row("limit", &[("one", Status::Unsupported, "no location")]),
            ],
        }
    }

    #[test]
    fn runs_of_several_kernels_are_one_result() {
        let mut other = example();
        for kernel in &mut other.kernels {
            kernel.name.insert_str(0, "other_");
        }
        for row in &mut other.rows {
            row.cells =
                std::mem::take(&mut row.cells).into_iter().map(|(name, v)| (format!("other_{name}"), v)).collect();
        }
        let order = ["other_one", "one", "two", "other_two"];
        let joined = example().join(other.clone(), &order).unwrap();
        assert_eq!(joined.kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>(), order);
        assert_eq!((joined.rows.len(), joined.failures().len()), (3, 4));
        assert!(example().join(example(), &order).unwrap_err().contains("two results have one"));
        other.rows.pop();
        assert!(example().join(other.clone(), &order).unwrap_err().contains("suite::limit"));
        assert!(other.join(example(), &order).is_err());
    }

    #[test]
    fn failures_are_kernels_and_cells() {
        let results = example();
        assert_eq!(results.failures(), ["two: it does not boot", "two::suite::good: wrong\nvalue"]);
        assert_eq!(results.never_exercised().len(), 1);
        let counts = results.counts("one");
        assert_eq!((counts[&Status::Pass], counts[&Status::Unsupported], counts[&Status::NotExercised]), (1, 1, 1));
    }
}
