// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! DWARF written by gimli, BTF written by [`SplitBtf`], and what the one is in the other.

use super::*;
use crate::debug::slice::Slice;
use crate::lower::{BaseType, ParamType};
use gimli::write::{Address, AttributeValue, Dwarf, EndianVec, Expression, Sections, Unit, UnitEntryId};
use gimli::{DwAt, DwTag, Encoding, Format, LittleEndian, SectionId};
use proptest::prelude::*;
use siteseer_sites::btf::{Btf, type_name};
use siteseer_sites::location::Missing;
use std::collections::HashMap;

const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 5, address_size: 8 };
/// `DW_TAG_LLVM_annotation`.
const ANNOTATION: DwTag = DwTag(0x6000);

/// A unit under construction. Types are marked by name, to be found again.
struct Source {
    unit: Unit,
    marked: Vec<(UnitEntryId, &'static str)>,
}

type Attributes<'v> = &'v [(DwAt, AttributeValue)];

fn udata(value: u64) -> AttributeValue {
    AttributeValue::Udata(value)
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::String(text.as_bytes().to_vec())
}

fn to(entry: UnitEntryId) -> AttributeValue {
    AttributeValue::UnitRef(entry)
}

impl Source {
    fn new(language: gimli::DwLang) -> Source {
        let mut unit = Unit::new(ENCODING, gimli::write::LineProgram::none());
        let root = unit.root();
        unit.get_mut(root).set(gimli::DW_AT_language, AttributeValue::Language(language));
        Source { unit, marked: Vec::new() }
    }

    fn under(&mut self, parent: UnitEntryId, tag: DwTag, attributes: Attributes<'_>) -> UnitEntryId {
        let entry = self.unit.add(parent, tag);
        for (name, value) in attributes {
            self.unit.get_mut(entry).set(*name, value.clone());
        }
        entry
    }

    fn add(&mut self, tag: DwTag, attributes: Attributes<'_>) -> UnitEntryId {
        let root = self.unit.root();
        self.under(root, tag, attributes)
    }

    fn base(&mut self, name: &str, size: u64, encoding: gimli::DwAte) -> UnitEntryId {
        let encoding = AttributeValue::Encoding(encoding);
        let attributes =
            [(gimli::DW_AT_name, text(name)), (gimli::DW_AT_byte_size, udata(size)), (gimli::DW_AT_encoding, encoding)];
        self.add(gimli::DW_TAG_base_type, &attributes)
    }

    fn int(&mut self) -> UnitEntryId {
        self.base("int", 4, gimli::DW_ATE_signed)
    }

    fn pointer(&mut self, target: UnitEntryId) -> UnitEntryId {
        self.add(gimli::DW_TAG_pointer_type, &[(gimli::DW_AT_byte_size, udata(8)), (gimli::DW_AT_type, to(target))])
    }

    fn composite(&mut self, tag: DwTag, name: &str, size: u64, members: &[(&str, UnitEntryId, u64)]) -> UnitEntryId {
        let entry = self.add(tag, &[(gimli::DW_AT_byte_size, udata(size))]);
        if !name.is_empty() {
            self.unit.get_mut(entry).set(gimli::DW_AT_name, text(name));
        }
        for (name, ty, offset) in members {
            self.member(entry, name, *ty, &[(gimli::DW_AT_data_member_location, udata(*offset))]);
        }
        entry
    }

    fn structure(&mut self, name: &str, size: u64, members: &[(&str, UnitEntryId, u64)]) -> UnitEntryId {
        self.composite(gimli::DW_TAG_structure_type, name, size, members)
    }

    fn member(&mut self, parent: UnitEntryId, name: &str, ty: UnitEntryId, attributes: Attributes<'_>) {
        let entry = self.under(parent, gimli::DW_TAG_member, attributes);
        self.unit.get_mut(entry).set(gimli::DW_AT_type, to(ty));
        if !name.is_empty() {
            self.unit.get_mut(entry).set(gimli::DW_AT_name, text(name));
        }
    }

    fn mark(&mut self, name: &'static str, entry: UnitEntryId) {
        self.marked.push((entry, name));
    }

