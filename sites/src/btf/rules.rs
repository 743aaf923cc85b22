// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the kernel demands of BTF.
//!
//! The kernel checks each type of a BTF by its kind (`btf_check_all_metas()` in kernel/bpf/btf.c calls a `check_meta`
//! per kind) and then what types refer to (`resolve`). One violation, and it refuses the BTF as a whole with `EINVAL`.
//! [`check`] goes by the same rules, and lists all violations, each with the name of the kernel's function that would
//! refuse it. The rules of the LOC kinds are those of October 2026.
//!
//! For the LOC kinds both steps are checked, and for FUNC that it refers to a FUNC_PROTO; for the other kinds only the
//! first step (the kernel does no more for its own BTF and for its modules'), and that each type that is referred to
//! exists. BTF that cannot be read at all has no violations: it has a [`BtfError`].

use super::kinds::{IntEncoding, Kind, RawHeader, RawHeaderLayout, loc_flags};
use super::loc::MAX_SIZE;
use super::read::{Btf, BtfError, TypeId};
use super::types::Type;
use std::collections::HashMap;
use std::fmt;
use zerocopy::FromBytes;

/// The highest number of a type (BTF_MAX_TYPE).
pub const MAX_TYPE: TypeId = 0x000f_ffff;
/// The greatest offset of a name (BTF_MAX_NAME_OFFSET).
pub const MAX_NAME_OFFSET: u32 = 0x00ff_ffff;
/// A name has fewer bytes (KSYM_NAME_LEN).
pub const NAME_LEN: usize = 512;

/// Where a rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In the header, or in what it says about the sections.
    Header,
    /// In a type.
    Type {
        /// Its number.
        id: TypeId,
        /// Its kind.
        kind: Kind,
    },
    /// In a member, parameter, enumerator, variable or location of a type.
    Element {
        /// Number of the type.
        id: TypeId,
        /// Kind of the type.
        kind: Kind,
        /// Which element it is, from 0.
        nth: usize,
    },
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The header has flags.
    Flags(u8),
    /// The type section is not aligned to 4 bytes.
    Unaligned(u32),
    /// The sections do not follow one another without gaps up to the end.
    Gap,
    /// The string section is not the last.
    StringsNotLast,
    /// Strings go on after the greatest offset that a name can have.
    TooManyStrings(u64),
    /// There are more types than can be numbered.
    TooManyTypes(TypeId),
    /// The kind is not known.
    UnknownKind(u8),
    /// It has a name, and must not.
    Named,
    /// It has no name, and must.
    Unnamed,
    /// The name is not an identifier.
    NotIdentifier(String),
    /// The name is not that of a section.
    NotSection(String),
    /// It has elements, and must not.
    Vlen(u32),
    /// The kind flag is set.
    KindFlag,
    /// The size is not one that the kind can have.
    Size(u32),
    /// The integer's bits do not fit its size, or its encoding is not known.
    Int,
    /// It refers to nothing, or to a number that is not a type's.
    Reference(TypeId),
    /// It refers to a type of another kind than it must.
    Kind(TypeId),
    /// It lies outside of what contains it, or before what comes before it.
    Offset(u32),
    /// The linkage is not known.
    Linkage(u32),
    /// The index of the component is negative.
    Component(i32),
    /// A LOC_PARAM's flags do not go together.
    LocFlags(u32),
    /// A LOC_PARAM's flags and size take another number of words.
    LocWords {
        /// Its flags.
        flags: u32,
        /// Its size.
        size: u32,
        /// The number of its words.
        words: u32,
    },
    /// A LOC_PROTO or LOCSEC says a type, and must say 0.
    TypeSet(u32),
    /// A site's LOC_PROTO has another number of elements than its function's FUNC_PROTO.
    Parameters {
        /// Elements of the FUNC_PROTO.
        func_proto: u32,
        /// Elements of the LOC_PROTO.
        loc_proto: u32,
    },
}

