// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The files in the folder `kernels` of the workspace.

use std::{env, path::PathBuf};

/// A file in the folder `kernels` of the workspace that this program was built in; it need not exist.
pub(crate) fn workspace_file(name: &str) -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut directory = package.as_path();
    loop {
        let path = directory.join("kernels").join(name);
        match directory.parent() {
            Some(parent) if !path.is_file() => directory = parent,
            _ => return path,
        }
    }
}