    /// The sections, and the offsets of what was marked: each mark is a variable of that type.
    fn finish(mut self) -> HashMap<SectionId, Vec<u8>> {
        for (entry, name) in std::mem::take(&mut self.marked) {
            let location = AttributeValue::Exprloc(Expression::new());
            let attributes =
                [(gimli::DW_AT_name, text(name)), (gimli::DW_AT_type, to(entry)), (gimli::DW_AT_location, location)];
            self.add(gimli::DW_TAG_variable, &attributes);
        }
        let mut dwarf = Dwarf::new();
        dwarf.units.add(self.unit);
        let mut sections = Sections::new(EndianVec::new(LittleEndian));
        dwarf.write(&mut sections).unwrap();
        let mut bytes = HashMap::new();
        sections
            .for_each(|id, section| {
                bytes.insert(id, section.slice().to_vec());
                Ok::<(), gimli::write::Error>(())
            })
            .unwrap();
        bytes
    }
}

/// Calls a function with the types of the unit and the offsets of the marked ones.
fn with_types<T>(
    sections: &HashMap<SectionId, Vec<u8>>,
    btf: &Btf<'_>,
    test: impl FnOnce(&mut UnitTypes<'_, '_>, &HashMap<String, usize>) -> T,
) -> Option<T> {
    let section = |id| sections.get(&id).map_or(&[][..], Vec::as_slice);
    let dwarf = gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(Slice::new(section(id), LittleEndian))).ok()?;
    let header = dwarf.units().next().ok()??;
    let unit = dwarf.unit(header).ok()?;
    let mut marks = HashMap::new();
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() == gimli::DW_TAG_variable
            && let Some(gimli::AttributeValue::UnitRef(ty)) = entry.attr_value(gimli::DW_AT_type)
            && let Some(name) = entry.attr_value(gimli::DW_AT_name)
            && let Ok(name) = dwarf.attr_string(&unit, name)
        {
            marks.insert(name.to_string_lossy().into_owned(), ty.0);
        }
    }
    let headers = [header];
    let base = BaseIndex::new(btf);
    let mut types = UnitTypes::new(&base, &dwarf, &headers, &unit);
    Some(test(&mut types, &marks))
}

fn empty_btf() -> Vec<u8> {
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24u32, 0, 0, 0, 1] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.push(0);
    bytes
}

/// The base of the tests, by a function that adds its types.
fn base_btf(fill: impl FnOnce(&mut SplitBtf)) -> (Vec<u8>, Vec<u8>) {
    let empty = empty_btf();
    let bytes = {
        let root = Btf::parse(&empty).unwrap();
        let mut btf = SplitBtf::new(&root);
        fill(&mut btf);
        btf.to_bytes()
    };
    (empty, bytes)
}

/// Names of the marked types, as the split BTF over the base names them; `+` before those that are new.
fn names(source: Source, fill: impl FnOnce(&mut SplitBtf)) -> HashMap<String, String> {
    let (empty, bytes) = base_btf(fill);
    let root = Btf::parse(&empty).unwrap();
    let btf = Btf::parse_split(&bytes, &root).unwrap();
    let sections = source.finish();
    with_types(&sections, &btf, |types, marks| {
        let mut added = SplitBtf::new(&btf);
        let resolved: Vec<(String, TypeRef, TypeId)> = marks
            .iter()
            .map(|(name, offset)| {
                let ty = types.resolve(*offset);
                assert_eq!(types.resolve(*offset), ty);
                let id = ty.intern(&mut added);
                (name.clone(), ty, id)
            })
            .collect();
        let added = added.to_bytes();
        let over = Btf::parse_split(&added, &btf).unwrap();
        let text = |(name, ty, id): (String, TypeRef, TypeId)| {
            let new = if matches!(ty, TypeRef::New(_)) { "+" } else { "" };
            (name, format!("{new}{}", type_name(&over, id)))
        };
        resolved.into_iter().map(text).collect()
    })
    .unwrap()
}

fn plain(name: &str, ty: TypeId, bit_offset: u32) -> Member<'_> {
    Member { name, ty, bit_offset, bits: 0 }
}

