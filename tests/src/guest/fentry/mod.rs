// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! fentry and fexit programs at every sort of site, by every mechanism: known calls, known arguments, known results.
//!
//! Which function shows a sort of site is the compiler's choice. A case has several that it can call in known ways, and
//! takes the first that has the [shape](crate::guest::shape) that the case is about on the running kernel. The
//! mechanism at each site is what S13.1 and S15.10 of docs/semantics.md give for it, on a kernel of these capabilities.

mod functions;

use crate::guest::calls::{chmod, in_child, syscall};
use crate::guest::case::{Capability, Case, Failure, case, choose, need};
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::{address_of, chroot, expect, program_of, record, site_of};
use functions::{BODIES, CAP_SYS_CHROOT, CLONES, Cloned, LOST, PARTLY, Partly, Returning, SLEEPABLE, fcntl, getpgid};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramAttachType, ProgramType};
use siteseer::{Attach, AttachError, AttachOptions, Link, Mechanism, Outcome, Policy, Report, Target};
use siteseer_bpf_progs::truth::Record;
use siteseer_bpf_progs::{FENTRY, set_constant};
use siteseer_sites::SiteKind::{Body, Clone, Inline};
use siteseer_sites::with_causes;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("fentry", name, run);
    vec![
        case("partly_inlined_counted_exactly", partly_inlined_counted_exactly),
        case("result_of_a_body", result_of_a_body),
        case("result_of_a_clone", result_of_a_clone),
        case("result_and_arguments_of_a_clone", result_and_arguments_of_a_clone),
        case("result_that_may_be_removed", result_that_may_be_removed),
        case("exit_of_inlined_copies", exit_of_inlined_copies),
        case("typed_pointers_at_the_return", typed_pointers_at_the_return),
        case("several_bodies_by_one_link", several_bodies_by_one_link),
        case("several_returns_by_one_link", several_returns_by_one_link),
        case("sleepable_is_refused_by_site", sleepable_is_refused_by_site),
        case("sleepable_where_it_may", sleepable_where_it_may),
        case("map_that_kprobes_may_not_have", map_that_kprobes_may_not_have),
        case("links_coexist", links_coexist),
        case("libbpf_attaches_it_too", libbpf_attaches_it_too),
        case("target_set_through_libbpf", target_set_through_libbpf),
    ]
}

/// Loads the programs; they see only processes with this number, or all with 0.
fn load_for(tgid: u32) -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(FENTRY)?;
    set_constant(&mut open, FENTRY, "only_tgid", tgid)?;
    Ok(open.load()?)
}

fn load() -> Result<Object, Failure> {
    load_for(std::process::id())
}

/// Loads them with the program by which the kernel's function for tests of fentry is called: one of libbpf's own.
fn load_tested() -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(FENTRY)?;
    set_constant(&mut open, FENTRY, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut().filter(|program| program.name() == "tested") {
        program.set_autoload(true);
        program.set_prog_type(ProgramType::Tracing);
        program.set_attach_type(ProgramAttachType::TraceFentry);
        program.set_attach_target(0, Some("bpf_fentry_test1".to_owned()))?;
    }
    Ok(open.load()?)
}

/// The mechanism at the site of a record.
fn by(link: &Link, hit: &Record) -> Result<Mechanism, Failure> {
    match &site_of(link, hit)?.outcome {
        Outcome::Attached { mechanism, .. } => Ok(*mechanism),
        Outcome::Skipped(reason) => Err(format!("a hit at a site that is not attached: {reason}").into()),
    }
}

/// How often each mechanism is in a report.
fn attached_by(report: &Report, mechanism: Mechanism) -> usize {
    report
        .attached()
        .filter(|site| matches!(site.outcome, Outcome::Attached { mechanism: m, .. } if m == mechanism))
        .count()
}

/// The refusal's text, if it has all of the words.
fn refused(result: Result<Link, AttachError>, words: &[&str]) -> Result<String, Failure> {
    let text = match result {
        Ok(link) => return Err(format!("attached:\n{}", link.report().long()).into()),
        Err(error) => with_causes(&error),
    };
    match words.iter().find(|word| !text.contains(**word)) {
        Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
        None => Ok(text.lines().next().unwrap_or_default().to_owned()),
    }
}

