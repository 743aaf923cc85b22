// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What would be attached, by what, and what not and why. No system call is made here.
//!
//! Every candidate of every function ends in exactly one decision. The steps, in this order, so that the reason that is
//! given is the one that could not be mended by changing the program:
//!
//! 1. what stands against a probe there whatever the program (dead text, noinstr, the blacklist, ...);
//! 2. what the program's section cannot have there: a return of an inlined copy, sleep at a kprobe;
//! 3. marks: an entry that is not certain is never attached; one that may be reached again from inside is not
//!    attached under [`Policy::Complete`], because hits would outnumber calls;
//! 4. arguments: all that the program reads must have a location, and so must the return value;
//! 5. a mechanism that reaches the site;
//! 6. a trampoline: one per distinct set of locations of what the program reads, and per mechanism. It is
//!    generated here without the maps that it will refer to, so that what stands against it is known beforehand.
//!
//! Bodies that real fentry reaches take a program each, loaded for that function. Where several could do with one, and the
//! kernel has the tracing-multi link, they are put together once all sites have their mechanisms.
//!
//! Then the policy is applied. Sites in text that never runs again are reported, and do not count against
//! [`Policy::Complete`].

use crate::function::{Candidate, Function, Place, Prototype};
use crate::kernel::Kernel;
use crate::livepatch::Concern;
use crate::mechanism::{Barred, Choice, Mechanism, keeps_return};
use crate::program::{UserProgram, Uses};
use crate::reason::{MissingArgument, Reason};
use crate::refusal::Refusal;
use crate::report::Report;
use crate::section::{Form, Kind};
use crate::trampoline::{self, KernelIds, SavedMap, Spec};
use siteseer_sites::abi::{ParamShape, abi_return};
use siteseer_sites::btf::TypeId;
use siteseer_sites::location::Missing;
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::HashMap;
use std::fmt;

/// What to do when not every site can be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// All sites or none.
    Complete,
    /// What can be attached is, and the rest is reported.
    #[default]
    BestEffort,
}

impl Policy {
    /// What holds for a section's programs if nothing is said: a function that is traced in part without a word is what
    /// `fentry` and `fexit` programs must not meet; `kprobe_maybe_inline` has it in its name.
    pub fn of(kind: Kind) -> Policy {
        match kind {
            Kind::KprobeMaybeInline => Policy::BestEffort,
            Kind::Fentry | Kind::Fexit => Policy::Complete,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Complete => "complete",
            Policy::BestEffort => "best_effort",
        })
    }
}

/// What the caller wants of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOptions {
    /// What to do when not every site can be attached; `None` for what the program's section stands for ([`Policy::of`]).
    pub policy: Option<Policy>,
    /// What kind of program it is.
    pub form: Form,
    /// What `bpf_get_attach_cookie()` answers.
    pub cookie: u64,
    /// Whether functions of one name are taken together even if their prototypes differ.
    pub all_prototypes: bool,
}

/// What becomes of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is attached.
    Attach {
        /// By what.
        mechanism: Mechanism,
        /// Index into [`Plan::trampolines`].
        trampoline: usize,
    },
    /// It is not.
    Skip(Reason),
}

/// A site, and what becomes of it.
#[derive(Debug, Clone)]
pub struct PlannedSite {
    /// Index into [`Plan::functions`].
    pub function: usize,
    /// The site.
    pub site: Candidate,
    /// What becomes of it.
    pub decision: Decision,
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
    /// The kernel's FUNC that the program is loaded for, if it is loaded for one.
    pub func: Option<TypeId>,
    /// The BPF program whose FUNC that is, by id, if it is not the kernel's.
    pub program: Option<u32>,
    /// The map that keeps arguments from the entry to the return, if it needs one.
    pub saved: Option<SavedMap>,
    /// What is added to address constants.
    pub displacement: u64,
    /// Its sites: indices into [`Plan::sites`].
    pub sites: Vec<usize>,
    /// BPF instructions, the user's among them.
    pub insns: usize,
}

