// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer list`, `siteseer sites` and what a shell is offered, on the image that SITESEER_TEST_VMLINUX names: the
//! numbers of the first are those of the second, function by function, and the second says what the site file has.

use siteseer_sites::file::SiteFile;
use siteseer_sites::site::Marks;
use std::collections::{BTreeMap, BTreeSet};
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
    let lines = |shell: &str, words: &[&str]| -> String {
        let mut command = siteseer(folder);
        command.env("SITESEER_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_IFS", "\n").arg("--").args(words);
        let output = command.output().expect("the tool starts");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let complete = |shell: &str, words: &[&str]| -> Vec<String> {
        lines(shell, words).lines().map(|line| line.split(['\t', ':']).next().unwrap_or_default().to_owned()).collect()
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
    // Functions of Rust by their paths, with and without the module.
    for begun in ["kernel::error::Error::from_e", "vmlinux:kernel::error::Error::from_e"] {
        let offered = lines("bash", &["siteseer", "sites", "--sites", "vmlinux.sites", begun]);
        assert!(offered.lines().any(|line| line == format!("{begun}rrno")), "{offered}");
    }
    let offered = lines("bash", &["siteseer", "sites", "--sites", "vmlinux.sites", "kernel"]);
    assert!(offered.lines().any(|line| line == "kernel::error::Error::from_errno"), "{offered}");
}

/// Functions of Rust by their paths: what is listed is what the names of their symbols stand for, and all commands know
/// the paths.
#[test]
fn functions_of_rust_go_by_their_paths() {
    let Some(folder) = folder() else { return };
    let name = |row: &serde_json::Value| row["function"].as_str().unwrap().to_owned();
    let all = list(folder, "_R*");
    assert!(all.len() > 1000, "{}", all.len());
    assert!(all.iter().all(|row| row["path"].as_str().is_some_and(|path| path.contains("::"))));
    let below: Vec<String> = list(folder, "kernel::error").iter().map(name).collect();
    // v0: the path of an own type's methods is in the mangled name.
    let of_error = |name: &String| name.starts_with("_RNvMNtCs") && name.contains("_6kernel5errorNtB2_5Error");
    let wanted: Vec<String> = all.iter().map(name).filter(of_error).collect();
    assert!(wanted.len() > 2 && wanted.iter().all(|name| below.contains(name)), "{below:?}\n{wanted:?}");
    let own = "kernel::error::Error::from_errno";
    let [one] = &list(folder, own)[..] else { panic!("{own} is one function") };
    assert_eq!(one["path"], "<kernel::error::Error>::from_errno");
    let generic = list(folder, "core::ptr::drop_in_place");
    assert!(generic.len() > 1, "each instance is a function");

    let data = ["--sites", "vmlinux.sites"];
    let by_path: serde_json::Value =
        serde_json::from_str(&run(folder, &["sites", own, "--json", data[0], data[1]])).unwrap();
    let by_name: serde_json::Value =
        serde_json::from_str(&run(folder, &["sites", &name(one), "--json", data[0], data[1]])).unwrap();
    assert_eq!(by_path, serde_json::json!([by_name]));
    assert_eq!(by_name["sites"].as_array().map(Vec::len), one["sites"].as_u64().map(|sites| sites as usize));
    let text = run(folder, &["sites", own, data[0], data[1]]);
    assert!(text.contains("<kernel::error::Error>::from_errno(i32 errno ["), "{text}");
    let text = run(folder, &["explain", own, data[0], data[1]]);
    assert!(text.contains("<kernel::error::Error>::from_errno(i32 errno)"), "{text}");
    let text = run(folder, &["list", own, data[0], data[1]]);
    assert!(text.contains("  <kernel::error::Error>::from_errno"), "{text}");
}

#[test]
fn marks_are_told_in_words() {
    let Some(folder) = folder() else { return };
    let data = std::fs::read(folder.join("vmlinux.sites")).unwrap();
    let file = SiteFile::parse(&data).unwrap();
    let printed = run(folder, &["sites", "k*", "--sites", "vmlinux.sites"]);
    for (mark, words) in [
        (Marks::ENTRY_UNCERTAIN, "; may not be where it is entered"),
        (Marks::MAY_REPEAT, "; may repeat within one call"),
        (Marks::MAY_MISS, "; may be passed by"),
    ] {
        let mut marked = BTreeSet::new();
        for function in file.all_functions() {
            let function = function.unwrap();
            // A pattern does not stand for parts of functions (S3.2).
            if function.name().starts_with('k') && !function.name().contains('.') {
                let sites = function.sites().map(Result::unwrap).filter(|site| site.marks().contains(mark));
                marked.extend(sites.map(|site| (site.address(), function.name().to_owned())));
            }
        }
        let lines = printed.lines().filter(|line| line.contains(words));
        let told: BTreeSet<(u64, String)> = lines.map(place).collect();
        assert!(marked.len() > 20, "{mark:?}: {} sites", marked.len());
        let different: Vec<_> = marked.symmetric_difference(&told).take(10).collect();
        assert!(different.is_empty(), "{mark:?}: {different:x?}");
    }
}

/// The address and the function of a line such as `ffffffff81000000 [symbol+0x1] function(int a [rdi])  inline`.
fn place(line: &str) -> (u64, String) {
    let mut words = line.split(' ');
    let address = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
    let function = words.nth(1).unwrap().split_once('(').unwrap().0;
    (address, function.to_owned())
}
