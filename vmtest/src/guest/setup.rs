// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What a bare initramfs lacks: file systems, the loopback interface, resource limits.

use std::{fs, io, net::UdpSocket, os::fd::AsRawFd, path::Path};

use nix::{
    errno::Errno,
    libc,
    mount::{MsFlags, mount},
    sys::resource::{Resource, setrlimit},
};

/// Type and place of what nothing works without.
const ESSENTIAL: &[(&str, &str)] = &[("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];

/// Type and place of what a kernel may have been built without.
const OPTIONAL: &[(&str, &str)] = &[
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("securityfs", "/sys/kernel/security"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
];

/// Mounts what the channel and the orders need.
pub(super) fn mount_essentials() -> io::Result<()> {
    for (kind, place) in ESSENTIAL {
        fs::create_dir_all(place)?;
        mount_one(kind, place)?;
    }
    Ok(())
}

/// Everything else.
pub(super) fn finish() -> io::Result<()> {
    for (kind, place) in OPTIONAL {
        // The kernel makes the places in /sys, so one that is missing is a feature that is missing.
        if place.starts_with("/dev/") {
            fs::create_dir_all(place)?;
        }
        if Path::new(place).is_dir()
            && let Err(error) = mount_one(kind, place)
            && error.raw_os_error() != Some(Errno::ENODEV as i32)
        {
            return Err(error);
        }
    }
    // Programs expect these; devtmpfs does not make them.
    for (link, target) in
        [("/dev/fd", "/proc/self/fd"), ("/dev/stdout", "/proc/self/fd/1"), ("/dev/stderr", "/proc/self/fd/2")]
    {
        if !Path::new(link).exists() {
            std::os::unix::fs::symlink(target, link)?;
        }
    }
    // BPF objects are charged to locked memory before 5.11, and tests open many files.
    setrlimit(Resource::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY)?;
    setrlimit(Resource::RLIMIT_NOFILE, 1 << 16, 1 << 16)?;
    raise_loopback()
}

fn mount_one(kind: &str, place: &str) -> io::Result<()> {
    match mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>) {
        // Already there: CONFIG_DEVTMPFS_MOUNT, or tracefs that debugfs brought along.
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(error) => {
            let error = io::Error::from(error);
            // Keep the error number: `finish` tells "not built in" by it.
            if error.raw_os_error() != Some(Errno::ENODEV as i32) {
                return Err(io::Error::new(error.kind(), format!("cannot mount {kind} on {place}: {error}")));
            }
            Err(error)
        }
    }
}

/// Brings `lo` up: ifconfig lo up.
fn raise_loopback() -> io::Result<()> {
    // Any socket will do: it is the handle by which interfaces are set.
    let socket = match UdpSocket::bind("0.0.0.0:0") {
        Ok(socket) => socket,
        // A kernel without IPv4 has no loopback that anyone could miss.
        Err(error) if error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32) => return Ok(()),
        Err(error) => return Err(error),
    };
    // SAFETY: an all-zero ifreq is valid: integers, byte arrays, and a union of such.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq through the pointer, which is valid for the whole call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    Errno::result(done)
        .map_err(|error| io::Error::other(format!("cannot bring up the loopback interface: {error}")))?;
    Ok(())
}
