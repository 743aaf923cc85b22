// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What libbpf calls: when a program comes to be, before it is loaded, and to attach it.
//!
//! The options that libbpf passes are of its own version, and may be shorter than the structure that we know: they are
//! never borrowed as a whole, only members that they have had from the first are touched.

use super::decide::{self, Decided, Load};
use super::func::{self, Func};
use super::pairs::{self, End};
use super::programs::{self, Known};
use super::{RegisterError, handed, options, shared, warn};
use crate::attach::{Attach, AttachError};
use crate::bpf::btf::btf_data_of;
use crate::bpf::call::check;
use crate::bpf::objects::{info_by_fd, program_info};
use crate::plan::Policy;
use crate::program::declared::Stated;
use crate::program::object::{Loaded, Program};
use crate::program::passed::{self, Loading};
use crate::program::section::{Form, Kind, SECTIONS, Told, guarded, unguarded};
use crate::program::{FuncInfo, LineInfo};
use crate::register::log::{LogLevel, say, set_last_error};
use libbpf_sys as sys;
use siteseer_sites::with_causes;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

/// Answers libbpf. A panic is a fault of siteseer's, and must not unwind into C, which would abort the application.
fn answer(call: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        // What it says the panic hook has said.
        set_last_error("internal error of siteseer: a panic");
        -libc::ENOTRECOVERABLE
    })
}

/// A program comes to be.
pub(super) unsafe extern "C" fn setup(program: *mut sys::bpf_program, _: c_long) -> c_int {
    let Some(program) = NonNull::new(program) else { return -libc::EINVAL };
    answer(|| {
        programs::born(program);
        0
    })
}

thread_local! {
    /// The moved line information of the program that libbpf is loading in this thread. libbpf hands the pointer to the
    /// system call right after the callback, and never frees it.
    static LINES: RefCell<Vec<LineInfo>> = const { RefCell::new(Vec::new()) };
    /// The BTF object of a module that the program which libbpf is loading in this thread is for.
    static OBJECT: Cell<Option<OwnedFd>> = const { Cell::new(None) };
}

/// The iterator that a TRACING program behind the guard is loaded for.
fn iterator() -> Option<u32> {
    static ITERATOR: OnceLock<Option<u32>> = OnceLock::new();
    *ITERATOR.get_or_init(|| func::in_image("bpf_iter_bpf_map_elem"))
}

