// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Slots of the stack that nothing has been put into yet.
//!
//! Debug information names a variable's slot before the variable is stored there, or although the store was found to be
//! dead, and removed or moved into a branch. If on some way from the function's entry to an address no instruction
//! stores to the slot, nothing of the function's may be in it.
//!
//! The search goes backwards, and follows the stack pointer. It has found such a way where the slot is not yet part of
//! the frame. It leaves a way as soon as something may have been stored there: by an instruction that names the slot,
//! by the caller, by an instruction that is not understood. Calls, and stores through other registers, can only reach
//! the frame where the function may have taken the address of something in it before.

use super::{Effects, FunctionText, Slot, arm64, x86};
use std::ops::Range;

/// How many instructions are looked at.
const MOST: usize = 1024;

/// What an instruction does to a slot of the stack, and to the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It leaves the slot alone. Before it, the slot was this much further from the stack pointer.
    Keeps(i64),
    /// It calls, or stores to where some register points.
    MayReach,
    /// It stores to the slot, or it is not known what it does.
    Reaches,
}

impl FunctionText<'_, '_> {
    /// Whether nothing may be in a slot yet when control comes to an address.
    pub(crate) fn may_be_unwritten(&self, address: u64, slot: &Slot) -> bool {
        let machine = self.image.machine();
        if slot.base != machine.stack_pointer() || self.has_unknown_targets() {
            return false;
        }
        let Some((_, from)) = self.index(address) else { return false };
        let graph = self.graph();
        let mut effects = Effects::new(machine);
        let after_address = self.after_address(&mut effects);
        let mut search = graph.search(None);
        let mut open: Vec<(usize, Range<i64>)> = vec![(from, slot.bytes.clone())];
        let mut left = MOST;
        while let Some((at, bytes)) = open.pop() {
            if !search.comes_to(at) {
                continue;
            }
            let sources = graph.sources(at);
            let previous = graph.previous(at);
            let is_begin = self.address_of(at) == self.entry || sources.is_empty() && previous.is_none();
            if left < sources.len() + 1 {
                return false;
            }
            if is_begin {
                continue;
            }
            left -= sources.len() + 1;
            for before in sources.iter().map(|&source| source as usize).chain(previous) {
                let slot = Slot { base: slot.base, bytes: bytes.clone() };
                let by = match self.step(&mut effects, self.address_of(before), &slot) {
                    Step::Reaches => continue,
                    Step::MayReach if after_address[before] => continue,
                    Step::MayReach => 0,
                    Step::Keeps(by) => by,
                };
                let (start, end) = (bytes.start.saturating_add(by), bytes.end.saturating_add(by));
                if end <= 0 {
                    return true;
                }
                open.push((before, start..end));
            }
        }
        false
    }

    pub(super) fn step(&self, effects: &mut Effects, address: u64, slot: &Slot) -> Step {
        match effects {
            Effects::X86(effects) => effects.frame_step(self.image, address, slot),
            Effects::Arm64 => arm64::frame_step(self.image, address, slot),
        }
    }

    /// Whether the function takes the address of something in its frame.
    pub(super) fn takes_address(&self, effects: &mut Effects) -> bool {
        self.after_address(effects).contains(&true)
    }

