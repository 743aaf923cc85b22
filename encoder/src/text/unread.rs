// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Slots of the stack that nothing reads any more.
//!
//! A variable that lived on the stack may have moved to a register for good. Debug information goes on to name its
//! slot, which then misses what the variable gets later: nothing would read it there.
//!
//! The search goes forwards from an address, and follows the stack pointer. It ends where an instruction reads the
//! slot, or may. Calls, and loads through other registers, can only reach the frame if the function takes the address
//! of something in it.

use super::slots::Access;
use super::unwritten::Step;
use super::{Effects, FunctionText, Slot};

/// How many instructions are looked at.
const MOST: usize = 1024;

impl FunctionText<'_, '_> {
    /// Whether an instruction at an address, or one that control comes to from there, may read a slot before it is
    /// filled again.
    pub(crate) fn may_be_read(&self, address: u64, slot: &Slot) -> bool {
        let machine = self.image.machine();
        if slot.base != machine.stack_pointer() || self.has_unknown_targets() {
            return true;
        }
        let Some((_, from)) = self.index(address) else { return true };
        let mut effects = Effects::new(machine);
        if self.takes_address(&mut effects) {
            return true;
        }
        let graph = self.graph();
        let mut search = graph.search(None);
        let mut open = vec![(from, slot.clone())];
        let mut left = MOST;
        while let Some((at, mut slot)) = open.pop() {
            if !search.comes_to(at) {
                continue;
            }
            left -= 1;
            if left == 0 {
                return true;
            }
            let address = self.address_of(at);
            match self.slot_access(&mut effects, address, &slot) {
                Access::Read => return true,
                Access::Write => continue,
                Access::None => {}
            }
            match self.step(&mut effects, address, &slot) {
                Step::Keeps(by) => {
                    slot.bytes = slot.bytes.start.saturating_sub(by)..slot.bytes.end.saturating_sub(by);
                }
                Step::MayReach => {}
                Step::Reaches => return true,
            }
            // It is no longer part of the frame.
            if slot.bytes.end <= 0 {
                continue;
            }
            let targets = graph.targets(at).iter().map(|&target| target as usize);
            open.extend(targets.chain(graph.next(at)).map(|next| (next, slot.clone())));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};
    use std::ops::Range;

    #[test]
    fn x86_64() {
        // 0: sub $24,%rsp; 4: mov %rdi,8(%rsp); 9: mov 8(%rsp),%eax; 13: test %esi,%esi; 15: je 19; 17: add %eax,%eax;
        // 19: mov %rax,16(%rsp); 24: add $24,%rsp; 28: ret
        let code = [
            0x48, 0x83, 0xec, 24, 0x48, 0x89, 0x7c, 0x24, 8, 0x8b, 0x44, 0x24, 8, 0x85, 0xf6, 0x74, 2, 0x01, 0xc0,
            0x48, 0x89, 0x44, 0x24, 16, 0x48, 0x83, 0xc4, 24, 0xc3,
        ];
        let is_read = |code: &[u8], at: u64, bytes: Range<i64>| {
            x86(code, |text| text.may_be_read(TEXT + at, &Slot { base: 7, bytes }))
        };
        assert!(is_read(&code, 9, 8..12));
        assert!(!is_read(&code, 4, 8..16), "it is filled first");
        assert!(!is_read(&code, 13, 8..12) && !is_read(&code, 19, 8..12), "it was read before");
        assert!(!is_read(&code, 13, 0..8) && is_read(&code, 13, 24..32), "the last is where it returns to");
        // 4: lea 8(%rsp),%rax in place of the store.
        let mut taken = code;
        taken[5..9].copy_from_slice(&[0x8d, 0x44, 0x24, 8]);
        assert!(is_read(&taken, 13, 8..12), "somebody may have its address");
        // 15: push %rax in place of the branch, after which the last store is to what was 8(%rsp).
        let mut pushed = code;
        pushed[15..17].copy_from_slice(&[0x50, 0x90]);
        assert!(!is_read(&pushed, 13, 8..16), "it is filled");
    }

    #[test]
    fn aarch64() {
        // 0: sub sp,sp,#32; 4: str x0,[sp,#8]; 8: ldr w0,[sp,#8]; 12: add w0,w0,w0; 16: add sp,sp,#32; 20: ret
        let code = [0xd100_83ff, 0xf900_07e0, 0xb940_0be0, 0x0b00_0000, 0x9100_83ff, 0xd65f_03c0];
        let is_read =
            |at: u64, bytes: Range<i64>| arm64(&code, |text| text.may_be_read(TEXT + at, &Slot { base: 31, bytes }));
        assert!(is_read(8, 8..12) && !is_read(12, 8..12) && !is_read(4, 8..16));
        assert!(!is_read(8, 16..24));
    }
}
