// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kinds of BTF, and the fixed records that they are made of.
//!
//! Source: `include/uapi/linux/btf.h`. The info word is the one with 24 bits of vlen and 7 bits of kind; files
//! written for the older 16 and 5 bits have zeros where it is wider, and read the same.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number at the start of BTF, in the byte order of the machine it describes.
pub const MAGIC: u16 = 0xeb9f;
/// The only version there is.
pub const VERSION: u8 = 1;
/// The most elements that a type can have: 24 bits.
pub const MAX_VLEN: usize = 0x00ff_ffff;

/// A kind of type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Integer.
    Int,
    /// Pointer.
    Ptr,
    /// Array.
    Array,
    /// Structure.
    Struct,
    /// Union.
    Union,
    /// Enumeration of at most 32 bits.
    Enum,
    /// Forward declaration of a structure or union.
    Fwd,
    /// Typedef.
    Typedef,
    /// `volatile`.
    Volatile,
    /// `const`.
    Const,
    /// `restrict`.
    Restrict,
    /// Function.
    Func,
    /// Function prototype.
    FuncProto,
    /// Global variable.
    Var,
    /// ELF section of variables.
    Datasec,
    /// Floating point number.
    Float,
    /// Attribute of a declaration.
    DeclTag,
    /// Attribute of a type.
    TypeTag,
    /// Enumeration of 64 bits.
    Enum64,
    /// Location of one parameter at a site.
    LocParam,
    /// Locations of all parameters at a site.
    LocProto,
    /// Text section of sites.
    Locsec,
    /// A kind that only the file's layout section describes.
    Other(u8),
}

/// Kinds by number, from 1.
const KINDS: [Kind; 22] = [
    Kind::Int,
    Kind::Ptr,
    Kind::Array,
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Fwd,
    Kind::Typedef,
    Kind::Volatile,
    Kind::Const,
    Kind::Restrict,
    Kind::Func,
    Kind::FuncProto,
    Kind::Var,
    Kind::Datasec,
    Kind::Float,
    Kind::DeclTag,
    Kind::TypeTag,
    Kind::Enum64,
    Kind::LocParam,
    Kind::LocProto,
    Kind::Locsec,
];

impl Kind {
    /// The highest number of a kind that has a variant of its own.
    pub const LAST: u8 = KINDS.len() as u8;

    /// The kind of a number (7 bits).
    pub fn from_code(code: u8) -> Kind {
        usize::from(code).checked_sub(1).and_then(|i| KINDS.get(i)).copied().unwrap_or(Kind::Other(code))
    }

    /// The number of the kind.
    pub fn code(self) -> u8 {
        match self {
            Kind::Other(code) => code,
            known => 1 + KINDS.iter().position(|k| *k == known).unwrap_or(0) as u8,
        }
    }

    /// Whether types of this kind only point to another type: pointers, qualifiers, typedefs and type tags.
    pub fn is_reference(self) -> bool {
        matches!(self, Kind::Ptr | Kind::Typedef | Kind::TypeTag) || self.is_qualifier()
    }

    /// `const`, `volatile` or `restrict`.
    pub fn is_qualifier(self) -> bool {
        matches!(self, Kind::Const | Kind::Volatile | Kind::Restrict)
    }

    /// How many bytes follow the type's 12 bytes: once, and per element. `None` for a kind not known here.
    pub fn tail(self) -> Option<(u8, u8)> {
        Some(match self {
            Kind::Int | Kind::Var | Kind::DeclTag => (4, 0),
            Kind::Array => (12, 0),
            Kind::Struct | Kind::Union | Kind::Datasec | Kind::Enum64 | Kind::Locsec => (0, 12),
            Kind::Enum | Kind::FuncProto => (0, 8),
            Kind::LocParam => (4, 4),
            Kind::LocProto => (0, 4),
            Kind::Ptr
            | Kind::Fwd
            | Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::Func
            | Kind::Float
            | Kind::TypeTag => (0, 0),
            Kind::Other(_) => return None,
        })
    }
}

/// How an integer is encoded: a set of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct IntEncoding(pub u8);

impl IntEncoding {
    /// Unsigned.
    pub const UNSIGNED: IntEncoding = IntEncoding(0);
    /// Signed.
    pub const SIGNED: IntEncoding = IntEncoding(1);
    /// A character.
    pub const CHAR: IntEncoding = IntEncoding(2);
    /// A boolean.
    pub const BOOL: IntEncoding = IntEncoding(4);

    /// Whether values are signed.
    pub fn is_signed(self) -> bool {
        self.0 & Self::SIGNED.0 != 0
    }

    /// Whether values are characters.
    pub fn is_char(self) -> bool {
        self.0 & Self::CHAR.0 != 0
    }

    /// Whether values are booleans.
    pub fn is_bool(self) -> bool {
        self.0 & Self::BOOL.0 != 0
    }
}

