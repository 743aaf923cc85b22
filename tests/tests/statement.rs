// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What SITESEER_PROTO leaves in an object, as the compiler wrote it and after static linking.

use object::{Object, ObjectSection};
use siteseer::internals::declared::Declared;
use siteseer_bpf_progs::NAMESAKES;

/// Program, and the prototype that it states.
const STATED: [(&str, Option<&str>); 4] = [
    ("of_messages", Some("void (struct msg_msg *)")),
    ("of_modules", Some("void (struct load_info *, int)")),
    ("of_neither", Some("void (const struct msg_msg *)")),
    ("unstated", None),
];

fn check(object: &[u8]) {
    let file = object::File::parse(object).expect("an ELF file");
    let btf = file.section_by_name(".BTF").expect("the object has BTF");
    let btf = btf.data().expect("the section is read");
    for (program, text) in STATED {
        let found = Declared::find(btf, program).expect("the BTF is read");
        assert_eq!(found.as_ref().map(|stated| &stated.text[..]), text, "{program}");
    }
}

#[test]
fn as_compiled() {
    check(NAMESAKES);
}

#[test]
fn after_static_linking() {
    let dir = std::env::temp_dir().join(format!("siteseer-statement-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the objects");
    let (input, output) = (dir.join("namesakes.bpf.o"), dir.join("linked.bpf.o"));
    std::fs::write(&input, NAMESAKES).expect("the object is written");
    let mut linker = libbpf_rs::Linker::new(&output).expect("libbpf links");
    linker.add_file(&input).expect("the object is added");
    linker.link().expect("it is linked");
    let linked = std::fs::read(&output).expect("the linked object is read");
    std::fs::remove_dir_all(&dir).expect("the directory is removed");
    check(&linked);
}

// Proves S13.14.
#[test]
fn libbpf_makes_no_map_of_it() {
    let object = libbpf_rs::ObjectBuilder::default().open_memory(NAMESAKES).expect("libbpf opens it");
    let names: Vec<String> = object.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["counts"]);
}
