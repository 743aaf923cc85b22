// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Parameters that a body assigns to, as its machine code shows.
//!
//! Clang says where a variable is, whichever value it has: it says the same before and after an assignment. If the
//! assignment comes first, clang says only where the variable is after it. But each instruction belongs to the copy
//! that its line is in, and the caller's instructions compute what the caller passes. So if a parameter is in a
//! register that an instruction of the body itself has made, the body has assigned to it.
//!
//! A register is a value of the body's only if the body reads it. If it reads none of a parameter, or only its low
//! bytes, clang need not compute the rest, and still names a register that has something like it.

use crate::debug::loclist::ListEntry;
use crate::debug::slice::Slice;
use crate::text::{FunctionText, Makers};
use crate::unit::arguments::{Gathered, Given};
use gimli::{Encoding, Expression, Operation};
use siteseer_sites::Machine;
use siteseer_sites::abi::argument_registers;
use siteseer_sites::machine::Register;
use std::ops::Range;
use std::slice;

/// How many instructions are looked at for one parameter.
const MOST: usize = 512;

/// How many instructions before an entry are looked at.
const MOST_BEFORE: usize = 16;

/// The text of one copy of a function.
pub(crate) struct Body<'b, 'i, 'a> {
    pub(crate) text: &'b FunctionText<'i, 'a>,
    /// Its ranges.
    pub(crate) ranges: &'b [Range<u64>],
    /// Those of the copies in it.
    pub(crate) nested: &'b [Range<u64>],
}

impl Body<'_, '_, '_> {
    /// Whether an instruction is the body's own.
    pub(crate) fn owns(&self, address: u64) -> bool {
        let holds = |ranges: &[Range<u64>]| ranges.iter().any(|range| range.contains(&address));
        holds(self.ranges) && !holds(self.nested)
    }

    /// The parameters that the body assigns to, and whether it does so before it does anything that can be seen:
    /// `entry` is where it is entered. An assignment may come long before the list has the new value, if that is not
    /// used at once.
    pub(crate) fn assigned<'a>(
        &self,
        gathered: &Gathered<'a>,
        encoding: Encoding,
        entry: u64,
        mut found: impl FnMut(usize, bool),
    ) {
        let (mut makers, mut first_acts) = (None, None);
        let is_value = |register: &Register| *register != self.text.machine().stack_pointer();
        for (index, given) in gathered.given.iter().enumerate() {
            let made = match given {
                Given::Expression(expression) => registers(*expression, encoding)
                    .filter(is_value)
                    .filter_map(|register| {
                        let makers = makers.get_or_insert_with(|| self.text.makers());
                        self.made_within(makers, self.ranges, register)
                    })
                    .min(),
                Given::List(range) => (gathered.list(range).iter())
                    .flat_map(|part| registers(part.expression, encoding).map(move |register| (part, register)))
                    .filter(|(_, register)| is_value(register))
                    .filter_map(|(part, register)| {
                        let makers = makers.get_or_insert_with(|| self.text.makers());
                        let (begin, end) = (part.begin.address, part.end.address);
                        let is_later = begin != entry && is_register(part.expression, encoding);
                        self.made_before(makers, begin, register)
                            .or_else(|| self.made_within(makers, slice::from_ref(&(begin..end)), register))
                            .or_else(|| {
                                if !is_later {
                                    return None;
                                }
                                makers.made_before(register, begin, entry, |at| self.owns(at))
                            })
                    })
                    .min(),
                _ => None,
            };
            if let Some(made) = made {
                let acts = first_acts.get_or_insert_with(|| self.text.first_acts(entry));
                let makers = makers.get_or_insert_with(|| self.text.makers());
                let is_first = acts.iter().all(|&act| made < act);
                found(index, is_first && self.text.instructions(entry, made).all(|at| makers.goes_straight(at)));
            }
        }
    }

    /// Whether the location that the debug information gives for a parameter at an address cannot be what was passed,
    /// or was once something else:
    ///
    /// * A register, given by an expression that had an operation until the compiler found that the value was good
    ///   enough without it: if the body looks at a few bits of a value, the other bits are arbitrary.
    /// * A register that nothing has written on the way there, and that nothing is passed in.
    /// * A register that an instruction of the body itself has written last, in a straight line before the address.
    /// * A register that an instruction of the caller's writes while the body has begun and is not over. That
    ///   instruction was moved there from before the body.
    /// * A register from which the body never reads as much as `bytes`, the size of a number. A part of a pointer is
    ///   not enough for any body, so a register that has a pointer has all of it, and `bytes` is 0.
    pub(crate) fn is_stale(
        &self,
        gathered: &Gathered<'_>,
        index: usize,
        address: u64,
        bytes: u8,
        encoding: Encoding,
    ) -> bool {
        let (expression, end) = match &gathered.given[index] {
            Given::Expression(expression) => (*expression, address),
            Given::List(range) => {
                let Some(entry) = gathered.list(range).iter().find(|entry| entry.covers(address)) else { return false };
                (entry.expression, entry.end.address)
            }
            _ => return false,
        };
        let mut operations = Expression(expression).operations(encoding);
        let register = match operations.next() {
            Ok(Some(Operation::Register { register })) => register.0,
            Ok(Some(Operation::RegisterOffset { offset: 0, .. })) => return true,
            Ok(Some(
                Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. } | Operation::Address { .. },
            )) => {
                return !matches!(operations.next(), Ok(None | Some(Operation::StackValue)));
            }
            _ => return false,
        };
        let mut makers = self.text.makers();
        if self.made_on_the_way(&mut makers, address, register) {
            return true;
        }
        let is_passed = argument_registers(self.text.machine()).contains(&register);
        if !is_passed && !makers.has_written(register, address) {
            return true;
        }
        if !self.is_read(&mut makers, gathered, (index, address), bytes, encoding) {
            return true;
        }
        let goes_on = |at: u64| self.ranges.iter().any(|range| range.start > at && !range.is_empty());
        let is_beside = |at: u64| !self.ranges.iter().any(|range| range.contains(&at));
        // Clang schedules arm64's instructions once more when all registers are known, and does not move what it says
        // about them.
        let until = if self.text.machine() == Machine::Aarch64 { u64::MAX } else { end };
        for at in self.text.instructions(address, until).take(MOST) {
            // After the end of the location's range, up to what the body does first.
            if at >= end && (makers.acts(at) || !makers.goes_straight(at)) {
                return false;
            }
            if is_beside(at) && makers.writes(at, register) && goes_on(at) {
                return true;
            }
        }
        false
    }

    /// Whether an instruction of the copy, or of one in it, reads at least that much of a parameter where the debug
    /// information says that a register has it, before the register has another value; `address` is where the parameter
    /// is asked for. The caller's do not count: if a loop counts what it passes, its own instructions read the counter
    /// that the compiler made in place of the source's variable.
    fn is_read(
        &self,
        makers: &mut Makers<'_, '_, '_>,
        gathered: &Gathered<'_>,
        (index, address): (usize, u64),
        bytes: u8,
        encoding: Encoding,
    ) -> bool {
        let is_own = |at: &u64| self.ranges.iter().any(|range| range.contains(at));
        // How many bytes are read of a register in a range, before it has another value.
        let mut read = |range: &Range<u64>, register: Register| {
            let mut instructions = self.text.instructions(range.start, range.end).filter(is_own);
            let mut most = 0;
            for at in instructions.by_ref().take(MOST) {
                most = most.max(makers.read_bytes(at, register));
                if most == 8 || makers.writes(at, register) {
                    return most;
                }
            }
            if instructions.next().is_some() { u8::MAX } else { most }
        };
        match &gathered.given[index] {
            Given::Expression(expression) => registers(*expression, encoding)
                .any(|register| self.ranges.iter().any(|range| read(range, register) >= bytes)),
            Given::List(range) => {
                let mut of_entry = |entry: &ListEntry<'_>| {
                    let range = entry.begin.address..entry.end.address;
                    registers(entry.expression, encoding).map(|register| read(&range, register)).max().unwrap_or(0)
                };
                let list = gathered.list(range);
                // If the body reads a part of the register that has it first, another one may have the whole value.
                let first = list.iter().find(|entry| entry.covers(address)).map_or(0, &mut of_entry);
                first >= bytes || first == 0 && list.iter().any(|entry| of_entry(entry) >= bytes)
            }
            _ => false,
        }
    }

    /// Whether the last instruction that wrote a register in the straight line up to an address is the body's.
    fn made_on_the_way(&self, makers: &mut Makers<'_, '_, '_>, address: u64, register: Register) -> bool {
        let mut at = address;
        for _ in 0..MOST_BEFORE {
            if self.text.jumps_to(at).next().is_some() {
                return false;
            }
            let Some(before) = self.text.instruction_before(at) else { return false };
            if makers.writes(before, register) {
                return self.owns(before);
            }
            if !makers.goes_straight(before) {
                return false;
            }
            at = before;
        }
        false
    }

    /// The instruction that ends at an address, if it is the body's and makes the value in a register.
    fn made_before(&self, makers: &mut Makers<'_, '_, '_>, address: u64, register: Register) -> Option<u64> {
        let before = self.text.instruction_before(address)?;
        (self.owns(before) && makers.makes(before, register)).then_some(before)
    }

    /// The first instruction of the body that makes a value in a register, within ranges that go on after it.
    fn made_within(&self, makers: &mut Makers<'_, '_, '_>, ranges: &[Range<u64>], register: Register) -> Option<u64> {
        let instructions = ranges.iter().flat_map(|range| self.text.instructions(range.start, range.end).take(MOST));
        let mut instructions = instructions.peekable();
        while let Some(address) = instructions.next() {
            if instructions.peek().is_some() && self.owns(address) && makers.makes(address, register) {
                return Some(address);
            }
        }
        None
    }
}

