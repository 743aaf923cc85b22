// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One test per refusal.
//!
//! [`table`] lists every variant of every enumeration that says why something is refused, each with what provokes it: a
//! unit test, a case in the virtual machine, or, where it cannot be provoked, why. A variant without a line fails here,
//! and so does a line without a variant, a test that is not there, and one that does not say what it is said to. The
//! variants are read from the sources: some of the enumerations are `#[non_exhaustive]`, so that no `match` outside of
//! their own crate could be told to know them all.
//!
//! [`provoked`] has the refusals that no other test provokes and that take no kernel.

mod causes;
mod provoked;
mod table;

use siteseer_conformance::guest::case::cases;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use table::{Enumeration, Proof, TABLE};

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of an enumeration's variants, from formatted source: four spaces in, with a capital.
fn variants(enumeration: &Enumeration) -> BTreeSet<String> {
    let text = read(&root().join(enumeration.file));
    let head = format!("pub enum {} {{", enumeration.name);
    let (_, rest) = text.split_once(&head).unwrap_or_else(|| panic!("{}: no {}", enumeration.file, enumeration.name));
    let body = rest.split_once("\n}").map_or(rest, |(body, _)| body);
    // A variant that only holds another enumeration's says nothing of its own.
    let own = body.split("#[error(transparent)]\n    ").enumerate();
    own.flat_map(|(nth, text)| text.lines().skip(usize::from(nth > 0)))
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .map(|line| line.chars().take_while(|c| c.is_ascii_alphanumeric()).collect())
        .collect()
}

/// The text of a function of a source file, and of the snapshots that it names.
fn test_text(file: &str, test: &str) -> Option<String> {
    let path = root().join(file);
    let text = read(&path);
    let (before, rest) = text.split_once(&format!("fn {test}("))?;
    // Formatted source: the function ends with a brace as far in as its head.
    let indent = before.rsplit('\n').next().unwrap_or_default().chars().take_while(|&c| c == ' ').count();
    let end = rest.find(&format!("\n{:indent$}}}\n", "")).unwrap_or(rest.len());
    let mut all = rest[..end].to_owned();
    let names: Vec<&str> = rest[..end].split('"').collect();
    let folders = [path.with_extension("").join("snapshots"), path.parent()?.join("snapshots")];
    for file in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if names.iter().any(|word| !word.is_empty() && name.ends_with(&format!("__{word}.snap"))) {
            all.push_str(&read(&file.path()));
        }
    }
    Some(all)
}

#[test]
fn every_refusal_has_its_line() {
    let mut wrong = Vec::new();
    for enumeration in TABLE {
        let there = variants(enumeration);
        assert!(!there.is_empty(), "{}: {} has no variants", enumeration.file, enumeration.name);
        let listed: BTreeSet<String> = enumeration.lines.iter().map(|line| line.variant.to_owned()).collect();
        assert_eq!(listed.len(), enumeration.lines.len(), "{} has a variant twice", enumeration.name);
        wrong.extend(there.difference(&listed).map(|name| format!("{}::{name} is in no test", enumeration.name)));
        wrong.extend(listed.difference(&there).map(|name| format!("{}::{name} is no more", enumeration.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// Proves S8.8.
#[test]
fn every_proof_is_there() {
    let cases: BTreeSet<String> = cases().into_iter().map(|case| case.name).collect();
    let mut wrong = Vec::new();
    for enumeration in TABLE {
        for line in enumeration.lines {
            let name = format!("{}::{}", enumeration.name, line.variant);
            match line.proof {
                Proof::Unit { file, test, says } => match test_text(file, test) {
                    None => wrong.push(format!("{name}: {file} has no {test}")),
                    Some(text) if !text.contains(says) => wrong.push(format!("{name}: {test} does not say {says:?}")),
                    Some(_) => {}
                },
                Proof::Case(case) if !cases.contains(case) => wrong.push(format!("{name}: there is no case {case}")),
                Proof::Never(why) if why.len() < 20 => wrong.push(format!("{name}: why is it never provoked?")),
                Proof::Case(_) | Proof::Never(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The enumerations of errors that the library's sources have.
fn error_enumerations(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(error_enumerations(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            let names = text.lines().filter_map(|line| line.strip_prefix("pub enum ")?.strip_suffix(" {"));
            found.extend(names.filter(|name| name.ends_with("Error")).map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_enumeration_of_errors_is_in_the_table() {
    let mut there = error_enumerations(&root().join("loader/src"));
    // They only hold the others.
    assert!(there.remove("Error") && there.remove("ExplainError"));
    for enumeration in TABLE {
        there.remove(enumeration.name);
    }
    assert!(there.is_empty(), "not in the table: {there:?}");
}

/// How much is provoked, printed by `--nocapture`.
#[test]
fn most_refusals_are_provoked() {
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for enumeration in TABLE {
        for line in enumeration.lines {
            let sum = sums.entry(enumeration.name).or_default();
            match line.proof {
                Proof::Never(why) => {
                    println!("{}::{} is never provoked: {why}", enumeration.name, line.variant);
                    sum.1 += 1;
                }
                Proof::Unit { .. } | Proof::Case(_) => sum.0 += 1,
            }
        }
    }
    for (name, (provoked, not)) in &sums {
        println!("{name}: {provoked} provoked, {not} not");
    }
    let (provoked, not) = sums.values().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
    assert!(not * 5 < provoked, "{provoked} provoked, {not} not");
}
