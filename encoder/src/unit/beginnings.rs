// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where an inlined copy begins: at the entries that the debug information gives, and at those that it leaves out. See
//! `entry`, `markers` and `repeats`.

use super::copies::{InlinedCopy, innermost, is_other_copys, nested, place_of, ranges_of};
use super::{UnitEncoder, start_of};
use crate::debug::lines::{Lines, Place};
use crate::debug::loclist::Point;
use crate::debug::walk::{RawFunction, RawSite};
use crate::unit::assigned::Body;
use crate::unit::entry::{self, Entry};
use crate::unit::markers::State;
use crate::unit::outofline::{self, Role};
use crate::unit::repeats;
use crate::unit::split;

/// Whether a copy is the rest of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    MayBe,
    Is,
}

/// Where a copy begins.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    pub(super) entries: Vec<Entry>,
    /// Whether it may begin somewhere else, too: calls may be missed.
    pub(super) may_be_more: bool,
    /// Whether it may not begin at all of them each time: hits may be of no call.
    pub(super) may_be_less: bool,
    /// If the rest of a function around it, which was split, begins with it: whether it is the rest of a copy.
    pub(super) cut: Option<Cut>,
}

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Finds where a copy begins.
    pub(super) fn beginnings(&mut self, copy: &InlinedCopy<'_, 'a, 'd>) -> Beginnings {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let mut found = Beginnings { entries, ..Beginnings::default() };
        self.given_entries(copy, &mut found.entries);
        if self.is_by_clang {
            self.begins_again_by_clang(copy, &mut found);
        }
        if self.unit.is_gcc() {
            self.begins_again_by_gcc(copy, &mut found);
        }
        found
    }

    /// The entries that the debug information gives, or the one that the text tells.
    fn given_entries(&self, copy: &InlinedCopy<'_, 'a, 'd>, entries: &mut Vec<Entry>) {
        let (raw, body, text) = (copy.raw(), copy.body, copy.text);
        if self.markers.state(copy.index) != State::Known {
            let is_shared = |act| self.is_shared(copy, raw.entry, act);
            entries.extend(entry::find(raw.entry, raw.view, self.is_by_clang, body, text, is_shared));
            return;
        }
        for point in self.markers.of(copy.index) {
            let others = self.markers.of(copy.index).map(|other| other.address).filter(|&other| other != point.address);
            let is_shared = |act| self.is_shared(copy, Some(point.address), act);
            let entry = entry::given_of_several(point, others, body, text)
                .unwrap_or_else(|| entry::given(point, body, text, is_shared));
            // What was moved away from several markers is done once.
            let is_moved = entry.address != point.address;
            if !(is_moved && entries.iter().any(|known| known.address == entry.address)) {
                entries.push(entry);
            }
        }
        // A call that passes a marker on the way to another is counted at the other.
        let mut left: Vec<u64> = entries.iter().map(|entry| entry.address).collect();
        entries.retain(|entry| {
            let again = left.iter().any(|&other| text.is_entered_again(entry.address, other, &left, body));
            if again {
                left.retain(|&other| other != entry.address);
            }
            !again
        });
    }

    /// Whether what a copy does first is also what a call on another way does first, which has its own entry: a call
    /// that another marker of the copy stands for, or another copy.
    fn is_shared(&self, copy: &InlinedCopy<'_, 'a, 'd>, entry: Option<u64>, act: u64) -> bool {
        let is_other = |other: u64| copy.text.is_on_another_way(act, other, entry);
        let merged = self.merged(copy.function, copy.text);
        self.markers.of(copy.index).any(|point| is_other(point.address))
            || merged
                .beside(copy.index)
                .any(|(other, site)| site.entry.is_some_and(is_other) && !merged.does(other, act))
    }

    /// Finds where clang has a copy begin again, which it does not mark.
    fn begins_again_by_clang(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, found: &mut Beginnings) {
        let [first] = found.entries[..] else { return };
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let copy_at = |address| innermost(copy.function, Some(copy.index), address);
        let own = copy_at(first.address).map_or(copy.body, |own| ranges_of(copy.function, own));
        let again = repeats::find(lines, copy.text, first.address, own, copy.body, copy_at);
        (found.may_be_more, found.may_be_less) = (again.is_unclear, again.may_be_own);
        found.entries.extend(again.entries.into_iter().map(entry::by_statement));
        // If each of several ways in begins with the same, none is missed, whichever is the entry.
        if first.uncertain {
            let is_known = |way: &u64| found.entries.iter().any(|entry| entry.address == *way);
            let ways = entry::ways_in(copy.body, copy.text);
            let is_each_known = !ways.is_empty() && ways.iter().all(is_known);
            found.entries[0].uncertain = !is_each_known;
            found.may_be_less |= is_each_known;
        }
        // The first instruction of a loop with which the body begins may have lost its line, and with it its place in
        // the copy.
        if let [first] = found.entries[..]
            && let Some(head) = copy.text.loop_before(first.address, copy.body)
        {
            found.may_be_less |= lines.has_no_line(head);
        }
    }

    /// Finds where GCC has a copy begin again without a mark.
    fn begins_again_by_gcc(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, found: &mut Beginnings) {
        let text = copy.text;
        let state = self.markers.state(copy.index);
        let is_given = copy.raw().entry.is_some() || state == State::Known;
        if state == State::None
            && let [first] = found.entries[..]
        {
            let again = self.entries_after_caller(copy, first);
            let is_next =
                |point: &Point| text.is_boundary(point.address) && text.is_straight(first.address, point.address);
            found.entries.extend(again.into_iter().filter(is_next).map(entry::by_row));
        }
        if let [first] = found.entries[..] {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let nested = nested(copy.function, Some(copy.index));
            let again =
                repeats::in_line(lines, text, first.address, &Body { text, ranges: copy.body, nested: &nested });
            found.may_be_more |= again.is_unclear && state == State::None;
            // The same store in two copies may be said to be of one. Nothing tells which is whose if no entry is given.
            found.may_be_less |= !is_given && !again.entries.is_empty();
            found.entries.extend(again.entries.into_iter().map(entry::by_act));
        }
        if !is_given && let [first] = found.entries[..] {
            found.cut = self.cut(copy, first);
        }
    }

    /// Whether a copy that begins where the rest of a function begins, out of line or inlined, is the rest of a copy.
    fn cut(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, first: Entry) -> Option<Cut> {
        let function = copy.function;
        if copy.text.is_straight(start_of(function), first.address) && self.is_part(function) {
            return Some(Cut::MayBe);
        }
        // The copies around it may have been cut as well.
        let around = |copy: &usize| function.sites[*copy].parent.map(|parent| parent as usize);
        for around in std::iter::successors(around(&copy.index), around) {
            if self.is_rest(function, around) {
                let begin = ranges_of(function, around).iter().map(|range| range.start).min();
                let is_first = begin.is_some_and(|begin| copy.text.is_straight(begin, first.address));
                let has_begun = || split::has_begun(function, copy.index, around);
                return is_first.then(|| if has_begun() { Cut::Is } else { Cut::MayBe });
            }
            if function.sites[around].entry.is_some() || self.markers.state(around) == State::Known {
                return None;
            }
        }
        None
    }

    /// Whether a copy is the rest of a function that was split.
    pub(super) fn is_rest(&mut self, function: &RawFunction<'a>, copy: usize) -> bool {
        let site = &function.sites[copy];
        let Some(origin) = self.origins.get(site.origin) else { return false };
        split::is_rest(self.unit, &mut self.origins, function, site, &origin)
    }

    /// Whether a function is what is left of one that was split.
    fn is_part(&mut self, function: &RawFunction<'a>) -> bool {
        let name = self.origins.name(self.unit.offset.saturating_add(function.die));
        let symbols = self.shared.image.symbol_at(start_of(function));
        name.is_some_and(|name| {
            matches!(outofline::role(symbols.iter().map(|symbol| symbol.name), name), Role::Part(_))
        })
    }

    /// Where a copy's function is declared, and the one that it is in.
    pub(super) fn declared(&mut self, copy: &InlinedCopy<'_, 'a, 'd>) -> Option<(Place, Option<Place>)> {
        let caller = match copy.raw().parent {
            Some(parent) => copy.function.sites[parent as usize].origin,
            None => self.unit.offset.saturating_add(copy.function.die),
        };
        let caller = self.origins.get(caller);
        let (unit, origins, file_here) = (self.unit, &mut self.origins, &mut self.file_here);
        let callee = place_of(unit, origins, file_here, copy.origin)?;
        Some((callee, caller.and_then(|caller| place_of(unit, origins, file_here, &caller))))
    }

    /// Further entries of GCC's copy that has one, and no marker: see `repeats`.
    fn entries_after_caller(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, first: Entry) -> Vec<Point> {
        let Some((callee, caller)) = self.declared(copy) else { return Vec::new() };
        let Some(caller) = caller else { return Vec::new() };
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let is_callees = |place: Place| place.file == callee.file && place.line >= callee.line;
        // Of two functions in one file, the later one's lines end what the earlier one's may be.
        let is_callers = |place: Place| {
            let is_later = place.file == caller.file && place.line >= caller.line;
            is_later && (callee.file != caller.file || callee.line <= caller.line || !is_callees(place))
        };
        let point = Point { address: first.address, view: first.view };
        let mut again = repeats::after_caller(lines, point, copy.body, is_callers);
        let is_anothers = |address: u64| {
            let begins_there = |site: &RawSite| site.origin == copy.raw().origin && site.entry == Some(address);
            let mut others = copy.function.sites.iter().enumerate().filter(|(other, _)| *other != copy.index);
            is_other_copys(copy.function, copy.index, address) || others.any(|(_, site)| begins_there(site))
        };
        again.retain(|point| !is_anothers(point.address));
        again
    }
}
