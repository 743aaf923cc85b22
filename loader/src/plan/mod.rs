// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What would be attached and how, and what would not and why. No system call is made here.
//!
//! Every candidate of every function ends in exactly one decision. The steps, in this order, so that the reason that is
//! given is the one that could not be mended by changing the program:
//!
//! 1. what stands against a probe there whatever the program (dead text, noinstr, the blacklist, ...), and places where
//!    programs are a risk to the kernel (`risks`), unless they are allowed;
//! 2. what the program's section cannot have there: a return of an inlined copy, sleep at a kprobe;
//! 3. marks: an entry that is not certain is never attached; one that may be reached again from inside is not
//!    attached under [`Policy::Complete`], because hits would outnumber calls;
//! 4. arguments: all that the program reads must have a location that is certain, unless doubt is accepted, and the
//!    return value must have one too;
//! 5. a mechanism that reaches the site;
//! 6. a trampoline: one per distinct set of locations of what the program reads, and per mechanism. It is generated
//!    here, so that what stands against it is known beforehand. The plan owns the images: attaching creates the maps
//!    that they refer to, and loads them.
//!
//! Bodies that real fentry reaches need a program each, loaded for that function. Where several could do with one, and
//! the kernel has the tracing-multi link, they are put together once all sites have their mechanisms.
//!
//! If functions have very many location prototypes, each program at kprobes serves many of them (`sharing`).
//!
//! Then the policy is applied. Sites in text that never runs again are reported, and do not count against
//! [`Policy::Complete`].

pub mod mechanism;
mod planner;
pub mod report;
mod risks;
mod sharing;

use crate::kernel::Kernel;
use crate::plan::mechanism::{Barred, Mechanism};
use crate::plan::report::Report;
pub use crate::program::policy::Policy;
use crate::program::section::Form;
use crate::program::{UserProgram, Uses};
use crate::site::reason::Reason;
use crate::site::refusal::Refusal;
use crate::site::shown::InModule;
use crate::site::unavailable::DoubtfulArgument;
pub use crate::target::function::Namesake;
use crate::target::function::{Candidate, Function, LeftOut, Place, Prototype};
use crate::target::livepatch::Concern;
use crate::trampoline::{self, KernelIds, Spec};
use planner::Planner;
pub use sharing::PlannedProgram;
use siteseer_sites::btf::TypeId;
use siteseer_sites::site::SiteKind;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// What the caller wants of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOptions {
    /// What to do when not every site can be attached; `None` for what the program's section stands for
    /// ([`Policy::of`]).
    pub policy: Option<Policy>,
    /// What kind of program it is.
    pub form: Form,
    /// What `bpf_get_attach_cookie()` answers.
    pub cookie: u64,
    /// Whether functions of one name are taken together even if their prototypes differ.
    pub all_prototypes: bool,
    /// Whether doubtful arguments count as located.
    pub accept_doubt: bool,
    /// Whether sites are attached where a program is a risk to the kernel (`risks`).
    pub allow_risky: bool,
    /// Beyond how many location prototypes at kprobes they share programs; `None` for the default.
    pub share_beyond: Option<usize>,
    /// Whether libbpf has loaded the program for its function, so that it serves the body: bodies do not share a
    /// program then.
    pub own: bool,
}

/// What happens to a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is attached.
    Attach {
        /// How.
        mechanism: Mechanism,
        /// Index into [`Plan::trampolines`].
        trampoline: usize,
    },
    /// It is not.
    Skip(Reason),
}

impl Decision {
    /// What it is attached by, if it is.
    pub fn mechanism(&self) -> Option<Mechanism> {
        match self {
            Decision::Attach { mechanism, .. } => Some(*mechanism),
            Decision::Skip(_) => None,
        }
    }
}

/// A site, and what happens to it.
#[derive(Debug, Clone)]
pub struct PlannedSite {
    /// Index into [`Plan::functions`].
    pub function: usize,
    /// The site.
    pub site: Candidate,
    /// What happens to it.
    pub decision: Decision,
    /// What the program reads there from doubtful locations; empty unless doubt is accepted.
    pub doubtful: Vec<DoubtfulArgument>,
}

