// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs at the return, and programs of type TRACING: what they see is what the function was called with, and
//! what it returned.

use super::execution::{Case, case, word};
use super::vm::{Kernel, Memory, Trace, pt_regs, run_in, stale_register};
use super::*;
use crate::bpf::helper;
use crate::bpf::insn::Alu;
use proptest::prelude::*;
use siteseer_sites::evaluate::extend;

const NO_MEMORY: Memory = Memory { seed: 0, absent: 0 };

fn exit(program: UserProgram) -> UserProgram {
    UserProgram { exit: true, ..program }
}

/// A return value of so many bytes, where the ABI of x86-64 puts it.
fn returned(size: u32, signed: bool) -> Parameter {
    located(size, signed, if size > 8 { Location::RegisterPair(0, 1) } else { Location::Register(0) })
}

fn a_return() -> impl Strategy<Value = Parameter> {
    (prop::sample::select(vec![1u32, 2, 4, 4, 8, 8, 8, 12, 16]), any::<bool>(), any::<bool>()).prop_map(
        |(size, signed, pointer)| Parameter { typed: (pointer && size == 8).then_some(301), ..returned(size, signed) },
    )
}

fn value(registers: &[u64], ret: &Parameter) -> Vec<u64> {
    let signed = matches!(&ret.argument, Ok(located) if located.signed);
    (0..ret.slots()).map(|slot| extend(registers[slot as usize], bits(ret.size, slot), signed)).collect()
}

fn bits(size: u32, slot: u32) -> u32 {
    (size - 8 * slot).min(8) * 8
}

fn numbered(values: Vec<u64>) -> Vec<(u64, u64)> {
    (0..).zip(values).collect()
}

fn arguments(case: &Case, displacement: u64) -> Option<Vec<u64>> {
    let values = case.parameters.iter().map(|p| case.expected(p.argument.as_ref().expect("located"), displacement));
    values.collect::<Option<Vec<_>>>().map(|values| values.concat())
}

fn slots(parameters: &[Parameter]) -> u32 {
    parameters.iter().map(Parameter::slots).sum()
}

/// A session's program, and the map that goes with it.
struct Session {
    image: Image,
    saved: Option<SavedMap>,
}

impl Session {
    fn new(program: &UserProgram, parameters: &[Parameter], ret: &Parameter) -> Session {
        let spec = Spec { probe: Probe::Session, inline: false, ret: Some(ret), ..spec(parameters) };
        let uses = analyse(program).expect("well formed");
        let image = linked(generate(program, &uses, &spec).expect("all is located"));
        Session { saved: image.saved, image }
    }

    fn kernel(&self) -> Kernel {
        let value_size = self.saved.map_or(0, |map| map.value_size as usize);
        Kernel { value_size, room: 8, ..Kernel::default() }
    }

