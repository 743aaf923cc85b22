// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Building split BTF, or BTF that stands by itself.
//!
//! The builder keeps types in the form in which they are written, and finds an equal one by its bytes: the same type
//! twice is one type, and what comes out depends only on the order of what went in. Strings that the base has are
//! not written again.
//!
//! The kernel takes identifiers alone for names of types and members, and members in the order of their offsets. C has
//! both; Rust's types (`Option<&str>`) do not, and are written as the kernel takes them.

use super::kinds::{
    IntEncoding, Kind, Linkage, LocsecEntry, MAGIC, MAX_VLEN, RawArray, RawEnumerator, RawEnumerator64, RawHeader,
    RawHeaderLayout, RawMember, RawParam, RawType, RawVariable, VERSION,
};
use super::layout;
use super::read::{Btf, TypeId};
use super::rules::NAME_LEN;
use super::strings::StringTable;
use super::types::{Enumerator, Member, Variable};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::borrow::Cow;
use std::hash::BuildHasher;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Split BTF over a base, being built. Owns what it needs of the base.
#[derive(Debug, Clone)]
pub struct SplitBtf {
    strings: StringTable,
    base_first: TypeId,
    base_end: TypeId,
    types: Vec<u8>,
    /// Offset in `types` of each type, and of the end.
    offsets: Vec<u32>,
    /// Types of the base that [`SplitBtf::reuse`] named: bytes as `types`, offsets, numbers.
    reused: Vec<u8>,
    reused_offsets: Vec<u32>,
    reused_ids: Vec<TypeId>,
    index: HashTable<Known>,
    hasher: DefaultHashBuilder,
    scratch: Vec<u8>,
}

/// The strings of BTF, indexed once for many parts that are split over it.
#[derive(Debug, Clone)]
pub struct KnownStrings(StringTable);

impl KnownStrings {
    /// Copies and indexes the strings.
    pub fn new(btf: &Btf<'_>) -> KnownStrings {
        KnownStrings(StringTable::new(btf.strings()))
    }
}

/// A type that can be found again.
#[derive(Debug, Clone, Copy)]
struct Known {
    hash: u32,
    /// Position among the own types, or among the reused ones.
    at: Position,
}

#[derive(Debug, Clone, Copy)]
enum Position {
    Own(u32),
    Base(u32),
}

impl SplitBtf {
    /// An empty split BTF over a base. Copies and indexes the base's strings.
    pub fn new(base: &Btf<'_>) -> SplitBtf {
        Self::over(StringTable::new(base.strings()), base.first_id(), base.end_id())
    }

    /// The same over split BTF. The strings of its own base are indexed already: `known` has them.
    pub fn over_known(base: &Btf<'_>, known: &KnownStrings) -> SplitBtf {
        let (strings, known) = (base.strings(), &known.0);
        let own = strings.last();
        if u64::from(known.base_len()) + own.len() as u64 != u64::from(strings.len()) {
            // Those of another base.
            return SplitBtf::new(base);
        }
        Self::over(known.over(own), base.first_id(), base.end_id())
    }

    /// BTF that stands by itself, such as a program's.
    pub fn standalone() -> SplitBtf {
        Self::over(StringTable::standalone(), 1, 1)
    }

    fn over(strings: StringTable, base_first: TypeId, base_end: TypeId) -> SplitBtf {
        SplitBtf {
            strings,
            base_first,
            base_end,
            types: Vec::new(),
            offsets: vec![0],
            reused: Vec::new(),
            reused_offsets: vec![0],
            reused_ids: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            scratch: vec![0; size_of::<RawType>()],
        }
    }

