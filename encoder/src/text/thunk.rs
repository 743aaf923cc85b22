// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions that have the text of another function: by a jump at once, or by the same instructions.

use super::patch_site::past_tracer;
use super::{Acts, Effects, Flow, arm64, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;
use std::ops::Range;

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

/// Whether the code of two functions is alike: instructions of the same lengths that pass control on in the same ways,
/// and go on in the same functions. Where they lead inside of it, and so how long jumps are, depends on where it is.
pub(crate) fn are_alike(image: &Image<'_>, one: Range<u64>, other: Range<u64>) -> bool {
    let starts = [one.start, other.start];
    let shape = |range: Range<u64>| {
        let bytes = image.bytes(range.clone())?;
        let mut ends: Vec<(u32, Option<Flow>)> = Vec::new();
        let mut visit = |offset: u32, flow: Flow| {
            ends.push((offset, Some(flow)));
            true
        };
        match image.machine() {
            Machine::X86_64 => x86::decode(bytes, range.start, &mut visit),
            Machine::Aarch64 => arm64::decode(bytes, range.start, &mut visit),
        }
        ends.push((bytes.len() as u32, None));
        let length = |pair: &[(u32, Option<Flow>)]| match pair[0].1 {
            Some(Flow::Jump(_) | Flow::Conditional(_)) => 0,
            _ => pair[1].0 - pair[0].0,
        };
        // A function that calls itself still does where it has a copy.
        let is_elsewhere = |target: &u64| !range.contains(target) && !starts.contains(target);
        // Each has a cold part of its own, which is jumped into.
        let is_function = |target: &u64| image.symbol_at(*target).iter().any(|symbol| !symbol.name.contains(".cold"));
        let way = |flow: Option<Flow>| {
            let kind = flow.map(|flow| std::mem::discriminant(&flow));
            let target = match flow {
                Some(Flow::Call(target)) => Some(target),
                Some(Flow::Jump(target) | Flow::Conditional(target)) => Some(target).filter(is_function),
                _ => None,
            };
            (kind, target.filter(is_elsewhere))
        };
        Some(ends.windows(2).map(|pair| (length(pair), way(pair[0].1))).collect::<Vec<_>>())
    };
    !one.is_empty() && shape(one).is_some_and(|one| shape(other) == Some(one))
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

    #[test]
    fn the_same_code_elsewhere() {
        // Twice: call +11 or so; ret. Then: nop (5 bytes); ret. Then: call -23; ret.
        let code = [
            0xe8, 11, 0, 0, 0, 0xc3, 0xe8, 5, 0, 0, 0, 0xc3, 0x0f, 0x1f, 0x44, 0, 0, 0xc3, 0xe8, 0xe9, 0xff, 0xff,
            0xff, 0xc3,
        ];
        let bytes = TestImage::kernel(Machine::X86_64, &code).build();
        let image = Image::parse(&bytes).unwrap();
        assert!(are_alike(&image, TEXT..TEXT + 6, TEXT + 6..TEXT + 12));
        assert!(!are_alike(&image, TEXT..TEXT + 6, TEXT + 12..TEXT + 18), "a no-op is not a call");
        assert!(!are_alike(&image, TEXT + 6..TEXT + 12, TEXT + 18..TEXT + 24), "it calls something else");
        assert!(are_alike(&image, TEXT..TEXT + 18, TEXT..TEXT + 18));
        assert!(!are_alike(&image, TEXT..TEXT, TEXT + 6..TEXT + 6));
    }
    #[test]
    fn cold_parts_are_not_where_code_differs() {
        // Two functions: jne +4; ret; and jne +2; ret. They jump to 6 and to 7, where there is a return each.
        let code = [0x75, 4, 0xc3, 0x75, 2, 0xc3, 0xc3, 0xc3];
        let is_alike = |names: [&str; 2]| {
            let mut test = TestImage::kernel(Machine::X86_64, &code);
            test.function(names[0], TEXT + 6, 1);
            test.function(names[1], TEXT + 7, 1);
            let bytes = test.build();
            are_alike(&Image::parse(&bytes).unwrap(), TEXT..TEXT + 3, TEXT + 3..TEXT + 6)
        };
        assert!(is_alike(["f.cold", "g.cold"]));
        assert!(!is_alike(["f", "g"]), "each ends in another function");
    }
}
