// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The trampoline's own code: gathering the arguments.
//!
//! Register use: r6 holds the context, r7 to r9 belong to expressions (`expression`). r1 to r5 are for the moment, and
//! dead after any call.

use super::expression::significant_bits;
use super::layout::{Item, Layout};
use super::{OwnMap, Probe};
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Cond, Insn, Width, class, pseudo};
use crate::site::refusal::Refusal;
use crate::trampoline::arch::Arch;
use siteseer_sites::evaluate::extend;
use siteseer_sites::location::Location;
use siteseer_sites::machine::Register;

/// The trampoline, which ends where the user's program begins.
#[derive(Debug)]
pub(super) struct Trampoline {
    pub(super) insns: Vec<Insn>,
    /// The instructions that load the address of a map.
    pub(super) maps: Vec<(usize, OwnMap)>,
    /// What the instructions from an index on are for: the verifier's log shows it as source lines.
    pub(super) lines: Vec<(u32, String)>,
    /// Bytes of its frame.
    pub(super) stack: u32,
    pub(super) gpl_only: bool,
}

pub(super) const CONTEXT: u8 = 6;
pub(super) const FRAME: u8 = 10;
const EFAULT: i32 = 14;

/// With `alternatives`, one of them is gathered in place of the layout's own items.
pub(super) fn emit(layout: &Layout, alternatives: &[Vec<Item>]) -> Result<Trampoline, Refusal> {
    let array = -8 * layout.words as i32;
    let front = if layout.address {
        16
    } else if layout.context {
        8
    } else {
        0
    };
    let mut gather = Gather {
        arch: Arch::of(layout.machine),
        insns: Vec::new(),
        maps: Vec::new(),
        lines: Vec::new(),
        array,
        floor: array - front,
        scratch: 0,
        item_faults: Vec::new(),
        faults: Vec::new(),
        gpl_only: false,
    };
    gather.line("siteseer: the trampoline".to_owned());
    gather.push(Insn::mov(CONTEXT, 1));
    if let Some(session) = &layout.session {
        gather.session_entry(layout, session)?;
        gather.surroundings(layout)?;
        gather.session_return(layout, session)?;
    } else {
        gather.surroundings(layout)?;
        gather.one_of(alternatives, layout)?;
        for item in &layout.items {
            gather.described(item, layout)?;
        }
    }
    if let Some(result) = &layout.result {
        gather.described(result, layout)?;
    }
    gather.line("the program".to_owned());
    gather.address_of(1, array)?;
    let call = gather.insns.len();
    gather.push(Insn::call_subprogram(0));
    gather.finish(0);
    gather.lost(layout)?;
    let total = gather.insns.len();
    let distance = i32::try_from(total - call - 1).map_err(|_| Refusal::TooComplex)?;
    if let Some(insn) = gather.insns.get_mut(call) {
        insn.imm = distance;
    }
    Ok(Trampoline {
        insns: gather.insns,
        maps: gather.maps,
        lines: gather.lines,
        stack: (gather.scratch * 8 - gather.floor).unsigned_abs(),
        gpl_only: gather.gpl_only,
    })
}

pub(super) struct Gather {
    arch: &'static Arch,
    pub(super) insns: Vec<Insn>,
    /// The maps that instructions load.
    maps: Vec<(usize, OwnMap)>,
    lines: Vec<(u32, String)>,
    /// Offset of the array from the frame pointer.
    pub(super) array: i32,
    /// Below it is scratch.
    floor: i32,
    /// Words of scratch.
    scratch: i32,
    /// Jumps to be made where this argument cannot be read.
    pub(super) item_faults: Vec<usize>,
    /// Jumps to be made where an argument that the program relies on is not available.
    pub(super) faults: Vec<usize>,
    pub(super) gpl_only: bool,
}

impl Gather {
    pub(super) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    pub(super) fn line(&mut self, text: String) {
        let at = u32::try_from(self.insns.len()).unwrap_or(u32::MAX);
        // What the line before stands for took no instruction, and the kernel takes no two lines at one.
        self.lines.pop_if(|(last, _)| *last == at);
        self.lines.push((at, text));
    }

