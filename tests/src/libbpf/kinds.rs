// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Kinds of programs: each must see with siteseer what it sees with plain libbpf, by every way to a link.

use super::attached::{program, same};
use super::ways::{self, ALL, ENTERS, Made, WAYS_PAST, Way, calls_of_the_body, counted, counted_by};
use crate::case::{Capability, Failure, need};
use libbpf_rs::{AsRawLibbpf, Object, libbpf_sys as sys};
use siteseer::{SourceOptions, Target};
use std::io;
use std::os::fd::RawFd;

/// Counters of ways.bpf.c.
const BY_GLOBAL: usize = 6;
const SLEEPS: usize = 7;

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
