// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Snapshots of generated code.

use super::*;
use crate::bpf::helper;
use crate::bpf::insn::{Alu, pseudo};

fn listing(program: &UserProgram, spec: &Spec<'_>) -> String {
    match generated(program, spec) {
        Ok(image) => image.listing(),
        Err(refusal) => format!("refused: {refusal}\n"),
    }
}

fn whole(parameters: &[Parameter]) -> String {
    let slots = parameters.iter().map(Parameter::slots).sum();
    listing(&copier(0..slots), &spec(parameters))
}

#[test]
fn registers_and_constants() {
    insta::assert_snapshot!(whole(&[
        located(8, false, Location::Register(5)),
        located(4, false, Location::Register(4)),
        located(4, true, Location::Register(1)),
        located(1, false, Location::Register(2)),
        located(3, false, Location::Register(0)),
        located(4, true, Location::Constant(0xffff_fffe)),
        located(8, false, Location::Constant(0xdead_beef_0000)),
        located(8, false, Location::Address(0xffff_ffff_8200_0000)),
        located(8, false, Location::RegisterOffset(7, -16)),
        located(8, false, Location::Register(16)),
    ]));
}

#[test]
fn memory_and_pairs() {
    insta::assert_snapshot!(whole(&[
        located(8, false, Location::Memory(7, 16)),
        located(4, true, Location::Memory(6, -20)),
        located(16, false, Location::RegisterPair(5, 4)),
        located(12, false, Location::RegisterPair(0, 1)),
        located(24, false, Location::Memory(7, 8)),
    ]));
}

#[test]
fn computed_values() {
    insta::assert_snapshot!(whole(&[
        located(4, false, computed(&[&[Op::Register(3), Op::Constant(0xff), Op::And]])),
        located(
            8,
            false,
            computed(&[&[
                Op::Register(3),
                Op::Constant(16),
                Op::Add,
                Op::Load(8),
                Op::Constant(8),
                Op::Add,
                Op::Load(4),
            ]])
        ),
        located(1, false, computed(&[&[Op::Register(5), Op::Register(4), Op::LtU]])),
        located(8, false, computed(&[&[Op::Register(5), Op::Register(4), Op::Shl]])),
        located(
            8,
            false,
            computed(&[&[
                Op::Register(0),
                Op::Register(1),
                Op::Register(2),
                Op::Register(3),
                Op::Register(4),
                Op::Load(8),
                Op::Add,
                Op::Xor,
                Op::Mul,
                Op::Sub,
            ]])
        ),
        located(16, false, computed(&[&[Op::Register(5)], &[Op::Constant(3), Op::Constant(4), Op::Add]])),
    ]));
}

#[test]
fn typed_pointers() {
    insta::assert_snapshot!(whole(&[
        typed(Location::Register(5), 137),
        typed(Location::Memory(7, 8), 138),
        typed(Location::Constant(0), 139),
        typed(computed(&[&[Op::Register(3), Op::Constant(64), Op::Sub]]), 140),
    ]));
}

/// A program that uses all that has to be rewritten: `siteseer_arg` of a missing, a plain, a typed parameter and one in
/// memory, `siteseer_site`, a stack trace, its cookie, its function's address.
fn everything() -> UserProgram {
    let mut insns = vec![Insn::mov(6, 1), Insn::load(Width::D, 7, 6, 16), Insn::load(Width::D, 7, 7, 0)];
    let ask = |insns: &mut Vec<Insn>| {
        insns.extend([Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8), Insn::mov(1, 6)]);
        insns.push(Insn::call(helper::SITESEER_ARG));
    };
    for n in 0..3 {
        insns.push(Insn::mov_imm(2, n));
        ask(&mut insns);
    }
    insns.extend([Insn::call(7), Insn::mov(2, 0)]);
    ask(&mut insns);
    insns.extend([Insn::mov(1, 6), Insn::call(helper::SITESEER_SITE)]);
    insns.push(Insn::mov(1, 6));
    insns.extend(Insn::load64(2, pseudo::MAP_FD, 9));
    insns.extend([Insn::mov_imm(3, 0), Insn::call(27)]);
    insns.extend([Insn::mov(1, 6), Insn::call(174), Insn::mov(1, 6), Insn::call(173)]);
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    user(insns)
}

fn prototype() -> [Parameter; 4] {
    [
        missing(4),
        located(4, true, Location::Register(4)),
        typed(Location::Register(5), 137),
        located(8, false, Location::Memory(7, 40)),
    ]
}

#[test]
fn rewritten_helpers_at_an_inline_site() {
    insta::assert_snapshot!(listing(&everything(), &spec(&prototype())));
}

