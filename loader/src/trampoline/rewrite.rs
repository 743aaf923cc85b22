// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is changed in the user's code.
//!
//! Some helper calls get instructions put before them, others are replaced. The changes are local: each uses only
//! registers that the call would have destroyed, and a jump to the call lands on what stands before it. All that
//! refers to instructions by position (jumps, calls, subprogram addresses, function and line information) is moved
//! along.

use super::Probe;
use super::layout::{Access, Layout};
use crate::bpf::helper::{self, Treatment};
use crate::bpf::insn::{Alu, Cond, Insn, Width, pseudo};
use crate::program::{FuncInfo, LineInfo, UserProgram, Uses};
use crate::site::refusal::Refusal;
use std::collections::BTreeSet;

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// What happens to an instruction.
#[derive(Debug)]
pub(super) enum Edit {
    /// These come before it.
    Before(Vec<Insn>),
    /// These take its place.
    Instead(Vec<Insn>),
    /// These take its place, and the one at this index loads the map of sites.
    LookUp(Vec<Insn>, usize),
}

/// The changed code.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) insns: Vec<Insn>,
    /// Where each original instruction (or what stands before it) is now; one more for the end.
    pub(super) positions: Vec<usize>,
    /// The instructions that load the map of sites.
    pub(super) site_maps: Vec<usize>,
}

/// Refuses a program that calls a helper which does not work where this probe would run it.
pub(super) fn check_helpers(uses: &Uses, probe: Probe) -> Result<(), Refusal> {
    for &(id, insn) in &uses.helpers {
        let why = match helper::treatment(id) {
            Treatment::TailCall if !matches!(probe, Probe::Fentry | Probe::Fexit) => {
                return Err(Refusal::TailCall { insn });
            }
            Treatment::Tracing if !probe.is_tracing() => helper::ONLY_TRACING,
            Treatment::Sleeps if !probe.is_tracing() => helper::SLEEPS,
            Treatment::Context if id != helper::PERF_EVENT_OUTPUT => match probe {
                Probe::Session => helper::NO_STACK_TRACE,
                Probe::TracingMulti | Probe::TracingMultiExit => helper::DEEPER_STACK_TRACE,
                _ => continue,
            },
            _ => continue,
        };
        return Err(Refusal::HelperNotAllowed { helper: helper::name(id).unwrap_or("a helper"), insn, why });
    }
    Ok(())
}

/// Rewrites the user's code for a layout.
pub(super) fn rewrite(program: &UserProgram, uses: &Uses, layout: &Layout) -> Result<Rewritten, Refusal> {
    match layout.probe {
        Probe::Fentry | Probe::Fexit => {
            let frames = Frames::new(program, uses)?;
            edit(&program.insns, |at, insn| native_edit(&frames, uses, layout, at, insn))
        }
        _ => edit(&program.insns, |at, insn| array_edit(uses, layout, at, insn)),
    }
}

/// Where there is room for what an accessor needs in memory under real fentry: below what the calling function uses of
/// its frame.
struct Frames<'p> {
    starts: BTreeSet<usize>,
    uses: &'p Uses,
}

/// Bytes that an accessor takes: a pointer and a value.
const ACCESSOR_BYTES: u32 = 16;

