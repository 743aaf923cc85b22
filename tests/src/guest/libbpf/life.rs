// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A whole life of two programs: opened, planned, loaded, attached, called, detached, closed. Every system call of it
//! fails once with each error that the kernel may give, and afterwards nothing is left; no call was missed
//! silently, and no argument was wrong.
//!
//! A call that the process makes many times in a row, as of reading a large file, fails the first time, in the middle
//! and the last time.

use super::asked::{self, Calls, Question};
use super::attached::{ENTRY, MAYBE, behind, no_definitions, open, program, same, seen, semget};
use crate::guest::case::Failure;
use crate::guest::inventory::Inventory;
use libbpf_rs::{Link, Object, libbpf_sys as sys};
use siteseer::{LogLevel, RegisterOptions};
use siteseer_sites::with_causes;
use std::collections::BTreeMap;
use std::panic;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What does not fail: because it cannot (exit, getpid), because no error of it undoes it (close), because an allocator
/// or a lock may end the process then, because the standard library keeps another descriptor for good then (getrandom),
/// or because it is the workload.
const NEVER: [libc::c_long; 23] = [
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_futex,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_getrandom,
    libc::SYS_semget,
];

/// What a system call may fail with.
fn errors(call: libc::c_long) -> &'static [i32] {
    use libc::{EACCES, EAGAIN, ECHILD, EINTR, EINVAL, EIO, EMFILE, ENOBUFS, ENOENT, ENOMEM, ENOSPC, ENOSYS, EPERM};
    match call {
        libc::SYS_bpf => &[EINVAL, ENOMEM, EPERM],
        libc::SYS_perf_event_open => &[EINVAL, EACCES, EMFILE],
        libc::SYS_openat => &[ENOENT, EACCES, EMFILE, EINTR],
        libc::SYS_openat2 => &[ENOSYS, EACCES, EAGAIN],
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_getdents64 => &[EIO, EINTR],
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev => &[ENOSPC, EINTR],
        libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx => &[ENOMEM, ENOENT],
        libc::SYS_clone | libc::SYS_clone3 => &[EAGAIN, ENOSYS],
        libc::SYS_mmap => &[ENOMEM],
        libc::SYS_sendmsg => &[ENOBUFS],
        libc::SYS_socketpair | libc::SYS_dup3 | libc::SYS_fcntl => &[EMFILE],
        libc::SYS_wait4 => &[EINTR, ECHILD],
        _ => &[EINVAL, EPERM],
    }
}

/// Set while the test itself looks at what the programs have counted.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// Whether a system call may fail: it is not the test's, and an allocator does not ask for memory by it.
fn may_fail(question: &Question) -> bool {
    let is_anonymous = question.call == libc::SYS_mmap && question.arguments[3] & libc::MAP_ANONYMOUS as u64 != 0;
    !is_anonymous && !LOOKING.load(Ordering::SeqCst)
}

/// Calls of the workload while the programs are attached.
const CALLS: u64 = 2;
/// The programs, and their counters.
const PROGRAMS: [(&str, usize); 2] = [("maybe", MAYBE), ("entry", ENTRY)];

/// By how much the process may have grown after all lives: a life that forgot the kernel's symbols would need some
/// megabytes.
const GROWTH: u64 = 64 << 20;

/// What came of a life.
enum Life {
    /// It ended before anything was attached: why.
    NotLoaded(String),
    /// For each program what its report leaves out, if it is attached, and how many of the calls it saw.
    Lived(Vec<(Option<usize>, u64)>),
}

