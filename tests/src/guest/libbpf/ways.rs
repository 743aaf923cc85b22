// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Every way to a link: through `bpf_program__attach()`, and past it.
//!
//! With plain libbpf each of these runs the program at the body of do_getpgid(). With siteseer each must, too, or fail.

use super::attached::{behind, link_type, program, same};
use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Failure, choose, need};
use crate::guest::denied::{CAP_SYSLOG, keep_capabilities};
use crate::guest::lookups::subset_of;
use crate::guest::modules::{Hidden, Loaded};
use crate::guest::shape::{Place, Shape, site};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, libbpf_sys as sys};
use siteseer::internals::log;
use siteseer::{AttachOptions, LogLevel, Policy, RegisterOptions, SourceOptions, Target};
use siteseer_bpf_progs::{WAYS, set_constant};
use siteseer_sites::btf::{Btf, Kind};
use siteseer_sites::with_causes;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex};

/// The counters of ways.bpf.c.
pub(super) const ENTERS: usize = 0;
const LEAVES: usize = 1;
const MAYBE: usize = 3;
const STATED: usize = 8;
/// How many there are.
const COUNTERS: usize = 16;

/// How often getpgid(2) calls the function, which has a body for it on the reference kernel.
const BY_GETPGID: u64 = 5;
/// How often getpgrp(2) does, which has an inlined copy of it there.
const BY_GETPGRP: u64 = if cfg!(target_arch = "x86_64") { 3 } else { 0 };
/// All calls.
pub(super) const ALL: u64 = BY_GETPGID + BY_GETPGRP;

/// How many of the calls plain libbpf sees: those of the body, whichever the compiler left for it. To be asked before
/// the process registers.
pub(super) fn calls_of_the_body() -> Result<u64, Failure> {
    let target = Target::running(&SourceOptions::default())?;
    need(&target, Capability::Fentry)?;
    choose(&target, &[Shape::new("do_getpgid", [site(Place::Body)])], Shape::clone)?;
    let object = open(&["enters"])?.load()?;
    let _link = program(&object, "enters")?.attach()?;
    let (calls, _) = counted(&object, ENTERS)?;
    if calls == 0 || calls > ALL {
        return Err(format!("plain libbpf sees {calls} of {ALL} calls").into());
    }
    Ok(calls)
}

/// Leaves the case if the compiler left no inlined copy that a program can be attached to.
fn need_copy() -> Result<(), Failure> {
    let target = Target::running(&SourceOptions::default())?;
    choose(&target, &[Shape::new("do_getpgid", [site(Place::Inline)])], Shape::clone).map(drop)
}

/// Opens the object with these programs alone.
pub(super) fn open(programs: &[&str]) -> Result<OpenObject, Failure> {
    let mut open = ObjectBuilder::default().open_memory(WAYS)?;
    set_constant(&mut open, WAYS, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut() {
        program.set_autoload(programs.iter().any(|name| program.name() == *name));
    }
    Ok(open)
}

pub(super) fn call() -> io::Result<()> {
    for _ in 0..BY_GETPGID {
        syscall(libc::SYS_getpgid, [0; 6])?;
    }
    // arm64 has no getpgrp(2).
    #[cfg(target_arch = "x86_64")]
    for _ in 0..BY_GETPGRP {
        syscall(libc::SYS_getpgrp, [0; 6])?;
    }
    Ok(())
}

/// Calls that a program saw, and the sum of the cookies.
pub(super) fn seen(object: &Object, which: usize) -> Result<(u64, u64), Failure> {
    let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no .bss")?;
    let bytes = bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let word = |at: usize| -> Result<u64, Failure> {
        Ok(u64::from_ne_bytes(bytes.get(8 * at..8 * at + 8).ok_or("a short .bss")?.try_into()?))
    };
    Ok((word(which)?, word(COUNTERS + which)?))
}

/// What is added to the counters by calls.
pub(super) fn counted(object: &Object, which: usize) -> Result<(u64, u64), Failure> {
    counted_by(object, which, call)
}

/// The same for other calls.
pub(super) fn counted_by(
    object: &Object,
    which: usize,
    call: impl FnOnce() -> io::Result<()>,
) -> Result<(u64, u64), Failure> {
    let before = seen(object, which)?;
    call()?;
    let after = seen(object, which)?;
    Ok((after.0 - before.0, after.1 - before.1))
}

/// What makes a link: a structure of libbpf's, or a descriptor.
pub(super) enum Made {
    #[expect(dead_code, reason = "it is dropped")]
    Link(Link),
    Descriptor(OwnedFd),
}

fn link(raw: *mut sys::bpf_link) -> io::Result<Made> {
    let raw = ptr::NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: it was made just now, and nobody else has it.
    Ok(Made::Link(unsafe { Link::from_ptr(raw) }))
}

fn descriptor(result: i32) -> io::Result<Made> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: a new descriptor, which nobody else has.
    Ok(Made::Descriptor(unsafe { OwnedFd::from_raw_fd(result) }))
}

