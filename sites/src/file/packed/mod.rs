// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site files in columns, to be compressed and kept: the *packed* form. docs/format.md, section 10, describes it.
//!
//! A site file is searched where it lies, so it has records of a fixed size, orders by name, and checksums. A
//! compressor makes little of that: numbers of one kind lie 20 bytes apart, and what is only another order of what is
//! there already is stored again. The packed form has the numbers of each kind side by side (a *column*), mostly as the
//! distance from a number that is close, and lacks what follows from the rest. What comes out of [`unpack`] is byte for
//! byte what was given to [`pack`].
//!
//! Several files are packed together, as a kernel's modules are: their columns are one after the other. The kernel's
//! `.BTF`, which a machine that runs the kernel has, can be left out, and is then needed to unpack.
//!
//! This is not compression: that is for a library to do afterwards.
//!
//! A packed file may be damaged or hostile. Every number that comes out of a column is looked at before it is used, and
//! the bytes that come out are counted before there are any: [`unpack`] is told how many may.

mod coder;
mod columns;
mod places;
mod sections;
mod types;

use self::coder::{COLUMNS, Coder, Stop, Words};
use self::sections::{Beside, Parts};
use super::elf::Sections;
use super::ext::Ext;
use super::leb::Input;
use std::mem;

const MAGIC: &[u8; 8] = b"SITEPACK";
const VERSION: u32 = 1;
/// The header, and what it says of each column: its number and its length.
const HEADER: usize = 16;
const ENTRY: usize = 8;

/// Why packed files cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// Not packed files.
    #[error("not packed site files")]
    Magic,
    /// Another version.
    #[error("packed site files of version {0}, which is not supported: another release of siteseer wrote them")]
    Version(u32),
    /// Something is missing or contradicts the rest.
    #[error("damaged packed site files, or packed with another kernel's .BTF")]
    Malformed,
    /// More would come out than may.
    #[error("more than {0} bytes come out of the packed site files")]
    TooLarge(usize),
}

/// What a file is packed as.
mod kind {
    /// As it is.
    pub(super) const PLAIN: u32 = 0;
    /// A site file, in columns.
    pub(super) const SITES: u32 = 1;
    /// BTF, in columns.
    pub(super) const BTF: u32 = 2;
    /// A site file with sums of code, in columns.
    pub(super) const SITES_AND_CODE: u32 = 3;
}

/// Packs site files, or BTF. `btf` is the `.BTF` of the kernel that they are for, if it is at hand when they are
/// unpacked. What is not a site file of this release's format is packed as it is.
pub fn pack(files: &[&[u8]], btf: Option<&[u8]>) -> Vec<u8> {
    let beside = btf.and_then(Beside::new);
    let mut coder = Coder::pack();
    // Numbers fit: no column is longer than the files, and those have offsets of 32 bits.
    let _ = coder.number(columns::CONTROL, files.len() as u32);
    for file in files {
        one(&mut coder, file, beside.as_ref());
    }
    let Coder::Pack(packed) = coder else { return Vec::new() };
    let used: Vec<(u32, Vec<u8>)> = (0u32..).zip(packed).filter(|(_, column)| !column.is_empty()).collect();
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(used.len() as u32).to_le_bytes());
    for (number, column) in &used {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&(column.len() as u32).to_le_bytes());
    }
    used.iter().for_each(|(_, column)| out.extend_from_slice(column));
    out
}

/// Packs one file, if possible in columns: they are tried, and taken if the file comes out.
fn one(coder: &mut Coder<'_>, file: &[u8], beside: Option<&Beside<'_>>) {
    let Coder::Pack(before) = &*coder else { return };
    let lengths: Vec<usize> = before.iter().map(Vec::len).collect();
    let packed = |coder: &mut Coder<'_>| -> Result<Vec<u8>, Stop> {
        let Ok(sections) = Sections::find(file) else {
            coder.number(columns::CONTROL, kind::BTF)?;
            return Ok(types::btf(coder, file, columns::BTF, 1)?.bytes);
        };
        let code = sections.code.unwrap_or_default();
        coder.number(columns::CONTROL, if code.is_empty() { kind::SITES } else { kind::SITES_AND_CODE })?;
        let ext = sections.ext.and_then(|ext| Ext::parse(ext).ok()).ok_or(Stop::Malformed)?;
        let parts = Parts {
            machine: sections.machine.to_elf(),
            build_id: sections.build_id,
            btf: sections.btf,
            inline: sections.inline.unwrap_or_default(),
            ext: Some(ext),
            ranges: sections.ranges.unwrap_or_default(),
            code,
        };
        sections::file(coder, &parts, beside, !code.is_empty())
    };
    let sum = crc32fast::hash(file);
    if packed(coder).is_ok_and(|out| out == file) {
        let _ = coder.number(columns::CONTROL, sum);
        return;
    }
    if let Coder::Pack(columns) = coder {
        columns.iter_mut().zip(lengths).for_each(|(column, len)| column.truncate(len));
    }
    let _ = coder.number(columns::CONTROL, kind::PLAIN);
    let _ = coder.number(columns::CONTROL, file.len() as u32);
    let _ = coder.bytes(columns::RAW, file, file.len());
    let _ = coder.number(columns::CONTROL, sum);
}

