// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What one hit costs, in the guest's instructions.
//!
//! A system call that hits a site once is made many times, without a probe and with one; the difference is the hit. All
//! programs do the same work: they count the call and add up the arguments. A timer's interrupt now and then is
//! in the one batch or the other, so the median of the batches is taken.
//!
//! The part that is BPF is what is more than with a program at the same probe that returns at once: the breakpoint or
//! jump, the kernel's way from there to the program, and back, are the same for all.

use super::{Bench, Figure, load, perf, settle};
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use siteseer::internals::arch::Arch;
use siteseer::{Attach, AttachOptions, Link, Outcome, Policy, SiteReport};
use siteseer_bpf_progs::COST;
use siteseer_bpf_progs::cost::{Argument, KIND_REGISTER, PLACES, spec};
use siteseer_sites::SiteKind;
use siteseer_sites::location::Location;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The cost of a hit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hit {
    /// `inline`, `body` or `clone`.
    pub kind: String,
    /// The function.
    pub function: String,
    /// What runs the program.
    pub way: String,
    /// How many arguments the program reads.
    pub arguments: usize,
    /// Instructions of the system call without a probe.
    pub without: f64,
    /// Instructions that a hit adds.
    pub hit: f64,
    /// Those of them that are the BPF program's: more than with a program that does nothing, at the same probe.
    pub program: Option<f64>,
}

/// Calls in a batch, and batches.
const BATCH: u32 = 200;
const BATCHES: usize = 25;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds, which are instructions, of one call.
fn measure(call: &dyn Fn()) -> f64 {
    (0..20).for_each(|_| call());
    let batch = || {
        let begin = Instant::now();
        (0..BATCH).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    median((0..BATCHES).map(|_| batch()).collect())
}

/// A system call, and the function that it leads into once.
struct Path {
    function: &'static str,
    kind: SiteKind,
    /// The symbol that holds the site that is hit.
    within: &'static str,
    /// Arguments that siteseer's programs are measured with.
    reads: &'static [usize],
    call: Box<dyn Fn()>,
}

/// The system calls. None of them does much.
fn paths() -> Result<Vec<Path>, Failure> {
    let key = 0x5173_5ee7u64;
    let flags = 0o600 | libc::IPC_CREAT as u64;
    syscall(libc::SYS_semget, [key, 1, flags, 0, 0, 0])?;
    let null = CString::new("/dev/null")?;
    let null = syscall(libc::SYS_openat, [libc::AT_FDCWD as u64, null.as_ptr() as u64, libc::O_WRONLY as u64, 0, 0, 0])?
        as u64;
    static BYTES: [u8; 512] = [0; 512];
    let me = u64::from(std::process::id());
    let mut paths = vec![
        Path {
            function: "ksys_semget",
            kind: SiteKind::Inline,
            within: if cfg!(target_arch = "x86_64") { "__x64_sys_semget" } else { "__arm64_sys_semget" },
            reads: &[0, 1, 2, 3],
            call: Box::new(move || drop(syscall(libc::SYS_semget, [key, 1, 0o600, 0, 0, 0]))),
        },
        // Inlined into many functions, with its argument in as many places.
        Path {
            function: "class_fd_constructor",
            kind: SiteKind::Inline,
            within: "ksys_ftruncate",
            reads: &[1],
            // No such file: EBADF.
            call: Box::new(|| drop(syscall(libc::SYS_ftruncate, [9999, 0, 0, 0, 0, 0]))),
        },
        Path {
            function: "ksys_mmap_pgoff",
            kind: SiteKind::Body,
            within: "ksys_mmap_pgoff",
            reads: &[0, 1, 3, 6],
            // No such file: EBADF.
            call: Box::new(|| drop(syscall(libc::SYS_mmap, [0, 4096, 1, 2, 9999, 0]))),
        },
        Path {
            function: "vfs_write",
            kind: SiteKind::Body,
            within: "vfs_write",
            reads: &[0, 1, 3],
            call: Box::new(move || drop(syscall(libc::SYS_write, [null, BYTES.as_ptr() as u64, 512, 0, 0, 0]))),
        },
    ];
    if cfg!(target_arch = "x86_64") {
        paths.push(Path {
            function: "kill_something_info",
            kind: SiteKind::Clone,
            within: "kill_something_info.constprop.0",
            reads: &[0, 1, 3],
            call: Box::new(move || drop(syscall(libc::SYS_kill, [me, 0, 0, 0, 0, 0]))),
        });
    }
    Ok(paths)
}

/// Replaces the offsets of the placeholders in the by-hand programs by those of the site's registers.
fn load_by_hand(offsets: &[i16]) -> Result<Object, Failure> {
    let open = ObjectBuilder::default().open_memory(COST)?;
    for mut program in open.progs().map(|program| program.as_libbpf_object()) {
        // SAFETY: the object is open and not shared; libbpf's instructions are an array of the stated length, and this
        // is the only reference to them.
        let insns = unsafe {
            let count = sys::bpf_program__insn_cnt(program.as_ref()) as usize;
            let first = sys::bpf_program__insns(program.as_mut()).cast_mut();
            std::slice::from_raw_parts_mut(first, count)
        };
        // SAFETY: the name is a string that the object owns.
        let name = unsafe { std::ffi::CStr::from_ptr(sys::bpf_program__name(program.as_ref())) };
        if !name.to_bytes().starts_with(b"hand") {
            continue;
        }
        // BPF_LDX | BPF_MEM, of 4 or 8 bytes: loads of the context's words, as the placeholders are offsets that
        // nothing else has.
        for insn in insns.iter_mut().filter(|insn| matches!(insn.code, 0x61 | 0x79)) {
            if let Some(nth) = PLACES.iter().position(|place| place * 8 == insn.off as usize)
                && let Some(offset) = offsets.get(nth)
            {
                insn.off = *offset;
            }
        }
    }
    Ok(open.load()?)
}

fn program<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Program<'o>, Failure> {
    object.progs().find(|program| program.name() == name).ok_or_else(|| format!("no program {name}").into())
}

