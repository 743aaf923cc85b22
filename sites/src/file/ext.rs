// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The records of `.BTF.inline.ext`, and its header. What they mean is described with the [file](super).

use super::read::FileError;
use crate::machine::Machine;
use crate::sums::{self, BLOCK, Sums};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(super) const MAGIC: u16 = 0x5353;
pub(super) const VERSION: u8 = 3;

/// The tables, in the order of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Table {
    Sections,
    Functions,
    Runs,
    Declarations,
    Sites,
    Details,
    Prototypes,
    Programs,
    Containers,
    Files,
    Strings,
    BaseTypes,
    SplitTypes,
    ContainerNames,
    BaseFunctions,
    Sums,
    Loaded,
    Module,
}

impl Table {
    pub(super) const COUNT: usize = Table::Module as usize + 1;

    fn name(self) -> &'static str {
        match self {
            Table::Sections => "section",
            Table::Functions => "function",
            Table::Runs => "run",
            Table::Declarations => "declaration",
            Table::Sites => "site",
            Table::Details => "details",
            Table::Prototypes => "prototype",
            Table::Programs => "program",
            Table::Containers => "container",
            Table::Files => "file",
            Table::Strings => "string",
            Table::BaseTypes => "base type",
            Table::SplitTypes => "split type",
            Table::ContainerNames => "container name",
            Table::BaseFunctions => "base function",
            Table::Sums => "checksum",
            Table::Loaded => "loaded section",
            Table::Module => "module",
        }
    }
}

macro_rules! records {
    ($($name:ident { $($field:ident: $ty:ty),* })*) => { $(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $ty),* }
    )* };
}

records! {
    RawHeader { magic: U16, version: u8, flags: u8, header_len: U32, base_low: U32, base_high: U32, base_types: U32, split_types: U32 }
    RawTable { offset: U32, len: U32 }
    RawSection { name: U32, address_low: U32, address_high: U32, size_low: U32, size_high: U32, locsec: U32, first: U32, count: U32 }
    RawFunction { name: U32, func: U32, runs: U32, declarations: U32 }
    RawRun { first: U32, count: U32 }
    RawDeclaration { file: U32, line: U32 }
    RawSite { details: U32, container: U32, parent: U32, line: [u8; 3], file: [u8; 3], declaration: U16 }
    RawDetails { prototype: U32, kind: u8, marks: u8, unprobeable: u8, moved: u8 }
    RawLoaded { name: U32, address_low: U32, address_high: U32, size_low: U32, size_high: U32 }
    RawContainer { name: U32, address_low: U32, address_high: U32, size: [u8; 3], unprobeable: u8 }
}

/// In place of a file or container that is not known.
pub(super) const NONE24: u32 = 0x00ff_ffff;
/// In place of a declaration that is not known.
pub(super) const NONE16: u16 = u16::MAX;

/// A number as 24 bits, or `fallback` if it is too great.
pub(super) fn to24(value: u32, fallback: u32) -> [u8; 3] {
    let [a, b, c, _] = if value < NONE24 { value } else { fallback }.to_le_bytes();
    [a, b, c]
}

pub(super) fn from24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

pub(super) fn wide(low: U32, high: U32) -> u64 {
    u64::from(high.get()) << 32 | u64::from(low.get())
}

pub(super) fn halves(value: u64) -> (U32, U32) {
    ((value as u32).into(), ((value >> 32) as u32).into())
}

