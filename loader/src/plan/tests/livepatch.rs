// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Live patches: what they put out of use is not in the way, what they redirect is.

use super::*;
use crate::target::livepatch::{LivePatches, Patched};

fn patches(functions: &[(&str, u32)], transition: bool) -> LivePatches {
    let patched = |&(function, position): &(&str, u32)| Patched {
        patch: "fix".to_owned(),
        object: "vmlinux".to_owned(),
        function: function.to_owned(),
        position,
    };
    LivePatches { functions: functions.iter().map(patched).collect(), transition, ..LivePatches::default() }
}

/// A body, and copies in both callers; the one in `caller_two` lacks an argument.
fn function(world: &World, patches: &LivePatches) -> Function {
    let mut body = site(world, 0, "foo", both());
    body.kind = SiteKind::Body;
    let lacking = site(world, 0x2c, "caller_two", vec![at(8, Location::Register(3)), Err(Missing::OptimisedOut)]);
    let data = vec![body, site(world, 0x24, "caller", both()), lacking];
    let mut function = join(world, data);
    function.candidates.retain(|candidate| candidate.index.is_some());
    patches.mark(&mut function.candidates, &symbols());
    function
}

// Proves S21.3.
#[test]
fn an_old_body_is_not_in_the_way() {
    let world = world();
    let reads = reads(&[0, 1]);
    let untouched = function(&world, &LivePatches::default());
    let refused = plan_of(&untouched, &reads, Policy::Complete).unwrap_err().to_string();
    assert!(refused.contains("caller_two"), "{refused}");
    // The copy that cannot be attached does not run any more; the other one goes on being attached.
    let replaced = function(&world, &patches(&[("caller_two", 1), ("caller", 1)], false));
    let text = plan_of(&replaced, &reads, Policy::Complete).unwrap().report().long().to_string();
    assert!(text.contains("in a function that the live patch fix has replaced (cap: optimised out)"), "{text}");
    assert!(text.contains("attached at 2 of 3 sites"), "{text}");
    assert!(text.contains("1 of them in code that the live patch fix has replaced, which does not run"), "{text}");
    // In transition some tasks still run it.
    let changing = function(&world, &patches(&[("caller_two", 1)], true));
    assert!(plan_of(&changing, &reads, Policy::Complete).is_err());
    // The patched one is another function of the name.
    let other = function(&world, &patches(&[("caller_two", 2)], false));
    assert!(plan_of(&other, &reads, Policy::Complete).is_err());
}

// Proves S21.1, S21.2.
#[test]
fn calls_are_seen_at_the_entry_and_not_behind_it() {
    let world = world();
    let patches = patches(&[("foo", 1)], false);
    let replaced = function(&world, &patches);
    let text = plan_of(&replaced, &reads(&[0]), Policy::Complete).unwrap().report().to_string();
    assert!(text.contains("attached at 3 of 3 sites") && text.contains("fix has replaced foo"), "{text}");
    let mut behind = function(&world, &LivePatches::default());
    let body = behind.candidates.iter_mut().find(|candidate| candidate.kind == SiteKind::Body).unwrap();
    (body.address, body.moved) = (body.address + 4, 4);
    patches.mark(&mut behind.candidates, &symbols());
    let refused = plan_of(&behind, &reads(&[0]), Policy::Complete).unwrap_err().to_string();
    assert!(refused.contains("fix redirects its calls"), "{refused}");
}
