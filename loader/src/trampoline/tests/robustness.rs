// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! No input makes the generator panic, and what it gives is well formed.

use super::*;
use crate::bpf::helper;
use proptest::prelude::*;

fn instruction() -> impl Strategy<Value = Insn> {
    let helpers = prop::sample::select(vec![
        1,
        6,
        7,
        25,
        27,
        113,
        173,
        174,
        181,
        183,
        184,
        185,
        helper::SITESEER_ARG,
        helper::SITESEER_ARG_SLOT,
        helper::SITESEER_SITE,
    ]);
    prop_oneof![
        4 => (0u8..10, 0u8..=10).prop_map(|(a, b)| Insn::mov(a, b)),
        2 => (0u8..10, -3i32..9).prop_map(|(a, i)| Insn::mov_imm(a, i)),
        3 => (0u8..10, 0u8..=10, -4i16..9).prop_map(|(a, b, o)| Insn::load(Width::D, a, b, 8 * o)),
        2 => (0u8..10, -9i16..0).prop_map(|(a, o)| Insn::store(Width::D, 10, 8 * o, a)),
        2 => (0u8..10, -20i16..20).prop_map(|(a, o)| Insn::jump_if_imm(crate::bpf::insn::Cond::Eq, a, 0, o)),
        4 => helpers.prop_map(Insn::call),
        1 => (-20i32..20).prop_map(Insn::call_subprogram),
        1 => any::<[u8; 8]>().prop_map(Insn::from_bytes),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        any::<u64>().prop_map(Op::Constant),
        (0u16..20).prop_map(Op::Register),
        any::<u8>().prop_map(Op::Load),
        any::<u8>().prop_map(Op::ZeroExtend),
        any::<u8>().prop_map(Op::SignExtend),
        prop::sample::select(vec![Op::Add, Op::Shl, Op::LtS, Op::ModU, Op::Neg]),
    ]
}

fn location() -> impl Strategy<Value = Location> {
    let ops = prop::collection::vec(op(), 0..80).prop_map(Vec::into_boxed_slice);
    prop_oneof![
        any::<u64>().prop_map(Location::Constant),
        (0u16..40).prop_map(Location::Register),
        (0u16..40, 0u16..40).prop_map(|(a, b)| Location::RegisterPair(a, b)),
        (0u16..40, any::<i32>()).prop_map(|(r, o)| Location::Memory(r, o)),
        prop::collection::vec(ops, 0..4).prop_map(|slots| {
            Location::Computed(siteseer_sites::location::Computed { slots: slots.into_boxed_slice() })
        }),
    ]
}

fn parameter() -> impl Strategy<Value = Parameter> {
    let size = || prop_oneof![9 => 0u32..30, 1 => any::<u32>()];
    (size(), prop::option::of(size()), any::<bool>(), location(), prop::option::of(any::<u32>())).prop_map(
        |(size, other, signed, at, typed)| Parameter { typed, size, ..located(other.unwrap_or(size), signed, at) },
    )
}

/// Whether all jumps and calls land on instructions.
fn well_formed(insns: &[Insn]) -> bool {
    let mut at = 0;
    while let Some(insn) = insns.get(at) {
        let distance = if insn.is_jump() {
            insn.jump_distance()
        } else if insn.is_subprogram_call() || insn.is_subprogram_address() {
            insn.imm
        } else {
            0
        };
        let target = at as i64 + 1 + i64::from(distance);
        if target < 0 || target as usize > insns.len() {
            return false;
        }
        at += if insn.is_load64() { 2 } else { 1 };
    }
    at == insns.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn any_program_with_any_locations(
        mut insns in prop::collection::vec(instruction(), 0..30),
        parameters in prop::collection::vec(parameter(), 0..6),
        probe in prop::sample::select(vec![
            Probe::Kprobe,
            Probe::KprobeMulti,
            Probe::Fentry,
            Probe::Fexit,
            Probe::TracingMulti,
            Probe::TracingMultiExit,
            Probe::Kretprobe,
            Probe::Session,
        ]),
        ret in prop::option::of(parameter()),
        arm: bool,
        inline: bool,
    ) {
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        let machine = if arm { Machine::Aarch64 } else { Machine::X86_64 };
        let spec = Spec { probe, machine, inline, ret: ret.as_ref(), ..spec(&parameters) };
        let program = UserProgram { exit: probe.is_exit(), ..user(insns) };
        if let Ok(image) = generated(&program, &spec) {
            prop_assert!(well_formed(&image.insns), "{}", image.listing());
            prop_assert!(image.stack <= 512);
        }
    }
}

