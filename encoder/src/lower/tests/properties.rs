// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Random expressions against gimli's evaluator, on random registers and memory.

use super::*;

fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Registers and memory with arbitrary but fixed contents; some registers have small or negative values, which
/// comparisons, shifts and divisions care about.
#[derive(Debug, Clone, Copy)]
struct State {
    seed: u64,
    displacement: u64,
}

impl State {
    fn register(&self, number: Register) -> u64 {
        let value = mix(self.seed ^ u64::from(number) << 32);
        match value >> 61 {
            0 => value & 0x3f,
            1 => (value & 0x3f).wrapping_neg(),
            2 => value & 0xffff_ffff,
            _ => value,
        }
    }
    fn byte(&self, address: u64) -> u8 {
        mix(self.seed.rotate_left(17) ^ mix(address)) as u8
    }
    fn memory(&self, address: u64, size: u8) -> u64 {
        (0..u64::from(size)).rev().fold(0, |value, i| value << 8 | u64::from(self.byte(address.wrapping_add(i))))
    }
    fn linked(&self, address: u64) -> u64 {
        if PROBE.meaning(address) == Meaning::Image { address.wrapping_add(self.displacement) } else { address }
    }
}

fn value_type(base_type: UnitOffset) -> gimli::ValueType {
    use gimli::ValueType::*;
    match base_type.0 {
        0 => Generic,
        n => [I8, U8, I16, U16, I32, U32, I64, U64][n - 1],
    }
}

/// What gimli's evaluator finds: the bytes of the value, `None` where it fails.
fn reference(bytes: &[u8], ty: &ParamType, state: &State) -> Option<Vec<u8>> {
    let frame = |(register, offset): (Register, i64)| state.register(register).wrapping_add(offset as u64);
    let mut evaluation = Expression(EndianSlice::new(bytes, LittleEndian)).evaluation(ENCODING);
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size, base_type, space: None } => {
                let value = Value::from_u64(value_type(base_type), state.memory(address, size)).ok()?;
                evaluation.resume_with_memory(value)
            }
            EvaluationResult::RequiresRegister { register, base_type } => {
                let value = Value::from_u64(value_type(base_type), state.register(register.0)).ok()?;
                evaluation.resume_with_register(value)
            }
            EvaluationResult::RequiresFrameBase => evaluation.resume_with_frame_base(frame(FRAME)),
            EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(frame(CFA)),
            EvaluationResult::RequiresRelocatedAddress(address) => {
                evaluation.resume_with_relocated_address(state.linked(address))
            }
            EvaluationResult::RequiresBaseType(offset) => evaluation.resume_with_base_type(value_type(offset)),
            other => panic!("not in the grammar: {other:?}"),
        }
        .ok()?;
    }
    let size_in_bits = u64::from(ty.size) * 8;
    let mut value = vec![0u8; ty.size as usize];
    let mut at = 0u64;
    for piece in evaluation.result() {
        let bits = piece.size_in_bits.unwrap_or(size_in_bits);
        let offset = piece.bit_offset.unwrap_or(0);
        for i in 0..bits.min(size_in_bits.saturating_sub(at)) {
            let from = offset + i;
            let word = |word: u64| (from < 64).then(|| word >> from & 1);
            let bit = match piece.location {
                gimli::Location::Empty => None,
                gimli::Location::Register { register } => word(state.register(register.0)),
                gimli::Location::Value { value } => word(value.to_u64(u64::MAX).ok()?),
                gimli::Location::Address { address } => {
                    Some(u64::from(state.byte(address.wrapping_add(from / 8)) >> (from % 8) & 1))
                }
                gimli::Location::Bytes { value } => {
                    value.slice().get(from as usize / 8).map(|byte| u64::from(byte >> (from % 8) & 1))
                }
                gimli::Location::ImplicitPointer { .. } => None,
            }?;
            value[((at + i) / 8) as usize] |= (bit as u8) << ((at + i) % 8);
        }
        at += bits;
    }
    (at >= size_in_bits).then_some(value)
}

/// The bytes of the value, from the slots of the lowered location; checks that the slots are extended.
fn lowered_bytes(located: &Located, state: &State) -> Vec<u8> {
    let mut memory = |address: u64, buffer: &mut [u8]| {
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = state.byte(address.wrapping_add(i as u64));
        }
        true
    };
    let slots = evaluate(located, &|r| state.register(r), &mut memory, state.displacement).expect("well formed");
    let mut bytes: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
    let above = bytes.split_off(located.size as usize);
    let sign = located.signed && bytes.last().is_some_and(|byte| *byte >= 0x80);
    assert!(above.iter().all(|byte| *byte == if sign { 0xff } else { 0 }));
    bytes
}

