// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What stands for an attachment: as long as it lives, the program runs at every site.
//!
//! Everything that arms a site is a file descriptor that the link owns, so a process that is killed leaves nothing
//! armed. (What it may leave is the definition of an event in tracefs, which does nothing, and which the next process
//! removes.) Detaching takes the programs away and waits until none runs; disarming events of tracefs and removing their
//! definitions is then left to a short-lived process ([`crate::attach`]). Closing the descriptor of one kprobe, or of one event with many, waits for RCU grace periods, a few dozen
//! milliseconds; many are closed by several threads, whose waits overlap in part.

use crate::attach::{Definition, KeptFiles, missed_at_events, remove_all, wait_for_programs};
use crate::bpf::call::check;
use crate::bpf::map;
use crate::bpf::objects::{link_info, program_info};
use crate::kernel::sysfs;
use crate::plan::report::{Report, SiteReport};
use crate::target::bpf_program::{self, TailSlot};
use libbpf_sys as sys;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The most threads that close descriptors.
const CLOSERS: usize = 32;
/// Fewer are closed one after the other.
const FEW: usize = 4;

/// A program attached to every site of its functions. Dropping it detaches all of them.
#[derive(Debug)]
#[must_use = "dropping the link detaches the program"]
pub struct Link {
    /// What runs the programs at the sites.
    pub(crate) armed: Vec<OwnedFd>,
    /// Events of tracefs, which are armed until they are undone.
    pub(crate) definitions: Vec<Definition>,
    /// The trampolines' programs.
    pub(crate) programs: Vec<OwnedFd>,
    /// The map of sites, if the program asks which site it is at.
    pub(crate) site_map: Option<OwnedFd>,
    /// Counts calls whose arguments could not be read.
    pub(crate) fault_map: OwnedFd,
    pub(crate) report: Report,
    /// The number after its own sites in the report, to which those of later links are added.
    pub(crate) end_id: u32,
    /// The modules that it has sites in, and which loading of each.
    pub(crate) modules: Vec<(Arc<str>, u64)>,
    /// The modules that were looked through for sites.
    pub(crate) known: BTreeMap<String, u64>,
    /// What was added when modules had been loaded: see [`Attach::refresh`](crate::Attach::refresh).
    pub(crate) later: Vec<Link>,
    /// How long the programs took to load.
    pub(crate) loading: Duration,
    /// How long the sites took to arm.
    pub(crate) arming: Duration,
    /// It needs more files than the application may have had open.
    pub(crate) _files: KeptFiles,
}

/// Sites that went away with their module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The module.
    pub module: Arc<str>,
    /// Whether a module of that name is loaded again, and the program does not run in it, wherever it lies.
    pub loaded_again: bool,
    /// The sites, by their numbers in the report.
    pub sites: Vec<u32>,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gone { module, loaded_again, sites } = self;
        let count = sites.len();
        write!(f, "module {module} was unloaded, and {count} site{} with it", if count == 1 { "" } else { "s" })?;
        if *loaded_again { f.write_str("; it is loaded again, and not attached") } else { Ok(()) }
    }
}

/// What a link takes of the machine, and what it took to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Programs loaded: one per location prototype and mechanism, or fewer ([`Attach::share_beyond`](crate::Attach::share_beyond)).
    pub programs: usize,
    /// Machine code that the kernel made of them, in bytes (`bpf_prog_info.jited_prog_len`); 0 without a JIT.
    pub jited: u64,
    /// Files that it keeps open.
    pub files: usize,
    /// From the first program's trampoline generated to the last program verified.
    pub loading: Duration,
    /// From the first site armed to the last.
    pub arming: Duration,
}

impl Link {
    /// What became of every site.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How many programs were loaded.
    pub fn programs(&self) -> usize {
        self.programs.len() + self.later.iter().map(Link::programs).sum::<usize>()
    }

