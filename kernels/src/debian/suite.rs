// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Packages of one suite and architecture: found in its index, fetched, unpacked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    apt::{Apt, Package},
    download, mirror, unpack, version,
};
use crate::{arch::Arch, error::GetError, record::PackageRecord};

/// A suite whose index has been read.
pub(crate) struct Suite {
    name: String,
    mirror: String,
    apt: Apt,
    downloads: PathBuf,
}

impl Suite {
    /// Reads the index. apt's state and the packages on their way are kept in `directory`.
    pub(crate) fn read(directory: &Path, name: &str, arch: Arch) -> Result<Suite, GetError> {
        let mirror = mirror()?;
        let apt = Apt::new(&directory.join("apt"), &mirror, name, arch)?;
        apt.update()?;
        Ok(Suite { name: name.to_owned(), mirror: mirror.uri, apt, downloads: directory.join("download") })
    }

    /// The packages whose name `wanted` accepts.
    pub(crate) fn packages(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Package>, GetError> {
        self.apt.packages(wanted)
    }

    /// The package of this name, of this version or else the newest.
    pub(crate) fn find(&self, name: &str, version: Option<&str>) -> Result<Package, GetError> {
        let packages = self.apt.packages(|package| package == name)?;
        let found: Vec<String> = packages.iter().map(|package| package.version.clone()).collect();
        choose(packages, version)?.ok_or_else(|| GetError::NoPackage {
            suite: self.name.clone(),
            package: name.to_owned(),
            version: version.map(str::to_owned),
            found,
        })
    }

    /// Fetches a package, and returns where its file is.
    pub(crate) fn fetch(&self, package: &Package) -> Result<PathBuf, GetError> {
        download::fetch(&self.apt, &self.mirror, package, &self.downloads)
    }

    /// Fetches a package and unpacks all of it into `target`.
    pub(crate) fn unpack(&self, package: &Package, target: &Path) -> Result<(), GetError> {
        unpack::unpack_all(&self.fetch(package)?, target)
    }

    /// Removes what was fetched.
    pub(crate) fn discard_downloads(&self) {
        // It is of no more use; left, it costs space and nothing else.
        let _ = fs::remove_dir_all(&self.downloads);
    }
}

/// The package of that version, or the newest.
fn choose(packages: Vec<Package>, version: Option<&str>) -> Result<Option<Package>, GetError> {
    let fit = packages.into_iter().filter(|package| version.is_none_or(|version| package.version == version));
    version::newest(fit, |package| &package.version)
}

/// The names of the packages that a package file depends on, of each alternative the first.
pub(crate) fn dependencies(file: &Path) -> Result<Vec<String>, GetError> {
    let output = Command::new("dpkg-deb")
        .arg("--field")
        .arg(file)
        .arg("Depends")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| GetError::NoProgram { program: "dpkg-deb".to_owned(), package: "dpkg" })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(GetError::Unpack { package: file.to_owned(), said });
    }
    Ok(names(&String::from_utf8_lossy(&output.stdout)))
}

/// `a (>= 1) | b, c:any [amd64]`
fn names(depends: &str) -> Vec<String> {
    let name = |clause: &str| {
        let end = clause.find(|c: char| c.is_whitespace() || "(|:[".contains(c)).unwrap_or(clause.len());
        clause[..end].to_owned()
    };
    depends.split(',').map(|clause| name(clause.trim())).filter(|name| !name.is_empty()).collect()
}

/// A package in words.
pub(crate) fn describe(package: &Package) -> String {
    format!("{} {} ({} MB)", package.name, package.version, package.size.div_ceil(1_000_000))
}

/// What the record says about a package.
pub(crate) fn record(package: &Package) -> PackageRecord {
    PackageRecord { name: package.name.clone(), version: package.version.clone(), sha256: package.sha256.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(version: &str) -> Package {
        Package {
            name: "p".to_owned(),
            version: version.to_owned(),
            filename: String::new(),
            size: 1,
            sha256: String::new(),
        }
    }

    #[test]
    fn the_newest_version_or_the_one_that_is_needed() {
        let packages = || ["1.9-1", "1.10-1", "1.2-1"].map(package).to_vec();
        assert_eq!(choose(packages(), None).unwrap().unwrap().version, "1.10-1");
        assert_eq!(choose(packages(), Some("1.2-1")).unwrap().unwrap().version, "1.2-1");
        assert_eq!(choose(packages(), Some("1.3-1")).unwrap(), None);
        assert_eq!(choose(vec![], None).unwrap(), None);
    }

    #[test]
    fn dependencies_are_names_alone() {
        let depends =
            "linux-headers-6.1.0-40-common (= 6.1.153-1), linux-kbuild-6.1 (>= 6.1.153-1) | x, gcc-12:any, \n";
        assert_eq!(names(depends), ["linux-headers-6.1.0-40-common", "linux-kbuild-6.1", "gcc-12"]);
        assert!(names("").is_empty());
    }
}
