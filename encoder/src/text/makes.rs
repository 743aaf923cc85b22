// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which instructions make a value, and which only put one somewhere else.

use super::{Acts, Effects, FunctionText, arm64, x86};
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;
use std::ops::ControlFlow;

/// What an instruction does to a register alone, in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InPlace {
    /// Adds a constant.
    Adds(i64),
    /// Inverts all bits.
    Inverts,
    /// Changes the sign.
    Negates,
}

impl InPlace {
    /// Whether the other step does the same to a register's low 32 bits. An instruction of 32 bits has no more.
    fn is_like(self, other: InPlace) -> bool {
        match (self, other) {
            (InPlace::Adds(one), InPlace::Adds(other)) => one as u32 == other as u32,
            _ => self == other,
        }
    }
}

/// Asks about single instructions of a function.
pub(crate) struct Makers<'t, 'i, 'a> {
    pub(super) text: &'t FunctionText<'i, 'a>,
    pub(super) effects: Effects,
}

impl<'i, 'a> FunctionText<'i, 'a> {
    /// Asks which instructions make values.
    pub(crate) fn makers(&self) -> Makers<'_, 'i, 'a> {
        Makers { text: self, effects: Effects::new(self.image.machine()) }
    }

    /// The machine that the instructions are for.
    pub(crate) fn machine(&self) -> Machine {
        self.image.machine()
    }

    /// What an instruction does to a register alone, if this is all that it does.
    fn in_place(&self, address: u64, register: Register) -> Option<InPlace> {
        match self.machine() {
            Machine::X86_64 => x86::in_place(self.image, address, register),
            Machine::Aarch64 => arm64::in_place(self.image, address, register),
        }
    }

    /// The addresses of the instructions in a range, in order.
    pub(crate) fn instructions(&self, from: u64, until: u64) -> impl Iterator<Item = u64> + '_ {
        let piece = self.pieces.partition_point(|piece| piece.start <= from).checked_sub(1);
        let of_piece = piece.map(|piece| {
            let (start, instructions) = (self.pieces[piece].start, self.pieces[piece].instructions.clone());
            let offsets = &self.offsets[instructions];
            let first = offsets.partition_point(|&offset| start + u64::from(offset) < from);
            offsets[first..].iter().map(move |&offset| start + u64::from(offset))
        });
        of_piece.into_iter().flatten().take_while(move |&address| address < until)
    }

    /// The instruction that ends at an address.
    pub(crate) fn instruction_before(&self, address: u64) -> Option<u64> {
        let piece = self.pieces.partition_point(|piece| piece.start < address).checked_sub(1)?;
        let Self { pieces, offsets, .. } = self;
        let start = pieces[piece].start;
        let offsets = &offsets[pieces[piece].instructions.clone()];
        let next = offsets.partition_point(|&offset| start + u64::from(offset) < address);
        let is_end = offsets.get(next).map_or(pieces[piece].end, |&offset| start + u64::from(offset)) == address;
        let offset = *offsets.get(next.checked_sub(1)?)?;
        is_end.then_some(start + u64::from(offset))
    }
}

