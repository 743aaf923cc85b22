// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A set as large as a distribution kernel's: what it takes on disk, and that every part of it is found again.
//! Times are printed (`--nocapture`), not judged: they depend on the machine.

use siteseer_sites::btf::{Btf, IntEncoding, Kind, Linkage, SplitBtf};
use siteseer_sites::earlier::april_2025;
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::set::{Container, Function, Section};
use siteseer_sites::site::SourceLine;
use siteseer_sites::*;
use std::time::Instant;

const BASE: u64 = 0xffff_ffff_8100_0000;
const SITES: u32 = 513_249;
const BASE_FUNCS: u32 = 53_265;
const FULLY_INLINED: u32 = 38_954;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

fn time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    eprintln!("{what:<44} {:>9.3} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

/// A base of about 150,000 types and 5 MB.
fn base() -> Vec<u8> {
    let mut b = SplitBtf::standalone();
    let int = b.int("int", 4, 32, IntEncoding::SIGNED);
    let mut pointers = vec![int];
    for n in 0..12_000 {
        let members: Vec<String> = (0..9).map(|m| format!("member_{}", (n * 7 + m * 13) % 40_000)).collect();
        let members: Vec<_> = members
            .iter()
            .enumerate()
            .map(|(i, name)| siteseer_sites::btf::Member {
                name,
                ty: pointers[(n * 31 + i * 17) % pointers.len()],
                bit_offset: 64 * i as u32,
                bits: 0,
            })
            .collect();
        let structure = b.composite(Kind::Struct, &format!("structure_of_kind_{n}"), 72, &members);
        pointers.push(b.modifier(Kind::Ptr, structure));
    }
    for n in 0..BASE_FUNCS {
        let params: Vec<_> =
            (0..n % 5).map(|p| (format!("parameter{p}"), pointers[((n * 11 + p) as usize) % pointers.len()])).collect();
        let proto = b.func_proto(int, &params, false);
        b.func(&format!("subsystem_function_{n}"), proto, Linkage::Static);
    }
    b.to_bytes()
}

fn site_set(base_btf: Vec<u8>) -> SiteSet {
    let base = Btf::parse(&base_btf).unwrap();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut types = time("SplitBtf::new over the base", || SplitBtf::new(&base));
    let mut functions: Vec<Function> = base
        .types()
        .filter(|ty| ty.kind() == Kind::Func)
        .take(6_021)
        .map(|ty| {
            let parameters = base.ty(ty.size_or_type()).unwrap().vlen();
            Function { name: ty.name().to_owned(), func: ty.id(), parameters, variadic: false }
        })
        .collect();
    let start = Instant::now();
    for n in 0..FULLY_INLINED {
        let params: Vec<_> = (0..n % 3).map(|p| (format!("parameter{p}"), 1 + (n * 5 + p) % 24_000)).collect();
        let proto = types.func_proto(1, &params, false);
        let name = format!("inlined_helper_nr_{n}");
        let func = types.func(&name, proto, Linkage::Static);
        functions.push(Function { name, func, parameters: n % 3, variadic: false });
    }
    eprintln!("{:<44} {:>9.3} ms", "39k FUNCs and FUNC_PROTOs", start.elapsed().as_secs_f64() * 1e3);
    let argument = |numbers: &mut Numbers| -> Argument {
        let (register, offset) = (numbers.below(16) as u16, numbers.below(60) as i32 * 8);
        let at = match numbers.below(20) {
            0..3 => return Err(Missing::ALL[numbers.below(14) as usize]),
            3..10 => Location::Register(register),
            10..13 => Location::Memory(register, offset),
            13..15 => Location::RegisterOffset(register, offset),
            15..18 => Location::Constant(u64::from(numbers.below(600))),
            18 => Location::Address(BASE + u64::from(numbers.below(2000)) * 64),
            _ => {
                let slot = [
                    Op::Register(register),
                    Op::Constant(offset as u64),
                    Op::Add,
                    Op::Load(4),
                    Op::Constant(255),
                    Op::And,
                ];
                Location::Computed(Computed { slots: Box::new([Box::new(slot)]) })
            }
        };
        Ok(Located::certain(8, false, at))
    };
    // The number of elements is the index's rest by five.
    let prototypes = (0..45_000).map(|n| (0..n % 5).map(|_| argument(&mut numbers)).collect()).collect();
    let containers: Vec<Container> = (0..40_000)
        .map(|n| Container {
            name: format!("subsystem_function_{n}"),
            address: BASE + 512 * n,
            size: 512,
            unprobeable: None,
        })
        .collect();
    let files = (0..6_000).map(|n| format!("drivers/some/where/file_number_{n}.c")).collect();
    let sites = (0..SITES)
        .map(|n| {
            let container = numbers.below(40_000);
            let function = numbers.below(functions.len() as u32);
            Site {
                function,
                kind: SiteKind::Inline,
                address: containers[container as usize].address + u64::from(numbers.below(512)),
                moved: 0,
                section: 0,
                prototype: 5 * numbers.below(9_000) + functions[function as usize].parameters,
                container,
                source: SourceLine { file: numbers.below(6_000), line: 1 + numbers.below(4_000) },
                declared: SourceLine { file: function % 6_000, line: function % 3_000 },
                parent: (n % 2 == 1).then(|| numbers.below(SITES)),
                marks: Marks::default(),
                unprobeable: None,
            }
        })
        .collect();
    SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![7; 20],
        base: BASE,
        base_btf: base_btf.clone(),
        types,
        sections: vec![Section { name: ".text".into(), address: BASE, size: 512 * 40_000 }],
        functions,
        prototypes,
        containers,
        files,
        sites,
    }
}

