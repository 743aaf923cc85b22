// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Registers that a function never writes: what is in one anywhere in the function was in it at the entry.

use super::{Effects, Flow, arm64, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;
use std::ops::Range;

/// Whether no instruction of some text, calls included, writes a register. The call to ftrace restores all of them.
pub(crate) fn is_kept(image: &Image<'_>, ranges: &[Range<u64>], register: Register) -> bool {
    let tables = image.tables();
    let mut effects = Effects::new(image.machine());
    ranges.iter().all(|range| {
        let Some(bytes) = image.bytes(range.clone()) else { return false };
        let mut kept = true;
        let mut visit = |offset: u32, flow: Flow| {
            let at = range.start + u64::from(offset);
            let is_ftrace = tables.ftrace.binary_search(&at).is_ok();
            let mut writes = || match (flow, effects.at(image, at)) {
                (Flow::Call(_) | Flow::Invalid, _) => true,
                (_, Some(effect)) if effect.straight => effect.writes.contains(register),
                // Branches, returns and traps: of those, only x86's can write a register, and say so.
                (Flow::Next | Flow::Nop, _) | (_, None) => true,
                (_, Some(effect)) => effect.writes.contains(register),
            };
            kept = !tables.in_alternative(at) && (is_ftrace || !writes());
            kept
        };
        match image.machine() {
            Machine::X86_64 => x86::decode(bytes, range.start, &mut visit),
            Machine::Aarch64 => arm64::decode(bytes, range.start, &mut visit),
        }
        kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::{TEXT, TestImage};

    fn kept(machine: Machine, code: &[u8], register: Register) -> bool {
        let mut test = TestImage::kernel(machine, code);
        test.function("f", TEXT, code.len() as u64);
        let bytes = test.build();
        let image = Image::parse(&bytes).unwrap();
        let range = TEXT..TEXT + code.len() as u64;
        is_kept(&image, std::slice::from_ref(&range), register)
    }

    #[test]
    fn x86_64() {
        // test %rdi,%rdi; je +3; mov %rdi,%rax; ret
        let code = [0x48, 0x85, 0xff, 0x74, 0x03, 0x48, 0x89, 0xf8, 0xc3];
        assert!(kept(Machine::X86_64, &code, 5) && kept(Machine::X86_64, &code, 4));
        assert!(!kept(Machine::X86_64, &code, 0));
        // mov $1,%dil; ret
        assert!(!kept(Machine::X86_64, &[0x40, 0xb7, 0x01, 0xc3], 5), "a part of it is written");
        // call +0; ret
        assert!(!kept(Machine::X86_64, &[0xe8, 0, 0, 0, 0, 0xc3], 3), "the callee may do anything with it");
        assert!(!kept(Machine::X86_64, &[0x06, 0xc3], 5), "it is not an instruction");
    }

    #[test]
    fn arm64() {
        let kept = |words: &[u32], register| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            kept(Machine::Aarch64, &code, register)
        };
        // cbz x0, +8; mov x1, x0; ret
        let code = [0xb400_0040, 0xaa00_03e1, 0xd65f_03c0];
        assert!(kept(&code, 0) && kept(&code, 2));
        assert!(!kept(&code, 1));
        // bl +4; ret
        assert!(!kept(&[0x9400_0001, 0xd65f_03c0], 19));
    }
}
