// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which test proves which rule of docs/semantics.md. The tests say it, in a line before them (`// Proves S2.5.`);
//! docs/proofs.md is made of these lines. A rule that no test names fails, and so does a line that is not before a test
//! or names no rule.

use super::{read, root};
use siteseer_conformance::guest::case::cases;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Rules without a test of their own, and why.
const WITHOUT: &[(&str, &str)] = &[
    ("S2.6", "the truth cases allow for it; which function has such copies depends on the kernel"),
    ("S2.14", "a limit: neither the text nor the debug information says that a jump was a call"),
    ("S3.6", "a limit: that an alias is not known cannot be shown by a test"),
    ("S10.7", "no such machine is at hand; the sentence is KernelError's"),
    ("S13.8", "a limit: what is not looked at is not seen"),
    ("S21.4", "a live patch's module is a module: what S1.7 and S2.11 say of it is tested there"),
    ("S23.11", "a promise of the caller's: what happens without it is undefined"),
];

const PAGE: &str = "docs/proofs.md";

const FOLDERS: [&str; 7] = ["sites", "encoder", "loader", "capi", "cli", "hub", "tests"];

/// A test that says which rules it proves.
struct Proof {
    rules: Vec<String>,
    /// Of the repository.
    file: String,
    /// The function, the case's name, or its folder.
    test: String,
    /// What is wrong with the line, if something is.
    fault: Option<&'static str>,
}

/// The sources and descriptions of cases below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            // What builds leave is beside a manifest; a folder of sources may have that name too.
            if !(path.ends_with("target") && folder.join("Cargo.toml").is_file()) {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") || path.ends_with("case.toml") {
            found.push(path);
        }
    }
}

/// The name that a line gives: of a function, or of a case in a list.
fn name_in(line: &str) -> Option<&str> {
    let is_name = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if let Some((_, rest)) = line.split_once("fn ") {
        return rest.split('(').next().filter(is_name);
    }
    line.split('"').skip(1).step_by(2).filter(is_name).last()
}

/// The proofs that a file names. `names`: of all cases in virtual machines.
fn proofs_of(file: &str, text: &str, names: &BTreeSet<String>) -> Vec<Proof> {
    let lines: Vec<&str> = text.lines().collect();
    let mut proofs = Vec::new();
    for (nth, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        let Some(rules) = line.strip_prefix("// Proves ").or_else(|| line.strip_prefix("# Proves ")) else { continue };
        let rules = rules.trim_end_matches('.').split(", ").map(str::to_owned).collect();
        let rest = &lines[nth + 1..];
        let (test, fault) = if let Some(case) = file.strip_suffix("/case.toml") {
            (case.rsplit('/').next(), None)
        } else {
            let is_before = |line: &str| line.trim_start().starts_with("//") || line.trim_start().starts_with("#[");
            let at = rest.iter().take(8).position(|line| !is_before(line) && name_in(line).is_some());
            let test = at.and_then(|at| name_in(rest[at]));
            // tests/src/guest/GROUP.rs, tests/src/guest/GROUP/PART.rs
            let of_folder = file.strip_prefix("tests/src/").and_then(|path| path.split_once('/'));
            let group = of_folder.map(|(_, path)| path.trim_end_matches(".rs").split('/').next());
            let is_test = match (group.flatten(), test) {
                (Some(group), Some(test)) => names.contains(&format!("{group}::{test}")),
                // Trials without a harness of the compiler's are in a list of names.
                _ if text.contains("CHECKS") && !text.contains("#[test]") => {
                    at.is_some_and(|at| rest[at].trim_start().starts_with('"'))
                }
                _ => rest.iter().take(at.unwrap_or(0)).any(|line| line.trim() == "#[test]"),
            };
            (test, (!is_test).then_some("it is not before a test"))
        };
        proofs.push(Proof { rules, file: file.to_owned(), test: test.unwrap_or_default().to_owned(), fault });
    }
    proofs
}

fn proofs() -> Vec<Proof> {
    let names: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    let (root, mut paths) = (root(), Vec::new());
    FOLDERS.iter().for_each(|folder| files(&root.join(folder), &mut paths));
    paths.sort();
    let of_path = |path: &PathBuf| {
        let file = path.strip_prefix(&root).expect("it was found there").to_string_lossy().into_owned();
        // This one is about such lines.
        if file == "tests/tests/docs/rules.rs" { Vec::new() } else { proofs_of(&file, &read(path), &names) }
    };
    paths.iter().flat_map(of_path).collect()
}

