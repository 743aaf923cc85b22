// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Machine code of one function: instruction boundaries, and who can reach what.
//!
//! A probe goes on the first byte of an instruction, and it stands for "the body starts here" only if control passes
//! it exactly when the body starts. Four questions follow, and this module answers them from the bytes:
//!
//! * May the probe move forward ([`FunctionText::walk_block`]) or back (`FunctionText::walk_back`)? Only inside the
//!   basic block, and only past instructions with known effects.
//! * Can the entry be reached again from inside the body ([`FunctionText::reentered_from`])? Then hits outnumber calls.
//! * Where does control enter a body that DWARF gives no entry for ([`FunctionText::entries`])?
//! * Can control come through the body and pass none of its entries ([`FunctionText::bypasses`])? Then calls are
//!   missed.
//!
//! The text is decoded once, linearly, as the kernel itself does before it accepts a kprobe. Control flow is that of
//! the bytes plus what happens to them at run time: a jump label is a no-op *or* a jump, text under an alternative
//! may be replaced by something that jumps or falls through, an instruction in the exception table may continue at
//! its fixup, and WARN's trap resumes. Calls fall through unless the callee is known never to return.
//!
//! What cannot be known is where an indirect jump goes. With retpolines, or `-fno-jump-tables`, the compiler makes
//! indirect jumps for tail calls only. Else a function that has one is taken to have unknown block leaders: nothing
//! in it is walked.

mod acts;
mod arm64;
mod before;
mod begins;
mod clears;
mod direct;
mod dominators;
mod exits;
mod graph;
mod kept;
mod makes;
mod patch_site;
mod paths;
pub mod probeable;
mod reads;
mod result;
mod same;
mod slots;
pub(crate) mod stable;
mod stores;
mod thunk;
mod unread;
mod unwritten;
mod x86;
mod zero;

#[cfg(test)]
pub(crate) mod tests;

use crate::elf::image::Image;
use crate::elf::tables::within;
pub(crate) use before::register_copy;
pub(crate) use direct::DirectEntries;
use graph::Graph;
pub(crate) use kept::is_kept;
pub(crate) use makes::{InPlace, Makers};
pub(crate) use patch_site::{after_fentry, past_tracer};
pub(crate) use result::{call_target, uses_result};
pub(crate) use same::{are_alike, places_in};
use siteseer_sites::machine::Register;
use siteseer_sites::{Machine, Unprobeable};
pub(crate) use slots::Slot;
use std::cell::{Cell, OnceCell};
use std::ops::Range;
pub(crate) use thunk::jumps_at_once;

/// A set of registers by DWARF number, up to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegisterSet(u64);

impl RegisterSet {
    /// Whether a register is in the set. Those that no set can hold are never in it.
    pub fn contains(self, register: Register) -> bool {
        register < 64 && self.0 >> register & 1 != 0
    }

    /// Adds a register below 64.
    pub fn insert(&mut self, register: Register) {
        if register < 64 {
            self.0 |= 1 << register;
        }
    }

    /// Whether a register is in both sets.
    pub(crate) fn meets(self, other: RegisterSet) -> bool {
        self.0 & other.0 != 0
    }

    /// The registers of both sets.
    #[must_use]
    pub fn union(self, other: RegisterSet) -> RegisterSet {
        RegisterSet(self.0 | other.0)
    }

    /// Whether no register is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One instruction of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The instruction's address.
    pub address: u64,
    /// The address of the one after it.
    pub next: u64,
    /// The full registers that it may write.
    pub writes: RegisterSet,
    /// Whether it may write memory.
    pub stores: bool,
    /// A probe must not be moved past this instruction: it transfers control, is not plain, may be replaced at run
    /// time, or the next one can be reached from elsewhere. The walk ends with it.
    pub ends: bool,
}

