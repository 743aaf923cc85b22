// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is installed, by `make install` and as Debian packages, is all there and is removed again without a trace.

use super::build::{Built, assignment, make, root, run, target, words};
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

/// Whether `make uninstall` leaves none of what `make install` put there, and nothing else is touched.
pub(super) fn uninstall(built: &Built) -> Result<(), String> {
    let destination = built.folder.join("destination");
    let _ = fs::remove_dir_all(&destination);
    let other = destination.join("usr/lib/libother.so");
    fs::create_dir_all(destination.join("usr/lib")).map_err(words(destination.display()))?;
    fs::write(&other, "").map_err(words(other.display()))?;
    let make_it = |goal: &str| run(make(&root()).arg(goal).arg("PREFIX=/usr").arg(assignment("DESTDIR", &destination)));
    make_it("install")?;
    let installed = files(&destination)?;
    is_all_there(&installed, &destination, "usr/lib", "")?;
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
    build.arg(&folder).env("PROFILE", "dev").env("CARGO_TARGET_DIR", target());
    build.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
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
    is_all_there(&not_dpkgs(files(&system)?), &system, &format!("usr/lib/{}", triple.trim()), ".gz")?;
    run(dpkg().args(["--purge", "siteseer", "libsiteseer-dev", "libsiteseer0"]))?;
    let left = not_dpkgs(files(&system)?);
    if left.is_empty() { Ok(()) } else { Err(format!("left: {left:?}")) }
}
