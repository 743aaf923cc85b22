// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What siteseer attaches by itself: some functions under load, and one while each slab allocation of the kernel fails
//! once.
//!
//! The kernel counts the allocations of a thread and makes the nth fail (`/proc/self/task/TID/fail-nth`,
//! Documentation/fault-injection/fault-injection.rst). Each attempt is made by a process of its own: memory that the
//! process itself does not get ends it.

use crate::guest::calls::{exit_code, fork};
use crate::guest::case::Failure;
use crate::guest::typed::program_of;
use crate::measure::cost::attach::counts;
use libbpf_rs::{Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use siteseer::{Attach, AttachError, AttachOptions, Link, Policy, Target};
use siteseer_bpf_progs::COST;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Numbers of sites of the functions that are attached under load.
const SITES: std::ops::RangeInclusive<u32> = 2..=60;
/// How many functions are tried where one is wanted.
const CANDIDATES: usize = 40;
/// Numbers of sites of the function that is attached first: enough for definitions in tracefs.
const MANY: std::ops::RangeInclusive<u32> = 20..=60;
/// Numbers of sites of the function that is attached without memory.
const FEW: std::ops::RangeInclusive<u32> = 2..=4;
/// The first allocations fail one by one, and then one of so many.
const EACH: u32 = 256;
const ONE_OF: u32 = 13;
/// More allocations than an attachment makes.
const MOST: u32 = 100_000;

/// What was attached under load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Functions, one link each.
    pub functions: usize,
    /// Their sites.
    pub sites: usize,
}

/// Attachments of a function while one allocation of the kernel failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// The function.
    pub function: String,
    /// How many allocations of an attachment and of its end were tried.
    pub tried: usize,
    /// At all sites all the same, by the report.
    pub attached: usize,
    /// Refused, with an error.
    pub refused: usize,
    /// Ended by a signal: as a rule, the process itself did not get memory.
    pub ended: usize,
    /// The last allocation that was tried.
    pub allocations: u32,
}

fn load() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(COST)?.load()?)
}

fn attach(target: &Target, object: &Object, function: &str, bulk: bool) -> Result<Result<Link, AttachError>, Failure> {
    let options =
        AttachOptions::default().function(function).policy(Policy::BestEffort).all_prototypes(true).bulk(bulk);
    Ok(Attach::with(target, options).attach(&program_of(object, "nothing")?))
}

/// Functions that have such numbers of sites, far from each other in the table.
fn some(target: &Target, sites: std::ops::RangeInclusive<u32>, aim: usize) -> Result<Vec<String>, Failure> {
    let mut counts = counts(target)?;
    counts.retain(|(_, count)| sites.contains(count));
    let step = (counts.len() / aim).max(1);
    Ok(counts.into_iter().step_by(step).take(aim).map(|(name, _)| name).collect())
}

/// Attaches to a function and detaches. A process that has had definitions in tracefs keeps its lock on them.
pub(super) fn once(target: &Target) -> Result<(), Failure> {
    let object = load()?;
    for function in some(target, MANY, CANDIDATES)? {
        if let Ok(link) = attach(target, &object, &function, true)? {
            link.detach();
            return Ok(());
        }
    }
    Err("no function can be attached that has many sites".into())
}

/// Attaches to some functions and detaches, in both ways that kprobes are made.
pub(super) fn under_load(target: &Target, functions: usize) -> Result<Own, Failure> {
    let object = load()?;
    let mut own = Own::default();
    for (nth, function) in some(target, SITES, functions)?.iter().enumerate() {
        super::mark(&format!("siteseer attaches to {function}"))?;
        match attach(target, &object, function, nth % 2 == 0)? {
            Ok(link) => {
                own.functions += 1;
                own.sites += link.report().attached().count();
                link.detach();
            }
            // It has a site that no kernel arms, and no other one.
            Err(AttachError::Plan(_)) => {}
            Err(error) => return Err(format!("{function}: {}", siteseer_sites::with_causes(&error)).into()),
        }
    }
    if own.functions * 2 < functions {
        return Err(format!("of {functions} functions, {} could be attached", own.functions).into());
    }
    Ok(own)
}

