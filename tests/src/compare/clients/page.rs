// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What came out, as the tables of docs/clients.md.

use super::judge::{Gain, Verdict, on_functions};
use super::{Linking, Run};
use siteseer_sites::SiteSet;
use siteseer_sites::site::SiteKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How many inlined copies each function of a kernel has, except copies in code that is freed after boot.
pub fn copies(set: &SiteSet) -> BTreeMap<String, usize> {
    let mut copies = BTreeMap::new();
    for site in set.sites.iter().filter(|site| site.kind == SiteKind::Inline) {
        let is_freed = set.sections.get(site.section as usize).is_some_and(|section| section.name.starts_with(".init"));
        if let Some(function) = set.functions.get(site.function as usize).filter(|_| !is_freed) {
            *copies.entry(function.name.clone()).or_default() += 1;
        }
    }
    copies
}

/// The tables of the page, by their names. Those with the static libbpf are longer.
pub fn tables(
    verdicts: &[Verdict],
    about: &str,
    linking: Linking,
    copies: &BTreeMap<String, usize>,
    unbuilt: &BTreeMap<String, String>,
) -> Vec<(&'static str, String)> {
    let starts = verdicts.iter().filter(|verdict| verdict.starts());
    let (on_functions, others): (Vec<&Verdict>, Vec<&Verdict>) = starts.partition(|verdict| verdict.is_on_functions());
    let (seeing, quiet): (Vec<&Verdict>, Vec<&Verdict>) = on_functions.into_iter().partition(|verdict| verdict.sees());
    let (handled, same): (Vec<&Verdict>, Vec<&Verdict>) =
        seeing.into_iter().partition(|verdict| !verdict.gains.is_empty() || !functions(verdict, copies).is_empty());
    let summary = summary(verdicts, about, linking);
    match linking {
        Linking::Static => vec![
            ("summary", summary),
            ("gains", gains(&handled, copies)),
            ("same", table(&same)),
            ("quiet", start_only(&quiet)),
            ("others", names(&others)),
            ("exceptions", exceptions(verdicts, unbuilt)),
        ],
        Linking::Shared => vec![
            ("shared-summary", summary),
            ("shared-gains", gains(&handled, copies)),
            ("shared-same", table(&same)),
            ("shared-exceptions", exceptions(verdicts, unbuilt)),
        ],
    }
}

/// The functions with copies that its programs are for.
fn functions<'v>(verdict: &'v Verdict, copies: &BTreeMap<String, usize>) -> BTreeSet<(&'v str, usize)> {
    let named = on_functions(&verdict.runs[0]).filter_map(|program| program.function.as_deref());
    named.filter_map(|function| Some((function, *copies.get(function)?))).collect()
}

fn summary(verdicts: &[Verdict], about: &str, linking: Linking) -> String {
    let count = |wanted: &dyn Fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| wanted(verdict)).count();
    let started = |nth: usize| count(&|verdict| verdict.runs[nth].attached.is_some());
    let more = count(&|verdict| verdict.gains.iter().any(|gain| gain.added > 0));
    let compared: Vec<_> =
        verdicts.iter().filter(|verdict| verdict.starts()).flat_map(|v| on_functions(&v.runs[0])).collect();
    let called = compared.iter().filter(|program| program.runs.iter().any(|runs| *runs > 0));
    let exact = called.clone().filter(|program| program.runs.iter().all(|runs| *runs == program.runs[0])).count();
    let mut later: Vec<f64> = verdicts.iter().filter_map(Verdict::later).collect();
    later.sort_by(f64::total_cmp);
    let mut text = format!("{about}, {} libbpf\n\n", linking.word());
    let _ = writeln!(
        text,
        "* {} tools and arguments; {} start without siteseer, {} with it",
        verdicts.len(),
        started(0),
        started(1)
    );
    let _ = writeln!(
        text,
        "* {} programs on functions; {} see calls, {exact} of them the same number each time without siteseer",
        compared.len(),
        called.count(),
    );
    let _ = writeln!(text, "* tools with programs that see calls at other sites too: {more}");
    let _ = writeln!(
        text,
        "* {} tools see less or start in one way only, without a reason in the list",
        count(&|verdict| !verdict.wrong.is_empty())
    );
    if let (Some(median), Some(most)) = (later.get(later.len() / 2), later.last()) {
        let _ = writeln!(text, "* with siteseer, a tool is attached {median:.2} s later (median), at most {most:.2} s");
    }
    text
}

fn seconds(run: &Run) -> String {
    run.attached.map_or_else(|| "-".to_owned(), |time| format!("{time:.2} s"))
}

fn gains(verdicts: &[&Verdict], copies: &BTreeMap<String, usize>) -> String {
    let mut table = "| tool | functions with copies | attached after | calls seen | seen at other sites too |\n\
                     |---|---|---:|---:|---|\n"
        .to_owned();
    for verdict in verdicts {
        let [before, after] = verdict.calls();
        let functions = functions(verdict, copies);
        let functions = functions.iter().map(|(name, count)| format!("`{name}` ({count})")).collect::<Vec<_>>();
        let gain = |gain: &Gain| format!("`{}` {} → {}", gain.program, gain.before, gain.before + gain.added);
        let [plain, with] = &verdict.runs;
        let _ = writeln!(
            table,
            "| {} | {} | {} → {} | {before} → {after} | {} |",
            verdict.tool,
            functions.join(", "),
            seconds(plain),
            seconds(with),
            verdict.gains.iter().map(gain).collect::<Vec<_>>().join(", ")
        );
    }
    table
}

fn table(verdicts: &[&Verdict]) -> String {
    let mut table = "| tool | programs | attached after | calls seen |\n|---|---:|---:|---:|\n".to_owned();
    for verdict in verdicts {
        let [plain, with] = &verdict.runs;
        let [before, after] = verdict.calls();
        let _ = writeln!(
            table,
            "| {} | {} | {} → {} | {before} → {after} |",
            verdict.tool,
            on_functions(plain).count(),
            seconds(plain),
            seconds(with),
        );
    }
    table
}

fn start_only(verdicts: &[&Verdict]) -> String {
    let mut table = "| tool | programs | attached after | why it sees no calls |\n|---|---:|---:|---|\n".to_owned();
    for verdict in verdicts {
        let [plain, with] = &verdict.runs;
        let why = verdict.start_only.as_deref().unwrap_or("-");
        let count = on_functions(plain).count();
        let _ = writeln!(table, "| {} | {count} | {} → {} | {why} |", verdict.tool, seconds(plain), seconds(with));
    }
    table
}

fn names(verdicts: &[&Verdict]) -> String {
    verdicts.iter().map(|verdict| verdict.tool.as_str()).collect::<Vec<_>>().join(", ") + "\n"
}

fn exceptions(verdicts: &[Verdict], unbuilt: &BTreeMap<String, String>) -> String {
    let mut text = "| tool | what, and why |\n|---|---|\n".to_owned();
    for verdict in verdicts {
        for known in &verdict.known {
            let _ = writeln!(text, "| {} | {known} |", verdict.tool);
        }
        for wrong in &verdict.wrong {
            let _ = writeln!(text, "| {} | **{wrong}** |", verdict.tool);
        }
    }
    for (tool, why) in unbuilt {
        let why = why.lines().find(|line| line.contains("error")).or(why.lines().last()).unwrap_or_default();
        let _ = writeln!(text, "| {tool} | **cannot be built: {why}** |");
    }
    text
}