impl std::ops::BitOr for IntEncoding {
    type Output = IntEncoding;
    fn bitor(self, other: IntEncoding) -> IntEncoding {
        IntEncoding(self.0 | other.0)
    }
}

/// Linkage of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Linkage {
    /// `static`.
    #[default]
    Static,
    /// Global.
    Global,
    /// `extern`.
    Extern,
}

/// The flags of a LOC_PARAM.
pub mod loc_flags {
    /// The constant, or the offset, is negative. Says nothing of the parameter's value.
    pub const SIGNED: u32 = 1 << 0;
    /// An immediate value.
    pub const CONST: u32 = 1 << 1;
    /// With [`CONST`]: relative to the image's base.
    pub const ADDR: u32 = 1 << 2;
    /// A register, or two.
    pub const REG: u32 = 1 << 3;
    /// The memory at the register.
    pub const DEREF: u32 = 1 << 4;
    /// A signed offset of 32 or 64 bits follows the register.
    pub const OFFSET: u32 = 1 << 5;
    /// The register number that stands for the frame base.
    pub const FRAME_BASE: u32 = u32::MAX;
}

/// The fixed part of a type.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawType {
    pub(crate) name: U32,
    pub(crate) info: U32,
    pub(crate) size_or_type: U32,
}

impl RawType {
    pub(crate) fn new(name: u32, kind: Kind, flag: bool, vlen: u32, size_or_type: u32) -> RawType {
        let info = (vlen & MAX_VLEN as u32) | u32::from(kind.code() & 0x7f) << 24 | u32::from(flag) << 31;
        RawType { name: name.into(), info: info.into(), size_or_type: size_or_type.into() }
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::from_code((self.info.get() >> 24 & 0x7f) as u8)
    }

    pub(crate) fn vlen(&self) -> u32 {
        self.info.get() & MAX_VLEN as u32
    }

    pub(crate) fn flag(&self) -> bool {
        self.info.get() >> 31 != 0
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty),* })*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $ty),* }
    )* };
}

records! {
    /// The header that every version 1 file has.
    RawHeader { magic: U16, version: u8, flags: u8, header_len: U32, type_off: U32, type_len: U32, str_off: U32, str_len: U32 }
    /// What follows it if `header_len` has room.
    RawHeaderLayout { layout_off: U32, layout_len: U32 }
    /// One kind's line in the layout section.
    RawLayout { info_size: u8, element_size: u8, flags: U16 }
    /// Member of a structure or union.
    RawMember { name: U32, ty: U32, offset: U32 }
    /// Parameter of a prototype.
    RawParam { name: U32, ty: U32 }
    /// Name and value of an ENUM.
    RawEnumerator { name: U32, value: U32 }
    /// Name and value of an ENUM64.
    RawEnumerator64 { name: U32, low: U32, high: U32 }
    /// Element and index type of an array.
    RawArray { element: U32, index: U32, count: U32 }
    /// Variable in a section.
    RawVariable { ty: U32, offset: U32, size: U32 }
}

/// One site in a LOCSEC.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LocsecEntry {
    func: U32,
    loc_proto: U32,
    offset: U32,
}

impl LocsecEntry {
    /// An entry: the FUNC, its LOC_PROTO at the site, and the site's offset in the section.
    pub fn new(func: u32, loc_proto: u32, offset: u32) -> LocsecEntry {
        LocsecEntry { func: func.into(), loc_proto: loc_proto.into(), offset: offset.into() }
    }

    /// The FUNC.
    pub fn func(&self) -> u32 {
        self.func.get()
    }

    /// The LOC_PROTO.
    pub fn loc_proto(&self) -> u32 {
        self.loc_proto.get()
    }

    /// Bytes from the start of the section.
    pub fn offset(&self) -> u32 {
        self.offset.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers() {
        for code in 1..=Kind::LAST {
            let kind = Kind::from_code(code);
            assert_eq!(kind.code(), code);
            assert!(kind.tail().is_some());
        }
        assert_eq!(Kind::FuncProto.code(), 13);
        assert_eq!(Kind::Enum64.code(), 19);
        assert_eq!(Kind::Locsec.code(), 22);
        assert_eq!(Kind::from_code(23), Kind::Other(23));
        assert_eq!(Kind::Other(100).code(), 100);
    }

    #[test]
    fn the_wide_info_word_reads_the_old_one() {
        // A struct of 3 members with the flag, as the 16-bit vlen and 5-bit kind have it.
        let old = RawType { name: 0.into(), info: (1 << 31 | 4 << 24 | 3).into(), size_or_type: 8.into() };
        assert_eq!((old.kind(), old.vlen(), old.flag()), (Kind::Struct, 3, true));
        let wide = RawType::new(0, Kind::Other(77), false, 0x12_3456, 0);
        assert_eq!((wide.kind(), wide.vlen(), wide.flag()), (Kind::Other(77), 0x12_3456, false));
    }
}
