// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Gets a kernel of the matrix into the cache (the crate's page describes its layout).

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    build,
    causes::with_causes,
    debian::kernel,
    error::GetError,
    lock::lock,
    matrix::{How, Matrix, Row},
    partial,
    record::{KernelPaths, cache_directory, entry, file_name},
};

/// How long an answer of the suite's index stands.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Gets kernels.
pub struct Getter<'a> {
    matrix: Matrix,
    directory: PathBuf,
    refresh: bool,
    progress: Box<dyn FnMut(&str) + 'a>,
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

    /// The kernel of this name. An entry that was up to date within the last day is returned without looking further;
    /// if looking further fails, the cached kernel is used, with a warning, unless the row itself is at fault.
    ///
    /// # Errors
    /// If there is no such row, or nothing in the cache and it cannot be obtained.
    pub fn get(&mut self, name: &str) -> Result<KernelPaths, GetError> {
        let row = self.matrix.row(name)?;
        let place = self.directory.join(file_name(name).ok_or_else(|| GetError::Name(name.to_owned()))?);
        let is_of = |paths: &KernelPaths| match &row.how {
            How::Debian(_) => true,
            How::Built(built) => build::is_of(built, &paths.record),
        };
        if let Some(paths) = self.fresh(&place).filter(is_of) {
            return Ok(paths);
        }
        fs::create_dir_all(&place).map_err(GetError::io(format!("cannot make {}", place.display())))?;
        let lock_path = place.join("lock");
        let _lock = lock(&lock_path, || self.say(&format!("{name}: waiting for another run that gets it")))?;
        // Whoever held the lock may have done it.
        if let Some(paths) = self.fresh(&place).filter(is_of) {
            return Ok(paths);
        }
        match self.renew(&row, &place) {
            Ok(paths) => Ok(paths),
            Err(error) => match entry(&place.join("current")) {
                Some(paths) if !self.refresh && !error.is_of_the_row() => {
                    let (release, why) = (&paths.record.release, with_causes(&error));
                    self.say(&format!("warning: {name}: {why}\nwarning: {name}: using {release} from the cache"));
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
        let say = &mut *self.progress;
        let directory = match &row.how {
            How::Debian(debian) => kernel::renew(row, debian, place, say)?,
            How::Built(built) => build::renew(row, built, place, say)?,
        };
        let current = place.join("current");
        let previous = fs::canonicalize(&current).ok();
        point(&current, &directory)?;
        touch(&place.join("checked"))?;
        remove_others(place, &[Some(directory.clone()), previous]);
        entry(&current).ok_or_else(|| {
            GetError::io(format!("cannot read {}", directory.display()))(io::ErrorKind::InvalidData.into())
        })
    }
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

/// Removes entries, and what interrupted runs left, except for these. Failing to is not a reason to fail.
fn remove_others(place: &Path, keep: &[Option<PathBuf>]) {
    for file in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = file.path();
        let name = file.file_name();
        let name = name.to_string_lossy();
        let is_ours = path.join("kernel.json").is_file() || name.starts_with(partial::PREFIX);
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
    use crate::{arch::Arch, record::KernelRecord};

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
            build: None,
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
}
