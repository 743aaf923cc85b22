// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a function cannot be explained or checked.

use crate::plan::PlanError;
use crate::program::declared::DeclaredError;
use crate::program::section::SectionError;
use crate::target::TargetError;
use crate::target::function::SelectError;

/// Why a function cannot be explained or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// Its name is malformed.
    #[error(transparent)]
    Section(#[from] SectionError),
    /// It cannot be looked up.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// What the program states of it cannot be read.
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// None of the functions of the name is the one that is meant.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// Its sites cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ExplainError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            ExplainError::Section(_) | ExplainError::Declared(_) => libc::EINVAL,
            ExplainError::Target(error) => error.errno(),
            ExplainError::Select(_) => libc::ENOENT,
            ExplainError::Plan(error) => error.errno(),
        }
    }
}
