// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plans of programs that read doubtful arguments.

use super::*;
use crate::plan::mechanism::Mechanism;
use crate::site::unavailable::Unavailable;
use siteseer_sites::Doubt;

const WHY: Doubt = Doubt::Assigned;

fn doubtful(size: u32, location: Location) -> Argument {
    at(size, location).map(|located| located.doubtful(WHY))
}

/// Two inlined copies that differ in one thing: whether it is certain that `cap` is in the register.
fn certain_and_doubtful(world: &World) -> Function {
    let ns = || at(8, Location::Register(5));
    let mut function = join(
        world,
        vec![
            site(world, 0x24, "caller", vec![ns(), at(4, Location::Register(4))]),
            site(world, 0x28, "caller", vec![ns(), doubtful(4, Location::Register(4))]),
        ],
    );
    function.candidates.retain(|candidate| candidate.symbol == "caller");
    function
}

fn plan_with(
    function: &Function,
    program: &UserProgram,
    policy: Policy,
    accept_doubt: bool,
) -> Result<Plan, PlanError> {
    let uses = crate::program::analyse(program).unwrap();
    let options = PlanOptions { policy: Some(policy), accept_doubt, ..PlanOptions::default() };
    plan(std::slice::from_ref(function), program, &uses, &kernel(), options)
}

fn attached(plan: &Plan) -> Vec<bool> {
    plan.sites.iter().map(|site| matches!(site.decision, Decision::Attach { .. })).collect()
}

// Proves S4.15.
#[test]
fn a_doubtful_argument_counts_as_missing() {
    let function = certain_and_doubtful(&world());
    let plan = plan_with(&function, &reads(&[0, 1]), Policy::BestEffort, false).unwrap();
    assert_eq!(attached(&plan), [true, false]);
    let Decision::Skip(reason @ Reason::MissingArguments(missing)) = &plan.sites[1].decision else {
        panic!("{:?}", plan.sites[1].decision);
    };
    assert_eq!((missing.len(), missing[0].index, missing[0].why), (1, 1, Unavailable::Doubtful(WHY)));
    assert_eq!(reason.to_string(), format!("cap: doubtful: {WHY}"));
    assert!(reason.advice().unwrap().contains("accept_doubt"));
    assert!(plan.report().to_string().contains(&format!("not at 1 inline: cap: doubtful: {WHY}")));

    let refused = plan_with(&function, &reads(&[0, 1]), Policy::Complete, false).unwrap_err().to_string();
    assert!(refused.contains(&format!("cap: doubtful: {WHY}")) && refused.contains("accept_doubt"), "{refused}");
}

// Proves S4.16.
#[test]
fn accepted_doubt_is_reported() {
    let function = certain_and_doubtful(&world());
    let plan = plan_with(&function, &reads(&[0, 1]), Policy::Complete, true).unwrap();
    assert_eq!(attached(&plan), [true, true]);
    assert_eq!(plan.trampolines.len(), 1, "the locations are the same");
    assert!(plan.sites[0].doubtful.is_empty());
    assert_eq!(plan.sites[1].doubtful[0].why, WHY);
    let report = plan.report();
    assert!(report.to_string().contains(&format!("  at 1 of them cap is doubtful: {WHY}\n")), "{report}");
    let long = report.long().to_string();
    assert_eq!(long.matches("is doubtful").count(), 1, "{long}");
}

#[test]
fn an_argument_that_is_not_read_may_be_doubtful() {
    let function = certain_and_doubtful(&world());
    for accept in [false, true] {
        let plan = plan_with(&function, &reads(&[0]), Policy::Complete, accept).unwrap();
        assert_eq!((attached(&plan), plan.trampolines.len()), (vec![true, true], 1));
        assert!(plan.sites.iter().all(|site| site.doubtful.is_empty()));
    }
}

#[test]
fn the_accessor_does_not_have_a_doubtful_argument() {
    let function = certain_and_doubtful(&world());
    let arguments = |accept| -> Vec<Result<(), Unavailable>> {
        let plan = plan_with(&function, &asks(0, 1), Policy::Complete, accept).unwrap();
        let planned = plan.sites.iter().map(|site| match site.decision {
            Decision::Attach { trampoline, .. } => &plan.trampolines[trampoline].parameters[1].argument,
            Decision::Skip(_) => panic!("{:?}", site.decision),
        });
        planned.map(|argument| argument.as_ref().map(|_| ()).map_err(|why| *why)).collect()
    };
    assert_eq!(arguments(false), [Ok(()), Err(Unavailable::Doubtful(WHY))]);
    assert_eq!(arguments(true), [Ok(()), Ok(())]);
}

/// Real fentry takes arguments from where the calling convention has them, whatever the accessor was to answer.
#[test]
fn real_fentry_answers_for_no_doubtful_argument() {
    let world = world();
    let mut body = site(&world, 0, "foo", vec![at(8, Location::Register(5)), doubtful(4, Location::Register(4))]);
    body.kind = SiteKind::Body;
    let mut function = join(&world, vec![body]);
    function.candidates.retain(|candidate| candidate.symbol == "foo" && candidate.described);
    for candidate in &mut function.candidates {
        (candidate.exact, candidate.traceable) = (Some(world.foo), Some(true));
    }
    let kernel = Kernel { fentry: true, ..kernel() };
    let mechanism = |program: &UserProgram, accept_doubt| {
        let uses = crate::program::analyse(program).unwrap();
        let form = Form { kind: crate::program::section::Kind::Fentry, sleepable: false };
        let options = PlanOptions { form, accept_doubt, policy: Some(Policy::BestEffort), ..PlanOptions::default() };
        let plan = plan(std::slice::from_ref(&function), program, &uses, &kernel, options);
        plan.ok().and_then(|plan| match plan.sites[0].decision {
            Decision::Attach { mechanism, .. } => Some(mechanism),
            Decision::Skip(_) => None,
        })
    };
    assert_eq!(mechanism(&reads(&[0]), false), Some(Mechanism::Fentry));
    assert_eq!(mechanism(&reads(&[0, 1]), false), None);
    assert_eq!(mechanism(&reads(&[0, 1]), true), Some(Mechanism::Fentry));
    let asked = mechanism(&asks(0, 1), false).unwrap();
    assert_ne!(asked, Mechanism::Fentry);
    assert_eq!(mechanism(&asks(0, 1), true), Some(Mechanism::Fentry));
}
