// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The distribution's own package with debug information, by the host's apt.
//!
//! apt knows where the archive is, how the network is reached and whose signatures count. So it is asked for the
//! package of the release, and checks it. This finds the packages of the suites that the host is set up for, which are
//! those that its kernels are from.

use crate::error::{Cause, HubError, io};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a package had, in a folder that goes away with it.
pub(crate) struct Unpacked {
    #[allow(dead_code, reason = "dropping it removes the folder")]
    folder: tempfile::TempDir,
    pub(crate) image: PathBuf,
    pub(crate) modules: Vec<PathBuf>,
}

/// Fetches and unpacks the debug package of a release. `None` if this is not a system with apt.
pub(crate) fn fetch(
    release: &str,
    with_modules: bool,
    place: &Path,
    limit: u64,
    say: &dyn Fn(&str),
) -> Result<Option<Unpacked>, HubError> {
    if !Path::new("/usr/bin/apt-get").exists() || !Path::new("/usr/bin/dpkg-deb").exists() {
        return Ok(None);
    }
    let failed = |why: Cause| HubError::Program { program: "apt-get", why };
    if release.is_empty() || !release.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-~".contains(&byte)) {
        return Err(failed(format!("{release:?} is not a release").into()));
    }
    let folder = tempfile::Builder::new().prefix(".package.").tempdir_in(place).map_err(io(place))?;
    let package = format!("linux-image-{release}-dbg");
    say(&format!("fetching {package} by apt-get, which takes some hundreds of megabytes"));
    let output = Command::new("apt-get")
        .args(["--quiet", "download", &package])
        .current_dir(folder.path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.into()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().rfind(|line| line.starts_with("E:")).unwrap_or("E: it failed");
        return Err(failed(format!("{package}: {}", line.trim_start_matches("E: ")).into()));
    }
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let entries = fs::read_dir(folder.path()).map_err(io(folder.path()))?;
    let file = entries.flatten().map(|entry| entry.path()).find(is_package);
    let file = file.ok_or_else(|| failed(format!("{package}: apt-get left no package").into()))?;
    let (image, modules) = unpack(&file, folder.path(), release, with_modules, limit)?;
    fs::remove_file(&file).map_err(io(&file))?;
    Ok(Some(Unpacked { folder, image, modules }))
}

/// The image and the modules of a package, by names of our own.
pub(crate) fn unpack(
    package: &Path,
    folder: &Path,
    release: &str,
    with_modules: bool,
    limit: u64,
) -> Result<(PathBuf, Vec<PathBuf>), HubError> {
    let failed = |why: Cause| HubError::Program { program: "dpkg-deb", why };
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.into()))?;
    let out = child.stdout.take().ok_or_else(|| failed("it has no output".into()))?;
    let (mut image, mut modules, mut left) = (None, Vec::new(), limit);
    let result = (|| -> Result<(), HubError> {
        let mut archive = tar::Archive::new(out);
        for entry in archive.entries().map_err(|error| failed(error.into()))? {
            let mut entry = entry.map_err(|error| failed(error.into()))?;
            let path = entry.path().map_err(|error| failed(error.into()))?.to_string_lossy().into_owned();
            let path = path.trim_start_matches("./");
            let is_image = path == format!("usr/lib/debug/boot/vmlinux-{release}")
                || path == format!("usr/lib/debug/lib/modules/{release}/vmlinux");
            let is_module = with_modules && (path.ends_with(".ko") || path.ends_with(".ko.debug"));
            if !entry.header().entry_type().is_file() || !(is_image || is_module) {
                continue;
            }
            left = left
                .checked_sub(entry.size())
                .ok_or_else(|| HubError::TooLarge { what: package.display().to_string(), limit })?;
            let to = if is_image { folder.join("vmlinux") } else { folder.join(format!("{}.ko", modules.len())) };
            let mut file = fs::File::create(&to).map_err(io(&to))?;
            std::io::copy(&mut entry.by_ref(), &mut file).map_err(io(&to))?;
            if is_image { image = Some(to) } else { modules.push(to) }
        }
        Ok(())
    })();
    // What it has not written by now nobody reads.
    let _ = child.kill();
    let _ = child.wait();
    result?;
    let image = image.ok_or_else(|| failed(format!("there is no vmlinux of {release} in the package").into()))?;
    Ok((image, modules))
}