    /// What is kept before the array: the context and the address of the probe.
    fn surroundings(&mut self, layout: &Layout) -> Result<(), Refusal> {
        if layout.context {
            self.store(self.array - 8, CONTEXT)?;
        }
        if layout.address {
            let address = if layout.probe == Probe::Kprobe {
                self.probe_address(1);
                1
            } else {
                if layout.session.is_some() {
                    // Elsewhere it is there from the start.
                    self.push(Insn::mov(1, CONTEXT));
                }
                self.push(Insn::call(helper::GET_FUNC_IP));
                // For kprobe.multi programs alone it is free of the GPL.
                self.gpl_only |= layout.probe.is_tracing() || layout.probe == Probe::Kretprobe;
                0
            };
            self.store(self.array - 16, address)?;
        }
        Ok(())
    }

    /// Gathers an item, and says in the listing of source lines what it is.
    pub(super) fn described(&mut self, item: &Item, layout: &Layout) -> Result<(), Refusal> {
        let located = &item.located;
        let what = match item.parameter {
            Some(parameter) => format!("parameter {parameter}"),
            None => "the return value".to_owned(),
        };
        if layout.probe.is_tracing() {
            self.line(format!("{what}: from the context"));
            self.ask(item)
        } else {
            self.line(format!("{what}: {}", located.display(layout.machine)));
            self.item(item)
        }
    }

    /// Gets a value through the helpers that look into the context of a program of type TRACING: a tracing-multi
    /// program is verified without a function's prototype, and may not load from its context.
    fn ask(&mut self, item: &Item) -> Result<(), Refusal> {
        let located = &item.located;
        for slot in 0..located.slots() as u32 {
            let place = self.word(item.word + slot);
            self.push(Insn::mov(1, CONTEXT));
            if item.parameter.is_some() {
                self.push(Insn::mov_imm(2, (item.word + slot) as i32));
                self.address_of(3, place)?;
                self.push(Insn::call(helper::GET_FUNC_ARG));
            } else {
                self.address_of(2, place)?;
                self.push(Insn::call(helper::GET_FUNC_RET));
            }
            self.faults.push(self.insns.len());
            self.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
            let bits = slot_bits(located.size, slot);
            if bits < 64 || item.typed.is_some() {
                self.load(1, place)?;
                self.extend(1, bits, located.signed);
                self.deliver(item, slot, 1)?;
            }
        }
        Ok(())
    }

    /// The address of the kprobe, which is what the instruction pointer was before it was hit.
    fn probe_address(&mut self, dst: u8) {
        self.push(Insn::load(Width::D, dst, CONTEXT, self.arch.instruction_pointer));
        if self.arch.kprobe_bias != 0 {
            self.push(Insn::alu_imm(Alu::Add, dst, -self.arch.kprobe_bias));
        }
    }

    pub(super) fn item(&mut self, item: &Item) -> Result<(), Refusal> {
        let located = &item.located;
        let bits = |slot: u32| slot_bits(located.size, slot);
        if let Some(state) = item.state {
            // The slots are initialised for the verifier, which need not see that nobody reads them.
            self.store_imm(self.word(state), 0)?;
            for slot in 0..located.slots() as u32 {
                self.store_imm(self.word(item.word + slot), 0)?;
            }
        }
        match &located.at {
            Location::Constant(value) | Location::Address(value) => {
                let value = extend(*value, bits(0), located.signed);
                match i32::try_from(value as i64) {
                    Ok(imm) if item.typed.is_none() => self.store_imm(self.word(item.word), imm)?,
                    _ => {
                        self.constant(1, value);
                        self.deliver(item, 0, 1)?;
                    }
                }
            }
            Location::Register(register) => {
                self.register(1, *register, bits(0), located.signed, item)?;
                self.deliver(item, 0, 1)?;
            }
            Location::RegisterPair(first, second) => {
                for (slot, register) in [(0, *first), (1, *second)] {
                    self.register(1, register, bits(slot), located.signed, item)?;
                    self.deliver(item, slot, 1)?;
                }
            }
            Location::RegisterOffset(register, offset) => {
                self.register(1, *register, 64, false, item)?;
                self.push(Insn::alu_imm(Alu::Add, 1, *offset));
                self.extend(1, bits(0), located.signed);
                self.deliver(item, 0, 1)?;
            }
            Location::Memory(register, offset) => self.memory(item, *register, *offset)?,
            Location::Computed(computed) => {
                for (slot, program) in (0u32..).zip(&computed.slots) {
                    let result = self.expression(program, item)?;
                    let canonical = significant_bits(program) + u32::from(located.signed) <= bits(slot);
                    if !canonical {
                        self.extend(result, bits(slot), located.signed);
                    }
                    self.deliver(item, slot, result)?;
                }
            }
        }
        let faults = std::mem::take(&mut self.item_faults);
        match item.state {
            Some(state) => {
                self.push(Insn::jump(1));
                let here = self.insns.len();
                for jump in faults {
                    self.land(jump, here)?;
                }
                self.store_imm(self.word(state), -EFAULT)?;
            }
            None => self.faults.extend(faults),
        }
        Ok(())
    }

