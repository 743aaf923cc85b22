// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer compile`, on the image that SITESEER_TEST_VMLINUX names: what is in the new object and in its manifest,
//! and what is refused. Other loaders load and attach it in the test `examples` of the conformance crate.

mod made;

use made::{folder, said, siteseer};
use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SymbolKind};
use serde_json::Value;
use siteseer_bpf_progs::compile;
use siteseer_sites::btf::{Btf, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Site data of the image; `None` if no image is named.
fn sites() -> Option<&'static Path> {
    static SITES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let encode = || {
        let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
            eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to compile for (ci/test sets it)");
            return None;
        };
        let folder = folder("compile-sites");
        let output = siteseer(&folder).arg("encode").arg(vmlinux).args(["-o", "vmlinux.sites"]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        Some(folder.join("vmlinux.sites"))
    };
    SITES.get_or_init(encode).as_deref()
}

/// What the programs of these tests begin with.
const HEAD: &str = r#"
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <siteseer.bpf.h>
"#;

/// Compiles C to an object in a folder.
fn object(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (from, to) = (folder.join(format!("{name}.bpf.c")), folder.join(format!("{name}.bpf.o")));
    let head = if source.contains("#include") { "" } else { HEAD };
    fs::write(&from, format!("{head}{source}")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (types, own) = (root.join("examples/capsnoop/src"), root.join("loader/include"));
    let includes = [Path::new(siteseer_bpf_progs::LIBBPF_INCLUDE), &types, &own];
    compile::compile(&compile::clang().unwrap(), &from, &to, "x86", &includes, name).unwrap();
    to
}

/// Runs `siteseer compile` on an object. The manifest, or what was said.
fn compiled(folder: &Path, object: &Path, sites: &Path, arguments: &[&str]) -> Result<Value, String> {
    let mut command = siteseer(folder);
    command.arg("compile").arg(object).arg("--sites").arg(sites).args(["-o", "out.bpf.o"]).args(arguments);
    let output = command.output().unwrap();
    if !output.status.success() {
        return Err(said(&output));
    }
    Ok(serde_json::from_slice(&fs::read(folder.join("out.bpf.o.json")).unwrap()).unwrap())
}

/// A program with all that an object can have.
const WHOLE: &str = include_str!("programs/whole.bpf.c");

// Proves S25.3.
#[test]
fn the_object_is_whole() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-whole");
    let from = object(&folder, "whole", WHOLE);
    let manifest = compiled(&folder, &from, sites, &[]).unwrap();
    let (old, new) = (fs::read(&from).unwrap(), fs::read(folder.join("out.bpf.o")).unwrap());
    assert_eq!(manifest["object"]["size"], new.len());
    assert_eq!(manifest["object"]["crc32"], format!("{:#010x}", crc32fast::hash(&new)));
    let parse = |data| object::read::elf::ElfFile64::<object::Endianness>::parse(data).unwrap();
    let (old, elf) = (parse(&*old), parse(&*new));

    // What is not replaced is there, byte by byte; what is replaced is gone, and so is what describes it.
    for section in old.sections() {
        let name = section.name().unwrap();
        let taken = elf.section_by_name(name);
        match name {
            "kprobe/do_nanosleep" | ".rodata" | "license" => {
                assert_eq!(taken.unwrap().data().unwrap(), section.data().unwrap(), "{name}");
            }
            ".text" | ".maps" => assert!(taken.unwrap().data().unwrap().starts_with(section.data().unwrap()), "{name}"),
            ".bss" => assert_eq!(taken.unwrap().size(), section.size()),
            _ if name.starts_with(".debug") => assert!(taken.is_none(), "{name}"),
            _ => {}
        }
    }
    assert!(elf.symbol_by_name("asked").is_none() && elf.symbol_by_name("level").is_some());

    // Each call and each address of a function leads to the beginning of one.
    let starts: BTreeSet<(usize, u64)> = elf
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
        .filter_map(|symbol| Some((symbol.section_index()?.0, symbol.address())))
        .collect();
    let mut led: BTreeMap<&str, usize> = BTreeMap::new();
    for section in elf.sections().filter(|section| section.kind() == object::SectionKind::Text) {
        let code = section.data().unwrap();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { panic!("{relocation:?}") };
            let symbol = elf.symbol_by_index(symbol).unwrap();
            let at = usize::try_from(offset).unwrap();
            let imm = i64::from(i32::from_le_bytes(code[at + 4..at + 8].try_into().unwrap()));
            let Some(to) = symbol.section_index() else { panic!("{symbol:?} is nowhere") };
            if elf.section_by_index(to).unwrap().kind() != object::SectionKind::Text {
                continue;
            }
            let RelocationFlags::Elf { r_type } = relocation.flags() else { panic!("{relocation:?}") };
            let distance = match r_type {
                R_BPF_64_32 => 8 * (imm + 1),
                R_BPF_64_64 => imm,
                other => panic!("{other:?}"),
            };
            let start = symbol.address() as i64 + distance;
            assert!(starts.contains(&(to.0, start as u64)), "{}+{offset:#x}", section.name().unwrap());
            *led.entry(if r_type == R_BPF_64_32 { "calls" } else { "addresses" }).or_default() += 1;
        }
    }
    assert!(led["calls"] >= 6 && led["addresses"] >= 3, "{led:?}");

    // The global function and the callback are there once; what sees the context, once for each way to gather arguments
    // at most.
    let named = |name: &str| elf.symbols().filter(|symbol| symbol.name().unwrap().starts_with(name)).count();
    assert_eq!((named("thrice"), named("step")), (1, 1));
    let ways: BTreeSet<&str> =
        manifest["attachments"].as_array().unwrap().iter().map(|one| one["program"].as_str().unwrap()).collect();
    assert!((2..=1 + ways.len()).contains(&named("level")), "{}", named("level"));

    // The types of the old object keep their ids, and the new functions have one each.
    let btf = |elf: &object::read::elf::ElfFile64<'_>| elf.section_by_name(".BTF").unwrap().data().unwrap().to_vec();
    let (old_btf, new_btf) = (btf(&old), btf(&elf));
    let (old_btf, new_btf) = (Btf::parse(&old_btf).unwrap(), Btf::parse(&new_btf).unwrap());
    for ty in old_btf.types().filter(|ty| ty.kind() != Kind::Datasec) {
        let same = new_btf.ty(ty.id()).unwrap();
        assert_eq!((same.kind(), same.name(), same.tail()), (ty.kind(), ty.name(), ty.tail()));
    }
    for program in ways {
        assert!(new_btf.find(Kind::Func, program).is_some(), "{program}");
    }

    // libbpf agrees.
    let mut builder = libbpf_rs::ObjectBuilder::default();
    let open = builder.open_memory(&new).unwrap();
    let programs: BTreeMap<String, String> = open
        .progs()
        .map(|program| {
            (program.name().to_string_lossy().into_owned(), program.section().to_string_lossy().into_owned())
        })
        .collect();
    for attachment in manifest["attachments"].as_array().unwrap() {
        let section = &programs[attachment["program"].as_str().unwrap()];
        let (mechanism, symbol) = (attachment["mechanism"].as_str().unwrap(), attachment["symbol"].as_str().unwrap());
        let wanted = if mechanism == "fentry" { format!("fentry/{symbol}") } else { format!("{mechanism}/siteseer") };
        assert_eq!(*section, wanted);
    }
    assert!(programs.contains_key("carried"));
}

