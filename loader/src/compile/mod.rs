// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A BPF object with trampolines in it, for loaders that do not know siteseer, and what they have to attach where.
//!
//! The plan for a program of an object is made for a kernel that does not run, from its site data. The images of the
//! plan become ordinary programs in a new object: real fentry and fexit programs, and kprobe programs with their
//! trampolines. What the loader does with any object it does with this one: it relocates (maps, CO-RE, calls), and
//! loads. To attach, it is told a symbol, a distance and a cookie.
//!
//! It is one object, not two that share maps: maps, variables, constants and functions stay those of the user, with
//! their names, their BTF and their relocations, so that an application fills and reads them as before.
//!
//! # What cannot be compiled
//! * What only the running kernel tells: the value of an argument that is an address in the kernel's image (KASLR), and
//!   which site a program is at (`siteseer_site()` looks up a run-time address). The one is a reason for a site, the
//!   other an error.
//! * Mechanisms that need more than a program, a symbol and a cookie. The best mechanism of the others is used: fentry
//!   and fexit for bodies, kprobes and kretprobes for all else. If a program at the return reads arguments, only a
//!   kprobe session could keep them, so that a clone is left out then.
//! * Sites in modules: their site data is about one build of each module.
//!
//! # For one kernel
//! The object is for one build of the kernel: places, and BTF ids in the code (of `bpf_rdonly_cast()` and of the types
//! that it gives). Who attaches compares the build id.

mod code;
mod error;
mod ext;
mod input;
pub mod place;
mod write;

pub use error::CompileError;

use crate::kernel::{BuildId, Kernel};
use crate::plan::mechanism::{Barred, Mechanism, Pair};
use crate::plan::{self, Decision, InTheWay, Plan, PlanOptions, PlannedSite, Policy};
use crate::program::declared::Stated;
use crate::program::object_file::{self, FileProgram};
use crate::program::section::Kind;
use crate::program::{self, Uses};
use crate::site::candidate::Place;
use crate::target::Target;
use crate::target::function::{Function, Selection};
use code::Code;
use input::Input;
use place::{Places, SymbolPlace};
use siteseer_sites::Machine;
use siteseer_sites::site::SiteKind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The section of programs for kprobes. A loader that attaches by sections finds no function of this name, and says so:
/// the places are in the manifest.
const KPROBE: &str = "kprobe/siteseer";
const KRETPROBE: &str = "kretprobe/siteseer";

/// How an object is compiled.
#[derive(Debug, Clone, Copy)]
pub struct CompileOptions {
    /// What to do when not every site can be attached; `None` for what a program's section stands for ([`Policy::of`]).
    pub policy: Option<Policy>,
    /// What `bpf_get_attach_cookie()` answers.
    pub cookie: u64,
    /// Whether the loader can give a kprobe a cookie: if there are very many location prototypes, one program then
    /// serves several of them.
    pub cookies: bool,
    /// Whether doubtful arguments count as located.
    pub accept_doubt: bool,
    /// Whether to attach where a program is a risk to the kernel.
    pub allow_risky: bool,
}

impl Default for CompileOptions {
    fn default() -> CompileOptions {
        CompileOptions { policy: None, cookie: 0, cookies: true, accept_doubt: false, allow_risky: false }
    }
}

/// A program to attach to a place.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// The program, in the new object.
    pub program: String,
    /// How: [`Mechanism::Fentry`], [`Mechanism::Fexit`], [`Mechanism::Kprobe`], [`Mechanism::Kretprobe`].
    pub mechanism: Mechanism,
    /// Where.
    pub place: SymbolPlace,
    /// What the link's cookie has to be.
    pub cookie: u64,
    /// The function whose site it is.
    pub function: String,
    /// What the site is.
    pub kind: SiteKind,
    /// The symbol that holds it.
    pub holder: SymbolPlace,
    /// Where it was called or declared.
    pub source: Option<Place>,
}

/// A program of the object that was replaced.
#[derive(Debug, Clone)]
pub struct CompiledProgram {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: String,
    /// The policy that it was planned by.
    pub policy: Policy,
    /// What to attach in its place.
    pub attachments: Vec<Attachment>,
    /// Sites that it does not run at, by function.
    pub left_out: Vec<(String, InTheWay)>,
}

/// A compiled object.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The new object.
    pub object: Vec<u8>,
    /// The kernel that it is for.
    pub build_id: BuildId,
    /// That kernel's architecture.
    pub machine: Machine,
    /// The outcome for each program in a section of siteseer's.
    pub programs: Vec<CompiledProgram>,
}

