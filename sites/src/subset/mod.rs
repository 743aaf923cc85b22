// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of a few functions on many kernels, in one file that an application embeds.
//!
//! An application attaches to ten functions, and wants to run on a thousand kernels. The site files of these kernels
//! are 30 GB. A *subset* has what they say about the ten functions. It does not have what the machine has: the kernel's
//! BTF, to which it refers by numbers of types. [`Image::site_set`] joins both, and [`crate::file::write`] makes of
//! them a site file of the kernel, which is read as any other.
//!
//! Most of what is said about a function is the same on many kernels: the next point release has the same copies, in
//! the same places of the same callers, with their arguments in the same registers. What differs nearly always is where
//! the callers are, and the numbers of types. So what is said about a function is split in two. Its *shape* is
//! everything but addresses and numbers of types. Each shape is stored once, and in it refers to sites and location
//! prototypes, which are stored once too. A kernel's record names the shape of each function, followed by the addresses
//! and numbers that fill it.
//!
//! Which functions the makers asked for is in the file as well: of any other function the file knows nothing, and
//! whoever reads it must not take that for a function without sites.
//!
//! docs/format.md describes the bytes, in section 8. The reader trusts none of them.

mod read;
mod write;

pub use read::{Image, Subset};
pub use write::SubsetWriter;

use crate::btf::BtfError;
use crate::file::{FileError, WriteError};

/// The first bytes of a subset.
pub const MAGIC: [u8; 8] = *b"SITESUB\0";
/// The version of the format.
const VERSION: u32 = 1;
/// Bytes of the header before its list of tables.
const HEADER: usize = 16;
/// How many tables there are.
const TABLES: usize = 11;

/// The tables, by number.
mod table {
    pub(super) const IMAGES: usize = 0;
    pub(super) const RECORDS: usize = 1;
    pub(super) const FUNCTIONS: usize = 2;
    pub(super) const FUNCTION_BYTES: usize = 3;
    pub(super) const SITES: usize = 4;
    pub(super) const SITE_BYTES: usize = 5;
    pub(super) const PROTOTYPES: usize = 6;
    pub(super) const PROTOTYPE_BYTES: usize = 7;
    pub(super) const STRINGS: usize = 8;
    pub(super) const ASKED: usize = 9;
    pub(super) const CHECKSUMS: usize = 10;
}

/// How a type that another refers to is written: void, a type of the kernel's, which the record names, or one of the
/// shape's own.
mod reference {
    pub(super) const VOID: u64 = 0;
    pub(super) const KERNELS: u64 = 1;
    pub(super) const FIRST_OWN: u64 = 2;
}

/// Why a subset cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubsetError {
    /// Something else.
    #[error("not a subset of site data: it does not begin with SITESUB")]
    Magic,
    /// Made by another release.
    #[error("the subset has version {0}, which is not supported: it was written by another release")]
    Version(u32),
    /// The header or a table is not inside the file, or has another length than it must.
    #[error("the subset is cut, or its {0} is malformed")]
    Table(&'static str),
    /// What was read is not what was written.
    #[error("the subset is damaged at {offset:#x}")]
    Damaged {
        /// Where the damaged block begins.
        offset: usize,
    },
    /// A record contradicts the rest.
    #[error("damaged subset: {what} {index}")]
    Corrupt {
        /// What was read.
        what: &'static str,
        /// Its number, or where it is.
        index: u32,
    },
    /// The types are those of another kernel.
    #[error("the subset is for other types: its kernel's .BTF has {length} bytes and the checksum {checksum:#010x}")]
    OtherTypes {
        /// Bytes of the BTF that it is over.
        length: u64,
        /// Their CRC-32.
        checksum: u32,
    },
    /// A module's types continue its kernel's, which were not given; or an image's do not, and they were.
    #[error("{0}")]
    Base(&'static str),
    /// Malformed BTF.
    #[error(".BTF")]
    Btf(#[from] BtfError),
    /// The names in an image take more memory than a file of this size justifies.
    #[error("the subset takes more memory than a file of this size can need")]
    TooLarge,
    /// Site data from which no subset can be made.
    #[error("no subset can be made of it: {0}")]
    Unsuitable(&'static str),
    /// Two images of one build id.
    #[error("an image with the build id {0} is in the subset already")]
    Twice(String),
    /// A type that cannot be taken along.
    #[error("type {id} of kind {kind} cannot be taken into a subset")]
    Type {
        /// Its number.
        id: u32,
        /// Its kind.
        kind: u8,
    },
    /// The site data is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// What was read contradicts itself.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// More than the format can number.
    #[error("more than 4 GB of {0}")]
    TooMany(&'static str),
}