/// The cookie of the ways that give one.
const COOKIE: u64 = 7;

/// A way past `bpf_program__attach()`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    Trace,
    TraceWithCookie,
    LinkCreate,
    RawTracepointOpen,
    Pinned,
    /// A copy of the instructions, loaded for the function.
    Copy,
}

pub(super) const WAYS_PAST: [Way; 6] =
    [Way::Trace, Way::TraceWithCookie, Way::LinkCreate, Way::RawTracepointOpen, Way::Pinned, Way::Copy];

impl Way {
    /// The cookie that it gives.
    pub(super) fn cookie(self) -> u64 {
        if self == Way::TraceWithCookie { COOKIE } else { 0 }
    }

    pub(super) fn make(self, object: &Object, name: &str) -> Result<io::Result<Made>, Failure> {
        let program = program(object, name)?.as_libbpf_object().as_ptr();
        // SAFETY: the program is live and loaded; what is pointed to lives through the calls.
        Ok(unsafe {
            let fd = sys::bpf_program__fd(program);
            let attach_type = sys::bpf_program__expected_attach_type(program);
            match self {
                Way::Trace => link(sys::bpf_program__attach_trace(program)),
                Way::TraceWithCookie => {
                    let sz = size_of::<sys::bpf_trace_opts>() as sys::size_t;
                    let opts = sys::bpf_trace_opts { sz, cookie: COOKIE };
                    link(sys::bpf_program__attach_trace_opts(program, &opts))
                }
                Way::LinkCreate => descriptor(sys::bpf_link_create(fd, 0, attach_type, ptr::null())),
                Way::RawTracepointOpen => descriptor(sys::bpf_raw_tracepoint_open(ptr::null(), fd)),
                Way::Pinned => {
                    let path = CString::new(format!("/sys/fs/bpf/siteseer-ways-{}", std::process::id()))?;
                    same("bpf_program__pin", sys::bpf_program__pin(program, path.as_ptr()), 0)?;
                    let opened = sys::bpf_obj_get(path.as_ptr());
                    same("bpf_program__unpin", sys::bpf_program__unpin(program, path.as_ptr()), 0)?;
                    descriptor(opened).and_then(|opened| link_of(&opened, attach_type))
                }
                Way::Copy => {
                    let func = sys::libbpf_find_vmlinux_btf_id(c"do_getpgid".as_ptr(), attach_type);
                    if func < 0 {
                        // Without a FUNC there is nothing to load a copy for.
                        return Ok(Err(io::Error::from_raw_os_error(-func)));
                    }
                    let mut opts = sys::bpf_prog_load_opts {
                        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
                        expected_attach_type: attach_type,
                        attach_btf_id: u32::try_from(func)?,
                        ..Default::default()
                    };
                    let (insns, count) = (sys::bpf_program__insns(program), sys::bpf_program__insn_cnt(program));
                    let (kind, name) = (sys::BPF_PROG_TYPE_TRACING, c"copy".as_ptr());
                    let loaded = sys::bpf_prog_load(kind, name, c"GPL".as_ptr(), insns, count, &mut opts);
                    descriptor(loaded).and_then(|loaded| link_of(&loaded, attach_type))
                }
            }
        })
    }
}

/// A link of a program that somebody else opened.
fn link_of(program: &Made, attach_type: u32) -> io::Result<Made> {
    let Made::Descriptor(program) = program else { return Err(io::Error::other("no descriptor")) };
    // SAFETY: the descriptor is open; options may be absent.
    descriptor(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, attach_type, ptr::null()) })
}

