// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The library's error: one variant per phase, each with that phase's own.

use crate::attach::AttachError;
use crate::bpf_target::BpfTargetError;
use crate::declared::DeclaredError;
use crate::function::SelectError;
use crate::kernel::KernelError;
use crate::object::ObjectError;
use crate::plan::PlanError;
use crate::section::{RegisterError, SectionError};
use crate::source::SourceError;
use crate::symbols::SymbolsError;
use crate::target::TargetError;

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
}
