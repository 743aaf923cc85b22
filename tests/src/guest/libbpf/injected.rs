// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Every system call of an attachment fails once, and nothing is left behind.

use super::asked::{self, Calls};
use super::attached::{MAYBE, definitions, files, no_definitions, open, program, same, seen, semget};
use crate::guest::case::Failure;
use libbpf_rs::{AsRawLibbpf, Object, libbpf_sys as sys};
use siteseer::AttachOptions;
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// The system calls that may fail.
const CALLS: [libc::c_long; 8] = [
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_openat,
    libc::SYS_socketpair,
    libc::SYS_sendmsg,
    libc::SYS_dup3,
    libc::SYS_ioctl,
    libc::SYS_fstat,
];

/// What they fail with: once what stands for the site, once what stands for the machine.
const ERRORS: [i32; 2] = [libc::EINVAL, libc::ENOMEM];

/// A link that a thread hands to another.
struct Sent(NonNull<sys::bpf_link>);
// SAFETY: what libbpf allocated belongs to no thread.
unsafe impl Send for Sent {}

/// A program that a thread attaches.
struct Lent(NonNull<sys::bpf_program>);
// SAFETY: as above; the thread that lends it waits.
unsafe impl Send for Lent {}

/// The link, if there is one; how often each system call was made; which one failed.
type Attempt = (Option<Sent>, BTreeMap<libc::c_long, usize>, Option<libc::c_long>);

/// Attaches while the system call of a number fails.
fn attach(object: &Object, nth: usize, errno: i32) -> Result<Attempt, Failure> {
    let lent = Lent(program(object, "maybe")?.as_libbpf_object());
    let (mut calls, mut count, mut failed) = (BTreeMap::new(), 0, None);
    let attaching = move || {
        let Lent(program) = { lent };
        // SAFETY: the program is alive as long as the object, which waits for this thread.
        NonNull::new(unsafe { sys::bpf_program__attach(program.as_ptr()) }).map(Sent)
    };
    let link = asked::run(Calls::These(&CALLS), attaching, |question| {
        *calls.entry(question.call).or_default() += 1;
        let turn = count == nth;
        count += 1;
        turn.then(|| {
            failed = Some(question.call);
            errno
        })
    })?;
    Ok((link, calls, failed))
}

fn destroy(link: Option<Sent>) -> Result<(), Failure> {
    // SAFETY: the link is alive, and not used any more.
    let destroyed = link.map_or(0, |Sent(link)| unsafe { sys::bpf_link__destroy(link.as_ptr()) });
    same("bpf_link__destroy", destroyed, 0)
}

/// All steps of an attachment by these options.
fn each_step(options: AttachOptions) -> Result<String, Failure> {
    let open = open(&["maybe"])?;
    {
        let maybe = open.progs().find(|program| program.name() == "maybe").ok_or("no program")?;
        siteseer::set_attach_options(&maybe, options)?;
    }
    let object = open.load()?;
    // What all attachments have in common is made, and the calls are counted.
    destroy(attach(&object, usize::MAX, 0)?.0)?;
    let (link, calls, _) = attach(&object, usize::MAX, 0)?;
    same("attached", link.is_some(), true)?;
    destroy(link)?;
    let total: usize = calls.values().sum();
    let (mut in_vain, mut anyhow) = (0, 0);
    let mut failed: BTreeMap<libc::c_long, usize> = BTreeMap::new();
    for errno in ERRORS {
        for nth in 0..total {
            // What is kept of a link that was destroyed goes.
            siteseer::clean()?;
            let before = (files()?, seen(&object, MAYBE)?);
            let (link, _, call) = attach(&object, nth, errno)?;
            if let Some(call) = call {
                *failed.entry(call).or_default() += 1;
            }
            if link.is_some() {
                anyhow += 1;
            } else {
                in_vain += 1;
            }
            let kept = usize::from(link.is_some()) * 8;
            destroy(link)?;
            let at = || format!("with error {errno} of call {nth} of {total} ({call:?})");
            semget(2)?;
            same(&at(), seen(&object, MAYBE)?, before.1)?;
            if files()? > before.0 + kept {
                return Err(format!("{}: {} files, {} before", at(), files()?, before.0).into());
            }
        }
    }
    for call in [libc::SYS_bpf, libc::SYS_socketpair, libc::SYS_sendmsg, libc::SYS_dup3] {
        if !failed.contains_key(&call) {
            return Err(format!("system call {call} never failed: {failed:?}").into());
        }
    }
    destroy(attach(&object, usize::MAX, 0)?.0)?;
    same(
        "attached at last",
        {
            let link = attach(&object, usize::MAX, 0)?.0;
            semget(2)?;
            destroy(link)?;
            seen(&object, MAYBE)?.0
        },
        2,
    )?;
    Ok(format!("{total} calls, two errors each: {in_vain} attempts failed, {anyhow} did without"))
}

pub(super) fn nothing_stays_when_a_system_call_fails() -> Result<String, Failure> {
    siteseer::register()?;
    siteseer::set_log(None);
    // SAFETY: no other thread uses libbpf.
    unsafe { sys::libbpf_set_print(None) };
    let singly = each_step(AttachOptions::default().bulk(false))?;
    let together = each_step(AttachOptions::default().bulk_from(1))?;
    siteseer::clean()?;
    siteseer::unregister();
    no_definitions()?;
    same("definitions", definitions()?, 0)?;
    Ok(format!("singly: {singly}; together: {together}"))
}