/// Every site is in the manifest once, where `siteseer plan` has it.
// Proves S25.1.
#[test]
fn the_manifest_has_every_site() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-manifest");
    for function in ["do_sys_open", "ns_capable", "vfs_read", "__bpf_copy_key", "tcp_v4_rcv"] {
        let source = format!(
            "char LICENSE[] SEC(\"license\") = \"GPL\";\n\
             SEC(\"kprobe_maybe_inline/{function}\") int program(void *ctx) {{ return 0; }}\n"
        );
        let from = object(&folder, function, &source);
        let manifest = compiled(&folder, &from, sites, &[]).unwrap();
        let mut command = siteseer(&folder);
        command.args(["plan", function, "--json", "--sites"]).arg(sites);
        let plan: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        assert_eq!((&manifest["build_id"], &manifest["machine"]), (&plan["build_id"], &plan["machine"]));
        let place = |site: &Value, symbol: &str, offset: &str| {
            (site["kind"].to_string(), site[symbol].to_string(), site[offset].as_u64().unwrap())
        };
        let (mut attached, mut left) = (Vec::new(), Vec::new());
        for site in plan["functions"].as_array().unwrap().iter().flat_map(|one| one["sites"].as_array().unwrap()) {
            let list = if site["mechanism"].is_null() { &mut left } else { &mut attached };
            list.push(place(site, "symbol", "offset"));
        }
        let of = |key: &str| -> Vec<_> {
            let list = manifest[key].as_array().unwrap();
            list.iter().map(|site| place(site, "holder", "holder_offset")).collect()
        };
        let (mut has, mut lacks) = (of("attachments"), of("left_out"));
        for list in [&mut attached, &mut left, &mut has, &mut lacks] {
            list.sort();
        }
        assert_eq!((has, lacks), (attached, left), "{function}");
    }
}

