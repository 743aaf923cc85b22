// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
use super::*;
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Cond, Width, class, mode, pseudo};
use proptest::prelude::*;

fn program(insns: Vec<Insn>) -> UserProgram {
    UserProgram { name: "test".to_owned(), insns, ..UserProgram::default() }
}

fn uses(insns: Vec<Insn>) -> Uses {
    analyse(&program(insns)).expect("the program is well formed")
}

fn refusal(insns: Vec<Insn>) -> Refusal {
    analyse(&program(insns)).expect_err("the program is refused")
}

fn slots(uses: &Uses) -> Vec<u32> {
    assert!(!uses.slots.is_all(), "all slots");
    uses.slots.named().collect()
}

fn read(dst: u8, src: u8, off: i16) -> Insn {
    Insn::load(Width::D, dst, src, off)
}

fn spill(off: i16, src: u8) -> Insn {
    Insn::store(Width::D, 10, off, src)
}

fn end() -> [Insn; 2] {
    [Insn::mov_imm(0, 0), Insn::exit()]
}

fn with_end(insns: impl IntoIterator<Item = Insn>) -> Vec<Insn> {
    insns.into_iter().chain(end()).collect()
}

// Proves S4.4.
#[test]
fn loads_through_copies_offsets_and_spills() {
    let uses = uses(with_end([
        Insn::mov(6, 1),
        read(2, 6, 8),
        Insn::alu_imm(Alu::Add, 6, 16),
        spill(-16, 6),
        Insn::mov_imm(6, 0),
        read(7, 10, -16),
        read(3, 7, 0),
        Insn::load(Width::W, 4, 7, 12),
    ]));
    assert_eq!(slots(&uses), [1, 2, 3]);
    assert!(uses.narrow.contains(3));
    assert!(!uses.narrow.contains(2));
    assert_eq!(uses.stack, 16);
}

#[test]
fn a_load_across_a_border_reads_both_slots() {
    let uses = uses(with_end([Insn::load(Width::W, 2, 1, 6)]));
    assert_eq!(slots(&uses), [0, 1]);
    assert!(uses.narrow.contains(0) && uses.narrow.contains(1));
}

#[test]
fn merged_paths_keep_all_possibilities() {
    let uses = uses(with_end([
        Insn::mov(6, 1),
        Insn::call(7),
        Insn::jump_if_imm(Cond::Eq, 0, 0, 1),
        Insn::alu_imm(Alu::Add, 6, 8),
        read(2, 6, 0),
    ]));
    assert_eq!(slots(&uses), [0, 1]);
}

#[test]
fn unknown_offset_reads_everything() {
    let uses = uses(with_end([Insn::mov(6, 1), Insn::call(7), Insn::alu(Alu::Add, 6, 0), read(2, 6, 0)]));
    assert!(uses.slots.is_all());
}

#[test]
fn loop_over_the_context_reads_everything() {
    let uses = uses(with_end([
        Insn::mov_imm(7, 20),
        read(2, 1, 0),
        Insn::alu_imm(Alu::Add, 1, 8),
        Insn::alu_imm(Alu::Sub, 7, 1),
        Insn::jump_if_imm(Cond::Ne, 7, 0, -4),
    ]));
    assert!(uses.slots.is_all());
}

#[test]
fn a_store_to_one_of_two_words_leaves_both_possible() {
    // The context is at fp-8; a number goes to fp-8 or fp-16; what is at fp-8 may still be the context.
    let uses = uses(with_end([
        spill(-8, 1),
        Insn::call(7),
        Insn::mov(2, 10),
        Insn::alu_imm(Alu::Add, 2, -8),
        Insn::jump_if_imm(Cond::Eq, 0, 0, 1),
        Insn::alu_imm(Alu::Add, 2, -8),
        Insn::store_imm(Width::D, 2, 0, 0),
        read(6, 10, -8),
        read(7, 6, 24),
    ]));
    assert_eq!(slots(&uses), [3]);
}