/// The rules of the page, in its order.
fn rules() -> Vec<String> {
    let page = read(&root().join("docs/semantics.md"));
    let rules = page.lines().filter_map(|line| line.strip_prefix("* **S")?.split_once("**"));
    rules.map(|(number, _)| format!("S{number}")).collect()
}

/// The heading of the page's index.
const INDEX: &str = "\n## Index of the rules\n\n";

/// The section and the number within it.
fn numbers(rule: &str) -> (u32, u32) {
    let parts = rule.strip_prefix('S').and_then(|rest| rest.split_once('.'));
    parts.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))).unwrap_or_else(|| panic!("{rule}: not a rule"))
}

/// The first table of the index: each section of the page, with links to its rules.
fn index(page: &str, rules: &[String]) -> String {
    let mut numbers: Vec<(u32, u32)> = rules.iter().map(|rule| numbers(rule)).collect();
    numbers.sort_unstable();
    let mut text = "| section | rules |\n|---|---|\n".to_owned();
    for heading in page.lines().filter_map(|line| line.strip_prefix("## ")) {
        let Some(section) = heading.split_once(". ").and_then(|(number, _)| number.parse::<u32>().ok()) else {
            continue;
        };
        let links: Vec<String> =
            numbers.iter().filter(|(a, _)| *a == section).map(|(a, b)| format!("[S{a}.{b}](#s{a}-{b})")).collect();
        let _ = writeln!(text, "| {heading} | {} |", links.join(", "));
    }
    text
}

/// What is wrong with the numbers that the index lists as retired: in use, or a gap that it does not list.
fn retired_faults(index: &str, rules: &[String]) -> Vec<String> {
    let retired: BTreeSet<(u32, u32)> = index
        .lines()
        .filter_map(|line| line.strip_prefix("| S")?.split(' ').next())
        .map(|number| numbers(&format!("S{number}")))
        .collect();
    let used: BTreeSet<(u32, u32)> = rules.iter().map(|rule| numbers(rule)).collect();
    let mut faults: Vec<String> =
        retired.intersection(&used).map(|(a, b)| format!("S{a}.{b} is retired and in use")).collect();
    for (section, last) in &used {
        let gaps =
            (1..*last).filter(|number| !used.contains(&(*section, *number)) && !retired.contains(&(*section, *number)));
        faults.extend(gaps.map(|number| format!("S{section}.{number} is neither in use nor retired")));
    }
    faults.sort();
    faults.dedup();
    faults
}

#[test]
fn the_index_has_every_rule() {
    let (path, rules) = (root().join("docs/semantics.md"), rules());
    let page = read(&path);
    let (text, listed) = page.split_once(INDEX).expect("docs/semantics.md has an index");
    let without: Vec<&String> = rules
        .iter()
        .filter(|rule| {
            let (a, b) = numbers(rule);
            !text.contains(&format!("\n* **{rule}**<a id=\"s{a}-{b}\"></a> "))
        })
        .collect();
    assert!(without.is_empty(), "rules without an anchor (as S1.1 has it): {without:?}");
    let (table, retired) = listed.split_once("\n\n").expect("the retired numbers follow the index");
    let wanted = index(text, &rules);
    if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{text}{INDEX}{wanted}\n{retired}")).unwrap_or_else(|error| panic!("{error}"));
    } else {
        assert!(
            format!("{table}\n") == wanted,
            "the index of docs/semantics.md must be (SITESEER_UPDATE_DOCS=1 writes it):\n{wanted}"
        );
    }
    assert_eq!(retired_faults(retired, &rules), Vec::<String>::new());
}

