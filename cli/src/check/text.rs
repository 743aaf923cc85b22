// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `siteseer check` prints for people: for each function a table by kernels, then what the rules found.

use super::{Results, Subject};
use siteseer::internals::check::{Answer, Finding};
use std::fmt::Write as _;

/// The columns' heads. The last is not padded.
const HEADS: [&str; 9] = ["KERNEL", "SHAPE", "BODIES", "CLONES", "INLINED", "ARGUMENTS", "ATTACHED", "BY", "COMPLETE"];
/// The columns of numbers, which are put to the right.
const NUMBERS: std::ops::Range<usize> = 2..7;

pub(super) fn all(results: &Results<'_>) -> String {
    let mut text = String::new();
    for (nth, (subject, answers)) in results.subjects.iter().zip(&results.answers).enumerate() {
        if nth > 0 {
            text.push('\n');
        }
        function(&mut text, results, subject, answers);
    }
    let denied = results.denied();
    let plural = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let _ = write!(
        text,
        "\n{} on {}: ",
        plural(results.subjects.len(), "question"),
        plural(results.kernels.len(), "kernel")
    );
    text.push_str(&match denied {
        0 => "nothing that is denied was found\n".to_owned(),
        denied => format!("{} denied\n", plural(denied, "finding")),
    });
    text
}

fn function(text: &mut String, results: &Results<'_>, subject: &Subject, answers: &[Answer]) {
    let _ = match subject.asker.program() {
        Some((object, program, section)) => {
            writeln!(text, "{}: program {program} of {}, SEC(\"{section}\")", subject.name(), object.display())
        }
        None => writeln!(text, "{}", subject.name()),
    };
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(results.kernels.iter().zip(answers).map(|(kernel, answer)| row(&kernel.name, answer)));
    let widths: Vec<usize> =
        (0..HEADS.len()).map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ =
                if NUMBERS.contains(&at) { write!(line, "  {cell:>width$}") } else { write!(line, "  {cell:width$}") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for (finding, kernels) in grouped(results, answers) {
        let word = if results.deny.has(finding.rule) { "denied" } else { "note" };
        let message = finding.message.replace('\n', "\n      ");
        let _ = writeln!(text, "  {word}: {} ({}): {message}", finding.rule.key(), kernels.join(", "));
    }
}

/// What is said about several kernels is said once.
fn grouped<'a>(results: &'a Results<'_>, answers: &'a [Answer]) -> Vec<(&'a Finding, Vec<&'a str>)> {
    let mut grouped: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for (kernel, answer) in results.kernels.iter().zip(answers) {
        for finding in &answer.findings {
            match grouped.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, kernels)) => kernels.push(&kernel.name),
                None => grouped.push((finding, vec![&kernel.name])),
            }
        }
    }
    // What is denied first, each in the order of the rules.
    grouped.sort_by_key(|(finding, _)| (!results.deny.has(finding.rule), finding.rule));
    grouped
}

fn row(kernel: &str, answer: &Answer) -> [String; HEADS.len()] {
    if !answer.has_function() {
        let mut row = [const { String::new() }; HEADS.len()];
        (row[0], row[1]) = (kernel.to_owned(), answer.shape.to_string());
        return row;
    }
    let sites: usize = answer.prototypes.iter().map(|prototype| prototype.sites).sum();
    let complete: usize = answer.prototypes.iter().map(|prototype| prototype.complete).sum();
    // A name is answered for both ends; the entry's numbers are shown.
    let shown = answer.outlooks.iter().filter(|outlook| answer.outlooks.len() == 1 || !outlook.form.kind.is_exit());
    let (mut attached, mut of, mut is_complete) = (0, 0, true);
    let mut mechanisms: Vec<&str> = Vec::new();
    for outlook in shown {
        attached += outlook.attached;
        of += outlook.sites;
        is_complete &= outlook.is_complete();
        mechanisms.extend(outlook.mechanisms.keys());
    }
    mechanisms.sort_unstable();
    mechanisms.dedup();
    [
        kernel.to_owned(),
        answer.shape.to_string(),
        answer.bodies.to_string(),
        answer.clones.to_string(),
        answer.inlined.to_string(),
        format!("{complete} of {sites}"),
        format!("{attached} of {of}"),
        if mechanisms.is_empty() { "-".to_owned() } else { mechanisms.join(", ") },
        if is_complete && of > 0 { "yes" } else { "refused" }.to_owned(),
    ]
}
