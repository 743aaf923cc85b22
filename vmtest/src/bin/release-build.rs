// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds the command as one static program for other machines; what `ci/release` runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use siteseer_vmtest::{Arch, build_release, with_causes};

/// Package, program and profile of what is released.
const RELEASED: (&str, &str, &str) = ("siteseer-cli", "siteseer", "dist");

/// A program of more bytes is not released: people fetch it to have a look.
const MOST_BYTES: usize = 10_000_000;

/// Build the static siteseer command for both architectures, and print the paths of the programs
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Folder for the programs: siteseer-VERSION-ARCH
    folder: PathBuf,
    /// Where they are built
    #[arg(long, default_value = "target/release-static")]
    target: PathBuf,
    /// Architectures
    #[arg(long, value_delimiter = ',', default_values_t = Arch::ALL)]
    arch: Vec<Arch>,
    /// Build each once more from nothing, and fail if that gives other bytes
    #[arg(long)]
    twice: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("release-build: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(&arguments.folder)?;
    let target = std::path::absolute(&arguments.target)?;
    for &arch in &arguments.arch {
        let bytes = build(arch, &target.join(arch.to_string()))?;
        if arguments.twice {
            let again = target.join(format!("{arch}-again"));
            match fs::remove_dir_all(&again) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            if build(arch, &again)? != bytes {
                return Err(
                    format!("{arch}: two builds differ: compare the programs below {}", target.display()).into()
                );
            }
            fs::remove_dir_all(&again)?;
            eprintln!("{arch}: two builds are the same, {} bytes", bytes.len());
        }
        check_size(arch, bytes.len())?;
        let path = arguments.folder.join(format!("siteseer-{}-{arch}", env!("CARGO_PKG_VERSION")));
        // A program may be running.
        let new = path.with_extension("new");
        fs::write(&new, bytes)?;
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        fs::rename(&new, &path)?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Refuses a program that is too large.
fn check_size(arch: Arch, bytes: usize) -> Result<(), String> {
    eprintln!("{arch}: {bytes} bytes");
    match bytes > MOST_BYTES {
        true => Err(format!("{arch}: the program has {bytes} bytes, and at most {MOST_BYTES} are released")),
        false => Ok(()),
    }
}

fn build(arch: Arch, target: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (package, bin, profile) = RELEASED;
    Ok(fs::read(build_release(arch, package, bin, profile, target)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_not_released() {
        assert_eq!(check_size(Arch::X86_64, MOST_BYTES), Ok(()));
        assert!(check_size(Arch::X86_64, MOST_BYTES + 1).is_err_and(|error| error.contains("10000001 bytes")));
    }
}
