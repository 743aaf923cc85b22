// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What may go wrong at the sites of an inlined copy: calls that no site sees, hits that are of no call, and arguments
//! of another call.

use super::UnitEncoder;
use super::beginnings::{Beginnings, Cut};
use super::copies::{InlinedCopy, copies_inside, is_other_copys, nested, ranges_of};
use crate::debug::lines::Row;
use crate::debug::loclist::Point;
use crate::debug::walk::RawFunction;
use crate::unit::assigned::Body;
use crate::unit::entry::Entry;
use crate::unit::hoisted;
use crate::unit::markers::State;
use crate::unit::repeats::{self, OwnLines};
use crate::unit::split;
use siteseer_sites::Marks;

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// The marks that all sites of a copy have.
    pub(super) fn marks_of_copy(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, beginnings: &Beginnings) -> Marks {
        let own = if self.unit.is_gcc() { self.own_lines(copy) } else { None };
        let (function, body, text, entries) = (copy.function, copy.body, copy.text, &beginnings.entries);
        let state = self.markers.state(copy.index);
        let mut marks = Marks::default();
        if beginnings.may_be_more {
            marks |= Marks::MAY_MISS;
        }
        if beginnings.may_be_less || beginnings.cut == Some(Cut::MayBe) {
            marks |= Marks::MAY_REPEAT;
        }
        if self.is_by_clang && hoisted::may_be_merged(self.unit, function, copy.raw()) {
            marks |= Marks::ENTRY_UNCERTAIN;
        }
        let (one, many);
        let addresses: &[u64] = if let [entry] = entries[..] {
            one = [entry.address];
            &one
        } else {
            many = entries.iter().map(|entry| entry.address).collect::<Vec<u64>>();
            &many
        };
        let is_other_copy = |address: u64| is_other_copys(function, copy.index, address);
        let is_bypassed = |entries: &[u64]| text.bypasses(entries, body, state == State::Known, &is_other_copy);
        let is_bypassed_with_others = || {
            let others = self.merged(function, text).entries_of_shared(copy.index, addresses);
            others.is_empty() || is_bypassed(&[addresses, &others].concat())
        };
        if state == State::Several || is_bypassed(addresses) && is_bypassed_with_others() {
            marks |= Marks::MAY_MISS;
        }
        if let Some(own) = own
            && let Some(lines) = self.lines.get()
            && (entries.iter().any(|entry| {
                let point = Point { address: entry.address, view: entry.view };
                repeats::first_statement_comes_again(lines, text, point, addresses, body, &own)
            }) || {
                let nested = nested(function, Some(copy.index));
                let body = Body { text, ranges: body, nested: &nested };
                repeats::first_acts_come_again(lines, text, addresses, &body, &own, &function.ranges, is_other_copy)
            })
        {
            marks |= Marks::MAY_MISS;
        }
        if state == State::None
            && let [entry] = *addresses
            && (text.was_moved_out_of_loop(entry, body)
                || self.unit.is_gcc() && text.comes_again_after_others(entry, body))
        {
            marks |= Marks::MAY_MISS;
        }
        marks
    }

    /// The lines of a copy's own statements.
    fn own_lines(&mut self, copy: &InlinedCopy<'_, 'a, 'd>) -> Option<OwnLines> {
        let (declared, caller) = self.declared(copy)?;
        let after = caller.filter(|caller| caller.file == declared.file && caller.line > declared.line);
        let end = after.map_or(u32::MAX, |caller| caller.line);
        let inside = copies_inside(copy.function, Some(copy.index), copy.raw().origin);
        Some(OwnLines { declared, end, has_opening: false, inside })
    }

    /// Finds the recursions of a function's copies that were inlined into themselves. The rest of a function that was
    /// split is not a recursion.
    pub(super) fn find_recursions(&mut self, function: &RawFunction<'a>) {
        let outermost = function.origin.unwrap_or(self.unit.offset.saturating_add(function.die));
        let mut of_outermost = false;
        self.recursions.clear();
        self.recursions.resize(function.sites.len(), Recursion::default());
        for (copy, site) in function.sites.iter().enumerate() {
            let parent = |&copy: &usize| function.sites.get(copy)?.parent.map(|parent| parent as usize);
            let mut same: Vec<usize> = std::iter::successors(parent(&copy), parent).collect();
            same.retain(|&around| function.sites.get(around).is_some_and(|around| around.origin == site.origin));
            let is_outermost = outermost == site.origin;
            if (is_outermost || !same.is_empty())
                && let Some(origin) = self.origins.get(site.origin)
                && !split::is_rest(self.unit, &mut self.origins, function, site, &origin)
            {
                self.recursions[copy].is_inside = true;
                same.into_iter().for_each(|around| self.recursions[around].is_beside = true);
                of_outermost |= is_outermost;
            }
        }
        // Copies come before those in them.
        for (copy, site) in function.sites.iter().enumerate() {
            let parent =
                site.parent.and_then(|parent| self.recursions.get(parent as usize)).copied().unwrap_or_default();
            let own = &mut self.recursions[copy];
            own.is_inside |= parent.is_inside;
            own.is_beside |= parent.is_beside || of_outermost;
        }
    }

    /// Whether control comes to an entry of GCC's in several ways, and the statement with the call does not begin
    /// there. GCC merges code that is equal, and with it calls in different statements; what the debug information has
    /// is of one of them.
    ///
    /// One of the ways must be a jump from the caller's own code. If the statement with the call is in the straight
    /// line to the entry, the jump must be another statement's; if it is not, the jump must be that statement's.
    pub(super) fn is_joined(&self, copy: &InlinedCopy<'_, 'a, 'd>, entry: Entry) -> bool {
        let (function, raw, text) = (copy.function, copy.raw(), copy.text);
        let Some(lines) = self.lines.get().filter(|_| self.unit.is_gcc()) else { return false };
        let is_call = |row: &Row| (row.place.file, row.place.line) == (raw.call_file, raw.call_line);
        let mut sources = text.jumps_to(entry.address).peekable();
        if sources.peek().is_none() || lines.statements(&(entry.address..entry.address)).iter().any(is_call) {
            return false;
        }
        let parent = raw.parent.map_or(&function.ranges[..], |parent| ranges_of(function, parent as usize));
        let is_callers = |at: u64| {
            let inner = function.sites.iter().enumerate().filter(|(_, site)| site.parent == raw.parent);
            let mut inner = inner.flat_map(|(site, _)| ranges_of(function, site));
            parent.iter().any(|range| range.contains(&at)) && !inner.any(|range| range.contains(&at))
        };
        let mut before = text.line_before(entry.address).filter_map(|at| lines.statement_at(at));
        let is_begun = before.any(is_call);
        sources
            .any(|source| is_callers(source) && lines.statement_at(source).is_some_and(|row| is_call(row) != is_begun))
    }
}

/// What a copy has to do with recursions that were inlined into themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recursion {
    /// Whether the copy, or one that it is in, is in another copy of the same function or in the function itself.
    pub(super) is_inside: bool,
    /// Whether the copy, one that it is in, or the function itself has such a copy in it.
    pub(super) is_beside: bool,
}