    /// Stores a finished value in its slot, with its type if it has one.
    pub(super) fn deliver(&mut self, item: &Item, slot: u32, value: u8) -> Result<(), Refusal> {
        let place = self.word(item.word + slot);
        let Some(typed) = &item.typed else {
            return self.store(place, value);
        };
        if let Some(copy) = typed.copy {
            self.store(self.word(copy), value)?;
        }
        if value != 1 {
            self.push(Insn::mov(1, value));
        }
        self.constant(2, u64::from(typed.type_id));
        self.push(Insn::call_kfunc(typed.kfunc));
        self.gpl_only = true;
        self.store(place, 0)
    }

    /// Loads a register's value at the probe, extended from its low bits.
    pub(super) fn register(
        &mut self,
        dst: u8,
        register: Register,
        bits: u32,
        signed: bool,
        item: &Item,
    ) -> Result<(), Refusal> {
        let malformed = item.malformed();
        let offset = self.arch.register_offset(register).ok_or(malformed)?;
        let is_pointer = self.arch.instruction_pointer_register == Some(register);
        let narrow = Width::of_bytes(bits / 8).filter(|_| bits.is_multiple_of(8) && !signed && !is_pointer);
        if let Some(width) = narrow {
            self.push(Insn::load(width, dst, CONTEXT, offset));
            return Ok(());
        }
        if is_pointer {
            self.probe_address(dst);
        } else {
            self.push(Insn::load(Width::D, dst, CONTEXT, offset));
        }
        self.extend(dst, bits, signed);
        Ok(())
    }

    /// Reads memory straight into the slots.
    fn memory(&mut self, item: &Item, register: Register, offset: i32) -> Result<(), Refusal> {
        let size = item.located.size;
        let (last, rest) = (item.word + (size - 1) / 8, size % 8);
        if rest != 0 && item.state.is_none() {
            self.store_imm(self.word(last), 0)?;
        }
        self.register(3, register, 64, false, item)?;
        if offset != 0 {
            self.push(Insn::alu_imm(Alu::Add, 3, offset));
        }
        self.address_of(1, self.word(item.word))?;
        self.read_kernel(size)?;
        if rest != 0 && item.located.signed {
            self.load(1, self.word(last))?;
            self.extend(1, rest * 8, true);
            self.store(self.word(last), 1)?;
        }
        if item.typed.is_some() {
            self.load(1, self.word(item.word))?;
            self.deliver(item, 0, 1)?;
        }
        Ok(())
    }

    /// `bpf_probe_read_kernel(r1, size, r3)`, with a jump where it fails.
    pub(super) fn read_kernel(&mut self, size: u32) -> Result<(), Refusal> {
        self.constant(2, u64::from(size));
        self.push(Insn::call(helper::PROBE_READ_KERNEL));
        self.gpl_only = true;
        self.item_faults.push(self.insns.len());
        self.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
        Ok(())
    }

    /// Reduces a register to its low bits and extends them.
    pub(super) fn extend(&mut self, register: u8, bits: u32, signed: bool) {
        match (bits, signed) {
            (64.., _) => {}
            (0, _) => self.push(Insn::mov_imm(register, 0)),
            (32, false) => {
                // A 32-bit move clears the upper half.
                let code = class::ALU | 0x08 | Alu::Mov as u8;
                self.push(Insn::new(code, register, register, 0, 0));
            }
            (1..=31, false) => self.push(Insn::alu_imm(Alu::And, register, ((1u32 << bits) - 1) as i32)),
            _ => {
                let away = 64 - bits as i32;
                self.push(Insn::alu_imm(Alu::Lsh, register, away));
                self.push(Insn::alu_imm(if signed { Alu::Arsh } else { Alu::Rsh }, register, away));
            }
        }
    }

