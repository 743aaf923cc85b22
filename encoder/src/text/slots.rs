// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the instructions after an address do to a slot of the stack.

use super::{Effects, FunctionText, arm64};
use siteseer_sites::Machine;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::Register;
use std::ops::Range;

/// How many instructions are looked at.
const MOST: usize = 64;

/// What most instructions store at a time.
const WORD: i64 = 8;

/// Bytes at constant offsets from a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) base: Register,
    pub(crate) bytes: Range<i64>,
}

impl Slot {
    /// The memory that a location reads at constant offsets from registers.
    pub(crate) fn all_of(located: &Located) -> Vec<Slot> {
        let at = |base: Register, offset: i64, size: i64| Slot { base, bytes: offset..offset.saturating_add(size) };
        let read = |ops: &[Op]| match *ops {
            [Op::Register(base), Op::Constant(offset), Op::Add, Op::Load(size)] => {
                Some(at(base, offset as i64, i64::from(size)))
            }
            [Op::Register(base), Op::Load(size), ..] => Some(at(base, 0, i64::from(size))),
            _ => None,
        };
        match &located.at {
            // A structure is filled word by word.
            Location::Memory(base, offset) => (0..i64::from(located.size))
                .step_by(WORD as usize)
                .map(|word| at(*base, i64::from(*offset) + word, WORD.min(i64::from(located.size) - word)))
                .collect(),
            Location::Computed(computed) => {
                let starts = computed.slots.iter().flat_map(|ops| (0..ops.len()).map(move |start| &ops[start..]));
                starts.filter_map(|ops| read(&ops[..ops.len().min(4)])).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it is surely one of the stack: what other registers point to may be an object of the source's, which
    /// keeps its value until it gets a new one.
    pub(crate) fn is_on_stack(&self, machine: Machine) -> bool {
        match machine {
            // `rbp`, if it points to the frame, has what is local below it.
            Machine::X86_64 => self.base == machine.stack_pointer() || self.base == 6 && self.bytes.end <= 0,
            Machine::Aarch64 => self.base == machine.stack_pointer() || self.base == 29,
        }
    }

    /// Whether these bytes are some of the slot's.
    pub(super) fn overlaps(&self, base: Register, bytes: &Range<i64>) -> bool {
        base == self.base && bytes.start < self.bytes.end && self.bytes.start < bytes.end
    }

    /// What is done to the slot by who writes these bytes: whoever writes a part of it keeps the rest.
    pub(super) fn written(&self, bytes: &Range<i64>) -> Access {
        let is_whole = bytes.start <= self.bytes.start && self.bytes.end <= bytes.end;
        if is_whole { Access::Write } else { Access::Read }
    }
}

/// What an instruction does to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    None,
    /// It reads the slot or keeps some of it, or what it does is not known.
    Read,
    Write,
}

impl FunctionText<'_, '_> {
    /// Whether on each way from an address, the first instruction that has to do with a slot fills it. Then nothing can
    /// be in it yet that somebody wants. A way that ends, or comes to a call, before that fills nothing.
    pub(crate) fn fills_later(&self, address: u64, slot: &Slot) -> bool {
        let Some((_, from)) = self.index(address) else { return false };
        let mut effects = Effects::new(self.image.machine());
        let graph = self.graph();
        let mut search = graph.search(None);
        let (mut open, mut left, mut is_filled) = (vec![from], MOST, false);
        while let Some(at) = open.pop() {
            if !search.comes_to(at) {
                continue;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            let address = self.address_of(at);
            let Some(effect) = effects.at(self.image, address) else { return false };
            match self.slot_access(&mut effects, address, slot) {
                Access::Write => {
                    is_filled = true;
                    continue;
                }
                Access::Read => return false,
                Access::None => {}
            }
            let (targets, next) = (graph.targets(at), graph.next(at));
            // What is not straight and has no target is a call, a return, or leaves the function.
            let goes_on = if effect.straight { next.is_some() } else { !targets.is_empty() };
            if !goes_on || effect.writes.contains(slot.base) {
                return false;
            }
            open.extend(targets.iter().map(|&target| target as usize).chain(next));
        }
        is_filled
    }

    /// What an instruction does to a slot.
    pub(super) fn slot_access(&self, effects: &mut Effects, address: u64, slot: &Slot) -> Access {
        match effects {
            Effects::X86(effects) => effects.slot_access(self.image, address, slot),
            Effects::Arm64 => arm64::slot_access(self.image, address, slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};
    use siteseer_sites::location::Computed;

    #[test]
    fn x86_64() {
        // 0: mov %eax,12(%rsp); 4: mov 12(%rsp),%eax; 8: mov %eax,8(%rsp); 12: addl $1,12(%rsp); 17: call 22; 22: ret
        let code = [
            0x89, 0x44, 0x24, 12, 0x8b, 0x44, 0x24, 12, 0x89, 0x44, 0x24, 8, 0x83, 0x44, 0x24, 12, 1, 0xe8, 0, 0, 0, 0,
            0xc3,
        ];
        x86(&code, |text| {
            let slot = |bytes| Slot { base: 7, bytes };
            assert!(text.fills_later(TEXT, &slot(12..16)));
            assert!(text.fills_later(TEXT, &slot(15..16)));
            assert!(!text.fills_later(TEXT, &slot(8..16)), "one half first");
            assert!(text.fills_later(TEXT, &slot(8..12)), "after what is done to others");
            assert!(!text.fills_later(TEXT + 4, &slot(12..16)), "it is read first");
            assert!(!text.fills_later(TEXT + 12, &slot(12..16)), "it is read and written");
            assert!(!text.fills_later(TEXT, &slot(16..20)), "up to a call");
            assert!(!text.fills_later(TEXT, &Slot { base: 6, bytes: 12..16 }));
        });
    }

    #[test]
    fn each_way_fills_it() {
        // 0: test %eax,%eax; 2: je 10; 4: mov %eax,12(%rsp); 8: jmp 14; 10: mov %edx,12(%rsp); 14: mov 12(%rsp),%eax;
        // 18: ret
        let code =
            [0x85, 0xc0, 0x74, 6, 0x89, 0x44, 0x24, 12, 0xeb, 4, 0x89, 0x54, 0x24, 12, 0x8b, 0x44, 0x24, 12, 0xc3];
        let fills = |code: &[u8], bytes| x86(code, |text| text.fills_later(TEXT, &Slot { base: 7, bytes }));
        assert!(fills(&code, 12..16));
        assert!(!fills(&code, 16..20), "no way does");
        let mut other = code;
        other[10..14].fill(0x90);
        assert!(!fills(&other, 12..16), "one way reads it");
        other[10] = 0xc3;
        assert!(!fills(&other, 12..16), "one way returns");
        // 0: je 6; 2: mov %eax,12(%rsp); 6: nop, where the text ends.
        assert!(!fills(&[0x74, 4, 0x89, 0x44, 0x24, 12, 0x90], 12..16), "one way ends");
        // 2: jmp 0 in place of the branch.
        other[2..4].copy_from_slice(&[0xeb, 0xfc]);
        assert!(!fills(&other, 12..16), "the only way goes round");
    }

    #[test]
    fn what_a_location_reads() {
        let located = |at| Located { size: 8, signed: false, at, doubt: None };
        assert_eq!(Slot::all_of(&located(Location::Memory(7, 16))), [Slot { base: 7, bytes: 16..24 }]);
        let two = [Slot { base: 7, bytes: 16..24 }, Slot { base: 7, bytes: 24..28 }];
        assert_eq!(Slot::all_of(&Located { size: 12, ..located(Location::Memory(7, 16)) }), two);
        assert_eq!(Slot::all_of(&located(Location::Register(7))), []);
        let sum =
            [Op::Register(7), Op::Constant(-8i64 as u64), Op::Add, Op::Load(4), Op::Register(3), Op::Load(2), Op::Add];
        let computed = Location::Computed(Computed { slots: [Box::from(sum)].into() });
        let expected = [Slot { base: 7, bytes: -8..-4 }, Slot { base: 3, bytes: 0..2 }];
        assert_eq!(Slot::all_of(&located(computed)), expected);
    }

    #[test]
    fn aarch64() {
        // str w0, [sp, #28]; stp x0, x1, [sp, #32]; ldr w0, [sp, #28]; add sp, sp, #16; str w0, [sp, #12]; ret
        let code = [0xb900_1fe0, 0xa902_07e0, 0xb940_1fe0, 0x9100_43ff, 0xb900_0fe0, 0xd65f_03c0];
        arm64(&code, |text| {
            let slot = |bytes| Slot { base: 31, bytes };
            assert!(text.fills_later(TEXT, &slot(28..32)));
            assert!(text.fills_later(TEXT, &slot(40..48)), "the second of a pair");
            assert!(!text.fills_later(TEXT + 4, &slot(28..32)), "it is read first");
            assert!(!text.fills_later(TEXT, &slot(12..16)), "the stack pointer changes before");
        });
    }
}
