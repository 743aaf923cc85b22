// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer check` and `siteseer plan`: on kernels that are made up, so that every site is known, and on the image
//! that SITESEER_TEST_VMLINUX names, where `siteseer list` and `siteseer sites` count the same.

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSection};
use serde_json::{Value, json};
use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf};
use siteseer_sites::set::{Container, Function, Module, Section};
use siteseer_sites::site::{Marks, Site, SiteKind, SourceLine};
use siteseer_sites::{Located, Location, Machine, Missing, SiteSet, file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BASE: u64 = 0xffff_ffff_8100_0000;

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn siteseer(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siteseer")).args(arguments).current_dir(folder).output().expect("the tool starts")
}

/// What the tool prints, with an exit status.
fn printed(folder: &Path, arguments: &[&str], status: i32) -> String {
    let output = siteseer(folder, arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

fn parsed(folder: &Path, arguments: &[&str], status: i32) -> Value {
    serde_json::from_str(&printed(folder, arguments, status)).expect("JSON")
}

/// A kernel with kprobes and `int vfs_read(TYPE a)`: with its body, if it has one, and inlined into `caller`, at places
/// that have its argument or lack it.
fn kernel(build_id: u8, ty: (&str, u32), body: bool, inlined: &[bool]) -> Vec<u8> {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let parameter = if ty.1 == 4 { int } else { types.int(ty.0, ty.1, ty.1 * 8, IntEncoding::SIGNED) };
    let proto = types.func_proto(int, &[("a", parameter)], false);
    let func = types.func("vfs_read", proto, Linkage::Static);
    types.func("perf_kprobe_init", proto, Linkage::Static);
    let base_btf = types.to_bytes();
    let container = |name: &str, address: u64| Container {
        name: name.to_owned(),
        address: BASE + address,
        size: 0x100,
        unprobeable: None,
    };
    let mut containers = vec![container("caller", 0x1100)];
    if body {
        containers.push(container("vfs_read", 0x1200));
    }
    let site = |(nth, located): (usize, &bool)| Site {
        function: 0,
        kind: SiteKind::Inline,
        address: BASE + 0x1110 + 0x10 * nth as u64,
        moved: 0,
        section: 0,
        prototype: u32::from(!located),
        container: 0,
        source: SourceLine::UNKNOWN,
        declared: SourceLine::UNKNOWN,
        parent: None,
        marks: Marks::default(),
        unprobeable: None,
    };
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![build_id; 20],
        base: BASE,
        types: SplitBtf::new(&Btf::parse(&base_btf).expect("well-formed")),
        sections: vec![Section { name: ".text".to_owned(), address: BASE + 0x1000, size: 0x10000 }],
        functions: vec![Function { name: "vfs_read".to_owned(), func, parameters: 1, variadic: false }],
        prototypes: vec![
            Box::from([Ok(Located::certain(ty.1, true, Location::Register(5)))]),
            Box::from([Err(Missing::OptimisedOut)]),
        ],
        containers,
        files: Vec::new(),
        sites: inlined.iter().enumerate().map(site).collect(),
        base_btf,
    };
    file::write(&set).expect("well-formed")
}

/// Three kernels in folders of their own.
fn kernels(name: &str) -> PathBuf {
    let folder = folder(name);
    let write = |release: &str, data: Vec<u8>| {
        fs::create_dir_all(folder.join("hub").join(release)).unwrap();
        fs::write(folder.join("hub").join(release).join("vmlinux.sites"), data).unwrap();
    };
    write("6.9", kernel(1, ("int", 4), true, &[]));
    write("6.12", kernel(2, ("int", 4), true, &[true, false]));
    write("7.3", kernel(3, ("long", 8), false, &[true]));
    folder
}

fn rules(answer: &Value) -> Vec<&str> {
    answer["findings"].as_array().unwrap().iter().map(|finding| finding["rule"].as_str().unwrap()).collect()
}

#[test]
fn a_function_on_several_kernels() {
    let folder = kernels("check-kernels");
    let all = parsed(&folder, &["check", "vfs_read", "--kernels", "hub", "--json"], 0);
    assert_eq!((&all["schema"], &all["denied"]), (&json!("siteseer-check/1"), &json!(0)));
    let names: Vec<&Value> = all["kernels"].as_array().unwrap().iter().map(|kernel| &kernel["name"]).collect();
    assert_eq!(names, ["6.9", "6.12", "7.3"]);
    assert_eq!(all["kernels"][2]["build_id"], json!("03".repeat(20)));
    let answers = all["functions"][0]["kernels"].as_array().unwrap();
    let shapes: Vec<&Value> = answers.iter().map(|answer| &answer["shape"]).collect();
    assert_eq!(shapes, ["plain", "partly_inlined", "wholly_inlined"]);
    assert_eq!(rules(&answers[0]), [""; 0]);
    assert_eq!(rules(&answers[1]), ["partly_inlined", "incomplete", "arguments", "shape"]);
    assert_eq!(rules(&answers[2]), ["wholly_inlined", "prototype", "shape"]);
    let counts = |answer: &Value| ["bodies", "clones", "inlined"].map(|key| answer[key].as_u64().unwrap());
    assert_eq!(answers.iter().map(counts).collect::<Vec<_>>(), [[1, 0, 0], [1, 0, 2], [0, 0, 1]]);
    let argument = &answers[1]["prototypes"][0]["arguments"][0];
    let wanted = json!({ "name": "a", "type": "int", "located": 2, "certain": 2, "missing": { "optimised_out": 1 } });
    assert_eq!(*argument, wanted);
    let program = &answers[1]["programs"][0];
    assert_eq!((&program["attached"], &program["sites"]), (&json!(2), &json!(3)));
    assert_eq!((&program["mechanisms"], &program["complete"]), (&json!({ "kprobe": 2 }), &json!(false)));
    let site = &program["in_the_way"][0];
    assert_eq!((&site["symbol"], &site["offset"]), (&json!("caller"), &json!(0x20)));
    assert_eq!(site["reason"], "missing_arguments");
}

/// The site file of a module `toy` of a kernel, with one function, `toy_open`.
fn module(kernel: &[u8], kernel_build_id: u8) -> Vec<u8> {
    let elf = ElfFile64::<LittleEndian>::parse(kernel).unwrap();
    let base = elf.section_by_name(".BTF").unwrap().data().unwrap();
    let base = Btf::parse(base).unwrap();
    let mut own = SplitBtf::new(&base);
    let long = own.int("long", 8, 64, IntEncoding::SIGNED);
    let proto = own.func_proto(long, &[("a", long)], false);
    own.func("toy_open", proto, Linkage::Static);
    let own = own.to_bytes();
    let over = Btf::parse_split(&own, &base).unwrap();
    let text = Section { name: ".text".to_owned(), address: 0x1_0000, size: 0x100 };
    let set = SiteSet {
        module: Some(Module {
            name: "toy".to_owned(),
            kernel_build_id: vec![kernel_build_id; 20],
            loaded: vec![text.clone()],
        }),
        machine: Machine::X86_64,
        build_id: vec![8; 20],
        base: 0x1_0000,
        types: SplitBtf::new(&over),
        sections: vec![text],
        functions: Vec::new(),
        prototypes: Vec::new(),
        containers: vec![Container { name: "toy_open".to_owned(), address: 0x1_0010, size: 16, unprobeable: None }],
        files: Vec::new(),
        sites: Vec::new(),
        base_btf: own.clone(),
    };
    file::write(&set).expect("well-formed")
}

#[test]
fn modules_go_with_their_kernels() {
    let folder = kernels("check-modules");
    let kernel = fs::read(folder.join("hub/6.12/vmlinux.sites")).unwrap();
    fs::write(folder.join("hub/6.12/toy.sites"), module(&kernel, 2)).unwrap();
    let all = parsed(&folder, &["check", "toy:toy_open", "toy_open", "--kernels", "hub", "--json"], 1);
    assert_eq!(all["kernels"].as_array().unwrap().len(), 3, "a module is not a kernel");
    let shapes = |nth: usize| -> Vec<&str> {
        let answers = all["functions"][nth]["kernels"].as_array().unwrap();
        answers.iter().map(|answer| answer["shape"].as_str().unwrap()).collect()
    };
    assert_eq!(shapes(0), ["no_data", "plain", "no_data"]);
    assert_eq!(shapes(1), ["missing", "plain", "missing"]);
    let prototype = &all["functions"][0]["kernels"][1]["prototypes"][0];
    assert_eq!((&prototype["text"], &prototype["complete"]), (&json!("long toy_open(long)"), &json!(1)));
    // Addresses in a module are made up, and not told.
    let arguments =
        ["plan", "toy:toy_open", "--json", "--sites", "hub/6.12/vmlinux.sites", "--module", "hub/6.12/toy.sites"];
    let site = parsed(&folder, &arguments, 0)["functions"][0]["sites"][0].clone();
    assert_eq!((&site["module"], &site["symbol"], &site["address"]), (&json!("toy"), &json!("toy_open"), &Value::Null));
    // One that is for another kernel is nobody's.
    fs::write(folder.join("hub/6.12/toy.sites"), module(&kernel, 9)).unwrap();
    let output = siteseer(&folder, &["check", "vfs_read", "--kernels", "hub"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("toy.sites: a module of the kernel with build id 0909"), "{message}");
}

#[test]
fn what_is_denied_is_the_exit_status() {
    let folder = kernels("check-status");
    let check = |more: &[&str], status: i32| {
        printed(&folder, &[&["check", "vfs_read", "--kernels", "hub/6.9", "hub/7.3"], more].concat(), status)
    };
    assert!(check(&[], 0).contains("1 question on 2 kernels: nothing that is denied was found"));
    check(&["--deny", "partly_inlined,missing"], 0);
    check(&["--deny", "none"], 0);
    let text = check(&["--deny", "shape,prototype"], 1);
    assert!(text.contains("denied: shape (7.3): it was plain, and is wholly inlined"), "{text}");
    assert!(text.contains("denied: prototype (7.3): it was int vfs_read(int), and is int vfs_read(long)"), "{text}");
    assert!(text.contains("note: wholly_inlined (7.3)") && text.contains("2 findings denied"), "{text}");
    let text = printed(&folder, &["check", "vfs_raed", "ext4:foo", "--kernels", "hub"], 1);
    for words in [
        "there is no function vfs_raed",
        "did you mean vfs_read?",
        "no site data for module ext4 was given",
        "6 findings denied",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(siteseer(&folder, &["check", "vfs_raed", "--kernels", "hub", "--deny", "shape"]).status.success());
}

#[test]
fn programs_of_objects() {
    let folder = kernels("check-objects");
    for (name, object) in siteseer_bpf_progs::CORPUS {
        fs::write(folder.join(format!("{name}.bpf.o")), object).unwrap();
    }
    fs::write(folder.join("fentry-all.bpf.o"), siteseer_bpf_progs::FENTRY).unwrap();
    let all = parsed(&folder, &["check", "kprobe.bpf.o", "--kernels", "hub", "--json"], 0);
    let function = &all["functions"][0];
    assert_eq!(function["program"]["section"], "kprobe/vfs_read");
    assert_eq!((&function["function"], &function["program"]["by_siteseer"]), (&json!("vfs_read"), &json!(false)));
    assert_eq!(rules(&function["kernels"][2]), ["wholly_inlined", "prototype", "shape"]);
    // Programs that name no function are reported. `check` fails if an object has no other programs.
    let output = siteseer(&folder, &["check", "./fentry-all.bpf.o", "--kernels", "hub", "--deny", "none"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("SEC(\"fentry.s\") names no function"), "{message}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("ns_capable: program capability_asked of ./fentry-all.bpf.o, SEC(\"fentry/ns_capable\")"),
        "{text}"
    );
    for (object, words) in [
        ("kprobe_bare.bpf.o", "no program's section names a function"),
        ("xdp.bpf.o", "no program in it is for a function of the kernel"),
        ("hub/7.3/vmlinux.sites", "it is for another machine"),
        ("absent.bpf.o", "No such file"),
    ] {
        let output = siteseer(&folder, &["check", object, "--kernels", "hub"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{object}: {message}");
        assert!(message.contains(words), "{object}: {message}");
    }
}

#[test]
fn sarif_has_a_rule_for_each_result() {
    let folder = kernels("check-sarif");
    let log = parsed(&folder, &["check", "vfs_read", "--kernels", "hub", "--sarif", "--deny", "shape"], 1);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 7);
    for result in results {
        let rule = &rules[usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap()];
        assert_eq!(rule["id"], result["ruleId"]);
        assert_eq!(result["level"], if result["ruleId"] == "shape" { "error" } else { "note" });
        let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert!(folder.join(uri.as_str().unwrap()).is_file(), "{uri}");
    }
}

#[test]
fn kernels_that_cannot_be_had() {
    let folder = kernels("check-bad");
    let good = fs::read(folder.join("hub/6.9/vmlinux.sites")).unwrap();
    let elf = ElfFile64::<LittleEndian>::parse(&*good).unwrap();
    let (at, _) = elf.section_by_name(".BTF.inline.ext").unwrap().file_range().unwrap();
    let mut other = good.clone();
    other[usize::try_from(at).unwrap() + 2] = 9;
    fs::write(folder.join("other-version.sites"), other).unwrap();
    fs::write(folder.join("half.sites"), &good[..good.len() / 2]).unwrap();
    fs::write(folder.join("text.sites"), "hello, world\n").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    for (file, words) in [
        ("other-version.sites", "version 9"),
        ("half.sites", "half.sites"),
        ("text.sites", "text.sites: not a readable ELF file"),
        ("empty", "empty: no site files (*.sites) in this folder"),
        ("absent.sites", "absent.sites: No such file"),
    ] {
        let output = siteseer(&folder, &["check", "vfs_read", "--kernels", "hub", file]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {message}");
        assert!(message.contains(words) && output.stdout.is_empty(), "{file}: {message}");
    }
    for (arguments, words) in [
        (&["check", "vfs_read"][..], "--kernels"),
        (&["check", "--kernels", "hub"], "OBJECT|NAME"),
        (&["check", "vfs_*", "--kernels", "hub"], "is not [module:]function"),
        (&["check", "vfs_read", "--kernels", "hub", "--deny", "shapes"], "no rule \"shapes\""),
        (&["plan", "vfs_read", "--sites", "half.sites"], "--json"),
    ] {
        let output = siteseer(&folder, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(words), "{arguments:?}: {message}");
    }
}

#[test]
fn a_plan_for_other_loaders() {
    let folder = kernels("plan");
    let all = parsed(&folder, &["plan", "vfs_read", "--json", "--sites", "hub/6.12/vmlinux.sites"], 0);
    assert_eq!((&all["schema"], &all["machine"]), (&json!("siteseer-plan/1"), &json!("x86_64")));
    let function = &all["functions"][0];
    assert_eq!(function["prototype"], "int vfs_read(int)");
    let sites = function["sites"].as_array().unwrap();
    let places: Vec<(&str, u64)> =
        sites.iter().map(|site| (site["symbol"].as_str().unwrap(), site["offset"].as_u64().unwrap())).collect();
    let mut sorted = places.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [("caller", 0x10), ("caller", 0x20), ("vfs_read", 0)]);
    let at = |place: (&str, u64)| &sites[places.iter().position(|known| *known == place).unwrap()];
    // A site without an argument is reached all the same, and is in the way of who needs all.
    let lacking = at(("caller", 0x20));
    assert_eq!((&lacking["mechanism"], &lacking["reason"]), (&json!("kprobe"), &Value::Null));
    assert_eq!(lacking["in_the_way"]["reason"], "missing_arguments");
    assert_eq!(lacking["arguments"][0]["missing"]["key"], "optimised_out");
    assert_eq!(lacking["arguments"][0]["location"], Value::Null);
    // rdi, by the calling convention and by the site data.
    let rdi = json!({ "kind": "register", "size": 4, "signed": true, "register": "rdi" });
    for place in [("caller", 0x10), ("vfs_read", 0)] {
        assert_eq!((&at(place)["arguments"][0]["location"], &at(place)["in_the_way"]), (&rdi, &Value::Null));
    }
    let ids: Vec<u64> = sites.iter().map(|site| site["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 1, 2]);
    // No return of an inlined copy can be probed.
    let returns =
        parsed(&folder, &["plan", "vfs_read", "--json", "--at", "return", "--sites", "hub/6.12/vmlinux.sites"], 0);
    let inlined = returns["functions"][0]["sites"].as_array().unwrap().iter().filter(|site| site["kind"] == "inline");
    assert!(inlined.clone().count() == 2 && inlined.into_iter().all(|site| site["reason"] == "exit_of_inline"));
    let output = siteseer(&folder, &["plan", "vfs_raed", "--json", "--sites", "hub/6.12/vmlinux.sites"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("there is no function vfs_raed"), "{message}");
}

/// On a real kernel: the numbers are those of `siteseer list`, the places and locations those of `siteseer sites`.
#[test]
fn a_real_kernel() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to check (ci/test sets it)");
        return;
    };
    let folder = folder("check-real");
    printed(&folder, &["encode", vmlinux.to_str().expect("UTF-8"), "-o", "vmlinux.sites"], 0);
    let mut compared = 0;
    for name in ["vfs_read", "ns_capable", "__bpf_copy_key", "kill_something_info", "tcp_v4_rcv", "do_getpgid"] {
        let listed = parsed(&folder, &["list", name, "--json", "--sites", "vmlinux.sites"], 0);
        let all = parsed(&folder, &["check", name, "--json", "--deny", "none", "--kernels", "vmlinux.sites"], 0);
        let answer = &all["functions"][0]["kernels"][0];
        for key in ["bodies", "clones", "inlined"] {
            assert_eq!(answer[key], listed[0][key], "{name}: {key}");
        }
        let plan = parsed(&folder, &["plan", name, "--json", "--sites", "vmlinux.sites"], 0);
        let sites = parsed(&folder, &["sites", name, "--json", "--sites", "vmlinux.sites"], 0);
        let sites = sites["sites"].as_array().unwrap();
        let planned: Vec<&Value> = plan["functions"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|function| function["sites"].as_array().unwrap())
            .collect();
        assert_eq!(planned.len(), sites.len(), "{name}");
        for site in sites {
            let is_it = |planned: &&&Value| planned["address"] == site["address"] && planned["kind"] == site["kind"];
            let planned = planned.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {site} is not planned"));
            assert_eq!((&planned["symbol"], &planned["offset"]), (&site["symbol"], &site["offset"]));
            let texts = |site: &Value, key: &str| -> Vec<Value> {
                site["arguments"].as_array().unwrap().iter().map(|argument| argument[key].clone()).collect()
            };
            assert_eq!(texts(planned, "text"), texts(site, "location"), "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 10, "only {compared} sites were compared");
}
