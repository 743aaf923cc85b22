// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Generated code does what the reference evaluator says, for any locations, registers and memory.

use super::vm::{Memory, pt_regs, run, stale_register};
use super::*;
use crate::bpf::helper;
use crate::bpf::insn::Alu;
use crate::site::unavailable::available;
use proptest::prelude::*;
use siteseer_sites::Doubt;
use siteseer_sites::evaluate::evaluate;
use siteseer_sites::location::Computed;

pub(super) fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..70,
        62u64..66,
        prop::sample::select(vec![
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 32,
            (1 << 32) - 1,
            1 << 31,
            (1 << 31) - 1,
            (-(1i64 << 31)) as u64,
            0xffff_8000_0000_0000,
            0x80,
            0x8000,
        ]),
    ]
}

fn machine_register() -> impl Strategy<Value = u16> {
    0u16..17
}

/// A well-formed slot program: grown step by step, then reduced to one value.
fn slot_program() -> impl Strategy<Value = Box<[Op]>> {
    let push = prop_oneof![
        word().prop_map(Op::Constant),
        word().prop_map(Op::Address),
        machine_register().prop_map(Op::Register),
        machine_register().prop_map(Op::Register),
    ];
    let unary = prop_oneof![
        prop::sample::select(vec![Op::Load(1), Op::Load(2), Op::Load(4), Op::Load(8), Op::Neg, Op::Not]),
        (1u8..64).prop_map(Op::ZeroExtend),
        (1u8..64).prop_map(Op::SignExtend),
    ];
    let binary = prop::sample::select(vec![
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::DivU,
        Op::ModU,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::Shl,
        Op::Shr,
        Op::Sar,
        Op::Eq,
        Op::Ne,
        Op::LtS,
        Op::LeS,
        Op::LtU,
        Op::LeU,
    ]);
    let step = prop_oneof![4 => push, 2 => unary, 3 => binary.clone()];
    // Programs often end by narrowing their result, and what comes after may rely on that.
    let narrow = prop_oneof![
        3 => Just(vec![]),
        1 => prop::sample::select(vec![7u8, 8, 16, 24, 32, 33]).prop_map(|bits| vec![Op::ZeroExtend(bits)]),
        1 => prop::sample::select(vec![0x7fu64, 0xff, 0xffff, 0xffff_ffff]).prop_map(|m| vec![Op::Constant(m), Op::And]),
        1 => prop::sample::select(vec![1u8, 2, 4]).prop_map(|bytes| vec![Op::Load(bytes)]),
    ];
    let finish = prop::collection::vec(binary, Op::MAX_DEPTH);
    (prop::collection::vec(step, 1..40), finish, narrow).prop_map(|(steps, finish, narrow)| {
        let mut program = Vec::new();
        let mut depth = 0;
        for step in steps {
            if step.arity() > depth || depth - step.arity() + 1 > Op::MAX_DEPTH {
                continue;
            }
            depth = depth - step.arity() + 1;
            program.push(step);
        }
        if depth == 0 {
            program.push(Op::Constant(7));
            depth = 1;
        }
        program.extend(finish.into_iter().take(depth - 1));
        program.extend(narrow);
        program.into_boxed_slice()
    })
}

pub(super) fn parameter() -> impl Strategy<Value = Parameter> {
    let size = prop::sample::select(vec![1u32, 2, 3, 4, 4, 5, 6, 7, 8, 8, 8, 8, 9, 12, 15, 16, 20, 24]);
    (size, any::<bool>(), any::<bool>()).prop_flat_map(|(size, signed, pointer)| {
        let typed = (pointer && size == 8).then_some(300);
        location(size.div_ceil(8) as usize).prop_map(move |at| Parameter { typed, ..located(size, signed, at) })
    })
}

