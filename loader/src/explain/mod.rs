// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A plan in words: at which places a program would run, by which mechanism, at which it would not and why, and what
//! can be done.
//!
//! Everything is taken from plans: for each kind of program the sites are decided as for an attachment, under
//! [`Policy::BestEffort`] (which leaves most standing), and the policy that the section has by default is asked for
//! its verdict on that. Nothing is loaded and nothing changed. The program is one of two:
//!
//! * a program that reads all that there is ([`Attach`](crate::Attach) would be asked for the most by it), made up here
//!   for the function's prototype;
//! * a program of an object file, read from the file ([`crate::program::object_file`]): what libbpf's relocation
//!   changes in it does not change which arguments it reads. It need not be loaded for that, so that the kernel need
//!   not be at hand.
//!
//! Functions of one name that take different arguments are explained one by one: no program reads them all.

#[cfg(test)]
mod bpf_programs;
pub mod check;
mod error;
pub mod outline;
mod text;

pub use error::ExplainError;

use crate::bpf::insn::{Insn, Width};
use crate::plan::mechanism::Barred;
use crate::plan::{self, Decision, Plan, PlanError, PlanOptions, Policy};
use crate::program::declared::Stated;
use crate::program::object_file::FileProgram;
use crate::program::section::{Form, Kind, Wanted};
use crate::program::{self, UserProgram};
use crate::target::Target;
use crate::target::function::{Candidate, Function, Prototype, Selection};

/// What is explained.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The function, with one prototype.
    pub function: Function,
    /// What the function returns, as C text.
    pub result: String,
    /// Name of the program; `None` for the one that reads everything.
    pub program: Option<String>,
    /// Which kernel it is about: a sentence.
    pub kernel: String,
    /// What happens to each kind of program; the first is the one that is shown site by site.
    pub verdicts: Vec<Verdict>,
    /// What else is to be known: sentences.
    pub notes: Vec<String>,
}

/// What happens to a program of one kind.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The section.
    pub form: Form,
    /// The policy that the section has by default.
    pub policy: Policy,
    /// Every site decided, without a policy; or why the program does not fit the function at all.
    pub plan: Result<Plan, String>,
    /// Why it would be refused under the policy, where it would: the sites in the way, as indices into the plan's.
    pub in_the_way: Vec<usize>,
}

impl Verdict {
    /// Whether the program would be attached.
    pub fn is_attached(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| self.in_the_way.is_empty() && attached(plan) > 0)
    }
}

fn attached(plan: &Plan) -> usize {
    plan.sites.iter().filter(|site| matches!(site.decision, Decision::Attach { .. })).count()
}

/// A program that reads every slot that a prototype has, each whole.
pub(crate) fn reader(prototype: &Prototype, exit: bool) -> UserProgram {
    let slots = prototype.slots() + u32::from(exit && prototype.result.is_some());
    let load = |slot: u32| Some(Insn::load(Width::D, 2, 1, i16::try_from(slot.checked_mul(8)?).ok()?));
    let mut insns: Vec<Insn> = (0..slots).filter_map(load).collect();
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    UserProgram { name: "a program that reads all of them".to_owned(), insns, exit, ..UserProgram::default() }
}

/// Decides a program's sites as if by no policy, and asks the section's default for its verdict.
fn verdict(function: &Function, program: &UserProgram, form: Form, policy: Policy, target: &Target) -> Verdict {
    let decide = |policy| -> Result<Plan, PlanError> {
        let uses = program::analyse(program)
            .map_err(|refusal| PlanError::Program { program: program.name.clone(), refusal })?;
        let options = PlanOptions { policy: Some(policy), form, ..PlanOptions::default() };
        plan::decide(std::slice::from_ref(function), program, &uses, target.kernel(), options, &Barred::default())
    };
    let in_the_way = match decide(policy) {
        Ok(plan) if policy == Policy::Complete => {
            let skipped = plan.sites.iter().enumerate().filter(|(_, site)| match &site.decision {
                Decision::Skip(reason) => !reason.is_dead(),
                Decision::Attach { .. } => false,
            });
            skipped.map(|(index, _)| index).collect()
        }
        _ => Vec::new(),
    };
    let plan = decide(Policy::BestEffort).map_err(|error| error.to_string());
    Verdict { form, policy, plan, in_the_way }
}

/// One function for each prototype that functions of the name have. One that the image and modules have is one.
pub(crate) fn by_prototype(function: &Function) -> Vec<Function> {
    let all = &function.prototypes;
    let like = |one: &Prototype| all.iter().position(|other| other.is_like(one));
    let kinds = all.iter().map(like).collect::<Vec<_>>();
    let of_kind = |first: usize| {
        let members: Vec<usize> = (0..all.len()).filter(|&nth| kinds[nth] == Some(first)).collect();
        let candidates = function.candidates.iter().filter_map(|site| {
            let prototype = members.iter().position(|&nth| nth == site.prototype)?;
            Some(Candidate { prototype, ..site.clone() })
        });
        let candidates = candidates.collect();
        let prototypes = members.iter().filter_map(|&nth| all.get(nth).cloned()).collect();
        Function { prototypes, candidates, ..function.clone() }
    };
    let firsts = (0..all.len()).filter(|&nth| kinds[nth] == Some(nth));
    firsts.map(of_kind).filter(|function| !function.candidates.is_empty()).collect()
}

