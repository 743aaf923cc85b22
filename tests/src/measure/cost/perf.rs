// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Perf events and BPF links by system calls: what one would write without siteseer.

use libbpf_rs::libbpf_sys as sys;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` as far as `PERF_ATTR_SIZE_VER1`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOEXEC: libc::c_ulong = 8;

fn open(kind: u32, config: u64, address: u64, process: libc::pid_t, cpu: libc::c_int) -> io::Result<OwnedFd> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, config2: address, ..Attributes::default() };
    // SAFETY: the structure lives through the call and says how long it is.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, process, cpu, -1 as libc::c_int, CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The number of the kprobe event source.
fn kprobe_source() -> io::Result<u32> {
    let text = fs::read_to_string("/sys/bus/event_source/devices/kprobe/type")?;
    text.trim().parse().map_err(io::Error::other)
}

/// A kprobe for a BPF program, as libbpf opens it.
///
/// # Errors
/// The kernel's.
pub fn kprobe(address: u64) -> io::Result<OwnedFd> {
    open(kprobe_source()?, 0, address, -1, 0)
}

/// A kprobe that counts this process's hits.
///
/// # Errors
/// The kernel's.
pub fn counting_kprobe(address: u64) -> io::Result<OwnedFd> {
    open(kprobe_source()?, 0, address, 0, -1)
}

fn event_number(event: &str) -> io::Result<u64> {
    let id = fs::read_to_string(format!("/sys/kernel/tracing/events/{event}/id"))?;
    id.trim().parse().map_err(io::Error::other)
}

/// An event of tracefs that counts this process's hits.
///
/// # Errors
/// The kernel's.
pub fn counting_event(event: &str) -> io::Result<OwnedFd> {
    open(TRACEPOINT, event_number(event)?, 0, 0, -1)
}

/// An event of tracefs for a BPF program.
///
/// # Errors
/// The kernel's.
pub fn event(event: &str) -> io::Result<OwnedFd> {
    open(TRACEPOINT, event_number(event)?, 0, -1, 0)
}

/// What an event has counted.
///
/// # Errors
/// The kernel's.
pub fn count(event: &OwnedFd) -> io::Result<u64> {
    let mut value = 0u64;
    // SAFETY: eight live bytes.
    match unsafe { libc::read(event.as_raw_fd(), (&raw mut value).cast(), 8) } {
        8 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

fn opened(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: libbpf has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Links a program to a perf event.
///
/// # Errors
/// The kernel's.
pub fn link(program: BorrowedFd<'_>, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut options =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: both descriptors are open; the options live through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), event.as_raw_fd(), sys::BPF_PERF_EVENT, &options) })
}

/// Links a program to a function's entry by kprobe.multi.
///
/// # Errors
/// The kernel's.
pub fn kprobe_multi(program: BorrowedFd<'_>, address: u64) -> io::Result<OwnedFd> {
    multi(program, &[address], None, 0)
}

/// Links a program to the entries of functions by one kprobe.multi link, with a cookie each.
///
/// # Errors
/// The kernel's.
pub fn kprobe_multi_all(program: BorrowedFd<'_>, addresses: &[u64], cookies: &[u64]) -> io::Result<OwnedFd> {
    multi(program, addresses, Some(cookies), 0)
}

/// `BPF_F_KPROBE_MULTI_RAW` of kernels/patches/kprobe-multi-addresses.patch.
const RAW: u32 = 2;

/// Links a program to instructions by one link, with a cookie each: only a kernel with
/// kernels/patches/kprobe-multi-addresses.patch can.
///
/// # Errors
/// The kernel's.
pub fn kprobe_multi_raw(program: BorrowedFd<'_>, addresses: &[u64], cookies: &[u64]) -> io::Result<OwnedFd> {
    multi(program, addresses, Some(cookies), RAW)
}

/// `cookies` must be as many as the addresses.
fn multi(program: BorrowedFd<'_>, addresses: &[u64], cookies: Option<&[u64]>, flags: u32) -> io::Result<OwnedFd> {
    if cookies.is_some_and(|cookies| cookies.len() != addresses.len()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut options =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    options.__bindgen_anon_1.kprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        flags,
        cnt: u32::try_from(addresses.len()).map_err(io::Error::other)?,
        addrs: addresses.as_ptr(),
        cookies: cookies.map_or(std::ptr::null(), <[u64]>::as_ptr),
        ..Default::default()
    };
    // SAFETY: the arrays have as many numbers as the options say; everything lives through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_KPROBE_MULTI, &options) })
}
