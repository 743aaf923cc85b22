// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The table of figures in README.md against docs/performance.md, which `ci/bench --update-docs` writes: each line that
//! has its figures there is made of them again. With SITESEER_UPDATE_DOCS the test writes these lines.

use super::{read, root};

const KERNEL: &str = "deb-7.3-x86_64";
const HEAD: &str = "| | siteseer | beside |\n|---|---|---|\n";

/// Lines that have no page, and the command that prints their figures.
const WITHOUT: [(&str, &str); 2] =
    [("functions in BTF without a symbol", "ci/reach"), ("functions that plain fentry traces in part", "ci/reach")];

/// The rows of a table, by cells.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The page's rows about the kernel, below a heading.
struct Rows<'p>(Vec<Vec<&'p str>>);

impl<'p> Rows<'p> {
    fn of(page: &'p str, heading: &str) -> Rows<'p> {
        let section = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let of_kernel = section.split_once(&format!("### {KERNEL}\n")).unwrap_or_else(|| panic!("no {KERNEL}")).1;
        let of_kernel = of_kernel.split("\n### ").next().unwrap_or_default();
        Rows(of_kernel.lines().filter(|line| line.starts_with('|')).map(cells).collect())
    }

    /// The row that begins with these cells; an empty one stands for any.
    fn row(&self, begins: &[&str]) -> Option<&[&'p str]> {
        let fits = |row: &&Vec<&str>| begins.iter().zip(row.iter()).all(|(a, b)| a.is_empty() || a == b);
        self.0.iter().find(fits).map(Vec::as_slice)
    }

    fn must(&self, begins: &[&str]) -> &[&'p str] {
        self.row(begins).unwrap_or_else(|| panic!("docs/performance.md has no row {begins:?}"))
    }
}

/// The number with commas, as README has it.
fn grouped(number: &str) -> String {
    let mut text = String::new();
    for (nth, digit) in number.chars().enumerate() {
        if nth > 0 && (number.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What follows "...: ".
fn after_colon(cell: &str) -> &str {
    cell.split_once(": ").unwrap_or_else(|| panic!("{cell}: no colon")).1
}

/// A number with its percentage, "1234 (5.6%)".
fn with_share(cell: &str) -> (String, &str) {
    let (number, share) = after_colon(cell).split_once(' ').unwrap_or_else(|| panic!("{cell}: no percentage"));
    (grouped(number), share)
}

/// The lines of README's table that the page has the figures of.
fn lines(page: &str) -> Vec<String> {
    let sites = Rows::of(page, "Sites");
    let inline = sites.must(&["inline sites"]);
    let (all, all_share) = with_share(inline[2]);
    let arguments = sites.must(&["arguments"]);
    let (located, located_share) = with_share(arguments[2]);
    let usable = sites.must(&["usable by DWARF"]);
    let (_, usable_share) = with_share(usable[2]);
    let upstream = sites.must(&["`.BTF.inline`"])[2].strip_suffix(" a site").expect("bytes a site");
    let mut lines = vec![
        format!("| inlined copies, and those with all arguments | {}, {all} {all_share} | |", grouped(inline[1])),
        format!(
            "| arguments located | {located} of {} {located_share} | DWARF has a location at the entry for {}; of these {} |",
            grouped(arguments[1]),
            grouped(usable[1]),
            usable_share.trim_matches(['(', ')'])
        ),
    ];
    let commands = Rows::of(page, "Commands");
    let job = |name: &str, begins: &str, theirs: &str, with_memory: bool| {
        let found = |by: &str| {
            let row = commands.0.iter().find(|row| row[0].starts_with(begins) && row[1] == by);
            let row = row.unwrap_or_else(|| panic!("docs/performance.md: no row {begins} by {by}"));
            if with_memory { format!("{}, {}", row[2], row[5]) } else { row[2].to_owned() }
        };
        format!("| {name} | {} | `{theirs}` {} |", found("siteseer"), found(theirs))
    };
    lines.push(job("encode", "encode: DWARF to site data", "pahole -J -j2", true));
    lines.push(format!("| size of the upstream part | {upstream} bytes a site | |"));
    lines.push(job(
        "look up a function in the encoded file",
        "look up one function in the encoded",
        "perf probe -D",
        false,
    ));
    lines.push(job("look up a function in DWARF", "look up one function straight from DWARF", "perf probe -D", false));
    let hits = Rows::of(page, "A hit");
    let hit = |by: &str| hits.must(&["inline", "", by, "3"])[4];
    lines.push(format!(
        "| a hit at an inline site with three arguments | {} instructions | a kprobe program by hand {} |",
        hit("siteseer"),
        hit("by hand")
    ));
    let detaching = Rows::of(page, "Attaching and detaching");
    // The largest function for which the loop was measured.
    let measured =
        detaching.0.iter().rfind(|row| row.len() == 13 && row[0].parse::<u64>().is_ok() && !row[7].is_empty());
    let row = measured.expect("a row in which the loop was measured");
    lines.push(format!(
        "| detach from {} inline sites | {}; the kernel has removed the events {} later | one kprobe and link each: {} closed by 32 \
         threads, {} closed one after the other |",
        row[0], row[9], row[12], row[8], row[7]
    ));
    lines
}

#[test]
fn readme_has_the_figures_of_the_page() {
    let (path, page) = (root().join("README.md"), read(&root().join("docs/performance.md")));
    let readme = read(&path);
    let (before, table) = readme.split_once(HEAD).expect("README.md has the table");
    let table = table.split("\n\n").next().unwrap_or_default();
    let first = before.lines().count() + 3;
    let mut wanted = lines(&page);
    let (mut wrong, mut written) = (Vec::new(), readme.clone());
    for (nth, line) in table.lines().enumerate() {
        if WITHOUT.iter().any(|(begins, _)| cells(line)[0].starts_with(begins)) {
            continue;
        }
        // By its first words: figures may be in the first cell too.
        let same = |other: &&String| {
            let words = |line: &str| cells(line)[0].replace(|c: char| c.is_ascii_digit(), "");
            words(other) == words(line)
        };
        let Some(right) = wanted.iter().find(same).cloned() else {
            wrong.push(format!("README.md:{}: the page has no figures for this line:\n  {line}", first + nth));
            continue;
        };
        if right != line {
            wrong.push(format!("README.md:{}: is\n  {line}\nand must be\n  {right}", first + nth));
            written = written.replacen(line, &right, 1);
        }
        wanted.retain(|other| *other != right);
    }
    wrong.extend(wanted.iter().map(|line| format!("README.md lacks the line\n  {line}")));
    if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, written).expect("README.md can be written");
    } else {
        assert!(wrong.is_empty(), "README.md is not what docs/performance.md has:\n{}", wrong.join("\n"));
    }
}

#[test]
fn figures_are_taken_from_the_row_that_has_them() {
    let page = "# What\n\n## A\n\n### other\n\n| a | 1 |\n\n### deb-7.3-x86_64\n\n| a | 2 |\n| b | 3 |\n\n### x\n\n| a | 4 |\n\n## B\n";
    let rows = Rows::of(page, "A");
    assert_eq!((rows.must(&["a"])[1], rows.must(&["", "3"])[0]), ("2", "b"));
    assert!(rows.row(&["c"]).is_none());
    assert_eq!(["1", "12", "123", "1234", "1234567"].map(grouped), ["1", "12", "123", "1,234", "1,234,567"]);
    assert_eq!(with_share("located: 1234 (5.6%)"), ("1,234".to_owned(), "(5.6%)"));
}
