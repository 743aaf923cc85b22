// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What upstream's own tests of the LOC kinds hold, remade: the fixture of bpftool's dump
//! (tools/testing/selftests/bpf/prog_tests/bpftool_btf_dump.c) and what `resolve_btfids` splits
//! (tools/bpf/resolve_btfids/tests/btf_rebuild.c).

use siteseer_sites::btf::loc_flags::{ADDR, CONST, DEREF, FRAME_BASE, OFFSET, REG, SIGNED};
use siteseer_sites::btf::rules::{self, Rule};
use siteseer_sites::btf::{Btf, BtfError, IntEncoding, Kind, Linkage, LocsecEntry, SplitBtf};
use siteseer_sites::file::{FileError, Image, SiteFile, has_sites};
use siteseer_sites::set::Section;
use siteseer_sites::{Argument, Located, Location, Machine, Missing, with_causes};

const BASE: u64 = 0xffff_ffff_8100_0000;

fn image() -> Image {
    let sections = vec![Section { name: ".text".to_owned(), address: BASE + 0x1000, size: 0 }];
    Image { machine: Machine::X86_64, build_id: Vec::new(), base_address: Some(BASE), sections }
}

/// The fixture of bpftool's dump, with so many parameters of the prototype. The types and the sites are in one BTF.
fn fixture(parameters: usize) -> Vec<u8> {
    let mut b = SplitBtf::standalone();
    let int = b.int("int", 4, 32, IntEncoding::SIGNED);
    let names: Vec<String> = (1..=parameters).map(|nth| format!("arg{nth}")).collect();
    let params: Vec<(&str, u32)> = names.iter().map(|name| (name.as_str(), int)).collect();
    let proto = b.func_proto(int, &params, false);
    let func = b.func("foo", proto, Linkage::Static);
    let locations = [
        b.loc_param(4, REG, &[1]),
        b.loc_param(8, REG | DEREF | OFFSET, &[2, 0x10]),
        b.loc_param(8, REG | OFFSET | SIGNED, &[FRAME_BASE, -0x10i32 as u32]),
        b.loc_param(8, ADDR | CONST, &[0x9abc_def0, 0x1234_5678]),
        b.loc_param(8, CONST, &[0xfeed_face, 0xdead_beef]),
        b.loc_param(8, REG | DEREF | OFFSET | SIGNED, &[FRAME_BASE, -0x20i32 as u32]),
    ];
    let locations = b.loc_proto(&locations);
    b.locsec("inline.text", &[LocsecEntry::new(func, locations, 64)]);
    b.to_bytes()
}

fn arguments(data: &[u8]) -> Vec<Argument> {
    let btf = Btf::parse(data).unwrap();
    let file = SiteFile::from_whole(&btf, image()).unwrap();
    let functions = file.functions("foo").unwrap();
    let sites: Vec<_> = functions[0].sites().map(Result::unwrap).collect();
    assert_eq!((functions.len(), sites.len()), (1, 1));
    assert_eq!(sites[0].address(), BASE + 0x1000 + 64);
    sites[0].arguments().unwrap()
}

#[test]
fn six_locations_for_five_parameters() {
    let data = fixture(5);
    assert_eq!(arguments(&data), vec![Err(Missing::Malformed); 5]);
    let found: Vec<_> = rules::check(&data, None).unwrap().into_iter().map(|violation| violation.rule).collect();
    assert_eq!(found, [Rule::Parameters { func_proto: 5, loc_proto: 6 }]);
}

#[test]
fn six_locations_for_six_parameters() {
    let data = fixture(6);
    assert_eq!(rules::check(&data, None).unwrap(), []);
    let at = |at| Ok(Located::certain(4, true, at));
    // The parameters are of type int, whatever the sizes of the locations.
    let expected = [
        at(Location::Register(1)),
        at(Location::Memory(2, 0x10)),
        Err(Missing::NoFrame),
        at(Location::Address(BASE.wrapping_add(0x1234_5678_9abc_def0))),
        at(Location::Constant(0xfeed_face_u32 as i32 as u64)),
        Err(Missing::NoFrame),
    ];
    assert_eq!(arguments(&data), expected);
}

/// Types that `resolve_btfids` splits: a function that is only inlined, with two sites, and a structure and a function
/// that share a name.
struct Source {
    func: u32,
    locations: u32,
}

fn add_source(b: &mut SplitBtf, int: u32) -> Source {
    let proto = b.func_proto(int, &[("arg", int)], false);
    let func = b.func("inline_only", proto, Linkage::Static);
    b.composite(Kind::Struct, "shared", 4, &[]);
    let param = b.loc_param(4, REG, &[5]);
    let locations = b.loc_proto(&[param]);
    b.func("shared", proto, Linkage::Static);
    Source { func, locations }
}

fn check_source(file: &SiteFile<'_>) {
    let functions = file.functions("inline_only").unwrap();
    let mut sites: Vec<_> = functions[0]
        .sites()
        .map(|site| {
            let site = site.unwrap();
            (site.section_offset(), site.arguments().unwrap())
        })
        .collect();
    sites.sort_by_key(|(offset, _)| *offset);
    let argument = || vec![Ok(Located::certain(4, true, Location::Register(5)))];
    assert_eq!(sites, [(0, argument()), (128, argument())]);
    assert!(file.functions("shared").unwrap().is_empty());
}

