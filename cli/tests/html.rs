// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The pages of `siteseer explain --html` and `siteseer map --html`: well-formed, nothing from elsewhere, and what is
//! in them is what `sites`, `explain` and `list` print of the image that SITESEER_TEST_VMLINUX names.

use roxmltree::{Document, Node};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A folder with the image's site data; `None` without an image.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
            eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to show (ci/test sets it)");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("html");
        std::fs::create_dir_all(&folder).unwrap();
        run(&folder, &["encode", vmlinux.to_str().expect("UTF-8"), "-o", "vmlinux.sites"]);
        Some(folder)
    });
    made.as_deref()
}

/// What the tool prints; it must succeed.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    let output = command.current_dir(folder).args(arguments).output().expect("the tool starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let arguments = [arguments, &["--json", "--sites", "vmlinux.sites"]].concat();
    serde_json::from_str(&run(folder, &arguments)).expect("JSON")
}

/// A page as XML, which HTML is except for its first line and `<meta>`. It is also left as a file, for people to look
/// at.
fn page(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let page = run(folder, &[arguments, &["--html", "--sites", "vmlinux.sites"]].concat());
    std::fs::write(folder.join(name), &page).unwrap();
    for foreign in ["<script", "src=", "href=", "http:", "https:", "@import", "url("] {
        assert!(!page.contains(foreign), "{name}: {foreign}");
    }
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("HTML").to_owned();
    while let Some(at) = rest.find("<meta") {
        let end = at + rest[at..].find('>').expect("the element ends") + 1;
        rest.replace_range(at..end, "");
    }
    rest
}

