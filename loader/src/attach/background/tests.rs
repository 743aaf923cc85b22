// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The other process, in surroundings where less is allowed. A pipe stands for `kprobe_events`: once it is full the
//! process waits, and it can be seen what it has open.
//!
//! The tests that fork, and look at what a process has inherited, run one after the other.

use super::*;
use serial_test::serial;
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Has the kernel refuse system calls, to this thread and its children.
pub(in crate::attach) fn refuse(calls: &[libc::c_long], errno: libc::c_int) {
    let filter = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = vec![filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for &call in calls {
        program.push(filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32));
        program.push(filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// Runs in a thread of its own, so that what is refused to it is refused to nobody else.
fn with_refused<R: Send>(calls: &[libc::c_long], errno: libc::c_int, run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            if !calls.is_empty() {
                refuse(calls, errno);
            }
            run()
        });
        there.join().unwrap()
    })
}

/// A pipe, with room for one page.
fn pipe() -> (File, File) {
    let (read, write) = io::pipe().unwrap();
    // SAFETY: it is open.
    unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    (File::from(OwnedFd::from(read)), File::from(OwnedFd::from(write)))
}

/// Whether the other ends of a pipe are all closed within a time.
fn hangs_up(pipe: &File, within: Duration) -> bool {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::poll(&raw mut poll, 1, within.as_millis() as libc::c_int) == 1 && poll.revents & libc::POLLHUP != 0 }
}

/// What the process was told to write arrives, and while it waits for that it has nothing open that would arm a site.
fn closes_what_arms(calls: &[libc::c_long], errno: libc::c_int) {
    let (mut listing, kprobe_events) = pipe();
    let (armed, arming) = pipe();
    let (event, opened) = pipe();
    let lines: Vec<String> = (0..3).map(|nth| format!("-:line{nth} {}\n", "x".repeat(4000))).collect();
    with_refused(calls, errno, || close_and_write(&kprobe_events, &lines, vec![OwnedFd::from(opened)]));
    drop((kprobe_events, arming));
    // It is there, and has closed the event, and waits for room in the pipe.
    assert!(hangs_up(&event, Duration::from_secs(20)), "{calls:?}: the event is open");
    // (For a moment, children of other tests may have it, too.)
    assert!(hangs_up(&armed, Duration::from_secs(20)), "{calls:?}: what arms is open");
    assert!(!hangs_up(&listing, Duration::ZERO), "{calls:?}: it does not wait");
    let mut text = String::new();
    listing.read_to_string(&mut text).unwrap();
    assert_eq!(text, lines.concat());
}

/// Whoever closes an event last waits for the kernel: it is not the process that detaches.
#[test]
#[serial]
fn it_closes_events_last() {
    let (mut listing, kprobe_events) = pipe();
    let (event, opened) = pipe();
    let events = vec![OwnedFd::from(opened)];
    let held = start(&kprobe_events, &["-:line\n".to_owned()], &events).unwrap();
    drop((events, kprobe_events));
    assert!(!hangs_up(&event, Duration::from_millis(300)), "it has closed the event first");
    drop(held.unwrap());
    assert!(hangs_up(&event, Duration::from_secs(20)));
    let mut text = String::new();
    listing.read_to_string(&mut text).unwrap();
    assert_eq!(text, "-:line\n");
}

#[test]
#[serial]
fn nothing_that_arms_stays_open() {
    closes_what_arms(&[], 0);
}

#[test]
#[serial]
fn nothing_that_arms_stays_open_without_close_range() {
    closes_what_arms(&[libc::SYS_close_range], libc::EPERM);
    closes_what_arms(&[libc::SYS_close_range], libc::ENOSYS);
}

#[test]
#[serial]
fn nothing_that_arms_stays_open_without_proc() {
    let getdents = libc::SYS_getdents64;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if limit.rlim_max <= NUMBERS {
        closes_what_arms(&[libc::SYS_close_range, getdents], libc::EPERM);
        return;
    }
    // Nothing shows what is open: it ends at once, and the definitions are left.
    let (mut listing, kprobe_events) = pipe();
    let (armed, arming) = pipe();
    let lines = ["line\n".to_owned()];
    with_refused(&[libc::SYS_close_range, getdents], libc::EPERM, || {
        close_and_write(&kprobe_events, &lines, Vec::new());
    });
    drop((kprobe_events, arming));
    assert!(hangs_up(&armed, Duration::from_secs(20)));
    let mut text = String::new();
    listing.read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

#[test]
#[serial]
fn without_a_process_it_is_done_here() {
    let (mut listing, kprobe_events) = pipe();
    let (event, opened) = pipe();
    let lines = ["one\n".to_owned(), "two\n".to_owned()];
    with_refused(&[libc::SYS_clone], libc::EAGAIN, || {
        // Threads are made by clone3(2).
        close_and_write(&kprobe_events, &lines, vec![OwnedFd::from(opened)]);
    });
    // (For a moment, children of other tests may have it, too.)
    assert!(hangs_up(&event, Duration::from_secs(20)));
    drop(kprobe_events);
    let mut text = String::new();
    listing.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
}

/// An application that waits for any child, and counts the signals of children that end.
#[test]
#[serial]
fn the_application_does_not_come_across_it() {
    let (mut report, to_report) = pipe();
    // SAFETY: a process by itself, with children and signals of its own. It allocates, as the C library lets a child
    // do.
    let application = unsafe { libc::fork() };
    if application == 0 {
        let saw = application_with_children();
        let _ = (&to_report).write_all(saw.as_bytes());
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    drop(to_report);
    let mut saw = String::new();
    report.read_to_string(&mut saw).unwrap();
    wait_for(application);
    assert_eq!(saw, "wait: ECHILD, signals: 0, as a reaper: ECHILD, signals: 0, left: 0");
}

fn application_with_children() -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static SIGNALLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        SIGNALLED.fetch_add(1, Ordering::Relaxed);
    }
    let wait = || {
        let (mut listing, kprobe_events) = pipe();
        close_and_write(&kprobe_events, &["line\n".to_owned()], Vec::new());
        drop(kprobe_events);
        let mut text = String::new();
        let _ = listing.read_to_string(&mut text);
        // Its last descriptor is closed a moment before its end.
        thread::sleep(Duration::from_millis(50));
        // SAFETY: plain call.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) => "ECHILD".to_owned(),
            other => other.to_string(),
        }
    };
    // SAFETY: the handler counts only.
    unsafe { libc::signal(libc::SIGCHLD, count as *const () as libc::sighandler_t) };
    let first = wait();
    let signals = SIGNALLED.load(Ordering::Relaxed);
    // SAFETY: plain call.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let reaper = wait();
    let more = SIGNALLED.load(Ordering::Relaxed);
    let mut children = CHILDREN.lock();
    children.retain(|&child| !has_ended(child));
    let left = children.len();
    format!("wait: {first}, signals: {signals}, as a reaper: {reaper}, signals: {more}, left: {left}")
}

/// Another thread of the parent was starting such a process when the child was forked.
#[test]
#[serial]
fn a_forked_child_starts_one() {
    let written = crate::forked::tests::child_ends(
        || CHILDREN.lock(),
        || {
            let Ok(file) = tempfile::tempfile() else { return false };
            close_and_write(&file, &["line\n".to_owned()], Vec::new());
            (0..1000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                file.metadata().is_ok_and(|about| about.len() == 5)
            })
        },
    );
    assert!(written);
}
