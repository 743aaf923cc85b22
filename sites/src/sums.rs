// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Checksums of what is read, where it is read.
//!
//! A site file is 30 MB, and a lookup reads some dozens of kilobytes of it. To check all of it first would cost more
//! than the lookup; not to check it would let a damaged page answer: a search that a wrong record sends astray finds
//! nothing, and nothing found is a call missed silently. So the file has a checksum for every [`BLOCK`] bytes, and a
//! block is checked when anything in it is first read. The checksums themselves, and the header that says where all is,
//! have one of their own, checked when the file is opened.
//!
//! A read does not fail: what lies in a damaged block is parsed as anything else is, by parsers that trust nothing. But
//! the damage is remembered, and from then on every answer is the error ([`Sums::whole`]).
//!
//! Checksums find what storage does to a file. A file that was made to deceive has right ones: against it stand the
//! parsers' own checks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use zerocopy::little_endian::U32;

/// Bytes that have one checksum: a page of the memory map.
pub(crate) const BLOCK: usize = 4096;

/// The CRC-32 of each block.
pub(crate) fn of_blocks(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(BLOCK).map(crc32fast::hash)
}

/// Something in a damaged block was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The name of the part.
    pub(crate) part: &'static str,
    /// Where in it the block begins.
    pub(crate) offset: usize,
}

/// One of the parts of the file that have checksums.
#[derive(Debug)]
struct Part<'a> {
    name: &'static str,
    bytes: &'a [u8],
    sums: &'a [U32],
    /// The number of its first block among those of all parts.
    first: usize,
}

/// The checksums of a file's parts, and which blocks were found right already.
#[derive(Debug)]
pub(crate) struct Sums<'a> {
    parts: Vec<Part<'a>>,
    /// A bit for each block.
    checked: Box<[AtomicU64]>,
    /// One plus the number of a damaged block that was read; 0 if there was none.
    damaged: AtomicU32,
}

impl<'a> Sums<'a> {
    /// The checksums of the blocks of the parts, one part after the other. `None` if they are not as many as the
    /// blocks.
    pub(crate) fn new(parts: &[(&'static str, &'a [u8])], sums: &'a [U32]) -> Option<Sums<'a>> {
        let mut rest = sums;
        let mut list = Vec::with_capacity(parts.len());
        for &(name, bytes) in parts {
            let (own, others) = rest.split_at_checked(bytes.len().div_ceil(BLOCK))?;
            list.push(Part { name, bytes, sums: own, first: sums.len() - rest.len() });
            rest = others;
        }
        let checked = (0..sums.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        rest.is_empty().then_some(Sums { parts: list, checked, damaged: AtomicU32::new(0) })
    }

    /// Notes that bytes of one of the parts are read, and checks their blocks unless they were found right before.
    pub(crate) fn touch(&self, bytes: &[u8]) {
        self.touch_range(bytes.as_ptr() as usize, bytes.len());
    }

    /// As [`Sums::touch`], for a string: its end is read too.
    pub(crate) fn touch_string(&self, string: &[u8]) {
        self.touch_range(string.as_ptr() as usize, string.len() + 1);
    }

    /// Checks all blocks of all parts.
    pub(crate) fn all(&self) -> Result<(), Damage> {
        self.parts.iter().for_each(|part| self.touch(part.bytes));
        self.whole()
    }

    fn touch_range(&self, address: usize, len: usize) {
        // Where bytes lie tells which part they are of: slices of a part are passed around, not offsets. What is in
        // none of the parts (a base that is not the file's) is not ours to check.
        for part in &self.parts {
            let at = address.wrapping_sub(part.bytes.as_ptr() as usize);
            if at < part.bytes.len() && len > 0 {
                let last = at.saturating_add(len - 1).min(part.bytes.len() - 1);
                (at / BLOCK..=last / BLOCK).for_each(|block| self.check(part, block));
                return;
            }
        }
    }

    fn check(&self, part: &Part<'a>, block: usize) {
        let number = part.first + block;
        let Some(word) = self.checked.get(number / 64) else { return };
        let bit = 1 << (number % 64);
        if word.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let start = block * BLOCK;
        let bytes = part.bytes.get(start..part.bytes.len().min(start + BLOCK)).unwrap_or_default();
        if part.sums.get(block).is_some_and(|sum| sum.get() == crc32fast::hash(bytes)) {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.damaged.store(u32::try_from(number + 1).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Whether all that was read so far was whole.
    pub(crate) fn whole(&self) -> Result<(), Damage> {
        let Some(number) = (self.damaged.load(Ordering::Relaxed) as usize).checked_sub(1) else { return Ok(()) };
        let part = self.parts.iter().rev().find(|part| part.first <= number);
        Err(part.map_or(Damage { part: "", offset: 0 }, |part| Damage {
            part: part.name,
            offset: (number - part.first) * BLOCK,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_block_is_found_when_it_is_read() {
        let (mut one, two) = (vec![7u8; 2 * BLOCK + 5], vec![8u8; 9]);
        let sums: Vec<U32> = of_blocks(&one).chain(of_blocks(&two)).map(U32::new).collect();
        one[2 * BLOCK] ^= 0x10;
        let parts = [("one", &one[..]), ("two", &two[..])];
        let checks = Sums::new(&parts, &sums).unwrap();
        checks.touch(&one[..2 * BLOCK]);
        checks.touch(&two);
        checks.touch(&[1, 2, 3]);
        checks.touch(&one[2 * BLOCK..2 * BLOCK]);
        assert_eq!(checks.whole(), Ok(()));
        checks.touch(&one[2 * BLOCK - 1..=2 * BLOCK]);
        assert_eq!(checks.whole(), Err(Damage { part: "one", offset: 2 * BLOCK }));
        checks.touch(&two);
        assert!(checks.whole().is_err(), "it is remembered");
        assert!(Sums::new(&parts, &sums).unwrap().all().is_err());
        assert!(Sums::new(&parts, &sums[1..]).is_none());
        assert!(Sums::new(&parts[..1], &sums).is_none());
    }

    #[test]
    fn the_end_of_a_string_is_read_too() {
        let mut bytes = vec![b'x'; BLOCK];
        bytes.extend_from_slice(b"yz\0");
        let sums: Vec<U32> = of_blocks(&bytes).map(U32::new).collect();
        // The damage cuts the string where the first block ends.
        bytes[BLOCK] = 0;
        let checks = Sums::new(&[("all", &bytes)], &sums).unwrap();
        let cut = &bytes[BLOCK - 3..BLOCK];
        checks.touch(cut);
        assert_eq!(checks.whole(), Ok(()));
        checks.touch_string(cut);
        assert!(checks.whole().is_err());
    }
}
