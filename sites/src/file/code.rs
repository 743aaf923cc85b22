// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `.BTF.inline.code`: a short sum of the instructions at each site.
//!
//! The header is {u16 magic 0x4353, u8 version 1, u8 flags, u32 header length, u32 number of sites}. After it come a
//! [`CodeSum`] of three bytes for each site, in the order of the companion section's sites, padded to a multiple of 4,
//! and then the checksums as in `.BTF.inline.ranges`.

use super::elf::CODE;
use super::read::{FileError, SiteFile};
use crate::code::CodeSum;
use crate::sums::{self, Sums};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u16 = 0x4353;
const VERSION: u8 = 1;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    version: u8,
    flags: u8,
    header_len: U32,
    count: U32,
}

/// The section. `sums` are in the order of the companion section's sites; `companion` is that section's first checksum.
pub(super) fn section(sums: impl ExactSizeIterator<Item = CodeSum>, companion: u32) -> Vec<u8> {
    let header_len = size_of::<RawHeader>();
    let header = RawHeader {
        magic: MAGIC.into(),
        version: VERSION,
        flags: 0,
        header_len: (header_len as u32).into(),
        count: (sums.len() as u32).into(),
    };
    let mut out = header.as_bytes().to_vec();
    out.extend(sums.flat_map(CodeSum::to_bytes));
    out.resize(out.len().next_multiple_of(4), 0);
    let blocks: Vec<U32> = sums::of_blocks(&out[header_len..]).map(U32::new).collect();
    let root = super::ranges::root(companion, &out[..header_len], blocks.as_bytes());
    out.extend_from_slice(&root.to_le_bytes());
    out.extend_from_slice(blocks.as_bytes());
    out
}

/// The sums of the code at sites, open for reading.
#[derive(Debug)]
pub struct Code<'a> {
    entries: &'a [[u8; 3]],
    sums: Sums<'a>,
}

impl<'a> SiteFile<'a> {
    /// The sums of the code at the sites; `None` if the file does not have them.
    ///
    /// # Errors
    /// [`FileError::Code`] if the section is malformed or of another version, [`FileError::Damaged`] if it belongs to
    /// another file.
    pub fn code(&self) -> Result<Option<Code<'a>>, FileError> {
        let (Some(section), Some(ext)) = (self.code, &self.ext) else { return Ok(None) };
        Code::parse(section, self.site_count(), ext.root()).map(Some)
    }
}

impl<'a> Code<'a> {
    pub(super) fn parse(section: &'a [u8], sites: u32, companion: u32) -> Result<Code<'a>, FileError> {
        let truncated = || FileError::Code("it is truncated");
        let (header, _) = RawHeader::ref_from_prefix(section).map_err(|_| truncated())?;
        if header.magic.get() != MAGIC {
            return Err(FileError::Code("its magic number is another"));
        }
        if header.version != VERSION {
            return Err(FileError::Code("another release wrote it, in a version that is not supported"));
        }
        if header.count.get() != sites {
            return Err(FileError::Code("it is about another number of sites"));
        }
        let (head, body) = section.split_at_checked(header.header_len.get() as usize).ok_or_else(truncated)?;
        let bytes = sites as usize * size_of::<[u8; 3]>();
        let (entries, rest) = body.split_at_checked(bytes.next_multiple_of(4)).ok_or_else(truncated)?;
        let rest = <[U32]>::ref_from_bytes(rest).map_err(|_| truncated())?;
        let (own, sums) = rest.split_first().ok_or_else(truncated)?;
        if own.get() != super::ranges::root(companion, head, sums.as_bytes()) {
            return Err(FileError::Damaged { section: CODE, offset: 0 });
        }
        let sums = Sums::new(&[(CODE, entries)], sums).ok_or_else(truncated)?;
        let (entries, _) = entries.as_chunks();
        Ok(Code { entries, sums })
    }

    /// The sum at the site with that index.
    ///
    /// # Errors
    /// [`FileError::Damaged`] if its checksum is another.
    pub fn of(&self, site: u32) -> Result<CodeSum, FileError> {
        let Some(entry) = self.entries.get(site as usize) else { return Ok(CodeSum::NONE) };
        self.sums.touch(entry);
        self.sums.whole().map_err(|damage| FileError::Damaged { section: damage.part, offset: damage.offset })?;
        Ok(CodeSum::from_bytes(*entry))
    }
}
