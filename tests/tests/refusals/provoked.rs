// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Refusals that take no kernel, provoked through what the library offers to everybody.

use libbpf_rs::ObjectBuilder;
use siteseer::internals::function::{Function, Sources};
use siteseer::internals::insn::{Insn, Width};
use siteseer::internals::kernel::{BuildId, Kernel};
use siteseer::internals::object::ObjectError;
use siteseer::internals::placement::Placement;
use siteseer::internals::plan::{Decision, PlanOptions, plan};
use siteseer::internals::program::{FuncInfo, LineInfo, UserProgram, analyse};
use siteseer::internals::source::{SiteData, SourceError};
use siteseer::internals::symbols::Symbols;
use siteseer::internals::trampoline::{self, KernelIds, Probe, Spec};
use siteseer::{Attach, AttachError, AttachOptions, PlanError, Refusal, Target, TargetError};
use siteseer_bpf_progs::TRUTH;
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf, TypeId};
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::set::{Container, Function as SiteFunction, Section};
use siteseer_sites::site::{Marks, SiteKind, SourceLine, Unprobeable};
use siteseer_sites::with_causes;
use siteseer_sites::{Located, Location, Site, SiteSet};
use std::fs;
use std::path::PathBuf;

/// Link-time address of the made-up image.
const BASE: u64 = 0xffff_ffff_8100_0000;
const BUILD_ID: [u8; 4] = [0xab, 0xcd, 0xef, 0x01];

/// BTF with `int foo(int a)`, that FUNC, and so many more.
fn types(more: usize) -> (Vec<u8>, Vec<TypeId>) {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let proto = types.func_proto(int, &[("a", int)], false);
    let mut funcs = vec![types.func("foo", proto, Linkage::Static)];
    funcs.extend((0..more).map(|nth| types.func(&name(nth), proto, Linkage::Static)));
    (types.to_bytes(), funcs)
}

/// The name of one of the functions that there are besides.
fn name(nth: usize) -> String {
    format!("bar{nth:04}")
}

/// Site data of an image in which `foo` was inlined into `caller`, and so many more functions were.
fn site_data(more: usize) -> Vec<u8> {
    let (base_btf, funcs) = types(more);
    let base = Btf::parse(&base_btf).expect("well-formed");
    let names = std::iter::once("foo".to_owned()).chain((0..more).map(name));
    let site = |(nth, address): (u32, u64)| Site {
        function: nth,
        kind: SiteKind::Inline,
        address,
        moved: 0,
        section: 0,
        prototype: 0,
        container: 0,
        source: SourceLine { file: 0, line: 7 },
        declared: SourceLine { file: 0, line: 1 },
        parent: None,
        marks: Marks::default(),
        unprobeable: None,
    };
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: BUILD_ID.to_vec(),
        base: BASE,
        types: SplitBtf::new(&base),
        sections: vec![Section { name: ".text".to_owned(), address: BASE + 0x1000, size: 0x10000 }],
        functions: names
            .zip(&funcs)
            .map(|(name, &func)| SiteFunction { name, func, parameters: 1, variadic: false })
            .collect(),
        prototypes: vec![Box::from([Ok(Located::certain(4, true, Location::Register(5)))])],
        containers: vec![Container {
            name: "caller".to_owned(),
            address: BASE + 0x1100,
            size: 0x8000,
            unprobeable: None,
        }],
        files: vec!["a.c".to_owned()],
        sites: (0u32..).zip(BASE + 0x1110..).take(funcs.len()).map(site).collect(),
        base_btf,
    };
    file::write(&set).expect("well-formed")
}

/// A file of this test alone.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, data: &[u8]) -> Scratch {
        let path = std::env::temp_dir().join(format!("siteseer-refusals-{}-{name}", std::process::id()));
        fs::write(&path, data).expect("a writable folder");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file that stays is not a failure.
        let _ = fs::remove_file(&self.0);
    }
}