/// Lives. Only what must not come of it is an error.
fn live() -> Result<Life, String> {
    let text = |failure: Failure| with_causes(&*failure);
    // What was read of the kernel is forgotten.
    siteseer::register_with(RegisterOptions::default()).map_err(|error| with_causes(&error))?;
    let object = match open(&["maybe", "entry"]).and_then(|open| Ok(open.load()?)) {
        Ok(object) => object,
        Err(failure) => return Ok(Life::NotLoaded(text(failure))),
    };
    let links: Vec<Option<Link>> = PROGRAMS
        .iter()
        .map(|(name, _)| Ok(program(&object, name)?.attach().ok()))
        .collect::<Result<_, Failure>>()
        .map_err(text)?;
    let left_out = |link: &Link| behind(link).map_or(0, |own| own.report().skipped().count());
    let left_out: Vec<Option<usize>> = links.iter().map(|link| link.as_ref().map(left_out)).collect();
    let before = counts(&object)?;
    let added = semget(CALLS).map_err(text)?;
    let after = counts(&object)?;
    drop(links);
    semget(CALLS).map_err(text)?;
    if counts(&object)? != after {
        return Err("a program ran after its link was destroyed".to_owned());
    }
    let mut seen = Vec::new();
    for ((before, after), (name, _)) in before.into_iter().zip(after).zip(PROGRAMS) {
        let (calls, sum) = (after.0 - before.0, after.1 - before.1);
        if sum != calls * (added / CALLS) || calls > CALLS {
            return Err(format!("{name}: {calls} calls of {CALLS}, with arguments that make {sum:#x}"));
        }
        seen.push(calls);
    }
    Ok(Life::Lived(left_out.into_iter().zip(seen).collect()))
}

fn counts(object: &Object) -> Result<Vec<(u64, u64)>, String> {
    LOOKING.store(true, Ordering::SeqCst);
    let counts: Result<Vec<_>, Failure> = PROGRAMS.iter().map(|(_, which)| seen(object, *which)).collect();
    LOOKING.store(false, Ordering::SeqCst);
    counts.map_err(|failure| with_causes(&*failure))
}

/// The system calls that fail, out of those that were made: what is asked for, of whom.
fn chosen(made: &[(libc::c_long, u64)]) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut begin = 0;
    for run in made.chunk_by(|one, next| one == next) {
        let mut of_run = vec![begin, begin + run.len() / 2, begin + run.len() - 1];
        of_run.dedup();
        chosen.extend(of_run);
        begin += run.len();
    }
    chosen
}

