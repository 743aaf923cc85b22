// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Attaching at what has come since: the sites in modules that were loaded after the link was made.
//!
//! A link is of the modules that were loaded when it was made. One that is loaded later may bring copies of the function, and one
//! that was unloaded and loaded again has lost its kprobes, wherever it lies now. What is added is planned as the whole was, under
//! the same policy, for these sites alone; if it cannot be attached the link stays as it is.

use super::carry_out::{Carried, CarryOut};
use super::link::Part;
use super::{Attach, AttachError, Prepared};
use crate::attach::link::Link;
use crate::plan::mechanism::Barred;
use crate::plan::report::Report;
use crate::program::object::Program;
use crate::target::{Target, TargetError};

impl Attach<'_> {
    /// Attaches the program at the sites in modules that were loaded since the link was made, or last refreshed. The program and
    /// the settings have to be those that the link was made with. Gives the number of sites that were added to the
    /// link's report, attached or not.
    ///
    /// # Errors
    /// As [`Attach::attach`]. Then the link is as before.
    pub fn refresh<'p>(&self, program: impl Into<Program<'p>>, link: &mut Link) -> Result<usize, AttachError> {
        let program = program.into();
        let mut fresh: Option<Target> = None;
        for _ in 0..super::ATTEMPTS {
            if let Some(newer) = fresh.as_ref().unwrap_or(self.target).reread()? {
                fresh = Some(newer);
            }
            let target = fresh.as_ref().unwrap_or(self.target);
            let known = target.modules().instances();
            let is_new = |module: &str| known.get(module).is_some_and(|&instance| !link.knows(module, instance));
            if !known.keys().any(|module| is_new(module)) {
                link.has_seen(known, None);
                return Ok(0);
            }
            let mut prepared = match self.prepare(program, target) {
                Ok(prepared) => prepared,
                // Others have come, and the module that the link is on is still away.
                Err(AttachError::Target(TargetError::NotLoaded { .. })) => {
                    link.has_seen(known, None);
                    return Ok(0);
                }
                Err(error) => return Err(error),
            };
            for function in &mut prepared.functions {
                function.candidates.retain(|site| site.module.as_deref().is_some_and(is_new));
            }
            prepared.functions.retain(|function| !function.candidates.is_empty());
            let notes = self.notes(target);
            if prepared.functions.is_empty() {
                link.has_seen(known, Some(notes));
                return Ok(0);
            }
            if let Some((part, report)) = self.added(&prepared, target, link)? {
                link.add(part, &report);
                link.has_seen(known, Some(notes));
                return Ok(report.sites().count());
            }
        }
        Err(AttachError::ModulesChange)
    }

    /// What was attached at the new sites, numbered after those of the link; `None` if modules have come or gone
    /// meanwhile.
    fn added(&self, prepared: &Prepared, target: &Target, link: &Link) -> Result<Option<(Part, Report)>, AttachError> {
        let first_id = u32::try_from(link.report().sites().count()).unwrap_or(u32::MAX);
        let work = CarryOut { prepared, target, own: None, many: self.options.many() };
        let mut barred = Barred::default();
        loop {
            let mut plan = prepared.plan(target, &barred)?;
            plan.first_id = first_id;
            match work.carry_out(plan, &mut barred)? {
                Carried::Out(part, report) => return Ok(Some((*part, *report))),
                Carried::Again => {}
                Carried::Stale => return Ok(None),
            }
        }
    }
}
