// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Refusals that are the process's or the program's affair: capabilities, open files, a kernel that shows nothing,
//! programs that siteseer did not load. tests/tests/refusals/table.rs says which refusal is provoked where.

use crate::guest::calls::{in_child, syscall};
use crate::guest::case::{Capability, Case, Failure, Shown, need};
use crate::guest::typed::{load, program_of};
use libbpf_rs::{Object, ObjectBuilder, ProgramAttachType, ProgramType};
use siteseer::internals::bpf_target;
use siteseer::internals::kernel::{Kernel, KernelError};
use siteseer::internals::object::ObjectError;
use siteseer::internals::report::{Outcome, SiteReport};
use siteseer::internals::symbols::{self, SymbolsError};
use siteseer::{Attach, AttachError, AttachOptions, Error, Policy, SourceOptions, Target};
use siteseer_bpf_progs::{BAD, CONTEXT, PROPRIETARY, UNNAMED};
use siteseer_sites::SiteKind;
use siteseer_sites::with_causes;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsFd;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&Target) -> Result<String, Failure>| Case {
        name: format!("denied::{name}"),
        run: Box::new(move |target| run(target).map(Shown::from)),
    };
    vec![
        case("program_that_siteseer_did_not_load", program_that_siteseer_did_not_load),
        case("section_that_names_no_function", section_that_names_no_function),
        case("no_function_was_given", no_function_was_given),
        case("licence_that_is_not_gpl_compatible", licence_that_is_not_gpl_compatible),
        case("missing_sys_admin", missing_sys_admin),
        case("few_capabilities_are_enough", few_capabilities_are_enough),
        case("few_capabilities_from_the_start", few_capabilities_from_the_start),
        case("too_few_files", too_few_files),
        case("kernel_that_shows_nothing", kernel_that_shows_nothing),
        case("risky_sites", risky_sites),
    ]
}

/// The refusal's text, if it is the one that is meant.
fn refused<T>(result: Result<T, impl Into<Error>>, meant: impl Fn(&Error) -> bool) -> Result<String, Failure> {
    match result.map_err(Into::into) {
        Ok(_) => Err("it was not refused".into()),
        Err(error) if meant(&error) => Ok(with_causes(&error).lines().next().unwrap_or_default().to_owned()),
        Err(error) => Err(format!("it was refused for another reason: {}", with_causes(&error)).into()),
    }
}

fn bad() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(BAD)?.load()?)
}

// Proves S1.3.
fn program_that_siteseer_did_not_load(target: &Target) -> Result<String, Failure> {
    let mut open = ObjectBuilder::default().open_memory(CONTEXT)?;
    for mut program in open.progs_mut().filter(|program| program.name() == "plain") {
        program.set_prog_type(ProgramType::Tracing);
        program.set_attach_type(ProgramAttachType::TraceFentry);
        program.set_attach_target(0, Some("do_fcntl".to_owned()))?;
    }
    let object = open.load()?;
    let attach = Attach::with(target, AttachOptions::default().function("do_fcntl"));
    refused(attach.attach(&program_of(&object, "plain")?), |error| {
        matches!(error, Error::Object(ObjectError::NotGuarded { .. }))
    })
}

fn section_that_names_no_function(target: &Target) -> Result<String, Failure> {
    let object = ObjectBuilder::default().open_memory(UNNAMED)?.load()?;
    refused(Attach::new(target).attach(&program_of(&object, "bad_section")?), |error| {
        matches!(error, Error::Object(ObjectError::Section { .. }))
    })
}

// Proves S1.2.
fn no_function_was_given(target: &Target) -> Result<String, Failure> {
    let object = bad()?;
    refused(Attach::new(target).attach(&program_of(&object, "no_function")?), |error| {
        matches!(error, Error::Attach(AttachError::NoFunction { .. }))
    })
}

// Proves S10.3.
fn licence_that_is_not_gpl_compatible(target: &Target) -> Result<String, Failure> {
    // Its program follows a typed pointer, which takes a function for GPL-compatible programs alone.
    need(target, Capability::RdonlyCast)?;
    let object = ObjectBuilder::default().open_memory(PROPRIETARY)?.load()?;
    refused(Attach::new(target).attach(&program_of(&object, "follows")?), |error| {
        matches!(error, Error::Attach(AttachError::Licence { .. }))
    })
}

/// Capabilities, include/uapi/linux/capability.h.
const CAP_SYS_ADMIN: u64 = 21;
const CAP_SYS_RESOURCE: u64 = 24;
pub(crate) const CAP_SYSLOG: u64 = 34;
const CAP_PERFMON: u64 = 38;
const CAP_BPF: u64 = 39;

