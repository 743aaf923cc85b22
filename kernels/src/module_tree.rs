// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What modules for a kernel are built with, whoever built the kernel.

use std::path::PathBuf;

/// What modules for a kernel are built with, as kbuild is told of it.
#[derive(Debug)]
pub(crate) struct ModuleTree {
    /// Folders and files of the host, and where the build root must have them.
    pub(crate) mounts: Vec<(PathBuf, String)>,
    /// Words for make.
    pub(crate) arguments: Vec<String>,
    /// Whether there is a program that fills in the BTF ids that a module's code refers to (`.BTF_ids`).
    pub(crate) resolves_btf_ids: bool,
    /// Tells it from others.
    pub(crate) made_of: String,
}
