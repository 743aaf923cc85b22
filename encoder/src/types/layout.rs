// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Sizes, signedness and padding of DWARF types: what lowering must know of a parameter's type.

use gimli::{AttributeValue, Dwarf, Unit, UnitOffset};
use siteseer_sites::location::Missing;
use std::ops::Range;

use super::die::{Die, Units};
use crate::debug::slice::Slice;
use crate::lower::{BaseType, ParamType};

/// How far types are nested or refer to others. C allows more, kernels have less.
const MAX_DEPTH: u32 = 32;
/// The most ranges of data that are told apart; more than fit into any argument that can be passed.
const MAX_RANGES: usize = 1024;
/// Bytes of a pointer on both machines.
const POINTER: u64 = 8;

/// Entries that stand between a type and its use without changing it, and that pahole leaves out.
pub(super) fn is_transparent(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_packed_type
            | gimli::DW_TAG_immutable_type
            | gimli::DW_TAG_shared_type
    )
}

fn is_pointer(tag: gimli::DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type)
}

/// Whether an encoding attribute says signed.
pub(super) fn is_signed(die: &Die<'_>) -> bool {
    matches!(die.encoding, Some(gimli::DW_ATE_signed | gimli::DW_ATE_signed_char | gimli::DW_ATE_signed_fixed))
}

pub(super) fn is_float(die: &Die<'_>) -> bool {
    matches!(
        die.encoding,
        Some(
            gimli::DW_ATE_float
                | gimli::DW_ATE_complex_float
                | gimli::DW_ATE_imaginary_float
                | gimli::DW_ATE_decimal_float
        )
    )
}

/// The entry that is left after removing typedefs, qualifiers and everything else that does not change the value.
fn strip<'a>(units: &Units<'_, 'a>, offset: usize) -> Option<Die<'a>> {
    let mut die = units.read(offset)?;
    for _ in 0..MAX_DEPTH {
        let through = matches!(
            die.tag,
            gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
        ) || is_transparent(die.tag);
        if !through {
            return Some(die);
        }
        die = units.read(die.ty?)?;
    }
    None
}

/// Whether an enumeration has values with a sign: its underlying type tells, else its encoding, else its values.
pub(super) fn enumeration_is_signed(units: &Units<'_, '_>, die: &Die<'_>) -> bool {
    if let Some(underlying) = die.ty.and_then(|ty| strip(units, ty)) {
        return is_signed(&underlying);
    }
    if die.encoding.is_some() {
        return is_signed(die);
    }
    let mut negative = false;
    // A malformed list ends where it is malformed; what was read of it stands.
    let _ = units.children(die.offset, |child| {
        negative = matches!(child.value, Some(AttributeValue::Sdata(value)) if value < 0);
        !negative
    });
    negative
}

/// The number of all elements of an array, over all its dimensions.
pub(super) fn array_count(units: &Units<'_, '_>, die: &Die<'_>) -> Option<u64> {
    let mut count = Some(1u64);
    let mut dimensions = 0;
    units.children(die.offset, |child| {
        if matches!(child.tag, gimli::DW_TAG_subrange_type | gimli::DW_TAG_generic_subrange) {
            count = count.and_then(|count| count.checked_mul(child.count.unwrap_or(0)));
            dimensions += 1;
        }
        count.is_some()
    })?;
    if dimensions == 0 { Some(0) } else { count }
}

/// The bytes of a type; `None` for void, functions, declarations and what is malformed.
fn size_of(units: &Units<'_, '_>, offset: usize, depth: u32) -> Option<u64> {
    let die = strip(units, offset)?;
    match die.tag {
        _ if die.is_declaration || depth > MAX_DEPTH => None,
        gimli::DW_TAG_subroutine_type => None,
        tag if is_pointer(tag) => Some(die.byte_size.unwrap_or(POINTER)),
        gimli::DW_TAG_array_type => match die.byte_size {
            Some(size) => Some(size),
            None => array_count(units, &die)?.checked_mul(size_of(units, die.ty?, depth + 1)?),
        },
        gimli::DW_TAG_enumeration_type => match die.byte_size {
            Some(size) => Some(size),
            None => size_of(units, die.ty?, depth + 1),
        },
        _ => die.byte_size,
    }
}

/// What lowering must know of a type.
pub(super) fn param_type(units: &Units<'_, '_>, offset: usize) -> Result<ParamType, Missing> {
    let die = strip(units, offset).ok_or(Missing::NoType)?;
    let size = size_of(units, offset, 0).and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| (1..1 << 28).contains(size)).ok_or(Missing::NoType)?;
    match die.tag {
        gimli::DW_TAG_base_type if is_float(&die) => Err(Missing::Unsupported),
        gimli::DW_TAG_base_type => Ok(ParamType::scalar(size, is_signed(&die))),
        gimli::DW_TAG_enumeration_type => Ok(ParamType::scalar(size, enumeration_is_signed(units, &die))),
        gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_array_type => {
            let mut data = Vec::new();
            // Where members cannot be told, all bits count as data.
            if collect(units, &die, 0, size * 8, &mut data, 0).is_none() {
                data.clear();
            }
            let is_irregular = !is_regular(units, &die, 0, 0);
            Ok(ParamType { size, signed: false, is_composite: true, data: merge(data), is_irregular })
        }
        tag if is_pointer(tag) => Ok(ParamType::scalar(size, false)),
        _ => Err(Missing::NoType),
    }
}

