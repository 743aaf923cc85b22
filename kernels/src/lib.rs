// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The kernels of the matrix: which there are, where they are kept, where they come from; and what is built for them.
//!
//! `kernels/matrix.toml` describes the rows ([`Matrix`]). A row is resolved to the newest packages of its suite
//! (`debian/`). What is fetched is checked and unpacked into a cache ([`Getter`]): a kernel that Debian built
//! (`debian/kernel.rs`), or one that is built from sources (`build/`) in a build root ([`buildroot`]). Modules are
//! built for either ([`modules`]).
//!
//! ```text
//! ${XDG_CACHE_HOME:-$HOME/.cache}/siteseer/kernels/NAME/
//!     current -> VERSION     the entry in use, replaced in one step
//!     VERSION/               vmlinuz, vmlinux, kernel.json: complete or absent. One that a compiler's plugin had a
//!                            part in (`build/plugin.rs`) has no vmlinuz
//!     VERSION/tree/          of a kernel that was built here, what modules for it are built with
//!     VERSION/headers/       the same of one that Debian built, when it was first asked for (`debian/headers.rs`)
//!     VERSION/modules/       modules that were built for it ([`crate::modules`])
//!     checked                when the suite was last asked whether there is a newer one (its modification time)
//!     lock                   held by who changes any of this
//!     apt/, download/        apt's state; packages on their way
//! ```
//!
//! Readers need no lock: they follow `current` once and use the folder that it leads to, which stays when a newer one
//! comes (the one before it is removed then).

mod arch;
mod build;
pub mod buildroot;
pub mod cache;
mod causes;
pub mod child;
mod chosen;
mod config;
mod debian;
mod error;
mod get;
pub mod image;
mod lock;
pub mod log;
mod matrix;
mod module_tree;
pub mod modules;
mod own_data;
mod partial;
mod record;
mod wanted;
mod workspace;

pub use self::{
    arch::{Arch, UnknownArch},
    causes::with_causes,
    chosen::{DEBIAN, REFERENCE, chosen},
    config::{ConfigError, Lost},
    debian::{DebugModules, debug_modules},
    error::GetError,
    get::Getter,
    matrix::{BuiltRow, DebianRow, How, Matrix, MatrixError, PackageFile, Plugin, Row, workspace_matrix},
    own_data::own_site_data,
    record::{BuildRecipe, BuildRecord, KernelPaths, KernelRecord, PackageRecord, cache_directory, cached},
    wanted::{Absent, for_test},
};