/// Panics, also those that somebody catches.
static PANICS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn nothing_is_lost_in_a_life_with_a_system_call_that_fails() -> Result<String, Failure> {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&said);
    let take = || std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    siteseer::register()?;
    // What was attached is said of every program: only a warning says that something is missing.
    siteseer::set_log(Some(Arc::new(move |level, message: &str| {
        if level == LogLevel::Warn {
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
        }
    })));
    // SAFETY: no other thread uses libbpf.
    unsafe { sys::libbpf_set_print(None) };
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        others(about);
    }));

    // What the process does once is done.
    asked::run(Calls::AllBut(&NEVER), live, |_| None)??;
    let mut made = Vec::new();
    let count = |question: &Question| {
        if may_fail(question) {
            made.push((question.call, question.arguments[0]));
        }
        None
    };
    let Life::Lived(whole) = asked::run(Calls::AllBut(&NEVER), live, count)?? else {
        return Err("no system call fails, and the programs are not loaded".into());
    };
    same("without a failure", whole.iter().all(|(left_out, calls)| left_out.is_some() && *calls == CALLS), true)?;
    siteseer::clean()?;
    take();
    let memory = Inventory::take()?.memory();
    let chosen = chosen(&made);
    let (mut lives, mut in_vain, mut unloaded, mut unattached, mut partly, mut fully) = (0, 0, 0, 0, 0, 0);
    let mut kinds: BTreeMap<libc::c_long, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    // After which life the process had more memory: KiB, the number of the call, the call, its error.
    let mut growth = Vec::new();
    for &nth in &chosen {
        let Some(&(call, _)) = made.get(nth) else { continue };
        *kinds.entry(call).or_default() += 1;
        for &errno in errors(call) {
            let before = Inventory::take()?;
            let mut count = 0;
            let mut failed = None;
            let life = asked::run(Calls::AllBut(&NEVER), live, |question| {
                if !may_fail(question) {
                    return None;
                }
                count += 1;
                // Threads may be faster this time: what is made here instead fails with an error of its own.
                (count == nth + 1).then(|| {
                    failed = Some(question.call);
                    let own = errors(question.call);
                    if own.contains(&errno) { errno } else { own.first().copied().unwrap_or(errno) }
                })
            });
            siteseer::clean()?;
            no_definitions()?;
            lives += 1;
            in_vain += usize::from(failed.is_none());
            let said = take();
            let mut fail = |what: String| {
                wrong.push(format!(
                    "error {errno} of system call {call} ({failed:?}), which is {nth} of {}: {what}; it was said: {said:?}",
                    made.len()
                ));
            };
            match life.and_then(|life| Ok(life?)) {
                Err(failure) => fail(with_causes(&*failure)),
                Ok(Life::NotLoaded(why)) if why.is_empty() => fail("not loaded, silently".to_owned()),
                Ok(Life::NotLoaded(_)) => unloaded += 1,
                Ok(Life::Lived(programs)) => {
                    let is_whole = |(left_out, calls): &(Option<usize>, u64)| left_out.is_some() && *calls == CALLS;
                    let is_told = |(left_out, _): &(Option<usize>, u64)| left_out.is_some_and(|count| count > 0);
                    if programs.iter().all(is_whole) {
                        fully += 1;
                    } else if programs.iter().any(|(left_out, _)| left_out.is_none()) {
                        unattached += 1;
                    } else {
                        partly += 1;
                    }
                    if said.is_empty() && programs.iter().any(|program| !is_whole(program) && !is_told(program)) {
                        fail(format!("calls are missed silently: {programs:?}"));
                    }
                }
            }
            if let Err(left) = before.without_memory().compare() {
                fail(with_causes(&*left));
            }
            let more = Inventory::take()?.memory().saturating_sub(before.memory());
            if more > 0 {
                growth.push((more >> 10, nth, call, errno));
            }
            let panics = PANICS.swap(0, Ordering::Relaxed);
            if panics > 0 {
                fail(format!("{panics} panics"));
            }
        }
    }
    let Life::Lived(after) = asked::run(Calls::AllBut(&NEVER), live, |_| None)?? else {
        return Err("afterwards the programs are not loaded".into());
    };
    same("afterwards", after, whole)?;
    siteseer::clean()?;
    siteseer::unregister();
    no_definitions()?;
    let all = made.len();
    let grown = Inventory::take()?.memory().saturating_sub(memory);
    growth.sort_unstable_by_key(|&(more, ..)| std::cmp::Reverse(more));
    // How many calls there are depends on how fast the kernel removes things.
    if in_vain * 10 > lives {
        wrong.push(format!("{in_vain} of {lives} lives had ended before the call that was to fail"));
    }
    if grown > GROWTH {
        wrong.push(format!("{} KiB more after {lives} lives", grown >> 10));
    }
    let summary = format!(
        "{all} system calls, {} of them failed, of {} kinds: in {lives} lives {unloaded} not loaded, {unattached} not attached, \
         {partly} in part, {fully} as if nothing had failed ({in_vain} did not come to their call); {} KiB more in the end, \
         in {} lives, most in {:?}",
        chosen.len(),
        kinds.len(),
        grown >> 10,
        growth.len(),
        growth.get(..5).unwrap_or(&growth)
    );
    if wrong.is_empty() { Ok(summary) } else { Err(format!("{summary}\n{}", wrong.join("\n")).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_equal_ones_three_fail() {
        let made = [(1, 3), (0, 3), (0, 3), (0, 3), (0, 3), (0, 4), (1, 3), (1, 3)];
        assert_eq!(chosen(&made), [0, 1, 3, 4, 5, 6, 7]);
        assert!(chosen(&[]).is_empty());
    }
}