const SIGNED: fn(i64) -> Option<u64> = |value| Some(value as u64);

/// The mechanism for the entry of a body whose arguments are where the calling convention has them.
fn of_a_body(target: &Target) -> Mechanism {
    if Capability::Fentry.is_had(target) {
        Mechanism::Fentry
    } else if Capability::KprobeMulti.is_had(target) {
        Mechanism::KprobeMulti
    } else {
        Mechanism::Kprobe
    }
}

// Proves S4.1.
fn partly_inlined_counted_exactly(target: &Target) -> Result<String, Failure> {
    let Partly { program, calls, .. } = choose(target, PARTLY, |partly| (partly.shape)())?;
    let secret = CString::new("/tmp/partly-secret")?;
    drop(File::create("/tmp/partly-secret")?);
    chmod(&secret, 0)?;
    let object = load()?;
    let link = Attach::with(target, AttachOptions::default().cookie(77)).attach(&program_of(&object, program)?)?;
    expect("policy", &link.report().policy, &Policy::Complete)?;
    let mut wanted = Vec::new();
    let hits = record(&object, || {
        wanted = calls()?;
        Ok(())
    })?;
    let mut seen = Vec::new();
    for hit in &hits {
        expect("cookie", &hit.cookie, &77)?;
        let site = site_of(&link, hit)?;
        expect("address", &hit.address, &site.address)?;
        seen.push((site.kind, site.symbol.as_str(), by(&link, hit)?, hit.value(0)));
    }
    let body = of_a_body(target);
    let mechanism = |kind| if kind == Body { body } else { Mechanism::Kprobe };
    let stated: Vec<_> =
        wanted.iter().map(|&(kind, symbol, value)| (kind, symbol, mechanism(kind), Some(value))).collect();
    expect("hits", &seen, &stated)?;
    let inlined = wanted.iter().filter(|(kind, ..)| *kind == Inline).count();
    Ok(format!("{} calls, {inlined} of them of inlined copies", hits.len()))
}

fn result_of_a_body(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let Returning { program, calls, .. } = choose(target, BODIES, |body| (body.shape)())?;
    let object = load()?;
    let attach = Attach::with(target, AttachOptions::default().policy(Policy::BestEffort));
    let link = attach.attach(&program_of(&object, program)?)?;
    let mut wanted = Vec::new();
    let hits = record(&object, || {
        wanted = calls()?;
        Ok(())
    })?;
    let results: BTreeSet<bool> = wanted.iter().map(|(_, result)| *result < 0).collect();
    expect("errors and results among what is returned", &results.len(), &2)?;
    let seen: Result<Vec<_>, Failure> =
        hits.iter().map(|hit| Ok((site_of(&link, hit)?.kind, by(&link, hit)?, hit.value(0), hit.value(1)))).collect();
    let wanted: Vec<_> =
        wanted.into_iter().map(|(first, result)| (Body, Mechanism::Fexit, Some(first), SIGNED(result))).collect();
    expect("hits", &seen?, &wanted)?;
    Ok(format!("{} results, one an error", hits.len()))
}

fn result_of_a_clone(target: &Target) -> Result<String, Failure> {
    let Cloned { returned, calls, .. } = choose(target, CLONES, |clone| (clone.shape)())?;
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, returned)?)?;
    let mut wanted = Vec::new();
    let hits = record(&object, || {
        wanted = calls()?;
        Ok(())
    })?;
    let seen: Result<Vec<_>, Failure> =
        hits.iter().map(|hit| Ok((site_of(&link, hit)?.kind, by(&link, hit)?, hit.value(0)))).collect();
    let multi = Capability::KprobeMulti.is_had(target);
    let mechanism = if multi { Mechanism::KretprobeMulti } else { Mechanism::Kretprobe };
    let wanted: Vec<_> = wanted.into_iter().map(|(_, _, result)| (Clone, mechanism, SIGNED(result))).collect();
    expect("hits", &seen?, &wanted)?;
    Ok(format!("{} results by {mechanism}", hits.len()))
}

