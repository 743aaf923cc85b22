// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The folder where the loader looks: which it is, who may write to it, and writing to it.
//!
//! docs/security.md: with privileges the loader reads what it finds only if root alone can have put it there. So what
//! root fetches goes to a folder of root's, and is refused to any other; all others have their own cache.

use crate::error::{HubError, io};
use siteseer::internals::source::{is_privileged, user_cache};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where root's are, for all users.
const SYSTEM: &str = "/var/cache/siteseer";

/// Where fetched site data goes.
///
/// # Errors
/// [`HubError::Place`] if the environment names no home.
pub fn folder() -> Result<PathBuf, HubError> {
    if nix::unistd::geteuid().is_root() {
        return Ok(SYSTEM.into());
    }
    let why = || HubError::Place { path: "~/.cache".into(), why: "neither XDG_CACHE_HOME nor HOME is set".into() };
    user_cache().ok_or_else(why)
}

/// Makes the folder if need be. One that was not named by the caller must be one in which the loader would read files.
///
/// # Errors
/// [`HubError::Io`], [`HubError::Place`].
pub fn prepare(folder: &Path, is_named: bool) -> Result<(), HubError> {
    fs::create_dir_all(folder).map_err(io(folder))?;
    if is_privileged() && !is_named { roots_alone(folder) } else { Ok(()) }
}

/// Whether root alone can write to a folder, and to each on the way to it.
fn roots_alone(folder: &Path) -> Result<(), HubError> {
    let path = folder.canonicalize().map_err(io(folder))?;
    for (nth, folder) in path.ancestors().enumerate() {
        let about = fs::metadata(folder).map_err(io(folder))?;
        let shared = about.mode() & 0o022 != 0 && (nth == 0 || about.mode() & 0o1000 == 0);
        if about.uid() != 0 || shared {
            let (uid, mode) = (about.uid(), about.mode() & 0o7777);
            let why = format!(
                "users other than root can change it (owner {uid}, mode {mode:o}), so the loader would not read what \
                 is in it with privileges: give another folder (--output)"
            );
            return Err(HubError::Place { path: folder.to_owned(), why: why.into() });
        }
    }
    Ok(())
}

/// Held while something is fetched into a folder under a name. Another process that wants the same waits.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "closing it unlocks")] File);

impl Lock {
    /// Waits for the lock; says so first if it has to.
    ///
    /// # Errors
    /// [`HubError::Io`].
    pub fn take(folder: &Path, name: &str, waits: impl FnOnce()) -> Result<Lock, HubError> {
        let path = folder.join(format!(".{name}.lock"));
        // Never removed: whoever waits for it would hold a lock on a file that is not there any more.
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io(&path))?;
        if file.try_lock().is_err() {
            waits();
            file.lock().map_err(io(&path))?;
        }
        Ok(Lock(file))
    }
}

/// Writes a file that is whole or not there, and then is on the disk.
///
/// # Errors
/// [`HubError::Io`]. What was there before is there still.
pub fn install(folder: &Path, name: &str, data: &[u8]) -> Result<PathBuf, HubError> {
    let path = folder.join(name);
    let written = (|| {
        let mut file = tempfile::Builder::new().prefix(&format!(".{name}.")).suffix(".tmp").tempfile_in(folder)?;
        file.write_all(data)?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(io(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = install(folder.path(), "a", b"one").unwrap();
        install(folder.path(), "a", b"other").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(install(&folder.path().join("none"), "a", b"one").is_err());
    }

    #[test]
    fn roots_folders() {
        roots_alone(Path::new("/usr/lib")).unwrap();
        let shared = siteseer_sites::with_causes(&roots_alone(Path::new("/tmp")).unwrap_err());
        assert!(shared.contains("users other than root can change it"), "{shared}");
    }
}
