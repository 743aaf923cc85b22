// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Locations as LOC_PARAM has them, and as the model has them.
//!
//! | flags | words | size | [`Location`] |
//! |---|---|---|---|
//! | CONST | 1 or 2 {low, high}; 2 if the size exceeds 4 | 1-8 | [`Location::Constant`] |
//! | ADDR+CONST | the same, relative to the image's base | 1-8 | [`Location::Address`] |
//! | REG | 1 | 1-8 | [`Location::Register`] |
//! | REG | 2 | 9-16 | [`Location::RegisterPair`] |
//! | REG+OFFSET | 2, or 3 {register, low, high} | 1-8 | [`Location::RegisterOffset`] |
//! | REG+DEREF | 1 | 1-16 | [`Location::Memory`], offset 0 |
//! | REG+DEREF+OFFSET | 2 or 3 | 1-16 | [`Location::Memory`] |
//!
//! SIGNED is about the words, not about the parameter's value: it says that a constant or an offset is negative, and
//! the kernel refuses it with REG alone and with REG+DEREF. Whether a value that is narrower than its slot is extended
//! by sign follows from the parameter's type in the FUNC_PROTO ([`super::Signature`]), and has to be given to
//! [`from_upstream`].
//!
//! An offset of 64 bits that does not fit 32 has no plain form in the model: it becomes a [`Location::Computed`].

use super::kinds::loc_flags::{ADDR, CONST, DEREF, FRAME_BASE, OFFSET, REG, SIGNED};
use crate::location::{Argument, Computed, Located, Location, Missing, Op};
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

/// The greatest size of a LOC_PARAM that the kernel takes.
pub const MAX_SIZE: u32 = 16;

/// Writes a location in upstream's vocabulary, as the kernel takes it, `base` being the address that address constants
/// are relative to. `None` if that cannot say it exactly: a computed value, a value wider than what the location holds,
/// memory of more than [`MAX_SIZE`] bytes.
///
/// Whether the value is signed is not written: the parameter's type tells.
pub fn to_upstream(located: &Located, base: u64) -> Option<LocParam> {
    let &Located { size, signed, ref at, .. } = located;
    let register = u32::from;
    let one_slot = (1..=8).contains(&size);
    let readable = (1..=MAX_SIZE).contains(&size);
    Some(match *at {
        Location::Constant(value) if one_slot => constant(size, canonical_constant(value, size, signed), signed),
        Location::Address(address) if one_slot => {
            let relative = address.wrapping_sub(base);
            let sign = if (relative as i64) < 0 { SIGNED } else { 0 };
            LocParam { size, flags: ADDR | CONST | sign, words: halves(relative), count: 2 }
        }
        Location::Register(r) if one_slot => LocParam { size, flags: REG, words: [register(r), 0], count: 1 },
        Location::RegisterPair(first, second) if (9..=16).contains(&size) => {
            LocParam { size, flags: REG, words: [register(first), register(second)], count: 2 }
        }
        Location::RegisterOffset(r, offset) if one_slot => with_offset(size, REG, r, offset),
        Location::Memory(r, 0) if readable => LocParam { size, flags: REG | DEREF, words: [register(r), 0], count: 1 },
        Location::Memory(r, offset) if readable => with_offset(size, REG | DEREF, r, offset),
        _ => return None,
    })
}

/// A constant: two words if it is wider than 4 bytes, whatever its value. That is the kernel's rule, and readers go by
/// it.
fn constant(size: u32, value: u64, signed: bool) -> LocParam {
    let sign = if signed && (value as i64) < 0 { SIGNED } else { 0 };
    LocParam { size, flags: CONST | sign, words: halves(value), count: if size > 4 { 2 } else { 1 } }
}

