// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From a module's own idea of the kernel's types to a kernel's numbers of them.
//!
//! A module that is built outside of the kernel's tree may be loaded into kernels whose BTF numbers its types
//! otherwise. So pahole gives it `.BTF.base` besides `.BTF`: the few types of the kernel that it refers to, by name and
//! size alone (*distilled*), and its own BTF is split over these. The kernel finds each of them in its BTF when it
//! loads the module, and rewrites the module's numbers and names in place (`btf_relocate()`,
//! tools/lib/bpf/btf_relocate.c, since Linux 6.11). The same is done here, by the same rules, so that the result is,
//! byte for byte, what `/sys/kernel/btf/MODULE` will show.

use super::kinds::Kind;
use super::read::{Btf, BtfError, TypeId};
use super::types::Type;
use std::collections::{HashMap, HashSet};

/// Why a module's BTF cannot be put over a kernel's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelocateError {
    /// The distilled base is malformed.
    #[error(".BTF.base: {0}")]
    Distilled(BtfError),
    /// The module's BTF is malformed.
    #[error(".BTF: {0}")]
    Split(BtfError),
    /// A distilled base has named types of few kinds only.
    #[error(".BTF.base: type {id} is of kind {kind:?} and named {name:?}: no distilled base has that")]
    Kind {
        /// Its number.
        id: TypeId,
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// The kernel has no such type.
    #[error(
        "the kernel has no type {name} as the module was built with (type {id} of .BTF.base): it is not for this kernel"
    )]
    Missing {
        /// Its number in the distilled base.
        id: TypeId,
        /// Its name.
        name: String,
    },
    /// The kernel has several such types.
    #[error("the kernel has several types {name} of one size: which one the module means cannot be told")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// A number or name in the module's BTF that leads nowhere.
    #[error(".BTF: type {id} refers to something that is not there")]
    Dangling {
        /// The type.
        id: TypeId,
    },
}

/// Rewrites a module's BTF, which is split over a distilled base, so that it is split over a kernel's.
///
/// # Errors
/// [`RelocateError`] if one of them is malformed, or the kernel does not have the types.
pub fn relocate(split: &[u8], distilled: &[u8], base: &Btf<'_>) -> Result<Vec<u8>, RelocateError> {
    let distilled = Btf::parse(distilled).map_err(RelocateError::Distilled)?;
    let own = Btf::parse_split(split, &distilled).map_err(RelocateError::Split)?;
    let map = Map::new(&own, &distilled, base)?;
    let mut bytes = split.to_vec();
    let word =
        |at: usize| split.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|word| u32::from_le_bytes(*word));
    let begin = word(4).zip(word(8)).map(|(header, types)| header as usize + types as usize);
    let mut at = begin.ok_or(RelocateError::Split(BtfError::TruncatedHeader(split.len())))?;
    for ty in own.types() {
        let dangling = || RelocateError::Dangling { id: ty.id() };
        let Places { names, ids, len } = Places::of(&ty).ok_or_else(dangling)?;
        for (places, mapped) in [(names, Map::name as fn(&Map, u32) -> Option<u32>), (ids, Map::id)] {
            for place in places {
                let place = at + place;
                let new = word(place).and_then(|old| mapped(&map, old)).ok_or_else(dangling)?;
                bytes.get_mut(place..place + 4).ok_or_else(dangling)?.copy_from_slice(&new.to_le_bytes());
            }
        }
        at += len;
    }
    Ok(bytes)
}

/// Where a type has names and numbers of other types: bytes from its start.
struct Places {
    names: Vec<usize>,
    ids: Vec<usize>,
    /// Bytes of the type.
    len: usize,
}

impl Places {
    fn of(ty: &Type<'_>) -> Option<Places> {
        const HEAD: usize = 12;
        const REFERRED: usize = 8;
        let (once, each) = ty.kind().tail()?;
        let (once, each, count) = (usize::from(once), usize::from(each), ty.vlen() as usize);
        let elements = |offset: usize| (0..count).map(move |nth| HEAD + once + nth * each + offset);
        let (mut names, mut ids) = (vec![0], Vec::new());
        match ty.kind() {
            Kind::Int | Kind::Float | Kind::Fwd => {}
            Kind::Array => ids.extend([HEAD, HEAD + 4]),
            Kind::Struct | Kind::Union => {
                names.extend(elements(0));
                ids.extend(elements(4));
            }
            Kind::FuncProto => {
                names.extend(elements(0));
                ids.push(REFERRED);
                ids.extend(elements(4));
            }
            Kind::Enum | Kind::Enum64 => names.extend(elements(0)),
            Kind::Datasec => ids.extend(elements(0)),
            Kind::Ptr
            | Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::Func
            | Kind::Var
            | Kind::DeclTag
            | Kind::TypeTag => ids.push(REFERRED),
            Kind::LocParam | Kind::LocProto | Kind::Locsec | Kind::Other(_) => return None,
        }
        Some(Places { names, ids, len: HEAD + once + each * count })
    }
}

