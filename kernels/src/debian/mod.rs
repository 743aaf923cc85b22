// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Debian's archive: kernels, headers and sources are packages of it.
//!
//! A suite of the host's mirror is read by apt itself, with private state and private configuration, so that any suite
//! and architecture can be read from any host and nothing of the host is touched (`apt.rs`). What is fetched is checked
//! against the signed index (`download.rs`) and unpacked (`unpack.rs`).

mod apt;
mod debug_modules;
mod download;
pub(crate) mod headers;
pub(crate) mod kernel;
mod sources;
pub(crate) mod suite;
pub(crate) mod unpack;
mod version;

use std::path::Path;

pub(crate) use self::apt::Package;
pub use self::debug_modules::{DebugModules, debug_modules};
use crate::error::{GetError, MIRROR_VARIABLE};

/// The Debian mirror to use.
pub(crate) fn mirror() -> Result<sources::Source, GetError> {
    match std::env::var(MIRROR_VARIABLE) {
        Ok(uri) if !uri.is_empty() => Ok(sources::Source::plain(uri)),
        _ => sources::debian_mirror(Path::new("/")).ok_or(GetError::NoMirror),
    }
}

/// The line of a sources.list(5) for a suite of the host's Debian mirror.
pub(crate) fn source_line(suite: &str) -> Result<String, GetError> {
    Ok(apt::source_line(&mirror()?, suite))
}

/// How the host's apt reaches servers: its `Acquire` settings.
pub(crate) fn acquire_settings() -> Result<Vec<String>, GetError> {
    Ok(apt::acquire_settings(&apt::dump()?))
}

/// A version as a folder's name: `:` means something to programs that take lists of paths.
pub(crate) fn folder_name(version: &str) -> String {
    version.replace([':', '/'], "_")
}
