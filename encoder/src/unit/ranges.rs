// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which inlined copy each instruction belongs to: the ranges that the debug information gives for functions and
//! copies.
//!
//! Copies are nested, and the ranges of a copy lie inside those of the copy around it. The innermost copy is wanted: of
//! all that have an address in their ranges, the last one in the order of the debug entries, in which what is around
//! comes first. Where the ranges contradict each other (copies that overlap without being nested, a copy that reaches
//! out of its function), the last one is taken too, as LLVM's symboliser does. The result is flat: see
//! [`siteseer_sites::ranges`].
//!
//! Lines, if they are wanted, are the rows of the line table: the last one at or before an address, whether it begins a
//! statement or not, as debuggers and symbolisers read it.

use crate::debug::units::DebugUnit;
use hashbrown::HashMap;
use siteseer_sites::ranges::{Copy, Named, Piece, Ranges, Run, Tree};
use siteseer_sites::site::SourceLine;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What is to be found out about the text of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// Nothing.
    #[default]
    Nothing,
    /// Which copy each instruction belongs to, and where the copies were called.
    Copies,
    /// Also which source line each instruction belongs to.
    Lines,
}

/// The ranges of one unit. Indices are those of the unit's own tables.
#[derive(Debug, Default)]
pub(crate) struct UnitRanges<'a> {
    pub(crate) functions: Vec<UnitNamed<'a>>,
    pub(crate) files: Vec<String>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) copies: Vec<Copy>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) runs: Vec<Run>,
}

/// A function as a unit names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitNamed<'a> {
    pub(crate) name: &'a str,
    pub(crate) declared: SourceLine,
}

/// A row of a line table, without those at the same address before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) address: u64,
    /// Index of the file in the unit's line table.
    pub(crate) file: u64,
    /// 0 where no line is known.
    pub(crate) line: u32,
    /// The address is the first one after a sequence.
    pub(crate) is_end: bool,
}

/// The rows of a unit, sorted. A broken line table is ignored.
pub(crate) fn rows(unit: &DebugUnit<'_, '_>) -> Vec<Row> {
    let mut rows = read_rows(unit).unwrap_or_default();
    // Where one sequence ends, another may begin. Rows at one address stay in their order: the last one is what counts.
    rows.sort_by_key(|row| (row.address, !row.is_end));
    rows.dedup_by(|next, row| {
        let is_same = next.address == row.address;
        if is_same {
            *row = *next;
        }
        is_same
    });
    rows
}

fn read_rows(unit: &DebugUnit<'_, '_>) -> gimli::Result<Vec<Row>> {
    let Some(program) = unit.unit.line_program.clone() else { return Ok(Vec::new()) };
    let mut rows = program.rows();
    let mut read: Vec<Row> = Vec::new();
    while let Some((_, row)) = rows.next_row()? {
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
        let next = Row { address: row.address(), file: row.file_index(), line, is_end: row.end_sequence() };
        match read.last_mut() {
            Some(last) if last.address == next.address && !last.is_end => *last = next,
            _ => read.push(next),
        }
    }
    // As with ranges: text that the linker discarded.
    read.retain(|row| row.address > 1 && row.address < u64::MAX - 1);
    Ok(read)
}

/// The parts of flattened ranges: addresses, and a number from `0`.
pub(crate) type Flat = Vec<(Range<u64>, u32)>;

/// Flattens ranges that are numbered: of all that hold an address, the one with the greatest number counts.
pub(crate) fn flatten(ranges: &mut [(Range<u64>, u32)], flat: &mut Flat) {
    flat.clear();
    ranges.sort_unstable_by_key(|(range, number)| (range.start, *number));
    let mut next = ranges.iter().filter(|(range, _)| !range.is_empty()).peekable();
    // Those that hold the address at hand, and some that ended already.
    let mut open: BinaryHeap<(u32, u64)> = BinaryHeap::new();
    let mut here = 0;
    loop {
        while open.peek().is_some_and(|&(_, end)| end <= here) {
            open.pop();
        }
        let Some(&(number, end)) = open.peek() else {
            let Some((range, number)) = next.next() else { return };
            here = range.start;
            open.push((*number, range.end));
            continue;
        };
        while let Some((range, number)) = next.next_if(|(range, _)| range.start <= here) {
            open.push((*number, range.end));
        }
        if open.peek() != Some(&(number, end)) {
            continue;
        }
        let end = next.peek().map_or(end, |(range, _)| range.start.min(end));
        match flat.last_mut() {
            Some((last, its)) if last.end == here && *its == number => last.end = end,
            _ => flat.push((here..end, number)),
        }
        here = end;
    }
}