/// The FUNC that the kernel says a program is for.
fn func_of(object: &Object, name: &str) -> Result<u32, Failure> {
    let mut info = sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the program is loaded, and the structure lives through the call.
    let result = unsafe {
        let fd = sys::bpf_program__fd(program(object, name)?.as_libbpf_object().as_ptr());
        sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len)
    };
    same("bpf_obj_get_info_by_fd", result, 0)?;
    Ok(info.attach_btf_id)
}

/// Takes messages.
fn listen() -> Arc<Mutex<Vec<String>>> {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&heard);
    siteseer::set_log(Some(Arc::new(move |level, message: &str| {
        if level == LogLevel::Warn
            && let Ok(mut heard) = sink.lock()
        {
            heard.push(message.to_owned());
        }
    })));
    heard
}

fn warnings(heard: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    heard.lock().map(|mut heard| std::mem::take(&mut *heard)).unwrap_or_default()
}

// Proves S0.1, S23.5.
/// Attaches a program by each way, and holds it against what plain libbpf sees.
pub(super) fn every_way_sees_what_libbpf_sees() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    siteseer::register()?;
    let object = open(&["enters", "leaves"])?.load()?;
    // SAFETY: plain call.
    let func = unsafe { sys::libbpf_find_vmlinux_btf_id(c"do_getpgid".as_ptr(), sys::BPF_TRACE_FENTRY) };
    for (name, which) in [("enters", ENTERS), ("leaves", LEAVES)] {
        same("the function that the kernel says", func_of(&object, name)?, u32::try_from(func)?)?;
        for way in WAYS_PAST {
            let made = way.make(&object, name)?.map_err(|error| format!("{name}, by {way:?}: {error}"))?;
            same(&format!("{name}, by {way:?}"), counted(&object, which)?, (body, body * way.cookie()))?;
            drop(made);
            same(&format!("{name}, after {way:?}"), counted(&object, which)?, (0, 0))?;
        }
    }
    let heard = listen();
    let object = open(&["enters"])?.load()?;
    let entry = program(&object, "enters")?;
    let link = entry.attach()?;
    same("bpf_program__attach", counted(&object, ENTERS)?, (ALL, 0))?;
    // The kernel attaches a program once, whoever does it.
    let raw = entry.as_libbpf_object().as_ptr();
    // SAFETY: the program is live and loaded.
    let twice = link_once_more(unsafe { sys::bpf_program__attach(raw) })?;
    same("bpf_program__attach() once more", twice, libc::EBUSY)?;
    if behind(&link).is_some() {
        same("the second time", log::last_error().unwrap_or_default().contains("is attached already"), true)?;
    }
    // SAFETY: as above.
    let twice = link_once_more(unsafe { sys::bpf_program__attach_trace(raw) })?;
    same("bpf_program__attach_trace() once more", twice, libc::EBUSY)?;
    same("after the second time", counted(&object, ENTERS)?, (ALL, 0))?;
    warnings(&heard);
    drop(link);
    same("when it is destroyed", counted(&object, ENTERS)?, (0, 0))?;
    Ok(format!("{body} calls of the body, {ALL} in all"))
}

/// The errno of an attachment that must fail.
fn link_once_more(raw: *mut sys::bpf_link) -> Result<i32, Failure> {
    match link(raw) {
        Ok(_) => Err("it is attached twice".into()),
        Err(error) => Ok(error.raw_os_error().unwrap_or_default()),
    }
}

// Proves S23.14.
/// What plain libbpf could not load is attached by siteseer, or not at all.
pub(super) fn what_is_guarded_is_refused_by_others() -> Result<String, Failure> {
    siteseer::register()?;
    let object = open(&["asks", "maybe"])?.load()?;
    let mut refusals = Vec::new();
    for way in WAYS_PAST {
        match way.make(&object, "asks")? {
            Ok(_) => return Err(format!("by {way:?} it is attached, and never runs").into()),
            Err(error) => refusals.push(format!("{way:?}: {error}")),
        }
    }
    let maybe = program(&object, "maybe")?;
    // SAFETY: the program is live and loaded; the name lives through the calls.
    let by_kprobe = unsafe {
        let name = c"do_getpgid".as_ptr();
        let raw = maybe.as_libbpf_object().as_ptr();
        [
            link(sys::bpf_program__attach_kprobe(raw, false, name)).is_ok(),
            link(sys::bpf_program__attach_kprobe_multi_opts(raw, name, ptr::null())).is_ok(),
        ]
    };
    // Kernels before 6.6 do not look at what a program is loaded for when a perf event takes it.
    let version = procfs::sys::kernel::Version::current()?;
    let is_blind = version < procfs::sys::kernel::Version::new(6, 6, 0);
    same("by a kprobe", by_kprobe, [is_blind, false])?;
    let link = program(&object, "asks")?.attach()?;
    call()?;
    same("asks", seen(&object, 2)?.0, ALL)?;
    drop(link);
    Ok(refusals.join("; "))
}

