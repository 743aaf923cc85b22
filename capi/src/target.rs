// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `struct siteseer_target`, and what is done with it: planning and attaching, also in modules that came later.

use crate::error::{Failure, handle, null, number, plain, pointer};
use crate::link::{LinkHandle, What, live};
use crate::options::{self, AttachOpts, SourceOpts};
use crate::register::program;
use crate::report::ReportHandle;
use crate::text::{c_string, optional};
use libbpf_sys as sys;
use siteseer::internals::outline;
use siteseer::internals::section::Kind;
use siteseer::internals::source::SiteData;
use siteseer::{Attach, AttachOptions, Dwarf, Program, Target};
use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::sync::PoisonError;

/// `struct siteseer_target`
pub struct TargetHandle {
    target: Target,
    describe: CString,
}

impl TargetHandle {
    fn of(target: Target) -> TargetHandle {
        TargetHandle { describe: c_string(&target.describe()), target }
    }
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<TargetHandle>();
    shared::<LinkHandle>();
    shared::<ReportHandle>();
};

/// `siteseer_target__running()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_target__running(opts: *const SourceOpts) -> *mut TargetHandle {
    // SAFETY: the caller's promise.
    handle(|| Ok(TargetHandle::of(Target::running(&unsafe { options::source(opts) }?)?)))
}

/// `siteseer_target__image()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_target__image(file: *const c_char, opts: *const SourceOpts) -> *mut TargetHandle {
    handle(|| {
        // SAFETY: the caller's promise.
        let (file, options) = unsafe { (optional(file, "the image")?, options::source(opts)?) };
        let file = file.ok_or_else(|| Failure::invalid("the image is NULL"))?;
        let data =
            SiteData::open(Path::new(&file), None, options.dwarf != Dwarf::Never).map_err(siteseer::Error::from)?;
        Ok(TargetHandle::of(Target::image(data)?))
    })
}

/// `siteseer_target__describe()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_target__describe(target: *const TargetHandle) -> *const c_char {
    // SAFETY: the caller's promise.
    match unsafe { target.as_ref() } {
        Some(target) => target.describe.as_ptr(),
        None => null::<c_char>(Failure::invalid("the target is NULL")),
    }
}

/// `siteseer_target__free()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_target__free(target: *mut TargetHandle) {
    if !target.is_null() {
        // SAFETY: the caller's promise: it is a box of ours, and not used any more.
        let target = unsafe { Box::from_raw(target) };
        plain(|| drop(target));
    }
}

/// `SITESEER_SITES_RETURN`
const RETURN: u32 = 1;

/// `siteseer_target__sites()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_target__sites(
    target: *const TargetHandle,
    function: *const c_char,
    flags: u32,
) -> *mut ReportHandle {
    handle(|| {
        // SAFETY: the caller's promise.
        let (target, function) = unsafe { (target.as_ref(), optional(function, "the function")?) };
        let target = target.ok_or_else(|| Failure::invalid("the target is NULL"))?;
        let function = function.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        let kind = match flags {
            0 => Kind::Fentry,
            RETURN => Kind::Fexit,
            other => return Err(Failure::invalid(format!("there is no flag {other:#x}"))),
        };
        let report = outline::sites(&target.target, &function, kind).map_err(siteseer::Error::from)?;
        Ok(ReportHandle::of_machine(&report, target.target.machine()))
    })
}

/// What the calls that plan and attach are given.
///
/// # Safety
/// As siteseer.h says.
unsafe fn given<'a>(
    prog: *const sys::bpf_program,
    target: *const TargetHandle,
    opts: *const AttachOpts,
) -> Result<(Program<'a>, &'a Target, AttachOptions), Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let target = target.as_ref().ok_or_else(|| Failure::invalid("the target is NULL"))?;
        Ok((program(prog)?, &target.target, options::attach(opts)?))
    }
}

/// `siteseer_program__plan()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_program__plan(
    prog: *const sys::bpf_program,
    target: *const TargetHandle,
    opts: *const AttachOpts,
) -> *mut ReportHandle {
    handle(|| {
        // SAFETY: the caller's promise.
        let (program, target, options) = unsafe { given(prog, target, opts) }?;
        Ok(ReportHandle::of_machine(&Attach::with(target, options).plan(program)?.report(), target.machine()))
    })
}

/// `siteseer_program__attach()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_program__attach(
    prog: *const sys::bpf_program,
    target: *const TargetHandle,
    opts: *const AttachOpts,
) -> *mut LinkHandle {
    handle(|| {
        // SAFETY: the caller's promise.
        let (program, target, options) = unsafe { given(prog, target, opts) }?;
        Ok(LinkHandle::own(Attach::with(target, options).attach(program)?))
    })
}

/// `siteseer_program__attach_link()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_program__attach_link(
    prog: *const sys::bpf_program,
    target: *const TargetHandle,
    opts: *const AttachOpts,
) -> *mut sys::bpf_link {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (program, target, options) = unsafe { given(prog, target, opts) }?;
        Ok(Attach::with(target, options).attach(program)?.into_libbpf()?.as_ptr())
    })
}

/// `siteseer_link__refresh()`
///
/// # Safety
/// As siteseer.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siteseer_link__refresh(
    link: *mut LinkHandle,
    prog: *const sys::bpf_program,
    target: *const TargetHandle,
    opts: *const AttachOpts,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let (handle, (program, target, options)) = unsafe { (live(link)?, given(prog, target, opts)?) };
        let What::Own(own) = &handle.what else {
            let why = "the link is one of libbpf's, which siteseer_link__refresh() cannot add sites to: destroy it, and \
                       attach the program again";
            return Err(Failure::new(libc::EOPNOTSUPP, why));
        };
        let mut own = own.write().unwrap_or_else(PoisonError::into_inner);
        let notes = own.report().notes.clone();
        let added = Attach::with(target, options).refresh(program, &mut own)?;
        // Reports are kept until the link is destroyed: one for each change, not for each call.
        if added > 0 || own.report().notes != notes {
            handle.set_report(ReportHandle::of(own.report()));
        }
        Ok(c_int::try_from(added).unwrap_or(c_int::MAX))
    })
}
