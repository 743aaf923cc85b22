// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Columns of numbers, and one way through them in both directions.
//!
//! What walks a site file is written once: [`Coder::number`] is given the number to store when a file is packed, and
//! returns it; when a file is unpacked, what it is given does not count, and it returns the number that was stored.

use crate::file::leb::{Input, uleb};

/// The number of columns: [`Column`] says what is in each.
pub(super) const COLUMNS: usize = 640;

/// Which column a number is in. Those from 0 on are the fields of types by kind, of `.BTF`, then of `.BTF.inline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column(pub(super) usize);

/// Why nothing more can be read: the data is not a packed file, or it is larger than it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Malformed,
    TooLarge,
}

/// The columns, which are read or written.
pub(super) enum Coder<'a> {
    Pack(Vec<Vec<u8>>),
    Unpack {
        columns: Vec<Input<'a>>,
        /// How many bytes more may come out.
        left: usize,
    },
}

impl Coder<'_> {
    pub(super) fn pack() -> Coder<'static> {
        Coder::Pack(vec![Vec::new(); COLUMNS])
    }

    /// A number, as it is.
    pub(super) fn number(&mut self, Column(column): Column, value: u32) -> Result<u32, Stop> {
        match self {
            Coder::Pack(columns) => {
                uleb(columns.get_mut(column).ok_or(Stop::Malformed)?, value.into());
                Ok(value)
            }
            Coder::Unpack { columns, .. } => {
                let input = columns.get_mut(column).ok_or(Stop::Malformed)?;
                u32::try_from(input.uleb().ok_or(Stop::Malformed)?).map_err(|_| Stop::Malformed)
            }
        }
    }

    /// A number that is close to another.
    pub(super) fn near(&mut self, column: Column, value: u32, guess: u32) -> Result<u32, Stop> {
        let difference = value.wrapping_sub(guess).cast_signed();
        let zigzag = (difference << 1 ^ difference >> 31).cast_unsigned();
        let zigzag = self.number(column, zigzag)?;
        Ok(guess.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg()))
    }

    /// So many bytes, as they are. What has more or fewer cannot be packed: the number is all that tells how many to
    /// read.
    pub(super) fn bytes(&mut self, Column(column): Column, value: &[u8], len: usize) -> Result<Vec<u8>, Stop> {
        match self {
            Coder::Pack(columns) if value.len() == len => {
                columns.get_mut(column).ok_or(Stop::Malformed)?.extend_from_slice(value);
                Ok(value.to_vec())
            }
            Coder::Pack(_) => Err(Stop::Malformed),
            Coder::Unpack { columns, .. } => {
                let input = columns.get_mut(column).ok_or(Stop::Malformed)?;
                let (bytes, rest) = input.0.split_at_checked(len).ok_or(Stop::Malformed)?;
                input.0 = rest;
                Ok(bytes.to_vec())
            }
        }
    }

    /// Reserves room for bytes that are about to come out.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Stop> {
        if let Coder::Unpack { left, .. } = self {
            *left = left.checked_sub(bytes).ok_or(Stop::TooLarge)?;
        }
        Ok(())
    }
}

/// Words of a table that is packed; past its end, and if one is unpacked, they are 0.
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl Words<'_> {
    pub(super) fn next(&mut self) -> u32 {
        let Some((word, rest)) = self.0.split_first_chunk() else { return 0 };
        self.0 = rest;
        u32::from_le_bytes(*word)
    }

    /// The words that follow, without going past them.
    pub(super) fn peek<const N: usize>(&self) -> [u32; N] {
        let mut ahead = Words(self.0);
        std::array::from_fn(|_| ahead.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(values: Vec<(u32, u32)>, bytes: Vec<u8>) {
            let (one, other) = (Column(3), Column(7));
            let mut coder = Coder::pack();
            for &(value, guess) in &values {
                prop_assert_eq!(coder.number(one, value), Ok(value));
                prop_assert_eq!(coder.near(other, value, guess), Ok(value));
            }
            coder.bytes(one, &bytes, bytes.len()).unwrap();
            let Coder::Pack(columns) = coder else { unreachable!() };
            let columns = columns.iter().map(|column| Input(column)).collect();
            let mut coder = Coder::Unpack { columns, left: 10 };
            for &(value, guess) in &values {
                prop_assert_eq!(coder.number(one, 0), Ok(value));
                prop_assert_eq!(coder.near(other, 0, guess), Ok(value));
            }
            prop_assert_eq!(coder.bytes(one, &[], bytes.len()).unwrap(), bytes);
            prop_assert_eq!(coder.number(one, 0), Err(Stop::Malformed));
            prop_assert_eq!(coder.bytes(one, &[], 1), Err(Stop::Malformed));
            prop_assert_eq!((coder.spend(10), coder.spend(1)), (Ok(()), Err(Stop::TooLarge)));
        }
    }
}