    fn run(&self, kernel: &mut Kernel, at_return: bool, registers: &[u64], memory: Memory) -> Trace {
        kernel.at_return = at_return;
        let mut context = pt_regs(&|r| registers[usize::from(r)]);
        run_in(kernel, &self.image.insns, &mut context, memory, &[])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    /// At the return the program sees the arguments of the entry, whatever the registers hold by then, and whatever
    /// calls came in between; or it is not run, which is counted once.
    #[test]
    fn a_session_hands_over_its_own_calls_arguments(
        case in case(),
        ret in a_return(),
        later in prop::collection::vec(word(), 17),
        other in prop::collection::vec(word(), 17),
    ) {
        let count = slots(&case.parameters);
        let program = exit(copier(0..count + ret.slots()));
        let session = Session::new(&program, &case.parameters, &ret);
        prop_assume!(session.image.stack <= 256); // rbpf's frame
        let listing = session.image.listing();
        prop_assert_eq!(stale_register(&session.image.insns, 0, session.image.user_start), None, "{}", listing);
        prop_assert!(session.image.gpl_only);

        let displacement = spec(&[]).displacement;
        let mut kernel = session.kernel();
        let entry = session.run(&mut kernel, false, &case.registers, case.memory);
        prop_assert_eq!(&entry.recorded, &[], "{}", listing);
        prop_assert_eq!(&entry.casts, &[], "types are for the return");
        let Some(values) = arguments(&case, displacement) else {
            prop_assert_eq!((entry.returned, entry.lost), (Some(1), 1), "{}", listing);
            prop_assert!(kernel.saved.is_empty());
            return Ok(());
        };
        prop_assert_eq!((entry.returned, entry.lost), (Some(0), 0), "{}", listing);

        // Another call, inside of the first: it has a cookie of its own.
        let inner = Case { registers: other, ..case.clone() };
        let outer_cookie = std::mem::take(&mut kernel.cookie);
        let entry = session.run(&mut kernel, false, &inner.registers, inner.memory);
        if let Some(values) = arguments(&inner, displacement) {
            prop_assert_eq!(entry.returned, Some(0));
            let exit = session.run(&mut kernel, true, &later, inner.memory);
            let seen = numbered([values, value(&later, &ret)].concat());
            prop_assert_eq!(&exit.recorded, &seen, "{}", listing);
        } else {
            prop_assert_eq!(entry.returned, Some(1));
        }

        kernel.cookie = outer_cookie;
        let exit = session.run(&mut kernel, true, &later, case.memory);
        prop_assert_eq!((exit.returned, exit.lost), (Some(0), 0), "{}", listing);
        let seen = numbered([values, value(&later, &ret)].concat());
        prop_assert_eq!(&exit.recorded, &seen, "{}", listing);
        let typed = case.parameters.iter().chain([&ret]).filter_map(|p| p.typed).map(u64::from).count();
        prop_assert_eq!(exit.casts.len(), typed);
        prop_assert!(kernel.saved.is_empty(), "nothing is left behind");
    }

    /// What a tracing-multi program reads is extended from what the kernel took from the registers.
    #[test]
    fn a_tracing_program_gets_its_slots_from_helpers(
        case in case(),
        ret in a_return(),
        raw in prop::collection::vec(word(), 16),
        exits: bool,
    ) {
        let count = slots(&case.parameters);
        prop_assume!(count <= 16);
        let ret = Parameter { size: ret.size.min(8), ..returned(ret.size.min(8), ret.size == 4) };
        let mut program = copier(0..count + u32::from(exits));
        program.exit = exits;
        let probe = if exits { Probe::TracingMultiExit } else { Probe::TracingMulti };
        let spec = Spec { probe, inline: false, ret: Some(&ret), ..spec(&case.parameters) };
        let image = generated(&program, &spec).expect("all is located");
        prop_assume!(image.stack <= 256);
        prop_assert_eq!(stale_register(&image.insns, 0, image.user_start), None, "{}", image.listing());
        let mut expected = Vec::new();
        for parameter in &case.parameters {
            let signed = matches!(&parameter.argument, Ok(located) if located.signed);
            for slot in 0..parameter.slots() {
                expected.push(extend(raw[expected.len()], bits(parameter.size, slot), signed));
            }
        }
        let result = raw[15];
        if exits {
            expected.push(extend(result, bits(ret.size, 0), ret.size == 4 && matches!(&ret.argument, Ok(l) if l.signed)));
        }
        let mut kernel = Kernel { slots: raw[..count as usize].to_vec(), result: Some(result), ..Kernel::default() };
        let trace = run_in(&mut kernel, &image.insns, &mut [0; 8], NO_MEMORY, &[]);
        prop_assert_eq!(trace.returned, Some(0), "{}", image.listing());
        prop_assert_eq!(&trace.recorded, &numbered(expected), "{}", image.listing());
        prop_assert_eq!(trace.lost, 0);
    }

    /// siteseer_arg gives extended values under real fentry too, where the registers come as they are.
    #[test]
    fn accessors_extend_under_real_fentry(
        case in case(),
        raw in prop::collection::vec(word(), 16),
        exits: bool,
        constant: bool,
    ) {
        prop_assume!(slots(&case.parameters) <= 16);
        let mut insns = vec![Insn::mov(6, 1)];
        let mut numbers = Vec::new();
        let mut expected = Vec::new();
        let mut start = 0;
        for (number, parameter) in (0..).zip(&case.parameters) {
            for slot in 0..parameter.slots() + 1 {
                insns.push(Insn::store_imm(Width::D, 10, -8, 0x5a));
                if constant {
                    insns.extend([Insn::mov_imm(2, number), Insn::mov_imm(3, slot as i32)]);
                } else {
                    insns.extend([Insn::call(7), Insn::mov(8, 0), Insn::call(7), Insn::mov(2, 8), Insn::mov(3, 0)]);
                    numbers.extend([number as u64, u64::from(slot)]);
                }
                insns.extend([Insn::mov(4, 10), Insn::alu_imm(Alu::Add, 4, -8), Insn::mov(1, 6)]);
                insns.push(Insn::call(helper::SITESEER_ARG_SLOT));
                insns.extend([Insn::mov(1, 0), Insn::load(Width::D, 2, 10, -8), Insn::call(6)]);
                let signed = matches!(&parameter.argument, Ok(located) if located.signed);
                expected.push(if slot < parameter.slots() {
                    (0, extend(raw[(start + slot) as usize], bits(parameter.size, slot), signed))
                } else {
                    (-2i64 as u64, 0x5a)
                });
            }
            start += parameter.slots();
        }
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        let program = UserProgram { exit: exits, ..user(insns) };
        let probe = if exits { Probe::Fexit } else { Probe::Fentry };
        let image = generated(&program, &Spec { probe, inline: false, ..spec(&case.parameters) }).expect("located");
        prop_assert_eq!(stale_register(&image.insns, 0, image.insns.len()), None, "{}", image.listing());
        let mut kernel = Kernel { slots: raw, ..Kernel::default() };
        let trace = run_in(&mut kernel, &image.insns, &mut [0; 128], NO_MEMORY, &numbers);
        prop_assert_eq!(trace.returned, Some(0), "{}", image.listing());
        prop_assert_eq!(&trace.recorded, &expected, "{}", image.listing());
    }

    /// A return probe has the return value in its registers.
    #[test]
    fn a_return_probe_gives_the_return_value(ret in a_return(), registers in prop::collection::vec(word(), 17)) {
        let parameters = [missing(8), located(16, false, Location::Memory(7, 8))];
        let program = exit(copier(3..3 + ret.slots()));
        let image = generated(&program, &Spec { probe: Probe::Kretprobe, ret: Some(&ret), ..spec(&parameters) });
        let image = image.expect("no argument is read");
        prop_assert_eq!(stale_register(&image.insns, 0, image.user_start), None, "{}", image.listing());
        let mut context = pt_regs(&|r| registers[usize::from(r)]);
        let trace = run_in(&mut Kernel::default(), &image.insns, &mut context, NO_MEMORY, &[]);
        let seen: Vec<(u64, u64)> = (3..).zip(value(&registers, &ret)).collect();
        prop_assert_eq!(&trace.recorded, &seen, "{}", image.listing());
    }
}

/// Two arguments in registers, and a session that saves both.
fn pair() -> ([Parameter; 2], Parameter) {
    let parameters = [located(8, false, Location::Register(5)), located(4, true, Location::Register(4))];
    (parameters, returned(4, true))
}

fn registers(first: u64, second: u64, rax: u64) -> Vec<u64> {
    let mut registers = vec![0; 17];
    (registers[5], registers[4], registers[0]) = (first, second, rax);
    registers
}

// Proves S15.13.
#[test]
fn a_call_that_finds_no_room_is_lost_and_counted() {
    let (parameters, ret) = pair();
    let session = Session::new(&exit(copier(0..3)), &parameters, &ret);
    assert_eq!(session.saved, Some(SavedMap { key_size: 8, value_size: 16, max_entries: 1 << 16 }));
    let mut kernel = Kernel { room: 0, ..session.kernel() };
    let entry = session.run(&mut kernel, false, &registers(1, 2, 3), NO_MEMORY);
    // 1: the kernel does not run the program at this call's return.
    assert_eq!((entry.returned, entry.lost), (Some(1), 1));
}

#[test]
fn an_element_that_is_gone_loses_the_call() {
    let (parameters, ret) = pair();
    let session = Session::new(&exit(copier(0..3)), &parameters, &ret);
    let mut kernel = session.kernel();
    session.run(&mut kernel, false, &registers(1, 2, 3), NO_MEMORY);
    assert_eq!(kernel.saved.len(), 1);
    kernel.saved.clear();
    let exit = session.run(&mut kernel, true, &registers(0, 0, 9), NO_MEMORY);
    assert_eq!((exit.recorded, exit.lost), (vec![], 1));
}

#[test]
fn what_a_missed_return_left_behind_is_overwritten() {
    let (parameters, ret) = pair();
    let session = Session::new(&exit(copier(0..3)), &parameters, &ret);
    let mut kernel = Kernel { room: 1, ..session.kernel() };
    session.run(&mut kernel, false, &registers(1, 2, 0), NO_MEMORY);
    // Its return is missed; the next call has its cookie at the same address.
    let entry = session.run(&mut kernel, false, &registers(10, -20i64 as u64, 0), NO_MEMORY);
    assert_eq!(entry.returned, Some(0));
    let exit = session.run(&mut kernel, true, &registers(0, 0, 0xdead_ffff_fffe), NO_MEMORY);
    assert_eq!(exit.recorded, [(0, 10), (1, -20i64 as u64), (2, -2i64 as u64)]);
}

#[test]
fn one_word_goes_into_the_cookie() {
    let (parameters, ret) = pair();
    let session = Session::new(&exit(copier([1, 2])), &parameters, &ret);
    assert_eq!(session.saved, None);
    let mut kernel = session.kernel();
    session.run(&mut kernel, false, &registers(1, 0xffff_fff0, 0), NO_MEMORY);
    assert_eq!(*kernel.cookie, -16i64 as u64);
    let exit = session.run(&mut kernel, true, &registers(0, 0, 7), NO_MEMORY);
    assert_eq!(exit.recorded, [(1, -16i64 as u64), (2, 7)]);
}

#[test]
fn constants_are_not_saved() {
    let parameters = [located(8, false, Location::Constant(5)), located(8, false, Location::Register(5))];
    let (_, ret) = pair();
    let session = Session::new(&exit(copier(0..3)), &parameters, &ret);
    assert_eq!(session.saved, None);
    let mut kernel = session.kernel();
    session.run(&mut kernel, false, &registers(77, 0, 0), NO_MEMORY);
    let exit = session.run(&mut kernel, true, &registers(0, 0, 1), NO_MEMORY);
    assert_eq!(exit.recorded, [(0, 5), (1, 77), (2, 1)]);
}

/// A program that asks `bpf_get_func_ret`.
fn asks_for_the_return() -> Vec<Insn> {
    let mut insns = vec![Insn::store_imm(Width::D, 10, -8, 0x5a), Insn::mov(2, 10), Insn::alu_imm(Alu::Add, 2, -8)];
    insns.push(Insn::call(helper::GET_FUNC_RET));
    insns.extend([Insn::mov(1, 0), Insn::load(Width::D, 2, 10, -8), Insn::call(6), Insn::mov_imm(0, 0), Insn::exit()]);
    insns
}

// Proves S4.8.
#[test]
fn func_ret_is_emulated_at_every_exit_and_refused_an_answer_at_the_entry() {
    let ret = returned(4, true);
    for probe in [Probe::Kretprobe, Probe::Session, Probe::TracingMultiExit] {
        let image = generated(&exit(user(asks_for_the_return())), &Spec { probe, ret: Some(&ret), ..spec(&[]) });
        let image = image.expect("there is a return value");
        let mut kernel = Kernel { at_return: true, result: Some(0xfff0_ffff_fff0), ..Kernel::default() };
        let mut context = pt_regs(&|r| if r == 0 { 0xfff0_ffff_fff0 } else { 0 });
        let trace = run_in(&mut kernel, &image.insns, &mut context, NO_MEMORY, &[]);
        assert_eq!(trace.recorded, [(0, -16i64 as u64)], "{probe:?}");
    }
    for probe in [Probe::Kprobe, Probe::KprobeMulti, Probe::TracingMulti] {
        let image = generated(&user(asks_for_the_return()), &Spec { probe, ..spec(&[]) }).expect("it may ask");
        let trace = run_in(&mut Kernel::default(), &image.insns, &mut pt_regs(&|_| 0), NO_MEMORY, &[]);
        assert_eq!(trace.recorded, [(-95i64 as u64, 0x5a)], "{probe:?}");
    }
}

#[test]
fn the_site_is_that_of_the_function_at_every_exit() {
    let program = exit(user(vec![Insn::call(helper::SITESEER_SITE), Insn::mov_imm(0, 0), Insn::exit()]));
    for probe in [Probe::Fexit, Probe::Kretprobe, Probe::Session, Probe::TracingMultiExit] {
        let image = generated(&program, &Spec { probe, inline: false, ..spec(&[]) }).expect("nothing is read");
        let mut kernel = Kernel { at_return: true, function: 0x8123_4560, ..Kernel::default() };
        let trace = run_in(&mut kernel, &image.insns, &mut pt_regs(&|_| 0), NO_MEMORY, &[]);
        assert_eq!(trace.keys, [0x8123_4560], "{probe:?}");
    }
}

#[test]
fn refusals() {
    let parameters = [located(8, false, Location::Register(5))];
    let ret = returned(8, false);
    let at = |probe: Probe| Spec { probe, inline: false, ret: Some(&ret), ..spec(&parameters) };
    let refusal = |program: &UserProgram, spec: Spec<'_>| generated(program, &spec).expect_err("refused");
    let both = exit(copier(0..2));

    assert_eq!(refusal(&both, at(Probe::Kretprobe)), Refusal::ArgumentGone { parameter: 0 });
    // What may be missing is.
    let asks = {
        let mut insns = vec![Insn::mov_imm(2, 0), Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8)];
        insns.extend([Insn::call(helper::SITESEER_ARG), Insn::mov(1, 0), Insn::mov_imm(2, 0), Insn::call(6)]);
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        exit(user(insns))
    };
    let image = generated(&asks, &at(Probe::Kretprobe)).expect("it may ask");
    let trace = run_in(&mut Kernel::default(), &image.insns, &mut pt_regs(&|_| 0), NO_MEMORY, &[]);
    assert_eq!(trace.recorded, [(-2i64 as u64, 0)]);

