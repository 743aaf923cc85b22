// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Build roots: small Debian systems in which things are built that the host cannot build.
//!
//! A host may have no compiler for another architecture, no static libraries for it, or tools that are too old. A build
//! root has them, the same on every host. `kernels/buildroot.toml` says what is in each; mmdebstrap makes it, from the
//! mirror that the host's own apt sources name.
//!
//! ```text
//! ${XDG_CACHE_HOME:-$HOME/.cache}/siteseer/buildroots/NAME/
//!     KEY/root         the system; KEY/recipe.json says what it was made of: complete or absent
//!     KEY.partial/     one that is being made, or was when its maker was killed: removed by the next
//!     lock             exclusive for who makes or removes, shared for who builds in one
//! ```
//!
//! The key is a checksum of the recipe; a recipe that changed gets a new root, and the old one goes when nobody uses
//! it.
//!
//! What is mounted (`/proc`, `/dev`, the folders of a build) is mounted in a namespace of the command that needs it,
//! which the kernel takes down with the command: nothing stays mounted, however it ends.

mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use self::rows::{Row, Rows};
pub use crate::error::BuildRootError;
use crate::{cache, child::die_with_parent, debian, log::last_lines, workspace::workspace_file};

/// A folder of the host that a command inside a root sees, at a place of its choice below `/build`; or a file in the
/// place of one that an earlier mount has there.
#[derive(Debug, Clone, Copy)]
pub struct Mount<'a> {
    host: &'a Path,
    inside: &'a str,
    is_writable: bool,
}

impl<'a> Mount<'a> {
    /// One that is read only.
    pub fn read_only(host: &'a Path, inside: &'a str) -> Mount<'a> {
        Mount { host, inside, is_writable: false }
    }

    /// One that the command may write to.
    pub fn writable(host: &'a Path, inside: &'a str) -> Mount<'a> {
        Mount { host, inside, is_writable: true }
    }
}

/// Where a root has the source packages of its row: upstream's archive, and its files in a folder of the package's
/// name.
const SOURCES: &str = "/usr/src";

/// Where a root has the folders of the host.
const MOUNTS: &str = "build";

/// The rows of the workspace that this program was built in.
///
/// # Errors
/// If they cannot be read or have an error in them.
pub fn workspace_rows() -> Result<Rows, BuildRootError> {
    Rows::read(&workspace_file("buildroot.toml"))
}

/// A build root; it is not removed while this lives.
#[derive(Debug)]
pub struct BuildRoot {
    directory: PathBuf,
    names: Vec<String>,
    _in_use: File,
}

