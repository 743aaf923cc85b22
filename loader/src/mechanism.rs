// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ways to make the kernel run a program at a site, best first, and which sites each can reach.
//!
//! A table: a mechanism that is added is a row here and a file in `attach`. What each row asks is about the site, the
//! program and the kernel, never about the function's name: an ambiguous name reaches the wrong function.

use crate::function::{Candidate, Prototype};
use crate::kernel::Kernel;
use crate::program::Uses;
use crate::trampoline::Probe;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::{Machine, Register};
use std::fmt;

/// A way to make the kernel run a program at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// kprobe.multi by address: one link for the entries of many out-of-line copies.
    KprobeMulti,
    /// A perf kprobe at an absolute address: one event and one link per site.
    Kprobe,
}

impl Mechanism {
    /// The mechanisms, best first.
    pub const ALL: [Mechanism; 2] = [Mechanism::KprobeMulti, Mechanism::Kprobe];

    /// The best mechanism that reaches a site, if any does.
    pub(crate) fn choose(
        candidate: &Candidate,
        prototype: &Prototype,
        uses: &Uses,
        kernel: &Kernel,
    ) -> Option<Mechanism> {
        let reaches = |mechanism: &Mechanism| match mechanism {
            Mechanism::KprobeMulti => {
                kernel.kprobe_multi
                    && candidate.is_entry()
                    && candidate.traceable == Some(true)
                    // The registers that it hands over make no stack trace on every kernel.
                    && !uses.context
                    && passed_in_registers(candidate, prototype, uses, kernel.machine)
            }
            Mechanism::Kprobe => kernel.kprobe_pmu.is_some(),
        };
        Mechanism::ALL.into_iter().find(reaches)
    }

    /// What the trampoline must know of it.
    pub fn probe(self) -> Probe {
        match self {
            Mechanism::KprobeMulti => Probe::KprobeMulti,
            Mechanism::Kprobe => Probe::Kprobe,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Mechanism::KprobeMulti => "kprobe.multi",
            Mechanism::Kprobe => "kprobe",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether everything that the program may read is in registers that pass arguments: since 6.14 a kprobe.multi program sees no
/// others (`ftrace_regs`, arch/*/include/asm/ftrace.h).
fn passed_in_registers(candidate: &Candidate, prototype: &Prototype, uses: &Uses, machine: Machine) -> bool {
    let passing: &[Register] = match machine {
        // rdi, rsi, rdx, rcx, r8, r9.
        Machine::X86_64 => &[5, 4, 1, 2, 8, 9],
        Machine::Aarch64 => &[0, 1, 2, 3, 4, 5, 6, 7],
    };
    let mut first = 0;
    prototype.parameters.iter().zip(0u32..).zip(&candidate.arguments).all(|((parameter, index), argument)| {
        let slots = first..first + parameter.slots;
        first = slots.end;
        let used = uses.fallible.contains(index) || uses.requires(slots);
        match argument {
            Ok(located) if used => registers(located).iter().all(|register| passing.contains(register)),
            _ => true,
        }
    })
}

/// The registers that a location depends on.
fn registers(located: &Located) -> Vec<Register> {
    match &located.at {
        Location::Constant(_) | Location::Address(_) => Vec::new(),
        Location::Register(register) | Location::RegisterOffset(register, _) | Location::Memory(register, _) => {
            vec![*register]
        }
        Location::RegisterPair(first, second) => vec![*first, *second],
        Location::Computed(computed) => {
            let ops = computed.slots.iter().flat_map(|slot| slot.iter());
            ops.filter_map(|op| if let Op::Register(register) = op { Some(*register) } else { None }).collect()
        }
    }
}
