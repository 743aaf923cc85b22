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

/// The names that the debug package of a release has: Debian's, then Ubuntu's for kernels that are signed apart from
/// their package, and for others.
fn packages(release: &str) -> [String; 3] {
    [
        format!("linux-image-{release}-dbg"),
        format!("linux-image-unsigned-{release}-dbgsym"),
        format!("linux-image-{release}-dbgsym"),
    ]
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
    let Some(package) = packages(release).into_iter().find(|package| is_known(package)) else {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let sources = apt("apt-cache", &["policy"]).unwrap_or_default();
        return Err(failed(advice(release, &system, &sources).into()));
    };
    let folder = tempfile::Builder::new().prefix(".package.").tempdir_in(place).map_err(io(place))?;
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
    // Ubuntu's have a name of their own, and are the same archives.
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb" || end == "ddeb");
    let entries = fs::read_dir(folder.path()).map_err(io(folder.path()))?;
    let file = entries.flatten().map(|entry| entry.path()).find(is_package);
    let file = file.ok_or_else(|| failed(format!("{package}: apt-get left no package").into()))?;
    let (image, modules) = unpack(&file, folder.path(), release, with_modules, limit)?;
    fs::remove_file(&file).map_err(io(&file))?;
    Ok(Some(Unpacked { folder, image, modules }))
}

/// What a program of apt prints; `None` if it fails.
fn apt(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether one of the system's sources has a package.
fn is_known(package: &str) -> bool {
    apt("apt-cache", &["show", package]).is_some_and(|text| text.lines().any(|line| line.starts_with("Package: ")))
}

/// Where Ubuntu's debug packages are: not in the archive that each system has.
const UBUNTUS: &str = "ddebs.ubuntu.com";

/// What to do if apt knows no debug package of a release. `system` is the text of os-release(5), and `sources` what
/// `apt-cache policy` prints.
fn advice(release: &str, system: &str, sources: &str) -> String {
    let [debians, ubuntus, _] = packages(release);
    if !is_ubuntu(system) {
        return format!(
            "it does not know the package {debians}: run apt-get update; the suite that the kernel is from must be in \
             the sources"
        );
    }
    if sources.contains(UBUNTUS) {
        return format!(
            "it does not know the package {ubuntus}: run apt-get update; {UBUNTUS} keeps only the packages of the \
             releases that the archive has"
        );
    }
    let suite = value(system, "UBUNTU_CODENAME").or_else(|| value(system, "VERSION_CODENAME")).unwrap_or("SUITE");
    let line = |suffix: &str| format!("deb http://{UBUNTUS} {suite}{suffix} main restricted universe multiverse");
    format!(
        "it does not know the package {ubuntus}, and no source has Ubuntu's debug packages. Run apt-get install \
         ubuntu-dbgsym-keyring, write these lines to /etc/apt/sources.list.d/ddebs.list, and run apt-get update:\n    \
         {}\n    {}",
        line(""),
        line("-updates")
    )
}

/// Whether os-release(5) says that a system is Ubuntu, or made from it.
fn is_ubuntu(system: &str) -> bool {
    let names = ["ID", "ID_LIKE"].into_iter().filter_map(|key| value(system, key));
    names.flat_map(str::split_whitespace).any(|name| name == "ubuntu")
}

/// A value of os-release(5).
fn value<'t>(system: &'t str, key: &str) -> Option<&'t str> {
    let of_line = |line: &'t str| line.strip_prefix(key)?.strip_prefix('=');
    let value = system.lines().find_map(of_line)?.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then_some(value)
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

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: &str = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_CODENAME=trixie\nID=debian\n";
    const UBUNTU: &str = "VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=noble\n";
    const MINT: &str = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=zara\nUBUNTU_CODENAME=noble\n";

    #[test]
    fn systems() {
        assert!(!is_ubuntu(DEBIAN) && is_ubuntu(UBUNTU) && is_ubuntu(MINT) && !is_ubuntu(""));
        assert!(!is_ubuntu("ID_LIKE=\"kubuntu\"\nNAME=ubuntu\n"));
        assert_eq!(value(MINT, "VERSION_CODENAME"), Some("zara"));
        assert_eq!(value("ID=\n", "ID"), None);
    }

    #[test]
    fn what_to_do_without_a_package() {
        let release = "6.8.0-40-generic";
        let debians = advice("6.12.107+deb13-amd64", DEBIAN, "");
        assert!(debians.contains("linux-image-6.12.107+deb13-amd64-dbg: run apt-get update"), "{debians}");
        for system in [UBUNTU, MINT] {
            let text = advice(release, system, "500 http://archive.ubuntu.com/ubuntu noble/main amd64 Packages");
            for part in [
                "linux-image-unsigned-6.8.0-40-generic-dbgsym",
                "apt-get install ubuntu-dbgsym-keyring",
                "deb http://ddebs.ubuntu.com noble main restricted universe multiverse",
                "deb http://ddebs.ubuntu.com noble-updates main restricted universe multiverse",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        let there = advice(release, UBUNTU, "500 http://ddebs.ubuntu.com noble/main amd64 Packages");
        assert!(there.contains("run apt-get update") && !there.contains("deb http"), "{there}");
    }
}
