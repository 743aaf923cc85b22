// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The bytes of a location that LOC_PARAM has no shape for, or that is doubtful.
//!
//! {u8 form, u8 flags (1: signed), u8 doubt (0: certain), ULEB size}, then by form:
//!
//! | form | then |
//! |---|---|
//! | 0 computed | ULEB number of slots; for each: ULEB number of steps, the steps |
//! | 1 constant | u64 |
//! | 2 address | u64 relative to the image's base |
//! | 3 register | ULEB |
//! | 4 register pair | ULEB, ULEB |
//! | 5 register + offset | ULEB, i32 |
//! | 6 memory | ULEB, i32 |
//!
//! The plain forms serve for plain locations of values that they do not fill, and for doubtful ones: LOC_PARAM cannot
//! say that a location is doubtful, so the upstream part does not have it. A step is a byte, and for 1 (constant) and 2
//! (address, relative) an SLEB, for 3 (register) a ULEB, for 4 (load), 5 (zero-extend) and 6 (sign-extend) a byte; the
//! others from 7 on are in the order of [`PLAIN`].

use super::leb::{Input, sleb, uleb};
use crate::doubt::Doubt;
use crate::location::{Computed, Located, Location, Op};
use crate::machine::{Machine, Register};

/// Steps without an operand, from number [`FIRST_PLAIN`] on. May be added to, not changed.
const PLAIN: [Op; 19] = [
    Op::Neg,
    Op::Not,
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::DivU,
    Op::ModU,
    Op::And,
    Op::Or,
    Op::Xor,
    Op::Shl,
    Op::Shr,
    Op::Sar,
    Op::Eq,
    Op::Ne,
    Op::LtS,
    Op::LeS,
    Op::LtU,
    Op::LeU,
];
const FIRST_PLAIN: u8 = 7;

/// Whether a location can be stored: a computed one must have a well-formed program for each slot.
pub(super) fn is_well_formed(located: &Located, machine: Machine) -> bool {
    match &located.at {
        Location::Computed(computed) => {
            computed.slots.len() == located.slots() && computed.slots.iter().all(|slot| Op::check(slot, machine))
        }
        _ => true,
    }
}

/// The bytes of a location.
pub(crate) fn encode(located: &Located, base: u64) -> Vec<u8> {
    let mut out = vec![0, u8::from(located.signed), located.doubt.map_or(0, |doubt| doubt as u8)];
    uleb(&mut out, u64::from(located.size));
    out[0] = match &located.at {
        Location::Computed(computed) => {
            uleb(&mut out, computed.slots.len() as u64);
            for slot in &computed.slots {
                uleb(&mut out, slot.len() as u64);
                slot.iter().for_each(|step| encode_op(&mut out, *step, base));
            }
            0
        }
        Location::Constant(value) => {
            out.extend_from_slice(&value.to_le_bytes());
            1
        }
        Location::Address(address) => {
            out.extend_from_slice(&address.wrapping_sub(base).to_le_bytes());
            2
        }
        Location::Register(r) => {
            uleb(&mut out, u64::from(*r));
            3
        }
        Location::RegisterPair(first, second) => {
            uleb(&mut out, u64::from(*first));
            uleb(&mut out, u64::from(*second));
            4
        }
        Location::RegisterOffset(r, offset) => {
            uleb(&mut out, u64::from(*r));
            out.extend_from_slice(&offset.to_le_bytes());
            5
        }
        Location::Memory(r, offset) => {
            uleb(&mut out, u64::from(*r));
            out.extend_from_slice(&offset.to_le_bytes());
            6
        }
    };
    out
}

fn encode_op(out: &mut Vec<u8>, op: Op, base: u64) {
    match op {
        Op::Constant(value) => {
            out.push(1);
            sleb(out, value as i64);
        }
        Op::Address(address) => {
            out.push(2);
            sleb(out, address.wrapping_sub(base) as i64);
        }
        Op::Register(r) => {
            out.push(3);
            uleb(out, u64::from(r));
        }
        Op::Load(bytes) => out.extend_from_slice(&[4, bytes]),
        Op::ZeroExtend(bits) => out.extend_from_slice(&[5, bits]),
        Op::SignExtend(bits) => out.extend_from_slice(&[6, bits]),
        plain => {
            let position = PLAIN.iter().position(|p| *p == plain);
            // Every step without an operand is listed: a test goes through them.
            out.push(FIRST_PLAIN + position.unwrap_or(PLAIN.len()) as u8);
        }
    }
}

/// The location at the start of the bytes, if it is well formed.
pub(crate) fn decode(bytes: &[u8], base: u64, machine: Machine) -> Option<(Located, usize)> {
    let mut input = Input(bytes);
    let (form, flags) = (input.byte()?, input.byte()?);
    let doubt = match input.byte()? {
        0 => None,
        code => Some(Doubt::from_code(code)?),
    };
    let size = u32::try_from(input.uleb()?).ok()?;
    let at = match form {
        0 => {
            let count = input.uleb()?;
            // Every slot takes a byte at least.
            if count > input.0.len() as u64 {
                return None;
            }
            let slots = (0..count).map(|_| input.program(base)).collect::<Option<_>>()?;
            Location::Computed(Computed { slots })
        }
        1 => Location::Constant(u64::from_le_bytes(input.array()?)),
        2 => Location::Address(base.wrapping_add(u64::from_le_bytes(input.array()?))),
        3 => Location::Register(input.register()?),
        4 => Location::RegisterPair(input.register()?, input.register()?),
        5 => Location::RegisterOffset(input.register()?, i32::from_le_bytes(input.array()?)),
        6 => Location::Memory(input.register()?, i32::from_le_bytes(input.array()?)),
        _ => return None,
    };
    let located = Located { size, signed: flags & 1 != 0, at, doubt };
    is_well_formed(&located, machine).then_some((located, bytes.len() - input.0.len()))
}

