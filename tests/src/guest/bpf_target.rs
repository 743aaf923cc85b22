// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions of BPF programs as targets: known packets are run through a program (BPF_PROG_TEST_RUN), and each call of
//! its functions must be seen, with its arguments and its result; what cannot be seen must be said.

use crate::guest::case::{Case, Failure, case};
use crate::guest::typed::program_of;
use libbpf_rs::{Link as OtherLink, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use siteseer::internals::bpf_target::id_of;
use siteseer::{Attach, AttachError, AttachOptions, Link, Policy, Target};
use siteseer_bpf_progs::{JUMPS, JUMPS_TRACE};
use siteseer_sites::with_causes;
use std::os::fd::{AsFd, AsRawFd};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("bpf_target", name, run);
    vec![
        case("main_function", main_function),
        case("subprograms", subprograms),
        case("several_links_on_one_function", several_links_on_one_function),
        case("entered_by_tail_call", entered_by_tail_call),
        case("extension", extension),
        case("what_is_not_there", what_is_not_there),
    ]
}

/// Bytes of the packet.
const LEN: u32 = 64;

/// What a program of jumps_trace.bpf.c has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    count: u64,
    values: [u64; 3],
}

/// The programs of jumps_trace.bpf.c, in their order.
const TRACERS: [&str; 8] = [
    "enter_main",
    "leave_main",
    "enter_global",
    "leave_global",
    "enter_static",
    "leave_static",
    "enter_extension",
    "leave_extension",
];

fn seen(object: &Object, program: &str) -> Result<Seen, Failure> {
    let number = TRACERS.iter().position(|&name| name == program).ok_or("no such program")?;
    let map = object.maps().find(|map| map.name() == "seen").ok_or("no map seen")?;
    let bytes = map.lookup(&(number as u32).to_ne_bytes(), MapFlags::ANY)?.ok_or("no element")?;
    let word = |nth: usize| {
        bytes.get(nth * 8..nth * 8 + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()))
    };
    Ok(Seen { count: word(0), values: [word(1), word(2), word(3)] })
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), Failure> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: expected {wanted:?}, seen {seen:?}").into()) }
}

/// Loads the target. The extension is left out: it would have to be loaded for another.
fn target_object() -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(JUMPS)?;
    open.progs_mut().filter(|program| program.name() == "jumps_extension").for_each(|mut program| {
        program.set_autoload(false);
    });
    Ok(open.load()?)
}

fn tracers() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(JUMPS_TRACE)?.load()?)
}

fn id(object: &Object, program: &str) -> Result<u32, Failure> {
    Ok(id_of(program_of(object, program)?.as_fd())?)
}

/// Runs a packet through a program; its result must be this.
fn run(object: &Object, program: &str, times: u32, wanted: u32) -> Result<(), Failure> {
    let packet = [0u8; LEN as usize];
    for _ in 0..times {
        let program = program_of(object, program)?;
        let output = program.test_run(ProgramInput { data_in: Some(&packet), ..ProgramInput::default() })?;
        expect("the program's own result", &output.return_value, &wanted)?;
    }
    Ok(())
}

/// `jumps_main()` of a packet: `jumps_global(64, 65) + jumps_static(63, 66)`.
const GLOBAL: u32 = LEN * 10 + LEN + 1;
const STATIC: u32 = (LEN - 1) * 3 + LEN + 2;
const MAIN: u32 = GLOBAL + STATIC;

fn refused<T>(result: Result<T, AttachError>, words: &[String]) -> Result<String, Failure> {
    let text = match result {
        Ok(_) => return Err("it was not refused".into()),
        Err(error) => with_causes(&error),
    };
    match words.iter().find(|word| !text.contains(word.as_str())) {
        Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
        None => Ok(text),
    }
}

// Proves S20.1.
fn main_function(target: &Target) -> Result<String, Failure> {
    let (jumps, tracers) = (target_object()?, tracers()?);
    let program = id(&jumps, "jumps_main")?;
    let attach = |name: &str| -> Result<Link, Failure> {
        Ok(Attach::with(target, AttachOptions::default().bpf_program(program)).attach(&program_of(&tracers, name)?)?)
    };
    let links = [attach("enter_main")?, attach("leave_main")?];
    run(&jumps, "jumps_main", 3, MAIN)?;
    expect("entries", &seen(&tracers, "enter_main")?, &Seen { count: 3, values: [LEN.into(), 0, 0] })?;
    expect("returns", &seen(&tracers, "leave_main")?, &Seen { count: 3, values: [LEN.into(), 0, MAIN.into()] })?;
    let report = links[0].report().to_string();
    drop(links);
    run(&jumps, "jumps_main", 1, MAIN)?;
    expect("after the links", &seen(&tracers, "enter_main")?.count, &3)?;
    Ok(report.trim().to_owned())
}

