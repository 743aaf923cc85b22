// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Copies of one function that GCC merged with each other, where their code is equal. With the code it merges calls
//! with different arguments, if the code does not depend on these. The debug information has the code as one copy's.
//!
//! * *Ends* (`-fcrossjumping`): the last instructions of one copy become a jump to those of the other. If this jump is
//!   all that is left of a copy, it joins the other one: both calls hit the entry of that.
//! * *Beginnings* (`-fcode-hoisting`): branches that begin with the same do this before they part. Each call may have
//!   left its marker in its branch: then it has an entry of its own (see `entry`). If one call has not, its debug entry
//!   has all the code, and no entry: both calls hit it. Then the other one's own site is hit besides.

use super::copies::ranges_of;
use crate::debug::lines::Lines;
use crate::debug::walk::{RawFunction, RawSite};
use crate::text::FunctionText;
use crate::unit::entry::Entry;

/// What tells about the copies of a function.
#[derive(Clone, Copy)]
pub(super) struct Merged<'m, 'a, 'd> {
    pub(super) function: &'m RawFunction<'a>,
    pub(super) text: &'m FunctionText<'d, 'a>,
    /// Nothing is merged without them: it is not GCC's.
    pub(super) lines: Option<&'m Lines>,
}

impl Merged<'_, '_, '_> {
    /// The other copies of the function that a copy is of.
    pub(super) fn others(&self, copy: usize) -> impl Iterator<Item = (usize, &RawSite)> {
        let origin = self.function.sites[copy].origin;
        let sites = self.function.sites.iter().enumerate();
        sites.filter(move |(other, site)| *other != copy && site.origin == origin)
    }

    /// Those of them that are neither in the copy nor around it: they are of calls on other ways.
    pub(super) fn beside(&self, copy: usize) -> impl Iterator<Item = (usize, &RawSite)> {
        let function = self.function;
        let around = move |copy: &usize| function.sites[*copy].parent.map(|parent| parent as usize);
        let is_in =
            move |inner: usize, outer: usize| std::iter::successors(Some(inner), around).any(|around| around == outer);
        self.others(copy).filter(move |(other, _)| !is_in(*other, copy) && !is_in(copy, *other))
    }

    /// Whether nothing is left of a copy except a jump to where another one begins.
    pub(super) fn joins(&self, copy: usize) -> bool {
        let target = || self.only_jump(copy);
        self.lines.is_some() && target().is_some_and(|to| self.others(copy).any(|(_, site)| site.entry == Some(to)))
    }

    /// Whether other calls hit the entries of a copy, besides entries of their own or as often as there are such.
    pub(super) fn is_hit_by_others(&self, copy: usize, entries: &[Entry]) -> bool {
        let begins_with_another = || self.others(copy).any(|(_, site)| site.entry == self.function.sites[copy].entry);
        let is_begun = |entry: &Entry| self.beside(copy).any(|(other, _)| self.is_begun_in(copy, entry.address, other));
        self.lines.is_some()
            && (self.is_fallen_into(copy)
                || self.has_joined(copy) && begins_with_another()
                || entries.iter().any(is_begun))
    }

    /// The entries of other copies that begin with what a copy does before a branch, on every way to its own entries.
    /// Control that comes to one of them is of the other call.
    pub(super) fn entries_of_shared(&self, copy: usize, entries: &[u64]) -> Vec<u64> {
        let comes_before = |act: u64, entry: u64| self.text.is_on_another_way(act, entry, None);
        let mut acts: Vec<u64> = self.acts(copy).collect();
        acts.retain(|&act| entries.iter().all(|&entry| comes_before(act, entry)));
        let shared = |(other, site): (usize, &RawSite)| {
            let entry = site.entry?;
            acts.iter().any(|&act| comes_before(act, entry) && !self.does(other, act)).then_some(entry)
        };
        self.beside(copy).filter_map(shared).collect()
    }

    /// Whether the code of a copy is that of other calls, too.
    pub(super) fn stands_for_others(&self, copy: usize) -> bool {
        let is_begun =
            |(other, _): (usize, &RawSite)| self.entry(other).is_some_and(|entry| self.is_begun_in(other, entry, copy));
        self.lines.is_some() && (self.is_fallen_into(copy) || self.has_joined(copy) || self.beside(copy).any(is_begun))
    }

    /// Whether another copy joins this one: see [`Merged::joins`].
    fn has_joined(&self, copy: usize) -> bool {
        let Some(entry) = self.function.sites[copy].entry else { return false };
        self.text.jumps_to(entry).any(|source| {
            let is_one =
                |(other, site): (usize, &RawSite)| site.entry == Some(source) && self.only_jump(other) == Some(entry);
            self.others(copy).any(is_one)
        })
    }

    /// Whether nothing is left of another copy except the padding before this one: it joins this one, and does not need
    /// a jump. It may as well be a call that does nothing, and the call after it, so both are sites.
    fn is_fallen_into(&self, copy: usize) -> bool {
        let entry = self.function.sites[copy].entry;
        let entry = entry.filter(|&entry| self.text.has_two_ways_in(entry));
        let padded = entry.and_then(|entry| Some(self.text.padding_before(entry)?..entry));
        let Some(padding) = padded.filter(|padding| !padding.is_empty()) else { return false };
        self.others(copy).any(|(other, _)| {
            let ranges = ranges_of(self.function, other).iter();
            let mut ranges = ranges.filter(|range| !range.is_empty()).peekable();
            ranges.peek().is_some() && ranges.all(|range| padding.start <= range.start && range.end <= padding.end)
        })
    }

    /// Whether a copy begins with what another one has before a branch, on every way to the copy's entry. That one has
    /// no entry, or it is in such a one and the copy in what begins with that.
    fn is_begun_in(&self, copy: usize, entry: u64, other: usize) -> bool {
        let site = |copy: usize| &self.function.sites[copy];
        let around = || {
            let (copy, other) = (site(copy).parent? as usize, site(other).parent? as usize);
            let is_alike = copy != other && site(copy).origin == site(other).origin;
            Some(is_alike && self.is_begun_in(copy, self.entry(copy)?, other))
        };
        (site(other).entry.is_none() || around().unwrap_or(false))
            && self
                .acts(other)
                .min()
                .is_some_and(|act| self.text.is_on_another_way(act, entry, None) && !self.does(copy, act))
    }

    /// Where a copy is entered, as far as its debug entry tells.
    fn entry(&self, copy: usize) -> Option<u64> {
        let site = &self.function.sites[copy];
        site.entry.or_else(|| ranges_of(self.function, copy).first().map(|range| range.start))
    }

    /// Whether a copy itself does what an instruction does that can be seen: the same, or in the same place of the
    /// source.
    pub(super) fn does(&self, copy: usize, act: u64) -> bool {
        let lines = |act: u64| self.lines.filter(|lines| !lines.has_no_line(act));
        let row = |act: u64| lines(act).and_then(|lines| lines.row_at(act));
        let place = |act: u64| row(act).map(|row| row.place).filter(|place| place.line != 0);
        let wanted = place(act);
        self.acts(copy).any(|own| self.text.is_alike(act, own) || wanted.is_some() && place(own) == wanted)
    }

    /// The instructions of a copy that do something that can be seen.
    fn acts(&self, copy: usize) -> impl Iterator<Item = u64> + use<> {
        self.text.all_acts(ranges_of(self.function, copy)).into_iter()
    }

    /// Where the one instruction jumps to that is a copy's text, if it is a jump.
    fn only_jump(&self, copy: usize) -> Option<u64> {
        let mut ranges = ranges_of(self.function, copy).iter().filter(|range| !range.is_empty());
        let (Some(range), None) = (ranges.next(), ranges.next()) else { return None };
        self.text.only_jump(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::lines::{Place, Row};
    use crate::debug::loclist::Point;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;

    #[test]
    fn copies_in_each_other_are_not_of_calls_on_other_ways() {
        let site = |origin, parent| RawSite {
            origin,
            parent,
            ranges: 0..0,
            entry: None,
            view: 0,
            call_file: 1,
            call_line: 1,
            call_column: 0,
            wanted: true,
        };
        let sites = vec![site(1, None), site(2, Some(0)), site(1, Some(1)), site(1, None)];
        x86(&[0xc3], |text| {
            let function = RawFunction { sites, ..RawFunction::default() };
            let merged = Merged { function: &function, text, lines: None };
            let beside = |copy| merged.beside(copy).map(|(other, _)| other).collect::<Vec<usize>>();
            assert_eq!([beside(0), beside(1), beside(2), beside(3)], [vec![3], vec![], vec![3], vec![0, 2]]);
        });
    }

    #[test]
    fn an_act_without_a_line_is_of_no_statement() {
        let site = |ranges| RawSite {
            origin: 1,
            parent: None,
            ranges,
            entry: None,
            view: 0,
            call_file: 1,
            call_line: 1,
            call_column: 0,
            wanted: true,
        };
        // 0: mov %eax,(%rdi); 2: mov %ecx,8(%rdi); 5: ret
        x86(&[0x89, 0x07, 0x89, 0x4f, 0x08, 0xc3], |text| {
            let function = RawFunction {
                sites: vec![site(0..1), site(1..2)],
                site_ranges: vec![TEXT..TEXT + 2, TEXT + 2..TEXT + 5],
                ..RawFunction::default()
            };
            let point = |address| Point { address, view: 0 };
            let first = Row { point: point(TEXT), place: Place { file: 1, line: 10, column: 0 } };
            let does = |lines: Lines| Merged { function: &function, text, lines: Some(&lines) }.does(1, TEXT);
            assert!(does(Lines::of([first])), "two parts of a statement");
            assert!(!does(Lines::of([first]).with_unknown([point(TEXT + 2)])));
        });
    }
}