/// Measures with something attached.
fn with<T>(path: &Path, attached: T) -> Result<f64, Failure> {
    settle();
    let cost = measure(&*path.call);
    drop(attached);
    settle();
    Ok(cost)
}

fn siteseer(bench: &Bench<'_>, object: &Object, path: &Path, name: &str, more: Option<&str>) -> Result<Link, Failure> {
    let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort).all_prototypes(true);
    let options = more.into_iter().fold(options.function(path.function), AttachOptions::function);
    Ok(Attach::with(&bench.target, options).attach(&program(object, name)?)?)
}

/// With as few programs as there can be.
fn shared(bench: &Bench<'_>, object: &Object, path: &Path, name: &str) -> Result<Link, Failure> {
    let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort).all_prototypes(true);
    let options = options.function(path.function).share_beyond(1);
    Ok(Attach::with(&bench.target, options).attach(&program(object, name)?)?)
}

/// What siteseer runs the program by at the path's site.
fn mechanism(link: &Link, path: &Path) -> Result<String, Failure> {
    let site = hit_site(link.report().sites(), path)?;
    match &site.outcome {
        Outcome::Attached { mechanism, .. } => Ok(mechanism.word().to_owned()),
        Outcome::Skipped(reason) => Err(format!("{} in {}: {reason}", path.function, path.within).into()),
    }
}

fn hit_site<'r>(mut sites: impl Iterator<Item = &'r SiteReport>, path: &Path) -> Result<&'r SiteReport, Failure> {
    sites
        .find(|site| site.kind == path.kind && site.symbol == path.within)
        .ok_or_else(|| format!("{} has no such site in {}", path.function, path.within).into())
}