/// Looks a name up; one function for each prototype.
fn lookup(target: &Target, wanted: &Wanted) -> Result<Vec<Function>, ExplainError> {
    let functions = target.functions(std::slice::from_ref(wanted))?;
    Ok(functions.iter().flat_map(by_prototype).collect())
}

/// What a program that reads everything would meet, at each kind of section. One explanation for each prototype that
/// functions of the name have.
///
/// # Errors
/// [`ExplainError::Section`] if it is not a function's name, [`ExplainError::Target`] if there is no such function, or
/// the site data cannot be read.
pub fn function(target: &Target, name: &str) -> Result<Vec<Explanation>, ExplainError> {
    let functions = lookup(target, &Wanted::parse(name)?)?;
    let several = functions.len() > 1;
    let explain = |function: Function| {
        let verdicts = [Kind::Fentry, Kind::Fexit, Kind::KprobeMaybeInline].map(|kind| {
            let prototype = function.prototypes.first();
            let program = prototype.map(|prototype| reader(prototype, kind.is_exit())).unwrap_or_default();
            verdict(&function, &program, Form { kind, sleepable: false }, Policy::of(kind), target)
        });
        explanation(target, function, None, verdicts.to_vec(), several)
    };
    Ok(functions.into_iter().map(explain).collect())
}

/// What a program of an object file would meet at a function.
///
/// # Errors
/// As [`function`]; [`ExplainError::Select`] if none is what the program states.
pub fn program(target: &Target, wanted: &Wanted, program: &FileProgram) -> Result<Vec<Explanation>, ExplainError> {
    let stated = Stated::find(program.btf.as_deref(), &program.program.name)?;
    let selection = Selection { file: None, prototype: stated.prototype };
    let policy = stated.policy.unwrap_or_else(|| Policy::of(program.form.kind));
    let mut functions = Vec::new();
    for function in target.functions(std::slice::from_ref(wanted))? {
        functions.extend(by_prototype(&function.select(&selection)?));
    }
    let several = functions.len() > 1;
    let explain = |function: Function| {
        let verdict = verdict(&function, &program.program, program.form, policy, target);
        explanation(target, function, Some(program.program.name.clone()), vec![verdict], several)
    };
    Ok(functions.into_iter().map(explain).collect())
}

fn explanation(
    target: &Target,
    function: Function,
    program: Option<String>,
    verdicts: Vec<Verdict>,
    several: bool,
) -> Explanation {
    let mut notes = Vec::new();
    if several {
        notes.push(format!(
            "Other functions are named {} too, and take other arguments: this is about those that take these. A program \
             in SEC(\"fentry/{}\") that reads arguments is refused until it says which it means, by SITESEER_PROTO() of \
             siteseer.bpf.h.",
            function.name, function.name
        ));
    }
    notes.extend(target.notes_of_data().map(|note| format!("{note}.")));
    notes.extend(target.modules().note_of_missing().map(|note| format!("{note}.")));
    notes.extend(target.unavailable().iter().cloned());
    if program.is_some() {
        notes.push(
            "The program was read from its file, without libbpf: code that libbpf or the verifier removes, because of a \
             relocation or a constant, counts as run. What it reads there counts as read."
                .to_owned(),
        );
    }
    let result = match function.prototypes.first() {
        Some(Prototype { func: Some(_), result, .. }) => {
            result.as_ref().map_or_else(|| "void".to_owned(), |result| result.type_name.clone())
        }
        _ => String::new(),
    };
    Explanation { function, result, program, kernel: target.describe(), verdicts, notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_reads_everything() {
        let mut prototype = Prototype {
            module: None,
            func: Some(1),
            text: String::new(),
            parameters: Vec::new(),
            result: None,
            variadic: false,
            signature: None,
            declared: Vec::new(),
            statement: String::new(),
        };
        let parameter = |size: u32| crate::target::function::Parameter {
            name: String::new(),
            ty: 1,
            type_name: String::new(),
            size,
            signed: false,
            composite: size > 8,
            irregular: false,
            slots: size.div_ceil(8),
            pointee: None,
            foreign: false,
        };
        prototype.parameters = vec![parameter(4), parameter(16)];
        let uses = program::analyse(&reader(&prototype, false)).unwrap();
        assert_eq!(uses.slots.named().collect::<Vec<_>>(), [0, 1, 2]);
        prototype.result = Some(parameter(8));
        let uses = program::analyse(&reader(&prototype, true)).unwrap();
        assert!(uses.requires_return(3) && uses.slots.contains(3));
    }
}
