// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which functions need site data, and what the policies make of them.

use crate::measure::tables::share;
use siteseer_sites::{Marks, Site, SiteKind, SiteSet, Unprobeable};
use std::collections::HashSet;

/// What is known of one function's sites.
#[derive(Debug, Clone, Copy, Default)]
struct Sites {
    bodies: usize,
    others: usize,
    /// Sites that a probe can be put on, and that see every call once.
    sure: usize,
    /// Those of them that have all arguments, without a doubt.
    whole: usize,
}

impl Sites {
    fn live(&self) -> usize {
        self.bodies + self.others
    }
}

/// The counts of one kernel.
#[derive(Debug, Clone, Default)]
pub struct Functions {
    /// Functions with at least one inlined copy or clone in text that runs.
    concerned: usize,
    /// Of these: with a symbol of their own name.
    partly: usize,
    /// Of these: without one.
    wholly: usize,
    /// Inlined copies and clones of both.
    hidden_sites: usize,
    /// All or none, a program that reads no arguments: functions, and sites of the functions that are refused.
    counted: usize,
    lost_by_refusal: usize,
    /// Best effort: sites of all concerned functions that can be attached.
    reached: usize,
    sites: usize,
    /// The same for a program that reads all arguments.
    read: usize,
    lost_by_refusal_reading: usize,
    reached_reading: usize,
}

fn is_sure(site: &Site) -> bool {
    let marks = [Marks::MAY_MISS, Marks::MAY_REPEAT, Marks::ENTRY_UNCERTAIN];
    site.unprobeable.is_none() && !marks.iter().any(|&mark| site.marks.contains(mark))
}

/// Counts the functions of a kernel.
pub fn count(set: &SiteSet) -> Functions {
    let mut of_function = vec![Sites::default(); set.functions.len()];
    for site in &set.sites {
        let Some(sites) = of_function.get_mut(site.function as usize) else { continue };
        if site.unprobeable.is_some_and(Unprobeable::is_dead) {
            continue;
        }
        match site.kind {
            SiteKind::Body => sites.bodies += 1,
            SiteKind::Clone | SiteKind::Inline => sites.others += 1,
        }
        if is_sure(site) {
            sites.sure += 1;
            let arguments = set.prototypes.get(site.prototype as usize).map_or(&[][..], |prototype| prototype);
            let has_all = arguments.iter().all(|argument| argument.as_ref().is_ok_and(|located| located.is_certain()));
            sites.whole += usize::from(has_all);
        }
    }
    // A body that is as the source says needs no site of its own; the set has its symbol.
    let symbols: HashSet<&str> = set.containers.iter().map(|container| container.name.as_str()).collect();
    let mut counts = Functions::default();
    for (function, sites) in set.functions.iter().zip(&of_function).filter(|(_, sites)| sites.others > 0) {
        counts.concerned += 1;
        let has_body = sites.bodies > 0 || symbols.contains(function.name.as_str());
        *(if has_body { &mut counts.partly } else { &mut counts.wholly }) += 1;
        counts.hidden_sites += sites.others;
        counts.sites += sites.live();
        counts.reached += sites.sure;
        counts.reached_reading += sites.whole;
        match sites.sure == sites.live() {
            true => counts.counted += 1,
            false => counts.lost_by_refusal += sites.sure,
        }
        match sites.whole == sites.live() {
            true => counts.read += 1,
            false => counts.lost_by_refusal_reading += sites.whole,
        }
    }
    counts
}

/// The header of [`Functions::needs`].
pub const NEEDS: [&str; 5] = [
    "kernel",
    "functions with copies",
    "wholly inlined or renamed",
    "partly, with a symbol",
    "copies that a symbol misses",
];

/// The header of [`Functions::policies`].
pub const POLICIES: [&str; 6] = [
    "kernel",
    "program reads",
    "functions that all-or-none attaches",
    "functions that it refuses",
    "sites that it loses by refusing",
    "sites that best effort attaches",
];

impl Functions {
    /// Who needs it.
    pub fn needs(&self, kernel: &str) -> Vec<String> {
        vec![
            kernel.to_owned(),
            self.concerned.to_string(),
            share(self.wholly, self.concerned),
            share(self.partly, self.concerned),
            self.hidden_sites.to_string(),
        ]
    }

    /// What the policies do, for programs that read no argument and for programs that read all.
    pub fn policies(&self, kernel: &str) -> [Vec<String>; 2] {
        let row = |reads: &str, attached: usize, lost: usize, reached: usize| {
            vec![
                kernel.to_owned(),
                reads.to_owned(),
                share(attached, self.concerned),
                share(self.concerned - attached, self.concerned),
                share(lost, self.sites),
                share(reached, self.sites),
            ]
        };
        [
            row("no argument", self.counted, self.lost_by_refusal, self.reached),
            row("all arguments", self.read, self.lost_by_refusal_reading, self.reached_reading),
        ]
    }
}
