// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Why a kernel, or a build root, could not be obtained.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{config::ConfigError, image::ImageError, matrix::MatrixError};

/// Names the mirror, if it is not to be taken from the host's apt sources.
pub(crate) const MIRROR_VARIABLE: &str = "SITESEER_DEBIAN_MIRROR";

/// Why a kernel could not be obtained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// There is no such row, or it is wrong.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The environment names no place for a cache.
    #[error("neither XDG_CACHE_HOME nor HOME is an absolute path, so there is no place for a cache")]
    NoCache,
    /// The row's name cannot be a folder's.
    #[error("{0:?} cannot be the name of a kernel")]
    Name(String),
    /// The host has no Debian mirror among its apt sources.
    #[error("no Debian mirror in /etc/apt/sources.list or sources.list.d; name one in {MIRROR_VARIABLE}")]
    NoMirror,
    /// A program is missing.
    #[error("{program} is not installed (Debian package {package})")]
    NoProgram {
        /// The program.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// apt failed at something that needs no network.
    #[error("{what} failed: {said}")]
    Apt {
        /// What was tried.
        what: String,
        /// What it said.
        said: String,
    },
    /// The suite's index could not be read.
    #[error("cannot read the index of {suite} (no network, or no such suite on the mirror): {said}")]
    Index {
        /// The suite.
        suite: String,
        /// What apt said.
        said: String,
    },
    /// The suite has no kernel of the wanted release.
    #[error("{suite} has no kernel {release} with both its packages ({image} and {debug})")]
    NoRelease {
        /// The suite.
        suite: String,
        /// The release wanted.
        release: String,
        /// The image's package.
        image: String,
        /// The debug information's package.
        debug: String,
    },
    /// The index names a package that the mirror does not have.
    #[error("{package} is in the index, and gone from the mirror: try again when the mirror is in order")]
    PackageGone {
        /// The package.
        package: String,
    },
    /// A package could not be fetched.
    #[error("cannot fetch {package}: {said}")]
    Download {
        /// The package.
        package: String,
        /// What went wrong.
        said: String,
    },
    /// What was fetched is not what the index says.
    #[error("{package} was damaged on the way: its SHA-256 is {found}, the index has {wanted}")]
    Corrupt {
        /// The package.
        package: String,
        /// What the index says.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// The file system is full.
    #[error("no space left in {path} ({} MB more are needed)", needed.div_ceil(1_000_000))]
    DiskFull {
        /// Where.
        path: PathBuf,
        /// About how much is missing, in bytes.
        needed: u64,
    },
    /// The package does not hold the file that the row names.
    #[error("{package} holds no {file}: {said}", package = package.display())]
    NotInPackage {
        /// The package's file.
        package: PathBuf,
        /// The file.
        file: String,
        /// What the unpacking programs said.
        said: String,
    },
    /// A package could not be unpacked.
    #[error("cannot unpack {package}: {said}", package = package.display())]
    Unpack {
        /// The package's file.
        package: PathBuf,
        /// What the unpacking programs said.
        said: String,
    },
    /// A package is no longer in the suite, or not in the version that is needed.
    #[error("{suite} has no {package}{}; it has {}", of_version(version.as_deref()), listed(found))]
    NoPackage {
        /// The suite.
        suite: String,
        /// The package.
        package: String,
        /// The version needed, if it must be a certain one.
        version: Option<String>,
        /// The versions that exist.
        found: Vec<String>,
    },
    /// A fragment of the configuration cannot be read.
    #[error("configuration fragment {path}", path = path.display())]
    Fragment {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A change of the sources cannot be read.
    #[error("patch {path}", path = path.display())]
    ReadPatch {
        /// Its path.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A change of the sources does not fit them.
    #[error(
        "patch {name} cannot be applied to {source_package}: {said}\nThe sources are newer than the patch: change \
         kernels/patches/{name}.patch so that it fits them"
    )]
    Patch {
        /// Its name.
        name: String,
        /// The package of sources, and its version.
        source_package: String,
        /// What is wrong with it.
        said: String,
    },
    /// The kernel's own site data could not be made.
    #[error("cannot make the site data of {name}: {said}")]
    SiteData {
        /// The row.
        name: String,
        /// Why not.
        said: String,
    },
    /// The configuration is not what the fragments ask for.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is nothing to build in.
    #[error("cannot have the build root")]
    BuildRoot(#[source] Box<BuildRootError>),
    /// The kernel could not be built.
    #[error("building {name} failed at `make {target}` ({status}); the whole log is {log}\n{said}", log = log.display())]
    Build {
        /// The row.
        name: String,
        /// What was to be made.
        target: String,
        /// make's exit status.
        status: String,
        /// Where its log is.
        log: PathBuf,
        /// The log's last lines.
        said: String,
    },
    /// Image and vmlinux are unusable or not of one build.
    #[error("image and vmlinux do not fit")]
    Image(#[from] ImageError),
    /// Something else failed on this host.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        #[source]
        error: io::Error,
    },
}

/// The end of an error's words about a version.
fn of_version(version: Option<&str>) -> String {
    version.map(|version| format!(" {version}")).unwrap_or_default()
}

fn listed(versions: &[String]) -> String {
    if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
}

impl GetError {
    /// Whether what is asked for is at fault, and not the network or the host.
    pub(crate) fn is_of_the_row(&self) -> bool {
        matches!(
            self,
            GetError::Fragment { .. }
                | GetError::ReadPatch { .. }
                | GetError::Patch { .. }
                | GetError::SiteData { .. }
                | GetError::Config(_)
                | GetError::Build { .. }
        )
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> GetError {
        let what = what.into();
        move |error| GetError::Io { what, error }
    }

    /// An error of writing to `path`.
    pub(crate) fn disk(path: &Path, what: String, error: io::Error) -> GetError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                GetError::DiskFull { path: path.to_owned(), needed: 0 }
            }
            _ => GetError::Io { what, error },
        }
    }
}

/// Why there is no build root.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildRootError {
    /// The file of rows cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    Rows {
        /// Its path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// There is no such row.
    #[error("there is no build root {name:?}; there are: {}", known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The environment names no place for a cache.
    #[error("neither XDG_CACHE_HOME nor HOME is an absolute path, so there is no place for a cache")]
    NoCache,
    /// Making one, and building in one, takes mounts and chroot(2).
    #[error("build roots require root: they are mounted and entered by chroot")]
    NotRoot,
    /// A program is missing.
    #[error("{program} is not installed (Debian package {package}): run ci/setup")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The host's apt has no mirror, or cannot be asked.
    #[error(transparent)]
    Apt(#[from] GetError),
    /// mmdebstrap failed.
    #[error("mmdebstrap failed ({status}) to make {name}:\n{said}")]
    Failed {
        /// The build root.
        name: String,
        /// Its exit status.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// Something else failed on this host.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        #[source]
        error: io::Error,
    },
}

impl BuildRootError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BuildRootError {
        let what = what.into();
        move |error| BuildRootError::Io { what, error }
    }
}