/// What is known about a function besides its bytes.
#[derive(Clone, Copy, Default)]
pub struct Known<'k> {
    /// Where it is entered; by default the start of the first range.
    pub entry: Option<u64>,
    /// The register that has the frame's address wherever the function stores to it (as DW_AT_frame_base says), if that
    /// is not the stack pointer.
    pub frame_pointer: Option<Register>,
    /// Compiled with `-fno-jump-tables` (as DW_AT_producer says): an indirect jump is a tail call. Retpolines imply
    /// it and need not be told.
    pub no_jump_tables: bool,
    /// The jumps that are tail calls (as DW_AT_call_pc says), sorted.
    pub tail_calls: &'k [u64],
    /// Tells functions that never return by their address (as DW_AT_noreturn says), beside those known by name.
    pub noreturn: Option<&'k (dyn Fn(u64) -> bool + Sync)>,
}

/// Where control goes after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next one. So it does after an indirect call.
    Next,
    /// To the next one; a no-op.
    Nop,
    /// To an address.
    Jump(u64),
    /// To an address, or to the next one.
    Conditional(u64),
    /// To an address, and back.
    Call(u64),
    /// A jump to wherever a register or memory says.
    Indirect,
    /// A trap; what follows runs if the bug table says so.
    Trap,
    /// Return and the like.
    Stop,
    /// arm64: a landing pad for indirect jumps (`bti j`, `bti jc`).
    LandingPad,
    /// Not an instruction.
    Invalid,
}

/// Where control goes after the instruction at an address, and the address of the one after it. `None` outside of the
/// image's sections.
pub fn flow_at(image: &Image<'_>, address: u64) -> Option<(Flow, u64)> {
    match image.machine() {
        Machine::X86_64 => x86::flow_at(image, address),
        Machine::Aarch64 => arm64::flow_at(image, address),
    }
}

/// What an instruction does, as far as a moving probe is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Effect {
    next: u64,
    writes: RegisterSet,
    stores: bool,
    /// Does nothing but compute, load and store.
    plain: bool,
    /// Goes on at `next` and nowhere else, and `writes` is complete.
    straight: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    target: u64,
    source: u64,
}

/// The places after a function's entry that control comes to before the function has done anything: after landing pads,
/// no-ops, and the instruction that ftrace patches, where tracers restore all registers.
pub(crate) fn idle_prefix<'i>(image: &'i Image<'_>, entry: u64) -> impl Iterator<Item = u64> + 'i {
    /// A landing pad, two no-ops of the arm64 patch area, and one to spare.
    const LONGEST: usize = 4;
    let tables = image.tables();
    let mut effects = Effects::new(image.machine());
    let mut at = entry;
    std::iter::from_fn(move || {
        let effect = effects.at(image, at)?;
        let is_ftrace = tables.ftrace.binary_search(&at).is_ok();
        let is_idle = effect.straight && !effect.stores && effect.writes.is_empty();
        let is_replaced = tables.in_alternative(at) || tables.jump_label_at(at).is_some() || tables.may_fault(at);
        if is_replaced || !(is_ftrace || is_idle) {
            return None;
        }
        at = effect.next;
        Some(at)
    })
    .take(LONGEST)
}

/// A contiguous part of the function. Instructions are indices into the function's vectors.
#[derive(Debug, Clone)]
struct Piece {
    start: u64,
    end: u64,
    instructions: Range<usize>,
}

/// Per instruction: control may go on to the one after it.
const FALLS: u8 = 1;
/// Per instruction: a no-op, which may be padding that nothing reaches.
const NOP: u8 = 2;

/// Whether the instructions from `from` to `to` run one after the other, and none writes a register. The call to ftrace
/// does not.
pub(crate) fn line_preserves(image: &Image<'_>, from: u64, to: u64, register: Register) -> bool {
    let tables = image.tables();
    let mut effects = Effects::new(image.machine());
    let mut at = from;
    while at < to {
        let Some(effect) = effects.at(image, at) else { return false };
        let is_ftrace = tables.ftrace.binary_search(&at).is_ok();
        if tables.in_alternative(at) || tables.jump_label_at(at).is_some() || tables.may_fault(at) {
            return false;
        }
        if !is_ftrace && (!effect.straight || effect.writes.contains(register)) {
            return false;
        }
        at = effect.next;
    }
    at == to
}

