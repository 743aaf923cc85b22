// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How libbpf loads a program: found out just before, by planning it.
//!
//! Wherever plain libbpf could load a program, it is loaded for its own function, as plain libbpf does. Then whatever
//! makes a link of its descriptor (`bpf_program__attach_trace()`, `bpf_link_create()`, a pinned program, a copy of
//! its instructions) sees what it always saw, and the kernel's information names the function. What siteseer adds are
//! more programs, loaded when libbpf's own call attaches it.
//!
//! siteseer has nothing to add if the function has one body, which the kernel's own fentry or fexit reaches, and no
//! other site that can run. Then libbpf attaches it, too. The same holds where nothing can be planned (no site data,
//! a privilege that is missing).
//!
//! What plain libbpf could not load goes behind the guard ([`crate::program::section`]), where only siteseer can
//! attach it: a program that calls what siteseer.bpf.h has; one whose function has no FUNC, or is such that the kernel
//! does not accept a program for it; one that would find arguments in the body elsewhere than fentry looks for them. If
//! siteseer cannot have it either, the load fails, as libbpf's does.

use super::func::{self, Func};
use super::{RegisterError, shared};
use crate::attach::{Attach, AttachError, AttachOptions};
use crate::bpf::helper::{SITESEER_ARG, SITESEER_ARG_SLOT, SITESEER_SITE};
use crate::bpf::load::LoadAs;
use crate::plan::mechanism::{Barred, Choice, Mechanism};
use crate::plan::report::Report;
use crate::plan::{Decision, Plan, PlanError, Policy};
use crate::program::Uses;
use crate::program::object::{Loaded, Program};
use crate::program::section::Told;
use crate::register::log::{LogLevel, say};
use crate::site::reason::Reason;
use crate::target::Target;
use libbpf_sys as sys;
use siteseer_sites::site::SiteKind;
use siteseer_sites::with_causes;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// How libbpf is to load a program.
pub(super) enum Load {
    /// For its own function; libbpf attaches it, too.
    Plain(Func, Report),
    /// For its own function; siteseer attaches it there and elsewhere.
    Own(Func),
    /// Behind the guard.
    Guarded,
    /// Not at all: with libbpf's errno, for this reason.
    Refused(io::Error, Box<RegisterError>),
}

/// What a program was planned to.
struct Planned {
    target: Arc<Target>,
    plan: Plan,
    uses: Uses,
    accept_doubt: bool,
}

impl Planned {
    /// The addresses of the sites that it reaches.
    fn reached(&self) -> BTreeSet<u64> {
        let attached = self.plan.sites.iter().filter(|site| matches!(site.decision, Decision::Attach { .. }));
        attached.map(|site| site.site.address).collect()
    }
}

/// A decision, and the sites that the program reaches besides its own body.
pub(super) struct Decided {
    pub(super) load: Load,
    pub(super) reached: BTreeSet<u64>,
}

/// Decides how a program is loaded. `by_itself` is whether libbpf's calls attach it unasked: others are not planned.
pub(super) fn load(program: Program<'_>, loaded: &Loaded<'_>, by_itself: bool) -> Decided {
    let options = super::programs::known(program.raw()).map(|known| known.stated_options()).unwrap_or_default();
    let names_nothing = options.names_nothing();
    // To find it requires a walk over the kernel's types.
    let func = || match func::told(loaded.told) {
        _ if asks_siteseer(loaded.insns) || !names_nothing => None,
        Some(func) => Some(Ok(func)),
        // The plan tells which of a program's functions is meant.
        None if matches!(loaded.told, Told::Program { .. }) => None,
        None => program.wanted().ok().filter(|wanted| wanted.function.is_some()).map(|wanted| func::named(&wanted)),
    };
    let planned = by_itself.then(|| planned(program, loaded, super::options().complete(options)));
    let reached = match &planned {
        Some(Ok(planned)) => planned.reached(),
        _ => BTreeSet::new(),
    };
    let load = match planned {
        Some(Ok(planned)) => match only_body(&planned, loaded).filter(|_| !asks_siteseer(loaded.insns)) {
            Some(only) => Load::Plain(only, planned.plan.report()),
            None => own(loaded, func(), |func| finds_its_arguments(&planned, func, loaded)),
        },
        Some(Err(error)) => match func() {
            Some(Ok(func)) if !is_about_arguments(&error) => {
                let why = with_causes(&error);
                say(LogLevel::Debug, format_args!("prog '{}': not planned when it was loaded: {why}", loaded.name));
                Load::Own(func)
            }
            Some(Err(errno)) => Load::Refused(errno, Box::new(error)),
            _ => Load::Guarded,
        },
        None => own(loaded, func(), |_| true),
    };
    Decided { load, reached }
}