    /// For each instruction, whether it takes the address of something in the frame, or comes after one that does.
    fn after_address(&self, effects: &mut Effects) -> &[bool] {
        self.after_address.get_or_init(|| {
            let takes = |index: &usize| match effects {
                Effects::X86(_) => x86::takes_frame_address(self.image, self.address_of(*index)),
                Effects::Arm64 => arm64::takes_frame_address(self.image, self.address_of(*index)),
            };
            let graph = self.graph();
            let mut after = vec![false; self.offsets.len()];
            let mut open: Vec<usize> = (0..self.offsets.len()).filter(takes).collect();
            while let Some(at) = open.pop() {
                if !std::mem::replace(&mut after[at], true) {
                    open.extend(graph.targets(at).iter().map(|&target| target as usize).chain(graph.next(at)));
                }
            }
            after.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};

    #[test]
    fn x86_64() {
        // 0: push %rbx; 1: sub $32,%rsp; 5: test %edi,%edi; 7: je 14; 9: mov %rdi,8(%rsp); 14: call 19;
        // 19: mov %rsi,16(%rsp); 24: add $32,%rsp; 28: pop %rbx; 29: ret
        let code = [
            0x53, 0x48, 0x83, 0xec, 32, 0x85, 0xff, 0x74, 5, 0x48, 0x89, 0x7c, 0x24, 8, 0xe8, 0, 0, 0, 0, 0x48, 0x89,
            0x74, 0x24, 16, 0x48, 0x83, 0xc4, 32, 0x5b, 0xc3,
        ];
        let is_unwritten = |code: &[u8], at: u64, bytes: Range<i64>| {
            x86(code, |text| text.may_be_unwritten(TEXT + at, &Slot { base: 7, bytes }))
        };
        assert!(is_unwritten(&code, 19, 16..24), "the store comes after");
        assert!(!is_unwritten(&code, 24, 16..24));
        assert!(is_unwritten(&code, 9, 8..16));
        assert!(is_unwritten(&code, 14, 8..16), "it is filled on one of two ways");
        assert!(is_unwritten(&code, 14, 12..20), "a part of it");
        assert!(!is_unwritten(&code, 14, 32..40), "what was pushed");
        assert!(!is_unwritten(&code, 14, 48..56), "the caller's");
        assert!(is_unwritten(&code, 28, -8..0), "what is no longer part of the frame, as before");
        assert!(!is_unwritten(&code, 28, -16..-8), "it was filled when it was");
        // 5: lea 24(%rsp),%rax in place of the branch and its condition, and a no-op.
        let mut taken = code;
        taken[5..14].copy_from_slice(&[0x48, 0x8d, 0x44, 0x24, 24, 0x0f, 0x1f, 0x40, 0]);
        assert!(is_unwritten(&taken, 14, 16..24));
        assert!(!is_unwritten(&taken, 19, 16..24), "the call may store there");
        // 5: mov %rsp,%rcx; 8: mov %rdi,(%rax) in its place.
        taken[5..14].copy_from_slice(&[0x48, 0x89, 0xe1, 0x48, 0x89, 0x38, 0x0f, 0x1f, 0]);
        assert!(!is_unwritten(&taken, 14, 16..24), "the store may");
        assert!(is_unwritten(&taken, 8, 16..24));
        // The other way around.
        taken[5..11].copy_from_slice(&[0x48, 0x89, 0x38, 0x48, 0x89, 0xe1]);
        assert!(is_unwritten(&taken, 14, 16..24), "the store comes before");
    }

    #[test]
    fn aarch64() {
        // stp x29, x30, [sp, #-48]!; mov x29, sp; cbz x0, .+8; str x0, [sp, #24]; bl .+4; str x1, [sp, #32];
        // ldp x29, x30, [sp], #48; ret
        let code =
            [0xa9bd_7bfd, 0x9100_03fd, 0xb400_0040, 0xf900_0fe0, 0x9400_0001, 0xf900_13e1, 0xa8c3_7bfd, 0xd65f_03c0];
        let is_unwritten = |code: &[u32], nth: u64, bytes: Range<i64>| {
            arm64(code, |text| text.may_be_unwritten(TEXT + nth * 4, &Slot { base: 31, bytes }))
        };
        assert!(is_unwritten(&code, 5, 32..40), "the store comes after");
        assert!(!is_unwritten(&code, 6, 32..40));
        assert!(is_unwritten(&code, 3, 24..32));
        assert!(is_unwritten(&code, 4, 24..32), "it is filled on one of two ways");
        assert!(!is_unwritten(&code, 5, 8..16), "the frame record");
        assert!(!is_unwritten(&code, 5, 48..56), "the caller's");
        assert!(!is_unwritten(&code, 7, -16..-8), "it was filled when it was part of the frame");
        let with = |nth: usize, word: u32| {
            let mut changed = code;
            changed[nth] = word;
            changed
        };
        // add x2, sp, #40
        assert!(!is_unwritten(&with(2, 0x9100_a3e2), 5, 32..40), "the call may store there");
        assert!(is_unwritten(&with(2, 0x9100_a3e2), 4, 32..40));
        // str x0, [x29, #32], and a no-op in place of the branch over it.
        let mut by_frame = with(3, 0xf900_13a0);
        by_frame[2] = 0xd503_201f;
        assert!(!is_unwritten(&by_frame, 5, 32..40), "by the frame pointer");
        // sub sp, sp, #16: of a frame that grows.
        assert!(is_unwritten(&with(2, 0xd100_43ff), 5, 0..8));
        assert!(!is_unwritten(&with(2, 0xd100_43ff), 5, 16..24), "the frame record");
    }
}
