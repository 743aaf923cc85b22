// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Plans of made-up functions on made-up kernels.

mod doubt;
mod fentry;
mod libbpf;
mod livepatch;
mod modules;
mod risks;

use super::*;
use crate::bpf::helper;
use crate::bpf::insn::{Alu, Insn, Width};
use crate::kernel::symbols::{Ftrace, Symbols, parse_blacklist};
use crate::kernel::{BuildId, Privileges};
use crate::source::placement::Placement;
use crate::target::function::{DataSite, Holder, Sources};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, IntEncoding, Kind, Linkage, SplitBtf, TypeId};
use siteseer_sites::location::{Argument, Located, Location, Missing};
use siteseer_sites::site::{Marks, Unprobeable};

/// Link-time address of the image, and how far it is displaced.
const LINK: u64 = 0xffff_ffff_8100_0000;
const DISPLACEMENT: u64 = 0x1200_0000;

const EMPTY_BTF: [u8; 25] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// Symbols by link-time offset; those that ftrace knows are marked.
const SYMBOLS: [(u64, &str, bool); 10] = [
    (0x0, "_text", false),
    (0x100, "foo", true),
    (0x200, "foo.isra.0", true),
    (0x280, "foo.cold", false),
    (0x300, "caller", true),
    (0x400, "caller_two", true),
    (0x500, "hidden", false),
    (0x600, "listed", true),
    (0x700, "foo.constprop.1", true),
    (0x800, "_end", false),
];

struct World {
    btf: Vec<u8>,
    foo: TypeId,
    other_foo: TypeId,
}

/// `int foo(struct ns *ns, int cap)` and `int foo(long a)`.
fn world() -> World {
    let base = Btf::parse(&EMPTY_BTF).unwrap();
    let mut types = SplitBtf::new(&base);
    let int = types.int("int", 4, 32, IntEncoding(1));
    let long = types.int("long", 8, 64, IntEncoding(1));
    let ns = types.composite(Kind::Struct, "ns", 16, &[]);
    let pointer = types.modifier(Kind::Ptr, ns);
    let proto = types.func_proto(int, &[("ns", pointer), ("cap", int)], false);
    let foo = types.func("foo", proto, Linkage::Static);
    let proto = types.func_proto(int, &[("a", long)], false);
    let other_foo = types.func("foo", proto, Linkage::Static);
    World { btf: types.to_bytes(), foo, other_foo }
}

fn symbols() -> Symbols {
    let run = |offset: u64| LINK + DISPLACEMENT + offset;
    let text: String = SYMBOLS.iter().map(|(offset, name, _)| format!("{:x} t {name}\n", run(*offset))).collect();
    let traced: String = SYMBOLS
        .iter()
        .filter(|(_, _, traced)| *traced)
        .map(|(offset, name, _)| format!("{:x} {name}\n", run(*offset) + 4))
        .collect();
    let blacklist = format!("{:#x}-{:#x}\tlisted\n", run(0x600), run(0x700));
    Symbols::parse(text).with_ftrace(Ftrace::parse_addresses(&traced)).with_blacklist(parse_blacklist(&blacklist))
}

fn kernel() -> Kernel {
    Kernel {
        release: "7.3".to_owned(),
        machine: Machine::X86_64,
        build_id: BuildId(vec![1]),
        btf: None,
        rdonly_cast: Some(4242),
        kprobe_pmu: Some(8),
        kprobe_multi: true,
        cookies: true,
        fentry: false,
        tracing_multi: false,
        kprobe_session: None,
        notrace_events: false,
        decodes_past_modules: false,
        kretprobe: None,
        private_stack: false,
        unplaced: false,
        privileges: Privileges { bpf: true, perfmon: true, sys_admin: true },
    }
}

fn at(size: u32, location: Location) -> Argument {
    Ok(Located::certain(size, size == 4, location))
}

fn both() -> Vec<Argument> {
    vec![at(8, Location::Register(5)), at(4, Location::Register(4))]
}