/// A trampoline to generate: what distinguishes it is what the program reads.
#[derive(Debug, Clone)]
pub struct PlannedTrampoline {
    /// What runs it.
    pub mechanism: Mechanism,
    /// Whether it is for inline sites.
    pub inline: bool,
    /// The parameters at its sites; those that the program does not read may be others at some of them.
    pub parameters: Vec<trampoline::Parameter>,
    /// The return value, for a program that runs at the return.
    pub ret: Option<trampoline::Parameter>,
    /// The FUNC that the program is loaded for, if it is loaded for one.
    pub func: Option<TypeId>,
    /// The module whose BTF has its FUNCs; `None` for that of the kernel's image.
    pub module: Option<Arc<str>>,
    /// The BPF program whose FUNC that is, by id, if it is not the kernel's.
    pub program: Option<u32>,
    /// What is added to address constants.
    pub displacement: u64,
    /// Its sites: indices into [`Plan::sites`].
    pub sites: Vec<usize>,
    /// BPF instructions, the user's among them.
    pub insns: usize,
}

impl PlannedTrampoline {
    /// What to generate it from.
    pub fn spec<'a>(&'a self, kernel: &Kernel, cookie: u64) -> Spec<'a> {
        Spec {
            machine: kernel.machine,
            probe: self.mechanism.probe(),
            parameters: &self.parameters,
            ret: self.ret.as_ref(),
            inline: self.inline,
            cookie,
            displacement: self.displacement,
            kernel: KernelIds {
                rdonly_cast: kernel.rdonly_cast,
                session_is_return: kernel.kprobe_session.map(|session| session.is_return),
                session_cookie: kernel.kprobe_session.map(|session| session.cookie),
                private_stack: kernel.private_stack,
                unplaced: kernel.unplaced,
            },
        }
    }
}

/// What would be attached, and how: [`Plan::report`] says it. How it would be done is an affair of siteseer's own.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// Names and prototypes of the functions.
    #[doc(hidden)]
    pub functions: Vec<PlannedFunction>,
    /// Every candidate site.
    #[doc(hidden)]
    pub sites: Vec<PlannedSite>,
    /// What gathers the arguments.
    #[doc(hidden)]
    pub trampolines: Vec<PlannedTrampoline>,
    /// The programs to load. Each trampoline is in one of them.
    #[doc(hidden)]
    pub programs: Vec<PlannedProgram>,
    /// The options that it was made with.
    pub policy: Policy,
    /// What `bpf_get_attach_cookie()` answers.
    #[doc(hidden)]
    pub cookie: u64,
    /// The number of the first site in reports, and for `siteseer_site()`.
    #[doc(hidden)]
    pub first_id: u32,
}

/// A function of a plan.
#[derive(Debug, Clone)]
pub struct PlannedFunction {
    /// Name.
    pub name: String,
    /// Its prototypes, as [`Function::prototypes`].
    pub prototypes: Vec<Prototype>,
    /// Functions of the name that are not meant.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// For each trampoline the number of its program, and the cookie by which that knows the trampoline's sites (0 if
    /// there are no others).
    pub(crate) fn served_by(&self) -> Vec<(usize, u64)> {
        // One that no program has would be refused, not served by another's.
        let mut served = vec![(usize::MAX, 0); self.trampolines.len()];
        for (number, program) in self.programs.iter().enumerate() {
            let alone = program.trampolines.len() == 1;
            for (&trampoline, cookie) in program.trampolines.iter().zip(1u64..) {
                if let Some(served) = served.get_mut(trampoline) {
                    *served = (number, if alone { 0 } else { cookie });
                }
            }
        }
        served
    }

    /// The plan as a report: what it would attach as attached.
    pub fn report(&self) -> Report {
        Report::of(self)
    }

    /// The plan without sites that the kernel refused, by index, which no other mechanism reaches.
    ///
    /// # Errors
    /// As for planning: the policy is applied once more.
    pub(crate) fn without(mut self, refused: Vec<(usize, Reason)>) -> Result<Plan, PlanError> {
        if refused.is_empty() {
            return Ok(self);
        }
        for (index, reason) in refused {
            if let Some(site) = self.sites.get_mut(index) {
                site.decision = skip(&site.site, reason);
            }
        }
        for (index, function) in self.functions.iter().enumerate() {
            let sites: Vec<_> = self.sites.iter().filter(|site| site.function == index).cloned().collect();
            apply(self.policy, &function.name, &sites)?;
        }
        Ok(self)
    }

    /// The modules that something is attached in.
    pub(crate) fn modules(&self) -> BTreeSet<Arc<str>> {
        let attached = self.sites.iter().filter(|site| matches!(site.decision, Decision::Attach { .. }));
        attached.filter_map(|site| site.site.module.clone()).collect()
    }
}

