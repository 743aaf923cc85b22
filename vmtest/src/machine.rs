// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The virtual machines: everything that differs between the architectures, as one table.

use object::elf::{EM_AARCH64, EM_X86_64, Machine as ElfMachine};
use siteseer_kernels::Arch;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Machine {
    /// QEMU's program, and the Debian package that has it.
    pub(crate) qemu: &'static str,
    pub(crate) qemu_package: &'static str,
    pub(crate) board: &'static [&'static str],
    pub(crate) tcg: &'static [&'static str],
    /// What the kernel is told under TCG.
    pub(crate) tcg_parameters: &'static str,
    pub(crate) kvm: &'static [&'static str],
    /// Connects character devices `console` and `results` to serial ports.
    pub(crate) ports: &'static [&'static str],
    /// The kernel's names of those two.
    pub(crate) console: &'static str,
    pub(crate) results: &'static str,
    /// Prints what happens before the console's driver is up.
    pub(crate) early_console: &'static str,
    /// `e_machine` (ELF).
    pub(crate) elf: ElfMachine,
}

const X86_64: Machine = Machine {
    qemu: "qemu-system-x86_64",
    qemu_package: "qemu-system-x86",
    board: &["-machine", "q35"],
    // All CPUs on one thread. With a thread for each (QEMU's default), a CPU may execute a breakpoint that another has
    // long taken out again, and a kernel that patches its own code (static keys, ftrace, kprobes) then dies of
    // "Oops: int3": in every run of a test that patches much, and now and then during boot. `max` has rdrand, which
    // KASLR draws on. cmpxchg16b without a lock prefix, which SLUB uses, sometimes leaves an operand in EFLAGS (QEMU
    // 7.2; one boot of 6.12 in nine dies of it), and kernels do without that instruction.
    tcg: &["-accel", "tcg,thread=single", "-cpu", "max,-cx16"],
    // The kernel counts the timer's interrupts while it spins for a number of cycles, and panics ("IO-APIC + timer
    // doesn't work") if too few come: on a busy host they do. It leaves the test out by itself on hypervisors that it
    // knows.
    tcg_parameters: "no_timer_check",
    kvm: &["-accel", "kvm", "-cpu", "host"],
    ports: &["-serial", "chardev:console", "-serial", "chardev:results"],
    console: "ttyS0",
    results: "ttyS1",
    early_console: "earlycon=uart8250,io,0x3f8,115200n8",
    elf: EM_X86_64,
};

const ARM64: Machine = Machine {
    qemu: "qemu-system-aarch64",
    qemu_package: "qemu-system-arm",
    board: &["-machine", "virt"],
    // One thread for the same reason, though the kernel takes a late breakpoint more lightly here. The architected
    // pointer authentication is a cipher that takes half of the emulator's time.
    tcg: &["-accel", "tcg,thread=single", "-cpu", "max,pauth-impdef=on"],
    tcg_parameters: "",
    kvm: &["-accel", "kvm", "-cpu", "host"],
    ports: &["-serial", "chardev:console", "-device", "pci-serial,chardev=results"],
    console: "ttyAMA0",
    results: "ttyS0",
    early_console: "earlycon",
    elf: EM_AARCH64,
};

/// The machine for kernels of this architecture.
pub(crate) fn machine(arch: Arch) -> &'static Machine {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Arm64 => &ARM64,
    }
}