/// Descriptors of the maps that a trampoline refers to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Maps {
    /// The map of sites.
    pub sites: Option<i32>,
    /// The counter of faults.
    pub faults: Option<i32>,
    /// What [`PlannedTrampoline::saved`] asks for.
    pub saved: Option<i32>,
}

impl Maps {
    /// In place of maps that are created when attaching.
    const NOT_YET: Maps = Maps { sites: Some(0), faults: Some(0), saved: Some(0) };
}

impl PlannedTrampoline {
    /// What to generate it from.
    pub fn spec<'a>(&'a self, kernel: &Kernel, cookie: u64, maps: Maps) -> Spec<'a> {
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
            },
            site_map: maps.sites,
            fault_map: maps.faults,
            saved_map: maps.saved,
        }
    }
}

/// What would be attached.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names and prototypes of the functions.
    pub functions: Vec<PlannedFunction>,
    /// Every candidate site.
    pub sites: Vec<PlannedSite>,
    /// The programs to load.
    pub trampolines: Vec<PlannedTrampoline>,
    /// The options that it was made with.
    pub policy: Policy,
    /// What `bpf_get_attach_cookie()` answers.
    pub cookie: u64,
}

/// A function of a plan.
#[derive(Debug, Clone)]
pub struct PlannedFunction {
    /// Name.
    pub name: String,
    /// Its prototypes, as [`Function::prototypes`].
    pub prototypes: Vec<Prototype>,
}

impl Plan {
    /// The plan as a report: what it would attach as attached.
    pub fn report(&self) -> Report {
        Report::of(self)
    }
}

/// A site that is in the way.
#[derive(Debug, Clone)]
pub struct InTheWay {
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
        write!(f, "{} {}+{:#x}", self.kind, self.symbol, self.offset)?;
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

/// A function among several of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namesake {
    /// Its prototype, as C text.
    pub prototype: String,
    /// Where functions with it are declared.
    pub declared: Vec<Place>,
}

