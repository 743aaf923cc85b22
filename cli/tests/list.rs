// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer list` and what a shell is offered: the numbers are those of `siteseer sites`, function by function, on the image that
//! SITESEER_TEST_VMLINUX names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A folder with the image's site data; `None` without an image.
fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let Some(vmlinux) = std::env::var_os("SITESEER_TEST_VMLINUX") else {
            eprintln!("SITESEER_TEST_VMLINUX does not name a vmlinux: nothing to list (ci/test sets it)");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("list");
        std::fs::create_dir_all(&folder).unwrap();
        run(&folder, &["encode", vmlinux.to_str().expect("UTF-8"), "-o", "vmlinux.sites"]);
        Some(folder)
    });
    made.as_deref()
}

fn siteseer(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    command.current_dir(folder);
    command
}

/// What the tool prints; it must succeed.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = siteseer(folder).args(arguments).output().expect("the tool starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn list(folder: &Path, pattern: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(&run(folder, &["list", pattern, "--json", "--sites", "vmlinux.sites"])).expect("JSON")
}

#[test]
fn numbers_are_those_of_the_sites() {
    let Some(folder) = folder() else { return };
    let mut compared = 0;
    for pattern in ["vfs_*", "*_capable*", "kill_*", "__bpf_*_key", "tcp_v[46]_*", "kfree_*", "foo_that_is_not*"] {
        let listed = match pattern {
            "foo_that_is_not*" => {
                let output = siteseer(folder).args(["list", pattern, "--sites", "vmlinux.sites"]).output().unwrap();
                let message = String::from_utf8_lossy(&output.stderr);
                assert!(
                    !output.status.success() && message.contains("no function matches foo_that_is_not*"),
                    "{message}"
                );
                continue;
            }
            _ => list(folder, pattern),
        };
        assert!(!listed.is_empty(), "{pattern}");
        let printed = run(folder, &["sites", pattern, "--json", "--sites", "vmlinux.sites"]);
        let functions: Vec<serde_json::Value> = serde_json::from_str(&printed).expect("JSON");
        assert_eq!(functions.len(), listed.len(), "{pattern}");
        for (function, listed) in functions.iter().zip(&listed) {
            assert_eq!(function["function"], listed["function"]);
            let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
            for site in function["sites"].as_array().expect("sites") {
                *kinds.entry(site["kind"].as_str().expect("a kind")).or_default() += 1;
            }
            for (kind, key) in [("body", "bodies"), ("clone", "clones"), ("inline", "inlined")] {
                let wanted = kinds.get(kind).copied().unwrap_or(0);
                assert_eq!(listed[key].as_u64(), Some(wanted), "{listed}: {kind}");
            }
            let held = function["sites"].as_array().into_iter().flatten().filter(|site| site["probeable"] == false);
            assert_eq!(listed["unprobeable"].as_u64(), Some(held.count() as u64), "{listed}");
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} functions were compared");
}

#[test]
fn functions_of_a_file() {
    let Some(folder) = folder() else { return };
    let names = |pattern: &str| -> Vec<String> {
        list(folder, pattern).iter().map(|listed| listed["function"].as_str().expect("a name").to_owned()).collect()
    };
    let file = names("@fs/read_write.c");
    for known in ["vfs_read", "vfs_write", "ksys_read", "rw_verify_area"] {
        assert!(file.contains(&known.to_owned()), "{known} is not in {file:?}");
    }
    assert!(!file.contains(&"vfs_open".to_owned()) && !file.contains(&"ns_capable".to_owned()), "{file:?}");
    let both = names("vfs_*@fs/read_write.c");
    assert!(both.iter().all(|name| name.starts_with("vfs_") && file.contains(name)), "{both:?}");
    assert_eq!(both.len(), file.iter().filter(|name| name.starts_with("vfs_")).count());
    assert_eq!(names("@kernel/capab*.c"), names("vmlinux:@kernel/capability.c"));
}

#[test]
fn names_alone_and_in_no_module() {
    let Some(folder) = folder() else { return };
    let names = run(folder, &["list", "vfs_read*", "ns_capable", "vfs_read", "--names", "--sites", "vmlinux.sites"]);
    let names: Vec<&str> = names.lines().collect();
    assert!(names.contains(&"vfs_readv") && names.contains(&"ns_capable"));
    assert_eq!(names.iter().filter(|name| **name == "vfs_read").count(), 1, "{names:?}");
    for (pattern, words) in [("ext4:", "there is no module ext4 here"), ("vfs_raed", "did you mean vfs_read")] {
        let output = siteseer(folder).args(["list", pattern, "--sites", "vmlinux.sites"]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(words), "{message}");
    }
    // More than can be printed with all that is known about each.
    let output = siteseer(folder).args(["sites", "*", "--sites", "vmlinux.sites"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("* stands for "), "{message}");
}

#[test]
fn a_shell_is_offered_names() {
    let Some(folder) = folder() else { return };
    // What the scripts of each shell run, with the word that is typed last.
    let complete = |shell: &str, words: &[&str]| -> Vec<String> {
        let mut command = siteseer(folder);
        command.env("SITESEER_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_IFS", "\n").arg("--").args(words);
        let output = command.output().expect("the tool starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().map(|line| line.split(['\t', ':']).next().unwrap_or_default().to_owned()).collect()
    };
    for shell in ["bash", "zsh", "fish"] {
        for command in ["list", "sites", "explain", "trace"] {
            let names = complete(shell, &["siteseer", command, "--sites", "vmlinux.sites", "vfs_readl"]);
            assert_eq!(names, ["vfs_readlink"], "{shell} {command}");
        }
        assert!(
            complete(shell, &["siteseer", "list", "--sites=vmlinux.sites", "ns_cap"])
                .contains(&"ns_capable".to_owned())
        );
        assert!(complete(shell, &["siteseer", "list", "--sites", "absent", "ns_cap"]).is_empty());
    }
}