fn result_and_arguments_of_a_clone(target: &Target) -> Result<String, Failure> {
    let Cloned { done, calls, .. } = choose(target, CLONES, |clone| (clone.shape)())?;
    let object = load()?;
    let program = program_of(&object, done)?;
    if let Err(lack) = need(target, Capability::KprobeSession) {
        // There is nothing else that could keep the arguments until the return.
        refused(Attach::new(target).attach(&program), &["no probe can be put on its return"])?;
        return Err(lack.into());
    }
    let link = Attach::with(target, AttachOptions::default().cookie(5)).attach(&program)?;
    let mut wanted = Vec::new();
    let hits = record(&object, || {
        wanted = calls()?;
        Ok(())
    })?;
    let seen: Result<Vec<_>, Failure> = hits
        .iter()
        .map(|hit| {
            let site = site_of(&link, hit)?;
            expect("cookie", &hit.cookie, &5)?;
            expect("address", &hit.address, &site.address)?;
            Ok((site.kind, by(&link, hit)?, hit.value(0), hit.value(1), hit.value(2)))
        })
        .collect();
    let wanted: Vec<_> = wanted
        .into_iter()
        .map(|(first, second, result)| (Clone, Mechanism::KprobeSession, Some(first), Some(second), SIGNED(result)))
        .collect();
    expect("hits", &seen?, &wanted)?;
    Ok(format!("{} results with their arguments by a kprobe session", hits.len()))
}

// Proves S15.11.
fn result_that_may_be_removed(target: &Target) -> Result<String, Failure> {
    let lost = |(function, _): &(&str, &str)| Shape::new(function, [site(Place::Clone).returning(false)]);
    let (function, program) = choose(target, &LOST, lost)?;
    let sites = target.function(function)?.candidates;
    let clone = sites.iter().find(|site| site.kind == Clone && !site.marks.returns_value()).ok_or("no such clone")?;
    let object = load()?;
    let attach = Attach::new(target);
    refused(attach.attach(&program_of(&object, program)?), &[&clone.symbol, "may have removed the return value"])
}

// Proves S15.9.
fn exit_of_inlined_copies(target: &Target) -> Result<String, Failure> {
    let shape = |function: &&str| Shape::new(function, [site(Place::Inline)]);
    let function = *choose(target, &["do_getpgid"], shape)?;
    let object = load()?;
    let program = program_of(&object, "getpgid_returned")?;
    let sites = target.function(function)?.candidates;
    let copies = sites.iter().filter(|site| site.kind == Inline).map(|site| format!("inline {}+", site.symbol));
    let copies: Vec<String> = copies.collect();
    let mut words = vec![function, "no return that a probe could be put on"];
    // Where all copies are inlined, no policy could attach any.
    if copies.len() < sites.len() {
        words.push("policy is complete");
    }
    words.extend(copies.iter().map(String::as_str));
    let text = refused(Attach::new(target).attach(&program), &words)?;
    expect("hits after the refusal", &record(&object, || getpgid(0).map(drop))?.len(), &0)?;
    Ok(text)
}

fn typed_pointers_at_the_return(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, "fcntl_returned")?)?;
    let file = File::open("/")?;
    let fd = file.as_raw_fd() as u64;
    let mut flags = 0;
    let hits = record(&object, || {
        flags = syscall(libc::SYS_fcntl, [fd, libc::F_GETFL as u64, 4711, 0, 0, 0])? as u64;
        let _ = fcntl(fd, 9999, 1);
        Ok(())
    })?;
    let seen: Result<Vec<_>, Failure> = hits
        .iter()
        .map(|hit| Ok((by(&link, hit)?, [0, 1, 2, 3, 4].map(|n| hit.value(n).unwrap_or(u64::MAX)))))
        .collect();
    let invalid = -i64::from(libc::EINVAL) as u64;
    let wanted = vec![
        (Mechanism::Fexit, [fd, libc::F_GETFL as u64, 4711, flags, flags]),
        (Mechanism::Fexit, [fd, 9999, 1, flags, invalid]),
    ];
    expect("hits", &seen?, &wanted)?;
    Ok("fd, command, argument, flags through the pointer, result".to_owned())
}

const CAP_SETGID: u64 = 6;

