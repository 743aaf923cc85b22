// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Two functions of one name: a program runs for the one that it states, or whose file is named, and never for the
//! other.

use crate::guest::calls::syscall;
use crate::guest::case::{Case, Failure, case, choose};
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::{need_rdonly_cast, program_of};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use siteseer::{Attach, AttachOptions, Policy, Target};
use siteseer_bpf_progs::NAMESAKES;
use siteseer_sites::with_causes;
use std::io;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("namesakes", name, run);
    vec![
        case("stated_types_choose", stated_types_choose),
        case("a_file_chooses", a_file_chooses),
        case("stated_types_that_none_has", stated_types_that_none_has),
        // Proves S11.2.
        case("nothing_stated_is_refused_with_the_line_to_write", nothing_stated),
    ]
}

fn load() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(NAMESAKES)?.load()?)
}

/// Calls of free_copy() in ipc/msg.c: one for each attempt to copy a message, from an empty queue, and from none.
fn copy_messages(from_empty: usize, from_none: usize) -> io::Result<()> {
    const MSG_COPY: u64 = 0o40000;
    let queue = syscall(libc::SYS_msgget, [libc::IPC_PRIVATE as u64, 0o600, 0, 0, 0, 0])? as u64;
    let buffer = [0u64; 8];
    let attempt = |queue: u64, errno: i32| {
        let arguments = [queue, buffer.as_ptr() as u64, 32, 0, MSG_COPY | libc::IPC_NOWAIT as u64, 0];
        match syscall(libc::SYS_msgrcv, arguments) {
            Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
            other => Err(io::Error::other(format!("msgrcv: {other:?}, not errno {errno}"))),
        }
    };
    let result = (0..from_empty)
        .try_for_each(|_| attempt(queue, libc::ENOMSG))
        .and_then(|()| (0..from_none).try_for_each(|_| attempt(0x7fff_ffff, libc::EINVAL)));
    syscall(libc::SYS_msgctl, [queue, libc::IPC_RMID as u64, 0, 0, 0, 0])?;
    result
}

/// Calls that the program saw, and those whose argument it could follow.
fn counts(object: &Object) -> Result<[u64; 2], Failure> {
    let map = object.maps().find(|map| MapCore::name(map) == "counts").ok_or("no map counts")?;
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.ok_or("no counts")?;
    let word =
        |nth: usize| value.get(8 * nth..8 * nth + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
    Ok([word(0).ok_or("a short value")?, word(1).ok_or("a short value")?])
}

/// Attaches, makes the calls, and checks what was seen and what the report says about the other function.
fn traced(target: &Target, options: AttachOptions, program: &str) -> Result<String, Failure> {
    let object = load()?;
    // The policy is best effort: the ends of the copies may be shared, so that `complete` does not take them (S2.10).
    let attach = Attach::with(target, options.policy(Policy::BestEffort));
    need_rdonly_cast(target, &attach, &program_of(&object, program)?)?;
    let link = attach.attach(&program_of(&object, program)?)?;
    copy_messages(3, 2)?;
    let seen = counts(&object)?;
    if seen != [5, 5] {
        return Err(format!("5 calls, seen and followed {seen:?}:\n{}", link.report().long()).into());
    }
    let text = link.report().to_string();
    if !(text.contains("is not meant") && text.contains("struct load_info *")) {
        return Err(format!("the report does not tell of the other function:\n{text}").into());
    }
    let all = target.function("free_copy")?;
    let (sites, left_out) = (link.report().sites().count(), all.candidates.len());
    if sites >= left_out {
        return Err(format!("{sites} of {left_out} sites are meant").into());
    }
    Ok(format!("5 calls of 5; {sites} of {left_out} sites of the name are of the function that is meant"))
}

/// Leaves the case unless each copy of the messages' free_copy() has its argument.
fn need_located_copies(target: &Target) -> Result<(), Failure> {
    let copy = site(Place::Inline).within("do_msgrcv");
    let located = Shape::new("free_copy", [copy.clone().with(0)]).and_no(copy.without(0).attachable_or_not());
    choose(target, &[located], Shape::clone).map(drop)
}

// Proves S13.9.
fn stated_types_choose(target: &Target) -> Result<String, Failure> {
    need_located_copies(target)?;
    let object = load()?;
    let attach = Attach::with(target, AttachOptions::default().policy(Policy::BestEffort));
    need_rdonly_cast(target, &attach, &program_of(&object, "of_messages")?)?;
    let modules = Attach::new(target).plan(&program_of(&object, "of_modules")?)?.report().to_string();
    if !modules.contains("struct msg_msg *") {
        return Err(format!("the plan for modules does not tell of messages:\n{modules}").into());
    }
    traced(target, AttachOptions::default(), "of_messages")
}

// Proves S13.13.
fn a_file_chooses(target: &Target) -> Result<String, Failure> {
    need_located_copies(target)?;
    traced(target, AttachOptions::default().file("ipc/msg.c"), "unstated")
}

/// The refusal's text, if it has all of the words.
fn refused(target: &Target, program: &str, words: &[&str]) -> Result<String, Failure> {
    let object = load()?;
    let text = match Attach::new(target).plan(&program_of(&object, program)?) {
        Ok(plan) => return Err(format!("it was not refused:\n{}", plan.report()).into()),
        Err(error) => with_causes(&error),
    };
    match words.iter().find(|word| !text.contains(**word)) {
        Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
        None => Ok(text.lines().next().unwrap_or_default().to_owned()),
    }
}

/// Leaves the case unless the kernel has the messages' free_copy(): what copies messages is configured
/// (CONFIG_CHECKPOINT_RESTORE).
fn need_copies(target: &Target) -> Result<(), Failure> {
    let copy = site(Place::Inline).called_by("do_msgrcv").attachable_or_not();
    choose(target, &[Shape::new("free_copy", [copy])], Shape::clone).map(drop)
}

// Proves S13.11.
fn stated_types_that_none_has(target: &Target) -> Result<String, Failure> {
    need_copies(target)?;
    let words = ["const struct msg_msg *", "void free_copy(struct msg_msg *)", "ipc/msg.c", "parameter 0", "not 1"];
    refused(target, "of_neither", &words)
}

fn nothing_stated(target: &Target) -> Result<String, Failure> {
    need_copies(target)?;
    let words = [
        "SITESEER_PROTO(unstated, void, struct msg_msg *copy);",
        "SITESEER_PROTO(unstated, void, struct load_info *info, int flags);",
    ];
    refused(target, "unstated", &words)
}
