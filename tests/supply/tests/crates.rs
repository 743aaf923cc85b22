// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What siteseer is built from, compared with what may be linked and with the page that says so.

use siteseer_supply::graph::{Graph, REGISTRY};
use siteseer_supply::page::{NATIVE, PAGE, page};
use siteseer_supply::{bill, licence, notices, root};
use std::collections::BTreeSet;
use std::fs;

fn graph() -> Graph {
    Graph::read().unwrap()
}

#[test]
fn all_crates_are_from_the_registry_and_under_a_licence_that_allows_their_use() {
    let graph = graph();
    let shipped: BTreeSet<(&str, &str)> =
        graph.shipped().iter().map(|package| (&*package.name, &*package.version)).collect();
    assert!(shipped.len() > 50 && shipped.iter().any(|(name, _)| *name == "libbpf-rs"), "{shipped:?}");
    let mut wrong = Vec::new();
    for package in graph.foreign() {
        let (name, version) = (&*package.name, &*package.version);
        if package.source.as_deref() != Some(REGISTRY) {
            wrong.push(format!("{name} {version}: from {:?}", package.source));
        }
        let is_shipped = shipped.contains(&(name, version));
        if !package.license.as_deref().is_some_and(|text| licence::allows(text, is_shipped)) {
            wrong.push(format!(
                "{name} {version}: licence {:?}, linked into what is shipped: {is_shipped}",
                package.license
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `cargo-deny` reads deny.toml, and knows nothing of what is shipped.
#[test]
fn deny_toml_allows_the_same_licences() {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, list) = text.split_once("\nallow = [\n").unwrap();
    let (list, _) = list.split_once("\n]").unwrap();
    let allowed: Vec<&str> = list.lines().map(|line| line.trim().trim_matches([',', '"'])).collect();
    assert_eq!(allowed, licence::LINKED);
}

#[test]
fn notices_name_every_crate_that_is_linked() {
    let graph = graph();
    let text = notices::notices(&graph).unwrap();
    for package in graph.shipped() {
        let line = format!("\n{} {}: ", package.name, package.version);
        assert!(text.contains(&line), "{line}");
    }
    let without = text.lines().filter(|line| line.ends_with("has no licence text of its own)")).count();
    assert!(without * 4 < graph.shipped().len(), "{without} crates have no licence text");
    assert!(text.contains("Permission is hereby granted, free of charge") && text.contains("Copyright"));
}

#[test]
fn the_bill_has_a_checksum_for_every_crate_of_others() {
    let graph = graph();
    let bill = bill::bill(&graph).unwrap();
    let components = bill["components"].as_array().unwrap();
    let summed = components
        .iter()
        .filter(|component| component["hashes"][0]["content"].as_str().is_some_and(|sum| sum.len() == 64));
    assert_eq!(summed.count(), graph.shipped().len());
    // All that anything depends on is listed.
    let listed: BTreeSet<&str> = components.iter().filter_map(|component| component["bom-ref"].as_str()).collect();
    let on = bill["dependencies"].as_array().unwrap().iter().flat_map(|one| one["dependsOn"].as_array().unwrap());
    let missing: Vec<&str> = on.filter_map(|one| one.as_str()).filter(|one| !listed.contains(one)).collect();
    assert!(listed.len() == components.len() && missing.is_empty(), "{missing:?}");
}

#[test]
fn the_page_is_what_cargo_says() {
    let graph = graph();
    let shipped: BTreeSet<&str> = graph.shipped().iter().map(|package| &*package.name).collect();
    for (name, ..) in NATIVE {
        assert!(shipped.contains(name), "{name} is not linked any more");
    }
    let text = page(&graph).unwrap();
    let path = root().join(PAGE);
    if std::env::var_os("SITESEER_UPDATE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    } else {
        assert!(fs::read_to_string(&path).unwrap() == text, "{PAGE}: SITESEER_UPDATE_DOCS=1 writes it");
    }
}
