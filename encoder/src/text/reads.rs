// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How much of a register's value instructions read.

use super::makes::Makers;
use super::{Acts, Effects, arm64};
use siteseer_sites::abi::argument_registers;
use siteseer_sites::machine::Register;

impl Makers<'_, '_, '_> {
    /// How many of a register's lowest bytes an instruction reads, at most: 0 to 8. A mask and a narrow register read
    /// no more than their own bytes. Calls read what may be passed in registers, and what is not known reads all.
    pub(crate) fn read_bytes(&mut self, address: u64, register: Register) -> u8 {
        let image = self.text.image;
        // A jump out of the function is a call of another one.
        if argument_registers(self.text.machine()).contains(&register)
            && let Acts::Jumps(target) = self.effects.acts(image, address, self.text.frame_pointer)
            && self.text.index(target).is_none()
        {
            return 8;
        }
        match &mut self.effects {
            Effects::X86(effects) => effects.read_bytes(image, address, register),
            Effects::Arm64 => arm64::read_bytes(image, address, register),
        }
    }
}

/// How many of a register's bytes a shift to the left by so many bits keeps; none if more than half of them. What
/// compilers leave out before a shift is an extension, which is of a half at least.
pub(super) fn shifted_bytes(register_bytes: u8, bits: u64) -> Option<u8> {
    let all = u64::from(register_bytes) * 8;
    let kept = all.checked_sub(bits)?;
    (kept * 2 <= all).then_some(kept.div_ceil(8) as u8)
}

/// How many bytes a mask lets through.
pub(super) fn mask_bytes(mask: u64) -> u8 {
    (u64::BITS - mask.leading_zeros()).div_ceil(8) as u8
}

#[cfg(test)]
mod tests {
    use crate::elf::test_image::TEXT;
    use crate::text::tests::{arm64, x86};

    #[test]
    fn x86_64() {
        // mov %rdi,%rbx; mov %edi,%ebx; movzbl %dil,%ebx; mov (%rdi),%ebx; and $3,%edi; test $0x100,%edi; and $-8,%rdi;
        // xor %edi,%edi; mov $1,%edi; mov %edi,(%rax); cmp %di,%ax; lea 1(%rdi),%ebx; nopl (%rdi); shl $32,%rdi;
        // shl $12,%rdi; shl $16,%edi; call; jmp; jmp
        let code: [(&[u8], u8); 19] = [
            (&[0x48, 0x89, 0xfb], 8),
            (&[0x89, 0xfb], 4),
            (&[0x40, 0x0f, 0xb6, 0xdf], 1),
            (&[0x8b, 0x1f], 8),
            (&[0x83, 0xe7, 0x03], 1),
            (&[0xf7, 0xc7, 0, 1, 0, 0], 2),
            (&[0x48, 0x83, 0xe7, 0xf8], 8),
            (&[0x31, 0xff], 0),
            (&[0xbf, 1, 0, 0, 0], 0),
            (&[0x89, 0x38], 4),
            (&[0x66, 0x39, 0xf8], 2),
            (&[0x8d, 0x5f, 0x01], 4),
            (&[0x0f, 0x1f, 0x07], 0),
            (&[0x48, 0xc1, 0xe7, 0x20], 4),
            (&[0x48, 0xc1, 0xe7, 0x0c], 8),
            (&[0xc1, 0xe7, 0x10], 2),
            (&[0xe8, 0, 0, 0, 0], 8),
            (&[0xeb, 0], 0),
            // Out of the function.
            (&[0xe9, 0, 1, 0, 0], 8),
        ];
        let text: Vec<u8> = code.iter().flat_map(|(bytes, _)| bytes.iter().copied()).chain([0xc3]).collect();
        x86(&text, |text| {
            let mut makers = text.makers();
            let mut at = TEXT;
            for (bytes, read) in code {
                assert_eq!(makers.read_bytes(at, 5), read, "{bytes:x?}");
                at += bytes.len() as u64;
            }
        });
    }

    #[test]
    fn aarch64() {
        let code: [(u32, u8); 20] = [
            (0xaa00_03f3, 8), // mov x19, x0
            (0x2a00_03f3, 4), // mov w19, w0
            (0x1200_1c13, 1), // and w19, w0, #0xff
            (0x5300_3c13, 2), // uxth w19, w0
            (0xf940_0013, 8), // ldr x19, [x0]
            (0xb900_0260, 4), // str w0, [x19]
            (0x3900_0260, 1), // strb w0, [x19]
            (0xf900_0013, 8), // str x19, [x0]
            (0xf940_0260, 0), // ldr x0, [x19]
            (0x5280_00a0, 0), // mov w0, #5
            (0x7100_001f, 4), // cmp w0, #0
            (0xaa00_8273, 4), // orr x19, x19, x0, lsl #32
            (0xaa00_3273, 8), // orr x19, x19, x0, lsl #12
            (0xb360_7c13, 4), // bfi x19, x0, #32, #32
            (0xb400_0040, 8), // cbz x0, 8
            (0x3700_0040, 1), // tbnz w0, #0, 8
            (0x9400_0001, 8), // bl 4
            (0x1400_0001, 0), // b 4
            (0x1400_0100, 8), // b 0x400
            (0xd503_201f, 0), // nop
        ];
        let text: Vec<u32> = code.iter().map(|(word, _)| *word).chain([0xd65f_03c0, 0xd65f_03c0]).collect();
        arm64(&text, |text| {
            let mut makers = text.makers();
            for ((word, read), at) in code.into_iter().zip((TEXT..).step_by(4)) {
                assert_eq!(makers.read_bytes(at, 0), read, "{word:x}");
            }
        });
    }
}
