// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer where`: docs/where.md shows what is printed for the image that SITESEER_TEST_VMLINUX names, and every way
//! to give a place must print the same. With SITESEER_UPDATE_DOCS set the page is written again.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/where.md");

/// A folder with the image's site data; `None` without an image.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
            eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to look up (ci/test sets it)");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("where");
        fs::create_dir_all(&folder).unwrap();
        let vmlinux = vmlinux.to_str().expect("UTF-8");
        for (option, file) in [("--lines", "vmlinux.sites"), ("--ranges", "ranges.sites"), ("--json", "plain.sites")] {
            succeed(siteseer(&folder, &["encode", vmlinux, option, "-o", file], ""));
        }
        Some(folder)
    });
    made.as_deref()
}

/// Runs the tool with something to read.
fn siteseer(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool starts");
    // A tool that does not read it closes the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the tool ends")
}

fn succeed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What the tool says about places.
fn look_up(folder: &Path, places: &[&str]) -> String {
    succeed(siteseer(folder, &[&["where", "--sites", "vmlinux.sites"], places].concat(), ""))
}

#[test]
fn the_page_is_what_is_printed() {
    let Some(folder) = folder() else { return };
    let folder = &folder.join("page");
    fs::create_dir_all(folder).unwrap();
    fs::copy(folder.join("../vmlinux.sites"), folder.join("vmlinux.sites")).unwrap();
    let page = fs::read_to_string(PAGE).unwrap();
    let block = |begin: &str| page.split_once(begin).and_then(|(_, rest)| rest.split_once("```")).expect("a block").0;
    let stack = block("```text\n");
    let id = page.split_once("(build id ").and_then(|(_, rest)| rest.split_once(')')).expect("a build id").0;
    let bytes = fs::read(folder.join("vmlinux.sites")).unwrap();
    let file = siteseer_sites::file::SiteFile::parse(&bytes).unwrap();
    let own: String = file.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let update = std::env::var_os("SITESEER_UPDATE_DOCS").is_some();
    let (mut written, mut rest) = (String::new(), page.as_str());
    while let Some((before, block)) = rest.split_once("```console\n$ siteseer ") {
        let (command, output) = block.split_once('\n').expect("a command ends");
        let end = output.find("```").expect("a block ends");
        let words = command.split(" < ").next().unwrap_or_default();
        let words: Vec<&str> = words.split_whitespace().collect();
        let printed = succeed(siteseer(folder, &words, if command.contains('<') { stack } else { "" }));
        if !update && id == own {
            assert_eq!(printed, output[..end], "{command}: SITESEER_UPDATE_DOCS=1 writes it again");
        }
        written += &format!("{before}```console\n$ siteseer {command}\n{printed}");
        rest = &output[end..];
    }
    if update {
        let whole = (written + rest).replace(id, &own);
        fs::write(PAGE, whole).unwrap();
    } else if id != own {
        eprintln!("docs/where.md is of another image than SITESEER_TEST_VMLINUX: the outputs are not compared");
    }
}

#[test]
fn every_way_to_give_a_place_leads_there() {
    let Some(folder) = folder() else { return };
    let by_offset = look_up(folder, &["vfs_read+0x63"]);
    let address = by_offset.split_whitespace().next().expect("an address");
    let size = by_offset.lines().next().unwrap().rsplit('/').next().expect("a size");
    assert!(by_offset.contains("    vfs_read  fs/read_write.c:"), "{by_offset}");
    let with_size = format!("vfs_read+0x63/{size}");
    for place in ["vfs_read+99", address, &address[2..], &with_size, "vmlinux:vfs_read+0x63"] {
        assert_eq!(look_up(folder, &[place]), by_offset, "{place}");
    }
    // The call before what it returns to.
    let returned = succeed(siteseer(folder, &["where", "--sites", "vmlinux.sites", "--returns", "vfs_read+0x64"], ""));
    assert_eq!(returned.lines().skip(1).collect::<Vec<_>>(), by_offset.lines().skip(1).collect::<Vec<_>>());
    // Without lines, that of the innermost function is not known.
    let without = succeed(siteseer(folder, &["where", "--sites", "ranges.sites", "vfs_read+0x63"], ""));
    for (nth, (line, without)) in by_offset.lines().zip(without.lines()).enumerate() {
        let expected = if nth == 1 { line.rsplit_once("  ").expect("a line").0 } else { line };
        assert_eq!(without, expected);
    }
}