/// A site that is in the way.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InTheWay {
    /// The module that it is in; `None` for the kernel's image.
    pub module: Option<Arc<str>>,
    /// What the site is.
    pub kind: SiteKind,
    /// The symbol that holds it, and the distance from it.
    pub symbol: String,
    /// Bytes from the symbol to the probe.
    pub offset: u64,
    /// Where it was called or declared.
    pub source: Option<Place>,
    /// Why it cannot be attached.
    pub reason: Reason,
}

impl InTheWay {
    /// The description of a site that is not attached for a reason.
    pub(crate) fn new(site: &Candidate, reason: &Reason) -> InTheWay {
        InTheWay {
            module: site.module.clone(),
            kind: site.kind,
            symbol: site.symbol.clone(),
            offset: site.offset(),
            source: site.source.clone(),
            reason: reason.clone(),
        }
    }
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}+{:#x}{}", self.kind, self.symbol, self.offset, InModule(self.module.as_deref()))?;
        if let Some(place) = &self.source {
            write!(f, " ({}:{})", place.file, place.line)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// A list of sites, one per line, the first of many.
fn lines(sites: &[InTheWay]) -> String {
    const SHOWN: usize = 20;
    let mut text: String = sites.iter().take(SHOWN).map(|site| format!("\n  {site}")).collect();
    if sites.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", sites.len() - SHOWN));
    }
    let mut advice: Vec<&str> = sites.iter().filter_map(|site| site.reason.advice()).collect();
    advice.sort_unstable();
    advice.dedup();
    text.extend(advice.iter().map(|advice| format!("\n  hint: {advice}")));
    text
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The program can run at no site of any function.
    #[error("program {program}: {refusal}")]
    Program {
        /// Name of the program.
        program: String,
        /// Why.
        refusal: Refusal,
    },
    /// The program does not fit the function.
    #[error("program {program} does not fit {prototype}: {refusal}")]
    Prototype {
        /// Name of the program.
        program: String,
        /// The function's prototype.
        prototype: String,
        /// Why.
        refusal: Refusal,
    },
    /// Functions of the name differ, and the program does not say which it means.
    #[error(
        "there are several functions {function}, and they take different arguments:{}\n  hint: state which one is meant, \
         by one of these lines beside the program:{}",
        namesakes.iter().map(|namesake| format!("\n  {namesake}")).collect::<String>(),
        namesakes
            .iter()
            .map(|namesake| format!("\n    SITESEER_PROTO({program}, {});", namesake.statement))
            .collect::<String>()
    )]
    #[doc(hidden)]
    Ambiguous {
        /// Name of the program.
        program: String,
        /// The name.
        function: String,
        /// The functions.
        namesakes: Vec<Namesake>,
    },
    /// No site of a function can be attached.
    #[error("{function}: none of its {} sites can be attached:{}", sites.len(), lines(sites))]
    Nothing {
        /// The function.
        function: String,
        /// Its sites.
        sites: Vec<InTheWay>,
    },
    /// Under [`Policy::Complete`], sites that cannot be attached.
    #[error("{function}: {} of its sites cannot be attached, and the policy is complete:{}", sites.len(), lines(sites))]
    Incomplete {
        /// The function.
        function: String,
        /// The sites in the way.
        sites: Vec<InTheWay>,
    },
}

impl PlanError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            PlanError::Program { .. } | PlanError::Prototype { .. } => libc::EINVAL,
            PlanError::Ambiguous { .. } => libc::ENOTUNIQ,
            PlanError::Nothing { .. } | PlanError::Incomplete { .. } => libc::EADDRNOTAVAIL,
        }
    }
}

/// Which prototypes have to agree: those that are known. A program that reads no argument takes any.
fn check_namesakes(function: &Function, program: &str, uses: &Uses) -> Result<(), PlanError> {
    if !reads_arguments(uses) || function.prototypes_agree() {
        return Ok(());
    }
    Err(PlanError::Ambiguous {
        program: program.to_owned(),
        function: function.name.clone(),
        namesakes: function.known_prototypes().map(Namesake::of).collect(),
    })
}

/// Whether what the program does depends on arguments at all.
fn reads_arguments(uses: &Uses) -> bool {
    requires_arguments(uses) || !uses.fallible.is_empty()
}

fn requires_arguments(uses: &Uses) -> bool {
    !uses.slots.is_empty() || !uses.indexed.is_empty()
}

