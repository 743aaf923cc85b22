// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The analysis itself: abstract execution of all paths until nothing changes.
//!
//! States are kept at jump targets and merged there; between them instructions are stepped through. A function is
//! analysed once per tuple of arguments that it is called with, its result remembered. If there are too many such
//! tuples they are coarsened, and a budget of steps bounds the whole: a program that exceeds it is refused, never
//! half-analysed.
//!
//! The frame of another function is not followed. A pointer into it that is passed on counts as something else; what
//! keeps that right is that the context is declared escaped when a frame that holds it becomes visible to another
//! function, and when it is stored anywhere but in the function's own frame.

use super::liveness::{Liveness, call_target, jump_target};
use super::validate::validate;
use super::value::{State, Value};
use super::{UserProgram, Uses};
use crate::bpf::helper::{self, Treatment};
use crate::bpf::insn::{Alu, Insn, atomic, class, mode};
use crate::site::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Steps after which a program counts as too complex; the verifier's own limit is a million.
const MAX_STEPS: u32 = 4_000_000;
/// Calls inside calls; the verifier allows 8 frames.
const MAX_DEPTH: usize = 8;
/// Argument tuples of one function after which numbers, then all offsets, are no longer told apart.
const MAX_NUMBERS: u32 = 32;
const MAX_TUPLES: u32 = 64;
/// The verifier's rounding of a frame's size where a JIT compiler is used, as on all kernels that matter.
const FRAME_ROUNDING: u32 = 16;

pub(super) fn analyse(program: &UserProgram) -> Result<Uses, Refusal> {
    let leaders = validate(program)?;
    let mut analysis = Analysis {
        program,
        leaders,
        liveness: Liveness::new(program),
        results: HashMap::new(),
        tuples: HashMap::new(),
        active: Vec::new(),
        callbacks: BTreeSet::new(),
        calls: BTreeSet::new(),
        helpers: BTreeSet::new(),
        kfuncs: BTreeSet::new(),
        has_callbacks: program.insns.iter().any(|insn| insn.is_subprogram_address()),
        escaped: false,
        steps: 0,
        uses: Uses::default(),
    };
    let mut arguments = [Value::UNKNOWN; 5];
    arguments[0] = Value::context();
    analysis.function(0, arguments)?;
    let mut done = BTreeSet::new();
    while let Some(callback) = analysis.callbacks.pop_first() {
        if done.insert(callback) {
            analysis.function(callback, [Value::UNKNOWN; 5])?;
        }
    }
    Ok(analysis.finish())
}

struct Analysis<'p> {
    program: &'p UserProgram,
    leaders: BTreeSet<usize>,
    liveness: Liveness<'p>,
    /// What each function returns, by the arguments that it was called with.
    results: HashMap<(usize, [Value; 5]), Value>,
    tuples: HashMap<usize, u32>,
    active: Vec<usize>,
    /// Functions whose address is taken, not analysed yet.
    callbacks: BTreeSet<usize>,
    calls: BTreeSet<(usize, usize)>,
    helpers: BTreeSet<(usize, u32)>,
    kfuncs: BTreeSet<(usize, i32)>,
    /// Whether the address of a function is taken anywhere.
    has_callbacks: bool,
    escaped: bool,
    steps: u32,
    uses: Uses,
}