#[test]
fn before_and_after_the_split() {
    // Before: in one BTF, the later site first.
    let mut whole = SplitBtf::standalone();
    let int = whole.int("int", 4, 32, IntEncoding::SIGNED);
    let Source { func, locations } = add_source(&mut whole, int);
    let entry = |func, locations, offset| LocsecEntry::new(func, locations, offset);
    whole.locsec(".text", &[entry(func, locations, 128), entry(func, locations, 0)]);
    let whole = whole.to_bytes();
    assert!(has_sites(&whole));
    check_source(&SiteFile::from_whole(&Btf::parse(&whole).unwrap(), image()).unwrap());
    // After: over the types, in order.
    let mut main = SplitBtf::standalone();
    let int = main.int("int", 4, 32, IntEncoding::SIGNED);
    let main = main.to_bytes();
    assert!(!has_sites(&main));
    let base = Btf::parse(&main).unwrap();
    let mut split = SplitBtf::new(&base);
    let Source { func, locations } = add_source(&mut split, int);
    split.locsec(".text", &[entry(func, locations, 0), entry(func, locations, 128)]);
    let split = split.to_bytes();
    assert!(has_sites(&split));
    assert_eq!(rules::check(&split, Some(&base)).unwrap(), []);
    check_source(&SiteFile::from_inline(&split, &base, image()).unwrap());
}

#[test]
fn orphans_and_prototypes_without_parameters() {
    let mut b = SplitBtf::standalone();
    let int = b.int("int", 4, 32, IntEncoding::SIGNED);
    let proto = b.func_proto::<&str>(int, &[], false);
    let func = b.func("outlined", proto, Linkage::Static);
    // Nothing refers to these two, and the kernel would refuse the first.
    let narrow = b.loc_param(8, CONST, &[42]);
    b.loc_proto(&[]);
    let param = b.loc_param(4, CONST, &[0x1234_5678]);
    let locations = b.loc_proto(&[param, 0]);
    b.locsec(".text", &[LocsecEntry::new(func, locations, 0), LocsecEntry::new(func, locations, 128)]);
    let data = b.to_bytes();
    let btf = Btf::parse(&data).unwrap();
    let file = SiteFile::from_whole(&btf, image()).unwrap();
    let sites: Vec<_> = file.sites().map(|site| site.unwrap().arguments().unwrap()).collect();
    assert_eq!(sites, [Vec::<Argument>::new(), Vec::new()]);
    let found = rules::check(&data, None).unwrap();
    let expected = [
        Rule::LocWords { flags: CONST, size: 8, words: 1 },
        Rule::Parameters { func_proto: 0, loc_proto: 2 },
        Rule::Parameters { func_proto: 0, loc_proto: 2 },
    ];
    assert_eq!(found.iter().map(|violation| violation.rule.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(found[0].place, rules::Place::Type { id: narrow, kind: Kind::LocParam });
}

#[test]
fn big_endian_is_refused_by_name() {
    let mut data = fixture(5);
    data[..2].reverse();
    let error = Btf::parse(&data).unwrap_err();
    assert!(matches!(error, BtfError::Magic(_)));
    assert!(error.to_string().contains("big-endian BTF is not supported"), "{error}");
    assert!(!has_sites(&data));
    let base = fixture(5);
    let base = Btf::parse(&base).unwrap();
    let error = SiteFile::from_inline(&data, &base, image()).unwrap_err();
    assert!(
        matches!(error, FileError::Btf { section: ".BTF.inline", .. }) && with_causes(&error).contains("big-endian")
    );
}

#[test]
fn functions_of_other_types_share_locations() {
    // The LOC_PROTO is the same; what is signed is the prototypes' business.
    let mut b = SplitBtf::standalone();
    let types = [b.int("s32", 4, 32, IntEncoding::SIGNED), b.int("u32", 4, 32, IntEncoding::UNSIGNED)];
    let param = b.loc_param(4, REG, &[3]);
    let locations = b.loc_proto(&[param]);
    let funcs = types.map(|ty| {
        let proto = b.func_proto(ty, &[("p", ty)], false);
        b.func(if ty == types[0] { "signed" } else { "unsigned" }, proto, Linkage::Static)
    });
    b.locsec("inline.text", &funcs.map(|func| LocsecEntry::new(func, locations, 0)));
    let data = b.to_bytes();
    let btf = Btf::parse(&data).unwrap();
    let file = SiteFile::from_whole(&btf, image()).unwrap();
    for (name, signed) in [("signed", true), ("unsigned", false)] {
        let site = file.functions(name).unwrap()[0].sites().next().unwrap().unwrap();
        assert_eq!(site.arguments().unwrap(), [Ok(Located::certain(4, signed, Location::Register(3)))]);
        // By its number too.
        assert_eq!(file.site(site.index()).unwrap().arguments().unwrap(), site.arguments().unwrap());
    }
}