/// A program, and what is known about it before it is planned.
struct Prepared {
    program: FileProgram,
    uses: Uses,
    functions: Vec<Function>,
    options: PlanOptions,
}

/// Compiles an object for the kernel that site data is about.
///
/// # Errors
/// [`CompileError`] if the object cannot be read or compiled, or the policy refuses a program.
pub fn compile(target: &Target, data: &[u8], options: CompileOptions) -> Result<Compiled, CompileError> {
    let mut input = Input::read(data)?;
    let kernel = capabilities(target.kernel(), options);
    let programs = object_file::read(data)?.into_iter();
    let prepared: Result<Vec<_>, _> = programs.map(|program| prepare(target, program, options)).collect();
    let mut prepared = prepared?;
    let functions: Vec<Function> = prepared.iter().flat_map(|one| one.functions.iter().cloned()).collect();
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    let all = !target.data().reads_dwarf();
    let places = target.data().read(&names, |file| Places::new(file, &functions, all && file.is_complete()))?;
    let places = places.map_err(|error| target.damaged(error))?;
    for one in &mut prepared {
        places.mark(&mut one.functions);
    }
    let mut code = Code::default();
    let mut programs = Vec::new();
    let mut replaced = BTreeSet::new();
    for (one, plan) in prepared.iter().zip(plans(&prepared, &kernel)?) {
        let Prepared { program, uses, .. } = one;
        replaced.extend(program.parts.first().map(|part| part.section));
        let names = add(&mut code, &mut input, program, uses, &plan)?;
        programs.push(CompiledProgram {
            name: program.program.name.clone(),
            section: program.section.clone(),
            policy: plan.policy,
            attachments: attachments(&plan, &names, &places)?,
            left_out: left_out(&plan),
        });
    }
    let object = write::write(&mut input, &replaced, code)?;
    Ok(Compiled { object, build_id: kernel.build_id.clone(), machine: kernel.machine, programs })
}

/// What other loaders can do on a kernel.
fn capabilities(kernel: &Kernel, options: CompileOptions) -> Kernel {
    Kernel {
        kprobe_multi: false,
        tracing_multi: false,
        kprobe_session: None,
        cookies: kernel.cookies && options.cookies,
        unplaced: true,
        ..kernel.clone()
    }
}

fn prepare(target: &Target, program: FileProgram, options: CompileOptions) -> Result<Prepared, CompileError> {
    let name = program.program.name.clone();
    if program.wanted.function.is_none() {
        return Err(CompileError::NoFunction { program: name, section: program.section });
    }
    if let Some(module) = program.wanted.module.as_ref().filter(|module| *module != "vmlinux") {
        return Err(CompileError::Module { program: name, module: module.clone() });
    }
    let uses = program::analyse(&program.program)
        .map_err(|refusal| CompileError::Program { program: name.clone(), refusal })?;
    if uses.site {
        return Err(CompileError::AsksForSite { program: name });
    }
    let stated = Stated::find(program.btf.as_deref(), &name)?;
    let selection = Selection { file: None, prototype: stated.prototype };
    let found = target.functions(std::slice::from_ref(&program.wanted))?;
    let functions = found.into_iter().map(|function| function.select(&selection)).collect::<Result<Vec<_>, _>>()?;
    let options = PlanOptions {
        policy: options.policy.or(stated.policy),
        form: program.form,
        cookie: options.cookie,
        accept_doubt: options.accept_doubt,
        allow_risky: options.allow_risky,
        ..PlanOptions::default()
    };
    Ok(Prepared { program, uses, functions, options })
}

