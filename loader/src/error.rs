// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The library's error: one variant per phase, each with that phase's own.

use crate::attach::AttachError;
use crate::bpf_target::BpfTargetError;
use crate::declared::DeclaredError;
use crate::function::SelectError;
use crate::kernel::KernelError;
use crate::object::ObjectError;
use crate::plan::PlanError;
use crate::register::RegisterError;
use crate::section::SectionError;
use crate::source::SourceError;
use crate::symbols::SymbolsError;
use crate::target::TargetError;
use std::sync::Arc;

/// Anything that goes wrong between a program and its link. Nothing stays attached after an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The section could not be registered with libbpf.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A function's name is malformed.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The running kernel cannot be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Its symbols cannot be read.
    #[error(transparent)]
    Symbols(#[from] SymbolsError),
    /// There are no site data for it.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The function cannot be looked up.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A function of a BPF program cannot be a target.
    #[error(transparent)]
    BpfTarget(#[from] BpfTargetError),
    /// What the program states of the function cannot be read.
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// None of the functions of the name is the one that is meant.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The program cannot be taken over from libbpf.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The program cannot be attached to the function.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan could not be carried out.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// What was found out before, and has not been tried again.
    #[error(transparent)]
    Earlier(Arc<Error>),
}

impl Error {
    /// The number that stands for it where only a number can be given: positive, as in errno.h. See siteseer.h.
    pub fn errno(&self) -> i32 {
        let of = |error: &std::io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match self {
            Error::Register(RegisterError::Unknown { .. }) => libc::EINVAL,
            Error::Register(
                RegisterError::Handler { error, .. }
                | RegisterError::Link { error, .. }
                | RegisterError::Libbpf { by_libbpf: error, .. },
            ) => of(error),
            Error::Earlier(error) => error.errno(),
            Error::Section(_) | Error::Declared(_) => libc::EINVAL,
            Error::Kernel(error) => match error {
                KernelError::Machine(_) | KernelError::NoBuildId => libc::EOPNOTSUPP,
                KernelError::Uname(error) | KernelError::Read { error, .. } => of(error),
            },
            Error::Symbols(error) => match error {
                SymbolsError::Read { error, .. } => of(error),
                SymbolsError::Restricted { .. } => libc::EPERM,
                SymbolsError::NoSymbols => libc::EOPNOTSUPP,
                SymbolsError::Restless => libc::EAGAIN,
            },
            Error::Source(error) => match error {
                SourceError::Read { error, .. } => of(error),
                SourceError::NotFound { .. }
                | SourceError::ModuleNotFound { .. }
                | SourceError::NotInKernel { .. }
                | SourceError::NotAsked { .. }
                | SourceError::NoSites { .. } => libc::ENODATA,
                _ => libc::EINVAL,
            },
            Error::Target(error) => match error {
                TargetError::Unknown { .. } | TargetError::UnknownInModule { .. } | TargetError::NotLoaded { .. } => {
                    libc::ENOENT
                }
                TargetError::NoModuleData { .. } => libc::ENODATA,
                _ => libc::EINVAL,
            },
            Error::BpfTarget(BpfTargetError::Info { error, .. }) => of(error),
            Error::BpfTarget(_) | Error::Select(_) => libc::ENOENT,
            Error::Object(ObjectError::Info { error, .. }) => of(error),
            Error::Object(_) => libc::EINVAL,
            Error::Plan(error) => match error {
                PlanError::Program { .. } | PlanError::Prototype { .. } => libc::EINVAL,
                PlanError::Ambiguous { .. } => libc::ENOTUNIQ,
                PlanError::Nothing { .. } | PlanError::Incomplete { .. } => libc::EADDRNOTAVAIL,
            },
            Error::Attach(error) => match error {
                AttachError::Privileges | AttachError::LockedDown { .. } => libc::EPERM,
                AttachError::TooManySites { .. } => libc::E2BIG,
                AttachError::SwitchedOff(_) => libc::EOPNOTSUPP,
                AttachError::NoFunction { .. } | AttachError::NoSuchType { .. } | AttachError::Trampoline { .. } => {
                    libc::EINVAL
                }
                AttachError::Licence { .. } => libc::EACCES,
                AttachError::Twice { .. } => libc::EBUSY,
                AttachError::ModulesChange => libc::EAGAIN,
                AttachError::Modules(error)
                | AttachError::Files { error, .. }
                | AttachError::Btf { error, .. }
                | AttachError::Verifier { error, .. }
                | AttachError::Map { error, .. }
                | AttachError::Arm { error, .. } => of(error),
            },
        }
    }
}
