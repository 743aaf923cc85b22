// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The places that plans attach to: each function of the site data is planned for a program that reads nothing.

use super::{Tally, add};
use crate::compare::reach::hypothetical;
use crate::guest::case::Failure;
use siteseer::internals::plan::{PlanOptions, plan};
use siteseer::internals::section::{Form, Kind, Wanted};
use siteseer::{Mechanism, Outcome, PlanError, Policy, SiteReport, Target};

/// Functions that are looked up together.
const TOGETHER: usize = 1024;

/// A place in the kernel's text.
pub(super) struct Place {
    /// At run time.
    pub(super) address: u64,
    /// `symbol+offset`.
    pub(super) name: String,
}

/// The places of some functions, in the order of their addresses.
#[derive(Default)]
pub(super) struct Places {
    pub(super) functions: usize,
    pub(super) sites: usize,
    /// Sites that plans leave out.
    pub(super) skipped: Tally,
    /// Those of mechanisms that go by ftrace.
    pub(super) entries: Vec<Place>,
    /// Those of kprobes.
    pub(super) instructions: Vec<Place>,
}

/// Those of one function in so many.
pub(super) fn of_each(target: &Target, nth: usize) -> Result<Places, Failure> {
    let mut names: Vec<String> = target.data().read(&[], |file| file.function_names().map(str::to_owned).collect())?;
    names.sort_unstable();
    names.dedup();
    let names: Vec<String> = names.into_iter().step_by(nth).collect();
    let mut places = Places::default();
    for names in names.chunks(TOGETHER) {
        let wanted: Vec<Wanted> =
            names.iter().map(|name| Wanted { module: None, function: Some(name.clone()) }).collect();
        plan_each(target, &wanted, &mut places)?;
    }
    for list in [&mut places.entries, &mut places.instructions] {
        list.sort_unstable_by_key(|place| place.address);
        list.dedup_by_key(|place| place.address);
    }
    Ok(places)
}

fn plan_each(target: &Target, wanted: &[Wanted], places: &mut Places) -> Result<(), Failure> {
    let (program, uses) = hypothetical(false)?;
    let form = Form { kind: Kind::Fentry, sleepable: false };
    let options = PlanOptions { policy: Some(Policy::BestEffort), form, ..PlanOptions::default() };
    for function in target.functions(wanted)? {
        places.functions += 1;
        match plan(std::slice::from_ref(&function), &program, &uses, target.kernel(), options) {
            Ok(plan) => plan.report().functions.iter().flat_map(|planned| &planned.sites).for_each(|site| {
                places.sites += 1;
                places.add(site);
            }),
            Err(PlanError::Nothing { sites, .. }) => {
                for site in sites {
                    places.sites += 1;
                    let why = || (site.reason.to_string(), format!("{}+{:#x}", site.symbol, site.offset));
                    add(&mut places.skipped, site.reason.key(), why);
                }
            }
            Err(error) => {
                places.sites += function.candidates.len();
                let why = || (error.to_string(), function.name.clone());
                function.candidates.iter().for_each(|_| add(&mut places.skipped, "plan", why));
            }
        }
    }
    Ok(())
}

impl Places {
    fn add(&mut self, site: &SiteReport) {
        let name = || format!("{}+{:#x}", site.symbol, site.offset);
        match &site.outcome {
            Outcome::Attached { mechanism: Mechanism::Kprobe, .. } => {
                self.instructions.push(Place { address: site.address, name: name() });
            }
            Outcome::Attached { .. } => self.entries.push(Place { address: site.address, name: name() }),
            Outcome::Skipped(reason) => add(&mut self.skipped, reason.key(), || (reason.to_string(), name())),
        }
    }
}