#[test]
fn types_are_found_by_name_and_by_what_they_refer_to() {
    let mut source = Source::new(gimli::DW_LANG_C11);
    let int = source.int();
    let file = source.structure("file", 8, &[("mode", int, 0)]);
    let declared = source.add(
        gimli::DW_TAG_structure_type,
        &[(gimli::DW_AT_name, text("file")), (gimli::DW_AT_declaration, AttributeValue::Flag(true))],
    );
    let constant = source.add(gimli::DW_TAG_const_type, &[(gimli::DW_AT_type, to(file))]);
    let atomic = source.add(gimli::DW_TAG_atomic_type, &[(gimli::DW_AT_type, to(int))]);
    let array = source.add(gimli::DW_TAG_array_type, &[(gimli::DW_AT_type, to(int))]);
    for bound in [1u64, 2] {
        source.under(array, gimli::DW_TAG_subrange_type, &[(gimli::DW_AT_upper_bound, udata(bound))]);
    }
    let callback = source.add(gimli::DW_TAG_subroutine_type, &[(gimli::DW_AT_type, to(int))]);
    let to_constant = source.pointer(constant);
    source.under(callback, gimli::DW_TAG_formal_parameter, &[(gimli::DW_AT_type, to(to_constant))]);
    source.under(callback, gimli::DW_TAG_unspecified_parameters, &[]);
    let void = source.add(gimli::DW_TAG_pointer_type, &[(gimli::DW_AT_byte_size, udata(8))]);
    let typedef = source.add(gimli::DW_TAG_typedef, &[(gimli::DW_AT_name, text("s32")), (gimli::DW_AT_type, to(int))]);
    let anonymous = source.structure("", 4, &[("counter", int, 0)]);
    let other = source.structure("", 4, &[("value", int, 0)]);
    let pointer_to_int = source.pointer(int);
    let to_callback = source.pointer(callback);
    let to_declared = source.pointer(declared);
    let marks = [
        ("int", int),
        ("file", file),
        ("declared", to_declared),
        ("constant", to_constant),
        ("atomic", atomic),
        ("array", array),
        ("callback", to_callback),
        ("void", void),
        ("typedef", typedef),
        ("anonymous", anonymous),
        ("other", other),
        ("pointer", pointer_to_int),
    ];
    for (name, entry) in marks {
        source.mark(name, entry);
    }
    let names = names(source, |btf| {
        let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
        let file = btf.composite(Kind::Struct, "file", 8, &[plain("mode", int, 0)]);
        btf.modifier(Kind::Ptr, file);
        let constant = btf.modifier(Kind::Const, file);
        let pointer = btf.modifier(Kind::Ptr, constant);
        btf.modifier(Kind::Ptr, 0);
        btf.array(int, int, 6);
        let callback = btf.func_proto(int, &[("", pointer)], true);
        btf.modifier(Kind::Ptr, callback);
        btf.typedef("s32", int);
        btf.composite(Kind::Struct, "", 4, &[plain("counter", int, 0)]);
    });
    let expected = [
        ("int", "int"),
        ("file", "struct file"),
        ("declared", "struct file *"),
        ("constant", "const struct file *"),
        ("atomic", "int"),
        ("array", "int[6]"),
        ("callback", "int (*)(const struct file *, ...)"),
        ("void", "void *"),
        ("typedef", "s32"),
        ("pointer", "+int *"),
    ];
    for (name, expected) in expected {
        assert_eq!(names[name], expected, "{name}");
    }
    assert!(!names["anonymous"].starts_with('+'), "{}", names["anonymous"]);
    assert!(names["other"].starts_with('+'), "{}", names["other"]);
}

/// A unit with `struct ctx { int a; struct inner *p; }` where `struct inner` has one member of the given name.
fn with_inner(language: gimli::DwLang, member: &str) -> Source {
    let mut source = Source::new(language);
    let int = source.int();
    let inner = source.structure("inner", 4, &[(member, int, 0)]);
    let pointer = source.pointer(inner);
    let ctx = source.structure("ctx", 16, &[("a", int, 0), ("p", pointer, 8)]);
    source.mark("ctx", ctx);
    source
}

/// Which of the two `struct ctx` of the base, which differ only in what they point to, a unit's is.
fn chosen(source: Source) -> TypeRef {
    let (empty, bytes) = base_btf(|btf| {
        let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
        for member in ["first", "second"] {
            let inner = btf.composite(Kind::Struct, "inner", 4, &[plain(member, int, 0)]);
            let pointer = btf.modifier(Kind::Ptr, inner);
            btf.composite(Kind::Struct, "ctx", 16, &[plain("a", int, 0), plain("p", pointer, 64)]);
        }
    });
    let root = Btf::parse(&empty).unwrap();
    let btf = Btf::parse_split(&bytes, &root).unwrap();
    with_types(&source.finish(), &btf, |types, marks| types.resolve(marks["ctx"])).unwrap()
}