    for probe in [Probe::Fexit, Probe::TracingMultiExit, Probe::Session] {
        assert_eq!(refusal(&both, Spec { ret: None, ..at(probe) }), Refusal::ReturnsNothing, "{probe:?}");
        let ask = exit(user(asks_for_the_return()));
        assert_eq!(refusal(&ask, Spec { ret: None, ..at(probe) }), Refusal::ReturnsNothing, "{probe:?}");
        let beyond = exit(copier(0..3));
        assert_eq!(refusal(&beyond, at(probe)), Refusal::ReadsSlotBeyond { slot: 2, have: 2 }, "{probe:?}");
        let gone = missing(8);
        let reason = Unavailable::from(Missing::OptimisedOut);
        assert_eq!(
            refusal(&both, Spec { ret: Some(&gone), ..at(probe) }),
            Refusal::ReturnMissing { reason },
            "{probe:?}"
        );
        assert!(generated(&exit(copier(0..1)), &Spec { ret: Some(&gone), ..at(probe) }).is_ok(), "{probe:?}");
        let gone = [missing(8)];
        let missing = Refusal::ArgumentMissing { parameter: 0, reason };
        assert_eq!(refusal(&both, Spec { parameters: &gone, ..at(probe) }), missing, "{probe:?}");
    }
    let odd = located(8, false, Location::Register(40));
    assert_eq!(refusal(&both, Spec { ret: Some(&odd), ..at(Probe::Session) }), Refusal::MalformedReturn);

