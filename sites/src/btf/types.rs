// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A view of one type. What a kind does not have is `None` or an empty list.

use super::kinds::{
    IntEncoding, Kind, Linkage, LocsecEntry, RawArray, RawEnumerator, RawEnumerator64, RawMember, RawParam, RawType,
    RawVariable,
};
use super::read::TypeId;
use super::strings::Strings;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// One type of a [`super::Btf`].
#[derive(Debug, Clone, Copy)]
pub struct Type<'a> {
    id: TypeId,
    raw: RawType,
    tail: &'a [u8],
    strings: Strings<'a>,
}

/// An integer's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntType {
    /// Bytes of storage.
    pub size: u32,
    /// Bits of the value.
    pub bits: u32,
    /// Position of the value's lowest bit: 0 for all but old bitfields.
    pub bit_offset: u32,
    /// Signedness and the like.
    pub encoding: IntEncoding,
}

/// A member of a structure or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name; empty for an anonymous structure or union.
    pub name: &'a str,
    /// Type.
    pub ty: TypeId,
    /// Bits from the start of the whole.
    pub bit_offset: u32,
    /// Bits of a bitfield; 0 for an ordinary member.
    pub bits: u32,
}

/// A parameter of a prototype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param<'a> {
    /// Name, possibly empty.
    pub name: &'a str,
    /// Type.
    pub ty: TypeId,
}

/// A name of an enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// Name.
    pub name: &'a str,
    /// Value; the bits of a `u64` if the enumeration is unsigned.
    pub value: i64,
}

/// An array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Type of an element.
    pub element: TypeId,
    /// Type of the index.
    pub index: TypeId,
    /// Number of elements.
    pub count: u32,
}

/// A variable in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// The VAR, or a FUNC.
    pub ty: TypeId,
    /// Bytes from the start of the section.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