// Proves S20.3.
/// The target is what `bpf_program__set_attach_target()` said.
fn subprograms(target: &Target) -> Result<String, Failure> {
    let jumps = target_object()?;
    let main = program_of(&jumps, "jumps_main")?.as_fd().as_raw_fd();
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(JUMPS_TRACE)?;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let function = name.split_once('_').map(|(_, function)| function).unwrap_or_default();
        if function != "extension" {
            program.set_attach_target(main, Some(format!("jumps_{function}")))?;
        }
    }
    let tracers = open.load()?;
    let names = ["enter_global", "leave_global", "enter_static", "leave_static"];
    let attach =
        |name: &&str| -> Result<Link, Failure> { Ok(Attach::new(target).attach(&program_of(&tracers, name)?)?) };
    let links = names.iter().map(attach).collect::<Result<Vec<Link>, Failure>>()?;
    run(&jumps, "jumps_main", 5, MAIN)?;
    let (a, b) = (u64::from(LEN), u64::from(LEN + 1));
    expect("global entry", &seen(&tracers, "enter_global")?, &Seen { count: 5, values: [a, b, 0] })?;
    expect("global return", &seen(&tracers, "leave_global")?, &Seen { count: 5, values: [a, b, GLOBAL.into()] })?;
    let (a, b) = (u64::from(LEN - 1), u64::from(LEN + 2));
    expect("static entry", &seen(&tracers, "enter_static")?, &Seen { count: 5, values: [a, b, 0] })?;
    expect("static return", &seen(&tracers, "leave_static")?, &Seen { count: 5, values: [a, b, STATIC.into()] })?;
    let report = links[2].report().to_string();
    if !report.contains("copies that the compiler inlined") {
        return Err(format!("the report does not say that copies may be inlined: {report}").into());
    }
    Ok(format!("{} links, 5 calls each, arguments and results equal", links.len()))
}

fn several_links_on_one_function(target: &Target) -> Result<String, Failure> {
    let (jumps, first, second) = (target_object()?, tracers()?, tracers()?);
    let program = id(&jumps, "jumps_main")?;
    let attach = |object: &Object, name: &str| -> Result<Link, Failure> {
        Ok(Attach::with(target, AttachOptions::default().bpf_program(program)).attach(&program_of(object, name)?)?)
    };
    let one = attach(&first, "enter_global")?;
    let two = attach(&second, "enter_global")?;
    run(&jumps, "jumps_main", 2, MAIN)?;
    drop(one);
    run(&jumps, "jumps_main", 1, MAIN)?;
    expect("the first", &seen(&first, "enter_global")?.count, &2)?;
    expect("the second", &seen(&second, "enter_global")?.count, &3)?;
    drop(two);
    Ok("2 links, each with its own count".to_owned())
}

// Proves S20.5, S20.6.
/// A program in a prog array is not seen when it is entered from there.
fn entered_by_tail_call(target: &Target) -> Result<String, Failure> {
    let (jumps, tracers) = (target_object()?, tracers()?);
    let program = id(&jumps, "jumps_main")?;
    let attach = |name: &str, policy| {
        Ok::<_, Failure>(
            Attach::with(target, AttachOptions::default().bpf_program(program).policy(policy))
                .attach(&program_of(&tracers, name)?),
        )
    };
    // It is put into the array while a link is up: the link's report has nothing of it, looking again has.
    let link = attach("enter_main", Policy::Complete)??;
    expect("slots before", &link.tail_slots()?.len(), &0)?;
    run(&jumps, "jumps_caller", 1, 12345)?;
    let map = jumps.maps().find(|map| map.name() == "jumps").ok_or("no map jumps")?;
    let main = program_of(&jumps, "jumps_main")?.as_fd().as_raw_fd();
    map.update(&2u32.to_ne_bytes(), &main.to_ne_bytes(), MapFlags::ANY)?;
    let slots = link.tail_slots()?;
    let wanted = format!("slot 2 of map jumps (id {})", map.info()?.info.id);
    expect("slots after", &slots.iter().map(ToString::to_string).collect::<Vec<_>>(), &vec![wanted.clone()])?;
    drop(link);

    let text = refused(attach("enter_main", Policy::Complete)?, &[wanted.clone(), "tail call".to_owned()])?;
    let link = attach("enter_main", Policy::BestEffort)??;
    let report = link.report().to_string();
    if !report.contains(&wanted) {
        return Err(format!("the report does not name the slot: {report}").into());
    }
    run(&jumps, "jumps_main", 2, MAIN)?;
    run(&jumps, "jumps_caller", 4, MAIN)?;
    // This is the kernel's way; if it ever sees them, the refusal is wrong.
    expect("hits of 2 calls and 4 tail calls", &seen(&tracers, "enter_main")?.count, &2)?;
    // Its subprograms are called in both ways alike.
    let complete = attach("enter_global", Policy::Complete)??;
    run(&jumps, "jumps_caller", 4, MAIN)?;
    expect("the subprogram's hits", &seen(&tracers, "enter_global")?.count, &4)?;
    drop(complete);
    Ok(text.lines().nth(1).unwrap_or_default().trim().to_owned())
}