/// What the program's options say about its target.
///
/// # Safety
/// The options are libbpf's.
unsafe fn told(opts: *const sys::bpf_prog_load_opts) -> io::Result<Told> {
    // SAFETY: the caller's promise; these members have always been there.
    let (btf_id, prog_fd, obj_fd) =
        unsafe { ((*opts).attach_btf_id, (*opts).attach_prog_fd, (*opts).attach_btf_obj_fd) };
    if prog_fd != 0 {
        // SAFETY: libbpf checked nothing of it, but the caller's descriptor is open through the load, or the call says
        // EBADF.
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

/// Decides how a program is loaded: for its own function, or behind the guard.
pub(super) unsafe extern "C" fn prepare_load(
    raw: *mut sys::bpf_program,
    opts: *mut sys::bpf_prog_load_opts,
    cookie: c_long,
) -> c_int {
    let (Some(program), false) = (NonNull::new(raw), opts.is_null()) else { return -libc::EINVAL };
    let Some((.., form)) = usize::try_from(cookie).ok().and_then(|nth| SECTIONS.get(nth)) else { return -libc::EINVAL };
    // SAFETY: libbpf passes its own options and a live program.
    answer(|| match unsafe { prepare(program, opts, form.kind) } {
        Ok(()) => 0,
        Err(error) => {
            // SAFETY: the program is live through the call.
            let name = unsafe { Program::from_raw(program) }.name();
            say(LogLevel::Warn, format_args!("prog '{name}': {}", error.why));
            set_last_error(format!("prog '{name}': {}", error.why));
            -error.errno
        }
    })
}

/// Why a program is not loaded.
struct Failed {
    errno: i32,
    why: String,
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed { errno: error.raw_os_error().unwrap_or(libc::EINVAL), why: error.to_string() }
    }
}

/// Nothing is loaded: libbpf writes a light skeleton (`bpf_object__gen_loader()`). Its BTF has no descriptor yet. The
/// skeleton would name the program's function by a number of this kernel's, which is another function's elsewhere.
fn light_skeleton() -> Failed {
    let why = "a light skeleton cannot be made in a process that has called siteseer::register(): it would be for this \
               very kernel";
    Failed { errno: libc::EOPNOTSUPP, why: why.to_owned() }
}

/// # Safety
/// As libbpf calls [`prepare_load`].
unsafe fn prepare(
    raw: NonNull<sys::bpf_program>,
    opts: *mut sys::bpf_prog_load_opts,
    kind: Kind,
) -> Result<(), Failed> {
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
    // SAFETY: the members have always been there.
    let (btf_fd, has_func_info) = unsafe { ((*opts).prog_btf_fd, !(*opts).func_info.is_null()) };
    if btf_fd == 0 && has_func_info {
        return Err(light_skeleton());
    }
    let object_btf = (btf_fd != 0).then(|| btf_data_of(btf_fd as RawFd)).and_then(Result::ok).map(passed::kept);
    let has_passed = passed::change(raw, |passed| {
        passed.told = told;
        passed.btf = object_btf.clone();
        passed.func_info = Arc::clone(&func_info);
        passed.line_info = Arc::clone(&line_info);
    });
    let stated = Stated::find(object_btf.as_deref(), &program.name());
    let stated = stated.map_err(|error| Failed { errno: libc::EINVAL, why: with_causes(&error) })?;
    let is_known = programs::change(raw, |known| {
        known.stated = stated.policy;
        known.report = None;
        known.end = None;
        known.own = None;
    });
    if !(has_passed && is_known) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL).into());
    }
    // SAFETY: as above.
    let by_itself = unsafe { sys::bpf_program__autoattach(raw.as_ptr()) };
    // SAFETY: libbpf keeps the descriptor open through the load.
    let btf = (btf_fd != 0).then(|| unsafe { BorrowedFd::borrow_raw(btf_fd as RawFd) });
    let is_paired = by_itself && program.wanted().is_ok_and(|wanted| programs::has_exit(&wanted));
    if options().plan_at_load && (kind != Kind::KprobeMaybeInline || is_paired) {
        let loaded = Loaded {
            name: program.name(),
            form: program.form().unwrap_or_default(),
            told,
            insns: program.instructions(),
            func_info,
            line_info: Arc::clone(&line_info),
            btf: object_btf.as_deref().map(<[u8]>::to_vec),
            // Nothing that it decides depends on the licence.
            gpl: true,
        };
        let (load, reached) = match kind {
            // Only siteseer attaches it, whatever the plan.
            Kind::KprobeMaybeInline => (Load::Guarded, decide::reached(program, &loaded)),
            Kind::Fentry | Kind::Fexit => {
                let Decided { load, reached } = decide::load(program, &loaded, by_itself);
                (load, reached)
            }
        };
        let end = btf.and_then(|btf| End::of(program, &loaded, btf, reached)).map(Arc::new);
        programs::change(raw, |known| known.end = end);
        let (loading, func, report) = match load {
            Load::Plain(func, report) => (Loading::Plain, func, Some(Arc::new(report))),
            Load::Own(func) => (Loading::Own, func, None),
            Load::Guarded => return Ok(guard(raw, opts, kind, &line_info)?),
            Load::Refused(errno, why) => return Err(Failed { why: with_causes(&*why), ..errno.into() }),
        };
        passed::change(raw, |passed| passed.loading = loading);
        programs::change(raw, |known| {
            known.own = Some(func.own.clone());
            known.report = report;
        });
        // SAFETY: the caller's promise.
        unsafe { load_for(opts, func, loaded.form.sleepable) };
        return Ok(());
    }
    Ok(guard(raw, opts, kind, &line_info)?)
}

/// Has libbpf load a program for its own function.
///
/// # Safety
/// The options are libbpf's.
unsafe fn load_for(opts: *mut sys::bpf_prog_load_opts, func: Func, sleepable: bool) {
    // SAFETY: the caller's promise; these members have always been there.
    unsafe {
        (*opts).attach_btf_id = func.own.func;
        (*opts).attach_btf_obj_fd = func.object_fd();
        if sleepable {
            (*opts).prog_flags |= sys::BPF_F_SLEEPABLE;
        }
    }
    OBJECT.set(func.into_object());
}

