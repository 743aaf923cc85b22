// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From DWARF types to types of the image's own BTF.
//!
//! Every unit of DWARF describes all its types again; pahole has turned them into BTF and merged the equal ones. The
//! sites refer to that BTF: whoever reads an argument wants *the* `struct file` of the kernel. So a DWARF type is not
//! converted, but looked up in the BTF: named types by their name; pointers, qualifiers, arrays and prototypes by the
//! types that they refer to ([`BaseIndex`]). A name is nearly always unique. If it is not, or if there is no name,
//! candidates are compared member by member. The types that they point to are compared by name, then one level deeper
//! until one candidate is left. Forward declarations stand for the type of that name if there is exactly one, as
//! libbpf's deduplication resolves them.
//!
//! pahole's habits matter: arrays of several dimensions are one of all elements, `_Atomic` is not there,
//! clang's `btf_type_tag` attributes stand between the pointer and what it points to, units in Rust are left out.
//!
//! What the base does not have becomes a [`NewType`], for a split BTF. New types are trees: where the members of a new
//! structure point to another new structure, a forward declaration stands for it. A type from a unit that is not C
//! stands for the base's type of that name only if the two are equal.
//!
//! [`UnitTypes::param_type`] says what lowering must know of a parameter's type; it looks at the DWARF alone.

mod die;
mod index;
mod layout;
mod resolve;
mod same;
#[cfg(test)]
mod tests;

pub use index::BaseIndex;
pub use layout::base_type;
pub use resolve::UnitTypes;

use siteseer_sites::btf::{Enumerator, IntEncoding, Kind, Member, SplitBtf, TypeId};
use std::sync::Arc;

/// What a DWARF type is in BTF.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeRef {
    /// `void`; also a type with malformed debug information.
    Void,
    /// A type of the base.
    Base(TypeId),
    /// A type that the base does not have.
    New(Arc<NewType>),
}

/// A type that the base does not have. Equal ones from different units are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NewType {
    /// An integer.
    Int {
        /// Name.
        name: Box<str>,
        /// Bytes.
        size: u32,
        /// Signedness and the like.
        encoding: IntEncoding,
    },
    /// A floating point type.
    Float {
        /// Name.
        name: Box<str>,
        /// Bytes.
        size: u32,
    },
    /// A pointer or qualifier.
    Modifier {
        /// [`Kind::Ptr`], [`Kind::Const`], [`Kind::Volatile`] or [`Kind::Restrict`].
        kind: Kind,
        /// What it is put on.
        to: TypeRef,
    },
    /// A typedef.
    Typedef {
        /// Name.
        name: Box<str>,
        /// What it stands for.
        to: TypeRef,
    },
    /// An array.
    Array {
        /// Type of an element.
        element: TypeRef,
        /// Type of the index.
        index: TypeRef,
        /// Number of all elements.
        count: u32,
    },
    /// A structure or union.
    Composite {
        /// [`Kind::Struct`] or [`Kind::Union`].
        kind: Kind,
        /// Name, empty for an anonymous one.
        name: Box<str>,
        /// Bytes.
        size: u32,
        /// Members.
        members: Vec<NewMember>,
    },
    /// An enumeration.
    Enumeration {
        /// Name, empty for an anonymous one.
        name: Box<str>,
        /// Bytes.
        size: u32,
        /// Whether values are signed.
        signed: bool,
        /// Names and values.
        values: Vec<(Box<str>, i64)>,
    },
    /// A structure or union that is known by name only.
    Fwd {
        /// Name.
        name: Box<str>,
        /// A union.
        is_union: bool,
    },
    /// The type of a function that is pointed to.
    FuncProto {
        /// What it returns.
        ret: TypeRef,
        /// Types of its parameters.
        params: Vec<TypeRef>,
        /// Whether it takes further arguments.
        variadic: bool,
    },
}

/// A member of a new structure or union.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NewMember {
    /// Name, empty for an anonymous one.
    pub name: Box<str>,
    /// Type.
    pub ty: TypeRef,
    /// Bits from the start of the whole.
    pub bit_offset: u32,
    /// Bits of a bitfield; 0 for an ordinary member.
    pub bits: u32,
}

impl TypeRef {
    /// The type's number in the base; 0 for void. `None` for a new type.
    pub fn base_id(&self) -> Option<TypeId> {
        match self {
            TypeRef::Void => Some(0),
            TypeRef::Base(id) => Some(*id),
            TypeRef::New(_) => None,
        }
    }

    /// The type's number, after adding it to a split BTF over the base if it is new.
    pub fn intern(&self, into: &mut SplitBtf) -> TypeId {
        let new = match self {
            TypeRef::Void => return 0,
            TypeRef::Base(id) => return *id,
            TypeRef::New(new) => new,
        };
        match &**new {
            NewType::Int { name, size, encoding } => into.int(name, *size, size.saturating_mul(8), *encoding),
            NewType::Float { name, size } => into.float(name, *size),
            NewType::Modifier { kind, to } => {
                let to = to.intern(into);
                into.modifier(*kind, to)
            }
            NewType::Typedef { name, to } => {
                let to = to.intern(into);
                into.typedef(name, to)
            }
            NewType::Array { element, index, count } => {
                let (element, index) = (element.intern(into), index.intern(into));
                into.array(element, index, *count)
            }
            NewType::Composite { kind, name, size, members } => {
                let members: Vec<Member<'_>> = members
                    .iter()
                    .map(|member| Member {
                        name: &member.name,
                        ty: member.ty.intern(into),
                        bit_offset: member.bit_offset,
                        bits: member.bits,
                    })
                    .collect();
                into.composite(*kind, name, *size, &members)
            }
            NewType::Enumeration { name, size, signed, values } => {
                let values: Vec<Enumerator<'_>> =
                    values.iter().map(|(name, value)| Enumerator { name, value: *value }).collect();
                into.enumeration(name, *size, *signed, &values)
            }
            NewType::Fwd { name, is_union } => into.fwd(name, *is_union),
            NewType::FuncProto { ret, params, variadic } => {
                let ret = ret.intern(into);
                let params: Vec<(&str, TypeId)> = params.iter().map(|param| ("", param.intern(into))).collect();
                into.func_proto(ret, &params, *variadic)
            }
        }
    }
}
