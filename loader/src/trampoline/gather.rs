// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The trampoline's own code: gathering the arguments.
//!
//! Register use: r6 holds the context. r7 to r9 are the first three places of an expression's stack; they survive
//! calls, so a memory read in the middle of an expression needs no spilling. Deeper places are words of scratch. r1
//! to r5 are for the moment, and dead after any call. Constants are not put anywhere until an operation needs them,
//! and operations on constants alone are done here.

use super::Probe;
use super::layout::{Item, Layout};
use crate::arch::Arch;
use crate::helper;
use crate::insn::{Alu, Cond, Insn, Width, class, pseudo};
use crate::refusal::Refusal;
use siteseer_sites::evaluate::{binary, extend};
use siteseer_sites::location::{Location, Op};
use siteseer_sites::machine::Register;

/// The trampoline, which ends where the user's program begins.
#[derive(Debug)]
pub(super) struct Trampoline {
    pub(super) insns: Vec<Insn>,
    /// What the instructions from an index on are for: the verifier's log shows it as source lines.
    pub(super) lines: Vec<(u32, String)>,
    /// Bytes of its frame.
    pub(super) stack: u32,
    pub(super) gpl_only: bool,
}

const CONTEXT: u8 = 6;
const FRAME: u8 = 10;
/// Where an expression's first places are.
const PLACES: [u8; 3] = [7, 8, 9];
const EFAULT: i32 = 14;

pub(super) fn emit(layout: &Layout) -> Result<Trampoline, Refusal> {
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
        lines: Vec::new(),
        array,
        floor: array - front,
        scratch: 0,
        item_faults: Vec::new(),
        faults: Vec::new(),
        gpl_only: false,
    };
    gather.prologue(layout)?;
    for item in &layout.items {
        let text = format!("parameter {}: {}", item.parameter, item.located.display(layout.machine));
        gather.line(text);
        gather.item(item)?;
    }
    gather.line("the program".to_owned());
    gather.address_of(1, array)?;
    let call = gather.insns.len();
    gather.push(Insn::call_subprogram(0));
    gather.finish();
    gather.lost(layout.fault_map)?;
    let total = gather.insns.len();
    let distance = i32::try_from(total - call - 1).map_err(|_| Refusal::TooComplex)?;
    if let Some(insn) = gather.insns.get_mut(call) {
        insn.imm = distance;
    }
    Ok(Trampoline {
        insns: gather.insns,
        lines: gather.lines,
        stack: (gather.scratch * 8 - gather.floor).unsigned_abs(),
        gpl_only: gather.gpl_only,
    })
}

/// One value of an expression's stack.
#[derive(Clone, Copy)]
enum Entry {
    Constant(u64),
    /// In the place that belongs to its depth.
    Placed,
}

struct Gather {
    arch: &'static Arch,
    insns: Vec<Insn>,
    lines: Vec<(u32, String)>,
    /// Offset of the array from the frame pointer.
    array: i32,
    /// Below it is scratch.
    floor: i32,
    /// Words of scratch.
    scratch: i32,
    /// Jumps to be made where this argument cannot be read.
    item_faults: Vec<usize>,
    /// Jumps to be made where an argument that the program relies on cannot be read.
    faults: Vec<usize>,
    gpl_only: bool,
}

impl Gather {
    fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    fn line(&mut self, text: String) {
        let at = u32::try_from(self.insns.len()).unwrap_or(u32::MAX);
        self.lines.push((at, text));
    }

