// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where the canonical frame address is, from `.debug_frame`.
//!
//! DWARF locates a variable on the stack from the frame base, which compilers nearly always define as the CFA
//! (DW_OP_call_frame_cfa): the value of the stack pointer before the call. Which register holds it and how far off
//! changes with every push. Kernels keep `.debug_frame` with their other debug sections, and it says it for each
//! address; `.eh_frame` is discarded, and ORC says no more. Most rows are a register plus an offset. A CFA that is
//! given by an expression (hand-written entry code) is treated as unknown.
//!
//! Descriptions are indexed once. Their rows are evaluated when asked for, and a [`Cursor`] keeps those of the last
//! one, since questions come function by function.

use gimli::{CfaRule, CieOrFde, DebugFrame, EndianSlice, LittleEndian, UnwindContext, UnwindSection as _, Vendor};
use siteseer_sites::machine::Register;
use std::collections::HashMap;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// A canonical frame address: a register plus an offset in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cfa {
    /// DWARF number of the register.
    pub register: Register,
    /// What is added to it.
    pub offset: i64,
}

#[derive(Debug, Clone, Copy)]
struct Description {
    start: u64,
    end: u64,
    offset: usize,
}

/// The frame descriptions of an image, by address.
pub struct Frames<'a> {
    section: DebugFrame<Slice<'a>>,
    descriptions: Vec<Description>,
}

impl<'a> Frames<'a> {
    /// Indexes a `.debug_frame` section with 8-byte addresses. What is malformed is left out: an address without a
    /// description has no CFA.
    pub fn parse(debug_frame: &'a [u8]) -> Frames<'a> {
        let mut section = DebugFrame::new(debug_frame, LittleEndian);
        section.set_address_size(8);
        // On arm64 the rows say where the return address is signed (DW_CFA_AARCH64_negate_ra_state). x86-64 has no
        // instruction of that number.
        section.set_vendor(Vendor::AArch64);
        let bases = gimli::BaseAddresses::default();
        let mut descriptions = Vec::new();
        let mut commons = HashMap::new();
        let mut entries = section.entries(&bases);
        // An error ends the iteration: the lengths after it cannot be trusted.
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let parsed = partial.parse(|section, bases, offset| match commons.get(&offset) {
                Some(common) => Ok::<gimli::CommonInformationEntry<Slice<'a>>, gimli::Error>(Clone::clone(common)),
                None => {
                    let common = section.cie_from_offset(bases, offset)?;
                    commons.insert(offset, common.clone());
                    Ok(common)
                }
            });
            let Ok(description) = parsed else { continue };
            let start = description.initial_address();
            if let Some(end) = start.checked_add(description.len()).filter(|&end| end > start) {
                descriptions.push(Description { start, end, offset: description.offset() });
            }
        }
        descriptions.sort_unstable_by_key(|d| (d.start, d.offset));
        Frames { section, descriptions }
    }

    /// How many descriptions there are.
    pub fn len(&self) -> usize {
        self.descriptions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.descriptions.is_empty()
    }

    /// A cursor, one for each thread.
    pub fn cursor(&self) -> Cursor<'_, 'a> {
        Cursor { frames: self, context: UnwindContext::new(), covered: 0..0, rows: Vec::new() }
    }
}

/// Answers questions about single addresses.
pub struct Cursor<'f, 'a> {
    frames: &'f Frames<'a>,
    context: UnwindContext<usize>,
    /// The addresses of the description that the kept rows belong to.
    covered: std::ops::Range<u64>,
    rows: Vec<(u64, u64, Option<Cfa>)>,
}

impl Cursor<'_, '_> {
    /// The CFA before the instruction at an address; `None` if it is not described, or not as a register plus an
    /// offset.
    pub fn cfa_at(&mut self, address: u64) -> Option<Cfa> {
        if !self.covered.contains(&address) {
            self.seek(address)?;
        }
        let after = self.rows.partition_point(|&(start, ..)| start <= address);
        let (_, end, cfa) = self.rows[after.checked_sub(1)?];
        if address < end { cfa } else { None }
    }