    /// From now on a type of one of these kinds that is equal to one of the base's own (not of its base in turn)
    /// is that one. To be called before such types are added. Types are equal if they have the same name and
    /// refer to the same types.
    pub fn reuse(&mut self, base: &Btf<'_>, kinds: &[Kind]) {
        for ty in base.types().filter(|ty| kinds.contains(&ty.kind())) {
            let raw = RawType::new(ty.name_offset(), ty.kind(), ty.flag(), ty.vlen(), ty.size_or_type());
            let start = self.reused.len();
            self.reused.extend_from_slice(raw.as_bytes());
            self.reused.extend_from_slice(ty.tail());
            let at = Position::Base(self.reused_ids.len() as u32);
            self.reused_ids.push(ty.id());
            self.reused_offsets.push(self.reused.len() as u32);
            let hash = self.hasher.hash_one(&self.reused[start..]);
            self.index.insert_unique(hash, Known { hash: hash as u32, at }, |k| {
                Self::rehash(&self.hasher, k, &self.types, &self.offsets, &self.reused, &self.reused_offsets)
            });
        }
    }

    fn rehash(
        hasher: &DefaultHashBuilder,
        known: &Known,
        types: &[u8],
        offsets: &[u32],
        reused: &[u8],
        reused_offsets: &[u32],
    ) -> u64 {
        let (bytes, offsets, nth) = match known.at {
            Position::Own(nth) => (types, offsets, nth as usize),
            Position::Base(nth) => (reused, reused_offsets, nth as usize),
        };
        hasher.hash_one(&bytes[offsets[nth] as usize..offsets[nth + 1] as usize])
    }

    /// The base's end: the number of the first type built here.
    pub fn first_id(&self) -> TypeId {
        self.base_end
    }

    /// The first number after the last type.
    pub fn end_id(&self) -> TypeId {
        self.base_end + (self.offsets.len() - 1) as u32
    }

    /// The first number of the base's own types: 1, unless the base is split BTF too.
    pub(crate) fn base_first_id(&self) -> TypeId {
        self.base_first
    }

    /// Kind, name and referred type or size of a type built here.
    pub fn get(&self, id: TypeId) -> Option<(Kind, &str, u32)> {
        let nth = id.checked_sub(self.base_end)? as usize;
        let bytes = self.types.get(*self.offsets.get(nth)? as usize..)?;
        let (raw, _) = RawType::read_from_prefix(bytes).ok()?;
        Some((raw.kind(), self.strings.get(raw.name.get()), raw.size_or_type.get()))
    }

    /// How many elements a type built here has.
    pub(crate) fn vlen(&self, id: TypeId) -> Option<u32> {
        let nth = id.checked_sub(self.base_end)? as usize;
        let bytes = self.types.get(*self.offsets.get(nth)? as usize..)?;
        RawType::read_from_prefix(bytes).ok().map(|(raw, _)| raw.vlen())
    }

    /// Adds a string that a type to come will have.
    pub(crate) fn name(&mut self, name: &str) {
        self.strings.add(name);
    }

    pub(crate) fn strings(&self) -> &StringTable {
        &self.strings
    }

    /// Adds a type with its tail in `scratch`, unless the type is there.
    fn add(&mut self, raw: RawType) -> TypeId {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes[..size_of::<RawType>()].copy_from_slice(raw.as_bytes());
        let id = self.intern(&bytes);
        bytes.truncate(size_of::<RawType>());
        self.scratch = bytes;
        id
    }

    fn intern(&mut self, bytes: &[u8]) -> TypeId {
        let hash = self.hasher.hash_one(bytes);
        let found = self.index.find(hash, |known| {
            let (all, offsets, nth) = match known.at {
                Position::Own(nth) => (&self.types, &self.offsets, nth as usize),
                Position::Base(nth) => (&self.reused, &self.reused_offsets, nth as usize),
            };
            known.hash == hash as u32 && &all[offsets[nth] as usize..offsets[nth + 1] as usize] == bytes
        });
        match found.map(|known| known.at) {
            Some(Position::Own(nth)) => return self.base_end + nth,
            Some(Position::Base(nth)) => return self.reused_ids[nth as usize],
            None => {}
        }
        let nth = self.push(bytes);
        self.index.insert_unique(hash, Known { hash: hash as u32, at: Position::Own(nth) }, |k| {
            Self::rehash(&self.hasher, k, &self.types, &self.offsets, &self.reused, &self.reused_offsets)
        });
        self.base_end + nth
    }