impl<'p> Frames<'p> {
    fn new(program: &UserProgram, uses: &'p Uses) -> Result<Frames<'p>, Refusal> {
        let frames = Frames { starts: program.function_starts(), uses };
        let accessor = |id| matches!(helper::treatment(id), Treatment::Argument | Treatment::Site);
        for (_, at) in uses.helpers.iter().filter(|(id, _)| accessor(*id)) {
            let limit = super::STACK_LIMIT;
            if frames.size(*at) + ACCESSOR_BYTES > limit {
                return Err(Refusal::StackOverflow { program: uses.stack, trampoline: ACCESSOR_BYTES, limit });
            }
        }
        Ok(frames)
    }

    /// Bytes that the function which holds an instruction uses, in whole words.
    fn size(&self, at: usize) -> u32 {
        let owner = self.starts.range(..=at).next_back().copied().unwrap_or(0);
        self.uses.frames.get(&owner).copied().unwrap_or(0).next_multiple_of(8)
    }

    /// The first word below them. [`Frames::new`] checked that the frame is not larger than the stack.
    fn below(&self, at: usize) -> i16 {
        -(self.size(at).min(super::STACK_LIMIT) as i16) - 8
    }
}

/// Applies edits to code.
pub(super) fn edit(insns: &[Insn], mut edit_of: impl FnMut(usize, Insn) -> Option<Edit>) -> Result<Rewritten, Refusal> {
    let mut out = Vec::with_capacity(insns.len() + insns.len() / 8);
    let mut positions = Vec::with_capacity(insns.len() + 1);
    // Where each kept instruction is, with its original place.
    let mut kept = Vec::with_capacity(insns.len());
    let mut site_maps = Vec::new();
    let mut second_half = false;
    for (at, &insn) in insns.iter().enumerate() {
        positions.push(out.len());
        let edit = if second_half { None } else { edit_of(at, insn) };
        match edit {
            Some(Edit::Instead(instead)) => {
                out.extend(instead);
                continue;
            }
            Some(Edit::LookUp(instead, load)) => {
                site_maps.push(out.len() + load);
                out.extend(instead);
                continue;
            }
            Some(Edit::Before(before)) => out.extend(before),
            None => {}
        }
        if !second_half {
            kept.push((at, out.len()));
        }
        out.push(insn);
        second_half = !second_half && insn.is_load64();
    }
    positions.push(out.len());
    for (at, now) in kept {
        let Some(insn) = out.get_mut(now) else { continue };
        let distance = if insn.is_jump() {
            insn.jump_distance()
        } else if insn.is_subprogram_call() || insn.is_subprogram_address() {
            insn.imm
        } else {
            continue;
        };
        let target = usize::try_from(at as i64 + 1 + i64::from(distance)).ok();
        let Some(&target) = target.and_then(|target| positions.get(target)) else {
            return Err(Refusal::Malformed { insn: at, what: "leads out of the program" });
        };
        let distance = target as i64 - now as i64 - 1;
        let moved = if insn.is_jump() {
            insn.with_jump_distance(distance)
        } else {
            i32::try_from(distance).ok().map(|imm| Insn { imm, ..*insn })
        };
        *insn = moved.ok_or(Refusal::JumpTooFar { insn: at })?;
    }
    Ok(Rewritten { insns: out, positions, site_maps })
}

/// Where a main program gathered the arguments into an array, and the program has the address of that as its context.
fn array_edit(uses: &Uses, layout: &Layout, at: usize, insn: Insn) -> Option<Edit> {
    let id = insn.helper()?;
    let real_context = || Edit::Before(vec![Insn::load(Width::D, 1, 1, -8)]);
    Some(match helper::treatment(id) {
        Treatment::Context => real_context(),
        Treatment::FuncIp if layout.func_ip_is_address => Edit::Instead(vec![Insn::load(Width::D, 0, 1, -16)]),
        Treatment::FuncIp => real_context(),
        Treatment::Cookie => Edit::Instead(number(0, layout.cookie.unwrap_or(0))),
        Treatment::FuncArg => Edit::Instead(choose(&layout.indexed, constants(uses, at), 3, EINVAL, &mut gathered)),
        Treatment::FuncArgCount => Edit::Instead(vec![Insn::mov_imm(0, layout.argument_count.unwrap_or(0) as i32)]),
        Treatment::FuncRet => Edit::Instead(match layout.returned {
            Some(word) => {
                vec![Insn::load(Width::D, 1, 1, 8 * word as i16), Insn::store(Width::D, 2, 0, 1), Insn::mov_imm(0, 0)]
            }
            None => vec![Insn::mov_imm(0, -EOPNOTSUPP)],
        }),
        Treatment::Argument => {
            let value = if id == helper::SITESEER_ARG { 3 } else { 4 };
            Edit::Instead(choose(&layout.fallible, constants(uses, at), value, ENOENT, &mut gathered))
        }
        Treatment::Site => look_up_site(vec![Insn::mov(2, 1), Insn::alu_imm(Alu::Add, 2, -16)]),
        Treatment::Plain | Treatment::Tracing | Treatment::Sleeps | Treatment::TailCall | Treatment::Refused(_) => {
            return None;
        }
    })
}

/// Under real fentry the context is the kernel's own: only what siteseer.bpf.h adds is replaced.
fn native_edit(frames: &Frames<'_>, uses: &Uses, layout: &Layout, at: usize, insn: Insn) -> Option<Edit> {
    let id = insn.helper()?;
    let place = frames.below(at);
    Some(match helper::treatment(id) {
        Treatment::Argument => {
            let value = if id == helper::SITESEER_ARG { 3 } else { 4 };
            let mut ask = |access: &Access, value: u8| native_value(access, value, place);
            Edit::Instead(choose(&layout.fallible, constants(uses, at), value, ENOENT, &mut ask))
        }
        Treatment::Site => look_up_site(vec![
            Insn::call(helper::GET_FUNC_IP),
            Insn::store(Width::D, 10, place, 0),
            Insn::mov(2, 10),
            Insn::alu_imm(Alu::Add, 2, i32::from(place)),
        ]),
        _ => return None,
    })
}

/// An [`Answer`]: asks the kernel for a slot. It gives the register as it was, above a narrow value with what happened
/// to be there: that is fetched to the frame, where the pointer to its destination survives the call too, and extended.
fn native_value(access: &Access, value: u8, place: i16) -> (Vec<Insn>, Vec<usize>) {
    let mut code = Vec::new();
    let Some((bits, signed)) = access.narrow else {
        if value != 3 {
            code.push(Insn::mov(3, value));
        }
        code.extend([Insn::mov_imm(2, access.word as i32), Insn::call(helper::GET_FUNC_ARG)]);
        return (code, Vec::new());
    };
    code.extend([
        Insn::store(Width::D, 10, place, value),
        Insn::mov_imm(2, access.word as i32),
        Insn::mov(3, 10),
        Insn::alu_imm(Alu::Add, 3, i32::from(place) - 8),
        Insn::call(helper::GET_FUNC_ARG),
    ]);
    let failed = code.len();
    code.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
    let away = 64 - bits as i32;
    code.extend([
        Insn::load(Width::D, 1, 10, place - 8),
        Insn::alu_imm(Alu::Lsh, 1, away),
        Insn::alu_imm(if signed { Alu::Arsh } else { Alu::Rsh }, 1, away),
        Insn::load(Width::D, 2, 10, place),
        Insn::store(Width::D, 2, 0, 1),
    ]);
    (code, vec![failed])
}

/// The look-up in the map of sites, after code that makes r2 point to the key; r0 is the record or null.
fn look_up_site(mut code: Vec<Insn>) -> Edit {
    let load = code.len();
    code.extend(Insn::load64(1, pseudo::MAP_FD, 0));
    code.push(Insn::call(helper::MAP_LOOKUP_ELEM));
    Edit::LookUp(code, load)
}

fn constants(uses: &Uses, at: usize) -> [Option<u32>; 2] {
    uses.constant_indices.get(&at).copied().unwrap_or([None, None])
}

fn number(register: u8, value: u64) -> Vec<Insn> {
    match i32::try_from(value as i64) {
        Ok(imm) => vec![Insn::mov_imm(register, imm)],
        Err(_) => Insn::load64(register, 0, value).to_vec(),
    }
}

/// An [`Answer`]: copies a gathered value from the array (r1) to where `value` points.
fn gathered(access: &Access, value: u8) -> (Vec<Insn>, Vec<usize>) {
    let mut code = Vec::new();
    let mut to_end = Vec::new();
    if let Some(state) = access.state {
        code.push(Insn::load(Width::D, 0, 1, 8 * state as i16));
        to_end.push(code.len());
        code.push(Insn::jump_if_imm(Cond::Ne, 0, 0, 0));
    }
    code.push(Insn::load(Width::D, 1, 1, 8 * access.word as i16));
    code.push(Insn::store(Width::D, value, 0, 1));
    code.push(Insn::mov_imm(0, 0));
    (code, to_end)
}

/// Code that answers with one value, given the register that points to where it goes; and which of its instructions
/// are jumps to the end of the call.
type Answer<'a> = dyn FnMut(&Access, u8) -> (Vec<Insn>, Vec<usize>) + 'a;

/// Code that answers a request by number: a chain of comparisons with r2 (and r3 for the slot), or no comparison
/// where the number is a constant. The result is in r0: 0, or the negated error.
fn choose(
    accesses: &[Access],
    constants: [Option<u32>; 2],
    value: u8,
    error: i32,
    answer: &mut Answer<'_>,
) -> Vec<Insn> {
    let [parameter, slot] = constants;
    let possible = |access: &&Access| {
        parameter.is_none_or(|parameter| parameter == access.parameter) && slot.is_none_or(|slot| slot == access.slot)
    };
    let mut code = Vec::new();
    let mut to_end = Vec::new();
    for access in accesses.iter().filter(possible) {
        let (body, leaves) = answer(access, value);
        let mut tests = Vec::new();
        if parameter.is_none() {
            tests.push((2, access.parameter));
        }
        if slot.is_none() {
            tests.push((3, access.slot));
        }
        let certain = tests.is_empty();
        // Past the remaining tests, the body and the jump to the end.
        for (remaining, (register, number)) in (0..tests.len()).rev().zip(tests) {
            let past = (remaining + body.len() + 1) as i16;
            code.push(Insn::jump32_if_imm(Cond::Ne, register, number as i32, past));
        }
        to_end.extend(leaves.into_iter().map(|leave| code.len() + leave));
        code.extend(body);
        if certain {
            return land(code, to_end);
        }
        to_end.push(code.len());
        code.push(Insn::jump(0));
    }
    code.push(Insn::mov_imm(0, -error));
    land(code, to_end)
}

/// Makes jumps lead to the end of the code. It is short: an entry per slot at most.
fn land(mut code: Vec<Insn>, jumps: Vec<usize>) -> Vec<Insn> {
    let end = code.len();
    for jump in jumps {
        if let Some(insn) = code.get_mut(jump) {
            insn.off = (end - jump - 1) as i16;
        }
    }
    code
}

/// Function and line information of the changed code.
#[derive(Debug, Default)]
pub(super) struct Info {
    pub(super) functions: Vec<FuncInfo>,
    pub(super) lines: Vec<LineInfo>,
}

impl Info {
    /// Moves everything after so many instructions.
    pub(super) fn shift(&mut self, by: usize) -> Result<(), Refusal> {
        let by = u32::try_from(by).map_err(|_| Refusal::TooComplex)?;
        for info in &mut self.functions {
            info.insn_off = info.insn_off.saturating_add(by);
        }
        for info in &mut self.lines {
            info.insn_off = info.insn_off.saturating_add(by);
        }
        Ok(())
    }
}

/// The program's function and line information at its new positions. What the kernel would refuse (functions that
/// are not all covered, in order; lines out of order, or missing where a function starts) is left out as a whole:
/// without it the program runs as well, and the verifier's log is poorer.
pub(super) fn info(program: &UserProgram, positions: &[usize]) -> Info {
    let position = |insn_off: u32| {
        let at = usize::try_from(insn_off).ok().filter(|at| *at < program.insns.len())?;
        positions.get(at).and_then(|position| u32::try_from(*position).ok())
    };
    let functions: Option<Vec<FuncInfo>> = program
        .func_info
        .iter()
        .map(|info| position(info.insn_off).map(|insn_off| FuncInfo { insn_off, ..*info }))
        .collect();
    let starts = program.function_starts();
    let covered = program.func_info.iter().map(|info| info.insn_off as usize).eq(starts.iter().copied());
    let Some(functions) = functions.filter(|_| covered && program.btf.is_some()) else {
        return Info::default();
    };
    let lines: Option<Vec<LineInfo>> = program
        .line_info
        .iter()
        .map(|info| position(info.insn_off).map(|insn_off| LineInfo { insn_off, ..*info }))
        .collect();
    let ordered = |lines: &Vec<LineInfo>| lines.is_sorted_by(|a, b| a.insn_off < b.insn_off);
    let complete = |_: &Vec<LineInfo>| {
        starts.iter().all(|start| program.line_info.binary_search_by_key(start, |info| info.insn_off as usize).is_ok())
    };
    let lines = lines.filter(ordered).filter(complete).unwrap_or_default();
    Info { functions, lines }
}