/// Writes expressions that are valid from arbitrary numbers: one number, one operation.
#[derive(Default)]
struct Writer {
    code: Code,
    /// Base types (0 is the generic type) of what is on the stack.
    stack: Vec<u8>,
}

/// What numbers are taken as: they include those at which masks, shifts and signs turn.
fn interesting(choice: u64) -> u64 {
    let number = choice >> 8;
    match choice & 7 {
        0 => number & 0x3f,
        1 => 1u64.checked_shl((number & 0x3f) as u32).unwrap_or(0).wrapping_sub(number >> 6 & 1),
        2 => (number & 0xff).wrapping_neg(),
        3 => [0xff, 0xffff, 0xffff_ffff, 0xff00, 0xf0f0, u64::MAX, 0x8000_0000, 1 << 63][(number & 7) as usize],
        4 => number & 0xffff_ffff,
        _ => mix(number),
    }
}

impl Writer {
    fn emit(&mut self, apply: impl FnOnce(Code) -> Code) {
        self.code = apply(std::mem::take(&mut self.code));
    }

    fn push(&mut self, choice: u64) {
        let number = interesting(choice >> 8);
        let register = (choice >> 4 & 0xf) as u8;
        let base_type = (choice >> 4 & 7) + 1;
        let mut ty = 0;
        match choice & 0xf {
            0..=3 => self.emit(|c| c.breg(register, 0)),
            4 | 5 => self.emit(|c| c.breg(register, i64::from(number as i32))),
            6 => self.emit(|c| c.constant(number)),
            7 => self.emit(|c| c.op(DW_OP_consts).sleb(number as i64)),
            8 => self.emit(|c| c.address(IMAGE + (number & 0xfff))),
            9 => self.emit(|c| c.op(DW_OP_fbreg).sleb(i64::from(number as i16))),
            10 => self.emit(|c| c.op(DW_OP_call_frame_cfa)),
            11 | 12 => {
                ty = base_type as u8;
                self.emit(|c| c.op(DW_OP_regval_type).uleb(u64::from(register)).uleb(base_type));
            }
            13 => {
                ty = base_type as u8;
                let size = TYPES[base_type as usize - 1].bits / 8;
                self.emit(|c| {
                    let c = c.op(DW_OP_const_type).uleb(base_type).u8(size as u8);
                    c.bytes(&number.to_le_bytes()[..size as usize])
                });
            }
            _ => self.emit(|c| c.constant(number & 0x3f)),
        }
        self.stack.push(ty);
    }

