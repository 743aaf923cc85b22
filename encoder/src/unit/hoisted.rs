// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What clang merged of several calls of one function.
//!
//! Clang merges instructions that two branches have in common, and puts them before or after the branch (SimplifyCFG).
//! If they belong to two copies of one function, clang makes a third copy for the merged instructions, called at line 0
//! (`getMergedLocation` in llvm/lib/IR/DebugInfoMetadata.cpp). If nothing is left of the two, the third copy stands for
//! both calls. Else control passes two copies in one call, and a probe on each would see it twice:
//!
//! * *Beginnings.* Control comes to what is left of the calls only after the merged copy, and what is left does not do
//!   what that did first; or the merged copy does nothing that can be seen, and what is left does. From the merged
//!   copy, control goes to what is left of one of the calls, whichever way it takes.
//! * *Ends.* Control comes to the merged copy only after the copies of the calls, once after each. It does not do what
//!   these do first; or they do nothing that can be seen, and what is seen next is what it does.
//!
//! Then the merged copy is not a site: each call has one of its own, with its own arguments. That is believed if it
//! holds for two calls at least: what is left of one call alone may also be a call of its own, with a first act that
//! had nothing more to do. In all other cases nothing tells which copies a call passes (see [`may_be_merged`]).

use super::UnitEncoder;
use super::copies::ranges_of;
use crate::debug::lines::Lines;
use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawFunction, RawSite};
use crate::text::FunctionText;
use crate::unit::merged::Merged;

/// Whether a copy may be what clang merged of several calls, beside which their copies are still there: a probe on it
/// would see them twice.
pub(super) fn may_be_merged(unit: &DebugUnit<'_, '_>, function: &RawFunction<'_>, site: &RawSite) -> bool {
    let is_another = |other: &RawSite| other.origin == site.origin && !std::ptr::eq(other, site);
    site.call_line == 0 && unit.clang().is_some() && function.sites.iter().any(is_another)
}

/// For each copy of a function, whether it, or one that it is in, was merged.
fn merged_copies(function: &RawFunction<'_>) -> Vec<bool> {
    let mut merged: Vec<bool> = Vec::with_capacity(function.sites.len());
    for site in &function.sites {
        // Copies come before those in them.
        let around = site.parent.and_then(|parent| merged.get(parent as usize)).copied();
        merged.push(site.call_line == 0 || around.unwrap_or(false));
    }
    merged
}

/// What tells which of a function's copies are parts of the same calls.
struct Parts<'p, 'a, 'd> {
    merged: Merged<'p, 'a, 'd>,
    /// For each copy, where its sites begin.
    entries: Vec<Vec<u64>>,
}

impl Parts<'_, '_, '_> {
    fn holds(&self, copy: usize, address: u64) -> bool {
        ranges_of(self.merged.function, copy).iter().any(|range| range.contains(&address))
    }

    fn entries_of(&self, copies: &[usize]) -> Vec<u64> {
        copies.iter().flat_map(|&copy| &self.entries[copy]).copied().collect()
    }

    /// What is done first after the entries of a copy that can be seen.
    fn next_acts(&self, copy: usize) -> Vec<u64> {
        self.entries[copy].iter().flat_map(|&entry| self.merged.text.first_acts(entry)).collect()
    }

    /// Whether a copy does nothing of what another one does first, and that does something.
    fn goes_on(&self, copy: usize, other: usize) -> bool {
        let mut acts = self.next_acts(other);
        acts.retain(|&act| self.holds(other, act));
        !acts.is_empty() && acts.iter().all(|&act| !self.merged.does(copy, act))
    }

    /// Whether all that can be seen next after the entries of a copy is what another one does.
    fn leads_to_acts_of(&self, copy: usize, other: usize) -> bool {
        let acts = self.next_acts(copy);
        !acts.is_empty() && acts.iter().all(|&act| self.holds(other, act))
    }

    /// Whether a copy does something that can be seen first, and another one does nothing.
    fn acts_alone(&self, copy: usize, other: usize) -> bool {
        self.leads_to_acts_of(copy, copy)
            && self.merged.text.all_acts(ranges_of(self.merged.function, other)).is_empty()
    }

    /// Whether a merged copy is at each of its entries the beginning, or the end, of one of some calls.
    fn is_part(&self, copy: usize, calls: &[usize]) -> bool {
        let text = self.merged.text;
        let has_begun = |call: &usize| self.goes_on(copy, *call) || self.leads_to_acts_of(*call, copy);
        let begun: Vec<usize> = calls.iter().copied().filter(has_begun).collect();
        let is_after = |&entry: &u64| text.is_only_after(entry, &self.entries[copy]);
        let has_rest = |call: usize| self.goes_on(call, copy) || self.acts_alone(call, copy);
        let is_left = |call: &usize| has_rest(*call) && self.entries[*call].iter().all(is_after);
        let left: Vec<usize> = calls.iter().copied().filter(is_left).collect();
        let (begun_at, left_at) = (self.entries_of(&begun), self.entries_of(&left));
        let comes_back = |entry: u64| {
            let mut again = vec![entry];
            text.keep_reached(&[entry], &begun_at, &mut again);
            !again.is_empty()
        };
        let is_end = |entry: u64| begun.len() > 1 && text.is_only_after(entry, &begun_at) && !comes_back(entry);
        let is_beginning = |entry: u64| left.len() > 1 && text.always_leads_to(entry, &left_at);
        self.entries[copy].iter().all(|&entry| is_end(entry) || is_beginning(entry))
    }
}

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Settles which merged copies are not sites, once the sites of all of a function's copies are made.
    pub(super) fn settle_hoisted(&mut self, function: &RawFunction<'a>, text: &FunctionText<'d, 'a>) {
        if !self.is_by_clang || function.sites.iter().all(|site| site.call_line != 0) {
            return;
        }
        let is_merged = merged_copies(function);
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let entry = |site: u32| self.out.sites[site as usize].entry();
        let parts = Parts {
            merged: Merged { function, text, lines: Some(lines) },
            entries: self.site_of.iter().map(|of| of.clone().map(entry).collect()).collect(),
        };
        let mut rests = Vec::new();
        for copy in (0..is_merged.len()).filter(|&copy| is_merged[copy] && !parts.entries[copy].is_empty()) {
            let beside = parts.merged.beside(copy).map(|(other, _)| other);
            let calls: Vec<usize> =
                beside.filter(|&other| !is_merged[other] && !parts.entries[other].is_empty()).collect();
            if parts.is_part(copy, &calls) {
                rests.extend(self.site_of[copy].clone());
            }
        }
        self.out.rests.extend(rests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_merged_copy_was_merged() {
        let site = |parent, call_line| RawSite {
            origin: 1,
            parent,
            ranges: 0..0,
            entry: None,
            view: 0,
            call_file: 1,
            call_line,
            call_column: 0,
            wanted: true,
        };
        let sites = vec![site(None, 0), site(Some(0), 7), site(Some(1), 8), site(None, 9), site(Some(3), 0)];
        let function = RawFunction { sites, ..RawFunction::default() };
        assert_eq!(merged_copies(&function), [true, true, true, false, true]);
    }
}
