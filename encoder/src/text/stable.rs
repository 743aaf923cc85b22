// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The bytes at a site that the running kernel must have as the image has them.

use crate::elf::changes::Changes;
use crate::elf::image::Image;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rayon::prelude::*;
use siteseer_sites::{CodeSum, Machine, SiteSet};
use std::ops::Range;

/// Numbers this far from the image may be addresses of something in it: `table - 8`.
const NEAR: u64 = 16 << 20;

/// `paciasp` and `autiasp`, which the kernel may replace by pushing to a shadow call stack
/// (arch/arm64/kernel/pi/patch-scs.c).
const PAC: [u32; 2] = [0xd503_233f, 0xd503_23bf];

/// Which of the bytes from a site on are the same in the running kernel.
type Stable = [bool; CodeSum::WINDOW];

/// The sums of the code at the sites of a set.
pub(crate) fn sums(image: &Image<'_>, set: &SiteSet) -> Vec<CodeSum> {
    let changes = Changes::find(image);
    let sum = |address| sum(image, &changes, address).unwrap_or(CodeSum::NONE);
    set.sites.par_iter().with_min_len(1 << 12).map(|site| sum(site.address)).collect()
}

fn sum(image: &Image<'_>, changes: &Changes, address: u64) -> Option<CodeSum> {
    let end = address.checked_add(CodeSum::WINDOW as u64)?.min(image.section_end(address));
    let bytes = image.bytes(address..end)?;
    let mut stable: Stable = [false; CodeSum::WINDOW];
    stable[..bytes.len()].fill(true);
    match image.machine() {
        Machine::X86_64 => {
            let extent = image.extent();
            let near = extent.start.saturating_sub(NEAR)..extent.end.saturating_add(NEAR);
            exclude_addresses(bytes, address, &near, &mut stable);
        }
        Machine::Aarch64 => {
            for (word, stable) in bytes.as_chunks::<4>().0.iter().zip(stable.as_chunks_mut::<4>().0) {
                stable.fill(!PAC.contains(&u32::from_le_bytes(*word)));
            }
        }
    }
    for range in changes.within(address, end) {
        stable[(range.start - address) as usize..(range.end - address) as usize].fill(false);
    }
    Some(CodeSum::of(bytes, longest(&stable)))
}

/// The longest row of bytes that can be summed; the first of several.
fn longest(stable: &Stable) -> Range<usize> {
    let from = |start: usize| {
        let len = stable[start..].iter().take(CodeSum::MOST).take_while(|is_stable| **is_stable).count();
        start..start + len
    };
    (0..=CodeSum::FARTHEST).rev().map(from).max_by_key(ExactSizeIterator::len).unwrap_or(0..0)
}

/// Whether an instruction's immediate may be an address, or the distance of one from a constant, as in `__pa_symbol()`.
fn is_relocated(instruction: &Instruction, image: &Range<u64>) -> bool {
    (0..instruction.op_count()).any(|operand| {
        let value = || instruction.immediate(operand);
        match instruction.op_kind(operand) {
            OpKind::Immediate64 => true,
            // Compilers have a shorter move for a number that is not negative, if they know it.
            OpKind::Immediate32to64 => {
                let is_move = instruction.mnemonic() == Mnemonic::Mov && instruction.op0_kind() == OpKind::Register;
                image.contains(&value()) || is_move && value() >> 63 == 0
            }
            // The low half of an address.
            OpKind::Immediate32 => image.contains(&(i64::from(value() as u32 as i32) as u64)),
            _ => false,
        }
    })
}

