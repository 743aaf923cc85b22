// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What goes where: the decisions about a trampoline, made before any code is.
//!
//! A layout holds all that the code depends on, and nothing else. That is what makes it the key by which sites share
//! trampolines: parameters that the program does not read are not in it, and addresses are in it as they are at run
//! time.

use super::gather::slot_bits;
use super::{Kfunc, Parameter, Probe, Spec};
use crate::program::Uses;
use crate::site::refusal::Refusal;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::Machine;
use std::ops::Range;

/// The decisions. Words are counted in 8 bytes from the array's start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Layout {
    pub(super) machine: Machine,
    pub(super) probe: Probe,
    /// Words from the array's start up: slots, then copies and states.
    pub(super) words: u32,
    /// What is gathered, by parameter.
    pub(super) items: Vec<Item>,
    /// The return value, if it is gathered.
    pub(super) result: Option<Item>,
    /// The word that holds the return value, if `bpf_get_func_ret` is asked for it.
    pub(super) returned: Option<u32>,
    /// How arguments get from the entry to the return.
    pub(super) session: Option<Session>,
    /// Whether the real context is kept before the array.
    pub(super) context: bool,
    /// Whether the probe's address is kept before that.
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
    /// Whether calls can be lost, which are counted.
    pub(super) counts_faults: bool,
}

/// One gathered argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Item {
    /// Which parameter; none for the return value.
    pub(super) parameter: Option<u32>,
    /// First word.
    pub(super) word: u32,
    /// Where it is; addresses are run-time addresses.
    pub(super) located: Located,
    pub(super) typed: Option<Typed>,
    /// The word that says whether it could be read, where the program is run anyway.
    pub(super) state: Option<u32>,
}

impl Item {
    pub(super) fn malformed(&self) -> Refusal {
        malformed(self.parameter)
    }

    /// Whether its value is the same at the return as at the entry, whatever the call.
    pub(super) fn is_constant(&self) -> bool {
        matches!(self.located.at, Location::Constant(_) | Location::Address(_))
    }

    fn words(&self) -> impl Iterator<Item = u32> + use<> {
        (self.word..self.word + self.located.slots() as u32).chain(self.state)
    }
}

fn malformed(parameter: Option<u32>) -> Refusal {
    match parameter {
        Some(parameter) => Refusal::MalformedLocation { parameter: parameter as usize },
        None => Refusal::MalformedReturn,
    }
}

/// What a kprobe session needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) is_return: Kfunc,
    pub(super) cookie: Kfunc,
    pub(super) saving: Saving,
}

/// How a session keeps the words that it gathered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Saving {
    /// There is nothing to keep.
    Nothing,
    /// One word fits in the session cookie.
    Cookie { word: u32 },
    /// Those from `first` up to `end` are kept in a map; `words` are those that mean something.
    Map { first: u32, end: u32, words: Vec<u32> },
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
    /// How many low bits of the word are the value's, and whether it is signed, where that is still to be seen to.
    pub(super) narrow: Option<(u32, bool)>,
}

