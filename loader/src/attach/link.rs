// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What stands for an attachment: as long as it lives, the program runs at every site.
//!
//! A link has a part for each time that a plan was carried out for it: when it was made, and when it was refreshed
//! because modules had been loaded. A part owns what arms its sites (`Armed`), which alone has to be undone, and what
//! can be asked about them.

use super::AttachError;
use super::armed::Armed;
use super::limits::KeptFiles;
use super::switches::{Reliance, Switches};
use super::unanswered::{COST, FAULTS, LIVE_PATCHES, MISSED, MODULES, TAIL_SLOTS, unanswered};
use crate::bpf::call::check;
use crate::bpf::map;
use crate::bpf::objects::{open_program, program_info};
use crate::kernel::sysfs;
use crate::plan::report::{Report, SiteReport};
use crate::target::bpf_program::{self, TailSlot};
use crate::target::livepatch::{Concern, LivePatches};
use libbpf_sys as sys;
use siteseer_sites::SiteKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A program attached to every site of its functions. Dropping it detaches all of them.
#[derive(Debug)]
#[must_use = "dropping the link detaches the program"]
pub struct Link {
    /// In the order in which they were added; there is always one.
    parts: Vec<Part>,
    report: Report,
    /// The modules that were looked through for sites.
    known: BTreeMap<String, u64>,
    /// What was said in its report by whoever made it.
    said: Vec<String>,
}

/// What came of carrying one plan out.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) armed: Armed,
    /// The trampolines' programs.
    pub(super) programs: Vec<OwnedFd>,
    /// Those that whoever owns what arms the sites holds.
    pub(super) given: Vec<Given>,
    /// The map of sites, if the program asks which site it is at.
    pub(super) site_map: Option<OwnedFd>,
    /// Counts calls whose arguments could not be read.
    pub(super) fault_map: OwnedFd,
    /// The numbers of its sites in the link's report.
    pub(super) ids: std::ops::Range<u32>,
    /// The modules that it has sites in, and which loading of each.
    pub(super) modules: Vec<(Arc<str>, u64)>,
    /// How long the programs took to load.
    pub(super) loading: Duration,
    /// How long the sites took to arm.
    pub(super) arming: Duration,
    /// What its programs run by that may be switched off.
    pub(super) reliance: Reliance,
    /// What is to be known about how it was armed: sentences for people.
    pub(super) notes: Vec<String>,
    /// It needs more files than the application may have had open.
    pub(super) _files: KeptFiles,
}

/// A program that somebody else holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    id: u32,
    jited: u32,
}

impl Part {
    /// Gives its programs away.
    fn give_programs(&mut self) -> io::Result<Vec<OwnedFd>> {
        for program in &self.programs {
            let info = program_info(program.as_fd())?;
            self.given.push(Given { id: info.id, jited: info.jited_prog_len });
        }
        Ok(std::mem::take(&mut self.programs))
    }

    fn count(&self) -> usize {
        self.programs.len() + self.given.len()
    }