fn site(world: &World, offset: u64, symbol: &str, arguments: Vec<Argument>) -> DataSite {
    let holder = SYMBOLS.iter().find(|(_, name, _)| *name == symbol).map(|(at, name, _)| (LINK + at, *name));
    let (address, name) = holder.unwrap_or((LINK, symbol));
    DataSite {
        index: offset as u32,
        func: world.foo,
        kind: SiteKind::Inline,
        address: address + offset,
        moved: 0,
        arguments,
        holder: Some(Holder { name: name.to_owned(), address, size: 0 }),
        source: Some(Place { file: "a.c".to_owned(), line: 10 }),
        declared: Some(Place { file: "a.h".to_owned(), line: 1 }),
        marks: Marks::default(),
        unprobeable: None,
        code: siteseer_sites::CodeSum::NONE,
    }
}

fn join(world: &World, data: Vec<DataSite>) -> Function {
    join_with(world, data, &[])
}

fn join_with(world: &World, data: Vec<DataSite>, outlines: &[(u64, Option<Unprobeable>)]) -> Function {
    join_plain(world, data, outlines, &[world.foo])
}

fn join_plain(
    world: &World,
    data: Vec<DataSite>,
    outlines: &[(u64, Option<Unprobeable>)],
    plain: &[TypeId],
) -> Function {
    join_named(world, "foo", data, outlines, plain)
}

fn join_named(
    world: &World,
    name: &str,
    data: Vec<DataSite>,
    outlines: &[(u64, Option<Unprobeable>)],
    plain: &[TypeId],
) -> Function {
    let base = Btf::parse(&EMPTY_BTF).unwrap();
    let btf = Btf::parse_split(&world.btf, &base).unwrap();
    let symbols = symbols();
    let sources = Sources {
        module: None,
        machine: Machine::X86_64,
        btf: &btf,
        kernel_types: btf.end_id(),
        running_types: btf.end_id(),
        symbols: &symbols,
        placement: &Placement::Whole(DISPLACEMENT),
        outlines,
    };
    Function::join(name, data, plain, sources).unwrap()
}

/// A program that loads these slots.
fn reads(slots: &[i16]) -> UserProgram {
    let mut insns: Vec<Insn> = slots.iter().map(|slot| Insn::load(Width::D, 0, 1, slot * 8)).collect();
    insns.extend([Insn::mov_imm(0, 0), Insn::exit()]);
    UserProgram { name: "test".to_owned(), insns, ..UserProgram::default() }
}

/// A program that reads a slot, and asks for a parameter by `siteseer_arg()`.
fn asks(slot: i16, parameter: i32) -> UserProgram {
    let insns = vec![
        Insn::load(Width::D, 2, 1, slot * 8),
        Insn::store(Width::D, 10, -8, 2),
        Insn::mov(3, 10),
        Insn::alu_imm(Alu::Add, 3, -8),
        Insn::mov_imm(2, parameter),
        Insn::call(helper::SITESEER_ARG),
        Insn::mov_imm(0, 0),
        Insn::exit(),
    ];
    UserProgram { name: "test".to_owned(), insns, ..UserProgram::default() }
}

fn plan_of(function: &Function, program: &UserProgram, policy: Policy) -> Result<Plan, PlanError> {
    let uses = crate::program::analyse(program).unwrap();
    let options = PlanOptions { policy: Some(policy), ..PlanOptions::default() };
    plan(std::slice::from_ref(function), program, &uses, &kernel(), options)
}

/// Every kind of site that there is.
fn all_sorts(world: &World) -> Vec<DataSite> {
    let inline = |offset, symbol, arguments| site(world, offset, symbol, arguments);
    let mut clone = site(world, 0, "foo.isra.0", vec![Err(Missing::Removed), at(4, Location::Register(5))]);
    clone.kind = SiteKind::Clone;
    let mut dead = inline(0x10, "caller", both());
    dead.unprobeable = Some(Unprobeable::Init);
    let mut noinstr = inline(0x14, "caller", both());
    noinstr.unprobeable = Some(Unprobeable::Noinstr);
    let mut repeating = inline(0x18, "caller", both());
    repeating.marks = Marks::MAY_REPEAT;
    let mut uncertain = inline(0x1c, "caller", both());
    uncertain.marks = Marks::ENTRY_UNCERTAIN;
    let mut passed_by = inline(0x1e, "caller", both());
    passed_by.marks = Marks::MAY_MISS;
    let mut misplaced = inline(0x20, "caller", both());
    misplaced.holder = Some(Holder { name: "gone".to_owned(), address: LINK + 0x300, size: 0 });
    vec![
        clone,
        dead,
        noinstr,
        repeating,
        uncertain,
        passed_by,
        misplaced,
        inline(0x24, "caller", both()),
        inline(0x28, "caller", vec![at(8, Location::Address(LINK + 0x900)), at(4, Location::Constant(21))]),
        inline(0x2c, "caller_two", vec![at(8, Location::Register(3)), Err(Missing::OptimisedOut)]),
        inline(0x30, "caller_two", both()),
        inline(0x08, "hidden", both()),
        inline(0x08, "listed", both()),
    ]
}

