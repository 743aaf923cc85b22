// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which argument registers a function reads.
//!
//! BPF code does not say how many arguments a call passes. Compilers leave the context in r1 while they call something
//! that takes no argument, and that is not passing it. So a subprogram's parameters are found by liveness: an argument
//! register counts if some path from the function's start reads it before writing it.

use super::UserProgram;
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Insn, atomic, class, mode};
use std::collections::{BTreeMap, HashMap};

/// Bits of r1 to r5.
const ARGUMENTS: u16 = 0b11_1110;
/// Bits of r0 to r5: what a call destroys.
const CALL_CLOBBERS: u16 = 0b11_1111;

/// Parameters of functions, found on demand. The program must have been validated.
pub(super) struct Liveness<'p> {
    program: &'p UserProgram,
    known: HashMap<usize, u16>,
    depth: usize,
}

/// Calls inside calls after which a function is taken to read everything; the verifier allows 8 frames.
const MAX_DEPTH: usize = 16;

impl<'p> Liveness<'p> {
    pub(super) fn new(program: &'p UserProgram) -> Liveness<'p> {
        Liveness { program, known: HashMap::new(), depth: 0 }
    }

    /// The argument registers that a call reads, as bits by register number.
    pub(super) fn call_reads(&mut self, at: usize, insn: Insn) -> u16 {
        if let Some(id) = insn.helper() {
            first_registers(helper::arguments(id))
        } else if insn.is_subprogram_call() {
            match call_target(at, insn) {
                Some(target) => self.parameters(target),
                None => ARGUMENTS,
            }
        } else if insn.is_kfunc_call() && insn.off == 0 {
            first_registers(self.program.kfunc_arguments.get(&insn.imm).copied().unwrap_or(5))
        } else {
            ARGUMENTS
        }
    }

    /// The argument registers that the function at `start` reads, as bits by register number.
    pub(super) fn parameters(&mut self, start: usize) -> u16 {
        if let Some(known) = self.known.get(&start) {
            return *known;
        }
        if self.depth >= MAX_DEPTH {
            return ARGUMENTS;
        }
        self.depth += 1;
        // What a function is taken to read while it is being found out: matters for recursion only, which is refused.
        self.known.insert(start, ARGUMENTS);
        let order = self.reachable(start);
        let mut live: BTreeMap<usize, u16> = BTreeMap::new();
        let mut changed = true;
        while changed {
            changed = false;
            for &at in order.iter().rev() {
                let Some(&insn) = self.program.insns.get(at) else { continue };
                let after = successors(at, insn).into_iter().flatten();
                let out = after.map(|next| live.get(&next).copied().unwrap_or(0)).fold(0, |a, b| a | b);
                let (reads, writes) = self.effects(at, insn);
                let new = (out & !writes) | reads;
                if live.insert(at, new) != Some(new) {
                    changed = true;
                }
            }
        }
        self.depth -= 1;
        let parameters = live.get(&start).copied().unwrap_or(0) & ARGUMENTS;
        self.known.insert(start, parameters);
        parameters
    }

    /// The instructions that can be reached from a function's start without leaving it, in order.
    fn reachable(&self, start: usize) -> Vec<usize> {
        let mut seen = std::collections::BTreeSet::new();
        let mut todo = vec![start];
        while let Some(at) = todo.pop() {
            let Some(&insn) = self.program.insns.get(at) else { continue };
            if seen.insert(at) {
                todo.extend(successors(at, insn).into_iter().flatten());
            }
        }
        seen.into_iter().collect()
    }

    /// Registers read and written.
    fn effects(&mut self, at: usize, insn: Insn) -> (u16, u16) {
        let (dst, src) = (1u16 << insn.dst(), 1u16 << insn.src());
        let operand = if insn.uses_source() { src } else { 0 };
        match insn.class() {
            class::ALU | class::ALU64 if insn.op() == Alu::Mov as u8 => (operand, dst),
            // A byte swap and a negation have no second operand.
            class::ALU | class::ALU64 if insn.op() >= 0xd0 || insn.op() == Alu::Neg as u8 => (dst, dst),
            class::ALU | class::ALU64 => (dst | operand, dst),
            class::LD if insn.is_load64() => (0, dst),
            class::LD => (src | 1 << 6, CALL_CLOBBERS),
            class::LDX => (src, dst),
            class::ST => (dst, 0),
            class::STX if insn.mode() == mode::ATOMIC => match insn.imm {
                atomic::LOAD_ACQ => (src, dst),
                atomic::CMPXCHG => (dst | src | 1, 1),
                _ => (dst | src, 0),
            },
            class::STX => (dst | src, 0),
            _ if insn.is_call() => (self.call_reads(at, insn), CALL_CLOBBERS),
            _ if insn.is_exit() => (1, 0),
            _ if insn.is_goto() => (0, 0),
            _ => (dst | operand, 0),
        }
    }
}

fn first_registers(count: u8) -> u16 {
    ((2u16 << count.min(5)) - 1) & ARGUMENTS
}

/// Where a subprogram call or address leads.
pub(super) fn call_target(at: usize, insn: Insn) -> Option<usize> {
    usize::try_from(at as i64 + 1 + i64::from(insn.imm)).ok()
}

/// Where a direct jump leads.
pub(super) fn jump_target(at: usize, insn: Insn) -> Option<usize> {
    usize::try_from(at as i64 + 1 + i64::from(insn.jump_distance())).ok()
}

/// The instructions of the same function that can come next: the one after, and a jump's target.
pub(super) fn successors(at: usize, insn: Insn) -> [Option<usize>; 2] {
    let next = at + if insn.is_load64() { 2 } else { 1 };
    if insn.is_exit() || insn.is_indirect_jump() {
        [None, None]
    } else if insn.is_jump() {
        [(!insn.is_goto()).then_some(next), jump_target(at, insn)]
    } else {
        [Some(next), None]
    }
}