#[test]
fn candidates_of_one_name_are_told_apart_by_what_they_point_to() {
    assert_eq!(chosen(with_inner(gimli::DW_LANG_C11, "first")), TypeRef::Base(4));
    assert_eq!(chosen(with_inner(gimli::DW_LANG_C11, "second")), TypeRef::Base(7));
}

#[test]
fn a_type_of_another_size_or_shape_is_new() {
    let shaped = |language, size, member| {
        let mut source = Source::new(language);
        let int = source.int();
        let file = source.structure("file", size, &[(member, int, 0)]);
        source.mark("file", file);
        let names = names(source, |btf| {
            let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
            btf.composite(Kind::Struct, "file", 8, &[plain("mode", int, 0)]);
        });
        names["file"].clone()
    };
    assert_eq!(shaped(gimli::DW_LANG_C11, 8, "mode"), "struct file");
    assert_eq!(shaped(gimli::DW_LANG_C11, 16, "mode"), "+struct file");
    assert_eq!(shaped(gimli::DW_LANG_Rust, 8, "mode"), "struct file");
    assert_eq!(shaped(gimli::DW_LANG_Rust, 8, "name"), "+struct file");
}

#[test]
fn new_structures_end_in_forward_declarations() {
    let mut source = Source::new(gimli::DW_LANG_C11);
    let int = source.int();
    let list = source.structure("list", 24, &[("value", int, 0)]);
    let next = source.pointer(list);
    let other = source.structure("other", 4, &[("value", int, 0)]);
    let to_other = source.pointer(other);
    source.member(list, "next", next, &[(gimli::DW_AT_data_member_location, udata(8))]);
    source.member(list, "other", to_other, &[(gimli::DW_AT_data_member_location, udata(16))]);
    source.mark("list", next);
    let (empty, bytes) = base_btf(|btf| {
        btf.int("int", 4, 32, IntEncoding::SIGNED);
    });
    let root = Btf::parse(&empty).unwrap();
    let btf = Btf::parse_split(&bytes, &root).unwrap();
    let found = with_types(&source.finish(), &btf, |types, marks| types.resolve(marks["list"])).unwrap();
    let mut added = SplitBtf::new(&btf);
    let id = found.intern(&mut added);
    assert_eq!(found.intern(&mut added), id);
    let added = added.to_bytes();
    let over = Btf::parse_split(&added, &btf).unwrap();
    let list = over.ty(over.ty(id).unwrap().target().unwrap()).unwrap();
    let members: Vec<(&str, u32, String)> =
        list.members().map(|m| (m.name, m.bit_offset, type_name(&over, m.ty))).collect();
    let expected = [("value", 0, "int"), ("next", 64, "struct list *"), ("other", 128, "struct other *")];
    assert_eq!(members, expected.map(|(name, offset, ty)| (name, offset, ty.to_owned())));
    let pointed: Vec<Kind> =
        list.members().filter_map(|m| over.ty(over.ty(m.ty)?.target()?).map(|ty| ty.kind())).collect();
    assert_eq!(pointed, [Kind::Fwd, Kind::Fwd]);
}

#[test]
fn type_tags_stand_between_pointer_and_target() {
    let tagged = |in_base: bool| {
        let mut source = Source::new(gimli::DW_LANG_C11);
        let int = source.int();
        let pointer = source.pointer(int);
        source.under(
            pointer,
            ANNOTATION,
            &[(gimli::DW_AT_name, text("btf_type_tag")), (gimli::DW_AT_const_value, text("user"))],
        );
        source.mark("pointer", pointer);
        let (empty, bytes) = base_btf(|btf| {
            let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
            btf.modifier(Kind::Ptr, int);
            if in_base {
                let tag = btf.type_tag("user", int);
                btf.modifier(Kind::Ptr, tag);
            }
        });
        let root = Btf::parse(&empty).unwrap();
        let btf = Btf::parse_split(&bytes, &root).unwrap();
        with_types(&source.finish(), &btf, |types, marks| types.resolve(marks["pointer"])).unwrap()
    };
    assert_eq!(tagged(true), TypeRef::Base(4));
    assert_eq!(tagged(false), TypeRef::Base(2));
}

