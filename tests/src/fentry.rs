// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! fentry and fexit programs at every sort of site, by every mechanism: known calls, known arguments, known results.

use crate::calls::{in_child, syscall};
use crate::case::{Case, Failure, case};
use crate::typed::{address_of, chroot, expect, program_of, record, site_of};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use siteseer::mechanism::Mechanism;
use siteseer::report::Outcome;
use siteseer::{Attach, Link, Policy, Report, Target};
use siteseer_bpf_progs::truth::Record;
use siteseer_bpf_progs::{FENTRY, set_constant};
use siteseer_sites::SiteKind::{Body, Clone, Inline};
use std::collections::BTreeSet;
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
fn refused(result: Result<Link, siteseer::Error>, words: &[&str]) -> Result<String, Failure> {
    let text = match result {
        Ok(link) => return Err(format!("attached:\n{}", link.report().long()).into()),
        Err(error) => error.to_string(),
    };
    match words.iter().find(|word| !text.contains(**word)) {
        Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
        None => Ok(text.lines().next().unwrap_or_default().to_owned()),
    }
}

const SIGNED: fn(i64) -> Option<u64> = |value| Some(value as u64);

fn getpgid(pid: u64) -> io::Result<i64> {
    syscall(libc::SYS_getpgid, [pid, 0, 0, 0, 0, 0])
}

/// A process that there is not.
const NOBODY: u64 = 0x3fff_fff0;

fn partly_inlined_counted_exactly(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).cookie(77).attach(&program_of(&object, "getpgid_entered")?)?;
    expect("policy", &link.report().policy, &Policy::Complete)?;
    let hits = record(&object, || {
        for pid in [0, u64::from(std::process::id()), 1] {
            getpgid(pid)?;
            #[cfg(target_arch = "x86_64")]
            syscall(libc::SYS_getpgrp, [0; 6])?;
        }
        Ok(())
    })?;
    let mut seen = Vec::new();
    for hit in &hits {
        expect("cookie", &hit.cookie, &77)?;
        let site = site_of(&link, hit)?;
        expect("address", &hit.address, &site.address)?;
        seen.push((site.kind, by(&link, hit)?, hit.value(0)));
    }
    let mut wanted = Vec::new();
    for pid in [0, u64::from(std::process::id()), 1] {
        wanted.push((Body, Mechanism::Fentry, Some(pid)));
        if cfg!(target_arch = "x86_64") {
            wanted.push((Inline, Mechanism::Kprobe, Some(0)));
        }
    }
    expect("hits", &seen, &wanted)?;
    Ok(format!("{} calls, {} of them of the inlined copy", hits.len(), hits.len() - 3))
}

fn result_of_a_body(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let attach = Attach::new(target).policy(Policy::BestEffort);
    let link = attach.attach(&program_of(&object, "getpgid_returned")?)?;
    let mut wanted = Vec::new();
    let hits = record(&object, || {
        for pid in [0, u64::from(std::process::id())] {
            wanted.push((Body, Mechanism::Fexit, Some(pid), SIGNED(getpgid(pid)?)));
        }
        let _ = getpgid(NOBODY);
        wanted.push((Body, Mechanism::Fexit, Some(NOBODY), SIGNED(-i64::from(libc::ESRCH))));
        Ok(())
    })?;
    let seen: Result<Vec<_>, Failure> =
        hits.iter().map(|hit| Ok((site_of(&link, hit)?.kind, by(&link, hit)?, hit.value(0), hit.value(1)))).collect();
    expect("hits", &seen?, &wanted)?;
    Ok(format!("{} results, one an error", hits.len()))
}

fn kill(pid: u64, signal: u64) -> io::Result<i64> {
    syscall(libc::SYS_kill, [pid, signal, 0, 0, 0, 0])
}

/// Signals and processes, and what comes of them.
fn kills() -> [(u64, u64, i64); 3] {
    let me = u64::from(std::process::id());
    // The first only asks, the second is ignored by default.
    [(me, 0, 0), (me, libc::SIGURG as u64, 0), (NOBODY, 0, -i64::from(libc::ESRCH))]
}

fn make_kills() -> io::Result<()> {
    for (pid, signal, result) in kills() {
        let seen = kill(pid, signal).unwrap_or_else(|error| -i64::from(error.raw_os_error().unwrap_or(0)));
        if seen != result {
            return Err(io::Error::other(format!("kill({pid}, {signal}) gave {seen}")));
        }
    }
    Ok(())
}

fn result_of_a_clone(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, "kill_returned")?)?;
    let hits = record(&object, make_kills)?;
    let seen: Result<Vec<_>, Failure> =
        hits.iter().map(|hit| Ok((site_of(&link, hit)?.kind, by(&link, hit)?, hit.value(0)))).collect();
    let wanted = kills().map(|(_, _, result)| (Clone, Mechanism::KretprobeMulti, SIGNED(result)));
    expect("hits", &seen?, &wanted.to_vec())?;
    Ok(format!("{} results by kretprobe.multi", hits.len()))
}

