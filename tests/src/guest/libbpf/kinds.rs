// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Kinds of programs: each must see with siteseer what it sees with plain libbpf, by every way to a link; and what else
//! is in an object must work as without siteseer.

use super::attached::{behind, program, same};
use super::ways::{self, ALL, ENTERS, Made, WAYS_PAST, Way, calls_of_the_body, counted, counted_by, seen};
use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Failure, need};
use crate::guest::modules::Loaded;
use libbpf_rs::{AsRawLibbpf, MapCore, MapMut, Object, ObjectBuilder, libbpf_sys as sys};
use siteseer::{SourceOptions, Target};
use siteseer_bpf_progs::{BESIDE, set_constant};
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// Counters of ways.bpf.c.
const IN_MODULE: usize = 5;
const BY_GLOBAL: usize = 6;
const SLEEPS: usize = 7;
const IN_MODULE_COPIED: usize = 9;
const EXTENDED: usize = 11;

/// Counters of beside.bpf.c.
const REPLACED: usize = 1;
const INIT: usize = 2;

fn descriptor(object: &Object, name: &str) -> Result<RawFd, Failure> {
    // SAFETY: the program is live and loaded.
    Ok(unsafe { sys::bpf_program__fd(program(object, name)?.as_libbpf_object().as_ptr()) })
}

/// Has the kernel call bpf_fentry_test1(), among others.
fn test_run(program: RawFd) -> io::Result<()> {
    let mut opts =
        sys::bpf_test_run_opts { sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t, ..Default::default() };
    // SAFETY: the program is loaded, the options live through the call.
    match unsafe { sys::bpf_prog_test_run_opts(program, &mut opts) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What a program sees by each way to a link that is not told which function it is for.
fn by_each_way(
    object: &Object,
    name: &str,
    which: usize,
    call: impl Fn() -> io::Result<()>,
) -> Result<Vec<(u64, u64)>, Failure> {
    let ways = WAYS_PAST.into_iter().filter(|way| *way != Way::Copy);
    let of = |way: Way| -> Result<(u64, u64), Failure> {
        let made: Made = way.make(object, name)?.map_err(|error| format!("{name}, by {way:?}: {error}"))?;
        let seen = counted_by(object, which, &call)?;
        drop(made);
        same(&format!("{name}, after {way:?}"), counted_by(object, which, &call)?, (0, 0))?;
        Ok(seen)
    };
    ways.map(of).collect()
}

// Proves S0.1.
pub(super) fn a_program_that_may_sleep() -> Result<String, Failure> {
    need(&Target::running(&SourceOptions::default())?, Capability::Sleepable)?;
    let all = || -> Result<Vec<(u64, u64)>, Failure> {
        let object = ways::open(&["sleeps"])?.load()?;
        let fd = descriptor(&object, "sleeps")?;
        let mut seen = by_each_way(&object, "sleeps", SLEEPS, || test_run(fd))?;
        let _link = program(&object, "sleeps")?.attach()?;
        seen.push(counted_by(&object, SLEEPS, || test_run(fd))?);
        Ok(seen)
    };
    let plain = all()?;
    same("plain libbpf's calls", plain.iter().all(|(calls, _)| *calls == 1), true)?;
    siteseer::register()?;
    same("with siteseer", all()?, plain.clone())?;
    Ok(format!("{} ways", plain.len()))
}

// Proves S0.1.
pub(super) fn a_program_with_a_global_function() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let all = || -> Result<(Vec<(u64, u64)>, u64), Failure> {
        let object = ways::open(&["by_global"])?.load()?;
        let past = by_each_way(&object, "by_global", BY_GLOBAL, ways::call)?;
        let _link = program(&object, "by_global")?.attach()?;
        Ok((past, counted(&object, BY_GLOBAL)?.0))
    };
    let (plain, by_attach) = all()?;
    // It counts no cookies.
    same("plain libbpf's calls", plain.iter().all(|seen| *seen == (body, 0)), true)?;
    same("by plain bpf_program__attach()", by_attach, body)?;
    siteseer::register()?;
    let (past, by_attach) = all()?;
    same("with siteseer", past, plain)?;
    same("by bpf_program__attach()", by_attach, ALL)?;
    Ok(format!("{body} calls by each way past, {ALL} by bpf_program__attach()"))
}

// Proves S23.9.
pub(super) fn a_program_that_skeletons_leave_out() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    siteseer::register()?;
    let open = ways::open(&["enters"])?;
    for program in open.progs().filter(|program| program.name() == "enters") {
        // SAFETY: the program is live.
        unsafe { sys::bpf_program__set_autoattach(program.as_libbpf_object().as_ptr(), false) };
    }
    let object = open.load()?;
    same("past", by_each_way(&object, "enters", ENTERS, ways::call)?[0].0, body)?;
    let link = program(&object, "enters")?.attach()?;
    same("by bpf_program__attach()", counted(&object, ENTERS)?.0, ALL)?;
    drop(link);
    same("when it is destroyed", counted(&object, ENTERS)?.0, 0)?;
    Ok(String::new())
}

