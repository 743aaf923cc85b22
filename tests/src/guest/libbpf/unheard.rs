// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Warnings inside of libbpf's calls that cannot be written: the call fails as it would anyway, and the application
//! goes on. A panic there would unwind into C, which aborts.

use super::attached::{a_skeleton_in_c, open, program, same};
use crate::guest::case::Failure;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const STDERR: RawFd = 2;

/// Another stderr, until it is dropped.
struct Instead(OwnedFd);

impl Instead {
    /// This file, or none.
    fn new(file: Option<&dyn AsRawFd>) -> io::Result<Instead> {
        // SAFETY: descriptors of this process; a new one is nobody else's.
        unsafe {
            let kept = libc::fcntl(STDERR, libc::F_DUPFD_CLOEXEC, 10);
            if kept < 0 {
                return Err(io::Error::last_os_error());
            }
            let kept = Instead(OwnedFd::from_raw_fd(kept));
            let done = match file {
                Some(file) => libc::dup2(file.as_raw_fd(), STDERR),
                None => libc::close(STDERR),
            };
            if done < 0 { Err(io::Error::last_os_error()) } else { Ok(kept) }
        }
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::dup2(self.0.as_raw_fd(), STDERR) };
    }
}

/// What a call of libbpf's says that siteseer refuses, with a warning; and then an application in C.
fn refused() -> Result<String, Failure> {
    let object = open(&["exits"])?.load()?;
    let error = program(&object, "exits")?.attach().err().ok_or("an fexit program is attached to an inlined copy")?;
    Ok(error.to_string())
}

pub(super) fn warnings_that_cannot_be_written() -> Result<String, Failure> {
    siteseer::register()?;
    let (mut reader, writer) = io::pipe()?;
    let instead = Instead::new(Some(&writer))?;
    let written = refused();
    drop(instead);
    drop(writer);
    let mut heard = String::new();
    reader.read_to_string(&mut heard)?;
    let written = written?;
    // Else there would be nothing that cannot be written.
    if !heard.contains("siteseer: ") || !heard.contains("an inlined copy has no return") {
        return Err(format!("the warning is not written: {heard:?}").into());
    }
    drop(reader);
    let full = File::options().write(true).open("/dev/full")?;
    let (reader, unread) = io::pipe()?;
    drop(reader);
    let stderrs: [(&str, Option<&dyn AsRawFd>); 3] =
        [("a full disk", Some(&full)), ("a pipe that nobody reads", Some(&unread)), ("none", None)];
    for (name, stderr) in stderrs {
        let instead = Instead::new(stderr)?;
        let found = refused();
        drop(instead);
        same(name, found?, written.clone())?;
    }
    // It sets what takes the messages, so it comes last; libbpf's own go to stderr.
    let instead = Instead::new(Some(&full))?;
    let in_c = a_skeleton_in_c();
    drop(instead);
    in_c.map_err(|why| format!("in C: {why}"))?;
    Ok("a full disk, a pipe that nobody reads, no stderr at all: the same error; an application in C goes on"
        .to_owned())
}
