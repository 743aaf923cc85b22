// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the tool says about input that it cannot use: what, where and why, with an exit status that is not 0, and no
//! output file, whole or in part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the tool, which must fail with a message that has all of the words, and write nothing into `folder`.
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let before = names(folder);
    let output = Command::new(env!("CARGO_BIN_EXE_siteseer"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .output()
        .expect("the tool starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(output.status.code().is_some(), "{arguments:?} died: {}", output.status);
    assert!(!message.contains("panicked"), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: no {word:?} in {message:?}");
    }
    assert_eq!(before, names(folder), "{arguments:?} left a file");
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn files_that_are_no_kernel_image() {
    let folder = folder("no-image");
    fs::write(folder.join("text"), "hello, world\n").unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    let own = fs::read(env!("CARGO_BIN_EXE_siteseer")).unwrap();
    fs::write(folder.join("program"), &own).unwrap();
    fs::write(folder.join("half"), &own[..own.len() / 2]).unwrap();
    let mut foreign = own.clone();
    // e_machine: RISC-V.
    foreign[18..20].copy_from_slice(&243u16.to_le_bytes());
    fs::write(folder.join("foreign"), &foreign).unwrap();
    for (file, words) in [
        ("text", &["text", "not an ELF file"][..]),
        ("empty", &["empty"]),
        ("program", &["program"]),
        ("half", &["half", "truncated"]),
        ("foreign", &["foreign", "machine"]),
        ("absent", &["absent", "No such file"]),
        (".", &["not a regular file"]),
    ] {
        refused(&folder, &["encode", file, "-o", "out.sites"], words);
        refused(&folder, &["encode", file, "--stats"], words);
    }
    for file in ["text", "empty", "half", "absent"] {
        refused(&folder, &["sites", "ns_capable", "--sites", file], &[file]);
        refused(&folder, &["sites", "ns_capable", "--vmlinux", file], &[file]);
    }
}

#[test]
fn images_that_lack_something() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to cut (ci/test sets it)");
        return;
    };
    let folder = folder("lacking");
    let image = fs::read(&vmlinux).unwrap();
    fs::write(folder.join("cut"), &image[..image.len() / 3]).unwrap();
    refused(&folder, &["encode", "cut", "-o", "out.sites"], &["cut", "truncated"]);
    for (section, words) in [(&b".BTF\0"[..], &["BTF"][..]), (b".debug_info\0", &[".debug_info"])] {
        let mut renamed = image.clone();
        // The last occurrence is in the names of sections, which lie at the end.
        let at = (0..renamed.len() - section.len()).rev().find(|&at| renamed[at..].starts_with(section)).unwrap();
        renamed[at + 1] = b'x';
        fs::write(folder.join("renamed"), &renamed).unwrap();
        refused(&folder, &["encode", "renamed", "-o", "out.sites"], words);
    }
    let vmlinux = vmlinux.to_str().unwrap();
    refused(&folder, &["sites", "ns_capabel", "--vmlinux", vmlinux], &["ns_capabel", "did you mean ns_capable"]);
    refused(&folder, &["encode", vmlinux, "-o", "/proc/nowhere"], &["/proc/nowhere"]);
}

#[test]
fn arguments_that_make_no_sense() {
    let folder = folder("arguments");
    refused(&folder, &["trace"], &["FUNC"]);
    refused(&folder, &["trace", "foo", "--where", "nonsense"], &["FIELD OP VALUE"]);
    refused(&folder, &["trace", "foo", "--where", "(a = 1"], &["a ) is missing"]);
    refused(&folder, &["trace", "foo", "--where", "a = 09"], &["not a number in C"]);
    refused(&folder, &["trace", "foo", "--count", "comm", "--hist", "x"], &["--hist"]);
    refused(&folder, &["trace", "foo", "--plot", "x.svg"], &["--plot draws what is counted"]);
    refused(&folder, &["trace", "foo", "-l", "-r", "--plot", "x.svg"], &["--plot draws what is counted"]);
    refused(&folder, &["trace", "foo", "--plot", "no/x.svg", "--count"], &["no/x.svg", "there is no folder no"]);
    refused(&folder, &["trace", "foo bar"], &["which is in no function's name"]);
    refused(&folder, &["list"], &["PATTERN"]);
    refused(&folder, &["list", "vfs_[a"], &["a [ without a ]"]);
    refused(&folder, &["list", "@"], &["names no function"]);
    refused(&folder, &["list", "vfs_*", "--sites", "absent"], &["absent"]);
    refused(&folder, &["sites"], &["FUNCTION"]);
    refused(&folder, &["encode"], &["IMAGE"]);
    refused(&folder, &["encode", "x", "--raw"], &["--output"]);
}
