// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What libbpf calls: when a program comes to be, before it is loaded, and to attach it.
//!
//! The options that libbpf passes are of its own version, and may be shorter than the structure that we know: they are
//! never borrowed as a whole, only members that they have had from the first are touched.

use super::programs::{self, Loading};
use super::{decide, handed, options, passed, shared};
use crate::attach::Attach;
use crate::error::Error;
use crate::kernel::ANCHORS;
use crate::log::{Level, say, set_last_error};
use crate::object::{Loaded, Program, btf_data_of, check, info_by_fd, program_info};
use crate::program::{FuncInfo, LineInfo};
use crate::section::{Kind, SECTIONS, Told, guarded, unguarded};
use libbpf_sys as sys;
use std::cell::RefCell;
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

/// A program comes to be.
pub(super) unsafe extern "C" fn setup(program: *mut sys::bpf_program, _: c_long) -> c_int {
    let Some(program) = NonNull::new(program) else { return -libc::EINVAL };
    programs::born(program);
    0
}

thread_local! {
    /// The moved line information of the program that libbpf is loading in this thread. libbpf hands the pointer to the system
    /// call right after the callback, and never frees it.
    static LINES: RefCell<Vec<LineInfo>> = const { RefCell::new(Vec::new()) };
}

/// A function that a program of type TRACING can be loaded for.
fn anchor() -> Option<u32> {
    static ANCHOR: OnceLock<Option<u32>> = OnceLock::new();
    *ANCHOR.get_or_init(|| {
        ANCHORS.iter().find_map(|name| {
            // SAFETY: the string lives through the call.
            let id = unsafe { sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), sys::BPF_TRACE_FENTRY) };
            u32::try_from(id).ok().filter(|&id| id != 0)
        })
    })
}

/// What the program's options say of its target.
///
/// # Safety
/// The options are libbpf's.
unsafe fn told(opts: *const sys::bpf_prog_load_opts) -> io::Result<Told> {
    // SAFETY: the caller's promise; these members have always been there.
    let (btf_id, prog_fd, obj_fd) =
        unsafe { ((*opts).attach_btf_id, (*opts).attach_prog_fd, (*opts).attach_btf_obj_fd) };
    if prog_fd != 0 {
        // SAFETY: libbpf checked nothing of it, but the caller's descriptor is open through the load, or the call says EBADF.
        let program = unsafe { BorrowedFd::borrow_raw(prog_fd as RawFd) };
        return Ok(Told::Program { prog_id: program_info(program)?.id, btf_id });
    }
    if btf_id == 0 {
        return Ok(Told::Nothing);
    }
    let mut object = 0;
    if obj_fd != 0 {
        let mut info = sys::bpf_btf_info::default();
        // SAFETY: no pointers are in it.
        unsafe { info_by_fd(obj_fd as RawFd, &mut info) }?;
        object = info.id;
    }
    Ok(Told::Kernel { object, btf_id })
}

/// A copy of records, if they are of the size that we know.
///
/// # Safety
/// `first` is null, or the first of `count` records of `size` bytes.
unsafe fn records<T: Copy>(first: *const std::ffi::c_void, count: u32, size: u32) -> Arc<[T]> {
    if first.is_null() || size as usize != size_of::<T>() {
        return Arc::from([]);
    }
    // SAFETY: the caller's promise.
    Arc::from(unsafe { std::slice::from_raw_parts(first.cast::<T>(), count as usize) })
}

/// Decides how a program is loaded: libbpf's way, or behind the guard.
pub(super) unsafe extern "C" fn prepare_load(
    raw: *mut sys::bpf_program,
    opts: *mut sys::bpf_prog_load_opts,
    cookie: c_long,
) -> c_int {
    let (Some(program), false) = (NonNull::new(raw), opts.is_null()) else { return -libc::EINVAL };
    let Some((.., form)) = usize::try_from(cookie).ok().and_then(|nth| SECTIONS.get(nth)) else { return -libc::EINVAL };
    // SAFETY: libbpf passes its own options and a live program.
    let prepared = unsafe { prepare(program, opts, form.kind) };
    match prepared {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the program is live through the call.
            let name = unsafe { Program::from_raw(program) }.name();
            say(Level::Warn, format_args!("prog '{name}': {error}"));
            set_last_error(format!("prog '{name}': {error}"));
            -error.raw_os_error().unwrap_or(libc::EINVAL)
        }
    }
}

