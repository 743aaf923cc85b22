// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Every site of a kernel, armed once under load, on a kernel that looks for its own faults: `ci/armed`.
//!
//! A breakpoint in the wrong place stops a kernel. siteseer's promise is that each site of a plan may be armed, so all
//! of them are: those that a plan for each function attaches to (`places`), in batches, while threads lead through as
//! much of the kernel as they can (`load`). Inlined copies are armed by one link for a batch
//! (`kernels/patches/kprobe-multi-addresses.patch`), because the kernel's own way takes hours for all of them. Entries
//! are armed by kprobe.multi, as siteseer does it. Before each batch, a line of the kernel's log says which sites it
//! has: what the kernel prints after it, or its death, is about these.
//!
//! siteseer itself attaches to some of the functions, and to one again and again while another allocation of the kernel
//! fails each time (`own`).
//!
//! Faults on purpose show that a fault is found ([`plant`]).
//!
//! The suite arms a part of the entries of Debian's kernel, and attaches to a few functions.

mod load;
mod own;
pub mod page;
mod places;
pub mod plant;

use crate::guest::case::{Case, Failure, case};
use crate::guest::inventory::Inventory;
use crate::guest::removal;
use crate::guest::typed::program_of;
use crate::measure::cost::perf;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use load::Load;
use places::{Place, Places};
use serde::{Deserialize, Serialize};
use siteseer::{SourceOptions, Target};
use siteseer_bpf_progs::ARMED;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Places of a batch.
const BATCH: usize = 1000;
/// How long a batch stays armed.
const ARMED_FOR: Duration = Duration::from_millis(300);

/// Functions that siteseer attaches to under load.
const OWN: usize = 40;
/// The suite's part: one function in so many, and these functions under load.
const PART: usize = 32;
const PART_OWN: usize = 4;

/// What the kernel's log has before memory is denied for the first time.
pub const FIRST_DENIED: &str = "siteseer: allocation 1 of attaching";

/// How many sites share a fate, and one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// How many.
    pub count: usize,
    /// Why, in a sentence.
    pub why: String,
    /// One of them.
    pub example: String,
}

/// Counts by a key.
pub type Tally = BTreeMap<String, Counted>;

fn add(tally: &mut Tally, key: &str, why: impl FnOnce() -> (String, String)) {
    let counted = tally.entry(key.to_owned()).or_insert_with(|| {
        let (why, example) = why();
        Counted { count: 0, why, example }
    });
    counted.count += 1;
}

/// What was armed in one way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Places that plans attach to. Several sites may share one.
    pub places: usize,
    /// Those that were armed.
    pub armed: usize,
    /// Those that were hit meanwhile.
    pub hit: usize,
    /// How often.
    pub hits: u64,
    /// Those that the kernel refused, by its error.
    pub refused: Tally,
}

/// The outcome of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// Functions of the site data.
    pub functions: usize,
    /// Sites of these.
    pub sites: usize,
    /// Sites that no plan attaches to, by reason.
    pub skipped: Tally,
    /// Entries, by ftrace.
    pub entries: Way,
    /// Instructions, by breakpoints.
    pub instructions: Way,
    /// What siteseer attached itself.
    pub own: own::Own,
    /// The same while an allocation of the kernel failed.
    pub failing: own::Failing,
    /// How often each thing was done meanwhile.
    pub load: Vec<(String, u64)>,
    /// Seconds of the guest's clock.
    pub seconds: u64,
}

/// A line of the kernel's log, so that what follows it has a place.
pub(super) fn mark(text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open("/dev/kmsg")?.write_all(format!("siteseer: {text}\n").as_bytes())
}

/// A run over the places with these numbers, or over all of them; the outcome is a line of JSON.
///
/// # Errors
/// If the kernel cannot be used, or if something is left in the end.
pub fn run(range: Option<Range<usize>>, out: &mut dyn Write) -> Result<(), Failure> {
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    let begin = Instant::now();
    let target = Target::running(&SourceOptions::default())?;
    let Places { functions, sites, skipped, mut entries, mut instructions } = places::of_each(&target, 1)?;
    if let Some(range) = range {
        let end = range.end.min(instructions.len());
        instructions = instructions.drain(range.start.min(end)..end).collect();
        entries.clear();
    }
    let mut armed = Armed { functions, sites, skipped, ..Armed::default() };
    mark(&format!("{} entries and {} instructions of {sites} sites", entries.len(), instructions.len()))?;
    own::once(&target)?;
    let before = Inventory::settled()?;
    let load = Load::begin()?;
    armed.entries = arm("entries", &entries, false)?;
    armed.instructions = arm("instructions", &instructions, true)?;
    armed.own = own::under_load(&target, OWN)?;
    armed.load = load.end()?;
    armed.failing = own::without_memory(&target)?;
    armed.seconds = begin.elapsed().as_secs();
    // What was armed is worth an hour: it is told whatever is left now.
    writeln!(out, "{}", serde_json::to_string(&armed)?)?;
    removal::wait()?;
    before.without_memory().compare()?;
    Ok(())
}

