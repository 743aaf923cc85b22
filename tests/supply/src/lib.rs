// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What siteseer is built from.
//!
//! cargo says which crates there are and which of them are linked into what is shipped (`graph`). Their licences are
//! compared with what may be linked (`licence`). Whoever gets a package gets the crates' notices (`notices`) and may
//! ask for a bill of materials (`bill`). How much `unsafe` our own crates have is counted in their tokens (`count`).
//! docs/supply-chain.md is made of all this (`page`).

pub mod bill;
pub mod count;
pub mod graph;
pub mod licence;
pub mod notices;
pub mod page;

use std::io;
use std::path::{Path, PathBuf};

/// What cannot be found out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupplyError {
    /// cargo does not run, or fails.
    #[error("cargo metadata: {said}")]
    Cargo {
        /// What it said.
        said: String,
    },
    /// A file cannot be read.
    #[error("{}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// What cargo or Cargo.lock says is not understood.
    #[error("{what}")]
    Malformed {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        why: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A source is not Rust.
    #[error("{} cannot be divided into tokens", path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
    },
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> Result<String, SupplyError> {
    std::fs::read_to_string(path).map_err(|error| SupplyError::Read { path: path.to_owned(), error })
}

/// The entries of a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, SupplyError> {
    let failed = |error| SupplyError::Read { path: folder.to_owned(), error };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}
