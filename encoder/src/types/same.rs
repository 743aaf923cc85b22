// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a DWARF type is a given type of BTF.

use siteseer_sites::btf::{Btf, Kind, Type, TypeId};

use super::die::{Die, Units};
use super::layout::{array_count, enumeration_is_signed, is_float, is_signed, is_transparent};

/// The most types that one comparison looks at. What it has not seen by then is treated as equal.
const MAX_STEPS: u32 = 20_000;

/// A comparison of DWARF types with types of BTF.
pub(super) struct Comparison<'c, 'd, 'a> {
    units: &'c Units<'d, 'a>,
    btf: &'c Btf<'a>,
    steps: u32,
    /// Pairs that are being compared or have been: treated as equal, because types refer to each other in circles.
    assumed: Vec<(usize, TypeId)>,
}

impl<'c, 'd, 'a> Comparison<'c, 'd, 'a> {
    pub(super) fn new(units: &'c Units<'d, 'a>, btf: &'c Btf<'a>) -> Comparison<'c, 'd, 'a> {
        Comparison { units, btf, steps: 0, assumed: Vec::new() }
    }

    /// Whether a DWARF type (`None` is void) is the type of that number. Structures that are pointed to are
    /// compared by name alone, except for so many levels.
    pub(super) fn same(&mut self, offset: Option<usize>, id: TypeId, levels: u32) -> bool {
        self.compare(offset, id, levels, false)
    }

    fn compare(&mut self, offset: Option<usize>, id: TypeId, levels: u32, by_name: bool) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return true;
        }
        let mut die = None;
        let mut next = offset;
        // Bounded, because a malformed file may have circles here.
        for _ in 0..16 {
            die = next.and_then(|offset| self.units.known(offset));
            match &die {
                Some(transparent) if is_transparent(transparent.tag) => next = transparent.ty,
                _ => break,
            }
        }
        let mut ty = self.btf.ty(id);
        for _ in 0..16 {
            match ty {
                Some(tag) if tag.kind() == Kind::TypeTag => ty = self.btf.ty(tag.size_or_type()),
                _ => break,
            }
        }
        match (die, ty) {
            (None, None) => true,
            (Some(die), None) => die.tag == gimli::DW_TAG_unspecified_type,
            (None, Some(_)) => false,
            (Some(die), Some(ty)) => self.entry(&die, &ty, levels, by_name),
        }
    }

    fn entry(&mut self, die: &Die<'a>, ty: &Type<'a>, levels: u32, by_name: bool) -> bool {
        let name = ty.name().as_bytes();
        match die.tag {
            gimli::DW_TAG_base_type => match ty.kind() {
                Kind::Int => ty.int().is_some_and(|int| {
                    let signed = int.encoding.is_signed();
                    name == die.name() && die.byte_size == Some(u64::from(int.size)) && is_signed(die) == signed
                }),
                Kind::Float => name == die.name() && is_float(die) && die.byte_size == ty.size().map(u64::from),
                _ => false,
            },
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                ty.kind() == Kind::Ptr
                    && match levels.checked_sub(1) {
                        Some(levels) => self.compare(die.ty, ty.size_or_type(), levels, false),
                        None => self.compare(die.ty, ty.size_or_type(), 0, true),
                    }
            }
            gimli::DW_TAG_const_type => self.reference(die, ty, Kind::Const, levels, by_name),
            gimli::DW_TAG_volatile_type => self.reference(die, ty, Kind::Volatile, levels, by_name),
            gimli::DW_TAG_restrict_type => self.reference(die, ty, Kind::Restrict, levels, by_name),
            gimli::DW_TAG_typedef => name == die.name() && self.reference(die, ty, Kind::Typedef, levels, by_name),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                self.composite(die, ty, Kind::Struct, levels, by_name)
            }
            gimli::DW_TAG_union_type => self.composite(die, ty, Kind::Union, levels, by_name),
            gimli::DW_TAG_enumeration_type => self.enumeration(die, ty),
            gimli::DW_TAG_array_type => self.array(die, ty, levels, by_name),
            gimli::DW_TAG_subroutine_type => self.prototype(die, ty, levels, by_name),
            _ => false,
        }
    }

    fn reference(&mut self, die: &Die<'a>, ty: &Type<'a>, kind: Kind, levels: u32, by_name: bool) -> bool {
        ty.kind() == kind && self.compare(die.ty, ty.size_or_type(), levels, by_name)
    }

    fn composite(&mut self, die: &Die<'a>, ty: &Type<'a>, kind: Kind, levels: u32, by_name: bool) -> bool {
        if ty.name().as_bytes() != die.name() {
            return false;
        }
        if ty.kind() == Kind::Fwd {
            return ty.flag() == (kind == Kind::Union);
        }
        if ty.kind() != kind {
            return false;
        }
        if die.is_declaration || (by_name && !die.name().is_empty()) {
            return true;
        }
        if die.byte_size != ty.size().map(u64::from) {
            return false;
        }
        if self.assumed.contains(&(die.offset, ty.id())) {
            return true;
        }
        self.assumed.push((die.offset, ty.id()));
        let mut members = ty.members();
        let mut same = true;
        let units = self.units;
        let read = units.known_children(die.offset, |child| {
            if child.tag == gimli::DW_TAG_member {
                same = members.next().is_some_and(|member| {
                    child.name() == member.name.as_bytes()
                        && child.member_bits() == Some((u64::from(member.bit_offset), u64::from(member.bits)))
                        && self.compare(child.ty, member.ty, levels, by_name)
                });
            } else if child.tag == gimli::DW_TAG_variant_part || child.tag == gimli::DW_TAG_inheritance {
                same = false;
            }
            same
        });
        read.is_some() && same && members.next().is_none()
    }

    fn enumeration(&mut self, die: &Die<'a>, ty: &Type<'a>) -> bool {
        if !matches!(ty.kind(), Kind::Enum | Kind::Enum64) || ty.name().as_bytes() != die.name() {
            return false;
        }
        if die.is_declaration {
            return true;
        }
        if die.byte_size != ty.size().map(u64::from) {
            return false;
        }
        let signed = enumeration_is_signed(self.units, die);
        // Where the two do not agree on the sign, the bits decide.
        let bits = u32::try_from(die.byte_size.unwrap_or(8)).unwrap_or(8).saturating_mul(8);
        let plain = |value: i64| siteseer_sites::evaluate::extend(value as u64, bits, false);
        let mut enumerators = ty.enumerators();
        let mut same = true;
        let read = self.units.known_children(die.offset, |child| {
            if child.tag == gimli::DW_TAG_enumerator {
                same = enumerators.next().is_some_and(|enumerator| {
                    child.name() == enumerator.name.as_bytes()
                        && child.enumerator(signed).map(plain) == Some(plain(enumerator.value))
                });
            }
            same
        });
        read.is_some() && same && enumerators.next().is_none()
    }

    fn array(&mut self, die: &Die<'a>, ty: &Type<'a>, levels: u32, by_name: bool) -> bool {
        let (Some(count), Some(mut array)) = (array_count(self.units, die), ty.array()) else {
            return false;
        };
        // One array of all elements, or one per dimension.
        let mut total = u64::from(array.count);
        for _ in 0..8 {
            if total == count {
                break;
            }
            let Some(inner) = self.btf.ty(array.element).and_then(|inner| inner.array()) else {
                return false;
            };
            total = total.saturating_mul(u64::from(inner.count));
            array = inner;
        }
        total == count && self.compare(die.ty, array.element, levels, by_name)
    }

    fn prototype(&mut self, die: &Die<'a>, ty: &Type<'a>, levels: u32, by_name: bool) -> bool {
        if ty.kind() != Kind::FuncProto || !self.compare(die.ty, ty.size_or_type(), levels, by_name) {
            return false;
        }
        let mut params = ty.params();
        let mut same = true;
        let mut variadic = false;
        let units = self.units;
        let read = units.known_children(die.offset, |child| {
            match child.tag {
                gimli::DW_TAG_formal_parameter => {
                    same = params.next().is_some_and(|param| self.compare(child.ty, param.ty, levels, by_name));
                }
                gimli::DW_TAG_unspecified_parameters => variadic = true,
                _ => {}
            }
            same
        });
        read.is_some() && same && params.next().is_none() && variadic == ty.is_variadic()
    }
}