/// # Safety
/// As libbpf calls [`prepare_load`].
unsafe fn prepare(raw: NonNull<sys::bpf_program>, opts: *mut sys::bpf_prog_load_opts, kind: Kind) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let told = unsafe { told(opts) }?;
    // SAFETY: as above; libbpf's arrays have as many records as it says.
    let (func_info, line_info) = unsafe {
        (
            records::<FuncInfo>((*opts).func_info, (*opts).func_info_cnt, (*opts).func_info_rec_size),
            records::<LineInfo>((*opts).line_info, (*opts).line_info_cnt, (*opts).line_info_rec_size),
        )
    };
    // SAFETY: the program is live through the call.
    let program = unsafe { Program::from_raw(raw) };
    let known = programs::change(raw, |passed| {
        passed.told = told;
        passed.func_info = Arc::clone(&func_info);
        passed.line_info = Arc::clone(&line_info);
        passed.report = None;
    });
    if !known {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: as above.
    let by_libbpf = unsafe { sys::bpf_program__autoattach(raw.as_ptr()) };
    let sleepable = program.form().is_ok_and(|form| form.sleepable);
    if kind != Kind::KprobeMaybeInline && by_libbpf && options().plan_at_load {
        // SAFETY: the member has always been there.
        let btf_fd = unsafe { (*opts).prog_btf_fd };
        let loaded = Loaded {
            name: program.name(),
            form: program.form().unwrap_or_default(),
            told,
            insns: program.instructions(),
            func_info,
            line_info: Arc::clone(&line_info),
            btf: (btf_fd != 0).then(|| btf_data_of(btf_fd as RawFd)).and_then(Result::ok),
            // Nothing that it decides depends on the licence.
            gpl: true,
        };
        if let Some(plain) = decide::plain(program, loaded) {
            // SAFETY: as above.
            unsafe {
                (*opts).attach_btf_id = plain.btf_id;
                (*opts).attach_btf_obj_fd = 0;
                if sleepable {
                    (*opts).prog_flags |= sys::BPF_F_SLEEPABLE;
                }
            }
            programs::change(raw, |passed| {
                passed.loading = Loading::Plain;
                passed.report = Some(Arc::new(plain.report));
            });
            return Ok(());
        }
    }
    // SAFETY: the caller's promise.
    unsafe { put_behind_guard(raw, opts, kind, &line_info) }?;
    programs::change(raw, |passed| passed.loading = Loading::Guarded);
    Ok(())
}

/// # Safety
/// As libbpf calls [`prepare_load`].
unsafe fn put_behind_guard(
    raw: NonNull<sys::bpf_program>,
    opts: *mut sys::bpf_prog_load_opts,
    kind: Kind,
    line_info: &[LineInfo],
) -> io::Result<()> {
    // SAFETY: libbpf passes a live program; the instructions are read before they are replaced.
    let program = unsafe { Program::from_raw(raw) };
    let insns = program.instructions();
    if insns.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let anchor = match kind {
        Kind::KprobeMaybeInline => None,
        Kind::Fentry | Kind::Fexit => Some(anchor().ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?),
    };
    if unguarded(insns).is_none() {
        let mut insns = guarded(insns);
        // SAFETY: as above; libbpf copies the new instructions.
        check(unsafe { sys::bpf_program__set_insns(raw.as_ptr(), insns.as_mut_ptr(), insns.len() as sys::size_t) })?;
    }
    let lines = LINES.with_borrow_mut(|lines| {
        lines.clear();
        lines.extend(line_info.iter().enumerate().map(|(index, line)| {
            // The first one stays at the first instruction: every (sub)program must begin with one.
            let moved = if index == 0 { 0 } else { line.insn_off + crate::section::GUARD as u32 };
            LineInfo { insn_off: moved, ..*line }
        }));
        if lines.is_empty() { ptr::null() } else { lines.as_ptr() }
    });
    // SAFETY: the caller's promise; these members have always been there.
    unsafe {
        if let Some(anchor) = anchor {
            (*opts).attach_btf_id = anchor;
            (*opts).attach_prog_fd = 0;
            (*opts).attach_btf_obj_fd = 0;
        }
        (*opts).prog_flags &= !sys::BPF_F_SLEEPABLE;
        (*opts).func_info = ptr::null();
        (*opts).func_info_cnt = 0;
        (*opts).line_info = lines.cast();
        (*opts).line_info_cnt = if lines.is_null() { 0 } else { line_info.len() as u32 };
    }
    Ok(())
}

