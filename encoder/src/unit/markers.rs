// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The entries of a function's inlined copies, by GCC's markers in the line table (see `lines`).
//!
//! A marker belongs to the copy with ranges that hold it. If there are several such copies that are declared at its
//! place, the marker belongs to the one whose debug entry names it, or else to the innermost. A copy may have any
//! number of markers:
//!
//! * One is the rule.
//! * Several are several calls: bodies of an unrolled loop, beginnings that jump threading duplicated. Each marker is
//!   an entry.
//! * None is left where the call itself is gone: both branches of a condition made one, a call that is made
//!   speculatively.
//!
//! A function that was inlined in itself has one row more: that with which the function begins is not a marker.
//!
//! All statements of a function that a macro wrote are at the place of the macro's use, its markers among them. Such a
//! function gives itself away by two rows of one place in a row, and its rows say nothing.

use crate::debug::lines::{Lines, Place};
use crate::debug::loclist::Point;
use crate::debug::walk::{RawFunction, RawSite};
use crate::unit::start_of;

/// The markers of one function's copies. The buffers are used again from function to function.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    /// (row, copy), by row.
    claims: Vec<(usize, usize)>,
    /// (copy, row), by copy.
    rows: Vec<(usize, usize)>,
    /// (copy, point), sorted. Only of copies with known markers.
    entries: Vec<(usize, Point)>,
    /// By copy.
    state: Vec<State>,
}

/// What a copy's markers are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// No marker is left of it, or there never were any.
    #[default]
    None,
    /// Its markers are its entries.
    Known,
    /// They cannot be told from its statements.
    Unclear,
    /// They cannot be told from its statements, or from another copy's, and there may be more than one.
    Several,
}

/// Where the callee of a copy is declared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callee {
    pub(crate) place: Place,
    /// Whether a macro wrote it.
    pub(crate) by_macro: bool,
}

impl Markers {
    /// Forgets the last function's.
    pub(crate) fn clear(&mut self) {
        self.claims.clear();
        self.rows.clear();
        self.entries.clear();
        self.state.clear();
    }

    /// What is known about a copy's entries.
    pub(crate) fn state(&self, copy: usize) -> State {
        self.state.get(copy).copied().unwrap_or_default()
    }

    /// The entries of a copy, in order, if its markers are known.
    pub(crate) fn of(&self, copy: usize) -> impl Iterator<Item = Point> + '_ {
        let first = self.entries.partition_point(|entry| entry.0 < copy);
        self.entries[first..].iter().take_while(move |entry| entry.0 == copy).map(|entry| entry.1)
    }

    /// Finds the markers of a function's copies; `own` is where the function is declared, and `callee` tells what each
    /// is a copy of.
    pub(crate) fn find(
        &mut self,
        lines: &Lines,
        function: &RawFunction<'_>,
        own: Option<Place>,
        mut callee: impl FnMut(&RawSite) -> Option<Callee>,
    ) {
        self.clear();
        self.state.resize(function.sites.len(), State::None);
        let opening = opening(lines, function, own);
        for (copy, site) in function.sites.iter().enumerate() {
            let Some(callee) = (if site.wanted { callee(site) } else { None }) else { continue };
            if callee.by_macro {
                self.state[copy] = State::Unclear;
            }
            for range in &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize] {
                let rows = lines.within(range);
                let rows = rows.clone().zip(&lines.all()[rows]);
                let own = rows.filter(|(row, statement)| statement.place == callee.place && Some(*row) != opening);
                self.claims.extend(own.map(|(row, _)| (row, copy)));
            }
            // It may be beside the ranges.
            if let Some(address) = site.entry {
                let rows = lines.within(&(address..address));
                let is_at = |row: usize| lines.get(row).is_some_and(|row| row.place == callee.place);
                self.claims.extend(rows.filter(|&row| names(site, lines, row) && is_at(row)).map(|row| (row, copy)));
            }
        }
        self.claims.sort_unstable();
        self.claims.dedup();
        let address = |row: usize| lines.get(row).map(|row| row.point.address);
        for of_address in self.claims.chunk_by(|a, b| address(a.0) == address(b.0)) {
            if let Some(copies) = each_its_own(of_address, function, lines) {
                self.rows.extend(
                    of_address
                        .chunk_by(|a, b| a.0 == b.0)
                        .map(|of_row| of_row[0].0)
                        .zip(copies)
                        .map(|(row, copy)| (copy, row)),
                );
                continue;
            }
            for of_row in of_address.chunk_by(|a, b| a.0 == b.0) {
                let (row, _) = of_row[0];
                let Some(statement) = lines.get(row) else { continue };
                match owner(of_row, function, statement.point) {
                    Some(copy) => self.rows.push((copy, row)),
                    None => of_row.iter().for_each(|claim| self.state[claim.1] = State::Several),
                }
            }
        }
        self.rows.sort_unstable();
        for of_copy in self.rows.chunk_by(|a, b| a.0 == b.0) {
            let (copy, _) = of_copy[0];
            let state = &mut self.state[copy];
            *state = match (*state, beginnings(of_copy, |row| names(&function.sites[copy], lines, row))) {
                (State::Several, _) | (_, 2..) => State::Several,
                (State::Unclear, _) | (_, 1) => State::Unclear,
                _ => State::Known,
            };
            if *state == State::Known {
                let points = of_copy.iter().filter_map(|&(_, row)| lines.get(row).map(|row| row.point));
                self.entries.extend(points.map(|point| (copy, point)));
            }
        }
    }
}

