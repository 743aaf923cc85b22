// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BTF: reading it without copying, and building split BTF over it.
//!
//! BTF is a list of types, numbered from 1, and a string table. A type is 12 bytes (name, kind and element count,
//! size or referred type) and a tail whose length follows from the kind and the count. There is no index: the only
//! way to the type of a number is over all types before it. [`Btf::parse`] makes that walk once, checks that every
//! type lies inside the section, and keeps the offsets. A file that carries some of these offsets itself (a
//! [site file](crate::file)) is opened without the walk.
//!
//! *Split* BTF continues another's numbers and string offsets: a module's over the kernel's, the sites' over
//! either. Void is type 0, and has no record.
//!
//! Nothing that a file says is trusted. Lengths are checked before they are used, numbers that lead nowhere give
//! `None`, an empty list or an error, chains of types are followed for a bounded number of steps, and memory is
//! proportional to the bytes that were given. Only little-endian BTF is read: both machines are.

mod kinds;
mod layout;
pub mod loc;
mod name;
mod names;
mod read;
mod relocate;
pub mod rules;
mod signature;
mod strings;
mod types;
mod value;
mod write;

pub use kinds::{IntEncoding, Kind, Linkage, LocsecEntry, MAGIC, MAX_VLEN, VERSION, loc_flags};
pub use layout::Layout;
pub use name::{declaration, type_name};
pub use names::NameIndex;
pub use read::{Btf, BtfError, TypeId};
pub use relocate::{RelocateError, relocate};
pub use signature::Signature;
pub use types::{Array, Enumerator, IntType, Member, Param, Type, Variable};
pub use value::format_value;
pub use write::{KnownStrings, SplitBtf};

pub(crate) use read::{CHECKPOINT_STRIDE, Outline, Stored};
pub(crate) use strings::{StringTable, Strings};
