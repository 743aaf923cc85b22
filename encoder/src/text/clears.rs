// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loops that clear memory.
//!
//! GCC sets a variable on the stack to zero by a loop that the source does not have: constants are stored at an index
//! that is counted up to a constant. GCC 16 does this for most variables of a hundred bytes and more.

use super::{Edge, FunctionText, x86};
use siteseer_sites::Machine;
use std::ops::Range;

/// A loop that clears memory has a few stores.
const LONGEST_LOOP: u64 = 128;

impl FunctionText<'_, '_> {
    /// The loop that an instruction is in, if all that the loop does is to store constants in the function's frame.
    pub(crate) fn clearing_loop(&self, address: u64) -> Option<Range<u64>> {
        if self.image.machine() != Machine::X86_64 {
            return None;
        }
        let near = self.edges_between(address.saturating_sub(LONGEST_LOOP), address);
        let end = |edge: &Edge| edge.target.saturating_add(LONGEST_LOOP);
        let mut loops = near.iter().filter(|edge| (address..end(edge)).contains(&edge.source));
        loops.find_map(|edge| self.as_clearing(*edge))
    }

    /// The loop that an edge closes, if it clears.
    fn as_clearing(&self, Edge { source, target, .. }: Edge) -> Option<Range<u64>> {
        let inside = self.edges_between(target, source);
        let is_entered = inside.iter().any(|edge| edge.target != target);
        let is_closed_twice = inside.iter().filter(|edge| (target..=source).contains(&edge.source)).count() > 1;
        if is_entered || is_closed_twice {
            return None;
        }
        let tables = self.image.tables();
        let instructions = || self.instructions(target, source);
        if instructions().any(|at| tables.in_alternative(at)) {
            return None;
        }
        let end = x86::end_of_clearing(self.image, instructions(), source)?;
        Some(target..end)
    }
}

#[cfg(test)]
mod tests {
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;

    /// mov %eax,%edx; add $8,%eax; movq $0,0x30(%rsp,%rdx); cmp $0x60,%eax; jb to the first; ret
    const CLEARS: [u8; 20] =
        [0x89, 0xc2, 0x83, 0xc0, 0x08, 0x48, 0xc7, 0x44, 0x14, 0x30, 0, 0, 0, 0, 0x83, 0xf8, 0x60, 0x72, 0xed, 0xc3];

    #[test]
    fn a_loop_that_stores_constants_in_the_frame() {
        x86(&CLEARS, |text| {
            assert_eq!(text.clearing_loop(TEXT), Some(TEXT..TEXT + 19));
            assert_eq!(text.clearing_loop(TEXT + 14), Some(TEXT..TEXT + 19), "from inside");
            assert_eq!(text.clearing_loop(TEXT + 19), None, "after it");
        });
    }

    #[test]
    fn other_loops() {
        let is_clearing = |changes: &[(usize, u8)]| {
            let mut code = CLEARS;
            for &(at, byte) in changes {
                code[at] = byte;
            }
            x86(&code, |text| text.clearing_loop(TEXT).is_some())
        };
        assert!(is_clearing(&[]));
        assert!(!is_clearing(&[(8, 0x13)]), "what a register points to: 0x30(%rbx,%rdx)");
        assert!(!is_clearing(&[(6, 0x8b)]), "not code as before");
        assert!(!is_clearing(&[(14, 0x39), (15, 0xc8), (16, 0x90)]), "counted up to a variable: cmp %ecx,%eax; nop");
        assert!(!is_clearing(&[(18, 0xef)]), "control comes in after the first instruction");
    }
}
