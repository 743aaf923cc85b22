// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer subset`: of kernels that are made up, by an object's sections, by names and by patterns.

mod made;

use made::{folder, module_file, said, site_file, siteseer};
use object::write::{Object, Symbol, SymbolSection};
use siteseer_sites::btf::Btf;
use siteseer_sites::file::{self, SiteFile};
use siteseer_sites::subset::Subset;
use std::fs;
use std::path::Path;

/// An object with a program in each of some sections.
fn bpf_object(sections: &[&str]) -> Vec<u8> {
    let mut object = Object::new(object::BinaryFormat::Elf, object::Architecture::Bpf, object::Endianness::Little);
    for (nth, section) in sections.iter().enumerate() {
        let id = object.add_section(Vec::new(), section.as_bytes().to_vec(), object::SectionKind::Text);
        let code = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]].concat();
        object.append_section_data(id, &code, 8);
        object.add_symbol(Symbol {
            name: format!("program{nth}").into_bytes(),
            value: 0,
            size: code.len() as u64,
            kind: object::SymbolKind::Text,
            scope: object::SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(id),
            flags: object::SymbolFlags::None,
        });
    }
    object.write().unwrap()
}

/// The functions of a kernel in a subset, as the loader gets them.
fn functions(folder: &Path, number: u8) -> Vec<String> {
    let data = fs::read(folder.join("app.sites")).unwrap();
    let subset = Subset::parse(&data).unwrap();
    let whole = site_file(number, 3);
    let btf = SiteFile::parse(&whole).unwrap().base_btf_bytes().unwrap().to_vec();
    Btf::parse(&btf).unwrap();
    let set = subset.find(&[number; 20]).unwrap().expect("the kernel").site_set(&btf, None).unwrap();
    let data = file::write(&set).unwrap();
    let file = SiteFile::parse(&data).unwrap();
    let count = |name: &str| file.functions(name).unwrap().iter().map(|one| one.site_count().unwrap()).sum::<u32>();
    file.function_names().map(|name| format!("{name} {}", count(name))).collect()
}

#[test]
fn what_an_object_names_of_several_kernels() {
    let folder = folder("subset");
    fs::create_dir_all(folder.join("kernels")).unwrap();
    for number in 1..=3 {
        fs::write(folder.join(format!("kernels/{number}.sites")), site_file(number, 3)).unwrap();
    }
    let sections =
        ["fentry/vfs_read", "kprobe_maybe_inline/other1", "?fexit.s/nowhere", "fentry", "kprobe/other2", "xdp"];
    fs::write(folder.join("app.bpf.o"), bpf_object(&sections)).unwrap();
    let run = |arguments: &[&str]| siteseer(&folder).arg("subset").args(arguments).output().unwrap();
    let output = run(&["--object", "app.bpf.o", "kernels", "-o", "app.sites"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("app.sites: 3 functions or patterns on 3 kernels, "), "{text}");
    assert!(text.contains("nowhere: there is no such function on any of the kernels"), "{text}");
    assert!(text.contains("program3 of app.bpf.o: SEC(\"fentry\") names no function"), "{text}");
    for number in 1..=3 {
        // What a plain kprobe names is not siteseer's.
        assert_eq!(functions(&folder, number), ["other1 1", "vfs_read 2"]);
    }
    let data = fs::read(folder.join("app.sites")).unwrap();
    assert_eq!(Subset::parse(&data).unwrap().asked().unwrap(), ["nowhere", "other1", "vfs_read"]);
    let one = run(&["--object", "app.bpf.o", "kernels/1.sites", "-o", "one.sites"]);
    assert!(one.status.success(), "{}", said(&one));
    assert!(
        data.len() < fs::metadata(folder.join("one.sites")).unwrap().len() as usize + 400,
        "kernels share what is the same"
    );
    // With a module that has one of the functions, and one that has none.
    fs::create_dir_all(folder.join("modules")).unwrap();
    fs::write(folder.join("modules/1.sites"), site_file(1, 3)).unwrap();
    fs::write(folder.join("modules/toy.sites"), module_file(1, 0xa)).unwrap();
    let modules = run(&["--function", "toy:toy_*", "--function", "vfs_read", "modules", "-o", "modules.sites"]);
    assert!(said(&modules).contains("on 1 kernel and 1 module,"), "{}", said(&modules));
    let data = fs::read(folder.join("modules.sites")).unwrap();
    let subset = Subset::parse(&data).unwrap();
    let (image, module) = (site_file(1, 3), module_file(1, 0xa));
    let image = SiteFile::parse(&image).unwrap();
    let whole = SiteFile::parse_module(&module, image.base_btf()).unwrap();
    let of_module = subset.find(&[0xa; 20]).unwrap().expect("the module");
    assert_eq!(of_module.module_kernel().unwrap(), Some(&[1; 20][..]));
    let set = of_module.site_set(whole.base_btf_bytes().unwrap(), Some(image.base_btf())).unwrap();
    assert_eq!(file::write(&set).unwrap(), module, "it has but this function");
    let without = run(&["--function", "vfs_read", "modules", "-o", "modules.sites"]);
    assert!(said(&without).contains("on 1 kernel,"), "{}", said(&without));
    // By names and patterns; the same twice is the same.
    let output =
        run(&["--function", "other[12]", "--function", "vmlinux:vfs_read", "kernels/2.sites", "-o", "app.sites"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(functions(&folder, 2), ["other1 1", "other2 1", "vfs_read 2"]);
}

#[test]
fn what_cannot_be_made() {
    let folder = folder("subset-bad");
    fs::write(folder.join("1.sites"), site_file(1, 1)).unwrap();
    fs::write(folder.join("unnamed.bpf.o"), bpf_object(&["fentry"])).unwrap();
    fs::write(folder.join("not.o"), b"hello").unwrap();
    fs::write(folder.join("other.o"), bpf_object(&["xdp"])).unwrap();
    for (arguments, words) in [
        (&["--object", "unnamed.bpf.o", "1.sites"][..], "name the functions by --function"),
        (&["--object", "not.o", "1.sites"], "not.o: "),
        (&["--object", "other.o", "1.sites"], "other.o: "),
        (&["--function", "vfs_read", "none.sites"], "none.sites"),
        (&["--function", "vfs_read", "not.o"], "not.o"),
        (&["1.sites"], "--object"),
    ] {
        let output = siteseer(&folder).arg("subset").args(arguments).args(["-o", "out.sites"]).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said(&output).contains(words), "{arguments:?}: {}", said(&output));
        assert!(!folder.join("out.sites").exists(), "{arguments:?}");
    }
}
