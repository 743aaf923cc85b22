// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The kernels of the matrix: which there are, where they are kept, where they come from.
//!
//! `kernels/matrix.toml` describes the rows ([`Matrix`]). A row is resolved to the newest packages of its suite by apt
//! itself, with private state and private configuration, so that any suite and architecture can be read from any host
//! and nothing of the host is touched (`apt.rs`). What is fetched, is checked and unpacked into a cache ([`Getter`]): a
//! kernel that Debian built (`debian.rs`), or one that is built from sources in a build root (`built.rs`).
//!
//! ```text
//! ${XDG_CACHE_HOME:-$HOME/.cache}/siteseer/kernels/NAME/
//!     current -> VERSION     the entry in use, replaced in one step
//!     VERSION/               vmlinuz, vmlinux, kernel.json: complete or absent. One that a compiler's plugin had a part in
//!                            (`plugin.rs`) has no vmlinuz
//!     VERSION/tree/          of a kernel that was built here, what modules for it are built with
//!     VERSION/headers/       the same of one that Debian built, when it was first asked for (`headers.rs`)
//!     VERSION/modules/       modules that were built for it ([`crate::modules`])
//!     checked                when the suite was last asked whether there is a newer one (its modification time)
//!     lock                   held by who changes any of this
//!     apt/, download/        apt's state; packages on their way
//! ```
//!
//! Readers need no lock: they follow `current` once and use the folder that it leads to, which stays when a newer one
//! comes (the one before it is removed then).

mod apt;
mod built;
mod chosen;
mod config;
mod debian;
mod debian_version;
mod debug_modules;
mod download;
mod error;
mod get;
mod headers;
mod lock;
mod matrix;
mod partial;
mod plugin;
mod source;
mod sources;
mod suite;
mod tree;
mod unpack;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use object::Object;
use serde::{Deserialize, Serialize};

pub use self::{
    chosen::{DEBIAN, REFERENCE, chosen},
    config::{ConfigError, Lost},
    debug_modules::{DebugModules, debug_modules},
    get::{GetError, Getter},
    matrix::{BuiltRow, DebianRow, How, Matrix, MatrixError, PackageFile, Row},
    plugin::Plugin,
};
use crate::{arch::Arch, host_cache};

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
    Some(host_cache::directory()?.join("kernels"))
}

/// The matrix of the workspace that this program was built in.
///
/// # Errors
/// If it cannot be read or has an error in it.
pub fn workspace_matrix() -> Result<Matrix, MatrixError> {
    Matrix::read(&workspace_file("matrix.toml"))
}

/// A file in the folder `kernels` of the workspace that this program was built in; it need not exist.
pub(crate) fn workspace_file(name: &str) -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut directory = package.as_path();
    loop {
        let path = directory.join("kernels").join(name);
        match directory.parent() {
            Some(parent) if !path.is_file() => directory = parent,
            _ => return path,
        }
    }
}

/// The line of a sources.list(5) for a suite of the host's Debian mirror.
pub(crate) fn source_line(suite: &str) -> Result<String, GetError> {
    Ok(apt::source_line(&get::mirror()?, suite))
}

/// How the host's apt reaches servers: its `Acquire` settings.
pub(crate) fn acquire_settings() -> Result<Vec<String>, GetError> {
    Ok(apt::acquire_settings(&apt::dump()?))
}

