// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! x86-64: `struct pt_regs` of arch/x86/include/uapi/asm/ptrace.h.

use super::Arch;

pub(super) const ARCH: Arch = Arch {
    registers: &[
        80,  // rax
        96,  // rdx
        88,  // rcx
        40,  // rbx
        104, // rsi
        112, // rdi
        32,  // rbp
        152, // rsp
        72,  // r8
        64,  // r9
        56,  // r10
        48,  // r11
        24,  // r12
        16,  // r13
        8,   // r14
        0,   // r15
        128, // rip
    ],
    instruction_pointer: 128,
    kprobe_bias: 1,
    instruction_pointer_register: Some(16),
    // rdi, rsi, rdx, rcx, r8, r9.
    passing: &[5, 4, 1, 2, 8, 9],
    // endbr64 is 4 bytes.
    entry_offsets: &[0, 4],
};
