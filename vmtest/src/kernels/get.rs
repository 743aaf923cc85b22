// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Gets a kernel of the matrix into the cache (whose layout is in the parent's page).

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    DebianRow, How, KernelPaths, KernelRecord, Matrix, MatrixError, PackageRecord, Row,
    apt::{Apt, Package},
    cache_directory, debian_version, download, entry, file_name,
    lock::lock,
    sources, unpack,
};
use crate::image::{ImageError, check_pair};

/// How long an answer of the suite's index stands.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Names the mirror, if it is not to be taken from the host's apt sources.
const MIRROR_VARIABLE: &str = "SITESEER_DEBIAN_MIRROR";

/// Why a kernel could not be had.
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
        /// The versions that are there.
        found: Vec<String>,
    },
    /// Image and vmlinux are unusable or not of one build.
    #[error("what was fetched is wrong: {0}")]
    Image(#[from] ImageError),
    /// Something else failed on this host.
    #[error("{what}: {error}")]
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

/// Gets kernels.
pub struct Getter<'a> {
    matrix: Matrix,
    directory: PathBuf,
    refresh: bool,
    progress: Box<dyn FnMut(&str) + 'a>,
}

/// The Debian mirror to use.
pub(super) fn mirror() -> Result<sources::Source, GetError> {
    match std::env::var(MIRROR_VARIABLE) {
        Ok(uri) if !uri.is_empty() => Ok(sources::Source::plain(uri)),
        _ => sources::debian_mirror(Path::new("/")).ok_or(GetError::NoMirror),
    }
}

/// What a row stands for today.
struct Resolved {
    release: String,
    image: Package,
    debug: Package,
}

