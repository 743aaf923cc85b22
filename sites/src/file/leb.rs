// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Numbers of variable length, as DWARF has them (LEB128).

/// Bytes that are read from their beginning on. What cannot be read is `None`.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let unused = 64u32.saturating_sub(shift + 7);
                return Some(value << unused >> unused);
            }
        }
        None
    }
}

/// Writes an unsigned number.
pub(crate) fn uleb(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a signed number.
pub(crate) fn sleb(out: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = value as u8 & 0x7f;
        value >>= 7;
        if matches!((value, byte & 0x40), (0, 0) | (-1, 0x40)) {
            return out.push(byte);
        }
        out.push(byte | 0x80);
    }
}
