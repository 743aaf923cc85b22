// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One link for many addresses beside today's ways to the same sites: what `cost/links.rs` measured, as a table.

use crate::measure::bench::commands::median;
use crate::measure::cost::Figure;
use crate::measure::cost::links::{AIMS, Linked, Links, Way};
use std::fmt::Write as _;

/// The header.
pub const HEADER: [&str; 9] = [
    "way",
    "sites",
    "functions",
    "attach",
    "faster than a link each",
    "detach",
    "removed after",
    "files",
    "kernel memory, bytes a site",
];

/// Seconds, to be read.
fn time(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.2} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

/// The medians of a way's runs.
fn of_way(figures: &[Figure], aim: u32, way: Way) -> Option<Linked> {
    let runs: Vec<&Linked> = figures
        .iter()
        .filter_map(|figure| if let Figure::Linked(run) = figure { Some(run) } else { None })
        .filter(|run| run.aim == aim && run.way == way)
        .collect();
    let middle = |value: fn(&Linked) -> f64| median(runs.iter().map(|run| value(run)).collect());
    let first = (*runs.first()?).clone();
    Some(Linked {
        attach: middle(|run| run.attach),
        detach: middle(|run| run.detach),
        left: middle(|run| run.left),
        memory: middle(|run| run.memory as f64) as i64,
        ..first
    })
}

/// A row for each number of sites and each way.
pub fn rows(figures: &[Figure]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for aim in AIMS {
        let each = of_way(figures, aim, Way::Each).map(|run| run.attach);
        for way in Way::ALL {
            let Some(run) = of_way(figures, aim, way) else { continue };
            let memory = run.memory as f64 * 1024.0 / run.sites.max(1) as f64;
            rows.push(vec![
                way.name().to_owned(),
                run.sites.to_string(),
                run.functions.to_string(),
                time(run.attach),
                each.map_or("-".to_owned(), |each| format!("{:.1}", each / run.attach)),
                time(run.detach),
                if run.left > 0.0 { time(run.left) } else { "-".to_owned() },
                run.files.to_string(),
                // Whole pages of what everything else does, too: a few sites do not show.
                if run.sites < 100 { "-".to_owned() } else { format!("{memory:.0}") },
            ]);
        }
    }
    rows
}

/// What is said below the table.
pub fn remarks(figures: &[Figure]) -> String {
    let mut text = String::new();
    for figure in figures {
        match figure {
            Figure::Links(Links { sizes, checked }) => {
                let sizes: Vec<String> = sizes.iter().map(|(name, size)| format!("`{name}` {size}")).collect();
                let _ = writeln!(text, "\nBytes of the kernel's structures, by its BTF: {}.", sizes.join(", "));
                if let Some((sites, [before, after])) = checked {
                    let _ = writeln!(
                        text,
                        "\nIn the same run, hits were counted by cookie and by siteseer at {sites} sites: {before} hits with the link attached before siteseer, {after} with the link attached after it, the same at each site."
                    );
                }
            }
            Figure::Note(note) => _ = writeln!(text, "\n{note}."),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_medians_of_its_runs_beside_a_link_each() {
        let run = |way, attach, memory| {
            let (detach, left) = (0.05, 0.0);
            Figure::Linked(Linked { aim: 1000, functions: 2, way, sites: 1000, attach, detach, left, files: 1, memory })
        };
        let one = [run(Way::One, 0.3, 300), run(Way::One, 0.1, 200), run(Way::One, 0.2, 100)];
        let figures: Vec<Figure> = one.into_iter().chain([run(Way::Each, 3.0, 4000)]).collect();
        let rows = rows(&figures);
        assert_eq!(rows[0][..5], ["a link each", "1000", "2", "3.00 s", "1.0"]);
        assert_eq!(rows[1], ["one link (patch)", "1000", "2", "0.20 s", "15.0", "50.00 ms", "-", "1", "205"]);
    }
}