fn kernel() -> Kernel {
    Kernel {
        release: "7.3".to_owned(),
        kprobe_pmu: Some(8),
        ..Kernel::image(Machine::X86_64, BuildId(BUILD_ID.to_vec()))
    }
}

/// What the site data says about a kernel with these symbols.
fn look_up(data: &[u8], symbols: &str, name: &str) -> Result<Function, TargetError> {
    let scratch = Scratch::new(name, data);
    let data = SiteData::open(&scratch.0, Some(&kernel()), false)?;
    Target::new(Symbols::parse(symbols), kernel(), data).function("foo")
}

const SYMBOLS: &str = "ffffffff91000000 T _text\nffffffff91001000 T _stext\nffffffff91001100 t caller\n";

/// A program that reads its first argument.
fn reader() -> UserProgram {
    let insns = vec![Insn::load(Width::D, 0, 1, 0), Insn::mov_imm(0, 0), Insn::exit()];
    UserProgram { name: "reader".to_owned(), insns, ..UserProgram::default() }
}

/// The keys of the reasons at the sites of a function, for a program that reads its first argument.
fn reasons(function: &Function) -> Vec<&'static str> {
    let program = reader();
    let uses = analyse(&program).expect("well-formed");
    match plan(std::slice::from_ref(function), &program, &uses, &kernel(), PlanOptions::default()) {
        Ok(plan) => plan
            .sites
            .iter()
            .filter_map(|site| match &site.decision {
                Decision::Skip(reason) => Some(reason.key()),
                Decision::Attach { .. } => None,
            })
            .collect(),
        Err(PlanError::Nothing { sites, .. }) => sites.iter().map(|site| site.reason.key()).collect(),
        Err(error) => panic!("{}", with_causes(&error)),
    }
}

/// A function that only symbols tell about.
fn of_symbols(symbols: &str, plain: &[TypeId]) -> Function {
    let (data, _) = types(0);
    let btf = Btf::parse(&data).expect("well-formed");
    let symbols = Symbols::parse(symbols);
    let sources = Sources {
        module: None,
        machine: Machine::X86_64,
        btf: &btf,
        kernel_types: btf.end_id(),
        running_types: btf.end_id(),
        symbols: &symbols,
        placement: &Placement::Whole(0),
        outlines: &[],
    };
    Function::join("foo", Vec::new(), plain, sources).expect("there is a symbol")
}

#[test]
fn the_made_up_kernel_is_in_order() {
    let function = look_up(&site_data(0), SYMBOLS, "order").expect("nothing is wrong");
    assert_eq!(reasons(&function), Vec::<&str>::new());
}

#[test]
fn a_body_without_a_prototype() {
    assert_eq!(reasons(&of_symbols("ffffffff91001100 t foo\n", &[])), ["no_prototype"]);
}

// Proves S2.4.
#[test]
fn a_body_in_a_module() {
    let (_, funcs) = types(0);
    let text = "ffffffff91001100 t foo\nffffffffc0001100 t foo\t[ext4]\n";
    assert_eq!(reasons(&of_symbols(text, &funcs)), ["in_module"]);
}

fn spec<'a>() -> Spec<'a> {
    Spec {
        machine: Machine::X86_64,
        probe: Probe::Kprobe,
        parameters: &[],
        ret: None,
        inline: true,
        cookie: 0,
        displacement: 0,
        kernel: KernelIds::default(),
    }
}

fn generated(program: &UserProgram) -> Refusal {
    let uses = analyse(program).expect("well-formed");
    trampoline::generate(program, &uses, &spec()).expect_err("refused")
}

#[test]
fn the_objects_btf_is_damaged() {
    let program = UserProgram {
        func_info: vec![FuncInfo { insn_off: 0, type_id: 1 }],
        line_info: vec![LineInfo { insn_off: 0, file_name_off: 0, line_off: 0, line_col: 0 }],
        btf: Some(b"this is not BTF".to_vec()),
        insns: vec![Insn::mov_imm(0, 0), Insn::exit()],
        name: "damaged".to_owned(),
        ..UserProgram::default()
    };
    assert!(matches!(generated(&program), Refusal::MalformedBtf(_)));
}

