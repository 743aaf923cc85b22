// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing the section.

use super::super::ext::{NONE24, halves, to24};
use super::super::leb::uleb;
use super::super::write::WriteError;
use super::{HAS_LINES, MAGIC, RawFunction, RawHeader, RawPiece, TABLES, VERSION, file_code, root, zigzag};
use crate::btf::StringTable;
use crate::ranges::{Piece, Ranges, Tree};
use crate::site::SourceLine;
use crate::sums;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// What can be written without the strings.
pub(in super::super) struct Encoded {
    base: u64,
    pieces: Vec<RawPiece>,
    data: Vec<u8>,
    /// The functions, in the order of their numbers.
    order: Vec<u32>,
}

fn contradiction(what: &'static str, index: usize) -> WriteError {
    WriteError::Ranges { what, index }
}

impl Encoded {
    /// Writes pieces, trees and runs.
    pub(in super::super) fn of(ranges: &Ranges) -> Result<Encoded, WriteError> {
        check_files(ranges)?;
        let (order, number_of) = number(ranges)?;
        let base = ranges.pieces.first().map_or(0, |piece| piece.address);
        let mut encoded = Encoded { base, pieces: Vec::with_capacity(ranges.pieces.len()), data: Vec::new(), order };
        let mut tree_at: Vec<Option<u32>> = vec![None; ranges.trees.len()];
        let mut last = Vec::new();
        let mut end = base;
        for (index, piece) in ranges.pieces.iter().enumerate() {
            let wrong = || contradiction("piece", index);
            let address = piece.address.checked_sub(end).and(u32::try_from(piece.address - base).ok());
            let tree = ranges.trees.get(piece.tree as usize).ok_or_else(wrong)?;
            let here = u32::try_from(encoded.data.len())
                .map_err(|_| WriteError::TooMany { what: "bytes in .BTF.inline.ranges", count: encoded.data.len() })?;
            encoded.pieces.push(RawPiece { address: address.ok_or_else(wrong)?.into(), data: here.into() });
            let at = &mut tree_at[piece.tree as usize];
            match *at {
                Some(at) => uleb(&mut encoded.data, u64::from(here - at)),
                None => {
                    *at = Some(here);
                    uleb(&mut encoded.data, 0);
                    write_tree(ranges, tree, piece.tree, &number_of, &mut encoded.data)?;
                }
            }
            end = write_runs(ranges, piece, tree, &mut last, &mut encoded.data).ok_or_else(wrong)?;
        }
        Ok(encoded)
    }
}

/// Checks that all files that are referred to are there.
fn check_files(ranges: &Ranges) -> Result<(), WriteError> {
    let functions = ranges.functions.iter().map(|function| function.declared);
    let copies = ranges.copies.iter().map(|copy| copy.call);
    let places = functions.chain(copies).chain(ranges.runs.iter().map(|run| run.line));
    let is_known = |file: u32| file == SourceLine::NO_FILE || (file as usize) < ranges.files.len();
    let mut unknown = places.filter(|place| !is_known(place.file));
    unknown.next().map_or(Ok(()), |place| Err(contradiction("file", place.file as usize)))
}

/// The functions by how often they are named, and each one's number in this order.
fn number(ranges: &Ranges) -> Result<(Vec<u32>, Vec<u32>), WriteError> {
    let mut count = vec![0u32; ranges.functions.len()];
    let roots = ranges.trees.iter().enumerate().map(|(nth, tree)| (("tree", nth), tree.function));
    let copies = ranges.copies.iter().enumerate().map(|(nth, copy)| (("copy", nth), Some(copy.function)));
    for ((what, nth), function) in roots.chain(copies) {
        if let Some(function) = function {
            *count.get_mut(function as usize).ok_or_else(|| contradiction(what, nth))? += 1;
        }
    }
    let mut order: Vec<u32> = (0..count.len() as u32).collect();
    order.sort_by_key(|&function| std::cmp::Reverse(count[function as usize]));
    let mut number_of = vec![0; order.len()];
    (0u32..).zip(&order).for_each(|(number, &function)| number_of[function as usize] = number);
    Ok((order, number_of))
}

/// Where a function is declared, as far as it can be stored: what lines are told from.
fn declared(ranges: &Ranges, function: Option<u32>) -> SourceLine {
    let declared = function.map_or(SourceLine::UNKNOWN, |function| ranges.functions[function as usize].declared);
    let file = if declared.file < NONE24 { declared.file } else { SourceLine::NO_FILE };
    SourceLine { file, line: if declared.line < NONE24 { declared.line } else { 0 } }
}

fn difference(line: u32, from: u32) -> u64 {
    zigzag(i64::from(line) - i64::from(from))
}

fn write_tree(
    ranges: &Ranges,
    tree: &Tree,
    index: u32,
    number_of: &[u32],
    out: &mut Vec<u8>,
) -> Result<(), WriteError> {
    uleb(out, tree.function.map_or(0, |function| u64::from(number_of[function as usize]) + 1));
    let wrong = || contradiction("tree", index as usize);
    let copies = ranges.copies.get(tree.copies.start as usize..tree.copies.end as usize).ok_or_else(wrong)?;
    uleb(out, copies.len() as u64);
    for (before, copy) in (0u32..).zip(copies) {
        // From the copy before outwards, up to the one that this is in.
        let (mut around, mut up) = (before, 0u64);
        while around != copy.parent {
            around = copies.get((around as usize).checked_sub(1).ok_or_else(wrong)?).ok_or_else(wrong)?.parent;
            up += 1;
        }
        let outer = match around.checked_sub(1) {
            Some(around) => Some(copies[around as usize].function),
            None => tree.function,
        };
        let declared = declared(ranges, outer);
        let has_file = copy.call.file != declared.file;
        uleb(out, up << 1 | u64::from(has_file));
        uleb(out, u64::from(number_of[copy.function as usize]));
        uleb(out, difference(copy.call.line, declared.line));
        if has_file {
            uleb(out, file_code(copy.call.file));
        }
    }
    Ok(())
}