/// The plans of all programs. Under [`Policy::AtLeastLibbpf`], entry and exit programs on one function are kept to the
/// same calls, as the loader keeps them.
fn plans(prepared: &[Prepared], kernel: &Kernel) -> Result<Vec<Plan>, CompileError> {
    let plan = |one: &Prepared, pair: Option<Arc<Pair>>| {
        let barred = Barred::kept_to(pair);
        let user = &one.program.program;
        let plan = plan::plan_without(&one.functions, user, &one.uses, kernel, one.options, &barred);
        plan.map_err(|error| CompileError::Plan { program: user.name.clone(), error })
    };
    let alone = prepared.iter().map(|one| plan(one, None)).collect::<Result<Vec<_>, _>>()?;
    let reached = |plan: &Plan| -> BTreeSet<u64> {
        let attached = plan.sites.iter().filter(|site| matches!(site.decision, Decision::Attach { .. }));
        attached.map(|site| site.site.address).collect()
    };
    let mut kept = Vec::new();
    for (one, own) in prepared.iter().zip(&alone) {
        // A program that knows of siteseer knows of copies without a return.
        let is_kept = own.policy == Policy::AtLeastLibbpf
            && one.program.form.kind != Kind::KprobeMaybeInline
            && one.uses.fallible.is_empty();
        let others = prepared.iter().zip(&alone).filter(|(other, _)| {
            is_kept
                && other.program.wanted == one.program.wanted
                && other.program.form.kind != Kind::KprobeMaybeInline
                && other.program.form.kind.is_exit() != one.program.form.kind.is_exit()
        });
        let pair = others.fold(None, |pair: Option<Pair>, (other, plan)| {
            let reached = reached(plan);
            Some(match pair {
                None => Pair { program: other.program.program.name.clone(), reached },
                Some(pair) => Pair { reached: &pair.reached | &reached, ..pair },
            })
        });
        kept.push(match pair {
            Some(pair) => plan(one, Some(Arc::new(pair)))?,
            None => own.clone(),
        });
    }
    Ok(kept)
}

/// Adds the programs of a plan to the object's code. Returns their names, in the plan's order.
fn add(
    code: &mut Code,
    input: &mut Input<'_>,
    program: &FileProgram,
    uses: &Uses,
    plan: &Plan,
) -> Result<Vec<String>, CompileError> {
    let user = &program.program.name;
    let mut names = Vec::new();
    for (planned, number) in plan.programs.iter().zip(1usize..) {
        if planned.image.gpl_only && !input.is_gpl() {
            return Err(CompileError::Licence { program: user.clone(), licence: input.licence.clone() });
        }
        let first = planned.trampolines.first().and_then(|&nth| plan.trampolines.get(nth));
        let site = first.and_then(|first| plan.sites.get(*first.sites.first()?));
        let symbol = site.map(|site| site.site.symbol.as_str()).unwrap_or_default();
        let mechanism = first.map_or(Mechanism::Kprobe, |first| first.mechanism);
        let sleepable = if program.form.sleepable { ".s" } else { "" };
        let section = match mechanism {
            Mechanism::Fentry | Mechanism::Fexit => format!("{mechanism}{sleepable}/{symbol}"),
            Mechanism::Kretprobe => KRETPROBE.to_owned(),
            _ => KPROBE.to_owned(),
        };
        let wish = format!("{user}_{number}");
        names.push(code.add(input, program, &planned.image, &uses.made_static, &section, &wish)?);
    }
    Ok(names)
}

/// What is to be attached where: every site that the plan attaches to.
fn attachments(plan: &Plan, names: &[String], places: &Places) -> Result<Vec<Attachment>, CompileError> {
    let served = plan.served_by();
    let attached = plan.sites.iter().filter_map(|planned| match planned.decision {
        Decision::Attach { mechanism, trampoline } => Some((planned, mechanism, trampoline)),
        Decision::Skip(_) => None,
    });
    let attachment = |(planned, mechanism, trampoline): (&PlannedSite, Mechanism, usize)| {
        let &(program, way) = served.get(trampoline)?;
        let site = &planned.site;
        // A trampoline has the user's cookie in its code, and the link's says which way to gather. Real fentry and
        // fexit programs ask for the link's.
        let cookie = if mechanism.probe().is_tracing() { plan.cookie } else { way };
        Some(Attachment {
            program: names.get(program)?.clone(),
            mechanism,
            place: places.of(site)?,
            cookie,
            function: plan.functions.get(planned.function)?.name.clone(),
            kind: site.kind,
            holder: SymbolPlace { symbol: site.symbol.clone(), offset: site.offset() },
            source: site.source.clone(),
        })
    };
    attached
        .map(|of| {
            let lost = || CompileError::Lost { symbol: of.0.site.symbol.clone(), offset: of.0.site.offset() };
            attachment(of).ok_or_else(lost)
        })
        .collect()
}

/// The sites that are not attached.
fn left_out(plan: &Plan) -> Vec<(String, InTheWay)> {
    let skipped = plan.sites.iter().filter_map(|planned| match &planned.decision {
        Decision::Skip(reason) => {
            let function = plan.functions.get(planned.function).map(|function| function.name.clone());
            Some((function.unwrap_or_default(), InTheWay::new(&planned.site, reason)))
        }
        Decision::Attach { .. } => None,
    });
    skipped.collect()
}