    /// The sites that are gone, because the modules that held them were unloaded. A module with a site that goes by fentry,
    /// tracing-multi or (Linux 6.2) kprobe.multi cannot be unloaded; kprobes go with their module. All other sites are as they
    /// were, and the link is detached as any.
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn gone(&self) -> io::Result<Vec<Gone>> {
        let links = || std::iter::once(self).chain(&self.later);
        let mut all = Vec::new();
        for link in links() {
            for (module, instance) in &link.modules {
                let now = sysfs::instance(Path::new(sysfs::SYSFS), module)?;
                if now == Some(*instance) {
                    continue;
                }
                // Of the whole report the later links' sites are theirs.
                let here = |site: &&SiteReport| site.module.as_ref() == Some(module) && site.id < link.end_id;
                let sites = link.report.attached().filter(here).map(|site| site.id).collect();
                let covered = |now| links().any(|link| link.modules.contains(&(Arc::clone(module), now)));
                let loaded_again = now.is_some_and(|now| !covered(now));
                all.push(Gone { module: Arc::clone(module), loaded_again, sites });
            }
        }
        Ok(all)
    }

    /// The modules that were loaded since the link was made: whether the function has copies in them is not known before
    /// [`Attach::refresh`](crate::Attach::refresh).
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn unseen_modules(&self) -> io::Result<Vec<String>> {
        let now = sysfs::all()?.into_iter();
        Ok(now.filter(|(name, instance)| self.known.get(name) != Some(instance)).map(|(name, _)| name).collect())
    }

    /// What the link takes of the machine.
    ///
    /// # Errors
    /// If the kernel does not give information on a program.
    pub fn cost(&self) -> io::Result<Cost> {
        let jited = self.programs.iter().map(|program| Ok(u64::from(program_info(program.as_fd())?.jited_prog_len)));
        let mut cost = Cost {
            programs: self.programs.len(),
            jited: jited.sum::<io::Result<u64>>()?,
            files: self.armed.len()
                + self.definitions.len()
                + self.programs.len()
                + usize::from(self.site_map.is_some())
                + 1,
            loading: self.loading,
            arming: self.arming,
        };
        for later in &self.later {
            let more = later.cost()?;
            cost.programs += more.programs;
            cost.jited += more.jited;
            cost.files += more.files;
            cost.loading += more.loading;
            cost.arming += more.arming;
        }
        Ok(cost)
    }

    /// How many calls the program missed because an argument that it reads lay in memory that could not be read.
    ///
    /// # Errors
    /// If the kernel does not give the counter.
    pub fn faults(&self) -> io::Result<u64> {
        // SAFETY: plain call.
        let cpus = check(unsafe { sys::libbpf_num_possible_cpus() })?;
        let mut counts = vec![0u64; usize::try_from(cpus).unwrap_or(0)];
        // SAFETY: the kernel writes 8 bytes per possible CPU.
        unsafe { map::lookup(self.fault_map.as_fd(), 0, &mut counts) }?;
        let later = self.later.iter().map(Link::faults).sum::<io::Result<u64>>()?;
        Ok(counts.iter().sum::<u64>() + later)
    }

    /// How many hits the kernel did not run the program for: where it switches BPF tracing off (inside of `bpf()` map
    /// operations), or is in a tracing program already (`bpf_prog_active`, kernel/trace/bpf_trace.c; for fentry and fexit, in
    /// this very program); where a kprobe is hit while another one is being handled; and how many returns, because more calls
    /// were pending than it keeps track of. Kernels count them since Linux 6.7 (fentry and fexit: 5.12; kprobes that
    /// tracefs lists: always); of an older one the answer is 0 whatever was missed.
    ///
    /// # Errors
    /// If the kernel does not give a counter.
    pub fn missed(&self) -> io::Result<u64> {
        let misses = |program: &OwnedFd| program_info(program.as_fd()).map(|info| info.recursion_misses);
        let by_programs: u64 = self.programs.iter().map(misses).sum::<io::Result<u64>>()?;
        let by_links = missed_by(&self.armed, &self.definitions)?;
        let later = self.later.iter().map(Link::missed).sum::<io::Result<u64>>()?;
        Ok(by_programs + by_links + later)
    }

