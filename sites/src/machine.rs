// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Architectures, and the names that DWARF's register numbers have on them.

use std::fmt;

/// A DWARF register number, as the architecture's psABI assigns it.
pub type Register = u16;

/// An architecture that sites can be described for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64 (`EM_X86_64`).
    X86_64,
    /// arm64 (`EM_AARCH64`).
    Aarch64,
}

/// What a walk of the kernel's stack finds that begins with the registers of a kprobe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackWalk {
    /// All callers.
    Whole,
    /// It may miss the caller of the function that the probe is in. All others are there.
    MayLackCaller,
    /// What it finds may be anything that is on the stack.
    Lost,
}

/// System V psABI for AMD64, figure 3.36.
const X86_64: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

/// DWARF for the Arm 64-bit Architecture, section 4.1.
const AARCH64: [&str; 32] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17",
    "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
];

impl Machine {
    /// All of them.
    pub const ALL: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];

    /// The machine of an ELF header's `e_machine`.
    pub fn from_elf(e_machine: u16) -> Option<Machine> {
        match object::elf::Machine(e_machine) {
            object::elf::EM_X86_64 => Some(Machine::X86_64),
            object::elf::EM_AARCH64 => Some(Machine::Aarch64),
            _ => None,
        }
    }

    /// The value of `e_machine` for this machine.
    pub fn to_elf(self) -> u16 {
        match self {
            Machine::X86_64 => object::elf::EM_X86_64.0,
            Machine::Aarch64 => object::elf::EM_AARCH64.0,
        }
    }

    /// The names of the integer registers by DWARF number; floating point and vector registers, which the
    /// kernel does not save for a probe, have none.
    pub fn register_names(self) -> &'static [&'static str] {
        match self {
            Machine::X86_64 => &X86_64,
            Machine::Aarch64 => &AARCH64,
        }
    }

    /// The name of one register, or `None` if a probe cannot read it.
    pub fn register_name(self, register: Register) -> Option<&'static str> {
        self.register_names().get(usize::from(register)).copied()
    }

    /// What a walk of the stack from a kprobe finds, by the bytes that are at the probe's address without it; `None` if
    /// they are not known. The kernel's unwinder is the one of ORC on x86, and of frame records on arm64.
    ///
    /// On x86 a kprobe's handler gets registers as after its int3: the instruction pointer is one byte further (so it
    /// is if the probe is optimised). The unwinder looks up the frame's layout there. After an instruction of one byte
    /// that moves the stack pointer and has not run yet, it is the wrong one.
    ///
    /// On arm64 a call leaves the return address in a register. If the function has not stored it, or does not store it
    /// at all, the frame record is that of the caller, and the caller is missed.
    pub fn stack_walk(self, bytes: Option<[u8; 8]>) -> StackWalk {
        const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        let Some(bytes) = bytes.filter(|_| self == Machine::X86_64) else {
            return if self == Machine::X86_64 { StackWalk::Lost } else { StackWalk::MayLackCaller };
        };
        // The kernel puts a probe after it.
        let first = if bytes.starts_with(&ENDBR) { bytes[4] } else { bytes[0] };
        match first {
            // push and pop; pushf and popf; ret, leave
            0x50..=0x5f | 0x9c | 0x9d | 0xc3 | 0xc9 => StackWalk::Lost,
            // Another probe's int3 or jmp, in place of what is there.
            0xcc | 0xe9 => StackWalk::Lost,
            _ => StackWalk::Whole,
        }
    }

    /// The DWARF number of the stack pointer.
    pub fn stack_pointer(self) -> Register {
        match self {
            Machine::X86_64 => 7,
            Machine::Aarch64 => 31,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Machine::X86_64 => "x86-64",
            Machine::Aarch64 => "arm64",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_from_a_probe() {
        let walk = |bytes: [u8; 8]| Machine::X86_64.stack_walk(Some(bytes));
        let cases = [
            // push %rbx; mov %edi,%edx
            ([0x53, 0x89, 0xfa, 0x83, 0xff, 0x28, 0, 0], StackWalk::Lost),
            // push %r12
            ([0x41, 0x54, 0x55, 0x53, 0, 0, 0, 0], StackWalk::Whole),
            // endbr64, then the call that ftrace patches; endbr64, then push %rbp
            ([0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0], StackWalk::Whole),
            ([0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5], StackWalk::Lost),
            // Probes of others.
            ([0xcc, 0x89, 0xfa, 0x83, 0xff, 0x28, 0, 0], StackWalk::Lost),
            ([0xe9, 0, 0, 0, 0, 0, 0, 0], StackWalk::Lost),
            // sub $8,%rsp
            ([0x48, 0x83, 0xec, 0x08, 0, 0, 0, 0], StackWalk::Whole),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(walk(bytes), wanted, "{bytes:02x?}");
        }
        assert_eq!(Machine::X86_64.stack_walk(None), StackWalk::Lost);
        assert_eq!(Machine::Aarch64.stack_walk(Some([0x53; 8])), StackWalk::MayLackCaller);
    }
}
