// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Kernels that are made up: site files with sites that are all known.

// Each test binary uses its part of this.
#![allow(dead_code)]

use siteseer_sites::btf::{Btf, IntEncoding, Linkage, SplitBtf};
use siteseer_sites::file::SiteFile;
use siteseer_sites::set::{Container, Function, Module, Section};
use siteseer_sites::site::{Marks, Site, SiteKind, SourceLine};
use siteseer_sites::{Located, Location, Machine, SiteSet, file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BASE: u64 = 0xffff_ffff_8100_0000;

/// A folder of a test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The tool, in a folder that is its home too.
pub(crate) fn siteseer(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CACHE_HOME");
    for variable in ["SITESEER_URLS", "DEBUGINFOD_URLS", "SITESEER_CONFIG"] {
        command.env_remove(variable);
    }
    command
}

/// What the tool said.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The build id of a made-up kernel.
pub(crate) fn build_id(number: u8) -> String {
    format!("{number:02x}").repeat(20)
}

/// The site file of a made-up kernel: `vfs_read` with its body and two inlined copies, and as many functions `other0`,
/// `other1` as are wanted, each inlined once.
pub(crate) fn site_file(number: u8, others: usize) -> Vec<u8> {
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let proto = types.func_proto(int, &[("a", int)], false);
    let func = types.func("vfs_read", proto, Linkage::Static);
    // So that the BTF of each kernel is another.
    types.func(&format!("kernel{number}"), proto, Linkage::Static);
    let base_btf = types.to_bytes();
    let mut types = SplitBtf::new(&Btf::parse(&base_btf).expect("well-formed"));
    let mut functions = vec![Function { name: "vfs_read".to_owned(), func, parameters: 1, variadic: false }];
    for nth in 0..others {
        let name = format!("other{nth}");
        let func = types.func(&name, proto, Linkage::Static);
        functions.push(Function { name, func, parameters: 1, variadic: false });
    }
    let container = |name: &str, address: u64| Container {
        name: name.to_owned(),
        address: BASE + address,
        size: 0x100,
        unprobeable: None,
    };
    let site = |function: usize, offset: u64| Site {
        function: function as u32,
        kind: SiteKind::Inline,
        address: BASE + 0x1110 + offset,
        moved: 0,
        section: 0,
        prototype: 0,
        container: 0,
        source: SourceLine::UNKNOWN,
        declared: SourceLine::UNKNOWN,
        parent: None,
        marks: Marks::default(),
        unprobeable: None,
    };
    let sites = [site(0, 0), site(0, 8)].into_iter().chain((1..=others).map(|nth| site(nth, nth as u64))).collect();
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: vec![number; 20],
        base: BASE,
        types,
        sections: vec![Section { name: ".text".to_owned(), address: BASE + 0x1000, size: 0x10_0000 }],
        functions,
        prototypes: vec![Box::from([Ok(Located::certain(4, true, Location::Register(5)))])],
        containers: vec![container("caller", 0x1100), container("vfs_read", 0x1000)],
        files: Vec::new(),
        sites,
        base_btf,
    };
    file::write(&set).expect("well-formed")
}

/// The site file of a module `toy` of a made-up kernel, with one function, `toy_open`, inlined once.
pub(crate) fn module_file(kernel: u8, number: u8) -> Vec<u8> {
    let image = site_file(kernel, 0);
    let image = SiteFile::parse(&image).expect("well-formed");
    let base = image.base_btf();
    let mut own = SplitBtf::new(base);
    let long = own.int("long", 8, 64, IntEncoding::SIGNED);
    let proto = own.func_proto(long, &[("a", long)], false);
    let func = own.func("toy_open", proto, Linkage::Static);
    let base_btf = own.to_bytes();
    let over = Btf::parse_split(&base_btf, base).expect("well-formed");
    let text = Section { name: ".text".to_owned(), address: 0x1_0000, size: 0x100 };
    let set = SiteSet {
        module: Some(Module { name: "toy".to_owned(), kernel_build_id: vec![kernel; 20], loaded: vec![text.clone()] }),
        machine: Machine::X86_64,
        build_id: vec![number; 20],
        base: 0x1_0000,
        types: SplitBtf::new(&over),
        sections: vec![text],
        functions: vec![Function { name: "toy_open".to_owned(), func, parameters: 1, variadic: false }],
        prototypes: vec![Box::from([Ok(Located::certain(8, true, Location::Register(5)))])],
        containers: vec![Container { name: "toy_init".to_owned(), address: 0x1_0010, size: 64, unprobeable: None }],
        files: Vec::new(),
        sites: vec![Site {
            function: 0,
            kind: SiteKind::Inline,
            address: 0x1_0020,
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
        base_btf,
    };
    file::write(&set).expect("well-formed")
}

/// A site file of the image with a build id, over its types: `made_up_function`, inlined once.
pub(crate) fn site_file_over(build_id: &[u8], base_btf: &[u8]) -> Vec<u8> {
    let mut types = SplitBtf::new(&Btf::parse(base_btf).expect("well-formed"));
    let proto = types.func_proto::<&str>(0, &[], false);
    let func = types.func("made_up_function", proto, Linkage::Static);
    let set = SiteSet {
        module: None,
        machine: Machine::X86_64,
        build_id: build_id.to_vec(),
        base: BASE,
        types,
        sections: vec![Section { name: ".text".to_owned(), address: BASE, size: 0x1000 }],
        functions: vec![Function { name: "made_up_function".to_owned(), func, parameters: 0, variadic: false }],
        prototypes: vec![Box::default()],
        containers: vec![Container { name: "caller".to_owned(), address: BASE, size: 0x100, unprobeable: None }],
        files: Vec::new(),
        sites: vec![Site {
            function: 0,
            kind: SiteKind::Inline,
            address: BASE + 0x10,
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
        base_btf: base_btf.to_vec(),
    };
    file::write(&set).expect("well-formed")
}
