// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that go on in another function at once.

use super::patch_site::past_tracer;
use super::{Acts, Effects, Flow, arm64, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;

/// Longer than any instruction.
const LONGEST: u64 = 16;

/// How many instructions GCC's wrapper may have before it jumps: it may extend arguments, and make a frame and take it
/// down again.
const BEFORE_JUMP: usize = 8;

/// Where the function at an address goes on before it has done anything that can be seen, if that is by a direct jump
/// out of it.
pub(crate) fn jumps_at_once(image: &Image<'_>, entry: u64) -> Option<u64> {
    let mut at = past_tracer(image, entry);
    let mut effects = Effects::new(image.machine());
    for _ in 0..BEFORE_JUMP {
        match effects.at(image, at) {
            Some(effect) if effect.straight && matches!(effects.acts(image, at, None), Acts::No) => at = effect.next,
            _ => break,
        }
    }
    let bytes = image.bytes(at..at.saturating_add(LONGEST).min(image.section_end(at)))?;
    let mut target = None;
    let mut visit = |_: u32, flow: Flow| {
        if let Flow::Jump(to) = flow {
            target = Some(to);
        }
        false
    };
    match image.machine() {
        Machine::X86_64 => x86::decode(bytes, at, &mut visit),
        Machine::Aarch64 => arm64::decode(bytes, at, &mut visit),
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::{TEXT, TestImage};

    #[test]
    fn a_jump_after_a_landing_pad() {
        // endbr64; jmp +3 | endbr64; ret
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 3, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xf3, 0x0f, 0x1e, 0xfa, 0xc3];
        let mut test = TestImage::kernel(Machine::X86_64, &code);
        test.function("thunk", TEXT, 9);
        test.function("other", TEXT + 12, 5);
        let bytes = test.build();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(jumps_at_once(&image, TEXT), Some(TEXT + 12));
        assert_eq!(jumps_at_once(&image, TEXT + 12), None);
    }

    #[test]
    fn a_jump_after_what_cannot_be_seen() {
        // sub $16,%rsp; mov %esi,%esi; add $16,%rsp; jmp +0; mov %eax,(%rdi); jmp -5
        let code = [
            0x48, 0x83, 0xec, 0x10, 0x89, 0xf6, 0x48, 0x83, 0xc4, 0x10, 0xe9, 0, 0, 0, 0, 0x89, 0x07, 0xe9, 0xfb, 0xff,
            0xff, 0xff,
        ];
        let bytes = TestImage::kernel(Machine::X86_64, &code).build();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(jumps_at_once(&image, TEXT), Some(TEXT + 15));
        assert_eq!(jumps_at_once(&image, TEXT + 15), None, "it stores");
        // call __fentry__; push %rax; pop %rdx; jmp +0; ret
        let traced = [0xe8, 7, 0, 0, 0, 0x50, 0x5a, 0xe9, 0, 0, 0, 0, 0xc3];
        let mut test = TestImage::kernel(Machine::X86_64, &traced);
        test.function("__fentry__", TEXT + 12, 1);
        let bytes = test.build();
        assert_eq!(jumps_at_once(&Image::parse(&bytes).unwrap(), TEXT), Some(TEXT + 12), "a frame, and ftrace's call");
    }
}
