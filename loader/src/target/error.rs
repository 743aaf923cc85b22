// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why there is no target, or a function cannot be looked up in it.

use crate::kernel::KernelError;
use crate::kernel::symbols::SymbolsError;
use crate::source::{Origin, SourceError};
use siteseer_sites::file::FileError;
use std::error::Error;
use std::sync::Arc;

/// Why there is no target, or a function cannot be looked up in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The running kernel cannot be used.
    #[doc(hidden)]
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Its symbols cannot be read.
    #[doc(hidden)]
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// There is no site data for it.
    #[doc(hidden)]
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no function of that name.
    #[error("there is no function {name} in this kernel{}", nearest_text(nearest))]
    Unknown {
        /// The name.
        name: String,
        /// Names like it that there are.
        nearest: Vec<String>,
    },
    /// There is no function of that name in the module.
    #[error("there is no function {name} in module {module}{}", nearest_text(nearest))]
    UnknownInModule {
        /// The module.
        module: String,
        /// The name.
        name: String,
        /// Names like it that there are.
        nearest: Vec<String>,
    },
    /// A module was named that is not loaded.
    #[error("{module}:{function}: module {module} is not loaded")]
    NotLoaded {
        /// The module.
        module: String,
        /// The function.
        function: String,
    },
    /// A module was named, and there is no usable site data for it.
    #[error("{module}:{function}")]
    NoModuleData {
        /// The module.
        module: String,
        /// The function.
        function: String,
        /// Why not.
        #[source]
        why: Arc<dyn Error + Send + Sync>,
    },
    /// The kernel's symbols do not say where its image lies.
    #[error("the kernel's symbols have no {0}: where its image lies is not known")]
    NoBase(&'static str),
    /// The site data and the kernel disagree about the layout of the image.
    #[error(
        "the site data does not fit the running kernel: by _text it is displaced by {by_text:#x}, by _stext by {by_stext:#x}"
    )]
    Displacement {
        /// By `_text`.
        by_text: u64,
        /// By `_stext`.
        by_stext: u64,
    },
    /// The site data is damaged.
    #[doc(hidden)]
    #[error("{origin}")]
    Damaged {
        /// Where they are from.
        origin: Origin,
        /// What is wrong.
        #[source]
        error: FileError,
    },
}

impl TargetError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            TargetError::Kernel(error) => error.errno(),
            TargetError::Symbols(error) => error.errno(),
            TargetError::Source(error) => error.errno(),
            TargetError::Unknown { .. } | TargetError::UnknownInModule { .. } | TargetError::NotLoaded { .. } => {
                libc::ENOENT
            }
            TargetError::NoModuleData { .. } => libc::ENODATA,
            TargetError::NoBase(_) | TargetError::Displacement { .. } | TargetError::Damaged { .. } => libc::EINVAL,
        }
    }
}

fn nearest_text(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}