#[test]
fn enumerations_are_compared_by_their_values() {
    let found = |value: i64| {
        let mut source = Source::new(gimli::DW_LANG_C11);
        let entry = source.add(gimli::DW_TAG_enumeration_type, &[(gimli::DW_AT_byte_size, udata(4))]);
        source.under(
            entry,
            gimli::DW_TAG_enumerator,
            &[(gimli::DW_AT_name, text("A")), (gimli::DW_AT_const_value, AttributeValue::Sdata(value))],
        );
        source.mark("anonymous", entry);
        let names = names(source, |btf| {
            btf.enumeration("", 4, true, &[Enumerator { name: "A", value: -1 }]);
        });
        names["anonymous"].starts_with('+')
    };
    assert!(!found(-1));
    assert!(found(1));
}

fn param(build: impl FnOnce(&mut Source) -> UnitEntryId) -> Result<ParamType, Missing> {
    let mut source = Source::new(gimli::DW_LANG_C11);
    let entry = build(&mut source);
    source.mark("param", entry);
    let empty = empty_btf();
    let btf = Btf::parse(&empty).unwrap();
    with_types(&source.finish(), &btf, |types, marks| types.param_type(marks["param"])).unwrap()
}

#[test]
fn sizes_and_signedness_of_parameters() {
    let scalar = |size, signed| Ok(ParamType::scalar(size, signed));
    assert_eq!(param(|s| s.int()), scalar(4, true));
    assert_eq!(param(|s| s.base("char", 1, gimli::DW_ATE_unsigned_char)), scalar(1, false));
    assert_eq!(param(|s| s.base("signed char", 1, gimli::DW_ATE_signed_char)), scalar(1, true));
    assert_eq!(param(|s| s.base("_Bool", 1, gimli::DW_ATE_boolean)), scalar(1, false));
    assert_eq!(param(|s| s.base("__int128", 16, gimli::DW_ATE_signed)), scalar(16, true));
    assert_eq!(param(|s| s.base("double", 8, gimli::DW_ATE_float)), Err(Missing::Unsupported));
    let qualified = param(|s| {
        let int = s.int();
        let constant = s.add(gimli::DW_TAG_const_type, &[(gimli::DW_AT_type, to(int))]);
        s.add(gimli::DW_TAG_typedef, &[(gimli::DW_AT_name, text("t")), (gimli::DW_AT_type, to(constant))])
    });
    assert_eq!(qualified, scalar(4, true));
    let pointer = param(|s| {
        let int = s.int();
        s.pointer(int)
    });
    assert_eq!(pointer, scalar(8, false));
    let enumeration = |value| {
        param(|s| {
            let entry = s.add(gimli::DW_TAG_enumeration_type, &[(gimli::DW_AT_byte_size, udata(4))]);
            s.under(entry, gimli::DW_TAG_enumerator, &[(gimli::DW_AT_const_value, AttributeValue::Sdata(value))]);
            entry
        })
    };
    assert_eq!(enumeration(-1), scalar(4, true));
    assert_eq!(enumeration(1), scalar(4, false));
    assert_eq!(param(|s| s.add(gimli::DW_TAG_subroutine_type, &[])), Err(Missing::NoType));
    let declared = [(gimli::DW_AT_declaration, AttributeValue::Flag(true))];
    assert_eq!(param(|s| s.add(gimli::DW_TAG_structure_type, &declared)), Err(Missing::NoType));
}

