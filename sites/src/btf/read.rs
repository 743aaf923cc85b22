// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Reading BTF.

use super::kinds::{Kind, MAGIC, RawHeader, RawHeaderLayout, RawType, VERSION};
use super::layout::Layout;
use super::strings::Strings;
use super::types::Type;
use crate::sums::Sums;
use std::sync::Arc;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

/// The number of a type. 0 is void.
pub type TypeId = u32;

/// A site file carries the offset of every so many types.
pub(crate) const CHECKPOINT_STRIDE: u32 = 8;

/// How many references are followed before a chain of types is taken for a cycle.
const MAX_CHAIN: usize = 64;

/// Bytes of a type before its tail.
const TYPE_LEN: usize = size_of::<RawType>();

/// Why BTF cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// Shorter than a header, or the header claims to be.
    #[error("BTF header is truncated: {0} bytes")]
    TruncatedHeader(usize),
    /// Another magic number.
    #[error("not BTF: magic {0:#06x}, expected 0xeb9f{hint}", hint = if *.0 == MAGIC.swap_bytes() { " (big-endian BTF is not supported)" } else { "" })]
    Magic(u16),
    /// A version that is not known.
    #[error("BTF version {0} is not supported")]
    Version(u8),
    /// A section reaches past the end.
    #[error(
        "BTF {section} section at {offset:#x}, {len:#x} bytes, reaches past the end of the data ({available:#x} bytes after the header)"
    )]
    SectionBounds {
        /// `type`, `string` or `layout`.
        section: &'static str,
        /// From the end of the header.
        offset: u32,
        /// Bytes that the header claims.
        len: u32,
        /// Bytes that there are.
        available: usize,
    },
    /// The string section does not end with a NUL, or does not begin with the empty string.
    #[error("BTF string section is malformed: {0}")]
    Strings(&'static str),
    /// A type reaches past the end of the type section.
    #[error("BTF type {id} (kind {kind:?}) at {offset:#x} reaches past the end of the type section")]
    TruncatedType {
        /// Number of the type.
        id: TypeId,
        /// Its kind.
        kind: Kind,
        /// Offset in the type section.
        offset: usize,
    },
    /// A kind that neither this reader nor the file's layout section knows: what follows cannot be found.
    #[error("BTF type {id} at {offset:#x} has unknown kind {kind}, and the file has no layout for it")]
    UnknownKind {
        /// Number of the type.
        id: TypeId,
        /// Number of the kind.
        kind: u8,
        /// Offset in the type section.
        offset: usize,
    },
    /// The file lays out a location kind otherwise than this reader knows it.
    #[error("BTF kind {kind:?} is laid out as {found:?} bytes (once, per element), expected {expected:?}")]
    ForeignLayout {
        /// The kind.
        kind: Kind,
        /// What the layout section says.
        found: (u8, u8),
        /// What this reader knows.
        expected: (u8, u8),
    },
    /// The name of a type is outside of the string section.
    #[error("BTF type {id} has its name at {offset:#x}, outside of the string section")]
    NameBounds {
        /// Number of the type.
        id: TypeId,
        /// Offset of the name.
        offset: u32,
    },
    /// More levels of split BTF, or more strings, than can be numbered.
    #[error("BTF is split too often, or its strings exceed 4 GB")]
    TooDeep,
}

/// BTF, or split BTF with its base. A cheap handle: cloning it copies no data.
#[derive(Debug, Clone)]
pub struct Btf<'a> {
    inner: Arc<Inner<'a>>,
}

#[derive(Debug)]
struct Inner<'a> {
    base: Option<Btf<'a>>,
    /// The type section, up to the end of the last type.
    types: &'a [u8],
    strings: Strings<'a>,
    layout: Layout<'a>,
    first_id: TypeId,
    count: u32,
    index: Index<'a>,
    /// Checksums, if the bytes come with them.
    sums: Option<Arc<Sums<'a>>>,
}