#[test]
fn retired_numbers_are_in_no_rule() {
    let rules = ["S1.1", "S1.2", "S1.4", "S3.1"].map(str::to_owned);
    assert_eq!(retired_faults("| S1.3 | old |\n| S2.1 | old |\n", &rules), Vec::<String>::new());
    assert_eq!(
        retired_faults("| S1.2 | old |\n", &rules),
        ["S1.2 is retired and in use", "S1.3 is neither in use nor retired"]
    );
    let page = "## 1. One\n\n## Words\n\n## 3. Three\n";
    let wanted = "| section | rules |\n|---|---|\n| 1. One | [S1.1](#s1-1), [S1.2](#s1-2), [S1.4](#s1-4) |\n| 3. Three | [S3.1](#s3-1) |\n";
    assert_eq!(index(page, &rules), wanted);
}

/// The page: each rule with its tests.
fn page(rules: &[String], proofs: &[Proof]) -> String {
    let mut by_rule: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for proof in proofs {
        for rule in &proof.rules {
            let Proof { file, test, .. } = proof;
            by_rule.entry(rule).or_default().push(format!("[{test}](../{file})"));
        }
    }
    let mut text = "# Which test proves which rule\n\n\
                    The rules are those of [semantics.md](semantics.md). A test names the rules that it proves in a line before it\n\
                    (`// Proves S2.5.`), and this page is made of these lines: `SITESEER_UPDATE_DOCS=1 cargo test -p\n\
                    siteseer-conformance --test docs` writes it. Tests in `tests/src` and `tests/cases` run in virtual machines.\n\n\
                    | rule | test |\n|---|---|\n"
        .to_owned();
    for rule in rules {
        let without = WITHOUT.iter().find(|(other, _)| other == rule).map(|(_, why)| format!("none: {why}"));
        let tests = by_rule.get(rule.as_str()).map(|tests| tests.join(", ")).or(without).unwrap_or_default();
        let _ = writeln!(text, "| {rule} | {tests} |");
    }
    text
}

#[test]
fn every_rule_has_its_test() {
    let (rules, proofs) = (rules(), proofs());
    assert!(rules.len() > 100, "only {} rules were found", rules.len());
    let there: BTreeSet<&str> = rules.iter().map(String::as_str).collect();
    assert_eq!(there.len(), rules.len(), "a number is used twice");
    let proven: BTreeSet<&str> = proofs.iter().flat_map(|proof| &proof.rules).map(String::as_str).collect();
    let without: BTreeSet<&str> = WITHOUT.iter().map(|(rule, _)| *rule).collect();
    let mut wrong: Vec<String> = proofs
        .iter()
        .filter_map(|proof| Some(format!("{}: Proves {}: {}", proof.file, proof.rules.join(", "), proof.fault?)))
        .collect();
    let listed: BTreeSet<&str> = proven.union(&without).copied().collect();
    wrong.extend(there.difference(&listed).map(|rule| format!("no test proves {rule}")));
    wrong.extend(listed.difference(&there).map(|rule| format!("{rule} is in no page")));
    wrong.extend(proven.intersection(&without).map(|rule| format!("{rule} has a test: remove it from WITHOUT")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(without.len() * 15 <= rules.len(), "{} of {} rules have no test", without.len(), rules.len());
    let (path, text) = (root().join(PAGE), page(&rules, &proofs));
    if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    } else {
        assert!(read(&path) == text, "{PAGE} is not what the tests say: SITESEER_UPDATE_DOCS=1 writes it");
    }
}

#[test]
fn lines_that_are_before_no_test_are_found() {
    let names = BTreeSet::from(["toy::a_case".to_owned()]);
    let faults = |file: &str, text: &str| -> Vec<(String, bool)> {
        proofs_of(file, text, &names).into_iter().map(|proof| (proof.test, proof.fault.is_some())).collect()
    };
    let unit = "// Proves S1.1, S1.2.\n#[test]\nfn is_one() {}\n// Proves S1.3.\nfn is_none() {}\n";
    assert_eq!(faults("sites/src/a.rs", unit), [("is_one".to_owned(), false), ("is_none".to_owned(), true)]);
    let cases = "    // Proves S1.4.\n    (\"a_case\", run),\n    // Proves S1.4.\n    (\"other\", run),\n";
    assert_eq!(faults("tests/src/guest/toy/mod.rs", cases), [("a_case".to_owned(), false), ("other".to_owned(), true)]);
    assert_eq!(faults("tests/cases/suited/case.toml", "# Proves S1.5.\n"), [("suited".to_owned(), false)]);
}