#[test]
fn rewritten_helpers_at_a_body_under_kprobe_multi() {
    let parameters = prototype();
    let spec = Spec { inline: false, probe: Probe::KprobeMulti, ..spec(&parameters) };
    insta::assert_snapshot!(listing(&everything(), &spec));
}

#[test]
fn rewritten_helpers_under_fentry() {
    let parameters = prototype();
    let spec = Spec { inline: false, probe: Probe::Fentry, ..spec(&parameters) };
    insta::assert_snapshot!(listing(&everything(), &spec));
}

#[test]
fn arm64() {
    let parameters = [
        located(8, false, Location::Register(0)),
        located(8, false, Location::Memory(31, 24)),
        typed(Location::Register(19), 7),
    ];
    let mut program = copier(0..3);
    program.insns.splice(0..1, [Insn::mov(6, 1), Insn::call(helper::SITESEER_SITE)]);
    insta::assert_snapshot!(listing(&program, &Spec { machine: Machine::Aarch64, ..spec(&parameters) }));
}

#[test]
fn func_arg_helpers_are_emulated() {
    let mut insns = vec![Insn::mov(6, 1), Insn::call(185), Insn::mov(1, 6)];
    insns.extend([Insn::mov(2, 10), Insn::alu_imm(Alu::Add, 2, -8), Insn::call(184)]);
    for n in [1, 5] {
        insns.extend([Insn::mov(1, 6), Insn::mov_imm(2, n), Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8)]);
        insns.push(Insn::call(183));
    }
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    let parameters = [missing(8), located(8, false, Location::Register(5))];
    insta::assert_snapshot!(listing(&user(insns), &spec(&parameters)));
}

/// A function's parameters and return value, two of them typed pointers, and a program that reads them all.
fn at_the_exit(probe: Probe) -> String {
    let parameters = [
        typed(Location::Register(5), 137),
        located(4, true, Location::Register(4)),
        located(8, false, Location::Constant(3)),
        located(8, false, Location::Memory(7, 8)),
    ];
    let ret = Parameter { typed: Some(138), ..located(8, false, Location::Register(0)) };
    let program = UserProgram { exit: probe.is_exit(), ..copier(0..if probe.is_exit() { 5 } else { 4 }) };
    listing(&program, &Spec { probe, inline: false, ret: Some(&ret), ..spec(&parameters) })
}

#[test]
fn session() {
    insta::assert_snapshot!(at_the_exit(Probe::Session));
}

#[test]
fn session_with_one_word() {
    let parameters = [located(4, false, Location::Register(5)), missing(8)];
    let ret = located(1, false, Location::Register(0));
    let program = UserProgram { exit: true, ..copier([0, 2]) };
    let spec = Spec { probe: Probe::Session, inline: false, ret: Some(&ret), ..spec(&parameters) };
    insta::assert_snapshot!(listing(&program, &spec));
}

#[test]
fn tracing_multi() {
    insta::assert_snapshot!(at_the_exit(Probe::TracingMulti));
}

#[test]
fn tracing_multi_exit() {
    insta::assert_snapshot!(at_the_exit(Probe::TracingMultiExit));
}

#[test]
fn fexit_leaves_the_program_as_it_is() {
    let listing = at_the_exit(Probe::Fexit);
    assert_eq!(listing, insn::listing(&copier(0..5).insns));
}

#[test]
fn kretprobe_on_arm64() {
    let ret = located(16, false, Location::RegisterPair(0, 1));
    let program = UserProgram { exit: true, ..copier(1..3) };
    let parameters = [missing(8)];
    let spec = Spec { machine: Machine::Aarch64, probe: Probe::Kretprobe, ret: Some(&ret), ..spec(&parameters) };
    insta::assert_snapshot!(listing(&program, &spec));
}

#[test]
fn only_what_is_read_is_gathered() {
    let image = |other, slot| {
        let parameters = [other, located(8, false, Location::Register(5))];
        let spec = spec(&parameters);
        let program = copier([slot]);
        let uses = analyse(&program).expect("well formed");
        (spec.key(&uses).expect("located"), generate(&program, &uses, &spec).expect("located"))
    };
    let (missing_key, missing_image) = image(missing(8), 1);
    let (memory_key, memory_image) = image(located(8, false, Location::Memory(7, 8)), 1);
    assert_eq!(missing_key, memory_key);
    assert_eq!(missing_image, memory_image);
    let (wide_key, _) = image(missing(16), 2);
    assert_ne!(wide_key, missing_key, "a wider parameter before it moves the slot");
}

