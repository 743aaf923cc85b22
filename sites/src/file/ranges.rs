// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `.BTF.inline.ranges`: which chain of functions an address is in.
//!
//! A header, then tables, as in the companion section. The header is {u16 magic 0x5253, u8 version 1, u8 flags (1:
//! there are source lines), u32 header length, u64 lowest address}, then {u32 offset, u32 length} in bytes for each
//! table, offsets counted from the header's end.
//!
//! | table | record |
//! |---|---|
//! | 0 pieces | {u32 address, from the lowest; u32 offset in table 1}, sorted by address |
//! | 1 data | bytes |
//! | 2 functions | {u32 name, u24 file, u24 line}: the most frequent ones first, so that their numbers are short |
//! | 3 files | u32 name |
//! | 4 strings | NUL-terminated; they continue those of the companion section |
//! | 5 checksums | as in the companion section |
//!
//! The data of a piece is ULEB *b*, a tree if *b* is 0, ULEB number of runs, the runs. If *b* is not 0, the tree is at
//! so many bytes before the piece's data: `foo.cold` is a piece of the tree of `foo`. A tree is ULEB 1 + function (0:
//! none is known), ULEB number of copies, then for each copy, in the order in which they enclose each other:
//!
//! * ULEB 2 *u* + *f*: the copy is in the one before (*u* = 0), or in the *u*-th around that one,
//! * ULEB function,
//! * the line of the call, from the line where the function around is declared, zigzag,
//! * if *f* is 1: ULEB 1 + file of the call (0: not known). Otherwise it is the file where the function around is
//!   declared.
//!
//! A run without source lines is ULEB bytes, then the number of its copy minus that of the run before (0 before the
//! first one), zigzag. A run with source lines is ULEB 2 × bytes + *c*; if *c* is 1, the copy follows in this way, and
//! otherwise it is that of the run before. Then comes ULEB 2 × *d* + *f*, where *d* is the line minus the line of the
//! last run of this copy in the piece, zigzag, and at first minus the line where the copy's function is declared; if
//! *f* is 1, ULEB 1 + file. Otherwise the file is the last one of this copy, in the same way. Files and lines are thus
//! stored where they are not what is to be expected.

mod index;
mod read;
mod write;

pub use index::{ChainIndex, IndexedFrame, IndexedFrames};
pub use read::{Chain, Chains, Frame, RangesError};
pub(super) use write::{Encoded, section};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u16 = 0x5253;
const VERSION: u8 = 1;
/// The header's flag of source lines.
const HAS_LINES: u8 = 1;

/// The tables, in the order of the header.
const PIECES: usize = 0;
const DATA: usize = 1;
const FUNCTIONS: usize = 2;
const FILES: usize = 3;
const STRINGS: usize = 4;
const SUMS: usize = 5;
const TABLES: usize = 6;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    version: u8,
    flags: u8,
    header_len: U32,
    base_low: U32,
    base_high: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPiece {
    address: U32,
    data: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFunction {
    name: U32,
    file: [u8; 3],
    line: [u8; 3],
}

/// A file, or 0 if it is not known, as it is stored.
fn file_code(file: u32) -> u64 {
    if file == crate::site::SourceLine::NO_FILE { 0 } else { u64::from(file) + 1 }
}

/// A signed number with its sign in the lowest bit: small ones of either sign are short.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The checksum of what is read whenever the section is opened: its header, its checksums, and that of the companion
/// section, which stands for the strings and the image.
pub(super) fn root(companion: u32, header: &[u8], sums: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(sums);
    hasher.update(&companion.to_le_bytes());
    hasher.finalize()
}
