// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why an image cannot be encoded.

use crate::elf::image::ImageError;
use siteseer_sites::btf::{BtfError, RelocateError};

/// Why an image cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The ELF image cannot be read, or lacks something.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The image's BTF cannot be read.
    #[error("section .BTF")]
    Btf(#[source] BtfError),
    /// The BTF that a module's BTF refers to was not given or cannot be read.
    #[error("a module's BTF refers to its kernel's{}", .0.as_ref().map_or(", which was not given", |_| ", which cannot be read"))]
    KernelBtf(#[source] Option<BtfError>),
    /// A module was built outside of the kernel's tree, and its types are not those of the kernel that was given.
    #[error("the module's types cannot be found in its kernel's BTF")]
    Relocate(#[source] RelocateError),
    /// The debug information is malformed.
    #[error("section {section}, offset {offset:#x}, unit {unit}")]
    Dwarf {
        /// The section.
        section: &'static str,
        /// Where in it.
        offset: u64,
        /// Name or number of the unit.
        unit: String,
        /// The reader's own words.
        #[source]
        source: gimli::Error,
    },
    /// Threads could not be started.
    #[error("cannot start threads")]
    Threads(#[source] rayon::ThreadPoolBuildError),
}