/// Attaches a program, and gives libbpf a link for it.
pub(super) unsafe extern "C" fn attach(
    raw: *const sys::bpf_program,
    cookie: c_long,
    link: *mut *mut sys::bpf_link,
) -> c_int {
    let (Some(raw), false) = (NonNull::new(raw.cast_mut()), link.is_null()) else { return -libc::EINVAL };
    // SAFETY: libbpf passes the place where it wants the link.
    unsafe { *link = ptr::null_mut() };
    let Some(&(_, _, form)) = usize::try_from(cookie).ok().and_then(|nth| SECTIONS.get(nth)) else {
        return -libc::EINVAL;
    };
    // SAFETY: libbpf passes a live program.
    let program = unsafe { Program::from_raw(raw) };
    let bare = program.wanted().is_ok_and(|wanted| wanted.function.is_none());
    let nothing_given = passed(raw).is_none_or(|passed| passed.options.names_nothing());
    // As libbpf has it for SEC("kprobe"): what says nothing of its target is passed over.
    if form.kind == Kind::KprobeMaybeInline && bare && nothing_given {
        return 0;
    }
    match attach_program(program) {
        Ok(made) => {
            // SAFETY: as above.
            unsafe { *link = made.as_ptr() };
            0
        }
        Err(error) => {
            let name = program.name();
            say(Level::Warn, format_args!("prog '{name}': failed to attach: {error}"));
            set_last_error(error.to_string());
            -error.errno()
        }
    }
}

/// libbpf's own attachment, of a program that was loaded libbpf's way.
fn attach_plain(program: Program<'_>, cookie: u64) -> io::Result<NonNull<sys::bpf_link>> {
    let opts = sys::bpf_trace_opts { sz: size_of::<sys::bpf_trace_opts>() as sys::size_t, cookie };
    // SAFETY: the program is live; the options live through the call.
    let link = unsafe {
        if cookie == 0 {
            sys::bpf_program__attach_trace(program.raw().as_ptr())
        } else {
            sys::bpf_program__attach_trace_opts(program.raw().as_ptr(), &opts)
        }
    };
    NonNull::new(link).ok_or_else(io::Error::last_os_error)
}

fn attach_program(program: Program<'_>) -> Result<NonNull<sys::bpf_link>, Error> {
    handed::sweep();
    let passed = passed(program.raw());
    let attach_options = passed.as_ref().map(|passed| passed.options.clone()).unwrap_or_default();
    if passed.is_some_and(|passed| passed.loading == Loading::Plain) {
        match attach_plain(program, attach_options.given_cookie()) {
            Ok(link) => return Ok(link),
            // What the kernel refuses there may go otherwise.
            Err(error) => say(Level::Debug, format_args!("prog '{}': libbpf: {error}", program.name())),
        }
    }
    let target = shared::target()?;
    let link = Attach::with(&target, options().complete(attach_options)).attach(program)?;
    let (link, attached) = handed::hand_out(link)?;
    let report = attached.report();
    say(Level::Info, format_args!("prog '{}': {report}", program.name()));
    programs::change(program.raw(), |passed| passed.report = Some(Arc::new(report.clone())));
    Ok(link)
}