fn text(plan: &Plan) -> String {
    let mut text = plan.report().long().to_string();
    for (index, trampoline) in plan.trampolines.iter().enumerate() {
        let sites: Vec<String> = trampoline.sites.iter().map(usize::to_string).collect();
        text.push_str(&format!("trampoline {index}: {} for sites {}\n", trampoline.mechanism, sites.join(", ")));
    }
    text
}

// Proves S2.3, S8.2.
#[test]
fn every_sort_of_site() {
    let world = world();
    let function = join(&world, all_sorts(&world));
    let plan = plan_of(&function, &reads(&[0, 1]), Policy::BestEffort).unwrap();
    insta::assert_snapshot!("every_sort_of_site", text(&plan));
    insta::assert_snapshot!("every_sort_of_site_in_short", plan.report().to_string());
}

/// Site data with right checksums can still be made to lie. Under the name of a symbol nothing is attached outside of
/// it.
#[test]
fn sites_lie_in_the_symbols_that_hold_them() {
    let world = world();
    let obstacle = |change: &dyn Fn(&mut DataSite)| {
        let mut changed = site(&world, 0x10, "caller", both());
        change(&mut changed);
        let function = join(&world, vec![changed]);
        function.candidates.iter().find(|site| site.kind == SiteKind::Inline).unwrap().obstacle.clone()
    };
    let sized = |size: u64| move |site: &mut DataSite| site.holder.as_mut().unwrap().size = size;
    assert_eq!(obstacle(&|_| ()), None);
    assert_eq!(obstacle(&sized(0x11)), None);
    assert_eq!(obstacle(&sized(0x100)), None, "as large as it is for the kernel");
    assert_eq!(obstacle(&sized(0x10)), Some(Reason::OutsideSymbol), "just past the end");
    assert_eq!(obstacle(&sized(0x101)), Some(Reason::SymbolMismatch), "larger than it is for the kernel");
    let at = |address: u64| move |site: &mut DataSite| site.address = address;
    assert_eq!(obstacle(&at(LINK + 0x3ff)), None);
    assert_eq!(obstacle(&at(LINK + 0x400)), Some(Reason::OutsideSymbol), "in the next symbol");
    assert_eq!(obstacle(&at(LINK + 0x210)), Some(Reason::OutsideSymbol), "before its holder");
    assert_eq!(obstacle(&at(0)), Some(Reason::OutsideSymbol));
    let moved = |moved: u8| move |site: &mut DataSite| site.moved = moved;
    assert_eq!(obstacle(&moved(0x10)), None);
    assert_eq!(obstacle(&moved(0x11)), Some(Reason::OutsideSymbol), "it starts before its holder");
    let moved_back = |moved: u8| {
        move |site: &mut DataSite| {
            (site.address, site.moved) = (LINK + 0x3f0, moved);
            site.marks |= Marks::MOVED_BACK;
        }
    };
    assert_eq!(obstacle(&moved_back(0xf)), None);
    assert_eq!(obstacle(&moved_back(0x10)), Some(Reason::OutsideSymbol), "it starts after its holder");
}

