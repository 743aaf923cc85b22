// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a program that reads everything meets at functions of BPF programs.

use crate::kernel::{BuildId, Kernel};
use crate::plan::{self, Plan, PlanError, PlanOptions, Policy};
use crate::program::analyse;
use crate::program::section::{Form, Kind as SectionKind};
use crate::target::bpf_program::{BpfFunction, BpfProgram, BpfTargetError, Extension, TailSlot};
use crate::target::function::Function;
use siteseer_sites::Machine;
use siteseer_sites::btf::{IntEncoding, Kind, Linkage, SplitBtf};

/// `main(void *ctx)`, in two slots of a map, and `sub(int a, long b)`, which an extension has replaced if asked for.
fn program(extended: bool) -> BpfProgram {
    let mut btf = SplitBtf::standalone();
    let int = btf.int("int", 4, 32, IntEncoding::SIGNED);
    let long = btf.int("long", 8, 64, IntEncoding::SIGNED);
    let pointer = btf.modifier(Kind::Ptr, 0);
    let main = btf.func_proto(int, &[("ctx", pointer)], false);
    let main = btf.func("main", main, Linkage::Global);
    let sub = btf.func_proto(int, &[("a", int), ("b", long)], false);
    let sub = btf.func("sub", sub, Linkage::Static);
    let slot = |slot| TailSlot { program: 17, map: 4, map_name: "jumps".to_owned(), slot };
    BpfProgram {
        id: 17,
        name: "main".to_owned(),
        btf: btf.to_bytes(),
        functions: vec![
            BpfFunction { func: main, address: 0xffff_c000_0000_1000, size: 64 },
            BpfFunction { func: sub, address: 0xffff_c000_0000_2000, size: 32 },
        ],
        tail_slots: vec![slot(1), slot(7)],
        extensions: if extended {
            vec![Extension { func: sub, program: 18, name: "instead".to_owned() }]
        } else {
            Vec::new()
        },
    }
}

fn plan(function: Function, kind: SectionKind, policy: Option<Policy>) -> Result<Plan, PlanError> {
    let user = super::reader(&function.prototypes[0], kind.is_exit());
    let uses = analyse(&user).unwrap();
    let mut kernel = Kernel::image(Machine::X86_64, BuildId(vec![1]));
    (kernel.fentry, kernel.kprobe_pmu, kernel.kprobe_multi, kernel.tracing_multi) = (true, Some(6), true, true);
    let options = PlanOptions { policy, form: Form { kind, sleepable: false }, ..PlanOptions::default() };
    plan::plan(&[function], &user, &uses, &kernel, options)
}

// Proves S20.2.
#[test]
fn a_subprogram_is_reached_by_fentry_alone() {
    for kind in [SectionKind::Fentry, SectionKind::Fexit] {
        let function = program(false).function("sub", Machine::X86_64).unwrap();
        let plan = plan(function, kind, None).unwrap();
        assert_eq!((plan.sites.len(), plan.trampolines.len()), (1, 1));
        assert_eq!(plan.trampolines[0].mechanism.word(), kind.word());
        assert_eq!(plan.trampolines[0].program, Some(17));
        assert!(plan.report().to_string().contains("inlined"), "{}", plan.report());
    }
    // An int would have to be extended by a trampoline, and there is no kprobe in a BPF program.
    let function = program(false).function("sub", Machine::X86_64).unwrap();
    let refused = plan(function, SectionKind::KprobeMaybeInline, None).unwrap_err().to_string();
    assert!(refused.contains("BPF program"), "{refused}");
}

// Proves S20.4.
#[test]
fn tail_calls_are_in_the_way_of_complete() {
    let function = program(false).function("main", Machine::X86_64).unwrap();
    let refused = plan(function.clone(), SectionKind::Fentry, None).unwrap_err().to_string();
    assert!(refused.contains("slot 1 of map jumps (id 4)") && refused.contains("slot 7"), "{refused}");
    let plan = plan(function, SectionKind::Fentry, Some(Policy::BestEffort)).unwrap();
    let text = plan.report().to_string();
    assert!(text.contains("attached at 1 of 1 sites") && text.contains("slot 7 of map jumps (id 4)"), "{text}");
}

#[test]
fn an_extension_keeps_everything_else_away() {
    let function = program(true).function("sub", Machine::X86_64).unwrap();
    let refused = plan(function, SectionKind::Fentry, Some(Policy::BestEffort)).unwrap_err().to_string();
    assert!(refused.contains("instead") && refused.contains("18"), "{refused}");
}

#[test]
fn a_function_that_is_not_there() {
    let text = program(false).function("bus", Machine::X86_64).unwrap_err().to_string();
    assert!(text.contains("BPF program 17 (main) has no function bus; it has main, sub"), "{text}");
    let text = program(false).function_of(1, Machine::X86_64).unwrap_err().to_string();
    assert!(text.contains("no function int"), "{text}");
    let mut hidden = program(false);
    hidden.functions[1].address = 0;
    assert!(matches!(hidden.function("sub", Machine::X86_64), Err(BpfTargetError::NotJited { .. })));
}
