// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The outcome of `ci/armed` for docs/reliability.md.

use super::{Armed, Tally, Way};
use crate::measure::tables::{share, table};
use std::fmt::Write as _;

fn armed(what: &str, way: &Way) -> Vec<String> {
    let Way { places, armed, hit, hits, refused } = way;
    let refused: usize = refused.values().map(|counted| counted.count).sum();
    let numbers = [*places, *armed, refused].map(|number| number.to_string());
    [vec![what.to_owned()], numbers.to_vec(), vec![share(*hit, *armed), hits.to_string()]].concat()
}

fn reasons(by: &str, tally: &Tally) -> Vec<Vec<String>> {
    let mut rows: Vec<_> = tally.iter().collect();
    rows.sort_by_key(|(key, counted)| (std::cmp::Reverse(counted.count), *key));
    let row = |key: &String, why: &str, example: &str, count: usize| {
        vec![format!("{by}: `{key}`"), why.replace('|', "\\|"), format!("`{example}`"), count.to_string()]
    };
    rows.into_iter().map(|(key, counted)| row(key, &counted.why, &counted.example, counted.count)).collect()
}

/// The tables, and what else was done. `traces` is how often vmalloc() said that it got no memory, while that was
/// denied: nothing else may be reported.
pub fn print(kernel: &str, release: &str, outcome: &Armed, minutes: u64, traces: usize) -> String {
    let Armed { functions, sites, skipped, entries, instructions, own, failing, load, seconds } = outcome;
    let planned = sites - skipped.values().map(|counted| counted.count).sum::<usize>();
    let mut text = format!(
        "{kernel} ({release}), {minutes} minutes, {seconds} s of the guest's clock: {sites} sites of {functions} functions. \
         Plans attach to {planned} of them, at the places in the table: several sites may share one. The kernel reported \
         nothing, but that vmalloc() got no memory, {traces} times, while memory was denied to it.\n\n"
    );
    let rows = [armed("entries, by ftrace", entries), armed("instructions, by breakpoints", instructions)];
    text += &table(&["armed", "places", "armed", "refused by the kernel", "hit meanwhile", "hits"], &rows);
    text += "\nSites that were not armed, by reason:\n\n";
    let mut rows = reasons("siteseer", skipped);
    rows.extend(reasons("the kernel, entries", &entries.refused));
    rows.extend(reasons("the kernel, instructions", &instructions.refused));
    text += &table(&["who refuses it, and the reason", "in words", "for example", "sites"], &rows);
    let _ = write!(
        text,
        "\nsiteseer attached to {} functions at {} sites under the same load. It attached to `{}` while one slab allocation of the \
         kernel failed, {} times, up to allocation {}: {} times at all sites all the same, by its report, {} times in part \
         or not at all; {} times a signal ended the process, which itself did not get memory.\n\nMeanwhile, turns: ",
        own.functions,
        own.sites,
        failing.function,
        failing.tried,
        failing.allocations,
        failing.attached,
        failing.refused,
        failing.ended,
    );
    let turns: Vec<String> = load.iter().map(|(what, turns)| format!("{what} {turns}")).collect();
    let _ = writeln!(text, "{}.", turns.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::armed::{Counted, add};

    #[test]
    fn each_site_that_is_not_armed_is_in_the_table() {
        let mut outcome = Armed { functions: 2, sites: 40, ..Armed::default() };
        for site in 0..3 {
            add(&mut outcome.skipped, "blacklisted", || ("may not be probed".to_owned(), format!("f+{site}")));
        }
        let refused = Counted { count: 7, why: "a|b".to_owned(), example: "g+0x4".to_owned() };
        outcome.instructions.refused.insert("EILSEQ".to_owned(), refused);
        let text = print("k", "7.3", &outcome, 5, 1);
        assert!(text.contains("attach to 37 of them"), "{text}");
        assert!(text.contains("| siteseer: `blacklisted` | may not be probed | `f+0` | 3 |"), "{text}");
        assert!(text.contains("| the kernel, instructions: `EILSEQ` | a\\|b | `g+0x4` | 7 |"), "{text}");
        assert!(text.contains("| instructions, by breakpoints | 0 | 0 | 7 | 0 (0.0%) | 0 |"), "{text}");
    }
}
