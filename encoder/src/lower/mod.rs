// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From a DWARF location to an [`Argument`].
//!
//! DWARF describes a value by a program for a stack machine, meant for a debugger that has stopped the process and can
//! interpret it. A probe has neither the time nor the means: it wants "rdi", or "4 bytes at rsp+16". Most DWARF
//! programs are such a thing in disguise. So a program is executed here, once, on *symbolic* values: each entry of its
//! stack is a term (`symbolic`) over the registers at the probe, constants, link-time addresses and reads of memory,
//! and terms are simplified as they are built. What comes out (`interpret`) is a list of pieces, each some bits in a
//! register, in memory, or of a term. They are put together into 8-byte slots (`pieces`), and each slot's term is
//! simplified once more for the bits that the parameter's type has: a 4-byte argument in `reg & 0xffffffff` is just the
//! register. If the result has one of upstream's shapes, it becomes that; else a [`Computed`] program.
//!
//! Three things keep it right. All terms are exact modulo 2^64, and DWARF's typed values are kept extended to 64 bits
//! by their signedness, so an operation on a narrow type is the 64-bit operation followed by an extension. If the
//! result of an operation cannot be known, the operation leaves a *missing* value with its reason. This spreads through
//! whatever uses the value; other pieces are not harmed. And nothing is guessed: what is not known to be exact is
//! refused.
//!
//! Limits. If the condition of a branch is not constant, both ways are followed. The two values are joined by masks, if
//! none of them reads memory that the other does not. Loops are not followed. Values wider than 64 bits exist only as
//! pieces, memory or constants. Floating point is refused, as are registers that the kernel does not save for a probe.
//! The program of a slot is limited by [`Op::check`].
//!
//! [`Computed`]: siteseer_sites::location::Computed
//! [`Op::check`]: siteseer_sites::location::Op::check

mod interpret;
mod pieces;
mod symbolic;
#[cfg(test)]
mod tests;

use gimli::AttributeValue;
use siteseer_sites::location::{Argument, Located, Location, Missing};
use siteseer_sites::machine::{Machine, Register};
use std::ops::Range;

use crate::debug::slice::Slice;
use pieces::{Piece, Place};
use symbolic::Terms;

/// What lowering must know of a parameter's type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParamType {
    /// Bytes.
    pub size: u32,
    /// Whether a value narrower than its slot is sign-extended.
    pub signed: bool,
    /// A structure or union.
    pub is_composite: bool,
    /// Of a composite: the ranges of bits that carry data, sorted and disjoint, counted from the least significant bit
    /// of the first byte. The rest is padding, which a location may leave out. Empty means that all bits count.
    pub data: Vec<Range<u32>>,
    /// Of a composite: whether the calling convention has rules of its own for it. See
    /// [`ParamShape::irregular`](siteseer_sites::abi::ParamShape::irregular).
    pub is_irregular: bool,
}

impl ParamType {
    /// A type in which all bits carry data.
    pub fn scalar(size: u32, signed: bool) -> ParamType {
        ParamType { size, signed, is_composite: false, data: Vec::new(), is_irregular: false }
    }

    /// Whether any bit of the range carries data.
    fn has_data(&self, bits: Range<u64>) -> bool {
        let end = bits.end.min(u64::from(self.size) * 8);
        if bits.start >= end {
            return false;
        }
        !self.is_composite
            || self.data.is_empty()
            || self.data.iter().any(|data| u64::from(data.start) < end && bits.start < u64::from(data.end))
    }
}

/// A base type, as DWARF's typed operations refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BaseType {
    /// Bits of a value. Usually 8 times the type's bytes; clang has types of fewer bits for conversions.
    pub bits: u32,
    /// Whether it is signed.
    pub signed: bool,
    /// Whether it is a floating point type.
    pub float: bool,
}

