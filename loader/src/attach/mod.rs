// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Attaching a program: planning, and carrying the plan out (`carry_out`), as often as needed.
//!
//! The maps that trampolines refer to are made, the trampolines loaded, the sites armed, the best mechanism first.
//! Every call may fail. What the kernel refuses at one site by one mechanism is noted, and all is planned again without
//! that: the next mechanism has the site, or the refusal is its reason. What the kernel refuses altogether (privileges,
//! memory, a program that does not verify) ends the attempt. Whatever has been armed by then belongs to a value that is
//! being dropped ([`armed::Armed`]), so that an error leaves nothing behind. What is refused by the last mechanism
//! needs no new plan: when all sites have been tried the policy is applied once more, now with the kernel's refusals.

mod arm;
pub(crate) mod armed;
mod background;
mod carry_out;
mod error;
mod kprobes;
mod limits;
pub mod link;
mod load_as;
mod options;
mod own;
mod owner;
mod profile;
mod reap;
mod refresh;
mod site_map;
mod switches;
mod tracefs;
mod trampoline;
pub(crate) mod unanswered;
mod user;
mod wait;

pub use error::AttachError;
pub use options::{AttachOptions, MAX_SITES};
pub(crate) use own::OwnFunction;
pub use reap::clean;
pub(crate) use tracefs::{Definition, remove_all};

use crate::attach::link::{Link, Part};
use crate::plan::mechanism::{Barred, Pair};
use crate::plan::report::Report;
use crate::plan::{self, Plan, PlanError, PlanOptions, Policy};
use crate::program::declared::Stated;
use crate::program::object::{Loaded, Program};
use crate::program::section::{SectionError, Wanted};
use crate::program::{self, UserProgram, Uses};
use crate::target::Target;
use crate::target::function::{Function, Selection};
use carry_out::{Carried, CarryOut};
use own::Own;
use std::sync::Arc;
use switches::{Reliance, Switches};

/// Attaches programs to a target.
#[derive(Debug, Clone)]
pub struct Attach<'t> {
    target: &'t Target,
    options: AttachOptions,
    /// The function that libbpf loaded the program for, if its program is to serve there.
    own: Option<OwnFunction>,
    /// The program that it is kept to.
    pair: Option<Arc<Pair>>,
}

impl<'t> Attach<'t> {
    /// To the function that the program's section names, under the section's policy ([`Policy::of`]).
    pub fn new(target: &'t Target) -> Attach<'t> {
        Attach::with(target, AttachOptions::default())
    }

    /// As the options say.
    pub fn with(target: &'t Target, options: AttachOptions) -> Attach<'t> {
        Attach { target, options, own: None, pair: None }
    }

    /// Takes the program that libbpf loaded for its own function into service there.
    pub(crate) fn with_own(self, own: Option<OwnFunction>) -> Attach<'t> {
        Attach { own, ..self }
    }

    /// Keeps it to the sites that another program reaches.
    pub(crate) fn with_pair(self, pair: Option<Arc<Pair>>) -> Attach<'t> {
        Attach { pair, ..self }
    }

