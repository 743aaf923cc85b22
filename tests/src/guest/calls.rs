// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! System calls made exactly once, exactly as asked.
//!
//! The C library retries, adds calls of its own and chooses among entry points; a test that counts calls cannot
//! have that. These go straight to the kernel, and one of them through the 32-bit entry.

use std::ffi::CStr;
use std::io;

/// The result of a system call, or its error.
fn answer(result: i64) -> io::Result<i64> {
    if (-4095..0).contains(&result) { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(result) }
}

/// One system call through the machine's ordinary entry.
///
/// # Errors
/// The kernel's errno.
pub fn syscall(number: libc::c_long, arguments: [u64; 6]) -> io::Result<i64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: The callers in this crate pass pointers to live memory of the sizes that the call expects.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a file for reading. `openat`, as newer architectures have no `open`.
///
/// # Errors
/// The kernel's errno.
pub fn open(path: &CStr) -> io::Result<u64> {
    let here = libc::AT_FDCWD as u64;
    Ok(syscall(libc::SYS_openat, [here, path.as_ptr() as u64, libc::O_RDONLY as u64, 0, 0, 0])? as u64)
}

/// Changes a file's mode.
///
/// # Errors
/// The kernel's errno.
pub fn chmod(path: &CStr, mode: u32) -> io::Result<()> {
    let here = libc::AT_FDCWD as u64;
    syscall(libc::SYS_fchmodat, [here, path.as_ptr() as u64, u64::from(mode), 0, 0, 0]).map(drop)
}

/// The symbol of a system call's ordinary entry (`SYSCALL_DEFINE`, arch/*/include/asm/syscall_wrapper.h).
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! entry {
    ($name:literal) => {
        concat!("__x64_sys_", $name)
    };
}

/// The symbol of a system call's ordinary entry (`SYSCALL_DEFINE`, arch/*/include/asm/syscall_wrapper.h).
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! entry {
    ($name:literal) => {
        concat!("__arm64_sys_", $name)
    };
}

/// One system call through the 32-bit entry of x86-64 (`int 0x80`); numbers and layouts are i386's.
///
/// # Errors
/// The kernel's errno; `ENOSYS` where the kernel has no 32-bit entry.
#[cfg(target_arch = "x86_64")]
pub fn syscall32(number: u32, arguments: [u32; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = arguments.map(u64::from);
    let result: u64;
    // SAFETY: int 0x80 clobbers rax, and in older kernels r8 to r11; rbx is the compiler's, so it is swapped in and
    // out. The callers pass no pointers but zero.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {a}",
            "int 0x80",
            "xchg rbx, {a}",
            a = inout(reg) a => _,
            inlateout("rax") u64::from(number) => result,
            in("rcx") b,
            in("rdx") c,
            in("rsi") d,
            in("rdi") e,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    answer(i64::from(result as i32))
}

/// There is no 32-bit entry.
///
/// # Errors
/// Always `ENOSYS`.
#[cfg(not(target_arch = "x86_64"))]
pub fn syscall32(_number: u32, _arguments: [u32; 5]) -> io::Result<i64> {
    answer(-i64::from(libc::ENOSYS))
}

/// Runs `work` in a process of its own, which ends with the exit code that it gives. If this process has other threads,
/// `work` must make system calls only.
///
/// # Errors
/// If the process cannot be made.
pub(crate) fn fork(work: impl FnOnce() -> i32) -> io::Result<libc::pid_t> {
    // SAFETY: no other thread holds a lock that `work` takes, by the contract above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = work();
            // SAFETY: _exit ends the process.
            unsafe { libc::_exit(code) }
        }
        process => Ok(process),
    }
}

/// Waits for the end of a process. Gives its exit code, or none if a signal ended it.
///
/// # Errors
/// If it is not a child of this process.
pub(crate) fn exit_code(process: libc::pid_t) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` is a live int.
    if unsafe { libc::waitpid(process, &raw mut status, 0) } != process {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)))
}

/// Runs `child` in a forked process and waits for it; `child` must make system calls only.
///
/// # Errors
/// If the process cannot be made, or ends otherwise than by returning `Ok`.
pub fn in_child(child: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let process = fork(|| match child() {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(255).clamp(1, 255),
    })?;
    match exit_code(process)? {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::other("a signal ended the child")),
    }
}