impl<'a> Type<'a> {
    pub(super) fn new(id: TypeId, raw: RawType, tail: &'a [u8], strings: Strings<'a>) -> Type<'a> {
        Type { id, raw, tail, strings }
    }

    /// The type's number.
    pub fn id(&self) -> TypeId {
        self.id
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.raw.kind()
    }

    /// The name; empty for anonymous types, and for a name that is not in the file or not UTF-8.
    pub fn name(&self) -> &'a str {
        self.strings.get(self.raw.name.get()).unwrap_or_default()
    }

    /// The offset of the name in the string table.
    pub fn name_offset(&self) -> u32 {
        self.raw.name.get()
    }

    /// The number of elements; for a FUNC its linkage.
    pub fn vlen(&self) -> u32 {
        self.raw.vlen()
    }

    /// The kind's flag: for an enumeration, signed; for a structure, with bitfields; for a forward declaration,
    /// a union.
    pub fn flag(&self) -> bool {
        self.raw.flag()
    }

    /// Size in bytes or the number of another type, by kind.
    pub fn size_or_type(&self) -> u32 {
        self.raw.size_or_type.get()
    }

    /// Calls with the offset of every name that the view can show: its own, its members', parameters' or enumerators'.
    pub(super) fn each_name_offset(&self, mut with: impl FnMut(u32)) {
        with(self.name_offset());
        match self.kind() {
            Kind::Struct | Kind::Union => {
                self.records::<RawMember>(self.kind()).iter().for_each(|raw| with(raw.name.get()));
            }
            Kind::FuncProto => self.records::<RawParam>(self.kind()).iter().for_each(|raw| with(raw.name.get())),
            Kind::Enum => self.records::<RawEnumerator>(self.kind()).iter().for_each(|raw| with(raw.name.get())),
            Kind::Enum64 => self.records::<RawEnumerator64>(self.kind()).iter().for_each(|raw| with(raw.name.get())),
            _ => {}
        }
    }

    /// The type's bytes after its first 12.
    pub fn tail(&self) -> &'a [u8] {
        self.tail
    }

    /// The size of types that state one.
    pub fn size(&self) -> Option<u32> {
        let sized = matches!(
            self.kind(),
            Kind::Int
                | Kind::Struct
                | Kind::Union
                | Kind::Enum
                | Kind::Enum64
                | Kind::Float
                | Kind::Datasec
                | Kind::LocParam
        );
        sized.then(|| self.size_or_type())
    }

    /// The type that this one refers to: pointers, qualifiers, typedefs, tags, variables, functions (their
    /// prototype), prototypes (what they return).
    pub fn target(&self) -> Option<TypeId> {
        let refers = self.kind().is_reference()
            || matches!(self.kind(), Kind::Func | Kind::FuncProto | Kind::Var | Kind::DeclTag);
        refers.then(|| self.size_or_type())
    }

    /// The records of the tail, if the type is of the kind.
    fn records<T: FromBytes + Immutable + KnownLayout>(&self, kind: Kind) -> &'a [T] {
        let tail = if self.kind() == kind { self.tail } else { &[] };
        // The tail was cut to vlen records of this kind's size, so this does not fail.
        <[T]>::ref_from_bytes(tail).unwrap_or_default()
    }

    /// An integer's encoding.
    pub fn int(&self) -> Option<IntType> {
        let word = self.records::<U32>(Kind::Int).first()?.get();
        Some(IntType {
            size: self.size_or_type(),
            bits: word & 0xff,
            bit_offset: word >> 16 & 0xff,
            encoding: IntEncoding((word >> 24 & 0x0f) as u8),
        })
    }

    /// An array's element type and count.
    pub fn array(&self) -> Option<Array> {
        let raw = self.records::<RawArray>(Kind::Array).first()?;
        Some(Array { element: raw.element.get(), index: raw.index.get(), count: raw.count.get() })
    }

    /// Members of a structure or union.
    pub fn members(&self) -> impl ExactSizeIterator<Item = Member<'a>> + use<'a> {
        let kind = if self.kind() == Kind::Union { Kind::Union } else { Kind::Struct };
        let (strings, bitfields) = (self.strings, self.flag());
        self.records::<RawMember>(kind).iter().map(move |raw| {
            let offset = raw.offset.get();
            let (bit_offset, bits) = if bitfields { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            Member { name: strings.get(raw.name.get()).unwrap_or_default(), ty: raw.ty.get(), bit_offset, bits }
        })
    }

    /// Parameters of a prototype, without the mark of a variadic one.
    pub fn params(&self) -> impl ExactSizeIterator<Item = Param<'a>> + use<'a> {
        let strings = self.strings;
        let mut raw = self.records::<RawParam>(Kind::FuncProto);
        if self.is_variadic() {
            raw = &raw[..raw.len() - 1];
        }
        raw.iter().map(move |raw| Param { name: strings.get(raw.name.get()).unwrap_or_default(), ty: raw.ty.get() })
    }

    /// Whether a prototype takes further arguments: its last parameter has no name and no type.
    pub fn is_variadic(&self) -> bool {
        self.records::<RawParam>(Kind::FuncProto).last().is_some_and(|p| p.name.get() == 0 && p.ty.get() == 0)
    }

    /// Names of an enumeration, of either width. [`Type::flag`] tells whether it is signed.
    pub fn enumerators(&self) -> impl Iterator<Item = Enumerator<'a>> + use<'a> {
        let (strings, signed) = (self.strings, self.flag());
        let narrow = self.records::<RawEnumerator>(Kind::Enum).iter().map(move |raw| {
            let value = raw.value.get();
            (raw.name, if signed { i64::from(value as i32) } else { i64::from(value) })
        });
        let wide = self.records::<RawEnumerator64>(Kind::Enum64).iter();
        let wide = wide.map(|raw| (raw.name, (u64::from(raw.high.get()) << 32 | u64::from(raw.low.get())) as i64));
        narrow
            .chain(wide)
            .map(move |(name, value)| Enumerator { name: strings.get(name.get()).unwrap_or_default(), value })
    }

    /// The linkage of a function.
    pub fn linkage(&self) -> Option<Linkage> {
        match (self.kind(), self.vlen()) {
            (Kind::Func, 0) => Some(Linkage::Static),
            (Kind::Func, 1) => Some(Linkage::Global),
            (Kind::Func, 2) => Some(Linkage::Extern),
            _ => None,
        }
    }

    /// Variables of a section.
    pub fn variables(&self) -> impl ExactSizeIterator<Item = Variable> + use<'a> {
        self.records::<RawVariable>(Kind::Datasec).iter().map(|raw| Variable {
            ty: raw.ty.get(),
            offset: raw.offset.get(),
            size: raw.size.get(),
        })
    }

    /// The member or parameter that a declaration tag is about; `None` for the whole declaration.
    pub fn component(&self) -> Option<u32> {
        self.records::<U32>(Kind::DeclTag).first().map(|word| word.get()).filter(|index| *index != u32::MAX)
    }

    /// A location's flags ([`super::loc_flags`]) and words.
    pub fn loc_param(&self) -> Option<(u32, &'a [U32])> {
        let (flags, words) = self.records::<U32>(Kind::LocParam).split_first()?;
        Some((flags.get(), words))
    }

    /// The LOC_PARAM of each parameter; 0 where there is no location.
    pub fn loc_proto(&self) -> &'a [U32] {
        self.records(Kind::LocProto)
    }

    /// The sites of a text section.
    pub fn locsec(&self) -> &'a [LocsecEntry] {
        self.records(Kind::Locsec)
    }
}
