// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A trampoline is checked in three ways: its listing, its execution against the reference evaluator, and (elsewhere)
//! the kernel's verifier.

mod execution;
mod exits;
mod listings;
mod robustness;
mod soundness;
mod vm;

use super::*;
use crate::bpf::insn::Width;
use crate::program::analyse;
use siteseer_sites::location::{Located, Location, Missing, Op};

fn located(size: u32, signed: bool, at: Location) -> Parameter {
    Parameter { size, argument: Ok(Located::certain(size, signed, at)), typed: None, foreign: false }
}

fn missing(size: u32) -> Parameter {
    Parameter { size, argument: Err(Missing::OptimisedOut.into()), typed: None, foreign: false }
}

fn typed(at: Location, type_id: u32) -> Parameter {
    Parameter { typed: Some(type_id), ..located(8, false, at) }
}

fn computed(slots: &[&[Op]]) -> Location {
    let slots = slots.iter().map(|ops| Box::from(*ops)).collect();
    Location::Computed(siteseer_sites::location::Computed { slots })
}

fn spec(parameters: &[Parameter]) -> Spec<'_> {
    Spec {
        machine: Machine::X86_64,
        probe: Probe::Kprobe,
        parameters,
        ret: None,
        inline: true,
        cookie: 0x1234_5678_9abc,
        displacement: 0x1000_0000,
        kernel: KernelIds {
            rdonly_cast: Some(4242),
            session_is_return: Some(Kfunc { id: 4243, takes_context: true }),
            session_cookie: Some(Kfunc { id: 4244, takes_context: true }),
            private_stack: false,
            unplaced: false,
        },
    }
}

fn user(insns: Vec<Insn>) -> UserProgram {
    UserProgram { name: "test".to_owned(), insns, ..UserProgram::default() }
}

/// A program that passes each of these slots to helper 6 with its number.
fn copier(slots: impl IntoIterator<Item = u32>) -> UserProgram {
    let mut insns = vec![Insn::mov(6, 1)];
    for slot in slots {
        insns.push(Insn::load(Width::D, 2, 6, 8 * slot as i16));
        insns.push(Insn::mov_imm(1, slot as i32));
        insns.push(Insn::call(6));
    }
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    user(insns)
}

fn generated(program: &UserProgram, spec: &Spec<'_>) -> Result<Image, Refusal> {
    Ok(linked(generate(program, &analyse(program)?, spec)?))
}

/// With the descriptors that the tests give the maps.
fn linked(image: Image) -> Image {
    let insns = image.with_maps(|map| match map {
        OwnMap::Sites => 5,
        OwnMap::Faults => 6,
        OwnMap::Saved => 7,
    });
    Image { insns, ..image }
}