    for probe in [Probe::Kprobe, Probe::KprobeMulti, Probe::Fentry, Probe::TracingMulti] {
        assert_eq!(refusal(&exit(copier(0..1)), at(probe)), Refusal::WrongEnd, "{probe:?}");
    }
    for probe in [Probe::Kretprobe, Probe::Session, Probe::Fexit, Probe::TracingMultiExit] {
        assert_eq!(refusal(&copier(0..1), at(probe)), Refusal::WrongEnd, "{probe:?}");
    }

    let kernel = KernelIds { session_cookie: None, ..spec(&[]).kernel };
    assert_eq!(refusal(&both, Spec { kernel, ..at(Probe::Session) }), Refusal::NoSession);
    let (two, _) = pair();
    let kept = generated(&exit(copier(0..2)), &Spec { parameters: &two, ..at(Probe::Session) }).expect("located");
    assert!(kept.saved.is_some() && kept.maps.iter().any(|(_, map)| *map == OwnMap::Saved));

    let followed = Parameter { typed: Some(9), ..returned(8, false) };
    let follows = exit(user(vec![
        Insn::load(Width::D, 2, 1, 8),
        Insn::load(Width::D, 0, 2, 0),
        Insn::mov_imm(0, 0),
        Insn::exit(),
    ]));
    let old = Spec { kernel: KernelIds::default(), ret: Some(&followed), ..at(Probe::Kretprobe) };
    assert_eq!(refusal(&follows, old), Refusal::NoRdonlyCastOfReturn);
}