/// From the distilled base's numbers and names to the kernel's.
struct Map {
    ids: HashMap<TypeId, TypeId>,
    names: HashMap<u32, u32>,
    /// The first number, and the first name, that are the module's own; and the same over the kernel's BTF.
    own: (TypeId, u32),
    moved: (TypeId, u32),
}

impl Map {
    fn id(&self, id: TypeId) -> Option<TypeId> {
        match id.checked_sub(self.own.0) {
            Some(nth) => self.moved.0.checked_add(nth),
            None if id == 0 => Some(0),
            None => self.ids.get(&id).copied(),
        }
    }

    fn name(&self, offset: u32) -> Option<u32> {
        match offset.checked_sub(self.own.1) {
            Some(more) => self.moved.1.checked_add(more),
            None if offset == 0 => Some(0),
            None => self.names.get(&offset).copied(),
        }
    }

    fn new(own: &Btf<'_>, distilled: &Btf<'_>, base: &Btf<'_>) -> Result<Map, RelocateError> {
        let mut map = Map {
            ids: HashMap::new(),
            names: HashMap::new(),
            own: (distilled.end_id(), distilled.strings().len()),
            moved: (base.end_id(), base.strings().len()),
        };
        let mut wanted: HashMap<&str, Vec<Type<'_>>> = HashMap::new();
        for ty in distilled.types() {
            let kind = ty.kind();
            let fits = matches!(kind, Kind::Int | Kind::Float | Kind::Enum | Kind::Struct | Kind::Union | Kind::Fwd);
            if !fits || ty.name().is_empty() {
                return Err(RelocateError::Kind { id: ty.id(), kind, name: ty.name().to_owned() });
            }
            wanted.entry(ty.name()).or_default().push(ty);
        }
        let embedded = embedded(own, distilled.end_id());
        // Where the kernel has several structures of a name, the size says which.
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for ty in base.types().filter(|ty| wanted.contains_key(ty.name()) && is_composite(ty)) {
            *counts.entry(ty.name()).or_default() += 1;
        }
        for ty in base.types() {
            let Some(same) = wanted.get(ty.name()) else { continue };
            let by_size = match ty.kind() {
                Kind::Int | Kind::Float | Kind::Enum | Kind::Enum64 => true,
                Kind::Fwd => false,
                Kind::Struct | Kind::Union => counts.get(ty.name()).is_some_and(|&count| count > 1),
                _ => continue,
            };
            for distilled in same {
                let sized = distilled.size_or_type() == ty.size_or_type();
                if by_size && !sized || embedded.contains(&distilled.id()) && is_composite(distilled) && !sized {
                    continue;
                }
                if !stands_for(distilled, &ty) {
                    continue;
                }
                if map.ids.insert(distilled.id(), ty.id()).is_some() {
                    return Err(RelocateError::Ambiguous { name: ty.name().to_owned() });
                }
                map.names.insert(distilled.name_offset(), ty.name_offset());
            }
        }
        match distilled.types().find(|ty| !map.ids.contains_key(&ty.id())) {
            Some(ty) => Err(RelocateError::Missing { id: ty.id(), name: ty.name().to_owned() }),
            None => Ok(map),
        }
    }
}

fn is_composite(ty: &Type<'_>) -> bool {
    matches!(ty.kind(), Kind::Struct | Kind::Union)
}

/// Whether a distilled type may be that type of the kernel; names and sizes have been compared.
fn stands_for(distilled: &Type<'_>, kernel: &Type<'_>) -> bool {
    match (distilled.kind(), kernel.kind()) {
        (Kind::Fwd, Kind::Fwd) => distilled.flag() == kernel.flag(),
        (Kind::Fwd, Kind::Struct) => !distilled.flag(),
        (Kind::Fwd, Kind::Union) => distilled.flag(),
        (Kind::Int, Kind::Int) => distilled.int().map(|int| int.encoding) == kernel.int().map(|int| int.encoding),
        // Enumerations of any width are distilled to a sized one.
        (Kind::Enum, Kind::Enum64) => true,
        (one, other) => one == other,
    }
}

