// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How control leaves a body: what a probe for the return of an inlined copy would have to know.
//!
//! A copy has no return instruction. Control leaves its ranges, and that may be at several places. They are known if
//! no jump in the body may go anywhere, nothing in it is a tail call, and control that has left does not come back
//! except through an entry: compilers mix the instructions of a body with others, and control that leaves the ranges
//! may not have left the body.

use super::{Acts, Effects, FunctionText};
use crate::text::call_target;
use std::ops::Range;

/// One way out of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Where a probe would be hit each time that control goes this way, and at no other time; `None` if there is no
    /// such place.
    pub(crate) probe: Option<u64>,
}

impl FunctionText<'_, '_> {
    /// All ways out of a body with some entries; `None` if they are not known.
    pub(crate) fn exits(&self, entries: &[u64], body: &[Range<u64>]) -> Option<Vec<Exit>> {
        let holds = |address: u64| body.iter().any(|range| range.contains(&address));
        if body.iter().all(Range::is_empty) || self.has_unknown_targets() {
            return None;
        }
        let graph = self.graph();
        let mut effects = Effects::new(self.image.machine());
        let own: Vec<u64> = body.iter().flat_map(|range| self.instructions(range.start, range.end)).collect();
        let (mut exits, mut outside) = (Vec::new(), Vec::new());
        for &address in &own {
            let (_, index) = self.index(address)?;
            let next = graph.next(index);
            let targets = graph.targets(index).iter().map(|&target| target as usize);
            let after: Vec<u64> = targets.chain(next).map(|index| self.address_of(index)).collect();
            if after.is_empty() {
                if self.returns(&mut effects, address)? {
                    exits.push(Exit { probe: Some(address) });
                }
                continue;
            }
            let leaves = after.iter().copied().filter(|&address| !holds(address));
            for target in leaves {
                outside.push(target);
                let (_, there) = self.index(target)?;
                let sources = graph.sources(there).iter().map(|&source| source as usize).chain(graph.previous(there));
                let is_own = sources.map(|source| self.address_of(source)).all(holds) && target != self.entry;
                // The branch itself does nothing else.
                let is_jump = next.is_none() && after.iter().all(|&address| !holds(address));
                exits.push(Exit { probe: if is_own { Some(target) } else { is_jump.then_some(address) } });
            }
        }
        let mut again = own;
        let outside_entries = outside.iter().any(|target| entries.contains(target));
        self.keep_reached(&outside, entries, &mut again);
        (again.is_empty() && !outside_entries).then_some(exits)
    }

    /// Whether the last instruction of a way returns from the function. It does not if nothing comes after it: a trap,
    /// or a call that never returns. `None` if it jumps to another function, or if that is not known.
    fn returns(&self, effects: &mut Effects, address: u64) -> Option<bool> {
        match effects.acts(self.image, address, self.frame_pointer) {
            Acts::No => Some(true),
            Acts::Jumps(target) => self.image.is_named(target, "__x86_return_thunk").then_some(true),
            Acts::Yes => {
                let (piece, index) = self.index(address)?;
                let last = self.pieces[piece].instructions.end - 1;
                let next = if index < last { self.address(piece, index + 1) } else { self.pieces[piece].end };
                let is_call = call_target(self.image, next).is_some();
                let is_trap = self.image.tables().bug_at(address).is_some();
                (is_call || is_trap).then_some(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;

    fn exits(code: &[u8], entry: u64, body: &[(u64, u64)]) -> Option<Vec<Option<u64>>> {
        x86(code, |text| {
            let body: Vec<Range<u64>> = body.iter().map(|&(start, end)| TEXT + start..TEXT + end).collect();
            let exits = text.exits(&[TEXT + entry], &body)?;
            Some(exits.iter().map(|exit| exit.probe.map(|probe| probe - TEXT)).collect())
        })
    }

    #[test]
    fn a_way_out_has_a_place_that_no_other_way_leads_to() {
        // 0: test %edi,%edi; 2: je 6; 4: mov %edi,%eax; 6: inc %eax; 8: ret
        let code = [0x85, 0xff, 0x74, 0x02, 0x89, 0xf8, 0xff, 0xc0, 0xc3];
        assert_eq!(exits(&code, 0, &[(0, 6)]), Some(vec![Some(6), Some(6)]), "both ways are the body's");
        assert_eq!(exits(&code, 4, &[(4, 6)]), Some(vec![None]), "the branch leads there, too");
        assert_eq!(exits(&code, 4, &[(4, 9)]), Some(vec![Some(8)]), "it returns");
        // 0: jmp 4; 2: jmp 4; 4: ret
        assert_eq!(exits(&[0xeb, 0x02, 0xeb, 0x00, 0xc3], 0, &[(0, 2)]), Some(vec![Some(0)]), "the jump itself");
    }

    #[test]
    fn what_may_not_be_a_way_out_makes_all_unknown() {
        // 0: test %edi,%edi; 2: inc %eax; 4: dec %edi; 6: ret
        let code = [0x85, 0xff, 0xff, 0xc0, 0xff, 0xcf, 0xc3];
        assert_eq!(exits(&code, 0, &[(0, 2), (4, 6)]), None, "the body goes on after another's instruction");
        assert_eq!(exits(&code, 0, &[(0, 6)]), Some(vec![Some(6)]));
        assert_eq!(exits(&code, 0, &[]), None);
        // jmp out of the function: a tail call.
        assert_eq!(exits(&[0x85, 0xff, 0xe9, 0, 1, 0, 0], 0, &[(0, 7)]), None);
        // jmp *%rax may go anywhere.
        assert_eq!(exits(&[0x85, 0xff, 0xff, 0xe0, 0xc3], 0, &[(0, 2)]), None);
    }
}
