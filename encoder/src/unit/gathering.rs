// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The text of a unit's functions and of the copies in them: see `ranges`.

use super::UnitEncoder;
use crate::debug::walk::RawFunction;
use crate::unit::ranges::{Detail, Flat, Row, UnitNamed, UnitRanges, flatten, rows};
use hashbrown::HashMap;
use siteseer_sites::ranges::{Copy, Piece, Run, Tree};
use siteseer_sites::site::SourceLine;
use std::ops::Range;

/// What is gathered of a unit's ranges.
#[derive(Default)]
pub(super) struct Gathering<'a> {
    detail: Detail,
    out: UnitRanges<'a>,
    /// Functions, by the offsets of their entries in `.debug_info`.
    function_of: HashMap<usize, u32>,
    file_of: HashMap<(usize, u64), u32>,
    /// The unit's lines, once they are asked for.
    rows: Option<Vec<Row>>,
    /// How many ranges the unit's functions and copies have.
    seen: usize,
    /// Room: the ranges of a function and its copies, the same flattened, and the new number of each copy.
    ranges: Vec<(Range<u64>, u32)>,
    flat: Flat,
    number_of: Vec<u32>,
}

/// In place of the number of a copy that has no text.
const GONE: u32 = u32::MAX;

impl Gathering<'_> {
    pub(super) fn new(detail: Detail) -> Self {
        Gathering { detail, ..Gathering::default() }
    }
}

impl<'a> UnitEncoder<'a, '_, '_> {
    /// Takes a function with its copies.
    pub(super) fn gather_ranges(&mut self, function: &RawFunction<'a>) {
        if self.ranges.detail == Detail::Nothing || !self.flatten(function) {
            return;
        }
        let flat = std::mem::take(&mut self.ranges.flat);
        let root = self.named(self.unit.offset.saturating_add(function.die));
        self.number_copies(function, &flat);
        let first = self.ranges.out.copies.len() as u32;
        for (nth, site) in function.sites.iter().enumerate() {
            if self.ranges.number_of[nth + 1] == GONE {
                continue;
            }
            let copied = self.named(site.origin);
            let call = self.place(self.unit.index, site.call_file, site.call_line);
            let parent = site.parent.map_or(0, |parent| self.ranges.number_of[parent as usize + 1]);
            self.ranges.out.copies.push(Copy { function: copied, parent, call });
        }
        let tree = self.ranges.out.trees.len() as u32;
        let copies = first..self.ranges.out.copies.len() as u32;
        self.ranges.out.trees.push(Tree { function: Some(root), copies });
        for part in flat.chunk_by(|(one, _), (next, _)| one.end == next.start) {
            self.piece(tree, part);
        }
        self.ranges.flat = flat;
    }

