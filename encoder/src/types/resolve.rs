// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The type of BTF that a DWARF type is.

use gimli::{Dwarf, Unit, UnitHeader};
use hashbrown::HashMap;
use siteseer_sites::btf::{IntEncoding, Kind, TypeId};
use siteseer_sites::location::Missing;
use std::sync::Arc;

use super::die::{Die, Units};
use super::index::{BaseIndex, Outline};
use super::layout::{array_count, enumeration_is_signed, is_float, is_signed, is_transparent, param_type};
use super::same::Comparison;
use super::{NewMember, NewType, TypeRef};
use crate::debug::slice::Slice;
use crate::lower::ParamType;

/// How far types may refer to others. Beyond this, the debug information is treated as malformed.
const MAX_DEPTH: u32 = 48;
/// How many levels of pointers are followed to tell candidates of one name apart.
const MAX_LEVELS: u32 = 3;
/// `DW_TAG_LLVM_annotation` (llvm/BinaryFormat/Dwarf.def).
const LLVM_ANNOTATION: gimli::DwTag = gimli::DwTag(0x6000);
/// The most members of a new structure.
const MAX_MEMBERS: usize = 4096;

/// The types of one unit. Not to be shared by threads: it remembers what it has found.
pub struct UnitTypes<'d, 'a> {
    units: Units<'d, 'a>,
    base: &'d BaseIndex<'a>,
    /// The unit is not in C: equal names mean nothing.
    foreign_language: bool,
    resolved: HashMap<usize, TypeRef>,
    params: HashMap<usize, Result<ParamType, Missing>>,
}

/// Where a type is met: new structures end in forward declarations where they point to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// By itself, or through pointers.
    Plain,
    /// As part of a new structure.
    Member,
    /// Pointed to by part of a new structure.
    Pointed,
}

impl Place {
    fn pointed(self) -> Place {
        if self == Place::Plain { Place::Plain } else { Place::Pointed }
    }
}

fn text(name: &[u8]) -> Box<str> {
    String::from_utf8_lossy(name).into()
}

fn new(ty: NewType) -> TypeRef {
    TypeRef::New(Arc::new(ty))
}