/// Where in the type section each type is.
#[derive(Debug)]
enum Index<'a> {
    /// The offset of every type.
    All(Box<[u32]>),
    /// The offset of every [`CHECKPOINT_STRIDE`]th type, read from a file: not trusted.
    Some(&'a [U32]),
}

/// What a file has beside BTF so that it need not be walked.
pub(crate) struct Stored<'a> {
    /// How many types there are.
    pub(crate) count: u32,
    /// The offset of every [`CHECKPOINT_STRIDE`]th of them.
    pub(crate) checkpoints: &'a [U32],
    /// Checksums of the BTF and of the checkpoints.
    pub(crate) sums: Arc<Sums<'a>>,
}

/// What writing a file needs to know of BTF whose base need not be at hand.
pub(crate) struct Outline {
    /// How many types there are.
    pub(crate) count: u32,
    /// The offset of every [`CHECKPOINT_STRIDE`]th of them.
    pub(crate) checkpoints: Vec<u32>,
    /// The FUNCs: offset of the name, and number.
    pub(crate) functions: Vec<(u32, TypeId)>,
}

/// The parts of BTF that its header names.
struct Parts<'a> {
    header: &'a [u8],
    types: &'a [u8],
    strings: &'a [u8],
    layout_section: &'a [u8],
    layout: Layout<'a>,
}

impl<'a> Parts<'a> {
    fn parse(data: &'a [u8]) -> Result<Parts<'a>, BtfError> {
        let truncated = || BtfError::TruncatedHeader(data.len());
        let (header, after) = RawHeader::ref_from_prefix(data).map_err(|_| truncated())?;
        if header.magic.get() != MAGIC {
            return Err(BtfError::Magic(header.magic.get()));
        }
        if header.version != VERSION {
            return Err(BtfError::Version(header.version));
        }
        let header_len = header.header_len.get() as usize;
        if header_len < size_of::<RawHeader>() {
            return Err(truncated());
        }
        let body = data.get(header_len..).ok_or_else(truncated)?;
        let section = |section, offset: U32, len: U32| {
            let (offset, len) = (offset.get(), len.get());
            let range = offset as usize..offset as usize + len as usize;
            body.get(range).ok_or(BtfError::SectionBounds { section, offset, len, available: body.len() })
        };
        let types = section("type", header.type_off, header.type_len)?;
        let strings = section("string", header.str_off, header.str_len)?;
        let mut layout_section = &[][..];
        if header_len >= size_of::<RawHeader>() + size_of::<RawHeaderLayout>() {
            let (more, _) = RawHeaderLayout::ref_from_prefix(after).map_err(|_| truncated())?;
            layout_section = section("layout", more.layout_off, more.layout_len)?;
        }
        let header = data.get(..header_len).unwrap_or_default();
        Ok(Parts { header, types, strings, layout_section, layout: Layout::parse(layout_section) })
    }
}

/// The length of the type at the start of `rest`, tail included. The error is the kind.
fn type_len(rest: &[u8], layout: &Layout<'_>) -> Result<(RawType, usize), Option<Kind>> {
    let (raw, _) = RawType::read_from_prefix(rest).map_err(|_| None)?;
    let kind = raw.kind();
    let (once, each) = kind.tail().or_else(|| layout.tail(kind).filter(|_| kind.code() != 0)).ok_or(Some(kind))?;
    Ok((raw, TYPE_LEN + usize::from(once) + usize::from(each) * raw.vlen() as usize))
}

/// The offsets of all types in a section.
fn scan(types: &[u8], layout: &Layout<'_>, first_id: TypeId, strings: u32) -> Result<Box<[u32]>, BtfError> {
    // A type is 12 bytes at least; kernels' average about 24.
    let mut offsets = Vec::with_capacity(types.len() / 24);
    let mut offset = 0;
    while offset < types.len() {
        let id = first_id.saturating_add(offsets.len() as u32);
        let (raw, len) = type_len(&types[offset..], layout).map_err(|kind| match kind {
            Some(kind) => BtfError::UnknownKind { id, kind: kind.code(), offset },
            None => BtfError::TruncatedType { id, kind: Kind::Other(0), offset },
        })?;
        if len > types.len() - offset {
            return Err(BtfError::TruncatedType { id, kind: raw.kind(), offset });
        }
        if raw.name.get() >= strings.max(1) {
            return Err(BtfError::NameBounds { id, offset: raw.name.get() });
        }
        offsets.push(offset as u32);
        offset += len;
    }
    Ok(offsets.into())
}

impl<'a> Btf<'a> {
    /// Reads BTF that stands by itself.
    ///
    /// # Errors
    /// If a section or a type is not inside the data, or a kind is not known and not described.
    pub fn parse(data: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        Self::open(data, None, None)
    }

