// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plans of functions that the kernel's image and a module have: which of the two has the FUNC, the addresses, the
//! types.

use super::*;
use crate::program::section::Kind as SectionKind;
use crate::source::placement::Placed;
use std::sync::Arc;

const IMAGE_FOO: u64 = 0xffff_ffff_8100_0000;
const TEXT: u64 = 0xffff_ffff_c020_0000;
const DATA: u64 = 0xffff_ffff_c030_0000;
/// Where the file has the module's sections.
const LINK_TEXT: u64 = 0x1_0000;
const LINK_DATA: u64 = 0x2_0000;

/// `int foo(struct task *t, int n)` in the kernel; over it the same and `int own(struct thing *t)` in a module.
struct Types {
    kernel: Vec<u8>,
    module: Vec<u8>,
    foo: TypeId,
    module_foo: TypeId,
    own: TypeId,
}

fn types() -> Types {
    let mut kernel = SplitBtf::standalone();
    let int = kernel.int("int", 4, 32, IntEncoding::SIGNED);
    let task = kernel.composite(Kind::Struct, "task", 16, &[]);
    let task = kernel.modifier(Kind::Ptr, task);
    let proto = kernel.func_proto(int, &[("t", task), ("n", int)], false);
    let foo = kernel.func("foo", proto, Linkage::Global);
    let kernel = kernel.to_bytes();
    let base = Btf::parse(&kernel).unwrap();
    let mut module = SplitBtf::new(&base);
    let thing = module.composite(Kind::Struct, "thing", 8, &[]);
    let thing = module.modifier(Kind::Ptr, thing);
    let again = module.func_proto(int, &[("t", task), ("n", int)], false);
    let module_foo = module.func("foo", again, Linkage::Static);
    let proto = module.func_proto(int, &[("t", thing)], false);
    let own = module.func("own", proto, Linkage::Static);
    Types { module: module.to_bytes(), kernel, foo, module_foo, own }
}

fn symbols() -> Symbols {
    let text = format!(
        "{IMAGE_FOO:x} T foo\n{:x} T next\n{TEXT:x} t foo\t[mod]\n{:x} t own\t[mod]\n{:x} t caller\t[mod]\n",
        IMAGE_FOO + 0x40,
        TEXT + 0x40,
        TEXT + 0x80,
    );
    let patches = [IMAGE_FOO, TEXT, TEXT + 0x40, TEXT + 0x80].map(|symbol| format!("{:x} name\n", symbol + 4));
    let traced = patches.concat();
    Symbols::parse(text).with_ftrace(Ftrace::parse_addresses(&traced))
}

fn inline(index: u32, func: TypeId, arguments: Vec<Argument>) -> DataSite {
    DataSite {
        index,
        func,
        kind: SiteKind::Inline,
        address: LINK_TEXT + 0x90,
        moved: 0,
        arguments,
        holder: Some(Holder { name: "caller".to_owned(), address: LINK_TEXT + 0x80, size: 0 }),
        source: None,
        declared: None,
        marks: Marks::default(),
        unprobeable: None,
        code: siteseer_sites::CodeSum::NONE,
    }
}

/// What the image, and what the module, has for a name.
fn parts(types: &Types, name: &str, data: Vec<DataSite>) -> [Option<Function>; 2] {
    let kernel = Btf::parse(&types.kernel).unwrap();
    let module = Btf::parse_split(&types.module, &kernel).unwrap();
    let symbols = symbols();
    let placed = |link, run| Placed { link, size: 0x100, run };
    let sections = Placement::of_sections(vec![placed(LINK_TEXT, TEXT), placed(LINK_DATA, DATA)]);
    let owner: Arc<str> = "mod".into();
    let image = Sources {
        module: None,
        machine: Machine::X86_64,
        btf: &kernel,
        kernel_types: kernel.end_id(),
        running_types: kernel.end_id(),
        symbols: &symbols,
        placement: &Placement::Whole(0),
        outlines: &[],
    };
    let of_module =
        Sources { module: Some(&owner), btf: &module, running_types: module.end_id(), placement: &sections, ..image };
    let func = if name == "foo" { types.module_foo } else { types.own };
    let plain: &[TypeId] = if name == "foo" { &[types.foo] } else { &[] };
    [Function::join(name, Vec::new(), plain, image), Function::join(name, data, &[func], of_module)]
}