/// The decoded text of one function, hot and cold parts.
pub struct FunctionText<'i, 'a> {
    image: &'i Image<'a>,
    entry: u64,
    /// See [`Known::frame_pointer`].
    frame_pointer: Option<Register>,
    pieces: Vec<Piece>,
    /// Offset of each instruction from the start of its piece.
    offsets: Vec<u32>,
    flags: Vec<u8>,
    /// Branches inside the function, by target.
    edges: Vec<Edge>,
    /// Made when first needed.
    graph: OnceCell<Graph>,
    /// For each instruction, whether the address of something in the frame may have been taken before: found out when
    /// first needed.
    after_address: OnceCell<Box<[bool]>>,
    /// For each instruction, whether it does something that can be seen: found out when first needed.
    acting: OnceCell<Box<[Cell<Option<bool>>]>>,
    /// Indirect jumps with unknown targets.
    indirect: Vec<u64>,
}

impl<'i, 'a> FunctionText<'i, 'a> {
    /// Decodes the ranges of a function. The first begins with its entry, unless `known` says otherwise. Ranges that
    /// are not in the image's text are left out.
    pub fn decode(image: &'i Image<'a>, ranges: &[Range<u64>], known: &Known<'_>) -> FunctionText<'i, 'a> {
        let mut text = FunctionText {
            image,
            entry: known.entry.or(ranges.first().map(|r| r.start)).unwrap_or(0),
            frame_pointer: known.frame_pointer,
            pieces: Vec::with_capacity(ranges.len()),
            offsets: Vec::new(),
            flags: Vec::new(),
            edges: Vec::new(),
            graph: OnceCell::new(),
            after_address: OnceCell::new(),
            acting: OnceCell::new(),
            indirect: Vec::new(),
        };
        let sorted = sorted(ranges);
        let len: u64 = sorted.iter().map(|r| r.end - r.start).sum();
        // Four bytes an instruction, or a bit more, on both machines.
        let expected = usize::try_from(len / 4).unwrap_or(0).min(1 << 20);
        text.offsets.reserve(expected);
        text.flags.reserve(expected);
        let mut pads = Vec::new();
        for range in sorted.iter() {
            text.decode_piece(range, &sorted, known, &mut pads);
        }
        text.add_run_time_flow();
        if image.machine() == Machine::Aarch64 {
            text.resolve_landing_pads(&pads);
        }
        text.edges.sort_unstable();
        text.edges.dedup();
        text
    }

    /// Whether an instruction of the function begins at that address. False inside text that may be replaced at boot,
    /// where boundaries may differ at run time; its first byte stays one.
    pub fn is_boundary(&self, address: u64) -> bool {
        self.index(address).is_some()
            && !within(&self.image.tables().alternatives, &(address.saturating_sub(255)..address), |a| a.start)
                .any(|alternative| address < alternative.end)
    }

    /// The image that it is of.
    pub(crate) fn image(&self) -> &'i Image<'a> {
        self.image
    }