impl<'a> Getter<'a> {
    /// One that knows these rows. `progress` is told what goes on, warnings included, a line at a time.
    ///
    /// # Errors
    /// If there is no place for a cache.
    pub fn new(matrix: Matrix, progress: impl FnMut(&str) + 'a) -> Result<Getter<'a>, GetError> {
        let directory = cache_directory().ok_or(GetError::NoCache)?;
        Ok(Getter { matrix, directory, refresh: false, progress: Box::new(progress) })
    }

    /// Asks the suite for a newer one whatever the cache's age, and fails if it cannot be asked.
    pub fn refresh(mut self, refresh: bool) -> Self {
        self.refresh = refresh;
        self
    }

    /// The kernel of this name. An entry that was up to date within the last day is returned without looking further; if
    /// looking further fails, what there is is used, with a warning.
    ///
    /// # Errors
    /// If there is no such row, or nothing in the cache and it cannot be had.
    pub fn get(&mut self, name: &str) -> Result<KernelPaths, GetError> {
        let row = self.matrix.row(name)?;
        let place = self.directory.join(file_name(name).ok_or_else(|| GetError::Name(name.to_owned()))?);
        if let Some(paths) = self.fresh(&place) {
            return Ok(paths);
        }
        fs::create_dir_all(&place).map_err(GetError::io(format!("cannot make {}", place.display())))?;
        let lock_path = place.join("lock");
        let _lock = lock(&lock_path, || self.say(&format!("{name}: waiting for another run that gets it")))?;
        // Whoever held the lock may have done it.
        if let Some(paths) = self.fresh(&place) {
            return Ok(paths);
        }
        match self.renew(&row, &place) {
            Ok(paths) => Ok(paths),
            Err(error) => match entry(&place.join("current")) {
                Some(paths) if !self.refresh => {
                    let release = &paths.record.release;
                    self.say(&format!("warning: {name}: {error}\nwarning: {name}: using {release} from the cache"));
                    Ok(paths)
                }
                _ => Err(error),
            },
        }
    }

    fn say(&mut self, text: &str) {
        (self.progress)(text);
    }

    fn fresh(&self, place: &Path) -> Option<KernelPaths> {
        let checked = fs::metadata(place.join("checked")).and_then(|metadata| metadata.modified()).ok()?;
        let is_fresh = SystemTime::now().duration_since(checked).is_ok_and(|age| age < FRESH);
        if is_fresh && !self.refresh { entry(&place.join("current")) } else { None }
    }

    /// Makes `current` the newest there is.
    fn renew(&mut self, row: &Row, place: &Path) -> Result<KernelPaths, GetError> {
        let How::Debian(debian) = &row.how;
        let mirror = mirror()?;
        self.say(&format!("{}: reading the index of {}", row.name, debian.suite));
        let apt = Apt::new(&place.join("apt"), &mirror, &debian.suite, row.arch)?;
        apt.update()?;
        let resolved = resolve(&apt, debian)?;
        let directory = place.join(folder_name(&resolved.image.version));
        let current = place.join("current");
        let is_there = entry(&directory).is_some_and(|paths| paths.record.packages == records(&resolved));
        if !is_there {
            self.fill(row, debian, &apt, &mirror.uri, &resolved, place, &directory)?;
        }
        let previous = fs::canonicalize(&current).ok();
        point(&current, &directory)?;
        touch(&place.join("checked"))?;
        remove_others(place, &[Some(directory.clone()), previous]);
        entry(&current).ok_or_else(|| {
            GetError::io(format!("cannot read {}", directory.display()))(io::ErrorKind::InvalidData.into())
        })
    }

    /// Fetches, unpacks and checks, and gives the result its name at the very end.
    #[expect(clippy::too_many_arguments, reason = "the steps of one procedure, called once")]
    fn fill(
        &mut self,
        row: &Row,
        debian: &DebianRow,
        apt: &Apt,
        mirror: &str,
        resolved: &Resolved,
        place: &Path,
        directory: &Path,
    ) -> Result<(), GetError> {
        // An unpacked vmlinux takes somewhat more than its package.
        check_space(place, resolved.image.size * 2 + resolved.debug.size * 5 / 2)?;
        let downloads = place.join("download");
        let mut fetch = |package: &Package| {
            let size = package.size.div_ceil(1_000_000);
            self.say(&format!("{}: fetching {} {} ({size} MB)", row.name, package.name, package.version));
            download::fetch(apt, mirror, package, &downloads)
        };
        let image_file = fetch(&resolved.image)?;
        let debug_file = fetch(&resolved.debug)?;

        self.say(&format!("{}: unpacking", row.name));
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempdir_in(place)
            .map_err(|error| GetError::disk(place, format!("cannot make a folder in {}", place.display()), error))?;
        let (vmlinuz, vmlinux) = (temporary.path().join("vmlinuz"), temporary.path().join("vmlinux"));
        unpack::unpack(&image_file, &debian.image.of(&resolved.release).file, &vmlinuz)?;
        unpack::unpack(&debug_file, &debian.debug.of(&resolved.release).file, &vmlinux)?;
        let build_id = check_pair(&vmlinuz, &vmlinux)?;
        let record = KernelRecord {
            name: row.name.clone(),
            arch: row.arch,
            release: resolved.release.clone(),
            build_id,
            suite: debian.suite.clone(),
            packages: records(resolved),
        };
        let path = temporary.path().join("kernel.json");
        let write = || {
            fs::write(&path, serde_json::to_string_pretty(&record)? + "\n")?;
            // mkdtemp makes it private; the cache may be read by another user than the one who fills it.
            fs::set_permissions(temporary.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(temporary.path(), directory)
        };
        write().map_err(|error| GetError::disk(place, format!("cannot complete {}", directory.display()), error))?;
        // Renamed, it is no longer there to be removed.
        let _ = temporary.keep();
        // They are of no more use, and large.
        let _ = fs::remove_dir_all(&downloads);
        Ok(())
    }
}

fn records(resolved: &Resolved) -> Vec<PackageRecord> {
    [&resolved.image, &resolved.debug]
        .map(|package| PackageRecord {
            name: package.name.clone(),
            version: package.version.clone(),
            sha256: package.sha256.clone(),
        })
        .to_vec()
}

/// Finds the newest release that has both packages.
fn resolve(apt: &Apt, row: &DebianRow) -> Result<Resolved, GetError> {
    let fits =
        |pattern: &str, name: &str| debian_version::release_matches(&pattern.replace("{release}", &row.release), name);
    let packages = apt.packages(|name| fits(&row.image.package, name) || fits(&row.debug.package, name))?;
    newest(&packages, row).ok_or_else(|| GetError::NoRelease {
        suite: row.suite.clone(),
        release: row.release.clone(),
        image: row.image.package.clone(),
        debug: row.debug.package.clone(),
    })
}

fn newest(packages: &[Package], row: &DebianRow) -> Option<Resolved> {
    // An index can hold several versions of one package.
    let find = |name: &str| {
        packages
            .iter()
            .filter(|package| package.name == name)
            .max_by(|a, b| debian_version::compare(&a.version, &b.version))
    };
    let (head, tail) = row.image.package.split_once("{release}")?;
    packages
        .iter()
        .filter_map(|package| package.name.strip_prefix(head)?.strip_suffix(tail))
        .filter(|release| debian_version::release_matches(&row.release, release))
        .filter_map(|release| {
            Some(Resolved {
                release: release.to_owned(),
                image: find(&row.image.of(release).package)?.clone(),
                debug: find(&row.debug.of(release).package)?.clone(),
            })
        })
        .max_by(|a, b| debian_version::compare(&a.release, &b.release))
}

/// A version as a folder's name: `:` means something to programs that take lists of paths.
fn folder_name(version: &str) -> String {
    version.replace([':', '/'], "_")
}

fn check_space(place: &Path, needed: u64) -> Result<(), GetError> {
    let space = nix::sys::statvfs::statvfs(place)
        .map_err(|error| GetError::io(format!("cannot ask for the space in {}", place.display()))(error.into()))?;
    let free = space.blocks_available().saturating_mul(space.fragment_size());
    if free < needed {
        return Err(GetError::DiskFull { path: place.to_owned(), needed: needed - free });
    }
    Ok(())
}

/// Points the link at `directory`, beside which it lies, in one step.
fn point(link: &Path, directory: &Path) -> Result<(), GetError> {
    let replace = || {
        let temporary = link.with_extension("new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(directory.file_name().unwrap_or_default(), &temporary)?;
        fs::rename(&temporary, link)
    };
    replace().map_err(GetError::io(format!("cannot set {}", link.display())))
}

fn touch(path: &Path) -> Result<(), GetError> {
    fs::write(path, "").map_err(|error| GetError::disk(path, format!("cannot write {}", path.display()), error))
}

/// Removes entries, and what interrupted runs left, but for these. Failing to is no reason to fail.
fn remove_others(place: &Path, keep: &[Option<PathBuf>]) {
    for file in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = file.path();
        let name = file.file_name();
        let name = name.to_string_lossy();
        let is_ours = path.join("kernel.json").is_file() || name.starts_with(".new-");
        let is_kept = fs::canonicalize(&path)
            .is_ok_and(|path| keep.iter().flatten().any(|kept| fs::canonicalize(kept).is_ok_and(|kept| kept == path)));
        if is_ours && !is_kept && file.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch::Arch, kernels::PackageFile};

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            filename: String::new(),
            size: 1,
            sha256: format!("{name}{version}"),
        }
    }

