// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a call of libbpf's that makes a system call gives.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The number of a system's error; EIO for one that has none.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The result of a libbpf call: negative is an errno.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The result of a libbpf call that opens a descriptor.
pub(crate) fn opened(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: a non-negative result is a new descriptor that nobody else owns.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
