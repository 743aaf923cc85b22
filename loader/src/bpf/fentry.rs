// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! fentry and fexit: a program of type TRACING, loaded for one function, linked to it.
//!
//! The kernel keeps no more than one link of such a program to its function, and 38 programs on a function
//! (`BPF_MAX_TRAMP_LINKS`). libbpf's call goes by `BPF_RAW_TRACEPOINT_OPEN` where the kernel has no such links (before
//! 5.19) and no cookie is asked for.

use super::call::opened;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Links a program to the function that it was loaded for. `attach_type` is the one that it was loaded with.
pub(crate) fn attach(program: BorrowedFd<'_>, attach_type: sys::bpf_attach_type, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    opts.__bindgen_anon_1.tracing.cookie = cookie;
    // SAFETY: the descriptor is open, the options live through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, attach_type, &opts) })
}