impl Makers<'_, '_, '_> {
    /// Whether an instruction writes a register. Calls write those that they need not keep.
    pub(crate) fn writes(&mut self, address: u64, register: Register) -> bool {
        let is_kept = match self.text.machine() {
            Machine::X86_64 => matches!(register, 3 | 6 | 12..=15),
            Machine::Aarch64 => matches!(register, 19..=29),
        };
        match self.effects.at(self.text.image, address) {
            Some(effect) if effect.straight => effect.writes.contains(register),
            Some(effect) => effect.writes.contains(register) || !is_kept && !self.is_branch(address),
            None => !is_kept && !self.is_branch(address),
        }
    }

    /// Whether control goes on after an instruction, and only there.
    pub(crate) fn goes_straight(&mut self, address: u64) -> bool {
        self.effects.at(self.text.image, address).is_some_and(|effect| effect.straight)
    }

    /// Whether an instruction does something that can be seen.
    pub(crate) fn acts(&mut self, address: u64) -> bool {
        self.text.acts(&mut self.effects, address)
    }

    fn is_branch(&mut self, address: u64) -> bool {
        matches!(self.effects.acts(self.text.image, address, self.text.frame_pointer), Acts::Jumps(_))
    }

    /// Whether an instruction writes a register on some way from the function's entry to an address.
    pub(crate) fn has_written(&mut self, register: Register, to: u64) -> bool {
        let text = self.text;
        let mut visit = |address| {
            if self.writes(address, register) { ControlFlow::Break(true) } else { ControlFlow::Continue(()) }
        };
        text.has_unknown_targets() || text.any_before(to, &mut visit)
    }

    /// An instruction that is the last to write a register on some way from an entry to an address, and makes the value
    /// there. It counts if it is the body's, which `owns` tells.
    pub(crate) fn made_before(
        &mut self,
        register: Register,
        to: u64,
        entry: u64,
        owns: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let text = self.text;
        let mut made = None;
        let mut visit = |at| {
            if self.writes(at, register) {
                made = (owns(at) && self.makes(at, register)).then_some(at);
                ControlFlow::Break(made.is_some())
            } else if at == entry {
                ControlFlow::Break(false)
            } else {
                ControlFlow::Continue(())
            }
        };
        text.any_before(to, &mut visit);
        made
    }

    /// Whether the last instruction that writes a register in the straight line up to an address adds a constant to it:
    /// it is a counter, or a pointer that goes on.
    pub(crate) fn was_counted_on(&mut self, register: Register, address: u64) -> bool {
        let written = self.text.line_before(address).find(|&before| self.writes(before, register));
        written.is_some_and(|at| matches!(self.text.in_place(at, register), Some(InPlace::Adds(_))))
    }

    /// Whether the last instruction that writes a register on some way up to an address may be this one.
    pub(crate) fn may_be_changed_by(&mut self, register: Register, change: InPlace, address: u64) -> bool {
        let text = self.text;
        self.may_be_made_by(register, address, |_, at| {
            text.in_place(at, register).is_some_and(|one| one.is_like(change))
        })
    }

    /// Whether the last instruction that writes a register on some way up to an address may be one that `is_it`.
    pub(crate) fn may_be_made_by(
        &mut self,
        register: Register,
        address: u64,
        is_it: impl Fn(&mut Self, u64) -> bool,
    ) -> bool {
        let text = self.text;
        let mut visit = |before| match self.writes(before, register) {
            true => ControlFlow::Break(is_it(self, before)),
            false => ControlFlow::Continue(()),
        };
        text.any_before(address, &mut visit)
    }

    /// Whether an instruction leaves a value in a register that was nowhere before: not a copy of another register, not
    /// what had been put on the stack, not that value in another width, not a constant. What a call leaves in registers
    /// does not count.
    pub(crate) fn makes(&mut self, address: u64, register: Register) -> bool {
        let image = self.text.image;
        match &mut self.effects {
            Effects::X86(effects) => effects.makes(image, address, register),
            Effects::Arm64 => arm64::makes(image, address, register),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InPlace;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};

    #[test]
    fn x86_64() {
        // 0: mov %edi,%ebx; 2: inc %edi; 4: movslq %edi,%rdi; 7: mov 8(%rsp),%edi; 11: mov 8(%rax),%edi; 14: xor
        // %edi,%edi; 16: and $1,%edi; 19: lea 1(%rax),%edi; 22: call 27; 27: ret
        let code = [
            0x89, 0xfb, 0xff, 0xc7, 0x48, 0x63, 0xff, 0x8b, 0x7c, 0x24, 8, 0x8b, 0x78, 8, 0x31, 0xff, 0x83, 0xe7, 1,
            0x8d, 0x78, 1, 0xe8, 0, 0, 0, 0, 0xc3,
        ];
        x86(&code, |text| {
            let mut makers = text.makers();
            let all: Vec<u64> = text.instructions(TEXT, TEXT + 28).map(|at| at - TEXT).collect();
            assert_eq!(all, [0, 2, 4, 7, 11, 14, 16, 19, 22, 27]);
            let made: Vec<u64> = all.into_iter().filter(|at| makers.makes(TEXT + at, 5)).collect();
            assert_eq!(made, [2, 11, 19]);
            assert!(!makers.makes(TEXT, 3), "a copy");
            assert_eq!(text.instruction_before(TEXT + 7), Some(TEXT + 4));
            assert_eq!(text.instruction_before(TEXT + 28), Some(TEXT + 27));
            assert_eq!(text.instruction_before(TEXT + 8), None, "no instruction ends there");
            assert_eq!(text.instruction_before(TEXT), None);
        });
    }

    #[test]
    fn values_that_are_made_before_a_branch() {
        // 0: lea 1(%rdi),%eax; 3: jne 7; 5: mov %ecx,(%rsi); 7: mov %eax,(%rdx); 9: ret
        x86(&[0x8d, 0x47, 1, 0x75, 2, 0x89, 0x0e, 0x89, 0x02, 0xc3], |text| {
            let made =
                |register, entry| text.makers().made_before(register, TEXT + 7, TEXT + entry, |at| at < TEXT + 9);
            assert_eq!(made(0, 0), Some(TEXT));
            assert_eq!(made(0, 3), None, "before the entry");
            assert_eq!(made(1, 0), None, "nothing writes it");
            assert_eq!(text.makers().made_before(0, TEXT + 7, TEXT, |_| false), None, "the caller's");
        });
        // 0: mov %edi,%eax; 2: mov %eax,(%rdx); 4: ret
        x86(&[0x89, 0xf8, 0x89, 0x02, 0xc3], |text| {
            assert_eq!(text.makers().made_before(0, TEXT + 2, TEXT, |_| true), None, "a copy");
        });
    }

    #[test]
    fn counters() {
        // 0: inc %edi; 2: mov %edi,%eax; 4: sub $2,%eax; 7: mov (%rdi),%rdi; 10: lea -1(%rdi),%rdi; 14: lea
        // 1(%rdi,%rax),%rdi; 18: ret
        let code = [
            0xff, 0xc7, 0x89, 0xf8, 0x83, 0xe8, 2, 0x48, 0x8b, 0x3f, 0x48, 0x8d, 0x7f, 0xff, 0x48, 0x8d, 0x7c, 0x07, 1,
            0xc3,
        ];
        x86(&code, |text| {
            let mut makers = text.makers();
            let mut counted = |register, at: &[u64]| -> Vec<u64> {
                at.iter().copied().filter(|at| makers.was_counted_on(register, TEXT + at)).collect()
            };
            assert_eq!(counted(5, &[2, 4, 7, 10, 14, 19]), [2, 4, 7, 14], "not after a load, or another register");
            assert_eq!(counted(0, &[4, 7, 10]), [7, 10], "not after a copy");
            let mut may = |register, change| makers.may_be_changed_by(register, change, TEXT + 14);
            assert!(may(0, InPlace::Adds(-2)) && may(5, InPlace::Adds(-1)));
            assert!(!may(0, InPlace::Adds(2)), "another step");
            assert!(!may(5, InPlace::Adds(1)), "it is not the last");
        });
        // add x0, x0, #1; mov w1, w0; sub w1, w1, #2; add x0, x1, #1; ret
        arm64(&[0x9100_0400, 0x2a00_03e1, 0x5100_0821, 0x9100_0420, 0xd65f_03c0], |text| {
            let mut makers = text.makers();
            let mut counted = |register, at: &[u64]| -> Vec<u64> {
                at.iter().copied().filter(|at| makers.was_counted_on(register, TEXT + at)).collect()
            };
            assert_eq!(counted(0, &[4, 8, 12, 16]), [4, 8, 12]);
            assert_eq!(counted(1, &[8, 12, 16]), [12, 16]);
            let mut may = |change| makers.may_be_changed_by(1, change, TEXT + 12);
            assert!(may(InPlace::Adds(-2)) && !may(InPlace::Adds(2)));
        });
    }

    #[test]
    fn inversions() {
        // 0: not %rsi; 3: neg %edi; 5: not (%rsi); 7: ret
        x86(&[0x48, 0xf7, 0xd6, 0xf7, 0xdf, 0xf7, 0x16, 0xc3], |text| {
            let mut makers = text.makers();
            let mut may = |register, change| makers.may_be_changed_by(register, change, TEXT + 7);
            assert!(may(4, InPlace::Inverts) && may(5, InPlace::Negates));
            assert!(!may(4, InPlace::Negates) && !may(5, InPlace::Inverts) && !may(0, InPlace::Inverts));
            assert!(!makers.was_counted_on(4, TEXT + 3), "nothing is added");
        });
        // mvn x1, x1; neg w2, w2; mvn x3, x4; neg x5, x5, lsl #2; ret
        arm64(&[0xaa21_03e1, 0x4b02_03e2, 0xaa24_03e3, 0xcb05_0be5, 0xd65f_03c0], |text| {
            let mut makers = text.makers();
            let mut may = |register, change| makers.may_be_changed_by(register, change, TEXT + 16);
            assert!(may(1, InPlace::Inverts) && may(2, InPlace::Negates));
            assert!(!may(1, InPlace::Negates) && !may(2, InPlace::Inverts));
            assert!(!may(3, InPlace::Inverts) && !may(4, InPlace::Inverts), "another register");
            assert!(!may(5, InPlace::Negates), "not only the sign");
        });
    }

    #[test]
    fn aarch64() {
        // mov w19, w0; add w0, w0, #1; sxtw x0, w0; ldr w0, [sp, #8]; ldr w0, [x1, #8]; mov w0, #5; and w0, w0, #1;
        // lsl w0, w0, #3; ret
        let code = [
            0x2a00_03f3,
            0x1100_0400,
            0x9340_7c00,
            0xb940_0be0,
            0xb940_0820,
            0x5280_00a0,
            0x1200_0000,
            0x531d_7000,
            0xd65f_03c0,
        ];
        arm64(&code, |text| {
            let mut makers = text.makers();
            let made: Vec<u64> = (0..9).map(|nth| nth * 4).filter(|at| makers.makes(TEXT + at, 0)).collect();
            assert_eq!(made, [4, 16, 28]);
            assert!(!makers.makes(TEXT, 19), "a copy");
        });
    }
}
