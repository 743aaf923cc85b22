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