/// Opens beside.bpf.c, with an extension of that program.
fn open_beside(extended: RawFd) -> Result<Object, Failure> {
    let mut open = ObjectBuilder::default().open_memory(BESIDE)?;
    set_constant(&mut open, BESIDE, "only_tgid", std::process::id())?;
    for program in open.progs().filter(|program| program.name() == "replaced") {
        let name = c"add_global";
        // SAFETY: the program is live and not loaded; the name lives through the call.
        let named = unsafe {
            sys::bpf_program__set_attach_target(program.as_libbpf_object().as_ptr(), extended, name.as_ptr())
        };
        same("bpf_program__set_attach_target", named, 0)?;
    }
    Ok(open.load()?)
}

/// How often the program with an extension is run.
const RUNS: u64 = 4;

/// Makes a connection with the congestion control of beside.bpf.c.
fn connect() -> io::Result<()> {
    const NAME: &[u8] = b"siteseer_beside";
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Connections that the listener accepts inherit it.
    let (level, option) = (libc::IPPROTO_TCP as u64, libc::TCP_CONGESTION as u64);
    let (fd, name) = (listener.as_fd().as_raw_fd() as u64, NAME.as_ptr() as u64);
    syscall(libc::SYS_setsockopt, [fd, level, option, name, NAME.len() as u64, 0])?;
    let _stream = TcpStream::connect(listener.local_addr()?)?;
    listener.accept().map(drop)
}

/// What the programs of beside.bpf.c see, beside one another.
fn beside() -> Result<[u64; 4], Failure> {
    let extended = ways::open(&["extended"])?.load()?;
    let target = descriptor(&extended, "extended")?;
    let mut object = open_beside(target)?;
    let _extension = program(&object, "replaced")?.attach()?;
    let _entry = program(&object, "enters")?.attach()?;
    let mut operations: MapMut<'_> = object.maps_mut().find(|map| map.name() == "beside").ok_or("no operations")?;
    let _operations = operations.attach_struct_ops()?;
    ways::call()?;
    for _ in 0..RUNS {
        test_run(target)?;
    }
    connect()?;
    let of = |which| -> Result<u64, Failure> { Ok(seen(&object, which)?.0) };
    let own = seen(&extended, EXTENDED)?.0;
    Ok([of(ENTERS)?, of(REPLACED)?, of(INIT)?, own])
}

// Proves S23.1.
/// A structure of operations and an extension, in one object with a program of siteseer's.
pub(super) fn operations_and_extensions_beside() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    let plain = beside()?;
    same("plain: entered, replaced, replaced function's own", [plain[0], plain[1], plain[3]], [body, RUNS, 0])?;
    same("plain: the operations were called", plain[2] > 0, true)?;
    siteseer::register()?;
    let [entered, rest @ ..] = beside()?;
    same("with siteseer: entered", entered, ALL)?;
    same("with siteseer: replaced, operations, replaced function's own", rest, [plain[1], plain[2], plain[3]])?;
    Ok(format!("{entered} calls entered, {RUNS} in the extension, {} of the operations", rest[1]))
}

/// How often a function of the module and its inlined copies are called by a run.
const RUN: [u64; 2] = [1, 2];

/// What is seen in the module, as it is loaded now, by an object that is opened now.
fn in_module(module: &Loaded) -> Result<[u64; 2], Failure> {
    let object = ways::open(&["in_module", "in_module_copied"])?.load()?;
    let links = [program(&object, "in_module")?.attach()?, program(&object, "in_module_copied")?.attach()?];
    same("its sites are siteseer's", behind(&links[1]).is_some(), true)?;
    module.run(7)?;
    let seen = [seen(&object, IN_MODULE)?.0, seen(&object, IN_MODULE_COPIED)?.0];
    drop((links, object));
    Ok(seen)
}

// Proves S23.2, S23.12.
/// Modules come and go between two objects of one process: each object finds what is loaded then. When links and
/// objects are gone, nothing keeps the module: siteseer is not called before it is unloaded.
pub(super) fn modules_come_and_go_between_objects() -> Result<String, Failure> {
    let body = calls_of_the_body()?;
    siteseer::register()?;
    siteseer::set_log(None);
    // What the process knows of the kernel is from before.
    let first = ways::open(&["enters"])?.load()?;
    let _link = program(&first, "enters")?.attach()?;
    same("before", counted(&first, ENTERS)?.0 >= body, true)?;
    for round in 0..2 {
        let module = Loaded::load()?;
        same(&format!("loaded, round {round}"), in_module(&module)?, RUN)?;
        same("a second object", in_module(&module)?, RUN)?;
        drop(module);
        same("unloaded", fs::exists(format!("/sys/module/{}", crate::guest::modules::NAME))?, false)?;
        let gone = ways::open(&["in_module"])?.load();
        same("nothing to load for", gone.is_err(), true)?;
    }
    same("what was there before", counted(&first, ENTERS)?.0, ALL)?;
    Ok("loaded, unloaded and loaded again between objects".to_owned())
}