/// A rule that is broken somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub rule: Rule,
}

impl Violation {
    /// The function of kernel/bpf/btf.c that refuses it.
    pub fn refused_by(&self) -> &'static str {
        let (Place::Type { kind, .. } | Place::Element { kind, .. }) = self.place else {
            return match self.rule {
                Rule::Flags(_) => "btf_parse_hdr",
                Rule::Gap => "btf_check_sec_info",
                Rule::StringsNotLast | Rule::TooManyStrings(_) => "btf_parse_str_sec",
                Rule::TooManyTypes(_) => "btf_add_type",
                _ => "btf_parse_type_sec",
            };
        };
        match (kind, &self.rule) {
            (_, Rule::UnknownKind(_)) => "btf_check_meta",
            (Kind::LocProto, Rule::Kind(_) | Rule::Reference(_) | Rule::TypeSet(_)) => "btf_loc_proto_resolve",
            (Kind::Locsec, Rule::Kind(_) | Rule::TypeSet(_) | Rule::Parameters { .. }) => "btf_locsec_resolve",
            (Kind::Locsec, Rule::Reference(1..=MAX_TYPE)) => "btf_locsec_resolve",
            (Kind::Func, Rule::Kind(_) | Rule::Reference(_)) => "btf_func_check",
            (Kind::FuncProto, Rule::Reference(_)) => "btf_func_proto_check",
            _ => check_meta(kind),
        }
    }
}

/// The kernel's check of a kind.
fn check_meta(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "btf_int_check_meta",
        Kind::Ptr | Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
            "btf_ref_type_check_meta"
        }
        Kind::Array => "btf_array_check_meta",
        Kind::Struct | Kind::Union => "btf_struct_check_meta",
        Kind::Enum => "btf_enum_check_meta",
        Kind::Fwd => "btf_fwd_check_meta",
        Kind::Func => "btf_func_check_meta",
        Kind::FuncProto => "btf_func_proto_check_meta",
        Kind::Var => "btf_var_check_meta",
        Kind::Datasec => "btf_datasec_check_meta",
        Kind::Float => "btf_float_check_meta",
        Kind::DeclTag => "btf_decl_tag_check_meta",
        Kind::Enum64 => "btf_enum64_check_meta",
        Kind::LocParam => "btf_loc_param_check_meta",
        Kind::LocProto => "btf_loc_proto_check_meta",
        Kind::Locsec => "btf_locsec_check_meta",
        Kind::Other(_) => "btf_check_meta",
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Header => f.write_str("header"),
            Place::Type { id, kind } => write!(f, "type {id} ({kind:?})"),
            Place::Element { id, kind, nth } => write!(f, "type {id} ({kind:?}), element {nth}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Flags(flags) => write!(f, "flags {flags:#x} are set"),
            Rule::Unaligned(offset) => write!(f, "the type section at {offset:#x} is not aligned to 4 bytes"),
            Rule::Gap => f.write_str("the sections do not follow one another up to the end of the data"),
            Rule::StringsNotLast => f.write_str("the string section is not the last"),
            Rule::TooManyStrings(end) => {
                write!(f, "the strings end at {end:#x}, and a name's offset is at most {MAX_NAME_OFFSET:#x}")
            }
            Rule::TooManyTypes(end) => write!(f, "the types end with number {end}, and the last may be {MAX_TYPE}"),
            Rule::UnknownKind(kind) => write!(f, "there is no kind {kind}"),
            Rule::Named => f.write_str("it has a name, and must not"),
            Rule::Unnamed => f.write_str("it has no name"),
            Rule::NotIdentifier(name) => write!(f, "{name:?} is not an identifier"),
            Rule::NotSection(name) => write!(f, "{name:?} is not the name of a section"),
            Rule::Vlen(vlen) => write!(f, "it has {vlen} elements, and must not"),
            Rule::KindFlag => f.write_str("its kind flag is set"),
            Rule::Size(size) => write!(f, "its size is {size}"),
            Rule::Int => f.write_str("its bits or its encoding do not go with its size"),
            Rule::Reference(id) => write!(f, "it refers to type {id}, which there is not"),
            Rule::Kind(id) => write!(f, "it refers to type {id}, which is of another kind than it must be"),
            Rule::Offset(offset) => write!(f, "its offset {offset} is out of order, or outside"),
            Rule::Linkage(linkage) => write!(f, "its linkage is {linkage}"),
            Rule::Component(index) => write!(f, "its component is {index}"),
            Rule::LocFlags(flags) => write!(f, "its flags are {flags:#x}"),
            Rule::LocWords { flags, size, words } => {
                write!(f, "it has {words} words, with flags {flags:#x} and size {size}")
            }
            Rule::TypeSet(id) => write!(f, "it says type {id}, and must say 0"),
            Rule::Parameters { func_proto, loc_proto } => {
                write!(f, "its LOC_PROTO has {loc_proto} elements, and its function's prototype {func_proto}")
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.rule, self.refused_by())
    }
}