/// The tables of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ext<'a> {
    pub(super) base_address: u64,
    pub(super) base_types: u32,
    pub(super) split_types: u32,
    pub(super) sections: &'a [RawSection],
    pub(super) functions: &'a [RawFunction],
    pub(super) runs: &'a [RawRun],
    pub(super) declarations: &'a [RawDeclaration],
    pub(super) sites: &'a [RawSite],
    pub(super) details: &'a [RawDetails],
    pub(super) prototypes: &'a [U32],
    pub(super) programs: &'a [u8],
    pub(super) containers: &'a [RawContainer],
    pub(super) files: &'a [U32],
    pub(super) strings: &'a [u8],
    pub(super) base_checkpoints: &'a [U32],
    pub(super) split_checkpoints: &'a [U32],
    /// Indices of containers, by name.
    pub(super) container_names: &'a [U32],
    /// FUNCs of the base, by name.
    pub(super) base_functions: &'a [U32],
    /// A module's sections.
    pub(super) loaded: &'a [RawLoaded],
    /// A module's name, then the build id of its kernel; empty for an image.
    pub(super) module: &'a [u8],
    /// All before the tables.
    header: &'a [u8],
    /// The tables that the checksums are of: all but their own.
    tables: &'a [u8],
    /// The checksum of the header and the checksums, then those of the blocks.
    sums: &'a [U32],
}

/// Finds the tables.
struct Tables<'a> {
    list: &'a [RawTable],
    body: &'a [u8],
}

impl<'a> Tables<'a> {
    fn get<T: FromBytes + Immutable + KnownLayout>(&self, table: Table) -> Result<&'a [T], FileError> {
        let bytes = self.body.get(self.range(table)?).ok_or(FileError::Table(table.name()))?;
        <[T]>::ref_from_bytes(bytes).map_err(|_| FileError::Table(table.name()))
    }

    /// A table that files before it had was thought of lack: then it is empty.
    fn get_later<T: FromBytes + Immutable + KnownLayout>(&self, table: Table) -> Result<&'a [T], FileError> {
        if self.list.len() > table as usize { self.get(table) } else { Ok(&[]) }
    }

    fn range(&self, table: Table) -> Result<Range<usize>, FileError> {
        let entry = self.list.get(table as usize).ok_or(FileError::Table(table.name()))?;
        let (offset, len) = (entry.offset.get() as usize, entry.len.get() as usize);
        Ok(offset..offset + len)
    }
}

impl<'a> Ext<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Result<Ext<'a>, FileError> {
        let header_error = |what| FileError::Header(what);
        let (header, rest) = RawHeader::ref_from_prefix(data).map_err(|_| header_error("it is truncated"))?;
        if header.magic.get() != MAGIC {
            return Err(header_error("its magic number is another"));
        }
        if header.version != VERSION {
            return Err(FileError::Version(header.version));
        }
        let header_len = header.header_len.get() as usize;
        let tables = header_len
            .checked_sub(size_of::<RawHeader>())
            .ok_or_else(|| header_error("its length is less than a header's"))?;
        let whole = tables / size_of::<RawTable>() * size_of::<RawTable>();
        let list = rest.get(..whole).and_then(|bytes| <[RawTable]>::ref_from_bytes(bytes).ok());
        let list = list.ok_or_else(|| header_error("its tables are truncated"))?;
        let body = data.get(header_len..).ok_or_else(|| header_error("it is truncated"))?;
        let t = Tables { list, body };
        // The checksums come last: what is before them they are of.
        let sums = t.range(Table::Sums)?;
        if sums.end.next_multiple_of(4) != body.len() {
            return Err(FileError::Table(Table::Sums.name()));
        }
        Ok(Ext {
            base_address: wide(header.base_low, header.base_high),
            base_types: header.base_types.get(),
            split_types: header.split_types.get(),
            sections: t.get(Table::Sections)?,
            functions: t.get(Table::Functions)?,
            runs: t.get(Table::Runs)?,
            declarations: t.get(Table::Declarations)?,
            sites: t.get(Table::Sites)?,
            details: t.get(Table::Details)?,
            prototypes: t.get(Table::Prototypes)?,
            programs: t.get(Table::Programs)?,
            containers: t.get(Table::Containers)?,
            files: t.get(Table::Files)?,
            strings: t.get(Table::Strings)?,
            base_checkpoints: t.get(Table::BaseTypes)?,
            split_checkpoints: t.get(Table::SplitTypes)?,
            container_names: t.get(Table::ContainerNames)?,
            base_functions: t.get(Table::BaseFunctions)?,
            loaded: t.get_later(Table::Loaded)?,
            module: t.get_later(Table::Module)?,
            header: data.get(..header_len).unwrap_or_default(),
            tables: body.get(..sums.start).unwrap_or_default(),
            sums: t.get(Table::Sums)?,
        })
    }

    /// The first checksum, which stands for all of the file that has checksums.
    pub(super) fn root(&self) -> u32 {
        self.sums.first().map_or(0, |root| root.get())
    }

    /// The checksums, their own having been checked.
    pub(super) fn sums(&self, around: &Around<'a>) -> Result<Sums<'a>, FileError> {
        let malformed = || FileError::Table(Table::Sums.name());
        let (root, sums) = self.sums.split_first().ok_or_else(malformed)?;
        if root.get() != around.root(self.header, sums.as_bytes()) {
            return Err(FileError::Damaged { section: super::elf::EXT, offset: 0 });
        }
        let parts =
            [(super::elf::BTF, around.btf), (super::elf::INLINE, around.inline), (super::elf::EXT, self.tables)];
        Sums::new(&parts, sums).ok_or_else(malformed)
    }
}

