// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--stack`: what of the callers the kernel's stacks have at each site.
//!
//! At a body the kernel's trampoline finds all of them. Elsewhere there is a kprobe, and it depends on the machine and on the
//! instruction there ([`Machine::stack_walk`]).

use crate::Failure;
use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use siteseer::internals::function::Function;
use siteseer::{Mechanism, Outcome, SiteReport, Target};
use siteseer_bpf_progs::PEEK;
use siteseer_sites::machine::{Machine, StackWalk};
use std::collections::HashMap;

/// The bytes at the sites, read before anything is attached.
pub(super) struct Beginnings {
    machine: Machine,
    bytes: HashMap<u64, [u8; 8]>,
}

/// A function that only the unwinder of ORC has (arch/x86/kernel/unwind_orc.c).
const OF_ORC: &str = "unwind_module_init";

impl Beginnings {
    /// Nothing is known.
    pub(super) fn none(machine: Machine) -> Beginnings {
        Beginnings { machine, bytes: HashMap::new() }
    }

    /// Reads what is at the sites of functions. With another unwinder than the one that is expected, nothing is known.
    pub(super) fn read<'f>(
        target: &Target,
        functions: impl Iterator<Item = &'f Function>,
    ) -> Result<Beginnings, Failure> {
        let mut beginnings = Beginnings::none(target.machine());
        if target.machine() != Machine::X86_64 || target.symbols()?.named(OF_ORC).next().is_none() {
            return Ok(beginnings);
        }
        let object = ObjectBuilder::default().open_memory(PEEK)?.load()?;
        for site in functions.flat_map(|function| &function.candidates) {
            beginnings.bytes.extend(peek(&object, site.address)?.map(|bytes| (site.address, bytes)));
        }
        Ok(beginnings)
    }

    /// What of the callers is in the stacks of a site.
    pub(super) fn walk(&self, site: &SiteReport) -> StackWalk {
        match site.outcome {
            Outcome::Attached { mechanism: Mechanism::Fentry | Mechanism::TracingMulti, .. } => StackWalk::Whole,
            _ => self.machine.stack_walk(self.bytes.get(&site.address).copied()),
        }
    }
}

/// Eight bytes of the kernel; `None` if they cannot be read.
fn peek(object: &Object, address: u64) -> Result<Option<[u8; 8]>, Failure> {
    let mut programs = object.progs_mut();
    let program = programs.next().ok_or("the embedded program is missing")?;
    let mut context = [0u8; 16];
    context[..8].copy_from_slice(&address.to_ne_bytes());
    let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
    let unread = program.test_run(input)?.return_value != 0;
    Ok(context.last_chunk().copied().filter(|_| !unread))
}
