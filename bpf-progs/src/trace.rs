// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `trace.bpf.c` tells user space, and what it is told: `trace.h` in Rust.

use crate::fields::{FIELDS, Read};

/// Parameters that are kept of a call.
pub const PARAMETERS: usize = 12;
/// 8-byte slots that are kept of each.
pub const SLOTS: usize = 2;
/// Strings that are kept of one call.
pub const STRINGS: usize = 4;
/// Bytes of each, with its NUL.
pub const STRING_LEN: usize = 64;

/// What to do at one function: a value of the map `functions`. The map's key (`u32`) is the attachment's cookie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Function {
    /// Parameters that point at text to be copied, one bit each.
    pub strings: u32,
}

impl Function {
    /// As the map's value.
    pub fn to_bytes(self) -> [u8; 4] {
        self.strings.to_ne_bytes()
    }
}

/// One call: a record of the ring buffer `records`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds, CLOCK_MONOTONIC.
    pub time: u64,
    /// The attachment's cookie.
    pub function: u64,
    /// Run-time address of the site; 0 if it is not known.
    pub address: u64,
    /// The site's number in the link's report, if it is known.
    pub site: Option<u32>,
    /// The processor.
    pub cpu: u32,
    /// The process.
    pub tgid: u32,
    /// The thread.
    pub pid: u32,
    /// The thread's name.
    pub comm: String,
    /// Slots that have a value here: bit `SLOTS * parameter + slot`.
    present: u32,
    values: [[u64; SLOTS]; PARAMETERS],
    strings: Vec<Option<Vec<u8>>>,
    /// The members of structures that were asked for, in their order; [`FIELDS`] of them, or none.
    pub fields: Vec<Read>,
    /// The kernel's stack, from the innermost address outwards, or the error for which there is none; `None` if it was
    /// not asked for.
    pub stack: Option<Result<Vec<u64>, i32>>,
    /// Whether it is of a return.
    pub is_return: bool,
    /// What the function returned, if that is known.
    pub result: Option<u64>,
    /// Nanoseconds from the beginning of the call to its return, if that is known.
    pub duration: Option<u64>,
    /// Where it is in a tree of calls, if trees were asked for.
    pub place: Option<Place>,
}

/// Where a record is in a tree of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// When the outermost call began.
    pub tree: u64,
    /// The record's number in the tree, and how many calls are around its call; `None` for a return that does not
    /// belong to the call that was entered last.
    pub at: Option<At>,
    /// Whether it is a call with a return that will be seen.
    pub enters: bool,
}

/// A number and a depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// In the order in which calls are in each other.
    pub number: u64,
    /// How many calls are around the call.
    pub depth: usize,
}

/// The bits of a place above the number.
const DEPTH_SHIFT: u32 = 48;

impl Place {
    fn parse(data: &[u8], flags: u32) -> Option<Place> {
        let (tree, place) = data.split_first_chunk()?;
        let place = u64::from_ne_bytes(*place.first_chunk()?);
        let (number, depth) = (place & ((1 << DEPTH_SHIFT) - 1), (place >> DEPTH_SHIFT) as usize);
        Some(Place {
            tree: u64::from_ne_bytes(*tree),
            at: (flags & 128 == 0).then_some(At { number, depth }),
            enters: flags & 64 != 0,
        })
    }
}

/// Bytes of a record before the values.
const HEAD_LEN: usize = 88;
/// Bytes of a record without strings.
const RECORD_LEN: usize = HEAD_LEN + PARAMETERS * SLOTS * 8;
/// Bytes of a place in a tree.
const PLACE_LEN: usize = 16;
/// Why calls are in no tree: the map `unplaced` has so many counters.
pub const UNPLACED_REASONS: usize = 2;