/// A site file may leave out what holds a site, and put it anywhere.
#[test]
fn sites_without_a_holder_are_of_the_image() {
    let world = world();
    let candidate = |address: u64, moved: u8| {
        let mut changed = site(&world, 0, "caller", both());
        (changed.holder, changed.address, changed.moved, changed.kind) = (None, address, moved, SiteKind::Clone);
        let function = join(&world, vec![changed]);
        function.candidates.into_iter().find(|site| site.described).unwrap()
    };
    let inside = candidate(LINK + 0x310, 0);
    assert_eq!((inside.obstacle.as_ref(), inside.symbol.as_str()), (None, "caller"));
    assert!(candidate(3, 200).described, "an entry below all addresses");
}

// Proves S5.5, S13.3.
#[test]
fn what_is_not_read_does_not_matter() {
    let world = world();
    let function = join(&world, all_sorts(&world));
    insta::assert_snapshot!("only_ns", text(&plan_of(&function, &reads(&[0]), Policy::BestEffort).unwrap()));
    insta::assert_snapshot!("nothing_read", text(&plan_of(&function, &reads(&[]), Policy::BestEffort).unwrap()));
}

// Proves S8.6, S8.10.
#[test]
fn complete_lists_what_is_in_the_way() {
    let world = world();
    let function = join(&world, all_sorts(&world));
    let error = plan_of(&function, &reads(&[0, 1]), Policy::Complete).unwrap_err();
    insta::assert_snapshot!("complete", error.to_string());
}

/// The sites of [`all_sorts`] that a complete plan can do with.
fn good_sites(world: &World) -> Vec<DataSite> {
    let mut sites = all_sorts(world);
    sites.retain(|site| site.marks == Marks::default() && site.unprobeable != Some(Unprobeable::Noinstr));
    sites.retain(|site| {
        site.holder.as_ref().is_some_and(|holder| holder.name == "caller" || holder.name == "foo.isra.0")
    });
    sites
}

// Proves S8.4.
#[test]
fn dead_sites_do_not_count() {
    let world = world();
    let mut function = join(&world, good_sites(&world));
    // The clone that nobody described.
    function.candidates.retain(|candidate| candidate.symbol != "foo.constprop.1");
    let plan = plan_of(&function, &reads(&[1]), Policy::Complete).unwrap();
    insta::assert_snapshot!("complete_but_dead", text(&plan));
}

/// Each program of a plan has the image of its trampolines, and what it needs besides is created when it is attached.
fn own_their_images(plan: &Plan, program: &UserProgram) {
    let uses = crate::program::analyse(program).unwrap();
    for planned in &plan.programs {
        let members = planned.trampolines.iter().map(|&nth| &plan.trampolines[nth]);
        let specs: Vec<_> = members.map(|planned| planned.spec(&kernel(), plan.cookie)).collect();
        assert_eq!(*planned.image, crate::trampoline::generate_shared(program, &uses, &specs).unwrap());
        for &(at, _) in &planned.image.maps {
            let insn = planned.image.insns[at];
            assert!(insn.is_load64() && insn.imm == 0, "{}", planned.image.listing());
        }
    }
}