#[test]
fn a_loop_is_followed_until_its_stack_settles() {
    // The word is a number in the first round and the context in all others; no register tells the rounds apart.
    let uses = uses(with_end([
        Insn::mov(6, 1),
        Insn::store_imm(Width::D, 10, -8, 0),
        Insn::call(7),
        read(7, 10, -8),
        read(2, 7, 16),
        spill(-8, 6),
        Insn::jump_if_imm(Cond::Ne, 0, 0, -4),
    ]));
    assert_eq!(slots(&uses), [2]);
}

#[test]
fn stale_registers_are_not_arguments() {
    // bpf_get_current_pid_tgid takes no argument: the context that is still in r1 is not passed to it.
    let uses = uses(with_end([Insn::mov(6, 1), Insn::call(14), read(2, 6, 0)]));
    assert_eq!(slots(&uses), [0]);
}

#[test]
fn context_as_a_buffer_escapes() {
    // bpf_probe_read_kernel(fp-8, 8, ctx)
    let uses = uses(with_end([
        Insn::mov(3, 1),
        Insn::mov_imm(2, 8),
        Insn::mov(1, 10),
        Insn::alu_imm(Alu::Add, 1, -8),
        Insn::call(113),
    ]));
    assert!(uses.slots.is_all());
    assert_eq!(uses.stack, 16);
}

// Proves S4.5.
#[test]
fn context_stored_to_a_map_escapes() {
    let uses = uses(with_end([Insn::mov(6, 1), Insn::call(1), Insn::store(Width::D, 0, 0, 6)]));
    assert!(uses.slots.is_all());
}

#[test]
fn context_helpers_are_noted_and_do_not_escape() {
    // bpf_perf_event_output(ctx, map, 0, fp-8, 8)
    let uses = uses(with_end(
        [Insn::mov(6, 1), read(7, 6, 0), spill(-8, 7)].into_iter().chain(Insn::load64(2, pseudo::MAP_FD, 3)).chain([
            Insn::mov_imm(3, 0),
            Insn::mov(4, 10),
            Insn::alu_imm(Alu::Add, 4, -8),
            Insn::mov_imm(5, 8),
            Insn::mov(1, 6),
            Insn::call(25),
        ]),
    ));
    assert_eq!(slots(&uses), [0]);
    assert!(uses.context);
    assert_eq!(uses.helpers, [(25, 10)]);
}

#[test]
fn subprograms_are_followed_with_what_they_get() {
    // main: f(ctx, 1); f(ctx + 8, ..). f(p): return p[1]. The second argument register is stale: f does not read it.
    let insns = vec![
        Insn::mov(6, 1),
        spill(-8, 6),
        Insn::mov(2, 10),
        Insn::call_subprogram(6),
        Insn::mov(1, 6),
        Insn::alu_imm(Alu::Add, 1, 8),
        Insn::call_subprogram(3),
        read(3, 0, 0),
        Insn::mov_imm(0, 0),
        Insn::exit(),
        read(0, 1, 8),
        Insn::exit(),
    ];
    let uses = uses(insns);
    assert_eq!(slots(&uses), [1, 2]);
    // What the second call returned is the value of a slot, and main follows it.
    assert!(uses.dereferences(2) && !uses.dereferences(1) && !uses.dereferences(0));
    assert_eq!(uses.made_static.iter().copied().collect::<Vec<_>>(), [0, 10]);
    assert_eq!(uses.stack, 32);
}

#[test]
fn context_visible_to_a_callback_escapes() {
    // The context is on the stack, and bpf_loop's callback gets a pointer to the stack.
    let mut insns = vec![Insn::mov(6, 1), spill(-8, 6), Insn::mov_imm(1, 3)];
    insns.extend(Insn::load64(2, pseudo::FUNC, 6));
    insns.extend([
        Insn::mov(3, 10),
        Insn::alu_imm(Alu::Add, 3, -8),
        Insn::mov_imm(4, 0),
        Insn::call(181),
        Insn::mov_imm(0, 0),
        Insn::exit(),
        Insn::mov_imm(0, 0),
        Insn::exit(),
    ]);
    let uses = uses(insns);
    assert!(uses.slots.is_all());
    assert!(uses.made_static.contains(&10));
}

