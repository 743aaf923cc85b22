// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which process owns a definition in tracefs, and whether that process is gone.
//!
//! A definition outlives the process that wrote it, so its group's name says who that was: the PID namespace, the PID,
//! and when the process started, because PIDs are used again. It does not say whether the process still lives: one of
//! another PID namespace cannot be seen, and one that has ended may have forked after it had attached. Then the child
//! has the descriptors that arm the event. Taking probes away from an armed event is something that the kernel does
//! silently (kernel/trace/trace_kprobe.c, `unregister_trace_kprobe()`: only the last probe of an event is refused), and
//! hits would be missed silently.
//!
//! So an owner holds a lock on one byte of `kprobe_events` before it defines anything, an open file description's lock
//! (fcntl(2), F_OFD_SETLK). Children inherit it with the descriptors; exec and the end of the last of them drop it with
//! the descriptors. There is one tracefs for all containers, and so one file to lock: an owner without its lock is
//! gone, wherever it lived.

use crate::forked::ForkLock;
use procfs::process::Process;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

/// What the names of our groups begin with.
const PREFIX: &str = "siteseer";

/// Names a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    /// Inode of its PID namespace: processes of others cannot be seen.
    namespace: u64,
    pid: u32,
    /// When it started, in ticks since boot.
    started: u64,
}

/// This process, once its lock is taken.
static CLAIMED: ForkLock<Option<Owner>> = ForkLock::new(|| None);

impl Owner {
    /// This process.
    pub(super) fn here() -> Option<Owner> {
        // Not by the number: /proc may be that of another PID namespace.
        let process = Process::myself().ok()?;
        let namespace = process.namespaces().ok()?.0.get(OsStr::new("pid"))?.identifier;
        let started = process.stat().ok()?.starttime;
        Some(Owner { namespace, pid: std::process::id(), started })
    }

    /// This process, its lock taken: what it defines from now on is its own as long as it, or a child that it forks,
    /// lives.
    pub(super) fn claim(folder: &Path) -> io::Result<Owner> {
        let here = Owner::here().ok_or(io::ErrorKind::NotFound)?;
        let mut claimed = CLAIMED.lock();
        if claimed.as_ref() != Some(&here) {
            let file = events_file(folder)?;
            here.lock(&file, libc::F_OFD_SETLK)?;
            // Held for good. In a child that was forked the parent's stays, for the links that it inherited.
            let _ = file.into_raw_fd();
            *claimed = Some(here.clone());
        }
        Ok(here)
    }

    /// Sets or asks for the lock of the owner's byte.
    fn lock(&self, file: &File, command: libc::c_int) -> io::Result<libc::flock> {
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: self.byte(),
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: the descriptor is open, and the structure lives through the call.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            0 => Ok(lock),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The byte. Two owners that share one keep each other's definitions a little longer, no more.
    fn byte(&self) -> i64 {
        let mixed = self.started.rotate_left(40) ^ u64::from(self.pid).rotate_left(16) ^ self.namespace;
        // Below the largest offset, with room for the length.
        (mixed >> 2) as i64
    }

    /// The name of a group of events.
    pub(super) fn group(&self, nth: u32) -> String {
        format!("{PREFIX}_{}_{}_{}_{nth}", self.namespace, self.pid, self.started)
    }

    /// The owner that a group's name tells; `None` for everybody else's groups.
    pub(super) fn parse(group: &str) -> Option<Owner> {
        let mut words = group.strip_prefix(PREFIX)?.strip_prefix('_')?.split('_');
        let mut next = || words.next()?.parse::<u64>().ok();
        let (namespace, pid, started) = (next()?, u32::try_from(next()?).ok()?, next()?);
        next()?;
        words.next().is_none().then_some(Owner { namespace, pid, started })
    }

    /// Whether the process is gone, and so is every other one that could have what it armed. `events` was opened for
    /// this: of the description that holds a lock the kernel says that it is free.
    pub(super) fn is_gone(&self, events: &File) -> bool {
        self.lock(events, libc::F_OFD_GETLK).is_ok_and(|lock| lock.l_type == libc::F_UNLCK as libc::c_short)
    }
}

/// Opens `kprobe_events` for adding and removing.
pub(super) fn events_file(folder: &Path) -> io::Result<File> {
    // Never truncated: that would remove everybody's events.
    OpenOptions::new().append(true).open(folder.join("kprobe_events"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forked::tests::child_ends;
    use serial_test::serial;
    use std::fs;

    #[test]
    fn groups_tell_their_owner() {
        let owner = Owner::here().unwrap();
        let group = owner.group(3);
        assert!(group.len() < 64, "{group}");
        assert_eq!(Owner::parse(&group).as_ref(), Some(&owner));
        for foreign in
            ["kprobes", "siteseer", "siteseer_1_2_3", "siteseer_1_2_3_4_5", "siteseer_a_2_3_4", "perf_bpf_probe"]
        {
            assert_eq!(Owner::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    #[serial]
    fn an_owner_is_gone_when_nobody_holds_its_lock() {
        let file = tempfile::tempfile().unwrap();
        let again = || OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let here = Owner::here().unwrap();
        let elsewhere = Owner { namespace: here.namespace + 1, ..here.clone() };
        for owner in [&here, &elsewhere] {
            assert!(owner.is_gone(&file), "{owner:?}");
            let held = again().unwrap();
            owner.lock(&held, libc::F_OFD_SETLK).unwrap();
            let inherited = held.try_clone().unwrap();
            drop(held);
            assert!(!owner.is_gone(&file), "a child that it forked has the lock: {owner:?}");
            drop(inherited);
            assert!(owner.is_gone(&file), "{owner:?}");
        }
    }

    #[test]
    #[serial]
    fn a_forked_child_claims_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kprobe_events"), "").unwrap();
        assert!(child_ends(
            || CLAIMED.lock(),
            || Owner::claim(folder.path()).is_ok_and(|own| CLAIMED.lock().as_ref() == Some(&own))
        ));
    }

    #[test]
    fn what_is_claimed_is_locked_for_good() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kprobe_events"), "").unwrap();
        let owner = Owner::claim(folder.path()).unwrap();
        assert!(!owner.is_gone(&events_file(folder.path()).unwrap()));
    }
}