    fn row() -> DebianRow {
        let part = |package: &str| PackageFile { package: package.to_owned(), file: "f/{release}".to_owned() };
        DebianRow {
            suite: "suite".to_owned(),
            release: "6.1.0-*-cloud-amd64".to_owned(),
            image: part("linux-image-{release}"),
            debug: part("linux-image-{release}-dbg"),
        }
    }

    #[test]
    fn the_newest_release_with_both_packages_is_taken() {
        let packages = [
            package("linux-image-6.1.0-9-cloud-amd64", "6.1.9-1"),
            package("linux-image-6.1.0-9-cloud-amd64-dbg", "6.1.9-1"),
            package("linux-image-6.1.0-40-cloud-amd64-dbg", "6.1.40-1"),
            package("linux-image-6.1.0-40-cloud-amd64", "6.1.40-1"),
            package("linux-image-6.1.0-40-cloud-amd64", "6.1.40-2"),
            // Its debug information is not there yet.
            package("linux-image-6.1.0-41-cloud-amd64", "6.1.41-1"),
            package("linux-image-6.1.0-99-amd64", "6.1.99-1"),
        ];
        let found = newest(&packages, &row()).unwrap();
        assert_eq!(found.release, "6.1.0-40-cloud-amd64");
        assert_eq!(found.image.version, "6.1.40-2");
        assert!(newest(&packages[4..], &row()).is_none());
    }

