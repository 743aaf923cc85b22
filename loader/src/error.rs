// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The library's error: that of each phase becomes one of it, by `?`.
//!
//! It stands above all phases, and none of them knows it: each has an error of its own, which says what can go wrong
//! there. Those hold each other as the phases use each other; here they are told apart once, by the kind of failure.

use crate::attach::AttachError;
use crate::explain::ExplainError;
use crate::kernel::KernelError;
use crate::kernel::symbols::SymbolsError;
use crate::plan::PlanError;
use crate::program::declared::DeclaredError;
use crate::program::object::ObjectError;
use crate::program::section::SectionError;
use crate::register::RegisterError;
use crate::source::SourceError;
use crate::target::TargetError;
use crate::target::bpf_program::BpfTargetError;
use crate::target::function::SelectError;
use std::sync::Arc;

/// Anything that goes wrong between a program and its link. Nothing stays attached after an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The section could not be registered with libbpf.
    #[error(transparent)]
    Register(RegisterError),
    /// A function's name is malformed.
    #[doc(hidden)]
    #[error(transparent)]
    Section(#[from] SectionError),
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
    /// The function cannot be looked up.
    #[error(transparent)]
    Target(TargetError),
    /// A function of a BPF program cannot be a target.
    #[doc(hidden)]
    #[error(transparent)]
    BpfTarget(#[from] BpfTargetError),
    /// What the program states of the function cannot be read.
    #[doc(hidden)]
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// None of the functions of the name is the one that is meant.
    #[doc(hidden)]
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The program cannot be taken over from libbpf.
    #[doc(hidden)]
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The program cannot be attached to the function.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan could not be carried out.
    #[error(transparent)]
    Attach(AttachError),
    /// What was found out before, and has not been tried again.
    #[error(transparent)]
    Earlier(Arc<TargetError>),
}

impl From<TargetError> for Error {
    fn from(error: TargetError) -> Error {
        match error {
            TargetError::Kernel(error) => error.into(),
            TargetError::Symbols(error) => error.into(),
            TargetError::Source(error) => error.into(),
            other => Error::Target(other),
        }
    }
}

impl From<AttachError> for Error {
    fn from(error: AttachError) -> Error {
        match error {
            AttachError::Section(error) => error.into(),
            AttachError::Target(error) => error.into(),
            AttachError::BpfTarget(error) => error.into(),
            AttachError::Declared(error) => error.into(),
            AttachError::Select(error) => error.into(),
            AttachError::Object(error) => error.into(),
            AttachError::Plan(error) => error.into(),
            other => Error::Attach(other),
        }
    }
}

#[doc(hidden)]
impl From<ExplainError> for Error {
    fn from(error: ExplainError) -> Error {
        match error {
            ExplainError::Section(error) => error.into(),
            ExplainError::Target(error) => error.into(),
            ExplainError::Declared(error) => error.into(),
            ExplainError::Select(error) => error.into(),
            ExplainError::Plan(error) => error.into(),
        }
    }
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Error {
        match error {
            RegisterError::Section(error) => error.into(),
            RegisterError::Target(error) => error.into(),
            RegisterError::Earlier(error) => Error::Earlier(error),
            RegisterError::Explain(error) => error.into(),
            RegisterError::Plan(error) => error.into(),
            RegisterError::Attach(error) => error.into(),
            other => Error::Register(other),
        }
    }
}

impl Error {
    /// The number that stands for it where only a number can be given: positive, as in errno.h. See siteseer.h.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Register(error) => error.errno(),
            Error::Section(_) | Error::Declared(_) => libc::EINVAL,
            Error::Kernel(error) => error.errno(),
            Error::Symbols(error) => error.errno(),
            Error::Source(error) => error.errno(),
            Error::Target(error) => error.errno(),
            Error::BpfTarget(error) => error.errno(),
            Error::Select(_) => libc::ENOENT,
            Error::Object(error) => error.errno(),
            Error::Plan(error) => error.errno(),
            Error::Attach(error) => error.errno(),
            Error::Earlier(error) => error.errno(),
        }
    }
}
