// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A short-lived process of our own that closes events and writes lines to `kprobe_events`, so that nobody waits for
//! it: also not a process that ends meanwhile, as it would for a thread.
//!
//! # What it keeps open
//! It begins with a copy of every descriptor, and must not keep one that arms anything: a program would go on running
//! after its process was killed. So it closes all but what it is for, before anything else: by close_range(2); where
//! that is refused (seccomp) or absent (before Linux 5.9), one by one, as `/proc/self/fd` lists them; without that, by
//! number. If none of these shows that all are closed, it ends at once, which closes them too. Then the definitions are
//! left to the next process ([`super::reap`]).
//!
//! # What it waits for
//! Whoever closes the last copy of an event waits for grace periods of RCU, a few dozen milliseconds each. So it leaves
//! its copies open until the process that detaches has closed its own, which the end of a pipe tells.
//!
//! The kernel keeps a definition (EBUSY) as long as anybody has one of its events open: the process that detaches,
//! until it has closed its own copies, and any child that it is starting, until that calls execve(2). Such a line is
//! written again.
//!
//! # What the application sees of it
//! Nothing. It is made by clone(2) itself: no handler of pthread_atfork(3) runs, and its end sends no signal, so that
//! handlers of SIGCHLD and wait(-1) do not come across it. No handler of the application runs in it. It is an orphan,
//! which init waits for. Where this process is init, or the one that orphans go to (PR_SET_CHILD_SUBREAPER), it stays a
//! child, and is waited for when the next one is started.

use crate::forked::ForkLock;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// As many numbers of descriptors are tried where nothing says which are open.
const NUMBERS: u64 = 1 << 20;
/// How often, for all lines together, a line is written again that the kernel refuses with EBUSY, and how long after:
/// some other process still has a copy of an event, the one that detaches or one that it is starting.
const TRIES: u32 = 3_000;
/// How long it waits for the process that detaches, in milliseconds. A child of that process may hold the pipe, too.
const PATIENCE: libc::c_int = 2_000;
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// The number of signals, `_NSIG`.
const SIGNALS: libc::c_int = 64;

/// Closes the events, and then writes each line by one system call. If no process can be created, it does that here.
pub(super) fn close_and_write(file: &File, lines: &[String], events: Vec<OwnedFd>) {
    if let Ok(held) = start(file, lines, &events) {
        // The other process has its own, and is the one that waits for the kernel.
        drop(events);
        drop(held);
        return;
    }
    drop(events);
    for line in lines {
        let _ = io::Write::write_all(&mut &*file, line.as_bytes());
    }
}

/// Processes that are children of ours.
static CHILDREN: ForkLock<Vec<libc::pid_t>> = ForkLock::new(Vec::new);

/// Starts the process. It closes the events when the result is dropped.
fn start(file: &File, lines: &[String], events: &[OwnedFd]) -> io::Result<Option<io::PipeWriter>> {
    let writes: Vec<(*const libc::c_void, usize)> =
        lines.iter().map(|line| (line.as_ptr().cast(), line.len())).collect();
    let mut keep: Vec<RawFd> = events.iter().map(AsRawFd::as_raw_fd).collect();
    let events = keep.clone();
    keep.push(file.as_raw_fd());
    // Without a pipe it waits for nobody.
    let (held, holds) = io::pipe().ok().unzip();
    let held = held.as_ref().map(AsRawFd::as_raw_fd);
    keep.extend(held);
    keep.sort_unstable();
    let mut children = CHILDREN.lock();
    children.retain(|&child| !has_ended(child));
    let orphan = !is_reaper();
    // SAFETY: until they end the children make system calls only, on memory that was set up before; that is allowed
    // after a fork of a process with threads.
    let child = unsafe {
        let before = block_signals();
        let child = clone();
        if child == 0 {
            default_signals();
            if keep_only(&keep) && (!orphan || clone() == 0) {
                work(file.as_raw_fd(), held, &events, &writes);
            }
            libc::_exit(0);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        if child < 0 {
            return Err(error);
        }
        child
    };
    if orphan {
        wait_for(child);
    } else {
        children.push(child);
    }
    Ok(holds)
}

/// Whether orphans below this process become its children.
fn is_reaper() -> bool {
    let mut subreaper: libc::c_int = 0;
    // SAFETY: plain calls; the number lives through the second.
    unsafe {
        libc::getpid() == 1 || (libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) == 0 && subreaper != 0)
    }
}

fn wait_for(child: libc::pid_t) {
    // SAFETY: a child of this process. It may have been waited for: by wait(2) with __WALL.
    while unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
}

/// Whether there is nothing more to wait for.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: plain call.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) != 0 }
}

/// Makes a copy of the process, with this thread alone. The end of the copy sends no signal.
///
/// # Safety
/// As fork(2): the child may only make system calls.
unsafe fn clone() -> libc::pid_t {
    // SAFETY: without flags it is fork(2); no stack of its own, no places to fill.
    unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) as libc::pid_t }
}