    fn step(&mut self, choice: u64) {
        let rest = choice >> 6;
        let Some(top) = self.stack.last().copied() else {
            return self.push(rest);
        };
        let depth = self.stack.len();
        match choice & 0x3f {
            0..=11 => self.push(rest),
            12 => self.emit(|c| c.op(DW_OP_neg)),
            13 => self.emit(|c| c.op(DW_OP_not)),
            14 => self.emit(|c| c.op(DW_OP_abs)),
            15 | 16 => self.emit(|c| c.op(DW_OP_plus_uconst).uleb(interesting(rest))),
            17..=19 => {
                let to = rest % 9;
                self.emit(|c| c.convert(to));
                *self.stack.last_mut().expect("not empty") = to as u8;
            }
            20 => {
                // The other type of the same size.
                let to = match top {
                    0 => 7 + rest % 2,
                    7 | 8 => 0,
                    n => ((u64::from(n) - 1) ^ 1) + 1,
                };
                self.emit(|c| c.op(DW_OP_reinterpret).uleb(to));
                *self.stack.last_mut().expect("not empty") = to as u8;
            }
            21..=23 => {
                self.emit(|c| c.op(DW_OP_deref));
                *self.stack.last_mut().expect("not empty") = 0;
            }
            24 | 25 => {
                self.emit(|c| c.op(DW_OP_deref_size).u8((rest % 8 + 1) as u8));
                *self.stack.last_mut().expect("not empty") = 0;
            }
            26 => {
                let to = rest % 8 + 1;
                self.emit(|c| c.op(DW_OP_deref_type).u8((TYPES[to as usize - 1].bits / 8) as u8).uleb(to));
                *self.stack.last_mut().expect("not empty") = to as u8;
            }
            27 => {
                self.emit(|c| c.op(DW_OP_dup));
                self.stack.push(top);
            }
            28 if depth > 1 => {
                self.emit(|c| c.op(DW_OP_swap));
                self.stack.swap(depth - 1, depth - 2);
            }
            29 if depth > 2 => {
                self.emit(|c| c.op(DW_OP_rot));
                self.stack[depth - 3..].rotate_right(1);
            }
            30 if depth > 1 => {
                let index = rest % depth as u64;
                self.emit(|c| c.op(DW_OP_pick).u8(index as u8));
                self.stack.push(self.stack[depth - 1 - index as usize]);
            }
            // Masks and shift pairs, as compilers write extensions.
            31..=34 if top == 0 => self.emit(|c| c.constant((1u64 << (rest % 64)) - 1).op(DW_OP_and)),
            35..=38 if top == 0 => {
                let (left, right) = (rest % 66, if rest & 128 == 0 { rest % 66 } else { (rest >> 8) % 66 });
                let op = if rest & 64 == 0 { DW_OP_shr } else { DW_OP_shra };
                self.emit(|c| c.constant(left).op(DW_OP_shl).constant(right).op(op));
            }
            39 if top == 0 => {
                // The condition is constant; the branch is over one byte.
                self.emit(|c| c.constant(rest & 1).op(DW_OP_bra).bytes(&[1, 0]).op(DW_OP_not));
            }
            45 if depth > 1 => {
                // A branch on what is not constant, over an operation that leaves as many values.
                let swap = self.stack[depth - 2] == top;
                let over = if swap { DW_OP_swap } else { DW_OP_not };
                let compare = [DW_OP_lt, DW_OP_ne, DW_OP_ge][(rest % 3) as usize];
                let (register, against) = ((rest >> 2 & 0xf) as u8, interesting(rest >> 6));
                self.emit(|c| c.breg(register, 0).constant(against).op(compare).op(DW_OP_bra).bytes(&[1, 0]).op(over));
            }
            40 => self.emit(|c| c.op(DW_OP_skip).bytes(&[1, 0]).op(DW_OP_drop)),
            41..=44 if depth > 1 => {
                // The amount may be of another type.
                self.emit(|c| c.op([DW_OP_shl, DW_OP_shr, DW_OP_shra][(rest % 3) as usize]));
                self.stack.pop();
            }
            _ if depth > 1 => {
                let second = self.stack[depth - 2];
                if second != top {
                    self.emit(|c| c.convert(u64::from(second)));
                }
                self.stack.pop();
                let ops = [
                    DW_OP_and,
                    DW_OP_or,
                    DW_OP_xor,
                    DW_OP_plus,
                    DW_OP_plus,
                    DW_OP_minus,
                    DW_OP_mul,
                    DW_OP_div,
                    DW_OP_mod,
                    DW_OP_eq,
                    DW_OP_ne,
                    DW_OP_lt,
                    DW_OP_le,
                    DW_OP_gt,
                    DW_OP_ge,
                ];
                let op = ops[(rest % ops.len() as u64) as usize];
                self.emit(|c| c.op(op));
                if [DW_OP_eq, DW_OP_ne, DW_OP_lt, DW_OP_le, DW_OP_gt, DW_OP_ge].contains(&op) {
                    *self.stack.last_mut().expect("not empty") = 0;
                }
            }
            _ => self.push(rest),
        }
    }

    fn value(&mut self, choices: &[u64]) {
        for choice in choices {
            self.step(*choice);
        }
        if self.stack.is_empty() {
            self.push(choices.len() as u64);
        }
    }

    /// A location description: in a register, in memory, of a value, or of bytes.
    fn place(&mut self, kind: u64, choices: &[u64], size: u32) {
        match kind & 7 {
            0 => self.emit(|c| c.reg((kind >> 3 & 0xf) as u8)),
            1 => self
                .emit(|c| c.implicit(&(0..size as usize + 8).map(|i| mix(kind + i as u64) as u8).collect::<Vec<_>>())),
            2..=4 => self.value(choices),
            _ => {
                self.value(choices);
                self.emit(|c| c.value());
                self.stack.pop();
            }
        }
    }
}

/// (what the place is, the operations, the piece's width and offset)
type Part = (u64, Vec<u64>, u64);

fn expression(parts: &[Part], size: u32) -> Code {
    let mut writer = Writer::default();
    if let [(kind, choices, _)] = parts {
        writer.place(*kind, choices, size);
        return writer.code;
    }
    for (kind, choices, extent) in parts {
        // Pieces of one another's continuation, so that joining them is met with.
        if extent & 0x700 == 0x700 {
            let (register, at) = ((kind >> 3 & 0xf) as u8, (kind >> 8 & 0xff) as i64);
            let first = extent % 9;
            writer.emit(|c| c.breg(register, at).piece(first).breg(register, at + first as i64).piece(extent >> 4 & 7));
            continue;
        }
        writer.place(*kind, choices, size);
        match extent % 8 {
            0 | 1 => writer.emit(|c| c.bit_piece(extent >> 8 & 0x3f, extent >> 16 & 0x1f)),
            2..=4 => writer.emit(|c| c.piece(8)),
            _ => writer.emit(|c| c.piece(extent >> 8 & 7)),
        }
        writer.stack.pop();
    }
    writer.code
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let choices = |most| proptest::collection::vec(any::<u64>(), 0..most);
    prop_oneof![
        2 => (any::<u64>(), choices(14), any::<u64>()).prop_map(|part| vec![part]),
        1 => proptest::collection::vec((any::<u64>(), choices(5), any::<u64>()), 1..6),
    ]
}

