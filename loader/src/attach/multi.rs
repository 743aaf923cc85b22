// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! kprobe.multi: one link on the entries of many functions, by address.
//!
//! It rests on fprobe, and so on ftrace: the addresses must be of functions that ftrace knows. The kernel takes all or none of
//! them; when it refuses, each is tried alone, so that one that it does not want is found and the others are had.

use crate::object::opened;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Attaches a program, loaded with the attach type `BPF_TRACE_KPROBE_MULTI`, to function entries.
fn attach_all(program: BorrowedFd<'_>, addresses: &[u64]) -> io::Result<OwnedFd> {
    let mut opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    opts.__bindgen_anon_1.kprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        cnt: addresses.len() as u32,
        addrs: addresses.as_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: the descriptor is open; the array has `cnt` addresses and lives through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_KPROBE_MULTI, &opts) })
}

/// Attaches to all addresses by one link, or, if the kernel refuses some, by one link each to the others.
/// Gives the links, and per refused address its index and the error.
pub(super) fn attach(program: BorrowedFd<'_>, addresses: &[u64]) -> (Vec<OwnedFd>, Vec<(usize, io::Error)>) {
    match attach_all(program, addresses) {
        Ok(link) => (vec![link], Vec::new()),
        Err(error) if addresses.len() == 1 => (Vec::new(), vec![(0, error)]),
        Err(_) => {
            let (mut links, mut refused) = (Vec::new(), Vec::new());
            for (index, address) in addresses.iter().enumerate() {
                match attach_all(program, std::slice::from_ref(address)) {
                    Ok(link) => links.push(link),
                    Err(error) => refused.push((index, error)),
                }
            }
            (links, refused)
        }
    }
}