// Proves S25.1, S25.4.
#[test]
fn what_cannot_be_compiled() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-refused");
    let gpl = "char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let refused = |name: &str, source: &str, arguments: &[&str], wanted: &str| {
        let from = object(&folder, name, source);
        let said = compiled(&folder, &from, sites, arguments).expect_err(name);
        assert!(said.contains(wanted), "{name}: {said}");
        assert!(!folder.join("out.bpf.o").exists() && !folder.join("out.bpf.o.json").exists(), "{name}");
    };
    let program = |section: &str, body: &str| {
        format!("{gpl}SEC(\"{section}\") int program(unsigned long long *ctx) {{ {body} }}\n")
    };
    refused("bare", &program("fentry", "return 0;"), &[], "program program: SEC(\"fentry\") names no function");
    refused("module", &program("fentry/ext4:ext4_read", "return 0;"), &[], "ext4 is a module");
    refused("site", &program("fentry/ns_capable", "return !siteseer_site(ctx);"), &[], "calls siteseer_site()");
    refused("unknown", &program("fentry/no_such", "return 0;"), &[], "there is no function no_such");
    refused("none", &program("xdp", "return 0;"), &[], "it has no program in SEC(\"fentry/...\")");
    // ns is nowhere where ns_capable() was inlined into capable().
    refused("complete", &program("fentry/ns_capable", "return ctx[0] == 1;"), &[], "the policy is complete");
    let follows = "char LICENSE[] SEC(\"license\") = \"Proprietary\";\n\
                   SEC(\"kprobe_maybe_inline/ns_capable\") int BPF_PROG(program, struct user_namespace *ns) \
                   { return ns->level; }\n";
    refused("licence", follows, &[], "the object's licence is \"Proprietary\"");
    let referred = format!(
        "{gpl}SEC(\"fentry/ns_capable\") int program(void *ctx) {{ return 0; }}\n\
         struct {{ __uint(type, 3); __uint(max_entries, 1); __type(key, __u32); __array(values, int (void *)); }} \
         programs SEC(\".maps\") = {{ .values = {{ [0] = (void *)&program }} }};\n"
    );
    refused("referred", &referred, &[], "section .maps refers to the program program, which is replaced by others");

    // Best effort leaves the site out, and says so.
    let from = object(&folder, "complete", &program("fentry/ns_capable", "return ctx[0] == 1;"));
    let manifest = compiled(&folder, &from, sites, &["--policy", "best-effort"]).unwrap();
    assert_eq!(manifest["programs"][0]["policy"], "best_effort");
    let left = manifest["left_out"].as_array().unwrap();
    assert!(!left.is_empty() && left.iter().all(|site| site["reason"] == "missing_arguments"), "{left:?}");
}