/// Plans a program's attachment to functions.
///
/// # Errors
/// [`PlanError`] if the program does not fit, a function has no site that can be attached, or, under
/// [`Policy::Complete`], one that cannot.
pub fn plan(
    functions: &[Function],
    program: &UserProgram,
    uses: &Uses,
    kernel: &Kernel,
    options: PlanOptions,
) -> Result<Plan, PlanError> {
    plan_without(functions, program, uses, kernel, options, &Barred::default())
}

/// [`plan`] for a kernel that has refused something already.
pub(crate) fn plan_without(
    functions: &[Function],
    program: &UserProgram,
    uses: &Uses,
    kernel: &Kernel,
    options: PlanOptions,
    barred: &Barred,
) -> Result<Plan, PlanError> {
    let plan = decide(functions, program, uses, kernel, options, barred)?;
    for (index, function) in plan.functions.iter().enumerate() {
        let sites: Vec<_> = plan.sites.iter().filter(|site| site.function == index).cloned().collect();
        apply(plan.policy, &function.name, &sites)?;
    }
    Ok(plan)
}

/// Decides every site. The policy is one of the reasons for a decision, and is not applied to the whole.
pub(crate) fn decide(
    functions: &[Function],
    program: &UserProgram,
    uses: &Uses,
    kernel: &Kernel,
    options: PlanOptions,
    barred: &Barred,
) -> Result<Plan, PlanError> {
    let policy = options.policy.unwrap_or_else(|| Policy::of(options.form.kind));
    let mut planner = Planner::new(program, uses, kernel, options, policy, barred);
    let mut chosen = Vec::new();
    for function in functions {
        if !options.all_prototypes {
            check_namesakes(function, &program.name, uses)?;
        }
        for prototype in function.known_prototypes() {
            planner.check_prototype(prototype)?;
        }
        for candidate in &function.candidates {
            let mechanism = planner.mechanism(function, candidate);
            if let Ok(mechanism) = mechanism {
                planner.count_together(function, candidate, mechanism);
            }
            chosen.push(mechanism);
        }
    }
    let mut sites: Vec<PlannedSite> = Vec::new();
    let mut chosen = chosen.into_iter();
    for (index, function) in functions.iter().enumerate() {
        for (candidate, mechanism) in function.candidates.iter().zip(chosen.by_ref()) {
            let attached = mechanism.and_then(|best| planner.attach(function, candidate, sites.len(), best));
            let decision = match attached {
                Ok((mechanism, trampoline)) => Decision::Attach { mechanism, trampoline },
                Err(reason) => skip(candidate, reason),
            };
            let doubtful = match decision {
                Decision::Attach { .. } => planner.doubtful(function, candidate),
                Decision::Skip(_) => Vec::new(),
            };
            sites.push(PlannedSite { function: index, site: candidate.clone(), decision, doubtful });
        }
    }
    let functions = functions.iter().map(|function| PlannedFunction {
        name: function.name.clone(),
        prototypes: function.prototypes.clone(),
        left_out: function.left_out.clone(),
    });
    let (trampolines, programs) =
        planner.finish().map_err(|refusal| PlanError::Program { program: program.name.clone(), refusal })?;
    Ok(Plan {
        functions: functions.collect(),
        sites,
        trampolines,
        programs,
        policy,
        cookie: options.cookie,
        first_id: 0,
    })
}

/// The decision not to attach a site. Where a live patch has put its code out of use, that is said first.
fn skip(site: &Candidate, reason: Reason) -> Decision {
    Decision::Skip(match &site.live_patch {
        Some(Concern::OldBody { patch, dead: true }) if !reason.is_dead() => {
            Reason::LivePatched { patch: patch.clone(), otherwise: Box::new(reason) }
        }
        _ => reason,
    })
}

/// Applies the policy to one function's sites.
pub(crate) fn apply(policy: Policy, function: &str, sites: &[PlannedSite]) -> Result<(), PlanError> {
    let skipped = || {
        sites.iter().filter_map(|site| match &site.decision {
            Decision::Skip(reason) => Some(InTheWay::new(&site.site, reason)),
            Decision::Attach { .. } => None,
        })
    };
    if sites.iter().all(|site| matches!(site.decision, Decision::Skip(_))) {
        return Err(PlanError::Nothing { function: function.to_owned(), sites: skipped().collect() });
    }
    if policy == Policy::Complete {
        let in_the_way: Vec<InTheWay> = skipped().filter(|site| !site.reason.is_dead()).collect();
        if !in_the_way.is_empty() {
            return Err(PlanError::Incomplete { function: function.to_owned(), sites: in_the_way });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
