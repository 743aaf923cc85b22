// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Locations as LOC_PARAM has them, and as the model has them.
//!
//! | flags | words | [`Location`] |
//! |---|---|---|
//! | CONST | 1 or 2 {low, high} | [`Location::Constant`] |
//! | ADDR+CONST | 2, relative to the image's base | [`Location::Address`] |
//! | REG | 1 | [`Location::Register`] |
//! | REG | 2 | [`Location::RegisterPair`] |
//! | REG+OFFSET | 2 | [`Location::RegisterOffset`] |
//! | REG+DEREF | 1 | [`Location::Memory`], offset 0 |
//! | REG+DEREF+OFFSET | 2 | [`Location::Memory`] |
//!
//! SIGNED may come with any: the value is sign-extended from its size.

use super::kinds::loc_flags::{ADDR, CONST, DEREF, FRAME_BASE, OFFSET, REG, SIGNED};
use crate::location::{Argument, Located, Location, Missing};
use crate::machine::Register;

/// A location as LOC_PARAM has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LocParam {
    /// Bytes of the parameter's value.
    pub size: u32,
    /// Flags: see [`super::loc_flags`].
    pub flags: u32,
    words: [u32; 2],
    count: u8,
}

impl LocParam {
    /// The words after the flags.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.count)]
    }
}

/// A constant as its size and sign extend it to 64 bits: the one form of those that mean the same.
pub fn canonical_constant(value: u64, size: u32, signed: bool) -> u64 {
    match size {
        1..=7 => {
            let unused = 64 - size * 8;
            if signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
        }
        _ => value,
    }
}

/// Writes a location in upstream's vocabulary, `base` being the address that address constants are relative to.
/// `None` if that cannot say it exactly: a computed value, a value wider than what the location holds.
pub fn to_upstream(located: &Located, base: u64) -> Option<LocParam> {
    let &Located { size, signed, ref at, .. } = located;
    let sign = if signed { SIGNED } else { 0 };
    let one = |flags, word| LocParam { size, flags: flags | sign, words: [word, 0], count: 1 };
    let two = |flags, words| LocParam { size, flags: flags | sign, words, count: 2 };
    let halves = |value: u64| [value as u32, (value >> 32) as u32];
    let register = u32::from;
    let one_slot = (1..=8).contains(&size);
    Some(match *at {
        Location::Constant(value) if one_slot => {
            let value = canonical_constant(value, size, signed);
            if extend_word(value as u32, signed) == value {
                one(CONST, value as u32)
            } else {
                two(CONST, halves(value))
            }
        }
        Location::Address(address) if one_slot => two(ADDR | CONST, halves(address.wrapping_sub(base))),
        Location::Register(r) if one_slot => one(REG, register(r)),
        Location::RegisterPair(first, second) if (9..=16).contains(&size) => {
            two(REG, [register(first), register(second)])
        }
        Location::RegisterOffset(r, offset) if one_slot => two(REG | OFFSET, [register(r), offset as u32]),
        Location::Memory(r, 0) if size != 0 => one(REG | DEREF, register(r)),
        Location::Memory(r, offset) if size != 0 => two(REG | DEREF | OFFSET, [register(r), offset as u32]),
        _ => return None,
    })
}

fn extend_word(word: u32, signed: bool) -> u64 {
    if signed { word as i32 as u64 } else { u64::from(word) }
}

