// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The decision about each site: by which mechanism and which trampoline, or why not.

use super::{PlanError, PlanOptions, PlannedProgram, PlannedTrampoline, Policy, requires_arguments, sharing};
use crate::kernel::Kernel;
use crate::plan::mechanism::{Barred, Choice, Mechanism, keeps_return};
use crate::program::{UserProgram, Uses};
use crate::site::reason::{MissingArgument, Reason};
use crate::site::refusal::Refusal;
use crate::site::unavailable::{DoubtfulArgument, Unavailable, available};
use crate::target::function::{Candidate, Function, Parameter, Prototype};
use crate::trampoline::{self, Image};
use siteseer_sites::abi::abi_return;
use siteseer_sites::btf::TypeId;
use siteseer_sites::location::Missing;
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::HashMap;
use std::sync::Arc;

/// What distinguishes programs that are loaded.
type ImageKey = (Mechanism, bool, Option<(Option<u32>, TypeId)>, Option<Arc<str>>, trampoline::Key);

/// Decides site by site.
pub(super) struct Planner<'a> {
    program: &'a UserProgram,
    uses: &'a Uses,
    kernel: &'a Kernel,
    options: PlanOptions,
    policy: Policy,
    barred: &'a Barred,
    trampolines: Vec<PlannedTrampoline>,
    /// The image of each trampoline that may have a program of its own.
    images: Vec<Option<Image>>,
    /// How many of them are for kprobes.
    kprobes: usize,
    keys: HashMap<ImageKey, usize>,
    /// What one program of a tracing-multi link could serve.
    together: HashMap<ImageKey, Together>,
}

