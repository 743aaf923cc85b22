// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where the calling convention puts arguments when a function is entered.
//!
//! A function whose signature the compiler left alone has its arguments here, whether the debug information says
//! so or not. Only what kernels pass is known: integers, pointers, `__int128` and structures of these. Floating
//! point and vector arguments, which kernel code does not have, would be in registers that a probe cannot read.
//!
//! Sources: System V ABI for AMD64, section 3.2.3 (classes INTEGER and MEMORY); Procedure Call Standard for the Arm
//! 64-bit Architecture (AAPCS64), section 6.8.2. On x86-64 a result in memory takes the first register, for its
//! address; on arm64 that is in x8. Structures with members that are packed, aligned to 16 bytes or floating-point
//! numbers have rules of their own. No kernel passes such by value; from the first one on it is not known where
//! arguments are.

use crate::location::{Argument, Located, Location, Missing};
use crate::machine::{Machine, Register};

/// What the calling convention must know of a parameter, or of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ParamShape {
    /// Bytes of its type.
    pub size: u32,
    /// Whether a value narrower than its slot is sign-extended.
    pub signed: bool,
    /// A structure or union.
    pub composite: bool,
    /// A structure or union with a member that the convention treats in a way of its own: one that is aligned to 16
    /// bytes, is not aligned as its type wants it, or is a floating-point number.
    pub irregular: bool,
}

impl ParamShape {
    /// An integer or pointer.
    pub const fn scalar(size: u32, signed: bool) -> ParamShape {
        ParamShape { size, signed, composite: false, irregular: false }
    }
}

/// rdi, rsi, rdx, rcx, r8, r9.
const X86_64: [Register; 6] = [5, 4, 1, 2, 8, 9];
/// x0 to x7.
const AARCH64: [Register; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The registers that arguments are passed in, in order.
pub fn argument_registers(machine: Machine) -> &'static [Register] {
    match machine {
        Machine::X86_64 => &X86_64,
        Machine::Aarch64 => &AARCH64,
    }
}

/// The location of each argument at the first instruction of a function that has these parameters and this result,
/// which is `None` for `void`.
///
/// # Errors
/// An argument of a type without size is [`Missing::NoType`]; one that the convention passes in a way that
/// no location can tell, such as a copy whose address is on the stack, is [`Missing::Unsupported`].
pub fn abi_arguments(machine: Machine, parameters: &[ParamShape], result: Option<ParamShape>) -> Vec<Argument> {
    let is_in_memory = result.is_some_and(|result| result.size > 16);
    let first = usize::from(machine == Machine::X86_64 && is_in_memory);
    let mut allocation = Allocation { machine, next: first, stack: 0 };
    let mut is_known = !result.is_some_and(|result| result.irregular);
    parameters
        .iter()
        .map(|shape| {
            is_known &= !shape.irregular;
            if !is_known {
                return Err(Missing::Unsupported);
            }
            if shape.size == 0 {
                return Err(Missing::NoType);
            }
            let at = allocation.place(shape)?;
            Ok(Located::certain(shape.size, shape.signed, at))
        })
        .collect()
}

/// Where a function leaves its return value: rax, or rax and rdx; x0, or x0 and x1.
///
/// # Errors
/// A value of a type without size (`void`) is [`Missing::NoType`]; one of more than 16 bytes, which is left in memory
/// that the caller names, is [`Missing::Unsupported`].
pub fn abi_return(machine: Machine, shape: ParamShape) -> Argument {
    // The DWARF numbers are the same: rax and rdx are 0 and 1, as x0 and x1 are.
    let (first, second): (Register, Register) = match machine {
        Machine::X86_64 | Machine::Aarch64 => (0, 1),
    };
    let at = match shape.size {
        _ if shape.irregular => return Err(Missing::Unsupported),
        0 => return Err(Missing::NoType),
        1..=8 => Location::Register(first),
        9..=16 => Location::RegisterPair(first, second),
        _ => return Err(Missing::Unsupported),
    };
    Ok(Located::certain(shape.size, shape.signed, at))
}

struct Allocation {
    machine: Machine,
    /// How many argument registers are taken.
    next: usize,
    /// How many bytes of the stacked arguments are taken.
    stack: u32,
}

impl Allocation {
    fn place(&mut self, shape: &ParamShape) -> Result<Location, Missing> {
        // A scalar of 16 bytes is `__int128`, the only one that is aligned to 16.
        let wide = !shape.composite && shape.size > 8;
        match self.machine {
            Machine::X86_64 => {
                if shape.size <= 16
                    && let Some(location) = self.registers(&X86_64, shape.size)
                {
                    return Ok(location);
                }
                // The return address is below the first stacked argument.
                self.stacked(shape.size, wide, 8)
            }
            Machine::Aarch64 => {
                if shape.size > 16 {
                    // The caller makes a copy and passes its address.
                    return match self.registers(&AARCH64, 8) {
                        Some(Location::Register(register)) => Ok(Location::Memory(register, 0)),
                        _ => self.stacked(8, false, 0).and(Err(Missing::Unsupported)),
                    };
                }
                if wide {
                    self.next += self.next % 2;
                }
                if let Some(location) = self.registers(&AARCH64, shape.size) {
                    return Ok(location);
                }
                // Once an argument is on the stack, no later one is in a register.
                self.next = AARCH64.len();
                self.stacked(shape.size, wide, 0)
            }
        }
    }

