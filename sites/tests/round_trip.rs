// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is written is read: random site sets through the site file and through the upstream part alone.

mod common;

use common::{BASE, base_btf, exercise, site_set};
use proptest::prelude::*;
use siteseer_sites::btf::{Btf, IntEncoding, Kind, Linkage, SplitBtf, loc::canonical_constant, rules};
use siteseer_sites::file::{self, FunctionRef, Image, SiteFile, SiteRef};
use siteseer_sites::set::{Container, Function, Module, Section};
use siteseer_sites::site::SourceLine;
use siteseer_sites::*;
use std::collections::HashMap;

/// A site as both sides can tell it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Told {
    function: (String, u32),
    section: String,
    address: u64,
    entry: u64,
    kind: Option<SiteKind>,
    arguments: String,
    container: Option<(String, u64, u64)>,
    source: Option<(String, u32)>,
    declared: Option<(String, u32)>,
    parent: Option<(u32, u64)>,
    marks: u8,
    unprobeable: Option<Unprobeable>,
}

/// An argument as it comes back: constants as their size extends them, in upstream's shapes.
fn canonical(argument: &Argument) -> Argument {
    let mut argument = argument.clone();
    if let Ok(Located { size: size @ 1..=8, signed, at: Location::Constant(value), doubt: None }) = &mut argument {
        *value = canonical_constant(*value, *size, *signed);
    }
    argument
}

fn told_by_set(set: &SiteSet) -> Vec<Told> {
    let line = |line: SourceLine| set.files.get(line.file as usize).map(|file| (file.clone(), line.line));
    let func = |site: &Site| set.functions[site.function as usize].func;
    let mut all: Vec<Told> = set
        .sites
        .iter()
        .map(|site| {
            let container = &set.containers[site.container as usize];
            let arguments: Vec<Argument> = set.prototypes[site.prototype as usize].iter().map(canonical).collect();
            Told {
                function: (set.functions[site.function as usize].name.clone(), func(site)),
                section: set.sections[usize::from(site.section)].name.clone(),
                address: site.address,
                entry: site.address - u64::from(site.moved),
                kind: Some(site.kind),
                arguments: format!("{arguments:?}"),
                container: Some((container.name.clone(), container.address, container.size)),
                source: line(site.source),
                declared: line(site.declared),
                parent: site.parent.map(|p| (func(&set.sites[p as usize]), set.sites[p as usize].address)),
                marks: site.marks.0,
                unprobeable: site.unprobeable,
            }
        })
        .collect();
    all.sort();
    all
}

fn told_by_site(file: &SiteFile<'_>, function: &FunctionRef<'_, '_>, site: &SiteRef<'_, '_>) -> Told {
    assert_eq!(site.function_name(), function.name());
    let parent = site.parent().map(|index| file.site(index).unwrap());
    Told {
        function: (function.name().to_owned(), function.func()),
        section: site.section().name.to_owned(),
        address: site.address(),
        entry: site.entry_address(),
        kind: site.kind(),
        arguments: format!("{:?}", site.arguments().unwrap()),
        container: site.container().map(|c| (c.name.to_owned(), c.address, u64::from(c.size))),
        source: site.source().map(|s| (s.file.to_owned(), s.line)),
        declared: site.declared().unwrap().map(|s| (s.file.to_owned(), s.line)),
        parent: parent.map(|p| (p.func(), p.address())),
        marks: site.marks().0,
        unprobeable: site.unprobeable(),
    }
}

fn told_by_file(file: &SiteFile<'_>) -> Vec<Told> {
    let mut all = Vec::new();
    for function in file.all_functions() {
        let function = function.unwrap();
        let sites: Vec<Told> = function.sites().map(|site| told_by_site(file, &function, &site.unwrap())).collect();
        assert_eq!(sites.len(), function.site_count().unwrap() as usize);
        all.extend(sites);
    }
    all.sort();
    all
}