    fn make_entry(place: &Path, version: &str) -> PathBuf {
        let directory = place.join(version);
        fs::create_dir_all(&directory).unwrap();
        let record = KernelRecord {
            name: "x".to_owned(),
            arch: Arch::X86_64,
            release: version.to_owned(),
            build_id: "00".to_owned(),
            suite: "suite".to_owned(),
            packages: vec![],
        };
        fs::write(directory.join("kernel.json"), serde_json::to_string(&record).unwrap()).unwrap();
        fs::write(directory.join("vmlinuz"), "").unwrap();
        fs::write(directory.join("vmlinux"), "").unwrap();
        directory
    }

    fn getter(directory: &Path, refresh: bool) -> Getter<'static> {
        let path = directory.join("matrix.toml");
        fs::write(&path, "[kernel.x]\narch = \"x86_64\"\nhow = \"no-such-way\"\n").unwrap();
        Getter {
            matrix: Matrix::read(&path).unwrap(),
            directory: directory.to_owned(),
            refresh,
            progress: Box::new(|_| {}),
        }
    }

    #[test]
    fn an_entry_is_fresh_for_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("x");
        let entry = make_entry(&place, "1");
        point(&place.join("current"), &entry).unwrap();
        let checked = place.join("checked");
        assert!(getter(directory.path(), false).fresh(&place).is_none(), "never checked");
        touch(&checked).unwrap();
        assert_eq!(getter(directory.path(), false).fresh(&place).unwrap().record.release, "1");
        assert!(getter(directory.path(), true).fresh(&place).is_none(), "refresh was asked for");
        let file = fs::File::options().write(true).open(&checked).unwrap();
        file.set_modified(SystemTime::now() - FRESH - Duration::from_secs(1)).unwrap();
        assert!(getter(directory.path(), false).fresh(&place).is_none(), "too old");
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
        assert!(getter(directory.path(), false).fresh(&place).is_none(), "from the future");
        touch(&checked).unwrap();
        fs::remove_file(entry.join("vmlinux")).unwrap();
        assert!(getter(directory.path(), false).fresh(&place).is_none(), "incomplete");
    }

    #[test]
    fn the_entry_before_the_current_one_stays_and_older_ones_go() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let (first, second, third) = (make_entry(place, "1"), make_entry(place, "2"), make_entry(place, "3"));
        fs::create_dir(place.join(".new-left")).unwrap();
        fs::create_dir(place.join("apt")).unwrap();
        let current = place.join("current");
        point(&current, &second).unwrap();
        let previous = fs::canonicalize(&current).ok();
        point(&current, &third).unwrap();
        remove_others(place, &[Some(third.clone()), previous]);
        assert_eq!(fs::canonicalize(&current).unwrap(), fs::canonicalize(&third).unwrap());
        assert!(!first.exists() && second.exists() && third.exists() && place.join("apt").exists());
        assert!(!place.join(".new-left").exists());
    }

    #[test]
    fn space_is_looked_at_before_anything_is_fetched() {
        let directory = tempfile::tempdir().unwrap();
        check_space(directory.path(), 1).unwrap();
        let error = check_space(directory.path(), u64::MAX / 2).unwrap_err();
        assert!(matches!(error, GetError::DiskFull { .. }), "{error}");
    }
}
