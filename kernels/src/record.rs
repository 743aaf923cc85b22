// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What is known about a kernel in the cache: its files, and what it was made from.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{arch::Arch, cache};

/// Where the parts of a kernel are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelPaths {
    /// The row's name.
    pub name: String,
    /// The folder.
    pub directory: PathBuf,
    /// The bootable image. A kernel that was compiled with a plugin has none.
    pub vmlinuz: PathBuf,
    /// The ELF file with DWARF and BTF.
    pub vmlinux: PathBuf,
    /// What is known about them.
    pub record: KernelRecord,
}

/// What `kernel.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelRecord {
    /// The row's name.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// `uname -r`.
    pub release: String,
    /// The GNU build id of both files, in hexadecimal.
    pub build_id: String,
    /// The suite the packages came from.
    pub suite: String,
    /// The packages.
    pub packages: Vec<PackageRecord>,
    /// How it was built, if it was built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildRecord>,
}

/// How a kernel was built here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecord {
    /// All that went into it.
    pub recipe: BuildRecipe,
    /// How long it took, in seconds.
    pub seconds: u64,
}

/// All that goes into a kernel that is built here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildRecipe {
    /// The package of sources.
    pub source: PackageRecord,
    /// The archive in it.
    pub archive: String,
    /// The fragments of the configuration: name and text.
    pub config: Vec<(String, String)>,
    /// Words for make.
    pub make: Vec<String>,
    /// Versions of the packages whose programs shape the result.
    pub tools: BTreeMap<String, String>,
    /// The version of the procedure.
    pub procedure: u32,
    /// The sources of the plugin that the compiler loaded: name and text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugin: Vec<(String, String)>,
    /// The changes of the sources: name and text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<(String, String)>,
}

/// One package that a kernel came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SHA-256 of the package file, in hexadecimal, as the suite's signed index has it.
    pub sha256: String,
}

/// The kernel of this name, if `ci/kernel` has fetched it. Asks no network and does not mind its age.
pub fn cached(name: &str) -> Option<KernelPaths> {
    entry(&cache_directory()?.join(file_name(name)?).join("current"))
}

/// Where kernels are kept.
pub fn cache_directory() -> Option<PathBuf> {
    Some(cache::directory()?.join("kernels"))
}

/// A row's name as one path component, or none if it could lead elsewhere.
pub(crate) fn file_name(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])).then_some(name)
}

/// Reads the entry that `current` leads to.
pub(crate) fn entry(current: &Path) -> Option<KernelPaths> {
    let directory = fs::canonicalize(current).ok()?;
    let record: KernelRecord = serde_json::from_slice(&fs::read(directory.join("kernel.json")).ok()?).ok()?;
    let (vmlinuz, vmlinux) = (directory.join("vmlinuz"), directory.join("vmlinux"));
    let is_bootable = record.build.as_ref().is_none_or(|build| build.recipe.plugin.is_empty());
    (vmlinux.is_file() && (vmlinuz.is_file() || !is_bootable)).then(|| KernelPaths {
        name: record.name.clone(),
        directory,
        vmlinuz,
        vmlinux,
        record,
    })
}
