// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The rows of a unit's line table, by address and view. Those that begin a statement (`is_stmt`) are kept apart.
//!
//! The line table is read once per unit, when the first copy asks for it. The line number program has no opcode for
//! views: a row's view is the number of rows before it at the same address. Three things are read off it:
//!
//! * *Where copies are entered.* GCC (from version 8 on) puts a marker before every body that it inlines. Optimisations
//!   duplicate and move the marker together with the body. Each one becomes a row of its own, at the place in the
//!   source where the callee is declared; no statement of the body is there (`expand_call_inline` in
//!   gcc/tree-inline.cc, `NOTE_INSN_INLINE_ENTRY` in gcc/final.cc). The debug entry names only the first of them
//!   (`dwarf2out_inline_entry` in gcc/dwarf2out.cc).
//! * *Where statements of the body begin*: what a probe that moves must not pass.
//! * *What an instruction is of.* Of the code that an optimisation duplicates GCC keeps only rows that begin no
//!   statement. Clang's rows of the same line at another column do not begin one, either.

use crate::debug::loclist::Point;
use crate::debug::units::DebugUnit;
use gimli::ColumnType;
use std::cell::OnceCell;
use std::ops::Range;

/// A place in the source; the file is an index in the unit's line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: u64,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A row: where it begins, and the place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) point: Point,
    pub(crate) place: Place,
}

/// The rows of a unit, by point.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    statements: Vec<Row>,
    /// Those that do not begin a statement.
    others: Vec<Row>,
    /// Both, in order: made when first needed.
    all: OnceCell<Vec<Row>>,
    /// Where those begin that have no line.
    unknown: Vec<Point>,
}

impl Lines {
    /// Reads a unit's line table. A broken line table is ignored: then copies have only the entries that their debug
    /// entries give.
    pub(crate) fn read(unit: &DebugUnit<'_, '_>) -> Lines {
        let mut lines = read(unit).unwrap_or_default();
        // Sequences come in any order; each is sorted, so that this is a merge.
        lines.statements.sort_by_key(|statement| statement.point);
        lines.others.sort_by_key(|row| row.point);
        lines.unknown.sort_unstable();
        lines
    }

    /// The row of any kind that an address is in.
    pub(crate) fn row_at(&self, address: u64) -> Option<&Row> {
        let last = |rows: &'_ [Row]| rows.partition_point(|row| row.point.address <= address).checked_sub(1);
        let statement = last(&self.statements).map(|index| &self.statements[index]);
        let other = last(&self.others).map(|index| &self.others[index]);
        statement.into_iter().chain(other).max_by_key(|row| row.point)
    }

    /// Whether the line table says of an address that it belongs to no line.
    pub(crate) fn has_no_line(&self, address: u64) -> bool {
        let count = self.unknown.partition_point(|point| point.address <= address);
        let last = count.checked_sub(1).map(|last| self.unknown[last]);
        last.is_some_and(|last| self.row_at(address).is_none_or(|row| row.point < last))
    }

    /// The last row at or before an address that begins a statement.
    pub(crate) fn statement_at(&self, address: u64) -> Option<&Row> {
        let count = self.statements.partition_point(|row| row.point.address <= address);
        count.checked_sub(1).map(|last| &self.statements[last])
    }

    /// Where the rows of any kind in a range begin and where the next ones do, each with its place in the source.
    pub(crate) fn runs(&self, range: &Range<u64>) -> impl Iterator<Item = (Place, Range<u64>)> {
        let all = self.all.get_or_init(|| {
            let mut all = [&self.statements[..], &self.others].concat();
            // Stable: it merges what is in order already.
            all.sort_by_key(|row| row.point);
            all
        });
        let first = all.partition_point(|row| row.point.address < range.start);
        let count = all[first..].partition_point(|row| row.point.address < range.end);
        let rows = &all[first.saturating_sub(1)..first + count];
        let (start, end) = (range.start, range.end);
        let ends = rows.iter().skip(1).map(move |next| next.point.address.max(start)).chain([end]);
        let runs = rows.iter().zip(ends).map(move |(row, end)| (row.place, row.point.address.max(start)..end));
        runs.filter(|(_, run)| !run.is_empty())
    }

    /// Statements as a line table has them.
    #[cfg(test)]
    pub(crate) fn of(statements: impl IntoIterator<Item = Row>) -> Lines {
        Lines { statements: statements.into_iter().collect(), ..Lines::default() }
    }

    /// The same with rows that begin no statement.
    #[cfg(test)]
    pub(crate) fn with_others(self, others: impl IntoIterator<Item = Row>) -> Lines {
        Lines { others: others.into_iter().collect(), ..self }
    }