impl Record {
    /// Reads a record; `None` if it is too short to be one.
    pub fn parse(data: &[u8]) -> Option<Record> {
        let (fixed, rest) = data.split_at_checked(RECORD_LEN)?;
        let word = |at: usize| Some(u32::from_ne_bytes(fixed.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(fixed.get(at..at + 8)?.try_into().ok()?));
        let mut values = [[0; SLOTS]; PARAMETERS];
        for (index, value) in values.iter_mut().flatten().enumerate() {
            *value = long(HEAD_LEN + 8 * index)?;
        }
        let flags = word(72)?;
        let (place, rest) = match flags & 32 {
            0 => (None, rest),
            _ => (Some(Place::parse(rest, flags)?), rest.get(PLACE_LEN..)?),
        };
        let readable = word(44)?;
        let strings = rest.chunks_exact(STRING_LEN).take(STRINGS).enumerate().map(|(index, text)| {
            let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
            (readable >> index & 1 == 1).then(|| text[..end].to_vec())
        });
        let comm = fixed.get(48..64)?;
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
        Some(Record {
            time: long(0)?,
            function: long(8)?,
            address: long(16)?,
            site: Some(word(24)?).filter(|&site| site != u32::MAX),
            cpu: word(28)?,
            tgid: word(32)?,
            pid: word(36)?,
            comm: String::from_utf8_lossy(&comm[..end]).into_owned(),
            present: word(40)?,
            values,
            strings: strings.collect(),
            fields: fields(rest.get(STRINGS * STRING_LEN..).filter(|_| flags & 4 != 0)),
            stack: match flags & 16 {
                0 => None,
                _ => Some(stack(rest.get(STRINGS * STRING_LEN + FIELDS * (16 + FIELD_TEXT_LEN)..)?)?),
            },
            is_return: flags & 1 != 0,
            result: (flags & 2 != 0).then_some(long(64)?),
            duration: (flags & 8 != 0).then_some(long(80)?),
            place,
        })
    }

    /// The value of a slot of a parameter, if the site has it.
    pub fn value(&self, parameter: usize, slot: usize) -> Option<u64> {
        if slot >= SLOTS || self.present >> (SLOTS * parameter).min(31) & 1 << slot == 0 {
            return None;
        }
        Some(self.values.get(parameter)?[slot])
    }

    /// The text of the nth parameter for which text was wanted, if it could be read. It may be cut at [`STRING_LEN`].
    pub fn string(&self, nth: usize) -> Option<&[u8]> {
        self.strings.get(nth)?.as_deref()
    }
}

/// Bytes of a member's text, with its NUL.
pub const FIELD_TEXT_LEN: usize = 64;

/// The members that follow a record.
fn fields(data: Option<&[u8]>) -> Vec<Read> {
    let field = |bytes: &[u8]| {
        let number = u64::from_ne_bytes(*bytes.first_chunk()?);
        let text = bytes.get(16..)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Some(match u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?) {
            0 => Read::Value { number, text: text[..end].to_vec() },
            2 => Read::Unreadable,
            _ => Read::Missing,
        })
    };
    let fields = data.unwrap_or_default().chunks_exact(16 + FIELD_TEXT_LEN);
    fields.take(FIELDS).map_while(field).collect()
}

/// Addresses of a stack at most.
pub const FRAMES: usize = 127;