/// A program of a tracing-multi link that could serve several sites.
struct Together {
    sites: usize,
    /// `None` if there is no such program, or it has been planned.
    image: Option<Image>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        program: &'a UserProgram,
        uses: &'a Uses,
        kernel: &'a Kernel,
        options: PlanOptions,
        policy: Policy,
        barred: &'a Barred,
    ) -> Planner<'a> {
        let (trampolines, images, keys, together) = (Vec::new(), Vec::new(), HashMap::new(), HashMap::new());
        Planner { program, uses, kernel, options, policy, barred, trampolines, images, kprobes: 0, keys, together }
    }

    /// The trampolines of the sites that were attached, and the programs that have them.
    pub(super) fn finish(mut self) -> Result<(Vec<PlannedTrampoline>, Vec<PlannedProgram>), Refusal> {
        let mut programs = Vec::new();
        let beyond = if self.may_share() { self.beyond() } else { usize::MAX };
        for group in sharing::groups(&self.trampolines, beyond, |planned| self.outline(planned)) {
            if group.len() > 1
                && let Ok(image) = self.generate(&group)
            {
                programs.push(PlannedProgram { trampolines: group, image: Arc::new(image) });
                continue;
            }
            for nth in group {
                let kept = self.images.get_mut(nth).and_then(Option::take);
                let image = kept.map_or_else(|| self.generate(&[nth]), Ok)?;
                programs.push(PlannedProgram { trampolines: vec![nth], image: Arc::new(image) });
            }
        }
        Ok((self.trampolines, programs))
    }

    /// Beyond how many trampolines at kprobes they share programs.
    fn beyond(&self) -> usize {
        self.options.share_beyond.unwrap_or(sharing::BEYOND)
    }

    fn may_share(&self) -> bool {
        self.kernel.cookies && !self.barred.sharing
    }

    /// The program of some trampolines.
    fn generate(&self, trampolines: &[usize]) -> Result<Image, Refusal> {
        let members = trampolines.iter().filter_map(|&nth| self.trampolines.get(nth));
        let specs: Vec<_> = members.map(|planned| planned.spec(self.kernel, self.options.cookie)).collect();
        trampoline::generate_shared(self.program, self.uses, &specs)
    }

    /// What a trampoline must have in common with others to share a program.
    fn outline(&self, planned: &PlannedTrampoline) -> Option<ImageKey> {
        let spec = planned.spec(self.kernel, self.options.cookie);
        Some((planned.mechanism, planned.inline, None, planned.module.clone(), spec.outline(self.uses).ok()?))
    }

    /// What stands against the program at any site of a prototype.
    pub(super) fn check_prototype(&self, prototype: &Prototype) -> Result<(), PlanError> {
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
    pub(super) fn mechanism(&self, function: &Function, site: &Candidate) -> Result<Mechanism, Reason> {
        // The kprobe blacklist is not a list of what ftrace may not trace.
        let traced = site.is_entry() && site.traceable == Some(true);
        let libbpfs = self.is_libbpfs(site);
        let obstacle = self.kernel.obstacle(site).filter(|obstacle| !(traced && obstacle.is_about_kprobes()));
        let risk = super::risks::of(site, self.kernel).filter(|_| !self.options.allow_risky).map(Reason::Risky);
        let obstacle = obstacle.or(risk.as_ref());
        if let Some(obstacle) = obstacle.filter(|_| !libbpfs) {
            return Err(obstacle.clone());
        }
        let form = self.options.form;
        if site.kind == SiteKind::Inline && form.kind.is_exit() {
            return Err(Reason::ExitOfInline);
        }
        if site.kind == SiteKind::Inline && form.sleepable {
            return Err(Reason::Sleepable);
        }
        if site.marks.contains(Marks::ENTRY_UNCERTAIN) && !libbpfs {
            return Err(Reason::EntryUncertain);
        }
        if site.marks.contains(Marks::MAY_REPEAT) && self.policy != Policy::BestEffort && !libbpfs {
            return Err(Reason::MayRepeat);
        }
        if site.marks.contains(Marks::MAY_MISS) && self.policy == Policy::Complete {
            return Err(Reason::MayMiss);
        }
        if let Some(bpf) = &site.bpf
            && !bpf.tail_slots.is_empty()
            && self.policy == Policy::Complete
        {
            return Err(Reason::TailCalled(bpf.tail_slots.clone()));
        }
        if let Some(unpaired) = self.barred.unpaired(site.address).filter(|_| !libbpfs) {
            return Err(unpaired);
        }
        let prototype = function.prototypes.get(site.prototype).ok_or(Reason::NoPrototype)?;
        if prototype.func.is_none() && requires_arguments(self.uses) {
            return Err(if site.kind == SiteKind::Clone { Reason::NoLocationData } else { Reason::NoPrototype });
        }
        let mut missing = missing_arguments(site, prototype, self.uses, self.options.accept_doubt);
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
        let accept_doubt = self.options.accept_doubt;
        let best = Choice { candidate: site, prototype, uses, form, kernel, barred, accept_doubt }.best()?;
        match obstacle {
            // Plain libbpf would not go otherwise.
            Some(obstacle) if !best.is_for_one() => Err(obstacle.clone()),
            _ => Ok(best),
        }
    }

    /// Whether plain libbpf attaches there: then nothing but wrong arguments stands against it.
    fn is_libbpfs(&self, site: &Candidate) -> bool {
        self.policy == Policy::AtLeastLibbpf && site.kind == SiteKind::Body && site.exact.is_some() && site.is_entry()
    }

    /// What the program reads at a site from doubtful locations.
    pub(super) fn doubtful(&self, function: &Function, site: &Candidate) -> Vec<DoubtfulArgument> {
        let Some(prototype) = function.prototypes.get(site.prototype) else { return Vec::new() };
        let doubtful = read_of(prototype, self.uses).filter_map(|(index, _, parameter)| {
            let why = site.available(index, self.options.accept_doubt).ok()?.doubt?;
            Some(DoubtfulArgument { index, name: parameter.name.clone(), why })
        });
        doubtful.collect()
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
        Some(MissingArgument { index, name: "the return value".to_owned(), why: why.into() })
    }

    /// The trampoline that a site needs for itself.
    fn planned(&self, function: &Function, site: &Candidate, index: usize, mechanism: Mechanism) -> PlannedTrampoline {
        let prototype = function.prototypes.get(site.prototype);
        let machine = self.kernel.machine;
        let parameters = prototype.into_iter().flat_map(|prototype| prototype.parameters.iter().zip(&site.arguments));
        let parameters = parameters.map(|(parameter, argument)| trampoline::Parameter {
            size: parameter.size,
            argument: if mechanism.lacks_arguments() {
                Err(Missing::OptimisedOut.into())
            } else {
                available(argument, self.options.accept_doubt).cloned()
            },
            typed: parameter.pointee,
            foreign: parameter.foreign,
        });
        let result = prototype.and_then(|prototype| prototype.result.as_ref());
        let ret = result.filter(|_| mechanism.probe().is_exit()).map(|result| {
            let argument = abi_return(machine, result.shape()).map_err(Unavailable::from);
            trampoline::Parameter { size: result.size, argument, typed: result.pointee, foreign: result.foreign }
        });
        PlannedTrampoline {
            mechanism,
            inline: site.kind == SiteKind::Inline,
            parameters: parameters.collect(),
            ret,
            func: site.exact.filter(|_| mechanism.is_for_one()),
            module: site.module.clone().filter(|_| mechanism.probe().is_tracing()),
            program: site.bpf.as_ref().map(|bpf| bpf.program),
            displacement: function.displacement,
            sites: vec![index],
            insns: 0,
        }
    }

    fn key(&self, planned: &PlannedTrampoline) -> Result<ImageKey, Refusal> {
        let key = planned.spec(self.kernel, self.options.cookie).key(self.uses)?;
        let func = planned.func.map(|func| (planned.program, func));
        Ok((planned.mechanism, planned.inline, func, planned.module.clone(), key))
    }

    /// What a site would share with others through a tracing-multi link.
    fn shared(&self, function: &Function, site: &Candidate, mechanism: Mechanism) -> Option<(Mechanism, ImageKey)> {
        // There the trampoline makes the typed pointers, and the verifier trusts none of them.
        let may = self.kernel.tracing_multi && !self.uses.wants_trusted && !self.options.own;
        let many = mechanism.of_many().filter(|_| may)?;
        if site.bpf.is_some() || self.barred.get(site.address, many).is_some() {
            return None;
        }
        let planned = self.planned(function, site, 0, many);
        Some((many, self.key(&planned).ok()?))
    }

    pub(super) fn count_together(&mut self, function: &Function, site: &Candidate, mechanism: Mechanism) {
        let Some((many, key)) = self.shared(function, site, mechanism) else { return };
        if let Some(together) = self.together.get_mut(&key) {
            together.sites += usize::from(together.image.is_some());
            return;
        }
        let planned = self.planned(function, site, 0, many);
        let spec = planned.spec(self.kernel, self.options.cookie);
        let image = trampoline::generate(self.program, self.uses, &spec).ok();
        let sites = usize::from(image.is_some());
        self.together.insert(key, Together { sites, image });
    }

    /// Finds or makes the trampoline for a site.
    pub(super) fn attach(
        &mut self,
        function: &Function,
        site: &Candidate,
        index: usize,
        best: Mechanism,
    ) -> Result<(Mechanism, usize), Reason> {
        let is_worth = |key: &ImageKey| self.together.get(key).is_some_and(|together| together.sites > 1);
        let many = self.shared(function, site, best).filter(|(_, key)| is_worth(key));
        let mechanism = many.map_or(best, |(many, _)| many);
        let mut planned = self.planned(function, site, index, mechanism);
        let key = self.key(&planned).map_err(Reason::Refused)?;
        if let Some(&known) = self.keys.get(&key) {
            if let Some(trampoline) = self.trampolines.get_mut(known) {
                trampoline.sites.push(index);
            }
            return Ok((mechanism, known));
        }
        let image = match self.together.get_mut(&key).and_then(|together| together.image.take()) {
            Some(image) => image,
            None => {
                let spec = planned.spec(self.kernel, self.options.cookie);
                trampoline::generate(self.program, self.uses, &spec).map_err(Reason::Refused)?
            }
        };
        planned.insns = image.insns.len();
        // If there are very many, they share programs, which are generated at the end.
        self.kprobes += usize::from(mechanism == Mechanism::Kprobe);
        let shares = mechanism == Mechanism::Kprobe && self.may_share() && self.kprobes > self.beyond();
        self.images.push((!shares).then_some(image));
        self.keys.insert(key, self.trampolines.len());
        self.trampolines.push(planned);
        Ok((mechanism, self.trampolines.len() - 1))
    }
}

/// What the program may read of each parameter of a prototype: its index, whether it must be there, and the parameter.
fn read_of<'a>(prototype: &'a Prototype, uses: &'a Uses) -> impl Iterator<Item = (usize, bool, &'a Parameter)> + 'a {
    let mut first = 0;
    prototype.parameters.iter().zip(0u32..).filter_map(move |(parameter, index)| {
        let slots = first..first + parameter.slots;
        first = slots.end;
        let required = uses.requires(slots);
        (required || uses.fallible.contains(index)).then_some((index as usize, required, parameter))
    })
}

/// The parameters that the program reads and the site does not have.
fn missing_arguments(site: &Candidate, prototype: &Prototype, uses: &Uses, accept_doubt: bool) -> Vec<MissingArgument> {
    let required = read_of(prototype, uses).filter(|(_, required, _)| *required);
    let missing = required.filter_map(|(index, _, parameter)| {
        let why = site.available(index, accept_doubt).err()?;
        Some(MissingArgument { index, name: parameter.name.clone(), why })
    });
    missing.collect()
}
