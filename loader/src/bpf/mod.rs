// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BPF as the kernel has it: instructions, helpers, and the system calls.

pub mod helper;
pub mod insn;
