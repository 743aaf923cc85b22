// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Branches on whether a register is zero.

use super::{Edge, FunctionText, arm64, x86};
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;

/// A conditional branch on whether a register is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroBranch {
    /// The register, by its DWARF number.
    pub register: Register,
    /// How many bytes of it count.
    pub size: u8,
    /// Where control goes on if they are not zero.
    pub not_zero: u64,
}

impl FunctionText<'_, '_> {
    /// The branch on zero at an address, if it is one that control only comes to from the instruction before, and if
    /// where it goes on otherwise cannot be reached in any other way.
    pub fn zero_branch(&self, address: u64) -> Option<ZeroBranch> {
        let (piece, index) = self.index(address)?;
        let tables = self.image.tables();
        let is_replaced = |at: u64| tables.in_alternative(at) || tables.jump_label_at(at).is_some();
        if self.has_unknown_targets() || is_replaced(address) {
            return None;
        }
        let branch = match self.image.machine() {
            Machine::Aarch64 => arm64::zero_branch(self.image, address)?,
            Machine::X86_64 => {
                // The flags are those of the instruction before.
                let previous = self.fall_through_into(piece, index)?;
                let test = self.address(piece, previous);
                if !self.edges_to(address).is_empty() || is_replaced(test) {
                    return None;
                }
                x86::zero_branch(self.image, test, address)?
            }
        };
        self.is_only_from(branch.not_zero, address).then_some(branch)
    }

    /// Whether control comes to an instruction from one other alone.
    fn is_only_from(&self, address: u64, from: u64) -> bool {
        let Some((piece, index)) = self.index(address) else { return false };
        let falls = self.fall_through_into(piece, index).map(|previous| self.address(piece, previous));
        address != self.entry
            && falls.is_none_or(|previous| previous == from)
            && self.edges_to(address).iter().all(|&Edge { source, .. }| source == from)
    }
}

#[cfg(test)]
mod tests {
    use crate::elf::test_image::TEXT;
    use crate::text::FunctionText;
    use crate::text::tests::{arm64, x86};

    #[test]
    fn branches_on_zero() {
        let branch = |text: &FunctionText<'_, '_>, at: u64| {
            text.zero_branch(TEXT + at).map(|branch| (branch.register, branch.size, branch.not_zero - TEXT))
        };
        // 0: test %rsi,%rsi; 3: je 7; 5: nop; 6: ret; 7: ret
        let je = [0x48, 0x85, 0xf6, 0x74, 0x02, 0x90, 0xc3, 0xc3];
        x86(&je, |text| {
            assert_eq!(branch(text, 3), Some((4, 8, 5)));
            assert_eq!(branch(text, 0), None, "it is not a branch");
            assert_eq!(branch(text, 4), None, "it is not an instruction");
        });
        // 0: test %esi,%esi; 2: jne 6; 4: nop; 5: ret; 6: ret
        x86(&[0x85, 0xf6, 0x75, 0x02, 0x90, 0xc3, 0xc3], |text| assert_eq!(branch(text, 2), Some((4, 4, 6))));
        // The same, but 5 is a no-op: 6 is reached from it too.
        x86(&[0x85, 0xf6, 0x75, 0x02, 0x90, 0x90, 0xc3], |text| assert_eq!(branch(text, 2), None));
        // 0: test %rsi,%rdi; je
        x86(&[0x48, 0x85, 0xf7, 0x74, 0x02, 0x90, 0xc3, 0xc3], |text| assert_eq!(branch(text, 3), None));
        // 0: test %rsi,%rsi; 3: mov %rdi,%rsi; 6: je: the flags are not those of the instruction before.
        x86(&[0x48, 0x85, 0xf6, 0x48, 0x89, 0xfe, 0x74, 0x01, 0xc3, 0xc3], |text| assert_eq!(branch(text, 6), None));
        // 0: jmp 5; 2: test %rsi,%rsi; 5: je 8; 7: ret; 8: ret: the branch is reached from elsewhere.
        let around = [0xeb, 0x03, 0x48, 0x85, 0xf6, 0x74, 0x01, 0xc3, 0xc3];
        x86(&around, |text| assert_eq!(branch(text, 5), None));
        // 0: cbz w2, 8; 4: ret; 8: cbnz x2, 16; 12: ret; 16: ret
        arm64(&[0x3400_0042, 0xd65f_03c0, 0xb500_0042, 0xd65f_03c0, 0xd65f_03c0], |text| {
            assert_eq!(branch(text, 0), Some((2, 4, 4)));
            assert_eq!(branch(text, 8), Some((2, 8, 16)));
            assert_eq!(branch(text, 4), None);
        });
    }
}
