// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a location means: the reference that everything that computes arguments is checked against.
//!
//! The encoder's lowering of DWARF expressions and the loader's trampolines each have their own idea of a
//! [`Location`]; this plain evaluator is the third, and the one that the property tests hold them to. It is written
//! to be read, not to be fast.

use crate::location::{Located, Location, Op};
use crate::machine::Register;

/// Reads memory at an address into the whole buffer; `false` if any byte of it cannot be read.
pub type ReadMemory<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// The 8-byte slots of an argument, or `None` if memory cannot be read or the location is not well formed.
///
/// Slot `i` holds the bytes `8 * i ..` of the value, little-endian. Where fewer than 8 bytes of the value are left
/// for a slot, only these count, whatever the location computes above them, and they are extended to 64 bits by
/// sign if [`Located::signed`], else by zeros. `displacement` is what is added to a link-time address.
pub fn evaluate(
    located: &Located,
    registers: &dyn Fn(Register) -> u64,
    memory: &mut ReadMemory<'_>,
    displacement: u64,
) -> Option<Vec<u64>> {
    let count = located.slots();
    let raw = match &located.at {
        Location::Constant(value) => vec![*value],
        Location::Address(address) => vec![address.wrapping_add(displacement)],
        Location::Register(register) => vec![registers(*register)],
        Location::RegisterPair(first, second) => vec![registers(*first), registers(*second)],
        Location::RegisterOffset(register, offset) => vec![plus(registers(*register), *offset)],
        Location::Memory(register, offset) => {
            let mut bytes = vec![0; located.size as usize];
            if !memory(plus(registers(*register), *offset), &mut bytes) {
                return None;
            }
            bytes.chunks(8).map(little_endian).collect()
        }
        Location::Computed(computed) => computed
            .slots
            .iter()
            .map(|program| run(program, registers, memory, displacement))
            .collect::<Option<Vec<u64>>>()?,
    };
    if raw.len() != count {
        return None;
    }
    let slots = raw.into_iter().enumerate().map(|(slot, value)| {
        let bytes = (located.size as usize - 8 * slot).min(8);
        extend(value, bytes as u32 * 8, located.signed)
    });
    Some(slots.collect())
}

/// The value that a slot's program leaves, or `None` if it reads memory that cannot be read or is not well formed.
pub fn run(
    program: &[Op],
    registers: &dyn Fn(Register) -> u64,
    memory: &mut ReadMemory<'_>,
    displacement: u64,
) -> Option<u64> {
    let mut stack: Vec<u64> = Vec::new();
    for op in program {
        let result = match op.arity() {
            0 => match *op {
                Op::Constant(value) => value,
                Op::Address(address) => address.wrapping_add(displacement),
                Op::Register(register) => registers(register),
                _ => return None,
            },
            1 => {
                let top = stack.pop()?;
                match *op {
                    Op::Load(bytes @ (1 | 2 | 4 | 8)) => {
                        let mut buffer = [0; 8];
                        let wanted = buffer.get_mut(..usize::from(bytes))?;
                        if !memory(top, wanted) {
                            return None;
                        }
                        u64::from_le_bytes(buffer)
                    }
                    Op::ZeroExtend(bits) => extend(top, u32::from(bits), false),
                    Op::SignExtend(bits) => extend(top, u32::from(bits), true),
                    Op::Neg => top.wrapping_neg(),
                    Op::Not => !top,
                    _ => return None,
                }
            }
            _ => {
                let top = stack.pop()?;
                let second = stack.pop()?;
                binary(*op, second, top)?
            }
        };
        stack.push(result);
    }
    match stack[..] {
        [value] => Some(value),
        _ => None,
    }
}

/// The result of a binary operation, `None` if it is not one.
pub fn binary(op: Op, second: u64, top: u64) -> Option<u64> {
    let shift = u32::try_from(top).unwrap_or(u32::MAX);
    Some(match op {
        Op::Add => second.wrapping_add(top),
        Op::Sub => second.wrapping_sub(top),
        Op::Mul => second.wrapping_mul(top),
        Op::DivU => second.checked_div(top).unwrap_or(0),
        Op::ModU => second.checked_rem(top).unwrap_or(second),
        Op::And => second & top,
        Op::Or => second | top,
        Op::Xor => second ^ top,
        Op::Shl => second.checked_shl(shift).unwrap_or(0),
        Op::Shr => second.checked_shr(shift).unwrap_or(0),
        Op::Sar => ((second as i64) >> shift.min(63)) as u64,
        Op::Eq => u64::from(second == top),
        Op::Ne => u64::from(second != top),
        Op::LtS => u64::from((second as i64) < top as i64),
        Op::LeS => u64::from(second as i64 <= top as i64),
        Op::LtU => u64::from(second < top),
        Op::LeU => u64::from(second <= top),
        _ => return None,
    })
}