    pub(super) fn constant(&mut self, register: u8, value: u64) {
        if fits(value) {
            self.push(Insn::mov_imm(register, value as i32));
        } else if let Ok(value) = u32::try_from(value) {
            // A 32-bit move zero-extends.
            self.push(Insn::new(class::ALU | Alu::Mov as u8, register, 0, 0, value as i32));
        } else {
            self.insns.extend(Insn::load64(register, 0, value));
        }
    }

    pub(super) fn word(&self, word: u32) -> i32 {
        self.array + 8 * word as i32
    }

    /// A word of scratch; the first is the buffer of reads, the others are places of expressions.
    pub(super) fn scratch_word(&mut self, index: usize) -> i32 {
        let words = index as i32 + 1;
        self.scratch = self.scratch.max(words);
        self.floor - 8 * words
    }

    pub(super) fn address_of(&mut self, register: u8, place: i32) -> Result<(), Refusal> {
        near(place)?;
        self.push(Insn::mov(register, FRAME));
        self.push(Insn::alu_imm(Alu::Add, register, place));
        Ok(())
    }

    pub(super) fn load(&mut self, register: u8, place: i32) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::load(Width::D, register, FRAME, place));
        Ok(())
    }

    pub(super) fn store(&mut self, place: i32, register: u8) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::store(Width::D, FRAME, place, register));
        Ok(())
    }

    pub(super) fn store_imm(&mut self, place: i32, imm: i32) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::store_imm(Width::D, FRAME, place, imm));
        Ok(())
    }

    pub(super) fn land(&mut self, jump: usize, target: usize) -> Result<(), Refusal> {
        let distance = target as i64 - jump as i64 - 1;
        match self.insns.get_mut(jump) {
            Some(insn) => {
                *insn = insn.with_jump_distance(distance).ok_or(Refusal::TooComplex)?;
                Ok(())
            }
            None => Err(Refusal::TooComplex),
        }
    }

    /// The end. What a kprobe program returns says whether perf is to record a sample: never. What a session's program
    /// returns at the entry says whether it is to be run at the return as well: 0 for yes.
    pub(super) fn finish(&mut self, value: i32) {
        self.push(Insn::mov_imm(0, value));
        self.push(Insn::exit());
    }

    /// Where a call is lost because something that the program reads is not available.
    fn lost(&mut self, layout: &Layout) -> Result<(), Refusal> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let here = self.insns.len();
        for jump in std::mem::take(&mut self.faults) {
            self.land(jump, here)?;
        }
        self.line("an argument is not available: the program does not run, and the loss is counted".to_owned());
        if layout.counts_faults {
            let key = self.scratch_word(0);
            self.push(Insn::store_imm(Width::W, FRAME, near(key)?, 0));
            self.address_of(2, key)?;
            self.map(1, OwnMap::Faults);
            self.push(Insn::call(helper::MAP_LOOKUP_ELEM));
            self.push(Insn::jump_if_imm(Cond::Eq, 0, 0, 2));
            self.push(Insn::mov_imm(1, 1));
            self.push(Insn::atomic_add(0, 0, 1));
        }
        self.finish(i32::from(layout.session.is_some()));
        Ok(())
    }

    /// Loads a map's address.
    pub(super) fn map(&mut self, register: u8, map: OwnMap) {
        self.maps.push((self.insns.len(), map));
        self.insns.extend(Insn::load64(register, pseudo::MAP_FD, 0));
    }
}

/// How many bits of a value of so many bytes are in a slot of it.
pub(super) fn slot_bits(size: u32, slot: u32) -> u32 {
    (size - (8 * slot).min(size)).min(8) * 8
}

/// Whether an immediate, which is sign-extended, can hold the value.
pub(super) fn fits(value: u64) -> bool {
    i32::try_from(value as i64).is_ok()
}

/// A place in the frame as an instruction's offset, which it always is unless the frame is too large.
pub(super) fn near(place: i32) -> Result<i16, Refusal> {
    let limit = super::STACK_LIMIT;
    match i16::try_from(place) {
        Ok(place) if place >= -(limit as i16) => Ok(place),
        _ => Err(Refusal::StackOverflow { program: 0, trampoline: place.unsigned_abs(), limit }),
    }
}