/// What an expression may refer to outside itself, at one probe address.
pub trait Environment {
    /// The architecture.
    fn machine(&self) -> Machine;
    /// The enclosing function's frame base as a register plus an offset.
    fn frame_base(&self) -> Result<(Register, i64), Missing>;
    /// The canonical frame address as a register plus an offset.
    fn cfa(&self) -> Result<(Register, i64), Missing>;
    /// The base type at an offset of the unit, `None` if there is none.
    fn base_type(&self, offset: gimli::UnitOffset) -> Option<BaseType>;
    /// An entry of `.debug_addr` (`DW_OP_addrx`, `DW_OP_constx`).
    fn address(&self, index: gimli::DebugAddrIndex) -> Option<u64>;
    /// The register that at the probe provably holds what the given one held where the enclosing function was entered.
    fn entry_value(&self, register: Register) -> Option<Register>;
    /// What a link-time address stands for.
    fn meaning(&self, address: u64) -> Meaning;
}

/// What a link-time address stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A place in the image, which moves with it.
    Image,
    /// The number itself.
    Absolute,
    /// Something that only the kernel's loader of modules knows: in another image, or in each CPU's own memory.
    Elsewhere,
}

/// Where the value of a parameter is, given the expression that describes it at the probe.
///
/// # Errors
///
/// The reason why it has no location that a probe can use.
pub fn lower(
    expression: gimli::Expression<Slice<'_>>,
    encoding: gimli::Encoding,
    ty: &ParamType,
    env: &impl Environment,
) -> Argument {
    if ty.size == 0 {
        return Err(Missing::NoType);
    }
    if expression.0.is_empty() {
        return Err(Missing::Empty);
    }
    // By far most locations are this one operation.
    if let [operation] = expression.0.slice()
        && let Some(register) = operation.checked_sub(gimli::DW_OP_reg0.0).filter(|register| *register < 32)
        && ty.size <= 8
    {
        let at = Location::Register(register.into());
        let readable = env.machine().register_name(register.into()).is_some();
        return if readable { Ok(Located::certain(ty.size, ty.signed, at)) } else { Err(Missing::Unsupported) };
    }
    let mut terms = Terms::default();
    let pieces = interpret::run(expression, encoding, env, &mut terms)?;
    pieces::assemble(pieces, ty, env.machine(), &mut terms)
}

/// The constant of a `DW_AT_const_value`.
///
/// Blocks and strings hold the value's bytes. In the other forms, the low `size` bytes count. A data form that is
/// narrower than the type is extended by zeros: gcc writes negative numbers as `DW_FORM_sdata`, and leaves the data
/// forms to numbers that are not negative.
///
/// # Errors
///
/// [`Missing::Malformed`] for a block that is shorter than the type, [`Missing::Unsupported`] for a form that cannot
/// hold a constant.
pub fn lower_const(value: &AttributeValue<Slice<'_>>, ty: &ParamType, env: &impl Environment) -> Argument {
    if ty.size == 0 {
        return Err(Missing::NoType);
    }
    let mut terms = Terms::default();
    let place = match *value {
        AttributeValue::Addr(address) if env.meaning(address) == Meaning::Image => Place::Value(terms.address(address)),
        AttributeValue::Addr(address) if env.meaning(address) == Meaning::Elsewhere => {
            return Err(Missing::Unsupported);
        }
        AttributeValue::Addr(value) | AttributeValue::Data8(value) | AttributeValue::Udata(value) => {
            Place::Value(terms.constant(value))
        }
        AttributeValue::Data1(value) => Place::Value(terms.constant(value.into())),
        AttributeValue::Data2(value) => Place::Value(terms.constant(value.into())),
        AttributeValue::Data4(value) => Place::Value(terms.constant(value.into())),
        AttributeValue::Sdata(value) => Place::Value(terms.constant(value as u64)),
        AttributeValue::Block(bytes) | AttributeValue::String(bytes) => Place::Bytes(bytes.slice()),
        _ => return Err(Missing::Unsupported),
    };
    let place = match place {
        // An integer of 128 bits with a value that fits in 64.
        Place::Value(term) if ty.size > 8 && !ty.is_composite => {
            let sign = match *value {
                AttributeValue::Sdata(value) if value < 0 => u64::MAX,
                _ => 0,
            };
            return pieces::constant_slots(term, sign, ty, env.machine(), &mut terms);
        }
        place => place,
    };
    pieces::assemble(vec![Piece::whole(Ok(place))], ty, env.machine(), &mut terms)
}