    fn push(&mut self, bytes: &[u8]) -> u32 {
        let nth = self.offsets.len() as u32 - 1;
        self.types.extend_from_slice(bytes);
        self.offsets.push(self.types.len() as u32);
        nth
    }

    fn tail<T: IntoBytes + Immutable>(&mut self, record: T) {
        self.scratch.extend_from_slice(record.as_bytes());
    }

    /// Adds the name of a type, a member or an enumerator.
    fn identifier(&mut self, name: &str) -> u32 {
        self.strings.add(&identifier(name))
    }

    fn named(&mut self, kind: Kind, name: &str, flag: bool, vlen: usize, size_or_type: u32) -> TypeId {
        let name = self.strings.add(name);
        // Counts beyond 24 bits do not occur in C; a longer list loses its end rather than its meaning.
        let vlen = vlen.min(MAX_VLEN) as u32;
        self.add(RawType::new(name, kind, flag, vlen, size_or_type))
    }

    /// An integer of so many bytes and bits.
    pub fn int(&mut self, name: &str, size: u32, bits: u32, encoding: IntEncoding) -> TypeId {
        self.tail(zerocopy::little_endian::U32::new(u32::from(encoding.0 & 0x0f) << 24 | (bits & 0xff)));
        self.named(Kind::Int, name, false, 0, size)
    }

    /// A floating point type of so many bytes.
    pub fn float(&mut self, name: &str, size: u32) -> TypeId {
        self.named(Kind::Float, name, false, 0, size)
    }

    /// A pointer or qualifier: [`Kind::Ptr`], [`Kind::Const`], [`Kind::Volatile`], [`Kind::Restrict`].
    pub fn modifier(&mut self, kind: Kind, to: TypeId) -> TypeId {
        debug_assert!(kind == Kind::Ptr || kind.is_qualifier());
        self.named(kind, "", false, 0, to)
    }

    /// A typedef.
    pub fn typedef(&mut self, name: &str, to: TypeId) -> TypeId {
        self.named(Kind::Typedef, &identifier(name), false, 0, to)
    }

    /// A type tag (`btf_type_tag`) over a type.
    pub fn type_tag(&mut self, name: &str, to: TypeId) -> TypeId {
        self.named(Kind::TypeTag, name, false, 0, to)
    }

    /// An array.
    pub fn array(&mut self, element: TypeId, index: TypeId, count: u32) -> TypeId {
        self.tail(RawArray { element: element.into(), index: index.into(), count: count.into() });
        self.named(Kind::Array, "", false, 0, 0)
    }

