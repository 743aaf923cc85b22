// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Carrying out a plan: its maps are made, its trampolines loaded, its sites armed, the best mechanism first.
//!
//! What has been made is owned by a [`Part`] of the link to be, so that an error leaves nothing behind.

use super::AttachError;
use super::Prepared;
use super::arm::{Arm, is_refusal, place};
use super::armed::Armed;
use super::limits::KeptFiles;
use super::link::Part;
use super::own::Own;
use super::switches::Reliance;
use super::trampoline::{Loader, Unloaded};
use super::unanswered::{MODULES, unanswered};
use super::{kprobes, limits, site_map};
use crate::bpf::map::Map;
use crate::plan::mechanism::{Barred, Mechanism};
use crate::plan::report::Report;
use crate::plan::{Plan, PlannedSite, PlannedTrampoline};
use crate::program::section::Kind;
use crate::site::reason::Reason;
use crate::target::Target;
use libbpf_sys as sys;
use std::io;
use std::time::{Duration, Instant};

/// What came of carrying a plan out.
pub(super) enum Carried {
    /// It is attached, with this outcome at each site.
    Out(Box<Part>, Box<Report>),
    /// The kernel refused something that may be done otherwise: it is noted, and has to be planned again.
    Again,
    /// A module that has sites is not the one any more that they were looked up in.
    Stale,
}

/// A program, and where its plans are carried out.
pub(super) struct CarryOut<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) target: &'a Target,
    /// The program that libbpf loaded for its own function, if it is to serve there.
    pub(super) own: Option<&'a Own>,
    /// From how many kprobes on they are armed together.
    pub(super) many: usize,
}

