// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plans of fentry and fexit programs: which mechanism, which policy, what is in the way.

use super::*;
use crate::kernel::Session;
use crate::program::section::Kind;
use crate::trampoline::Kfunc;

/// A kernel that has everything.
pub(super) fn modern() -> Kernel {
    let kfunc = |id| Kfunc { id, takes_context: true };
    Kernel {
        fentry: true,
        tracing_multi: true,
        kprobe_session: Some(Session { is_return: kfunc(11), cookie: kfunc(12) }),
        kretprobe: Some(0),
        ..kernel()
    }
}

pub(super) fn form(kind: Kind) -> Form {
    Form { kind, sleepable: false }
}

pub(super) fn plan_all(
    functions: &[Function],
    slots: &[i16],
    form: Form,
    policy: Option<Policy>,
    kernel: &Kernel,
    barred: &Barred,
) -> Result<Plan, PlanError> {
    let program = UserProgram { exit: form.kind.is_exit(), ..reads(slots) };
    let uses = crate::program::analyse(&program).unwrap();
    let options = PlanOptions { policy, form, ..PlanOptions::default() };
    plan_without(functions, &program, &uses, kernel, options, barred)
}

/// The mechanism at a symbol, or the reason's key.
fn at_symbol(function: &Function, symbol: &str, slots: &[i16], kind: Kind, kernel: &Kernel) -> &'static str {
    let mut function = function.clone();
    function.candidates.retain(|candidate| candidate.symbol == symbol);
    let functions = std::slice::from_ref(&function);
    match plan_all(functions, slots, form(kind), Some(Policy::BestEffort), kernel, &Barred::default()) {
        Ok(plan) => match &plan.sites[0].decision {
            Decision::Attach { mechanism, .. } => mechanism.word(),
            Decision::Skip(reason) => reason.key(),
        },
        Err(PlanError::Nothing { sites, .. }) => sites[0].reason.key(),
        Err(error) => panic!("{error}"),
    }
}

fn clone_of(world: &World, symbol: &str, arguments: Vec<Argument>) -> DataSite {
    DataSite { kind: SiteKind::Clone, ..site(world, 0, symbol, arguments) }
}

#[test]
fn entries() {
    let world = world();
    let data = vec![clone_of(&world, "foo.constprop.1", both()), site(&world, 0x24, "caller", both())];
    let function = join(&world, data);
    let by = |symbol, kernel: &Kernel| at_symbol(&function, symbol, &[0, 1], Kind::Fentry, kernel);
    assert_eq!(by("foo", &modern()), "fentry");
    assert_eq!(by("foo.constprop.1", &modern()), "kprobe.multi");
    assert_eq!(by("caller", &modern()), "kprobe");
    // Without direct calls.
    assert_eq!(by("foo", &Kernel { fentry: false, ..modern() }), "kprobe.multi");
    assert_eq!(by("foo", &Kernel { fentry: false, kprobe_multi: false, ..modern() }), "kprobe");
}

// Proves S15.5.
#[test]
fn fentry_is_for_one_name_one_function() {
    let world = world();
    let by = |function: &Function, kind, slots: &[i16]| at_symbol(function, "foo", slots, kind, &modern());
    let plain = join(&world, Vec::new());
    assert_eq!(by(&plain, Kind::Fentry, &[0, 1]), "fentry");
    // Two FUNCs of the name: the kernel's answer could be the other's.
    assert_eq!(
        by(&join_plain(&world, Vec::new(), &[], &[world.foo, world.other_foo]), Kind::Fentry, &[]),
        "kprobe.multi"
    );
    // A body whose arguments are elsewhere: only what is read matters.
    let mut changed = site(&world, 0, "foo", vec![at(8, Location::Register(5)), at(4, Location::Register(1))]);
    changed.kind = SiteKind::Body;
    let changed = join(&world, vec![changed]);
    assert_eq!(by(&changed, Kind::Fentry, &[0, 1]), "kprobe.multi");
    assert_eq!(by(&changed, Kind::Fentry, &[0]), "fentry");
    // The promise of extended values is kept by a trampoline.
    assert_eq!(by(&plain, Kind::KprobeMaybeInline, &[0]), "fentry");
    assert_eq!(by(&plain, Kind::KprobeMaybeInline, &[0, 1]), "kprobe.multi");
}

