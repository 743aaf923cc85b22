// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Maps.

use super::call::{check, opened};
use libbpf_sys as sys;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A map to create.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Map<'a> {
    pub(crate) kind: sys::bpf_map_type,
    pub(crate) name: &'a CStr,
    /// Bytes.
    pub(crate) key_size: u32,
    /// Bytes.
    pub(crate) value_size: u32,
    pub(crate) entries: u32,
    /// `BPF_F_...`
    pub(crate) flags: u32,
    /// For a map of maps: one like those that it holds.
    pub(crate) inner: Option<BorrowedFd<'a>>,
}

impl Map<'_> {
    /// A map without flags, which holds no maps.
    pub(crate) fn plain(kind: sys::bpf_map_type, name: &CStr, key_size: u32, value_size: u32, entries: u32) -> Map<'_> {
        Map { kind, name, key_size, value_size, entries, flags: 0, inner: None }
    }

    /// Creates it.
    pub(crate) fn create(&self) -> io::Result<OwnedFd> {
        let opts = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            map_flags: self.flags,
            inner_map_fd: self.inner.map_or(0, |inner| inner.as_raw_fd() as u32),
            ..Default::default()
        };
        // SAFETY: the name and the options live through the call.
        opened(unsafe {
            sys::bpf_map_create(self.kind, self.name.as_ptr(), self.key_size, self.value_size, self.entries, &opts)
        })
    }
}

/// Sets an element of a map whose key and value have these sizes.
pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: both slices are as long as the map's key and value, which the callers create it with.
    let result = unsafe {
        sys::bpf_map_update_elem(map.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), u64::from(sys::BPF_ANY))
    };
    check(result).map(|_| ())
}

/// Reads an element of a map whose key has 4 bytes.
///
/// # Safety
/// The map's values are as long as the place for them; those of a map for each CPU, as many as there may be CPUs.
pub(crate) unsafe fn lookup<T>(map: BorrowedFd<'_>, key: u32, value: &mut [T]) -> io::Result<()> {
    // SAFETY: the key lives through the call; the rest is the caller's promise.
    let result =
        unsafe { sys::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), value.as_mut_ptr().cast()) };
    check(result).map(drop)
}

/// Keeps everybody from changing a map's elements by system calls.
pub(crate) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { sys::bpf_map_freeze(map.as_raw_fd()) }).map(drop)
}
