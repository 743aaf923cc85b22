// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One link for the addresses of many instructions: `kernels/patches/kprobe-multi-addresses.patch`.
//!
//! The patch is the prototype of what docs/proposal.md asks for. Here it must be right; `cost/links.rs` measures it.
//! siteseer attaches to the same sites and counts the same hits of this process: the counts of each site must be equal.
//! The calls of two functions are known besides.

use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Case, Failure, case, need};
use crate::guest::sharing;
use crate::guest::typed::{expect, program_of};
use crate::measure::cost::attach::{by_kprobe, choose, counts};
use crate::measure::cost::perf;
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder};
use siteseer::{Attach, AttachOptions, Link, Policy, SiteReport, Target};
use siteseer_bpf_progs::RAW;
use siteseer_sites::SiteKind;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many sites the cases attach together.
const SITES: u32 = 1000;
/// Functions with known calls ([`calls`]), each with one site that they lead to.
const KNOWN: [&str; 2] = ["setfl", "pipe_set_size"];
/// How often each of them is called.
const TIMES: u64 = 50;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![
        case("raw_link", "each_site_has_its_cookie_and_its_hits", each_site),
        case("raw_link", "one_bad_address_leaves_nothing", one_bad_address),
        case("raw_link", "links_come_and_go_at_the_same_sites", come_and_go),
    ]
}

/// Loads raw.bpf.c.
pub(crate) fn load() -> Result<Object, Failure> {
    Ok(ObjectBuilder::default().open_memory(RAW)?.load()?)
}

/// Whether a site is one for such a link: an inlined copy that ftrace's own instruction is not at.
pub(crate) fn is_wanted(site: &SiteReport) -> bool {
    // ENDBR has four bytes, and what ftrace patches comes after it.
    site.kind == SiteKind::Inline && site.offset > 4
}

/// Addresses in an order that is not theirs, each once.
fn shuffled(addresses: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut addresses: Vec<u64> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    let half = addresses.len() / 2;
    addresses[half..].reverse();
    addresses.rotate_left(half / 2);
    addresses
}

/// The link, with the index of each address as its cookie.
pub(crate) fn attach(object: &Object, program: &str, addresses: &[u64]) -> Result<OwnedFd, Failure> {
    let cookies: Vec<u64> = (0..addresses.len() as u64).collect();
    Ok(perf::kprobe_multi_raw(program_of(object, program)?.as_fd(), addresses, &cookies)?)
}

/// Those of the addresses that the kernel takes. One that is refused is found by halves.
pub(crate) fn accepted(object: &Object, addresses: &[u64]) -> Result<Vec<u64>, Failure> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    match perf::kprobe_multi_raw(program_of(object, "raw_nothing")?.as_fd(), addresses, &vec![0; addresses.len()]) {
        Ok(_) => Ok(addresses.to_vec()),
        Err(_) if addresses.len() == 1 => Ok(Vec::new()),
        Err(_) => {
            let (first, second) = addresses.split_at(addresses.len() / 2);
            Ok([accepted(object, first)?, accepted(object, second)?].concat())
        }
    }
}

fn map<'o>(object: &'o Object, name: &str) -> Result<Map<'o>, Failure> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| format!("no map {name}").into())
}

fn get(object: &Object, name: &str, index: u32) -> Result<u64, Failure> {
    let value = map(object, name)?.lookup(&index.to_ne_bytes(), MapFlags::ANY)?.ok_or("no such element")?;
    Ok(u64::from_ne_bytes(value.try_into().map_err(|_| "a count of another size")?))
}

fn put(object: &Object, name: &str, index: u32, value: u64) -> Result<(), Failure> {
    Ok(map(object, name)?.update(&index.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY)?)
}

/// Calls [`KNOWN`], each so many times, and what leads through many parts of the kernel.
fn calls(times: u64) -> io::Result<()> {
    let file = File::open("/")?;
    let mut ends = [0i32; 2];
    syscall(libc::SYS_pipe2, [ends.as_mut_ptr() as u64, 0, 0, 0, 0, 0])?;
    // SAFETY: The kernel has just given us these descriptors.
    let [reader, _writer] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    for nth in 0..times {
        sharing::calls()?;
        let flags = if nth % 2 == 0 { libc::O_NONBLOCK as u64 } else { 0 };
        syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_SETFL as u64, flags, 0, 0, 0])?;
        let size = procfs::page_size() << (nth % 2);
        syscall(libc::SYS_fcntl, [reader.as_raw_fd() as u64, libc::F_SETPIPE_SZ as u64, size, 0, 0, 0])?;
    }
    Ok(())
}