impl BuildRoot {
    /// The build root of a row: from the cache, or made now, which takes a minute or two and the network. With
    /// `refresh`, made again. `progress` is told what goes on, a line at a time.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn get(row: Row, refresh: bool, mut progress: impl FnMut(&str)) -> Result<BuildRoot, BuildRootError> {
        let cache = cache::directory().ok_or(BuildRootError::NoCache)?;
        let place = cache.join("buildroots").join(&row.name);
        fs::create_dir_all(&place).map_err(BuildRootError::io(format!("cannot make {}", place.display())))?;
        let recipe = serde_json::to_vec_pretty(&row.recipe)
            .map_err(|error| BuildRootError::io("cannot write the recipe")(error.into()))?;
        let entry = place.join(format!("{:08x}", crc32fast::hash(&recipe)));
        let lock_path = place.join("lock");
        let lock_error = || BuildRootError::io(format!("cannot lock {}", lock_path.display()));
        let lock = File::create(&lock_path).map_err(lock_error())?;
        let is_there = || fs::read(entry.join("recipe.json")).is_ok_and(|made| made == recipe);
        let mut refresh = refresh;
        loop {
            lock.lock_shared().map_err(lock_error())?;
            if is_there() && !refresh {
                break;
            }
            // A shared lock becomes an exclusive one, and back, by way of none: what it is about is looked at again.
            lock.unlock().map_err(lock_error())?;
            if lock.try_lock().is_err() {
                progress(&format!("{}: waiting for other runs that make it or build in it", row.name));
                lock.lock().map_err(lock_error())?;
            }
            if refresh || !is_there() {
                progress(&format!("{}: making the build root", row.name));
                make(&row, &recipe, &place, &entry)?;
            }
            refresh = false;
        }
        let names = row.recipe.packages.into_iter().flat_map(|packages| packages.names).collect();
        Ok(BuildRoot { directory: entry.join("root"), names, _in_use: lock })
    }

    /// The folder that is its `/`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The versions of the packages that its recipe names, those of other architectures with theirs after a colon.
    pub(crate) fn versions(&self) -> Result<BTreeMap<String, String>, BuildRootError> {
        let path = self.directory.join("var/lib/dpkg/status");
        let status =
            fs::read_to_string(&path).map_err(BuildRootError::io(format!("cannot read {}", path.display())))?;
        Ok(installed(&status, &self.names))
    }

    /// The version of upstream's archive of a source package of its row.
    ///
    /// # Errors
    /// If there is none.
    pub fn source_version(&self, name: &str) -> Result<String, BuildRootError> {
        let place = self.directory.join(SOURCES.trim_start_matches('/'));
        let error = || BuildRootError::io(format!("no archive of {name} in {}", place.display()));
        let files = fs::read_dir(&place).map_err(error())?.flatten().map(|file| file.file_name());
        let version = |file: &OsStr| {
            let rest = file.to_str()?.strip_prefix(name)?.strip_prefix('_')?;
            Some(rest.split_once(".orig.tar")?.0.to_owned())
        };
        let mut versions = files.filter_map(|file| version(&file));
        versions.next().ok_or_else(|| error()(std::io::ErrorKind::NotFound.into()))
    }

    /// What tells this root from those of other recipes.
    pub fn key(&self) -> &str {
        let entry = self.directory.parent().and_then(Path::file_name);
        entry.and_then(OsStr::to_str).unwrap_or_default()
    }

    /// A command that runs `program` inside, with an empty environment but `PATH`, and with folders of the host
    /// mounted.
    pub fn command(&self, mounts: &[Mount<'_>], environment: &[(String, String)], program: &[&OsStr]) -> Command {
        const ENTER: &str = r#"
            root=$1
            shift
            mount --rbind /proc "$root/proc"
            mount --rbind /dev "$root/dev"
            mount -t tmpfs tmpfs "$root/build"
            while [ "$1" != -- ]; do
                [ -f "$2" ] || mkdir -p "$root$3"
                mount --bind -o "$1" "$2" "$root$3"
                shift 3
            done
            shift
            exec chroot "$root" /usr/bin/env -i "$@"
        "#;
        let mut command = in_mount_namespace();
        command.args(["sh", "-ec", ENTER, "sh"]).arg(&self.directory);
        for Mount { host, inside, is_writable } in mounts {
            command.arg(if *is_writable { "rw" } else { "ro" }).arg(host).arg(inside);
        }
        command.args(["--", "PATH=/usr/bin:/bin"]);
        command.args(environment.iter().map(|(name, value)| format!("{name}={value}")));
        command.args(program);
        command
    }
}

/// Names and versions out of dpkg's status file.
fn installed(status: &str, names: &[String]) -> BTreeMap<String, String> {
    let package = |paragraph: &str| {
        let field =
            |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let (name, version) = (field("Package")?, field("Version")?);
        let qualified = format!("{name}:{}", field("Architecture")?);
        let name = names.iter().find(|wanted| *wanted == name || **wanted == qualified)?;
        Some((name.clone(), version.to_owned()))
    };
    status.split("\n\n").filter_map(package).collect()
}

/// Runs what follows with mounts of its own. No process is forked, so that killing the command kills what it became.
fn in_mount_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    die_with_parent(&mut command).stdin(Stdio::null());
    command
}

