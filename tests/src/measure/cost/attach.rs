// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How long it takes to attach to and detach from many sites.
//!
//! Three ways to the same sites of the same function, with a program that does nothing: one perf kprobe and one link
//! per site, closed one after the other, as a loop around libbpf would do it; siteseer with a perf kprobe per site,
//! closed by several threads; siteseer as it is. siteseer's time is all of `Attach::attach`: planning, trampolines and
//! their verification included. The plain loop has its program loaded already. "Attached" is when the call has
//! returned, and so is "detached": nothing fires any more. What siteseer leaves to be removed after that is waited for
//! between the measurements, and its time is given. Beside them stands the kernel's part in every one of them: making
//! the same probes known to it, by writing them to tracefs, with nothing attached; and its part in siteseer's way:
//! writing the same lines as siteseer, by symbol, and opening the event, without a program.

use super::{Bench, Figure, load, perf, settle};
use crate::guest::case::Failure;
use libbpf_rs::{Object, Program};
use serde::{Deserialize, Serialize};
use siteseer::{Attach, AttachOptions, Mechanism, Outcome, Policy, SiteReport, Target};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A way to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A perf kprobe and a link per site, closed one after the other.
    Loop,
    /// siteseer with [`AttachOptions::bulk`] off.
    Each,
    /// siteseer.
    Bulk,
    /// Nothing is attached: the kernel is made to know the probes.
    Registered,
    /// No program is attached: the kernel is made to know the probes by symbol, and to arm them.
    Armed,
}

/// One attachment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attaching {
    /// The function.
    pub function: String,
    /// How.
    pub way: Way,
    /// Sites attached by kprobes.
    pub sites: usize,
    /// Seconds to attach.
    pub attach: f64,
    /// Seconds to detach.
    pub detach: f64,
    /// Seconds after that until no definition is left in tracefs.
    pub left: f64,
    /// Files that were open.
    pub files: usize,
}

/// How many sites the functions should have.
const AIMS: [u32; 9] = [1, 4, 16, 64, 128, 250, 500, 1000, 4000];
/// Beyond this the slower ways are not waited for.
const PATIENCE: usize = 1500;
/// As many functions are taken together.
const MOST: usize = 6;
/// Runs of each way at up to so many sites; one above.
const RUNS: [(usize, usize); 2] = [(300, 3), (1500, 2)];