/// What was counted at the same sites by both.
#[derive(Debug)]
pub(crate) struct Hits {
    /// Sites with hits.
    pub(crate) sites: usize,
    /// Hits of all.
    pub(crate) hits: u64,
}

/// Has both count the same calls, and compares site by site. `link` is siteseer's, of the program `sites`.
fn compare(object: &Object, link: &Link, addresses: &[u64], times: u64) -> Result<Hits, Failure> {
    let by_address: BTreeMap<u64, &SiteReport> =
        link.report().attached().filter(|site| by_kprobe(&site.outcome)).map(|site| (site.address, site)).collect();
    for (nth, &address) in addresses.iter().enumerate() {
        put(object, "by_cookie", nth as u32, 0)?;
        put(object, "addresses", nth as u32, address)?;
    }
    for site in by_address.values() {
        put(object, "by_site", site.id, 0)?;
    }
    put(object, "control", 1, 0)?;
    put(object, "control", 0, u64::from(std::process::id()))?;
    calls(times)?;
    put(object, "control", 0, 0)?;
    let mut sum = Hits { sites: 0, hits: 0 };
    let mut known = 0;
    let is_known = |site: &SiteReport| {
        let of = link.report().functions.iter().find(|function| function.sites.iter().any(|other| other.id == site.id));
        of.is_some_and(|function| KNOWN.contains(&function.name.as_str()))
    };
    for (nth, address) in addresses.iter().enumerate() {
        let site = by_address.get(address).ok_or_else(|| format!("siteseer is not attached at {address:#x}"))?;
        let (ours, others) = (get(object, "by_cookie", nth as u32)?, get(object, "by_site", site.id)?);
        if ours != others {
            let place = format!("{}+{:#x}", site.symbol, site.offset);
            return Err(format!("{place}: {ours} hits by its cookie, {others} by siteseer").into());
        }
        sum.sites += usize::from(ours > 0);
        sum.hits += ours;
        if is_known(site) {
            known += ours;
        }
    }
    expect("hits with another bpf_get_func_ip() than the cookie's address", &get(object, "control", 1)?, &0)?;
    expect("hits of the functions with known calls", &known, &(times * KNOWN.len() as u64))?;
    Ok(sum)
}

/// Functions with so many sites together, [`KNOWN`] among them, and siteseer's options for them.
fn functions(target: &Target, object: &Object, aim: u32) -> Result<(AttachOptions, Vec<u64>), Failure> {
    let program = object.progs().find(|program| program.name() == "sites").ok_or("no program sites")?;
    let chosen = choose(target, &program, &counts(target)?, aim, is_wanted);
    let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort).all_prototypes(true);
    let options = chosen.names.iter().map(String::as_str).chain(KNOWN).fold(options, AttachOptions::function);
    let plan = Attach::with(target, options.clone()).plan(&program)?;
    let report = plan.report();
    let attached = report.attached().filter(|site| by_kprobe(&site.outcome) && is_wanted(site));
    let addresses = shuffled(attached.map(|site| site.address));
    Ok((options, accepted(object, &addresses)?))
}

/// Attaches to so many sites by both ways, and compares the hits of the same calls: the link is there before siteseer's
/// probes, and then comes after them.
pub(crate) fn check(target: &Target, aim: u32) -> Result<(usize, [Hits; 2]), Failure> {
    let object = load()?;
    let (options, addresses) = functions(target, &object, aim)?;
    let before = attach(&object, "raw", &addresses)?;
    let program = program_of(&object, "sites")?;
    let link = Attach::with(target, options).attach(&program)?;
    let first = compare(&object, &link, &addresses, TIMES)?;
    drop(before);
    let after = attach(&object, "raw", &addresses)?;
    let second = compare(&object, &link, &addresses, TIMES)?;
    drop(after);
    // Nothing runs any more, and siteseer's probes at the same instructions are still there.
    for nth in 0..addresses.len() {
        put(&object, "by_cookie", nth as u32, 0)?;
    }
    put(&object, "control", 0, u64::from(std::process::id()))?;
    calls(TIMES)?;
    put(&object, "control", 0, 0)?;
    for nth in 0..addresses.len() {
        expect("hits after the link was closed", &get(&object, "by_cookie", nth as u32)?, &0)?;
    }
    Ok((addresses.len(), [first, second]))
}

fn each_site(target: &Target) -> Result<String, Failure> {
    need(target, Capability::RawLink)?;
    let (sites, [first, second]) = check(target, SITES)?;
    if first.sites <= KNOWN.len() || second.sites <= KNOWN.len() {
        return Err(format!("too few sites were hit: {first:?}, {second:?}").into());
    }
    Ok(format!(
        "{sites} sites; before siteseer: {} hits at {} of them; after it: {} at {}",
        first.hits, first.sites, second.hits, second.sites
    ))
}

