// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What cannot be attached is refused with what, where and why; nothing is left behind.

use crate::guest::calls::{in_child, syscall};
use crate::guest::case::{Capability, Case, Failure, case, choose, need};
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::{load, program_of};
use libbpf_rs::ObjectBuilder;
use procfs::sys::kernel::Version;
use siteseer::internals::function::Candidate;
use siteseer::internals::source::SiteData;
use siteseer::{
    Attach, AttachError, AttachOptions, InTheWay, Mechanism, Outcome, PlanError, Policy, Reason, SiteReport,
    SourceOptions, Target,
};
use siteseer_bpf_progs::BAD;
use siteseer_sites::site::{Marks, SiteKind, Unprobeable};
use siteseer_sites::{Machine, with_causes};
use std::fs;
use std::io::Write;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("refusals", name, run);
    vec![
        case("unknown_function", unknown_function),
        case("no_probeable_site", no_probeable_site),
        case("parameter_that_the_function_lacks", parameter_that_the_function_lacks),
        case("another_kernels_site_data", another_kernels_site_data),
        case("damaged_site_data", damaged_site_data),
        case("hidden_symbols", hidden_symbols),
        case("module_that_is_not_loaded", module_that_is_not_loaded),
        case("programs_that_cannot_be_attached", programs_that_cannot_be_attached),
        case("every_site_lacks_an_argument", every_site_lacks_an_argument),
        case("missing_privileges", missing_privileges),
        case("kprobes_that_are_switched_off", kprobes_that_are_switched_off),
        case("ftrace_that_is_switched_off", ftrace_that_is_switched_off),
    ]
}

/// The refusal's text, if it has all of the words.
fn refused<T>(result: Result<T, impl std::error::Error>, words: &[&str]) -> Result<String, Failure> {
    let text = match result {
        Ok(_) => return Err("it was not refused".into()),
        Err(error) => with_causes(&error),
    };
    match words.iter().find(|word| !text.contains(**word)) {
        Some(missing) => Err(format!("the refusal does not say {missing:?}: {text}").into()),
        None => Ok(text.lines().next().unwrap_or_default().to_owned()),
    }
}

/// Nothing fires at a kprobe while all are switched off, and the kernel takes new ones nevertheless.
fn kprobes_that_are_switched_off(target: &Target) -> Result<String, Failure> {
    const SWITCH: &str = "/sys/kernel/debug/kprobes/enabled";
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    let attach =
        |policy| Attach::with(target, AttachOptions::default().function("ns_capable").policy(policy)).attach(&program);
    fs::write(SWITCH, "0")?;
    let (complete, best_effort) = (attach(Policy::Complete), attach(Policy::BestEffort));
    fs::write(SWITCH, "1")?;
    let refusal = refused(complete, &["policy is complete", "kprobes are switched off", SWITCH])?;
    let notes = best_effort?.report().notes.join("; ");
    if !notes.contains("kprobes are switched off") {
        return Err(format!("the report's notes do not say it: {notes}").into());
    }
    match attach(Policy::Complete)?.report().notes.iter().find(|note| note.contains("switched off")) {
        Some(note) => Err(format!("it is said when they are on: {note}").into()),
        None => Ok(refusal),
    }
}