    fn prologue(&mut self, layout: &Layout) -> Result<(), Refusal> {
        self.line("siteseer: the trampoline".to_owned());
        self.push(Insn::mov(CONTEXT, 1));
        if layout.context {
            self.store(self.array - 8, CONTEXT)?;
        }
        if layout.address {
            match layout.probe {
                Probe::KprobeMulti => {
                    self.push(Insn::call(helper::GET_FUNC_IP));
                    self.store(self.array - 16, 0)?;
                }
                _ => {
                    self.probe_address(1);
                    self.store(self.array - 16, 1)?;
                }
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

    fn item(&mut self, item: &Item) -> Result<(), Refusal> {
        let located = &item.located;
        let bits = |slot: u32| (located.size - (8 * slot).min(located.size)).min(8) * 8;
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
    fn deliver(&mut self, item: &Item, slot: u32, value: u8) -> Result<(), Refusal> {
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
    fn register(&mut self, dst: u8, register: Register, bits: u32, signed: bool, item: &Item) -> Result<(), Refusal> {
        let malformed = Refusal::MalformedLocation { parameter: item.parameter as usize };
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
    fn read_kernel(&mut self, size: u32) -> Result<(), Refusal> {
        self.constant(2, u64::from(size));
        self.push(Insn::call(helper::PROBE_READ_KERNEL));
        self.gpl_only = true;
        self.item_faults.push(self.insns.len());
        self.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
        Ok(())
    }

    /// Computes an expression; gives the register that holds the result.
    fn expression(&mut self, program: &[Op], item: &Item) -> Result<u8, Refusal> {
        let malformed = || Refusal::MalformedLocation { parameter: item.parameter as usize };
        let mut stack: Vec<Entry> = Vec::new();
        for op in program {
            let entry = match op.arity() {
                0 => match *op {
                    Op::Constant(value) | Op::Address(value) => Entry::Constant(value),
                    Op::Register(register) => {
                        let depth = stack.len();
                        let work = work_register(depth);
                        self.register(work, register, 64, false, item)?;
                        self.put(depth, work)?
                    }
                    _ => return Err(malformed()),
                },
                1 => {
                    let top = stack.pop().ok_or_else(malformed)?;
                    self.unary(*op, stack.len(), top)?.ok_or_else(malformed)?
                }
                _ => {
                    let top = stack.pop().ok_or_else(malformed)?;
                    let second = stack.pop().ok_or_else(malformed)?;
                    match (second, top) {
                        (Entry::Constant(second), Entry::Constant(top)) => {
                            Entry::Constant(binary(*op, second, top).ok_or_else(malformed)?)
                        }
                        _ => self.binary(*op, stack.len(), second, top)?.ok_or_else(malformed)?,
                    }
                }
            };
            stack.push(entry);
        }
        match stack[..] {
            [entry] => self.fetch(0, entry, work_register(0)),
            _ => Err(malformed()),
        }
    }

    fn unary(&mut self, op: Op, depth: usize, top: Entry) -> Result<Option<Entry>, Refusal> {
        if let Entry::Constant(value) = top {
            let folded = match op {
                Op::ZeroExtend(bits) => Some(extend(value, u32::from(bits), false)),
                Op::SignExtend(bits) => Some(extend(value, u32::from(bits), true)),
                Op::Neg => Some(value.wrapping_neg()),
                Op::Not => Some(!value),
                _ => None,
            };
            if let Some(value) = folded {
                return Ok(Some(Entry::Constant(value)));
            }
        }
        let work = work_register(depth);
        match op {
            Op::Load(bytes) => {
                let Some(width) = Width::of_bytes(u32::from(bytes)) else { return Ok(None) };
                let address = self.fetch(depth, top, 3)?;
                if address != 3 {
                    self.push(Insn::mov(3, address));
                }
                let buffer = self.scratch_word(0);
                self.address_of(1, buffer)?;
                self.read_kernel(width.bytes())?;
                self.push(Insn::load(width, work, FRAME, near(buffer)?));
            }
            _ => {
                let value = self.fetch(depth, top, work)?;
                if value != work {
                    self.push(Insn::mov(work, value));
                }
                match op {
                    Op::ZeroExtend(bits) => self.extend(work, u32::from(bits), false),
                    Op::SignExtend(bits) => self.extend(work, u32::from(bits), true),
                    Op::Neg => self.push(Insn::alu_imm(Alu::Neg, work, 0)),
                    Op::Not => self.push(Insn::alu_imm(Alu::Xor, work, -1)),
                    _ => return Ok(None),
                }
            }
        }
        self.put(depth, work).map(Some)
    }

    fn binary(&mut self, op: Op, depth: usize, second: Entry, top: Entry) -> Result<Option<Entry>, Refusal> {
        let work = work_register(depth);
        let left = self.fetch(depth, second, work)?;
        if left != work {
            self.push(Insn::mov(work, left));
        }
        match op {
            Op::Shl => self.shift(Alu::Lsh, work, depth + 1, top)?,
            Op::Shr => self.shift(Alu::Rsh, work, depth + 1, top)?,
            Op::Sar => self.shift(Alu::Arsh, work, depth + 1, top)?,
            Op::Add => self.plain(Alu::Add, work, depth + 1, top)?,
            Op::Sub => self.plain(Alu::Sub, work, depth + 1, top)?,
            Op::Mul => self.plain(Alu::Mul, work, depth + 1, top)?,
            Op::And => self.plain(Alu::And, work, depth + 1, top)?,
            Op::Or => self.plain(Alu::Or, work, depth + 1, top)?,
            Op::Xor => self.plain(Alu::Xor, work, depth + 1, top)?,
            // The verifier refuses a division by a constant 0, whose result BPF defines nevertheless.
            Op::DivU if matches!(top, Entry::Constant(0)) => self.push(Insn::mov_imm(work, 0)),
            Op::ModU if matches!(top, Entry::Constant(0)) => {}
            Op::DivU => self.plain(Alu::Div, work, depth + 1, top)?,
            Op::ModU => self.plain(Alu::Mod, work, depth + 1, top)?,
            Op::Eq => self.compare(Cond::Eq, work, depth + 1, top)?,
            Op::Ne => self.compare(Cond::Ne, work, depth + 1, top)?,
            Op::LtS => self.compare(Cond::SLt, work, depth + 1, top)?,
            Op::LeS => self.compare(Cond::SLe, work, depth + 1, top)?,
            Op::LtU => self.compare(Cond::Lt, work, depth + 1, top)?,
            Op::LeU => self.compare(Cond::Le, work, depth + 1, top)?,
            _ => return Ok(None),
        }
        self.put(depth, work).map(Some)
    }

    fn plain(&mut self, op: Alu, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        match top {
            Entry::Constant(value) if fits(value) => {
                self.push(Insn::alu_imm(op, work, value as i32));
            }
            _ => {
                let right = self.fetch(depth, top, 2)?;
                self.push(Insn::alu(op, work, right));
            }
        }
        Ok(())
    }

    /// A shift, with amounts of 64 and more as the model defines them; BPF itself takes the amount modulo 64.
    fn shift(&mut self, op: Alu, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        let arithmetic = op == Alu::Arsh;
        match top {
            Entry::Constant(0) => {}
            Entry::Constant(amount @ 1..=63) => self.push(Insn::alu_imm(op, work, amount as i32)),
            Entry::Constant(_) if arithmetic => self.push(Insn::alu_imm(op, work, 63)),
            Entry::Constant(_) => self.push(Insn::mov_imm(work, 0)),
            Entry::Placed => {
                let amount = self.fetch(depth, top, 2)?;
                if amount != 2 {
                    self.push(Insn::mov(2, amount));
                }
                if arithmetic {
                    self.push(Insn::jump_if_imm(Cond::Le, 2, 63, 1));
                    self.push(Insn::mov_imm(2, 63));
                    self.push(Insn::alu(op, work, 2));
                } else {
                    self.push(Insn::jump_if_imm(Cond::Le, 2, 63, 2));
                    self.push(Insn::mov_imm(work, 0));
                    self.push(Insn::jump(1));
                    self.push(Insn::alu(op, work, 2));
                }
            }
        }
        Ok(())
    }

    /// 1 if the comparison holds, else 0.
    fn compare(&mut self, cond: Cond, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        let right = match top {
            Entry::Constant(value) if i32::try_from(value).is_ok() => Err(value as i32),
            _ => Ok(self.fetch(depth, top, 2)?),
        };
        self.push(Insn::mov_imm(3, 1));
        self.push(match right {
            Ok(register) => Insn::jump_if(cond, work, register, 1),
            Err(imm) => Insn::jump_if_imm(cond, work, imm, 1),
        });
        self.push(Insn::mov_imm(3, 0));
        self.push(Insn::mov(work, 3));
        Ok(())
    }

    /// The register that holds a value: its place, or `temporary` after loading it there.
    fn fetch(&mut self, depth: usize, entry: Entry, temporary: u8) -> Result<u8, Refusal> {
        match (entry, PLACES.get(depth)) {
            (Entry::Constant(value), _) => {
                self.constant(temporary, value);
                Ok(temporary)
            }
            (Entry::Placed, Some(register)) => Ok(*register),
            (Entry::Placed, None) => {
                let place = self.scratch_word(depth + 1 - PLACES.len());
                self.load(temporary, place)?;
                Ok(temporary)
            }
        }
    }

    /// Puts a value that is in the work register of its depth into its place.
    fn put(&mut self, depth: usize, work: u8) -> Result<Entry, Refusal> {
        if depth >= PLACES.len() {
            let place = self.scratch_word(depth + 1 - PLACES.len());
            self.store(place, work)?;
        }
        Ok(Entry::Placed)
    }

    /// Reduces a register to its low bits and extends them.
    fn extend(&mut self, register: u8, bits: u32, signed: bool) {
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

    fn constant(&mut self, register: u8, value: u64) {
        if fits(value) {
            self.push(Insn::mov_imm(register, value as i32));
        } else if let Ok(value) = u32::try_from(value) {
            // A 32-bit move zero-extends.
            self.push(Insn::new(class::ALU | Alu::Mov as u8, register, 0, 0, value as i32));
        } else {
            self.insns.extend(Insn::load64(register, 0, value));
        }
    }

    fn word(&self, word: u32) -> i32 {
        self.array + 8 * word as i32
    }

    /// A word of scratch; the first is the buffer of reads, the others are places of expressions.
    fn scratch_word(&mut self, index: usize) -> i32 {
        let words = index as i32 + 1;
        self.scratch = self.scratch.max(words);
        self.floor - 8 * words
    }

    fn address_of(&mut self, register: u8, place: i32) -> Result<(), Refusal> {
        near(place)?;
        self.push(Insn::mov(register, FRAME));
        self.push(Insn::alu_imm(Alu::Add, register, place));
        Ok(())
    }

    fn load(&mut self, register: u8, place: i32) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::load(Width::D, register, FRAME, place));
        Ok(())
    }

    fn store(&mut self, place: i32, register: u8) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::store(Width::D, FRAME, place, register));
        Ok(())
    }

    fn store_imm(&mut self, place: i32, imm: i32) -> Result<(), Refusal> {
        let place = near(place)?;
        self.push(Insn::store_imm(Width::D, FRAME, place, imm));
        Ok(())
    }

    fn land(&mut self, jump: usize, target: usize) -> Result<(), Refusal> {
        let distance = target as i64 - jump as i64 - 1;
        match self.insns.get_mut(jump) {
            Some(insn) => {
                *insn = insn.with_jump_distance(distance).ok_or(Refusal::TooComplex)?;
                Ok(())
            }
            None => Err(Refusal::TooComplex),
        }
    }

    fn finish(&mut self) {
        // The return value of a kprobe program says whether perf is to record a sample: never.
        self.push(Insn::mov_imm(0, 0));
        self.push(Insn::exit());
    }

    /// Where a call is lost because memory could not be read.
    fn lost(&mut self, map: Option<i32>) -> Result<(), Refusal> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let here = self.insns.len();
        for jump in std::mem::take(&mut self.faults) {
            self.land(jump, here)?;
        }
        self.line("an argument could not be read: the program is not run, the loss is counted".to_owned());
        if let Some(map) = map {
            let key = self.scratch_word(0);
            self.push(Insn::store_imm(Width::W, FRAME, near(key)?, 0));
            self.address_of(2, key)?;
            self.insns.extend(Insn::load64(1, pseudo::MAP_FD, u64::from(map as u32)));
            self.push(Insn::call(helper::MAP_LOOKUP_ELEM));
            self.push(Insn::jump_if_imm(Cond::Eq, 0, 0, 2));
            self.push(Insn::mov_imm(1, 1));
            self.push(Insn::atomic_add(0, 0, 1));
        }
        self.finish();
        Ok(())
    }
}

/// How many low bits a program's result can have set, as far as its last steps tell.
fn significant_bits(program: &[Op]) -> u32 {
    match program {
        [.., Op::Constant(mask), Op::And] => u64::BITS - mask.leading_zeros(),
        [.., Op::ZeroExtend(bits)] => u32::from(*bits),
        [.., Op::Load(bytes)] => u32::from(*bytes) * 8,
        [.., Op::Eq | Op::Ne | Op::LtS | Op::LeS | Op::LtU | Op::LeU] => 1,
        _ => u64::BITS,
    }
}

/// The register that a value of some depth is computed in.
fn work_register(depth: usize) -> u8 {
    PLACES.get(depth).copied().unwrap_or(1)
}

/// Whether an immediate, which is sign-extended, can hold the value.
fn fits(value: u64) -> bool {
    i32::try_from(value as i64).is_ok()
}

/// A place in the frame as an instruction's offset, which it always is unless the frame is too large.
fn near(place: i32) -> Result<i16, Refusal> {
    let limit = super::STACK_LIMIT;
    match i16::try_from(place) {
        Ok(place) if place >= -(limit as i16) => Ok(place),
        _ => Err(Refusal::StackOverflow { program: 0, trampoline: place.unsigned_abs(), limit }),
    }
}
