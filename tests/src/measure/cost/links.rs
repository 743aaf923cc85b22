// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One link for many addresses, beside today's ways to the same sites: times, files and memory.
//!
//! The kernel is one with `kernels/patches/kprobe-multi-addresses.patch`. The programs do nothing. All of them except
//! siteseer's are loaded before. The sites are those that the kernel accepts, so that each way attaches the same ones.
//! The kernel gets time to settle between the measurements, and before its memory is read. What a way holds is what
//! grew in the slabs, in vmalloc and in the memory of each CPU (`/proc/meminfo`), in whole pages. User space is not
//! counted.

use super::attach::{by_kprobe, choose, counts, definitions_gone, open_files};
use super::{Bench, Figure, load, perf, settle};
use crate::guest::case::Failure;
use crate::guest::raw_link::{self, accepted, is_wanted};
use libbpf_rs::Object;
use serde::{Deserialize, Serialize};
use siteseer::sites::btf::{Btf, Kind};
use siteseer::{Attach, AttachOptions, Policy};
use std::fs;
use std::os::fd::AsFd;
use std::time::Instant;

/// A way to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A perf kprobe and a link for each site, closed one after the other.
    Each,
    /// The same while the kernel does not optimize kprobes (`debug.kprobes-optimization`).
    EachUnoptimized,
    /// siteseer.
    Siteseer,
    /// One link.
    One,
}

impl Way {
    /// In the order of the table.
    pub const ALL: [Way; 4] = [Way::Each, Way::EachUnoptimized, Way::Siteseer, Way::One];

    /// For the table.
    pub fn name(self) -> &'static str {
        match self {
            Way::Each => "a link each",
            Way::EachUnoptimized => "a link each, no optimizer",
            Way::Siteseer => "siteseer",
            Way::One => "one link (patch)",
        }
    }
}

/// One attachment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Linked {
    /// How many sites there should be.
    pub aim: u32,
    /// How many functions they are of.
    pub functions: usize,
    /// How.
    pub way: Way,
    /// Sites that were attached.
    pub sites: usize,
    /// Seconds to attach.
    pub attach: f64,
    /// Seconds to detach.
    pub detach: f64,
    /// Seconds after that until no definition is left in tracefs.
    pub left: f64,
    /// Files that were open.
    pub files: usize,
    /// By how many kB the kernel's memory grew.
    pub memory: i64,
}

/// What else is known of the link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Links {
    /// Structures that a kprobe has, and their bytes.
    pub sizes: Vec<(String, u32)>,
    /// Sites at which hits were compared, and hits: the link before siteseer, and after it.
    pub checked: Option<(usize, [u64; 2])>,
}

/// How many sites there should be.
pub const AIMS: [u32; 5] = [1, 10, 100, 1000, 4000];
/// Beyond this the slower ways are not waited for.
const PATIENCE: usize = 1500;
/// Runs of each way at up to so many sites; one above.
const RUNS: [(usize, usize); 2] = [(150, 3), (1500, 1)];
/// How many sites hits are compared at.
const CHECKED: u32 = 1000;
/// Structures of the kernel: what there is for each site in some of the ways.
const STRUCTURES: [&str; 6] =
    ["kprobe", "optimized_kprobe", "trace_kprobe", "perf_event", "bpf_perf_link", "bpf_kprobe_multi_raw"];
/// What of `/proc/meminfo` is the kernel's.
const MEMORY: [&str; 3] = ["Slab", "VmallocUsed", "Percpu"];

/// kB of the kernel's.
fn memory() -> Result<i64, Failure> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let value = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        MEMORY.contains(&name).then(|| rest.trim().trim_end_matches(" kB").parse::<i64>().ok())?
    };
    let values: Vec<i64> = text.lines().filter_map(value).collect();
    match values.len() == MEMORY.len() {
        true => Ok(values.iter().sum()),
        false => Err(format!("/proc/meminfo does not have all of {}", MEMORY.join(", ")).into()),
    }
}

/// Whether the kernel makes jumps of breakpoints.
fn optimize(yes: bool) -> Result<(), Failure> {
    Ok(fs::write("/proc/sys/debug/kprobes-optimization", if yes { "1" } else { "0" })?)
}