/// What of the file the checksums are of besides the companion section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) machine: Machine,
    pub(super) build_id: &'a [u8],
    pub(super) btf: &'a [u8],
    pub(super) inline: &'a [u8],
}

impl Around<'_> {
    /// The checksum of what is read whenever a file is opened.
    fn root(&self, header: &[u8], sums: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(header);
        hasher.update(sums);
        hasher.update(&u32::from(self.machine.to_elf()).to_le_bytes());
        hasher.update(&(self.btf.len() as u32).to_le_bytes());
        hasher.update(&(self.inline.len() as u32).to_le_bytes());
        hasher.update(self.build_id);
        hasher.finalize()
    }
}

/// The companion section: a header, the tables, and after them the checksums. `base_address` is the image's, and the
/// tables are in the order of the header, without that of the checksums. Returns the first checksum, too.
pub(super) fn assemble(
    base_address: u64,
    base_types: u32,
    split_types: u32,
    tables: &[&[u8]; Table::COUNT - 1],
    around: &Around<'_>,
) -> (Vec<u8>, u32) {
    let header_len = size_of::<RawHeader>() + Table::COUNT * size_of::<RawTable>();
    let body: usize = tables.iter().map(|t| t.len().next_multiple_of(4)).sum();
    let blocks = [around.btf.len(), around.inline.len(), body].map(|len| len.div_ceil(BLOCK)).iter().sum::<usize>();
    let sums_len = (1 + blocks) * size_of::<U32>();
    let (base_low, base_high) = halves(base_address);
    let header = RawHeader {
        magic: MAGIC.into(),
        version: VERSION,
        flags: 0,
        header_len: (header_len as u32).into(),
        base_low,
        base_high,
        base_types: base_types.into(),
        split_types: split_types.into(),
    };
    let mut out = Vec::with_capacity(header_len + body + sums_len);
    out.extend_from_slice(header.as_bytes());
    // The checksums lie last, whatever tables came after theirs in the header.
    let mut entries = Vec::with_capacity(Table::COUNT);
    let mut offset = 0u32;
    for len in tables.iter().map(|table| table.len()).chain([sums_len]) {
        entries.push(RawTable { offset: offset.into(), len: (len as u32).into() });
        offset += len.next_multiple_of(4) as u32;
    }
    entries[Table::Sums as usize..].rotate_right(1);
    out.extend_from_slice(entries.as_bytes());
    for table in tables {
        out.extend_from_slice(table);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let parts = [around.btf, around.inline, &out[header_len..]];
    let sums: Vec<U32> = parts.into_iter().flat_map(sums::of_blocks).map(U32::new).collect();
    let root = around.root(&out[..header_len], sums.as_bytes());
    out.extend_from_slice(&root.to_le_bytes());
    out.extend_from_slice(sums.as_bytes());
    (out, root)
}
