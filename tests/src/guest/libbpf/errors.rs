// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Errors of `bpf_object__load()`: tools fall back when loading fails, so that an error must not move to attaching.

use super::attached::same;
use super::ways;
use crate::guest::case::Failure;
use libbpf_rs::{AsRawLibbpf, libbpf_sys as sys};
use siteseer_bpf_progs::WAYS;
use std::io;
use std::ptr::{self, NonNull};

/// Programs of ways.bpf.c that plain libbpf cannot load.
const BROKEN: [&str; 4] = ["nowhere", "in_no_module", "rejected", "reads_past_the_end"];

/// An object of libbpf's, closed when it is dropped.
struct Opened(NonNull<sys::bpf_object>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nobody else closes it.
        unsafe { sys::bpf_object__close(self.0.as_ptr()) };
    }
}

/// What loading the object with this program alone says: 0, or a negative errno.
fn loaded(name: &str) -> Result<i32, Failure> {
    // SAFETY: the bytes live through the call; everything is asked of what is live.
    unsafe {
        let object = sys::bpf_object__open_mem(WAYS.as_ptr().cast(), WAYS.len() as sys::size_t, ptr::null());
        let object = Opened(NonNull::new(object).ok_or_else(io::Error::last_os_error)?);
        let mut program = sys::bpf_object__next_program(object.0.as_ptr(), ptr::null_mut());
        while !program.is_null() {
            let is_it = std::ffi::CStr::from_ptr(sys::bpf_program__name(program)).to_bytes() == name.as_bytes();
            sys::bpf_program__set_autoload(program, is_it);
            program = sys::bpf_object__next_program(object.0.as_ptr(), program);
        }
        Ok(sys::bpf_object__load(object.0.as_ptr()))
    }
}

/// What naming a function says that the kernel's BTF does not have.
fn named_in_vain() -> Result<i32, Failure> {
    let open = ways::open(&["enters"])?;
    let enters = open.progs().find(|program| program.name() == "enters").ok_or("no program")?;
    // SAFETY: the program is live and not loaded; the name lives through the call.
    Ok(unsafe {
        sys::bpf_program__set_attach_target(enters.as_libbpf_object().as_ptr(), 0, c"there_is_no_such".as_ptr())
    })
}

// Proves S23.15.
pub(super) fn errors_of_loading_are_libbpfs() -> Result<String, Failure> {
    // Its words are many, and are not looked at.
    // SAFETY: no other thread uses libbpf.
    unsafe { sys::libbpf_set_print(None) };
    siteseer::set_log(None);
    let all = || -> Result<Vec<i32>, Failure> {
        let mut all = BROKEN.iter().map(|name| loaded(name)).collect::<Result<Vec<_>, _>>()?;
        all.push(named_in_vain()?);
        Ok(all)
    };
    let plain = all()?;
    same("what plain libbpf loads of it", plain.iter().filter(|result| **result >= 0).count(), 0)?;
    siteseer::register()?;
    same("with siteseer", all()?, plain.clone())?;
    let mut words = BROKEN.to_vec();
    words.push("set_attach_target");
    let said =
        words.iter().zip(&plain).map(|(word, error)| format!("{word}: {}", io::Error::from_raw_os_error(-error)));
    Ok(said.collect::<Vec<_>>().join("; "))
}
