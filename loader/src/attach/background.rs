// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A short-lived process of our own that closes events and writes lines to `kprobe_events`, so that nobody waits for it: also not
//! a process that ends meanwhile, as it would for a thread.
//!
//! It must never have a descriptor that arms anything: a program would go on running after its process was killed. So the
//! first thing after the fork is to close all but what it is for, and [`Background::start`] returns after that.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// For how long the other process waits to be told to go, in milliseconds, if its parent neither does nor ends.
const PATIENCE: libc::c_int = 60_000;

/// The process, which waits.
#[must_use = "it waits to be told to go"]
pub(super) struct Background {
    /// Whoever closes an event's last descriptor waits for the kernel. That is to be the other process.
    events: Vec<OwnedFd>,
    /// What is to be done here, if there is no other process: where to, and what.
    here: Option<(File, Vec<String>)>,
    /// The other process waits for the end of this pipe.
    _told: Option<OwnedFd>,
}

impl Background {
    /// Starts a process that will close the events, and then write each line by one system call.
    pub(super) fn start(file: &File, lines: Vec<String>, events: Vec<OwnedFd>) -> Background {
        let writes: Vec<(*const libc::c_void, usize)> =
            lines.iter().map(|line| (line.as_ptr().cast(), line.len())).collect();
        let Ok((wait, told)) = io::pipe() else { return Background::here(file, lines, events) };
        let (wait, told) = (OwnedFd::from(wait), OwnedFd::from(told));
        let mut keep: Vec<RawFd> = events.iter().map(AsRawFd::as_raw_fd).collect();
        keep.extend([file.as_raw_fd(), wait.as_raw_fd()]);
        keep.sort_unstable();
        // SAFETY: between fork and _exit the children make system calls only, on memory that was set up before; that is allowed
        // after a fork of a process with threads. The first child ends at once, and is waited for; the second one is init's.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                close_but(&keep);
                if libc::fork() == 0 {
                    work(file.as_raw_fd(), wait.as_raw_fd(), &writes);
                }
                libc::_exit(0);
            }
            if child < 0 {
                return Background::here(file, lines, events);
            }
            let mut status = 0;
            while libc::waitpid(child, &mut status, 0) < 0 && *libc::__errno_location() == libc::EINTR {}
        }
        Background { events, here: None, _told: Some(told) }
    }

    fn here(file: &File, lines: Vec<String>, events: Vec<OwnedFd>) -> Background {
        Background { events, here: file.try_clone().ok().map(|file| (file, lines)), _told: None }
    }

    /// Lets it begin.
    pub(super) fn go(self) {
        drop(self.events);
        // No process to be had: then here.
        if let Some((mut file, lines)) = self.here {
            for line in lines {
                let _ = io::Write::write_all(&mut file, line.as_bytes());
            }
        }
    }
}

/// Closes all descriptors but these, which are sorted.
///
/// # Safety
/// In a forked child that has no other use for them.
unsafe fn close_but(keep: &[RawFd]) {
    let close = |first: u32, last: u32| {
        if first <= last {
            // SAFETY: the caller has no use for them.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) };
        }
    };
    let mut first = 0;
    for &fd in keep {
        let fd = fd as u32;
        if fd > first {
            close(first, fd - 1);
        }
        first = fd + 1;
    }
    close(first, u32::MAX);
}

/// What the process does: waits, closes, writes.
///
/// # Safety
/// In a forked child. The writes' memory is what was set up before the fork.
unsafe fn work(file: RawFd, wait: RawFd, writes: &[(*const libc::c_void, usize)]) {
    // SAFETY: system calls on descriptors and memory that are this process's own.
    unsafe {
        libc::setsid();
        let mut end = libc::pollfd { fd: wait, events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut end, 1, PATIENCE);
        close_but(&[file]);
        for (bytes, len) in writes {
            libc::write(file, *bytes, *len);
        }
    }
}
