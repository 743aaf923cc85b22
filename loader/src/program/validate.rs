// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a program must be to be analysed and rewritten at all. What is not known here is refused by name: an
//! instruction that leads elsewhere than it seems to would be a read that is missed.

use super::UserProgram;
use super::liveness::{call_target, jump_target};
use crate::site::refusal::Refusal;
use std::collections::BTreeSet;

/// The register through which a function of more than five parameters passes the rest (`BPF_REG_PARAMS`).
const STACK_ARGUMENTS: u8 = 11;

/// Checks what all else relies on: registers exist, immediates are whole, jumps and calls land on instructions. Gives
/// the instructions that are jumped to.
pub(super) fn validate(program: &UserProgram) -> Result<BTreeSet<usize>, Refusal> {
    let insns = &program.insns;
    let malformed = |insn, what| Err(Refusal::Malformed { insn, what });
    let mut halves = BTreeSet::new();
    let mut at = 0;
    while let Some(insn) = insns.get(at) {
        if insn.dst() == STACK_ARGUMENTS || (insn.src() == STACK_ARGUMENTS && !insn.is_load64()) {
            return malformed(at, "passes arguments on the stack, which is not supported");
        }
        if insn.dst() > 10 || (insn.src() > 10 && !insn.is_load64()) {
            return malformed(at, "there is no such register");
        }
        if insn.is_load64() {
            if insns.get(at + 1).is_none_or(|half| half.code != 0) {
                return malformed(at, "the second half of a 64-bit immediate is missing");
            }
            halves.insert(at + 1);
            at += 1;
        }
        at += 1;
    }
    if insns.is_empty() {
        return malformed(0, "the program is empty");
    }
    let mut leaders = BTreeSet::new();
    for (at, &insn) in insns.iter().enumerate().filter(|(at, _)| !halves.contains(at)) {
        let lands = |target: Option<usize>| target.filter(|t| *t < insns.len() && !halves.contains(t));
        if insn.is_indirect_jump() {
            return malformed(at, "jumps to a computed place, which is not supported");
        }
        if insn.is_jump() {
            match lands(jump_target(at, insn)) {
                Some(target) => leaders.insert(target),
                None => return malformed(at, "jumps out of the program"),
            };
        }
        if (insn.is_subprogram_call() || insn.is_subprogram_address()) && lands(call_target(at, insn)).is_none() {
            return malformed(at, "refers to a function outside of the program");
        }
        if insn.is_call() && insn.helper().is_none() && !insn.is_subprogram_call() && !insn.is_kfunc_call() {
            return malformed(at, "calls a computed place, which is not supported");
        }
    }
    Ok(leaders)
}