impl<'d, 'a> UnitTypes<'d, 'a> {
    /// The types of a unit. `headers` are all units of `.debug_info` in order of their offsets: types may be in others.
    pub fn new(
        base: &'d BaseIndex<'a>,
        dwarf: &'d Dwarf<Slice<'a>>,
        headers: &'d [UnitHeader<Slice<'a>>],
        unit: &'d Unit<Slice<'a>>,
    ) -> UnitTypes<'d, 'a> {
        let units = Units::new(dwarf, headers, unit);
        let is_c = matches!(
            units.language(),
            None | Some(
                gimli::DW_LANG_C89
                    | gimli::DW_LANG_C
                    | gimli::DW_LANG_C99
                    | gimli::DW_LANG_C11
                    | gimli::DW_LANG_C17
                    | gimli::DW_LANG_Mips_Assembler
            )
        );
        UnitTypes { units, base, foreign_language: !is_c, resolved: HashMap::new(), params: HashMap::new() }
    }

    /// The type of BTF that the DWARF type at an offset of `.debug_info` is.
    pub fn resolve(&mut self, offset: usize) -> TypeRef {
        match self.resolved.get(&offset) {
            Some(known) => known.clone(),
            None => self.build(offset, Place::Plain, 0),
        }
    }

    /// What lowering must know of the type at an offset of `.debug_info`.
    ///
    /// # Errors
    ///
    /// [`Missing::NoType`] if it has no size, [`Missing::Unsupported`] for floating point types.
    pub fn param_type(&mut self, offset: usize) -> Result<ParamType, Missing> {
        let Self { units, params, .. } = self;
        params.entry(offset).or_insert_with(|| param_type(units, offset)).clone()
    }

    fn build(&mut self, offset: usize, place: Place, depth: u32) -> TypeRef {
        if let Some(known) = self.resolved.get(&offset)
            && (place == Place::Plain || !matches!(known, TypeRef::New(_)))
        {
            return known.clone();
        }
        if depth > MAX_DEPTH {
            return TypeRef::Void;
        }
        let Some(die) = self.units.read(offset) else {
            return TypeRef::Void;
        };
        let found = self.entry(&die, place, depth + 1);
        if place == Place::Plain || !matches!(found, TypeRef::New(_)) {
            self.resolved.insert(offset, found.clone());
        }
        found
    }

    fn target(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        die.ty.map_or(TypeRef::Void, |ty| self.build(ty, place, depth))
    }

    fn entry(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        match die.tag {
            gimli::DW_TAG_base_type => self.base_type(die),
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                self.pointer(die, place, depth)
            }
            gimli::DW_TAG_const_type => self.qualified(Kind::Const, die, place, depth),
            gimli::DW_TAG_volatile_type => self.qualified(Kind::Volatile, die, place, depth),
            gimli::DW_TAG_restrict_type => self.qualified(Kind::Restrict, die, place, depth),
            gimli::DW_TAG_typedef => self.typedef(die, place, depth),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => self.composite(Kind::Struct, die, place, depth),
            gimli::DW_TAG_union_type => self.composite(Kind::Union, die, place, depth),
            gimli::DW_TAG_enumeration_type => self.enumeration(die),
            gimli::DW_TAG_array_type => self.array(die, place, depth),
            gimli::DW_TAG_subroutine_type => self.prototype(die, place, depth),
            tag if is_transparent(tag) => self.target(die, place, depth),
            _ => TypeRef::Void,
        }
    }

    fn base_type(&mut self, die: &Die<'a>) -> TypeRef {
        let (Some(name), Some(size)) = (die.name, die.byte_size.and_then(|size| u32::try_from(size).ok())) else {
            return TypeRef::Void;
        };
        let float = is_float(die);
        let kind = if float { Kind::Float } else { Kind::Int };
        let base = self.base;
        let candidates = base.named(kind, name.slice());
        let fits = |id: &&TypeId| {
            base.btf().ty(**id).is_some_and(|ty| {
                ty.size() == Some(size) && ty.int().is_none_or(|int| int.encoding.is_signed() == is_signed(die))
            })
        };
        if let Some(id) = candidates.iter().find(fits) {
            return TypeRef::Base(*id);
        }
        let name = text(name.slice());
        if float {
            return new(NewType::Float { name, size });
        }
        let mut encoding = if is_signed(die) { IntEncoding::SIGNED } else { IntEncoding::UNSIGNED };
        if die.encoding == Some(gimli::DW_ATE_boolean) {
            encoding = IntEncoding::BOOL;
        }
        new(NewType::Int { name, size, encoding })
    }

    /// A pointer or qualified type of a type.
    fn modifier(&self, kind: Kind, to: TypeRef) -> TypeRef {
        match to.base_id().and_then(|to| self.base.reference(kind, to)) {
            Some(id) => TypeRef::Base(id),
            None => new(NewType::Modifier { kind, to }),
        }
    }

    fn qualified(&mut self, kind: Kind, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let to = self.target(die, place, depth);
        self.modifier(kind, to)
    }

    fn pointer(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let to = self.target(die, place.pointed(), depth);
        if die.has_children
            && let Some(to) = to.base_id()
            && let Some(tagged) = self.tagged_pointer(die, to)
        {
            return TypeRef::Base(tagged);
        }
        self.modifier(Kind::Ptr, to)
    }

    /// The base's pointer to a type with the pointer's `btf_type_tag` attributes, if it has it. The last attribute is
    /// next to the pointer.
    fn tagged_pointer(&self, die: &Die<'a>, to: TypeId) -> Option<TypeId> {
        let mut tagged = Some(to);
        let mut any = false;
        self.units.children(die.offset, |child| {
            let is_tag = matches!(child.name(), b"btf_type_tag" | b"btf:type_tag");
            if child.tag == LLVM_ANNOTATION && is_tag {
                let value = child.value.and_then(|value| self.units.text(value));
                tagged = tagged.and_then(|to| self.base.tag(value?.slice(), to));
                any = true;
            }
            tagged.is_some()
        })?;
        self.base.reference(Kind::Ptr, tagged.filter(|_| any)?)
    }

    fn typedef(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let base = self.base;
        let candidates = base.named(Kind::Typedef, die.name());
        if let Some(id) = self.choose(die, candidates) {
            return TypeRef::Base(id);
        }
        let to = self.target(die, place, depth);
        new(NewType::Typedef { name: text(die.name()), to })
    }

    /// Which of the base's types of the same name the type is.
    fn choose(&self, die: &Die<'a>, candidates: &[TypeId]) -> Option<TypeId> {
        match candidates {
            [] => return None,
            [one] if !self.foreign_language => return Some(*one),
            _ => {}
        }
        let equal = |candidates: &[TypeId], levels| -> Vec<TypeId> {
            let same = |id: &TypeId| Comparison::new(&self.units, self.base.btf()).same(Some(die.offset), *id, levels);
            candidates.iter().copied().filter(same).collect()
        };
        let mut left = equal(candidates, 0);
        for levels in 1..=MAX_LEVELS {
            if left.len() < 2 {
                break;
            }
            let fewer = equal(&left, levels);
            if fewer.is_empty() {
                break;
            }
            left = fewer;
        }
        left.first().copied()
    }

    fn composite(&mut self, kind: Kind, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let base = self.base;
        let name = die.name();
        let is_union = kind == Kind::Union;
        if die.is_declaration {
            return match base.named(kind, name) {
                [one] => TypeRef::Base(*one),
                _ => self.forward(name, is_union),
            };
        }
        let Some(size) = die.byte_size.and_then(|size| u32::try_from(size).ok()) else {
            return TypeRef::Void;
        };
        let found = if name.is_empty() {
            let outline = self.outline(kind, size, die, gimli::DW_TAG_member);
            self.compare_all(die, base.anonymous(&outline))
        } else {
            let candidates = base.named(kind, name);
            match candidates {
                [one] if base.btf().ty(*one).and_then(|ty| ty.size()) != Some(size) => None,
                _ => self.choose(die, candidates),
            }
        };
        match found {
            Some(id) => TypeRef::Base(id),
            None if place == Place::Pointed && !name.is_empty() => self.forward(name, is_union),
            None => self.new_composite(kind, size, die, depth),
        }
    }

    /// As [`UnitTypes::choose`], but a single candidate must be equal too.
    fn compare_all(&self, die: &Die<'a>, candidates: &[TypeId]) -> Option<TypeId> {
        match candidates {
            [one] => {
                let same = Comparison::new(&self.units, self.base.btf()).same(Some(die.offset), *one, 0);
                same.then_some(*one)
            }
            several => self.choose(die, several),
        }
    }

    fn forward(&self, name: &[u8], is_union: bool) -> TypeRef {
        let base = self.base;
        let is_kind = |id: &&TypeId| base.btf().ty(**id).is_some_and(|ty| ty.flag() == is_union);
        match base.named(Kind::Fwd, name).iter().find(is_kind) {
            Some(id) => TypeRef::Base(*id),
            None => new(NewType::Fwd { name: text(name), is_union }),
        }
    }

    fn outline(&self, kind: Kind, size: u32, die: &Die<'a>, part: gimli::DwTag) -> Outline<'a> {
        let mut outline = Outline { kind, size, count: 0, first: &[] };
        // What is malformed is found nowhere.
        let _ = self.units.children(die.offset, |child| {
            if child.tag == part {
                if outline.count == 0 {
                    outline.first = child.name();
                }
                outline.count += 1;
            }
            true
        });
        outline
    }

    fn new_composite(&mut self, kind: Kind, size: u32, die: &Die<'a>, depth: u32) -> TypeRef {
        let mut children = Vec::new();
        let _ = self.units.children(die.offset, |child| {
            if child.tag == gimli::DW_TAG_member {
                children.push(child);
            }
            children.len() < MAX_MEMBERS
        });
        let mut members = Vec::with_capacity(children.len());
        for child in children {
            let Some((offset, bits)) = child.member_bits() else { continue };
            let (Ok(bit_offset), Ok(bits)) = (u32::try_from(offset), u32::try_from(bits)) else { continue };
            let ty = self.target(&child, Place::Member, depth);
            members.push(NewMember { name: text(child.name()), ty, bit_offset, bits });
        }
        new(NewType::Composite { kind, name: text(die.name()), size, members })
    }

    fn enumeration(&mut self, die: &Die<'a>) -> TypeRef {
        let base = self.base;
        let name = die.name();
        let size = die.byte_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(4);
        let found = if name.is_empty() {
            let outline = self.outline(Kind::Enum, size, die, gimli::DW_TAG_enumerator);
            self.compare_all(die, base.anonymous(&outline))
        } else {
            self.choose(die, base.named(Kind::Enum, name))
        };
        if let Some(id) = found {
            return TypeRef::Base(id);
        }
        let signed = enumeration_is_signed(&self.units, die);
        let mut values = Vec::new();
        let _ = self.units.children(die.offset, |child| {
            if child.tag == gimli::DW_TAG_enumerator
                && let Some(value) = child.enumerator(signed)
            {
                values.push((text(child.name()), value));
            }
            values.len() < MAX_MEMBERS
        });
        new(NewType::Enumeration { name: text(name), size, signed, values })
    }

    fn array(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let element = self.target(die, place, depth);
        let count = array_count(&self.units, die).and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        match element.base_id().and_then(|element| self.base.array(element, count)) {
            Some(id) => TypeRef::Base(id),
            None => new(NewType::Array { element, index: self.base.array_index().clone(), count }),
        }
    }

    fn prototype(&mut self, die: &Die<'a>, place: Place, depth: u32) -> TypeRef {
        let place = place.pointed();
        let ret = self.target(die, place, depth);
        let mut types = Vec::new();
        let mut variadic = false;
        let _ = self.units.children(die.offset, |child| {
            match child.tag {
                gimli::DW_TAG_formal_parameter => types.push(child.ty),
                gimli::DW_TAG_unspecified_parameters => variadic = true,
                _ => {}
            }
            true
        });
        let params: Vec<TypeRef> =
            types.into_iter().map(|ty| ty.map_or(TypeRef::Void, |ty| self.build(ty, place, depth))).collect();
        let ids: Option<Vec<TypeId>> = params.iter().map(TypeRef::base_id).collect();
        let found = ids.zip(ret.base_id()).and_then(|(ids, ret)| self.base.prototype(ret, &ids, variadic));
        match found {
            Some(id) => TypeRef::Base(id),
            None => new(NewType::FuncProto { ret, params, variadic }),
        }
    }
}