#[test]
fn symbols_without_the_images_place() {
    let error = look_up(&site_data(0), "ffffffff91001100 t caller\n", "base").expect_err("no _text");
    assert!(matches!(error, TargetError::NoBase("_text")), "{error}");
}

#[test]
fn symbols_that_disagree_about_the_images_place() {
    let symbols = SYMBOLS.replace("ffffffff91001000 T _stext", "ffffffff91001040 T _stext");
    let error = look_up(&site_data(0), &symbols, "displaced").expect_err("_stext is elsewhere");
    assert!(matches!(error, TargetError::Displacement { .. }), "{error}");
}

#[test]
fn site_data_that_are_damaged_inside() {
    // Most blocks of a file with many blocks are not read when it is opened: somewhere a change is only noticed when
    // the function is looked up.
    let good = site_data(2000);
    let mut noticed = 0;
    for at in (0..good.len()).step_by(1021) {
        let mut data = good.clone();
        data[at] ^= 0xff;
        if SiteFile::parse(&data).is_err() {
            continue;
        }
        if let Err(error) = look_up(&data, SYMBOLS, "damaged") {
            assert!(matches!(error, TargetError::Source(SourceError::Malformed { .. })), "{at}: {error}");
            assert!(with_causes(&error).contains("siteseer-refusals-"), "it does not name the file: {error}");
            noticed += 1;
        }
    }
    assert!(noticed > 0);
}

#[test]
fn site_data_with_other_types() {
    let scratch = Scratch::new("types", &site_data(0));
    let kernel = Kernel { btf: Some(b"other types".as_slice().into()), ..kernel() };
    let error = SiteData::open(&scratch.0, Some(&kernel), false).expect_err("other types");
    assert!(matches!(error, SourceError::OtherTypes { .. }), "{error}");
}

#[test]
fn a_program_is_not_site_data() {
    let own = std::env::current_exe().expect("there is one");
    let error = SiteData::open(&own, None, false).expect_err("a program");
    assert!(matches!(error, SourceError::NoSites { .. }), "{error}");
}

#[test]
fn debug_information_that_cannot_be_encoded() {
    // This program has debug information, and no BTF.
    let own = std::env::current_exe().expect("there is one");
    let data = SiteData::open(&own, None, true).expect("it has debug information");
    let error = data.read(&["foo"], |_| ()).expect_err("no BTF");
    assert!(matches!(error, SourceError::Encode { .. }), "{error}");
}

#[test]
fn a_program_that_is_not_loaded() {
    let open = ObjectBuilder::default().open_memory(TRUTH).expect("well-formed");
    let program = open.progs().find(|program| program.name() == "count").expect("it is there");
    let scratch = Scratch::new("loaded", &site_data(0));
    let data = SiteData::open(&scratch.0, Some(&kernel()), false).expect("well-formed");
    let target = Target::new(Symbols::parse(SYMBOLS), kernel(), data);
    let error =
        Attach::with(&target, AttachOptions::default().function("foo")).plan(&program).expect_err("it is not loaded");
    assert!(matches!(error, AttachError::Object(ObjectError::NotLoaded { .. })), "{error}");
}

/// Text that is dropped when a driver is built in is in the real image only; where one is at hand, its sites say so.
#[test]
fn real_data_name_text_that_is_dropped() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else { return };
    let image = fs::read(vmlinux).expect("readable");
    let (set, _) = siteseer_encoder::encode(&image, &siteseer_encoder::Options::default()).expect("a kernel");
    let text = set.sections.iter().position(|section| section.name == ".exit.text").expect("a kernel has it");
    let mut sites = set.sites.iter().filter(|site| usize::from(site.section) == text).peekable();
    assert!(sites.peek().is_some(), "no function is inlined there");
    assert!(sites.all(|site| site.unprobeable == Some(Unprobeable::Exit)));
}
