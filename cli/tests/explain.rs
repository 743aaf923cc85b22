// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/explain.md shows what `siteseer explain` prints: each of its commands is run again on the image that
//! SITESEER_TEST_VMLINUX names. If that is the image that the page was made from (by its build id), the output must be the
//! page's, letter by letter; of another the commands must work. With SITESEER_UPDATE_DOCS set the page is written anew.

use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/explain.md");

/// Runs the tool where the site data are; its output, which must be without an error.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_siteseer"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the tool starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

/// The page's blocks: what is before a command's output, the command, the output.
fn blocks(page: &str) -> (Vec<(String, String, String)>, String) {
    let (mut blocks, mut rest) = (Vec::new(), page);
    while let Some(at) = rest.find("\n$ siteseer explain ") {
        let (before, block) = rest.split_at(at + 1);
        let (command, output) = block.split_once('\n').expect("a command ends");
        let end = output.find("```").expect("a block ends");
        blocks.push((before.to_owned(), command.to_owned(), output[..end].to_owned()));
        rest = &output[end..];
    }
    (blocks, rest.to_owned())
}

#[test]
fn the_page_is_what_is_printed() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX").map(PathBuf::from) else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to explain (ci/test sets it)");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("explain");
    std::fs::create_dir_all(&folder).unwrap();
    run(&folder, &["encode", vmlinux.to_str().expect("a path in UTF-8"), "-o", "vmlinux.sites"]);
    let page = std::fs::read_to_string(PAGE).unwrap();
    let update = std::env::var_os("SITESEER_UPDATE_DOCS").is_some();
    let (blocks, rest) = blocks(&page);
    assert!(blocks.len() >= 5, "the page has {} commands", blocks.len());
    let mut written = String::new();
    let (mut kinds, mut compared) = (0, 0);
    for (before, command, wanted) in &blocks {
        let arguments: Vec<&str> = command.split(' ').skip(2).collect();
        let printed = run(&folder, &arguments);
        assert!(printed.lines().all(|line| line.chars().count() <= 100), "{command}: a line is too long\n{printed}");
        kinds += usize::from(printed.contains("places") || printed.contains("place"));
        let build_id = |text: &str| text.split("(build id ").nth(1).and_then(|rest| rest.get(..40)).map(str::to_owned);
        let id = build_id(&printed);
        assert!(id.is_some(), "{command}: no build id\n{printed}");
        if !update && build_id(wanted) == id {
            assert_eq!(
                &printed, wanted,
                "{command}: the page has something else; SITESEER_UPDATE_DOCS=1 writes it anew"
            );
            compared += 1;
        }
        written.push_str(&format!("{before}{command}\n{printed}"));
    }
    assert_eq!(kinds, blocks.len(), "every explanation says where the body starts");
    if update {
        std::fs::write(PAGE, written + &rest).unwrap();
    } else if compared == 0 {
        eprintln!("the page is of another image than SITESEER_TEST_VMLINUX: the outputs are not compared");
    }
}

#[test]
fn objects_that_cannot_be_explained() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("explain-object");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("text"), "hello, world\n").unwrap();
    let own = env!("CARGO_BIN_EXE_siteseer");
    for (object, words) in [("text", "not a BPF object"), (own, "another machine"), ("absent", "No such file")] {
        let arguments = ["explain", "--object", object, "--sites", "absent.sites"];
        let output = Command::new(own).args(arguments).current_dir(&folder).output().expect("the tool starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && !message.contains("panicked"), "{message}");
        assert!(message.contains(words) && message.contains(object), "{object}: {message}");
    }
}