/// Has libbpf load a program behind the guard.
fn guard(
    raw: NonNull<sys::bpf_program>,
    opts: *mut sys::bpf_prog_load_opts,
    kind: Kind,
    line_info: &[LineInfo],
) -> io::Result<()> {
    // SAFETY: libbpf passes its own options and a live program to the handler, which calls this.
    unsafe { put_behind_guard(raw, opts, kind, line_info) }?;
    passed::change(raw, |passed| passed.loading = Loading::Guarded);
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
    let iterator = match kind {
        Kind::KprobeMaybeInline => None,
        Kind::Fentry | Kind::Fexit => Some(iterator().ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?),
    };
    if unguarded(kind, insns).is_none() {
        let mut insns = guarded(kind, insns);
        // SAFETY: as above; libbpf copies the new instructions.
        check(unsafe { sys::bpf_program__set_insns(raw.as_ptr(), insns.as_mut_ptr(), insns.len() as sys::size_t) })?;
    }
    let lines = LINES.with_borrow_mut(|lines| {
        lines.clear();
        lines.extend(line_info.iter().enumerate().map(|(index, line)| {
            // The first one stays at the first instruction: every (sub)program must begin with one.
            let moved = if index == 0 { 0 } else { line.insn_off + crate::program::section::GUARD as u32 };
            LineInfo { insn_off: moved, ..*line }
        }));
        if lines.is_empty() { ptr::null() } else { lines.as_ptr() }
    });
    // SAFETY: the caller's promise; these members have always been there.
    unsafe {
        match iterator {
            Some(iterator) => {
                (*opts).expected_attach_type = sys::BPF_TRACE_ITER;
                (*opts).attach_btf_id = iterator;
                (*opts).attach_prog_fd = 0;
                (*opts).attach_btf_obj_fd = 0;
            }
            None => (*opts).expected_attach_type = sys::BPF_TRACE_UPROBE_MULTI,
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
    answer(|| {
        // SAFETY: libbpf passes a live program.
        let program = unsafe { Program::from_raw(raw) };
        // SAFETY: as above.
        attach_as(program, form, unsafe { &mut *link })
    })
}

/// Attaches a program of a section, and gives the link and what libbpf is told.
fn attach_as(program: Program<'_>, form: Form, link: &mut *mut sys::bpf_link) -> c_int {
    let bare = program.wanted().is_ok_and(|wanted| wanted.function.is_none());
    let nothing_given = programs::known(program.raw()).is_none_or(|known| known.options.names_nothing());
    // As libbpf has it for SEC("kprobe"): what says nothing of its target is passed over.
    if form.kind == Kind::KprobeMaybeInline && bare && nothing_given {
        return 0;
    }
    match attach_program(program) {
        Ok(made) => {
            *link = made.as_ptr();
            0
        }
        Err(error) => {
            let (name, why) = (program.name(), with_causes(&error));
            say(LogLevel::Warn, format_args!("prog '{name}': failed to attach: {why}"));
            set_last_error(why);
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

/// What libbpf's own call does with a program.
fn attach_program(program: Program<'_>) -> Result<NonNull<sys::bpf_link>, RegisterError> {
    handed::sweep();
    let known = programs::known(program.raw()).unwrap_or_default();
    let loading = passed::passed(program.raw()).unwrap_or_default().loading;
    let cookie = known.options.given_cookie();
    if loading == Loading::Plain {
        match attach_plain(program, cookie) {
            Ok(link) => return Ok(link),
            // What the kernel refuses there may go otherwise.
            Err(error) => say(LogLevel::Debug, format_args!("prog '{}': libbpf: {error}", program.name())),
        }
    }
    let policy = known.stated_options().given_policy().or(options().policy);
    let policy = policy.unwrap_or_else(|| Policy::by_libbpf(program.form().unwrap_or_default().kind));
    let error = match attach_everywhere(program, &known, policy) {
        Ok(link) => return Ok(link),
        Err(error) => error,
    };
    let is_loaded = matches!(loading, Loading::Own | Loading::Plain);
    if policy != Policy::AtLeastLibbpf
        || !is_loaded
        || matches!(&error, RegisterError::Attach(AttachError::Twice { .. }))
    {
        return Err(error);
    }
    match attach_plain(program, cookie) {
        Ok(link) => {
            warn::as_libbpf(&program.name(), &error);
            Ok(link)
        }
        Err(by_libbpf) => Err(RegisterError::Libbpf { by_libbpf, error: Box::new(error) }),
    }
}

/// Attaches a program by siteseer, and hands a link out.
fn attach_everywhere(
    program: Program<'_>,
    known: &Known,
    policy: Policy,
) -> Result<NonNull<sys::bpf_link>, RegisterError> {
    let target = shared::target()?;
    let options = options().complete(known.options.clone().or_policy(Some(policy)));
    let pair = known.end.as_deref().and_then(pairs::other_end).map(Arc::new);
    let kept = policy == Policy::AtLeastLibbpf && known.end.as_deref().is_some_and(End::is_kept);
    let together = known.options.paired.unwrap_or(kept);
    let attach = Attach::with(&target, options).with_own(known.own.clone());
    let mut link = attach.with_pair(pair.clone().filter(|_| together)).attach(program)?;
    if let Some(note) = pair.filter(|_| !together).and_then(|pair| pairs::note(&pair, link.report())) {
        link.note(note);
    }
    let (link, attached) = handed::hand_out(link)?;
    let report = attached.report();
    warn::of_what_is_missed(&program.name(), report);
    programs::change(program.raw(), |known| known.report = Some(Arc::new(report.clone())));
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_do_not_reach_libbpf() {
        assert_eq!(answer(|| panic!("a fault")), -libc::ENOTRECOVERABLE);
        assert!(crate::register::log::last_error().is_some_and(|error| error.contains("internal error")));
        assert_eq!(answer(|| 7), 7);
    }
}