/// Writes the runs of a piece, and returns where it ends. `last` is room for the last line of each copy.
fn write_runs(
    ranges: &Ranges,
    piece: &Piece,
    tree: &Tree,
    last: &mut Vec<SourceLine>,
    out: &mut Vec<u8>,
) -> Option<u64> {
    let runs = ranges.runs.get(piece.runs.start as usize..piece.runs.end as usize)?;
    uleb(out, runs.len() as u64);
    last.clear();
    if ranges.has_lines {
        let copies = &ranges.copies[tree.copies.start as usize..tree.copies.end as usize];
        last.push(declared(ranges, tree.function));
        last.extend(copies.iter().map(|copy| declared(ranges, Some(copy.function))));
    }
    let (mut copy, mut end) = (0u32, piece.address);
    for run in runs {
        if run.copy > tree.copies.end - tree.copies.start {
            return None;
        }
        let step = zigzag(i64::from(run.copy) - i64::from(copy));
        end = end.checked_add(u64::from(run.size))?;
        if ranges.has_lines {
            uleb(out, u64::from(run.size) << 1 | u64::from(run.copy != copy));
            if run.copy != copy {
                uleb(out, step);
            }
            let last = &mut last[run.copy as usize];
            let has_file = run.line.file != last.file;
            uleb(out, difference(run.line.line, last.line) << 1 | u64::from(has_file));
            if has_file {
                uleb(out, file_code(run.line.file));
            }
            *last = run.line;
        } else {
            uleb(out, u64::from(run.size));
            uleb(out, step);
        }
        copy = run.copy;
    }
    Some(end)
}

/// The section. `strings` are those that come after the companion section's; `companion` is that section's first
/// checksum.
pub(in super::super) fn section(
    ranges: &Ranges,
    encoded: &Encoded,
    mut strings: StringTable,
    companion: u32,
) -> Result<Vec<u8>, WriteError> {
    let functions: Vec<RawFunction> = encoded
        .order
        .iter()
        .map(|&function| {
            let named = &ranges.functions[function as usize];
            let declared = declared(ranges, Some(function));
            RawFunction {
                name: strings.add(&named.name).into(),
                file: to24(declared.file, NONE24),
                line: to24(declared.line, 0),
            }
        })
        .collect();
    let files: Vec<U32> = ranges.files.iter().map(|name| strings.add(name).into()).collect();
    let tables = [encoded.pieces.as_bytes(), &encoded.data, functions.as_bytes(), files.as_bytes(), strings.own()];
    let header_len = size_of::<RawHeader>() + TABLES * 2 * size_of::<U32>();
    let body: usize = tables.iter().map(|table| table.len().next_multiple_of(4)).sum();
    let sums_len = (1 + body.div_ceil(sums::BLOCK)) * size_of::<U32>();
    if u32::try_from(header_len + body + sums_len).is_err()
        || u32::try_from(u64::from(strings.base_len()) + strings.own().len() as u64).is_err()
    {
        return Err(WriteError::TooMany { what: "bytes in .BTF.inline.ranges", count: body });
    }
    let (base_low, base_high) = halves(encoded.base);
    let flags = if ranges.has_lines { HAS_LINES } else { 0 };
    let header_len_word = (header_len as u32).into();
    let header =
        RawHeader { magic: MAGIC.into(), version: VERSION, flags, header_len: header_len_word, base_low, base_high };
    let mut out = Vec::with_capacity(header_len + body + sums_len);
    out.extend_from_slice(header.as_bytes());
    let mut offset = 0usize;
    for len in tables.iter().map(|table| table.len()).chain([sums_len]) {
        out.extend_from_slice(&(offset as u32).to_le_bytes());
        out.extend_from_slice(&(len as u32).to_le_bytes());
        offset += len.next_multiple_of(4);
    }
    for table in tables {
        out.extend_from_slice(table);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let sums: Vec<U32> = sums::of_blocks(&out[header_len..]).map(U32::new).collect();
    let root = root(companion, &out[..header_len], sums.as_bytes());
    out.extend_from_slice(&root.to_le_bytes());
    out.extend_from_slice(sums.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::{Copy, Named, Run};

    #[test]
    fn the_example_of_the_page() {
        let named = |line| Named { name: format!("f{line}"), declared: SourceLine { file: 0, line } };
        let run = |size, copy| Run { size, copy, line: SourceLine::UNKNOWN };
        let ranges = Ranges {
            functions: vec![named(20), named(4)],
            files: vec!["a.c".to_owned()],
            trees: vec![Tree { function: Some(0), copies: 0..1 }],
            copies: vec![Copy { function: 1, parent: 0, call: SourceLine { file: 0, line: 23 } }],
            pieces: vec![Piece { address: 0x1000, tree: 0, runs: 0..2 }],
            runs: vec![run(10, 0), run(8, 1)],
            has_lines: false,
        };
        // docs/format.md, F8.11.
        let example = [0x00, 0x01, 0x01, 0x00, 0x01, 0x06, 0x02, 0x0a, 0x00, 0x08, 0x02];
        assert_eq!(Encoded::of(&ranges).unwrap().data, example);
    }
}