/// What modules for a kernel are built with, as kbuild is told of it.
#[derive(Debug)]
pub(crate) struct ModuleTree {
    /// Folders of the host, and where the build root must have them.
    pub(crate) mounts: Vec<(PathBuf, &'static str)>,
    /// Words for make.
    pub(crate) arguments: Vec<String>,
    /// Whether there is a program that fills in the BTF ids that a module's code refers to (`.BTF_ids`).
    pub(crate) resolves_btf_ids: bool,
    /// Tells it from others.
    pub(crate) made_of: String,
}

/// What modules for this kernel are built with; it is fetched if it is not in the cache.
pub(crate) fn module_tree(kernel: &KernelPaths, progress: impl Fn(&str)) -> Result<ModuleTree, GetError> {
    match &kernel.record.build {
        Some(build) => built::module_tree(kernel, build, progress),
        None => headers::module_tree(kernel, progress),
    }
}

/// How a kernel in the cache shows that it has site data of its own: CONFIG_DEBUG_INFO_BTF_INLINE in its configuration, which is
/// known if modules were built for it, or the section `.BTF.inline`. `None` if neither shows it.
pub fn own_site_data(kernel: &KernelPaths) -> Option<String> {
    let config = headers::config(kernel).unwrap_or_default();
    let option = config.lines().find(|line| is_inline_option(line)).map(str::to_owned);
    option.or_else(|| has_inline_section(&kernel.vmlinux).then(|| "section .BTF.inline".to_owned()))
}

/// Whether a line of a kernel's configuration switches the option on.
fn is_inline_option(line: &str) -> bool {
    matches!(line.strip_prefix("CONFIG_DEBUG_INFO_BTF_INLINE="), Some("y" | "m"))
}

/// Whether an image has the section with site data.
fn has_inline_section(image: &Path) -> bool {
    let Ok(file) = fs::File::open(image) else { return false };
    let cache = object::ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|image| image.section_by_name(".BTF.inline").is_some())
}

/// A row's name as one path component, or none if it could lead elsewhere.
fn file_name(name: &str) -> Option<&str> {
    (!name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])).then_some(name)
}

/// Reads the entry that `current` leads to.
fn entry(current: &Path) -> Option<KernelPaths> {
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

/// Says that tests which need a kernel may be left out when it is not there.
const SKIP_VARIABLE: &str = "SITESEER_SKIP_VM";

/// A kernel that a test needs is not in the cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel {name} is not in the cache, and this test needs it: run `ci/kernel {name}`, or set {SKIP_VARIABLE}=1 to leave such tests out"
)]
pub struct Absent {
    /// The kernel's name.
    pub name: String,
    /// Whether the environment says that the test may be left out.
    pub may_skip: bool,
}

/// The kernel of this name for a test. A test that cannot run must say so: it fails with [`Absent`]'s words, unless
/// `SITESEER_SKIP_VM` is set (and not to `0`), which [`Absent::may_skip`] tells.
///
/// # Errors
/// If it is not in the cache.
pub fn for_test(name: &str) -> Result<KernelPaths, Absent> {
    cached(name).ok_or_else(|| Absent {
        name: name.to_owned(),
        may_skip: env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_data_of_its_own_shows_in_the_configuration_or_in_the_image() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        let image = |section: &str| {
            let (format, machine, order) =
                (object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
            let mut image = object::write::Object::new(format, machine, order);
            image.add_section(Vec::new(), section.into(), object::SectionKind::Other);
            image.write().unwrap()
        };
        let record = KernelRecord {
            name: "k".to_owned(),
            arch: Arch::X86_64,
            release: "7.4".to_owned(),
            build_id: String::new(),
            suite: "s".to_owned(),
            packages: Vec::new(),
            build: None,
        };
        let file = |name: &str| directory.path().join(name);
        let kernel = KernelPaths {
            name: "k".to_owned(),
            directory: directory.path().to_owned(),
            vmlinuz: file("vmlinuz"),
            vmlinux: file("vmlinux"),
            record,
        };
        assert_eq!(own_site_data(&kernel), None);
        write("vmlinux", &image(".BTF"));
        write("headers/headers.json", br#"{"common":"c","objects":"headers/o","packages":[]}"#);
        write("headers/o/.config", b"CONFIG_DEBUG_INFO_BTF=y\n# CONFIG_DEBUG_INFO_BTF_INLINE is not set\n");
        assert_eq!(own_site_data(&kernel), None);
        write("vmlinux", &image(".BTF.inline"));
        assert_eq!(own_site_data(&kernel).as_deref(), Some("section .BTF.inline"));
        write("headers/o/.config", b"CONFIG_DEBUG_INFO_BTF=y\nCONFIG_DEBUG_INFO_BTF_INLINE=m\n");
        assert_eq!(own_site_data(&kernel).as_deref(), Some("CONFIG_DEBUG_INFO_BTF_INLINE=m"));
    }
}
