// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The site model of siteseer, and the files that carry it.
//!
//! A *function* is what the source names. The compiler leaves its body in several places; each place where
//! the body starts executing is a *site* ([`Site`]): the symbol itself, a clone of it, or an inlined copy
//! inside a caller. At each site every parameter has a *location* ([`Location`]) or a reason why it has none
//! ([`Missing`]). A location is certain, or has a [`Doubt`]. The tuple of all of them is a *location prototype*; many
//! sites share one.
//!
//! The encoder fills a [`SiteSet`] from DWARF. [`file::write`] turns it into a *site file*: an ELF file with
//! the kernel's own `.BTF`, the sites in upstream's LOC kinds as split BTF over it (`.BTF.inline`), and what
//! those kinds cannot carry in a companion section (`.BTF.inline.ext`). [`file::SiteFile`] reads it back, without
//! copying and without parsing what is not asked for. The encoder and the loader meet only here.
//!
//! A [`subset`] has the sites of a few functions on many kernels, for an application that embeds it.
//!
//! Nothing in this crate does I/O: bytes in, bytes out.

pub mod abi;
pub mod access;
#[doc(hidden)]
pub mod both;
pub mod btf;
mod causes;
pub mod code;
pub mod doubt;
pub mod earlier;
pub mod evaluate;
pub mod file;
pub mod location;
pub mod machine;
pub mod ranges;
pub mod set;
pub mod site;
pub mod subset;
mod sums;

pub use causes::with_causes;
pub use code::CodeSum;
pub use doubt::Doubt;
pub use location::{Argument, Computed, Located, Location, Missing, Op};
pub use machine::Machine;
pub use set::SiteSet;
pub use site::{Marks, Site, SiteKind, Unprobeable};