    /// Flattens the ranges of a function and its copies: 0 is the function. Says whether there is any text.
    fn flatten(&mut self, function: &RawFunction<'a>) -> bool {
        let gathering = &mut self.ranges;
        gathering.ranges.clear();
        gathering.ranges.extend(function.ranges.iter().map(|range| (range.clone(), 0)));
        for (number, site) in (1u32..).zip(&function.sites) {
            let ranges = &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize];
            gathering.ranges.extend(ranges.iter().map(|range| (range.clone(), number)));
        }
        gathering.seen += gathering.ranges.len();
        flatten(&mut gathering.ranges, &mut gathering.flat);
        !gathering.flat.is_empty()
    }

    /// Numbers the copies that have text, and those around them.
    fn number_copies(&mut self, function: &RawFunction<'a>, flat: &Flat) {
        let number_of = &mut self.ranges.number_of;
        number_of.clear();
        number_of.resize(function.sites.len() + 1, GONE);
        number_of[0] = 0;
        flat.iter().for_each(|(_, number)| number_of[*number as usize] = 0);
        // What is around comes before.
        for (nth, site) in function.sites.iter().enumerate().rev() {
            if number_of[nth + 1] != GONE
                && let Some(parent) = site.parent
            {
                number_of[parent as usize + 1] = 0;
            }
        }
        let kept = number_of.iter_mut().filter(|number| **number != GONE);
        (0u32..).zip(kept).for_each(|(number, kept)| *kept = number);
    }

    /// The number of the function with its entry at an offset of `.debug_info`.
    fn named(&mut self, offset: usize) -> u32 {
        if let Some(&known) = self.ranges.function_of.get(&offset) {
            return known;
        }
        let named = match self.origins.get(offset) {
            Some(origin) => UnitNamed {
                name: origin.name,
                declared: self.place(origin.declared_in, origin.declared_file, origin.declared_line),
            },
            None => UnitNamed { name: self.origins.name(offset).unwrap_or_default(), declared: SourceLine::UNKNOWN },
        };
        let number = self.ranges.out.functions.len() as u32;
        self.ranges.out.functions.push(named);
        self.ranges.function_of.insert(offset, number);
        number
    }

    fn place(&mut self, unit: usize, file: u64, line: u32) -> SourceLine {
        if line == 0 {
            return SourceLine::UNKNOWN;
        }
        let next = self.ranges.file_of.len() as u32;
        SourceLine { file: *self.ranges.file_of.entry((unit, file)).or_insert(next), line }
    }

    /// The line of a row. Code that the compiler made up has line 0, and a file.
    fn line(&mut self, row: Row) -> SourceLine {
        let next = self.ranges.file_of.len() as u32;
        SourceLine { file: *self.ranges.file_of.entry((self.unit.index, row.file)).or_insert(next), line: row.line }
    }

    /// Adds a contiguous part of a function.
    fn piece(&mut self, tree: u32, part: &[(Range<u64>, u32)]) {
        let Some((Range { start: address, .. }, _)) = part.first() else { return };
        let first = self.ranges.out.runs.len() as u32;
        for (range, number) in part {
            let copy = self.ranges.number_of[*number as usize];
            if self.ranges.detail == Detail::Lines {
                self.runs_of_lines(range, copy, first);
            } else {
                self.run(range.end - range.start, copy, SourceLine::UNKNOWN, first);
            }
        }
        let runs = first..self.ranges.out.runs.len() as u32;
        if !runs.is_empty() {
            self.ranges.out.pieces.push(Piece { address: *address, tree, runs });
        }
    }

    /// Adds a run, or makes the one before longer.
    fn run(&mut self, size: u64, copy: u32, line: SourceLine, first: u32) {
        let runs = &mut self.ranges.out.runs;
        // No text is that long: what claims so is cut.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        if let Some(last) = runs.get_mut(first as usize..).and_then(<[Run]>::last_mut)
            && (last.copy, last.line) == (copy, line)
            && let Some(both) = last.size.checked_add(size)
        {
            last.size = both;
            return;
        }
        runs.push(Run { size, copy, line });
    }

    /// Adds the runs of a copy's range, one for each line.
    fn runs_of_lines(&mut self, range: &Range<u64>, copy: u32, first: u32) {
        let rows = self.rows();
        // Every run begins with a row or a range. Only functions that overlap, of an image that is malformed, have
        // more.
        let is_too_much = self.ranges.out.runs.len() > 2 * (rows.len() + self.ranges.seen) + 1024;
        let mut nth = rows.partition_point(|row| row.address <= range.start);
        let mut here = range.start;
        while here < range.end {
            let row = nth.checked_sub(1).map(|before| rows[before]).filter(|row| !row.is_end && !is_too_much);
            let next = rows.get(nth).filter(|_| !is_too_much).map_or(range.end, |next| next.address.min(range.end));
            let line = row.map_or(SourceLine::UNKNOWN, |row| self.line(row));
            self.run(next - here, copy, line, first);
            here = next;
            nth += 1;
        }
        self.ranges.rows = Some(rows);
    }

    /// The unit's lines, which are to be put back.
    fn rows(&mut self) -> Vec<Row> {
        self.ranges.rows.take().unwrap_or_else(|| rows(self.unit))
    }

    /// Adds the lines of text that is in no function, of a unit in assembly language: not every assembler describes
    /// functions. What a compiler's unit has between functions is padding.
    fn lines_alone(&mut self) {
        let rows = self.rows();
        let mut taken: Vec<Range<u64>> = Vec::with_capacity(self.ranges.out.pieces.len());
        for piece in &self.ranges.out.pieces {
            let runs = &self.ranges.out.runs[piece.runs.start as usize..piece.runs.end as usize];
            let size: u64 = runs.iter().map(|run| u64::from(run.size)).sum();
            taken.push(piece.address..piece.address.saturating_add(size));
        }
        taken.sort_unstable_by_key(|range| range.start);
        let mut taken = taken.into_iter().peekable();
        let tree = self.ranges.out.trees.len() as u32;
        let mut end = None;
        for pair in rows.windows(2) {
            let (row, mut here) = (pair[0], pair[0].address);
            while here < pair[1].address && !row.is_end {
                while taken.next_if(|taken| taken.end <= here).is_some() {}
                let (from, to) = taken.peek().map_or((u64::MAX, u64::MAX), |taken| (taken.start, taken.end));
                let next = from.min(pair[1].address);
                if here < next {
                    if end != Some(here) {
                        let first = self.ranges.out.runs.len() as u32;
                        self.ranges.out.pieces.push(Piece { address: here, tree, runs: first..first });
                    }
                    let line = self.line(row);
                    let first = self.ranges.out.pieces.last().map_or(0, |piece| piece.runs.start);
                    self.run(next - here, 0, line, first);
                    if let Some(piece) = self.ranges.out.pieces.last_mut() {
                        piece.runs.end = self.ranges.out.runs.len() as u32;
                    }
                    end = Some(next);
                }
                here = if next == from { to.max(next) } else { next };
            }
        }
        if end.is_some() {
            let copies = self.ranges.out.copies.len() as u32;
            self.ranges.out.trees.push(Tree { function: None, copies: copies..copies });
        }
    }

    /// The ranges of the unit.
    pub(super) fn finish_ranges(&mut self) -> UnitRanges<'a> {
        if self.ranges.detail == Detail::Lines && self.unit.is_assembler {
            self.lines_alone();
        }
        let mut out = std::mem::take(&mut self.ranges.out);
        out.files = vec![String::new(); self.ranges.file_of.len()];
        for (&(unit, file), &index) in &self.ranges.file_of {
            out.files[index as usize] = self.origins.file_name(unit, file).unwrap_or_default();
        }
        out
    }
}
