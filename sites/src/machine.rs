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