/// A program that follows its first argument.
fn follows() -> UserProgram {
    let insns = vec![Insn::load(Width::D, 2, 1, 0), Insn::load(Width::W, 3, 2, 0), Insn::mov_imm(0, 0), Insn::exit()];
    UserProgram { name: "test".to_owned(), insns, ..UserProgram::default() }
}

fn plan_with_fentry(function: &Function, program: &UserProgram, policy: Policy) -> Result<Plan, PlanError> {
    let uses = crate::program::analyse(program).unwrap();
    let kernel = Kernel { fentry: true, tracing_multi: true, ..kernel() };
    let form = Form { kind: SectionKind::Fentry, sleepable: false };
    let options = PlanOptions { policy: Some(policy), form, ..PlanOptions::default() };
    plan(std::slice::from_ref(function), program, &uses, &kernel, options)
}

// Proves S15.16.
#[test]
fn one_name_in_the_image_and_in_a_module() {
    let types = types();
    let constant = at(8, Location::Address(LINK_DATA + 8));
    let copy = inline(3, types.module_foo, vec![constant, at(4, Location::Register(4))]);
    let [image, module] = parts(&types, "foo", vec![copy]);
    let mut image = image.unwrap();
    // By itself the image takes the module's symbol for an unknown one.
    let in_module = |site: &Candidate| matches!(&site.obstacle, Some(Reason::InModule(module)) if module == "mod");
    assert_eq!(image.candidates.iter().filter(|site| in_module(site)).count(), 1);
    image.candidates.retain(|site| !in_module(site));
    let function = Function::merged([image, module.unwrap()]).unwrap();
    assert!(function.prototypes_agree());
    let plan = plan_with_fentry(&function, &reads(&[0, 1]), Policy::Complete).unwrap();
    let told: Vec<_> = plan
        .sites
        .iter()
        .map(|planned| {
            let Decision::Attach { mechanism, trampoline } = planned.decision else { panic!("{:?}", planned.decision) };
            let trampoline = &plan.trampolines[trampoline];
            (planned.site.module.as_deref(), mechanism.word(), trampoline.func, trampoline.module.as_deref())
        })
        .collect();
    assert_eq!(
        told,
        [
            (None, "fentry", Some(types.foo), None),
            (Some("mod"), "fentry", Some(types.module_foo), Some("mod")),
            (Some("mod"), "kprobe", None, None),
        ],
        "a tracing-multi link is of one BTF"
    );
    let copy = &plan.sites[2].site;
    assert_eq!((copy.address, copy.symbol_address), (TEXT + 0x90, TEXT + 0x80));
    // The variable's address is that of its own section.
    assert_eq!(copy.arguments[0], at(8, Location::Constant(DATA + 8)));
    let text = plan.report().long().to_string();
    assert!(
        text.contains("inline caller+0x10 [mod]: kprobe") && text.contains("body   foo+0x0 [mod]: fentry"),
        "{text}"
    );
}

// Proves S4.13.
#[test]
fn a_modules_own_types_are_followed_by_fentry_alone() {
    let types = types();
    let copy = inline(1, types.own, vec![at(8, Location::Register(5))]);
    let [image, module] = parts(&types, "own", vec![copy]);
    assert!(image.is_none_or(|image| image.candidates.iter().all(|site| site.module.is_some())));
    let function = module.unwrap();
    let text = plan_with_fentry(&function, &follows(), Policy::Complete).unwrap_err().to_string();
    assert!(text.contains("inline caller+0x10 [mod]") && text.contains("its type is a module's own"), "{text}");
    assert!(!text.contains("body"), "{text}");
    let plan = plan_with_fentry(&function, &follows(), Policy::BestEffort).unwrap();
    assert_eq!(plan.report().attached().count(), 1);
    // A program that does not follow it has it as a number.
    assert_eq!(plan_with_fentry(&function, &reads(&[0]), Policy::Complete).unwrap().report().attached().count(), 2);
}

#[test]
fn a_section_that_is_not_loaded_has_no_sites() {
    let types = types();
    let mut gone = inline(1, types.own, vec![at(8, Location::Register(5))]);
    gone.address = 0x9_0000;
    let [_, module] = parts(&types, "own", vec![gone]);
    let obstacles: Vec<_> = module.unwrap().candidates.iter().filter_map(|site| site.obstacle.clone()).collect();
    assert_eq!(obstacles, [Reason::SymbolMismatch]);
}
