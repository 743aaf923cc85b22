// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! docs/explain.md, docs/tutorial.md and docs/examples.md show what `siteseer explain`, `sites` and `list` print: each
//! of their commands is run again on the image that SITESEER_TEST_VMLINUX names. If that is the image that a page was
//! made from (by the build id in it), the output must be the page's, letter by letter; on another image the commands
//! must only work. With SITESEER_UPDATE_DOCS set the pages are written again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The pages, and how many commands each has at least.
const PAGES: [(&str, usize); 3] = [
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/explain.md"), 5),
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tutorial.md"), 2),
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples.md"), 6),
];

/// Runs the tool where the site data is. Returns its output; there must not be an error.
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
    while let Some(at) = rest.find("```console\n$ siteseer ") {
        let (before, block) = rest.split_at(at + "```console\n".len());
        let (command, output) = block.split_once('\n').expect("a command ends");
        let end = output.find("```").expect("a block ends");
        blocks.push((before.to_owned(), command.to_owned(), output[..end].to_owned()));
        rest = &output[end..];
    }
    (blocks, rest.to_owned())
}

/// A command's words after `$ siteseer`: what is between quotation marks is one.
fn words(command: &str) -> Vec<&str> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(nth, part)| match nth % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.skip(2).collect()
}

// Proves S22.2.
#[test]
fn the_pages_are_what_is_printed() {
    let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX").map(PathBuf::from) else {
        eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to explain (ci/test sets it)");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("explain");
    std::fs::create_dir_all(&folder).unwrap();
    run(&folder, &["encode", vmlinux.to_str().expect("a path in UTF-8"), "-o", "vmlinux.sites"]);
    let update = std::env::var_os("SITESEER_UPDATE_DOCS").is_some();
    for (path, least) in PAGES {
        let page = std::fs::read_to_string(path).unwrap();
        let (blocks, rest) = blocks(&page);
        assert!(blocks.len() >= least, "{path} has {} commands", blocks.len());
        let (mut printed, mut ids) = (Vec::new(), Vec::new());
        for (_, command, _) in &blocks {
            let arguments = words(command);
            let text = run(&folder, &arguments);
            if arguments.first() == Some(&"explain") {
                assert!(text.lines().all(|line| line.chars().count() <= 100), "{command}: a line is too long\n{text}");
                assert!(text.contains("place"), "{command}: it does not say where the body starts\n{text}");
                let id = text.split("(build id ").nth(1).and_then(|rest| rest.get(..40)).map(str::to_owned);
                ids.push(id.unwrap_or_else(|| panic!("{command}: no build id\n{text}")));
            }
            printed.push(text);
        }
        let id = ids.first().unwrap_or_else(|| panic!("{path} has no `siteseer explain`"));
        if update {
            let blocks = blocks.iter().zip(&printed);
            let text: String =
                blocks.map(|((before, command, _), text)| format!("{before}{command}\n{text}")).collect();
            std::fs::write(path, text + &rest).unwrap();
        } else if page.contains(id) {
            for ((_, command, wanted), text) in blocks.iter().zip(&printed) {
                assert_eq!(text, wanted, "{path}: {command}: SITESEER_UPDATE_DOCS=1 writes it again");
            }
        } else {
            eprintln!("{path} is of another image than SITESEER_TEST_VMLINUX: the outputs are not compared");
        }
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