impl fmt::Display for Namesake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prototype)?;
        for (nth, place) in self.declared.iter().enumerate() {
            write!(f, "{}{}:{}", if nth == 0 { " in " } else { ", " }, place.file, place.line)?;
        }
        Ok(())
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
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
        "there are several functions {function}, and they take different arguments:{}",
        namesakes.iter().map(|namesake| format!("\n  {namesake}")).collect::<String>()
    )]
    Ambiguous {
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

/// Which prototypes have to agree: those that are known. A program that reads no argument takes any.
fn check_namesakes(function: &Function, uses: &Uses) -> Result<(), PlanError> {
    if !reads_arguments(uses) || function.known_prototypes().nth(1).is_none() {
        return Ok(());
    }
    let namesakes = function
        .known_prototypes()
        .map(|prototype| Namesake { prototype: prototype.text.clone(), declared: prototype.declared.clone() });
    Err(PlanError::Ambiguous { function: function.name.clone(), namesakes: namesakes.collect() })
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
    let mut planner = Planner {
        program,
        uses,
        kernel,
        options,
        policy,
        barred,
        trampolines: Vec::new(),
        keys: HashMap::new(),
        together: HashMap::new(),
    };
    let mut chosen = Vec::new();
    for function in functions {
        if !options.all_prototypes {
            check_namesakes(function, uses)?;
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
            sites.push(PlannedSite { function: index, site: candidate.clone(), decision });
        }
    }
    let functions = functions
        .iter()
        .map(|function| PlannedFunction { name: function.name.clone(), prototypes: function.prototypes.clone() });
    Ok(Plan { functions: functions.collect(), sites, trampolines: planner.trampolines, policy, cookie: options.cookie })
}

/// The decision not to attach a site. Where a live patch has put its code out of use, that is said first.
pub(crate) fn skip(site: &Candidate, reason: Reason) -> Decision {
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

/// What distinguishes programs that are loaded.
type ImageKey = (Mechanism, bool, Option<(Option<u32>, TypeId)>, trampoline::Key);

struct Planner<'a> {
    program: &'a UserProgram,
    uses: &'a Uses,
    kernel: &'a Kernel,
    options: PlanOptions,
    policy: Policy,
    barred: &'a Barred,
    trampolines: Vec<PlannedTrampoline>,
    keys: HashMap<ImageKey, usize>,
    /// How many sites one program of a tracing-multi link could serve.
    together: HashMap<ImageKey, usize>,
}

impl Planner<'_> {
    /// What stands against the program at any site of a prototype.
    fn check_prototype(&self, prototype: &Prototype) -> Result<(), PlanError> {
        let exit = self.options.form.kind.is_exit() && prototype.result.is_some();
        let have = prototype.slots() + u32::from(exit);
        match self.uses.slots.named().find(|&slot| slot >= have) {
            None => Ok(()),
            Some(slot) => Err(PlanError::Prototype {
                program: self.program.name.clone(),
                prototype: prototype.text.clone(),
                refusal: Refusal::ReadsSlotBeyond { slot, have },
            }),
        }
    }

    /// The best mechanism for a site, or why there is none.
    fn mechanism(&self, function: &Function, site: &Candidate) -> Result<Mechanism, Reason> {
        if let Some(obstacle) = &site.obstacle {
            return Err(obstacle.clone());
        }
        let form = self.options.form;
        if site.kind == SiteKind::Inline && form.kind.is_exit() {
            return Err(Reason::ExitOfInline);
        }
        if site.kind == SiteKind::Inline && form.sleepable {
            return Err(Reason::Sleepable);
        }
        if site.marks.contains(Marks::ENTRY_UNCERTAIN) {
            return Err(Reason::EntryUncertain);
        }
        if site.marks.contains(Marks::MAY_REPEAT) && self.policy == Policy::Complete {
            return Err(Reason::MayRepeat);
        }
        if let Some(bpf) = &site.bpf
            && !bpf.tail_slots.is_empty()
            && self.policy == Policy::Complete
        {
            return Err(Reason::TailCalled(bpf.tail_slots.clone()));
        }
        let prototype = function.prototypes.get(site.prototype).ok_or(Reason::NoPrototype)?;
        if prototype.func.is_none() && requires_arguments(self.uses) {
            return Err(if site.kind == SiteKind::Clone { Reason::NoLocationData } else { Reason::NoPrototype });
        }
        let mut missing = missing_arguments(site, prototype, self.uses);
        if form.kind.is_exit() && self.uses.requires_return(prototype.slots()) {
            missing.extend(self.missing_return(prototype));
            if missing.is_empty() && !keeps_return(site) {
                return Err(Reason::ReturnRemoved);
            }
        }
        if !missing.is_empty() {
            return Err(Reason::MissingArguments(missing));
        }
        let Planner { uses, kernel, barred, .. } = *self;
        Choice { candidate: site, prototype, uses, form, kernel, barred }.best()
    }

    /// Why a return value is nowhere to be read.
    fn missing_return(&self, prototype: &Prototype) -> Option<MissingArgument> {
        let why = match &prototype.result {
            None => Missing::NoType,
            // The context has one slot for it.
            Some(result) if result.size > 8 => Missing::Unsupported,
            Some(_) => return None,
        };
        let index = prototype.parameters.len();
        Some(MissingArgument { index, name: "the return value".to_owned(), why })
    }

    /// The trampoline that a site takes for itself.
    fn planned(&self, function: &Function, site: &Candidate, index: usize, mechanism: Mechanism) -> PlannedTrampoline {
        let prototype = function.prototypes.get(site.prototype);
        let machine = self.kernel.machine;
        let parameters = prototype.into_iter().flat_map(|prototype| prototype.parameters.iter().zip(&site.arguments));
        let parameters = parameters.map(|(parameter, argument)| trampoline::Parameter {
            size: parameter.size,
            argument: if mechanism.lacks_arguments() { Err(Missing::OptimisedOut) } else { argument.clone() },
            typed: parameter.pointee,
        });
        let result = prototype.and_then(|prototype| prototype.result.as_ref());
        let ret = result.filter(|_| mechanism.probe().is_exit()).map(|result| {
            let shape = ParamShape { size: result.size, signed: result.signed, composite: result.composite };
            let argument = abi_return(machine, shape);
            trampoline::Parameter { size: result.size, argument, typed: result.pointee }
        });
        PlannedTrampoline {
            mechanism,
            inline: site.kind == SiteKind::Inline,
            parameters: parameters.collect(),
            ret,
            func: site.exact.filter(|_| mechanism.is_for_one()),
            program: site.bpf.as_ref().map(|bpf| bpf.program),
            saved: None,
            displacement: function.displacement,
            sites: vec![index],
            insns: 0,
        }
    }

    fn key(&self, planned: &PlannedTrampoline) -> Result<ImageKey, Refusal> {
        let key = planned.spec(self.kernel, self.options.cookie, Maps::NOT_YET).key(self.uses)?;
        Ok((planned.mechanism, planned.inline, planned.func.map(|func| (planned.program, func)), key))
    }

    /// What a site would share with others through a tracing-multi link.
    fn shared(&self, function: &Function, site: &Candidate, mechanism: Mechanism) -> Option<(Mechanism, ImageKey)> {
        // There the trampoline makes the typed pointers, and the verifier trusts none of them.
        let many = mechanism.of_many().filter(|_| self.kernel.tracing_multi && !self.uses.wants_trusted)?;
        if site.bpf.is_some() || self.barred.get(site.address, many).is_some() {
            return None;
        }
        let planned = self.planned(function, site, 0, many);
        let spec = planned.spec(self.kernel, self.options.cookie, Maps::NOT_YET);
        trampoline::generate(self.program, self.uses, &spec).ok()?;
        Some((many, self.key(&planned).ok()?))
    }

    fn count_together(&mut self, function: &Function, site: &Candidate, mechanism: Mechanism) {
        if let Some((_, key)) = self.shared(function, site, mechanism) {
            *self.together.entry(key).or_default() += 1;
        }
    }

    /// Finds or makes the trampoline for a site.
    fn attach(
        &mut self,
        function: &Function,
        site: &Candidate,
        index: usize,
        best: Mechanism,
    ) -> Result<(Mechanism, usize), Reason> {
        let many = self.shared(function, site, best).filter(|(_, key)| self.together.get(key).is_some_and(|&n| n > 1));
        let mechanism = many.map_or(best, |(many, _)| many);
        let mut planned = self.planned(function, site, index, mechanism);
        let key = self.key(&planned).map_err(Reason::Refused)?;
        if let Some(&known) = self.keys.get(&key) {
            if let Some(trampoline) = self.trampolines.get_mut(known) {
                trampoline.sites.push(index);
            }
            return Ok((mechanism, known));
        }
        let spec = planned.spec(self.kernel, self.options.cookie, Maps::NOT_YET);
        let saved = spec.saved(self.uses).map_err(Reason::Refused)?;
        let image = trampoline::generate(self.program, self.uses, &spec).map_err(Reason::Refused)?;
        (planned.saved, planned.insns) = (saved, image.insns.len());
        self.keys.insert(key, self.trampolines.len());
        self.trampolines.push(planned);
        Ok((mechanism, self.trampolines.len() - 1))
    }
}

/// The parameters that the program reads and the site does not have.
fn missing_arguments(site: &Candidate, prototype: &Prototype, uses: &Uses) -> Vec<MissingArgument> {
    let mut first = 0;
    let mut missing = Vec::new();
    for (index, parameter) in prototype.parameters.iter().enumerate() {
        let slots = first..first + parameter.slots;
        first = slots.end;
        let why = match site.arguments.get(index) {
            Some(Ok(_)) => continue,
            Some(Err(why)) => *why,
            None => Missing::NotMentioned,
        };
        if uses.requires(slots) {
            missing.push(MissingArgument { index, name: parameter.name.clone(), why });
        }
    }
    missing
}

#[cfg(test)]
mod tests;
