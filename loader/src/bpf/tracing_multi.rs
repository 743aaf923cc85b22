// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! tracing-multi (Linux 7.3): one TRACING program on many functions by one link.
//!
//! The program is loaded with an attach type of its own and without a function: the verifier takes it for one on a
//! function of six numbers (`bpf_multi_func()`, kernel/bpf/verifier.c). The link names the functions by the BTF ids of
//! their FUNCs; the kernel accepts all or none of them. libbpf has no call for it up to 1.7.

use libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `BPF_TRACE_FENTRY_MULTI` of include/uapi/linux/bpf.h.
pub(crate) const FENTRY_MULTI: sys::bpf_attach_type = 59;
/// `BPF_TRACE_FEXIT_MULTI`.
pub(crate) const FEXIT_MULTI: sys::bpf_attach_type = 60;

/// `link_create` of `union bpf_attr`, with the member `tracing_multi`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    ids: u64,
    cookies: u64,
    cnt: u32,
    reserved: [u32; 7],
}

const _: () = assert!(size_of::<LinkCreate>() == 64);

/// Links a program, loaded with the attach type, to functions; `cookie` is for each of them.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    attach_type: sys::bpf_attach_type,
    functions: &[TypeId],
    cookie: u64,
) -> io::Result<OwnedFd> {
    let cookies = vec![cookie; functions.len()];
    let attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type,
        flags: 0,
        ids: functions.as_ptr() as u64,
        cookies: cookies.as_ptr() as u64,
        cnt: functions.len() as u32,
        reserved: [0; 7],
    };
    // SAFETY: the structure is what the kernel reads, its size is passed with it, and the arrays have `cnt` elements; a
    // non-negative result is a new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, sys::BPF_LINK_CREATE, &raw const attr, size_of::<LinkCreate>());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}