    /// One or two of the argument registers, if there are as many left.
    fn registers(&mut self, registers: &[Register], size: u32) -> Option<Location> {
        let location = match (registers.get(self.next..)?, size) {
            ([first, ..], ..=8) => Location::Register(*first),
            ([first, second, ..], _) => Location::RegisterPair(*first, *second),
            _ => return None,
        };
        self.next += if size > 8 { 2 } else { 1 };
        Some(location)
    }

    /// Memory above the stack pointer.
    fn stacked(&mut self, size: u32, wide: bool, below: u32) -> Result<Location, Missing> {
        let start = if wide { self.stack.next_multiple_of(16) } else { self.stack };
        self.stack =
            size.checked_next_multiple_of(8).and_then(|size| start.checked_add(size)).ok_or(Missing::Unsupported)?;
        let offset = i32::try_from(start + below).map_err(|_| Missing::Unsupported)?;
        Ok(Location::Memory(self.machine.stack_pointer(), offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn scalar(size: u32) -> ParamShape {
        ParamShape::scalar(size, false)
    }

    const fn structure(size: u32) -> ParamShape {
        ParamShape { size, signed: false, composite: true, irregular: false }
    }

    fn places(machine: Machine, shapes: &[ParamShape]) -> Vec<String> {
        returning(machine, shapes, None)
    }

    fn returning(machine: Machine, shapes: &[ParamShape], result: Option<ParamShape>) -> Vec<String> {
        abi_arguments(machine, shapes, result)
            .iter()
            .map(|argument| match argument {
                Ok(located) => located.display(machine).to_string(),
                Err(missing) => missing.key().to_owned(),
            })
            .collect()
    }

    #[test]
    fn x86_64_registers_then_stack() {
        assert_eq!(
            places(Machine::X86_64, &[scalar(8); 8]),
            ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "*(rsp+8)", "*(rsp+16)"]
        );
    }

    #[test]
    fn x86_64_structures() {
        // A pair that does not fit goes to the stack as a whole; a later argument still takes the register.
        let shapes = [scalar(8), scalar(4), scalar(8), scalar(8), scalar(1), structure(16), scalar(8), structure(24)];
        assert_eq!(places(Machine::X86_64, &shapes), ["rdi", "rsi", "rdx", "rcx", "r8", "*(rsp+8)", "r9", "*(rsp+24)"]);
        assert_eq!(places(Machine::X86_64, &[structure(16), scalar(8), structure(12)]), ["rdi:rsi", "rdx", "rcx:r8"]);
        assert_eq!(places(Machine::X86_64, &[structure(0), scalar(8)]), ["no_type", "rdi"]);
        let mut shapes = vec![scalar(8); 7];
        shapes.push(scalar(16));
        assert_eq!(places(Machine::X86_64, &shapes).last().unwrap(), "*(rsp+24)");
    }

    #[test]
    fn a_result_in_memory_takes_the_first_register() {
        let (scalars, large) = ([scalar(8); 2], Some(structure(24)));
        assert_eq!(returning(Machine::X86_64, &scalars, large), ["rsi", "rdx"]);
        assert_eq!(returning(Machine::X86_64, &scalars, Some(structure(16))), ["rdi", "rsi"]);
        assert_eq!(returning(Machine::Aarch64, &scalars, large), ["x0", "x1"]);
    }

    #[test]
    fn what_comes_after_an_irregular_structure_is_not_known() {
        let irregular = ParamShape { irregular: true, ..structure(16) };
        let shapes = [scalar(8), irregular, scalar(8)];
        for machine in [Machine::X86_64, Machine::Aarch64] {
            assert_eq!(places(machine, &shapes)[1..], ["unsupported", "unsupported"]);
            assert_eq!(returning(machine, &[scalar(8)], Some(irregular)), ["unsupported"]);
        }
    }

    #[test]
    fn return_values() {
        let place = |machine: Machine, shape| match abi_return(machine, shape) {
            Ok(located) => located.display(machine).to_string(),
            Err(missing) => missing.key().to_owned(),
        };
        let shapes = [scalar(0), scalar(4), scalar(8), structure(12), scalar(16), structure(24)];
        let of = |machine: Machine| shapes.map(|shape| place(machine, shape));
        assert_eq!(of(Machine::X86_64), ["no_type", "rax", "rax", "rax:rdx", "rax:rdx", "unsupported"]);
        assert_eq!(of(Machine::Aarch64), ["no_type", "x0", "x0", "x0:x1", "x0:x1", "unsupported"]);
    }

    #[test]
    fn aarch64() {
        let mut shapes = vec![scalar(8), scalar(16), structure(24), structure(16), scalar(4), scalar(8)];
        assert_eq!(places(Machine::Aarch64, &shapes), ["x0", "x2:x3", "*(x4)", "x5:x6", "x7", "*(sp)"]);
        shapes.extend([structure(32), scalar(8)]);
        assert_eq!(places(Machine::Aarch64, &shapes)[6..], ["unsupported", "*(sp+16)"]);
        // After the first stacked argument the registers that are left stay unused.
        let mut shapes = vec![scalar(8); 7];
        shapes.extend([structure(16), scalar(8)]);
        assert_eq!(places(Machine::Aarch64, &shapes)[7..], ["*(sp)", "*(sp+16)"]);
    }
}