    /// Whether a module that it has sites in was unloaded.
    pub(super) fn has_lost_a_module(&self) -> io::Result<bool> {
        for (module, instance) in &self.modules {
            if sysfs::instance(Path::new(sysfs::SYSFS), module)? != Some(*instance) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn cost(&self) -> io::Result<Cost> {
        let jited = self.programs.iter().map(|program| Ok(u64::from(program_info(program.as_fd())?.jited_prog_len)));
        let of_given: u64 = self.given.iter().map(|given| u64::from(given.jited)).sum();
        Ok(Cost {
            programs: self.count(),
            jited: jited.sum::<io::Result<u64>>()? + of_given,
            files: self.armed.files() + self.count() + usize::from(self.site_map.is_some()) + 1,
            loading: self.loading,
            arming: self.arming,
        })
    }

    /// Calls that were missed because of what could not be read.
    fn faults(&self) -> io::Result<u64> {
        // SAFETY: plain call.
        let cpus = check(unsafe { sys::libbpf_num_possible_cpus() })?;
        let mut counts = vec![0u64; usize::try_from(cpus).unwrap_or(0)];
        // SAFETY: the kernel writes 8 bytes per possible CPU.
        unsafe { map::lookup(self.fault_map.as_fd(), 0, &mut counts) }?;
        Ok(counts.iter().sum())
    }

    fn missed(&self) -> io::Result<u64> {
        let misses = |program: &OwnedFd| program_info(program.as_fd()).map(|info| info.recursion_misses);
        let by_programs: u64 = self.programs.iter().map(misses).sum::<io::Result<u64>>()?;
        let by_given: u64 = self.given.iter().map(|given| misses(&open_program(given.id)?)).sum::<io::Result<u64>>()?;
        Ok(by_programs + by_given + self.armed.missed()?)
    }
}

/// What live patches have replaced of these sites that was not replaced when they were attached: sentences for people.
fn replaced_since<'r>(patches: &LivePatches, sites: impl Iterator<Item = &'r SiteReport>) -> Vec<String> {
    let (mut entries, mut bodies) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    for site in sites.filter(|site| site.live_patch.is_none() && site.bpf.is_none()) {
        let object = site.module.as_deref().unwrap_or("vmlinux");
        let is_entry = site.kind != SiteKind::Inline && site.offset == 0;
        match patches.concern(object, &site.symbol, None, site.offset, is_entry) {
            Some(Concern::Entry { patch }) => drop(entries.insert((patch, site.symbol.clone()))),
            Some(Concern::OldBody { patch, .. }) => *bodies.entry(patch).or_default() += 1,
            None => {}
        }
    }
    let entries = entries.into_iter().map(|(patch, symbol)| {
        format!(
            "the live patch {patch} has replaced {symbol}: calls are seen as they come in; what the compiler inlined \
             into the new code is not covered"
        )
    });
    let bodies = bodies.into_iter().map(|(patch, count)| {
        let plural = if count == 1 { "" } else { "s" };
        format!(
            "the live patch {patch} has replaced code with {count} site{plural}: the program does not run there while the \
             patch is enabled, and not in the new code before it is attached again"
        )
    });
    entries.chain(bodies).collect()
}

/// Sites that went away with their module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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

/// What a link uses of the machine, and what it took to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Programs loaded: one per location prototype and mechanism, or fewer
    /// ([`AttachOptions::share_beyond`](crate::AttachOptions::share_beyond)).
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
    pub(super) fn new(part: Part, report: Report, known: BTreeMap<String, u64>) -> Link {
        Link { parts: vec![part], report, known, said: Vec::new() }
    }

    /// The outcome of every site.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// How many programs were loaded.
    pub fn programs(&self) -> usize {
        self.parts.iter().map(Part::count).sum()
    }

    /// Says something more in its report.
    pub(crate) fn note(&mut self, note: String) {
        self.said.push(note.clone());
        self.report.notes.push(note);
    }

    /// Sets what its report says besides the sites' outcomes: what is known of the target, and what only the link
    /// knows.
    pub(super) fn set_notes(&mut self, of_target: Vec<String>) {
        let mut notes = of_target;
        notes.extend(Switches::running().notes(self.reliance()));
        notes.extend(self.parts.iter().flat_map(|part| part.notes.iter().cloned()));
        notes.extend(self.said.iter().cloned());
        self.report.notes = notes;
    }

    /// At how many sites it is attached that are not gone.
    pub(super) fn live_sites(&self) -> Result<usize, AttachError> {
        let gone: usize = self.gone()?.iter().map(|gone| gone.sites.len()).sum();
        Ok(self.report.attached().count().saturating_sub(gone))
    }

    fn reliance(&self) -> Reliance {
        self.parts.iter().map(|part| part.reliance).sum()
    }

    /// Whether it was looked for sites in this loading of a module.
    pub(super) fn knows(&self, module: &str, instance: u64) -> bool {
        self.known.get(module) == Some(&instance)
    }

    /// Notes that these modules were looked through.
    pub(super) fn has_seen(&mut self, known: BTreeMap<String, u64>) {
        self.known = known;
    }

    /// Adds what was attached later. Its sites are numbered after those that the link has.
    pub(super) fn add(&mut self, part: Part, added: &Report) {
        self.report.add(added);
        self.parts.push(part);
    }

    /// Takes what arms it, which whoever gets it undoes.
    pub(crate) fn disown(&mut self) -> Armed {
        let mut all = Armed::default();
        self.parts.iter_mut().for_each(|part| all.append(&mut part.armed));
        all
    }