/// Allocations that may wait for memory fail, too, and nothing is printed about it. Pages do not fail: vmalloc() prints
/// a trace then.
fn prepare() -> io::Result<()> {
    for (setting, value) in
        [("failslab/ignore-gfp-wait", "N"), ("failslab/verbose", "0"), ("fail_page_alloc/min-order", "64")]
    {
        fs::write(format!("/sys/kernel/debug/{setting}"), value)?;
    }
    Ok(())
}

/// The nth allocation of this thread.
struct Nth(File);

impl Nth {
    fn new() -> io::Result<Nth> {
        // SAFETY: gettid() has no arguments.
        let thread = unsafe { libc::gettid() };
        let path = format!("/proc/self/task/{thread}/fail-nth");
        Ok(Nth(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn set(&self, nth: u32) -> io::Result<()> {
        self.0.write_all_at(nth.to_string().as_bytes(), 0)
    }

    /// How many allocations are left until the one that fails; 0 if it has failed.
    fn left(&self) -> io::Result<u32> {
        let mut text = [0; 16];
        let length = self.0.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        text.trim().parse().map_err(|_| io::Error::other(format!("fail-nth says {text:?}")))
    }
}

/// The outcome of an attempt: the exit code of its process.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Attached = 10,
    Refused = 11,
    /// It made fewer allocations.
    Beyond = 12,
    Wrong = 13,
}

/// Attaches and detaches, and the nth allocation fails.
fn attempt(target: &Target, object: &Object, function: &str, nth: u32) -> Result<Ending, Failure> {
    let failing = Nth::new()?;
    failing.set(nth)?;
    let attached = attach(target, object, function, false)?;
    let ending = match attached {
        Ok(link) => {
            let whole = link.report().sites().all(|site| site.is_attached());
            link.detach();
            if whole { Ending::Attached } else { Ending::Refused }
        }
        Err(_) => Ending::Refused,
    };
    let left = failing.left()?;
    failing.set(0)?;
    Ok(if left > 0 { Ending::Beyond } else { ending })
}

/// How a process that makes the attempt ends; none if a signal ends it.
fn in_process(work: impl FnOnce() -> Result<Ending, Failure>) -> io::Result<Option<i32>> {
    let process = fork(|| {
        let ending = work().unwrap_or_else(|error| {
            eprintln!("an attempt failed: {error}");
            Ending::Wrong
        });
        ending as i32
    })?;
    exit_code(process)
}

/// Attaches to a function again and again, and each time another allocation fails.
pub(super) fn without_memory(target: &Target) -> Result<Failing, Failure> {
    prepare()?;
    let object = load()?;
    let mut failing = Failing::default();
    for function in some(target, FEW, CANDIDATES)? {
        if let Ok(link) = attach(target, &object, &function, false)?
            && link.report().sites().all(|site| site.is_attached())
        {
            failing.function = function;
            break;
        }
    }
    if failing.function.is_empty() {
        return Err("no function can be attached at all of its few sites".into());
    }
    for nth in (1..=EACH).chain((EACH..MOST).step_by(ONE_OF as usize).skip(1)) {
        super::mark(&format!("allocation {nth} of attaching to {} fails", failing.function))?;
        let ending = in_process(|| attempt(target, &object, &failing.function, nth))?;
        match ending {
            Some(code) if code == Ending::Beyond as i32 => return Ok(failing),
            Some(code) if code == Ending::Attached as i32 => failing.attached += 1,
            Some(code) if code == Ending::Refused as i32 => failing.refused += 1,
            // An error of the attempt itself, or a panic.
            Some(code) => return Err(format!("allocation {nth}: the attempt ended with {code}").into()),
            None => failing.ended += 1,
        }
        failing.tried += 1;
        failing.allocations = nth;
    }
    Err(format!("an attachment makes more than {MOST} allocations").into())
}
