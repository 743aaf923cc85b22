// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The base's types by name, and by the types that they refer to.

use hashbrown::hash_map::Entry;
use hashbrown::{DefaultHashBuilder, Equivalent, HashMap, HashTable};
use siteseer_sites::btf::{Btf, IntEncoding, Kind, Type, TypeId};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use super::{NewType, TypeRef};

/// Types that share a key; nearly always there is one.
#[derive(Debug, Clone)]
enum Ids {
    One(TypeId),
    Many(Vec<TypeId>),
}

impl Ids {
    fn as_slice(&self) -> &[TypeId] {
        match self {
            Ids::One(id) => std::slice::from_ref(id),
            Ids::Many(ids) => ids,
        }
    }

    fn push(&mut self, id: TypeId) {
        match self {
            Ids::One(first) => *self = Ids::Many(vec![*first, id]),
            Ids::Many(ids) => ids.push(id),
        }
    }
}

/// Adds a type. If the kernel has types of that key too, they come first.
fn push<K: Eq + Hash>(map: &mut HashMap<K, Ids>, kernel: Option<&HashMap<K, Ids>>, key: K, id: TypeId) {
    match map.entry(key) {
        Entry::Vacant(slot) => match kernel.and_then(|kernel| kernel.get(slot.key())) {
            Some(kernels) => {
                let mut ids = kernels.clone();
                ids.push(id);
                slot.insert(ids);
            }
            None => {
                slot.insert(Ids::One(id));
            }
        },
        Entry::Occupied(mut ids) => ids.get_mut().push(id),
    }
}

/// A key that need not live as long as those in the map.
#[derive(Hash)]
struct Key<T>(T);

impl Equivalent<(Kind, &[u8])> for Key<(Kind, &[u8])> {
    fn equivalent(&self, key: &(Kind, &[u8])) -> bool {
        self.0 == *key
    }
}

impl Equivalent<Outline<'_>> for Key<&Outline<'_>> {
    fn equivalent(&self, key: &Outline<'_>) -> bool {
        self.0 == key
    }
}

/// What anonymous structures, unions and enumerations are looked up by, before they are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Outline<'a> {
    /// [`Kind::Struct`], [`Kind::Union`] or [`Kind::Enum`].
    pub(super) kind: Kind,
    pub(super) size: u32,
    /// Members or enumerators.
    pub(super) count: u32,
    /// The name of the first of them.
    pub(super) first: &'a [u8],
}

/// The types of an image's BTF, to be found again from DWARF. Built once, shared by all threads. That of a module has
/// the module's own types, and refers to its kernel's index, which all modules share.
#[derive(Debug)]
pub struct BaseIndex<'a> {
    btf: Btf<'a>,
    kernel: Option<&'a BaseIndex<'a>>,
    names: HashMap<(Kind, &'a [u8]), Ids>,
    anonymous: HashMap<Outline<'a>, Ids>,
    references: HashMap<(Kind, TypeId), TypeId>,
    tags: HashMap<(TypeId, &'a [u8]), TypeId>,
    arrays: HashMap<(TypeId, u32), TypeId>,
    prototypes: HashTable<TypeId>,
    hasher: DefaultHashBuilder,
    array_index: TypeRef,
}

/// The kind that a name is looked up by: enumerations are one kind, however wide.
fn name_kind(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Enum64 => Some(Kind::Enum),
        Kind::Int | Kind::Float | Kind::Struct | Kind::Union | Kind::Enum | Kind::Fwd | Kind::Typedef | Kind::Func => {
            Some(kind)
        }
        _ => None,
    }
}

