// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BTF objects in the kernel: those of its image and modules, and those that programs are loaded with.

use super::call::{check, opened};
use super::load::{Refused, text};
use super::objects::info_by_fd;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Loads BTF.
pub(crate) fn load(data: &[u8]) -> Result<OwnedFd, Refused> {
    let size = size_of::<sys::bpf_btf_load_opts>() as sys::size_t;
    let mut opts = sys::bpf_btf_load_opts { sz: size, ..Default::default() };
    // SAFETY: the data lives through the call.
    let first = opened(unsafe { sys::bpf_btf_load(data.as_ptr().cast(), data.len() as sys::size_t, &mut opts) });
    let error = match first {
        Ok(btf) => return Ok(btf),
        Err(error) => error,
    };
    let mut log = vec![0u8; 1 << 20];
    let mut opts = sys::bpf_btf_load_opts {
        sz: size,
        log_buf: log.as_mut_ptr().cast(),
        log_size: log.len() as u32,
        log_level: 1,
        ..Default::default()
    };
    // SAFETY: as above; the kernel writes at most `log_size` bytes to the log.
    let second = opened(unsafe { sys::bpf_btf_load(data.as_ptr().cast(), data.len() as sys::size_t, &mut opts) });
    second.map_err(|_| Refused { error, log: text(&log) })
}

/// The bytes of a BTF object in the kernel.
pub(crate) fn btf_data(id: u32) -> io::Result<Vec<u8>> {
    // SAFETY: plain call.
    let fd = opened(unsafe { sys::bpf_btf_get_fd_by_id(id) })?;
    btf_data_of(fd.as_raw_fd())
}

/// The bytes of the BTF object that a descriptor refers to.
pub(crate) fn btf_data_of(fd: RawFd) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    // The first call tells the size, the second fills the buffer.
    for _ in 0..2 {
        let mut info =
            sys::bpf_btf_info { btf: data.as_mut_ptr() as u64, btf_size: data.len() as u32, ..Default::default() };
        // SAFETY: the kernel writes at most `btf_size` bytes to the buffer.
        unsafe { info_by_fd(fd, &mut info) }?;
        data.resize(info.btf_size as usize, 0);
    }
    Ok(data)
}

/// The BTF object of a module in the kernel.
pub(crate) fn btf_of(module: &str) -> io::Result<OwnedFd> {
    let mut id = 0;
    loop {
        // SAFETY: the kernel writes the number; it says ENOENT past the end.
        check(unsafe { sys::bpf_btf_get_next_id(id, &mut id) })?;
        // SAFETY: plain call. An object may be gone by now.
        let Ok(fd) = opened(unsafe { sys::bpf_btf_get_fd_by_id(id) }) else { continue };
        let (name, is_kernels) = btf_info(fd.as_fd())?;
        if is_kernels && name == module {
            return Ok(fd);
        }
    }
}

/// The name of a BTF object in the kernel: `vmlinux`, or a module's.
pub(crate) fn btf_name(id: u32) -> io::Result<String> {
    // SAFETY: plain call.
    let fd = opened(unsafe { sys::bpf_btf_get_fd_by_id(id) })?;
    btf_info(fd.as_fd()).map(|(name, _)| name)
}

/// A BTF object's name, and whether it is the kernel's own or a module's (programs load theirs under any name).
fn btf_info(fd: BorrowedFd<'_>) -> io::Result<(String, bool)> {
    let mut name = [0u8; 64];
    let mut info = sys::bpf_btf_info { name: name.as_mut_ptr() as u64, name_len: 64, ..Default::default() };
    // SAFETY: the kernel writes at most `name_len` bytes to the buffer.
    unsafe { info_by_fd(fd.as_raw_fd(), &mut info) }?;
    let name = name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect();
    Ok((name, info.kernel_btf != 0))
}
