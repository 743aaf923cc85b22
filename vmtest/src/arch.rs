// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Architectures: everything that differs between them, as one table.

use std::{fmt, str::FromStr};

use object::elf::{EM_AARCH64, EM_X86_64, Machine};
use serde::{Deserialize, Serialize};

/// An architecture that kernels of the matrix run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Arch {
    /// x86-64.
    #[serde(rename = "x86_64")]
    X86_64,
    /// arm64.
    #[serde(rename = "arm64")]
    Arm64,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Traits {
    /// As the kernel and Rust name it.
    pub(crate) machine: &'static str,
    /// As Debian names it.
    pub(crate) debian: &'static str,
    pub(crate) triple: &'static str,
    pub(crate) gnu_triple: &'static str,
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
    pub(crate) elf_machine: Machine,
}

const X86_64: Traits = Traits {
    machine: "x86_64",
    debian: "amd64",
    triple: "x86_64-unknown-linux-gnu",
    gnu_triple: "x86_64-linux-gnu",
    qemu: "qemu-system-x86_64",
    qemu_package: "qemu-system-x86",
    board: &["-machine", "q35"],
    // All CPUs on one thread. With a thread for each (QEMU's default), a CPU may execute a breakpoint that another has
    // long taken out again, and a kernel that patches its own code (static keys, ftrace, kprobes) then dies of
    // "Oops: int3": in every run of a test that patches much, and now and then during boot. `max` has rdrand, which
    // KASLR draws on. cmpxchg16b without a lock prefix, which SLUB uses, sometimes leaves an operand in EFLAGS (QEMU
    // 7.2; one boot of 6.12 in nine dies of it), and kernels do without that instruction.
    tcg: &["-accel", "tcg,thread=single", "-cpu", "max,-cx16"],
    // The kernel counts the timer's interrupts while it spins for a number of cycles, and panics ("IO-APIC + timer doesn't
    // work") if too few come: on a busy host they do. It leaves the test out by itself on hypervisors that it knows.
    tcg_parameters: "no_timer_check",
    kvm: &["-accel", "kvm", "-cpu", "host"],
    ports: &["-serial", "chardev:console", "-serial", "chardev:results"],
    console: "ttyS0",
    results: "ttyS1",
    early_console: "earlycon=uart8250,io,0x3f8,115200n8",
    elf_machine: EM_X86_64,
};

const ARM64: Traits = Traits {
    machine: "aarch64",
    debian: "arm64",
    triple: "aarch64-unknown-linux-gnu",
    gnu_triple: "aarch64-linux-gnu",
    qemu: "qemu-system-aarch64",
    qemu_package: "qemu-system-arm",
    board: &["-machine", "virt"],
    // One thread for the same reason, though the kernel takes a late breakpoint more lightly here. The architected pointer
    // authentication is a cipher that takes half of the emulator's time.
    tcg: &["-accel", "tcg,thread=single", "-cpu", "max,pauth-impdef=on"],
    tcg_parameters: "",
    kvm: &["-accel", "kvm", "-cpu", "host"],
    ports: &["-serial", "chardev:console", "-device", "pci-serial,chardev=results"],
    console: "ttyAMA0",
    results: "ttyS0",
    early_console: "earlycon",
    elf_machine: EM_AARCH64,
};

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Arm64];

    /// The one that this program was built for, if it is in the table.
    pub fn host() -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.traits().machine == std::env::consts::ARCH)
    }

    pub(crate) fn traits(self) -> &'static Traits {
        match self {
            Arch::X86_64 => &X86_64,
            Arch::Arm64 => &ARM64,
        }
    }

    /// The Rust target that guest programs are built for.
    pub fn triple(self) -> &'static str {
        self.traits().triple
    }

    /// GNU's name of the platform, which prefixes its compilers.
    pub(crate) fn gnu_triple(self) -> &'static str {
        self.traits().gnu_triple
    }

    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub fn debian(self) -> &'static str {
        self.traits().debian
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Arm64 => "arm64",
        })
    }
}

/// The name of no architecture in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture {0:?} (there are x86_64 and arm64)")]
pub struct UnknownArch(String);

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(name: &str) -> Result<Arch, UnknownArch> {
        Arch::ALL
            .into_iter()
            .find(|arch| {
                let traits = arch.traits();
                name == arch.to_string() || name == traits.machine || name == traits.debian
            })
            .ok_or_else(|| UnknownArch(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_is_known() {
        for (name, arch) in
            [("x86_64", Arch::X86_64), ("amd64", Arch::X86_64), ("arm64", Arch::Arm64), ("aarch64", Arch::Arm64)]
        {
            assert_eq!(name.parse(), Ok(arch));
        }
        assert!("riscv64".parse::<Arch>().unwrap_err().to_string().contains("riscv64"));
    }
}
