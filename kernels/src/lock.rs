// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Who changes something in the cache holds a lock on it.

use std::{fs::File, path::Path};

use crate::error::GetError;

/// Takes the lock, and tells `waiting` first if that takes long. It is held while the result lives.
pub(crate) fn lock(path: &Path, waiting: impl FnOnce()) -> Result<File, GetError> {
    let error = || GetError::io(format!("cannot lock {}", path.display()));
    let file = File::create(path).map_err(error())?;
    if file.try_lock().is_err() {
        waiting();
        file.lock().map_err(error())?;
    }
    Ok(file)
}