/// Whether the calling convention passes a type at byte `start` of a structure as so many bytes, whatever is in it: no
/// member is a floating-point number, is aligned to 16 bytes, or is at a place where its type would not be on its own.
fn is_regular(units: &Units<'_, '_>, die: &Die<'_>, start: u64, depth: u32) -> bool {
    const WIDEST: u64 = 8;
    if depth > MAX_DEPTH || die.alignment.is_some_and(|alignment| alignment > WIDEST) {
        return false;
    }
    match die.tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
            let mut regular = !die.is_declaration;
            let read = units.children(die.offset, |child| {
                if child.tag == gimli::DW_TAG_member && child.bit_size.is_none() {
                    let member = child.ty.and_then(|ty| strip(units, ty)).zip(child.member_bits());
                    regular &= child.alignment.is_none_or(|alignment| alignment <= WIDEST)
                        && member.is_some_and(|(ty, (bits, _))| is_regular(units, &ty, start + bits / 8, depth + 1));
                }
                regular
            });
            read.is_some() && regular
        }
        gimli::DW_TAG_array_type => {
            let element = die.ty.and_then(|ty| strip(units, ty));
            element.is_some_and(|element| is_regular(units, &element, start, depth + 1))
        }
        gimli::DW_TAG_base_type if is_float(die) => false,
        _ => size_of(units, die.offset, depth)
            .is_some_and(|size| size <= WIDEST && size.is_power_of_two() && start.is_multiple_of(size)),
    }
}

/// Adds the ranges of bits, inside `end`, that carry data of a type at bit `start`.
fn collect(
    units: &Units<'_, '_>,
    die: &Die<'_>,
    start: u32,
    end: u32,
    data: &mut Vec<Range<u32>>,
    depth: u32,
) -> Option<()> {
    if depth > MAX_DEPTH || data.len() > MAX_RANGES {
        return None;
    }
    match die.tag {
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type if !die.is_declaration => {
            let mut known = Some(());
            units.children(die.offset, |child| {
                known = match child.tag {
                    gimli::DW_TAG_member => member(units, &child, start, end, data, depth),
                    // Rust's enums, and base classes.
                    gimli::DW_TAG_variant_part | gimli::DW_TAG_inheritance => None,
                    _ => Some(()),
                };
                known.is_some()
            })?;
            known
        }
        // Padding inside of elements counts as data: nobody passes such arrays in pieces.
        _ => {
            let bits = u32::try_from(size_of(units, die.offset, depth)?.checked_mul(8)?).ok()?;
            push(start, bits, end, data);
            Some(())
        }
    }
}

fn member(
    units: &Units<'_, '_>,
    child: &Die<'_>,
    start: u32,
    end: u32,
    data: &mut Vec<Range<u32>>,
    depth: u32,
) -> Option<()> {
    let (offset, bits) = child.member_bits()?;
    let at = start.checked_add(u32::try_from(offset).ok()?)?;
    if child.bit_size.is_some() {
        push(at, u32::try_from(bits).ok()?, end, data);
        return Some(());
    }
    let ty = strip(units, child.ty?)?;
    collect(units, &ty, at, end, data, depth + 1)
}

fn push(start: u32, bits: u32, end: u32, data: &mut Vec<Range<u32>>) {
    let range = start..start.saturating_add(bits).min(end);
    if !range.is_empty() {
        data.push(range);
    }
}

/// Sorts ranges and joins those that touch.
fn merge(mut ranges: Vec<Range<u32>>) -> Vec<Range<u32>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// The base type that a typed DWARF operation refers to, by its offset in the unit of the expression.
///
/// clang converts through types of any number of bits, and rounds their size up to whole bytes: those are named
/// `DW_ATE_unsigned_1` and the like (LLVM's `DwarfCompileUnit::createBaseTypeDIEs`).
pub fn base_type(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, offset: UnitOffset) -> Option<BaseType> {
    let start = unit.header.debug_info_offset()?.0;
    let die = Units::new(dwarf, &[], unit).read(start.checked_add(offset.0)?)?;
    if die.tag != gimli::DW_TAG_base_type {
        return None;
    }
    let bytes = u32::try_from(die.byte_size?).ok()?;
    let named = || {
        let name = std::str::from_utf8(die.name()).ok()?;
        let bits = name.strip_prefix("DW_ATE_signed_").or_else(|| name.strip_prefix("DW_ATE_unsigned_"))?;
        bits.parse::<u32>().ok()
    };
    let bits = match die.bit_size {
        Some(bits) => u32::try_from(bits).ok()?,
        None => named().filter(|bits| bits.div_ceil(8) == bytes || bytes == 0).unwrap_or(bytes.checked_mul(8)?),
    };
    Some(BaseType { bits, signed: is_signed(&die), float: is_float(&die) })
}