/// An object or a manifest that goes to standard output is all that goes there, and no manifest is put beside a device,
/// or over its object.
#[test]
fn to_standard_output() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-stdout");
    let from = object(&folder, "whole", WHOLE);
    compiled(&folder, &from, sites, &[]).unwrap();
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = siteseer(&folder);
        command.arg("compile").arg(&from).arg("--sites").arg(sites).args(arguments).output().unwrap()
    };
    let output = run(&["-o", "/dev/stdout", "--manifest", "named.json"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(output.stdout, read("out.bpf.o"));
    let output = run(&["-o", "named.bpf.o", "--manifest", "/dev/stdout"]);
    assert!(output.status.success(), "{}", said(&output));
    let manifest: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(manifest["object"]["file"], "named.bpf.o");
    for both in ["/dev/stdout", "both.bpf.o"] {
        let output = run(&["-o", both, "--manifest", both]);
        assert!(!output.status.success() && output.stdout.is_empty() && !folder.join("both.bpf.o").exists());
        assert!(said(&output).contains("cannot be both the object and the manifest"), "{}", said(&output));
    }
    let output = run(&["-o", "/dev/stdout"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(said(&output).contains("name one by --manifest"), "{}", said(&output));
}

/// Objects that lack what clang writes with -g, or have something else in its place.
#[test]
fn without_information() {
    use object::write::{Object, Symbol, SymbolSection};
    let Some(sites) = sites() else { return };
    let folder = folder("compile-without");
    let refused = |name: &str, btf: Option<&[u8]>, ext: Option<&[u8]>, wanted: &str| {
        let mut made = Object::new(object::BinaryFormat::Elf, object::Architecture::Bpf, object::Endianness::Little);
        let code = made.add_section(Vec::new(), b"fentry/do_sys_open".to_vec(), object::SectionKind::Text);
        // r0 = 0; exit
        made.append_section_data(code, &[0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0], 8);
        made.add_symbol(Symbol {
            name: b"program".to_vec(),
            value: 0,
            size: 16,
            kind: SymbolKind::Text,
            scope: object::SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(code),
            flags: object::SymbolFlags::None,
        });
        for (name, data) in [(".BTF", btf), (".BTF.ext", ext)] {
            let Some(data) = data else { continue };
            let section = made.add_section(Vec::new(), name.as_bytes().to_vec(), object::SectionKind::Other);
            made.append_section_data(section, data, 4);
        }
        let from = folder.join(name);
        fs::write(&from, made.write().unwrap()).unwrap();
        let said = compiled(&folder, &from, sites, &[]).expect_err(name);
        assert!(said.contains(wanted), "{name}: {said}");
    };
    let btf = siteseer_sites::btf::SplitBtf::standalone().to_bytes();
    let ext: Vec<u8> = [&[0x9f, 0xeb, 1, 0, 24, 0, 0, 0][..], &[0; 16]].concat();
    refused("nothing", None, None, "the object has no .BTF and .BTF.ext");
    refused("one", Some(&btf), None, "the object has no .BTF and .BTF.ext");
    refused("btf", Some(b"not"), Some(&ext), "the object's BTF: ");
    refused("ext", Some(&btf), Some(b"not"), "the object's .BTF.ext: it has no little-endian header");
    refused("functions", Some(&btf), Some(&ext), "the object's .BTF.ext does not have the function program");
    // An alignment that is not a power of two, in the header of .text.
    let mut whole = fs::read(object(&folder, "whole", WHOLE)).unwrap();
    let headers = u64::from_le_bytes(whole[0x28..0x30].try_into().unwrap()) as usize;
    let text = {
        let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*whole).unwrap();
        elf.section_by_name(".text").unwrap().index().0
    };
    whole[headers + 64 * text + 48] = 3;
    let damaged = folder.join("damaged.bpf.o");
    fs::write(&damaged, &whole).unwrap();
    let said = compiled(&folder, &damaged, sites, &[]).expect_err("damaged");
    assert!(said.contains("section .text of the object is damaged"), "{said}");
    let bad = folder.join("bad.bpf.o");
    fs::write(&bad, siteseer_bpf_progs::BAD).unwrap();
    let said = compiled(&folder, &bad, sites, &[]).expect_err("bad");
    assert!(said.contains("program override_return: instruction 1 calls bpf_override_return"), "{said}");
}

/// Relocations of other compilers and linkers may have no symbol.
#[test]
fn a_relocation_without_a_symbol() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-relocation");
    let path = object(&folder, "whole", WHOLE);
    let mut data = fs::read(&path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let is_of_code = |name: &str| name.strip_prefix(".rel").is_some_and(|of| of.starts_with("kprobe") || of == ".text");
    let section = file.sections().find(|section| section.name().is_ok_and(is_of_code)).expect("code is relocated");
    let (at, _) = section.file_range().unwrap();
    // The upper half of Elf64_Rel::r_info is the symbol.
    let symbol = at as usize + 12;
    data[symbol..symbol + 4].fill(0);
    fs::write(&path, data).unwrap();
    let said = compiled(&folder, &path, sites, &[]).expect_err("it has no symbol");
    assert!(said.contains("has a relocation that is not by a symbol alone"), "{said}");
}

/// What is not an object does not crash the tool, whatever part of it is damaged.
#[test]
fn damaged_objects() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-damaged");
    let data = fs::read(object(&folder, "whole", WHOLE)).unwrap();
    let damaged = folder.join("damaged.bpf.o");
    for nth in 0..12 {
        let mut bytes = data.clone();
        (nth * 37..data.len()).step_by(data.len() / 24 + nth).for_each(|at| bytes[at] ^= 0x55);
        fs::write(&damaged, &bytes).unwrap();
        let mut command = siteseer(&folder);
        let output =
            command.arg("compile").arg(&damaged).arg("--sites").arg(sites).args(["-o", "out"]).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{nth}: {output:?}");
    }
}

/// The helper that answers the cookie (include/uapi/linux/bpf.h).
const GET_ATTACH_COOKIE: i32 = 174;

/// The instructions of a program of an object, and of the functions that it calls: {code, registers, offset, imm}.
fn reached(elf: &object::read::elf::ElfFile64<'_>, program: &str) -> Vec<[u8; 8]> {
    let start = elf.symbol_by_name(program).unwrap();
    let mut open = vec![(start.section_index().unwrap(), start.address())];
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    while let Some((section, at)) = open.pop() {
        if !seen.insert((section.0, at)) {
            continue;
        }
        let is_it = |symbol: &object::read::elf::ElfSymbol64<'_, '_>| {
            symbol.section_index() == Some(section) && symbol.address() == at && symbol.kind() == SymbolKind::Text
        };
        let size = elf.symbols().filter(is_it).map(|symbol| symbol.size()).max().unwrap();
        let (section_index, section) = (section, elf.section_by_index(section).unwrap());
        let code = &section.data().unwrap()[at as usize..(at + size) as usize];
        for (nth, instruction) in code.as_chunks::<8>().0.iter().enumerate() {
            found.push(*instruction);
            // A call of a function of the object.
            if instruction[0] != 0x85 || instruction[1] >> 4 != 1 {
                continue;
            }
            let pc = at + 8 * nth as u64;
            let imm = i64::from(i32::from_le_bytes(instruction[4..].try_into().unwrap()));
            let relocation = section.relocations().find(|(offset, _)| *offset == pc);
            open.push(match relocation.map(|(_, relocation)| relocation.target()) {
                Some(RelocationTarget::Symbol(symbol)) => {
                    let symbol = elf.symbol_by_index(symbol).unwrap();
                    (symbol.section_index().unwrap(), (symbol.address() as i64 + 8 * (imm + 1)) as u64)
                }
                _ => (section_index, (pc as i64 + 8 * (imm + 1)) as u64),
            });
        }
    }
    found
}

/// A real fentry or fexit program asks for the cookie of its link. In a program with a trampoline the number is in the
/// code: there the cookie of the link says where the arguments are.
#[test]
fn a_program_has_its_own_cookie() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-cookie");
    let source = "char LICENSE[] SEC(\"license\") = \"GPL\";\n__u64 seen;\n\
                  SEC(\"kprobe_maybe_inline/ns_capable\") int BPF_PROG(entry) \
                  { seen = bpf_get_attach_cookie(ctx); return 0; }\n\
                  SEC(\"fexit/ns_capable\") int BPF_PROG(leaves) { seen = bpf_get_attach_cookie(ctx); return 0; }\n";
    let from = object(&folder, "cookie", source);
    let manifest = compiled(&folder, &from, sites, &["--cookie", "1373658", "--policy", "best-effort"]).unwrap();
    let new = fs::read(folder.join("out.bpf.o")).unwrap();
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(&*new).unwrap();
    let mut mechanisms = BTreeSet::new();
    for attachment in manifest["attachments"].as_array().unwrap() {
        let code = reached(&elf, attachment["program"].as_str().unwrap());
        let imm = |instruction: &[u8; 8]| i32::from_le_bytes(instruction[4..].try_into().unwrap());
        let asks = code.iter().any(|one| one[0] == 0x85 && one[1] >> 4 == 0 && imm(one) == GET_ATTACH_COOKIE);
        // A move of an immediate to a register, of 32 bits or 64.
        let knows = code.iter().any(|one| matches!(one[0], 0xb4 | 0xb7 | 0x18) && imm(one) == 1_373_658);
        let mechanism = attachment["mechanism"].as_str().unwrap();
        let (expected, cookie) = match mechanism {
            "fentry" | "fexit" => ((true, false), "0x14f5da"),
            _ => ((false, true), "0x0"),
        };
        assert_eq!(((asks, knows), attachment["cookie"].as_str()), (expected, Some(cookie)), "{attachment}");
        mechanisms.insert(mechanism);
    }
    assert!(mechanisms.is_superset(&BTreeSet::from(["fentry", "fexit", "kprobe"])), "{mechanisms:?}");
}