    /// From where the functions of BPF programs that it is attached to are entered by tail call, and not seen: what prog arrays
    /// hold now. The report has what they held when it was attached; programs may be put there at any time.
    ///
    /// # Errors
    /// If the machine's maps cannot be looked through (which takes CAP_SYS_ADMIN).
    pub fn tail_slots(&self) -> io::Result<Vec<TailSlot>> {
        let targets = self.report.attached().filter_map(|site| site.bpf.as_ref()).filter(|bpf| !bpf.subprogram);
        let programs: Vec<u32> = targets.map(|bpf| bpf.program).collect();
        if programs.is_empty() { Ok(Vec::new()) } else { bpf_program::tail_slots(&programs) }
    }

    /// Detaches all sites; when it returns, the program runs no more. What `drop` does.
    pub fn detach(self) {
        drop(self);
    }
}

/// How many hits did not get as far as a program, by the links and the events that some of them are on.
pub(crate) fn missed_by<'d>(
    links: &[OwnedFd],
    definitions: impl IntoIterator<Item = &'d Definition>,
) -> io::Result<u64> {
    let (mut at_kprobes, mut others) = (0, 0);
    for link in links {
        match missed_by_link(link)? {
            Missed::AtKprobe(count) => at_kprobes += count,
            Missed::Elsewhere(count) => others += count,
        }
    }
    // Of an event with many probes the link tells the first one's, which tracefs tells too.
    let events = missed_at_events(definitions)?;
    Ok(others + events.all + at_kprobes.saturating_sub(events.first))
}

enum Missed {
    AtKprobe(u64),
    Elsewhere(u64),
}

/// How many hits of a link did not get as far as a program.
fn missed_by_link(link: &OwnedFd) -> io::Result<Missed> {
    let info = link_info(link.as_fd())?;
    let about = info.__bindgen_anon_1;
    // SAFETY: the kernel says which member it has filled, and any bytes are a value of each.
    Ok(unsafe {
        match info.type_ {
            sys::BPF_LINK_TYPE_KPROBE_MULTI => Missed::Elsewhere(about.kprobe_multi.missed),
            sys::BPF_LINK_TYPE_PERF_EVENT => match about.perf_event.type_ {
                sys::BPF_PERF_EVENT_KRETPROBE => Missed::Elsewhere(about.perf_event.__bindgen_anon_1.kprobe.missed),
                sys::BPF_PERF_EVENT_KPROBE => Missed::AtKprobe(about.perf_event.__bindgen_anon_1.kprobe.missed),
                _ => Missed::Elsewhere(0),
            },
            _ => Missed::Elsewhere(0),
        }
    })
}

impl Drop for Link {
    fn drop(&mut self) {
        close_all(std::mem::take(&mut self.armed));
        let mut definitions = std::mem::take(&mut self.definitions);
        if !definitions.is_empty() && wait_for_programs().is_err() {
            // To close an event is to wait, too, however long it takes.
            definitions.iter_mut().for_each(|definition| drop(definition.take_event()));
        }
        remove_all(definitions);
    }
}

/// Closes descriptors, many of them from several threads.
pub(crate) fn close_all(mut descriptors: Vec<OwnedFd>) {
    if descriptors.len() <= FEW {
        return;
    }
    let each = descriptors.len().div_ceil(CLOSERS).max(1);
    thread::scope(|scope| {
        while !descriptors.is_empty() {
            let part = descriptors.split_off(descriptors.len().saturating_sub(each));
            // Where no thread can be had, the part is closed here: a closure that is not run is dropped.
            let _ = thread::Builder::new().spawn_scoped(scope, move || drop(part));
        }
    });
}
