// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BTF in columns: a column for each field of each kind of type. The entries of LOCSECs are not among them: they are
//! sites, and are filled in later.

use super::coder::{Coder, Column, Stop, Words};
use super::columns;
use crate::btf::Kind;
use std::ops::Range;

/// Columns of one kind: info (one for all kinds), name, size or type, then what follows.
const FIELDS: usize = 8;
/// Columns of one BTF.
pub(super) const PER_BTF: usize = 32 * FIELDS;

/// A LOCSEC with room for its entries.
#[derive(Debug, Clone)]
pub(super) struct Locsec {
    pub(super) id: u32,
    /// Where the entries are in the section.
    pub(super) entries: Range<usize>,
}

/// BTF that was walked.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) bytes: Vec<u8>,
    pub(super) locsecs: Vec<Locsec>,
}

/// Walks a BTF section. `first` is the number of its first type, `family` the first of its columns.
pub(super) fn btf(coder: &mut Coder<'_>, source: &[u8], family: usize, first: u32) -> Result<Walked, Stop> {
    let mut words = Words(source);
    let control = columns::CONTROL;
    let magic = coder.number(control, words.next())?;
    let header_len = coder.number(control, words.next())?;
    let [types_at, types_len, strings_at, strings_len] =
        [words.next(), words.next(), words.next(), words.next()].map(|word| coder.number(control, word));
    let (types_at, types_len, strings_at, strings_len) = (types_at?, types_len?, strings_at?, strings_len?);
    let layout = match header_len {
        24 => None,
        32 => Some((coder.number(control, words.next())?, coder.number(control, words.next())?)),
        _ => return Err(Stop::Malformed),
    };
    // The parts follow one another without gaps.
    let (layout_at, layout_len) = layout.unwrap_or((types_len, 0));
    if types_at != 0 || layout_at != types_len || layout_at.checked_add(layout_len) != Some(strings_at) {
        return Err(Stop::Malformed);
    }
    let (types_len, layout_len, strings_len) = (types_len as usize, layout_len as usize, strings_len as usize);
    coder.spend(header_len as usize + types_len + layout_len)?;
    coder.spend(strings_len)?;
    let mut walked = Walked::default();
    let header = [magic, header_len, types_at, types_len as u32, strings_at, strings_len as u32];
    let header = header.into_iter().chain(layout.into_iter().flat_map(|(at, len)| [at, len]));
    walked.bytes.extend(header.flat_map(u32::to_le_bytes));
    let end = header_len as usize + types_len;
    let mut section = Section { family, first, end, last: vec![0; PER_BTF] };
    let mut id = first;
    while walked.bytes.len() < end {
        one(coder, &mut words, &mut section, id, &mut walked)?;
        id = id.checked_add(1).ok_or(Stop::Malformed)?;
    }
    let rest = source.get(end..).unwrap_or_default();
    let (layout, strings) = rest.split_at(layout_len.min(rest.len()));
    let layout = coder.bytes(columns::RAW, layout, layout_len)?;
    walked.bytes.extend_from_slice(&layout);
    let strings = coder.bytes(columns::STRINGS, strings, strings_len)?;
    walked.bytes.extend_from_slice(&strings);
    Ok(walked)
}

/// What is the same for all types of a section.
struct Section {
    family: usize,
    first: u32,
    /// Where the types end.
    end: usize,
    /// The number before, of each column that has close ones.
    last: Vec<u32>,
}

/// One type.
fn one(
    coder: &mut Coder<'_>,
    words: &mut Words<'_>,
    section: &mut Section,
    id: u32,
    walked: &mut Walked,
) -> Result<(), Stop> {
    let Section { family, first, end, ref mut last } = *section;
    let [name, info, size] = words.peek();
    (0..3).for_each(|_| _ = words.next());
    let info = coder.number(Column(family), info)?;
    let kind = Kind::from_code((info >> 24 & 0x7f) as u8);
    let (once, each) = kind.tail().ok_or(Stop::Malformed)?;
    let (once, each) = (usize::from(once), usize::from(each));
    let place = usize::from(kind.code()) * FIELDS;
    let column = |field: usize| Column(family + place + field);
    let mut close = |coder: &mut Coder<'_>, field: usize, value: u32| -> Result<u32, Stop> {
        let last = last.get_mut(place + field).ok_or(Stop::Malformed)?;
        *last = coder.near(column(field), value, *last)?;
        Ok(*last)
    };
    let name = close(coder, 1, name)?;
    let size = match kind {
        // What they refer to was often written just before them.
        Kind::Func | Kind::Ptr => coder.near(column(2), size, id)?,
        _ => coder.number(column(2), size)?,
    };
    for word in [name, info, size] {
        walked.bytes.extend_from_slice(&word.to_le_bytes());
    }
    let vlen = (info & 0x00ff_ffff) as usize;
    let tail = once + each * vlen;
    if walked.bytes.len().checked_add(tail).is_none_or(|to| to > end) {
        return Err(Stop::Malformed);
    }
    if kind == Kind::Locsec {
        let from = walked.bytes.len();
        walked.bytes.resize(from + tail, 0);
        words.0 = words.0.get(tail..).unwrap_or_default();
        walked.locsecs.push(Locsec { id, entries: from..from + tail });
        return Ok(());
    }
    for nth in 0..tail / 4 {
        let value = words.next();
        let field = match (nth * 4).checked_sub(once) {
            None => 3 + nth,
            Some(at) => 3 + once / 4 + at % each / 4,
        };
        let value = match (kind, field) {
            // Offsets of members, and names of enumerators, go upwards.
            (Kind::Struct | Kind::Union, 5) | (Kind::Enum | Kind::Enum64, 3) => close(coder, field, value)?,
            // Its LOC_PARAMs are before it. 0 is none.
            (Kind::LocProto, _) => {
                let from = first.wrapping_sub(1);
                let place = coder.number(column(field), if value == 0 { 0 } else { value.wrapping_sub(from) })?;
                if place == 0 { 0 } else { place.wrapping_add(from) }
            }
            _ => coder.number(column(field), value)?,
        };
        walked.bytes.extend_from_slice(&value.to_le_bytes());
    }
    Ok(())
}