    /// How many instructions the function has.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The instructions' addresses, piece by piece.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().flat_map(|piece| {
            self.offsets[piece.instructions.clone()].iter().map(|&offset| piece.start + u64::from(offset))
        })
    }

    /// The branches inside the function as (source, target), by target: those in the bytes, and those that jump
    /// labels, alternatives and exceptions add at run time.
    pub fn branches(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.edges.iter().map(|edge| (edge.source, edge.target))
    }

    /// Whether the function has indirect jumps that may go anywhere in it.
    pub fn has_unknown_targets(&self) -> bool {
        !self.indirect.is_empty()
    }

    /// Whether control comes from one address to a later one in a straight line, calls aside, and in no other way.
    pub(crate) fn is_straight(&self, from: u64, to: u64) -> bool {
        self.falls_through(from, to) && (from == to || self.edges_to(to).is_empty())
    }

    /// The same, whatever else leads to the second instruction.
    pub(crate) fn falls_through(&self, from: u64, to: u64) -> bool {
        let piece = self.pieces.iter().find(|piece| (piece.start..piece.end).contains(&from));
        let Some(piece) = piece.filter(|piece| (from..piece.end).contains(&to)) else { return false };
        let falls = piece.instructions.clone().all(|index| {
            let at = piece.start + u64::from(self.offsets[index]);
            !(from..to).contains(&at) || self.flags[index] & FALLS != 0
        });
        let is_on_the_way = |edge: &Edge| (from..to).contains(&edge.source) || (from + 1..to).contains(&edge.target);
        falls && !self.has_unknown_targets() && !self.edges.iter().any(is_on_the_way)
    }

    /// The instructions from an address on, to the end of its basic block or the first that a probe must not be moved
    /// past. Nothing if no instruction begins there.
    pub fn walk_block(&self, from: u64) -> Walk<'_, 'i, 'a> {
        Walk { text: self, at: self.is_boundary(from).then_some(from), effects: Effects::new(self.image.machine()) }
    }

    /// Whether a straight line of instructions leads from `from` to `to`, on which a register is not written: rule 4
    /// of the encoder, for `from` a function's entry. Calls, branches and places that can be reached from elsewhere
    /// on it make it false; the call to ftrace does not, since tracers restore all registers.
    pub fn prefix_preserves(&self, from: u64, to: u64, register: Register) -> bool {
        if self.has_unknown_targets() || from > to || !self.is_boundary(from) || !self.is_boundary(to) {
            return false;
        }
        if !self.edges_between(from, to).is_empty() {
            return false;
        }
        line_preserves(self.image, from, to, register)
    }

    fn decode_piece(&mut self, range: &Range<u64>, function: &[Range<u64>], known: &Known<'_>, pads: &mut Vec<u64>) {
        let image = self.image;
        let Some(bytes) = image.section_at(range.start).and_then(|_| image.bytes(range.clone())) else { return };
        // Offsets are 32 bits wide.
        if u32::try_from(bytes.len()).is_err() {
            return;
        }
        let first = self.offsets.len();
        let tail_calls_only = known.no_jump_tables || image.has_retpolines();
        let in_function = |address: u64| function.iter().any(|r| r.contains(&address));
        let mut visit = |offset: u32, flow: Flow| {
            let source = range.start + u64::from(offset);
            let mut flags = FALLS;
            match flow {
                Flow::Next => {}
                Flow::Nop => flags |= NOP,
                Flow::LandingPad => pads.push(source),
                Flow::Jump(target) | Flow::Conditional(target) => {
                    if matches!(flow, Flow::Jump(_)) {
                        flags = 0;
                    }
                    if in_function(target) {
                        self.edges.push(Edge { target, source });
                    } else if !tail_calls_only && image.is_indirect_thunk(target) {
                        self.indirect.push(source);
                    } else if image.in_alternative_text(target) {
                        add_outside_branches(image, target, source, &in_function, &mut self.edges);
                    }
                }
                Flow::Call(target) => {
                    if image.is_noreturn(target) || known.noreturn.is_some_and(|noreturn| noreturn(target)) {
                        flags = 0;
                    }
                }
                Flow::Indirect => {
                    flags = 0;
                    if !known.no_jump_tables && known.tail_calls.binary_search(&source).is_err() {
                        self.indirect.push(source);
                    }
                }
                Flow::Trap => {
                    if !image.tables().bug_at(source).is_some_and(|bug| bug.resumes) {
                        flags = 0;
                    }
                }
                Flow::Stop => flags = 0,
                Flow::Invalid => return false,
            }
            self.offsets.push(offset);
            self.flags.push(flags);
            true
        };
        match image.machine() {
            Machine::X86_64 => x86::decode(bytes, range.start, &mut visit),
            Machine::Aarch64 => arm64::decode(bytes, range.start, &mut visit),
        }
        self.pieces.push(Piece { start: range.start, end: range.end, instructions: first..self.offsets.len() });
    }

    /// Adds what the bytes do not show: jump labels, alternatives, exceptions.
    fn add_run_time_flow(&mut self) {
        let image = self.image;
        let tables = image.tables();
        let mut edges = std::mem::take(&mut self.edges);
        let in_function = |address: u64| self.pieces.iter().any(|p| (p.start..p.end).contains(&address));
        let mut falls = Vec::new();
        for piece in &self.pieces {
            let range = piece.start..piece.end;
            for label in within(&tables.jump_labels, &range, |l| l.code) {
                if in_function(label.target) {
                    edges.push(Edge { target: label.target, source: label.code });
                }
                falls.push(label.code..label.code.saturating_add(1));
            }
            for exception in within(&tables.exceptions, &range, |e| e.instruction) {
                if in_function(exception.fixup) {
                    edges.push(Edge { target: exception.fixup, source: exception.instruction });
                }
            }
            for alternative in within(&tables.alternatives, &range, |a| a.start) {
                falls.push(alternative.start..alternative.end);
                let stored =
                    alternative.replacement..alternative.replacement.saturating_add(alternative.replacement_len.into());
                if let Some(bytes) = image.bytes(stored.clone()) {
                    for_branches(image.machine(), bytes, stored.start, |target| {
                        if in_function(target) {
                            edges.push(Edge { target, source: alternative.start });
                        }
                    });
                }
            }
        }
        for range in falls {
            let mut at = range.start;
            while let Some((piece, index)) = self.index(at) {
                self.flags[index] |= FALLS;
                at = if index + 1 < self.pieces[piece].instructions.end {
                    self.address(piece, index + 1)
                } else {
                    range.end
                };
                if at >= range.end {
                    break;
                }
            }
        }
        self.edges = edges;
    }

    /// With branch target identification an indirect jump can only land on `bti j`, or (from x16 and x17, tail calls)
    /// on a function's `bti c`. A function that begins with `bti c` shows that it was compiled for that.
    fn resolve_landing_pads(&mut self, pads: &[u64]) {
        if self.indirect.is_empty() || pads.is_empty() && !arm64::begins_with_bti(self.image, self.entry) {
            return;
        }
        // Bounded: if the product of the two numbers is large, this is not a function that a compiler made.
        if self.indirect.len().saturating_mul(pads.len()) > 1 << 20 {
            return;
        }
        for &source in &self.indirect {
            self.edges.extend(pads.iter().map(|&target| Edge { target, source }));
        }
        self.indirect.clear();
    }

    /// The piece and index of the instruction at an address.
    fn index(&self, address: u64) -> Option<(usize, usize)> {
        let piece = self.pieces.partition_point(|p| p.start <= address).checked_sub(1)?;
        let Piece { start, ref instructions, .. } = self.pieces[piece];
        let offset = u32::try_from(address - start).ok()?;
        let found = self.offsets[instructions.clone()].binary_search(&offset).ok()?;
        Some((piece, instructions.start + found))
    }

    fn address(&self, piece: usize, index: usize) -> u64 {
        self.pieces[piece].start + u64::from(self.offsets[index])
    }

    fn edges_to(&self, target: u64) -> &[Edge] {
        self.edges_between(target, target)
    }

    /// The edges to targets from `first` to `last`, both included.
    fn edges_between(&self, first: u64, last: u64) -> &[Edge] {
        let start = self.edges.partition_point(|edge| edge.target < first);
        let end = self.edges.partition_point(|edge| edge.target <= last);
        &self.edges[start..end.max(start)]
    }

    /// The instruction before, if control can come from it. Padding that nothing reaches does not count.
    fn fall_through_into(&self, piece: usize, index: usize) -> Option<usize> {
        let first = self.pieces[piece].instructions.start;
        let previous = index.checked_sub(1).filter(|&previous| previous >= first)?;
        let mut at = previous;
        loop {
            if self.flags[at] & FALLS == 0 {
                return None;
            }
            let is_reached =
                at == first || self.flags[at] & NOP == 0 || !self.edges_to(self.address(piece, at)).is_empty();
            if is_reached {
                return Some(previous);
            }
            at -= 1;
        }
    }
}

