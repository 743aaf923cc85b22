// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How each site of a function is reached, whatever a program reads there: for those who load and attach programs
//! themselves.
//!
//! A plan is for one program, and leaves a site out for an argument that this program reads. Who makes programs per
//! site wants all sites, each with its own locations, and decides. Two plans are made for that: one for a program that
//! reads nothing says how a site is reached, or why no probe can be there; one for a program that reads everything,
//! under [`Policy::Complete`], says what would be in the way of somebody who must see all calls with all arguments.

use crate::explain::{ExplainError, by_prototype, lookup, reader};
use crate::plan::mechanism::{Barred, Mechanism};
use crate::plan::report::Report;
use crate::plan::{self, Decision, Plan, PlanError, PlanOptions, Policy};
use crate::program::section::{Form, Kind, Wanted};
use crate::program::{self, UserProgram};
use crate::site::reason::Reason;
use crate::target::function::{Function, Prototype};
use crate::target::{Target, TargetError};

/// A function with one prototype, and its sites.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The function. What follows has one entry for each of its candidates, in their order.
    pub function: Function,
    /// How a program that reads nothing would be attached; or why it would not.
    pub reached: Vec<Result<Mechanism, Reason>>,
    /// Why a program that reads everything would be refused at the site under [`Policy::Complete`], if it would be.
    pub in_the_way: Vec<Option<Reason>>,
}

/// How the sites of a function are reached: one outline for each prototype that functions of the name have, since no
/// program reads the arguments of all.
///
/// # Errors
/// [`PlanError`] if no plan can be made, even for a program that reads nothing.
pub fn outline(target: &Target, function: &Function, kind: Kind) -> Result<Vec<Outline>, PlanError> {
    by_prototype(function).into_iter().map(|function| one(target, function, kind)).collect()
}

/// The sites of all functions of a name, `[module:]function`, as a report: attached is what a program that reads
/// nothing would be attached to.
///
/// # Errors
/// [`ExplainError`] if it is not a function's name, there is no such function, or no site of it can have a probe.
pub fn sites(target: &Target, name: &str, kind: Kind) -> Result<Report, ExplainError> {
    let mut all: Option<Report> = None;
    let mut next = 0;
    for function in lookup(target, &Wanted::parse(name)?)? {
        let Some(prototype) = function.prototypes.first() else { continue };
        let mut plan = decide(target, &function, &nothing(prototype, kind), kind, Policy::BestEffort)?;
        plan.first_id = next;
        next = next.saturating_add(u32::try_from(plan.sites.len()).unwrap_or(u32::MAX));
        let report = plan.report();
        match &mut all {
            None => all = Some(report),
            Some(all) => all.functions.extend(report.functions),
        }
    }
    all.ok_or_else(|| TargetError::Unknown { name: name.to_owned(), nearest: Vec::new() }.into())
}

/// A program that reads nothing.
fn nothing(prototype: &Prototype, kind: Kind) -> UserProgram {
    let all = reader(prototype, kind.is_exit());
    // The last two instructions return.
    UserProgram { insns: all.insns[all.insns.len() - 2..].to_vec(), ..all }
}

/// The decisions about a program.
fn decide(
    target: &Target,
    function: &Function,
    program: &UserProgram,
    kind: Kind,
    policy: Policy,
) -> Result<Plan, PlanError> {
    let uses =
        program::analyse(program).map_err(|refusal| PlanError::Program { program: program.name.clone(), refusal })?;
    let options = PlanOptions { policy: Some(policy), form: Form { kind, sleepable: false }, ..PlanOptions::default() };
    plan::decide(std::slice::from_ref(function), program, &uses, target.kernel(), options, &Barred::default())
}

fn one(target: &Target, function: Function, kind: Kind) -> Result<Outline, PlanError> {
    let Some(prototype) = function.prototypes.first() else {
        return Ok(Outline { function, reached: Vec::new(), in_the_way: Vec::new() });
    };
    let decide = |program: &UserProgram, policy: Policy| decide(target, &function, program, kind, policy);
    let all = reader(prototype, kind.is_exit());
    let reached = decide(&nothing(prototype, kind), Policy::BestEffort)?.sites.into_iter();
    let reached = reached.map(|site| match site.decision {
        Decision::Attach { mechanism, .. } => Ok(mechanism),
        Decision::Skip(reason) => Err(reason),
    });
    let reached = reached.collect();
    let in_the_way = decide(&all, Policy::Complete)?.sites.into_iter().map(|site| match site.decision {
        Decision::Skip(reason) if !reason.is_dead() => Some(reason),
        _ => None,
    });
    let in_the_way = in_the_way.collect();
    Ok(Outline { function, reached, in_the_way })
}
