// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How many files may be open: one per site and one per trampoline are needed.

use super::AttachError;
use std::fs;
use std::io;

/// Left for everything else that the process may want to open meanwhile.
const SPARE: u64 = 64;

/// Raises the limit on open files, if it is too low for so many more.
pub(super) fn raise_files(more: u64) -> Result<(), AttachError> {
    let open = fs::read_dir("/proc/self/fd").map_or(SPARE, |entries| entries.count() as u64);
    let needed = open + more + SPARE;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 || limit.rlim_cur >= needed {
        return Ok(());
    }
    let raised = libc::rlimit { rlim_cur: needed, rlim_max: limit.rlim_max.max(needed) };
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } != 0 {
        return Err(AttachError::Files { needed, limit: limit.rlim_max, error: io::Error::last_os_error() });
    }
    Ok(())
}