/// The sites that a `kprobe_maybe_inline` program reaches. Nothing depends on them but its pair: if it cannot be
/// planned, it is said when it is attached.
pub(super) fn reached(program: Program<'_>, loaded: &Loaded<'_>) -> BTreeSet<u64> {
    let options = super::programs::known(program.raw()).map(|known| known.stated_options()).unwrap_or_default();
    let planned = planned(program, loaded, super::options().complete(options));
    planned.map(|planned| planned.reached()).unwrap_or_default()
}

/// For its own function, if there is one and the kernel accepts programs for it.
fn own(loaded: &Loaded<'_>, func: Option<io::Result<Func>>, is_right: impl FnOnce(&Func) -> bool) -> Load {
    match func {
        Some(Ok(func)) if is_right(&func) && is_open(loaded, &func) => Load::Own(func),
        _ => Load::Guarded,
    }
}

/// Whether plain libbpf would attach a program where it finds something else than its arguments.
fn is_about_arguments(error: &RegisterError) -> bool {
    let RegisterError::Attach(AttachError::Plan(
        PlanError::Nothing { sites, .. } | PlanError::Incomplete { sites, .. },
    )) = error
    else {
        return false;
    };
    sites.iter().any(|site| site.kind == SiteKind::Body && is_of_arguments(&site.reason))
}

fn is_of_arguments(reason: &Reason) -> bool {
    matches!(reason, Reason::MissingArguments(_) | Reason::ReturnRemoved)
}

fn planned(program: Program<'_>, loaded: &Loaded<'_>, options: AttachOptions) -> Result<Planned, RegisterError> {
    let target = shared::target()?;
    let options = options.or_policy(Some(Policy::by_libbpf(loaded.form.kind)));
    let accept_doubt = options.accepts_doubt();
    let (plan, uses) = Attach::with(&target, options).plan_loaded(program, loaded.clone())?;
    Ok(Planned { target, plan, uses, accept_doubt })
}

/// Whether the program calls what siteseer.bpf.h has.
pub(super) fn asks_siteseer(insns: &[sys::bpf_insn]) -> bool {
    const CALL: u8 = (sys::BPF_JMP | sys::BPF_CALL) as u8;
    const OURS: [u32; 3] = [SITESEER_ARG, SITESEER_ARG_SLOT, SITESEER_SITE];
    insns.iter().any(|insn| insn.code == CALL && insn.src_reg() == 0 && OURS.contains(&(insn.imm as u32)))
}

/// The one site that can run, if it goes by fentry or fexit and the kernel accepts a program there.
fn only_body(planned: &Planned, loaded: &Loaded<'_>) -> Option<Func> {
    let plan = &planned.plan;
    let mut live =
        plan.sites.iter().filter(|site| !matches!(&site.decision, Decision::Skip(reason) if reason.is_dead()));
    let (Some(site), None) = (live.next(), live.next()) else { return None };
    let Decision::Attach { mechanism: mechanism @ (Mechanism::Fentry | Mechanism::Fexit), trampoline } = site.decision
    else {
        return None;
    };
    // Modules' BTF is another matter: what siteseer attaches there is the same.
    let trampoline = plan.trampolines.get(trampoline).filter(|planned| planned.module.is_none())?;
    let func = Func::of_program(trampoline.func?, trampoline.program);
    let kind = LoadAs::of(mechanism, trampoline.func, None, trampoline.program, loaded.form.sleepable);
    // What the kernel does not accept for this function may be attached in another way.
    kind.refuses_all().is_none().then_some(func)
}

/// Whether a program that is loaded for the function finds its arguments in the body: where the compiler changed the
/// signature, fentry would give it something else.
fn finds_its_arguments(planned: &Planned, func: &Func, loaded: &Loaded<'_>) -> bool {
    let &Planned { ref target, ref plan, ref uses, accept_doubt } = planned;
    let barred = Barred::default();
    let mut bodies = plan.sites.iter().filter(|planned| {
        planned.site.kind == SiteKind::Body && planned.site.module == func.own.module && planned.site.bpf.is_none()
    });
    bodies.all(|planned| {
        if matches!(&planned.decision, Decision::Skip(reason) if is_of_arguments(reason)) {
            return false;
        }
        let function = plan.functions.get(planned.function);
        let Some(prototype) = function.and_then(|function| function.prototypes.get(planned.site.prototype)) else {
            return false;
        };
        let (kernel, form) = (target.kernel(), loaded.form);
        Choice { candidate: &planned.site, prototype, uses, form, kernel, barred: &barred, accept_doubt }
            .passed_by_convention()
    })
}

/// Whether the kernel accepts programs for the function. What it has against this one program is the verifier's affair,
/// and libbpf says it when the object is loaded, as ever.
fn is_open(loaded: &Loaded<'_>, func: &Func) -> bool {
    let mechanism = if loaded.form.kind.is_exit() { Mechanism::Fexit } else { Mechanism::Fentry };
    let module = func.object();
    LoadAs::of(mechanism, Some(func.own.func), module, func.own.program, loaded.form.sleepable).refuses_all().is_none()
}