#[test]
fn json_says_the_same() {
    let Some(folder) = folder() else { return };
    let arguments = ["where", "--sites", "vmlinux.sites", "--json", "vfs_read+0x63", "do_sys_open"];
    let answers: Vec<serde_json::Value> =
        serde_json::from_str(&succeed(siteseer(folder, &arguments, ""))).expect("JSON");
    assert_eq!(answers.len(), 2);
    let text = look_up(folder, &["vfs_read+0x63"]);
    let frames = answers[0]["frames"].as_array().expect("frames");
    assert_eq!(frames.len(), text.lines().count() - 1);
    for (frame, line) in frames.iter().zip(text.lines().skip(1)) {
        let place = format!("{}:{}", frame["file"].as_str().unwrap(), frame["line"]);
        let inlined = if frame["inlined"] == true { " (inlined)" } else { "" };
        assert_eq!(line.trim(), format!("{}{inlined}  {place}", frame["function"].as_str().unwrap()));
    }
    assert_eq!(answers[0]["symbol"], "vfs_read");
    assert_eq!(answers[0]["offset"], 0x63);
    // A line of its own for each frame of a stack.
    let printed = succeed(siteseer(
        folder,
        &["where", "--sites", "vmlinux.sites", "--json"],
        "x\n  vfs_read+99\n  ksys_read+95\n",
    ));
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["frames"], answers[0]["frames"]);
}

#[test]
fn the_arguments_of_what_starts_at_an_address() {
    let Some(folder) = folder() else { return };
    let sites = succeed(siteseer(folder, &["sites", "--sites", "vmlinux.sites", "__bpf_copy_key"], ""));
    for line in sites.lines().filter(|line| line.contains("  inline ")) {
        let address = line.split_whitespace().next().expect("an address");
        let answer = look_up(folder, &[&format!("0x{address}")]);
        let (_, function) = line.split_once("] ").expect("a function");
        let function = function.split("  inline ").next().unwrap_or_default();
        assert!(answer.contains(&format!("an inlined copy starts here: {function}\n")), "{line}\n{answer}");
        assert!(answer.contains("    __bpf_copy_key (inlined)"), "{answer}");
    }
}

#[test]
fn stacks_are_annotated_and_all_else_is_unchanged() {
    let Some(folder) = folder() else { return };
    let others =
        "perf 1 [000] 1.0: cycles:\n\t    7f1234567890 main+0x80 (/usr/bin/x)\n\n@[\n]: 3\nno_such_function+0x5\nlast";
    let run = |input: &str| succeed(siteseer(folder, &["where", "--sites", "vmlinux.sites"], input));
    assert_eq!(run(others), others);
    let lines = look_up(folder, &["vfs_read+0x63"]);
    let in_stack = run("\tvfs_read+0x63\n");
    let of_stack: Vec<String> = in_stack.lines().map(|line| line.trim().replace("+0x63", "")).collect();
    let expected: Vec<String> = lines.lines().skip(1).map(|line| line.trim().to_owned()).collect();
    assert_eq!(of_stack, expected);
    // A symbol that several functions have is known by its address, once another frame has told where the kernel lies.
    let address = |place: &str| {
        let answer = look_up(folder, &[place]);
        u64::from_str_radix(&answer.split_whitespace().next().unwrap()[2..], 16).unwrap()
    };
    let output = siteseer(folder, &["where", "--sites", "vmlinux.sites", "init_once+1"], "");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("init_once is not unique: it is at 0x"), "{message}");
    let one = message.split("it is at 0x").nth(1).and_then(|list| list.split(',').next()).expect("an address");
    let one = u64::from_str_radix(one, 16).unwrap();
    let displaced = 0x1230_0000;
    let frame = |address: u64, symbol: &str| format!("\t{:x} {symbol} ([kernel.kallsyms])\n", address + displaced);
    let unknown = frame(one + 1, "init_once+0x1");
    assert_eq!(run(&unknown), unknown, "not known yet");
    let known = run(&(frame(address("vfs_read+0x63"), "vfs_read+0x63") + "\n" + &unknown));
    let line = known.lines().last().expect("the frame");
    assert!(line.starts_with(unknown.trim_end()) && line.contains(".c:"), "{known}");
}

#[test]
fn what_cannot_be_answered_says_why() {
    let Some(folder) = folder() else { return };
    let fail = |arguments: &[&str]| {
        let output = siteseer(folder, &[&["where"], arguments].concat(), "");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let with = |place: &str| fail(&["--sites", "vmlinux.sites", place]);
    assert!(with("no_such_function").contains("no function has the symbol no_such_function"));
    assert!(with("vfs_read+0x12345678").contains("past the end of the symbol vfs_read"));
    assert!(with("0x10").contains("neither in the kernel's text"));
    assert!(with("nf_tables:nft_do_chain").contains("module nf_tables has no site data"));
    assert!(with("a b").contains("neither an address"));
    assert!(fail(&["--sites", "plain.sites", "vfs_read"]).contains("encode again with `siteseer encode --lines`"));
}
