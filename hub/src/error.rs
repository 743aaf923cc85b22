// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What can go wrong between a hub and the folder where the loader looks.

use siteseer::internals::kernel::BuildId;
use std::io;
use std::path::{Path, PathBuf};

/// What caused an error: an error of the system or of a library, or a sentence.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why site data could not be fetched, or a hub not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The server does not have it.
    #[error("{url}: not there")]
    NotThere {
        /// What was asked for.
        url: String,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("{url}")]
    Http {
        /// What was asked for.
        url: String,
        /// What went wrong.
        #[source]
        why: Cause,
    },
    /// Something else than what was asked for.
    #[error("{url}: the server sent {what} in place of a file")]
    NotAFile {
        /// What was asked for.
        url: String,
        /// What came.
        what: String,
    },
    /// More than there can be.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What is.
        what: String,
        /// How much is accepted.
        limit: u64,
    },
    /// It cannot be decompressed.
    #[error("{what}: it cannot be decompressed")]
    Packed {
        /// What cannot.
        what: String,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// There is no signature, or no key.
    #[error("{what}: {why}: it is not used unless unsigned data is allowed (--allow-unsigned)")]
    Unsigned {
        /// What is not signed.
        what: String,
        /// Why it does not count as signed.
        why: String,
    },
    /// The signature is not by a key that is known, or of something else.
    #[error("{what}")]
    Signature {
        /// What was signed.
        what: String,
        /// What is wrong.
        #[source]
        why: Cause,
    },
    /// Another build's.
    #[error("{what}: of another build: its build id is {theirs}, not {ours}")]
    Foreign {
        /// What is.
        what: String,
        /// Its build id.
        theirs: BuildId,
        /// The one that was asked for.
        ours: BuildId,
    },
    /// The build id is right, and the types are not.
    #[error("{what}: its .BTF is not the running kernel's, though the build id is")]
    OtherTypes {
        /// What is.
        what: String,
    },
    /// A file that is stored as a difference, and not what it is different from.
    #[error("{what}: it is stored as the difference from kernel {base}, which cannot be used")]
    Base {
        /// What is stored so.
        what: String,
        /// The build id of the other kernel.
        base: String,
        /// Why.
        #[source]
        why: Cause,
    },
    /// A kernel that others are stored over.
    #[error("{build_id}: kernels of the hub are stored as differences from it: remove these first: {}", others.join(", "))]
    IsBase {
        /// Its build id.
        build_id: String,
        /// The build ids of the others.
        others: Vec<String>,
    },
    /// No site data.
    #[error("{what}")]
    Malformed {
        /// What was read.
        what: String,
        /// What is wrong with it.
        #[source]
        why: Cause,
    },
    /// A file.
    #[error("{}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A folder that the loader would not believe.
    #[error("{}", path.display())]
    Place {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        why: Cause,
    },
    /// A key.
    #[error("{what}")]
    Key {
        /// Where it is from.
        what: String,
        /// What is wrong with it.
        #[source]
        why: Cause,
    },
    /// A configuration file.
    #[error("{}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        why: Cause,
    },
    /// None of the places has it.
    #[error("{what}: no site data; tried:{}", list(tried))]
    NotFound {
        /// Which kernel.
        what: String,
        /// Each place, and why it did not serve.
        tried: Vec<(String, String)>,
    },
    /// A program of the system.
    #[error("{program}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said, or why it could not be run.
        #[source]
        why: Cause,
    },
    /// It cannot be served.
    #[error("cannot serve on {address}")]
    Serve {
        /// The address.
        address: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

fn list(tried: &[(String, String)]) -> String {
    if tried.is_empty() {
        return "\n  nothing: name a place in SITESEER_URLS or a configuration file".to_owned();
    }
    let places: String = tried.iter().map(|(place, why)| format!("\n  {place}: {why}")).collect();
    format!(
        "{places}\nname another place (--url URL), or make the data from the debug image of this very kernel: siteseer \
         encode VMLINUX"
    )
}

/// What the system says about a file.
pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> HubError + '_ {
    move |error| HubError::Io { path: path.to_owned(), error }
}