fn run_equality(cases: u32) -> [u32; 4] {
    let counts = std::cell::Cell::new([0u32; 4]);
    let count = |index: usize| {
        let mut now = counts.get();
        now[index] += 1;
        counts.set(now);
    };
    let mut runner = proptest::test_runner::TestRunner::new(proptest::test_runner::Config {
        cases,
        failure_persistence: None,
        ..Default::default()
    });
    let states = (any::<[u64; 4]>(), any::<u32>()).prop_map(|(seeds, displacement)| {
        seeds.map(|seed| State { seed, displacement: u64::from(displacement) << 12 })
    });
    let sizes = prop_oneof![Just(1u32), Just(2), Just(4), Just(8), Just(8), Just(16), 1u32..=24];
    runner
        .run(&(parts(), sizes, any::<bool>(), states), |(parts, size, signed, states)| {
            let code = expression(&parts, size);
            let ty = ParamType { size, signed, is_composite: size > 8, data: Vec::new(), is_irregular: false };
            let lowered = lower_in(&PROBE, &code.0, &ty);
            for state in states {
                match (reference(&code.0, &ty, &state), &lowered) {
                    (Some(expected), Ok(located)) => {
                        count(if matches!(located.at, Location::Computed(_)) { 1 } else { 0 });
                        let found = lowered_bytes(located, &state);
                        prop_assert_eq!(found, expected, "{:02x?} -> {}", &code.0, located.display(Machine::X86_64));
                    }
                    (Some(_), Err(reason)) => {
                        count(2);
                        let of_a_piece = parts.len() > 1 && *reason == Missing::Partial;
                        // The reference shifts by counts that are too large, too.
                        let may_shift = [DW_OP_shl, DW_OP_shr, DW_OP_shra].iter().any(|op| code.0.contains(&op.0));
                        let of_a_shift = may_shift && *reason == Missing::Malformed;
                        let is_refused = of_a_piece || of_a_shift || *reason == Missing::Unsupported;
                        prop_assert!(is_refused, "{reason:?} {:02x?}", &code.0);
                    }
                    (None, _) => count(3),
                }
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    counts.get()
}

#[test]
fn lowered_values_are_those_of_the_reference_evaluator() {
    let cases = std::env::var("SITESEER_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100_000);
    let [plain, computed, refused, undefined] = run_equality(cases);
    println!("plain {plain}, computed {computed}, refused {refused}, undefined {undefined}");
    // The test is worth something only if most expressions of the grammar are lowered.
    assert!(plain > cases / 10 && computed > cases / 2 && refused < (plain + computed) / 10);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), size in 0u32..40, signed: bool) {
        let ty = ParamType { size, signed, is_composite: size > 8, data: Vec::new(), is_irregular: false };
        if let Ok(located) = lower_in(&PROBE, &bytes, &ty) {
            prop_assert_eq!(located.slots(), size.div_ceil(8) as usize);
            if let Location::Computed(computed) = &located.at {
                prop_assert!(computed.slots.iter().all(|slot| Op::check(slot, Machine::X86_64)));
            }
        }
    }

    /// Memory outside the object is never touched.
    #[test]
    fn reads_stay_inside_the_object(size in 1u32..40, pieces in proptest::collection::vec(0u64..9, 0..8), wide in any::<bool>()) {
        let base = 0x7000u64;
        let mut code = Code::default();
        let offset = if wide { 1 << 40 } else { 0x10 };
        let mut at = 0;
        for bytes in &pieces {
            code = code.breg(3, offset + at as i64).piece(*bytes);
            at += bytes;
        }
        if pieces.is_empty() {
            code = code.breg(3, offset);
        }
        if let Ok(located) = lower_in(&PROBE, &code.0, &composite(size, &[])) {
            let start = base.wrapping_add(offset as u64);
            let inside = start..start + u64::from(size);
            let mut memory = |address: u64, buffer: &mut [u8]| {
                inside.contains(&address) && address + buffer.len() as u64 <= inside.end
            };
            prop_assert!(evaluate(&located, &|_| base, &mut memory, 0).is_some());
        } else {
            prop_assert!(!pieces.is_empty() && at < u64::from(size));
        }
    }
}