/// Has a process in a user namespace of its own, a child of the initial one, ask for two capabilities there, each by a
/// function of its own.
fn ask() -> io::Result<()> {
    in_child(|| {
        syscall(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0])?;
        chroot()?;
        let groups = [0u32];
        // It has the capability, and may not use it as long as no group is mapped.
        match syscall(libc::SYS_setgroups, [1, groups.as_ptr() as u64, 0, 0, 0, 0]) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        }
    })
}

// Proves S15.7.
fn several_bodies_by_one_link(target: &Target) -> Result<String, Failure> {
    several(target, "capability", Mechanism::TracingMulti)
}

fn several_returns_by_one_link(target: &Target) -> Result<String, Failure> {
    several(target, "capability_answered", Mechanism::TracingMultiExit)
}

fn several(target: &Target, program: &str, mechanism: Mechanism) -> Result<String, Failure> {
    need(target, Capability::TracingMulti)?;
    let elsewhere = site(Place::Inline).called_by("__do_sys_chroot").attachable_or_not();
    choose(target, &[Shape::new("ns_capable", [site(Place::Body)]).and_no(elsewhere)], Shape::clone)?;
    let object = load_for(0)?;
    let options = AttachOptions::default().policy(Policy::BestEffort).cookie(9);
    let options = options.function("ns_capable").function("ns_capable_setid");
    let link = Attach::with(target, options).attach(&program_of(&object, program)?)?;
    expect("bodies", &attached_by(link.report(), mechanism), &2)?;
    let init_user_ns = address_of("init_user_ns")?;
    let hits = record(&object, ask)?;
    let (mut seen, mut namespaces) = (Vec::new(), BTreeSet::new());
    let of_child = |hit: &&Record| hit.kind == Some(Body as u32) && hit.tgid != std::process::id();
    for hit in hits.iter().filter(of_child) {
        expect("cookie", &hit.cookie, &9)?;
        let site = site_of(&link, hit)?;
        expect("address", &hit.address, &site.address)?;
        expect("the mechanism", &by(&link, hit)?, &mechanism)?;
        expect("ns->level", &hit.value(2), &Some(1))?;
        expect("ns->ucounts->ns", &hit.value(3), &Some(init_user_ns))?;
        // ns->ucounts->ns->level, or the answer.
        let last = if mechanism == Mechanism::TracingMulti { 0 } else { 1 };
        expect("the last value", &hit.value(4), &Some(last))?;
        namespaces.insert(hit.value(0));
        seen.push((site.symbol.clone(), hit.value(1)));
    }
    expect("namespaces", &namespaces.len(), &1)?;
    let wanted =
        vec![("ns_capable".to_owned(), Some(CAP_SYS_CHROOT)), ("ns_capable_setid".to_owned(), Some(CAP_SETGID))];
    expect("hits", &seen, &wanted)?;
    Ok(format!("{} bodies, {} programs for all sites", wanted.len(), link.programs()))
}

// Proves S15.14.
fn sleepable_is_refused_by_site(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let both = |function: &&str| Shape::new(function, [site(Place::Body), site(Place::Inline)]);
    let function = *choose(target, &["do_getpgid", "ns_capable"], both)?;
    let sites = target.function(function)?.candidates;
    let copy = sites.iter().find(|site| site.kind == Inline).ok_or("no inlined copy")?;
    let object = load()?;
    // Under `complete` the inlined copy would be refused before the kernel is asked about the body.
    let attach = Attach::with(target, AttachOptions::default().function(function).policy(Policy::BestEffort));
    refused(
        attach.attach(&program_of(&object, "sleeps")?),
        &[
            &format!("body {function}+0x0"),
            &format!("the kernel refused the fentry: {function} is not sleepable"),
            &format!("inline {}+", copy.symbol),
            "sleepable programs cannot run at a kprobe",
        ],
    )
}

