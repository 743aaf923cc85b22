// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds guest programs: static, in a target directory of their own.
//!
//! A guest program is linked statically (`+crt-static`), because the initramfs has no dynamic loader. The flag changes
//! every crate below it, so these builds live in `<target>/guest`, apart from the ordinary ones: neither invalidates the
//! other, and a build started from within `cargo test` does not wait for the lock its own parent holds.

use std::{
    env,
    ffi::OsString,
    io,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde::Deserialize;

use crate::arch::Arch;

/// Why a guest program could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// This machine's architecture is none that guests run on.
    #[error("guest programs cannot be built on {0}")]
    Host(&'static str),
    /// Cargo could not be started.
    #[error("cannot run {program:?}: {error}")]
    Start {
        /// What was started.
        program: OsString,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// Cargo failed.
    #[error("cargo failed ({status}): {arguments}\n{output}")]
    Failed {
        /// Its exit status.
        status: String,
        /// What it was asked.
        arguments: String,
        /// What it said.
        output: String,
    },
    /// `cargo metadata` said something else than expected.
    #[error("cannot understand what `cargo metadata` says: {0}")]
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

/// [`build_guest`] for a given architecture. For another than this machine's, cargo needs the target's standard library
/// and a linker for it.
///
/// # Errors
/// As [`build_guest`].
pub fn build_guest_for(arch: Arch, package: &str, bin: &str, profile: &str) -> Result<PathBuf, BuildError> {
    let target = target_directory()?.join("guest");
    let triple = arch.triple();
    let target_argument = target.to_string_lossy().into_owned();
    cargo(
        &[
            "build",
            "--quiet",
            "--package",
            package,
            "--bin",
            bin,
            "--profile",
            profile,
            "--target",
            triple,
            "--target-dir",
            &target_argument,
        ],
        true,
    )?;
    // The profile `dev` (and `test`, which builds upon it) has this one irregular directory name.
    let directory = if matches!(profile, "dev" | "test") { "debug" } else { profile };
    let program = target.join(triple).join(directory).join(bin);
    if !program.is_file() {
        return Err(BuildError::Missing(program));
    }
    Ok(program)
}

/// The workspace's target directory, whatever set it.
fn target_directory() -> Result<PathBuf, BuildError> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"], false)?;
    let metadata: Metadata = serde_json::from_slice(&output).map_err(BuildError::Metadata)?;
    Ok(metadata.target_directory)
}

/// Runs cargo in the package's directory and returns its standard output.
fn cargo(arguments: &[&str], is_static: bool) -> Result<Vec<u8>, BuildError> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null());
    // Cargo tells the programs that it runs where their package is. One that is started otherwise works on the workspace
    // that it was built in, if that is still there.
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    if package.is_dir() {
        command.current_dir(package);
    }
    if is_static {
        let mut flags = env::var("RUSTFLAGS").unwrap_or_default();
        flags.push_str(" -C target-feature=+crt-static -C relocation-model=static");
        // Set by cargo for what it runs, it would win over RUSTFLAGS.
        command.env("RUSTFLAGS", flags.trim_start()).env_remove("CARGO_ENCODED_RUSTFLAGS");
    }
    let output = command.output().map_err(|error| BuildError::Start { program: program.clone(), error })?;
    if !output.status.success() {
        return Err(BuildError::Failed {
            status: output.status.to_string(),
            arguments: arguments.join(" "),
            output: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        });
    }
    Ok(output.stdout)
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
