// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What libbpf's calls attach, counted.

use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramMut, libbpf_sys as sys,
};
use siteseer::{AttachOptions, Attached, Policy, Program};
use siteseer_bpf_progs::{REGISTERED, set_constant};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// The counters of registered.bpf.c.
pub(super) const MAYBE: usize = 0;
pub(super) const ENTRY: usize = 1;
const PLAIN: usize = 2;
const ASKS: usize = 3;

/// Opens the object with these programs alone.
pub(super) fn open(programs: &[&str]) -> Result<OpenObject, Failure> {
    let mut open = ObjectBuilder::default().open_memory(REGISTERED)?;
    set_constant(&mut open, REGISTERED, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
        if program.name() == "entry" {
            siteseer::set_attach_options(&program, AttachOptions::default().policy(Policy::BestEffort))?;
        }
        if program.name() == "exits" {
            siteseer::set_attach_options(&program, AttachOptions::default().policy(Policy::Complete))?;
        }
    }
    Ok(open)
}

pub(super) fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Failure> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| format!("no program {name}").into())
}

/// Calls that a program saw, and the sum of what it read.
pub(super) fn seen(object: &Object, which: usize) -> Result<(u64, u64), Failure> {
    let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no .bss")?;
    let bytes = bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let word = |at: usize| -> Result<u64, Failure> {
        Ok(u64::from_ne_bytes(bytes.get(8 * at..8 * at + 8).ok_or("a short .bss")?.try_into()?))
    };
    Ok((word(which)?, word(8 + which)?))
}

/// semget(2), which is refused: more semaphores than there may be.
pub(super) fn semget(times: u64) -> Result<u64, Failure> {
    const MANY: u64 = 0x7fff_0000;
    for _ in 0..times {
        match syscall(libc::SYS_semget, [libc::IPC_PRIVATE as u64, MANY, 0, 0, 0, 0]) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            other => return Err(format!("semget said {other:?}").into()),
        }
    }
    Ok(times * MANY)
}

pub(super) fn behind(link: &Link) -> Option<Attached> {
    // SAFETY: the link is alive.
    unsafe { Attached::from_raw(link.as_libbpf_object()) }
}

pub(super) fn files() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

pub(super) fn definitions() -> io::Result<usize> {
    let listing = fs::read_to_string("/sys/kernel/tracing/kprobe_events")?;
    Ok(listing.lines().filter(|line| line.starts_with("p:siteseer_")).count())
}