fn check_order(file: &SiteFile<'_>) {
    for section in file.sections() {
        let keys: Vec<_> = section
            .sites()
            .map(|index| file.site(index).unwrap())
            .map(|site| (site.func(), site.section_offset(), site.loc_proto()))
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn site_files_tell_the_set(set in site_set()) {
        let bytes = file::write(&set).unwrap();
        prop_assert_eq!(&bytes, &file::write(&set).unwrap());
        let file = SiteFile::parse(&bytes).unwrap();
        prop_assert_eq!(file.machine(), set.machine);
        prop_assert_eq!(file.build_id(), &set.build_id[..]);
        prop_assert_eq!(file.base_address(), set.base);
        prop_assert_eq!(file.site_count() as usize, set.sites.len());
        prop_assert_eq!(told_by_file(&file), told_by_set(&set));
        check_order(&file);
        exercise::exercise_file(&file).unwrap();

        // By name: all functions of that name, and no others.
        let mut names: HashMap<&str, Vec<u32>> = HashMap::new();
        for function in &set.functions {
            let funcs = names.entry(&function.name).or_default();
            if !funcs.contains(&function.func) {
                funcs.push(function.func);
            }
        }
        for (name, funcs) in &mut names {
            funcs.sort_unstable();
            let found: Vec<u32> = file.functions(name).unwrap().iter().map(|f| f.func()).collect();
            prop_assert_eq!(&found, funcs);
        }
        prop_assert!(file.functions("base").unwrap().is_empty());
        prop_assert!(file.functions("zzz").unwrap().is_empty());
        prop_assert_eq!(file.function_names().count(), names.len());

        // Sites by index know their declaration without their function, too.
        for site in file.sites() {
            let site = site.unwrap();
            let function = file.functions(site.function_name()).unwrap().into_iter().find(|f| f.func() == site.func());
            let through = function.unwrap().sites().map(Result::unwrap).find(|s| s.index() == site.index());
            prop_assert_eq!(through.unwrap().declared().unwrap(), site.declared().unwrap());
        }
    }

    #[test]
    fn what_is_found_by_name_is_what_a_walk_finds(set in site_set()) {
        let bytes = file::write(&set).unwrap();
        let file = SiteFile::parse(&bytes).unwrap();
        let names = ["base0", "base1", "base1.isra", "base1.isra.0", "base", "base10", "base1x", "new3", "", "zzz"];
        for name in names {
            let made = |symbol: &str| symbol.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
            let mut walked: Vec<_> = file.containers().filter(|container| made(container.name)).collect();
            walked.sort_by_key(|container| (container.name, container.address));
            let mut found = file.containers_of(name).unwrap();
            // Those with equal name and address are in the order of the set.
            found.sort_by_key(|container| (container.name, container.address));
            let key = |c: &file::ContainerRef<'_>| (c.name.to_owned(), c.address);
            prop_assert_eq!(found.iter().map(key).collect::<Vec<_>>(), walked.iter().map(key).collect::<Vec<_>>());
            let base = Btf::parse(&set.base_btf).unwrap();
            let walked: Vec<_> =
                base.types().filter(|ty| ty.kind() == Kind::Func && ty.name() == name).map(|ty| ty.id()).collect();
            prop_assert_eq!(file.base_functions(name).unwrap(), walked.clone());
            prop_assert_eq!(base.named(Kind::Func, name).map(|ty| ty.id()).collect::<Vec<_>>(), walked);
        }
        prop_assert_eq!(file.base_functions("base0").unwrap().len(), 1);
        prop_assert!(file.whole().is_ok());
    }

    #[test]
    fn a_prototype_key_stands_for_the_arguments(set in site_set()) {
        let bytes = file::write(&set).unwrap();
        let file = SiteFile::parse(&bytes).unwrap();
        let mut by_key = HashMap::new();
        let mut by_arguments = HashMap::new();
        for site in file.sites() {
            let site = site.unwrap();
            let (key, arguments) = ((site.func(), site.prototype_key()), site.arguments().unwrap());
            prop_assert_eq!(by_key.entry(key).or_insert_with(|| arguments.clone()), &arguments);
            prop_assert_eq!(*by_arguments.entry((site.func(), arguments)).or_insert(key), key);
        }
    }

    #[test]
    fn the_upstream_part_tells_what_it_can(set in site_set()) {
        let inline = file::write_raw(&set).unwrap();
        let base = Btf::parse(&set.base_btf).unwrap();
        let image = Image {
            machine: set.machine,
            build_id: set.build_id.clone(),
            base_address: Some(set.base),
            sections: set.sections.clone(),
        };
        let used: Vec<_> = set.sections.iter().map(|s| s.name.as_str()).collect();
        for name in file::section_names(&inline, &base).unwrap() {
            prop_assert!(used.contains(&name));
        }
        prop_assert_eq!(rules::check(&inline, Some(&base)).unwrap(), []);
        let file = SiteFile::from_inline(&inline, &base, image).unwrap();
        let mut expected: Vec<Told> = told_by_set(&set);
        for told in &mut expected {
            // What only the companion section knows.
            *told = Told {
                entry: told.address,
                kind: None,
                container: None,
                source: None,
                declared: None,
                parent: None,
                marks: 0,
                unprobeable: (told.section == ".init.text").then_some(Unprobeable::Init),
                arguments: String::new(),
                ..told.clone()
            };
        }
        expected.sort();
        let mut found = told_by_file(&file);
        found.iter_mut().for_each(|told| told.arguments.clear());
        found.sort();
        prop_assert_eq!(found, expected);
        check_order(&file);
        // Arguments: certain ones of upstream's shapes as they are, the others unknown.
        let whole = file::write(&set).unwrap();
        let whole = SiteFile::parse(&whole).unwrap();
        for (ours, site) in whole.sites().zip(file.sites()) {
            let (ours, site) = (ours.unwrap(), site.unwrap());
            prop_assert_eq!((ours.func(), ours.address()), (site.func(), site.address()));
            for (ours, argument) in ours.arguments().unwrap().into_iter().zip(site.arguments().unwrap()) {
                match argument {
                    Err(reason) => {
                        prop_assert_eq!(reason, Missing::Unknown);
                        let certain = ours.ok().filter(Located::is_certain);
                        let shape = certain.and_then(|l| siteseer_sites::btf::loc::to_upstream(&l, set.base));
                        prop_assert_eq!(shape, None);
                    }
                    Ok(located) => {
                        prop_assert!(located.is_certain());
                        prop_assert_eq!(Ok(located), ours);
                    }
                }
            }
        }
    }
}

/// One site of a function with four parameters.
fn one_site(arguments: Vec<Argument>) -> SiteSet {
    let (base_btf, functions) = base_btf();
    let (name, func) = functions[arguments.len()].clone();
    SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![1],
        base: BASE,
        types: SplitBtf::new(&Btf::parse(&base_btf).unwrap()),
        base_btf,
        sections: vec![Section { name: ".text".to_owned(), address: BASE, size: 0x1000 }],
        functions: vec![Function { name, func, parameters: arguments.len() as u32, variadic: false }],
        prototypes: vec![arguments.into()],
        containers: vec![Container { name: "caller".to_owned(), address: BASE, size: 64, unprobeable: None }],
        files: Vec::new(),
        sites: vec![Site {
            function: 0,
            kind: SiteKind::Inline,
            address: BASE + 8,
            moved: 0,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        }],
    }
}

