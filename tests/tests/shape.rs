// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a case says that a kernel lacks is looked for in the image, and found if it is there.

use siteseer::Target;
use siteseer::internals::source::SiteData;
use siteseer_conformance::guest::case::Lack;
use siteseer_conformance::guest::shape::{Place, Shape, Sought, site};
use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf};
use siteseer_sites::set::{Container, Function, Section};
use siteseer_sites::site::{Marks, Site, SiteKind, SourceLine};
use siteseer_sites::{Located, Location, Machine, Missing, SiteSet, file};

/// Link-time address of the made-up image.
const BASE: u64 = 0xffff_ffff_8100_0000;

/// An image with `int foo(int a)`: inlined into `caller`, with its argument; into the copy of `middle` that `caller`
/// has, without it; and a clone that may have lost its value.
fn image() -> Target {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let proto = types.func_proto(int, &[("a", int)], false);
    let funcs = ["foo", "middle"].map(|name| types.func(name, proto, Linkage::Static));
    let base_btf = types.to_bytes();
    let site = |function: u32, kind, address: u64, prototype: u32| Site {
        function,
        kind,
        address: BASE + address,
        moved: 0,
        section: 0,
        prototype,
        container: u32::from(kind == SiteKind::Clone),
        source: SourceLine::UNKNOWN,
        declared: SourceLine::UNKNOWN,
        parent: None,
        marks: Marks::default(),
        unprobeable: None,
    };
    let container = |name: &str, address: u64| Container {
        name: name.to_owned(),
        address: BASE + address,
        size: 0x100,
        unprobeable: None,
    };
    let nested = Site { parent: Some(1), ..site(0, SiteKind::Inline, 0x1130, 1) };
    let clone = Site { marks: Marks::SIGNATURE_CHANGED, ..site(0, SiteKind::Clone, 0x1200, 0) };
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![0xab, 0xcd],
        base: BASE,
        types: SplitBtf::new(&Btf::parse(&base_btf).expect("well-formed")),
        sections: vec![Section { name: ".text".to_owned(), address: BASE + 0x1000, size: 0x10000 }],
        functions: ["foo", "middle"]
            .into_iter()
            .zip(funcs)
            .map(|(name, func)| Function { name: name.to_owned(), func, parameters: 1, variadic: false })
            .collect(),
        prototypes: vec![
            Box::from([Ok(Located::certain(4, true, Location::Register(5)))]),
            Box::from([Err(Missing::OptimisedOut)]),
        ],
        containers: vec![container("caller", 0x1100), container("foo.isra.0", 0x1200)],
        files: Vec::new(),
        sites: vec![site(0, SiteKind::Inline, 0x1110, 0), site(1, SiteKind::Inline, 0x1120, 0), nested, clone],
        base_btf,
    };
    let path =
        std::env::temp_dir().join(format!("siteseer-shape-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&path, file::write(&set).expect("well-formed")).expect("a writable folder");
    let data = SiteData::open(&path, None, false).expect("site data");
    std::fs::remove_file(&path).expect("the file is there");
    Target::image(data).expect("an image")
}

/// A site, whether a program could be attached or not: the made-up kernel cannot do anything.
fn any(place: Place) -> Sought {
    site(place).attachable_or_not()
}

fn has(some: Sought) -> bool {
    Shape::new("foo", [some]).is_had(&image()).expect("the image can be asked")
}

#[test]
fn sites_are_found_by_what_they_are() {
    assert!(has(any(Place::Inline)) && has(any(Place::Clone)) && has(any(Place::OutOfLine)));
    assert!(!has(any(Place::Body)));
    assert!(has(any(Place::Inline).within("caller")) && !has(any(Place::Inline).within("middle")));
    assert!(has(any(Place::Clone).returning(false)) && !has(any(Place::Clone).returning(true)));
    assert!(!has(site(Place::Inline)), "nothing can be attached in this kernel");
}

#[test]
fn the_caller_is_the_innermost_of_the_source() {
    let by = |caller: &str| any(Place::Inline).called_by(caller);
    assert!(has(by("caller").with(0)) && !has(by("caller").without(0)));
    assert!(has(by("middle").without(0)) && !has(by("middle").with(0)));
    assert!(!has(by("foo")));
}

#[test]
fn what_must_not_be_there_counts_too() {
    let shape = |none: Sought| Shape::new("foo", [any(Place::Inline)]).and_no(none).is_had(&image());
    assert!(shape(any(Place::Body)).expect("the image can be asked"));
    assert!(!shape(any(Place::Clone)).expect("the image can be asked"));
}

#[test]
fn a_case_cannot_leave_itself_out() {
    let holds = |shapes: Vec<Shape>| Lack::Shapes(shapes).holds("7.3.4", &image());
    let body = Shape::new("foo", [any(Place::Body)]);
    assert_eq!(holds(vec![body.clone()]), Ok(()));
    assert_eq!(holds(vec![Shape::new("no_such_function", [any(Place::Anywhere)])]), Ok(()));
    let clone = Shape::new("foo", [any(Place::Clone)]);
    let why = holds(vec![body, clone]).expect_err("it is there");
    assert!(why.contains("the kernel's image has foo() with a clone"), "{why}");
    assert!(holds(Vec::new()).is_err());
}