/// The ranges of all units as one. `Detail` says whether they have lines.
pub(crate) fn merge(units: &[UnitRanges<'_>], detail: Detail) -> Option<Ranges> {
    if detail == Detail::Nothing {
        return None;
    }
    let mut merged = Ranges { has_lines: detail == Detail::Lines, ..Ranges::default() };
    let mut file_of: HashMap<&String, u32> = HashMap::new();
    let mut function_of: HashMap<UnitKey<'_>, u32> = HashMap::new();
    let mut numbering = Vec::with_capacity(units.len());
    for unit in units {
        let number = |file| {
            let next = file_of.len() as u32;
            *file_of.entry(file).or_insert_with_key(|&file: &&String| {
                merged.files.push(file.clone());
                next
            })
        };
        let files: Vec<u32> = unit.files.iter().map(number).collect();
        let functions: Vec<u32> = unit
            .functions
            .iter()
            .map(|named| {
                let declared = place(&files, named.declared);
                *function_of.entry((named.name, declared)).or_insert_with(|| {
                    merged.functions.push(Named { name: named.name.to_owned(), declared });
                    merged.functions.len() as u32 - 1
                })
            })
            .collect();
        let first_copy = merged.copies.len() as u32;
        let first_tree = merged.trees.len() as u32;
        merged.copies.extend(unit.copies.iter().map(|copy| Copy {
            function: functions[copy.function as usize],
            call: place(&files, copy.call),
            ..*copy
        }));
        merged.trees.extend(unit.trees.iter().map(|tree| Tree {
            function: tree.function.map(|function| functions[function as usize]),
            copies: first_copy + tree.copies.start..first_copy + tree.copies.end,
        }));
        numbering.push((files, first_tree));
    }
    let mut order: Vec<(u64, bool, u32, u32)> = Vec::new();
    for (nth, unit) in (0u32..).zip(units) {
        let pieces = (0u32..).zip(&unit.pieces);
        order.extend(
            pieces
                .map(|(index, piece)| (piece.address, unit.trees[piece.tree as usize].function.is_none(), nth, index)),
        );
    }
    order.sort_unstable();
    merged.runs.reserve(units.iter().map(|unit| unit.runs.len()).sum());
    for (_, is_lines_alone, unit, index) in order {
        let (of_unit, (files, first_tree)) = (&units[unit as usize], &numbering[unit as usize]);
        let piece = &of_unit.pieces[index as usize];
        let runs = &of_unit.runs[piece.runs.start as usize..piece.runs.end as usize];
        add_piece(&mut merged, piece, runs, files, *first_tree, is_lines_alone);
    }
    Some(merged)
}

type UnitKey<'u> = (&'u str, SourceLine);

fn place(files: &[u32], at: SourceLine) -> SourceLine {
    SourceLine { file: files.get(at.file as usize).copied().unwrap_or(SourceLine::NO_FILE), line: at.line }
}

/// Where the last piece ends.
fn end(merged: &Ranges) -> u64 {
    let last = merged.pieces.last().map(|piece| {
        let runs = &merged.runs[piece.runs.start as usize..piece.runs.end as usize];
        piece.address + runs.iter().map(|run| u64::from(run.size)).sum::<u64>()
    });
    last.unwrap_or(0)
}

/// Adds a piece after all others. Text that already belongs to another piece is left out: several functions may have
/// the same text (folded by the linker).
fn add_piece(merged: &mut Ranges, piece: &Piece, runs: &[Run], files: &[u32], first_tree: u32, is_lines_alone: bool) {
    let last = merged.pieces.last();
    let is_before_lines = last.is_some_and(|last| merged.trees[last.tree as usize].function.is_none());
    if is_before_lines && !is_lines_alone {
        cut(merged, piece.address);
    }
    let mut skip = end(merged).saturating_sub(piece.address);
    let address = piece.address + skip;
    let first = merged.runs.len() as u32;
    for run in runs {
        let dropped = skip.min(u64::from(run.size)) as u32;
        skip -= u64::from(dropped);
        if run.size > dropped {
            merged.runs.push(Run { size: run.size - dropped, line: place(files, run.line), ..*run });
        }
    }
    let runs = first..merged.runs.len() as u32;
    if !runs.is_empty() {
        merged.pieces.push(Piece { address, tree: first_tree + piece.tree, runs });
    }
}

