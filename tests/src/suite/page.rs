// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/conformance.md, from the results of one run.

use super::judge::{Status, Verdict};
use super::results::{KernelRun, Results, Row};
use std::collections::BTreeMap;
use std::fmt::Write as _;

fn mark(status: Status) -> &'static str {
    match status {
        Status::Pass => "✓",
        Status::NotExercised => "–",
        Status::Unsupported => "○",
        Status::Known => "(✗)",
        Status::Fail => "✗",
    }
}

/// A text in a cell of a table.
fn in_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The page.
pub fn page(results: &Results) -> String {
    let mut text = String::from(
        "# Conformance\n\n\
         What siteseer promises, case by case, on kernels of each compiler and link mode. Each case is a kernel module that is built \
         by the kernel's own compiler, makes known calls with known arguments, and is traced by BPF programs; all calls must be \
         seen, in their order, with their values, and nothing else. The cases are in [tests/cases](../tests/cases/README.md). \
         This page and [its picture](conformance.svg) are written by `ci/matrix --update-docs`.\n\n\
         | | |\n|---|---|\n",
    );
    for status in Status::ALL {
        let meaning = match status {
            Status::Pass => "the compiler did it, and all that must come out came out",
            Status::NotExercised => "the compiler did not do it on this kernel, or the case has no meaning there",
            Status::Unsupported => "refused, for a limit of the kernel or of the debug information",
            Status::Known => "it fails, and what is wrong is known; case by case below",
            Status::Fail => "anything else",
        };
        let _ = writeln!(text, "| {} {status} | {meaning} |", mark(status));
    }
    text.push_str("\n![Cases by kernels](conformance.svg)\n\n## Kernels\n\n");
    text.push_str(
        "| kernel | release | made with | pass | not exercised | unsupported | fail (known) | fail |\n|---|---|---|---|---|---|---|---|\n",
    );
    for kernel in &results.kernels {
        let counts = results.counts(&kernel.name);
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            kernel.name,
            kernel.release,
            kernel.made_with,
            count(Status::Pass),
            count(Status::NotExercised),
            count(Status::Unsupported),
            count(Status::Known),
            count(Status::Fail)
        );
    }
    for kernel in &results.kernels {
        if let Some(problem) = &kernel.problem {
            let _ = writeln!(text, "\n**{}**: {}", kernel.name, in_cell(problem));
        }
    }
    for (group, heading) in [("suite", "Cases"), ("truth", "Functions of the kernel itself")] {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.group == group).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n## {heading}\n");
            table(&mut text, results, &rows);
        }
    }
    text.push_str("\n## Case by case\n");
    for row in &results.rows {
        let others: BTreeMap<&str, Vec<&str>> = reasons(&results.kernels, row);
        if row.group != "suite" && others.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n### {}: {}\n", row.name, in_cell(&row.title));
        if !row.about.is_empty() {
            let _ = writeln!(text, "{}", row.about.replace('<', "&lt;"));
        }
        if !others.is_empty() {
            text.push('\n');
        }
        for (reason, kernels) in others {
            let _ = writeln!(text, "* {}: {reason}", kernels.join(", "));
        }
    }
    text
}

/// What keeps a case from passing, by the sentence that describes it.
fn reasons<'r>(kernels: &'r [KernelRun], row: &'r Row) -> BTreeMap<&'r str, Vec<&'r str>> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kernel in kernels {
        if let Some(Verdict { status, detail }) = row.cells.get(&kernel.name)
            && *status != Status::Pass
        {
            let first = detail.lines().next().unwrap_or_default();
            reasons.entry(first).or_default().push(&kernel.name);
        }
    }
    reasons
}

fn table(text: &mut String, results: &Results, rows: &[&Row]) {
    let names: Vec<&str> = results.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let _ = writeln!(text, "| case | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    for row in rows {
        let cell = |kernel: &KernelRun| results.cell(row, kernel).map_or("", |verdict| mark(verdict.status));
        let cells: Vec<&str> = results.kernels.iter().map(cell).collect();
        let title = if row.title.is_empty() { row.name.clone() } else { in_cell(&row.title) };
        let _ = writeln!(text, "| {title} | {} |", cells.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn every_cell_and_every_reason_is_on_the_page() {
        let page = page(&example());
        for line in [
            "| The &lt;good> | ✓ | ✗ |",
            "| The &lt;gone> | – |  |",
            "| The &lt;limit> | ○ |  |",
            "* two: wrong",
            "* one: GCC did not",
            "* one: no location",
            "**two**: it does not boot",
            "| one | 7.3.4 | gcc 14, x86_64 | 1 | 1 | 1 | 0 | 0 |",
        ] {
            assert!(page.lines().any(|text| text == line), "{line}\n{page}");
        }
        assert!(!page.contains("1 as expected"));
    }
}