/// Beyond a number of location prototypes, those that are alike except for where things are share a program.
#[test]
fn many_location_prototypes_share_programs() {
    let world = world();
    let computed = |constant| at(8, Location::RegisterOffset(3, constant));
    let mut sites: Vec<DataSite> =
        (0..6).map(|n| site(&world, 4 * n, "caller", vec![computed(n as i32), at(4, Location::Register(4))])).collect();
    // Twice the same, and one that lacks what the accessor asks for.
    sites.push(site(&world, 0x20, "caller", vec![computed(0), at(4, Location::Register(4))]));
    sites.push(site(&world, 0x24, "caller", vec![computed(9), Err(Missing::Empty)]));
    let function = join(&world, sites);
    let planned = |beyond, kernel: &Kernel, barred: &Barred| {
        let program = asks(0, 1);
        let uses = crate::program::analyse(&program).unwrap();
        let options = PlanOptions { share_beyond: beyond, policy: Some(Policy::BestEffort), ..PlanOptions::default() };
        plan_without(std::slice::from_ref(&function), &program, &uses, kernel, options, barred).unwrap()
    };
    let shapes = |plan: &Plan| {
        own_their_images(plan, &asks(0, 1));
        let mut all: Vec<usize> = plan.programs.iter().flat_map(|program| program.trampolines.clone()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..plan.trampolines.len()), "each trampoline is in one program");
        let mut sizes: Vec<usize> = plan.programs.iter().map(|program| program.trampolines.len()).collect();
        sizes.sort_unstable();
        sizes
    };
    let free = Barred::default();
    let shared = planned(Some(1), &kernel(), &free);
    // The body goes by kprobe.multi.
    assert_eq!(shapes(&shared), [1, 1, 6]);
    let served = shared.served_by();
    let together = shared.programs.iter().position(|program| program.trampolines.len() == 6).unwrap();
    let mut cookies: Vec<u64> =
        served.iter().filter(|(program, _)| *program == together).map(|(_, cookie)| *cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2, 3, 4, 5, 6]);
    assert!(served.iter().filter(|(program, _)| *program != together).all(|(_, cookie)| *cookie == 0));
    let alone = [1; 8];
    assert_eq!(shapes(&planned(Some(7), &kernel(), &free)), alone, "not beyond");
    assert_eq!(shapes(&planned(None, &kernel(), &free)), alone);
    assert_eq!(shapes(&planned(Some(1), &Kernel { cookies: false, ..kernel() }, &free)), alone, "nothing to tell by");
    let mut barred = Barred::default();
    barred.sharing = true;
    assert_eq!(shapes(&planned(Some(1), &kernel(), &barred)), alone, "refused");
}

// Proves S2.1.
#[test]
fn every_candidate_has_one_decision() {
    let world = world();
    let function = join(&world, all_sorts(&world));
    for slots in [&[][..], &[0], &[1], &[0, 1]] {
        let plan = plan_of(&function, &reads(slots), Policy::BestEffort).unwrap();
        assert_eq!(plan.sites.len(), function.candidates.len());
        let mut planned: Vec<usize> = plan.trampolines.iter().flat_map(|t| t.sites.iter().copied()).collect();
        planned.sort_unstable();
        let attached: Vec<usize> = (0..plan.sites.len())
            .filter(|&index| matches!(plan.sites[index].decision, Decision::Attach { .. }))
            .collect();
        assert_eq!(planned, attached);
    }
}

// Proves S8.5.
#[test]
fn nothing_to_attach() {
    let world = world();
    let mut function =
        join(&world, vec![site(&world, 0x2c, "caller", vec![at(8, Location::Register(3)), Err(Missing::EntryValue)])]);
    function.candidates.retain(|candidate| candidate.kind == SiteKind::Inline);
    let error = plan_of(&function, &reads(&[1]), Policy::BestEffort).unwrap_err();
    insta::assert_snapshot!("nothing", error.to_string());
    assert!(plan_of(&function, &reads(&[0]), Policy::Complete).is_ok());
}

#[test]
fn a_slot_that_the_function_does_not_have() {
    let world = world();
    let function = join(&world, Vec::new());
    let error = plan_of(&function, &reads(&[2]), Policy::BestEffort).unwrap_err();
    assert!(
        matches!(error, PlanError::Prototype { refusal: Refusal::ReadsSlotBeyond { slot: 2, have: 2 }, .. }),
        "{error}"
    );
}

// Proves S11.3, S11.4.
#[test]
fn namesakes_that_differ_are_refused() {
    let world = world();
    let mut other = site(&world, 0x30, "caller_two", vec![at(8, Location::Register(5))]);
    other.func = world.other_foo;
    other.declared = Some(Place { file: "b.c".to_owned(), line: 7 });
    let function = join(&world, vec![site(&world, 0x24, "caller", both()), other]);
    let error = plan_of(&function, &reads(&[0]), Policy::BestEffort).unwrap_err();
    insta::assert_snapshot!("namesakes", error.to_string());
    // A program that reads nothing does not care, and one that tells them apart itself may have them all.
    assert!(plan_of(&function, &reads(&[]), Policy::BestEffort).is_ok());
    let uses = crate::program::analyse(&reads(&[0])).unwrap();
    let options = PlanOptions { all_prototypes: true, ..PlanOptions::default() };
    assert!(plan(&[function], &reads(&[0]), &uses, &kernel(), options).is_ok());
}