/// An argument that is gathered.
struct Wanted {
    number: u32,
    slots: Range<u32>,
    located: Located,
    /// Whether the program cannot do without.
    required: bool,
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
        let exit = spec.probe.is_exit();
        let returned_slots = if exit { spec.ret.map_or(1, Parameter::slots) } else { 0 };
        let have = count.saturating_add(returned_slots);
        if let Some(slot) = uses.slots.named().find(|slot| *slot >= have) {
            return Err(Refusal::ReadsSlotBeyond { slot, have });
        }
        let returns = exit && uses.requires_return(count);
        if returns && spec.ret.is_none() && (uses.returned || !uses.slots.is_all()) {
            return Err(Refusal::ReturnsNothing);
        }
        let untouched = matches!(spec.probe, Probe::Fentry | Probe::Fexit);
        let mut layout = Layout {
            machine: spec.machine,
            probe: spec.probe,
            words: 0,
            items: Vec::new(),
            result: None,
            returned: None,
            session: None,
            context: !untouched && (uses.context || (uses.func_ip && !spec.inline)),
            address: !untouched && (uses.site || (uses.func_ip && spec.inline)),
            func_ip_is_address: uses.func_ip && spec.inline && !untouched,
            argument_count: (uses.argument_count && !untouched).then_some(count),
            cookie: (uses.cookie && !untouched).then_some(spec.cookie),
            fallible: Vec::new(),
            indexed: Vec::new(),
            counts_faults: false,
        };
        if let (true, Some(Err(reason))) = (returns, spec.ret.map(|ret| &ret.argument)) {
            return Err(Refusal::ReturnMissing { reason: *reason });
        }
        if untouched {
            layout.native_accesses(spec.parameters, starts, uses)?;
            return Ok(layout);
        }
        let wanted = layout.wanted(uses, spec, starts)?;
        let result = match spec.ret {
            Some(ret) if returns => {
                fits_the_stack(have, uses)?;
                let located = ret.argument.as_ref().map_err(|reason| Refusal::ReturnMissing { reason: *reason })?;
                layout.words = have;
                layout.returned = uses.returned.then_some(count);
                Some((ret, resolve(located, ret, spec).ok_or(malformed(None))?))
            }
            _ => None,
        };
        for wanted in wanted {
            layout.place(uses, spec, wanted)?;
        }
        if let Some((ret, located)) = result {
            if spec.probe.is_tracing() {
                layout.counts_faults = true;
            }
            let typed = layout.typed(uses, spec, ret, None, count, uses.returned)?;
            if let Some(typed) = typed.as_ref().filter(|_| uses.returned) {
                layout.returned = typed.copy;
            }
            layout.result = Some(Item { parameter: None, word: count, located, typed, state: None });
        }
        if spec.probe == Probe::Session {
            layout.session = Some(layout.session(spec)?);
        }
        Ok(layout)
    }

    /// The arguments that are gathered, because the program requires them, or asks for them and can do without.
    fn wanted(&mut self, uses: &Uses, spec: &Spec<'_>, starts: Vec<u32>) -> Result<Vec<Wanted>, Refusal> {
        let mut wanted = Vec::new();
        for ((number, parameter), start) in (0u32..).zip(spec.parameters).zip(starts) {
            let slots = start..start.saturating_add(parameter.slots());
            let required = uses.requires(slots.clone());
            let fallible = uses.fallible.contains(number);
            if spec.probe == Probe::Kretprobe {
                if required {
                    return Err(Refusal::ArgumentGone { parameter: number as usize });
                }
                continue;
            }
            match &parameter.argument {
                Err(reason) if required => {
                    return Err(Refusal::ArgumentMissing { parameter: number as usize, reason: *reason });
                }
                Ok(located) if required && spec.kernel.unplaced && is_in_the_image(located) => {
                    return Err(Refusal::ArgumentDisplaced { parameter: number as usize });
                }
                // An argument that the program can do without is not available.
                Ok(located) if spec.kernel.unplaced && is_in_the_image(located) => {}
                Ok(located) if required || fallible => {
                    fits_the_stack(slots.end, uses)?;
                    let located = resolve(located, parameter, spec).ok_or(malformed(Some(number)))?;
                    self.words = slots.end;
                    wanted.push(Wanted { number, slots, located, required });
                }
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Gives an argument its words, and the accessors what they ask for of it.
    fn place(&mut self, uses: &Uses, spec: &Spec<'_>, wanted: Wanted) -> Result<(), Refusal> {
        let Wanted { number, slots, located, required } = wanted;
        let parameter = spec.parameters.get(number as usize);
        let asked_for = uses.fallible.contains(number) || uses.indexed.contains(slots.start);
        let typed = match parameter {
            Some(parameter) => self.typed(uses, spec, parameter, Some(number), slots.start, asked_for)?,
            None => None,
        };
        // What a tracing program asks the kernel for is there, wherever the kernel has it from.
        let reads_memory = reads_memory(&located) && !spec.probe.is_tracing();
        let state = (reads_memory && !required).then(|| self.extra_word());
        if (reads_memory && required) || spec.probe.is_tracing() {
            self.counts_faults = true;
        }
        let fallible = uses.fallible.contains(number);
        for (inner, slot) in (0u32..).zip(slots.clone()) {
            let word = typed.as_ref().and_then(|typed| typed.copy).unwrap_or(slot);
            if fallible {
                self.fallible.push(Access { parameter: number, slot: inner, word, state, narrow: None });
            }
            if uses.indexed.contains(slot) {
                self.indexed.push(Access { parameter: slot, slot: 0, word, state, narrow: None });
            }
        }
        self.items.push(Item { parameter: Some(number), word: slots.start, located, typed, state });
        Ok(())
    }

    /// Under real fentry and fexit nothing is gathered, but what the program reads must be where the kernel takes it
    /// from, and the accessors must know which slots there are.
    fn native_accesses(&mut self, parameters: &[Parameter], starts: Vec<u32>, uses: &Uses) -> Result<(), Refusal> {
        for ((number, parameter), start) in (0u32..).zip(parameters).zip(starts) {
            let slots = start..start.saturating_add(parameter.slots());
            match &parameter.argument {
                Err(reason) if uses.requires(slots) => {
                    return Err(Refusal::ArgumentMissing { parameter: number as usize, reason: *reason });
                }
                Ok(located) if uses.fallible.contains(number) => {
                    let slots = (0..parameter.slots().min(MAX_SLOTS)).zip(start..);
                    self.fallible.extend(slots.map(|(slot, word)| {
                        let bits = slot_bits(parameter.size, slot);
                        let narrow = (bits < 64).then_some((bits, located.signed));
                        Access { parameter: number, slot, word, state: None, narrow }
                    }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What a session has to keep of what is gathered at the entry.
    fn session(&mut self, spec: &Spec<'_>) -> Result<Session, Refusal> {
        let (Some(is_return), Some(cookie)) = (spec.kernel.session_is_return, spec.kernel.session_cookie) else {
            return Err(Refusal::NoSession);
        };
        let mut words: Vec<u32> = self.items.iter().filter(|item| !item.is_constant()).flat_map(Item::words).collect();
        words.sort_unstable();
        let saving = match words[..] {
            [] => Saving::Nothing,
            [word] => Saving::Cookie { word },
            [first, .., last] => {
                self.counts_faults = true;
                Saving::Map { first, end: last + 1, words }
            }
        };
        Ok(Session { is_return, cookie, saving })
    }

    /// Whether and how a value gets its type. The program must read it, as a whole, and not as a number: a program
    /// that computes with a pointer and never follows it wants the number.
    fn typed(
        &mut self,
        uses: &Uses,
        spec: &Spec<'_>,
        parameter: &Parameter,
        number: Option<u32>,
        slot: u32,
        asked_for: bool,
    ) -> Result<Option<Typed>, Refusal> {
        if parameter.foreign && uses.dereferences(slot) {
            return Err(match number {
                Some(parameter) => Refusal::ForeignType { parameter: parameter as usize },
                None => Refusal::ForeignTypeOfReturn,
            });
        }
        let Some(type_id) = parameter.typed.filter(|_| parameter.size == 8) else { return Ok(None) };
        let as_number = uses.arithmetic.contains(slot) && !uses.dereferences(slot);
        if !uses.slots.contains(slot) || uses.narrow.contains(slot) || as_number {
            return Ok(None);
        }
        let Some(kfunc) = spec.kernel.rdonly_cast else {
            return match number {
                _ if !uses.dereferences(slot) => Ok(None),
                Some(parameter) => Err(Refusal::NoRdonlyCast { parameter: parameter as usize }),
                None => Err(Refusal::NoRdonlyCastOfReturn),
            };
        };
        Ok(Some(Typed { kfunc, type_id, copy: asked_for.then(|| self.extra_word()) }))
    }

    fn extra_word(&mut self) -> u32 {
        self.words += 1;
        self.words - 1
    }
}

/// Refuses an array that would take more than all of the stack.
fn fits_the_stack(slots: u32, uses: &Uses) -> Result<(), Refusal> {
    if slots <= MAX_SLOTS {
        return Ok(());
    }
    let trampoline = slots.saturating_mul(8);
    Err(Refusal::StackOverflow { program: uses.stack, trampoline, limit: super::STACK_LIMIT })
}

/// Whether gathering it can fail.
fn reads_memory(located: &Located) -> bool {
    match &located.at {
        Location::Memory(..) => true,
        Location::Computed(computed) => computed.slots.iter().any(|program| Op::reads_memory(program)),
        _ => false,
    }
}

/// Whether its value depends on an address of the kernel's image.
fn is_in_the_image(located: &Located) -> bool {
    match &located.at {
        Location::Address(_) => true,
        Location::Computed(computed) => {
            computed.slots.iter().any(|program| program.iter().any(|op| matches!(op, Op::Address(_))))
        }
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
    // Sites whose locations differ in doubt alone share a trampoline.
    Some(Located::certain(located.size, located.signed, at))
}
