// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Fetches a package file, going on where an interrupted run stopped.
//!
//! `apt-get download` begins again each time, which hurts with 350 MB. So curl does it where it can, and the SHA-256 of
//! apt's signed index says whether the result is right; where there is no curl, or the mirror is of a kind that only
//! apt knows (`mirror+file:`), apt does it.

use std::{
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::apt::{Apt, Package};
use crate::{child::die_with_parent, error::GetError};

/// Fetches `package` into `directory`, unless it is there, and returns the file's path.
pub(crate) fn fetch(apt: &Apt, mirror: &str, package: &Package, directory: &Path) -> Result<PathBuf, GetError> {
    fs::create_dir_all(directory).map_err(GetError::io(format!("cannot make {}", directory.display())))?;
    let done = directory.join(format!("{}.deb", package.sha256));
    if done.is_file() {
        if sha256(&done)? == package.sha256 {
            return Ok(done);
        }
        remove(&done)?;
    }
    let has_url = mirror.starts_with("http://") || mirror.starts_with("https://");
    let fetched = match curl(apt, mirror, package, directory) {
        Some(fetched) if has_url => fetched?,
        _ => {
            // apt names the file by itself, in a directory where nothing else is.
            let place = directory.join("apt");
            fs::create_dir_all(&place).map_err(GetError::io(format!("cannot make {}", place.display())))?;
            apt.download(package, &place)?;
            let mut files =
                fs::read_dir(&place).map_err(GetError::io(format!("cannot read {}", place.display())))?.flatten();
            let prefix = format!("{}_", package.name);
            files
                .find(|file| file.file_name().to_string_lossy().starts_with(&prefix))
                .ok_or_else(|| GetError::Download {
                    package: package.name.clone(),
                    said: "apt left no file".to_owned(),
                })?
                .path()
        }
    };
    let found = sha256(&fetched)?;
    if found != package.sha256 {
        remove(&fetched)?;
        return Err(GetError::Corrupt { package: package.name.clone(), wanted: package.sha256.clone(), found });
    }
    fs::rename(&fetched, &done).map_err(GetError::io(format!("cannot rename {}", fetched.display())))?;
    Ok(done)
}

/// Fetches by curl. None if there is no curl.
fn curl(apt: &Apt, mirror: &str, package: &Package, directory: &Path) -> Option<Result<PathBuf, GetError>> {
    let partial = directory.join(format!("{}.partial", package.sha256));
    let have = fs::metadata(&partial).map(|metadata| metadata.len()).unwrap_or_default();
    if have == package.size {
        return Some(Ok(partial));
    }
    if have > package.size
        && let Err(error) = remove(&partial)
    {
        return Some(Err(error));
    }
    // `+` means a space to some servers; apt encodes it too.
    let url = format!("{}/{}", mirror.trim_end_matches('/'), package.filename.replace('+', "%2B"));
    let mut command = Command::new("curl");
    command.args(["--fail", "--location", "--retry", "3", "--connect-timeout", "30"]);
    command.args(["--speed-limit", "1000", "--speed-time", "60", "--continue-at", "-"]);
    command.args(["--write-out", "%{http_code}", "--output"]).arg(&partial);
    command.arg(if io::stderr().is_terminal() { "--progress-bar" } else { "--no-progress-meter" });
    if let Some(proxy) = apt.proxy(&url) {
        command.args(["--proxy", proxy]);
    }
    command.arg(&url).stdin(Stdio::null()).stderr(Stdio::inherit());
    // One that went on alone would write to the file of the next run.
    let output = match die_with_parent(&mut command).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(GetError::io("cannot run curl")(error))),
    };
    let code = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // curl(1): 22 is an HTTP error, 23 a failure to write.
    Some(match (output.status.code(), code.as_str()) {
        (Some(0), _) => Ok(partial),
        (Some(22), "404" | "410") => Err(GetError::PackageGone { package: package.name.clone() }),
        (Some(23), _) => {
            Err(GetError::DiskFull { path: directory.to_owned(), needed: package.size - have.min(package.size) })
        }
        _ => Err(GetError::Download {
            package: package.name.clone(),
            said: format!("curl ended with {} (HTTP status {code})", output.status),
        }),
    })
}

fn remove(path: &Path) -> Result<(), GetError> {
    fs::remove_file(path).map_err(GetError::io(format!("cannot remove {}", path.display())))
}

fn sha256(path: &Path) -> Result<String, GetError> {
    let output = Command::new("sha256sum")
        .arg("--")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|_| GetError::NoProgram { program: "sha256sum".to_owned(), package: "coreutils" })?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split(' ').next() {
        // A leading backslash marks a quoted name.
        Some(sum) if output.status.success() => Ok(sum.trim_start_matches('\\').to_owned()),
        _ => Err(GetError::io(format!("cannot read {}", path.display()))(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a file\\");
        fs::write(&path, "abc").unwrap();
        // FIPS 180-4's example.
        assert_eq!(sha256(&path).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert!(sha256(&directory.path().join("none")).is_err());
    }
}