    /// The same with points where text begins that belongs to no line.
    #[cfg(test)]
    pub(crate) fn with_unknown(self, unknown: impl IntoIterator<Item = Point>) -> Lines {
        Lines { unknown: unknown.into_iter().collect(), ..self }
    }

    /// The statement with an index.
    pub(crate) fn get(&self, index: usize) -> Option<&Row> {
        self.statements.get(index)
    }

    /// The indices of the statements in a range of addresses; for an empty range, of those at its address.
    pub(crate) fn within(&self, range: &Range<u64>) -> Range<usize> {
        let end = range.end.max(range.start.saturating_add(1));
        let first = self.statements.partition_point(|statement| statement.point.address < range.start);
        // Most ranges are short.
        let count = self.statements[first..].iter().take_while(|statement| statement.point.address < end).count();
        first..first + count
    }

    /// Where the first statement of a body after a point begins. `call` is the file and line of the call: statements
    /// there belong to the caller, not to the body.
    pub(crate) fn next_statement(&self, after: Point, body: &[Range<u64>], call: (u64, u32)) -> Option<u64> {
        let first = self.statements.partition_point(|statement| statement.point <= after);
        let here = first.checked_sub(1).map(|index| &self.statements[index]).filter(|here| here.point == after);
        let is_body = |statement: &Row| {
            body.iter().any(|range| range.contains(&statement.point.address))
                && (statement.place.file, statement.place.line) != call
                && here.is_none_or(|here| here.place != statement.place)
        };
        let range = body.iter().find(|range| range.contains(&after.address))?;
        let mut rows = self.statements[first..].iter().take_while(|statement| statement.point.address < range.end);
        rows.find(|statement| is_body(statement)).map(|statement| statement.point.address)
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Row] {
        &self.statements
    }

    /// Whether a statement begins at a point.
    pub(crate) fn has(&self, point: Point) -> bool {
        self.statements.binary_search_by_key(&point, |statement| statement.point).is_ok()
    }

    /// Whether there is a row at a point that is not the first at its address.
    pub(crate) fn has_later_step(&self, point: Point) -> bool {
        point.view > 0 && (self.has(point) || self.others.binary_search_by_key(&point, |row| row.point).is_ok())
    }

    /// The statements of a range of addresses.
    pub(crate) fn statements(&self, range: &Range<u64>) -> &[Row] {
        &self.statements[self.within(range)]
    }
}

fn read(unit: &DebugUnit<'_, '_>) -> gimli::Result<Lines> {
    let Some(program) = unit.unit.line_program.clone() else { return Ok(Lines::default()) };
    let mut rows = program.rows();
    let mut lines = Lines::default();
    let mut next = Point { address: u64::MAX, view: 0 };
    while let Some((_, row)) = rows.next_row()? {
        if row.address() != next.address {
            next = Point { address: row.address(), view: 0 };
        }
        let point = next;
        next.view = next.view.saturating_add(1);
        if row.end_sequence() {
            next.address = u64::MAX;
        } else if let Some(line) = row.line() {
            let column = match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => u32::try_from(column.get()).unwrap_or(u32::MAX),
            };
            let place = Place { file: row.file_index(), line: u32::try_from(line.get()).unwrap_or(u32::MAX), column };
            let rows = if row.is_stmt() { &mut lines.statements } else { &mut lines.others };
            rows.push(Row { point, place });
        } else {
            lines.unknown.push(point);
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_line_goes_on_to_the_next_row() {
        let at = |address, view| Point { address, view };
        let row = |point| Row { point, place: Place { file: 1, line: 10, column: 0 } };
        let lines = Lines {
            statements: vec![row(at(4, 0)), row(at(8, 1))],
            others: vec![row(at(16, 0))],
            unknown: vec![at(8, 0), at(12, 0)],
            ..Lines::default()
        };
        let without: Vec<u64> = (0..20).step_by(4).filter(|&address| lines.has_no_line(address)).collect();
        assert_eq!(without, [12]);
    }

    #[test]
    fn runs_go_from_row_to_row_of_any_kind() {
        let row = |address, line| Row { point: Point { address, view: 0 }, place: Place { file: 1, line, column: 0 } };
        let lines = Lines::of([row(4, 1), row(12, 3), row(12, 4)]).with_others([row(8, 2)]);
        let runs = |range: Range<u64>| lines.runs(&range).map(|(place, run)| (place.line, run)).collect::<Vec<_>>();
        assert_eq!(runs(0..20), [(1, 4..8), (2, 8..12), (4, 12..20)]);
        assert_eq!(runs(6..10), [(1, 6..8), (2, 8..10)], "the row before the range is of its beginning");
        assert_eq!(runs(8..10), [(2, 8..10)]);
        assert_eq!(runs(0..4), []);
    }
}
