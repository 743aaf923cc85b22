// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Calls for the tools that look at what functions return, and how long they take.

use super::{Group, Tally, Tool, fails, path};
use crate::guest::calls::syscall;
use siteseer_bpf_progs::TOOLS_RETURNS;
use std::fs::{self, File};
use std::io;

/// `tools_returns.bpf.c`.
pub(super) const GROUP: Group = Group {
    name: "returns",
    elf: TOOLS_RETURNS,
    tools: &[
        Tool::new("semctl_latency", semctl_latency),
        Tool::new("semctl_result", semctl_result),
        Tool::new("shmctl_result", shmctl_result),
        Tool::new("msgctl_errors", msgctl_errors),
        Tool::new("altstack_result", altstack_result),
        Tool::new("umount_result", umount_result),
        Tool::new("access_errors", access_errors),
        Tool::new("access_latency", access_latency),
    ],
    others: &["semctl_begin", "access_begin"],
};

/// Commands of include/uapi/linux/sem.h.
const GETVAL: u64 = 12;
const SETVAL: u64 = 16;

/// Semaphores with known values; each call goes to `seen`, with what it returned.
fn semaphores(mut seen: impl FnMut(u64, u64, u64)) -> io::Result<()> {
    let id = syscall(libc::SYS_semget, [libc::IPC_PRIVATE as u64, 4, 0o600, 0, 0, 0])? as u64;
    let mut control = |number: u64, command: u64, argument: u64| -> io::Result<()> {
        let result = syscall(libc::SYS_semctl, [id, number, command, argument, 0, 0])?;
        seen(number, command, result as u64);
        Ok(())
    };
    for (number, value) in [(0u64, 17u64), (3, 91)] {
        control(number, SETVAL, value)?;
        control(number, GETVAL, 0)?;
    }
    control(0, libc::IPC_RMID as u64, 0)
}

fn semctl_latency(tally: &mut Tally) -> io::Result<()> {
    semaphores(|_, _, _| tally.call(0))
}

fn semctl_result(tally: &mut Tally) -> io::Result<()> {
    let mut values = Vec::new();
    semaphores(|number, command, result| {
        tally.call(result + (number << 16) + (command << 32));
        if command == GETVAL {
            values.push(result);
        }
    })?;
    // What the system call returned is what the semaphores were set to.
    if values == [17, 91] { Ok(()) } else { Err(io::Error::other(format!("the semaphores hold {values:?}"))) }
}

fn shmctl_result(tally: &mut Tally) -> io::Result<()> {
    /// The state of a segment by its index (the lower 15 bits of its id): returns the id.
    const SHM_STAT: u64 = 13;
    let mut state = [0u64; 32];
    let to = state.as_mut_ptr() as u64;
    let id = syscall(libc::SYS_shmget, [libc::IPC_PRIVATE as u64, 4096, 0o600, 0, 0, 0])? as u64;
    for _ in 0..2 {
        tally.call(id);
        let result = syscall(libc::SYS_shmctl, [id & 0x7fff, SHM_STAT, to, 0, 0, 0])? as u64;
        if result != id {
            return Err(io::Error::other(format!("segment {id} is called {result}")));
        }
    }
    tally.call(-i64::from(libc::EINVAL) as u64);
    fails(syscall(libc::SYS_shmctl, [u64::MAX, libc::IPC_STAT as u64, to, 0, 0, 0]), libc::EINVAL)?;
    tally.call(0);
    syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0]).map(drop)
}

fn msgctl_errors(tally: &mut Tally) -> io::Result<()> {
    let command = libc::IPC_STAT as u64;
    let mut state = [0u64; 32];
    let to = state.as_mut_ptr() as u64;
    let id = syscall(libc::SYS_msgget, [libc::IPC_PRIVATE as u64, 0o600, 0, 0, 0, 0])? as u64;
    // What succeeds is not counted.
    syscall(libc::SYS_msgctl, [id, command, to, 0, 0, 0])?;
    for (id, to, errno) in [(u64::MAX, to, libc::EINVAL), (id, 8, libc::EFAULT)] {
        tally.call(errno as u64 + (command << 32));
        fails(syscall(libc::SYS_msgctl, [id, command, to, 0, 0, 0]), errno)?;
    }
    syscall(libc::SYS_msgctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0]).map(drop)
}

/// The smallest alternate stack.
#[cfg(target_arch = "x86_64")]
const MIN_STACK: u64 = 2048;
#[cfg(target_arch = "aarch64")]
const MIN_STACK: u64 = 5120;

fn altstack_result(tally: &mut Tally) -> io::Result<()> {
    let seen = |errno: i32| errno as u64 + (MIN_STACK << 32);
    let mut old = [0u64; 3];
    tally.call(seen(0));
    syscall(libc::SYS_sigaltstack, [0, old.as_mut_ptr() as u64, 0, 0, 0, 0])?;
    // struct sigaltstack: pointer, flags, size. Flags that there are not; a stack that is too small.
    let memory = [0u64; 16];
    let at = memory.as_ptr() as u64;
    for (stack, errno) in [([at, 0x1234, 1 << 16], libc::EINVAL), ([at, 0, 8], libc::ENOMEM)] {
        tally.call(seen(errno));
        fails(syscall(libc::SYS_sigaltstack, [stack.as_ptr() as u64, 0, 0, 0, 0, 0]), errno)?;
    }
    Ok(())
}

fn umount_result(tally: &mut Tally) -> io::Result<()> {
    fs::create_dir_all("/tmp/tools-umount")?;
    let (kind, place) = (path("ramfs")?, path("/tmp/tools-umount")?);
    let flags = libc::MNT_DETACH as u64;
    syscall(libc::SYS_mount, [kind.as_ptr() as u64, place.as_ptr() as u64, kind.as_ptr() as u64, 0, 0, 0])?;
    tally.call(flags << 32);
    syscall(libc::SYS_umount2, [place.as_ptr() as u64, flags, 0, 0, 0, 0])?;
    // Nothing is mounted there any more.
    tally.call((flags << 32) + libc::EINVAL as u64);
    fails(syscall(libc::SYS_umount2, [place.as_ptr() as u64, flags, 0, 0, 0, 0]), libc::EINVAL)
}

/// Asks whether files are there; `missing` is told of each that is not.
fn access(mut called: impl FnMut(), mut missing: impl FnMut(u64)) -> io::Result<()> {
    drop(File::create("/tmp/tools-access")?);
    let (there, nowhere) = (path("/tmp/tools-access")?, path("/tmp/tools-nowhere")?);
    let here = libc::AT_FDCWD as u64;
    for mode in [libc::F_OK as u64, libc::R_OK as u64] {
        called();
        syscall(libc::SYS_faccessat, [here, there.as_ptr() as u64, mode, 0, 0, 0])?;
        called();
        missing(mode);
        fails(syscall(libc::SYS_faccessat, [here, nowhere.as_ptr() as u64, mode, 0, 0, 0]), libc::ENOENT)?;
    }
    Ok(())
}

fn access_errors(tally: &mut Tally) -> io::Result<()> {
    access(|| (), |mode| tally.call(libc::ENOENT as u64 + (mode << 32)))
}

fn access_latency(tally: &mut Tally) -> io::Result<()> {
    access(|| tally.call(0), |_| ())
}