/// The stack that follows the members.
fn stack(data: &[u8]) -> Option<Result<Vec<u64>, i32>> {
    let (len, frames) = data.split_first_chunk()?;
    let Ok(len) = usize::try_from(i64::from_ne_bytes(*len)) else {
        return Some(Err(i64::from_ne_bytes(*len).wrapping_neg() as i32));
    };
    let frames = frames.get(..len.min(8 * FRAMES))?.chunks_exact(8);
    Some(Ok(frames.filter_map(|word| word.first_chunk().map(|word| u64::from_ne_bytes(*word))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_program_writes() {
        let mut data = vec![0u8; RECORD_LEN + STRINGS * STRING_LEN];
        data[..8].copy_from_slice(&7u64.to_ne_bytes());
        data[24..28].copy_from_slice(&u32::MAX.to_ne_bytes());
        data[40..44].copy_from_slice(&0b1001u32.to_ne_bytes());
        data[44..48].copy_from_slice(&0b10u32.to_ne_bytes());
        data[48..52].copy_from_slice(b"init");
        data[88..96].copy_from_slice(&11u64.to_ne_bytes());
        data[112..120].copy_from_slice(&13u64.to_ne_bytes());
        data[RECORD_LEN + STRING_LEN..][..3].copy_from_slice(b"abc");
        let record = Record::parse(&data).unwrap();
        assert_eq!((record.time, record.site, record.comm.as_str()), (7, None, "init"));
        assert_eq!((record.is_return, record.result, record.duration), (false, None, None));
        assert_eq!(record.value(0, 0), Some(11));
        assert_eq!(record.value(0, 1), None);
        assert_eq!(record.value(1, 0), None);
        assert_eq!(record.value(1, 1), Some(13));
        assert_eq!(record.value(40, 0), None);
        assert_eq!(record.string(0), None);
        assert_eq!(record.string(1), Some(&b"abc"[..]));
        data[64..72].copy_from_slice(&17u64.to_ne_bytes());
        data[72] = 11;
        data[80..88].copy_from_slice(&19u64.to_ne_bytes());
        let record = Record::parse(&data).unwrap();
        assert_eq!((record.is_return, record.result, record.duration), (true, Some(17), Some(19)));
        assert!(record.fields.is_empty());
        let of_fields = data.len();
        data.resize(of_fields + FIELDS * (16 + FIELD_TEXT_LEN), 0);
        data[72] = 4;
        data[of_fields] = 21;
        data[of_fields + 16..][..2].copy_from_slice(b"ab");
        data[of_fields + 80 + 8] = 2;
        data[of_fields + 160 + 8] = 1;
        let read = Record::parse(&data).unwrap().fields;
        let first = Read::Value { number: 21, text: b"ab".to_vec() };
        assert_eq!((read.len(), &read[..3]), (FIELDS, &[first, Read::Unreadable, Read::Missing][..]));
        data[72] = 4 | 16;
        assert!(Record::parse(&data).is_none(), "the stack is missing");
        let len = data.len();
        data.extend(16i64.to_ne_bytes());
        data.extend([31u64, 37, 41].map(u64::to_ne_bytes).concat());
        assert_eq!(Record::parse(&data).unwrap().stack, Some(Ok(vec![31, 37])));
        data[len..len + 8].copy_from_slice(&(-14i64).to_ne_bytes());
        assert_eq!(Record::parse(&data).unwrap().stack, Some(Err(14)));
        data[72] = 4;
        assert_eq!(Record::parse(&data).unwrap().stack, None);
        data.truncate(of_fields);
        assert!(Record::parse(&data).unwrap().fields.is_empty());
        assert!(Record::parse(&data[..RECORD_LEN - 1]).is_none());
        assert_eq!(Record::parse(&data[..RECORD_LEN]).unwrap().string(1), None);
    }

    #[test]
    fn reads_places_in_trees() {
        let mut data = vec![0u8; RECORD_LEN + PLACE_LEN + STRING_LEN];
        data[72] = 32 | 64;
        data[44] = 1;
        data[RECORD_LEN] = 9;
        data[RECORD_LEN + 8] = 5;
        data[RECORD_LEN + 14] = 2;
        data[RECORD_LEN + PLACE_LEN..][..3].copy_from_slice(b"abc");
        let record = Record::parse(&data).unwrap();
        let at = Some(At { number: 5, depth: 2 });
        assert_eq!((record.place, record.is_return), (Some(Place { tree: 9, at, enters: true }), false));
        assert_eq!(record.string(0), Some(&b"abc"[..]));
        data[72] = 32 | 128 | 1;
        let record = Record::parse(&data).unwrap();
        assert_eq!((record.place, record.is_return), (Some(Place { tree: 9, at: None, enters: false }), true));
        assert!(Record::parse(&data[..RECORD_LEN + PLACE_LEN - 1]).is_none());
    }
}
