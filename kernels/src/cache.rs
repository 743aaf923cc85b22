// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Where what costs time to get is kept: `${XDG_CACHE_HOME:-$HOME/.cache}/siteseer`.

use std::{env, path::PathBuf};

/// The cache directory; it may not exist yet. None if the environment names neither a cache nor a home directory.
pub fn directory() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The XDG base directory specification: a relative value is to be ignored.
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("siteseer"))
}
