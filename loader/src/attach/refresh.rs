// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Attaching at what has come since: the sites in modules that were loaded after the link was made.
//!
//! A link is of the modules that were loaded when it was made. One that is loaded later may bring copies of the
//! function, and one that was unloaded and loaded again has lost its kprobes, wherever it lies now. What is added is
//! planned as the whole was, under the same policy, for these sites alone; if it cannot be attached the link stays as
//! it is. The bound on sites is one for the whole link: modules may come all day.

use super::{Attach, AttachError, or_locked_down};
use crate::attach::link::Link;
use crate::program::object::Program;
use crate::target::{Target, TargetError};

impl Attach<'_> {
    /// Attaches the program at the sites in modules that were loaded since the link was made, or last refreshed. The
    /// program and the settings have to be those that the link was made with. Gives the number of sites that were added
    /// to the link's report, attached or not.
    ///
    /// # Errors
    /// As [`Attach::attach`]. Then the link is as before.
    pub fn refresh<'p>(&self, program: impl Into<Program<'p>>, link: &mut Link) -> Result<usize, AttachError> {
        self.refresh_program(program.into(), link).map_err(or_locked_down)
    }

    fn refresh_program(&self, program: Program<'_>, link: &mut Link) -> Result<usize, AttachError> {
        self.check_privileges()?;
        let mut fresh: Option<Target> = None;
        for _ in 0..super::ATTEMPTS {
            if let Some(newer) = fresh.as_ref().unwrap_or(self.target).reread()? {
                fresh = Some(newer);
            }
            let target = fresh.as_ref().unwrap_or(self.target);
            let known = target.modules().instances();
            let is_new = |module: &str| known.get(module).is_some_and(|&instance| !link.knows(module, instance));
            if !known.keys().any(|module| is_new(module)) {
                link.has_seen(known);
                return Ok(0);
            }
            let mut prepared = match self.prepare(program, target) {
                Ok(prepared) => prepared,
                // Others have come, and the module that the link is on is still away.
                Err(AttachError::Target(TargetError::NotLoaded { .. })) => {
                    link.has_seen(known);
                    return Ok(0);
                }
                Err(error) => return Err(error),
            };
            for function in &mut prepared.functions {
                function.candidates.retain(|site| site.module.as_deref().is_some_and(is_new));
            }
            prepared.functions.retain(|function| !function.candidates.is_empty());
            if prepared.functions.is_empty() {
                link.has_seen(known);
                link.set_notes(self.notes(target));
                return Ok(0);
            }
            if let Some((part, report)) = self.carry_out(&prepared, target, None, Some(link))? {
                link.add(part, &report);
                link.has_seen(known);
                link.set_notes(self.notes(target));
                return Ok(report.sites().count());
            }
        }
        Err(AttachError::ModulesChange)
    }
}