/// The same for ftrace, which is told of a link that exists already, too. The kernels after 6.12 that refuse the switch
/// have nothing to tell.
fn ftrace_that_is_switched_off(target: &Target) -> Result<String, Failure> {
    const SWITCH: &str = "/proc/sys/kernel/ftrace_enabled";
    // Debian's 6.1 has no fprobe; on x86-64, a kprobe at a clone's entry is ftrace's then.
    let mechanism = match Capability::KprobeMulti.is_had(target) {
        false if target.kernel().machine == Machine::X86_64 => Mechanism::Kprobe,
        _ => need(target, Capability::KprobeMulti).map(|()| Mechanism::KprobeMulti)?,
    };
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    let by_ftrace = |site: &SiteReport| match site.outcome {
        Outcome::Attached { mechanism: by, .. } => site.kind == SiteKind::Clone && by == mechanism,
        Outcome::Skipped(_) => false,
    };
    // Bodies are fentry's; clones are ftrace's.
    let attach = |name: &String| {
        let options = AttachOptions::default().function(name).policy(Policy::BestEffort);
        Attach::with(target, options).attach(&program).ok()
    };
    let names = few_clones(target)?;
    let link = names.iter().filter_map(attach).find(|link| link.report().attached().any(by_ftrace));
    let link = link.ok_or("no clone is attached by ftrace")?;
    let before = link.in_the_way()?;
    if let Err(error) = fs::write(SWITCH, "0") {
        let may_refuse = Version::current()? >= Version::new(6, 13, 0);
        return match (error.raw_os_error(), may_refuse, &*link.in_the_way()?) {
            (Some(libc::EOPNOTSUPP), true, []) => Ok(format!("{SWITCH}: this kernel's ftrace stays on: {error}")),
            (_, _, said) => Err(format!("{SWITCH}: {error}; in the way: {said:?}").into()),
        };
    }
    let (off, at_ftraces_place) = (link.in_the_way(), hits_at_ftraces_place());
    fs::write(SWITCH, "1")?;
    let (off, after) = (off?, link.in_the_way()?);
    if !(before.is_empty() && after.is_empty() && off.iter().any(|what| what.contains("ftrace is switched off"))) {
        return Err(format!("before: {before:?}, while it is off: {off:?}, after: {after:?}").into());
    }
    // A kprobe on ftrace's place is ftrace's, too.
    if target.kernel().machine == Machine::X86_64 && (at_ftraces_place?, hits_at_ftraces_place()?) != (0, 1) {
        return Err("a kprobe on ftrace's place does not depend on ftrace".into());
    }
    Ok(off.join("; "))
}

/// Functions with a clone that can be probed, and few sites.
fn few_clones(target: &Target) -> Result<Vec<String>, Failure> {
    target.data().read(&[], |file| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for function in file.all_functions() {
            let function = function?;
            let (mut sites, mut clones) = (0, 0);
            for site in function.sites() {
                let site = site?;
                sites += 1;
                clones += usize::from(site.kind() == Some(SiteKind::Clone) && site.unprobeable().is_none());
            }
            if clones > 0 && sites < 8 {
                names.push(function.name().to_owned());
            }
        }
        names.truncate(50);
        Ok(names)
    })?
}

/// How often a kprobe on the first byte of a function is hit by one call.
fn hits_at_ftraces_place() -> Result<u64, Failure> {
    const TRACEFS: &str = "/sys/kernel/tracing";
    const EVENT: &str = "siteseer_place/getsid";
    let append = |line: String| {
        fs::File::options().append(true).open(format!("{TRACEFS}/kprobe_events"))?.write_all(line.as_bytes())
    };
    append(format!("p:{EVENT} __x64_sys_getsid\n"))?;
    let enable = format!("{TRACEFS}/events/{EVENT}/enable");
    fs::write(&enable, "1")?;
    let listed = fs::read_to_string("/sys/kernel/debug/kprobes/list")?;
    // SAFETY: plain call.
    unsafe { libc::syscall(libc::SYS_getsid, 0) };
    let profile = fs::read_to_string(format!("{TRACEFS}/kprobe_profile"))?;
    fs::write(&enable, "0")?;
    append(format!("-:{EVENT}\n"))?;
    if !listed.lines().any(|line| line.contains("__x64_sys_getsid+") && line.contains("[FTRACE]")) {
        return Err(format!("the kprobe is not ftrace's: {listed}").into());
    }
    let hits =
        profile.lines().find_map(|line| line.trim().strip_prefix("getsid")?.split_whitespace().next()?.parse().ok());
    Ok(hits.ok_or_else(|| format!("not in the profile: {profile}"))?)
}

// Proves S2.8.
fn unknown_function(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    let attach = Attach::with(target, AttachOptions::default().function("ns_capabel"));
    refused(attach.attach(&program_of(&object, "count")?), &["ns_capabel", "ns_capable"])
}

/// A function that has sites, all of them in code that the kernel lets no kprobe event into for one reason: which one
/// is the compiler's choice.
fn alone_where(target: &Target, why: Unprobeable) -> Result<String, Failure> {
    let names = target.data().read(&[], |file| -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for function in file.all_functions() {
            let function = function?;
            let mut sites = function.sites().peekable();
            let mut alone = sites.peek().is_some();
            for site in sites {
                alone &= site?.unprobeable() == Some(why);
            }
            if alone {
                names.push(function.name().to_owned());
            }
        }
        Ok(names)
    })??;
    // Another function of the name, or a symbol that the site data does not describe, may be reached.
    let is = |name: &&String| {
        let sites = target.function(name).map(|function| function.candidates).unwrap_or_default();
        let refused = |reason: &Option<Reason>| reason.as_ref().is_some_and(|reason| reason.key() == why.key());
        !sites.is_empty() && sites.iter().all(|site| refused(&site.obstacle))
    };
    names.iter().find(is).cloned().ok_or_else(|| format!("every function has a site that is not {}", why.key()).into())
}

