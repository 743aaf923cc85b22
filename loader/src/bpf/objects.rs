// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The programs, maps and links that there are, by id, and what the kernel tells about each.

use super::call::{check, opened};
use libbpf_sys as sys;
use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// What the kernel says about the object that a descriptor refers to. (`bpf_prog_get_info_by_fd()` and its kin came
/// with libbpf 1.2.)
///
/// # Safety
/// `T` is the structure of that kind of object, and any bytes are a value of it; pointers in it are to as many bytes as
/// the lengths beside them say.
pub(crate) unsafe fn info_by_fd<T>(fd: RawFd, info: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as u32;
    // SAFETY: the structure lives through the call; the rest is the caller's promise.
    check(unsafe { sys::bpf_obj_get_info_by_fd(fd, (info as *mut T).cast(), &mut len) }).map(drop)
}

pub(crate) fn program_info(fd: BorrowedFd<'_>) -> io::Result<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    // SAFETY: plain bytes, without pointers.
    unsafe { info_by_fd(fd.as_raw_fd(), &mut info) }?;
    Ok(info)
}

/// What the kernel says about a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<sys::bpf_map_info> {
    let mut info = sys::bpf_map_info::default();
    // SAFETY: plain bytes, without pointers.
    unsafe { info_by_fd(map.as_raw_fd(), &mut info) }?;
    Ok(info)
}

/// What the kernel says about a link.
pub(crate) fn link_info(link: BorrowedFd<'_>) -> io::Result<sys::bpf_link_info> {
    let mut info = sys::bpf_link_info::default();
    // SAFETY: plain bytes, without pointers.
    unsafe { info_by_fd(link.as_raw_fd(), &mut info) }?;
    Ok(info)
}

/// Opens a program by its id. Requires CAP_SYS_ADMIN.
pub(crate) fn open_program(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain call.
    opened(unsafe { sys::bpf_prog_get_fd_by_id(id) })
}

/// Opens a link by its id. Requires CAP_SYS_ADMIN.
pub(crate) fn open_link(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain call.
    opened(unsafe { sys::bpf_link_get_fd_by_id(id) })
}

/// A name of at most 15 bytes.
pub(crate) fn name(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All ids of a kind of object, by the call that gives the next one.
fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> c_int) -> impl Iterator<Item = io::Result<u32>> {
    let mut last = Some(0);
    std::iter::from_fn(move || {
        let mut id = 0;
        // SAFETY: the id lives through the call.
        match check(unsafe { next(last?, &mut id) }) {
            Ok(_) => {
                last = Some(id);
                Some(Ok(id))
            }
            Err(error) => {
                last = None;
                (error.raw_os_error() != Some(libc::ENOENT)).then_some(Err(error))
            }
        }
    })
}

/// Opens what has an id; `None` if it is gone meanwhile.
fn still_there(result: c_int) -> io::Result<Option<OwnedFd>> {
    match opened(result) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All maps, opened one after the other. Requires CAP_SYS_ADMIN.
pub(crate) fn maps() -> impl Iterator<Item = io::Result<OwnedFd>> {
    // SAFETY: plain call.
    let open = |id: io::Result<u32>| still_there(unsafe { sys::bpf_map_get_fd_by_id(id?) });
    ids(sys::bpf_map_get_next_id).filter_map(move |id| open(id).transpose())
}

/// All links, opened one after the other. Requires CAP_SYS_ADMIN.
pub(crate) fn links() -> impl Iterator<Item = io::Result<OwnedFd>> {
    // SAFETY: plain call.
    let open = |id: io::Result<u32>| still_there(unsafe { sys::bpf_link_get_fd_by_id(id?) });
    ids(sys::bpf_link_get_next_id).filter_map(move |id| open(id).transpose())
}

/// The program of an id; `None` if it is gone. Requires CAP_SYS_ADMIN.
pub(crate) fn program_if_there(id: u32) -> io::Result<Option<OwnedFd>> {
    // SAFETY: plain call.
    still_there(unsafe { sys::bpf_prog_get_fd_by_id(id) })
}

/// Runs a program of the type SYSCALL once, with numbers as its context.
pub(crate) fn run<const N: usize>(program: BorrowedFd<'_>, mut context: [u64; N]) -> io::Result<()> {
    let mut opts = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        ctx_in: (&raw mut context).cast(),
        ctx_size_in: size_of::<[u64; N]>() as u32,
        ..Default::default()
    };
    // SAFETY: the context lives through the call, and is as long as is said; the kernel writes it back.
    check(unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) }).map(drop)
}