/// Whether an expression is a register.
fn is_register(expression: Slice<'_>, encoding: Encoding) -> bool {
    let mut operations = Expression(expression).operations(encoding);
    matches!((operations.next(), operations.next()), (Ok(Some(Operation::Register { .. })), Ok(None)))
}

/// The registers that an expression takes.
pub(crate) fn registers(expression: Slice<'_>, encoding: Encoding) -> impl Iterator<Item = Register> {
    let mut operations = Expression(expression).operations(encoding);
    std::iter::from_fn(move || {
        loop {
            match operations.next() {
                Ok(Some(Operation::Register { register } | Operation::RegisterOffset { register, .. })) => {
                    return Some(register.0);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;

    const RDI: Register = 5;

    #[test]
    fn a_value_that_is_made_at_the_end_of_one_range_is_the_next_ones() {
        let code = [
            0xf7, 0xdf, // 0: neg %edi
            0x01, 0xf2, // 2: add %esi,%edx
            0x89, 0xf8, // 4: mov %edi,%eax
            0xc3, // 6: ret
        ];
        x86(&code, |text| {
            let made = |ranges: &[Range<u64>]| {
                let body = Body { text, ranges, nested: &[] };
                body.made_within(&mut text.makers(), ranges, RDI)
            };
            let (first, second) = (TEXT..TEXT + 2, TEXT + 4..TEXT + 6);
            assert_eq!(made(&[first.clone(), second]), Some(TEXT));
            assert_eq!(made(&[first]), None, "nothing of the body comes after it");
        });
    }
}
