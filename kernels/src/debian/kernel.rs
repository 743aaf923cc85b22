// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! A kernel that Debian built: the newest release of a suite whose two packages are both there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    apt::Package,
    folder_name,
    suite::{self, Suite},
    unpack, version,
};
use crate::{
    error::GetError,
    image::check_pair,
    matrix::{DebianRow, Row},
    partial::{Partial, check_space},
    record::{KernelRecord, PackageRecord, entry},
};

/// What a row stands for today.
struct Resolved {
    release: String,
    image: Package,
    debug: Package,
}

/// Sees to it that the newest is in `place`, and returns its folder.
pub(crate) fn renew(
    row: &Row,
    debian: &DebianRow,
    place: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<PathBuf, GetError> {
    say(&format!("{}: reading the index of {}", row.name, debian.suite));
    let suite = Suite::read(place, &debian.suite, row.arch)?;
    let resolved = resolve(&suite, debian)?;
    let directory = place.join(folder_name(&resolved.image.version));
    let is_there = entry(&directory).is_some_and(|paths| paths.record.packages == records(&resolved));
    if !is_there {
        fill(row, debian, &suite, &resolved, place, &directory, say)?;
    }
    Ok(directory)
}

/// Fetches, unpacks and checks, and gives the result its name at the very end.
fn fill(
    row: &Row,
    debian: &DebianRow,
    suite: &Suite,
    resolved: &Resolved,
    place: &Path,
    directory: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(), GetError> {
    // An unpacked vmlinux takes somewhat more than its package.
    check_space(place, resolved.image.size * 2 + resolved.debug.size * 5 / 2)?;
    let mut fetch = |package: &Package| {
        say(&format!("{}: fetching {}", row.name, suite::describe(package)));
        suite.fetch(package)
    };
    let image_file = fetch(&resolved.image)?;
    let debug_file = fetch(&resolved.debug)?;

    say(&format!("{}: unpacking", row.name));
    let partial = Partial::new(place)?;
    let (vmlinuz, vmlinux) = (partial.path().join("vmlinuz"), partial.path().join("vmlinux"));
    unpack::unpack(&image_file, &debian.image.of(&resolved.release).file, &vmlinuz)?;
    unpack::unpack(&debug_file, &debian.debug.of(&resolved.release).file, &vmlinux)?;
    let build_id = check_pair(&vmlinuz, &vmlinux)?;
    let record = KernelRecord {
        name: row.name.clone(),
        arch: row.arch,
        release: resolved.release.clone(),
        build_id,
        suite: debian.suite.clone(),
        packages: records(resolved),
        build: None,
    };
    partial.complete(&record, "kernel.json", directory)?;
    suite.discard_downloads();
    Ok(())
}

fn records(resolved: &Resolved) -> Vec<PackageRecord> {
    [&resolved.image, &resolved.debug].map(suite::record).to_vec()
}

/// Finds the newest release that has both packages.
fn resolve(suite: &Suite, row: &DebianRow) -> Result<Resolved, GetError> {
    let fits = |pattern: &str, name: &str| version::release_matches(&pattern.replace("{release}", &row.release), name);
    let packages = suite.packages(|name| fits(&row.image.package, name) || fits(&row.debug.package, name))?;
    newest(&packages, row)?.ok_or_else(|| GetError::NoRelease {
        suite: row.suite.clone(),
        release: row.release.clone(),
        image: row.image.package.clone(),
        debug: row.debug.package.clone(),
    })
}

fn newest(packages: &[Package], row: &DebianRow) -> Result<Option<Resolved>, GetError> {
    let Some((head, tail)) = row.image.package.split_once("{release}") else { return Ok(None) };
    // An index can hold several versions of one package.
    let find = |name: String| {
        version::newest(packages.iter().filter(|package| package.name == name), |package| &package.version)
    };
    let releases: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package.name.strip_prefix(head)?.strip_suffix(tail))
        .filter(|release| version::release_matches(&row.release, release))
        .collect();
    let mut resolved = Vec::new();
    for release in releases {
        let (image, debug) = (find(row.image.of(release).package)?, find(row.debug.of(release).package)?);
        if let (Some(image), Some(debug)) = (image, debug) {
            resolved.push(Resolved { release: release.to_owned(), image: image.clone(), debug: debug.clone() });
        }
    }
    version::newest(resolved, |resolved| &resolved.release)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::PackageFile;

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            filename: String::new(),
            size: 1,
            sha256: format!("{name}{version}"),
        }
    }

    fn row() -> DebianRow {
        let part = |package: &str| PackageFile { package: package.to_owned(), file: "f/{release}".to_owned() };
        DebianRow {
            suite: "suite".to_owned(),
            release: "6.1.0-*-cloud-amd64".to_owned(),
            image: part("linux-image-{release}"),
            debug: part("linux-image-{release}-dbg"),
            root: "kernel".to_owned(),
        }
    }

    #[test]
    fn the_newest_release_with_both_packages_is_taken() {
        let packages = [
            package("linux-image-6.1.0-9-cloud-amd64", "6.1.9-1"),
            package("linux-image-6.1.0-9-cloud-amd64-dbg", "6.1.9-1"),
            package("linux-image-6.1.0-40-cloud-amd64-dbg", "6.1.40-1"),
            package("linux-image-6.1.0-40-cloud-amd64", "6.1.40-1"),
            package("linux-image-6.1.0-40-cloud-amd64", "6.1.40-2"),
            // Its debug information is not there yet.
            package("linux-image-6.1.0-41-cloud-amd64", "6.1.41-1"),
            package("linux-image-6.1.0-99-amd64", "6.1.99-1"),
        ];
        let found = newest(&packages, &row()).unwrap().unwrap();
        assert_eq!(found.release, "6.1.0-40-cloud-amd64");
        assert_eq!(found.image.version, "6.1.40-2");
        assert!(newest(&packages[4..], &row()).unwrap().is_none());
    }
}