// Proves S4.14.
#[test]
fn doubts_are_kept_from_readers_of_upstream_alone() {
    // The parameters are pointers.
    let certain = Located::certain(8, false, Location::Register(5));
    // A constant that LOC_PARAM would extend as the size says comes back as it was.
    let constant = Located::certain(4, true, Location::Constant(0xffff_fffe)).doubtful(Doubt::Constant);
    for doubt in Doubt::ALL {
        let arguments =
            vec![Ok(certain.clone()), Ok(certain.clone().doubtful(doubt)), Ok(constant.clone()), Err(Missing::Empty)];
        let set = one_site(arguments.clone());
        let bytes = file::write(&set).unwrap();
        let file = SiteFile::parse(&bytes).unwrap();
        assert_eq!(file.site(0).unwrap().arguments().unwrap(), arguments);

        let inline = file::write_raw(&set).unwrap();
        let base = Btf::parse(&set.base_btf).unwrap();
        let (build_id, sections) = (Vec::new(), set.sections.clone());
        let image = Image { machine: set.machine, build_id, base_address: Some(set.base), sections };
        let alone = SiteFile::from_inline(&inline, &base, image).unwrap();
        let unknown = || Err(Missing::Unknown);
        let seen = [Ok(certain.clone()), unknown(), unknown(), unknown()];
        assert_eq!(alone.site(0).unwrap().arguments().unwrap(), seen);
    }
}