/// The distilled structures that the module's own contain, so that their sizes must be right.
fn embedded(own: &Btf<'_>, distilled_end: TypeId) -> HashSet<TypeId> {
    let mut found = HashSet::new();
    for ty in own.types().filter(is_composite) {
        for member in ty.members() {
            let mut next = member.ty;
            // Arrays of arrays of a typedef ...: as long as the chain is, it ends.
            for _ in 0..64 {
                let Some(ty) = own.ty(next) else { break };
                match ty.kind() {
                    Kind::Const | Kind::Volatile | Kind::Restrict | Kind::Typedef | Kind::TypeTag => {
                        next = ty.target().unwrap_or(0);
                    }
                    Kind::Array => next = ty.array().map_or(0, |array| array.element),
                    Kind::Struct | Kind::Union => {
                        if next < distilled_end {
                            found.insert(next);
                        }
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{IntEncoding, Linkage, Member, SplitBtf};

    /// A kernel: `int`, `struct page { int flags; }`, `union task`, two structures `pair` of 8 and 16 bytes.
    fn kernel() -> Vec<u8> {
        let mut btf = SplitBtf::standalone();
        let _ = btf.int("char", 1, 8, IntEncoding::SIGNED);
        let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
        let member = |name, bit_offset| Member { name, ty: int, bit_offset, bits: 0 };
        btf.composite(Kind::Struct, "page", 4, &[member("flags", 0)]);
        btf.composite(Kind::Struct, "pair", 8, &[member("one", 0), member("two", 32)]);
        btf.composite(Kind::Struct, "pair", 16, &[member("wide", 0)]);
        btf.to_bytes()
    }

    /// What pahole distils of it, and a module over that.
    fn module(page_size: u32, other: &str) -> (Vec<u8>, Vec<u8>) {
        let mut distilled = SplitBtf::standalone();
        let int = distilled.int("int", 4, 32, IntEncoding::SIGNED);
        let page = distilled.composite(Kind::Struct, "page", page_size, &[]);
        let pair = distilled.composite(Kind::Struct, other, 16, &[]);
        let distilled = distilled.to_bytes();
        let base = Btf::parse(&distilled).unwrap();
        let mut own = SplitBtf::new(&base);
        let to_pair = own.modifier(Kind::Ptr, pair);
        let members = [
            Member { name: "page", ty: page, bit_offset: 0, bits: 0 },
            Member { name: "pair", ty: to_pair, bit_offset: 64, bits: 0 },
        ];
        let thing = own.composite(Kind::Struct, "thing", 16, &members);
        let to_thing = own.modifier(Kind::Ptr, thing);
        let proto = own.func_proto(int, &[("thing", to_thing), ("int", int)], false);
        own.func("do_thing", proto, Linkage::Static);
        // Without a layout section: pahole writes none.
        (own.to_bytes(), distilled)
    }

    #[test]
    fn a_module_gets_the_kernels_numbers() {
        let kernel = kernel();
        let base = Btf::parse(&kernel).unwrap();
        let (split, distilled) = module(4, "pair");
        let relocated = relocate(&split, &distilled, &base).unwrap();
        assert_eq!(relocated.len(), split.len());
        let own = Btf::parse_split(&relocated, &base).unwrap();
        let func = own.find(Kind::Func, "do_thing").unwrap();
        assert!(func.id() >= base.end_id());
        let proto = own.ty(func.target().unwrap()).unwrap();
        assert_eq!(crate::btf::declaration(&own, proto.id(), "do_thing"), "int do_thing(struct thing *, int)");
        assert_eq!(proto.target(), base.find(Kind::Int, "int").map(|ty| ty.id()));
        let thing = own.find(Kind::Struct, "thing").unwrap();
        let members: Vec<_> = thing.members().map(|member| (member.name.to_owned(), member.ty)).collect();
        assert_eq!(members[0], ("page".to_owned(), base.find(Kind::Struct, "page").unwrap().id()));
        let pair = own.ty(own.ty(members[1].1).unwrap().target().unwrap()).unwrap();
        assert_eq!((pair.name(), pair.size()), ("pair", Some(16)), "the one of that size");
    }

    #[test]
    fn a_module_of_another_kernel_is_refused() {
        let kernel = kernel();
        let base = Btf::parse(&kernel).unwrap();
        let (split, distilled) = module(4, "gone");
        let missing = RelocateError::Missing { id: 3, name: "gone".to_owned() };
        assert_eq!(relocate(&split, &distilled, &base), Err(missing));
        // A structure that the module's own contains has another size there.
        let (split, distilled) = module(8, "pair");
        assert!(matches!(relocate(&split, &distilled, &base), Err(RelocateError::Missing { id: 2, .. })));
        let (split, distilled) = module(4, "pair");
        for len in 0..split.len() {
            let _ = relocate(&split[..len], &distilled, &base);
        }
        for len in 0..distilled.len() {
            assert!(relocate(&split, &distilled[..len], &base).is_err());
        }
    }
}