/// The ranges by address, empty and overlapping parts removed.
fn sorted(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = ranges.iter().filter(|r| r.start < r.end).cloned().collect();
    sorted.sort_unstable_by_key(|r| (r.start, r.end));
    let mut end = 0;
    for range in &mut sorted {
        range.start = range.start.max(end);
        end = end.max(range.end);
    }
    sorted.retain(|r| r.start < r.end);
    sorted
}

/// Calls `found` with the target of each direct jump in some bytes.
fn for_branches(machine: Machine, bytes: &[u8], address: u64, mut found: impl FnMut(u64)) {
    let mut visit = |_: u32, flow: Flow| {
        match flow {
            Flow::Jump(target) | Flow::Conditional(target) => found(target),
            Flow::Stop | Flow::Indirect | Flow::Invalid => return false,
            _ => {}
        }
        !matches!(flow, Flow::Jump(_))
    };
    match machine {
        Machine::X86_64 => x86::decode(bytes, address, &mut visit),
        Machine::Aarch64 => arm64::decode(bytes, address, &mut visit),
    }
}

/// Follows a jump out of the function into text that decides and jumps back (x86 `_static_cpu_has`, in
/// `.altinstr_aux`): its branches are those of the jump.
fn add_outside_branches(
    image: &Image<'_>,
    address: u64,
    source: u64,
    in_function: &impl Fn(u64) -> bool,
    edges: &mut Vec<Edge>,
) {
    const LONGEST: u64 = 64;
    let end = image.section_end(address).min(address.saturating_add(LONGEST));
    let Some(bytes) = image.bytes(address..end) else { return };
    for_branches(image.machine(), bytes, address, |target| {
        if in_function(target) {
            edges.push(Edge { target, source });
        }
    });
}

