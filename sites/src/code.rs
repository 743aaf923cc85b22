// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A short sum of the instructions at a site, by which a loader sees that the kernel has them there.

use std::ops::Range;

/// The sum of some bytes at a site: which ones, and 17 bits of their CRC-32.
///
/// The kernel changes some of its own text. The bytes are the most in a row that it does not change. There may be none:
/// then nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CodeSum([u8; 3]);

impl CodeSum {
    /// At most so many bytes are summed.
    pub const MOST: usize = 15;
    /// At most so many bytes come before them.
    pub const FARTHEST: usize = 7;
    /// All bytes that may be summed are among so many.
    pub const WINDOW: usize = Self::FARTHEST + Self::MOST;
    /// Nothing is known.
    pub const NONE: CodeSum = CodeSum([0; 3]);

    /// The sum of those of the bytes at a site that are in the range. Nothing if the range is empty or not one that can
    /// be stored.
    pub fn of(bytes: &[u8], range: Range<usize>) -> CodeSum {
        let (start, len) = (range.start, range.len());
        let Some(summed) = bytes.get(range).filter(|_| start <= Self::FARTHEST && (1..=Self::MOST).contains(&len))
        else {
            return CodeSum::NONE;
        };
        let word = crc32fast::hash(summed) << 7 | (start as u32) << 4 | len as u32;
        let [low, middle, high, _] = word.to_le_bytes();
        CodeSum([low, middle, high])
    }

    /// The sum that is stored in these bytes.
    pub fn from_bytes(stored: [u8; 3]) -> CodeSum {
        CodeSum(stored)
    }

    /// The bytes in which it is stored, as a little-endian number: 4 bits length, 3 bits start, 17 bits checksum.
    pub fn to_bytes(self) -> [u8; 3] {
        self.0
    }

    /// Which of the bytes from the site on are summed; empty if nothing is known.
    pub fn range(self) -> Range<usize> {
        let (start, len) = (usize::from(self.0[0] >> 4 & 7), usize::from(self.0[0] & 0xf));
        start..start + len
    }

    /// Whether nothing is known.
    pub fn is_empty(self) -> bool {
        self.range().is_empty()
    }

    /// Whether the bytes at an address may be those that were summed. `None` if nothing is known, or too few are given.
    pub fn fits(self, bytes: &[u8]) -> Option<bool> {
        let range = self.range();
        (!range.is_empty() && range.end <= bytes.len()).then(|| CodeSum::of(bytes, range) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_bytes_have_another_sum() {
        let sum = CodeSum::of(&[0x55, 0x48, 0x89, 0xe5], 1..4);
        assert_eq!(sum.range(), 1..4);
        assert_eq!(sum.fits(&[0x55, 0x48, 0x89, 0xe5, 0x90]), Some(true), "what comes after was not summed");
        assert_eq!(sum.fits(&[0x54, 0x48, 0x89, 0xe5]), Some(true), "and what comes before");
        assert_eq!(sum.fits(&[0x55, 0x48, 0x89, 0xe6]), Some(false));
        assert_eq!(sum.fits(&[0x55, 0x48]), None);
        assert_eq!(CodeSum::NONE.fits(&[0x55]), None);
        for nothing in [0..0, 3..3, 8..9, 0..16, 0..5] {
            assert_eq!(CodeSum::of(&[0x55; 4], nothing.clone()), CodeSum::NONE, "{nothing:?}");
        }
        // docs/format.md, F11.4.
        assert_eq!(CodeSum::of(&[0x55], 0..1).to_bytes(), [0x01, 0x7b, 0xa5]);
    }

    proptest! {
        #[test]
        fn it_comes_back(bytes: [u8; CodeSum::WINDOW], start in 0..=CodeSum::FARTHEST, len in 1..=CodeSum::MOST) {
            let sum = CodeSum::of(&bytes, start..start + len);
            let again = CodeSum::from_bytes(sum.to_bytes());
            prop_assert_eq!((again, again.range()), (sum, start..start + len));
            prop_assert_eq!(sum.fits(&bytes), Some(true));
        }
    }
}
