// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What control passes on every way to an instruction, and on every way on from one.

use super::{Acts, Effects, FunctionText};

impl FunctionText<'_, '_> {
    /// Whether control comes to an address only after one of some entries, and it is not one of them.
    pub(crate) fn is_only_after(&self, address: u64, entries: &[u64]) -> bool {
        let Some((_, to)) = self.index(address) else { return false };
        let entries = self.indices(entries);
        entries.binary_search(&to).is_err() && !self.is_reached(to, &entries)
    }

    /// Whether control goes from an instruction to one of others, whichever way it takes, and does not come back
    /// before.
    pub(crate) fn always_leads_to(&self, from: u64, to: &[u64]) -> bool {
        let Some((_, start)) = self.index(from).filter(|_| !self.has_unknown_targets()) else { return false };
        let graph = self.graph();
        let ends = self.indices(to);
        let mut effects = Effects::new(self.image.machine());
        let mut search = graph.search(Some(start));
        let mut is_first = true;
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if !std::mem::take(&mut is_first) {
                    if ends.binary_search(&index).is_ok() {
                        break;
                    }
                    if index == start {
                        return false;
                    }
                }
                if !search.comes_to(index) {
                    break;
                }
                let targets = graph.targets(index);
                search.leave(targets);
                at = graph.next(index);
                // A branch out of the function is a tail call, also if it is conditional.
                let acts = effects.acts(self.image, self.address_of(index), self.frame_pointer);
                let leaves = matches!(acts, Acts::Jumps(target) if self.index(target).is_none());
                if leaves || at.is_none() && targets.is_empty() {
                    return false;
                }
            }
        }
        true
    }

    /// The indices of some instructions, in order.
    fn indices(&self, addresses: &[u64]) -> Vec<usize> {
        let mut indices: Vec<usize> =
            addresses.iter().filter_map(|&at| self.index(at)).map(|(_, index)| index).collect();
        indices.sort_unstable();
        indices
    }
}

#[cfg(test)]
mod tests {
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;

    #[test]
    fn what_is_on_every_way() {
        // 0: inc %eax; 2: test %edi,%edi; 4: je 9; 6: dec %eax; 8: ret; 9: dec %edi; 11: ret
        x86(&[0xff, 0xc0, 0x85, 0xff, 0x74, 0x03, 0xff, 0xc8, 0xc3, 0xff, 0xcf, 0xc3], |text| {
            let only_after = |address, entries: &[u64]| {
                let entries: Vec<u64> = entries.iter().map(|entry| TEXT + entry).collect();
                text.is_only_after(TEXT + address, &entries)
            };
            assert!(only_after(6, &[2]) && only_after(9, &[2]) && only_after(9, &[6, 4]));
            assert!(!only_after(9, &[6]), "on the other way");
            assert!(!only_after(6, &[6]) && !only_after(2, &[4]));
            let leads = |from, to: &[u64]| {
                let to: Vec<u64> = to.iter().map(|address| TEXT + address).collect();
                text.always_leads_to(TEXT + from, &to)
            };
            assert!(leads(0, &[6, 9]) && leads(0, &[4]) && leads(6, &[8]));
            assert!(!leads(0, &[6]), "control may go the other way");
            assert!(!leads(11, &[6]) && !leads(0, &[0]));
        });
    }

    #[test]
    fn a_conditional_tail_call_is_a_way_out() {
        // 0: test %edi,%edi; 2: je 0x100; 8: dec %eax; 10: ret
        x86(&[0x85, 0xff, 0x0f, 0x84, 0xf8, 0, 0, 0, 0xff, 0xc8, 0xc3], |text| {
            assert!(!text.always_leads_to(TEXT, &[TEXT + 8]));
            assert!(text.always_leads_to(TEXT + 8, &[TEXT + 10]));
        });
    }

    #[test]
    fn a_loop_comes_back_first() {
        // 0: inc %eax; 2: dec %edi; 4: jne 0; 6: ret
        x86(&[0xff, 0xc0, 0xff, 0xcf, 0x75, 0xfa, 0xc3], |text| {
            assert!(!text.always_leads_to(TEXT, &[TEXT + 6]));
            assert!(text.always_leads_to(TEXT, &[TEXT + 4]));
            assert!(text.is_only_after(TEXT + 6, &[TEXT]));
        });
    }
}