/// The suite's case.
pub fn cases() -> Vec<Case> {
    vec![case("armed", "a_part_of_all_sites_under_load", part)]
}

fn part(target: &Target) -> Result<String, Failure> {
    let Places { functions, entries, .. } = places::of_each(target, PART)?;
    own::once(target)?;
    let before = Inventory::settled()?;
    let load = Load::begin()?;
    let way = arm("entries", &entries, false)?;
    let own = own::under_load(target, PART_OWN)?;
    load.end()?;
    removal::wait()?;
    before.without_memory().compare()?;
    if way.armed < way.places {
        return Err(format!("{} of {} entries were armed: {:?}", way.armed, way.places, way.refused).into());
    }
    Ok(format!(
        "{functions} functions planned, {} entries armed, {} of them hit; {} sites of {} functions attached by siteseer",
        way.armed, way.hit, own.sites, own.functions
    ))
}

/// Arms places batch by batch.
struct Arming<'o> {
    object: &'o Object,
    /// By breakpoints.
    raw: bool,
    way: Way,
}

fn arm(what: &str, places: &[Place], raw: bool) -> Result<Way, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(ARMED)?;
    let mut hits = open.maps_mut().find(|map| map.name() == "hits").ok_or("no map of hits")?;
    hits.set_max_entries(u32::try_from(places.len().max(1))?)?;
    let object = open.load()?;
    let mut arming = Arming { object: &object, raw, way: Way { places: places.len(), ..Way::default() } };
    let batches = places.len().div_ceil(BATCH);
    for (nth, batch) in places.chunks(BATCH).enumerate() {
        if let [first, .., last] | [first @ last] = batch {
            let of = format!("{} of {batches}", nth + 1);
            mark(&format!("{what} from {}, {of}: {} to {}", nth * BATCH, first.name, last.name))?;
        }
        let cookies: Vec<u64> = (nth * BATCH..).take(batch.len()).map(|number| number as u64).collect();
        arming.batch(batch, &cookies)?;
    }
    arming.count()
}

impl Arming<'_> {
    fn link(&self, places: &[Place], cookies: &[u64]) -> Result<io::Result<OwnedFd>, Failure> {
        let program = program_of(self.object, "armed")?;
        let addresses: Vec<u64> = places.iter().map(|place| place.address).collect();
        Ok(if self.raw {
            perf::kprobe_multi_raw(program.as_fd(), &addresses, cookies)
        } else {
            perf::kprobe_multi_all(program.as_fd(), &addresses, cookies)
        })
    }

    /// One place that the kernel refuses makes it refuse all of a link, and is found by halves.
    fn batch(&mut self, places: &[Place], cookies: &[u64]) -> Result<(), Failure> {
        match self.link(places, cookies)? {
            Ok(link) => {
                std::thread::sleep(ARMED_FOR);
                drop(link);
                self.way.armed += places.len();
            }
            Err(error) if places.len() == 1 => {
                let key = error.raw_os_error().map_or_else(|| "?".to_owned(), errno);
                add(&mut self.way.refused, &key, || (error.to_string(), places[0].name.clone()));
            }
            Err(_) => {
                let middle = places.len() / 2;
                self.batch(&places[..middle], &cookies[..middle])?;
                self.batch(&places[middle..], &cookies[middle..])?;
            }
        }
        Ok(())
    }

    /// Reads what was hit.
    fn count(mut self) -> Result<Way, Failure> {
        let hits = self.object.maps().find(|map| map.name() == "hits").ok_or("no map of hits")?;
        let mut counted = 0;
        for (_, value) in hits.lookup_batch(BATCH as u32, MapFlags::ANY, MapFlags::ANY)? {
            counted += 1;
            let count = u64::from_ne_bytes(value.try_into().map_err(|_| "a count of another size")?);
            self.way.hit += usize::from(count > 0);
            self.way.hits += count;
        }
        // The iterator ends at an error as it does at the end.
        let expected = self.way.places.max(1);
        if counted != expected {
            return Err(format!("hits of {counted} places, not of {expected}").into());
        }
        Ok(self.way)
    }
}

/// The name of an error of the kernel, if it is one of those that probes get.
fn errno(number: i32) -> String {
    let name = match number {
        libc::EINVAL => "EINVAL",
        libc::EILSEQ => "EILSEQ",
        libc::ENOENT => "ENOENT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EBUSY => "EBUSY",
        libc::ENOMEM => "ENOMEM",
        other => return other.to_string(),
    };
    name.to_owned()
}