impl Analysis<'_> {
    /// Analyses a function called with these arguments; gives what it returns.
    fn function(&mut self, start: usize, arguments: [Value; 5]) -> Result<Value, Refusal> {
        let tuples = *self.tuples.entry(start).or_default();
        let arguments = arguments.map(|argument| {
            if tuples < MAX_NUMBERS {
                argument
            } else if tuples < MAX_TUPLES {
                Value { number: None, ..argument }
            } else {
                Value { slots: 0, other: true, number: None, context: argument.context.moved(None), ..argument }
            }
        });
        let key = (start, arguments);
        if let Some(result) = self.results.get(&key) {
            return Ok(*result);
        }
        if self.active.contains(&start) {
            return Err(Refusal::Malformed { insn: start, what: "a function that calls itself" });
        }
        if self.active.len() >= MAX_DEPTH {
            return Err(Refusal::TooComplex);
        }
        self.tuples.insert(start, tuples.saturating_add(1));
        self.active.push(start);
        let result = self.paths(start, arguments)?;
        self.active.pop();
        self.results.insert(key, result);
        Ok(result)
    }

    fn paths(&mut self, start: usize, arguments: [Value; 5]) -> Result<Value, Refusal> {
        let mut result: Option<Value> = None;
        let mut states: BTreeMap<usize, State> = BTreeMap::from([(start, State::entry(arguments))]);
        let mut todo = BTreeSet::from([start]);
        while let Some(leader) = todo.pop_first() {
            let Some(mut state) = states.get(&leader).cloned() else { continue };
            let mut reach = |target: usize, state: &State| {
                let changed = match states.get_mut(&target) {
                    Some(known) => known.merge(state),
                    None => states.insert(target, state.clone()).is_none(),
                };
                if changed {
                    todo.insert(target);
                }
            };
            let mut at = leader;
            loop {
                self.steps += 1;
                if self.steps > MAX_STEPS {
                    return Err(Refusal::TooComplex);
                }
                let Some(&insn) = self.program.insns.get(at) else {
                    return Err(Refusal::Malformed { insn: at, what: "control runs off the end of the program" });
                };
                if insn.is_exit() {
                    let returned = state.registers[0].abroad();
                    result = Some(result.map_or(returned, |known| known.join(returned)));
                    break;
                }
                if insn.is_jump() {
                    if let Some(target) = jump_target(at, insn) {
                        reach(target, &state);
                    }
                    if insn.is_goto() {
                        break;
                    }
                } else {
                    self.step(start, &mut state, at, insn)?;
                }
                at += if insn.is_load64() { 2 } else { 1 };
                if self.leaders.contains(&at) {
                    reach(at, &state);
                    break;
                }
            }
        }
        Ok(result.unwrap_or(Value::UNKNOWN))
    }

    fn step(&mut self, function: usize, state: &mut State, at: usize, insn: Insn) -> Result<(), Refusal> {
        let (dst, src) = (usize::from(insn.dst()), usize::from(insn.src()));
        let value = match insn.class() {
            class::ALU | class::ALU64 => {
                let operand =
                    if insn.uses_source() { register(state, src) } else { Value::number(i64::from(insn.imm)) };
                Some(self.arithmetic(function, insn, register(state, dst), operand))
            }
            class::LD if insn.is_load64() => Some(self.immediate(function, at, insn)),
            class::LD => {
                clobber(state);
                None
            }
            class::LDX => {
                let bytes = insn.width().bytes();
                let value = self.read(function, state, register(state, src), insn.off, bytes, at)?;
                // What a sign-extending load gives is no longer the pointer that was stored.
                Some(if insn.mode() == mode::MEMSX { self.mangled(value) } else { value })
            }
            class::ST => {
                let value = Value::number(i64::from(insn.imm));
                self.write(function, state, register(state, dst), insn, value, at)?;
                None
            }
            class::STX if insn.mode() == mode::ATOMIC => {
                self.atomic(function, state, at, insn)?;
                None
            }
            class::STX => {
                self.write(function, state, register(state, dst), insn, register(state, src), at)?;
                None
            }
            _ if insn.is_call() => {
                self.call(function, state, at, insn)?;
                None
            }
            _ => None,
        };
        if let Some(value) = value {
            set_register(state, dst, value, at)?;
        }
        Ok(())
    }

    /// A value that was computed with in a way that no pointer survives.
    fn mangled(&mut self, value: Value) -> Value {
        mark(&mut self.uses.arithmetic, value.slots);
        Value::UNKNOWN
    }

    fn arithmetic(&mut self, function: usize, insn: Insn, left: Value, right: Value) -> Value {
        let wide = insn.class() == class::ALU64;
        let op = insn.op();
        if op == Alu::Mov as u8 {
            return match (wide, right.number) {
                (true, _) if insn.off == 0 => right,
                (false, Some(number)) if insn.off == 0 => Value::number(i64::from(number as u32)),
                _ => self.mangled(right),
            };
        }
        let adds = op == Alu::Add as u8;
        if wide && (adds || op == Alu::Sub as u8) {
            let by = right.number.and_then(|by| if adds { Some(by) } else { by.checked_neg() });
            let mut sum = left.moved(by);
            if by.is_none() {
                mark(&mut self.uses.arithmetic, left.slots);
                // An array on the stack, indexed: it begins where the pointer did.
                for place in left.stack.known() {
                    self.note_depth(function, *place);
                }
            }
            if adds && (right.slots != 0 || !right.context.is_none() || !right.stack.is_none()) {
                sum = sum.join(right.moved(left.number));
                if left.number.is_none() {
                    mark(&mut self.uses.arithmetic, right.slots);
                }
            } else {
                mark(&mut self.uses.arithmetic, right.slots);
            }
            let number = left.number.zip(by).map(|(left, by)| left.wrapping_add(by));
            return Value { number, other: sum.other || by.is_none(), ..sum };
        }
        let binary = op != Alu::Neg as u8 && op < 0xd0;
        if binary {
            self.mangled(right);
        }
        self.mangled(left)
    }

    fn immediate(&mut self, function: usize, at: usize, insn: Insn) -> Value {
        if insn.is_subprogram_address() {
            if let Some(target) = call_target(at, insn) {
                self.callbacks.insert(target);
                self.calls.insert((function, target));
            }
            return Value::UNKNOWN;
        }
        match (insn.src(), self.program.insns.get(at + 1)) {
            (0, Some(half)) => Value::number(i64::from(insn.imm as u32) | i64::from(half.imm) << 32),
            _ => Value::UNKNOWN,
        }
    }

    fn read(
        &mut self,
        function: usize,
        state: &State,
        base: Value,
        off: i16,
        bytes: u32,
        at: usize,
    ) -> Result<Value, Refusal> {
        let mut read: Option<Value> = None;
        let mut possible = |value: Value| read = Some(read.map_or(value, |known: Value| known.join(value)));
        if base.context.is_any() {
            self.uses.slots.insert_all();
            self.uses.narrow.insert_all();
            possible(Value::UNKNOWN);
        }
        for offset in base.context.known() {
            let start = offset + i32::from(off);
            match u32::try_from(start) {
                Ok(start) => possible(self.read_context(start, bytes)),
                // With several candidates, this one is the analysis's imprecision, or the verifier's to find.
                Err(_) if base.context.single().is_none() => possible(Value::UNKNOWN),
                Err(_) => return Err(Refusal::ReadsBeforeContext { insn: at, bytes: start.unsigned_abs() }),
            }
        }
        if base.stack.is_any() {
            possible(state.frame.values().fold(Value::UNKNOWN, |all, word| all.join(*word)));
        }
        for offset in base.stack.known() {
            let place = offset + i32::from(off);
            self.note_depth(function, place);
            if bytes == 8 && place % 8 == 0 {
                possible(state.word(place));
            } else {
                for word in words(place, bytes) {
                    mark(&mut self.uses.arithmetic, state.word(word).slots);
                }
                possible(Value::UNKNOWN);
            }
        }
        if base.slots != 0 {
            mark(&mut self.uses.dereferenced, base.slots);
            possible(Value::UNKNOWN);
        }
        if base.other {
            possible(Value::UNKNOWN);
        }
        Ok(read.unwrap_or(Value::UNKNOWN))
    }

    fn read_context(&mut self, start: u32, bytes: u32) -> Value {
        let (first, last) = (start / 8, (start + bytes - 1) / 8);
        for slot in first..=last {
            self.uses.slots.insert(slot);
        }
        if bytes == 8 && start.is_multiple_of(8) {
            return Value::slot(first);
        }
        for slot in first..=last {
            self.uses.narrow.insert(slot);
        }
        Value::UNKNOWN
    }

    fn write(
        &mut self,
        function: usize,
        state: &mut State,
        base: Value,
        insn: Insn,
        value: Value,
        at: usize,
    ) -> Result<(), Refusal> {
        if !base.context.is_none() {
            return Err(Refusal::ContextModified { insn: at });
        }
        let bytes = insn.width().bytes();
        let certain = base.certain_stack_offset().is_some();
        if !value.context.is_none() && (base.other || base.slots != 0 || base.stack.is_any() || base.stack.is_none()) {
            self.escape();
        }
        if base.stack.is_any() {
            state.blur_frame();
        }
        for offset in base.stack.known() {
            let place = offset + i32::from(insn.off);
            self.note_depth(function, place);
            if bytes == 8 && place % 8 == 0 {
                let stored = if certain { value } else { state.word(place).join(value) };
                state.set_word(place, stored);
            } else {
                for word in words(place, bytes) {
                    state.set_word(word, state.word(word).join(Value::UNKNOWN));
                }
                if !value.context.is_none() {
                    self.escape();
                }
            }
        }
        Ok(())
    }

    fn atomic(&mut self, function: usize, state: &mut State, at: usize, insn: Insn) -> Result<(), Refusal> {
        let (dst, src) = (usize::from(insn.dst()), usize::from(insn.src()));
        let bytes = insn.width().bytes();
        match insn.imm {
            atomic::LOAD_ACQ => {
                let value = self.read(function, state, register(state, src), insn.off, bytes, at)?;
                set_register(state, dst, value, at)
            }
            atomic::STORE_REL => self.write(function, state, register(state, dst), insn, register(state, src), at),
            op => {
                let base = register(state, dst);
                if !base.context.is_none() {
                    return Err(Refusal::ContextModified { insn: at });
                }
                let old = self.read(function, state, base, insn.off, bytes, at)?;
                // Exchanges store the operand; arithmetic on a pointer in memory is the verifier's to refuse.
                let new = register(state, src).join(old).join(Value::UNKNOWN);
                self.write(function, state, base, insn, new, at)?;
                if op == atomic::CMPXCHG {
                    set_register(state, 0, old, at)?;
                } else if op & atomic::FETCH != 0 {
                    set_register(state, src, old, at)?;
                }
                Ok(())
            }
        }
    }

    fn call(&mut self, function: usize, state: &mut State, at: usize, insn: Insn) -> Result<(), Refusal> {
        let reads = self.liveness.call_reads(at, insn);
        let mut arguments = [Value::UNKNOWN; 5];
        for (index, argument) in arguments.iter_mut().enumerate() {
            if reads & (2 << index) != 0 {
                *argument = register(state, index + 1);
            }
        }
        for offset in arguments.iter().flat_map(|argument| argument.stack.known().to_vec()) {
            self.note_depth(function, offset);
        }
        let sees_frame = arguments.iter().any(|argument| !argument.stack.is_none());
        // A kernel function can run only what it was given the address of.
        let runs_code =
            if insn.is_kfunc_call() { self.has_callbacks } else { insn.helper().is_none_or(helper::runs_callback) };
        if sees_frame && runs_code && state.frame_holds_context() {
            self.escape();
        }
        let mut returned = Value::UNKNOWN;
        if let Some(id) = insn.helper() {
            self.helper(at, id, &arguments)?;
        } else if insn.is_subprogram_call() {
            let target = call_target(at, insn).unwrap_or(0);
            self.calls.insert((function, target));
            if arguments.iter().any(|argument| !argument.context.is_none()) {
                self.uses.made_static.insert(target);
            }
            returned = self.function(target, arguments.map(Value::abroad))?;
        } else {
            self.kfuncs.insert((at, insn.imm));
            self.uses.wants_trusted = true;
            if arguments.iter().any(|argument| !argument.context.is_none()) {
                self.escape();
            }
        }
        if sees_frame {
            state.blur_frame();
        }
        clobber(state);
        state.registers[0] = returned;
        Ok(())
    }

    fn helper(&mut self, at: usize, id: u32, arguments: &[Value; 5]) -> Result<(), Refusal> {
        self.helpers.insert((at, id));
        let name = helper::name(id).unwrap_or("a helper");
        let treatment = helper::treatment(id);
        match treatment {
            Treatment::Refused(why) => return Err(Refusal::HelperNotAllowed { helper: name, insn: at, why }),
            Treatment::Plain | Treatment::Tracing | Treatment::Sleeps => {}
            _ => {
                let context = &arguments[0];
                if let Some(offset) = context.context.single().filter(|offset| *offset != 0 && !context.other) {
                    return Err(Refusal::DisplacedContext { insn: at, helper: name, offset });
                }
            }
        }
        let ordinary = match treatment {
            Treatment::Plain | Treatment::Tracing | Treatment::Sleeps => 0,
            _ => 1,
        };
        let passes = arguments.iter().skip(ordinary).any(|argument| argument.slots != 0);
        self.uses.wants_trusted |= helper::wants_trusted(id) || (passes && !helper::takes_numbers(id));
        if arguments.iter().skip(ordinary).any(|argument| !argument.context.is_none()) {
            self.escape();
        }
        let constant = |index: usize| arguments.get(index).and_then(|a| a.number).map(|number| number as u32);
        match treatment {
            Treatment::Context => self.uses.context = true,
            Treatment::Cookie => self.uses.cookie = true,
            Treatment::FuncIp => self.uses.func_ip = true,
            Treatment::FuncRet => self.uses.returned = true,
            // The program that is called gets the context, and may read all of it.
            Treatment::TailCall => self.escape(),
            Treatment::Site => self.uses.site = true,
            Treatment::FuncArgCount => self.uses.argument_count = true,
            Treatment::FuncArg => {
                match constant(1) {
                    Some(slot) => self.uses.indexed.insert(slot),
                    None => self.uses.indexed.insert_all(),
                }
                self.note_constants(at, [constant(1), Some(0)]);
            }
            Treatment::Argument => {
                match constant(1) {
                    Some(parameter) => self.uses.fallible.insert(parameter),
                    None => self.uses.fallible.insert_all(),
                }
                let slot = if id == helper::SITESEER_ARG { Some(0) } else { constant(2) };
                self.note_constants(at, [constant(1), slot]);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records the indices of an accessor call; those that differ between visits are not constant.
    fn note_constants(&mut self, at: usize, indices: [Option<u32>; 2]) {
        let known = self.uses.constant_indices.entry(at).or_insert(indices);
        for (known, index) in known.iter_mut().zip(indices) {
            if *known != index {
                *known = None;
            }
        }
    }

    fn note_depth(&mut self, function: usize, place: i32) {
        let depth = self.uses.frames.entry(function).or_default();
        if place < 0 {
            *depth = (*depth).max(place.unsigned_abs().next_multiple_of(8));
        }
    }

    /// The context went where it is not followed: any slot may be read.
    fn escape(&mut self) {
        self.escaped = true;
        self.uses.slots.insert_all();
    }

    fn finish(mut self) -> Uses {
        let starts = self.program.function_starts();
        for start in &starts {
            self.uses.frames.entry(*start).or_default();
        }
        self.uses.made_static.insert(0);
        if self.escaped {
            self.uses.made_static.extend(&starts);
        }
        for (at, id) in &self.helpers {
            if helper::treatment(*id) != Treatment::Plain {
                self.uses.made_static.extend(starts.range(..=at).next_back());
            }
        }
        self.uses.stack = self.deepest(0, 0, &mut BTreeMap::new());
        self.uses.helpers = self.helpers.iter().map(|(at, id)| (*id, *at)).collect();
        self.uses.kfuncs = self.kfuncs.iter().map(|(at, id)| (*id, *at)).collect();
        self.uses
    }

    /// Bytes of stack on the deepest path of calls from a function on.
    fn deepest(&self, function: usize, depth: usize, known: &mut BTreeMap<usize, u32>) -> u32 {
        if let Some(bytes) = known.get(&function) {
            return *bytes;
        }
        // Paths of calls deeper than that are refused by the verifier.
        if depth > MAX_DEPTH {
            return 0;
        }
        // A callback may refer to itself (a timer that rearms itself), which is not a call.
        known.insert(function, 0);
        let callees = self.calls.range((function, 0)..=(function, usize::MAX));
        let below = callees.map(|(_, callee)| self.deepest(*callee, depth + 1, known)).max().unwrap_or(0);
        let own = self.uses.frames.get(&function).copied().unwrap_or(0);
        let bytes = own.max(1).next_multiple_of(FRAME_ROUNDING) + below;
        known.insert(function, bytes);
        bytes
    }
}

fn register(state: &State, index: usize) -> Value {
    state.registers.get(index).copied().unwrap_or(Value::UNKNOWN)
}

fn set_register(state: &mut State, index: usize, value: Value, at: usize) -> Result<(), Refusal> {
    match state.registers.get_mut(index) {
        Some(register) if index != 10 => {
            *register = value;
            Ok(())
        }
        _ => Err(Refusal::Malformed { insn: at, what: "writes to the frame pointer" }),
    }
}

/// What a call does to the registers.
fn clobber(state: &mut State) {
    for register in state.registers.iter_mut().take(6) {
        *register = Value::UNKNOWN;
    }
}

/// Adds the slots of a bit mask to a set.
fn mark(set: &mut super::IndexSet, slots: u64) {
    for slot in (0..64).filter(|slot| slots >> slot & 1 != 0) {
        set.insert(slot);
    }
}

/// The words of the frame that an access touches.
fn words(place: i32, bytes: u32) -> impl Iterator<Item = i32> {
    let first = place.div_euclid(8) * 8;
    let last = (place + bytes as i32 - 1).div_euclid(8) * 8;
    (first..=last).step_by(8)
}
