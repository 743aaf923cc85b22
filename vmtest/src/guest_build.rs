// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds guest programs: static, in a target directory of their own.
//!
//! Guest programs of `workspace.metadata.guests` in Cargo.toml are built together, by one run of cargo.
//!
//! A guest program is linked statically (`+crt-static`), because the initramfs has no dynamic loader. The flag changes
//! every crate below it, so these builds live in `<target>/guest`, apart from the ordinary ones: neither invalidates
//! the other, and a build started from within `cargo test` does not wait for the lock its own parent holds.
//!
//! For another architecture than this machine's, a host rarely has all that it takes: a C compiler and static libelf
//! and zlib for it, besides Rust's standard library. Such programs are built in a build root
//! ([`buildroot`](siteseer_kernels::buildroot)), from the same sources and Cargo.lock, in `<target>/guest-ARCH/ROOT`.
//! The root has no network and no registry: cargo finds the dependencies vendored beside its output, by the host's
//! `cargo vendor`, which knows how to reach the registry.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde::Deserialize;

use siteseer_kernels::{
    Arch,
    buildroot::{self, BuildRoot, BuildRootError, Mount},
};

/// What links a static program that is always at the same address.
const STATIC: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// What links a static program that is somewhere else in each process. Its relocations are packed: a thirtieth of it.
const RELEASED: &str = "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs";

/// Where a build root has the workspace and the target directory.
const WORKSPACE: &str = "/build/workspace";
const TARGET: &str = "/build/target";