/// BTF with an int, a FUNC_PROTO and FUNCs `main` (3) and `sub` (4), both global.
fn btf() -> Vec<u8> {
    let mut types: Vec<u8> = Vec::new();
    for word in [0u32, 1 << 24, 4, 0x0100_0020, 0, 13 << 24, 1, 1, 12 << 24 | 1, 2, 6, 12 << 24 | 1, 2] {
        types.extend(word.to_le_bytes());
    }
    let strings = b"\0main\0sub\0";
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        btf.extend(word.to_le_bytes());
    }
    btf.extend(types);
    btf.extend(strings);
    btf
}

fn with_info() -> UserProgram {
    let insns = vec![
        Insn::mov(6, 1),
        Insn::load(Width::D, 7, 6, 0),
        Insn::call(174),
        Insn::mov(1, 7),
        Insn::call_subprogram(2),
        Insn::mov_imm(0, 0),
        Insn::exit(),
        Insn::mov_imm(0, 0),
        Insn::exit(),
    ];
    let line = |insn_off, line: u32| LineInfo { insn_off, file_name_off: 1, line_off: 1, line_col: line << 10 };
    UserProgram {
        func_info: vec![FuncInfo { insn_off: 0, type_id: 3 }, FuncInfo { insn_off: 7, type_id: 4 }],
        line_info: vec![line(0, 1), line(2, 2), line(5, 3), line(7, 9)],
        btf: Some(btf()),
        ..user(insns)
    }
}

#[test]
fn function_and_line_information_moves_along() {
    let parameters = [located(8, false, Location::Register(5))];
    let spec = spec(&parameters);
    let program = with_info();
    let image = generated(&program, &spec).expect("located");
    let user = image.user_start as u32;
    // The cookie is a 64-bit immediate in place of a call: what follows has moved by one.
    let functions: Vec<(u32, u32)> = image.func_info.iter().map(|info| (info.insn_off, info.type_id)).collect();
    assert_eq!(functions, [(0, 5), (user, 3), (user + 8, 4)]);
    let lines: Vec<(u32, u32)> = image.line_info.iter().map(|info| (info.insn_off, info.line_col >> 10)).collect();
    assert_eq!(lines[lines.len() - 4..], [(user, 1), (user + 2, 2), (user + 6, 3), (user + 8, 9)]);
    assert_eq!(lines[0].0, 0);
    assert!(lines.is_sorted_by(|a, b| a.0 < b.0));
    let linkage = |btf: &[u8], word: usize| btf[24 + word * 4..][0];
    let amended = image.btf.expect("the program has BTF");
    assert_eq!((linkage(&amended, 8), linkage(&amended, 11)), (0, 1), "main is static, sub stays global");
}

/// A constant is not kept from the entry to the return: it takes no instruction there, and so no line of its own.
#[test]
fn what_takes_no_instruction_has_no_line() {
    let ret = located(8, false, Location::Register(0));
    let parameters = [located(8, false, Location::Constant(2048)), located(8, false, Location::Register(5))];
    let mut program = with_info();
    // The result in place of the cookie.
    program.insns[2] = Insn::load(Width::D, 8, 6, 16);
    program.exit = true;
    let spec = Spec { probe: Probe::Session, inline: false, ret: Some(&ret), ..spec(&parameters) };
    let image = generated(&program, &spec).expect("located");
    assert!(!image.line_info.is_empty());
    assert!(image.line_info.is_sorted_by(|a, b| a.insn_off < b.insn_off), "{:?}", image.line_info);
}

#[test]
fn inconsistent_information_is_left_out() {
    let parameters = [located(8, false, Location::Register(5))];
    let spec = spec(&parameters);
    let image = |change: fn(&mut UserProgram)| {
        let mut program = with_info();
        change(&mut program);
        generated(&program, &spec).expect("located")
    };
    let missing_function = image(|program| {
        program.func_info.pop();
    });
    assert!(missing_function.func_info.is_empty() && missing_function.btf.is_none());
    let missing_line = image(|program| {
        program.line_info.pop();
    });
    assert_eq!((missing_line.func_info.len(), missing_line.line_info.len()), (3, 0));
    let unordered = image(|program| program.line_info.swap(1, 2));
    assert!(unordered.line_info.is_empty());
    let no_btf = image(|program| program.btf = None);
    assert!(no_btf.func_info.is_empty() && no_btf.line_info.is_empty());
}

#[test]
fn a_jump_that_no_longer_fits_is_refused() {
    // 16,000 calls that become two instructions each, under one jump.
    let mut insns = vec![Insn::jump(0)];
    insns.extend((0..16_500).flat_map(|_| [Insn::mov(1, 6), Insn::call(174)]));
    insns[0].off = 32_760;
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    insns.splice(0..0, [Insn::mov(6, 1), Insn::jump_if_imm(crate::bpf::insn::Cond::Eq, 6, 0, 1)]);
    insns.insert(2, Insn::mov_imm(0, 0));
    assert_eq!(generated(&user(insns), &spec(&[])).expect_err("refused"), Refusal::JumpTooFar { insn: 3 });
}
