// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Calls for the tools that watch processes.

use super::{Group, Tally, Tool, fails, memfd, number, owned, page_size, path};
use crate::guest::calls::syscall;
#[cfg(target_arch = "x86_64")]
use crate::guest::calls::syscall32;
use siteseer_bpf_progs::TOOLS_TASKS;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `tools_tasks.bpf.c`.
pub(super) const GROUP: Group = Group {
    name: "tasks",
    elf: TOOLS_TASKS,
    tools: &[
        Tool::new("pidfdsnoop", pidfdsnoop),
        Tool::new("waitsnoop", waitsnoop),
        Tool::new("rlimitsnoop", rlimitsnoop),
        Tool::new("nicesnoop", nicesnoop),
        Tool::new("schedsnoop", schedsnoop),
        Tool::new("killsnoop", killsnoop),
        Tool::new("sigsnoop", sigsnoop),
        Tool::new("masksnoop", masksnoop),
        Tool::new("capable", capable),
        Tool::new("sysinfosnoop", sysinfosnoop),
        Tool::new("altstacksnoop", altstacksnoop),
        Tool::new("mlocksnoop", mlocksnoop),
        Tool::new("sleepsnoop", sleepsnoop),
        Tool::new("mmsnoop", mmsnoop),
        Tool::new("execsnoop", execsnoop),
        Tool::new("shmsnoop", shmsnoop),
        Tool::new("semsnoop", semsnoop),
        Tool::new("semopsnoop", semopsnoop),
        Tool::new("shmrmsnoop", shmrmsnoop),
        Tool::new("memfdsnoop", memfdsnoop),
        Tool::new("vmasplit", vmasplit),
        Tool::new("msgsnoop", msgsnoop),
        Tool::new("pgidsnoop", pgidsnoop),
    ],
    others: &[],
};

fn me() -> u64 {
    u64::from(std::process::id())
}

/// A descriptor of this process.
fn pidfd() -> io::Result<std::os::fd::OwnedFd> {
    Ok(owned(syscall(libc::SYS_pidfd_open, [me(), 0, 0, 0, 0, 0])?))
}

/// waitid() on a process that is not a child.
fn wait() -> io::Result<()> {
    fails(syscall(libc::SYS_wait4, [me(), 0, libc::WNOHANG as u64, 0, 0, 0]), libc::ECHILD)
}