/// Makes the root under another name, and gives it its own at the very end. The caller holds the lock.
fn make(row: &Row, recipe: &[u8], place: &Path, entry: &Path) -> Result<(), BuildRootError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(BuildRootError::NotRoot);
    }
    // What earlier makers left, and roots of recipes that are gone.
    for old in fs::read_dir(place).map_err(BuildRootError::io(format!("cannot read {}", place.display())))?.flatten() {
        let path = old.path();
        if path.is_dir() && path != *entry {
            fs::remove_dir_all(&path).map_err(BuildRootError::io(format!("cannot remove {}", path.display())))?;
        }
    }
    let partial = entry.with_extension("partial");
    let root = partial.join("root");
    fs::create_dir_all(&partial).map_err(BuildRootError::io(format!("cannot make {}", partial.display())))?;
    let log_path = partial.join("log");
    let log_error = || BuildRootError::io(format!("cannot write {}", log_path.display()));
    let log = File::create(&log_path).map_err(log_error())?;
    let mut command = mmdebstrap(row, &root)?;
    command.stdout(log.try_clone().map_err(log_error())?).stderr(log);
    let status = command.status().map_err(BuildRootError::io("cannot run unshare"))?;
    if !status.success() {
        let log = fs::read_to_string(&log_path).unwrap_or_default();
        if status.code() == Some(127) {
            return Err(BuildRootError::NoProgram { program: "mmdebstrap", package: "mmdebstrap" });
        }
        let said = last_lines(&log, 20);
        return Err(BuildRootError::Failed { name: row.name.clone(), status: status.to_string(), said });
    }
    let point = root.join(MOUNTS);
    fs::create_dir_all(&point).map_err(BuildRootError::io(format!("cannot make {}", point.display())))?;
    fs::write(partial.join("recipe.json"), recipe)
        .map_err(BuildRootError::io(format!("cannot write to {}", partial.display())))?;
    if entry.exists() {
        fs::remove_dir_all(entry).map_err(BuildRootError::io(format!("cannot remove {}", entry.display())))?;
    }
    fs::rename(&partial, entry).map_err(BuildRootError::io(format!("cannot rename {}", partial.display())))
}

fn mmdebstrap(row: &Row, root: &Path) -> Result<Command, BuildRootError> {
    let (base, later) = row
        .recipe
        .packages
        .split_first()
        .ok_or_else(|| BuildRootError::Rows { path: row.name.clone().into(), reason: "no packages".to_owned() })?;
    let mut command = in_mount_namespace();
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["mmdebstrap", "--mode=root", "--variant=apt", "--format=directory"]);
    command.arg(format!("--architectures={}", row.recipe.architectures.join(",")));
    command.arg("--aptopt=APT::Install-Recommends \"false\"");
    for setting in debian::acquire_settings()? {
        command.arg(format!("--aptopt={}", setting.trim_end_matches(';')));
    }
    command.arg(format!("--include={}", base.names.join(",")));
    for packages in later {
        command.arg(format!(
            "--customize-hook=chroot \"$1\" apt-get install --yes --no-install-recommends -t {} {}",
            packages.suite,
            packages.names.join(" ")
        ));
    }
    for packages in row.recipe.packages.iter().filter(|packages| !packages.sources.is_empty()) {
        command.arg(format!(
            "--customize-hook=chroot \"$1\" sh -ec 'cd {SOURCES}; for name in {}; do for suite in {}; do \
             apt-get source --only-source --tar-only --download-only $name/$suite && break; done; \
             mkdir $name; tar -xf ${{name}}_*.orig.tar.* --strip-components=1 -C $name; done'",
            packages.sources.join(" "),
            packages.source_suites.join(" ")
        ));
    }
    command.arg(&base.suite).arg(root);
    for packages in &row.recipe.packages {
        command.arg(debian::source_line(&packages.suite)?.trim_end());
    }
    let suites: BTreeSet<&String> = row.recipe.packages.iter().flat_map(|packages| &packages.source_suites).collect();
    for suite in suites {
        command.arg(debian::source_line(suite)?.trim_end().replacen("deb ", "deb-src ", 1));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_named_packages() {
        let status = "Package: gcc-14\nStatus: install ok installed\nArchitecture: amd64\nVersion: 14.2.0-19\n\n\
                      Package: other\nArchitecture: amd64\nVersion: 1\n\n\
                      Package: zlib1g-dev\nArchitecture: arm64\nVersion: 1:1.3\n";
        let found = installed(status, &["gcc-14".to_owned(), "zlib1g-dev:arm64".to_owned(), "absent".to_owned()]);
        let wanted = [("gcc-14", "14.2.0-19"), ("zlib1g-dev:arm64", "1:1.3")];
        assert_eq!(found, wanted.map(|(name, version)| (name.to_owned(), version.to_owned())).into());
    }
}
