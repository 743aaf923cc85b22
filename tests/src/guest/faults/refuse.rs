// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! System calls that are refused to a thread, and to the threads and processes that it starts (seccomp(2)).

use std::io;
use std::mem::offset_of;

/// A system call that is refused.
pub(super) struct Refused {
    pub(super) call: libc::c_long,
    /// Only with this value of this argument.
    pub(super) argument: Option<(usize, u32)>,
    pub(super) errno: i32,
}

fn statement(parts: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: parts as u16, jt: 0, jf: 0, k }
}

/// Passes over so many statements unless the value that was loaded is this one.
fn unless(k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt: 0, jf: skip, k }
}

/// Refuses them to this thread from now on.
pub(super) fn refuse(calls: &[Refused]) -> io::Result<()> {
    let load = |at: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32);
    let mut filter = Vec::new();
    for refused in calls {
        filter.push(load(offset_of!(libc::seccomp_data, nr)));
        filter.push(unless(refused.call as u32, if refused.argument.is_some() { 3 } else { 1 }));
        if let Some((nth, value)) = refused.argument {
            // The lower half, which comes first on the machines that there are tests for.
            filter.push(load(offset_of!(libc::seccomp_data, args) + 8 * nth));
            filter.push(unless(value, 1));
        }
        filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | refused.errno as u32));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives through the call.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