    /// Keeps it to the sites at which a program of that name, at the other end of the same calls, is attached by
    /// another link.
    #[doc(hidden)]
    #[must_use]
    pub fn kept_to(self, program: &str, link: &Link) -> Attach<'t> {
        let reached = link.report().attached().map(|site| site.address).collect();
        self.with_pair(Some(Arc::new(Pair { program: program.to_owned(), reached })))
    }

    /// Plans the attachment of a loaded program. Changes nothing.
    ///
    /// # Errors
    /// [`AttachError::Object`] if the program did not come through [`crate::register()`] or is not loaded,
    /// [`AttachError::Target`] if there is no such function, [`AttachError::Plan`] if the program cannot be attached
    /// to it.
    pub fn plan<'p>(&self, program: impl Into<Program<'p>>) -> Result<Plan, AttachError> {
        let fresh = self.target.reread()?;
        let target = fresh.as_ref().unwrap_or(self.target);
        Ok(self.prepare(program.into(), target)?.plan(target, &Barred::default())?)
    }

    /// Attaches a loaded program. The object it belongs to must stay loaded as long as its maps are wanted; the link
    /// itself does not need it.
    ///
    /// # Errors
    /// As [`Attach::plan`], and another [`AttachError`] if the plan cannot be carried out. Then nothing is attached.
    pub fn attach<'p>(&self, program: impl Into<Program<'p>>) -> Result<Link, AttachError> {
        self.attach_program(program.into()).map_err(or_locked_down)
    }

    fn attach_program(&self, program: Program<'_>) -> Result<Link, AttachError> {
        self.check_privileges()?;
        // What the target knows of modules may be old, and may grow old while programs are loaded.
        let mut fresh: Option<Target> = None;
        for _ in 0..ATTEMPTS {
            if let Some(newer) = fresh.as_ref().unwrap_or(self.target).reread()? {
                fresh = Some(newer);
            }
            let target = fresh.as_ref().unwrap_or(self.target);
            let prepared = self.prepare(program, target)?;
            let own =
                self.own.as_ref().map(|own| program.descriptor().map(|program| Own { function: own.clone(), program }));
            let own = own.transpose()?;
            if let Some((part, report)) = self.carry_out(&prepared, target, own.as_ref(), None)? {
                let mut link = Link::new(part, report, target.modules().instances());
                link.set_notes(self.notes(target));
                return Ok(link);
            }
        }
        Err(AttachError::ModulesChange)
    }

    fn check_privileges(&self) -> Result<(), AttachError> {
        let privileges = self.target.kernel().privileges;
        if privileges.bpf && privileges.perfmon { Ok(()) } else { Err(AttachError::Privileges) }
    }

    /// Plans and carries out, as often as the kernel refuses what may be done otherwise. What is attached for a former
    /// link, `to`, is numbered after its sites, and counts with them. `None` if modules have come or gone meanwhile.
    fn carry_out(
        &self,
        prepared: &Prepared,
        target: &Target,
        own: Option<&Own>,
        to: Option<&Link>,
    ) -> Result<Option<(Part, Report)>, AttachError> {
        let first_id = to.map_or(0, |link| u32::try_from(link.report().sites().count()).unwrap_or(u32::MAX));
        let attached = to.map_or(Ok(0), Link::live_sites)?;
        let work = CarryOut { prepared, target, own, many: self.options.many() };
        let mut barred = Barred::kept_to(self.pair.clone());
        loop {
            let mut plan = prepared.plan(target, &barred)?;
            plan.first_id = first_id;
            let sites = plan.sites.iter().filter(|site| site.decision.mechanism().is_some()).count();
            // Nothing is added to a link that may have become too large in another way.
            if sites > 0 {
                self.options.allow(attached + sites)?;
            }
            let off = Switches::running().off(Reliance::of(&plan, target.kernel().machine));
            if plan.policy == Policy::Complete
                && let Some(off) = off.into_iter().next()
            {
                return Err(AttachError::SwitchedOff(off));
            }
            match work.carry_out(plan, &mut barred)? {
                Carried::Out(part, report) => return Ok(Some((*part, *report))),
                // Each attempt that fails has noted something new, and there is only so much of that.
                Carried::Again => {}
                Carried::Stale => return Ok(None),
            }
        }
    }

    /// Plans a program that libbpf is about to load. Gives what it uses, too.
    pub(crate) fn plan_loaded(&self, program: Program<'_>, loaded: Loaded<'_>) -> Result<(Plan, Uses), AttachError> {
        let prepared = self.prepare_loaded(program, loaded, self.target)?;
        let plan = prepared.plan(self.target, &Barred::default())?;
        Ok((plan, prepared.uses))
    }

    fn prepare(&self, program: Program<'_>, target: &Target) -> Result<Prepared, AttachError> {
        let loaded = program.read()?;
        self.prepare_loaded(program, loaded, target)
    }

    fn prepare_loaded(
        &self,
        program: Program<'_>,
        loaded: Loaded<'_>,
        target: &Target,
    ) -> Result<Prepared, AttachError> {
        let (gpl, form, told) = (loaded.gpl, loaded.form, loaded.told);
        let kernel = target.kernel();
        let user = user::user_program(loaded, kernel);
        let uses =
            program::analyse(&user).map_err(|refusal| PlanError::Program { program: user.name.clone(), refusal })?;
        let parse = |name: &String| Wanted::parse(name);
        let AttachOptions { functions, bpf_program, file, .. } = &self.options;
        let mut wanted = functions.iter().map(parse).collect::<Result<Vec<_>, SectionError>>()?;
        let bpf_target = user::bpf_target(*bpf_program, told);
        if wanted.is_empty() && bpf_target.is_none_or(|target| target.btf_id == 0) {
            let told = if bpf_target.is_none() { user::told_function(&user.name, told, kernel)? } else { None };
            let one = told.map_or_else(|| program.wanted(), Ok)?;
            if one.function.is_none() {
                return Err(AttachError::NoFunction { program: user.name, section: form.kind.word() });
            }
            wanted.push(one);
        }
        let functions = match bpf_target {
            Some(target) => user::bpf_functions(target, &wanted, kernel.machine)?,
            None => target.functions(&wanted)?,
        };
        let Stated { prototype, policy } = Stated::find(user.btf.as_deref(), &user.name)?;
        let selection = Selection { file: file.clone(), prototype };
        let functions = functions.into_iter().map(|function| function.select(&selection));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let options = PlanOptions { own: self.own.is_some(), ..self.options.clone().or_policy(policy).plan(form) };
        Ok(Prepared { functions, user, uses, gpl, options })
    }

    /// What a report should say besides the sites' outcomes.
    fn notes(&self, target: &Target) -> Vec<String> {
        let mut notes = target.unavailable().to_vec();
        notes.extend(target.notes_of_data());
        notes.extend(target.modules().note_of_missing());
        notes.extend(target.note_of_live_patches());
        notes
    }
}

/// A program, and what it is to be attached to.
struct Prepared {
    functions: Vec<Function>,
    user: UserProgram,
    uses: Uses,
    gpl: bool,
    options: PlanOptions,
}

impl Prepared {
    fn plan(&self, target: &Target, barred: &Barred) -> Result<Plan, PlanError> {
        plan::plan_without(&self.functions, &self.user, &self.uses, target.kernel(), self.options, barred)
    }
}

/// What refuses a permission to whoever has all of them.
fn or_locked_down(error: AttachError) -> AttachError {
    match switches::lockdown() {
        Some(mode) if error.errno() == libc::EPERM => AttachError::LockedDown { mode, error: Box::new(error) },
        _ => error,
    }
}

/// How often an attachment is begun again because modules have come or gone meanwhile.
const ATTEMPTS: usize = 5;
