// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! A folder of the cache that is being filled: it gets its name when it is complete, and vanishes otherwise.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;
use tempfile::TempDir;

use crate::error::GetError;

/// The beginning of such folders' names. What an interrupted run left is removed by the next.
pub(crate) const PREFIX: &str = ".new-";

pub(crate) struct Partial {
    temporary: TempDir,
    place: PathBuf,
}

impl Partial {
    /// An empty folder in `place`, on the same file system as what it will be.
    pub(crate) fn new(place: &Path) -> Result<Partial, GetError> {
        let temporary = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(place)
            .map_err(|error| GetError::disk(place, format!("cannot make a folder in {}", place.display()), error))?;
        Ok(Partial { temporary, place: place.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes a record into it, and gives it its name, in place of what had it.
    pub(crate) fn complete(self, record: &impl Serialize, file: &str, directory: &Path) -> Result<(), GetError> {
        let path = self.temporary.path();
        let write = || {
            fs::write(path.join(file), serde_json::to_string_pretty(record)? + "\n")?;
            // mkdtemp makes it private; the cache may be read by another user than the one who fills it.
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            match fs::remove_dir_all(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(path, directory)
        };
        write()
            .map_err(|error| GetError::disk(&self.place, format!("cannot complete {}", directory.display()), error))?;
        // Renamed, it is no longer there to be removed.
        let _ = self.temporary.keep();
        Ok(())
    }
}

/// Checks that there is room for so many more bytes.
pub(crate) fn check_space(place: &Path, needed: u64) -> Result<(), GetError> {
    let space = nix::sys::statvfs::statvfs(place)
        .map_err(|error| GetError::io(format!("cannot ask for the space in {}", place.display()))(error.into()))?;
    let free = space.blocks_available().saturating_mul(space.fragment_size());
    if free < needed {
        return Err(GetError::DiskFull { path: place.to_owned(), needed: needed - free });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_complete_or_absent() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let given_up = Partial::new(place).unwrap();
        fs::write(given_up.path().join("part"), "").unwrap();
        drop(given_up);
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
        for text in ["first", "second"] {
            let partial = Partial::new(place).unwrap();
            fs::write(partial.path().join("part"), text).unwrap();
            partial.complete(&text, "record.json", &place.join("whole")).unwrap();
            assert_eq!(fs::read_to_string(place.join("whole/part")).unwrap(), text);
            assert_eq!(fs::read_dir(place).unwrap().count(), 1);
        }
    }

    #[test]
    fn space_is_looked_at_before_anything_is_fetched() {
        let directory = tempfile::tempdir().unwrap();
        check_space(directory.path(), 1).unwrap();
        let error = check_space(directory.path(), u64::MAX / 2).unwrap_err();
        assert!(matches!(error, GetError::DiskFull { .. }), "{error}");
    }
}
