// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer hub crawl`, on an archive of made-up kernels in a folder, and hubs of version 1.
#![cfg(feature = "network")]

mod made;

use made::{build_id, folder, module_file, said, site_file, siteseer};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const SUITE: &str = "made";

/// Whether this is a system of Debian's kind.
fn has_apt() -> bool {
    ["/usr/bin/apt-get", "/usr/bin/apt-config", "/usr/bin/dpkg-deb"].iter().all(|path| Path::new(path).exists())
}

/// Puts the debug package of a kernel into the archive, and returns its paragraph in the list.
fn package(archive: &Path, release: &str, version: &str, architecture: &str, files: &[(String, Vec<u8>)]) -> String {
    let name = format!("linux-image-{release}-dbg");
    let root = archive.join("root");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("DEBIAN")).unwrap();
    let about =
        format!("Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: x <x@example.org>\n");
    fs::write(root.join("DEBIAN/control"), format!("{about}Description: x\n")).unwrap();
    for (path, data) in files {
        let path = root.join("usr/lib/debug").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }
    let file = format!("{name}_{architecture}.deb");
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "-Znone", "--build"]).arg(&root).arg(archive.join(&file));
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    fs::remove_dir_all(&root).unwrap();
    let sum = Command::new("sha256sum").arg(archive.join(&file)).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap();
    let (sum, size) = (sum.split(' ').next().unwrap(), fs::metadata(archive.join(&file)).unwrap().len());
    format!("{about}Filename: {file}\nSize: {size}\nSHA256: {sum}\nDescription: x\n\n")
}

/// Writes the lists of the archive, unsigned.
fn lists(archive: &Path, paragraphs: &[(&str, &str)]) {
    let suite = archive.join("dists").join(SUITE);
    let mut release = format!("Suite: {SUITE}\nArchitectures: amd64 arm64\nComponents: main\nSHA256:\n");
    for architecture in ["amd64", "arm64"] {
        let text: String =
            paragraphs.iter().filter(|(of, _)| *of == architecture).map(|(_, paragraph)| *paragraph).collect();
        let path = format!("main/binary-{architecture}/Packages");
        fs::create_dir_all(suite.join(&path).parent().unwrap()).unwrap();
        fs::write(suite.join(&path), &text).unwrap();
        let sum = Command::new("sha256sum").arg(suite.join(&path)).output().unwrap().stdout;
        let sum = String::from_utf8(sum).unwrap();
        let _ = writeln!(release, " {} {} {path}", sum.split(' ').next().unwrap(), text.len());
    }
    fs::write(suite.join("Release"), release).unwrap();
}

fn image(release: &str, number: u8) -> (String, Vec<u8>) {
    (format!("boot/vmlinux-{release}"), site_file(number, 3))
}

#[test]
fn an_archive_is_put_into_a_hub() {
    if !has_apt() {
        eprintln!("skipped: no apt-get and dpkg-deb");
        return;
    }
    let folder = folder("crawl");
    let archive = folder.join("archive");
    fs::create_dir_all(&archive).unwrap();
    let module = ("lib/modules/6.1-a/toy.ko".to_owned(), module_file(1, 0xa));
    let one = package(&archive, "6.1-a", "6.1-1", "amd64", &[image("6.1-a", 1), module]);
    let other = package(&archive, "6.2-cloud-b", "6.2-1", "arm64", &[image("6.2-cloud-b", 2)]);
    let bad = package(&archive, "6.3-c", "6.3-1", "amd64", &[("boot/vmlinux-6.3-c".to_owned(), b"hello".to_vec())]);
    lists(&archive, &[("amd64", &one), ("arm64", &other), ("amd64", &bad)]);
    let address = format!("file:{}", archive.display());
    let crawl = |more: &[&str]| {
        let mut command = siteseer(&folder);
        command.args(["hub", "crawl", "hub", "--suite", SUITE, "--archive", &address, "--allow-unsigned"]);
        let output = command.args(more).output().unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.join("hub"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with('.') && !name.ends_with(".lock"))
            .collect();
        left.sort();
        assert!(left.is_empty(), "{left:?}");
        (output.status.success(), said(&output))
    };
    let listed = || said(&siteseer(&folder).args(["hub", "list", "hub"]).output().unwrap());
    let (success, text) = crawl(&["--dry-run"]);
    assert!(success && text.contains("3 kernels to fetch") && text.contains("6.2-cloud-b"), "{text}");
    assert!(listed().contains("0 kernels"), "{}", listed());
    // What an interrupted one left is removed.
    fs::create_dir_all(folder.join("hub/.crawling.x/package.y")).unwrap();
    let (success, text) = crawl(&["--release", "*-cloud-*"]);
    assert!(success && text.contains("6.2-cloud-b arm64") && text.contains("1 kernels added"), "{text}");
    // The others go on after the one that fails, and what is there is not fetched again.
    fs::remove_file(archive.join("linux-image-6.2-cloud-b-dbg_arm64.deb")).unwrap();
    for added in [1, 0] {
        let (success, text) = crawl(&["--jobs", "2", "--memory", "100"]);
        assert!(!success && text.contains("6.3-c-dbg:amd64=6.3-1") && text.contains("not an ELF file"), "{text}");
        assert!(text.contains(&format!("{added} kernels added")), "{text}");
    }
    assert!(listed().contains(&build_id(1)) && listed().contains("2 kernels"), "{}", listed());
    let index = fs::read_to_string(folder.join("hub/index.json")).unwrap();
    assert!(index.contains("linux-image-6.1-a-dbg:amd64=6.1-1"), "{index}");
    // A newer build of the same release is another package.
    let newer = package(&archive, "6.1-a", "6.1-2", "amd64", &[image("6.1-a", 4)]);
    lists(&archive, &[("amd64", &newer), ("arm64", &other)]);
    let (success, text) = crawl(&["--no-modules", "--limit", "1"]);
    assert!(success && text.contains("1 kernels added"), "{text}");
    assert!(listed().contains("3 kernels"), "{}", listed());
    // An archive that is not signed is refused; so is a suite that is not there.
    let mut command = siteseer(&folder);
    let output = command.args(["hub", "crawl", "hub", "--suite", SUITE, "--archive", &address]).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("not signed"), "{}", said(&output));
    let (success, text) = crawl(&["--suite", "none"]);
    assert!(!success && text.contains("apt-get"), "{text}");
}
