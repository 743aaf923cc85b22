// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One kprobe or kretprobe at an absolute address: a perf event of the `kprobe` source, and a BPF link on it.
//!
//! `config1 = 0, config2 = address` names the place (kernel/trace/trace_event_perf.c, `perf_kprobe_init()`). The
//! event is opened on one CPU, as libbpf does it: the probe itself is in the text, and the program runs on whichever
//! CPU hits it. The link holds the event, so the event's own descriptor is closed at once, and a site costs one
//! descriptor.

use super::call::opened;
use libbpf_sys as sys;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr`, include/uapi/linux/perf_event.h, as far as `PERF_ATTR_SIZE_VER1`.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
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

const _: () = assert!(size_of::<PerfEventAttr>() == 72);

/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Opens an event. `pmu` is the number of the event source.
pub(crate) fn open_event(pmu: u32, config: u64, address: u64) -> io::Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind: pmu,
        size: size_of::<PerfEventAttr>() as u32,
        config,
        config2: address,
        ..Default::default()
    };
    open_on(&attr, 0).or_else(|error| match error.raw_os_error() {
        // The first CPU can be switched off as any other.
        Some(libc::ENODEV) => {
            let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
            open_on(&attr, first_of(&online).filter(|&cpu| cpu != 0).ok_or(error)?)
        }
        _ => Err(error),
    })
}

fn open_on(attr: &PerfEventAttr, cpu: libc::c_int) -> io::Result<OwnedFd> {
    let (any_process, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
    // SAFETY: the structure lives through the call, and states its own size; a non-negative result is a new descriptor.
    unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, &raw const *attr, any_process, cpu, no_group, FD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// The first number of a list such as `1-3,6`.
fn first_of(list: &str) -> Option<libc::c_int> {
    list.trim().split([',', '-']).next()?.parse().ok()
}

/// Runs the program at each hit of the event, until the result is closed. The cookie is 0 where the kernel knows none.
pub(crate) fn link_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    opts.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: both descriptors are open, the options live through the call.
    opened(unsafe { sys::bpf_link_create(program.as_raw_fd(), event.as_raw_fd(), sys::BPF_PERF_EVENT, &opts) })
}

/// Puts a probe on an address.
fn attach(program: BorrowedFd<'_>, pmu: u32, config: u64, cookie: u64, address: u64) -> io::Result<OwnedFd> {
    let event = open_event(pmu, config, address)?;
    link_event(program, event.as_fd(), cookie)
}

/// Puts a probe on each address; `config` is 0 for a kprobe, or has the event source's bit for a return. Gives the
/// links, and per refused address its index and the error.
pub(crate) fn attach_each(
    program: BorrowedFd<'_>,
    pmu: u32,
    config: u64,
    cookie: u64,
    addresses: &[u64],
) -> (Vec<OwnedFd>, Vec<(usize, io::Error)>) {
    let (mut links, mut refused) = (Vec::new(), Vec::new());
    for (index, &address) in addresses.iter().enumerate() {
        match attach(program, pmu, config, cookie, address) {
            Ok(link) => links.push(link),
            Err(error) => refused.push((index, error)),
        }
    }
    (links, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cpu_that_is_there() {
        assert_eq!(first_of("0-7\n"), Some(0));
        assert_eq!(first_of("1,3-5\n"), Some(1));
        assert_eq!(first_of("2\n"), Some(2));
        assert_eq!(first_of("\n"), None);
    }
}