// Proves S15.10.
#[test]
fn returns() {
    let world = world();
    let odd = vec![at(8, Location::Register(3)), at(4, Location::Register(4))];
    let data = vec![clone_of(&world, "foo.constprop.1", both())];
    let (function, strange) = (join(&world, data), join(&world, vec![clone_of(&world, "foo.constprop.1", odd)]));
    let by = |symbol, slots: &[i16], kernel: &Kernel| at_symbol(&function, symbol, slots, Kind::Fexit, kernel);
    assert_eq!(by("foo", &[0, 1, 2], &modern()), "fexit");
    let clone = |slots: &[i16], kernel: &Kernel| by("foo.constprop.1", slots, kernel);
    assert_eq!(clone(&[2], &modern()), "kretprobe.multi");
    assert_eq!(clone(&[0, 2], &modern()), "kprobe session");
    let before_sessions = Kernel { kprobe_session: None, ..modern() };
    assert_eq!(clone(&[2], &before_sessions), "kretprobe.multi");
    assert_eq!(clone(&[0, 2], &before_sessions), "no_exit");
    let before_multi = Kernel { kprobe_multi: false, ..modern() };
    assert_eq!(clone(&[2], &before_multi), "kretprobe");
    assert_eq!(clone(&[0], &before_multi), "no_exit");
    assert_eq!(clone(&[2], &Kernel { kretprobe: None, ..before_multi }), "no_exit");
    // rbx is not among the registers of a session.
    let of = |slots: &[i16]| at_symbol(&strange, "foo.constprop.1", slots, Kind::Fexit, &modern());
    assert_eq!(of(&[0, 2]), "no_exit");
    assert_eq!(of(&[1, 2]), "kprobe session");
}

#[test]
fn a_return_value_that_may_be_gone_is_not_read() {
    let world = world();
    let mut body = site(&world, 0, "foo", both());
    (body.kind, body.marks) = (SiteKind::Body, Marks::SIGNATURE_CHANGED);
    let constant = DataSite { marks: Marks::SIGNATURE_CHANGED, ..clone_of(&world, "foo.constprop.1", both()) };
    let function = join(&world, vec![body, clone_of(&world, "foo.isra.0", both()), constant]);
    let by = |symbol, slots: &[i16]| at_symbol(&function, symbol, slots, Kind::Fexit, &modern());
    assert_eq!(by("foo.isra.0", &[2]), "return_removed");
    assert_eq!(by("foo.isra.0", &[0]), "kprobe session");
    assert_eq!(by("foo.isra.0", &[]), "kretprobe.multi");
    assert_eq!(by("foo.constprop.1", &[2]), "kretprobe.multi");
    assert_eq!(by("foo", &[2]), "return_removed");
    assert_eq!(by("foo", &[0]), "fexit");
}

// Proves S13.17.
#[test]
fn a_return_value_that_is_known_to_be_kept_is_read() {
    let world = world();
    let kept = Marks::SIGNATURE_CHANGED | Marks::RETURN_KEPT;
    let (mut body, mut clone) = (site(&world, 0, "foo", both()), clone_of(&world, "foo.isra.0", both()));
    (body.kind, body.marks, clone.marks) = (SiteKind::Body, kept, kept);
    let function = join(&world, vec![body, clone]);
    let by = |symbol, slots: &[i16]| at_symbol(&function, symbol, slots, Kind::Fexit, &modern());
    assert_eq!(by("foo.isra.0", &[2]), "kretprobe.multi");
    assert_eq!(by("foo", &[2]), "fexit");
}

// Proves S15.15.
#[test]
fn inlined_copies_are_in_the_way_of_a_complete_exit() {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    function.candidates.retain(|candidate| candidate.kind != SiteKind::Clone);
    let functions = std::slice::from_ref(&function);
    let with = |kind, policy| plan_all(functions, &[0], form(kind), policy, &modern(), &Barred::default());
    // No policy given: complete for fexit and fentry.
    let error = with(Kind::Fexit, None).unwrap_err();
    insta::assert_snapshot!("exit_of_inline", error.to_string());
    assert_eq!(with(Kind::Fentry, None).unwrap().policy, Policy::Complete);
    assert_eq!(with(Kind::KprobeMaybeInline, None).unwrap().policy, Policy::BestEffort);
    let plan = with(Kind::Fexit, Some(Policy::BestEffort)).unwrap();
    assert_eq!(plan.sites[1].decision, Decision::Skip(Reason::ExitOfInline));
}

// Proves S15.12.
#[test]
fn a_slot_for_the_return_value() {
    let world = world();
    let function = join(&world, Vec::new());
    let with = |slots: &[i16], kind| {
        let policy = Some(Policy::BestEffort);
        plan_all(std::slice::from_ref(&function), slots, form(kind), policy, &modern(), &Barred::default())
    };
    assert!(with(&[2], Kind::Fexit).is_ok());
    for (slot, kind, slots) in [(2, Kind::Fentry, 2), (3, Kind::Fexit, 3)] {
        let error = with(&[slot], kind).unwrap_err();
        assert!(
            matches!(error, PlanError::Prototype { refusal: Refusal::ReadsSlotBeyond { have, .. }, .. } if have == slots),
            "{error}"
        );
    }
}