#[test]
fn helpers_are_refused_where_they_cannot_work() {
    let calls = |id: u32| user(vec![Insn::mov(6, 1), Insn::call(id), Insn::mov_imm(0, 0), Insn::exit()]);
    let outcome = |id: u32, probe: Probe| {
        let program = UserProgram { exit: probe.is_exit(), ..calls(id) };
        match generated(&program, &Spec { probe, inline: false, ..spec(&[]) }) {
            Ok(_) => "runs",
            Err(Refusal::HelperNotAllowed { insn: 1, why, .. }) => why,
            Err(Refusal::TailCall { insn: 1 }) => "tail call",
            Err(other) => panic!("{other}"),
        }
    };
    for probe in [Probe::Kprobe, Probe::KprobeMulti, Probe::Kretprobe, Probe::Session] {
        assert_eq!(outcome(147, probe), helper::ONLY_TRACING, "bpf_d_path, {probe:?}");
        assert_eq!(outcome(148, probe), helper::SLEEPS, "bpf_copy_from_user, {probe:?}");
        assert_eq!(outcome(12, probe), "tail call", "{probe:?}");
    }
    for probe in [Probe::Fentry, Probe::Fexit, Probe::TracingMulti, Probe::TracingMultiExit] {
        assert_eq!((outcome(147, probe), outcome(148, probe)), ("runs", "runs"), "{probe:?}");
        let native = matches!(probe, Probe::Fentry | Probe::Fexit);
        assert_eq!(outcome(12, probe), if native { "runs" } else { "tail call" }, "{probe:?}");
    }
    assert_eq!(outcome(27, Probe::Session), helper::NO_STACK_TRACE);
    assert_eq!(outcome(67, Probe::Session), helper::NO_STACK_TRACE);
    for probe in [Probe::TracingMulti, Probe::TracingMultiExit] {
        assert_eq!(outcome(27, probe), helper::DEEPER_STACK_TRACE, "{probe:?}");
        assert_eq!(outcome(25, probe), "runs", "{probe:?}");
    }
    assert_eq!(outcome(25, Probe::Session), "runs");
    assert_eq!(outcome(27, Probe::Kretprobe), "runs");
}

