// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a probe sees of the processor, per architecture.
//!
//! # Registers
//! A kprobe program's context is `bpf_user_pt_regs_t`, the layout that user space knows: `struct pt_regs` on x86,
//! `struct user_pt_regs` on arm64. A register of a location (a DWARF number) is a load from it at a fixed offset.
//!
//! # The instruction pointer
//! Which site a program is at is told by the probe's address, so it matters how the context's instruction pointer
//! relates to it.
//!
//! On x86 a kprobe takes one of three forms, and the kernel may change the form of a live one:
//! * a breakpoint (int3): the processor has stepped over the breakpoint's one byte when the handler runs
//!   (`kprobe_int3_handler()`);
//! * a jump, when the kernel optimised it: `optimized_callback()` sets ip to address + `INT3_INSN_SIZE`;
//! * a call at ftrace's patch site: `kprobe_ftrace_handler()` sets ip to address + 1 before it calls the handler.
//!
//! So ip is address + 1 in all three, on purpose, and a trampoline subtracts 1. On arm64 a kprobe is always a
//! breakpoint, which leaves pc on itself. A kprobe.multi program is another matter: it runs from ftrace, ip lies after
//! the patch site's call, and how far the patch site is from the symbol depends on the kernel's configuration; there
//! the trampoline asks `bpf_get_func_ip()`, which answers with the function's address.
//!
//! A probe asked for at a function's first byte may be put elsewhere: on an x86 kernel built for IBT, functions start
//! with `endbr64`, and `arch_adjust_kprobe_addr()` moves the probe past it. [`Arch::entry_addresses`] lists what the
//! probe's address can be.

mod arm64;
mod x86_64;

use siteseer_sites::machine::{Machine, Register};

/// The facts about one architecture.
#[derive(Debug)]
pub struct Arch {
    /// Offset in the context by DWARF register number.
    registers: &'static [i16],
    /// Offset of the instruction pointer in the context.
    pub instruction_pointer: i16,
    /// What the context's instruction pointer exceeds the address of a kprobe by.
    pub kprobe_bias: i32,
    /// The DWARF number of the instruction pointer, if it is one of `registers`.
    pub instruction_pointer_register: Option<Register>,
    /// The registers that pass arguments, by DWARF number.
    pub(crate) passing: &'static [Register],
    /// How far after a function's first byte a probe on it may be put.
    entry_offsets: &'static [u64],
}

impl Arch {
    /// The facts about a machine.
    pub fn of(machine: Machine) -> &'static Arch {
        match machine {
            Machine::X86_64 => &x86_64::ARCH,
            Machine::Aarch64 => &arm64::ARCH,
        }
    }

    /// Where a register is in the context.
    pub fn register_offset(&self, register: Register) -> Option<i16> {
        self.registers.get(usize::from(register)).copied()
    }

    /// The addresses at which a kprobe asked for at a function's first byte may be: the trampoline of a body or clone
    /// looks for its site under one of them.
    pub fn entry_addresses(&self, function: u64) -> impl Iterator<Item = u64> {
        self.entry_offsets.iter().map(move |offset| function.wrapping_add(*offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_register_has_a_place_of_its_own() {
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let arch = Arch::of(machine);
            let mut offsets: Vec<i16> = (0..machine.register_names().len() as Register)
                .map(|r| arch.register_offset(r).unwrap_or_else(|| panic!("{machine} register {r} has no place")))
                .collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len(), machine.register_names().len());
            assert!(offsets.iter().all(|offset| offset % 8 == 0));
            assert_eq!(arch.register_offset(machine.register_names().len() as Register), None);
        }
    }

    #[test]
    fn places_are_those_of_the_kernels_headers() {
        let at = |machine: Machine, name: &str| {
            let number = machine.register_names().iter().position(|n| *n == name).expect("a register's name");
            Arch::of(machine).register_offset(number as Register)
        };
        assert_eq!(at(Machine::X86_64, "r15"), Some(0));
        assert_eq!(at(Machine::X86_64, "rbx"), Some(40));
        assert_eq!(at(Machine::X86_64, "rax"), Some(80));
        assert_eq!(at(Machine::X86_64, "rdi"), Some(112));
        assert_eq!(at(Machine::X86_64, "rsp"), Some(152));
        assert_eq!(at(Machine::Aarch64, "x0"), Some(0));
        assert_eq!(at(Machine::Aarch64, "x30"), Some(240));
        assert_eq!(at(Machine::Aarch64, "sp"), Some(248));
    }
}