fn result_and_arguments_of_a_clone(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).cookie(5).attach(&program_of(&object, "kill_done")?)?;
    let hits = record(&object, make_kills)?;
    let seen: Result<Vec<_>, Failure> = hits
        .iter()
        .map(|hit| {
            let site = site_of(&link, hit)?;
            expect("cookie", &hit.cookie, &5)?;
            expect("address", &hit.address, &site.address)?;
            Ok((site.kind, by(&link, hit)?, hit.value(0), hit.value(1), hit.value(2)))
        })
        .collect();
    let wanted =
        kills().map(|(pid, signal, result)| (Clone, Mechanism::KprobeSession, Some(signal), Some(pid), SIGNED(result)));
    expect("hits", &seen?, &wanted.to_vec())?;
    Ok(format!("{} results with their arguments by a kprobe session", hits.len()))
}

fn result_that_may_be_removed(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let attach = Attach::new(target);
    refused(
        attach.attach(&program_of(&object, "mlockall_returned")?),
        &["apply_mlockall_flags.isra.0", "may have removed the return value"],
    )
}

fn exit_of_inlined_copies(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let program = program_of(&object, "getpgid_returned")?;
    let text = refused(
        Attach::new(target).attach(&program),
        &["do_getpgid", "policy is complete", "inline __do_sys_getpgrp+", "no return that a probe could be put on"],
    )?;
    expect("hits after the refusal", &record(&object, || getpgid(0).map(drop))?.len(), &0)?;
    Ok(text)
}

fn typed_pointers_at_the_return(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, "fcntl_returned")?)?;
    let file = File::open("/")?;
    let fd = file.as_raw_fd() as u64;
    let mut flags = 0;
    let hits = record(&object, || {
        flags = syscall(libc::SYS_fcntl, [fd, libc::F_GETFL as u64, 4711, 0, 0, 0])? as u64;
        let _ = syscall(libc::SYS_fcntl, [fd, 9999, 1, 0, 0, 0]);
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
const CAP_SYS_CHROOT: u64 = 18;

/// Has a process in a user namespace of its own, whose parent is the initial one, ask for two capabilities there, each
/// by a function of its own.
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

fn several_bodies_by_one_link(target: &Target) -> Result<String, Failure> {
    several(target, "capability", Mechanism::TracingMulti)
}

fn several_returns_by_one_link(target: &Target) -> Result<String, Failure> {
    several(target, "capability_answered", Mechanism::TracingMultiExit)
}

fn several(target: &Target, program: &str, mechanism: Mechanism) -> Result<String, Failure> {
    let object = load_for(0)?;
    let attach = Attach::new(target).policy(Policy::BestEffort).cookie(9);
    let link = attach.function("ns_capable").function("ns_capable_setid").attach(&program_of(&object, program)?)?;
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

fn sleepable_is_refused_by_site(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    // Under `complete` the inlined copy would be refused before the kernel is asked about the body.
    let attach = Attach::new(target).policy(Policy::BestEffort);
    refused(
        attach.attach(&program_of(&object, "sleeps")?),
        &[
            "body do_getpgid+0x0",
            "the kernel refused the fentry: do_getpgid is not sleepable",
            "inline __do_sys_getpgrp+",
            "sleepable programs cannot run at a kprobe",
        ],
    )
}

/// A system call's own function, where the kernel lets programs sleep.
const GETPGID: &str = if cfg!(target_arch = "x86_64") { "__x64_sys_getpgid" } else { "__arm64_sys_getpgid" };

fn sleepable_where_it_may(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).function(GETPGID).attach(&program_of(&object, "sleeps")?)?;
    expect("attached by fentry", &attached_by(link.report(), Mechanism::Fentry), &1)?;
    let hits = record(&object, || getpgid(0).map(drop))?;
    expect("hits", &hits.len(), &1)?;
    Ok(format!("one hit at {GETPGID}"))
}

fn map_that_kprobes_may_not_have(target: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = Attach::new(target).attach(&program_of(&object, "locks")?)?;
    let file = File::open("/")?;
    for _ in 0..3 {
        syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_GETFL as u64, 0, 0, 0, 0])?;
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
    let object = load()?;
    let attach = |program: &str, cookie: u64| {
        let attach = Attach::new(target).policy(Policy::BestEffort).cookie(cookie);
        attach.attach(&program_of(&object, program)?).map_err(Failure::from)
    };
    let entry = attach("getpgid_entered", 1)?;
    let again = attach("getpgid_entered", 2)?;
    let exit = attach("getpgid_returned", 3)?;
    let cookies = || -> Result<Vec<u64>, Failure> {
        let mut cookies: Vec<u64> = record(&object, || getpgid(0).map(drop))?.iter().map(|hit| hit.cookie).collect();
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

fn libbpf_attaches_it_too(_: &Target) -> Result<String, Failure> {
    let object = load()?;
    let link = program_of(&object, "getpgid_entered")?.attach()?;
    expect("hits", &record(&object, || getpgid(0).map(drop))?.len(), &1)?;
    drop(link);
    expect("hits afterwards", &record(&object, || getpgid(0).map(drop))?.len(), &0)?;
    Ok("bpf_program__attach() and bpf_link__destroy()".to_owned())
}

fn target_set_through_libbpf(target: &Target) -> Result<String, Failure> {
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
