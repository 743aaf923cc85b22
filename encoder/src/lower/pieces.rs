// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From the pieces of an object (DWARF 5 section 2.6.1.2) to the 8-byte slots of an argument, and to a location.
//!
//! Everything here is little-endian: a piece's first bit is the least significant bit of its place, and it follows the
//! piece before it in the object.

use siteseer_sites::evaluate::extend;
use siteseer_sites::location::{Argument, Computed, Located, Location, Missing, Op};
use siteseer_sites::machine::{Machine, Register};

use super::ParamType;
use super::symbolic::{Node, Term, Terms};

/// The most slots that are computed one by one: 256 bytes, half of what a BPF program has for a stack.
const MAX_SLOTS: u32 = 32;

/// Where the bits of a piece are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// In a register, as its location.
    Register(Register),
    /// They are a value (`DW_OP_stack_value`).
    Value(Term),
    /// In memory at the address.
    Memory(Term),
    /// They are these bytes (`DW_OP_implicit_value`).
    Bytes(&'a [u8]),
}

/// Some successive bits of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    /// How many bits; `None` for all of the object.
    pub(super) bits: Option<u64>,
    /// How many bits of the place are skipped.
    pub(super) offset: u64,
    /// Where they are, or why they are nowhere.
    pub(super) place: Result<Place<'a>, Missing>,
}

impl<'a> Piece<'a> {
    /// The only piece of an object.
    pub(super) fn whole(place: Result<Place<'a>, Missing>) -> Piece<'a> {
        Piece { bits: None, offset: 0, place }
    }
}

/// The location of an argument that is made of the given pieces.
pub(super) fn assemble(pieces: Vec<Piece<'_>>, ty: &ParamType, machine: Machine, terms: &mut Terms) -> Argument {
    let argument = put_together(pieces, ty, machine, terms);
    if terms.overflowed { Err(Missing::Unsupported) } else { argument }
}

fn put_together(pieces: Vec<Piece<'_>>, ty: &ParamType, machine: Machine, terms: &mut Terms) -> Argument {
    let size_in_bits = u64::from(ty.size) * 8;
    let pieces = coalesce(pieces, terms);
    if let [Piece { bits, offset: 0, place }] = pieces[..]
        && bits.is_none_or(|bits| bits >= size_in_bits)
    {
        return whole(place?, ty, machine, terms);
    }
    check_data(&pieces, ty)?;
    if ty.size > MAX_SLOTS * 8 {
        return Err(Missing::Unsupported);
    }
    let mut slots = Vec::with_capacity(ty.size.div_ceil(8) as usize);
    for slot in 0..u64::from(ty.size.div_ceil(8)) {
        let (first, last) = (slot * 64, (slot * 64 + 64).min(size_in_bits));
        let mut value = terms.constant(0);
        let mut start = 0u64;
        for piece in &pieces {
            let end = start.saturating_add(piece.bits.unwrap_or(u64::MAX));
            let (from, to) = (start.max(first), end.min(last));
            if let Ok(place) = piece.place
                && from < to
            {
                let skipped = piece.offset.checked_add(from - start).ok_or(Missing::Malformed)?;
                // A piece of padding may be missing: its bits stay zero.
                match bits_of(place, skipped, (to - from) as u32, terms) {
                    Ok(part) => {
                        let part = terms.shl_by(part, (from - first) as u32);
                        value = terms.or(value, part);
                    }
                    Err(reason) if ty.has_data(from..to) => return Err(reason),
                    Err(_) => {}
                }
            }
            start = end;
        }
        slots.push(value);
    }
    locate(&slots, ty, machine, terms)
}

/// Makes one piece of those that continue each other in memory or in a register.
fn coalesce<'a>(pieces: Vec<Piece<'a>>, terms: &mut Terms) -> Vec<Piece<'a>> {
    let mut joined: Vec<Piece<'a>> = Vec::with_capacity(pieces.len());
    for mut piece in pieces {
        if piece.bits == Some(0) {
            continue;
        }
        if let Ok(Place::Memory(address)) = piece.place
            && piece.offset != 0
            && piece.offset.is_multiple_of(8)
        {
            piece.place = Ok(Place::Memory(terms.offset(address, piece.offset / 8)));
            piece.offset = 0;
        }
        if let Some(last) = joined.last_mut()
            && let (Some(before), Some(more)) = (last.bits, piece.bits)
            && let Some(sum) = before.checked_add(more)
        {
            let continues = match (last.place, piece.place) {
                (Ok(Place::Memory(a)), Ok(Place::Memory(b))) => {
                    last.offset == 0
                        && piece.offset == 0
                        && before.is_multiple_of(8)
                        && terms.offset(a, before / 8) == b
                }
                (Ok(Place::Register(a)), Ok(Place::Register(b))) => {
                    a == b && last.offset.checked_add(before) == Some(piece.offset) && piece.offset < 64
                }
                (Err(a), Err(b)) => a == b,
                _ => false,
            };
            if continues {
                last.bits = Some(sum);
                continue;
            }
        }
        joined.push(piece);
    }
    joined
}