    /// Where, before the instruction at an address, the value is that a register has in the function's frame: what a
    /// frame base in a register means (DWARF 5 section 3.3.5). Until the prologue has set the register up it holds
    /// something else, and where the CFA is tells what it will be.
    ///
    /// The frame is that of the row in which the CFA is farthest from the register. `None` if the CFA is not known
    /// there, or never given by the register.
    pub fn frame_at(&mut self, address: u64, register: Register) -> Option<Cfa> {
        let cfa = self.cfa_at(address)?;
        let of_frame = self.rows.iter().filter_map(|&(.., row)| row.filter(|row| row.register == register));
        let distance = of_frame.map(|row| row.offset).max()?;
        Some(Cfa { register: cfa.register, offset: cfa.offset.checked_sub(distance)? })
    }

    fn seek(&mut self, address: u64) -> Option<()> {
        let frames = self.frames;
        let after = frames.descriptions.partition_point(|d| d.start <= address);
        let found = frames.descriptions[after.checked_sub(1)?];
        if address >= found.end {
            return None;
        }
        self.covered = found.start..found.end;
        self.rows.clear();
        let bases = gimli::BaseAddresses::default();
        let description = frames
            .section
            .fde_from_offset(&bases, found.offset.into(), |section, bases, offset| {
                section.cie_from_offset(bases, offset)
            })
            .ok()?;
        let mut table = description.rows(&frames.section, &bases, &mut self.context).ok()?;
        // Rows before an error are right; those after it are not known.
        while let Ok(Some(row)) = table.next_row() {
            let cfa = match row.cfa() {
                CfaRule::RegisterAndOffset { register, offset } => Some(Cfa { register: register.0, offset: *offset }),
                CfaRule::Expression(_) => None,
            };
            let (start, end) = (row.start_address(), row.end_address());
            // Rows that go back, which no compiler writes, would break the search.
            if self.rows.last().is_some_and(|&(last, ..)| start < last) {
                break;
            }
            self.rows.push((start, end, cfa));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A length-prefixed entry of the section.
    fn entry(body: &[u8]) -> Vec<u8> {
        let mut padded = body.to_vec();
        // DW_CFA_nop up to a multiple of 8, the length field included.
        while !(padded.len() + 4).is_multiple_of(8) {
            padded.push(0);
        }
        let mut bytes = (padded.len() as u32).to_le_bytes().to_vec();
        bytes.extend(padded);
        bytes
    }

    /// A section that describes one function as x86-64 compilers do: CFA rsp+8; after one byte rsp+16; after four
    /// rbp+16; after eight an expression; after nine rsp+8.
    fn section(start: u64, len: u64) -> Vec<u8> {
        let common = [
            &u32::MAX.to_le_bytes()[..],
            // Version 4, no augmentation, 8-byte addresses, no segments, factors 1 and -8, return address in 16.
            &[4, 0, 8, 0, 1, 0x78, 16],
            // DW_CFA_def_cfa rsp 8; DW_CFA_offset 16 at cfa-8.
            &[0x0c, 7, 8, 0x80 | 16, 1],
        ];
        let mut bytes = entry(&common.concat());
        let program = [
            // DW_CFA_advance_loc 1; def_cfa_offset 16; advance 3; def_cfa rbp 16; advance 4; def_cfa_expression
            // {DW_OP_breg7 8}; advance 1; def_cfa rsp 8.
            &[0x41, 0x0e, 16, 0x43, 0x0c, 6, 16, 0x44, 0x0f, 2, 0x77, 8, 0x41, 0x0c, 7, 8][..],
        ];
        let description = [&0u32.to_le_bytes()[..], &start.to_le_bytes(), &len.to_le_bytes(), &program.concat()];
        bytes.extend(entry(&description.concat()));
        bytes
    }

    #[test]
    fn rows_of_a_function() {
        let bytes = section(0x1000, 16);
        let frames = Frames::parse(&bytes);
        assert_eq!(frames.len(), 1);
        let mut cursor = frames.cursor();
        let mut at = |address| cursor.cfa_at(address).map(|cfa| (cfa.register, cfa.offset));
        assert_eq!(at(0xfff), None);
        assert_eq!(at(0x1000), Some((7, 8)));
        assert_eq!(at(0x1001), Some((7, 16)));
        assert_eq!(at(0x1003), Some((7, 16)));
        assert_eq!(at(0x1004), Some((6, 16)));
        assert_eq!(at(0x1008), None);
        assert_eq!(at(0x1009), Some((7, 8)));
        assert_eq!(at(0x100f), Some((7, 8)));
        assert_eq!(at(0x1010), None);
    }

    #[test]
    fn frames_in_registers() {
        let bytes = section(0x1000, 16);
        let frames = Frames::parse(&bytes);
        let mut cursor = frames.cursor();
        let mut at = |address, register| cursor.frame_at(address, register).map(|cfa| (cfa.register, cfa.offset));
        // rbp will be what rsp is after the push.
        assert_eq!(at(0x1000, 6), Some((7, -8)));
        assert_eq!(at(0x1001, 6), Some((7, 0)));
        assert_eq!(at(0x1004, 6), Some((6, 0)));
        assert_eq!(at(0x1009, 6), Some((7, -8)), "it is gone again");
        // rsp, pushed once.
        assert_eq!(at(0x1000, 7), Some((7, -8)));
        assert_eq!(at(0x1003, 7), Some((7, 0)));
        assert_eq!(at(0x1004, 7), Some((6, 0)));
        assert_eq!(at(0x1008, 7), None, "the CFA is not known");
        assert_eq!(at(0x1000, 3), None, "never the frame's");
    }

    #[test]
    fn rows_go_on_where_the_return_address_is_signed() {
        // As gcc writes it for `paciasp; stp x29, x30, [sp, #-32]!`: advance 4; negate_ra_state; advance 4;
        // def_cfa_offset 32; offset 29, 30.
        let common = [&u32::MAX.to_le_bytes()[..], &[4, 0, 8, 0, 4, 0x78, 30], &[0x0c, 31, 0]].concat();
        let program = [0x41, 0x2d, 0x41, 0x0e, 32, 0x80 | 29, 4, 0x80 | 30, 3];
        let description = [&0u32.to_le_bytes()[..], &0x1000u64.to_le_bytes(), &64u64.to_le_bytes(), &program].concat();
        let bytes = [entry(&common), entry(&description)].concat();
        let frames = Frames::parse(&bytes);
        let mut cursor = frames.cursor();
        let mut at = |address| cursor.cfa_at(address).map(|cfa| (cfa.register, cfa.offset));
        assert_eq!(at(0x1000), Some((31, 0)));
        assert_eq!(at(0x1004), Some((31, 0)));
        assert_eq!(at(0x1008), Some((31, 32)));
        assert_eq!(at(0x103c), Some((31, 32)));
    }

    #[test]
    fn a_description_that_ends_past_all_addresses_is_left_out() {
        assert!(Frames::parse(&section(u64::MAX - 4, 16)).is_empty());
        assert!(Frames::parse(&section(0x1000, 0)).is_empty());
    }

    fn ask(bytes: &[u8], addresses: &[u64]) {
        let frames = Frames::parse(bytes);
        let mut cursor = frames.cursor();
        for &address in addresses {
            cursor.cfa_at(address);
        }
        for description in &frames.descriptions {
            cursor.cfa_at(description.start);
            cursor.cfa_at(description.end - 1);
        }
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), address: u64) {
            ask(&bytes, &[0, address, u64::MAX]);
        }

        #[test]
        fn flipped_bits_do_not_panic(flips in proptest::collection::vec((0usize..96, 0u8..8), 1..6), cut in 0usize..96) {
            let mut bytes = section(0x1000, 16);
            for (at, bit) in flips {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut % 16));
            ask(&bytes, &[0, 0x1000, 0x1004, 0x100f, u64::MAX]);
        }
    }
}
