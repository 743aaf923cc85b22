// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What goes where: the decisions about a trampoline, made before any code is.
//!
//! A layout holds all that the code depends on, and nothing else. That is what makes it the key by which sites share
//! trampolines: parameters that the program does not read are not in it, and addresses are in it as they are at run
//! time.

use super::{Parameter, Probe, Spec};
use crate::program::Uses;
use crate::refusal::Refusal;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::Machine;

/// The decisions. Words are counted in 8 bytes from the array's start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    pub(super) machine: Machine,
    pub(super) probe: Probe,
    /// Words from the array's start up: slots, then copies and states.
    pub(super) words: u32,
    /// What is gathered, by parameter.
    pub(super) items: Vec<Item>,
    /// Whether the real context is kept in front of the array.
    pub(super) context: bool,
    /// Whether the probe's address is kept in front of that.
    pub(super) address: bool,
    /// Whether `bpf_get_func_ip` is answered with the probe's address.
    pub(super) func_ip_is_address: bool,
    /// What `bpf_get_func_arg_cnt` answers, if it is asked.
    pub(super) argument_count: Option<u32>,
    /// What `bpf_get_attach_cookie` answers, if it is asked.
    pub(super) cookie: Option<u64>,
    /// What `siteseer_arg` can answer with.
    pub(super) fallible: Vec<Access>,
    /// What `bpf_get_func_arg` can answer with; the slot's number stands as the parameter.
    pub(super) indexed: Vec<Access>,
    pub(super) site_map: Option<i32>,
    pub(super) fault_map: Option<i32>,
}

/// One gathered argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) parameter: u32,
    /// First word.
    pub(super) word: u32,
    /// Where it is; addresses are run-time addresses.
    pub(super) located: Located,
    pub(super) typed: Option<Typed>,
    /// The word that says whether it could be read, where the program is run anyway.
    pub(super) state: Option<u32>,
}

/// How a pointer gets its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Typed {
    pub(super) kfunc: u32,
    pub(super) type_id: u32,
    /// Where the value is kept as a plain number too, for those who ask for a number.
    pub(super) copy: Option<u32>,
}

/// A value that code can ask for by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Access {
    pub(super) parameter: u32,
    /// Slot within the parameter.
    pub(super) slot: u32,
    /// Where the value is.
    pub(super) word: u32,
    /// Where its state is, if it may be missing.
    pub(super) state: Option<u32>,
}

/// More slots than fit on a BPF stack.
const MAX_SLOTS: u32 = 64;

impl Layout {
    pub(super) fn new(uses: &Uses, spec: &Spec<'_>) -> Result<Layout, Refusal> {
        let starts: Vec<u32> = spec
            .parameters
            .iter()
            .scan(0u32, |next, parameter| {
                let start = *next;
                *next = next.saturating_add(parameter.slots());
                Some(start)
            })
            .collect();
        let count = spec.parameters.iter().map(Parameter::slots).fold(0, u32::saturating_add);
        if let Some(slot) = uses.slots.named().find(|slot| *slot >= count) {
            return Err(Refusal::ReadsSlotBeyond { slot, have: count });
        }
        let site_map = if uses.site { Some(spec.site_map.ok_or(Refusal::NoSiteMap)?) } else { None };
        let fentry = matches!(spec.probe, Probe::Fentry | Probe::Fexit);
        let mut layout = Layout {
            machine: spec.machine,
            probe: spec.probe,
            words: 0,
            items: Vec::new(),
            context: !fentry && (uses.context || (uses.func_ip && !spec.inline)),
            address: !fentry && (uses.site || (uses.func_ip && spec.inline)),
            func_ip_is_address: uses.func_ip && spec.inline && !fentry,
            argument_count: (uses.argument_count && !fentry).then_some(count),
            cookie: (uses.cookie && !fentry).then_some(spec.cookie),
            fallible: Vec::new(),
            indexed: Vec::new(),
            site_map,
            fault_map: None,
        };
        if fentry {
            layout.fentry_accesses(spec.parameters, starts, uses);
            return Ok(layout);
        }
        let mut wanted = Vec::new();
        for ((number, parameter), start) in (0u32..).zip(spec.parameters).zip(starts) {
            let slots = start..start.saturating_add(parameter.slots());
            let required = uses.requires(slots.clone());
            let fallible = uses.fallible.contains(number);
            match &parameter.argument {
                Err(reason) if required => {
                    return Err(Refusal::ArgumentMissing { parameter: number as usize, reason: *reason });
                }
                Ok(located) if required || fallible => {
                    if slots.end > MAX_SLOTS {
                        let bytes = slots.end.saturating_mul(8);
                        let limit = super::STACK_LIMIT;
                        return Err(Refusal::StackOverflow { program: uses.stack, trampoline: bytes, limit });
                    }
                    let located = resolve(located, parameter, spec)
                        .ok_or(Refusal::MalformedLocation { parameter: number as usize })?;
                    layout.words = slots.end;
                    wanted.push((number, slots, located, required));
                }
                _ => {}
            }
        }
        for (number, slots, located, required) in wanted {
            let typed = layout.typed(uses, spec, number, slots.start)?;
            let reads_memory = reads_memory(&located);
            let state = (reads_memory && !required).then(|| layout.extra_word());
            if reads_memory && required {
                layout.fault_map = spec.fault_map;
            }
            let fallible = uses.fallible.contains(number);
            for (inner, slot) in (0u32..).zip(slots.clone()) {
                let word = typed.as_ref().and_then(|typed| typed.copy).unwrap_or(slot);
                if fallible {
                    layout.fallible.push(Access { parameter: number, slot: inner, word, state });
                }
                if uses.indexed.contains(slot) {
                    layout.indexed.push(Access { parameter: slot, slot: 0, word, state });
                }
            }
            layout.items.push(Item { parameter: number, word: slots.start, located, typed, state });
        }
        Ok(layout)
    }