/// The row with which a function itself begins. It looks like the marker of a copy of this function in it.
fn opening(lines: &Lines, function: &RawFunction<'_>, own: Option<Place>) -> Option<usize> {
    let start = start_of(function);
    lines.within(&(start..start)).find(|&row| lines.get(row).map(|row| row.place) == own)
}

/// In how many places of a copy, given by its rows, the body may begin if a macro wrote it: a marker and the first
/// statement follow each other there, and as many statements as where the debug entry says that it begins.
fn beginnings(of_copy: &[(usize, usize)], is_named: impl Fn(usize) -> bool) -> usize {
    let runs = || of_copy.chunk_by(|a, b| a.1 + 1 == b.1);
    let named = runs().find_map(|run| Some(run.len() - run.iter().position(|&(_, row)| is_named(row))?));
    let least = named.unwrap_or(0).max(2);
    runs().filter(|run| run.len() >= least).count()
}

/// Whether the debug entry of a copy says that it is entered at a row.
fn names(site: &RawSite, lines: &Lines, row: usize) -> bool {
    let named = site.entry.map(|address| Point { address, view: site.view });
    named.is_some() && lines.get(row).map(|row| row.point) == named
}

/// The copies whose markers the rows of one address are, in order, if there are several and all are claimed by the same
/// copies, each of them in the one before: a copy begins before those in it, and those around all that begin here have
/// begun before.
fn each_its_own(of_address: &[(usize, usize)], function: &RawFunction<'_>, lines: &Lines) -> Option<Vec<usize>> {
    let rows: Vec<&[(usize, usize)]> = of_address.chunk_by(|a, b| a.0 == b.0).collect();
    let claimants = |of_row: &[(usize, usize)]| of_row.iter().map(|claim| claim.1).collect::<Vec<usize>>();
    // Copies come before those in them.
    let mut copies = claimants(rows.first()?);
    let parent = |copy: &usize| function.sites.get(*copy)?.parent.map(|parent| parent as usize);
    let is_in =
        |inner: usize, outer: usize| std::iter::successors(parent(&inner), parent).any(|around| around == outer);
    let are_nested = copies.windows(2).all(|pair| is_in(pair[1], pair[0]));
    let is_several = rows.len() > 1 && rows.len() <= copies.len();
    if !is_several || !are_nested || rows.iter().any(|of_row| claimants(of_row) != copies) {
        return None;
    }
    let copies = copies.split_off(copies.len() - rows.len());
    let is_anothers = |(of_row, copy): (&&[(usize, usize)], &usize)| {
        let names_it = |claim: &(usize, usize)| names(&function.sites[claim.1], lines, claim.0);
        of_row.iter().any(|claim| claim.1 != *copy && names_it(claim))
    };
    (!rows.iter().zip(&copies).any(is_anothers)).then_some(copies)
}

/// The copy that a row's marker belongs to, among the copies that claim it; `None` if it cannot be told.
fn owner(claims: &[(usize, usize)], function: &RawFunction<'_>, point: Point) -> Option<usize> {
    if let [(_, copy)] = claims {
        return Some(*copy);
    }
    let site = |copy: usize| &function.sites[copy];
    let is_naming = |copy: usize| site(copy).entry == Some(point.address) && site(copy).view == point.view;
    let mut naming = claims.iter().map(|claim| claim.1).filter(|&copy| is_naming(copy));
    if let (Some(copy), None) = (naming.next(), naming.next()) {
        return Some(copy);
    }
    // Copies come before those in them.
    let innermost = claims.iter().map(|claim| claim.1).max()?;
    let parent = |copy: &usize| site(*copy).parent.map(|parent| parent as usize);
    let is_around = |copy: usize| std::iter::successors(Some(innermost), parent).any(|inner| inner == copy);
    claims.iter().all(|claim| is_around(claim.1)).then_some(innermost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::lines::Row;

    #[test]
    fn markers_at_one_address_are_of_copies_in_each_other() {
        let site = |parent, view| RawSite {
            origin: 1,
            parent,
            ranges: 0..0,
            entry: Some(0x10),
            view,
            call_file: 1,
            call_line: 1,
            call_column: 0,
            wanted: true,
        };
        // The last one is beside the second.
        let function = RawFunction {
            sites: vec![site(None, 9), site(Some(0), 1), site(Some(1), 3), site(Some(0), 9)],
            ..RawFunction::default()
        };
        let lines = |address| {
            Lines::of(
                (0..4)
                    .map(|view| Row { point: Point { address, view }, place: Place { file: 1, line: 10, column: 0 } }),
            )
        };
        let whose = |address, claims: &[(usize, usize)]| each_its_own(claims, &function, &lines(address));
        let both = [(1, 0), (1, 1), (1, 2), (3, 0), (3, 1), (3, 2)];
        assert_eq!(whose(0x20, &both), Some(vec![1, 2]), "the outermost has begun before");
        assert_eq!(whose(0x10, &both), Some(vec![1, 2]), "as the debug entries say");
        assert_eq!(whose(0x10, &[(0, 1), (0, 2), (1, 1), (1, 2)]), None, "the debug entries say something else");
        assert_eq!(whose(0x20, &both[..3]), None, "one marker");
        assert_eq!(whose(0x20, &[(1, 0), (1, 1), (3, 0)]), None, "not of the same copies");
        assert_eq!(whose(0x20, &[(1, 1), (1, 3), (3, 1), (3, 3)]), None, "not in each other");
    }
}