#[test]
fn pointers_into_the_context_are_seen_to_be_followed() {
    let uses = uses(with_end([
        read(6, 1, 0),
        read(7, 1, 8),
        read(8, 1, 16),
        spill(-8, 6),
        read(9, 10, -8),
        Insn::alu_imm(Alu::Add, 9, 8),
        read(2, 9, 4),
        Insn::alu_imm(Alu::Lsh, 7, 3),
    ]));
    assert!(uses.dereferences(0) && !uses.dereferences(1) && !uses.dereferences(2));
    assert!(uses.arithmetic.contains(1) && !uses.arithmetic.contains(0) && !uses.arithmetic.contains(2));
}

// Proves S5.1.
#[test]
fn accessors_with_constant_and_unknown_numbers() {
    let ask = |n: Vec<Insn>| {
        let mut insns = vec![Insn::mov(6, 1)];
        insns.extend(n);
        insns.extend([Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8), Insn::mov(1, 6)]);
        insns.push(Insn::call(helper::SITESEER_ARG));
        uses(with_end(insns))
    };
    let constant = ask(vec![Insn::mov_imm(2, 3)]);
    assert_eq!(constant.fallible.named().collect::<Vec<_>>(), [3]);
    assert!(constant.slots.is_empty());
    assert_eq!(constant.constant_indices.values().copied().collect::<Vec<_>>(), [[Some(3), Some(0)]]);
    let unknown = ask(vec![Insn::call(7), Insn::mov(2, 0)]);
    assert!(unknown.fallible.is_all());
    assert_eq!(unknown.constant_indices.values().copied().collect::<Vec<_>>(), [[None, Some(0)]]);
}

#[test]
fn an_index_that_differs_between_paths_is_not_constant() {
    let uses = uses(with_end([
        Insn::mov(6, 1),
        Insn::call(7),
        Insn::mov_imm(2, 1),
        Insn::jump_if_imm(Cond::Eq, 0, 0, 1),
        Insn::mov_imm(2, 2),
        Insn::mov(3, 10),
        Insn::alu_imm(Alu::Add, 3, -8),
        Insn::mov(1, 6),
        Insn::call(helper::SITESEER_ARG),
    ]));
    assert!(uses.fallible.contains(1) && uses.fallible.contains(2));
    assert_eq!(uses.constant_indices.values().copied().collect::<Vec<_>>(), [[None, Some(0)]]);
}

// Proves S4.7, S6.2, S10.2.
#[test]
fn refusals() {
    assert_eq!(refusal(with_end([Insn::store(Width::D, 1, 0, 2)])), Refusal::ContextModified { insn: 0 });
    assert_eq!(refusal(with_end([Insn::atomic_add(1, 0, 2)])), Refusal::ContextModified { insn: 0 });
    assert_eq!(refusal(with_end([Insn::store_imm(Width::B, 1, 0, 2)])), Refusal::ContextModified { insn: 0 });
    assert_eq!(refusal(with_end([read(2, 1, -8)])), Refusal::ReadsBeforeContext { insn: 0, bytes: 8 });
    for (id, helper) in [(58, "bpf_override_return"), (127, "bpf_seq_write")] {
        match refusal(with_end([Insn::call(id)])) {
            Refusal::HelperNotAllowed { helper: name, insn: 0, .. } if name == helper => {}
            other => panic!("{helper}: {other}"),
        }
    }
    assert!(matches!(
        refusal(with_end([Insn::alu_imm(Alu::Add, 1, 8), Insn::call(174)])),
        Refusal::DisplacedContext { helper: "bpf_get_attach_cookie", insn: 1, offset: 8 }
    ));
    for (insns, at) in [
        (vec![], 0),
        (vec![Insn::mov_imm(0, 0)], 1),
        (vec![Insn::jump(5), Insn::exit()], 0),
        (vec![Insn::jump(-2), Insn::exit()], 0),
        (vec![Insn::call_subprogram(7), Insn::exit()], 0),
        (vec![Insn::call_subprogram(-1), Insn::exit()], 0),
        (vec![Insn::mov(11, 1), Insn::exit()], 0),
        (vec![Insn::mov(10, 1), Insn::exit()], 0),
        (vec![Insn::load64(1, 0, 5)[0]], 0),
        (vec![Insn::jump(1), Insn::load64(1, 0, 5)[0], Insn::load64(1, 0, 5)[1], Insn::exit()], 0),
        (vec![Insn::new(class::JMP | 0x08, 1, 0, 0, 0), Insn::exit()], 0),
        (vec![Insn::new(class::JMP | 0x88, 1, 0, 0, 0), Insn::exit()], 0),
    ] {
        match refusal(insns.clone()) {
            Refusal::Malformed { insn, .. } if insn == at => {}
            other => panic!("{insns:?}: {other}"),
        }
    }
}