// Proves S13.1.
#[test]
fn mechanisms_follow_the_kernel() {
    let world = world();
    let function = join(&world, vec![site(&world, 0x24, "caller", both())]);
    let program = reads(&[0, 1]);
    let uses = crate::program::analyse(&program).unwrap();
    let with = |kernel: Kernel| {
        let plan = plan(std::slice::from_ref(&function), &program, &uses, &kernel, PlanOptions::default())?;
        let mechanism = |planned: &PlannedSite| match &planned.decision {
            Decision::Attach { mechanism, .. } => mechanism.word(),
            Decision::Skip(reason) => reason.key(),
        };
        Ok::<Vec<(SiteKind, &str)>, PlanError>(
            plan.sites.iter().map(|planned| (planned.site.kind, mechanism(planned))).collect(),
        )
    };
    assert_eq!(
        with(kernel()).unwrap(),
        [
            (SiteKind::Body, "kprobe.multi"),
            (SiteKind::Clone, "no_location_data"),
            (SiteKind::Clone, "no_location_data"),
            (SiteKind::Inline, "kprobe")
        ]
    );
    assert_eq!(with(Kernel { kprobe_multi: false, ..kernel() }).unwrap()[0], (SiteKind::Body, "kprobe"));
    assert_eq!(with(Kernel { kprobe_pmu: None, ..kernel() }).unwrap()[3], (SiteKind::Inline, "no_mechanism"));
    let neither = with(Kernel { kprobe_pmu: None, kprobe_multi: false, ..kernel() }).unwrap_err();
    assert!(matches!(neither, PlanError::Nothing { .. }));
}

#[test]
fn a_clone_with_arguments_in_odd_registers_takes_a_kprobe() {
    let world = world();
    let mut clone = site(&world, 0, "foo.isra.0", vec![at(8, Location::Register(3)), at(4, Location::Register(4))]);
    clone.kind = SiteKind::Clone;
    let function = join(&world, vec![clone]);
    let mechanism = |slots: &[i16]| {
        let plan = plan_of(&function, &reads(slots), Policy::BestEffort).unwrap();
        let site = plan.sites.into_iter().find(|planned| planned.site.symbol == "foo.isra.0").unwrap();
        site.decision
    };
    // rbx is not among the registers that kprobe.multi hands over; what is in it must be asked for to matter.
    assert!(matches!(mechanism(&[0]), Decision::Attach { mechanism: Mechanism::Kprobe, .. }));
    assert!(matches!(mechanism(&[1]), Decision::Attach { mechanism: Mechanism::KprobeMulti, .. }));
}

#[test]
fn a_body_in_freed_text_is_dead() {
    let world = world();
    let outlines = [(LINK + 0x100, Some(Unprobeable::Init)), (LINK + 0x700, None)];
    let function = join_with(&world, good_sites(&world), &outlines);
    let body = &function.candidates[0];
    assert_eq!((body.kind, &body.obstacle), (SiteKind::Body, &Some(Reason::Unprobeable(Unprobeable::Init))));
    assert!(plan_of(&function, &reads(&[]), Policy::Complete).is_ok());
}

// Proves S2.7, S3.1, S3.2, S3.3.
#[test]
fn a_fragment_is_not_a_site() {
    let world = world();
    let function = join(&world, Vec::new());
    let symbols: Vec<&str> = function.candidates.iter().map(|candidate| candidate.symbol.as_str()).collect();
    assert_eq!(symbols, ["foo", "foo.isra.0", "foo.constprop.1"]);
}

/// A body with only a known name is not given the arguments of one of several functions of that name.
#[test]
fn a_name_of_several_functions_tells_no_arguments() {
    let world = world();
    let body = |plain: &[TypeId]| {
        let function = join_plain(&world, Vec::new(), &[], plain);
        let body = function.candidates.iter().find(|candidate| candidate.kind == SiteKind::Body).unwrap().clone();
        (function.prototypes[body.prototype].func, body.arguments)
    };
    assert_eq!(body(&[world.foo]), (Some(world.foo), both()));
    assert_eq!(body(&[world.foo, world.other_foo]), (None, Vec::new()));
    assert_eq!(body(&[]), (None, Vec::new()));
}