/// Ends the last piece at an address: a function begins there, and lines without a function give way to it.
fn cut(merged: &mut Ranges, address: u64) {
    let mut end = end(merged);
    let Some(piece) = merged.pieces.last_mut() else { return };
    while end > address && piece.runs.end > piece.runs.start {
        let Some(run) = merged.runs.last_mut() else { return };
        let over = (end - address).min(u64::from(run.size)) as u32;
        run.size -= over;
        end -= u64::from(over);
        if run.size == 0 {
            merged.runs.pop();
            piece.runs.end -= 1;
        }
    }
    if piece.runs.is_empty() {
        merged.pieces.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(ranges: &[(Range<u64>, u32)]) -> Flat {
        let (mut ranges, mut flat) = (ranges.to_vec(), Vec::new());
        flatten(&mut ranges, &mut flat);
        flat
    }

    #[test]
    fn the_innermost_counts() {
        assert_eq!(flat(&[]), []);
        assert_eq!(flat(&[(5..5, 0)]), []);
        assert_eq!(
            flat(&[(0..10, 0), (2..4, 1), (3..4, 2), (4..6, 3)]),
            [(0..2, 0), (2..3, 1), (3..4, 2), (4..6, 3), (6..10, 0)]
        );
        assert_eq!(
            flat(&[(0..10, 0), (20..30, 0), (0..10, 1), (22..25, 1)]),
            [(0..10, 1), (20..22, 0), (22..25, 1), (25..30, 0)]
        );
        assert_eq!(
            flat(&[(0..4, 1), (2..8, 2), (3..5, 0)]),
            [(0..2, 1), (2..8, 2)],
            "the last one in the order of entries"
        );
        assert_eq!(flat(&[(0..8, 2), (2..4, 2), (4..9, 1)]), [(0..8, 2), (8..9, 1)], "neighbours are one");
    }

    #[test]
    fn flattening_is_what_painting_gives() {
        let mut random = 7u64;
        for _ in 0..2000 {
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let ranges: Vec<(Range<u64>, u32)> = (0..next(9))
                .map(|_| {
                    let start = next(20);
                    (start..start + next(12), next(6) as u32)
                })
                .collect();
            let mut painted = [None; 40];
            for number in 0..6 {
                for (range, _) in ranges.iter().filter(|(_, its)| *its == number) {
                    range.clone().for_each(|at| painted[at as usize] = Some(number));
                }
            }
            let mut found = [None; 40];
            for (range, number) in flat(&ranges) {
                assert!(!range.is_empty());
                range.for_each(|at| assert_eq!(found[at as usize].replace(number), None));
            }
            assert_eq!(found, painted, "{ranges:?}");
        }
    }

    /// A unit with a function for each range of text; without a number, lines alone.
    fn unit(pieces: &[(Range<u64>, Option<u32>)]) -> UnitRanges<'static> {
        let mut unit = UnitRanges { files: vec!["a.c".to_owned()], ..UnitRanges::default() };
        for (nth, (text, function)) in (0u32..).zip(pieces) {
            if function.is_some() {
                unit.functions.push(UnitNamed { name: "f", declared: SourceLine { file: 0, line: nth + 1 } });
            }
            unit.trees.push(Tree { function: function.map(|_| unit.functions.len() as u32 - 1), copies: 0..0 });
            let size = (text.end - text.start) as u32 / 2;
            let line = SourceLine { file: 0, line: nth + 1 };
            let first = unit.runs.len() as u32;
            unit.runs.extend([Run { size, copy: 0, line }, Run { size, copy: 0, line }]);
            unit.pieces.push(Piece { address: text.start, tree: nth, runs: first..first + 2 });
        }
        unit
    }

    #[test]
    fn pieces_of_all_units_do_not_overlap() {
        let one = unit(&[(100..120, Some(0)), (120..160, None)]);
        let other = unit(&[(110..130, Some(0)), (140..150, Some(0)), (100..104, Some(0))]);
        let merged = merge(&[one, other], Detail::Lines).unwrap();
        let pieces: Vec<(u64, u32, Vec<u32>)> = merged
            .pieces
            .iter()
            .map(|piece| {
                let runs = &merged.runs[piece.runs.start as usize..piece.runs.end as usize];
                (piece.address, piece.tree, runs.iter().map(|run| run.size).collect())
            })
            .collect();
        // What is left of the lines alone goes up to the next function.
        assert_eq!(pieces, [(100, 0, vec![10, 10]), (120, 2, vec![10]), (130, 1, vec![10]), (140, 3, vec![5, 5])]);
        assert_eq!((merged.files.len(), merged.functions.len()), (1, 3), "one file, and each function once");
    }
}