fn location(slots: usize) -> BoxedStrategy<Location> {
    let memory = (machine_register(), any::<i16>()).prop_map(|(r, o)| Location::Memory(r, i32::from(o)));
    let computed = prop::collection::vec(slot_program(), slots)
        .prop_map(|slots| Location::Computed(Computed { slots: slots.into_boxed_slice() }));
    match slots {
        1 => prop_oneof![
            2 => word().prop_map(Location::Constant),
            1 => word().prop_map(Location::Address),
            3 => machine_register().prop_map(Location::Register),
            1 => (machine_register(), any::<i32>()).prop_map(|(r, o)| Location::RegisterOffset(r, o)),
            2 => memory,
            5 => computed,
        ]
        .boxed(),
        2 => prop_oneof![
            (machine_register(), machine_register()).prop_map(|(a, b)| Location::RegisterPair(a, b)),
            memory,
            computed,
        ]
        .boxed(),
        _ => prop_oneof![memory, computed].boxed(),
    }
}

/// Lists of parameters that are alike except for where they are.
fn alike() -> impl Strategy<Value = Vec<Vec<Parameter>>> {
    prop::collection::vec(parameter(), 1..4).prop_flat_map(|parameters| {
        let elsewhere: Vec<_> = parameters
            .into_iter()
            .map(|parameter| {
                let Parameter { size, typed, argument, .. } = parameter;
                let signed = argument.is_ok_and(|located| located.signed);
                location(size.div_ceil(8) as usize).prop_map(move |at| Parameter { typed, ..located(size, signed, at) })
            })
            .collect();
        prop::collection::vec(elsewhere, 2..9)
    })
}

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) parameters: Vec<Parameter>,
    pub(super) registers: Vec<u64>,
    pub(super) memory: Memory,
}

impl Case {
    pub(super) fn register(&self, number: u16) -> u64 {
        self.registers[usize::from(number)]
    }

    pub(super) fn expected(&self, located: &Located, displacement: u64) -> Option<Vec<u64>> {
        let mut memory = |address: u64, buffer: &mut [u8]| self.memory.read(address, buffer);
        evaluate(located, &|r| self.register(r), &mut memory, displacement)
    }
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let memory =
        (any::<u64>(), prop::sample::select(vec![0u64, 0, 40])).prop_map(|(seed, absent)| Memory { seed, absent });
    (prop::collection::vec(parameter(), 1..5), prop::collection::vec(word(), 17), memory)
        .prop_map(|(parameters, registers, memory)| Case { parameters, registers, memory })
}

