// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs with declared arguments: typed pointers, structures, subprograms, helpers that take the context, cookies,
//! policies, and what is left after a link is dropped.

use crate::guest::calls::{chmod, in_child, open, syscall};
use crate::guest::case::{Capability, Case, Failure, case, choose, need};
use crate::guest::shape::{Place, Shape, site};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, RingBufferBuilder};
use siteseer::{Attach, AttachOptions, Link, Policy, Target};
use siteseer_bpf_progs::truth::{Record, program};
use siteseer_bpf_progs::{BLOOM, TRUTH, set_constant};
use siteseer_sites::SiteKind;
use siteseer_sites::with_causes;
use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("typed", name, run);
    vec![
        case("pointers_at_an_inline_site", pointers_at_an_inline_site),
        case("subprogram_follows_a_pointer", subprogram_follows_a_pointer),
        case("helpers_that_take_the_context", helpers_that_take_the_context),
        case("cookie_and_site", cookie_and_site),
        case("nothing_fires_after_the_link", nothing_fires_after_the_link),
        case("complete_attaches_all", complete_attaches_all),
        case("complete_refuses_with_the_list", complete_refuses_with_the_list),
        case("two_links_on_one_function", two_links_on_one_function),
        case("what_the_kernel_does_not_run_is_counted", what_the_kernel_does_not_run_is_counted),
    ]
}

/// Loads truth.bpf.c; its programs see only processes with this number, or all with 0.
pub(crate) fn load(tgid: u32) -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(TRUTH)?;
    set_constant(&mut open, TRUTH, "only_tgid", tgid)?;
    Ok(open.load()?)
}

/// A program of an object by name.
pub(crate) fn program_of<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Failure> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| format!("no program {name}").into())
}

/// Makes calls while a link is up and returns what was recorded meanwhile.
pub(crate) fn record(object: &Object, calls: impl FnOnce() -> io::Result<()>) -> Result<Vec<Record>, Failure> {
    let records = RefCell::new(Vec::new());
    let buffer = object.maps().find(|map| MapCore::name(map) == "truth").ok_or("no map truth")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&buffer, |data| {
        records.borrow_mut().push(Record::parse(data));
        0
    })?;
    let ring = builder.build()?;
    ring.consume()?;
    records.borrow_mut().clear();
    calls()?;
    ring.consume()?;
    drop(ring);
    let all: Option<Vec<Record>> = records.into_inner().into_iter().collect();
    all.ok_or_else(|| "a record is too short".into())
}

pub(crate) fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), Failure> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: expected {wanted:?}, seen {seen:?}").into()) }
}

const CAP_DAC_OVERRIDE: u64 = 1;
const CAP_DAC_READ_SEARCH: u64 = 2;
const CAP_SYS_CHROOT: u64 = 18;

/// A file that its mode lets nobody read.
fn secret() -> io::Result<CString> {
    let path = CString::new("/tmp/typed-secret")?;
    drop(File::create("/tmp/typed-secret")?);
    chmod(&path, 0)?;
    Ok(path)
}

pub(crate) fn address_of(symbol: &str) -> Result<u64, Failure> {
    let symbols = std::fs::read_to_string("/proc/kallsyms")?;
    let line = symbols.lines().find(|line| line.split_ascii_whitespace().nth(2) == Some(symbol));
    let line = line.ok_or_else(|| format!("no symbol {symbol}"))?;
    Ok(u64::from_str_radix(line.split_ascii_whitespace().next().unwrap_or_default(), 16)?)
}

/// The site that a record was made at.
pub(crate) fn site_of<'l>(link: &'l Link, record: &Record) -> Result<&'l siteseer::SiteReport, Failure> {
    record.site.and_then(|id| link.report().site(id)).ok_or_else(|| "a record without a site".into())
}

/// Leaves the case if typed pointers are not available; there its program must be refused for that.
pub(crate) fn need_rdonly_cast(target: &Target, attach: &Attach<'_>, program: &ProgramMut<'_>) -> Result<(), Failure> {
    let Err(lack) = need(target, Capability::RdonlyCast) else { return Ok(()) };
    match attach.attach(program) {
        Err(error) if with_causes(&error).contains("bpf_rdonly_cast") => Err(lack.into()),
        Err(error) => Err(format!("refused for another reason: {}", with_causes(&error)).into()),
        Ok(_) => Err("attached, although its pointers have no type".into()),
    }
}

/// What chroot() and the reading of a secret file call: ns_capable() itself, and its copy in
/// capable_wrt_inode_uidgid().
fn body_and_copy() -> Shape {
    let copy = site(Place::Inline).within("capable_wrt_inode_uidgid").with(0).with(1);
    let elsewhere = site(Place::Inline).called_by("__do_sys_chroot").attachable_or_not();
    Shape::new("ns_capable", [site(Place::Body).with(0).with(1), copy]).and_no(elsewhere)
}