    /// Under fentry nothing is gathered and nothing is missing, but the accessors must know which slots there are.
    fn fentry_accesses(&mut self, parameters: &[Parameter], starts: Vec<u32>, uses: &Uses) {
        for ((number, parameter), start) in (0u32..).zip(parameters).zip(starts) {
            if uses.fallible.contains(number) {
                let slots = (0..parameter.slots().min(MAX_SLOTS)).zip(start..);
                let access = |(slot, word)| Access { parameter: number, slot, word, state: None };
                self.fallible.extend(slots.map(access));
            }
        }
    }

    /// Whether and how the parameter gets its type. The program must read it, as a whole, and not as a number: a
    /// program that computes with a pointer and never follows it wants the number.
    fn typed(&mut self, uses: &Uses, spec: &Spec<'_>, number: u32, slot: u32) -> Result<Option<Typed>, Refusal> {
        let Some(parameter) = spec.parameters.get(number as usize) else { return Ok(None) };
        let Some(type_id) = parameter.typed.filter(|_| parameter.size == 8) else { return Ok(None) };
        let as_number = uses.arithmetic.contains(slot) && !uses.dereferences(slot);
        if !uses.slots.contains(slot) || uses.narrow.contains(slot) || as_number {
            return Ok(None);
        }
        let Some(kfunc) = spec.kernel.rdonly_cast else {
            if uses.dereferences(slot) {
                return Err(Refusal::NoRdonlyCast { parameter: number as usize });
            }
            return Ok(None);
        };
        let asked_for = uses.fallible.contains(number) || uses.indexed.contains(slot);
        Ok(Some(Typed { kfunc, type_id, copy: asked_for.then(|| self.extra_word()) }))
    }

    fn extra_word(&mut self) -> u32 {
        self.words += 1;
        self.words - 1
    }
}

/// Whether gathering it can fail.
fn reads_memory(located: &Located) -> bool {
    match &located.at {
        Location::Memory(..) => true,
        Location::Computed(computed) => computed.slots.iter().any(|program| Op::reads_memory(program)),
        _ => false,
    }
}

/// The location with run-time addresses, if it makes sense for this parameter on this machine.
fn resolve(located: &Located, parameter: &Parameter, spec: &Spec<'_>) -> Option<Located> {
    let machine = spec.machine;
    let slots = parameter.slots();
    if located.size.div_ceil(8).max(1) != slots {
        return None;
    }
    let readable = |register: u16| machine.register_name(register).is_some();
    let run_time = |address: u64| address.wrapping_add(spec.displacement);
    let at = match &located.at {
        Location::Constant(value) if slots == 1 => Location::Constant(*value),
        Location::Address(address) if slots == 1 => Location::Constant(run_time(*address)),
        Location::Register(register) if slots == 1 && readable(*register) => located.at.clone(),
        Location::RegisterPair(a, b) if slots == 2 && readable(*a) && readable(*b) => located.at.clone(),
        Location::RegisterOffset(register, _) if slots == 1 && readable(*register) => located.at.clone(),
        Location::Memory(register, _) if located.size > 0 && readable(*register) => located.at.clone(),
        Location::Computed(computed) if computed.slots.len() == slots as usize => {
            let mut computed = computed.clone();
            for program in &mut computed.slots {
                if !Op::check(program, machine) {
                    return None;
                }
                for op in program.iter_mut() {
                    if let Op::Address(address) = *op {
                        *op = Op::Constant(run_time(address));
                    }
                }
            }
            Location::Computed(computed)
        }
        _ => return None,
    };
    Some(Located { at, ..*located })
}