/// A reader of version 2 would take every location for a certain one, and this one would take a size for a doubt.
#[test]
fn files_of_version_2_are_refused_by_number() {
    let mut bytes = file::write(&one_site(vec![Err(Missing::Empty)])).unwrap();
    let header = [0x53, 0x53, 3, 0, 168, 0, 0, 0];
    let at = bytes.windows(header.len()).position(|window| window == header).expect("the companion section");
    bytes[at + 2] = 2;
    let error = SiteFile::parse(&bytes).unwrap_err();
    assert!(matches!(error, file::FileError::Version(2)), "{error}");
    assert!(error.to_string().contains("version 2, which is not supported"), "{error}");
}

#[test]
fn a_modules_sections_and_kernel_come_back() {
    // A kernel's BTF has types; it is by the numbers of its own that a module's BTF is known to be over another.
    let mut base_btf = SplitBtf::standalone();
    let int = base_btf.int("int", 4, 32, IntEncoding::SIGNED);
    let base_btf = base_btf.to_bytes();
    let kernel = Btf::parse(&base_btf).unwrap();
    let mut module = SplitBtf::new(&kernel);
    let proto = module.func_proto::<&str>(int, &[], false);
    let func = module.func("probe_me", proto, Linkage::Static);
    let own = module.to_bytes();
    let over = Btf::parse_split(&own, &kernel).unwrap();
    let section = |name: &str, address, size| Section { name: name.to_owned(), address, size };
    let loaded =
        vec![section(".text", 0x1_0000, 0x100), section(".data", 0x1_2000, 8), section(".exit.text", 0x1_4000, 4)];
    let set = SiteSet {
        module: Some(Module { name: "a_module".to_owned(), kernel_build_id: vec![9; 20], loaded: loaded.clone() }),
        machine: Machine::X86_64,
        build_id: vec![1, 2, 3],
        base: 0x1_0000,
        base_btf: own.clone(),
        types: SplitBtf::new(&over),
        sections: vec![loaded[0].clone(), loaded[2].clone()],
        functions: vec![Function { name: "probe_me".to_owned(), func, parameters: 0, variadic: false }],
        prototypes: vec![Box::from([])],
        containers: vec![Container { name: "probe_me".to_owned(), address: 0x1_0010, size: 16, unprobeable: None }],
        files: Vec::new(),
        sites: vec![Site {
            function: 0,
            kind: SiteKind::Body,
            address: 0x1_0010,
            moved: 0,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        }],
    };
    let bytes = file::write(&set).unwrap();
    assert_eq!(file::module_kernel(&bytes).unwrap(), Some(&[9; 20][..]));
    let read = SiteFile::parse_module(&bytes, &kernel).unwrap();
    let about = read.module().unwrap();
    assert_eq!((about.name, about.kernel_build_id), ("a_module", &[9; 20][..]));
    let sections: Vec<_> = read.loaded_sections().map(|s| section(s.name, s.address, s.size)).collect();
    assert_eq!(sections, loaded);
    assert_eq!(read.base_btf_bytes(), Some(&own[..]));
    assert_eq!(read.functions("probe_me").unwrap().len(), 1);
    assert!(SiteFile::parse(&bytes).is_err(), "it is nothing without the kernel's types");
    for cut in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[cut] ^= 0x40;
        if let Ok(read) = SiteFile::parse_module(&damaged, &kernel) {
            let told: Vec<_> = read.loaded_sections().map(|s| section(s.name, s.address, s.size)).collect();
            assert!(read.whole().is_err() || told == loaded, "byte {cut}");
        }
    }
}
