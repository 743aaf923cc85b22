// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The truth about a whole kernel, by what a compiler plugin wrote down: `siteseer-truth kernel`.

use clap::Args;

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A row of kernels/matrix.toml.
    pub(crate) name: Option<String>,
}