impl CarryOut<'_> {
    /// Carries a plan out. What the kernel refuses is noted in `barred`.
    pub(super) fn carry_out(&self, plan: Plan, barred: &mut Barred) -> Result<Carried, AttachError> {
        let mut part = self.part(&plan)?;
        // All programs first: loading takes long, and calls of the functions that are traced.
        let begin = Instant::now();
        if !self.load(&plan, &mut part, barred)? {
            return Ok(Carried::Again);
        }
        part.loading = begin.elapsed();
        // An address in a module that is gone is somebody else's.
        if part.has_lost_a_module().map_err(unanswered(MODULES))? {
            return Ok(Carried::Stale);
        }
        let begin = Instant::now();
        let Some(refused) = self.arm(&plan, &mut part, barred)? else { return Ok(Carried::Again) };
        part.arming = begin.elapsed();
        if part.has_lost_a_module().map_err(unanswered(MODULES))? {
            return Ok(Carried::Stale);
        }
        let plan = plan.without(refused)?;
        part.reliance = Reliance::of(&plan, self.target.kernel().machine);
        Ok(Carried::Out(Box::new(part), Box::new(plan.report())))
    }

    /// The maps, and room for the files.
    fn part(&self, plan: &Plan) -> Result<Part, AttachError> {
        let by_others = |site: &&PlannedSite| site.decision.mechanism().is_some_and(|by| by != Mechanism::Kprobe);
        let others = plan.sites.iter().filter(by_others).count() + plan.programs.len();
        let files = KeptFiles::keep();
        limits::raise_files(others as u64 + kprobes::files(plan, self.many))?;
        let site_map = self.prepared.uses.site.then(|| site_map::site_map(plan, self.target.kernel())).transpose()?;
        let fault_map = Map::plain(sys::BPF_MAP_TYPE_PERCPU_ARRAY, c"siteseer_faults", 4, 8, 1)
            .create()
            .map_err(|error| AttachError::Map { what: "faults", error })?;
        let end = plan.first_id.saturating_add(u32::try_from(plan.sites.len()).unwrap_or(u32::MAX));
        Ok(Part {
            armed: Armed::default(),
            programs: Vec::new(),
            given: Vec::new(),
            site_map,
            fault_map,
            ids: plan.first_id..end,
            modules: self.target.modules().instances_of(&plan.modules()),
            reliance: Reliance::default(),
            notes: Vec::new(),
            loading: Duration::ZERO,
            arming: Duration::ZERO,
            _files: files,
        })
    }

    /// Loads all programs. False if the kernel refused one at its sites, which is noted.
    fn load(&self, plan: &Plan, part: &mut Part, barred: &mut Barred) -> Result<bool, AttachError> {
        let Prepared { user, gpl, options, .. } = self.prepared;
        let can_do_without = options.form.kind == Kind::KprobeMaybeInline;
        let mut loader = Loader::new(&user.name, *gpl, options.form.sleepable, can_do_without);
        let mut again = false;
        for program in &plan.programs {
            let members: Vec<&PlannedTrampoline> =
                program.trampolines.iter().filter_map(|&index| plan.trampolines.get(index)).collect();
            let Some(&planned) = members.first() else { continue };
            if let Some(own) = self.own.and_then(|own| own.in_place_of(&members)) {
                part.programs.push(own);
                continue;
            }
            match loader.load(program, planned, plan, part) {
                Ok(program) => part.programs.push(program),
                // It may be too much for the verifier at once.
                Err(_) if members.len() > 1 && !std::mem::replace(&mut barred.sharing, true) => return Ok(false),
                Err(Unloaded::AtAll(error)) => return Err(error),
                Err(Unloaded::There(reason)) => {
                    for site in planned.sites.iter().filter_map(|&index| plan.sites.get(index)) {
                        again |= barred.add(site.site.address, planned.mechanism, reason.clone());
                    }
                }
            }
        }
        Ok(!again)
    }

    /// Arms all sites. Gives those that the last mechanism does not reach, which needs no new plan; `None` if another
    /// may reach one that was refused, which is noted.
    fn arm(
        &self,
        plan: &Plan,
        part: &mut Part,
        barred: &mut Barred,
    ) -> Result<Option<Vec<(usize, Reason)>>, AttachError> {
        let arm = Arm { target: self.target, cookie: plan.cookie, many: self.many };
        let served_by = plan.served_by();
        let mut order: Vec<usize> = (0..plan.trampolines.len()).collect();
        order.sort_by_key(|&nth| plan.trampolines.get(nth).map(|planned| planned.mechanism));
        let mut again = false;
        let mut refused: Vec<(usize, Reason)> = Vec::new();
        for nth in order {
            let Some(planned) = plan.trampolines.get(nth) else { continue };
            let last = matches!(planned.mechanism, Mechanism::Kprobe | Mechanism::Kretprobe);
            if last && again {
                break;
            }
            let sites: Vec<&PlannedSite> = planned.sites.iter().filter_map(|&index| plan.sites.get(index)).collect();
            let program = served_by.get(nth).map_or(usize::MAX, |(program, _)| *program);
            for (nth, error) in arm.arm(program, planned, &sites, part) {
                let (Some(site), Some(&index)) = (sites.get(nth), planned.sites.get(nth)) else { continue };
                if self.own.is_some_and(|own| own.is_linked(planned, &error)) {
                    return Err(Own::twice(&self.prepared.user.name));
                }
                let reason = refusal(planned.mechanism, Some(site), error)?;
                if last {
                    refused.push((index, reason));
                } else {
                    again |= barred.add(site.site.address, planned.mechanism, reason);
                }
            }
        }
        if again {
            return Ok(None);
        }
        for (index, error) in arm.kprobes(plan, part)? {
            refused.push((index, refusal(Mechanism::Kprobe, plan.sites.get(index), error)?));
        }
        Ok(Some(refused))
    }
}

/// Why the kernel did not arm one site, if that is about the site; else the error that it is.
fn refusal(mechanism: Mechanism, site: Option<&PlannedSite>, error: io::Error) -> Result<Reason, AttachError> {
    if !is_refusal(&error, mechanism) {
        let site = site.map(|site| place(&site.site)).unwrap_or_default();
        return Err(AttachError::Arm { mechanism, site, error });
    }
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    Ok(Reason::Kernel { errno, mechanism: mechanism.word(), said: None })
}