// Proves S23.15.
/// A failure of libbpf's at loading is one, with libbpf's number.
pub(super) fn a_function_that_is_not_there_fails_at_load() -> Result<String, Failure> {
    let errno = || -> Result<String, Failure> {
        let open = open(&["nowhere"])?;
        let error = open.load().err().ok_or("it is loaded")?;
        Ok(format!("{error:#}"))
    };
    let plain = errno()?;
    let heard = listen();
    siteseer::register()?;
    same("plain libbpf's", plain.contains("No such process"), true)?;
    same("the error", errno()?, plain)?;
    same("the reason", log::last_error().unwrap_or_default().contains("there is no function"), true)?;
    let said = warnings(&heard).join("\n");
    same("what is said", said.contains("there is no function there_is_no_such_function"), true)?;
    Ok(said)
}

/// Who may see the kernel's addresses.
const RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";

// Proves S0.3.
/// A process that may load and attach programs, and may not see addresses.
pub(super) fn without_the_privilege_for_addresses_it_is_libbpfs() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let heard = listen();
    let before = fs::read_to_string(RESTRICT)?;
    fs::write(RESTRICT, "1")?;
    keep_capabilities(!(1 << CAP_SYSLOG))?;
    let result = siteseer::register().map_err(Failure::from).and_then(|()| attached_as_libbpf(&heard, body));
    fs::write(RESTRICT, before.trim())?;
    let said = result?;
    if said.contains("CAP_SYSLOG") { Ok(said) } else { Err(format!("CAP_SYSLOG is not named: {said}").into()) }
}

// Proves S0.3.
/// Without site data, and where addresses are hidden, all is as with plain libbpf, and that is said once.
pub(super) fn what_cannot_be_planned_is_libbpfs() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let heard = listen();
    let without = SourceOptions::default().file("/nowhere.sites");
    let before = fs::read_to_string(RESTRICT)?;
    let mut said = Vec::new();
    for (source, restrict) in [(without, before.trim()), (SourceOptions::default(), "2")] {
        fs::write(RESTRICT, restrict)?;
        siteseer::register_with(RegisterOptions::default().source(source))?;
        let result = attached_as_libbpf(&heard, body);
        fs::write(RESTRICT, before.trim())?;
        said.push(result?);
        siteseer::unregister();
    }
    Ok(said.join("\n"))
}

/// The application's own subset of site data: a function that it is about is attached everywhere, any other as by plain
/// libbpf.
pub(super) fn an_embedded_subset_serves() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let target = Target::running(&SourceOptions::default())?;
    let about = subset_of(&target, &["do_getpgid"])?;
    let others = subset_of(&target, &["vfs_rename"])?;
    let heard = listen();
    siteseer::register_with(RegisterOptions::default().source(SourceOptions::default().embedded(about)))?;
    let object = open(&["enters"])?.load()?;
    let link = program(&object, "enters")?.attach()?;
    same("with a subset that is about it", counted(&object, ENTERS)?, (ALL, 0))?;
    same("what is said", warnings(&heard), Vec::<String>::new())?;
    drop((link, object));
    siteseer::unregister();
    siteseer::register_with(RegisterOptions::default().source(SourceOptions::default().embedded(others)))?;
    attached_as_libbpf(&heard, body)
}