/// The probes that there are, without those that are disabled.
fn armed() -> Result<Vec<String>, Failure> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list")?;
    let mut lines: Vec<String> = list.lines().filter(|line| !line.contains("[DISABLED]")).map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// The address at the beginning of a line, with or without `0x`.
fn address_of(line: &str) -> Option<u64> {
    let word = line.split(|c: char| !c.is_ascii_hexdigit() && c != 'x').next()?;
    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok().filter(|&address| address != 0)
}

/// Each way to be wrong, one among many that are right.
fn one_bad_address(target: &Target) -> Result<String, Failure> {
    need(target, Capability::RawLink)?;
    let object = load()?;
    let (_, addresses) = functions(target, &object, SITES)?;
    let program = program_of(&object, "raw_nothing")?;
    let blacklist = fs::read_to_string("/sys/kernel/debug/kprobes/blacklist")?;
    let entries = fs::read_to_string("/sys/kernel/tracing/available_filter_functions_addrs")?;
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let of_symbol =
        |name: &str| symbols.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).and_then(address_of);
    // Such an address is inside of an instruction, whatever the instructions are.
    let inside = addresses
        .iter()
        .map(|address| address + 1)
        .find(|address| perf::kprobe(*address).is_err_and(|error| error.raw_os_error() == Some(libc::EILSEQ)));
    let inside = inside.ok_or("no site has an instruction of two bytes")?;
    let bad = [
        ("inside of an instruction", Some(inside), libc::EILSEQ),
        ("a function that may not be probed", blacklist.lines().find_map(address_of), libc::EINVAL),
        ("an entry that ftrace has", entries.lines().find_map(address_of), libc::EOPNOTSUPP),
        ("data", of_symbol("jiffies"), 0),
        ("user space", Some(0x40_0000), 0),
        ("an address twice", addresses.first().copied(), libc::EINVAL),
    ];
    let before = armed()?;
    for (what, address, errno) in bad {
        let address = address.ok_or_else(|| format!("there is no address for: {what}"))?;
        for at in [0, addresses.len() / 2, addresses.len()] {
            let mut all = addresses.clone();
            all.insert(at, address);
            match perf::kprobe_multi_raw(program.as_fd(), &all, &vec![0; all.len()]) {
                Ok(_) => return Err(format!("{what}: attached").into()),
                Err(error) if errno == 0 || error.raw_os_error() == Some(errno) => {}
                Err(error) => return Err(format!("{what}: {error}").into()),
            }
            expect(what, &armed()?, &before)?;
        }
    }
    let link = attach(&object, "raw_nothing", &addresses)?;
    expect("probes while the link is there", &armed()?.len(), &(before.len() + addresses.len()))?;
    drop(link);
    expect("probes after it", &armed()?, &before)?;
    Ok(format!("{} addresses, and one of each of {} bad ones: nothing stays", addresses.len(), bad.len()))
}

/// Links and kprobes at the same instructions, from several threads, while they are hit.
fn come_and_go(target: &Target) -> Result<String, Failure> {
    const THREADS: usize = 3;
    const ROUNDS: usize = 6;
    need(target, Capability::RawLink)?;
    let object = load()?;
    let (_, addresses) = functions(target, &object, 300)?;
    let before = armed()?;
    let program = program_of(&object, "raw_nothing")?;
    let (program, addresses, over) = (program.as_fd(), &addresses, &AtomicBool::new(false));
    let worked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || -> io::Result<()> {
                    for round in 0..ROUNDS {
                        // Overlapping parts.
                        let part = &addresses[(thread + round) * 7..];
                        drop(perf::kprobe_multi_raw(program, part, &vec![0; part.len()])?);
                        let events = part.iter().take(10).map(|address| perf::kprobe(*address));
                        drop(events.collect::<io::Result<Vec<_>>>()?);
                    }
                    Ok(())
                })
            })
            .collect();
        let caller = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                calls(10)?;
            }
            Ok::<_, io::Error>(())
        });
        let results: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        results
            .into_iter()
            .chain([caller.join()])
            .try_for_each(|result| result.map_err(|_| io::Error::other("panicked"))?)
    });
    worked?;
    // What the jump optimizer still holds, it gives back within a grace period.
    std::thread::sleep(std::time::Duration::from_secs(1));
    expect("probes that are left", &armed()?, &before)?;
    Ok(format!("{THREADS} threads, {ROUNDS} rounds each, {} addresses", addresses.len()))
}