/// Keeps handlers from running in the child before they are taken away. Gives what was blocked before.
///
/// # Safety
/// The result is to be set again.
unsafe fn block_signals() -> MaybeUninit<libc::sigset_t> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both live through the calls, which fill them.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    before
}

/// Takes the application's handlers away, and lets signals through.
///
/// # Safety
/// In a child that has no use for them.
unsafe fn default_signals() {
    // SAFETY: any bytes are a structure, and a null handler is valid. Those that cannot be set (SIGKILL) are refused.
    unsafe {
        let none: libc::sigaction = MaybeUninit::zeroed().assume_init();
        for signal in 1..=SIGNALS {
            libc::sigaction(signal, &raw const none, std::ptr::null_mut());
        }
        let mut empty = MaybeUninit::uninit();
        libc::sigemptyset(empty.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, empty.as_ptr(), std::ptr::null_mut());
    }
}

/// Closes all descriptors but these, which are sorted; false, if it is not certain that all are closed.
///
/// # Safety
/// In a child that has no other use for them.
unsafe fn keep_only(keep: &[RawFd]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { close_ranges(keep) || close_listed(keep) || close_numbers(keep) }
}

/// # Safety
/// As [`keep_only`].
unsafe fn close_ranges(keep: &[RawFd]) -> bool {
    let close = |first: u32, last: u32| {
        // SAFETY: the caller has no use for them.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) == 0 }
    };
    let mut first = 0;
    for &fd in keep {
        let fd = fd as u32;
        if fd > first && !close(first, fd - 1) {
            return false;
        }
        first = fd + 1;
    }
    close(first, u32::MAX)
}

/// # Safety
/// As [`keep_only`].
unsafe fn close_listed(keep: &[RawFd]) -> bool {
    /// Aligned as `struct linux_dirent64` wants it.
    #[repr(align(8))]
    struct Entries([u8; 2048]);
    /// Where an entry has its length, and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut entries = Entries([0; 2048]);
    let mut listed_itself = false;
    // SAFETY: the path is terminated, the buffer as long as it is said to be, and the caller has no use for what is
    // closed.
    unsafe {
        let folder = libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if folder < 0 {
            return false;
        }
        loop {
            let read = libc::syscall(libc::SYS_getdents64, folder, entries.0.as_mut_ptr(), entries.0.len());
            let Ok(read) = usize::try_from(read) else { return false };
            if read == 0 {
                break;
            }
            let mut left = entries.0.get(..read).unwrap_or_default();
            while let Some(&[low, high]) = left.get(LENGTH..LENGTH + 2) {
                let length = usize::from(u16::from_ne_bytes([low, high]));
                if let Some(fd) = left.get(NAME..length).and_then(number) {
                    listed_itself |= fd == folder;
                    if fd != folder && keep.binary_search(&fd).is_err() {
                        libc::close(fd);
                    }
                }
                left = left.get(length.max(1)..).unwrap_or_default();
            }
        }
        libc::close(folder);
    }
    listed_itself
}

/// A number, ended by a zero byte.
fn number(name: &[u8]) -> Option<RawFd> {
    let digits = name.split(|&byte| byte == 0).next().filter(|digits| !digits.is_empty())?;
    digits.iter().try_fold(0, |number: RawFd, digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit < 10 { number.checked_mul(10)?.checked_add(RawFd::from(digit)) } else { None }
    })
}

/// # Safety
/// As [`keep_only`].
unsafe fn close_numbers(keep: &[RawFd]) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call, and the caller has no use for what is closed.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 || limit.rlim_max > NUMBERS {
            return false;
        }
        for fd in 0..limit.rlim_max as RawFd {
            if keep.binary_search(&fd).is_err() {
                libc::close(fd);
            }
        }
    }
    true
}

/// What the process does: waits, closes, writes, ends.
///
/// # Safety
/// In the child. The writes' memory is what was set up before it was made.
unsafe fn work(file: RawFd, held: Option<RawFd>, events: &[RawFd], writes: &[(*const libc::c_void, usize)]) {
    // SAFETY: system calls on descriptors and memory that are this process's own.
    unsafe {
        libc::setsid();
        if let Some(fd) = held {
            libc::poll(&mut libc::pollfd { fd, events: 0, revents: 0 }, 1, PATIENCE);
        }
        for &event in events {
            libc::close(event);
        }
        let mut tries = TRIES;
        for (bytes, len) in writes {
            while libc::write(file, *bytes, *len) < 0
                && io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
                && tries > 0
            {
                libc::nanosleep(&raw const PAUSE, std::ptr::null_mut());
                tries -= 1;
            }
        }
        libc::_exit(0);
    }
}

#[cfg(test)]
pub(super) mod tests;