fn no_probeable_site(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    // Some kernels have no objection to notrace code.
    let why = if target.kernel().notrace_events { Unprobeable::Noinstr } else { Unprobeable::Notrace };
    let name = alone_where(target, why)?;
    let attach = Attach::with(target, AttachOptions::default().function(&name));
    refused(attach.attach(&program_of(&object, "count")?), &[&name, why.key()])
}

// Proves S4.6.
fn parameter_that_the_function_lacks(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    // jhash's program reads three arguments, do_getpgid() has one.
    let attach = Attach::with(target, AttachOptions::default().function("do_getpgid"));
    refused(attach.attach(&program_of(&object, "jhash")?), &["do_getpgid"])
}

// Proves S6.3, S10.1, S10.4.
/// Each program of bad.bpf.c is refused with the reason that it is there for, and leaves nothing armed.
fn programs_that_cannot_be_attached(target: &Target) -> Result<String, Failure> {
    let object = ObjectBuilder::default().open_memory(BAD)?.load()?;
    // Program, and what the refusal must say. The first is the verifier's: its log, and which site's trampoline.
    let wanted: [(&str, &[&str]); 7] = [
        ("unverifiable", &["unverifiable", "ns_capable+0x0", "R"]),
        ("too_many", &["ns_capable"]),
        ("tail_call", &["bpf_tail_call"]),
        ("override_return", &["bpf_override_return"]),
        ("writes_context", &["context"]),
        ("no_such_function", &["no_such_function_anywhere"]),
        ("in_module", &["some_module"]),
    ];
    let before = armed()?;
    for (name, words) in wanted {
        let program = program_of(&object, name)?;
        refused(Attach::new(target).attach(&program), words).map_err(|failure| format!("{name}: {failure}"))?;
    }
    let after = armed()?;
    if before != after {
        return Err(format!("armed before: {before}, after: {after}").into());
    }
    Ok(format!("{} programs, each with its reason", wanted.len()))
}

/// How many kprobes the kernel has.
fn armed() -> Result<usize, Failure> {
    Ok(fs::read_to_string("/sys/kernel/debug/kprobes/list")?.lines().count())
}

fn every_site_lacks_an_argument(target: &Target) -> Result<String, Failure> {
    // jhash()'s bodies cannot be probed, and no inlined copy that can be has all three arguments in reach, or it is
    // attached: then what is refused is only what lacks one.
    const PARAMETERS: [usize; 3] = [2, 1, 0];
    let lacking = |nth: &usize| Shape::new("jhash", [site(Place::Inline).without(*nth)]);
    choose(target, &PARAMETERS, lacking)?;
    let function = target.function("jhash")?;
    // That control may come into it otherwise is in the way of `complete` before its arguments are.
    let lacks = |site: &&Candidate, nth: usize| {
        let passed_by = site.marks.contains(Marks::MAY_REPEAT) || site.marks.contains(Marks::MAY_MISS);
        let whole = site.obstacle.is_none() && !passed_by;
        site.kind == SiteKind::Inline && whole && site.available(nth, false).is_err()
    };
    let found = |nth: usize| Some((nth, function.candidates.iter().find(|site| lacks(site, nth))?));
    let (nth, copy) = PARAMETERS.into_iter().find_map(found).ok_or("no copy that lacks an argument alone")?;
    let parameters = function.prototypes.get(copy.prototype).map(|prototype| prototype.parameters.as_slice());
    let parameter = parameters.and_then(|all| all.get(nth)).ok_or("no such parameter")?;
    let place = format!("{}+{:#x}", copy.symbol, copy.offset());
    // Some sites are named in words; all of them in the error.
    let is_it = |site: &InTheWay| {
        let lacks = |reason: &Reason| matches!(reason, Reason::MissingArguments(all) if all.iter().any(|a| a.name == parameter.name));
        (site.symbol.as_str(), site.offset) == (&copy.symbol, copy.offset()) && lacks(&site.reason)
    };
    let check = |error: AttachError| match &error {
        AttachError::Plan(PlanError::Nothing { function, sites } | PlanError::Incomplete { function, sites })
            if function == "jhash" && sites.iter().any(is_it) =>
        {
            Ok(with_causes(&error).lines().next().unwrap_or_default().to_owned())
        }
        _ => {
            Err(Failure::from(format!("it is not refused for {} at {place}: {}", parameter.name, with_causes(&error))))
        }
    };
    let object = load(0)?;
    match Attach::new(target).attach(&program_of(&object, "jhash")?) {
        Ok(link) => {
            let is_it = |site: &SiteReport, reason: &Reason| {
                site.address == copy.address && reason.key() == "missing_arguments"
            };
            if !link.report().skipped().any(|(site, reason)| is_it(site, reason)) {
                return Err(format!("{place} is not skipped:\n{}", link.report().long()).into());
            }
        }
        // Every copy that can be probed lacks one.
        Err(error) => _ = check(error)?,
    }
    // Under `complete`, that is in the way of all.
    match Attach::with(target, AttachOptions::default().policy(siteseer::Policy::Complete))
        .attach(&program_of(&object, "jhash")?)
    {
        Ok(_) => Err("it was not refused".into()),
        Err(error) => check(error),
    }
}