fn execute(case: &Case, image: &Image, numbers: &[u64]) -> vm::Trace {
    let mut context = pt_regs(&|r| case.register(r));
    run(&image.insns, &mut context, case.memory, numbers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    // Proves S4.2, S9.1.
    /// A program that reads all its slots sees what the evaluator says, or is not run, which is counted.
    #[test]
    fn slots_are_what_the_evaluator_says(case in case()) {
        let slots: u32 = case.parameters.iter().map(Parameter::slots).sum();
        let spec = spec(&case.parameters);
        let image = generated(&copier(0..slots), &spec).expect("all is located");
        prop_assume!(image.stack <= 256); // rbpf's frame
        prop_assert_eq!(stale_register(&image.insns, 0, image.user_start), None, "{}", image.listing());
        let expected: Option<Vec<Vec<u64>>> = case
            .parameters
            .iter()
            .map(|p| case.expected(p.argument.as_ref().expect("located"), spec.displacement))
            .collect();
        let trace = execute(&case, &image, &[]);
        prop_assert_eq!(trace.returned, Some(0), "{}", image.listing());
        match expected {
            Some(values) => {
                let values: Vec<(u64, u64)> = (0u64..).zip(values.concat()).collect();
                prop_assert_eq!(&trace.recorded, &values, "{}", image.listing());
                prop_assert_eq!(trace.lost, 0);
                let typed = case.parameters.iter().filter(|p| p.typed.is_some()).count();
                prop_assert_eq!(trace.casts, vec![300; typed]);
            }
            None => {
                prop_assert_eq!(&trace.recorded, &[], "{}", image.listing());
                prop_assert_eq!(trace.lost, 1);
            }
        }
    }

    /// A shared program gathers as the link's cookie says; with one that it does not know the call is lost, and
    /// counted.
    #[test]
    fn shared_programs_go_by_the_cookie(case in case(), ways in alike()) {
        let specs: Vec<Spec<'_>> = ways.iter().map(|parameters| spec(parameters)).collect();
        let slots: u32 = ways[0].iter().map(Parameter::slots).sum();
        let program = copier(0..slots);
        let image = generate_shared(&program, &analyse(&program).expect("simple"), &specs).map(linked);
        let image = image.expect("all is located");
        prop_assume!(image.stack <= 256);
        prop_assert_eq!(stale_register(&image.insns, 0, image.user_start), None, "{}", image.listing());
        for link_cookie in (0..=ways.len() as u64 + 1).chain([u64::MAX]) {
            let mut context = pt_regs(&|r| case.register(r));
            let mut kernel = vm::Kernel { link_cookie, ..vm::Kernel::default() };
            let trace = vm::run_in(&mut kernel, &image.insns, &mut context, case.memory, &[]);
            let way = usize::try_from(link_cookie).ok().and_then(|cookie| ways.get(cookie.checked_sub(1)?));
            let values = way.and_then(|parameters| {
                let value = |p: &Parameter| case.expected(p.argument.as_ref().expect("located"), specs[0].displacement);
                parameters.iter().map(value).collect::<Option<Vec<Vec<u64>>>>()
            });
            prop_assert_eq!(trace.returned, Some(0), "{}", image.listing());
            prop_assert_eq!(trace.lost, u64::from(values.is_none()));
            let values: Vec<(u64, u64)> = (0u64..).zip(values.unwrap_or_default().concat()).collect();
            prop_assert_eq!(&trace.recorded, &values, "{}: {}", link_cookie, image.listing());
        }
    }

    // Proves S5.2, S5.3, S5.4, S9.2.
    /// The accessors give each parameter's value, or the error that it deserves, for numbers known beforehand or not.
    #[test]
    fn accessors_answer_for_each_parameter(
        case in case(),
        absent in prop::collection::vec(any::<bool>(), 5),
        doubts in prop::collection::vec(prop::option::of(prop::sample::select(&Doubt::ALL[..])), 5),
        accept_doubt: bool,
        read_too in prop::option::of(0usize..5),
        constant: bool,
        by_slot: bool,
    ) {
        let mut case = case;
        for (parameter, (absent, doubt)) in case.parameters.iter_mut().zip(absent.into_iter().zip(doubts)) {
            let known = match parameter.argument.clone() {
                Ok(located) if !absent => Ok(Located { doubt, ..located }),
                _ => Err(Missing::Empty),
            };
            parameter.argument = available(&known, accept_doubt).cloned();
            prop_assert!(accept_doubt || parameter.argument.as_ref().map_or(true, Located::is_certain));
        }
        // One of the parameters may also be read in the ordinary way; it must have a location then.
        let start = |n: usize| case.parameters.iter().take(n).map(Parameter::slots).sum::<u32>();
        let read_too = read_too.filter(|n| case.parameters.get(*n).is_some_and(|p| p.argument.is_ok()));
        let mut requests = Vec::new();
        for n in 0..case.parameters.len() + 2 {
            for slot in 0..if by_slot { 4 } else { 1 } {
                requests.push((n as u64, slot));
            }
        }
        let mut insns = vec![Insn::mov(6, 1)];
        let mut numbers = Vec::new();
        if let Some(n) = read_too {
            insns.push(Insn::load(Width::D, 7, 6, 8 * start(n) as i16));
        }
        for (n, slot) in &requests {
            insns.push(Insn::store_imm(Width::D, 10, -8, 0x5a));
            if constant {
                insns.extend([Insn::mov_imm(2, *n as i32), Insn::mov_imm(3, *slot)]);
            } else {
                insns.extend([Insn::call(7), Insn::mov(8, 0), Insn::call(7), Insn::mov(2, 8), Insn::mov(3, 0)]);
                // The upper half of a u32 argument means nothing.
                numbers.extend([*n | 0xdead << 32, *slot as u64]);
            }
            let value = if by_slot { 4 } else { 3 };
            insns.extend([Insn::mov(value, 10), Insn::alu_imm(Alu::Add, value, -8), Insn::mov(1, 6)]);
            insns.push(Insn::call(if by_slot { helper::SITESEER_ARG_SLOT } else { helper::SITESEER_ARG }));
            insns.extend([Insn::mov(1, 0), Insn::load(Width::D, 2, 10, -8), Insn::call(6)]);
        }
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        let spec = spec(&case.parameters);
        let image = generated(&user(insns), &spec).expect("nothing missing is required");
        prop_assume!(image.stack <= 256);
        prop_assert_eq!(stale_register(&image.insns, 0, image.user_start), None, "{}", image.listing());
        let user_end = image.insns.len();
        prop_assert_eq!(stale_register(&image.insns, image.user_start, user_end), None, "{}", image.listing());
        let value = |n: u64| case.parameters.get(n as usize).map(|p| {
            p.argument.as_ref().map(|located| case.expected(located, spec.displacement))
        });
        let trace = execute(&case, &image, &numbers);
        prop_assert_eq!(trace.returned, Some(0), "{}", image.listing());
        if read_too.is_some_and(|n| matches!(value(n as u64), Some(Ok(None)))) {
            prop_assert_eq!(trace.recorded, vec![]);
            prop_assert_eq!(trace.lost, 1);
            return Ok(());
        }
        let expected: Vec<(u64, u64)> = requests.iter().map(|(n, slot)| match value(*n) {
            Some(Ok(Some(values))) if values.len() > *slot as usize => (0, values[*slot as usize]),
            Some(Ok(None)) if *slot < case.parameters[*n as usize].slots() as i32 => (-14i64 as u64, 0x5a),
            _ => (-2i64 as u64, 0x5a),
        }).collect();
        prop_assert_eq!(&trace.recorded, &expected, "{}", image.listing());
        prop_assert_eq!(trace.lost, 0);
    }

    /// `bpf_get_func_arg` counts slots, and is a promise like any other read.
    #[test]
    fn func_arg_reads_slots(case in case(), constant: bool) {
        let slots: u32 = case.parameters.iter().map(Parameter::slots).sum();
        let mut insns = vec![Insn::mov(6, 1)];
        for n in 0..slots + 2 {
            insns.push(Insn::store_imm(Width::D, 10, -8, 0x5a));
            if constant {
                insns.push(Insn::mov_imm(2, n as i32));
            } else {
                insns.extend([Insn::call(7), Insn::mov(2, 0)]);
            }
            insns.extend([Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8), Insn::mov(1, 6), Insn::call(183)]);
            insns.extend([Insn::mov(1, 0), Insn::load(Width::D, 2, 10, -8), Insn::call(6)]);
        }
        insns.extend([Insn::mov(1, 6), Insn::call(185), Insn::mov(1, 0), Insn::mov_imm(2, 0), Insn::call(6)]);
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        let spec = spec(&case.parameters);
        let image = generated(&user(insns), &spec).expect("all is located");
        prop_assume!(image.stack <= 256);
        let numbers: Vec<u64> = (0..u64::from(slots) + 2).collect();
        let trace = execute(&case, &image, &numbers);
        let expected: Option<Vec<Vec<u64>>> = case
            .parameters
            .iter()
            .map(|p| case.expected(p.argument.as_ref().expect("located"), spec.displacement))
            .collect();
        let Some(values) = expected else {
            prop_assert_eq!(trace.recorded, vec![]);
            prop_assert_eq!(trace.lost, 1);
            return Ok(());
        };
        let mut expected: Vec<(u64, u64)> = values.concat().into_iter().map(|value| (0, value)).collect();
        expected.extend([(-22i64 as u64, 0x5a), (-22i64 as u64, 0x5a), (u64::from(slots), 0)]);
        prop_assert_eq!(&trace.recorded, &expected, "{}", image.listing());
    }
}

// Proves S7.3.
#[test]
fn site_is_looked_up_by_the_probes_address() {
    let parameters = [];
    let program = user(vec![Insn::call(helper::SITESEER_SITE), Insn::mov_imm(0, 0), Insn::exit()]);
    let image = generated(&program, &spec(&parameters)).expect("nothing is read");
    let mut context = pt_regs(&|r| if r == 16 { 0x8123_4567 } else { 0 });
    let trace = run(&image.insns, &mut context, Memory { seed: 0, absent: 0 }, &[]);
    assert_eq!(trace.keys, [0x8123_4567]);
    assert_eq!(trace.returned, Some(0));
}