    /// Reads split BTF over its base.
    ///
    /// # Errors
    /// As [`Btf::parse`].
    pub fn parse_split(data: &'a [u8], base: &Btf<'a>) -> Result<Btf<'a>, BtfError> {
        Self::open(data, Some(base), None)
    }

    /// BTF whose types' offsets come with it, so that nothing is read until it is asked for. Wrong offsets lead to
    /// wrong types, not outside of the data. What is read is checked by its checksums, except for the entries of
    /// LOCSECs: whoever reads one checks it.
    pub(crate) fn with_checkpoints(
        data: &'a [u8],
        base: Option<&Btf<'a>>,
        stored: Stored<'a>,
    ) -> Result<Btf<'a>, BtfError> {
        Self::open(data, base, Some(stored))
    }

    fn open(data: &'a [u8], base: Option<&Btf<'a>>, stored: Option<Stored<'a>>) -> Result<Btf<'a>, BtfError> {
        let Parts { header, types, strings, layout_section, layout } = Parts::parse(data)?;
        match (strings, base) {
            ([0, ..], None) | (_, Some(_)) => {}
            _ => return Err(BtfError::Strings("it does not begin with the empty string")),
        }
        if !matches!(strings, [] | [.., 0]) {
            return Err(BtfError::Strings("it does not end with a NUL"));
        }
        for kind in [Kind::LocParam, Kind::LocProto, Kind::Locsec] {
            if let (Some(found), Some(expected)) = (layout.tail(kind), kind.tail())
                && found != expected
                && found != (0, 0)
            {
                return Err(BtfError::ForeignLayout { kind, found, expected });
            }
        }
        let first_id = base.map_or(1, Btf::end_id);
        let before = base.map_or_else(Strings::default, |b| b.inner.strings);
        let strings = before.continued(strings).ok_or(BtfError::TooDeep)?;
        let (index, count, sums) = match stored {
            Some(Stored { count, checkpoints, sums }) => {
                sums.touch(header);
                sums.touch(layout_section);
                let count = count.min((checkpoints.len() as u32).saturating_mul(CHECKPOINT_STRIDE));
                (Index::Some(checkpoints), count, Some(sums))
            }
            None => {
                let offsets = scan(types, &layout, first_id, strings.len())?;
                let count = offsets.len() as u32;
                (Index::All(offsets), count, None)
            }
        };
        first_id.checked_add(count).ok_or(BtfError::TooDeep)?;
        let inner = Inner { base: base.cloned(), types, strings, layout, first_id, count, index, sums };
        Ok(Btf { inner: Arc::new(inner) })
    }

    /// The BTF that this one is split over.
    pub fn base(&self) -> Option<&Btf<'a>> {
        self.inner.base.as_ref()
    }

    /// The first number of this BTF's own types: 1, or the base's end.
    pub fn first_id(&self) -> TypeId {
        self.inner.first_id
    }

    /// The first number after the last type.
    pub fn end_id(&self) -> TypeId {
        self.inner.first_id + self.inner.count
    }

    /// The numbers of this BTF's own types, without the base's.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        self.first_id()..self.end_id()
    }

    /// This BTF's own types, in order.
    pub fn types(&self) -> impl Iterator<Item = Type<'a>> + '_ {
        let mut offset = 0;
        // One walk, whatever the index: stepping is as cheap as looking up.
        self.ids().map_while(move |id| {
            let (ty, len) = self.at(id, offset)?;
            offset += len;
            Some(ty)
        })
    }

    /// A type by its number. `None` for void and for numbers that there are not.
    pub fn ty(&self, id: TypeId) -> Option<Type<'a>> {
        let mut btf = self;
        while id < btf.inner.first_id {
            btf = btf.inner.base.as_ref()?;
        }
        let nth = id - btf.inner.first_id;
        if nth >= btf.inner.count {
            return None;
        }
        let offset = match &btf.inner.index {
            Index::All(offsets) => *offsets.get(nth as usize)? as usize,
            Index::Some(checkpoints) => {
                let checkpoint = checkpoints.get((nth / CHECKPOINT_STRIDE) as usize)?;
                btf.touch(checkpoint.as_bytes());
                let mut offset = checkpoint.get() as usize;
                for _ in 0..nth % CHECKPOINT_STRIDE {
                    let rest = btf.inner.types.get(offset..)?;
                    btf.touch(&rest[..TYPE_LEN.min(rest.len())]);
                    offset += type_len(rest, &btf.inner.layout).ok()?.1;
                }
                offset
            }
        };
        btf.at(id, offset).map(|(ty, _)| ty)
    }

    fn at(&self, id: TypeId, offset: usize) -> Option<(Type<'a>, usize)> {
        let inner = &*self.inner;
        let types: &'a [u8] = inner.types;
        let rest = types.get(offset..)?;
        self.touch(&rest[..TYPE_LEN.min(rest.len())]);
        let (raw, len) = type_len(rest, &inner.layout).ok()?;
        let tail = rest.get(TYPE_LEN..len)?;
        let ty = Type::new(id, raw, tail, inner.strings);
        if inner.sums.is_some() {
            if ty.kind() != Kind::Locsec {
                self.touch(tail);
            }
            // A view knows of no checksums: all that it can show is checked when it is made.
            ty.each_name_offset(|offset| {
                self.string_bytes(offset);
            });
        }
        Some((ty, len))
    }

    fn touch(&self, bytes: &[u8]) {
        if let Some(sums) = &self.inner.sums {
            sums.touch(bytes);
        }
    }

    fn string_bytes(&self, offset: u32) -> Option<&'a [u8]> {
        let bytes = self.inner.strings.bytes(offset)?;
        if let Some(sums) = &self.inner.sums {
            sums.touch_string(bytes);
        }
        Some(bytes)
    }

    /// The string at an offset, as a type names it.
    pub fn string(&self, offset: u32) -> Option<&'a str> {
        std::str::from_utf8(self.string_bytes(offset)?).ok()
    }

    /// The layout section, for kinds that this reader does not know.
    pub fn layout(&self) -> Layout<'a> {
        self.inner.layout
    }

    /// The first type of the kind and name among this BTF's own types, then the base's. A walk: for several
    /// names there is [`Btf::find_each`], for many [`super::NameIndex`].
    pub fn find(&self, kind: Kind, name: &str) -> Option<Type<'a>> {
        let own = self.named(kind, name).next();
        own.or_else(|| self.base()?.find(kind, name))
    }

    /// As [`Btf::find`] finds each of several kinds and names, in one walk.
    pub fn find_each(&self, wanted: &[(Kind, &str)]) -> Vec<Option<Type<'a>>> {
        let mut found = vec![None; wanted.len()];
        let mut by_offset: Vec<(u32, Kind, usize)> = Vec::new();
        for (nth, (kind, name)) in wanted.iter().enumerate() {
            by_offset.extend(self.inner.strings.offsets_of(name).into_iter().map(|offset| (offset, *kind, nth)));
        }
        by_offset.sort_unstable_by_key(|&(offset, ..)| offset);
        for ty in self.types() {
            let offset = ty.name_offset();
            let first = by_offset.partition_point(|&(its, ..)| its < offset);
            for &(_, kind, nth) in by_offset[first..].iter().take_while(|&&(its, ..)| its == offset) {
                if ty.kind() == kind && found[nth].is_none() {
                    found[nth] = Some(ty);
                }
            }
        }
        if let Some(base) = self.base() {
            for (found, in_base) in found.iter_mut().zip(base.find_each(wanted)) {
                *found = found.or(in_base);
            }
        }
        found
    }

    /// The types of the kind and name among this BTF's own types, in order. A walk, as [`Btf::find`] is. There are none
    /// for the empty name.
    pub fn named(&self, kind: Kind, name: &str) -> impl Iterator<Item = Type<'a>> + '_ {
        // The name is looked for once, and then only offsets are compared. Usually it has one.
        let offsets = self.inner.strings.offsets_of(name);
        let types = if offsets.is_empty() { None } else { Some(self.types()) };
        types.into_iter().flatten().filter(move |ty| ty.kind() == kind && offsets.contains(&ty.name_offset()))
    }

    /// The type without its qualifiers, type tags and typedefs. `None` for void, and for a chain without an end.
    pub fn resolve(&self, id: TypeId) -> Option<Type<'a>> {
        let mut ty = self.ty(id)?;
        for _ in 0..MAX_CHAIN {
            if !(ty.kind().is_qualifier() || matches!(ty.kind(), Kind::Typedef | Kind::TypeTag)) {
                return Some(ty);
            }
            ty = self.ty(ty.target()?)?;
        }
        None
    }

    /// Bytes of a type's values. `None` where they have no size: void, functions, forward declarations.
    /// Pointers have 8.
    pub fn size_of(&self, id: TypeId) -> Option<u64> {
        let mut count = 1u64;
        let mut id = id;
        for _ in 0..MAX_CHAIN {
            let ty = self.resolve(id)?;
            match ty.array() {
                Some(array) => {
                    count = count.checked_mul(u64::from(array.count))?;
                    id = array.element;
                }
                None if ty.kind() == Kind::Ptr => return count.checked_mul(8),
                None => return count.checked_mul(u64::from(ty.size()?)),
            }
        }
        None
    }

    /// All strings: the base's and this BTF's.
    pub(crate) fn strings(&self) -> Strings<'a> {
        self.inner.strings
    }

    /// The kinds of the types of BTF whose base is not at hand. `None` if they cannot be walked.
    pub(crate) fn kinds(data: &'a [u8]) -> Option<impl Iterator<Item = Kind> + use<'a>> {
        let parts = Parts::parse(data).ok()?;
        let offsets = scan(parts.types, &parts.layout, 1, u32::MAX).ok()?;
        let kind = move |offset: u32| {
            let (raw, _) = RawType::read_from_prefix(parts.types.get(offset as usize..)?).ok()?;
            Some(raw.kind())
        };
        Some(offsets.into_iter().filter_map(kind))
    }

    /// The outline of BTF whose base is not at hand.
    pub(crate) fn outline(data: &[u8], first_id: TypeId) -> Result<Outline, BtfError> {
        let parts = Parts::parse(data)?;
        let offsets = scan(parts.types, &parts.layout, first_id, u32::MAX)?;
        let function = |(id, &offset): (TypeId, &u32)| {
            let (raw, _) = RawType::read_from_prefix(parts.types.get(offset as usize..)?).ok()?;
            (raw.kind() == Kind::Func).then(|| (raw.name.get(), id))
        };
        Ok(Outline {
            count: offsets.len() as u32,
            checkpoints: offsets.iter().copied().step_by(CHECKPOINT_STRIDE as usize).collect(),
            functions: (first_id..).zip(&offsets).filter_map(function).collect(),
        })
    }
}
