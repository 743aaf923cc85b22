// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The BTF of a real kernel: the vmlinux that the environment variable SITESEER_TEST_VMLINUX names.

mod common;

use common::exercise;
use object::read::{ReadCache, elf::ElfFile64};
use object::{LittleEndian, Object, ObjectSection};
use siteseer_sites::btf::{self, Btf, Kind, NameIndex, SplitBtf};
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::set::{Container, Function, Section};
use siteseer_sites::site::SourceLine;
use siteseer_sites::*;
use std::collections::BTreeSet;
use std::time::Instant;

/// The `.BTF` section, or `None` with a message.
fn kernel_btf() -> Option<Vec<u8>> {
    let Some(path) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing is tested here");
        return None;
    };
    let cache = ReadCache::new(std::fs::File::open(path).expect("SITESEER_TEST_VMLINUX"));
    let elf = ElfFile64::<LittleEndian, _>::parse(&cache).expect("an ELF file");
    let section = elf.section_by_name(".BTF").expect("a .BTF section");
    Some(section.data().unwrap().to_vec())
}

/// A function's declaration, as C has it.
fn prototype(btf: &Btf<'_>, names: &NameIndex<'_>, name: &str) -> String {
    let func = names.get(Kind::Func, name).next().unwrap();
    btf::declaration(btf, func, name)
}

#[test]
fn the_kernels_types() {
    let Some(data) = kernel_btf() else { return };
    let start = Instant::now();
    let btf = Btf::parse(&data).unwrap();
    eprintln!("{} bytes, {} types, parsed in {:?}", data.len(), btf.end_id(), start.elapsed());
    assert!(btf.end_id() > 50_000);
    assert_eq!(btf.types().count() as u32, btf.end_id() - 1);
    let start = Instant::now();
    let names = NameIndex::new(&btf, &[Kind::Func, Kind::Struct, Kind::Typedef, Kind::Enum]);
    eprintln!("names indexed in {:?}", start.elapsed());
    assert_eq!(prototype(&btf, &names, "vfs_read"), "ssize_t vfs_read(struct file *, char *, size_t, loff_t *)");
    assert_eq!(prototype(&btf, &names, "ns_capable"), "bool ns_capable(struct user_namespace *, int)");
    // Structures: members in order, inside of the whole.
    let task = btf.ty(names.get(Kind::Struct, "task_struct").next().unwrap()).unwrap();
    let size = task.size().unwrap();
    assert!(task.members().len() > 100);
    for member in task.members() {
        let bytes = btf.size_of(member.ty).unwrap();
        assert!(u64::from(member.bit_offset / 8) + bytes <= u64::from(size) || member.bits != 0, "{}", member.name);
    }
    let comm = task.members().find(|m| m.name == "comm").unwrap();
    assert_eq!(btf::declaration(&btf, comm.ty, "comm"), "char comm[16]");
    for ty in btf.types() {
        let text = btf::type_name(&btf, ty.id());
        assert!(!text.is_empty() && !text.contains("<type"), "{} {text}", ty.id());
    }
    let wanted = [(Kind::Struct, "task_struct"), (Kind::Func, "vfs_read"), (Kind::Union, "task_struct")];
    let found: Vec<_> = btf.find_each(&wanted).into_iter().map(|ty| ty.map(|ty| ty.id())).collect();
    let indexed = |(kind, name)| names.get(kind, name).next();
    assert_eq!(found, wanted.map(indexed));
    exercise::exercise_btf(&btf);
    assert_eq!(btf::rules::check(&data, None).unwrap(), [], "what the kernel takes every time that it boots");
}

/// A FUNC as a site set has it.
fn function(btf: &Btf<'_>, func: &btf::Type<'_>) -> Function {
    let proto = btf.ty(func.size_or_type()).unwrap();
    let (parameters, variadic) = (proto.params().len() as u32, proto.is_variadic());
    Function { name: func.name().to_owned(), func: func.id(), parameters, variadic }
}

/// Every function of the kernel once, through a file: prototypes come out as they went in, without a walk over the
/// types.
#[test]
fn a_file_over_the_kernels_types() {
    let Some(base_btf) = kernel_btf() else { return };
    let base = Btf::parse(&base_btf).unwrap();
    let funcs: Vec<_> = base.types().filter(|ty| ty.kind() == Kind::Func).collect();
    let functions: Vec<Function> = funcs.iter().map(|ty| function(&base, ty)).collect();
    let site = |n: usize| Site {
        function: n as u32,
        kind: SiteKind::Body,
        address: 0x1000 + 16 * n as u64,
        moved: 0,
        section: 0,
        prototype: functions[n].parameters,
        container: 0,
        source: SourceLine::UNKNOWN,
        declared: SourceLine::UNKNOWN,
        parent: None,
        marks: Marks::default(),
        unprobeable: None,
    };
    let most = functions.iter().map(|function| function.parameters).max().unwrap_or(0);
    let types = SplitBtf::new(&base);
    let before = types.to_bytes().len();
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![1; 20],
        base: 0x1000,
        base_btf: base_btf.clone(),
        types,
        sections: vec![Section { name: ".text".into(), address: 0x1000, size: 16 * funcs.len() as u64 }],
        sites: (0..funcs.len()).map(site).collect(),
        functions: functions.clone(),
        // By the number of their elements.
        prototypes: (0..=most).map(|count| vec![Err(Missing::OptimisedOut); count as usize].into()).collect(),
        containers: vec![Container { name: "vfs_read".into(), address: 0x1000, size: 1, unprobeable: None }],
        files: vec![],
    };
    let data = file::write(&set).unwrap();
    let file = SiteFile::parse(&data).unwrap();
    // The upstream part is a LOCSEC and a LOC_PROTO for each number of elements: no name of the kernel's is stored
    // again.
    let vlens: BTreeSet<u32> = functions.iter().map(Function::vlen).collect();
    let protos: usize = vlens.iter().map(|&vlen| 12 + 4 * vlen as usize).sum();
    assert_eq!(file.sizes().inline, before + protos + 12 + 12 * funcs.len() + "inline.text\0".len());
    assert_eq!(btf::rules::check(&file::write_raw(&set).unwrap(), Some(&base)).unwrap(), []);
    for (ty, nth) in funcs.iter().zip(0u32..) {
        let found = file.functions(ty.name()).unwrap();
        let function = found.iter().find(|f| f.func() == ty.id()).unwrap();
        let sites: Vec<u64> = function.sites().map(|s| s.unwrap().address()).collect();
        assert_eq!(sites, [0x1000 + 16 * u64::from(nth)]);
        assert_eq!(function.prototype().unwrap().id, ty.size_or_type());
        assert_eq!(btf::declaration(file.btf(), ty.id(), "f"), btf::declaration(&base, ty.id(), "f"));
    }
}