/// Checks that every bit of data has a place, and else finds the reason.
fn check_data(pieces: &[Piece<'_>], ty: &ParamType) -> Result<(), Missing> {
    let size_in_bits = u64::from(ty.size) * 8;
    let mut start = 0u64;
    let mut located = false;
    let mut reason: Option<Missing> = None;
    let mut note = |why: Missing| {
        reason = Some(match reason {
            None | Some(Missing::Empty) => why,
            Some(known) if why == Missing::Empty || why == known => known,
            Some(_) => Missing::Partial,
        });
    };
    for piece in pieces {
        let end = start.saturating_add(piece.bits.unwrap_or(u64::MAX));
        if ty.has_data(start..end) {
            match piece.place {
                Ok(_) => located = true,
                Err(why) => note(why),
            }
        }
        start = end;
    }
    if ty.has_data(start..size_in_bits) {
        note(Missing::Empty);
    }
    match reason {
        None => Ok(()),
        Some(_) if located => Err(Missing::Partial),
        Some(reason) => Err(reason),
    }
}

/// Some bits (at most 64) of a place, zero-extended.
fn bits_of(place: Place<'_>, skipped: u64, bits: u32, terms: &mut Terms) -> Result<Term, Missing> {
    match place {
        Place::Register(register) => {
            let value = terms.register(register);
            bits_of(Place::Value(value), skipped, bits, terms)
        }
        Place::Value(value) => {
            if skipped.saturating_add(u64::from(bits)) > 64 {
                return Err(Missing::Unsupported);
            }
            let value = terms.shr_by(value, skipped as u32);
            Ok(terms.zero_extend(bits, value))
        }
        Place::Memory(address) => {
            let address = terms.offset(address, skipped / 8);
            let shift = (skipped % 8) as u32;
            let bytes = (shift + bits).div_ceil(8);
            let low = terms.load(bytes.min(8), address);
            let mut value = terms.shr_by(low, shift);
            if bytes > 8 {
                let next = terms.offset(address, 8);
                let high = terms.load(1, next);
                let high = terms.shl_by(high, 64 - shift);
                value = terms.or(value, high);
            }
            Ok(terms.zero_extend(bits, value))
        }
        Place::Bytes(bytes) => {
            let bit = |index: u64| {
                let index = skipped.checked_add(index)?;
                let byte = usize::try_from(index / 8).ok().and_then(|byte| bytes.get(byte))?;
                Some(u64::from(byte >> (index % 8) & 1))
            };
            let mut value = 0;
            for index in 0..u64::from(bits) {
                value |= bit(index).ok_or(Missing::Malformed)? << index;
            }
            Ok(terms.constant(value))
        }
    }
}

/// The location of an object that is all in one place.
fn whole(place: Place<'_>, ty: &ParamType, machine: Machine, terms: &mut Terms) -> Argument {
    match place {
        // Most arguments: nothing to simplify.
        Place::Register(register) if ty.size <= 8 => located(ty, Location::Register(register)),
        Place::Value(term) if ty.size <= 8 => locate(&[term], ty, machine, terms),
        // The rest of a wide value in one register is nowhere.
        Place::Register(_) | Place::Value(_) => Err(Missing::Unsupported),
        Place::Memory(address) => {
            if let Some(memory) = memory(address, terms) {
                return located(ty, memory);
            }
            let slots = loads(address, ty, terms)?;
            locate(&slots, ty, machine, terms)
        }
        Place::Bytes(bytes) => {
            let value = usize::try_from(ty.size).ok().and_then(|size| bytes.get(..size)).ok_or(Missing::Malformed)?;
            if ty.size > MAX_SLOTS * 8 {
                return Err(Missing::Unsupported);
            }
            let slots: Vec<Term> = value
                .chunks(8)
                .map(|slot| {
                    let value = slot.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                    terms.constant(value)
                })
                .collect();
            locate(&slots, ty, machine, terms)
        }
    }
}

/// A wide integer constant: the first slot's value, and what all slots after it hold.
pub(super) fn constant_slots(first: Term, rest: u64, ty: &ParamType, machine: Machine, terms: &mut Terms) -> Argument {
    if ty.size > MAX_SLOTS * 8 {
        return Err(Missing::Unsupported);
    }
    let mut slots = vec![terms.constant(rest); ty.size.div_ceil(8) as usize];
    if let Some(slot) = slots.first_mut() {
        *slot = first;
    }
    locate(&slots, ty, machine, terms)
}

/// The bytes of a slot that belong to the value.
fn bytes_in_slot(ty: &ParamType, slot: usize) -> u32 {
    ty.size.saturating_sub(slot as u32 * 8).min(8)
}

/// A load for each slot of an object in memory.
fn loads(address: Term, ty: &ParamType, terms: &mut Terms) -> Result<Vec<Term>, Missing> {
    if ty.size > MAX_SLOTS * 8 {
        return Err(Missing::Unsupported);
    }
    Ok((0..ty.size.div_ceil(8) as usize)
        .map(|slot| {
            let at = terms.offset(address, slot as u64 * 8);
            terms.load(bytes_in_slot(ty, slot), at)
        })
        .collect())
}

fn located(ty: &ParamType, at: Location) -> Argument {
    Ok(Located::certain(ty.size, ty.signed, at))
}

/// Memory at a register plus an offset, if the address is that.
fn memory(address: Term, terms: &Terms) -> Option<Location> {
    let (register, offset) = terms.as_register_offset(address)?;
    Some(Location::Memory(register, i32::try_from(offset).ok()?))
}

/// The location with the given values in its slots; bits that the type does not have do not count.
fn locate(slots: &[Term], ty: &ParamType, machine: Machine, terms: &mut Terms) -> Argument {
    let slots: Vec<Term> =
        slots.iter().enumerate().map(|(slot, term)| terms.narrow(*term, bytes_in_slot(ty, slot) * 8)).collect();
    let at = match slots[..] {
        [value] => single(value, ty, terms),
        [first, second] => match (terms.node(first), terms.node(second)) {
            (Node::Register(first), Node::Register(second)) => Some(Location::RegisterPair(first, second)),
            _ => None,
        },
        _ => None,
    };
    let at = match at {
        Some(at) => at,
        None => match all_memory(&slots, ty, terms) {
            Some(at) => at,
            None => Location::Computed(computed(&slots, machine, terms)?),
        },
    };
    located(ty, at)
}

/// The plain shapes of a value of at most 8 bytes. A constant is kept as the slot will hold it: truncated to the type's
/// size and extended by its signedness.
fn single(value: Term, ty: &ParamType, terms: &Terms) -> Option<Location> {
    Some(match terms.node(value) {
        Node::Constant(value) => Location::Constant(extend(value, ty.size * 8, ty.signed)),
        Node::Address(address) => Location::Address(address),
        Node::Register(register) => Location::Register(register),
        Node::Binary(Op::Add, ..) => {
            let (register, offset) = terms.as_register_offset(value)?;
            Location::RegisterOffset(register, i32::try_from(offset).ok()?)
        }
        _ => return None,
    })
}

/// The memory that the slots are, one after the other, loaded from.
fn all_memory(slots: &[Term], ty: &ParamType, terms: &mut Terms) -> Option<Location> {
    let Node::Unary(Op::Load(_), address) = terms.node(*slots.first()?) else {
        return None;
    };
    let location = memory(address, terms)?;
    let expected = loads(address, ty, terms).ok()?;
    let same = expected.iter().enumerate().all(|(slot, load)| {
        let load = terms.narrow(*load, bytes_in_slot(ty, slot) * 8);
        slots.get(slot) == Some(&load)
    });
    same.then_some(location)
}

fn computed(slots: &[Term], machine: Machine, terms: &Terms) -> Result<Computed, Missing> {
    let mut programs = Vec::with_capacity(slots.len());
    for slot in slots {
        let mut program = Vec::with_capacity(8);
        terms.emit(*slot, &mut program);
        if !Op::check(&program, machine) {
            return Err(Missing::Unsupported);
        }
        programs.push(program.into_boxed_slice());
    }
    Ok(Computed { slots: programs.into_boxed_slice() })
}