/// Why a guest program could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// This machine's architecture is none that guests run on.
    #[error("guest programs cannot be built on {0}")]
    Host(&'static str),
    /// Cargo could not be started.
    #[error("cannot run {program:?}")]
    Start {
        /// What was started.
        program: OsString,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Cargo, or another builder, failed.
    #[error("the build failed ({status}): {arguments}\n{output}")]
    Failed {
        /// Its exit status.
        status: String,
        /// What it was asked for.
        arguments: String,
        /// What it said.
        output: String,
    },
    /// There is no build root for the architecture.
    #[error(transparent)]
    BuildRoot(#[from] BuildRootError),
    /// A folder of the build could not be made ready.
    #[error("{path}", path = path.display())]
    Prepare {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// `cargo metadata` said something else than expected.
    #[error("cannot understand what `cargo metadata` says")]
    Metadata(#[source] serde_json::Error),
    /// The build succeeded, and the program is not where it should be.
    #[error("the build succeeded but there is no {0}")]
    Missing(PathBuf),
}

/// Builds the binary `bin` of `package` in this workspace for this machine's architecture and returns its path.
/// `profile` is cargo's name of one: `dev`, `release`.
///
/// # Errors
/// If cargo cannot be started or fails; its words are in the error.
pub fn build_guest(package: &str, bin: &str, profile: &str) -> Result<PathBuf, BuildError> {
    let arch = Arch::host().ok_or(BuildError::Host(env::consts::ARCH))?;
    build_guest_for(arch, package, bin, profile)
}

/// [`build_guest`] for a given architecture. For another than this machine's, it is built in the build root
/// `guest-ARCH`, which is made if it is not in the cache yet.
///
/// # Errors
/// As [`build_guest`], and if there is no build root for the architecture.
pub fn build_guest_for(arch: Arch, package: &str, bin: &str, profile: &str) -> Result<PathBuf, BuildError> {
    let metadata = metadata()?;
    let triple = arch.triple();
    let mut build = vec!["build", "--quiet", "--profile", profile, "--target", triple];
    let guests = metadata.guests(Arch::host() == Some(arch));
    if guests.contains(&(package, bin)) {
        build.push("--no-default-features");
        build.extend(guests.into_iter().flat_map(|(package, bin)| ["--package", package, "--bin", bin]));
    } else {
        build.extend(["--package", package, "--bin", bin]);
    }
    let target = if Arch::host() == Some(arch) {
        let target = metadata.target_directory.join("guest");
        let target_argument = target.to_string_lossy().into_owned();
        cargo(&[&build[..], &["--target-dir", &target_argument]].concat(), true)?;
        target
    } else {
        let target = metadata.target_directory.join(format!("guest-{arch}"));
        build_in_root(arch, &metadata, &build, &target, STATIC)?
    };
    built(&target, triple, profile, bin)
}

/// Builds a program for other machines: static, and always in a build root, at the same places in it, so that whoever
/// builds the same sources gets the same bytes. `target` is a folder of the host.
///
/// # Errors
/// As [`build_guest_for`].
pub fn build_release(
    arch: Arch,
    package: &str,
    bin: &str,
    profile: &str,
    target: &Path,
) -> Result<PathBuf, BuildError> {
    let triple = arch.triple();
    let build = ["build", "--package", package, "--bin", bin, "--profile", profile, "--target", triple];
    let target = build_in_root(arch, &metadata()?, &build, target, RELEASED)?;
    built(&target, triple, profile, bin)
}

/// Where cargo has put a program.
fn built(target: &Path, triple: &str, profile: &str, bin: &str) -> Result<PathBuf, BuildError> {
    // The profile `dev` (and `test`, which builds upon it) has this one irregular directory name.
    let directory = if matches!(profile, "dev" | "test") { "debug" } else { profile };
    let program = target.join(triple).join(directory).join(bin);
    if program.is_file() { Ok(program) } else { Err(BuildError::Missing(program)) }
}

/// Builds in the architecture's build root, and returns the target directory: one for each root, as cargo cannot know
/// that C libraries changed.
fn build_in_root(
    arch: Arch,
    metadata: &Metadata,
    build: &[&str],
    target: &Path,
    flags: &str,
) -> Result<PathBuf, BuildError> {
    let row = buildroot::workspace_rows()?.row(&format!("guest-{arch}"))?;
    let root = BuildRoot::get(row, false, |line| eprintln!("{line}"))?;
    let workspace = metadata.workspace_root.as_path();
    let target = target.join(root.key());
    let prepare = |path: &Path| {
        let path = path.to_owned();
        move |error| BuildError::Prepare { path, error }
    };
    fs::create_dir_all(&target).map_err(prepare(&target))?;
    vendor(workspace, &target)?;

    let triple = arch.triple();
    let gnu = arch.gnu_triple();
    let (lower, upper) = (triple.replace('-', "_"), triple.replace('-', "_").to_uppercase());
    let flags = format!("{} {flags}", env::var("RUSTFLAGS").unwrap_or_default());
    // An allocator's sources have __DATE__ and __TIME__ in a message.
    let date = env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| "0".into());
    let environment = [
        ("HOME", TARGET.to_owned()),
        ("CARGO_HOME", format!("{TARGET}/cargo")),
        ("CARGO_TARGET_DIR", TARGET.to_owned()),
        ("RUSTFLAGS", flags.trim_start().to_owned()),
        ("SOURCE_DATE_EPOCH", date),
        (&format!("CARGO_TARGET_{upper}_LINKER"), format!("{gnu}-gcc")),
        (&format!("CC_{lower}"), format!("{gnu}-gcc")),
        (&format!("AR_{lower}"), format!("{gnu}-ar")),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    let vendored = format!("source.vendored.directory=\"{TARGET}/{VENDOR}\"");
    let manifest = format!("{WORKSPACE}/Cargo.toml");
    let mut program = vec!["cargo"];
    program.extend_from_slice(build);
    program.extend(["--locked", "--offline", "--manifest-path", &manifest]);
    program.extend(["--config", "source.crates-io.replace-with=\"vendored\"", "--config", &vendored]);
    let words: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
    let mounts = [Mount::read_only(workspace, WORKSPACE), Mount::writable(&target, TARGET)];
    let mut command = root.command(&mounts, &environment, &words);
    let output = command.output().map_err(|error| BuildError::Start { program: "unshare".into(), error })?;
    check(&output, &program)?;
    Ok(target)
}

/// Where dependencies are put, in the target directory.
const VENDOR: &str = "vendor";

/// Puts the dependencies of Cargo.lock into the target directory, unless they are there.
fn vendor(workspace: &Path, target: &Path) -> Result<(), BuildError> {
    let prepare = |path: PathBuf| move |error| BuildError::Prepare { path, error };
    let lock_path = target.join("vendor.lock");
    let lock = fs::File::create(&lock_path).map_err(prepare(lock_path.clone()))?;
    lock.lock().map_err(prepare(lock_path))?;
    let wanted_path = workspace.join("Cargo.lock");
    let wanted = fs::read(&wanted_path).map_err(prepare(wanted_path))?;
    let done = target.join("vendor.done");
    if fs::read(&done).is_ok_and(|vendored| vendored == wanted) {
        return Ok(());
    }
    let directory = target.join(VENDOR).to_string_lossy().into_owned();
    cargo(&["vendor", "--locked", "--versioned-dirs", "--quiet", &directory], false)?;
    fs::write(&done, wanted).map_err(prepare(done))
}

/// What `cargo metadata` says about the workspace.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    /// Whatever set it.
    pub(crate) target_directory: PathBuf,
    pub(crate) workspace_root: PathBuf,
    /// `workspace.metadata` of Cargo.toml.
    #[serde(default)]
    metadata: Option<OfWorkspace>,
}

#[derive(Deserialize)]
struct OfWorkspace {
    /// Programs that are built together, by package.
    #[serde(default)]
    guests: BTreeMap<String, String>,
    /// More of them for guests of this machine's architecture.
    #[serde(default, rename = "guests-here")]
    guests_here: BTreeMap<String, String>,
}

impl Metadata {
    /// The packages and programs that are built together.
    fn guests(&self, are_here: bool) -> Vec<(&str, &str)> {
        let Some(OfWorkspace { guests, guests_here }) = &self.metadata else { return Vec::new() };
        let here = are_here.then_some(guests_here).into_iter().flatten();
        guests.iter().chain(here).map(|(package, bin)| (package.as_str(), bin.as_str())).collect()
    }
}

pub(crate) fn metadata() -> Result<Metadata, BuildError> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"], false)?;
    serde_json::from_slice(&output).map_err(BuildError::Metadata)
}

/// Runs cargo in the package's directory and returns its standard output.
fn cargo(arguments: &[&str], is_static: bool) -> Result<Vec<u8>, BuildError> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null());
    // Cargo tells the programs that it runs where their package is. One that is started otherwise works on the
    // workspace that it was built in, if that is still there.
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    if package.is_dir() {
        command.current_dir(package);
    }
    if is_static {
        let flags = format!("{} {STATIC}", env::var("RUSTFLAGS").unwrap_or_default());
        // Set by cargo for what it runs, it would win over RUSTFLAGS.
        command.env("RUSTFLAGS", flags.trim_start()).env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    let output = command.output().map_err(|error| BuildError::Start { program: program.clone(), error })?;
    check(&output, arguments)?;
    Ok(output.stdout)
}

/// Cargo's words, or another builder's, if it failed.
pub(crate) fn check(output: &Output, arguments: &[&str]) -> Result<(), BuildError> {
    if output.status.success() {
        return Ok(());
    }
    Err(BuildError::Failed {
        status: output.status.to_string(),
        arguments: arguments.join(" "),
        output: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_words_are_in_the_error() {
        let error = build_guest("siteseer-vmtest", "no-such-program", "dev").unwrap_err();
        assert!(matches!(error, BuildError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