fn attached_as_libbpf(heard: &Arc<Mutex<Vec<String>>>, body: u64) -> Result<String, Failure> {
    let object = open(&["enters", "leaves"])?.load()?;
    let links = [program(&object, "enters")?.attach()?, program(&object, "leaves")?.attach()?];
    for link in &links {
        same("the kernel's link", link_type(link), Some(sys::BPF_LINK_TYPE_TRACING))?;
    }
    same("enters", counted(&object, ENTERS)?, (body, 0))?;
    same("leaves", counted(&object, LEAVES)?, (body, 0))?;
    let said = warnings(heard);
    if said.len() != 1 {
        return Err(format!("{} warnings: {said:?}", said.len()).into());
    }
    Ok(said.concat())
}

// Proves S0.3.
/// A function of a module that has no site data is attached as by plain libbpf, and that is said.
pub(super) fn a_module_without_site_data_is_libbpfs() -> Result<String, Failure> {
    let module = Loaded::load()?;
    let hidden = Hidden::of_module()?;
    let heard = listen();
    siteseer::register()?;
    let object = open(&["in_module"])?.load()?;
    let link = program(&object, "in_module")?.attach()?;
    module.run(3)?;
    same("calls", seen(&object, 5)?.0, 1)?;
    drop((link, object, hidden, module));
    let said = warnings(&heard);
    if said.len() != 1 || !said.concat().contains("siteseer_life") {
        return Err(format!("{} warnings: {said:?}", said.len()).into());
    }
    Ok(said.concat())
}

// Proves S0.2.
/// An inlined copy has no return to attach to: by default the body's are attached, with a warning, and under `complete`
/// it is an error.
pub(super) fn the_default_is_at_least_what_libbpf_does() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    need_copy()?;
    siteseer::register()?;
    let heard = listen();
    let object = open(&["leaves"])?.load()?;
    let leaves = program(&object, "leaves")?;
    let link = leaves.attach()?;
    same("leaves", counted(&object, LEAVES)?, (body, 0))?;
    let report = behind(&link).ok_or("the link is libbpf's own")?;
    same("the policy", report.report().policy, Policy::AtLeastLibbpf)?;
    let said = warnings(&heard);
    if said.len() != 1 || !said.concat().contains("an inlined copy has no return") {
        return Err(format!("{} warnings: {said:?}", said.len()).into());
    }
    drop(link);
    let open = open(&["leaves"])?;
    for program in open.progs().filter(|program| program.name() == "leaves") {
        siteseer::set_attach_options(&program, AttachOptions::default().policy(Policy::Complete))?;
    }
    let object = open.load()?;
    same("complete", program(&object, "leaves")?.attach().is_err(), true)?;
    same("leaves", counted(&object, LEAVES)?, (0, 0))?;
    Ok(said.concat())
}

// Proves S0.5.
/// Programs at both ends of the same calls are at the same calls, unless they are to be apart; then the report says so.
pub(super) fn both_ends_are_at_the_same_calls() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    need_copy()?;
    siteseer::register()?;
    let heard = listen();
    let mut said = String::new();
    for (paired, entered) in [(None, body), (Some(true), body), (Some(false), ALL)] {
        let open = open(&["enters", "leaves"])?;
        for program in open.progs().filter(|program| program.name() == "enters") {
            let options = AttachOptions::default();
            let options = paired.map_or_else(|| options.clone(), |paired| options.clone().paired(paired));
            siteseer::set_attach_options(&program, options)?;
        }
        let object = open.load()?;
        let links = [program(&object, "enters")?.attach()?, program(&object, "leaves")?.attach()?];
        call()?;
        same("enters", seen(&object, ENTERS)?.0, entered)?;
        same("leaves", seen(&object, LEAVES)?.0, body)?;
        let report = behind(&links[0]).ok_or("the link is libbpf's own")?.report().to_string();
        let words = if paired == Some(false) { "of them not" } else { "does not reach it" };
        if !report.contains(words) {
            return Err(format!("the report does not say {words:?}: {report}").into());
        }
        said = warnings(&heard).join("\n");
    }
    Ok(said)
}

