// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! When `detach` returns, the program no longer runs, whichever of the calls that wait for it is refused.

use super::keep_to;
use super::refuse::{Refused, refuse};
use crate::guest::case::Failure;
use crate::guest::killed::{call, counters};
use libbpf_rs::{Object, ObjectBuilder};
use siteseer::{Attach, AttachOptions, Policy, Target};
use siteseer_bpf_progs::SLOW;
use std::thread;
use std::time::{Duration, Instant};

/// A loaded machine may take its time until the call comes to the program.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many times it is tried, where the host gives this processor no time while the program runs.
const ATTEMPTS: usize = 20;
/// `BPF_MAP_CREATE`, include/uapi/linux/bpf.h
const MAP_CREATE: u32 = 0;

/// How often the program has begun and ended.
fn runs(object: &Object) -> Result<(u64, u64), Failure> {
    let bytes = counters(object)?;
    let word = |at: usize| -> Result<u64, Failure> {
        Ok(u64::from_ne_bytes(bytes.get(8 * at..8 * at + 8).ok_or("a short .bss")?.try_into()?))
    };
    Ok((word(0)?, word(1)?))
}

/// Attaches, detaches while the program runs, and tells how long that took; `None` if the program had ended before.
/// Runs in a thread to which the calls are refused when the program is attached.
fn detach(target: &Target, object: &Object, refused: &[Refused]) -> Result<Option<Duration>, Failure> {
    let program = object.progs().find(|program| program.name() == "slow").ok_or("no program slow")?;
    // Events of tracefs, which stay open when their program is taken away.
    let options = AttachOptions::default().policy(Policy::BestEffort).bulk_from(1);
    let link = Attach::with(target, options).attach(&program)?;
    // Before the program runs: a new filter is compiled, which waits for all processors; that one takes no interrupt.
    refuse(refused)?;
    let (before, _) = runs(object)?;
    // The program cannot be preempted: on the same processor, it would have ended when this thread looks again.
    let caller = thread::spawn(|| keep_to(0, 1).and_then(|()| call(1)));
    keep_to(0, 0)?;
    let begin = Instant::now();
    while runs(object)?.0 == before {
        if begin.elapsed() > PATIENCE {
            return Err("the program did not run".into());
        }
        thread::yield_now();
    }
    let begin = Instant::now();
    let (begun, ended) = runs(object)?;
    link.detach();
    let took = begin.elapsed();
    let after = runs(object)?;
    caller.join().map_err(|_| "the caller panicked")??;
    // It may have run at several sites of the one call.
    if after.0 != after.1 {
        return Err(
            format!("detached, and the program goes on: begun {} times, ended {} times", after.0, after.1).into()
        );
    }
    call(1)?;
    if runs(object)? != after {
        return Err("the program ran after it was detached".into());
    }
    Ok((begun != ended).then_some(took))
}

// Proves S13.4.
pub(super) fn detaching_waits_without_membarrier(target: &Target) -> Result<String, Failure> {
    let object = ObjectBuilder::default().open_memory(SLOW)?.load()?;
    let membarrier = || Refused { call: libc::SYS_membarrier, argument: None, errno: libc::EPERM };
    let map_create = || Refused { call: libc::SYS_bpf, argument: Some((0, MAP_CREATE)), errno: libc::EPERM };
    let arrangements = [
        ("nothing refused", vec![]),
        ("without membarrier", vec![membarrier()]),
        ("without maps either", vec![membarrier(), map_create()]),
    ];
    let mut said = Vec::new();
    for (name, refused) in &arrangements {
        // What is refused to a thread is refused to nobody else.
        let attempt = || {
            thread::scope(|scope| {
                let detaching = thread::Builder::new()
                    .spawn_scoped(scope, || detach(target, &object, refused).map_err(|e| e.to_string()));
                detaching.map_err(Failure::from)?.join().map_err(|_| "it panicked")?.map_err(Failure::from)
            })
        };
        let took = (0..ATTEMPTS).find_map(|_| attempt().transpose());
        let took = took.unwrap_or_else(|| Err(format!("had ended before it was detached, {ATTEMPTS} times").into()));
        let took = took.map_err(|why| format!("{name}: {why}"))?;
        said.push(format!("{name}: {} ms", took.as_millis()));
    }
    siteseer::clean()?;
    Ok(said.join(", "))
}