impl<'a> BaseIndex<'a> {
    /// Indexes BTF and, if it is split, its base.
    pub fn new(btf: &Btf<'a>) -> BaseIndex<'a> {
        let mut levels = vec![btf.clone()];
        while let Some(base) = levels.last().and_then(Btf::base).cloned() {
            levels.push(base);
        }
        levels.reverse();
        Self::of(&levels, btf, None)
    }

    /// Indexes a module's BTF, which is split over the kernel's. The kernel's is indexed already.
    pub fn of_module(btf: &Btf<'a>, kernel: &'a BaseIndex<'a>) -> BaseIndex<'a> {
        Self::of(std::slice::from_ref(btf), btf, Some(kernel))
    }

    fn of(levels: &[Btf<'a>], btf: &Btf<'a>, kernel: Option<&'a BaseIndex<'a>>) -> BaseIndex<'a> {
        let count: usize = levels.iter().map(|level| (level.end_id() - level.first_id()) as usize).sum();
        let mut index = BaseIndex {
            btf: btf.clone(),
            kernel,
            names: HashMap::with_capacity(count / 2),
            anonymous: HashMap::new(),
            references: HashMap::new(),
            tags: HashMap::new(),
            arrays: HashMap::new(),
            prototypes: HashTable::new(),
            // A prototype is looked up in both by the same hash.
            hasher: kernel.map_or_else(DefaultHashBuilder::default, |kernel| kernel.hasher.clone()),
            array_index: kernel.map_or(TypeRef::Void, |kernel| kernel.array_index.clone()),
        };
        for level in levels {
            for ty in level.types() {
                index.add(&ty);
            }
        }
        if index.array_index == TypeRef::Void {
            let name = "__ARRAY_SIZE_TYPE__".into();
            let int = NewType::Int { name, size: 4, encoding: IntEncoding::UNSIGNED };
            index.array_index = TypeRef::New(Arc::new(int));
        }
        index
    }

    fn add(&mut self, ty: &Type<'a>) {
        let (id, kind) = (ty.id(), ty.kind());
        if ty.name_offset() != 0 {
            if kind == Kind::TypeTag {
                self.tags.entry((ty.size_or_type(), ty.name().as_bytes())).or_insert(id);
            } else if let Some(kind) = name_kind(kind) {
                push(&mut self.names, self.kernel.map(|kernel| &kernel.names), (kind, ty.name().as_bytes()), id);
            }
            return;
        }
        match kind {
            Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict => {
                self.references.entry((kind, ty.size_or_type())).or_insert(id);
            }
            Kind::Array => {
                if let Some(array) = ty.array() {
                    self.arrays.entry((array.element, array.count)).or_insert(id);
                    if self.array_index == TypeRef::Void {
                        self.array_index = TypeRef::Base(array.index);
                    }
                }
            }
            Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                let first = match kind {
                    Kind::Struct | Kind::Union => ty.members().next().map(|member| member.name),
                    _ => ty.enumerators().next().map(|enumerator| enumerator.name),
                };
                let kind = if kind == Kind::Enum64 { Kind::Enum } else { kind };
                let first = first.unwrap_or_default().as_bytes();
                let outline = Outline { kind, size: ty.size_or_type(), count: ty.vlen(), first };
                push(&mut self.anonymous, self.kernel.map(|kernel| &kernel.anonymous), outline, id);
            }
            // The prototype that a function pointer has: its parameters have no names.
            Kind::FuncProto if ty.params().all(|param| param.name.is_empty()) => {
                let hash = self.hash_of(ty);
                let Self { prototypes, hasher, btf, .. } = self;
                prototypes
                    .insert_unique(hash, id, |other| btf.ty(*other).map_or(0, |other| hash_prototype(hasher, &other)));
            }
            _ => {}
        }
    }

    fn hash_of(&self, prototype: &Type<'_>) -> u64 {
        hash_prototype(&self.hasher, prototype)
    }

    /// The BTF that is indexed.
    pub fn btf(&self) -> &Btf<'a> {
        &self.btf
    }

    /// The types of a kind and name, in order of their numbers. [`Kind::Enum`] is for enumerations of any width.
    pub fn named(&self, kind: Kind, name: &[u8]) -> &[TypeId] {
        let found = self.levels().find_map(|level| level.names.get(&Key((kind, name))));
        found.map_or(&[], Ids::as_slice)
    }

