// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How each site of a function is reached, whatever a program reads there: for those who load and attach programs themselves.
//!
//! A plan is for one program, and leaves a site out for an argument that this program reads. Who makes programs per site wants all
//! sites, each with its own locations, and decides. Two plans are made for that: one for a program that reads nothing
//! says how a site is reached, or why no probe can be there; one for a program that reads everything, under
//! [`Policy::Complete`], says what would be in the way of somebody who must see all calls with all arguments.

use crate::explain::{by_prototype, reader};
use crate::plan::mechanism::{Barred, Mechanism};
use crate::plan::{self, Decision, Plan, PlanError, PlanOptions, Policy};
use crate::program::section::{Form, Kind};
use crate::program::{self, UserProgram};
use crate::site::reason::Reason;
use crate::target::Target;
use crate::target::function::Function;

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

fn one(target: &Target, function: Function, kind: Kind) -> Result<Outline, PlanError> {
    let decide = |program: &UserProgram, policy: Policy| -> Result<Plan, PlanError> {
        let uses = program::analyse(program)
            .map_err(|refusal| PlanError::Program { program: program.name.clone(), refusal })?;
        let options =
            PlanOptions { policy: Some(policy), form: Form { kind, sleepable: false }, ..PlanOptions::default() };
        plan::decide(std::slice::from_ref(&function), program, &uses, target.kernel(), options, &Barred::default())
    };
    let Some(prototype) = function.prototypes.first() else {
        return Ok(Outline { function, reached: Vec::new(), in_the_way: Vec::new() });
    };
    let all = reader(prototype, kind.is_exit());
    let nothing = UserProgram { insns: all.insns[all.insns.len() - 2..].to_vec(), ..all.clone() };
    let reached = decide(&nothing, Policy::BestEffort)?.sites.into_iter().map(|site| match site.decision {
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