/// Measures one way. `attach` returns what holds the sites, and how many they are.
fn measured<H>(
    aim: u32,
    functions: usize,
    way: Way,
    attach: impl FnOnce() -> Result<(H, usize), Failure>,
    detach: impl FnOnce(H),
) -> Result<Linked, Failure> {
    settle();
    let (held, open) = (memory()?, open_files());
    let begin = Instant::now();
    let (link, sites) = attach()?;
    let seconds = begin.elapsed().as_secs_f64();
    let files = open_files() - open;
    settle();
    let memory = memory()? - held;
    let begin = Instant::now();
    detach(link);
    let detach = begin.elapsed().as_secs_f64();
    let left = if way == Way::Siteseer { definitions_gone()?.as_secs_f64() } else { 0.0 };
    Ok(Linked { aim, functions, way, sites, attach: seconds, detach, left, files, memory })
}

fn by_each(object: &Object, addresses: &[u64], aim: u32, functions: usize, way: Way) -> Result<Linked, Failure> {
    let program = object.progs().find(|program| program.name() == "hand_nothing").ok_or("no program hand_nothing")?;
    let attach = || {
        let link = |&address| perf::link(program.as_fd(), &perf::kprobe(address)?, 0);
        let links = addresses.iter().map(link).collect::<Result<Vec<_>, _>>()?;
        let sites = links.len();
        Ok((links, sites))
    };
    optimize(way == Way::Each)?;
    let measured = measured(aim, functions, way, attach, |links| links.into_iter().for_each(drop));
    optimize(true)?;
    measured
}

fn one_after_the_other(bench: &Bench<'_>, object: &Object, raw: &Object, aim: u32) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let program = object.progs().find(|program| program.name() == "nothing").ok_or("no program nothing")?;
    let chosen = choose(&bench.target, &program, &counts(&bench.target)?, aim, is_wanted);
    let addresses: Vec<u64> = chosen.addresses().collect();
    let addresses = accepted(raw, &addresses)?;
    if addresses.is_empty() {
        return Ok(vec![Figure::Note(format!("no function with about {aim} sites can be attached"))]);
    }
    let functions = chosen.names.len();
    let runs = RUNS.iter().find(|(limit, _)| addresses.len() <= *limit).map_or(1, |(_, runs)| *runs);
    for _ in 0..runs {
        if addresses.len() <= PATIENCE {
            for way in [Way::Each, Way::EachUnoptimized] {
                figures.push(Figure::Linked(by_each(object, &addresses, aim, functions, way)?));
            }
        }
        let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort).all_prototypes(true);
        let options = chosen.names.iter().fold(options, AttachOptions::function);
        let attach = || {
            let link = Attach::with(&bench.target, options).attach(&program)?;
            let sites = link.report().attached().filter(|site| by_kprobe(&site.outcome)).count();
            Ok((link, sites))
        };
        let figure = measured(aim, functions, Way::Siteseer, attach, siteseer::Link::detach)?;
        figures.push(Figure::Linked(figure));
        let attach = || Ok((raw_link::attach(raw, "raw_nothing", &addresses)?, addresses.len()));
        figures.push(Figure::Linked(measured(aim, functions, Way::One, attach, drop)?));
    }
    Ok(figures)
}

/// Bytes of a kernel's structure.
fn sizes(bench: &Bench<'_>) -> Result<Vec<(String, u32)>, Failure> {
    let data = bench.target.kernel().btf.as_deref().ok_or("the kernel has no BTF")?;
    let btf = Btf::parse(data)?;
    let size = |name: &&str| Some(((*name).to_owned(), btf.find(Kind::Struct, name)?.size()?));
    Ok(STRUCTURES.iter().filter_map(size).collect())
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let (object, raw) = (load()?, raw_link::load()?);
    let sizes = sizes(bench)?;
    let (sites, [before, after]) = raw_link::check(&bench.target, CHECKED)?;
    let checked = Some((sites, [before.hits, after.hits]));
    let mut figures = vec![Figure::Links(Links { sizes, checked })];
    for aim in AIMS {
        figures.extend(one_after_the_other(bench, &object, &raw, aim)?);
    }
    // The guest's port loses bytes while the kernel is busy with thousands of probes.
    for figure in &figures {
        settle();
        bench.say(figure)?;
    }
    Ok(())
}
