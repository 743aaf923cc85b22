// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The conformance suite: what compilers do to functions, case by case, and what a program must then see.
//!
//! A case is a folder (tests/cases/README.md): a kernel module whose driver makes known calls, BPF programs on its
//! functions, and a table of what shows that the compiler did what the case is about and of what must come out. This
//! module runs them:
//!
//! | step | where | file |
//! |---|---|---|
//! | what the kernel was made with; which cases have a meaning for it | host | [`family`], [`conditions`] |
//! | the module is built by the kernel's own compiler, its site data encoded, the programs compiled | host | [`prepare`] |
//! | what the compiler did, from the module's symbols and DWARF | host | [`evidence`], [`conditions`] |
//! | the module is loaded, the programs attached, the calls made, the events written down | guest | [`guest`], [`job`] |
//! | what was seen against what must come out, and against wrong expectations | host | [`judge`], [`plant`] |
//! | what is known to fail | host | [`crate::guest::known`] |
//! | the plans against those of the last time | host | [`snapshot`], [`plans_file`] |
//! | all kernels side by side | host | [`run`], [`results`], [`page`], [`chart`] |
//!
//! The guest knows nothing of what must come out, so that it cannot make anything fit. What a compiler did is found out
//! by code that shares nothing with the encoder. A case that was not exercised never passes, and "unsupported" is said
//! only of what is a limit of the kernel or of the debug information ([`limits`]).

pub mod case_file;
pub mod chart;
pub mod conditions;
pub mod evidence;
pub mod family;
pub mod guest;
pub mod job;
pub mod judge;
pub mod limits;
pub mod page;
pub mod patterns;
pub mod plans_file;
pub mod plant;
pub mod prepare;
pub mod results;
pub mod run;
pub mod snapshot;
