// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From names to types, for those who look up many.

use super::kinds::Kind;
use super::read::{Btf, TypeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

type Map<'a, V> = HashMap<(Kind, &'a str), V, hashbrown::DefaultHashBuilder>;

/// All named types of a [`Btf`] and its base, by kind and name.
#[derive(Debug, Clone, Default)]
pub struct NameIndex<'a> {
    /// The first type of each kind and name.
    first: Map<'a, TypeId>,
    /// The others, where there are several.
    more: Map<'a, Vec<TypeId>>,
}

impl<'a> NameIndex<'a> {
    /// Indexes the types of the kinds, the base's first.
    pub fn new(btf: &Btf<'a>, kinds: &[Kind]) -> NameIndex<'a> {
        let mut index = btf.base().map(|base| NameIndex::new(base, kinds)).unwrap_or_default();
        for ty in btf.types().filter(|ty| ty.name_offset() != 0 && kinds.contains(&ty.kind())) {
            let key = (ty.kind(), ty.name());
            match index.first.entry(key) {
                Entry::Vacant(slot) => {
                    slot.insert(ty.id());
                }
                Entry::Occupied(_) => index.more.entry(key).or_default().push(ty.id()),
            }
        }
        index
    }

    /// The types of the kind and name, in order of their numbers.
    pub fn get<'i>(&'i self, kind: Kind, name: &'i str) -> impl Iterator<Item = TypeId> + 'i {
        let first = self.first.get(&(kind, name)).copied();
        let more = self.more.get(&(kind, name)).map_or(&[][..], Vec::as_slice);
        first.into_iter().chain(more.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{IntEncoding, Linkage, SplitBtf};

    #[test]
    fn the_first_of_a_kind_and_name() {
        let mut kernel = SplitBtf::standalone();
        let int = kernel.int("int", 4, 32, IntEncoding::SIGNED);
        let pair = kernel.composite(Kind::Struct, "pair", 8, &[]);
        kernel.composite(Kind::Struct, "pair", 16, &[]);
        let proto = kernel.func_proto::<&str>(int, &[], false);
        let func = kernel.func("pair", proto, Linkage::Static);
        let data = kernel.to_bytes();
        let base = Btf::parse(&data).unwrap();
        let mut split = SplitBtf::new(&base);
        let own = split.composite(Kind::Struct, "own", 4, &[]);
        let nearer = split.func("pair", proto, Linkage::Static);
        let data = split.to_bytes();
        let btf = Btf::parse_split(&data, &base).unwrap();

        let wanted = [
            (Kind::Struct, "own"),
            (Kind::Func, "pair"),
            (Kind::Struct, "pair"),
            (Kind::Union, "pair"),
            (Kind::Struct, "pai"),
            (Kind::FuncProto, ""),
            (Kind::Struct, "own"),
        ];
        let ids: Vec<_> = btf.find_each(&wanted).into_iter().map(|ty| ty.map(|ty| ty.id())).collect();
        assert_eq!(ids, [Some(own), Some(nearer), Some(pair), None, None, None, Some(own)]);
        for ((kind, name), id) in wanted.into_iter().zip(ids) {
            assert_eq!(btf.find(kind, name).map(|ty| ty.id()), id, "{name}");
        }
        let index = NameIndex::new(&btf, &[Kind::Func, Kind::Struct]);
        assert_eq!(index.get(Kind::Func, "pair").collect::<Vec<_>>(), [func, nearer], "the base's first");
        assert_eq!(base.find_each(&[(Kind::Func, "pair")])[0].map(|ty| ty.id()), Some(func));
    }
}
