// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What came out, as the tables of docs/clients.md.

use super::judge::Verdict;
use super::programs::{Program, To};
use super::{Linking, Run};
use std::fmt::Write as _;

/// The tables of the page, by their names.
pub fn tables(verdicts: &[Verdict], version: &str, release: &str, linking: Linking) -> Vec<(&'static str, String)> {
    let (gains, same): (Vec<&Verdict>, Vec<&Verdict>) =
        verdicts.iter().filter(|verdict| verdict.starts()).partition(|verdict| is_handled(verdict));
    vec![
        ("summary", summary(verdicts, version, release, linking)),
        ("gains", table(&gains)),
        ("same", table(&same)),
        ("exceptions", exceptions(verdicts)),
    ]
}

/// Whether it has programs whose number siteseer changed, or that saw more.
fn is_handled(verdict: &Verdict) -> bool {
    let count = |run: &Run| run.programs.values().map(|program| program.count).sum::<u64>();
    !verdict.more.is_empty() || count(&verdict.runs[0]) != count(&verdict.runs[1])
}

fn summary(verdicts: &[Verdict], version: &str, release: &str, linking: Linking) -> String {
    let started = |nth: usize| verdicts.iter().filter(|verdict| verdict.runs[nth].attached.is_some()).count();
    let more = verdicts.iter().filter(|verdict| !verdict.more.is_empty()).count();
    let wrong = verdicts.iter().filter(|verdict| !verdict.wrong.is_empty()).count();
    let mut later: Vec<f64> = verdicts.iter().filter_map(Verdict::later).collect();
    later.sort_by(f64::total_cmp);
    let mut text = format!("libbpf-tools {version}, Linux {release}, {} libbpf\n\n", linking.word());
    let _ = writeln!(text, "* {} tools; {} start without siteseer, {} with it", verdicts.len(), started(0), started(1));
    let _ = writeln!(text, "* tools with programs that see more calls: {more}");
    let _ = writeln!(text, "* {wrong} tools see less or start in one way only, without a reason in the list");
    if let (Some(median), Some(most)) = (later.get(later.len() / 2), later.last()) {
        let _ = writeln!(text, "* with siteseer, a tool is attached {median:.2} s later (median), at most {most:.2} s");
    }
    text
}

fn table(verdicts: &[&Verdict]) -> String {
    let mut table =
        "| tool | programs | attached after | calls seen | saw more |\n|---|---:|---:|---:|---|\n".to_owned();
    for verdict in verdicts {
        let [plain, with] = &verdict.runs;
        let on_functions = |run: &Run| {
            let is_on_function = |program: &&Program| program.to == To::Function;
            run.programs.values().filter(is_on_function).map(|program| program.count).sum::<u64>()
        };
        let seconds = |run: &Run| run.attached.map_or_else(|| "-".to_owned(), |time| format!("{time:.2} s"));
        let [before, after] = verdict.calls();
        let more = |(name, before, after): &(String, u64, u64)| format!("`{name}` {before} → {after}");
        let _ = writeln!(
            table,
            "| {} | {} → {} | {} → {} | {before} → {after} | {} |",
            verdict.tool,
            on_functions(plain),
            on_functions(with),
            seconds(plain),
            seconds(with),
            verdict.more.iter().map(more).collect::<Vec<_>>().join(", ")
        );
    }
    table
}

fn exceptions(verdicts: &[Verdict]) -> String {
    let mut text = "| tool | what, and why |\n|---|---|\n".to_owned();
    for verdict in verdicts {
        for known in &verdict.known {
            let _ = writeln!(text, "| {} | {known} |", verdict.tool);
        }
        for wrong in &verdict.wrong {
            let _ = writeln!(text, "| {} | **{wrong}** |", verdict.tool);
        }
    }
    text
}
