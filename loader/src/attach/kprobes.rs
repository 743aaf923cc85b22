// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! All kprobes of a plan: together by events of tracefs where they are many, each by a perf event of its own otherwise.

use super::arm::Arm;
use super::error::AttachError;
use super::link::Part;
use super::{limits, tracefs};
use crate::plan::mechanism::Mechanism;
use crate::plan::{Plan, PlannedSite};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

/// From how many kprobes on they are armed together. An event costs its definition, and leaves it to be removed; on the
/// other hand it is disarmed in one grace period less than a perf kprobe. Where there are many it counts that events
/// are few.
pub(super) const MANY: usize = 5;

/// How many files the kprobes of a plan keep open at most, if the kernel accepts what it is asked for.
pub(super) fn files(plan: &Plan, many: usize) -> u64 {
    let trampolines = || plan.trampolines.iter().filter(|planned| planned.mechanism == Mechanism::Kprobe);
    let sites: usize = trampolines().map(|planned| planned.sites.len()).sum();
    let files = if sites >= many {
        trampolines().map(|planned| planned.sites.len().div_ceil(tracefs::PROBES)).sum()
    } else {
        sites
    };
    files as u64
}

impl Arm<'_> {
    /// Arms the kprobes of all trampolines. Gives the sites that could not be: indices into [`Plan::sites`], and the
    /// errors.
    pub(super) fn kprobes(self, plan: &Plan, part: &mut Part) -> Result<Vec<(usize, io::Error)>, AttachError> {
        let Part { programs, armed, notes, .. } = part;
        // Per trampoline: its program, and its sites with their indices.
        let (mut groups, mut refused) = (Vec::new(), Vec::new());
        let mut members: Vec<Vec<(usize, &PlannedSite)>> = Vec::new();
        for (planned, (program, cookie)) in plan.trampolines.iter().zip(plan.served_by()) {
            let Some(program) = programs.get(program) else {
                let refusal = || io::Error::from_raw_os_error(libc::EINVAL);
                refused.extend(planned.sites.iter().map(|&index| (index, refusal())));
                continue;
            };
            if planned.mechanism != Mechanism::Kprobe {
                continue;
            }
            let sites: Vec<(usize, &PlannedSite)> =
                planned.sites.iter().filter_map(|&index| Some((index, plan.sites.get(index)?))).collect();
            let function = sites.first().and_then(|(_, site)| plan.functions.get(site.function));
            let places = sites.iter().map(|(_, site)| tracefs::Place {
                symbol: &site.site.symbol,
                offset: site.site.offset(),
                address: site.site.address,
                in_module: site.site.module.is_some(),
            });
            groups.push(tracefs::Group {
                program: program.as_fd(),
                cookie,
                function: function.map_or("", |function| &function.name),
                places: places.collect(),
            });
            members.push(sites);
        }
        let all = || (0..).zip(&groups).flat_map(|(nth, group)| (0..group.places.len()).map(move |place| (nth, place)));
        let left = if all().count() >= self.many {
            let places = || groups.iter().flat_map(|group| &group.places);
            let names: BTreeSet<&str> = places().map(|place| place.symbol).collect();
            let part = if places().any(|place| place.in_module) { None } else { self.target.bearing(&names) };
            // tracefs takes places by symbol: where those are not known, each is attached by itself.
            match part.as_ref().map_or_else(|| self.target.symbols().ok(), Some) {
                Some(symbols) => {
                    let outcome = tracefs::attach(&groups, symbols);
                    armed.links.extend(outcome.links);
                    armed.definitions.extend(outcome.definitions);
                    notes.extend(outcome.failed.filter(|_| !outcome.left.is_empty()).map(|failed| {
                        let count = outcome.left.len();
                        format!(
                            "{count} kprobes were armed one by one, which takes long, because tracefs refused: {failed}"
                        )
                    }));
                    outcome.left
                }
                None => all().collect(),
            }
        } else {
            all().collect()
        };
        limits::raise_files(left.len() as u64)?;
        for (nth, place) in left {
            let Some((group, (index, site))) = groups.get(nth).zip(members.get(nth).and_then(|sites| sites.get(place)))
            else {
                continue;
            };
            let (links, errors) = self.each(group.program, 0, group.cookie, &[site.site.address]);
            armed.links.extend(links);
            refused.extend(errors.into_iter().map(|(_, error)| (*index, error)));
        }
        Ok(refused)
    }
}