#[test]
fn accessors_need_room_below_the_frame_under_real_fentry() {
    let program = |frame: i16| {
        let mut insns = vec![Insn::store_imm(Width::D, 10, frame, 0), Insn::call(helper::SITESEER_SITE)];
        insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
        user(insns)
    };
    let at = Spec { probe: Probe::Fentry, inline: false, ..spec(&[]) };
    assert!(generated(&program(-496), &at).is_ok());
    let overflow = Refusal::StackOverflow { program: 512, trampoline: 16, limit: 512 };
    assert_eq!(generated(&program(-504), &at).expect_err("refused"), overflow);
}

#[test]
fn kfuncs_without_a_context_get_none() {
    let (parameters, ret) = pair();
    let without = |id| Some(Kfunc { id, takes_context: false });
    let kernel = KernelIds { session_is_return: without(11), session_cookie: without(12), ..spec(&[]).kernel };
    let spec = Spec { kernel, probe: Probe::Session, ret: Some(&ret), ..spec(&parameters) };
    let image = generated(&exit(copier(0..3)), &spec).expect("located");
    for (before, call) in image.insns.iter().zip(&image.insns[1..]).filter(|(_, call)| call.is_kfunc_call()) {
        assert!(*before != Insn::mov(1, 6) || call.imm == 4242, "{}", image.listing());
    }
}
