// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! arm64: `struct user_pt_regs` of arch/arm64/include/uapi/asm/ptrace.h.

use super::Arch;

pub(super) const ARCH: Arch = Arch {
    // x0 to x30, then sp.
    registers: &[
        0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192,
        200, 208, 216, 224, 232, 240, 248,
    ],
    instruction_pointer: 256,
    kprobe_bias: 0,
    instruction_pointer_register: None,
    // x0 to x7.
    passing: &[0, 1, 2, 3, 4, 5, 6, 7],
    entry_offsets: &[0],
};