/// Of a function with very many location prototypes, programs are shared: the program and the link's cookie together
/// say what a program alone says if links have no cookies.
#[test]
fn cookies_select_the_prototype() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-shared");
    let source = "char LICENSE[] SEC(\"license\") = \"GPL\";\n__u64 seen;\n\
                  SEC(\"kprobe_maybe_inline/copy_from_user\") int BPF_PROG(program) {\n\
                  __u64 value;\n\
                  for (int nth = 0; nth < 3; nth++) if (!siteseer_arg(ctx, nth, &value)) seen += value;\n\
                  return 0; }\n";
    let from = object(&folder, "shared", source);
    let ways = |arguments: &[&str]| -> BTreeMap<(String, u64), (String, String)> {
        let manifest = compiled(&folder, &from, sites, arguments).unwrap();
        let of = |one: &Value| {
            let text = |key: &str| one[key].as_str().unwrap().to_owned();
            ((text("symbol"), one["offset"].as_u64().unwrap()), (text("program"), text("cookie")))
        };
        manifest["attachments"].as_array().unwrap().iter().map(of).collect()
    };
    let (shared, alone) = (ways(&["--cookie", "7"]), ways(&["--cookie", "7", "--no-cookies"]));
    assert_eq!(shared.keys().collect::<Vec<_>>(), alone.keys().collect::<Vec<_>>());
    assert!(alone.values().all(|(program, cookie)| cookie == "0x0" || program == "program_1"), "{alone:?}");
    let pairs: BTreeSet<_> = alone.values().zip(shared.values()).collect();
    let programs = |of: &BTreeMap<_, (String, String)>| of.values().map(|one| one.0.clone()).collect::<BTreeSet<_>>();
    let prototypes = alone.values().collect::<BTreeSet<_>>().len();
    assert!(prototypes > 128, "{prototypes} location prototypes are too few to be shared");
    assert!(programs(&shared).len() < programs(&alone).len());
    assert_eq!((pairs.len(), shared.values().collect::<BTreeSet<_>>().len()), (prototypes, prototypes));
}