// Proves S20.7.
/// An extension is a target; the function that it has replaced is none meanwhile.
fn extension(target: &Target) -> Result<String, Failure> {
    let (jumps, tracers) = (target_object()?, tracers()?);
    let main = program_of(&jumps, "jumps_main")?.as_fd().as_raw_fd();
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(JUMPS)?;
    for mut program in open.progs_mut() {
        if program.name() == "jumps_extension" {
            program.set_attach_target(main, Some("jumps_global".to_owned()))?;
        } else {
            program.set_autoload(false);
        }
    }
    let extending = open.load()?;
    let extension: OtherLink = program_of(&extending, "jumps_extension")?.attach()?;
    let replaced = LEN * 100 + LEN + 1 + STATIC;
    run(&jumps, "jumps_main", 1, replaced)?;

    let number = id(&extending, "jumps_extension")?;
    let attach = |name: &str, program: u32| {
        Ok::<_, Failure>(
            Attach::with(target, AttachOptions::default().bpf_program(program)).attach(&program_of(&tracers, name)?),
        )
    };
    let links = [attach("enter_extension", number)??, attach("leave_extension", number)??];
    run(&jumps, "jumps_main", 3, replaced)?;
    let (a, b) = (u64::from(LEN), u64::from(LEN + 1));
    expect("entries", &seen(&tracers, "enter_extension")?, &Seen { count: 3, values: [a, b, 0] })?;
    let result = u64::from(LEN * 100 + LEN + 1);
    expect("returns", &seen(&tracers, "leave_extension")?, &Seen { count: 3, values: [a, b, result] })?;
    drop(links);

    let program = id(&jumps, "jumps_main")?;
    let words = ["jumps_extension".to_owned(), format!("id {number}")];
    let text = refused(attach("enter_global", program)?, &words)?;
    drop(extension);
    run(&jumps, "jumps_main", 1, MAIN)?;
    drop(attach("enter_global", program)??);
    Ok(text.lines().nth(1).unwrap_or_default().trim().to_owned())
}

// Proves S20.8.
fn what_is_not_there(target: &Target) -> Result<String, Failure> {
    let (jumps, tracers) = (target_object()?, tracers()?);
    let program = id(&jumps, "jumps_main")?;
    let tracer = program_of(&tracers, "enter_main")?;
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let attach = Attach::with(target, AttachOptions::default().bpf_program(program).function("jumps_mian"));
    let text = refused(attach.attach(&tracer), &words(&["jumps_mian", "jumps_main", "jumps_static"]))?;
    refused(
        Attach::with(target, AttachOptions::default().bpf_program(u32::MAX)).attach(&tracer),
        &words(&["4294967295"]),
    )?;
    let attach = Attach::with(target, AttachOptions::default().bpf_program(program).function("ext4:jumps_main"));
    refused(attach.attach(&tracer), &words(&["ext4"]))?;
    // One of the kernel's functions is not a function of the program's, and the other way round.
    refused(Attach::new(target).attach(&tracer), &words(&["there is no function jumps_main"]))?;
    // More arguments are read than the function has.
    let attach = Attach::with(target, AttachOptions::default().bpf_program(program).function("jumps_main"));
    refused(attach.attach(&program_of(&tracers, "leave_static")?), &words(&["jumps_main", "slot"]))?;
    Ok(text)
}
