// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The table of faults in docs/reliability.md: each of the tests that it names is there.

use super::{read, root};
use siteseer_conformance::guest::case::cases;
use std::collections::BTreeSet;

/// Why a word of the last column is not a test, if it is not.
fn wrong(test: &str, cases: &BTreeSet<String>) -> Option<String> {
    match test.rsplit_once("::") {
        Some((file, name)) if file.ends_with(".rs") => {
            let path = root().join(file);
            let is_there = path.is_file() && read(&path).contains(&format!("fn {name}()"));
            (!is_there).then(|| format!("{file} has no test {name}"))
        }
        _ => (!cases.contains(test)).then(|| format!("there is no case {test}")),
    }
}

#[test]
fn every_fault_has_its_tests() {
    let page = read(&root().join("docs/reliability.md"));
    let (_, table) = page.split_once("<!-- tests: begin -->").expect("the table's beginning");
    let (table, _) = table.split_once("<!-- tests: end -->").expect("the table's end");
    let cases: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    let (mut faults, mut all) = (0, Vec::new());
    for line in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let tests: Vec<&str> = cells.last().unwrap_or(&"").split('`').skip(1).step_by(2).collect();
        if cells.len() != 3 || tests.is_empty() {
            all.push(format!("no test: {line}"));
        }
        all.extend(tests.iter().filter_map(|test| wrong(test, &cases)));
        faults += 1;
    }
    assert!(faults > 15, "{faults} lines");
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let cases = BTreeSet::from(["faults::one".to_owned()]);
    assert_eq!(wrong("faults::one", &cases), None);
    assert!(wrong("faults::two", &cases).is_some());
    assert!(wrong("loader/src/attach/wait.rs::nothing_like_that", &cases).is_some());
    assert!(wrong("loader/src/attach/nowhere.rs::a_refusal_is_not_a_grace_period", &cases).is_some());
}