#[test]
fn deep_and_endless_call_chains_are_refused_or_bounded() {
    // Each function calls the next; the last returns.
    let chain = |length: usize| -> Vec<Insn> {
        let mut insns: Vec<Insn> = (0..length).flat_map(|_| [Insn::call_subprogram(1), Insn::exit()]).collect();
        insns.extend(end());
        insns
    };
    assert_eq!(uses(chain(4)).stack, 5 * 16);
    assert_eq!(refusal(chain(5000)), Refusal::TooComplex);
}

/// Instructions that are mostly plausible.
fn instruction() -> impl Strategy<Value = Insn> {
    let register = 0u8..=10;
    let small = prop_oneof![-4i16..12, Just(8i16), Just(-8i16), any::<i16>()];
    let imm = prop_oneof![
        -20i32..20,
        prop::sample::select(vec![1, 6, 7, 12, 25, 113, 173, 174, 181, 183, 184, 185]),
        Just(helper::SITESEER_ARG as i32),
        Just(helper::SITESEER_ARG_SLOT as i32),
        Just(helper::SITESEER_SITE as i32),
        any::<i32>()
    ];
    let code = prop_oneof![
        4 => prop::sample::select(b"\xbf\x07\x0f\x79\x7b\x61\x05\x15\x55\x85\x95\xb7\xdb\x18".to_vec()),
        1 => any::<u8>(),
    ];
    (code, register.clone(), register, small, imm).prop_map(|(code, dst, src, off, imm)| {
        let src = if code == 0x85 { src % 3 } else { src };
        Insn::new(code, dst, src, off, imm)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn any_instructions_are_analysed_without_panic(mut insns in prop::collection::vec(instruction(), 0..40)) {
        insns.push(Insn::exit());
        let _ = analyse(&program(insns));
    }

    #[test]
    fn any_bytes_are_analysed_without_panic(bytes in prop::collection::vec(any::<[u8; 8]>(), 0..60)) {
        let _ = analyse(&program(bytes.into_iter().map(Insn::from_bytes).collect()));
    }
}

#[test]
fn sign_extending_and_acquiring_loads_count() {
    let acquire = Insn::new(class::STX | mode::ATOMIC | 0x18, 2, 1, 16, crate::bpf::insn::atomic::LOAD_ACQ);
    let signed = Insn::new(class::LDX | mode::MEMSX, 3, 1, 8, 0);
    let uses = uses(with_end([acquire, signed]));
    assert_eq!(slots(&uses), [1, 2]);
    assert!(uses.narrow.contains(1));
}

#[test]
fn helpers_of_some_probes_are_noted_for_the_trampoline_to_judge() {
    let uses = uses(with_end([Insn::mov(6, 1), Insn::call(147), Insn::call(148), Insn::mov(1, 6)]));
    assert_eq!(uses.helpers, [(147, 1), (148, 2)]);
    // The context was among the arguments of bpf_d_path, which does not take it.
    assert!(uses.slots.is_all() && uses.wants_trusted);
}

#[test]
fn a_tail_call_hands_on_the_whole_context() {
    let mut insns = Insn::load64(2, pseudo::MAP_FD, 3).to_vec();
    insns.extend([Insn::mov_imm(3, 0), Insn::call(12)]);
    let uses = uses(with_end(insns));
    assert!(uses.slots.is_all());
    assert_eq!(uses.helpers, [(12, 3)]);
}

#[test]
fn the_return_value_is_the_slot_after_the_arguments() {
    let reads = uses(with_end([read(2, 1, 16)]));
    assert!(reads.requires_return(2) && !reads.requires_return(3));
    let asks = uses(with_end([Insn::mov(2, 10), Insn::alu_imm(Alu::Add, 2, -8), Insn::call(184)]));
    assert!(asks.returned && asks.slots.is_empty() && asks.requires_return(7));
    // bpf_get_func_arg counts the arguments only.
    let indexed =
        uses(with_end([Insn::mov_imm(2, 2), Insn::mov(3, 10), Insn::alu_imm(Alu::Add, 3, -8), Insn::call(183)]));
    assert!(indexed.indexed.contains(2) && !indexed.requires_return(2));
}

#[test]
fn what_needs_a_trusted_pointer_is_noted() {
    let with = |call: &[Insn]| {
        let insns = [Insn::mov(6, 1), read(7, 6, 0), Insn::mov_imm(1, 0), Insn::mov_imm(2, 0), Insn::mov_imm(3, 0)];
        uses(with_end(insns.into_iter().chain(call.iter().copied()))).wants_trusted
    };
    assert!(!with(&[Insn::call(14)]));
    // bpf_probe_read_kernel takes a number, bpf_map_lookup_elem what its second argument points to.
    assert!(!with(&[Insn::mov(3, 7), Insn::call(113)]));
    assert!(with(&[Insn::mov(2, 7), Insn::call(1)]));
    assert!(with(&[Insn::call(156)]));
    assert!(with(&[Insn::call_kfunc(77)]));
}

#[test]
fn a_kernel_function_that_sees_the_frame_runs_no_code_of_the_program_unless_it_has_callbacks() {
    // An open-coded iterator in the frame, beside the spilled context.
    let iterator = [spill(-8, 1), Insn::mov(1, 10), Insn::alu_imm(Alu::Add, 1, -16), Insn::mov_imm(2, 0)];
    let mut insns: Vec<Insn> = iterator.to_vec();
    insns.extend([Insn::mov_imm(3, 9), Insn::mov_imm(4, 0), Insn::mov_imm(5, 0), Insn::call_kfunc(77)]);
    insns.extend([read(6, 10, -8), read(7, 6, 8)]);
    assert_eq!(slots(&uses(with_end(insns.clone()))), [1]);
    // The same where a function's address is taken: the kernel function may have got it.
    let mut with_callback = Insn::load64(2, pseudo::FUNC, insns.len() as u64 + 3).to_vec();
    with_callback.extend(insns);
    with_callback.extend(end());
    with_callback.extend(end());
    assert!(uses(with_callback).slots.is_all());
}

#[test]
fn arguments_on_the_stack_are_refused_by_name() {
    for insn in [Insn::store(Width::D, 11, -8, 1), Insn::load(Width::D, 1, 11, 8)] {
        match refusal(with_end([insn])) {
            Refusal::Malformed { insn: 0, what } => assert!(what.contains("on the stack"), "{what}"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn may_goto_and_long_jumps_are_followed() {
    // may_goto +1 over a read; gotol +1 over another.
    let may_goto = Insn::new(class::JMP | 0xe0, 0, 0, 1, 0);
    let long = Insn::new(class::JMP32, 0, 0, 0, 1);
    let uses = uses(with_end([may_goto, read(2, 1, 0), long, read(2, 1, 8), read(2, 1, 16)]));
    assert_eq!(slots(&uses), [0, 2]);
}