// Proves S0.5.
/// An entry that asks for inlined copies by its name is at all of them, and says that their returns are not seen; it is
/// kept to the calls that return if it is told to.
pub(super) fn an_entry_that_may_be_inlined_has_its_return() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    need_copy()?;
    siteseer::register()?;
    let heard = listen();
    let mut reports = Vec::new();
    for (paired, entered) in [(None, ALL), (Some(true), body)] {
        let open = open(&["maybe", "leaves"])?;
        for program in open.progs().filter(|program| program.name() == "maybe") {
            let options = AttachOptions::default();
            siteseer::set_attach_options(&program, paired.map_or(options.clone(), |paired| options.paired(paired)))?;
        }
        let object = open.load()?;
        let links = [program(&object, "maybe")?.attach()?, program(&object, "leaves")?.attach()?];
        call()?;
        same("maybe", seen(&object, MAYBE)?.0, entered)?;
        same("leaves", seen(&object, LEAVES)?.0, body)?;
        let report = behind(&links[0]).ok_or("the link is libbpf's own")?.report().to_string();
        let words = if paired.is_some() { "does not reach it" } else { "of them not" };
        if !report.contains(words) || !report.contains("leaves") {
            return Err(format!("the report does not say {words:?}: {report}").into());
        }
        reports.push(report);
        drop(links);
    }
    // Alone it has no other end.
    let object = open(&["maybe"])?.load()?;
    let link = program(&object, "maybe")?.attach()?;
    let report = behind(&link).ok_or("the link is libbpf's own")?.report().to_string();
    same("alone", report.contains("of them not"), false)?;
    warnings(&heard);
    Ok(reports.join("\n"))
}

// Proves S8.12.
/// A program that states `complete` is not attached to less, unless the application says otherwise.
pub(super) fn a_program_states_its_policy() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    need_copy()?;
    // To plain libbpf it says nothing.
    let object = open(&["stated"])?.load()?;
    let link = program(&object, "stated")?.attach()?;
    same("by plain libbpf", counted(&object, STATED)?, (body, 0))?;
    drop((link, object));
    // What holds for the process comes after what the program states.
    siteseer::register_with(RegisterOptions::default().policy(Policy::BestEffort))?;
    siteseer::set_log(None);
    let object = open(&["stated"])?.load()?;
    let stated = program(&object, "stated")?;
    same("complete", stated.attach().is_err(), true)?;
    let why = log::last_error().unwrap_or_default();
    same("the reason", why.contains("an inlined copy has no return"), true)?;
    same("after the refusal", counted(&object, STATED)?, (0, 0))?;
    drop(object);
    let open = open(&["stated"])?;
    for program in open.progs().filter(|program| program.name() == "stated") {
        siteseer::set_attach_options(&program, AttachOptions::default().policy(Policy::AtLeastLibbpf))?;
    }
    let object = open.load()?;
    let link = program(&object, "stated")?.attach()?;
    same("as the application says", counted(&object, STATED)?, (body, 0))?;
    let report = behind(&link).ok_or("the link is libbpf's own")?;
    same("the policy", report.report().policy, Policy::AtLeastLibbpf)?;
    Ok(why)
}

/// Whether the kernel's BTF has a function.
fn in_btf(function: &str) -> Result<bool, Failure> {
    let types = std::fs::read("/sys/kernel/btf/vmlinux")?;
    Ok(Btf::parse(&types)?.find(Kind::Func, function).is_some())
}

// Proves S23.16.
/// What can be attached, and why the rest cannot.
pub(super) fn whether_a_function_can_be_traced() -> Result<String, Failure> {
    // The first has a body, the second is inlined into the system call.
    for function in ["do_getpgid", "vfs_fchmod"] {
        siteseer::can_attach(function, None).map_err(|error| format!("{function}: {}", with_causes(&error)))?;
    }
    let mut reasons = Vec::new();
    for (function, module) in [("there_is_no_such_function", None), ("do_getpgid", Some("there_is_no_such_module"))] {
        let Err(error) = siteseer::can_attach(function, module) else {
            return Err(format!("{function} can be attached").into());
        };
        reasons.push(with_causes(&error));
    }
    // Inlined everywhere: libbpf would not find it for bpf_program__set_attach_target().
    if siteseer::can_attach("folio_account_dirtied", None).is_ok() != in_btf("folio_account_dirtied")? {
        return Err("folio_account_dirtied: the answer is not that of the kernel's BTF".into());
    }
    let said = reasons.join("; ");
    let words = ["there is no function", "is not loaded"];
    if words.iter().all(|words| said.contains(words)) { Ok(said) } else { Err(said.into()) }
}
