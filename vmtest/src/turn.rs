// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! How many machines run at once, where several test programs run side by side.
//!
//! Each test program boots as many machines as it has threads. More emulated machines than processors make all of them
//! slow, so that what guests wait for does not come in time. `SITESEER_MACHINES` names a folder with a file for each
//! machine that may run. A machine locks one of them while it runs, and waits for one. The kernel gives the locks of a
//! process back when it dies. Without the variable, nothing waits.

use std::{
    env,
    fs::{self, File, TryLockError},
    io,
    path::Path,
    thread,
    time::Duration,
};

/// The folder's variable.
const VARIABLE: &str = "SITESEER_MACHINES";
/// How often a machine looks whether another one has ended.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until a machine may run. It may for as long as the result lives.
///
/// # Errors
/// If the folder cannot be read, or no file is in it.
pub(crate) fn wait() -> io::Result<Option<File>> {
    env::var_os(VARIABLE).map(|folder| wait_in(Path::new(&folder))).transpose()
}

fn wait_in(folder: &Path) -> io::Result<File> {
    loop {
        let mut is_empty = true;
        for entry in fs::read_dir(folder)? {
            is_empty = false;
            let file = File::open(entry?.path())?;
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        if is_empty {
            let why = format!("{VARIABLE}: no file is in {}, so no machine may run", folder.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_machine_waits_for_another_ones_end() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["1", "2"] {
            File::create(folder.path().join(name)).unwrap();
        }
        let (first, second) = (wait_in(folder.path()).unwrap(), wait_in(folder.path()).unwrap());
        let (ran, runs) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let _turn = wait_in(folder.path()).unwrap();
                ran.send(()).unwrap();
            });
            assert!(runs.recv_timeout(3 * PAUSE).is_err(), "two files, three machines");
            drop(second);
            runs.recv().unwrap();
        });
        drop(first);
    }

    #[test]
    fn a_folder_without_files_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(wait_in(folder.path()).unwrap_err().to_string().contains(VARIABLE));
        assert!(wait_in(&folder.path().join("missing")).is_err());
    }
}