fn with_offset(size: u32, flags: u32, r: Register, offset: i32) -> LocParam {
    let sign = if offset < 0 { SIGNED } else { 0 };
    LocParam { size, flags: flags | OFFSET | sign, words: [u32::from(r), offset as u32], count: 2 }
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The words after a LOC_PARAM's flags, as many as any combination takes.
struct Words {
    all: [u32; 3],
    count: usize,
}

impl Words {
    fn collect(words: impl Iterator<Item = u32>) -> Result<Words, Missing> {
        let mut collected = Words { all: [0; 3], count: 0 };
        for word in words {
            *collected.all.get_mut(collected.count).ok_or(Missing::Unsupported)? = word;
            collected.count += 1;
        }
        Ok(collected)
    }

    fn register(&self, nth: usize) -> Result<Register, Missing> {
        match self.all[nth] {
            FRAME_BASE => Err(Missing::NoFrame),
            word => Register::try_from(word).map_err(|_| Missing::Unsupported),
        }
    }

    /// The number in the words from the `nth` on: of one word or of two.
    fn number(&self, nth: usize, signed: bool) -> u64 {
        let low = self.all[nth];
        match self.count - nth {
            1 if signed => low as i32 as u64,
            1 => u64::from(low),
            _ => u64::from(self.all[nth + 1]) << 32 | u64::from(low),
        }
    }
}

/// What a LOC_PARAM's words are relative to, and what its parameter's type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// What address constants are relative to; `None` if that is not known.
    pub base: Option<u64>,
    /// Whether the parameter's type is signed.
    pub signed: bool,
}

/// Reads a LOC_PARAM: its size, flags and words.
///
/// A frame-base location is [`Missing::NoFrame`]: what it is relative to is not in the data. A combination that has no
/// meaning is [`Missing::Malformed`]; one whose meaning is not known, or that has fewer bytes than the value,
/// [`Missing::Unsupported`].
pub fn from_upstream(size: u32, flags: u32, words: impl Iterator<Item = u32>, context: Context) -> Argument {
    if flags & !(SIGNED | ADDR | CONST | REG | DEREF | OFFSET) != 0 {
        return Err(Missing::Unsupported);
    }
    let words = Words::collect(words)?;
    let negative = flags & SIGNED != 0;
    // An offset of one word is signed, whether or not a writer says so.
    let offset = || words.number(1, true) as i64;
    let at = match (flags & !SIGNED, words.count) {
        (CONST, 1 | 2) => Location::Constant(canonical_constant(words.number(0, negative), size, context.signed)),
        (f, 1 | 2) if f == ADDR | CONST => {
            let base = context.base.ok_or(Missing::Unsupported)?;
            Location::Address(base.wrapping_add(words.number(0, negative)))
        }
        (REG, 1) => Location::Register(words.register(0)?),
        (REG, 2) => Location::RegisterPair(words.register(0)?, words.register(1)?),
        (f, 2 | 3) if f == REG | OFFSET => match i32::try_from(offset()) {
            Ok(offset) => Location::RegisterOffset(words.register(0)?, offset),
            Err(_) => computed(words.register(0)?, offset(), [None].into_iter()),
        },
        (f, 1) if f == REG | DEREF => Location::Memory(words.register(0)?, 0),
        (f, 2 | 3) if f == REG | DEREF | OFFSET => match i32::try_from(offset()) {
            Ok(offset) => Location::Memory(words.register(0)?, offset),
            Err(_) => computed(words.register(0)?, offset(), loads(size)?),
        },
        (_, 3) => return Err(Missing::Unsupported),
        _ => return Err(Missing::Malformed),
    };
    let fits = match at {
        Location::RegisterPair(..) => (9..=16).contains(&size),
        // Memory may have more bytes than the kernel accepts.
        Location::Memory(..) => size != 0,
        Location::Computed(_) if flags & DEREF != 0 => true,
        _ => (1..=8).contains(&size),
    };
    if fits { Ok(Located::certain(size, context.signed, at)) } else { Err(Missing::Unsupported) }
}