// Proves S10.5.
/// A process that gave its capabilities up, in a child: they do not come back.
fn missing_privileges(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    let program = program_of(&object, "count")?;
    let kernel = target.kernel().privileges;
    if !(kernel.bpf && kernel.perfmon) {
        return Err("the test itself lacks privileges".into());
    }
    in_child(|| {
        // setresuid() to a user that is not root drops all capabilities.
        syscall(libc::SYS_setresuid, [1000, 1000, 1000, 0, 0, 0])?;
        match Target::running(&SourceOptions::default()) {
            // Without CAP_SYSLOG the symbols' addresses are hidden.
            Err(error) if with_causes(&error).contains("kptr_restrict") => Ok(()),
            Err(error) => Err(std::io::Error::other(error.to_string())),
            Ok(target) => match Attach::with(&target, AttachOptions::default().function("ns_capable")).attach(&program)
            {
                Err(error) if with_causes(&error).contains("CAP_BPF") => Ok(()),
                _ => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
            },
        }
    })?;
    Ok("says which capabilities it takes".to_owned())
}

/// The site data that the target was made from, as bytes.
fn own_data(target: &Target) -> Result<Vec<u8>, Failure> {
    let siteseer::internals::source::Origin::Encoded(path) = target.data().origin() else {
        return Err("the guest's site data is not in a file".into());
    };
    Ok(fs::read(path)?)
}

// Proves S10.6.
fn another_kernels_site_data(target: &Target) -> Result<String, Failure> {
    let mut bytes = own_data(target)?;
    let id = target.kernel().build_id.0.clone();
    let at = bytes.windows(id.len()).position(|window| window == id).ok_or("no build id in the file")?;
    bytes[at] ^= 0xff;
    fs::write("/tmp/other.sites", &bytes)?;
    let options = SourceOptions::default().file("/tmp/other.sites");
    refused(Target::running(&options), &["/tmp/other.sites", "another kernel", &target.kernel().build_id.to_string()])
}

fn damaged_site_data(target: &Target) -> Result<String, Failure> {
    let bytes = own_data(target)?;
    fs::write("/tmp/half.sites", &bytes[..bytes.len() / 2])?;
    let options = SourceOptions::default().file("/tmp/half.sites");
    refused(Target::running(&options), &["/tmp/half.sites"])
}

fn hidden_symbols(_: &Target) -> Result<String, Failure> {
    const RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";
    let before = fs::read(RESTRICT)?;
    fs::write(RESTRICT, "2")?;
    let result = Target::running(&SourceOptions::default());
    fs::write(RESTRICT, before)?;
    refused(result, &["kptr_restrict"])
}

fn module_that_is_not_loaded(target: &Target) -> Result<String, Failure> {
    let object = load(0)?;
    let attach = Attach::with(target, AttachOptions::default().function("ext4:ext4_sync_file"));
    refused(attach.attach(&program_of(&object, "count")?), &["module ext4 is not loaded"])?;
    // A file of a wrong kind altogether.
    match SiteData::open("/proc/self/exe".as_ref(), None, false) {
        Err(error) => Ok(with_causes(&error)),
        Ok(_) => Err("an ordinary program passed for site data".into()),
    }
}