fn inline(bench: &mut Bench<'_>, path: &Path, without: f64) -> Result<(), Failure> {
    let object = load()?;
    let most = path.reads.iter().filter(|&&arguments| arguments <= 3).max().copied().unwrap_or(0);
    let report = Attach::with(
        &bench.target,
        AttachOptions::default().max_sites(usize::MAX).function(path.function).policy(Policy::BestEffort),
    )
    .plan(&program(&object, &format!("read{most}"))?)?
    .report();
    let site = hit_site(report.sites(), path)?;
    let address = site.address;
    let mut offsets = Vec::new();
    for argument in &site.arguments {
        match argument {
            Ok(located) if let Location::Register(register) = located.at => {
                offsets.push(Arch::of(bench.target.kernel().machine).register_offset(register).unwrap_or_default());
            }
            other => return Err(format!("{} is not in registers there: {other:?}", path.function).into()),
        }
    }
    let hands = load_by_hand(&offsets)?;
    let specs = hands.maps().find(|map| map.name() == "specs").ok_or("no map specs")?;
    let arguments: Vec<Argument> = offsets
        .iter()
        .map(|offset| Argument { kind: KIND_REGISTER, offset: 0, place: *offset as u16, signed: false, bits: 32 })
        .collect();
    specs.update(&7u32.to_ne_bytes(), &spec(&arguments), MapFlags::ANY)?;

    let by_hand = |name: &str| -> Result<OwnedFd, Failure> {
        Ok(perf::link(program(&hands, name)?.as_fd(), &perf::kprobe(address)?, 7)?)
    };
    let nothing = with(path, by_hand("hand_nothing")?)? - without;
    let say = |bench: &mut Bench<'_>, way: &str, arguments, cost: f64| {
        let (kind, function) = ("inline".to_owned(), path.function.to_owned());
        let (hit, way) = (cost - without, way.to_owned());
        bench.say(&Figure::Hit(Hit { kind, function, way, arguments, without, hit, program: Some(hit - nothing) }))
    };
    for &arguments in path.reads {
        let link = siteseer(bench, &object, path, &format!("read{arguments}"), None)?;
        let cost = with(path, link)?;
        say(bench, "siteseer", arguments, cost)?;
        if arguments > 0 {
            let link = shared(bench, &object, path, &format!("read{arguments}"))?;
            let ways = link.report().trampolines;
            if link.programs() < ways {
                let cost = with(path, link)?;
                say(bench, &format!("siteseer, one program for {ways} location prototypes"), arguments, cost)?;
            }
        }
        let cost = with(path, by_hand(&format!("hand{arguments}"))?)?;
        say(bench, "by hand", arguments, cost)?;
        if arguments > 0 {
            let cost = with(path, by_hand(&format!("spec{arguments}"))?)?;
            say(bench, "interpreter", arguments, cost)?;
        }
    }
    let cost = with(path, by_hand("hand_nothing")?)?;
    say(bench, "empty program", 0, cost)
}

fn entry(bench: &mut Bench<'_>, path: &Path, without: f64) -> Result<(), Failure> {
    let object = load()?;
    let report = Attach::with(
        &bench.target,
        AttachOptions::default().max_sites(usize::MAX).function(path.function).policy(Policy::BestEffort),
    )
    .plan(&program(&object, "read0")?)?
    .report();
    let address = hit_site(report.sites(), path)?.address;
    let say = |bench: &mut Bench<'_>, way: String, arguments, cost: f64| {
        let kind = if path.kind == SiteKind::Body { "body" } else { "clone" }.to_owned();
        let (hit, function) = (cost - without, path.function.to_owned());
        bench.say(&Figure::Hit(Hit { kind, function, way, arguments, without, hit, program: None }))
    };
    for &arguments in path.reads {
        let link = siteseer(bench, &object, path, &format!("read{arguments}"), None)?;
        let way = format!("siteseer: {}", mechanism(&link, path)?);
        let cost = with(path, link)?;
        say(bench, way, arguments, cost)?;
        // Another body that one program can serve as well.
        if path.kind == SiteKind::Body && arguments <= OTHER_TAKES {
            match siteseer(bench, &object, path, &format!("read{arguments}"), Some(OTHER)) {
                Ok(link) => {
                    let way = format!("siteseer: {}, with others", mechanism(&link, path)?);
                    let cost = with(path, link)?;
                    say(bench, way, arguments, cost)?;
                }
                Err(why) => bench.say(&Figure::Note(format!("{} with {OTHER}: {why}", path.function)))?,
            }
        }
        let hand = program(&object, &format!("entry_kprobe{arguments}"))?;
        let cost = with(path, perf::link(hand.as_fd(), &perf::kprobe(address)?, 0)?)?;
        say(bench, "by hand: kprobe".to_owned(), arguments, cost)?;
        let hand = program(&object, &format!("entry_multi{arguments}"))?;
        match perf::kprobe_multi(hand.as_fd(), address) {
            Ok(link) => {
                let cost = with(path, link)?;
                say(bench, "by hand: kprobe.multi".to_owned(), arguments, cost)?;
            }
            Err(why) => bench.say(&Figure::Note(format!("kprobe.multi on {}: {why}", path.function)))?,
        }
    }
    Ok(())
}

/// A function to attach to together with another, and how many arguments it takes.
const OTHER: &str = "ksys_shmget";
const OTHER_TAKES: usize = 3;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for path in paths()? {
        settle();
        let without = measure(&*path.call);
        let done = match path.kind {
            SiteKind::Inline => inline(bench, &path, without),
            SiteKind::Body | SiteKind::Clone => entry(bench, &path, without),
        };
        if let Err(why) = done {
            bench.say(&Figure::Note(format!("{}: {why}", path.function)))?;
        }
    }
    Ok(())
}