    /// A structure or union ([`Kind::Struct`], [`Kind::Union`]) of so many bytes; the name may be empty.
    pub fn composite(&mut self, kind: Kind, name: &str, size: u32, members: &[Member<'_>]) -> TypeId {
        debug_assert!(matches!(kind, Kind::Struct | Kind::Union));
        let members = &members[..members.len().min(MAX_VLEN)];
        let bitfields = members.iter().any(|m| m.bits != 0);
        let mut ordered: Vec<&Member<'_>> = members.iter().collect();
        ordered.sort_by_key(|member| member.bit_offset);
        for member in ordered {
            let offset = if bitfields {
                (member.bit_offset & 0x00ff_ffff) | (member.bits & 0xff) << 24
            } else {
                member.bit_offset
            };
            let name = self.identifier(member.name);
            self.tail(RawMember { name: name.into(), ty: member.ty.into(), offset: offset.into() });
        }
        self.named(kind, &identifier(name), bitfields, members.len(), size)
    }

    /// An enumeration of so many bytes. One with a value that takes more than 32 bits becomes an ENUM64.
    pub fn enumeration(&mut self, name: &str, size: u32, signed: bool, values: &[Enumerator<'_>]) -> TypeId {
        let values = &values[..values.len().min(MAX_VLEN)];
        let narrow = |v: i64| {
            if signed { i32::try_from(v).is_ok() } else { u32::try_from(v).is_ok() }
        };
        let kind = if size <= 4 && values.iter().all(|e| narrow(e.value)) { Kind::Enum } else { Kind::Enum64 };
        for Enumerator { name, value } in values {
            let name = self.identifier(name).into();
            let (low, high) = ((*value as u32).into(), ((*value >> 32) as u32).into());
            match kind {
                Kind::Enum => self.tail(RawEnumerator { name, value: low }),
                _ => self.tail(RawEnumerator64 { name, low, high }),
            }
        }
        self.named(kind, &identifier(name), signed, values.len(), size)
    }

    /// A forward declaration.
    pub fn fwd(&mut self, name: &str, is_union: bool) -> TypeId {
        self.named(Kind::Fwd, &identifier(name), is_union, 0, 0)
    }

    /// A function's prototype: what it returns (0 for void), and names and types of parameters.
    pub fn func_proto<S: AsRef<str>>(&mut self, ret: TypeId, params: &[(S, TypeId)], variadic: bool) -> TypeId {
        let params = &params[..params.len().min(MAX_VLEN - 1)];
        for (name, ty) in params {
            let name = self.strings.add(name.as_ref());
            self.tail(RawParam { name: name.into(), ty: (*ty).into() });
        }
        if variadic {
            self.tail(RawParam { name: 0.into(), ty: 0.into() });
        }
        self.named(Kind::FuncProto, "", false, params.len() + usize::from(variadic), ret)
    }

    /// A function of a prototype.
    pub fn func(&mut self, name: &str, proto: TypeId, linkage: Linkage) -> TypeId {
        self.named(Kind::Func, name, false, linkage as usize, proto)
    }

    /// A global variable.
    pub fn var(&mut self, name: &str, ty: TypeId, linkage: Linkage) -> TypeId {
        self.tail(U32::from(linkage as u32));
        self.named(Kind::Var, name, false, 0, ty)
    }

    /// A section of so many bytes, and its variables, sorted by offset.
    pub fn datasec(&mut self, name: &str, size: u32, variables: &[Variable]) -> TypeId {
        let variables = &variables[..variables.len().min(MAX_VLEN)];
        for Variable { ty, offset, size } in variables {
            self.tail(RawVariable { ty: (*ty).into(), offset: (*offset).into(), size: (*size).into() });
        }
        self.named(Kind::Datasec, name, false, variables.len(), size)
    }

    /// The location of a parameter of so many bytes: flags ([`super::loc_flags`]) and words.
    pub fn loc_param(&mut self, size: u32, flags: u32, words: &[u32]) -> TypeId {
        self.scratch.extend_from_slice(&flags.to_le_bytes());
        for word in words {
            self.scratch.extend_from_slice(&word.to_le_bytes());
        }
        self.named(Kind::LocParam, "", false, words.len(), size)
    }

    /// The LOC_PARAM of each parameter, 0 where there is none.
    pub fn loc_proto(&mut self, params: &[TypeId]) -> TypeId {
        for param in params {
            self.scratch.extend_from_slice(&param.to_le_bytes());
        }
        self.named(Kind::LocProto, "", false, params.len(), 0)
    }

    /// The sites of a text section. Sorting them is the caller's part. At most [`MAX_VLEN`] fit; never merged with
    /// another.
    pub fn locsec(&mut self, name: &str, entries: &[LocsecEntry]) -> TypeId {
        let name = self.strings.add(name);
        let entries = &entries[..entries.len().min(MAX_VLEN)];
        self.types.reserve(size_of::<RawType>() + size_of_val(entries));
        let raw = RawType::new(name, Kind::Locsec, false, entries.len() as u32, 0);
        self.types.extend_from_slice(raw.as_bytes());
        let nth = self.push(entries.as_bytes());
        self.base_end + nth
    }

    /// The split BTF as bytes, with a layout section, so that a reader that does not know the location kinds can
    /// step over them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let layout = layout::section();
        let strings = self.strings.own();
        let header_len = size_of::<RawHeader>() + size_of::<RawHeaderLayout>();
        let (type_len, layout_len) = (self.types.len() as u32, layout.len() as u32);
        let header = RawHeader {
            magic: MAGIC.into(),
            version: VERSION,
            flags: 0,
            header_len: (header_len as u32).into(),
            type_off: 0.into(),
            type_len: type_len.into(),
            str_off: (type_len + layout_len).into(),
            str_len: (strings.len() as u32).into(),
        };
        let more = RawHeaderLayout { layout_off: type_len.into(), layout_len: layout_len.into() };
        let mut bytes = Vec::with_capacity(header_len + self.types.len() + layout.len() + strings.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(more.as_bytes());
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&layout);
        bytes.extend_from_slice(strings);
        bytes
    }

    /// The offset of every `stride`th type in the type section.
    pub(crate) fn checkpoints(&self, stride: u32) -> Vec<u32> {
        let types = &self.offsets[..self.offsets.len() - 1];
        types.iter().copied().step_by(stride as usize).collect()
    }
}

/// A name as the kernel takes it (`btf_name_valid_identifier()`): what is not a letter, a digit, `_` or `.` becomes
/// `_`, and what is too long is cut. The empty name stays so.
fn identifier(name: &str) -> Cow<'_, str> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let starts = !name.starts_with(|c: char| c.is_ascii_digit());
    if starts && name.chars().all(valid) && name.len() < NAME_LEN {
        return Cow::Borrowed(name);
    }
    let first = if starts { None } else { Some('_') };
    let written = name.chars().map(|c| if valid(c) { c } else { '_' });
    Cow::Owned(first.into_iter().chain(written).take(NAME_LEN - 1).collect())
}