/// Gives up all capabilities but those that this mask leaves.
pub(crate) fn keep_capabilities(mask: u64) -> io::Result<()> {
    // struct __user_cap_header_struct: version 3, this process; effective, permitted, inheritable, lower half first.
    let header = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    let (header, at) = (header.as_ptr() as u64, data.as_mut_ptr() as u64);
    syscall(libc::SYS_capget, [header, at, 0, 0, 0, 0])?;
    for (nth, half) in [mask as u32, (mask >> 32) as u32].into_iter().enumerate() {
        for set in 0..3 {
            data[3 * nth + set] &= half;
        }
        // Another user keeps them, if at all, as permitted only.
        data[3 * nth] = data[3 * nth + 1];
    }
    syscall(libc::SYS_capset, [header, data.as_ptr() as u64, 0, 0, 0, 0]).map(drop)
}

/// What a child found, as its end.
fn found(meant: bool, error: &AttachError) -> io::Result<()> {
    if meant { Ok(()) } else { Err(io::Error::other(error.to_string())) }
}

// Proves S20.9.
fn missing_sys_admin(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    // Programs of others are asked for by id.
    let id = bpf_target::id_of(program.as_fd())?;
    in_child(|| {
        keep_capabilities(!(1 << CAP_SYS_ADMIN))?;
        match Attach::with(target, AttachOptions::default().bpf_program(id).function("count")).attach(&program) {
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            Err(error) => found(
                matches!(error, AttachError::BpfTarget(_)) && with_causes(&error).contains("CAP_SYS_ADMIN"),
                &error,
            ),
        }
    })?;
    Ok("says that CAP_SYS_ADMIN is needed".to_owned())
}

fn few_capabilities_are_enough(target: &Target) -> Result<String, Failure> {
    /// Debian's kernels have a value beyond upstream's, 3, with which perf events are for CAP_SYS_ADMIN alone.
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    let before = fs::read_to_string(PARANOID)?;
    fs::write(PARANOID, "2")?;
    let attached = in_child(|| {
        keep_capabilities(1 << CAP_BPF | 1 << CAP_PERFMON | 1 << CAP_SYSLOG)?;
        match Attach::with(target, AttachOptions::default().function("ns_capable")).attach(&program) {
            Ok(link) if link.report().attached().next().is_some() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::ENOENT)),
            Err(error) => found(false, &error),
        }
    });
    fs::write(PARANOID, before)?;
    attached?;
    Ok("attached with CAP_BPF, CAP_PERFMON and CAP_SYSLOG alone".to_owned())
}

/// Another user with the three capabilities, who has them before anything is read, loaded or attached; at more sites
/// than are armed one by one. tracefs and debugfs are root's: what cannot be read there is said.
fn few_capabilities_from_the_start(target: &Target) -> Result<String, Failure> {
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    const NOBODY: u64 = 65534;
    let name = several_copies(target)?;
    let three = 1 << CAP_BPF | 1 << CAP_PERFMON | 1 << CAP_SYSLOG;
    let attach = |uid: u64| {
        syscall(libc::SYS_prctl, [libc::PR_SET_KEEPCAPS as u64, 1, 0, 0, 0, 0])?;
        syscall(libc::SYS_setresuid, [uid, uid, uid, 0, 0, 0])?;
        keep_capabilities(three)?;
        let failed = |what: &dyn std::error::Error| io::Error::other(with_causes(what));
        let target = Target::running(&SourceOptions::default()).map_err(|error| failed(&error))?;
        let object = load(0).map_err(|error| failed(&*error))?;
        let program = program_of(&object, "count").map_err(|error| failed(&*error))?;
        let options = AttachOptions::default().function(&name).policy(Policy::BestEffort);
        let link = Attach::with(&target, options).attach(&program).map_err(|error| failed(&error))?;
        let (attached, notes) = (link.report().attached().count(), link.report().notes.join("; "));
        let is_said = notes.contains("whether kprobes are switched off is not known");
        if attached > 5 && is_said == (uid != 0) { Ok(()) } else { Err(io::Error::other(link.report().to_string())) }
    };
    let attach = |uid| attach(uid).inspect_err(|error| eprintln!("as user {uid}: {error}"));
    let before = fs::read_to_string(PARANOID)?;
    fs::write(PARANOID, "2")?;
    let (root, nobody) = (in_child(|| attach(0)), in_child(|| attach(NOBODY)));
    fs::write(PARANOID, before)?;
    root.map_err(|error| format!("root: {error}"))?;
    nobody.map_err(|error| format!("nobody: {error}"))?;
    Ok("read, loaded and attached with CAP_BPF, CAP_PERFMON and CAP_SYSLOG alone, as root and as nobody".to_owned())
}

