// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Helpers that take the context answer as under real fentry: plain libbpf's program and siteseer's, on the same calls.

use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Case, Failure, Shown, choose, need};
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::program_of;
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramAttachType, ProgramType};
use siteseer::internals::symbols::Symbols;
use siteseer::{Attach, AttachOptions, Policy, Target};
use siteseer_bpf_progs::{CONTEXT, set_constant};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "context::as_under_real_fentry".to_owned(),
        run: Box::new(|target| as_under_real_fentry(target).map(Shown::from)),
    }]
}

/// `context.bpf.c`'s keys.
const OURS: u32 = 0;
const PLAIN: u32 = 1;
const FRAMES: usize = 16;
/// Both are attached with this one.
const COOKIE: u64 = 0x0123_4567_89ab_cdef;

/// What a program was answered last.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    calls: u64,
    function: u64,
    cookie: u64,
    arguments: u64,
    first: i64,
    stack_id: i64,
    frames: Vec<u64>,
}

fn answer(object: &Object, who: u32) -> Result<Answer, Failure> {
    let map = object.maps().find(|map| MapCore::name(map) == "answers").ok_or("no map answers")?;
    let value = map.lookup(&who.to_ne_bytes(), MapFlags::ANY)?.ok_or("no answer")?;
    let words: Vec<u64> =
        value.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?))).collect();
    let &[calls, function, cookie, arguments, first, stack_id, bytes] = words.get(..7).ok_or("it is too short")? else {
        return Err("it is too short".into());
    };
    let frames = usize::try_from(bytes as i64).map_err(|_| format!("bpf_get_stack gave {}", bytes as i64))? / 8;
    let frames = words.get(7..7 + frames.min(FRAMES)).ok_or("it is too short")?.to_vec();
    Ok(Answer { calls, function, cookie, arguments, first: first as i64, stack_id: stack_id as i64, frames })
}

/// The frames of a stack that the map of stacks has under an id.
fn stack(object: &Object, id: i64) -> Result<Vec<u64>, Failure> {
    let id = u32::try_from(id).map_err(|_| format!("bpf_get_stackid gave {id}"))?;
    let map = object.maps().find(|map| MapCore::name(map) == "stacks").ok_or("no map stacks")?;
    let value = map.lookup(&id.to_ne_bytes(), MapFlags::ANY)?.ok_or("no stack of that id")?;
    let words = value.chunks_exact(8).filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)));
    Ok(words.take_while(|&word| word != 0).collect())
}

/// Attaches the plain program as libbpf does, with a cookie.
fn attach_plain(object: &Object) -> Result<OwnedFd, Failure> {
    let program = program_of(object, "plain")?;
    let mut opts =
        sys::bpf_link_create_opts { sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t, ..Default::default() };
    opts.__bindgen_anon_1.tracing.cookie = COOKIE;
    // SAFETY: the options live through the call; a non-negative result is a descriptor that nobody else owns.
    unsafe {
        let link = sys::bpf_link_create(program.as_fd().as_raw_fd(), 0, sys::BPF_TRACE_FENTRY, &opts);
        if link < 0 {
            return Err(std::io::Error::from_raw_os_error(-link).into());
        }
        Ok(OwnedFd::from_raw_fd(link))
    }
}

/// The symbols that hold the frames in the kernel's own text, from the function on: programs and trampolines before it
/// are each attachment's own.
fn kernel_frames<'s>(symbols: &'s Symbols, frames: &[u64], from: &str) -> Vec<(&'s str, u64)> {
    frames
        .iter()
        .filter_map(|&frame| symbols.containing(frame))
        .filter(|found| found.symbol.in_kernel())
        .map(|found| (found.symbol.name, found.offset))
        .skip_while(|(name, _)| *name != from)
        .collect()
}

/// A function whose body is called.
struct Body {
    function: &'static str,
    shape: fn() -> Shape,
    /// How many it has.
    arguments: u64,
    /// Makes a call, and tells its first argument.
    call: fn() -> io::Result<i64>,
}