fn text(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

/// The cells of the nth table's rows.
fn rows(page: &Document<'_>, nth: usize) -> Vec<Vec<String>> {
    let table = page.descendants().filter(|node| node.has_tag_name("tbody")).nth(nth).expect("a table");
    let cells = |row: Node<'_, '_>| row.children().filter(|cell| cell.has_tag_name("td")).map(text).collect();
    table.children().filter(|row| row.has_tag_name("tr")).map(cells).collect()
}

#[test]
fn an_explanation_has_every_site_and_every_argument() {
    let Some(folder) = folder() else { return };
    // One with a body and copies, one that is wholly inlined, one with a clone alone.
    for function in ["ns_capable", "__bpf_copy_key", "kill_something_info"] {
        let page = page(folder, &format!("explain-{function}.html"), &["explain", function]);
        let page = Document::parse(&page).unwrap_or_else(|error| panic!("{function}: {error}"));
        let sites = json(folder, &["sites", function]);
        let sites = sites["sites"].as_array().expect("sites");
        let shown = page
            .descendants()
            .filter(|node| node.has_tag_name("rect") && matches!(kind(*node), "body" | "clone" | "inline"));
        assert_eq!(shown.count(), sites.len(), "{function}");
        let rows = rows(&page, 0);
        assert_eq!(rows.len(), sites.len(), "{function}");
        let explained = json(folder, &["explain", function]);
        let planned = explained[0]["programs"][0]["sites"].as_array().expect("planned");
        for (row, site) in rows.iter().zip(sites) {
            let address = site["address"].as_str().expect("an address");
            assert!(row[0].contains(address) && row[0].contains(site["symbol"].as_str().unwrap()), "{row:?}");
            if let Some(file) = site["file"].as_str() {
                assert_eq!(row[1], format!("{file}:{}", site["line"]));
            }
            let arguments = site["arguments"].as_array().expect("arguments");
            for (cell, argument) in row[2..].iter().zip(arguments) {
                let place = argument["location"].as_str().or_else(|| argument["reason"].as_str()).unwrap();
                assert!(cell.contains(place), "{function}: {cell} is not {place}");
            }
            let planned = planned.iter().find(|planned| planned["address"] == address).expect("a decision");
            let outcome = row.last().expect("an outcome");
            match planned["mechanism"].as_str() {
                Some(mechanism) => assert_eq!(*outcome, format!("runs, by {mechanism}")),
                None => assert_eq!(*outcome, planned["why"].as_str().unwrap()),
            }
        }
        let all = text(page.root());
        let prototype = explained[0]["prototype"].as_str().expect("a prototype");
        assert!(all.contains(prototype) && all.contains(&format!("SEC(\"fexit/{function}\")")), "{all}");
    }
}

/// Each listing's marked row: the address, the instruction, its labels and the source line.
fn marked(page: &Document<'_>) -> Vec<(String, String, Vec<String>, String)> {
    let listings = page.descendants().filter(|node| node.attribute("class") == Some("listing"));
    let row = |listing: Node<'_, '_>| {
        let mut here = listing.descendants().filter(|node| node.attribute("class") == Some("here"));
        let row = here.next().expect("the site's instruction");
        assert!(here.next().is_none(), "one instruction is marked");
        let cells: Vec<Node<'_, '_>> = row.children().filter(|cell| cell.has_tag_name("td")).collect();
        let is_label = |node: &Node<'_, '_>| kind(*node) == "badge";
        let labels = cells[2].children().filter(is_label).map(text).collect();
        let own = cells[2].children().filter(|node| !is_label(node)).map(|node| match node.is_text() {
            true => node.text().unwrap_or_default().to_owned(),
            false => text(node),
        });
        (text(cells[0]), own.collect::<String>().trim().to_owned(), labels, text(cells[3]))
    };
    listings.map(row).collect()
}

/// The instruction at an address as binutils print it, in Intel's syntax, without blanks.
fn objdump(image: &str, address: u64) -> String {
    let mut command = Command::new("objdump");
    command.args(["-d", "-M", "intel", "--no-show-raw-insn"]);
    command.args([format!("--start-address={address:#x}"), format!("--stop-address={:#x}", address + 16)]);
    let output = command.arg(image).output().expect("objdump starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().find(|line| line.trim_start().starts_with(&format!("{address:x}:")));
    plain(line.unwrap_or_else(|| panic!("no instruction at {address:#x}:\n{printed}")).split_once(':').unwrap().1)
}

/// An instruction without what disassemblers write differently: blanks, sizes of operands, `0x`, the name of a target.
fn plain(text: &str) -> String {
    let text = text.split(['<', '#']).next().unwrap_or_default();
    let text = ["BYTE PTR", "DWORD PTR", "QWORD PTR", "WORD PTR", "0x"]
        .iter()
        .fold(text.to_owned(), |text, word| text.replace(&word.to_lowercase(), "").replace(word, ""));
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn the_machine_code_is_that_of_the_image() {
    let Some(folder) = folder() else { return };
    let image = std::env::var("SITESEER_TEST_VMLINUX").expect("UTF-8");
    let source = folder.join("source");
    std::fs::create_dir_all(source.join("kernel")).unwrap();
    let lines: String = (1..=600).map(|line| format!("\tthe text of line {line}\n")).collect();
    std::fs::write(source.join("kernel/capability.c"), lines).unwrap();
    for function in ["ns_capable", "kill_something_info"] {
        let with_code = ["explain", function, "--image", &image, "--source", source.to_str().unwrap()];
        let page = page(folder, &format!("code-{function}.html"), &with_code);
        let page = Document::parse(&page).unwrap_or_else(|error| panic!("{function}: {error}"));
        let marked = marked(&page);
        let sites = json(folder, &["sites", function]);
        let sites = sites["sites"].as_array().expect("sites");
        assert_eq!(marked.len(), sites.len());
        for ((address, instruction, labels, line), site) in marked.iter().zip(sites) {
            let at = u64::from_str_radix(site["address"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
            assert_eq!(*address, format!("{at:x}"));
            assert_eq!(plain(instruction), objdump(&image, at), "{function} at {at:#x}");
            let arguments = site["arguments"].as_array().expect("arguments");
            let label = |argument: &serde_json::Value| {
                let name = argument["name"].as_str().unwrap();
                match argument["location"].as_str() {
                    Some(place) => format!("{name} = {place}"),
                    None => format!("{name}: none: {}", argument["reason"].as_str().unwrap()),
                }
            };
            assert_eq!(*labels, arguments.iter().map(label).collect::<Vec<_>>());
            let (file, rest) = line.split_once(".c:").unwrap_or_else(|| panic!("{function}: {line}"));
            let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let is_given = file == "kernel/capability";
            assert_eq!(line.contains(&format!("the text of line {number}")), is_given, "{line}");
        }
    }
}

#[test]
fn another_image_is_refused() {
    let Some(folder) = folder() else { return };
    let refused = |file: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
        command.current_dir(folder).args(["explain", "ns_capable", "--html", "--sites", "vmlinux.sites", "--image"]);
        let output = command.arg(file).output().expect("the tool starts");
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).expect("text")
    };
    let own = refused(Path::new(env!("CARGO_BIN_EXE_siteseer")));
    assert!(own.contains("not a kernel image"), "{own}");
    if let Some(other) = std::env::var_os("SITESEER_TEST_VMLINUX_ARM64") {
        let other = refused(Path::new(&other));
        assert!(other.contains("is of another kernel: its build id is"), "{other}");
    }
    let missing = refused(&folder.join("missing"));
    assert!(missing.contains("cannot read"), "{missing}");
    let page = page(folder, "no-code.html", &["explain", "ns_capable"]);
    assert!(page.contains("--image VMLINUX"), "{page}");
}

fn kind<'a>(node: Node<'a, '_>) -> &'a str {
    node.attribute("class").unwrap_or_default().split(' ').next().unwrap_or_default()
}

#[test]
fn a_map_counts_what_the_list_lists() {
    let Some(folder) = folder() else { return };
    let page = page(folder, "map.html", &["map"]);
    let page = Document::parse(&page).expect("well-formed");
    let listed = json(folder, &["list", "*"]);
    let mut wanted = [0u64; 3];
    // Labels of assembly are listed without a name.
    for function in listed.as_array().expect("a list").iter().filter(|function| function["function"] != "") {
        let count = |key: &str| function[key].as_u64().unwrap();
        let has_symbol = count("bodies") + count("clones") + count("unknown") > 0;
        wanted[if count("inlined") == 0 { 2 } else { usize::from(has_symbol) }] += 1;
    }
    let folders = json(folder, &["map"]);
    let folders = folders.as_array().expect("folders");
    let sum = |key: &str| folders.iter().filter_map(|folder| folder[key].as_u64()).sum::<u64>();
    assert_eq!([sum("wholly_inlined"), sum("partly_inlined"), sum("not_inlined")], wanted);
    assert!(wanted.iter().all(|&count| count > 1000), "{wanted:?}");
    // The table has the same numbers, and each folder its rectangle.
    let rows = rows(&page, 0);
    assert_eq!(rows.len(), folders.len());
    for (row, folder) in rows.iter().zip(folders) {
        let numbers =
            ["functions", "wholly_inlined", "partly_inlined", "not_inlined"].map(|key| folder[key].to_string());
        assert_eq!(row[1..], numbers);
        assert_eq!(row[0], folder["folder"].as_str().unwrap_or("(folder not known)"));
    }
    let areas: Vec<Node<'_, '_>> = page.descendants().filter(|node| kind(*node) == "frame").collect();
    assert_eq!(areas.len(), folders.len());
    // As large as their numbers of functions.
    let number = |node: &Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let area = |nth: usize| number(&areas[nth], "width") * number(&areas[nth], "height");
    let functions = |nth: usize| folders[nth]["functions"].as_u64().unwrap() as f64;
    let (first, fifth) = (area(0) / functions(0), area(4) / functions(4));
    assert!((first / fifth - 1.0).abs() < 0.02, "{first} {fifth}");
    assert!(folders.iter().any(|folder| folder["folder"] == "kernel/bpf"));
}