/// A function with more copies than are armed one by one, all of them in code that can be probed.
fn several_copies(target: &Target) -> Result<String, Failure> {
    let names = target.data().read(&[], |file| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for function in file.all_functions() {
            let function = function?;
            if (10..40).contains(&function.sites().count()) {
                names.push(function.name().to_owned());
            }
        }
        Ok(names)
    })??;
    let is = |name: &&String| {
        let sites = target.function(name).map(|function| function.candidates).unwrap_or_default();
        sites.len() >= 10 && sites.iter().all(|site| site.obstacle.is_none() && site.module.is_none())
    };
    Ok(names.iter().find(is).cloned().ok_or("no function has so many copies")?)
}

// Proves S8.11, S13.5.
fn too_few_files(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    in_child(|| {
        // Enough for what is open already, and not for hundreds of sites.
        let limits = [64u64, 64];
        syscall(libc::SYS_prlimit64, [0, u64::from(libc::RLIMIT_NOFILE), limits.as_ptr() as u64, 0, 0, 0])?;
        keep_capabilities(!(1 << CAP_SYS_RESOURCE))?;
        match Attach::with(target, AttachOptions::default().function("rcu_read_unlock").max_sites(usize::MAX))
            .attach(&program)
        {
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            Err(error) => found(matches!(error, AttachError::Files { .. }), &error),
        }
    })?;
    Ok("says how many files would have to be open".to_owned())
}

/// Makes a folder the root; a child's affair.
fn enter(folder: &str) -> io::Result<()> {
    let folder = CString::new(folder)?;
    syscall(libc::SYS_chroot, [folder.as_ptr() as u64, 0, 0, 0, 0, 0])?;
    let root = CString::new("/")?;
    syscall(libc::SYS_chdir, [root.as_ptr() as u64, 0, 0, 0, 0, 0]).map(drop)
}

fn kernel_that_shows_nothing(_: &Target) -> Result<String, Failure> {
    fs::create_dir_all("/tmp/denied/nothing")?;
    fs::create_dir_all("/tmp/denied/empty/proc")?;
    fs::create_dir_all("/tmp/denied/empty/sys/kernel")?;
    fs::write("/tmp/denied/empty/proc/kallsyms", "")?;
    fs::write("/tmp/denied/empty/sys/kernel/notes", "")?;
    let wrong = |what: String| Err(io::Error::other(what));
    in_child(|| {
        enter("/tmp/denied/nothing")?;
        match (symbols::running(), Kernel::running()) {
            (Err(SymbolsError::Read { .. }), Err(KernelError::Read { .. })) => Ok(()),
            (symbols, kernel) => wrong(format!("{:?}, {:?}", symbols.err(), kernel.err())),
        }
    })?;
    in_child(|| {
        enter("/tmp/denied/empty")?;
        match (symbols::running(), Kernel::running()) {
            (Err(SymbolsError::NoSymbols), Err(KernelError::NoBuildId)) => Ok(()),
            (symbols, kernel) => wrong(format!("{:?}, {:?}", symbols.err(), kernel.err())),
        }
    })?;
    #[cfg(target_arch = "x86_64")]
    in_child(|| {
        // include/uapi/linux/personality.h: uname() says i686.
        const PER_LINUX32: u64 = 8;
        syscall(libc::SYS_personality, [PER_LINUX32, 0, 0, 0, 0, 0])?;
        match Kernel::running() {
            Err(KernelError::Machine(_)) => Ok(()),
            kernel => wrong(format!("{:?}", kernel.err())),
        }
    })?;
    Ok("no symbols, empty symbols, no notes, no build id, another machine".to_owned())
}

/// A function that the kernel calls before each BPF program, where it accepts probes: refused, unless it is allowed.
// Proves S8.13.
fn risky_sites(target: &Target) -> Result<String, Failure> {
    const RISKY: &str = "migrate_disable";
    let object = load(std::process::id())?;
    let program = program_of(&object, "count")?;
    let options = || AttachOptions::default().function(RISKY).policy(Policy::BestEffort);
    let body = |site: &SiteReport| site.kind == SiteKind::Body && site.symbol == RISKY;
    // Without copies elsewhere, nothing is left.
    let refused = match Attach::with(target, options()).attach(&program) {
        Ok(link) => {
            let found = link.report().skipped().find(|(site, _)| body(site)).map(|(_, reason)| reason.to_string());
            found.ok_or_else(|| format!("not refused:\n{}", link.report().long()))?
        }
        Err(error) => with_causes(&error),
    };
    if !refused.contains("a program there is a risk: the kernel calls this function before or after every BPF program")
    {
        return Err(format!("refused for another reason: {refused}").into());
    }
    let link = Attach::with(target, options().allow_risky(true)).attach(&program)?;
    let how = match link.report().sites().find(|site| body(site)).map(|site| &site.outcome) {
        Some(Outcome::Attached { mechanism, .. }) => mechanism.word(),
        other => return Err(format!("allowed, and {other:?}").into()),
    };
    link.detach();
    siteseer::clean()?;
    Ok(format!("refused; allowed: attached by {how}"))
}