fn sleepable_where_it_may(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let object = load_tested()?;
    let mut refusals = String::new();
    for (function, call) in SLEEPABLE {
        let link = match Attach::with(target, AttachOptions::default().function(function))
            .attach(&program_of(&object, "sleeps")?)
        {
            Ok(link) => link,
            Err(error) if with_causes(&error).contains(&format!("{function} is not sleepable")) => {
                writeln!(refusals, "{}", with_causes(&error))?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        expect("attached by fentry", &attached_by(link.report(), Mechanism::Fentry), &1)?;
        let mut called = Ok(());
        let hits = record(&object, || {
            called = call(&object);
            Ok(())
        })?;
        called?;
        expect("hits", &hits.len(), &1)?;
        return Ok(format!("one hit at {function}"));
    }
    need(target, Capability::Sleepable)?;
    Err(format!("none of the functions where kernels let programs sleep may have one here:\n{refusals}").into())
}

fn map_that_kprobes_may_not_have(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, "locks")?)?;
    let file = File::open("/")?;
    for _ in 0..3 {
        // F_GETFL ignores the argument, by which the program knows these calls (fentry.bpf.c).
        syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_GETFL as u64, 0x5173, 0, 0, 0])?;
    }
    drop(link);
    let map = object.maps().find(|map| MapCore::name(map) == "counts").ok_or("no map counts")?;
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    // The lock, then the count.
    let count = value.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
    expect("calls counted under the lock", &count, &Some(3))?;
    Ok("a spin lock in a map's value".to_owned())
}

fn links_coexist(target: &Target) -> Result<String, Failure> {
    need(target, Capability::Fentry)?;
    let object = load()?;
    let attach = |program: &str, cookie: u64| {
        let attach = Attach::with(target, AttachOptions::default().policy(Policy::BestEffort).cookie(cookie));
        attach.attach(&program_of(&object, program)?).map_err(Failure::from)
    };
    let entry = attach("fcntl_entered", 1)?;
    let again = attach("fcntl_entered", 2)?;
    let exit = attach("fcntl_answered", 3)?;
    let file = File::open("/")?;
    let cookies = || -> Result<Vec<u64>, Failure> {
        let call = || syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_GETFL as u64, 0, 0, 0, 0]).map(drop);
        let mut cookies: Vec<u64> = record(&object, call)?.iter().map(|hit| hit.cookie).collect();
        cookies.sort_unstable();
        Ok(cookies)
    };
    expect("all three", &cookies()?, &vec![1, 2, 3])?;
    drop(again);
    expect("two left", &cookies()?, &vec![1, 3])?;
    drop(exit);
    expect("one left", &cookies()?, &vec![1])?;
    expect("missed", &entry.missed()?, &0)?;
    drop(entry);
    expect("none left", &cookies()?, &Vec::new())?;
    Ok("two entries and a return, each by itself".to_owned())
}

// Proves S1.5, S15.3.
fn libbpf_attaches_it_too(_: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = program_of(&object, "getpgid_entered")?.attach()?;
    expect("hits", &record(&object, || getpgid(0).map(drop))?.len(), &1)?;
    drop(link);
    expect("hits afterwards", &record(&object, || getpgid(0).map(drop))?.len(), &0)?;
    Ok("bpf_program__attach() and bpf_link__destroy()".to_owned())
}

// Proves S15.4.
fn target_set_through_libbpf(target: &Target) -> Result<String, Failure> {
    // libbpf looks the function up in the kernel's BTF, which has those with a body.
    let elsewhere = site(Place::Inline).called_by("__do_sys_getpgid").attachable_or_not();
    choose(target, &[Shape::new("do_getpgid", [site(Place::Body)]).and_no(elsewhere)], Shape::clone)?;
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(FENTRY)?;
    set_constant(&mut open, FENTRY, "only_tgid", std::process::id())?;
    for mut program in open.progs_mut().filter(|program| program.name() == "entered") {
        program.set_attach_target(0, Some("do_getpgid".to_owned()))?;
    }
    let object = open.load()?;
    let link = Attach::new(target).attach(&program_of(&object, "entered")?)?;
    let names: Vec<&str> = link.report().functions.iter().map(|function| function.name.as_str()).collect();
    expect("the function", &names, &vec!["do_getpgid"])?;
    expect("hits", &record(&object, || getpgid(0).map(drop))?.len(), &1)?;
    Ok("the function that bpf_program__set_attach_target() names".to_owned())
}