fn pidfdsnoop(tally: &mut Tally) -> io::Result<()> {
    for _ in 0..2 {
        // In pidfd_open(), twice inlined.
        tally.call(me());
        pidfd()?;
        // In find_get_pid().
        tally.call(me());
        wait()?;
        // From another source file.
        tally.call(me());
        syscall(libc::SYS_kill, [me(), 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn waitsnoop(tally: &mut Tally) -> io::Result<()> {
    for _ in 0..2 {
        tally.call(me());
        pidfd()?;
        tally.call(me());
        wait()?;
    }
    tally.call(me());
    wait()
}

fn rlimitsnoop(tally: &mut Tally) -> io::Result<()> {
    let mut limits = [0u64; 2];
    let to = limits.as_mut_ptr() as u64;
    for resource in [libc::RLIMIT_NOFILE, libc::RLIMIT_CORE].map(u64::from) {
        let seen = (resource << 32) + me();
        #[cfg(target_arch = "x86_64")]
        {
            tally.call(seen);
            syscall(libc::SYS_getrlimit, [resource, to, 0, 0, 0, 0])?;
        }
        tally.call(seen);
        syscall(libc::SYS_prlimit64, [0, resource, 0, to, 0, 0])?;
    }
    Ok(())
}

fn nicesnoop(tally: &mut Tally) -> io::Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        // __NR_nice of the 32-bit table; the 64-bit one has none.
        const NICE: u32 = 34;
        tally.call((-3 + me() as i64) as u64);
        syscall32(NICE, [(-3i32) as u32, 0, 0, 0, 0])?;
    }
    // Only a more favourable value is asked about.
    let nice = |value: i64| (value + me() as i64) as u64;
    let set = |value: i64| syscall(libc::SYS_setpriority, [u64::from(libc::PRIO_PROCESS), 0, value as u64, 0, 0, 0]);
    for value in [-5, -11] {
        tally.call(nice(value));
        set(value)?;
    }
    set(0).map(drop)
}

/// include/uapi/linux/sched/types.h, the first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    deadline: [u64; 3],
}

fn schedsnoop(tally: &mut Tally) -> io::Result<()> {
    for nice in [3i32, 7, 0] {
        let attr = SchedAttr { size: 48, policy: 0, flags: 0, nice, priority: 0, deadline: [0; 3] };
        tally.call((i64::from(nice) + me() as i64) as u64);
        syscall(libc::SYS_sched_setattr, [0, (&raw const attr) as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// A signal that is ignored by default, and one that only asks.
const HARMLESS: [u64; 2] = [libc::SIGWINCH as u64, 0];

fn killsnoop(tally: &mut Tally) -> io::Result<()> {
    for signal in HARMLESS {
        tally.call((signal << 32) + me());
        syscall(libc::SYS_kill, [me(), signal, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn sigsnoop(tally: &mut Tally) -> io::Result<()> {
    let pidfd = pidfd()?;
    for signal in HARMLESS {
        tally.call((signal << 32) + me());
        syscall(libc::SYS_kill, [me(), signal, 0, 0, 0, 0])?;
        tally.call((signal << 32) + me());
        syscall(libc::SYS_pidfd_send_signal, [number(&pidfd), signal, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn masksnoop(tally: &mut Tally) -> io::Result<()> {
    let now = [0u64; 2];
    for signal in [libc::SIGWINCH, libc::SIGURG, libc::SIGUSR2] {
        let mask = 1u64 << (signal - 1);
        tally.call(mask);
        let at = (now.as_ptr() as u64, (&raw const mask) as u64);
        syscall(libc::SYS_ppoll, [0, 0, at.0, at.1, 8, 0])?;
    }
    Ok(())
}

fn capable(tally: &mut Tally) -> io::Result<()> {
    const CAP_DAC_READ_SEARCH: u64 = 2;
    const CAP_SYS_CHROOT: u64 = 18;
    const CAP_SYS_ADMIN: u64 = 21;
    let (root, nowhere, secret) = (path("/")?, path("/nowhere")?, path("/tmp/tools-secret")?);
    drop(File::create("/tmp/tools-secret")?);
    syscall(libc::SYS_fchmodat, [libc::AT_FDCWD as u64, secret.as_ptr() as u64, 0, 0, 0, 0])?;
    for _ in 0..2 {
        tally.call(CAP_SYS_CHROOT);
        syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0])?;
        tally.call(CAP_SYS_ADMIN);
        fails(syscall(libc::SYS_swapoff, [nowhere.as_ptr() as u64, 0, 0, 0, 0, 0]), libc::ENOENT)?;
        tally.call(CAP_DAC_READ_SEARCH);
        let here = libc::AT_FDCWD as u64;
        owned(syscall(libc::SYS_openat, [here, secret.as_ptr() as u64, libc::O_RDONLY as u64, 0, 0, 0])?);
    }
    Ok(())
}

fn sysinfosnoop(tally: &mut Tally) -> io::Result<()> {
    let mut info = [0u64; 32];
    for _ in 0..3 {
        tally.call(0);
        syscall(libc::SYS_sysinfo, [info.as_mut_ptr() as u64, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// The smallest alternate stack, MINSIGSTKSZ of include/uapi/asm-generic/signal-defs.h and arch/arm64's.
#[cfg(target_arch = "x86_64")]
const MIN_STACK: u64 = 2048;
#[cfg(target_arch = "aarch64")]
const MIN_STACK: u64 = 5120;

fn altstacksnoop(tally: &mut Tally) -> io::Result<()> {
    let mut old = [0u64; 3];
    for _ in 0..2 {
        // No new stack.
        tally.call(MIN_STACK + 1);
        syscall(libc::SYS_sigaltstack, [0, old.as_mut_ptr() as u64, 0, 0, 0, 0])?;
        // The same again as the new one.
        tally.call(MIN_STACK);
        syscall(libc::SYS_sigaltstack, [old.as_ptr() as u64, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn mlocksnoop(tally: &mut Tally) -> io::Result<()> {
    for flags in [libc::MCL_FUTURE as u64, (libc::MCL_FUTURE | libc::MCL_ONFAULT) as u64] {
        tally.call(flags);
        syscall(libc::SYS_mlockall, [flags, 0, 0, 0, 0, 0])?;
        // munlockall() is the same function with no flags.
        tally.call(0);
        syscall(libc::SYS_munlockall, [0; 6])?;
    }
    Ok(())
}

fn sleepsnoop(tally: &mut Tally) -> io::Result<()> {
    let timer = owned(syscall(libc::SYS_timerfd_create, [libc::CLOCK_MONOTONIC as u64, 0, 0, 0, 0, 0])?);
    for n in 1..3u64 {
        // Interval, then first expiration.
        let spec = [1000 + n, 111, 2000 + n, 222];
        tally.call(spec[0] * 1_000_000_000 + spec[1]);
        tally.call(spec[2] * 1_000_000_000 + spec[3]);
        syscall(libc::SYS_timerfd_settime, [number(&timer), 0, spec.as_ptr() as u64, 0, 0, 0])?;
        let pause = [0u64, 1000 + n];
        tally.call(pause[1]);
        syscall(libc::SYS_clock_nanosleep, [libc::CLOCK_MONOTONIC as u64, 0, pause.as_ptr() as u64, 0, 0, 0])?;
    }
    Ok(())
}

fn mmsnoop(tally: &mut Tally) -> io::Result<()> {
    let (from, mut to) = (5u8, 0u8);
    for _ in 0..2 {
        let local = [(&raw mut to) as u64, 1];
        let remote = [(&raw const from) as u64, 1];
        tally.call(me());
        let vectors = (local.as_ptr() as u64, remote.as_ptr() as u64);
        syscall(libc::SYS_process_vm_readv, [me(), vectors.0, 1, vectors.1, 1, 0])?;
        // The symbol, from fs/proc/array.c.
        let status = File::open("/proc/self/status")?;
        tally.call(me());
        syscall(libc::SYS_read, [status.as_raw_fd() as u64, (&raw mut to) as u64, 1, 0, 0, 0])?;
    }
    Ok(())
}

fn execsnoop(tally: &mut Tally) -> io::Result<()> {
    let nowhere = path("/nowhere/to/be/found")?;
    let none = [0u64; 1];
    let none = none.as_ptr() as u64;
    let at = nowhere.as_ptr() as u64;
    for _ in 0..2 {
        tally.call(i64::from(libc::AT_FDCWD) as u64);
        fails(syscall(libc::SYS_execve, [at, none, none, 0, 0, 0]), libc::ENOENT)?;
        // An absolute path needs no folder.
        tally.call(77);
        fails(syscall(libc::SYS_execveat, [77, at, none, none, 0, 0]), libc::ENOENT)?;
    }
    Ok(())
}

/// Keys of System V objects that nothing else has.
const KEY: u64 = 0x5173_0100;

fn shmsnoop(tally: &mut Tally) -> io::Result<()> {
    for (key, size) in [(KEY, 4096u64), (KEY + 1, 12345)] {
        let flags = (libc::IPC_CREAT | 0o600) as u64;
        tally.call(key + size + flags);
        let id = syscall(libc::SYS_shmget, [key, size, flags, 0, 0, 0])?;
        syscall(libc::SYS_shmctl, [id as u64, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn semsnoop(tally: &mut Tally) -> io::Result<()> {
    for (key, count) in [(KEY, 1u64), (KEY + 1, 4)] {
        let flags = (libc::IPC_CREAT | 0o600) as u64;
        tally.call(key + count + flags);
        let id = syscall(libc::SYS_semget, [key, count, flags, 0, 0, 0])?;
        syscall(libc::SYS_semctl, [id as u64, 0, libc::IPC_RMID as u64, 0, 0, 0])?;
    }
    Ok(())
}

fn semopsnoop(tally: &mut Tally) -> io::Result<()> {
    let id = syscall(libc::SYS_semget, [libc::IPC_PRIVATE as u64, 2, 0o600, 0, 0, 0])? as u64;
    // struct sembuf: number, operation, flags. Both are raised by one.
    let operations: [i16; 6] = [0, 1, 0, 1, 1, 0];
    let at = operations.as_ptr() as u64;
    for count in [1u64, 2] {
        tally.call(count + (1 << 32));
        syscall(libc::SYS_semtimedop, [id, at, count, 0, 0, 0])?;
        let time = [1u64, 0];
        tally.call(count);
        syscall(libc::SYS_semtimedop, [id, at, count, time.as_ptr() as u64, 0, 0])?;
    }
    syscall(libc::SYS_semctl, [id, 0, libc::IPC_RMID as u64, 0, 0, 0]).map(drop)
}

fn shmrmsnoop(tally: &mut Tally) -> io::Result<()> {
    for key in [KEY, KEY + 9] {
        let id = syscall(libc::SYS_shmget, [key, 4096, (libc::IPC_CREAT | 0o600) as u64, 0, 0, 0])? as u64;
        tally.call(key + id);
        syscall(libc::SYS_shmctl, [id, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn memfdsnoop(tally: &mut Tally) -> io::Result<()> {
    for name in ["seal", "a longer name"] {
        let file = memfd(name, u64::from(libc::MFD_ALLOW_SEALING))?;
        tally.call("memfd:".len() as u64 + name.len() as u64);
        syscall(libc::SYS_fcntl, [number(&file), libc::F_GET_SEALS as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn vmasplit(tally: &mut Tally) -> io::Result<()> {
    // Shared memory of its own: such an area never grows together with a neighbour.
    let (protection, flags) =
        ((libc::PROT_READ | libc::PROT_WRITE) as u64, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64);
    let page = page_size();
    for pages in [3u64, 5] {
        let at = syscall(libc::SYS_mmap, [0, pages * page, protection, flags, u64::MAX, 0])? as u64;
        // One page in the middle: first what is before it is split off, then what is after it.
        tally.call(1 + ((pages * page) << 12));
        tally.call(1 + (((pages - 1) * page) << 12));
        syscall(libc::SYS_mprotect, [at + page, page, libc::PROT_READ as u64, 0, 0, 0])?;
        syscall(libc::SYS_munmap, [at, pages * page, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn msgsnoop(tally: &mut Tally) -> io::Result<()> {
    for key in [KEY, KEY + 1] {
        let flags = (libc::IPC_CREAT | 0o600) as u64;
        tally.call(key + flags);
        let id = syscall(libc::SYS_msgget, [key, flags, 0, 0, 0, 0])?;
        syscall(libc::SYS_msgctl, [id as u64, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    }
    Ok(())
}

fn pgidsnoop(tally: &mut Tally) -> io::Result<()> {
    for pid in [0, me(), 1] {
        tally.call(pid);
        syscall(libc::SYS_getpgid, [pid, 0, 0, 0, 0, 0])?;
        // getpgrp() is do_getpgid(0).
        #[cfg(target_arch = "x86_64")]
        {
            tally.call(0);
            syscall(libc::SYS_getpgrp, [0; 6])?;
        }
    }
    Ok(())
}