/// Reads a LOC_PARAM: its size, flags and words.
///
/// A frame-base location is [`Missing::NoFrame`]: what it is relative to is not in the data. A combination that has no
/// meaning is [`Missing::Malformed`]; one whose meaning is not known, or that has fewer bytes than the value,
/// [`Missing::Unsupported`].
pub fn from_upstream(size: u32, flags: u32, words: impl Iterator<Item = u32>, base: u64) -> Argument {
    let mut all = [0u32; 2];
    let mut count = 0;
    for word in words {
        *all.get_mut(count).ok_or(Missing::Unsupported)? = word;
        count += 1;
    }
    let signed = flags & SIGNED != 0;
    let wide = u64::from(all[1]) << 32 | u64::from(all[0]);
    let register = |word: u32| match word {
        FRAME_BASE => Err(Missing::NoFrame),
        _ => Register::try_from(word).map_err(|_| Missing::Unsupported),
    };
    let [first, second] = all;
    let at = match (flags & !SIGNED, count) {
        (CONST, 1) => Location::Constant(canonical_constant(extend_word(first, signed), size, signed)),
        (CONST, 2) => Location::Constant(canonical_constant(wide, size, signed)),
        (f, 2) if f == ADDR | CONST => Location::Address(base.wrapping_add(wide)),
        (REG, 1) => Location::Register(register(first)?),
        (REG, 2) => Location::RegisterPair(register(first)?, register(second)?),
        (f, 2) if f == REG | OFFSET => Location::RegisterOffset(register(first)?, second as i32),
        (f, 1) if f == REG | DEREF => Location::Memory(register(first)?, 0),
        (f, 2) if f == REG | DEREF | OFFSET => Location::Memory(register(first)?, second as i32),
        (f, _) if f & !(ADDR | CONST | REG | DEREF | OFFSET) != 0 => {
            return Err(Missing::Unsupported);
        }
        _ => return Err(Missing::Malformed),
    };
    let fits = match at {
        Location::RegisterPair(..) => (9..=16).contains(&size),
        Location::Memory(..) => size != 0,
        _ => (1..=8).contains(&size),
    };
    if fits { Ok(Located::certain(size, signed, at)) } else { Err(Missing::Unsupported) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn round(size: u32, signed: bool, at: Location) -> (u32, Vec<u32>) {
        let located = Located::certain(size, signed, at);
        let upstream = to_upstream(&located, BASE).unwrap();
        let back = from_upstream(upstream.size, upstream.flags, upstream.words().iter().copied(), BASE);
        assert_eq!(back, Ok(located));
        (upstream.flags, upstream.words().to_vec())
    }

    #[test]
    fn shapes_are_upstreams() {
        assert_eq!(round(4, false, Location::Constant(7)), (0x2, vec![7]));
        assert_eq!(round(4, true, Location::Constant(-1i64 as u64)), (0x3, vec![u32::MAX]));
        assert_eq!(round(8, true, Location::Constant(-5i64 as u64)), (0x3, vec![-5i32 as u32]));
        assert_eq!(round(8, true, Location::Constant(0xffff_ffff)), (0x3, vec![u32::MAX, 0]));
        assert_eq!(round(8, false, Location::Constant(0xffff_ffff)), (0x2, vec![u32::MAX]));
        assert_eq!(round(8, false, Location::Constant(u64::MAX)), (0x2, vec![u32::MAX, u32::MAX]));
        assert_eq!(round(8, false, Location::Address(BASE + 0x1234)), (0x6, vec![0x1234, 0]));
        assert_eq!(round(8, false, Location::Address(BASE - 1)), (0x6, vec![u32::MAX, u32::MAX]));
        assert_eq!(round(2, true, Location::Register(5)), (0x9, vec![5]));
        assert_eq!(round(16, false, Location::RegisterPair(5, 4)), (0x8, vec![5, 4]));
        assert_eq!(round(8, false, Location::RegisterOffset(7, -8)), (0x28, vec![7, -8i32 as u32]));
        assert_eq!(round(8, false, Location::RegisterOffset(7, 0)), (0x28, vec![7, 0]));
        assert_eq!(round(4, false, Location::Memory(7, 0)), (0x18, vec![7]));
        assert_eq!(round(24, false, Location::Memory(7, 16)), (0x38, vec![7, 16]));
    }

    #[test]
    fn a_constant_is_written_as_its_size_extends_it() {
        let narrow = Located::certain(4, true, Location::Constant(0xffff_ffff));
        assert_eq!(to_upstream(&narrow, BASE).unwrap().words(), [u32::MAX]);
        assert_eq!(canonical_constant(0x1_05, 1, false), 5);
        assert_eq!(canonical_constant(0x80, 1, true), -128i64 as u64);
        assert_eq!(canonical_constant(u64::MAX, 8, false), u64::MAX);
    }

    #[test]
    fn what_upstream_cannot_say_is_not_said() {
        let no = |size, at| {
            let located = Located::certain(size, false, at);
            assert_eq!(to_upstream(&located, BASE), None);
        };
        no(16, Location::Register(5));
        no(16, Location::Constant(0));
        no(16, Location::RegisterOffset(5, 0));
        no(8, Location::RegisterPair(5, 4));
        no(24, Location::RegisterPair(5, 4));
        no(0, Location::Memory(5, 4));
    }

    #[test]
    fn foreign_data_has_a_reason() {
        let read = |size, flags, words: &[u32]| from_upstream(size, flags, words.iter().copied(), BASE).unwrap_err();
        assert_eq!(read(8, REG, &[FRAME_BASE]), Missing::NoFrame);
        assert_eq!(read(8, REG | DEREF | OFFSET, &[FRAME_BASE, 8]), Missing::NoFrame);
        assert_eq!(read(8, REG, &[]), Missing::Malformed);
        assert_eq!(read(8, 0, &[1]), Missing::Malformed);
        assert_eq!(read(8, REG, &[1, 2, 3]), Missing::Unsupported);
        assert_eq!(read(8, 0x40 | REG, &[1]), Missing::Unsupported);
        assert_eq!(read(16, REG, &[1]), Missing::Unsupported);
        assert_eq!(read(8, REG, &[0x1_0000]), Missing::Unsupported);
    }
}