/// Leaves the case if the kernel's ns_capable() is otherwise.
fn need_body_and_copy(target: &Target) -> Result<(), Failure> {
    choose(target, &[body_and_copy], |shape| shape()).map(drop)
}

// Proves S4.9, S4.10.
fn pointers_at_an_inline_site(target: &Target) -> Result<String, Failure> {
    need_body_and_copy(target)?;
    let object = load(0)?;
    need_rdonly_cast(target, &Attach::new(target), &program_of(&object, "ns_capable")?)?;
    let link = Attach::new(target).attach(&program_of(&object, "ns_capable")?)?;
    let path = secret()?;
    // A process in a user namespace of its own, a child of the initial one. It may not read the file there, so the
    // kernel asks for two capabilities.
    let calls = || {
        in_child(|| {
            syscall(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0])?;
            match open(&path) {
                Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            }
        })
    };
    let all = record(&object, calls)?;
    let init_user_ns = address_of("init_user_ns")?;
    let mut seen = Vec::new();
    for hit in all.iter().filter(|hit| hit.tgid != std::process::id()) {
        let site = site_of(&link, hit)?;
        if site.kind != SiteKind::Inline || site.symbol != "capable_wrt_inode_uidgid" {
            continue;
        }
        expect("ns->level", &hit.value(2), &Some(1))?;
        expect("ns->owner", &hit.value(3), &Some(0))?;
        expect("ns->ucounts->ns", &hit.value(4), &Some(init_user_ns))?;
        expect("ns->ucounts->uid", &hit.value(5), &Some(0))?;
        expect("ns->ucounts->ns->level", &hit.value(6), &Some(0))?;
        seen.push(hit.value(1).unwrap_or(u64::MAX));
    }
    expect("capabilities asked for", &seen, &vec![CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE])?;
    Ok(format!("{} hits, pointers followed three levels", seen.len()))
}

pub(crate) fn chroot() -> io::Result<()> {
    let root = CString::new("/")?;
    syscall(libc::SYS_chroot, [root.as_ptr() as u64, 0, 0, 0, 0, 0]).map(drop)
}

fn read_secret(path: &CString) -> io::Result<()> {
    let fd = open(path)?;
    syscall(libc::SYS_close, [fd, 0, 0, 0, 0, 0]).map(drop)
}

fn subprogram_follows_a_pointer(target: &Target) -> Result<String, Failure> {
    need_body_and_copy(target)?;
    let object = load(std::process::id())?;
    need_rdonly_cast(target, &Attach::new(target), &program_of(&object, "subprogram")?)?;
    let _link = Attach::new(target).attach(&program_of(&object, "subprogram")?)?;
    let path = secret()?;
    let all = record(&object, || {
        chroot()?;
        read_secret(&path)
    })?;
    let seen: Vec<_> = all.iter().map(|hit| (hit.program, hit.kind, hit.value(0), hit.value(1))).collect();
    let at = |kind: SiteKind, cap: u64| (program::SUBPROGRAM, Some(kind as u32), Some(0), Some(cap));
    let wanted = vec![at(SiteKind::Body, CAP_SYS_CHROOT), at(SiteKind::Inline, CAP_DAC_READ_SEARCH)];
    expect("hits", &seen, &wanted)?;
    Ok("level 0 by a subprogram at a body and at an inlined copy".to_owned())
}

// Proves S6.1.
fn helpers_that_take_the_context(target: &Target) -> Result<String, Failure> {
    need_body_and_copy(target)?;
    let object = load(std::process::id())?;
    let link = Attach::with(target, AttachOptions::default().function("ns_capable"))
        .attach(&program_of(&object, "context")?)?;
    let path = secret()?;
    let all = record(&object, || {
        chroot()?;
        read_secret(&path)
    })?;
    expect("hits", &all.len(), &2)?;
    for hit in &all {
        let site = site_of(&link, hit)?;
        expect("bpf_get_func_ip", &hit.value(0), &Some(site.address))?;
        expect("bytes of bpf_get_stack", &hit.value(1), &Some(16))?;
        // The first frame is the site, the second its caller.
        let first = hit.value(2).unwrap_or_default();
        if !(site.address..site.address + 16).contains(&first) {
            return Err(format!("the stack begins at {first:#x}, the site is at {:#x}", site.address).into());
        }
        let caller = hit.value(3).unwrap_or_default();
        if caller == 0 || (site.address..site.address + 16).contains(&caller) {
            return Err(format!("the caller is {caller:#x}").into());
        }
    }
    Ok("function ip and stack at a body and at an inlined copy".to_owned())
}