/// Waits until all definitions are removed, which a process does that nobody waits for.
pub(super) fn no_definitions() -> Result<(), Failure> {
    let begin = Instant::now();
    while definitions()? > 0 {
        if begin.elapsed() > Duration::from_secs(240) {
            return Err(format!("after four minutes there are {} definitions", definitions()?).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}").into()) }
}

// Proves S23.2.
pub(super) fn a_link_stands_for_all_sites() -> Result<String, Failure> {
    siteseer::register()?;
    let object = open(&["maybe", "entry"])?.load()?;
    let mut text = String::new();
    for (name, which) in [("maybe", MAYBE), ("entry", ENTRY)] {
        let own = program(&object, name)?;
        // The first makes what all links have in common.
        drop(own.attach()?);
        siteseer::clean()?;
        let before = files()?;
        let link = own.attach()?;
        let attached = behind(&link).ok_or("the link is libbpf's own")?;
        same("attached", attached.is_attached(), true)?;
        let (calls, sum) = seen(&object, which)?;
        let added = semget(7)?;
        same(name, seen(&object, which)?, (calls + 7, sum + added))?;
        let report = attached.report().to_string();
        same(
            "the program's report",
            Program::from(&own).report().map(|report| report.to_string()),
            Some(report.clone()),
        )?;
        let inline = attached.report().attached().filter(|site| site.kind.word() == "inline").count();
        if inline == 0 {
            return Err(format!("no inlined copy: {report}").into());
        }
        same("faults", attached.faults()?, 0)?;
        attached.missed()?;
        let cost = attached.cost()?;
        same("files", files()? - before >= 3 && cost.files >= 3 && cost.programs >= 1, true)?;
        drop(link);
        same("attached", attached.is_attached(), false)?;
        semget(7)?;
        same("after it is destroyed", seen(&object, which)?, (calls + 7, sum + added))?;
        drop(attached);
        siteseer::clean()?;
        same("files", files()?, before)?;
        text.push_str(&report);
    }
    Ok(text)
}

/// Type of the kernel's link that a descriptor refers to.
pub(super) fn link_type(link: &Link) -> Option<u32> {
    let mut info = sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the link is alive, and the structure lives through the call.
    let result = unsafe {
        let fd = sys::bpf_link__fd(link.as_libbpf_object().as_ptr());
        sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &mut len)
    };
    (result == 0).then_some(info.type_)
}

// Proves S23.5, S23.9.
pub(super) fn what_siteseer_adds_nothing_to_is_libbpfs() -> Result<String, Failure> {
    siteseer::register()?;
    let object = open(&["plain", "asks", "other", "maybe"])?.load()?;
    let (plain, asks) = (program(&object, "plain")?, program(&object, "asks")?);
    let link = plain.attach()?;
    same("the kernel's link", link_type(&link), Some(sys::BPF_LINK_TYPE_TRACING))?;
    same("its attachment", behind(&link).is_none(), true)?;
    let report = Program::from(&plain).report().ok_or("it was not planned")?;
    same("its sites", report.attached().count(), 1)?;
    // It asks what siteseer alone can answer.
    let asking = asks.attach()?;
    same("the attachment of the one that asks", behind(&asking).is_some(), true)?;
    let other = program(&object, "other")?.attach()?;
    same("another section's link", link_type(&other), Some(sys::BPF_LINK_TYPE_PERF_EVENT))?;
    // The kernel calls bpf_fentry_test1(1) to test a program of this kind.
    let mut opts =
        sys::bpf_test_run_opts { sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t, ..Default::default() };
    // SAFETY: the program is loaded, the options live through the call.
    let ran =
        unsafe { sys::bpf_prog_test_run_opts(sys::bpf_program__fd(plain.as_libbpf_object().as_ptr()), &mut opts) };
    same("the test run", ran, 0)?;
    same("plain", seen(&object, PLAIN)?, (1, 1))?;
    same("asks", seen(&object, ASKS)?, (1, 1))?;
    // A cookie is libbpf's affair too; and siteseer's own call attaches what libbpf loaded.
    drop(link);
    let target = siteseer::Target::running(&siteseer::SourceOptions::default())?;
    let own = siteseer::Attach::new(&target).attach(&plain)?;
    // SAFETY: as above.
    let ran =
        unsafe { sys::bpf_prog_test_run_opts(sys::bpf_program__fd(plain.as_libbpf_object().as_ptr()), &mut opts) };
    same("the test run", ran, 0)?;
    same("plain, by siteseer", seen(&object, PLAIN)?, (2, 2))?;
    Ok(own.report().to_string())
}

// Proves S23.6, S23.7.
pub(super) fn what_cannot_be_attached_is_an_error() -> Result<String, Failure> {
    siteseer::register()?;
    siteseer::set_log(None);
    let object = open(&["exits", "bare", "maybe"])?.load()?;
    let exits = program(&object, "exits")?;
    let before = files()?;
    let error = exits.attach().err().ok_or("an fexit program is attached to an inlined copy")?;
    let said = siteseer::internals::log::last_error().unwrap_or_default();
    if !said.contains("ksys_semget") || !said.contains("an inlined copy has no return") {
        return Err(format!("{error}: {said}").into());
    }
    same("files", files()?, before)?;
    // Names nothing, as SEC("kprobe") may: no link, no error; which bpf_program__attach() takes for one.
    same("bare", program(&object, "bare")?.attach().is_err(), true)?;
    // A program that was not opened here is not known.
    let unknown = open(&["other"])?;
    let other = unknown.progs().find(|program| program.name() == "other").ok_or("no program")?;
    same("options of another section", siteseer::set_attach_options(&other, AttachOptions::default()).is_err(), true)?;
    drop(unknown);
    siteseer::unregister();
    same("a section that is libbpf's again", open_is_unknown(), true)?;
    Ok(said)
}

/// Whether libbpf knows nothing of `kprobe_maybe_inline`.
fn open_is_unknown() -> bool {
    let (mut kind, mut attach) = (0, 0);
    let name: &CStr = c"kprobe_maybe_inline/foo";
    // SAFETY: all live through the call.
    unsafe { sys::libbpf_prog_type_by_name(name.as_ptr(), &mut kind, &mut attach) < 0 }
}

// Proves S13.6.
pub(super) fn links_outlive_their_object() -> Result<String, Failure> {
    siteseer::register()?;
    let object = open(&["maybe"])?.load()?;
    let link = program(&object, "maybe")?.attach()?;
    let attached = behind(&link).ok_or("the link is libbpf's own")?;
    let bss = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss")).ok_or("no .bss")?;
    let bss = libbpf_rs::MapHandle::try_from(&bss)?;
    let calls = |bss: &libbpf_rs::MapHandle| -> Result<u64, Failure> {
        let bytes = bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        Ok(u64::from_ne_bytes(bytes.get(..8).ok_or("a short .bss")?.try_into()?))
    };
    drop(object);
    siteseer::unregister();
    semget(3)?;
    same("calls", calls(&bss)?, 3)?;
    same("attached", attached.is_attached(), true)?;
    drop(link);
    semget(3)?;
    same("calls", calls(&bss)?, 3)?;
    same("attached", attached.is_attached(), false)?;
    Ok(String::new())
}

// Proves S23.4.
pub(super) fn definitions_go_when_the_link_is_gone() -> Result<String, Failure> {
    siteseer::register()?;
    no_definitions()?;
    let open = open(&["maybe"])?;
    {
        let maybe = open.progs().find(|program| program.name() == "maybe").ok_or("no program")?;
        siteseer::set_attach_options(&maybe, AttachOptions::default().bulk_from(1).cookie(5))?;
    }
    let object = open.load()?;
    let link = program(&object, "maybe")?.attach()?;
    let before = definitions()?;
    if before == 0 {
        return Err("nothing was defined".into());
    }
    semget(2)?;
    same("calls", seen(&object, MAYBE)?.0, 2)?;
    drop(link);
    semget(2)?;
    same("calls", seen(&object, MAYBE)?.0, 2)?;
    // Whatever is attached next finds that it is gone.
    let link = program(&object, "maybe")?.attach()?;
    drop(link);
    siteseer::clean()?;
    no_definitions()?;
    Ok(format!("{before} definitions"))
}

unsafe extern "C" {
    /// tests/c/skeleton.c
    fn siteseer_test_skeleton(elf: *const c_void, size: usize, said: *mut c_char, room: usize) -> c_int;
}

/// The C interface's own symbols: nothing here calls them but the C program.
const _: extern "C" fn() -> *const c_char = siteseer_c::siteseer_version_string;

// Proves S23.8, S23.13.
pub(super) fn a_skeleton_in_c() -> Result<String, Failure> {
    let mut said = vec![0u8; 1 << 16];
    // SAFETY: the object and the buffer are as long as is said.
    let failed = unsafe {
        siteseer_test_skeleton(REGISTERED.as_ptr().cast(), REGISTERED.len(), said.as_mut_ptr().cast(), said.len())
    };
    let text = CStr::from_bytes_until_nul(&said)?.to_string_lossy().into_owned();
    if failed == 0 { Ok(text) } else { Err(format!("line {failed}: {text}").into()) }
}