    /// Gives its programs to whoever owns what arms it. A program for a function of a module keeps the module loaded
    /// for as long as somebody holds the program.
    ///
    /// # Errors
    /// If the kernel does not give information on a program.
    pub(crate) fn give_programs(&mut self) -> io::Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        for part in &mut self.parts {
            all.append(&mut part.give_programs()?);
        }
        Ok(all)
    }

    /// The sites that are gone, because the modules that held them were unloaded. A module with a site that goes by
    /// fentry, tracing-multi or (Linux 6.2) kprobe.multi cannot be unloaded; kprobes go with their module. All other
    /// sites are as they were, and the link is detached as any.
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn gone(&self) -> Result<Vec<Gone>, AttachError> {
        let mut all = Vec::new();
        for part in &self.parts {
            for (module, instance) in &part.modules {
                let now = sysfs::instance(Path::new(sysfs::SYSFS), module).map_err(unanswered(MODULES))?;
                if now == Some(*instance) {
                    continue;
                }
                let here = |site: &&SiteReport| site.module.as_ref() == Some(module) && part.ids.contains(&site.id);
                let sites = self.report.attached().filter(here).map(|site| site.id).collect();
                let covered = |now| self.parts.iter().any(|part| part.modules.contains(&(Arc::clone(module), now)));
                let loaded_again = now.is_some_and(|now| !covered(now));
                all.push(Gone { module: Arc::clone(module), loaded_again, sites });
            }
        }
        Ok(all)
    }

    /// The modules that were loaded since the link was made: whether the function has copies in them is not known
    /// before [`Attach::refresh`](crate::Attach::refresh).
    ///
    /// # Errors
    /// If the kernel does not tell which modules are loaded.
    pub fn unseen_modules(&self) -> Result<Vec<String>, AttachError> {
        let now = sysfs::all().map_err(unanswered(MODULES))?.into_iter();
        Ok(now.filter(|(name, instance)| self.known.get(name) != Some(instance)).map(|(name, _)| name).collect())
    }

    /// What keeps the program from running at its sites at this moment, in sentences for people: switches of the
    /// kernel's (all kprobes, or ftrace, are disarmed), and live patches that have replaced code since the link was
    /// made. The report says what was so when the link was made or last refreshed.
    ///
    /// # Errors
    /// If the kernel does not tell which functions live patches have replaced.
    pub fn in_the_way(&self) -> Result<Vec<String>, AttachError> {
        let mut notes = Switches::running().off(self.reliance());
        let patches = LivePatches::running().map_err(unanswered(LIVE_PATCHES))?;
        notes.extend(replaced_since(&patches, self.report.attached()));
        Ok(notes)
    }

    /// What the link uses of the machine.
    ///
    /// # Errors
    /// If the kernel does not give information on a program.
    pub fn cost(&self) -> Result<Cost, AttachError> {
        let none = Cost { programs: 0, jited: 0, files: 0, loading: Duration::ZERO, arming: Duration::ZERO };
        self.parts.iter().try_fold(none, |sum, part| {
            let cost = part.cost().map_err(unanswered(COST))?;
            Ok(Cost {
                programs: sum.programs + cost.programs,
                jited: sum.jited + cost.jited,
                files: sum.files + cost.files,
                loading: sum.loading + cost.loading,
                arming: sum.arming + cost.arming,
            })
        })
    }

    /// How many calls the program missed because an argument that it reads lay in memory that could not be read.
    ///
    /// # Errors
    /// If the kernel does not give the counter.
    pub fn faults(&self) -> Result<u64, AttachError> {
        self.parts.iter().map(Part::faults).sum::<io::Result<u64>>().map_err(unanswered(FAULTS))
    }

    /// How many hits the kernel did not run the program for: where it switches BPF tracing off (inside of `bpf()` map
    /// operations), or is in a tracing program already (`bpf_prog_active`, kernel/trace/bpf_trace.c; for fentry and
    /// fexit, in this very program); where a kprobe is hit while another one is being handled; and how many returns,
    /// because more calls were pending than it keeps track of. Kernels count them since Linux 6.7 (fentry and fexit:
    /// 5.12; kprobes that tracefs lists: always); on an older kernel the answer is 0 whatever was missed.
    ///
    /// # Errors
    /// If the kernel does not give a counter.
    pub fn missed(&self) -> Result<u64, AttachError> {
        self.parts.iter().map(Part::missed).sum::<io::Result<u64>>().map_err(unanswered(MISSED))
    }

    /// From where the functions of BPF programs that it is attached to are entered by tail call, and not seen: what
    /// prog arrays hold now. The report has what they held when it was attached; programs may be put there at any time.
    ///
    /// # Errors
    /// If the machine's maps cannot be looked through (which requires CAP_SYS_ADMIN).
    pub fn tail_slots(&self) -> Result<Vec<TailSlot>, AttachError> {
        let targets = self.report.attached().filter_map(|site| site.bpf.as_ref()).filter(|bpf| !bpf.subprogram);
        let programs: Vec<u32> = targets.map(|bpf| bpf.program).collect();
        if programs.is_empty() {
            return Ok(Vec::new());
        }
        bpf_program::tail_slots(&programs).map_err(unanswered(TAIL_SLOTS))
    }

    /// Detaches all sites; when it returns, the program runs no more. What `drop` does. A child that was forked
    /// meanwhile and has not called execve(2) keeps the link open, and the program running, until it ends.
    pub fn detach(self) {
        drop(self);
    }
}