/// Excludes absolute addresses, and those of per-CPU variables: they change when the kernel is relocated
/// (arch/x86/tools/relocs.c). Also excludes all from the first bytes on that are not an instruction.
fn exclude_addresses(bytes: &[u8], address: u64, image: &Range<u64>, stable: &mut Stable) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            // It may only be cut off.
            return stable[start..].fill(false);
        }
        let fields = decoder.get_constant_offsets(&instruction);
        let is_per_cpu = instruction.segment_prefix() == Register::GS;
        let is_absolute =
            !instruction.is_ip_rel_memory_operand() && image.contains(&instruction.memory_displacement64());
        if fields.displacement_size() >= 4 && (is_per_cpu || is_absolute) {
            let field = start + fields.displacement_offset();
            stable[field..field + fields.displacement_size()].fill(false);
        }
        if is_relocated(&instruction, image) {
            let field = start + fields.immediate_offset();
            stable[field..field + fields.immediate_size()].fill(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_8400_0000;

    /// What of two moves between registers, and more bytes, is not stable.
    fn excluded(more: &[u8]) -> Vec<usize> {
        // mov %rdi,%rax; mov %rdx,%rcx
        let bytes = [&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xd1], more].concat();
        let mut stable = [true; CodeSum::WINDOW];
        exclude_addresses(&bytes, 0xffff_ffff_8100_0000, &IMAGE, &mut stable);
        (0..bytes.len()).filter(|&nth| !stable[nth]).collect()
    }

    #[test]
    fn addresses_are_not_summed() {
        assert_eq!(excluded(&[]), []);
        // mov $0xffffffff81234567,%rdi
        assert_eq!(excluded(&[0x48, 0xc7, 0xc7, 0x67, 0x45, 0x23, 0x81]), [9, 10, 11, 12]);
        // mov $0x81234567,%edi; ret
        assert_eq!(excluded(&[0xbf, 0x67, 0x45, 0x23, 0x81, 0xc3]), [7, 8, 9, 10]);
        // mov $0,%rdi: not as a compiler writes it
        assert_eq!(excluded(&[0x48, 0xc7, 0xc7, 0x00, 0x00, 0x00, 0x00]), [9, 10, 11, 12]);
        // movabs $0x1000000,%rax
        assert_eq!(excluded(&[0x48, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0]), (8..16).collect::<Vec<usize>>());
        // movq $0,(%rdi)
        assert_eq!(excluded(&[0x48, 0xc7, 0x07, 0x00, 0x00, 0x00, 0x00]), []);
        // mov $-1,%rdi
        assert_eq!(excluded(&[0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff]), []);
        // mov $0x1234,%edi
        assert_eq!(excluded(&[0xbf, 0x34, 0x12, 0x00, 0x00]), []);
        // mov -0x7edcba99(,%rax,8),%rax
        assert_eq!(excluded(&[0x48, 0x8b, 0x04, 0xc5, 0x67, 0x45, 0x23, 0x81]), [10, 11, 12, 13]);
        // mov %gs:0x1234(%rip),%rax
        assert_eq!(excluded(&[0x65, 0x48, 0x8b, 0x05, 0x34, 0x12, 0x00, 0x00]), [10, 11, 12, 13]);
        // mov 0x1234(%rip),%rax, and a jump: both move with the image
        assert_eq!(excluded(&[0x48, 0x8b, 0x05, 0x34, 0x12, 0x00, 0x00, 0xe9, 0x00, 0x01, 0x00, 0x00]), []);
        // a jump that is cut off
        assert_eq!(excluded(&[0xe9, 0x00]), [6, 7]);
    }

    #[test]
    fn the_longest_row_is_summed() {
        let without = |holes: &[(usize, usize)]| {
            let mut stable = [true; CodeSum::WINDOW];
            holes.iter().for_each(|&(start, end)| stable[start..end].fill(false));
            longest(&stable)
        };
        assert_eq!(without(&[]), 0..15);
        assert_eq!(without(&[(0, 5)]), 5..20);
        assert_eq!(without(&[(2, 5), (12, 22)]), 5..12);
        assert_eq!(without(&[(8, 12)]), 0..8);
        assert!(without(&[(0, 9)]).is_empty());
    }
}