    pub(super) fn anonymous(&self, outline: &Outline<'_>) -> &[TypeId] {
        self.levels().find_map(|level| level.anonymous.get(&Key(outline))).map_or(&[], Ids::as_slice)
    }

    /// This index and the kernel's.
    fn levels(&self) -> impl Iterator<Item = &BaseIndex<'a>> {
        std::iter::once(self).chain(self.kernel)
    }

    /// The kernel's index and this one: if both have a type, it is the kernel's.
    fn kernel_first(&self) -> impl Iterator<Item = &BaseIndex<'a>> {
        self.kernel.into_iter().chain([self])
    }

    /// The pointer or qualified type of a type.
    pub(super) fn reference(&self, kind: Kind, to: TypeId) -> Option<TypeId> {
        self.kernel_first().find_map(|level| level.references.get(&(kind, to)).copied())
    }

    pub(super) fn tag(&self, name: &[u8], to: TypeId) -> Option<TypeId> {
        self.kernel_first().find_map(|level| level.tags.get(&(to, name)).copied())
    }

    pub(super) fn array(&self, element: TypeId, count: u32) -> Option<TypeId> {
        self.kernel_first().find_map(|level| level.arrays.get(&(element, count)).copied())
    }

    /// The type that indices of arrays have.
    pub(super) fn array_index(&self) -> &TypeRef {
        &self.array_index
    }

    /// The FUNC_PROTO with these types and without names.
    pub(super) fn prototype(&self, ret: TypeId, params: &[TypeId], variadic: bool) -> Option<TypeId> {
        let mut hasher = self.hasher.build_hasher();
        hash_parts(&mut hasher, ret, params.iter().copied(), variadic);
        let hash = hasher.finish();
        let is_it = |id: &TypeId| self.btf.ty(*id).is_some_and(|ty| is_prototype(&ty, ret, params, variadic));
        self.kernel_first().find_map(|level| level.prototypes.find(hash, is_it).copied())
    }

    /// The FUNC of a name with a prototype that has these types.
    pub fn function(&self, name: &[u8], ret: &TypeRef, params: &[TypeRef], variadic: bool) -> Option<TypeId> {
        let candidates = self.named(Kind::Func, name);
        if candidates.is_empty() {
            return None;
        }
        let ret = ret.base_id()?;
        let params: Vec<TypeId> = params.iter().map(TypeRef::base_id).collect::<Option<_>>()?;
        // The image's own first: a module may have a FUNC that its kernel has too.
        let (kernels, own) = candidates.split_at(candidates.partition_point(|&func| func < self.btf.first_id()));
        own.iter().chain(kernels).copied().find(|func| {
            let prototype = self.btf.ty(*func).and_then(|func| self.btf.ty(func.target()?));
            prototype.is_some_and(|prototype| is_prototype(&prototype, ret, &params, variadic))
        })
    }
}

fn is_prototype(ty: &Type<'_>, ret: TypeId, params: &[TypeId], variadic: bool) -> bool {
    ty.kind() == Kind::FuncProto
        && ty.size_or_type() == ret
        && ty.is_variadic() == variadic
        && ty.params().map(|param| param.ty).eq(params.iter().copied())
}

fn hash_prototype(hasher: &DefaultHashBuilder, ty: &Type<'_>) -> u64 {
    let mut hasher = hasher.build_hasher();
    hash_parts(&mut hasher, ty.size_or_type(), ty.params().map(|param| param.ty), ty.is_variadic());
    hasher.finish()
}

fn hash_parts(hasher: &mut impl Hasher, ret: TypeId, params: impl Iterator<Item = TypeId>, variadic: bool) {
    (ret, variadic).hash(hasher);
    params.for_each(|param| param.hash(hasher));
}