#[test]
fn padding_of_composites() {
    let composite = |size, data: &[(u32, u32)]| {
        Ok(ParamType {
            size,
            signed: false,
            is_composite: true,
            is_irregular: false,
            data: data.iter().map(|(start, end)| *start..*end).collect(),
        })
    };
    let padded = param(|s| {
        let (int, char) = (s.int(), s.base("char", 1, gimli::DW_ATE_unsigned_char));
        let inner = s.structure("inner", 8, &[("a", int, 0), ("b", char, 4)]);
        s.structure("outer", 24, &[("inner", inner, 0), ("c", int, 8), ("d", char, 16)])
    });
    assert_eq!(padded, composite(24, &[(0, 40), (64, 96), (128, 136)]));
    let bitfields = param(|s| {
        let int = s.int();
        let entry = s.structure("bits", 4, &[]);
        let bits = |offset, size| [(gimli::DW_AT_data_bit_offset, udata(offset)), (gimli::DW_AT_bit_size, udata(size))];
        s.member(entry, "a", int, &bits(0, 3));
        s.member(entry, "b", int, &bits(10, 5));
        // As DWARF 3 has it: bits 20..24, counted from the top of 4 bytes.
        let old = [
            (gimli::DW_AT_byte_size, udata(4)),
            (gimli::DW_AT_bit_offset, udata(8)),
            (gimli::DW_AT_bit_size, udata(4)),
            (gimli::DW_AT_data_member_location, udata(0)),
        ];
        s.member(entry, "c", int, &old);
        entry
    });
    assert_eq!(bitfields, composite(4, &[(0, 3), (10, 15), (20, 24)]));
    let union = param(|s| {
        let (int, char) = (s.int(), s.base("char", 1, gimli::DW_ATE_unsigned_char));
        s.composite(gimli::DW_TAG_union_type, "u", 8, &[("a", char, 0), ("b", int, 0)])
    });
    assert_eq!(union, composite(8, &[(0, 32)]));
}

#[test]
fn base_types_of_operations() {
    let types = [
        ("int", 4, gimli::DW_ATE_signed, BaseType { bits: 32, signed: true, float: false }),
        ("DW_ATE_unsigned_1", 1, gimli::DW_ATE_unsigned, BaseType { bits: 1, signed: false, float: false }),
        ("DW_ATE_signed_64", 8, gimli::DW_ATE_signed, BaseType { bits: 64, signed: true, float: false }),
        ("double", 8, gimli::DW_ATE_float, BaseType { bits: 64, signed: false, float: true }),
    ];
    for (name, size, encoding, expected) in types {
        let mut source = Source::new(gimli::DW_LANG_C11);
        let entry = source.base(name, size, encoding);
        source.mark("type", entry);
        let sections = source.finish();
        let section = |id| sections.get(&id).map_or(&[][..], Vec::as_slice);
        let dwarf = gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(Slice::new(section(id), LittleEndian))).unwrap();
        let unit = dwarf.unit(dwarf.units().next().unwrap().unwrap()).unwrap();
        let mut entries = unit.entries();
        let mut found = None;
        while let Some(entry) = entries.next_dfs().unwrap() {
            if entry.tag() == gimli::DW_TAG_base_type {
                found = Some(entry.offset());
            }
        }
        assert_eq!(base_type(&dwarf, &unit, found.unwrap()), Some(expected), "{name}");
        assert_eq!(base_type(&dwarf, &unit, unit.header.root_offset()), None);
    }
}

proptest! {
    /// Whatever the debug information is, types of it are looked at in bounded time and without a panic.
    #[test]
    fn malformed_debug_information(flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..24), at in any::<u16>()) {
        let mut source = with_inner(gimli::DW_LANG_Rust, "first");
        let root = source.unit.root();
        let address = AttributeValue::Address(Address::Constant(0));
        source.unit.get_mut(root).set(gimli::DW_AT_low_pc, address);
        let mut sections = source.finish();
        for (place, value) in &flips {
            for id in [SectionId::DebugInfo, SectionId::DebugAbbrev] {
                if let Some(bytes) = sections.get_mut(&id).filter(|bytes| bytes.len() > 12) {
                    let place = 12 + usize::from(*place) % (bytes.len() - 12);
                    bytes[place] = *value;
                }
            }
        }
        let (empty, bytes) = base_btf(|btf| {
            let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
            let inner = btf.composite(Kind::Struct, "inner", 4, &[plain("first", int, 0)]);
            let pointer = btf.modifier(Kind::Ptr, inner);
            btf.composite(Kind::Struct, "ctx", 16, &[plain("a", int, 0), plain("p", pointer, 64)]);
        });
        let root = Btf::parse(&empty).unwrap();
        let btf = Btf::parse_split(&bytes, &root).unwrap();
        let length = sections.get(&SectionId::DebugInfo).map_or(1, |bytes| bytes.len().max(1));
        with_types(&sections, &btf, |types, _| {
            for offset in [usize::from(at) % length, usize::from(at)] {
                let mut added = SplitBtf::new(&btf);
                types.resolve(offset).intern(&mut added);
                if let Ok(ty) = types.param_type(offset) {
                    assert!(ty.size > 0 && ty.data.iter().all(|range| range.end <= ty.size * 8));
                }
            }
        });
    }
}