// Proves S7.1, S7.2, S8.1.
fn cookie_and_site(target: &Target) -> Result<String, Failure> {
    const COOKIE: u64 = 0x1122_3344_5566_7788;
    need_body_and_copy(target)?;
    let object = load(std::process::id())?;
    let link = Attach::with(target, AttachOptions::default().function("ns_capable").cookie(COOKIE))
        .attach(&program_of(&object, "count")?)?;
    let path = secret()?;
    let all = record(&object, || {
        chroot()?;
        read_secret(&path)
    })?;
    expect("hits", &all.len(), &2)?;
    for hit in &all {
        expect("cookie", &hit.cookie, &COOKIE)?;
        let site = site_of(&link, hit)?;
        expect("address", &hit.address, &site.address)?;
        expect("kind", &hit.kind, &Some(site.kind as u32))?;
    }
    Ok("a 64-bit cookie, and the site's number, kind and address".to_owned())
}

// Proves S13.4.
fn nothing_fires_after_the_link(target: &Target) -> Result<String, Failure> {
    let object = load(std::process::id())?;
    let link =
        Attach::with(target, AttachOptions::default().function("ns_capable")).attach(&program_of(&object, "count")?)?;
    let before = record(&object, chroot)?.len();
    drop(link);
    let after = record(&object, chroot)?.len();
    expect("hits with and without the link", &(before, after), &(1, 0))?;
    Ok("one hit with the link, none without".to_owned())
}

/// Functions all of whose sites may have all arguments, with programs that read them all.
const ALL: [(&str, &str, usize); 2] = [("___bpf_copy_key", "copy_key_struct", 2), ("ksys_shmget", "shmget", 3)];

fn complete_attaches_all(target: &Target) -> Result<String, Failure> {
    let everything = |(function, _, parameters): &(&str, &str, usize)| {
        let all = Shape::new(function, [site(Place::Inline)]);
        (0..*parameters).fold(all, |all, nth| all.and_no(site(Place::Anywhere).without(nth).attachable_or_not()))
    };
    let (function, program, _) = choose(target, &ALL, everything)?;
    let object = load(std::process::id())?;
    let link = Attach::with(target, AttachOptions::default().policy(Policy::Complete))
        .attach(&program_of(&object, program)?)?;
    let (attached, all) = (link.report().attached().count(), target.function(function)?.candidates.len());
    expect("attached", &attached, &all)?;
    Ok(format!("{attached} of {all} sites of {function}()"))
}

// Proves S8.3.
fn complete_refuses_with_the_list(target: &Target) -> Result<String, Failure> {
    let lacking = Shape::new("ns_capable", [site(Place::Inline).within("capable").without(0)]);
    choose(target, &[lacking], Shape::clone)?;
    let object = load(std::process::id())?;
    let program = program_of(&object, "ns_capable")?;
    let refused = Attach::with(target, AttachOptions::default().policy(Policy::Complete)).attach(&program);
    let text = match refused {
        Ok(link) => return Err(format!("attached although a copy lacks an argument:\n{}", link.report().long()).into()),
        Err(error) => with_causes(&error),
    };
    if !(text.contains("capable+") && text.contains("ns")) {
        return Err(format!("the refusal does not name the site and the argument: {text}").into());
    }
    expect("hits after the refusal", &record(&object, chroot)?.len(), &0)?;
    Ok("names the copy in capable() and its missing argument".to_owned())
}

// Proves S9.3, S12.1, S12.2, S12.3.
fn what_the_kernel_does_not_run_is_counted(target: &Target) -> Result<String, Failure> {
    need(target, Capability::MissCounts)?;
    let hashed = Shape::new("jhash", [site(Place::Inline).within("hash")]);
    choose(target, &[hashed], Shape::clone)?;
    let object = load(std::process::id())?;
    let link =
        Attach::with(target, AttachOptions::default().function("jhash")).attach(&program_of(&object, "count")?)?;
    let bloom = ObjectBuilder::default().open_memory(BLOOM)?.load()?;
    let filter = bloom.maps().find(|map| MapCore::name(map) == "filter7").ok_or("no map filter7")?;
    let before = link.missed()?;
    // Three hash functions; bpf() updates maps with tracing switched off.
    let seen = record(&object, || filter.update(&[], &[1; 7], MapFlags::ANY).map_err(io::Error::other))?;
    expect("hits", &seen.len(), &0)?;
    expect("missed", &(link.missed()? - before), &3)?;
    Ok("3 calls under bpf() that no program may see, counted as missed".to_owned())
}

fn two_links_on_one_function(target: &Target) -> Result<String, Failure> {
    let object = load(std::process::id())?;
    let program = program_of(&object, "count")?;
    let first = Attach::with(target, AttachOptions::default().function("ns_capable").cookie(1)).attach(&program)?;
    let _second = Attach::with(target, AttachOptions::default().function("ns_capable").cookie(2)).attach(&program)?;
    let mut cookies: Vec<u64> = record(&object, chroot)?.iter().map(|hit| hit.cookie).collect();
    cookies.sort_unstable();
    expect("cookies of both", &cookies, &vec![1, 2])?;
    drop(first);
    let left: Vec<u64> = record(&object, chroot)?.iter().map(|hit| hit.cookie).collect();
    expect("cookies of the second alone", &left, &vec![2])?;
    Ok("each link by itself".to_owned())
}
