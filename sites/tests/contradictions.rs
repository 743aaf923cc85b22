// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Sets that contradict themselves are refused, each with what is wrong.

mod common;

use common::{BASE, base_btf};
use siteseer_sites::btf::{Btf, IntEncoding, SplitBtf};
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::set::{Container, Function, Section};
use siteseer_sites::site::SourceLine;
use siteseer_sites::*;

fn one_site() -> SiteSet {
    let (base_btf, functions) = base_btf();
    let types = SplitBtf::new(&Btf::parse(&base_btf).unwrap());
    let (name, func) = functions[1].clone();
    let at = Location::Register(5);
    SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![1; 20],
        base: BASE,
        base_btf,
        types,
        sections: vec![Section { name: ".text".into(), address: BASE, size: 0x1000 }],
        functions: vec![Function { name, func, parameters: 1, variadic: false }],
        prototypes: vec![Box::new([Ok(Located::certain(8, false, at))])],
        containers: vec![Container { name: "container".into(), address: BASE, size: 0x100, unprobeable: None }],
        files: vec!["kernel/fork.c".into()],
        sites: vec![Site {
            function: 0,
            kind: SiteKind::Inline,
            address: BASE + 0x20,
            moved: 4,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine { file: 0, line: 7 },
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::MAY_REPEAT,
            unprobeable: Some(Unprobeable::Notrace),
        }],
    }
}

fn refused(change: impl FnOnce(&mut SiteSet)) -> String {
    let mut set = one_site();
    change(&mut set);
    let error = with_causes(&file::write(&set).unwrap_err());
    assert_eq!(with_causes(&file::write_raw(&set).unwrap_err()), error);
    error
}

#[test]
fn a_set_without_contradictions_is_written() {
    let data = file::write(&one_site()).unwrap();
    let file = SiteFile::parse(&data).unwrap();
    let site = file.site(0).unwrap();
    assert_eq!((site.address(), site.entry_address(), site.container_offset()), (BASE + 0x20, BASE + 0x1c, Some(0x20)));
    assert_eq!(site.source().map(|s| (s.file, s.line)), Some(("kernel/fork.c", 7)));
}

#[test]
fn indices_lead_somewhere() {
    assert_eq!(refused(|set| set.sites[0].function = 1), "site 0 refers to function 1, but the count is 1");
    assert_eq!(refused(|set| set.sites[0].section = 3), "site 0 refers to section 3, but the count is 1");
    assert_eq!(refused(|set| set.sites[0].prototype = 9), "site 0 refers to prototype 9, but the count is 1");
    assert_eq!(refused(|set| set.sites[0].container = 2), "site 0 refers to container 2, but the count is 1");
    assert_eq!(refused(|set| set.sites[0].parent = Some(1)), "site 0 refers to parent site 1, but the count is 1");
    assert_eq!(refused(|set| set.sites[0].source.file = 1), "site 0 refers to file 1, but the count is 1");
}

#[test]
fn functions_are_funcs_of_their_names() {
    let text = refused(|set| set.functions[0].name = "other".into());
    assert!(text.contains("is not a FUNC of that name"), "{text}");
    let text = refused(|set| set.functions[0].func = 1);
    assert_eq!(text, "function base1 refers to BTF type 1, which is not a FUNC of that name");
    refused(|set| set.functions[0].func = u32::MAX);
    refused(|set| {
        set.functions[0].func = set.types.int("base1", 4, 32, IntEncoding::UNSIGNED);
    });
}

#[test]
fn prototypes_go_with_their_functions() {
    let text = refused(|set| set.functions[0].parameters = 2);
    assert_eq!(text, "function base1: its FUNC_PROTO has 1 elements, not 2");
    let text = refused(|set| set.functions[0].variadic = true);
    assert_eq!(text, "function base1: its FUNC_PROTO has 1 elements, not 2");
    let text = refused(|set| set.prototypes[0] = Box::new([]));
    assert_eq!(text, "site 0: its location prototype has 0 elements, function base1 has 1 parameters");
}

#[test]
fn sites_are_in_their_sections() {
    let text = refused(|set| set.sites[0].address = BASE - 1);
    assert_eq!(text, "site 0 at 0xffffffff80ffffff is not in section .text");
    refused(|set| set.sites[0].address = BASE + 0x1000);
}

#[test]
fn types_are_over_the_base() {
    let text = refused(|set| set.types = SplitBtf::standalone());
    assert!(text.starts_with("the new types begin at number 1, the image's BTF ends at"), "{text}");
    let text = refused(|set| set.base_btf.truncate(5));
    assert_eq!(text, "the image's BTF: BTF header is truncated: 5 bytes");
}

#[test]
fn computed_locations_are_well_formed() {
    let computed = |slots: Vec<Box<[Op]>>| {
        refused(|set| {
            let at = Location::Computed(Computed { slots: slots.into() });
            set.prototypes[0] = Box::new([Ok(Located::certain(8, false, at))]);
        })
    };
    let text = "location prototype 0, parameter 0: the computed location is not well formed";
    assert_eq!(computed(vec![Box::new([Op::Add])]), text);
    assert_eq!(computed(vec![]), text);
    assert_eq!(computed(vec![Box::new([Op::Register(1)]), Box::new([Op::Register(2)])]), text);
}
