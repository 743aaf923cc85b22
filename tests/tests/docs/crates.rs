// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The crates that are published can be packaged, in the order of their dependencies and without a network. Their
//! manifests have what a registry asks for, and the packages contain what a build needs, and no tests.

use super::root;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The published crates, each after those that it depends on, and their folders.
const PUBLISHED: [(&str, &str); 3] =
    [("siteseer-sites", "sites"), ("siteseer-encoder", "encoder"), ("siteseer", "loader")];

fn cargo(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(root()).env("CARGO_NET_OFFLINE", "true");
    let output = command.output().unwrap_or_else(|error| panic!("cargo {arguments:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What cargo knows of the workspace.
fn metadata() -> serde_json::Value {
    serde_json::from_str(&cargo(&["metadata", "--format-version=1", "--no-deps"])).expect("JSON")
}

#[test]
fn the_published_crates_can_be_packaged() {
    // Building them would take minutes, and is a step before a release.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
    let target = target.to_string_lossy();
    let mut arguments = vec!["package", "--no-verify", "--allow-dirty", "--target-dir", &target];
    PUBLISHED.iter().for_each(|(name, _)| arguments.extend(["-p", name]));
    cargo(&arguments);
    for (name, folder) in PUBLISHED {
        let listed = cargo(&["package", "--list", "--allow-dirty", "-p", name]);
        let files: BTreeSet<&str> = listed.lines().collect();
        for file in ["Cargo.toml", "README.md", "src/lib.rs", "LICENSES/LGPL-2.1-only.txt", "LICENSES/BSD-2-Clause.txt"]
        {
            assert!(files.contains(file), "{name}: {file} is not in the package");
        }
        // All sources, and what they include.
        for path in super::files(&root().join(folder).join("src"), ".rs") {
            let relative =
                path.strip_prefix(root().join(folder)).expect("it was found there").to_string_lossy().into_owned();
            assert!(files.contains(&*relative), "{name}: {relative} is not in the package");
        }
        let foreign: Vec<&&str> = files
            .iter()
            .filter(|file| ["fuzz/", "tests/", "examples/"].iter().any(|folder| file.starts_with(folder)))
            .collect();
        assert!(foreign.is_empty(), "{name}: {foreign:?}");
    }
    let listed = cargo(&["package", "--list", "--allow-dirty", "-p", "siteseer"]);
    for file in ["build.rs", "include/siteseer.h", "include/siteseer.bpf.h"] {
        assert!(listed.lines().any(|line| line == file), "siteseer: {file} is not in the package");
    }
}

#[test]
fn the_published_crates_say_what_a_registry_asks_for() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let find =
        |name: &str| packages.iter().find(|package| package["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    for (nth, (name, _)) in PUBLISHED.iter().enumerate() {
        let package = find(name);
        for key in ["description", "license", "readme", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|text| !text.is_empty()), "{name}: no {key}");
        }
        // The registry's limits.
        let words = |key: &str| package[key].as_array().map_or(0, Vec::len);
        assert!((1..=5).contains(&words("keywords")) && (1..=5).contains(&words("categories")), "{name}");
        assert!(package["publish"].is_null(), "{name} may not be published");
        assert!(package["metadata"]["docs"]["rs"].is_object(), "{name}: no settings for docs.rs");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let is_ours = dependency["path"].is_string();
            if !is_ours || dependency["kind"] == "dev" {
                continue;
            }
            let before = PUBLISHED[..nth].iter().any(|(other, _)| dependency["name"] == *other);
            assert!(before, "{name} depends on {}, which is not published before it", dependency["name"]);
            let version = package["version"].as_str().expect("a version");
            assert_eq!(dependency["req"], format!("^{version}"), "{name}: the version of {}", dependency["name"]);
        }
    }
    let published: BTreeSet<&str> = PUBLISHED.iter().map(|(name, _)| *name).collect();
    let others = packages.iter().filter(|package| package["publish"].is_null());
    let too_many: Vec<&str> =
        others.filter_map(|package| package["name"].as_str()).filter(|name| !published.contains(name)).collect();
    assert!(too_many.is_empty(), "`publish = false` is missing: {too_many:?}");
}

/// A tool that traces reads site files. Features that require a C compiler or the encoder must be chosen.
#[test]
fn the_default_features_are_those_of_a_tracing_tool() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let siteseer = packages.iter().find(|package| package["name"] == "siteseer").expect("siteseer");
    assert_eq!(siteseer["features"]["default"], serde_json::json!(["libbpf-rs"]));
    let needs = siteseer["dependencies"].as_array().expect("dependencies").iter();
    let always: Vec<&str> = needs
        .filter(|dependency| dependency["kind"].is_null() && dependency["optional"] == false)
        .filter_map(|dependency| dependency["name"].as_str())
        .collect();
    assert!(always.contains(&"siteseer-sites") && !always.contains(&"siteseer-encoder"), "{always:?}");
}
