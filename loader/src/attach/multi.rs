// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! kprobe.multi: one link on the entries or the returns of many functions, by address; and kprobe sessions, one link on both.
//!
//! It rests on fprobe, and so on ftrace: the addresses must be of functions that ftrace knows. The kernel takes all or none of
//! them; when it refuses, each is tried alone, so that one that it does not want is found and the others are had.

use crate::object::opened;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// At entries. It was loaded with the attach type `BPF_TRACE_KPROBE_MULTI`.
    Entry,
    /// At returns. It was loaded with the same.
    Return,
    /// At both. It was loaded with the attach type `BPF_TRACE_KPROBE_SESSION`.
    Both,
}

/// Attaches a program to functions.
fn attach_all(program: BorrowedFd<'_>, at: At, addresses: &[u64]) -> io::Result<OwnedFd> {
    let mut opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    opts.__bindgen_anon_1.kprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        cnt: addresses.len() as u32,
        addrs: addresses.as_ptr().cast(),
        flags: if at == At::Return { sys::BPF_F_KPROBE_MULTI_RETURN } else { 0 },
        ..Default::default()
    };
    let attach_type = if at == At::Both { sys::BPF_TRACE_KPROBE_SESSION } else { sys::BPF_TRACE_KPROBE_MULTI };
    // SAFETY: the descriptor is open; the array has `cnt` addresses and lives through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, attach_type, &opts) })
}

/// Attaches to all addresses by one link, or, if the kernel refuses some, by one link each to the others.
/// Gives the links, and per refused address its index and the error.
pub(super) fn attach(program: BorrowedFd<'_>, at: At, addresses: &[u64]) -> (Vec<OwnedFd>, Vec<(usize, io::Error)>) {
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