/// Traces of real fentry begin in the kernel's trampoline, those of `kprobe_maybe_inline` at the site.
#[test]
fn stack_traces() {
    let world = world();
    let function = join(&world, Vec::new());
    let mut program = UserProgram { name: "test".to_owned(), ..UserProgram::default() };
    // bpf_get_stackid(ctx, map, flags)
    program.insns = vec![Insn::mov_imm(2, 0), Insn::mov_imm(3, 0), Insn::call(27), Insn::mov_imm(0, 0), Insn::exit()];
    let uses = crate::program::analyse(&program).unwrap();
    let body = |kind| {
        let options = PlanOptions { policy: Some(Policy::BestEffort), form: form(kind), ..PlanOptions::default() };
        let plan = plan(std::slice::from_ref(&function), &program, &uses, &modern(), options).unwrap();
        match plan.sites[0].decision {
            Decision::Attach { mechanism, .. } => mechanism,
            Decision::Skip(ref reason) => panic!("{reason}"),
        }
    };
    assert_eq!(body(Kind::Fentry), Mechanism::Fentry);
    assert_eq!(body(Kind::KprobeMaybeInline), Mechanism::Kprobe);
}

/// The kprobe blacklist is for kprobes: what ftrace traces can be attached by other means.
#[test]
fn the_blacklist_is_about_kprobes() {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    for candidate in &mut function.candidates {
        candidate.obstacle = Some(Reason::Blacklisted);
    }
    let by = |symbol, kind, kernel: &Kernel| at_symbol(&function, symbol, &[0], kind, kernel);
    assert_eq!(by("foo", Kind::Fentry, &modern()), "fentry");
    assert_eq!(by("foo", Kind::Fexit, &modern()), "fexit");
    assert_eq!(by("caller", Kind::Fentry, &modern()), "blacklisted");
    let kprobes_alone = Kernel { fentry: false, kprobe_multi: false, ..modern() };
    assert_eq!(by("foo", Kind::Fentry, &kprobes_alone), "blacklisted");
    assert_eq!(by("foo", Kind::Fexit, &kprobes_alone), "blacklisted");
    function.candidates[0].obstacle = Some(Reason::Notrace);
    assert_eq!(at_symbol(&function, "foo", &[0], Kind::Fentry, &modern()), "notrace");
}

/// CONFIG_KPROBE_EVENTS_ON_NOTRACE, and what it does not lift.
#[test]
fn some_kernels_take_kprobe_events_in_notrace_functions() {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    let lenient = Kernel { notrace_events: true, ..modern() };
    for (obstacle, key) in [
        (Reason::Notrace, "notrace"),
        (Reason::Unprobeable(Unprobeable::Notrace), "notrace"),
        (Reason::Unprobeable(Unprobeable::Noinstr), "noinstr"),
    ] {
        for candidate in &mut function.candidates {
            candidate.obstacle = Some(obstacle.clone());
            candidate.traceable = Some(false);
        }
        let wanted = if obstacle.is_notrace() { "kprobe" } else { key };
        for symbol in ["foo", "caller"] {
            let by = |kind, kernel: &Kernel| at_symbol(&function, symbol, &[0], kind, kernel);
            assert_eq!(by(Kind::KprobeMaybeInline, &modern()), key);
            assert_eq!(by(Kind::KprobeMaybeInline, &lenient), wanted);
        }
    }
}

/// Kernels that crash over kprobes at the end of a module's text.
#[test]
fn the_end_of_a_modules_text_is_left_alone_where_kernels_look_past_it() {
    let world = world();
    let mut function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    for candidate in &mut function.candidates {
        candidate.ends_module = true;
    }
    let careless = Kernel { decodes_past_modules: true, ..modern() };
    let by = |symbol, kind, kernel: &Kernel| at_symbol(&function, symbol, &[0], kind, kernel);
    assert_eq!(by("caller", Kind::Fentry, &modern()), "kprobe");
    assert_eq!(by("caller", Kind::Fentry, &careless), "ends_module");
    assert_eq!(by("foo", Kind::Fentry, &careless), "fentry", "no kprobe");
    // What else is in the way comes first; what is lifted leaves this.
    for candidate in &mut function.candidates {
        candidate.obstacle = Some(Reason::Notrace);
    }
    let by = |kernel: &Kernel| at_symbol(&function, "caller", &[0], Kind::KprobeMaybeInline, kernel);
    assert_eq!(by(&careless), "notrace");
    assert_eq!(by(&Kernel { notrace_events: true, ..modern() }), "kprobe");
    assert_eq!(by(&Kernel { notrace_events: true, ..careless }), "ends_module");
}

