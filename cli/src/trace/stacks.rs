// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--stack` and `--count stack`: the callers of each call, as far as the kernel's stacks have them at the site.
//!
//! At a body the kernel's trampoline finds all of them. Elsewhere there is a kprobe, and it depends on the machine and
//! on the instruction there ([`Machine::stack_walk`]).

use crate::Failure;
use crate::output::tell;
use crate::symbolise::trace::{Frame, Stacks, Taken};
use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use siteseer::internals::function::Function;
use siteseer::{Mechanism, Outcome, SiteReport, Target};
use siteseer_bpf_progs::PEEK;
use siteseer_sites::SiteKind;
use siteseer_sites::machine::{Machine, StackWalk};
use std::collections::HashMap;

/// Who calls the functions that are traced.
pub(super) struct Callers<'t> {
    target: &'t Target,
    beginnings: Beginnings,
    stacks: Stacks<'t>,
}

impl<'t> Callers<'t> {
    /// Of functions to which nothing is attached yet.
    pub(super) fn read<'f>(
        target: &'t Target,
        functions: impl Iterator<Item = &'f Function>,
    ) -> Result<Callers<'t>, Failure> {
        let beginnings = Beginnings::read(target, functions)?;
        Ok(Callers { target, beginnings, stacks: Stacks::new(target) })
    }

    /// Reads what takes long, before there are stacks to print.
    pub(super) fn prepare(&self) -> Result<(), Failure> {
        self.target.symbols()?;
        if !Stacks::has_inlined(self.target) {
            tell!("note: the site data was made without --ranges and --lines: inlined functions are not in the stacks");
        }
        Ok(())
    }

    /// The functions of a stack that was taken at a site of a function, from this function outwards. `addresses` are
    /// all of the stack, from the innermost one outwards.
    pub(super) fn frames(
        &self,
        function: &str,
        (address, site): (u64, Option<&SiteReport>),
        addresses: &[u64],
    ) -> Result<Vec<Frame>, Failure> {
        let inlined = site.filter(|site| site.kind == SiteKind::Inline).map(|site| {
            let source = site.source.as_ref();
            (function, source.map(|place| format!("{}:{}", place.file, place.line)))
        });
        let walk = site.map_or(StackWalk::Lost, |site| self.beginnings.walk(site));
        self.stacks.frames(&Taken { site: address, inlined, walk, addresses })
    }
}

/// Frames as text, each after a line break.
pub(super) fn text(frames: &[Frame]) -> String {
    frames.iter().map(|frame| format!("\n\t{}", frame.text())).collect()
}

/// Frames as JSON.
pub(super) fn json(frames: &[Frame]) -> serde_json::Value {
    let one =
        |frame: &Frame| serde_json::json!({ "function": frame.function, "inlined": frame.inlined, "line": frame.line });
    frames.iter().map(one).collect()
}

/// The bytes at the sites, read before anything is attached.
struct Beginnings {
    machine: Machine,
    bytes: HashMap<u64, [u8; 8]>,
}

/// A function that only the unwinder of ORC has (arch/x86/kernel/unwind_orc.c).
const OF_ORC: &str = "unwind_module_init";

impl Beginnings {
    /// Reads what is at the sites of functions. With another unwinder than the one that is expected, nothing is known.
    fn read<'f>(target: &Target, functions: impl Iterator<Item = &'f Function>) -> Result<Beginnings, Failure> {
        let mut beginnings = Beginnings { machine: target.machine(), bytes: HashMap::new() };
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
    fn walk(&self, site: &SiteReport) -> StackWalk {
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