/// Programs at the return: bodies by fexit, clones by kretprobe. Inlined copies have no return, and are left out.
#[test]
fn programs_at_the_return() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-return");
    let listed = {
        let output = siteseer(&folder).args(["list", "*", "--json", "--sites"]).arg(sites).output().unwrap();
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    let is_cloned = |one: &&Value| {
        let name = one["function"].as_str().unwrap();
        one["clones"] == 1
            && one["unprobeable"] == 0
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let cloned: Vec<&str> =
        listed.iter().filter(is_cloned).map(|one| one["function"].as_str().unwrap()).step_by(40).take(8).collect();
    assert_eq!(cloned.len(), 8);
    let mut mechanisms = BTreeSet::new();
    for function in ["ns_capable", "vfs_read", "do_sys_open"].into_iter().chain(cloned) {
        let source = format!(
            "char LICENSE[] SEC(\"license\") = \"GPL\";\n\
             SEC(\"fexit/{function}\") int program(void *ctx) {{ return 0; }}\n"
        );
        let from = object(&folder, function, &source);
        let manifest = compiled(&folder, &from, sites, &["--policy", "best-effort"]).unwrap();
        let mut command = siteseer(&folder);
        command.args(["plan", function, "--at", "return", "--json", "--sites"]).arg(sites);
        let plan: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        // What a link of siteseer's does at many places, other loaders do at each.
        let of = |site: &Value, symbol: &str, offset: &str| {
            let mechanism = site["mechanism"].as_str().unwrap().trim_end_matches(".multi").to_owned();
            (mechanism, site[symbol].to_string(), site[offset].as_u64().unwrap())
        };
        let functions = plan["functions"].as_array().unwrap().iter();
        let planned: BTreeSet<_> = functions
            .flat_map(|one| one["sites"].as_array().unwrap())
            .filter(|site| !site["mechanism"].is_null())
            .map(|site| of(site, "symbol", "offset"))
            .collect();
        let attachments = manifest["attachments"].as_array().unwrap();
        let attached: BTreeSet<_> = attachments.iter().map(|one| of(one, "holder", "holder_offset")).collect();
        assert_eq!(attached, planned, "{function}");
        for left in manifest["left_out"].as_array().unwrap().iter().filter(|left| left["kind"] == "inline") {
            assert_eq!(left["reason"], "exit_of_inline", "{left}");
        }
        let mut builder = libbpf_rs::ObjectBuilder::default();
        let new = fs::read(folder.join("out.bpf.o")).unwrap();
        let open = builder.open_memory(&new).unwrap();
        for attachment in attachments {
            let (mechanism, symbol) = (&attachment["mechanism"], attachment["symbol"].as_str().unwrap());
            let name = attachment["program"].as_str().unwrap();
            let program = open.progs().find(|program| program.name() == name).unwrap();
            let section =
                if mechanism == "fexit" { format!("fexit/{symbol}") } else { "kretprobe/siteseer".to_owned() };
            assert_eq!(program.section().to_str(), Some(section.as_str()), "{attachment}");
            assert_eq!(attachment["offset"], 0, "{attachment}");
            mechanisms.insert(mechanism.to_string());
        }
    }
    assert_eq!(mechanisms, BTreeSet::from(["\"fexit\"".to_owned(), "\"kretprobe\"".to_owned()]));
}

/// Where a program is a risk to the kernel, it is compiled only if that is allowed.
#[test]
fn risky_places_are_asked_for() {
    let Some(sites) = sites() else { return };
    let folder = folder("compile-risky");
    let source = "char LICENSE[] SEC(\"license\") = \"GPL\";\n\
                  SEC(\"kprobe_maybe_inline/_raw_spin_unlock_irqrestore\") int program(void *ctx) { return 0; }\n";
    let from = object(&folder, "risky", source);
    for policy in ["complete", "best-effort"] {
        let refused = compiled(&folder, &from, sites, &["--policy", policy]).expect_err(policy);
        assert!(
            refused.contains("a program there is a risk") && refused.contains("allow_risky"),
            "{policy}: {refused}"
        );
    }
    let allowed = compiled(&folder, &from, sites, &["--allow-risky", "--policy", "complete"]).unwrap();
    let attachments = allowed["attachments"].as_array().unwrap();
    assert_eq!((attachments.len(), allowed["left_out"].as_array().unwrap().len()), (1, 0), "{allowed}");
    assert_eq!(attachments[0]["symbol"], "_raw_spin_unlock_irqrestore");
}
