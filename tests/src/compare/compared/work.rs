// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The program `calls`: it makes a known number of calls, in a thread with the name `workload`.

use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use crate::guest::trace_tool::{as_workload, workload};
use crate::measure::bench::commands::median;
use std::ffi::CString;
use std::io;
use std::path::Path;
use std::time::Instant;

/// Where it lies in the guest: a link to the guest's program, which is all of them.
pub const PATH: &str = "/usr/bin/calls";

/// Whether the guest's program was started by this name.
pub fn is_meant(name: &str) -> bool {
    Path::new(name).file_name() == Path::new(PATH).file_name()
}

/// `calls mixed`, `calls sync`, or `calls FUNCTION NUMBER`, which prints the nanoseconds of each call.
///
/// # Errors
/// If it is told something else, or if a system call fails.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["mixed"] => Ok(workload()?),
        ["sync"] => Ok(as_workload(sync)?),
        ["umask", number] => timed(number.parse()?, || syscall(libc::SYS_umask, [0o22, 0, 0, 0, 0, 0])),
        // There is no such set: ENOENT.
        ["semget", number] => timed(number.parse()?, || syscall(libc::SYS_semget, [0x5173_5ee7, 1, 0o600, 0, 0, 0])),
        other => Err(format!("calls: {other:?} is not known").into()),
    }
}

/// Synchronises a file: three times all of it, twice its data, and four times through a mapping.
fn sync() -> io::Result<()> {
    let path = CString::new("/tmp/synced")?;
    let here = libc::AT_FDCWD as u64;
    let flags = (libc::O_RDWR | libc::O_CREAT) as u64;
    let file = syscall(libc::SYS_openat, [here, path.as_ptr() as u64, flags, 0o600, 0, 0])? as u64;
    syscall(libc::SYS_ftruncate, [file, 4096, 0, 0, 0, 0])?;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let page = syscall(libc::SYS_mmap, [0, 4096, access, libc::MAP_SHARED as u64, file, 0])? as u64;
    for (number, times) in [(libc::SYS_fsync, 3), (libc::SYS_fdatasync, 2)] {
        for _ in 0..times {
            syscall(number, [file, 0, 0, 0, 0, 0])?;
        }
    }
    for _ in 0..4 {
        syscall(libc::SYS_msync, [page, 4096, libc::MS_SYNC as u64, 0, 0, 0])?;
    }
    syscall(libc::SYS_munmap, [page, 4096, 0, 0, 0, 0])?;
    syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]).map(drop)
}

/// Calls of a batch. The number of calls is a multiple.
const BATCH: u64 = 1000;

/// Prints the nanoseconds of a call: the median of batches, as an interrupt is in the one batch or the other.
fn timed(number: u64, call: impl Fn() -> io::Result<i64>) -> Result<(), Failure> {
    let batch = || {
        let begin = Instant::now();
        (0..BATCH).for_each(|_| drop(call()));
        begin.elapsed().as_nanos() as f64 / BATCH as f64
    };
    println!("{}", median((0..number / BATCH).map(|_| batch()).collect()));
    Ok(())
}
