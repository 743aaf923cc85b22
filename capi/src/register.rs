// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Registering with libbpf, and what is asked of programs that libbpf's calls attach.

use crate::error::{Failure, handle, number};
use crate::link::LinkHandle;
use crate::options::{self, AttachOpts, RegisterOpts};
use crate::report::ReportHandle;
use crate::text::optional;
use libbpf_sys as sys;

use siteseer::internals::register::copies::{self, ObjectLoad};
use siteseer::{Attached, Program, RegisterError};
use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Failure {
        siteseer::Error::from(error).into()
    }
}

/// A program of the caller's.
///
/// # Safety
/// It is NULL, or a live program, which nobody changes while the result is used.
pub(crate) unsafe fn program<'p>(raw: *const sys::bpf_program) -> Result<Program<'p>, Failure> {
    let raw = NonNull::new(raw.cast_mut()).ok_or_else(|| Failure::invalid("the program is NULL"))?;
    // SAFETY: the caller's promise.
    Ok(unsafe { Program::from_raw(raw) })
}

/// `siteseer_register()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_register(opts: *const RegisterOpts) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options::register(opts) }?;
        copies::is_the_one_by_name()?;
        Ok(siteseer::register_with(options).map(|()| 0)?)
    })
}

/// `siteseer_register_for()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_register_for(opts: *const RegisterOpts, load: Option<ObjectLoad>) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options::register(opts) }?;
        load.map_or_else(copies::is_the_one_by_name, copies::is_ours)?;
        Ok(siteseer::register_with(options).map(|()| 0)?)
    })
}

/// `siteseer_unregister()`
#[unsafe(no_mangle)]
pub extern "C" fn siteseer_unregister() -> c_int {
    number(|| {
        siteseer::unregister();
        Ok(0)
    })
}

/// `siteseer_can_attach()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_can_attach(function: *const c_char, module: *const c_char) -> bool {
    let attachable = number::<c_int>(|| {
        // SAFETY: the caller's promise.
        let (function, module) = unsafe { (optional(function, "the function")?, optional(module, "the module")?) };
        let function = function.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        Ok(siteseer::can_attach(&function, module.as_deref()).map(|()| 0)?)
    });
    attachable == 0
}

/// `siteseer_program__set_attach_opts()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_program__set_attach_opts(
    prog: *mut sys::bpf_program,
    opts: *const AttachOpts,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let (program, options) = unsafe { (program(prog)?, options::attach(opts)?) };
        Ok(siteseer::set_attach_options(program, options).map(|()| 0)?)
    })
}

/// `siteseer_program__report()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_program__report(prog: *const sys::bpf_program) -> *mut ReportHandle {
    handle(|| {
        // SAFETY: the caller's promise.
        let program = unsafe { program(prog) }?;
        let none =
            || Failure::new(libc::ENOENT, format!("program {} was neither planned nor attached", program.name()));
        Ok(ReportHandle::of(&*program.report().ok_or_else(none)?))
    })
}

/// `siteseer_link__of()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__of(link: *const sys::bpf_link) -> *mut LinkHandle {
    handle(|| {
        let link = NonNull::new(link.cast_mut()).ok_or_else(|| Failure::invalid("the link is NULL"))?;
        // SAFETY: the caller's promise.
        let attached = unsafe { Attached::from_raw(link) };
        attached.map(LinkHandle::of).ok_or_else(|| Failure::new(libc::ENOENT, "the link is libbpf's own"))
    })
}
