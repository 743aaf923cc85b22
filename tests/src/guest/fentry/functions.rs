// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions, grouped by the changes that a compiler may have made to them, and known calls of them.

use crate::guest::calls::{open, syscall};
use crate::guest::case::Failure;
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::{chroot, program_of};
use libbpf_rs::{Object, ProgramInput};
use siteseer_sites::SiteKind::{Body, Inline};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const CAP_DAC_READ_SEARCH: u64 = 2;
pub(super) const CAP_SYS_CHROOT: u64 = 18;
const CAP_SYS_ADMIN: u64 = 21;

pub(super) fn getpgid(pid: u64) -> io::Result<i64> {
    syscall(libc::SYS_getpgid, [pid, 0, 0, 0, 0, 0])
}

/// A process that there is not.
const NOBODY: u64 = 0x3fff_fff0;

/// `fcntl()`, and an error's number as a negative result.
pub(super) fn fcntl(fd: u64, command: u64, argument: u64) -> i64 {
    syscall(libc::SYS_fcntl, [fd, command, argument, 0, 0, 0])
        .unwrap_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(0)))
}

/// Calls of a function, and how each must be seen: at which kind of site, in which symbol, and the value.
type Entered = Vec<(siteseer_sites::SiteKind, &'static str, u64)>;

/// A function with a body and inlined copies, all of them called.
pub(super) struct Partly {
    pub(super) shape: fn() -> Shape,
    pub(super) program: &'static str,
    pub(super) calls: fn() -> io::Result<Entered>,
}

pub(super) const PARTLY: &[Partly] = &[
    #[cfg(target_arch = "x86_64")]
    Partly {
        shape: || {
            let copy = site(Place::Inline).within("__do_sys_getpgrp").with(0);
            let elsewhere = site(Place::Inline).called_by("__do_sys_getpgid").attachable_or_not();
            Shape::new("do_getpgid", [site(Place::Body).with(0), copy]).and_no(elsewhere)
        },
        program: "getpgid_entered",
        calls: || {
            let mut calls = Vec::new();
            for pid in [0, u64::from(std::process::id()), 1] {
                getpgid(pid)?;
                calls.push((Body, "do_getpgid", pid));
                syscall(libc::SYS_getpgrp, [0; 6])?;
                calls.push((Inline, "__do_sys_getpgrp", 0));
            }
            Ok(calls)
        },
    },
    Partly {
        shape: || {
            let copy = |caller| site(Place::Inline).within(caller).with(1);
            let elsewhere = site(Place::Inline).called_by("__do_sys_chroot").attachable_or_not();
            let sites = [site(Place::Body).with(1), copy("capable"), copy("capable_wrt_inode_uidgid")];
            Shape::new("ns_capable", sites).and_no(elsewhere)
        },
        program: "capability_asked",
        calls: || {
            let (nowhere, secret) = (CString::new("/nowhere")?, CString::new("/tmp/partly-secret")?);
            let mut calls = Vec::new();
            for _ in 0..3 {
                chroot()?;
                calls.push((Body, "ns_capable", CAP_SYS_CHROOT));
                let _ = syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]);
                calls.push((Inline, "capable", CAP_SYS_ADMIN));
                syscall(libc::SYS_close, [open(&secret)?, 0, 0, 0, 0, 0])?;
                calls.push((Inline, "capable_wrt_inode_uidgid", CAP_DAC_READ_SEARCH));
            }
            Ok(calls)
        },
    },
];

/// A function with a body that is called, and what it returns.
pub(super) struct Returning {
    pub(super) shape: fn() -> Shape,
    pub(super) program: &'static str,
    /// Makes calls; the first argument of each, and its result.
    pub(super) calls: fn() -> io::Result<Vec<(u64, i64)>>,
}

