// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plans under the policy `at_least_libbpf`, and of programs at both ends of the same calls.

use super::fentry::{form, modern, plan_all};
use super::*;
use crate::plan::mechanism::Pair;
use crate::program::section::Kind;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What happens to each site: its symbol, its distance, the mechanism or the reason's key.
fn outcomes(function: &Function, kind: Kind, policy: Policy, barred: &Barred) -> Vec<(String, u64, &'static str)> {
    let functions = std::slice::from_ref(function);
    let plan = plan_all(functions, &[0], form(kind), Some(policy), &modern(), barred).unwrap();
    let outcome = |site: &PlannedSite| match &site.decision {
        Decision::Attach { mechanism, .. } => mechanism.word(),
        Decision::Skip(reason) => reason.key(),
    };
    // The made-up kernel also has clones about which nothing is known.
    let sites = plan.sites.iter().filter(|site| site.site.kind != SiteKind::Clone);
    sites.map(|site| (site.site.symbol.clone(), site.site.offset(), outcome(site))).collect()
}

/// A body at which much stands against a probe, and copies: one in order, two with marks.
fn troubled(world: &World) -> Function {
    let marked = |offset, marks| {
        let mut copy = site(world, offset, "caller", both());
        copy.marks = marks;
        copy
    };
    let mut body = site(world, 0, "foo", both());
    body.kind = SiteKind::Body;
    body.marks = Marks::MAY_REPEAT;
    body.unprobeable = Some(Unprobeable::Noinstr);
    let copies = [site(world, 0x24, "caller", both()), marked(0x28, Marks::MAY_REPEAT), marked(0x2c, Marks::MAY_MISS)];
    join(world, std::iter::once(body).chain(copies).collect())
}

// Proves S0.2.
#[test]
fn at_least_what_libbpf_attaches_to() {
    let world = world();
    let function = troubled(&world);
    let at_least = outcomes(&function, Kind::Fentry, Policy::AtLeastLibbpf, &Barred::default());
    let seen: Vec<(u64, &str)> = at_least.iter().map(|(_, offset, outcome)| (*offset, *outcome)).collect();
    // The body as libbpf does, whatever is against a kprobe there; no copy whose hits could outnumber calls.
    assert_eq!(seen, [(0, "fentry"), (0x24, "kprobe"), (0x28, "may_repeat"), (0x2c, "kprobe")]);
    let best_effort = outcomes(&function, Kind::Fentry, Policy::BestEffort, &Barred::default());
    assert_eq!(best_effort[0].2, "noinstr");
    assert_eq!(best_effort[2].2, "kprobe");
    // Only the body has a return.
    let returns = outcomes(&function, Kind::Fexit, Policy::AtLeastLibbpf, &Barred::default());
    let returns: Vec<&str> = returns.iter().map(|(_, _, outcome)| *outcome).collect();
    assert_eq!(returns, ["fexit", "exit_of_inline", "exit_of_inline", "exit_of_inline"]);
}

#[test]
fn what_libbpf_would_attach_to_goes_no_other_way() {
    let world = world();
    let function = troubled(&world);
    let body = function.candidates.iter().find(|site| site.kind == SiteKind::Body).unwrap().address;
    let mut barred = Barred::default();
    let reason = Reason::Kernel { errno: libc::EBUSY, mechanism: "fentry", said: None };
    assert!(barred.add(body, Mechanism::Fentry, reason));
    // The kernel refuses fentry: what is against a probe there holds again.
    assert_eq!(outcomes(&function, Kind::Fentry, Policy::AtLeastLibbpf, &barred)[0].2, "noinstr");
}

// Proves S0.4.
#[test]
fn a_wrong_argument_is_not_had_for_libbpfs_sake() {
    let world = world();
    let mut body = site(&world, 0, "foo", vec![Err(Missing::Unread), at(4, Location::Register(4))]);
    body.kind = SiteKind::Body;
    let function = join(&world, vec![body, site(&world, 0x24, "caller", both())]);
    let outcomes = outcomes(&function, Kind::Fentry, Policy::AtLeastLibbpf, &Barred::default());
    assert_eq!(outcomes.iter().map(|(_, _, outcome)| *outcome).collect::<Vec<_>>(), ["missing_arguments", "kprobe"]);
}

#[test]
fn both_ends_are_at_the_same_calls() {
    let world = world();
    let function = join(&world, vec![site(&world, 0x24, "caller", both()), site(&world, 0x28, "caller", both())]);
    let sites = function.candidates.iter().filter(|site| site.kind != SiteKind::Clone);
    let addresses: Vec<u64> = sites.map(|site| site.address).collect();
    let kept_to = |reached: &[u64]| {
        let reached: BTreeSet<u64> = reached.iter().copied().collect();
        let barred = Barred::kept_to(Some(Arc::new(Pair { program: "leaves".to_owned(), reached })));
        let outcomes = outcomes(&function, Kind::Fentry, Policy::AtLeastLibbpf, &barred);
        outcomes.iter().map(|(_, _, outcome)| *outcome).collect::<Vec<_>>()
    };
    assert_eq!(kept_to(&addresses), ["fentry", "kprobe", "kprobe"]);
    assert_eq!(kept_to(&addresses[..2]), ["fentry", "kprobe", "unpaired"]);
    // The body is libbpf's in any case.
    assert_eq!(kept_to(&[]), ["fentry", "unpaired", "unpaired"]);
}
