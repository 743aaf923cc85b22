// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A thread that asks before its system calls (seccomp_unotify(2)): another thread counts them, and lets some fail.

use crate::guest::case::Failure;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long processes that were started are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// The system calls that a thread asks about.
#[derive(Clone, Copy)]
pub(super) enum Calls {
    These(&'static [libc::c_long]),
    AllBut(&'static [libc::c_long]),
}

/// A system call that is about to be made.
pub(super) struct Question {
    pub(super) call: libc::c_long,
    pub(super) arguments: [u64; 6],
}

/// Runs something on a thread that asks about system calls; `answer` gives the error that one fails with, if it does.
/// Processes and threads that it starts ask, too, and are waited for; after it has ended, nothing of theirs fails.
///
/// # Errors
/// If there can be no such thread, what runs on it panics, or what it started does not end.
pub(super) fn run<T: Send + 'static>(
    calls: Calls,
    work: impl FnOnce() -> T + Send + 'static,
    mut answer: impl FnMut(&Question) -> Option<i32>,
) -> Result<T, Failure> {
    let (send, receive) = mpsc::channel();
    let asking = thread::spawn(move || {
        // Who waits for the listener hears why there is none.
        send.send(filter(calls)).ok()?;
        Some(work())
    });
    let listener = receive.recv()??;
    while !asking.is_finished() {
        reply(&listener, &mut answer)?;
    }
    let done = asking.join().map_err(|_| "a panic while a system call fails")?;
    // Without a listener each call would be refused (ENOSYS).
    let begin = Instant::now();
    while !matches!(reply(&listener, &mut |_| None)?, Heard::Nobody) {
        if begin.elapsed() > PATIENCE {
            return Err(format!("what it started has not ended after {PATIENCE:?}").into());
        }
    }
    done.ok_or_else(|| "nobody waits for the listener".into())
}

/// Puts the calling thread under a filter that asks.
fn filter(calls: Calls) -> io::Result<OwnedFd> {
    let statement = |parts: u32, k: u32| libc::sock_filter { code: parts as u16, jt: 0, jf: 0, k };
    let (list, listed, others) = match calls {
        Calls::These(list) => (list, libc::SECCOMP_RET_USER_NOTIF, libc::SECCOMP_RET_ALLOW),
        Calls::AllBut(list) => (list, libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF),
    };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (nth, call) in list.iter().enumerate() {
        filter.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: (list.len() - nth) as u8,
            jf: 0,
            k: *call as u32,
        });
    }
    filter.extend([others, listed].map(|action| statement(libc::BPF_RET | libc::BPF_K, action)));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives through the call; the result is a new descriptor.
    unsafe {
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
        let listener = libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program);
        if listener < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(listener as RawFd)) }
    }
}

enum Heard {
    Question,
    Nothing,
    /// Nobody asks any more.
    Nobody,
}

/// Answers one question, if there is one within a moment.
fn reply(listener: &OwnedFd, answer: &mut impl FnMut(&Question) -> Option<i32>) -> io::Result<Heard> {
    // SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND (include/uapi/linux/seccomp.h).
    const RECV: libc::c_ulong = 0xc050_2100;
    const SEND: libc::c_ulong = 0xc018_2101;
    let fd = listener.as_raw_fd();
    // SAFETY: the structures live through the calls, and have the sizes that the numbers of the requests say.
    unsafe {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        if libc::poll(&raw mut poll, 1, 1) <= 0 {
            return Ok(Heard::Nothing);
        }
        if poll.revents & libc::POLLIN == 0 {
            return Ok(if poll.revents & libc::POLLHUP != 0 { Heard::Nobody } else { Heard::Nothing });
        }
        let mut question: libc::seccomp_notif = std::mem::zeroed();
        if libc::ioctl(fd, RECV as _, &raw mut question) != 0 {
            return Ok(Heard::Nothing);
        }
        let mut response: libc::seccomp_notif_resp = std::mem::zeroed();
        response.id = question.id;
        match answer(&Question { call: question.data.nr.into(), arguments: question.data.args }) {
            Some(errno) => response.error = -errno,
            None => response.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        }
        match libc::ioctl(fd, SEND as _, &raw mut response) {
            0 => Ok(Heard::Question),
            _ => match io::Error::last_os_error() {
                // Whoever asked was killed meanwhile.
                gone if gone.raw_os_error() == Some(libc::ENOENT) => Ok(Heard::Nothing),
                error => Err(error),
            },
        }
    }
}
