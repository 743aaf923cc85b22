// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! fentry as the kernel has it: what libbpf does for `SEC("fentry/foo")` once it has foo's number in the kernel's BTF.

use crate::guest::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// How far an fentry program came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It was not loaded.
    Load,
    /// It was loaded, and not attached.
    Attach,
    /// It was attached.
    Attached,
}

/// Loads and attaches a program that does nothing to a function; detaches it again. How far that came, and the error's
/// number.
///
/// # Errors
/// If this process may not load programs at all.
pub(super) fn fentry(func: TypeId) -> Result<(Stage, i32), Failure> {
    let insn = |code: u32| sys::bpf_insn { code: code as u8, ..Default::default() };
    let insns = [insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K), insn(sys::BPF_JMP | sys::BPF_EXIT)];
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        expected_attach_type: sys::BPF_TRACE_FENTRY,
        attach_btf_id: func,
        ..Default::default()
    };
    // SAFETY: everything that is pointed at lives through the call.
    let program = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_TRACING,
            c"plain".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as sys::size_t,
            &mut opts,
        )
    };
    if program == -libc::EPERM {
        return Err("no programs may be loaded here".into());
    }
    if program < 0 {
        return Ok((Stage::Load, -program));
    }
    // SAFETY: a new descriptor that nobody else owns.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    // SAFETY: as above.
    let link = unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_FENTRY, &opts) };
    if link < 0 {
        return Ok((Stage::Attach, -link));
    }
    // SAFETY: as above.
    drop(unsafe { OwnedFd::from_raw_fd(link) });
    Ok((Stage::Attached, 0))
}