/// Whether bytes say that they are packed files.
pub fn is_packed(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// Unpacks files that [`pack`] packed, at most so many bytes. `btf` is what [`pack`] was given.
///
/// # Errors
/// [`UnpackError`].
pub fn unpack(packed: &[u8], btf: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, UnpackError> {
    let columns = columns_of(packed)?;
    let beside = btf.and_then(Beside::new);
    let mut coder = Coder::Unpack { columns, left: limit };
    let mut files = || -> Result<Vec<Vec<u8>>, Stop> {
        let count = coder.number(columns::CONTROL, 0)?;
        let mut files = Vec::new();
        for _ in 0..count {
            coder.spend(mem::size_of::<Vec<u8>>())?;
            let file = match coder.number(columns::CONTROL, 0)? {
                kind::PLAIN => {
                    let len = coder.number(columns::CONTROL, 0)? as usize;
                    coder.spend(len)?;
                    coder.bytes(columns::RAW, &[], len)?
                }
                kind::SITES => sections::file(&mut coder, &Parts::default(), beside.as_ref(), false)?,
                kind::SITES_AND_CODE => sections::file(&mut coder, &Parts::default(), beside.as_ref(), true)?,
                kind::BTF => types::btf(&mut coder, &[], columns::BTF, 1)?.bytes,
                _ => return Err(Stop::Malformed),
            };
            // Also if the kernel's .BTF is another: then other numbers followed from it.
            if coder.number(columns::CONTROL, 0)? != crc32fast::hash(&file) {
                return Err(Stop::Malformed);
            }
            files.push(file);
        }
        Ok(files)
    };
    files().map_err(|stop| match stop {
        Stop::Malformed => UnpackError::Malformed,
        Stop::TooLarge => UnpackError::TooLarge(limit),
    })
}

/// The columns of packed files.
fn columns_of(packed: &[u8]) -> Result<Vec<Input<'_>>, UnpackError> {
    let rest = packed.strip_prefix(MAGIC).ok_or(UnpackError::Magic)?;
    let [version, used] = Words(rest).peek();
    if version != VERSION {
        return Err(UnpackError::Version(version));
    }
    let (entries, mut rest) = packed
        .get(HEADER..)
        .and_then(|rest| rest.split_at_checked((used as usize).saturating_mul(ENTRY)))
        .ok_or(UnpackError::Malformed)?;
    let mut columns: Vec<Input<'_>> = (0..COLUMNS).map(|_| Input(&[])).collect();
    for entry in entries.chunks_exact(ENTRY) {
        let [number, len] = Words(entry).peek();
        let column = columns.get_mut(number as usize).ok_or(UnpackError::Malformed)?;
        (column.0, rest) = rest.split_at_checked(len as usize).ok_or(UnpackError::Malformed)?;
    }
    if rest.is_empty() { Ok(columns) } else { Err(UnpackError::Malformed) }
}

/// The columns of packed files by the part that they describe, to see where the bytes are.
///
/// # Errors
/// [`UnpackError`].
pub fn parts(packed: &[u8]) -> Result<Vec<(&'static str, Vec<u8>)>, UnpackError> {
    let mut parts: Vec<(&'static str, Vec<u8>)> = Vec::new();
    for (number, column) in columns_of(packed)?.into_iter().enumerate().filter(|(_, column)| !column.0.is_empty()) {
        let name = columns::name(number);
        match parts.iter_mut().find(|(other, _)| *other == name) {
            Some((_, part)) => part.extend_from_slice(column.0),
            None => parts.push((name, column.0.to_vec())),
        }
    }
    Ok(parts)
}