// Proves S8.9.
#[test]
fn refusals() {
    let refusal = |slots: std::ops::Range<u32>, parameters: &[Parameter]| {
        generated(&copier(slots), &spec(parameters)).expect_err("refused")
    };
    assert_eq!(refusal(0..2, &[missing(8)]), Refusal::ReadsSlotBeyond { slot: 1, have: 1 });
    assert_eq!(
        refusal(0..1, &[missing(8)]),
        Refusal::ArgumentMissing { parameter: 0, reason: Missing::OptimisedOut.into() }
    );
    // Where nobody knows where the kernel lies, an address in it is not a value; a program that can do without it is
    // told.
    let kernel = KernelIds { unplaced: true, ..spec(&[]).kernel };
    for at in [Location::Address(0x1000), computed(&[&[Op::Address(0x1000), Op::Load(8)]])] {
        let parameters = [located(8, false, at)];
        let unplaced = Spec { kernel, ..spec(&parameters) };
        let refusal = generated(&copier(0..1), &unplaced).expect_err("refused");
        assert_eq!(refusal, Refusal::ArgumentDisplaced { parameter: 0 });
        assert!(generated(&copier(0..1), &spec(&parameters)).is_ok());
        assert!(generated(&copier(0..0), &unplaced).is_ok());
    }
    let malformed = Refusal::MalformedLocation { parameter: 0 };
    for bad in [
        located(8, false, Location::Register(17)),
        located(16, false, Location::Register(1)),
        located(8, false, Location::RegisterPair(0, 1)),
        located(8, false, computed(&[&[Op::Add]])),
        located(8, false, computed(&[])),
        Parameter { size: 4, ..located(16, false, Location::RegisterPair(0, 1)) },
    ] {
        assert_eq!(refusal(0..1, std::slice::from_ref(&bad)), malformed, "{bad:?}");
    }
    // 60 slots leave nothing for the program.
    let many: Vec<Parameter> = (0..60).map(|_| located(8, false, Location::Register(5))).collect();
    let mut insns = copier(0..60).insns;
    insns.insert(1, Insn::store_imm(Width::D, 10, -64, 0));
    let overflow = Refusal::StackOverflow { program: 64, trampoline: 480, limit: 512 };
    assert_eq!(generated(&user(insns.clone()), &spec(&many)).expect_err("refused"), overflow);
    let kernel = KernelIds { private_stack: true, ..spec(&many).kernel };
    assert!(generated(&user(insns), &Spec { kernel, ..spec(&many) }).is_ok());
    let huge = located(8000, false, Location::Memory(7, 0));
    assert!(matches!(refusal(0..1, &[huge]), Refusal::StackOverflow { .. }));
}

// Proves S4.11.
#[test]
fn without_rdonly_cast_only_following_a_pointer_is_refused() {
    let parameters = [typed(Location::Register(5), 137)];
    let spec = Spec { kernel: KernelIds::default(), ..spec(&parameters) };
    assert!(generated(&copier(0..1), &spec).is_ok());
    let follows = user(vec![Insn::load(Width::D, 2, 1, 0), Insn::load(Width::D, 0, 2, 0), Insn::exit()]);
    assert_eq!(generated(&follows, &spec).expect_err("refused"), Refusal::NoRdonlyCast { parameter: 0 });
}

// Proves S4.12.
#[test]
fn a_pointer_used_as_a_number_stays_one() {
    let parameters = [typed(Location::Register(5), 137)];
    let hashes = user(vec![Insn::load(Width::D, 0, 1, 0), Insn::alu_imm(Alu::Rsh, 0, 3), Insn::exit()]);
    let image = generated(&hashes, &spec(&parameters)).expect("located");
    assert!(image.insns.iter().all(|insn| !insn.is_kfunc_call()));
    assert!(!image.gpl_only);
}

// Proves S7.4.
#[test]
fn site_record_is_laid_out_as_the_header_says() {
    let record = SiteRecord { id: 1, kind: 2, address: 3, symbol: 4, offset: 5, reserved: 0 };
    assert_eq!(size_of::<SiteRecord>(), 32);
    let bytes = record.to_bytes();
    for (at, value) in [(0, 1), (4, 2), (8, 3), (16, 4), (24, 5), (28, 0)] {
        assert_eq!(bytes[at], value);
    }
    let header = include_str!("../../../include/siteseer.bpf.h");
    for (name, id) in [
        ("siteseer_arg)", helper::SITESEER_ARG),
        ("siteseer_arg_slot)", helper::SITESEER_ARG_SLOT),
        ("siteseer_site)", helper::SITESEER_SITE),
    ] {
        let line = header.lines().find(|line| line.contains(&format!("const {name}"))).expect("in the header");
        assert!(line.ends_with(&format!("(void *){id:#x};")), "{line}");
    }
}
