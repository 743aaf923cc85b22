// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Random programs: the analysis misses no read, and rewriting changes no behaviour.

use super::super::rewrite::{Edit, edit};
use super::vm::{Memory, Trace, run};
use super::*;
use crate::bpf::insn::{Alu, Cond};
use proptest::prelude::*;

const SLOTS: usize = 8;

/// A step of a random program. Registers are r6 to r9; words of the frame are counted from 0.
#[derive(Debug, Clone)]
enum Step {
    Copy(u8, u8),
    Add(u8, i32),
    AddRegister(u8, u8),
    Number(u8, i32),
    Spill(u8, u8),
    SpillHalf(u8, u8),
    Fill(u8, u8),
    Load(u8, u8, u8),
    LoadPart(u8, u8, u8),
    /// Skips so many of the following steps, or not.
    Branch(u8),
    Record(u8),
    /// f(a, b): the result in the first.
    Call(u8, u8),
    /// g(pointer to a word of the frame).
    CallWithFrame(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let r = || 6u8..10;
    let w = || prop_oneof![3 => Just(0u8), 1 => 0u8..4];
    let s = || 0u8..SLOTS as u8;
    let context_first = || prop_oneof![3 => Just(6u8), 1 => r()];
    prop_oneof![
        3 => (r(), r()).prop_map(|(a, b)| Step::Copy(a, b)),
        2 => (r(), -1i32..3).prop_map(|(a, i)| Step::Add(a, i * 8)),
        1 => (r(), r()).prop_map(|(a, b)| Step::AddRegister(a, b)),
        1 => (7u8..10, 0i32..20).prop_map(|(a, i)| Step::Number(a, i)),
        3 => (w(), context_first()).prop_map(|(a, b)| Step::Spill(a, b)),
        1 => (w(), r()).prop_map(|(a, b)| Step::SpillHalf(a, b)),
        3 => (r(), w()).prop_map(|(a, b)| Step::Fill(a, b)),
        4 => (7u8..10, context_first(), s()).prop_map(|(a, b, s)| Step::Load(a, b, s)),
        1 => (7u8..10, context_first(), 0u8..60).prop_map(|(a, b, o)| Step::LoadPart(a, b, o)),
        3 => (1u8..5).prop_map(Step::Branch),
        3 => r().prop_map(Step::Record),
        2 => (r(), context_first()).prop_map(|(a, b)| Step::Call(a, b)),
        2 => w().prop_map(Step::CallWithFrame),
    ]
}

fn place(word: u8) -> i16 {
    -8 * (i16::from(word) + 1)
}

/// The code of a function; calls are left to be directed by the caller: (place, whether with the frame).
fn function(prologue: &[Insn], steps: &[Step], result: u8, may_call: bool) -> (Vec<Insn>, Vec<(usize, bool)>) {
    let mut blocks: Vec<(Vec<Insn>, Option<bool>, Option<u8>)> = Vec::new();
    for step in steps {
        let mut skip = None;
        let mut call = None;
        let code = match *step {
            Step::Copy(a, b) => vec![Insn::mov(a, b)],
            Step::Add(a, i) => vec![Insn::alu_imm(Alu::Add, a, i)],
            Step::AddRegister(a, b) => vec![Insn::alu(Alu::Add, a, b)],
            Step::Number(a, i) => vec![Insn::mov_imm(a, i)],
            Step::Spill(w, a) => vec![Insn::store(Width::D, 10, place(w), a)],
            Step::SpillHalf(w, a) => vec![Insn::store(Width::W, 10, place(w), a)],
            Step::Fill(a, w) => vec![Insn::load(Width::D, a, 10, place(w))],
            Step::Load(a, b, s) => vec![Insn::load(Width::D, a, b, i16::from(s) * 8)],
            Step::LoadPart(a, b, o) => vec![Insn::load(Width::H, a, b, i16::from(o))],
            Step::Branch(n) => {
                skip = Some(n);
                vec![Insn::call(7), Insn::jump_if_imm(Cond::Ne, 0, 0, 0)]
            }
            Step::Record(a) => vec![Insn::mov_imm(1, 0), Insn::mov(2, a), Insn::call(6)],
            Step::Call(a, b) if may_call => {
                call = Some(false);
                vec![Insn::mov(1, a), Insn::mov(2, b), Insn::call_subprogram(0), Insn::mov(a, 0)]
            }
            Step::CallWithFrame(w) if may_call => {
                call = Some(true);
                vec![
                    Insn::mov(1, 10),
                    Insn::alu_imm(Alu::Add, 1, i32::from(place(w))),
                    Insn::call_subprogram(0),
                    Insn::mov(7, 0),
                ]
            }
            Step::Call(..) | Step::CallWithFrame(_) => vec![],
        };
        blocks.push((code, call, skip));
    }
    let mut insns = prologue.to_vec();
    let mut calls = Vec::new();
    for (index, (code, call, skip)) in blocks.iter().enumerate() {
        let start = insns.len();
        insns.extend(code);
        if let Some(with_frame) = call {
            calls.push((start + 2, *with_frame));
        }
        if let Some(skip) = skip {
            let skipped: usize = blocks.iter().skip(index + 1).take(usize::from(*skip)).map(|b| b.0.len()).sum();
            insns[start + 1].off = skipped as i16;
        }
    }
    insns.extend([Insn::mov(0, result), Insn::exit()]);
    (insns, calls)
}

/// Main, f(a, b) and g(pointer), from random steps.
fn assemble(main: &[Step], f: &[Step], g: &[Step]) -> Vec<Insn> {
    let clear = |from: u8| {
        let registers = (from..10).map(|r| Insn::mov_imm(r, 0));
        registers.chain((0..4).map(|w| Insn::store_imm(Width::D, 10, place(w), 0))).collect::<Vec<_>>()
    };
    let prologue: Vec<Insn> = std::iter::once(Insn::mov(6, 1)).chain(clear(7)).collect();
    let (mut insns, calls) = function(&prologue, main, 6, true);
    let prologue: Vec<Insn> = [Insn::mov(6, 1), Insn::mov(7, 2)].into_iter().chain(clear(8)).collect();
    let (f_code, _) = function(&prologue, f, 7, false);
    let prologue: Vec<Insn> = std::iter::once(Insn::load(Width::D, 6, 1, 0)).chain(clear(7)).collect();
    let (g_code, _) = function(&prologue, g, 6, false);
    let (f_start, g_start) = (insns.len(), insns.len() + f_code.len());
    for (at, with_frame) in calls {
        let target = if with_frame { g_start } else { f_start };
        insns[at].imm = (target - at - 1) as i32;
    }
    insns.extend(f_code);
    insns.extend(g_code);
    insns
}

fn code() -> impl Strategy<Value = Vec<Insn>> {
    let steps = |most| prop::collection::vec(step(), 0..most);
    (steps(24), steps(10), steps(10)).prop_map(|(main, f, g)| assemble(&main, &f, &g))
}

fn outcome(insns: &[Insn], context: &mut [u8], numbers: &[u64]) -> Trace {
    run(insns, context, Memory { seed: 0, absent: 0 }, numbers)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, ..ProptestConfig::default() })]

    /// If the analysis says that a slot is not read, its value makes no difference.
    #[test]
    fn what_is_not_used_does_not_matter(
        insns in code(),
        numbers in prop::collection::vec(0u64..2, 0..12),
        slots in prop::collection::vec(0u64..1000, SLOTS),
    ) {
        let Ok(uses) = analyse(&user(insns.clone())) else { return Ok(()) };
        let mut context: Vec<u8> = slots.iter().flat_map(|slot| slot.to_le_bytes()).collect();
        let before = outcome(&insns, &mut context, &numbers);
        for slot in (0..SLOTS).filter(|slot| !uses.slots.contains(*slot as u32)) {
            let original = context.clone();
            context[slot * 8..slot * 8 + 8].fill(0xee);
            let after = outcome(&insns, &mut context, &numbers);
            prop_assert_eq!(&before, &after, "slot {}\n{}", slot, insn::listing(&insns));
            context.copy_from_slice(&original);
        }
    }

    /// Insertions and replacements that do nothing change nothing.
    #[test]
    fn edits_keep_jumps_and_calls(
        insns in code(),
        numbers in prop::collection::vec(0u64..2, 0..12),
        edits in prop::collection::vec(0u8..3, 200),
    ) {
        let mut context = vec![0x11u8; 8 * SLOTS];
        let before = outcome(&insns, &mut context, &numbers);
        let rewritten = edit(&insns, |at, insn| match edits.get(at) {
            Some(1) => Some(Edit::Before(vec![Insn::mov(5, 10), Insn::jump(1), Insn::exit()])),
            Some(2) if insn.code == Insn::mov_imm(0, 0).code => Some(Edit::Instead(vec![
                Insn::mov_imm(insn.dst(), 77),
                Insn::jump(0),
                insn,
            ])),
            _ => None,
        });
        let rewritten = rewritten.expect("no jump is far");
        let after = outcome(&rewritten.insns, &mut context, &numbers);
        prop_assert_eq!(before, after, "{}\n{}", insn::listing(&insns), insn::listing(&rewritten.insns));
    }
}

#[test]
fn the_random_programs_are_worth_running() {
    // Neither property means much if most programs are refused, fail, or read everything.
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut analysed, mut selective, mut completed) = (0, 0, 0);
    for _ in 0..500 {
        let insns = code().new_tree(&mut runner).expect("a program").current();
        if let Ok(uses) = analyse(&user(insns.clone())) {
            analysed += 1;
            selective += usize::from(!uses.slots.is_all() && !uses.slots.is_empty());
            let trace = outcome(&insns, &mut [1; 64], &[0, 1, 0, 1, 1, 0]);
            completed += usize::from(trace.returned.is_some());
        }
    }
    assert!(analysed > 400 && selective > 60 && completed > 200, "{analysed} {selective} {completed}");
}