// Proves S1.6.
#[test]
fn sleepable_programs_keep_to_fentry() {
    let world = world();
    let function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    let sleepable = Form { kind: Kind::Fentry, sleepable: true };
    let with = |barred: &Barred| {
        let policy = Some(Policy::BestEffort);
        plan_all(std::slice::from_ref(&function), &[], sleepable, policy, &modern(), barred)
    };
    let plan = with(&Barred::default()).unwrap();
    let decisions: Vec<&str> = plan
        .sites
        .iter()
        .map(|site| match &site.decision {
            Decision::Attach { mechanism, .. } => mechanism.word(),
            Decision::Skip(reason) => reason.key(),
        })
        .collect();
    assert_eq!(decisions, ["fentry", "sleepable", "sleepable", "sleepable"]);
    // What the kernel says about the only mechanism that there is.
    let mut barred = Barred::default();
    let said = Reason::Kernel { errno: libc::EINVAL, mechanism: "fentry", said: Some("foo is not sleepable".into()) };
    assert!(barred.add(plan.sites[0].site.address, Mechanism::Fentry, said.clone()));
    assert!(!barred.add(plan.sites[0].site.address, Mechanism::Fentry, said.clone()));
    let error = with(&barred).unwrap_err();
    assert!(matches!(&error, PlanError::Nothing { sites, .. } if sites[0].reason == said), "{error}");
}

// Proves S8.7, S15.8.
#[test]
fn what_the_kernel_refuses_is_tried_otherwise() {
    let world = world();
    let function = join(&world, Vec::new());
    let mut barred = Barred::default();
    for (mechanism, next) in [(Mechanism::Fentry, Mechanism::KprobeMulti), (Mechanism::KprobeMulti, Mechanism::Kprobe)]
    {
        let reason = Reason::Kernel { errno: libc::EBUSY, mechanism: mechanism.word(), said: None };
        barred.add(function.candidates[0].address, mechanism, reason);
        let policy = Some(Policy::BestEffort);
        let functions = std::slice::from_ref(&function);
        let plan = plan_all(functions, &[0], form(Kind::Fentry), policy, &modern(), &barred).unwrap();
        assert!(matches!(plan.sites[0].decision, Decision::Attach { mechanism, .. } if mechanism == next));
    }
}

/// Bodies that could do with one program share one; each that cannot has its own.
#[test]
fn bodies_together() {
    let world = world();
    // One prototype, each with a FUNC of its own.
    let of = |(name, func)| {
        let mut function = join_named(&world, name, Vec::new(), &[], &[world.foo]);
        function.candidates.retain(|candidate| candidate.kind == SiteKind::Body);
        function.candidates[0].exact = Some(func);
        function
    };
    let functions = [("foo", 100), ("caller", 101), ("caller_two", 102)].map(of);
    let mechanisms = |functions: &[Function], slots: &[i16], kind, kernel: &Kernel, barred: &Barred| {
        let plan = plan_all(functions, slots, form(kind), None, kernel, barred).unwrap();
        let words = plan.trampolines.iter().map(|trampoline| (trampoline.mechanism, trampoline.sites.clone()));
        words.collect::<Vec<_>>()
    };
    let none = Barred::default();
    let entry = |functions: &[Function], kernel: &Kernel, barred: &Barred| {
        mechanisms(functions, &[0], Kind::Fentry, kernel, barred)
    };
    assert_eq!(entry(&functions, &modern(), &none), [(Mechanism::TracingMulti, vec![0, 1, 2])]);
    assert_eq!(entry(&functions[..1], &modern(), &none), [(Mechanism::Fentry, vec![0])]);
    assert_eq!(
        mechanisms(&functions, &[0, 2], Kind::Fexit, &modern(), &none),
        [(Mechanism::TracingMultiExit, vec![0, 1, 2])]
    );
    let each = [(Mechanism::Fentry, vec![0]), (Mechanism::Fentry, vec![1]), (Mechanism::Fentry, vec![2])];
    assert_eq!(entry(&functions, &Kernel { tracing_multi: false, ..modern() }, &none), each);
    // The link is all or nothing; once it was refused, each is tried alone.
    let mut barred = Barred::default();
    for function in &functions {
        let reason = Reason::Kernel { errno: libc::ENOENT, mechanism: "tracing-multi", said: None };
        barred.add(function.candidates[0].address, Mechanism::TracingMulti, reason);
    }
    assert_eq!(entry(&functions, &modern(), &barred), each);
}
