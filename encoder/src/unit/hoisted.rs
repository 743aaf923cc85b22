// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What clang merged of several calls of one function.
//!
//! Clang merges instructions that two branches have in common, and puts them before or after the branch (SimplifyCFG).
//! If they belong to two copies of one function, clang makes a third copy for the merged instructions, called at line 0
//! (`getMergedLocation` in llvm/lib/IR/DebugInfoMetadata.cpp). If nothing is left of the two, the third copy stands for
//! both calls. Else control passes two copies in one call, and a probe on each would see it twice:
//!
//! * *Beginnings.* Control comes to what is left of the calls only after the merged copy, and what is left does not do
//!   what that did first. If control goes from the merged copy to what is left of one call on every way, the sites are
//!   there: each has its own arguments, and the merged copy has none.
//! * *Ends.* Control comes to the merged copy only after the copy of one of the calls, and the merged copy does not do
//!   what that did first. It is not a site.
//!
//! That is believed if it holds for two calls at least: what is left of one call alone may also be a call of its own,
//! with a first act that had nothing more to do. Then both are sites, with a mark.

use super::UnitEncoder;
use super::copies::ranges_of;
use crate::debug::lines::Lines;
use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawFunction, RawSite};
use crate::text::FunctionText;
use crate::unit::merged::Merged;
use siteseer_sites::Marks;

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

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Settles which copies are no calls, once the sites of all of a function's copies are made.
    pub(super) fn settle_hoisted(&mut self, function: &RawFunction<'a>, text: &FunctionText<'d, 'a>) {
        if !self.is_by_clang || function.sites.iter().all(|site| site.call_line != 0) {
            return;
        }
        let is_merged = merged_copies(function);
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let merged = Merged { function, text, lines: Some(lines) };
        let sites = &self.out.sites;
        let entries_of: Vec<Vec<u64>> =
            self.site_of.iter().map(|of| of.clone().map(|site| sites[site as usize].entry()).collect()).collect();
        let is_known = |copy: &usize| entries_of.get(*copy).is_some_and(|entries| !entries.is_empty());
        let acts_of = |copy: usize| {
            let is_own = |act: &u64| ranges_of(function, copy).iter().any(|range| range.contains(act));
            entries_of[copy].iter().flat_map(|&entry| text.first_acts(entry)).filter(is_own).collect::<Vec<u64>>()
        };
        // Whether a copy does nothing of what another one does first, if that is known.
        let goes_on = |copy: usize, acts: &[u64]| !acts.is_empty() && acts.iter().all(|&act| !merged.does(copy, act));
        let is_after =
            |copy: usize, entries: &[u64]| entries_of[copy].iter().all(|&entry| text.is_only_after(entry, entries));
        let (mut rests, mut repeated) = (Vec::new(), Vec::new());
        for copy in (0..is_merged.len()).filter(|&copy| is_merged[copy]).filter(is_known) {
            let own: Vec<usize> = merged
                .beside(copy)
                .map(|(other, _)| other)
                .filter(|&other| !is_merged[other])
                .filter(is_known)
                .collect();
            let entries =
                |copies: &[usize]| copies.iter().flat_map(|&copy| &entries_of[copy]).copied().collect::<Vec<u64>>();
            let begun: Vec<usize> = own.iter().copied().filter(|&other| goes_on(copy, &acts_of(other))).collect();
            if begun.len() > 1 && is_after(copy, &entries(&begun)) {
                rests.push(copy);
                continue;
            }
            let acts = acts_of(copy);
            let is_left = |other: &usize| goes_on(*other, &acts) && is_after(*other, &entries_of[copy]);
            let left: Vec<usize> = own.iter().copied().filter(is_left).collect();
            if left.len() > 1 && text.always_leads_to(&entries_of[copy], &entries(&left)) {
                rests.push(copy);
            } else {
                repeated.extend(left);
            }
        }
        for site in repeated.into_iter().flat_map(|copy| self.site_of[copy].clone()) {
            self.out.sites[site as usize].marks |= Marks::MAY_REPEAT;
        }
        self.out.rests.extend(rests.into_iter().flat_map(|copy| self.site_of[copy].clone()));
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
