// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! kprobe.multi: one link on the entries or the returns of many functions, by address; and kprobe sessions, one link on
//! both.
//!
//! It rests on fprobe, and so on ftrace: the addresses must be of functions that ftrace knows. The kernel accepts all
//! or none of them; when it refuses, each is tried alone, so that the one that it does not want is found and the others
//! are attached.
//!
//! The system call is made here: libbpf's passes on what attach types its release knows, and the system's may be
//! older than sessions.

use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `link_create` of `union bpf_attr`, with the member `kprobe_multi`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    cnt: u32,
    syms: u64,
    addrs: u64,
    cookies: u64,
    reserved: [u64; 2],
}

const _: () = assert!(size_of::<LinkCreate>() == 64);

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// At entries. It was loaded with the attach type `BPF_TRACE_KPROBE_MULTI`.
    Entry,
    /// At returns. It was loaded with the same.
    Return,
    /// At both. It was loaded with the attach type `BPF_TRACE_KPROBE_SESSION`.
    Both,
}

/// Attaches a program to functions.
fn attach_all(program: BorrowedFd<'_>, at: At, addresses: &[u64]) -> io::Result<OwnedFd> {
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: if at == At::Both { sys::BPF_TRACE_KPROBE_SESSION } else { sys::BPF_TRACE_KPROBE_MULTI },
        flags: 0,
        multi_flags: if at == At::Return { sys::BPF_F_KPROBE_MULTI_RETURN } else { 0 },
        cnt: addresses.len() as u32,
        syms: 0,
        addrs: addresses.as_ptr() as u64,
        cookies: 0,
        reserved: [0; 2],
    };
    // SAFETY: the structure is what the kernel reads, its size is passed with it, and the array has `cnt` addresses; a
    // non-negative result is a new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, sys::BPF_LINK_CREATE, &raw const attr, size_of::<LinkCreate>());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// Attaches to all addresses by one link, or, if the kernel refuses some, by one link each to the others.
/// Gives the links, and per refused address its index and the error.
pub(crate) fn attach(program: BorrowedFd<'_>, at: At, addresses: &[u64]) -> (Vec<OwnedFd>, Vec<(usize, io::Error)>) {
    match attach_all(program, at, addresses) {
        Ok(link) => (vec![link], Vec::new()),
        Err(error) if addresses.len() == 1 => (Vec::new(), vec![(0, error)]),
        Err(_) => {
            let (mut links, mut refused) = (Vec::new(), Vec::new());
            for (index, address) in addresses.iter().enumerate() {
                match attach_all(program, at, std::slice::from_ref(address)) {
                    Ok(link) => links.push(link),
                    Err(error) => refused.push((index, error)),
                }
            }
            (links, refused)
        }
    }
}
