// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is installed, by `make install` and as Debian packages, is all there and is removed again without a trace.

use super::build::{Built, assignment, make, root, run, scratch, words};
use siteseer_conformance::install;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All files below a folder.
fn files(folder: &Path) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(words(folder.display()))? {
            let path = entry.map_err(words(folder.display()))?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// Whether what users look for is among the files; manual pages have an ending if they are compressed.
fn is_all_there(files: &BTreeSet<PathBuf>, root: &Path, libraries: &str, compressed: &str) -> Result<(), String> {
    let mut wanted: Vec<String> = [
        "usr/bin/siteseer",
        "usr/include/siteseer.h",
        "usr/include/siteseer.bpf.h",
        "usr/share/bash-completion/completions/siteseer",
    ]
    .map(str::to_owned)
    .to_vec();
    wanted.extend(
        ["libsiteseer.a", "libsiteseer.so", "libsiteseer.so.0", "pkgconfig/siteseer.pc"]
            .map(|file| format!("{libraries}/{file}")),
    );
    wanted.extend(
        ["man1/siteseer.1", "man1/siteseer-trace.1", "man3/siteseer.3"]
            .map(|page| format!("usr/share/man/{page}{compressed}")),
    );
    match wanted.iter().find(|file| !files.contains(&root.join(file))) {
        Some(file) => Err(format!("{file} is not installed; there are {files:?}")),
        None => Ok(()),
    }
}

/// The most that an installed file may have, in MiB. Unoptimised, as these tests build them, they have 22, 9 and 58
/// without debug information, and 96, 41 and 118 with it.
const MOST: [(&str, u64); 3] = [("siteseer", 48), ("libsiteseer.so.", 20), ("libsiteseer.a", 85)];

/// Sections of debug information in a file, or in the members of an archive. What is loaded with the program is not
/// one.
fn debug_sections(path: &Path) -> Result<BTreeSet<String>, String> {
    let printed = run(Command::new("readelf").args(["--wide", "--section-headers"]).arg(path))?;
    let is_loaded = |line: &str| line.split_whitespace().rev().take(4).any(|flags| flags.starts_with('A'));
    let names = printed.lines().filter(|line| !is_loaded(line)).flat_map(str::split_whitespace);
    Ok(names.filter(|name| name.starts_with(".debug_") || name.starts_with(".zdebug_")).map(str::to_owned).collect())
}

/// Whether the tool and the libraries among the files are without debug information, and not larger than they have to
/// be. The file that was built has it: that a section is found is shown by that.
fn are_stripped(files: &BTreeSet<PathBuf>, built: &Path) -> Result<(), String> {
    if debug_sections(built)?.is_empty() {
        return Err(format!("{} has no debug information: this shows nothing of what is installed", built.display()));
    }
    for (begins, most) in MOST {
        let is_it = |path: &&PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let is_binary = !path.is_symlink() && !path.components().any(|part| part.as_os_str() == "bash-completion");
            is_binary && if begins.ends_with('.') { name.starts_with(begins) } else { name == begins }
        };
        let file = files.iter().find(is_it).ok_or_else(|| format!("{begins} is not installed"))?;
        let sections = debug_sections(file)?;
        if !sections.is_empty() {
            return Err(format!("{} has {sections:?}", file.display()));
        }
        let bytes = fs::metadata(file).map_err(words(file.display()))?.len();
        if bytes > most << 20 {
            return Err(format!("{}: {bytes} bytes, and {most} MiB are allowed", file.display()));
        }
    }
    Ok(())
}

/// Whether `make uninstall` leaves none of what `make install` put there, and nothing else is touched.
pub(super) fn uninstall(built: &Built) -> Result<(), String> {
    let destination = built.folder.join("destination");
    let _ = fs::remove_dir_all(&destination);
    let other = destination.join("usr/lib/libother.so");
    fs::create_dir_all(destination.join("usr/lib")).map_err(words(destination.display()))?;
    fs::write(&other, "").map_err(words(other.display()))?;
    let make_it = |goal: &str| run(make(&root()).arg(goal).arg("PREFIX=/usr").arg(assignment("DESTDIR", &destination)));
    let said = make_it("install")?;
    if !said.lines().any(|line| line.starts_with("Building siteseer") && line.contains("minutes")) {
        return Err(format!("make does not say what it builds and how long that takes:\n{said}"));
    }
    let installed = files(&destination)?;
    is_all_there(&installed, &destination, "usr/lib", "")?;
    are_stripped(&installed, &install::results(scratch()).join("debug/siteseer"))?;
    let pc = fs::read_to_string(destination.join("usr/lib/pkgconfig/siteseer.pc")).map_err(words("siteseer.pc"))?;
    if pc.contains(&*destination.to_string_lossy()) {
        return Err(format!("siteseer.pc knows of DESTDIR:\n{pc}"));
    }
    make_it("uninstall")?;
    let left = files(&destination)?;
    if left == BTreeSet::from([other]) { Ok(()) } else { Err(format!("left: {left:?}")) }
}

/// Whether the Debian packages can be built, installed into a root of their own, and removed.
pub(super) fn packages(built: &Built) -> Result<(), String> {
    let folder = built.folder.join("packages");
    let _ = fs::remove_dir_all(&folder);
    let mut build = Command::new(root().join("ci/deb"));
    build.arg(&folder).env("PROFILE", "dev");
    install::prepare(&mut build, scratch());
    // With the flags for C and the date that Debian sets, cargo would compile libbpf again, and all that uses it: here,
    // and then for the tests.
    let debians = ["CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "SOURCE_DATE_EPOCH"];
    build.env("CARGO", format!("env {} cargo", debians.map(|variable| format!("--unset={variable}")).join(" ")));
    // Most of the time that is left would be xz's.
    build.envs([("DPKG_DEB_COMPRESSOR_TYPE", "gzip"), ("DPKG_DEB_COMPRESSOR_LEVEL", "1")]);
    run(&mut build)?;
    let debs: Vec<PathBuf> =
        files(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "deb")).collect();
    if debs.len() != 3 {
        return Err(format!("not three packages: {debs:?}"));
    }
    let system = folder.join("root");
    fs::create_dir_all(system.join("var/lib/dpkg")).map_err(words(system.display()))?;
    fs::write(system.join("var/lib/dpkg/status"), "").map_err(words("status"))?;
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        // The root has nothing of what the packages depend on, and whoever runs this may not be root.
        dpkg.arg(format!("--root={}", system.display())).arg("--force-depends,not-root,script-chrootless");
        dpkg.arg(format!("--log={}", folder.join("dpkg.log").display()));
        dpkg
    };
    run(dpkg().arg("--install").args(&debs))?;
    let triple = run(Command::new("dpkg-architecture").arg("-qDEB_HOST_MULTIARCH"))?;
    let not_dpkgs = |files: BTreeSet<PathBuf>| -> BTreeSet<PathBuf> {
        files.into_iter().filter(|path| !path.starts_with(system.join("var/lib/dpkg"))).collect()
    };
    let installed = not_dpkgs(files(&system)?);
    is_all_there(&installed, &system, &format!("usr/lib/{}", triple.trim()), ".gz")?;
    are_stripped(&installed, &install::results(scratch()).join("debug/siteseer"))?;
    run(dpkg().args(["--purge", "siteseer", "libsiteseer-dev", "libsiteseer0"]))?;
    let left = not_dpkgs(files(&system)?);
    if left.is_empty() { Ok(()) } else { Err(format!("left: {left:?}")) }
}