/// What the kernel would refuse in some BTF; `base` is what it is split over. The base itself is not checked.
///
/// # Errors
/// If the BTF cannot be read.
pub fn check(data: &[u8], base: Option<&Btf<'_>>) -> Result<Vec<Violation>, BtfError> {
    let btf = match base {
        Some(base) => Btf::parse_split(data, base)?,
        None => Btf::parse(data)?,
    };
    let mut checker = Checker { btf: &btf, vlens: HashMap::new(), place: Place::Header, found: Vec::new() };
    checker.header(data);
    for ty in btf.types() {
        checker.place = Place::Type { id: ty.id(), kind: ty.kind() };
        checker.type_(ty);
    }
    Ok(checker.found)
}

struct Checker<'b, 'a> {
    btf: &'b Btf<'a>,
    /// How many elements the FUNC_PROTOs of FUNCs have, as far as they were asked for; `None` for what is not a
    /// function.
    vlens: HashMap<TypeId, Option<u32>>,
    place: Place,
    found: Vec<Violation>,
}

impl<'a> Checker<'_, 'a> {
    fn broken(&mut self, rule: Rule) {
        self.found.push(Violation { place: self.place, rule });
    }

    fn demand(&mut self, holds: bool, rule: impl FnOnce() -> Rule) {
        if !holds {
            self.broken(rule());
        }
    }

    fn element(&mut self, ty: Type<'a>, nth: usize) {
        self.place = Place::Element { id: ty.id(), kind: ty.kind(), nth };
    }

    fn header(&mut self, data: &[u8]) {
        // Both were read before.
        let Ok((header, rest)) = RawHeader::ref_from_prefix(data) else { return };
        let header_len = header.header_len.get() as usize;
        self.demand(header.flags == 0, || Rule::Flags(header.flags));
        self.demand(header.type_off.get().is_multiple_of(4), || Rule::Unaligned(header.type_off.get()));
        let strings = (header.str_off.get(), header.str_len.get());
        let mut sections = vec![(header.type_off.get(), header.type_len.get()), strings];
        if header_len >= size_of::<RawHeader>() + size_of::<RawHeaderLayout>()
            && let Ok((more, _)) = RawHeaderLayout::ref_from_prefix(rest)
            && more.layout_len.get() != 0
        {
            sections.push((more.layout_off.get(), more.layout_len.get()));
        }
        sections.sort_unstable();
        let mut end = 0u64;
        for &(offset, len) in &sections {
            let follows = u64::from(offset) == end;
            self.demand(follows, || Rule::Gap);
            end = u64::from(offset) + u64::from(len);
        }
        self.demand(end == (data.len() - header_len.min(data.len())) as u64, || Rule::Gap);
        self.demand(sections.last() == Some(&strings), || Rule::StringsNotLast);
        let strings = u64::from(self.btf.strings().len());
        self.demand(strings <= u64::from(MAX_NAME_OFFSET) + 1, || Rule::TooManyStrings(strings));
        let last = self.btf.end_id() - 1;
        self.demand(last <= MAX_TYPE, || Rule::TooManyTypes(last));
    }

    fn type_(&mut self, ty: Type<'a>) {
        match ty.kind() {
            Kind::Int => self.int(ty),
            Kind::Ptr | Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag => {
                self.reference_type(ty);
            }
            Kind::Array => self.array(ty),
            Kind::Struct | Kind::Union => self.composite(ty),
            Kind::Enum | Kind::Enum64 => self.enumeration(ty),
            Kind::Fwd => {
                self.no_elements(ty);
                self.demand(ty.size_or_type() == 0, || Rule::Reference(ty.size_or_type()));
                self.identifier(ty.name_offset(), true);
            }
            Kind::Func => self.func(ty),
            Kind::FuncProto => self.func_proto(ty),
            Kind::Var => self.var(ty),
            Kind::Datasec => self.datasec(ty),
            Kind::Float => {
                self.no_elements(ty);
                self.no_flag(ty);
                self.demand(matches!(ty.size_or_type(), 2 | 4 | 8 | 12 | 16), || Rule::Size(ty.size_or_type()));
            }
            Kind::DeclTag => {
                self.demand(!ty.name().is_empty(), || Rule::Unnamed);
                self.no_elements(ty);
                self.reference(ty.size_or_type(), false);
                let component = word(ty.tail()) as i32;
                self.demand(component >= -1, || Rule::Component(component));
            }
            Kind::LocParam => self.loc_param(ty),
            Kind::LocProto => self.loc_proto(ty),
            Kind::Locsec => self.locsec(ty),
            Kind::Other(kind) => self.broken(Rule::UnknownKind(kind)),
        }
    }

    fn no_elements(&mut self, ty: Type<'a>) {
        self.demand(ty.vlen() == 0, || Rule::Vlen(ty.vlen()));
    }

    fn no_flag(&mut self, ty: Type<'a>) {
        self.demand(!ty.flag(), || Rule::KindFlag);
    }

    fn no_name(&mut self, ty: Type<'a>) {
        self.demand(ty.name_offset() == 0, || Rule::Named);
    }

    /// The number of a type that there is; `void` if that is allowed.
    fn reference(&mut self, id: TypeId, void: bool) {
        let there = if id == 0 { void } else { id <= MAX_TYPE && self.btf.ty(id).is_some() };
        self.demand(there, || Rule::Reference(id));
    }

    /// An identifier, as the kernel has it (`btf_name_valid_identifier()`): dots are among its characters.
    fn identifier(&mut self, offset: u32, required: bool) {
        if offset == 0 {
            return self.demand(!required, || Rule::Unnamed);
        }
        let name = self.btf.string(offset).unwrap_or_default();
        let first = |c: u8| c.is_ascii_alphabetic() || matches!(c, b'_' | b'.');
        let later = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.');
        let bytes = name.as_bytes();
        let valid = bytes.first().is_some_and(|&c| first(c)) && bytes.iter().all(later) && bytes.len() < NAME_LEN;
        self.demand(valid, || Rule::NotIdentifier(name.to_owned()));
    }

    /// The name of a section (`btf_name_valid_section()`).
    fn section(&mut self, offset: u32) {
        if offset == 0 {
            return self.broken(Rule::Unnamed);
        }
        let name = self.btf.string(offset).unwrap_or_default();
        let printable = name.bytes().all(|c| matches!(c, b' '..=b'~'));
        let valid = !name.is_empty() && printable && name.len() < NAME_LEN;
        self.demand(valid, || Rule::NotSection(name.to_owned()));
    }

    fn int(&mut self, ty: Type<'a>) {
        self.no_elements(ty);
        self.no_flag(ty);
        let data = word(ty.tail());
        let bits = (data & 0xff) + (data >> 16 & 0xff);
        let encoding = IntEncoding((data >> 24) as u8);
        let known = [IntEncoding::UNSIGNED, IntEncoding::SIGNED, IntEncoding::CHAR, IntEncoding::BOOL];
        let valid = data & 0xf000_ff00 == 0
            && bits <= 128
            && bits.div_ceil(8) <= ty.size_or_type()
            && known.contains(&encoding);
        self.demand(valid, || Rule::Int);
    }

    fn reference_type(&mut self, ty: Type<'a>) {
        self.no_elements(ty);
        match ty.kind() {
            Kind::TypeTag => self.demand(!ty.name().is_empty(), || Rule::Unnamed),
            Kind::Typedef => {
                self.no_flag(ty);
                self.identifier(ty.name_offset(), true);
            }
            _ => {
                self.no_flag(ty);
                self.no_name(ty);
            }
        }
        self.reference(ty.size_or_type(), true);
    }

    fn array(&mut self, ty: Type<'a>) {
        self.no_name(ty);
        self.no_elements(ty);
        self.no_flag(ty);
        self.demand(ty.size_or_type() == 0, || Rule::Size(ty.size_or_type()));
        if let Some(array) = ty.array() {
            self.reference(array.element, false);
            self.reference(array.index, false);
        }
    }

    fn composite(&mut self, ty: Type<'a>) {
        self.identifier(ty.name_offset(), false);
        let mut last = 0;
        for (nth, member) in ty.members().enumerate() {
            self.element(ty, nth);
            self.identifier(word(&ty.tail()[12 * nth..]), false);
            self.reference(member.ty, false);
            let ordered = if ty.kind() == Kind::Union { member.bit_offset == 0 } else { member.bit_offset >= last };
            let inside = member.bit_offset.div_ceil(8) <= ty.size_or_type();
            self.demand(ordered && inside, || Rule::Offset(member.bit_offset));
            last = member.bit_offset;
        }
    }

    fn enumeration(&mut self, ty: Type<'a>) {
        let size = ty.size_or_type();
        self.demand(matches!(size, 1 | 2 | 4 | 8), || Rule::Size(size));
        self.identifier(ty.name_offset(), false);
        let record = if ty.kind() == Kind::Enum { 8 } else { 12 };
        for (nth, record) in ty.tail().chunks_exact(record).enumerate() {
            self.element(ty, nth);
            self.identifier(word(record), true);
        }
    }

    fn func(&mut self, ty: Type<'a>) {
        self.identifier(ty.name_offset(), true);
        self.demand(ty.vlen() <= 1, || Rule::Linkage(ty.vlen()));
        self.no_flag(ty);
        let proto = ty.size_or_type();
        match self.btf.ty(proto) {
            None => self.broken(Rule::Reference(proto)),
            Some(found) => self.demand(found.kind() == Kind::FuncProto, || Rule::Kind(proto)),
        }
    }

    fn func_proto(&mut self, ty: Type<'a>) {
        self.no_name(ty);
        self.no_flag(ty);
        self.reference(ty.size_or_type(), true);
        for (nth, param) in ty.params().enumerate() {
            self.element(ty, nth);
            self.reference(param.ty, false);
        }
    }

    fn var(&mut self, ty: Type<'a>) {
        self.no_elements(ty);
        self.no_flag(ty);
        self.identifier(ty.name_offset(), true);
        self.reference(ty.size_or_type(), false);
        let linkage = word(ty.tail());
        self.demand(linkage <= 1, || Rule::Linkage(linkage));
    }

    fn datasec(&mut self, ty: Type<'a>) {
        let size = ty.size_or_type();
        self.demand(size != 0, || Rule::Size(0));
        self.no_flag(ty);
        self.section(ty.name_offset());
        let mut end = 0u64;
        for (nth, variable) in ty.variables().enumerate() {
            self.element(ty, nth);
            self.reference(variable.ty, false);
            let from = u64::from(variable.offset);
            let to = from + u64::from(variable.size);
            self.demand(from >= end && to <= u64::from(size), || Rule::Offset(variable.offset));
            self.demand(variable.size != 0, || Rule::Size(0));
            end = to;
        }
    }

    fn loc_param(&mut self, ty: Type<'a>) {
        use loc_flags::{ADDR, CONST, DEREF, OFFSET, REG, SIGNED};
        self.no_name(ty);
        self.no_flag(ty);
        let (size, words) = (ty.size_or_type(), ty.vlen());
        self.demand((1..=MAX_SIZE).contains(&size), || Rule::Size(size));
        let Some((flags, _)) = ty.loc_param() else { return };
        let (least, most) = match flags & !SIGNED {
            f if f == CONST || f == CONST | ADDR => match size {
                0..=4 => (1, 2),
                5..=8 => (2, 2),
                // No number of words makes a constant so wide.
                _ => (1, 0),
            },
            REG if flags & SIGNED == 0 => (1, 2),
            f if f == REG | DEREF && flags & SIGNED == 0 => (1, 1),
            f if f == REG | OFFSET || f == REG | DEREF | OFFSET => (2, 3),
            _ => return self.broken(Rule::LocFlags(flags)),
        };
        self.demand((least..=most).contains(&words), || Rule::LocWords { flags, size, words });
    }

    fn loc_proto(&mut self, ty: Type<'a>) {
        self.no_name(ty);
        self.no_flag(ty);
        self.demand(ty.size_or_type() == 0, || Rule::TypeSet(ty.size_or_type()));
        for (nth, id) in ty.loc_proto().iter().enumerate().filter(|(_, id)| id.get() != 0) {
            self.element(ty, nth);
            self.of_kind(id.get(), Kind::LocParam);
        }
    }

    /// The number of a type of a kind. Its elements, if it is.
    fn of_kind(&mut self, id: TypeId, kind: Kind) -> Option<u32> {
        let found = self.btf.ty(id).filter(|_| id <= MAX_TYPE);
        match found {
            None => self.broken(Rule::Reference(id)),
            Some(ty) if ty.kind() != kind => self.broken(Rule::Kind(id)),
            Some(ty) => return Some(ty.vlen()),
        }
        None
    }

    fn locsec(&mut self, ty: Type<'a>) {
        self.no_flag(ty);
        self.section(ty.name_offset());
        self.demand(ty.size_or_type() == 0, || Rule::TypeSet(ty.size_or_type()));
        for (nth, entry) in ty.locsec().iter().enumerate() {
            self.element(ty, nth);
            let func_proto = self.prototype(entry.func());
            let loc_proto = self.of_kind(entry.loc_proto(), Kind::LocProto);
            if let (Some(func_proto), Some(loc_proto)) = (func_proto, loc_proto) {
                self.demand(func_proto == loc_proto, || Rule::Parameters { func_proto, loc_proto });
            }
        }
    }

    /// How many elements the FUNC_PROTO of a FUNC has.
    fn prototype(&mut self, func: TypeId) -> Option<u32> {
        let btf = self.btf;
        let known = *self.vlens.entry(func).or_insert_with(|| {
            let func = btf.ty(func).filter(|ty| ty.kind() == Kind::Func)?;
            btf.ty(func.size_or_type()).filter(|ty| ty.kind() == Kind::FuncProto).map(|ty| ty.vlen())
        });
        if known.is_none() {
            let rule = if btf.ty(func).is_some() { Rule::Kind(func) } else { Rule::Reference(func) };
            self.broken(rule);
        }
        known
    }
}

/// The first word of a tail; the reader has cut it to its length.
fn word(tail: &[u8]) -> u32 {
    tail.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
