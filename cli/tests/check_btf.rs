// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer check-btf`: what it prints, and its exit status.

use siteseer_sites::btf::{Btf, IntEncoding, Linkage, LocsecEntry, SplitBtf, loc_flags};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the tool. Whether it succeeded, and what it printed.
fn check(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_siteseer"))
        .arg("check-btf")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the tool starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn violations_are_printed_and_counted() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check-btf");
    fs::create_dir_all(&folder).unwrap();
    let mut types = SplitBtf::standalone();
    let int = types.int("int", 4, 32, IntEncoding::SIGNED);
    let proto = types.func_proto(int, &[("p", int)], false);
    let func = types.func("foo", proto, Linkage::Static);
    let types = types.to_bytes();
    fs::write(folder.join("vmlinux"), &types).unwrap();
    assert_eq!(
        check(&folder, &["vmlinux"]),
        (true, "vmlinux: .BTF: 3 types, 0 violations\n".to_owned(), String::new())
    );

    let base = Btf::parse(&types).unwrap();
    let mut inline = SplitBtf::new(&base);
    // A signed register, a constant of 8 bytes in one word, and a LOC_PROTO for two parameters.
    let signed = inline.loc_param(4, loc_flags::REG | loc_flags::SIGNED, &[5]);
    let narrow = inline.loc_param(8, loc_flags::CONST, &[1]);
    let locations = inline.loc_proto(&[signed, narrow]);
    inline.locsec("inline.text", &[LocsecEntry::new(func, locations, 0)]);
    fs::write(folder.join("vmlinux.inline"), inline.to_bytes()).unwrap();
    let (success, printed, error) = check(&folder, &["vmlinux.inline", "--base", "vmlinux"]);
    assert!(!success && error.contains("3 violations"), "{error}");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 4, "{printed}");
    assert!(lines[0].contains("type 4 (LocParam): its flags are 0x9 [btf_loc_param_check_meta]"), "{printed}");
    assert!(lines[1].contains("type 5 (LocParam): it has 1 words, with flags 0x2 and size 8"), "{printed}");
    assert!(lines[2].ends_with("[btf_locsec_resolve]"), "{printed}");
    assert!(lines[3].ends_with(": 4 types, 3 violations"), "{printed}");
    let (_, printed, _) = check(&folder, &["vmlinux.inline", "--base", "vmlinux", "--show", "1"]);
    assert!(printed.contains("and 2 more"), "{printed}");

    let (success, _, error) = check(&folder, &["vmlinux.inline"]);
    assert!(!success && error.contains("--base"), "{error}");
    fs::write(folder.join("text"), "hello, world\n").unwrap();
    for file in ["text", "absent"] {
        let (success, _, error) = check(&folder, &[file]);
        assert!(!success && error.contains(file), "{error}");
    }
}