/// The loads that take a value of so many bytes from memory, slot by slot. Only whole words can be loaded.
fn loads(size: u32) -> Result<impl Iterator<Item = Option<u8>>, Missing> {
    let rest = size % 8;
    if !(1..=MAX_SIZE).contains(&size) || !matches!(rest, 0 | 1 | 2 | 4) {
        return Err(Missing::Unsupported);
    }
    let slots = size.div_ceil(8);
    Ok((0..slots).map(move |slot| Some(if slot + 1 == slots && rest != 0 { rest as u8 } else { 8 })))
}

/// A register and an offset of more than 32 bits: their sum, or what is loaded from there, slot by slot.
fn computed(register: Register, offset: i64, slots: impl Iterator<Item = Option<u8>>) -> Location {
    let slot = |(nth, load): (i64, Option<u8>)| -> Box<[Op]> {
        let place = offset.wrapping_add(8 * nth) as u64;
        let sum = [Op::Register(register), Op::Constant(place), Op::Add];
        sum.into_iter().chain(load.map(Op::Load)).collect()
    };
    Location::Computed(Computed { slots: (0..).zip(slots).map(slot).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn context(signed: bool) -> Context {
        Context { base: Some(BASE), signed }
    }

    fn round(size: u32, signed: bool, at: Location) -> (u32, Vec<u32>) {
        let located = Located::certain(size, signed, at);
        let upstream = to_upstream(&located, BASE).unwrap();
        let words = upstream.words().iter().copied();
        assert_eq!(from_upstream(upstream.size, upstream.flags, words, context(signed)), Ok(located));
        (upstream.flags, upstream.words().to_vec())
    }

    #[test]
    fn shapes_are_upstreams() {
        assert_eq!(round(4, false, Location::Constant(7)), (0x2, vec![7]));
        assert_eq!(round(4, true, Location::Constant(7)), (0x2, vec![7]));
        assert_eq!(round(4, true, Location::Constant(-1i64 as u64)), (0x3, vec![u32::MAX]));
        assert_eq!(round(1, true, Location::Constant(-1i64 as u64)), (0x3, vec![u32::MAX]));
        assert_eq!(round(5, false, Location::Constant(7)), (0x2, vec![7, 0]));
        assert_eq!(round(8, true, Location::Constant(-5i64 as u64)), (0x3, vec![-5i32 as u32, u32::MAX]));
        assert_eq!(round(8, true, Location::Constant(0xffff_ffff)), (0x2, vec![u32::MAX, 0]));
        assert_eq!(round(8, false, Location::Constant(u64::MAX)), (0x2, vec![u32::MAX, u32::MAX]));
        assert_eq!(round(8, false, Location::Address(BASE + 0x1234)), (0x6, vec![0x1234, 0]));
        assert_eq!(round(8, false, Location::Address(BASE - 1)), (0x7, vec![u32::MAX, u32::MAX]));
        assert_eq!(round(2, true, Location::Register(5)), (0x8, vec![5]));
        assert_eq!(round(16, false, Location::RegisterPair(5, 4)), (0x8, vec![5, 4]));
        assert_eq!(round(8, false, Location::RegisterOffset(7, -8)), (0x29, vec![7, -8i32 as u32]));
        assert_eq!(round(8, false, Location::RegisterOffset(7, 0)), (0x28, vec![7, 0]));
        assert_eq!(round(4, true, Location::Memory(7, 0)), (0x18, vec![7]));
        assert_eq!(round(16, false, Location::Memory(7, 16)), (0x38, vec![7, 16]));
        assert_eq!(round(4, true, Location::Memory(7, -16)), (0x39, vec![7, -16i32 as u32]));
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
    fn the_type_says_what_is_signed() {
        let read = |signed, flags, words: &[u32]| from_upstream(4, flags, words.iter().copied(), context(signed));
        for flags in [REG, REG | SIGNED] {
            assert_eq!(read(true, flags, &[5]), Ok(Located::certain(4, true, Location::Register(5))));
            assert_eq!(read(false, flags, &[5]), Ok(Located::certain(4, false, Location::Register(5))));
        }
        for words in [&[u32::MAX][..], &[u32::MAX, 0], &[u32::MAX, u32::MAX]] {
            let minus = Located::certain(4, true, Location::Constant(u64::MAX));
            assert_eq!(read(true, CONST, words), Ok(minus));
            let great = Located::certain(4, false, Location::Constant(0xffff_ffff));
            assert_eq!(read(false, CONST | SIGNED, words), Ok(great));
        }
    }

    #[test]
    fn either_width_of_numbers() {
        let read =
            |size, flags, words: &[u32]| from_upstream(size, flags, words.iter().copied(), context(false)).unwrap();
        let at = |size, flags, words: &[u32]| read(size, flags, words).at;
        assert_eq!(at(8, CONST, &[7]), Location::Constant(7));
        assert_eq!(at(8, CONST | SIGNED, &[-7i32 as u32]), Location::Constant(-7i64 as u64));
        assert_eq!(at(4, CONST | ADDR, &[0x10]), Location::Address(BASE + 0x10));
        assert_eq!(at(4, CONST | ADDR | SIGNED, &[-1i32 as u32]), Location::Address(BASE - 1));
        let minus = [7, -16i32 as u32, u32::MAX];
        assert_eq!(at(8, REG | OFFSET | SIGNED, &minus), Location::RegisterOffset(7, -16));
        assert_eq!(at(4, REG | DEREF | OFFSET, &[7, 16, 0]), Location::Memory(7, 16));
        let far =
            |slots: &[&[Op]]| Location::Computed(Computed { slots: slots.iter().map(|&slot| slot.into()).collect() });
        let (r, add, high) = (Op::Register(7), Op::Add, 5u64 << 32);
        assert_eq!(at(8, REG | OFFSET, &[7, 1, 5]), far(&[&[r, Op::Constant(high + 1), add]]));
        let first: &[Op] = &[r, Op::Constant(high), add, Op::Load(8)];
        let second: &[Op] = &[r, Op::Constant(high + 8), add, Op::Load(4)];
        assert_eq!(at(12, REG | DEREF | OFFSET, &[7, 0, 5]), far(&[first, second]));
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
        no(17, Location::Memory(5, 4));
        no(24, Location::Memory(5, 0));
    }

    #[test]
    fn foreign_data_has_a_reason() {
        let read =
            |size, flags, words: &[u32]| from_upstream(size, flags, words.iter().copied(), context(false)).unwrap_err();
        assert_eq!(read(8, REG, &[FRAME_BASE]), Missing::NoFrame);
        assert_eq!(read(8, REG | DEREF | OFFSET, &[FRAME_BASE, 8]), Missing::NoFrame);
        assert_eq!(read(16, REG, &[1, FRAME_BASE]), Missing::NoFrame);
        assert_eq!(read(8, REG, &[]), Missing::Malformed);
        assert_eq!(read(8, 0, &[1]), Missing::Malformed);
        assert_eq!(read(8, CONST | REG, &[1]), Missing::Malformed);
        assert_eq!(read(8, REG | DEREF, &[1, 2]), Missing::Malformed);
        assert_eq!(read(8, REG, &[1, 2, 3]), Missing::Unsupported);
        assert_eq!(read(8, REG | OFFSET, &[1, 2, 3, 4]), Missing::Unsupported);
        assert_eq!(read(8, 0x40 | REG, &[1]), Missing::Unsupported);
        assert_eq!(read(16, REG, &[1]), Missing::Unsupported);
        assert_eq!(read(8, REG, &[0x1_0000]), Missing::Unsupported);
        assert_eq!(read(16, CONST, &[1, 2]), Missing::Unsupported);
        assert_eq!(read(16, REG | OFFSET, &[7, 0, 5]), Missing::Unsupported);
        assert_eq!(read(11, REG | DEREF | OFFSET, &[7, 0, 5]), Missing::Unsupported);
        let unknown = Context { base: None, signed: false };
        let address = from_upstream(8, ADDR | CONST, [1, 2].into_iter(), unknown);
        assert_eq!(address, Err(Missing::Unsupported));
    }
}