/// The low `bits` of a value extended to 64 bits; all of it where `bits` is 64 or more, nothing where it is 0.
pub fn extend(value: u64, bits: u32, signed: bool) -> u64 {
    let Some(shift) = 64u32.checked_sub(bits) else {
        return value;
    };
    match (shift, signed) {
        (64, _) => 0,
        (_, true) => (((value << shift) as i64) >> shift) as u64,
        (_, false) => (value << shift) >> shift,
    }
}

fn plus(value: u64, offset: i32) -> u64 {
    value.wrapping_add(i64::from(offset) as u64)
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Computed;

    /// Registers hold 0x1000 times their number with the top bit set in register 3; memory at `a` holds `a & 0xff`
    /// up to 0x10000.
    fn value(size: u32, signed: bool, at: Location) -> Option<Vec<u64>> {
        let registers = |r: Register| if r == 3 { u64::MAX - 1 } else { u64::from(r) * 0x1000 };
        let mut memory = |address: u64, buffer: &mut [u8]| {
            for (i, byte) in buffer.iter_mut().enumerate() {
                *byte = (address + i as u64) as u8;
            }
            address + (buffer.len() as u64) <= 0x10000
        };
        evaluate(&Located::certain(size, signed, at), &registers, &mut memory, 0x100)
    }

    #[test]
    fn plain_locations() {
        assert_eq!(value(4, true, Location::Constant(0xffff_fffe)), Some(vec![-2i64 as u64]));
        assert_eq!(value(4, false, Location::Constant(0x1_ffff_fffe)), Some(vec![0xffff_fffe]));
        assert_eq!(value(8, false, Location::Address(0x23)), Some(vec![0x123]));
        assert_eq!(value(2, false, Location::Register(3)), Some(vec![0xfffe]));
        assert_eq!(value(2, true, Location::Register(3)), Some(vec![u64::MAX - 1]));
        assert_eq!(value(12, false, Location::RegisterPair(1, 3)), Some(vec![0x1000, 0xffff_fffe]));
        assert_eq!(value(8, false, Location::RegisterOffset(3, 3)), Some(vec![1]));
        assert_eq!(value(8, false, Location::RegisterPair(1, 3)), None);
    }

    #[test]
    fn memory_is_read_to_the_last_byte_and_no_further() {
        let slots = value(11, false, Location::Memory(1, -8)).unwrap();
        assert_eq!(slots, [0xff_fe_fd_fc_fb_fa_f9_f8, 0x02_01_00]);
        assert!(value(3, false, Location::Memory(15, 0xffd)).is_some());
        assert_eq!(value(4, false, Location::Memory(15, 0xffd)), None);
    }

    #[test]
    fn programs() {
        let one = |ops: &[Op]| value(8, false, Location::Computed(Computed { slots: Box::new([ops.into()]) }));
        assert_eq!(one(&[Op::Constant(7), Op::Constant(2), Op::Sub]), Some(vec![5]));
        assert_eq!(one(&[Op::Constant(7), Op::Constant(0), Op::DivU]), Some(vec![0]));
        assert_eq!(one(&[Op::Constant(7), Op::Constant(0), Op::ModU]), Some(vec![7]));
        assert_eq!(one(&[Op::Constant(7), Op::Constant(1 << 32), Op::Shl]), Some(vec![0]));
        assert_eq!(one(&[Op::Register(3), Op::Constant(64), Op::Sar]), Some(vec![u64::MAX]));
        assert_eq!(one(&[Op::Register(3), Op::Constant(1), Op::LtS]), Some(vec![1]));
        assert_eq!(one(&[Op::Register(3), Op::Constant(1), Op::LtU]), Some(vec![0]));
        assert_eq!(one(&[Op::Address(0x40), Op::Load(2)]), Some(vec![0x4140]));
        assert_eq!(one(&[Op::Constant(0x180), Op::SignExtend(8)]), Some(vec![-128i64 as u64]));
        assert_eq!(one(&[Op::Constant(1 << 40), Op::Load(1)]), None);
        assert_eq!(one(&[Op::Add]), None);
        assert_eq!(one(&[Op::Constant(1), Op::Constant(1)]), None);
    }
}
