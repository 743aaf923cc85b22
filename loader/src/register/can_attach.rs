// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a function can be traced at all: what tools ask before they choose between `fentry` and something else.
//! Tools that ask the kernel's BTF are told of functions that ftrace does not know.
//!
//! Such tools then often call `bpf_program__set_attach_target()`, where libbpf accepts only functions that the kernel's
//! BTF has. All other functions are refused, and at once: the kernel's tables need not be read for this.

use super::{RegisterError, func, shared};
use crate::bpf::load::LoadAs;
use crate::explain::{self, ExplainError};
use crate::plan::mechanism::Mechanism;
use crate::plan::{self, PlanError, Policy};
use crate::program::section::{Kind, Wanted};
use crate::register::log::{LogLevel, say};
use crate::target::TargetError;
use siteseer_sites::with_causes;

/// Whether a `fentry` program that reads all arguments of a function could be attached to it somewhere: by siteseer
/// at one site at least, or, where siteseer cannot plan, as by plain libbpf. `module` restricts it to the function of
/// a module. A function that the kernel's BTF does not have cannot be attached to:
/// `bpf_program__set_attach_target()` would refuse it.
///
/// # Errors
/// Why not.
pub fn can_attach(function: &str, module: Option<&str>) -> Result<(), RegisterError> {
    let wanted = Wanted { module: module.map(str::to_owned), function: Some(function.to_owned()) };
    let name = module.map_or_else(|| function.to_owned(), |module| format!("{module}:{function}"));
    Wanted::parse(&name)?;
    if module.is_none() && func::named(&wanted).is_err() {
        return Err(RegisterError::NoFunc { function: function.to_owned() });
    }
    let planned = shared::target().and_then(|target| Ok(explain::function(&target, &name)?));
    let error = match planned {
        Ok(explanations) => match reached(&explanations, function) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
        Err(error) => error,
    };
    // A name that nothing has, or whose sites are all out of reach, is out of libbpf's reach, too.
    let is_certain = matches!(
        &error,
        RegisterError::Explain(ExplainError::Target(
            TargetError::Unknown { .. } | TargetError::UnknownInModule { .. } | TargetError::NotLoaded { .. }
        ))
    );
    if is_certain || !loads(&wanted) {
        return Err(error);
    }
    let why = with_causes(&error);
    say(LogLevel::Debug, format_args!("{name}: can be attached as by plain libbpf: {why}"));
    Ok(())
}

/// Whether one of the explained functions is reached at one site.
fn reached(explanations: &[explain::Explanation], function: &str) -> Result<(), RegisterError> {
    let mut why = PlanError::Nothing { function: function.to_owned(), sites: Vec::new() };
    for explanation in explanations {
        let verdicts = explanation.verdicts.iter().filter(|verdict| verdict.form.kind == Kind::Fentry);
        for plan in verdicts.filter_map(|verdict| verdict.plan.as_ref().ok()) {
            match plan::apply(Policy::BestEffort, function, &plan.sites) {
                Ok(()) => return Ok(()),
                Err(error) => why = error,
            }
        }
    }
    Err(why.into())
}

/// Whether plain libbpf finds the function, and the kernel accepts a program for it.
fn loads(wanted: &Wanted) -> bool {
    func::named(wanted).is_ok_and(|func| {
        let kind = LoadAs::of(Mechanism::Fentry, Some(func.own.func), func.object(), None, false);
        kind.refuses_all().is_none()
    })
}
