// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The figures of docs/proposal.md, from a kernel's site data (`ci/proposal`).
//!
//! | table | file |
//! |---|---|
//! | which functions need it, and what a policy costs | [`functions`] |
//! | what a policy does to ordinary tools | [`tools`] |
//! | whether entry points are known | [`entries`] |
//! | which arguments the debug information does not have, by compiler | [`missing`] |
//! | how true locations are, by form | [`truth`] |
//! | which forms of location earn their place | [`forms`] |
//! | the formats that were proposed, side by side | [`formats`] |
//! | what one link for many addresses saves, on a kernel that is patched and booted (`ci/proposal --attach`) | [`links`] |
//! | the kernel's rules on what the encoder writes, and its size (`ci/rules`) | [`rules`] |
//!
//! [`missing`] and [`truth`] include what other commands wrote into pages of their own ([`pages`]).

pub mod entries;
pub mod formats;
pub mod forms;
pub mod functions;
pub mod links;
pub mod missing;
pub mod pages;
pub mod rules;
pub mod tools;
pub mod truth;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write as _};

/// Bytes after `gzip -9`.
pub(crate) fn compressed(data: &[u8]) -> io::Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data)?;
    Ok(encoder.finish()?.len())
}
