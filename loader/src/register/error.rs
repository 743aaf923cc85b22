// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why siteseer cannot do its part inside of libbpf's calls.

use crate::attach::AttachError;
use crate::bpf::call::errno;
use crate::explain::ExplainError;
use crate::plan::PlanError;
use crate::program::section::SectionError;
use crate::target::TargetError;
use std::io;
use std::sync::Arc;

/// Why siteseer cannot do its part inside of libbpf's calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// A function's name is malformed.
    #[doc(hidden)]
    #[error(transparent)]
    Section(#[from] SectionError),
    /// There is no target that programs could be attached to.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The same, found out before, and not tried again.
    #[error(transparent)]
    Earlier(Arc<TargetError>),
    /// A function cannot be looked up.
    #[doc(hidden)]
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// A program cannot be attached to the function.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A program was not attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// libbpf refused a handler.
    #[error("libbpf does not accept a handler for SEC(\"{section}\")")]
    Handler {
        /// The section.
        section: &'static str,
        /// What libbpf said.
        #[source]
        error: io::Error,
    },
    /// The application opens its objects with another copy of libbpf than the one that siteseer registers with.
    #[error(
        "there are two copies of libbpf in this process: the application calls the one in {theirs}, siteseer the one \
         in {ours}, and its handlers would never be asked. Link one libbpf only"
    )]
    TwoLibbpfs {
        /// The file that has the application's copy.
        theirs: String,
        /// The file that has siteseer's.
        ours: String,
    },
    /// The program was opened before the sections were registered, or is in another section.
    #[error("program {program} was not opened after siteseer::register(), in a section of siteseer's")]
    Unknown {
        /// The program's name.
        program: String,
    },
    /// Neither siteseer nor libbpf can attach it.
    #[error("plain libbpf does not attach it, either ({by_libbpf})")]
    Libbpf {
        /// What libbpf said.
        by_libbpf: io::Error,
        /// Why siteseer does not.
        #[source]
        error: Box<RegisterError>,
    },
    /// The kernel's BTF does not have the function.
    #[error("there is no function {function} in the kernel's BTF, where bpf_program__set_attach_target() looks for it")]
    NoFunc {
        /// Its name.
        function: String,
    },
    /// A link for libbpf could not be made.
    #[error("a struct bpf_link for {what}")]
    Link {
        /// What failed.
        what: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

impl RegisterError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            RegisterError::Section(_) | RegisterError::Unknown { .. } => libc::EINVAL,
            RegisterError::NoFunc { .. } => libc::ENOENT,
            RegisterError::TwoLibbpfs { .. } => libc::EEXIST,
            RegisterError::Target(error) => error.errno(),
            RegisterError::Earlier(error) => error.errno(),
            RegisterError::Explain(error) => error.errno(),
            RegisterError::Plan(error) => error.errno(),
            RegisterError::Attach(error) => error.errno(),
            RegisterError::Handler { error, .. }
            | RegisterError::Link { error, .. }
            | RegisterError::Libbpf { by_libbpf: error, .. } => errno(error),
        }
    }
}
