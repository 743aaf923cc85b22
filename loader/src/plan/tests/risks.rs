// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Sites where the kernel accepts a program, and siteseer does not without being told to.

use super::fentry::modern;
use super::*;

/// What happens to the site in `caller`, which is called otherwise here.
fn decided(symbol: &str, policy: Policy, allow_risky: bool, release: &str) -> Result<Vec<Decision>, PlanError> {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    for candidate in function.candidates.iter_mut().filter(|candidate| candidate.symbol == "caller") {
        candidate.symbol = symbol.to_owned();
    }
    let kernel = Kernel { release: release.to_owned(), ..modern() };
    let program = reads(&[0]);
    let uses = crate::program::analyse(&program).unwrap();
    let options = PlanOptions { policy: Some(policy), allow_risky, ..PlanOptions::default() };
    let plan = plan(std::slice::from_ref(&function), &program, &uses, &kernel, options)?;
    Ok(plan.sites.into_iter().filter(|planned| planned.site.symbol == symbol).map(|planned| planned.decision).collect())
}

fn is_risky(symbol: &str, release: &str) -> bool {
    let decisions = decided(symbol, Policy::BestEffort, false, release).unwrap();
    matches!(&decisions[..], [Decision::Skip(Reason::Risky(_))])
}

// Proves S8.13.
#[test]
fn risky_sites_are_refused_unless_they_are_allowed() {
    assert!(is_risky("migrate_disable", "7.3.1") && is_risky("migrate_disable.constprop.0", "7.3.1"));
    assert!(!is_risky("caller", "7.3.1") && !is_risky("migrate_disable_switch", "7.3.1"));
    let allowed = decided("migrate_disable", Policy::BestEffort, true, "7.3.1").unwrap();
    assert!(matches!(allowed[..], [Decision::Attach { .. }]), "{allowed:?}");
    let refused = decided("migrate_disable", Policy::Complete, false, "7.3.1").unwrap_err().to_string();
    assert!(refused.contains("a program there is a risk: the kernel calls this function"), "{refused}");
    assert!(refused.contains("hint: the option allow_risky attaches it"), "{refused}");
}

#[test]
fn what_a_kernel_has_mended_is_not_a_risk_there() {
    for (release, risky) in
        [("6.1.0-50-amd64", true), ("6.12.9", true), ("6.15.0", false), ("7.3.1", false), ("", true)]
    {
        assert_eq!(is_risky("_raw_spin_unlock_irqrestore", release), risky, "{release}");
    }
}

/// What plain libbpf attaches is attached.
#[test]
fn a_body_that_libbpf_attaches_is_not_refused() {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    for candidate in &mut function.candidates {
        candidate.symbol = "_raw_spin_unlock_irqrestore".to_owned();
    }
    let kernel = Kernel { release: "6.12".to_owned(), ..modern() };
    let form = super::fentry::form(crate::program::section::Kind::Fentry);
    let policy = Some(Policy::AtLeastLibbpf);
    let plan =
        super::fentry::plan_all(std::slice::from_ref(&function), &[0], form, policy, &kernel, &Barred::default())
            .unwrap();
    let of = |kind: SiteKind| plan.sites.iter().find(|planned| planned.site.kind == kind).map(|site| &site.decision);
    assert!(matches!(of(SiteKind::Body), Some(Decision::Attach { mechanism: Mechanism::Fentry, .. })), "{plan:?}");
    assert!(matches!(of(SiteKind::Inline), Some(Decision::Skip(Reason::Risky(_)))), "{plan:?}");
}