#[cfg(test)]
mod tests {
    use super::super::rules;
    use super::*;

    #[test]
    fn names_as_the_kernel_takes_them() {
        for (name, written) in [
            ("", ""),
            ("task_struct", "task_struct"),
            ("foo.isra.0", "foo.isra.0"),
            ("Option<&str>", "Option__str_"),
            ("2x", "_2x"),
            ("ä", "_"),
        ] {
            assert_eq!(identifier(name), written);
        }
        assert_eq!(identifier(&"<".repeat(1000)).len(), NAME_LEN - 1);
        assert_eq!(identifier(&"n".repeat(NAME_LEN)).len(), NAME_LEN - 1);
    }

    #[test]
    fn types_of_rust_are_types_of_the_kernel() {
        let mut b = SplitBtf::standalone();
        let word = b.int("u64", 8, 64, IntEncoding::UNSIGNED);
        let member = |name, bit_offset| Member { name, ty: word, bit_offset, bits: 0 };
        let tuple = b.composite(Kind::Struct, "(u64, u64)", 16, &[member("0", 64), member("1", 0)]);
        b.fwd("dyn core::fmt::Write", false);
        b.typedef("Result<(), Error>", tuple);
        b.enumeration("Option<Ordering>", 1, false, &[Enumerator { name: "Some<_>", value: 1 }]);
        let bytes = b.to_bytes();
        assert_eq!(rules::check(&bytes, None), Ok(Vec::new()));
        let btf = Btf::parse(&bytes).unwrap();
        let members: Vec<_> = btf.ty(tuple).unwrap().members().map(|m| (m.name, m.bit_offset)).collect();
        assert_eq!(members, [("_1", 0), ("_0", 64)]);
    }
}