/// Whether an instruction does something that can be seen from outside the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acts {
    /// It computes, loads, or stores to the stack.
    No,
    /// It stores elsewhere, or calls, or does something that is not known.
    Yes,
    /// It goes to an address: a call, if that is not in the function.
    Jumps(u64),
}

/// Finds the effects of single instructions.
enum Effects {
    X86(Box<x86::Effects>),
    Arm64,
}

impl Effects {
    fn new(machine: Machine) -> Effects {
        match machine {
            Machine::X86_64 => Effects::X86(Box::default()),
            Machine::Aarch64 => Effects::Arm64,
        }
    }

    fn at(&mut self, image: &Image<'_>, address: u64) -> Option<Effect> {
        match self {
            Effects::X86(effects) => effects.at(image, address),
            Effects::Arm64 => arm64::effect_at(image, address),
        }
    }

    fn acts(&mut self, image: &Image<'_>, address: u64, frame_pointer: Option<Register>) -> Acts {
        match self {
            Effects::X86(effects) => effects.acts(image, address, frame_pointer),
            Effects::Arm64 => arm64::acts(image, address, frame_pointer),
        }
    }
}

/// The iterator of [`FunctionText::walk_block`].
pub struct Walk<'t, 'i, 'a> {
    text: &'t FunctionText<'i, 'a>,
    at: Option<u64>,
    effects: Effects,
}

impl Iterator for Walk<'_, '_, '_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let address = self.at.take()?;
        let (text, tables) = (self.text, self.text.image.tables());
        let effect = self.effects.at(text.image, address)?;
        let ends = !effect.plain
            || !effect.straight
            || text.has_unknown_targets()
            || text.index(effect.next).is_none()
            || !text.edges_to(effect.next).is_empty()
            || effect.next == text.entry
            || tables.jump_label_at(address).is_some()
            || tables.in_alternative(address)
            || tables.may_fault(address)
            || tables.ftrace.binary_search(&address).is_ok();
        self.at = (!ends).then_some(effect.next);
        Some(Step { address, next: effect.next, writes: effect.writes, stores: effect.stores, ends })
    }
}

/// What the instruction at an address makes the kernel answer to a kprobe, by each architecture's
/// `arch_prepare_kprobe`; `None` if it is taken.
pub(crate) fn instruction_refusal(image: &Image<'_>, address: u64) -> Option<Unprobeable> {
    // What will be there at run time is not known.
    if image.tables().in_alternative(address) {
        return None;
    }
    match image.machine() {
        Machine::X86_64 => x86::refusal(image, address),
        Machine::Aarch64 => arm64::refusal(image, address),
    }
}