pub(super) const BODIES: &[Returning] = &[
    Returning {
        shape: || {
            let elsewhere = site(Place::Inline).called_by("__do_sys_getpgid").attachable_or_not();
            Shape::new("do_getpgid", [site(Place::Body).with(0)]).and_no(elsewhere)
        },
        program: "getpgid_returned",
        calls: || {
            let mut calls = Vec::new();
            for pid in [0, u64::from(std::process::id())] {
                calls.push((pid, getpgid(pid)?));
            }
            let _ = getpgid(NOBODY);
            calls.push((NOBODY, -i64::from(libc::ESRCH)));
            Ok(calls)
        },
    },
    Returning {
        shape: || {
            let elsewhere = site(Place::Inline).called_by("__do_sys_fcntl").attachable_or_not();
            Shape::new("do_fcntl", [site(Place::Body).with(0)]).and_no(elsewhere)
        },
        program: "fcntl_answered",
        calls: || {
            let file = File::open("/")?;
            let fd = file.as_raw_fd() as u64;
            let commands = [libc::F_GETFL as u64, libc::F_GETFD as u64, 9999];
            Ok(commands.map(|command| (fd, fcntl(fd, command, 0))).to_vec())
        },
    },
];

/// Two arguments of a call, and its result.
type Answer = (u64, u64, i64);

/// A clone that returns its value, and calls of it: two arguments and the result of each.
pub(super) struct Cloned {
    pub(super) shape: fn() -> Shape,
    /// Reads the result alone.
    pub(super) returned: &'static str,
    /// Reads the arguments and the result.
    pub(super) done: &'static str,
    pub(super) calls: fn() -> io::Result<Vec<Answer>>,
}

pub(super) const CLONES: &[Cloned] = &[
    Cloned {
        shape: || Shape::new("kill_something_info", [site(Place::Clone).with(0).with(2).returning(true)]),
        returned: "kill_returned",
        done: "kill_done",
        calls: || {
            let me = u64::from(std::process::id());
            // The first only asks, the second is ignored by default.
            let calls = [(0, me, 0), (libc::SIGURG as u64, me, 0), (0, NOBODY, -i64::from(libc::ESRCH))];
            for (signal, pid, result) in calls {
                answers(syscall(libc::SYS_kill, [pid, signal, 0, 0, 0, 0]), result)?;
            }
            Ok(calls.to_vec())
        },
    },
    Cloned {
        shape: || Shape::new("ksys_msgctl", [site(Place::Clone).with(0).with(1).returning(true)]),
        returned: "msgctl_returned",
        done: "msgctl_done",
        calls: || {
            let id = syscall(libc::SYS_msgget, [libc::IPC_PRIVATE as u64, 0o600, 0, 0, 0, 0])? as u64;
            let invalid = -i64::from(libc::EINVAL);
            let remove = libc::IPC_RMID as u64;
            let calls = [(4711, id, invalid), (remove, id, 0), (remove, id, invalid)];
            for (command, id, result) in calls {
                answers(syscall(libc::SYS_msgctl, [id, command, 0, 0, 0, 0]), result)?;
            }
            Ok(calls.to_vec())
        },
    },
];

/// Whether a system call gave the result that it must give: an error's number is negative.
fn answers(given: io::Result<i64>, wanted: i64) -> io::Result<()> {
    let given = given.unwrap_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(0)));
    if given == wanted { Ok(()) } else { Err(io::Error::other(format!("a call gave {given}, not {wanted}"))) }
}

/// Clones that may have lost their results: the function, and a program that reads the result.
pub(super) const LOST: [(&str, &str); 2] =
    [("apply_mlockall_flags", "mlockall_returned"), ("uid_hash_find", "uid_found")];

/// Makes a call of a function, if need be by a program of the object.
type Call = fn(&Object) -> Result<(), Failure>;

/// Functions where kernels let programs sleep, and calls of them: a system call's own, where they are open to error
/// injection (CONFIG_FUNCTION_ERROR_INJECTION), and one that exists for tests of fentry (net/bpf/test_run.c).
pub(super) const SLEEPABLE: [(&str, Call); 2] = [
    (crate::entry!("getpgid"), |_| Ok(getpgid(0).map(drop)?)),
    ("bpf_fentry_test1", |object| Ok(program_of(object, "tested")?.test_run(ProgramInput::default()).map(drop)?)),
];