#[test]
fn a_kernels_worth_of_sites() {
    let base_btf = base();
    let base = time("Btf::parse of the base", || Btf::parse(&base_btf).unwrap());
    eprintln!("base: {} bytes, {} types", base_btf.len(), base.end_id());
    let set = site_set(base_btf.clone());
    let raw = time("write_raw", || file::write_raw(&set).unwrap());
    let data = time("write", || file::write(&set).unwrap());
    let file = time("SiteFile::parse", || SiteFile::parse(&data).unwrap());
    let per_site = |bytes: usize| bytes as f64 / f64::from(SITES);
    let sizes = file.sizes();
    let earlier = april_2025::write(&set);
    eprintln!(
        "upstream part {:.2} bytes a site, ours {:.2}, April 2025 {:.2}",
        per_site(sizes.inline),
        per_site(sizes.ext),
        per_site(earlier.len())
    );
    eprintln!("file {} bytes", data.len());
    assert_eq!(raw.len(), sizes.inline);
    assert!(per_site(sizes.inline) <= 22.0, "{}", per_site(sizes.inline));
    assert!(per_site(sizes.ext) <= 30.0, "{}", per_site(sizes.ext));

    let name = "inlined_helper_nr_31415";
    let found = time("open, look up one name, all it has", || {
        let file = SiteFile::parse(&data).unwrap();
        let functions = file.functions(name).unwrap();
        let params = functions[0].prototype().unwrap().params.len();
        let sites: Vec<_> =
            functions[0].sites().map(|s| s.unwrap()).map(|s| (s.address(), s.arguments().unwrap())).collect();
        (functions.len(), params, sites)
    });
    let wanted = set.functions.iter().position(|f| f.name == name).unwrap() as u32;
    let mut expected: Vec<_> = set
        .sites
        .iter()
        .filter(|s| s.function == wanted)
        .map(|s| (s.address, set.prototypes[s.prototype as usize].to_vec()))
        .collect();
    let mut sites = found.2;
    let order = |a: &(u64, Vec<Argument>), b: &(u64, Vec<Argument>)| {
        a.0.cmp(&b.0).then_with(|| format!("{:?}", a.1).cmp(&format!("{:?}", b.1)))
    };
    sites.sort_by(order);
    expected.sort_by(order);
    assert_eq!((found.0, found.1), (1, 31_415 % 3));
    assert_eq!(sites, expected);
    let count = time("all sites", || file.sites().map(|s| s.unwrap().address() & 1).sum::<u64>());
    assert_eq!(count, set.sites.iter().map(|s| s.address & 1).sum::<u64>());
    let located = time("all arguments of all sites", || {
        file.sites().flat_map(|s| s.unwrap().arguments().unwrap()).filter(Result::is_ok).count()
    });
    let per_prototype = |p: &[Argument]| p.iter().filter(|a| a.is_ok()).count();
    assert_eq!(located, set.sites.iter().map(|s| per_prototype(&set.prototypes[s.prototype as usize])).sum::<usize>());
    let near = time("nearest names", || file.nearest_names("inlined_helper_nr_3141x", 3));
    assert!(near.iter().all(|name| name.starts_with("inlined_helper_nr_3")), "{near:?}");
    assert_eq!(near.len(), 3);
}