pub(super) fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Waits until nothing of this process is defined in tracefs any more. Gives how long it took.
pub(crate) fn definitions_gone() -> Result<Duration, Failure> {
    let begin = Instant::now();
    let own = format!("_{}_", std::process::id());
    loop {
        let listing = fs::read_to_string("/sys/kernel/tracing/kprobe_events")?;
        if !listing.lines().any(|line| line.starts_with("p:siteseer_") && line.contains(&own)) {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > Duration::from_secs(300) {
            return Err("definitions are still in tracefs after five minutes".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub(crate) fn by_kprobe(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Attached { mechanism: Mechanism::Kprobe, .. })
}

/// A site.
struct Place {
    address: u64,
    /// By symbol.
    written: String,
}

/// What the kernel takes to know the probes, and, if the way says so, to arm them: one event with all of them, without
/// a program.
fn by_kernel(function: &str, places: &[Place], way: Way) -> Result<Attaching, Failure> {
    let mut file = OpenOptions::new().append(true).open("/sys/kernel/tracing/kprobe_events")?;
    let begin = Instant::now();
    let mut sites = 0;
    for (nth, Place { address, written }) in places.iter().enumerate() {
        // An argument that is a number tells probes at bare addresses apart.
        let line = match way {
            Way::Armed => format!("p:floor/e {written}\n"),
            _ => format!("p:floor/e {address:#x} n=\\{nth}\n"),
        };
        sites += usize::from(file.write_all(line.as_bytes()).is_ok());
    }
    let event = if way == Way::Armed && sites > 0 { Some(perf::event("floor/e")?) } else { None };
    let attach = begin.elapsed().as_secs_f64();
    drop(event);
    if sites > 0 {
        file.write_all(b"-:floor/e\n")?;
    }
    Ok(Attaching { function: function.to_owned(), way, sites, attach, detach: 0.0, left: 0.0, files: 0 })
}

fn by_siteseer(bench: &Bench<'_>, object: &Object, function: &str, bulk: bool) -> Result<Attaching, Failure> {
    let program = object.progs().find(|program| program.name() == "nothing").ok_or("no program nothing")?;
    let before = open_files();
    let begin = Instant::now();
    let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort).all_prototypes(true);
    let options = function.split(' ').fold(options.bulk(bulk), AttachOptions::function);
    let link = Attach::with(&bench.target, options).attach(&program)?;
    let attach = begin.elapsed().as_secs_f64();
    let files = open_files() - before;
    let sites = link.report().attached().filter(|site| by_kprobe(&site.outcome)).count();
    let begin = Instant::now();
    link.detach();
    let detach = begin.elapsed().as_secs_f64();
    let left = definitions_gone()?.as_secs_f64();
    let way = if bulk { Way::Bulk } else { Way::Each };
    Ok(Attaching { function: function.to_owned(), way, sites, attach, detach, left, files })
}

fn by_loop(object: &Object, function: &str, places: &[Place]) -> Result<Attaching, Failure> {
    let program = object.progs().find(|program| program.name() == "hand_nothing").ok_or("no program hand_nothing")?;
    let before = open_files();
    let begin = Instant::now();
    let mut links = Vec::new();
    for &Place { address, .. } in places {
        // What the kernel refuses here it refuses siteseer too.
        if let Ok(event) = perf::kprobe(address) {
            links.push(perf::link(program.as_fd(), &event, 0)?);
        }
    }
    let attach = begin.elapsed().as_secs_f64();
    let (files, sites) = (open_files() - before, links.len());
    let begin = Instant::now();
    for link in links {
        drop(link);
    }
    let detach = begin.elapsed().as_secs_f64();
    Ok(Attaching { function: function.to_owned(), way: Way::Loop, sites, attach, detach, left: 0.0, files })
}

/// Functions, and the places of their sites that kprobes are attached at.
pub(crate) struct Chosen {
    /// The functions.
    pub(crate) names: Vec<String>,
    places: Vec<Place>,
}

impl Chosen {
    /// The run-time addresses, in their order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.places.iter().map(|place| place.address)
    }
}

/// The functions of the site data and their numbers of sites, the largest first.
pub(crate) fn counts(target: &Target) -> Result<Vec<(String, u32)>, Failure> {
    let mut counts: Vec<(String, u32)> = target.data().read(&[], |file| {
        let counted = file.all_functions().flatten();
        counted.filter_map(|function| Some((function.name().to_owned(), function.site_count().ok()?))).collect()
    })?;
    // A name that several functions have is not one of them.
    counts.sort();
    counts.dedup_by(|a, b| a.0 == b.0);
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    Ok(counts)
}

/// The largest function that is not too large, and others until there are enough: sites that can be attached, by
/// kprobes, and that `wanted` accepts.
pub(crate) fn choose(
    target: &Target,
    program: &Program<'_>,
    counts: &[(String, u32)],
    aim: u32,
    wanted: impl Fn(&SiteReport) -> bool,
) -> Chosen {
    let (mut names, mut places): (Vec<String>, Vec<Place>) = (Vec::new(), Vec::new());
    for (name, count) in counts {
        let missing = (aim as usize).saturating_sub(places.len());
        if missing * 10 <= aim as usize || names.len() == MOST {
            break;
        }
        if *count as usize > missing + missing / 20 {
            continue;
        }
        let attach = Attach::with(
            target,
            AttachOptions::default()
                .max_sites(usize::MAX)
                .function(name)
                .policy(Policy::BestEffort)
                .all_prototypes(true),
        );
        let Ok(plan) = attach.plan(program) else { continue };
        let report = plan.report();
        let attached = report.attached().filter(|site| by_kprobe(&site.outcome) && wanted(site));
        let before = places.len();
        places.extend(
            attached.map(|site| Place { address: site.address, written: format!("{}+{}", site.symbol, site.offset) }),
        );
        // One that can be attached at few sites is passed over.
        if (places.len() - before) * 2 > *count as usize {
            names.push(name.clone());
        } else {
            places.truncate(before);
        }
    }
    places.sort_by_key(|place| place.address);
    places.dedup_by_key(|place| place.address);
    Chosen { names, places }
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let object = load()?;
    let counts = counts(&bench.target)?;
    let program = object.progs().find(|program| program.name() == "nothing").ok_or("no program nothing")?;
    for aim in AIMS {
        let Chosen { names, places } = choose(&bench.target, &program, &counts, aim, |_| true);
        if names.is_empty() {
            bench.say(&Figure::Note(format!("no function with about {aim} sites can be attached")))?;
            continue;
        }
        let name = names.join(" ");
        let runs = RUNS.iter().find(|(limit, _)| places.len() <= *limit).map_or(1, |(_, runs)| *runs);
        for _ in 0..runs {
            if places.len() <= PATIENCE {
                bench.say(&Figure::Attach(by_loop(&object, &name, &places)?))?;
                settle();
                bench.say(&Figure::Attach(by_siteseer(bench, &object, &name, false)?))?;
                settle();
            }
            bench.say(&Figure::Attach(by_siteseer(bench, &object, &name, true)?))?;
            settle();
            bench.say(&Figure::Attach(by_kernel(&name, &places, Way::Registered)?))?;
            settle();
            if places.len() <= PATIENCE {
                bench.say(&Figure::Attach(by_kernel(&name, &places, Way::Armed)?))?;
                settle();
            }
        }
    }
    Ok(())
}