const BODIES: &[Body] = &[
    // On x86-64 getpgrp() has an inlined copy.
    #[cfg(target_arch = "x86_64")]
    Body {
        function: "do_getpgid",
        shape: || {
            let elsewhere = site(Place::Inline).called_by("__do_sys_getpgid").attachable_or_not();
            let sites = [site(Place::Body).with(0), site(Place::Inline).called_by("__do_sys_getpgrp").with(0)];
            Shape::new("do_getpgid", sites).and_no(elsewhere)
        },
        arguments: 1,
        call: || {
            let pid = std::process::id();
            syscall(libc::SYS_getpgid, [u64::from(pid), 0, 0, 0, 0, 0]).map(|_| i64::from(pid))
        },
    },
    Body {
        function: "do_fcntl",
        shape: || {
            let elsewhere = site(Place::Inline).called_by("__do_sys_fcntl").attachable_or_not();
            Shape::new("do_fcntl", [site(Place::Body).with(0)]).and_no(elsewhere)
        },
        arguments: 4,
        call: || {
            let file = File::open("/")?;
            syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_GETFD as u64, 0, 0, 0, 0])?;
            Ok(i64::from(file.as_raw_fd()))
        },
    },
];

// Proves S15.6.
fn as_under_real_fentry(target: &Target) -> Result<String, Failure> {
    let symbols = target.symbols()?;
    need(target, Capability::Fentry)?;
    let Body { function, arguments, call, .. } = choose(target, BODIES, |body| (body.shape)())?;
    let mut open = ObjectBuilder::default().open_memory(CONTEXT)?;
    set_constant(&mut open, CONTEXT, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut().filter(|program| program.name() == "plain") {
        program.set_prog_type(ProgramType::Tracing);
        program.set_attach_type(ProgramAttachType::TraceFentry);
        program.set_attach_target(0, Some((*function).to_owned()))?;
    }
    let object = open.load()?;
    let _plain = attach_plain(&object)?;
    let _ours =
        Attach::with(target, AttachOptions::default().function(*function).policy(Policy::Complete).cookie(COOKIE))
            .attach(&program_of(&object, "ours")?)?;
    // The symbol: real fentry sees this one.
    let first = call()?;
    let (ours, plain) = (answer(&object, OURS)?, answer(&object, PLAIN)?);
    let told = |answer: &Answer| (answer.calls, answer.function, answer.cookie, answer.arguments, answer.first);
    if told(&ours) != told(&plain) || told(&ours) != (1, ours.function, COOKIE, *arguments, first) {
        return Err(format!("at the body: ours {ours:x?}, plain {plain:x?}").into());
    }
    let in_kernel = |frames: &[u64]| kernel_frames(symbols, frames, function);
    let (our_frames, plain_frames) = (in_kernel(&ours.frames), in_kernel(&plain.frames));
    if our_frames.len() < 2 || our_frames != plain_frames {
        return Err(format!("stacks at the body: ours {our_frames:x?}, plain {plain_frames:x?}").into());
    }
    let ids = (in_kernel(&stack(&object, ours.stack_id)?), in_kernel(&stack(&object, plain.stack_id)?));
    if ids.0 != our_frames || ids.1 != plain_frames {
        return Err(
            format!("stacks by id: ours {:x?}, plain {:x?}, by bpf_get_stack {our_frames:x?}", ids.0, ids.1).into()
        );
    }
    let caller = our_frames.get(1).map(|(name, _)| *name).unwrap_or_default().to_owned();

    // An inlined copy: real fentry sees nothing, ours the same answers, and the stack begins in the caller.
    #[cfg(target_arch = "x86_64")]
    if *function == "do_getpgid" {
        syscall(libc::SYS_getpgrp, [0; 6])?;
        let (copy, unchanged) = (answer(&object, OURS)?, answer(&object, PLAIN)?);
        if unchanged != plain {
            return Err(format!("plain fentry saw the inlined copy: {unchanged:x?}").into());
        }
        if (copy.calls, copy.cookie, copy.arguments, copy.first) != (2, COOKIE, 1, 0) {
            return Err(format!("at the inlined copy: {copy:x?}").into());
        }
        // How far the stack goes from here is the kernel's affair: this probe is on a `push`, and where an instruction
        // has one byte the unwinder takes the state after it (the instruction pointer is one on,
        // arch/x86/kernel/unwind_orc.c). A stack that reaches the caller is typed::helpers_that_take_the_context.
        let first = copy.frames.first().copied();
        let holder = first.and_then(|frame| symbols.containing(frame)).map(|found| found.symbol.name);
        if !(first.is_some_and(|first| (copy.function..copy.function + 2).contains(&first))
            && holder.is_some_and(|name| name.contains("getpgrp")))
        {
            return Err(format!("the copy's stack does not begin at the copy: {copy:x?}").into());
        }
    }
    Ok(format!("function ip, cookie, arguments, stack and stack id equal; the caller is {caller}"))
}