impl Input<'_> {
    fn register(&mut self) -> Option<Register> {
        Register::try_from(self.uleb()?).ok()
    }

    fn program(&mut self, base: u64) -> Option<Box<[Op]>> {
        let count = self.uleb()?;
        if count > Op::MAX_OPS as u64 {
            return None;
        }
        (0..count).map(|_| self.op(base)).collect()
    }

    fn op(&mut self, base: u64) -> Option<Op> {
        Some(match self.byte()? {
            1 => Op::Constant(self.sleb()? as u64),
            2 => Op::Address(base.wrapping_add(self.sleb()? as u64)),
            3 => Op::Register(self.register()?),
            4 => Op::Load(self.byte()?),
            5 => Op::ZeroExtend(self.byte()?),
            6 => Op::SignExtend(self.byte()?),
            plain => *PLAIN.get(usize::from(plain.checked_sub(FIRST_PLAIN)?))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0xffff_ffff_8100_0000;

    fn round(located: &Located) -> usize {
        let bytes = encode(located, BASE);
        assert_eq!(decode(&bytes, BASE, Machine::X86_64), Some((located.clone(), bytes.len())));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], BASE, Machine::X86_64), None);
        }
        bytes.len()
    }

    #[test]
    fn steps_come_back() {
        let ends = [
            Op::Constant(0),
            Op::Constant(63),
            Op::Constant(64),
            Op::Constant(u64::MAX),
            Op::Constant(1 << 63),
            Op::Constant(i64::MAX as u64),
            Op::Address(BASE + 0x1234),
            Op::Address(0),
            Op::Register(16),
        ];
        for end in ends {
            for unary in [Op::Load(4), Op::ZeroExtend(33), Op::SignExtend(8), Op::Neg, Op::Not] {
                let slots: Box<[Box<[Op]>]> = Box::new([Box::new([end, unary])]);
                round(&Located::certain(8, true, Location::Computed(Computed { slots })));
            }
        }
        for binary in PLAIN.into_iter().filter(|op| op.arity() == 2) {
            let slots: Box<[Box<[Op]>]> =
                Box::new([Box::new([Op::Register(1), Op::Register(2), binary]), Box::new([Op::Constant(5)])]);
            round(&Located::certain(12, false, Location::Computed(Computed { slots })));
        }
    }

    #[test]
    fn plain_locations_come_back() {
        for at in [
            Location::Constant(u64::MAX),
            Location::Address(BASE + 1),
            Location::Register(300),
            Location::RegisterPair(1, 2),
            Location::RegisterOffset(7, -8),
            Location::Memory(6, i32::MIN),
        ] {
            round(&Located::certain(20, false, at));
        }
    }

    #[test]
    fn doubts_come_back_with_every_form() {
        let slots: Box<[Box<[Op]>]> = Box::new([Box::new([Op::Register(5), Op::ZeroExtend(8)])]);
        for at in [Location::Constant(5), Location::Register(5), Location::Computed(Computed { slots })] {
            for doubt in Doubt::ALL {
                round(&Located::certain(4, true, at.clone()).doubtful(doubt));
            }
        }
    }

    #[test]
    fn an_unknown_doubt_is_not_taken_for_certainty() {
        let mut bytes = encode(&Located::certain(8, false, Location::Register(5)), BASE);
        bytes[2] = 0xff;
        assert_eq!(decode(&bytes, BASE, Machine::X86_64), None);
    }

    #[test]
    fn a_mask_of_memory_is_short() {
        let slot: Box<[Op]> =
            Box::new([Op::Register(3), Op::Constant(16), Op::Add, Op::Load(4), Op::Constant(0xff), Op::And]);
        let located = Located::certain(4, false, Location::Computed(Computed { slots: Box::new([slot]) }));
        assert_eq!(round(&located), 17);
    }

    #[test]
    fn malformed_programs_are_none() {
        let m = Machine::X86_64;
        assert_eq!(decode(&[], BASE, m), None);
        assert_eq!(decode(&[9, 0, 0, 8], BASE, m), None);
        // A number of slots that the bytes cannot hold.
        assert_eq!(decode(&[0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0x0f], BASE, m), None);
        // A number of more than 64 bits.
        assert_eq!(decode(&[3, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], BASE, m), None);
        // A program that leaves nothing, one slot too many, an unknown step.
        assert_eq!(decode(&[0, 0, 0, 8, 1, 0], BASE, m), None);
        assert_eq!(decode(&[0, 0, 0, 8, 2, 1, 3, 1, 1, 3, 1], BASE, m), None);
        assert_eq!(decode(&[0, 0, 0, 8, 1, 2, 3, 1, 0x70], BASE, m), None);
    }
}
