// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Making and keeping a hub.
//!
//! Images are encoded one after the other: an image takes all processors by itself, and about 0.8 GB. What is there
//! already, of the same siteseer, is left as it is.

use crate::error::{Cause, HubError, io};
use crate::jobs::Jobs;
use crate::layout::{self, BTF, Census, INDEX, Index, Kernel, MODULES, PAGE, SIGNATURE, SITES, Sizes, VERSION};
use crate::local::{Local, look};
use crate::place::{Lock, install};
use crate::sign::Signer;
use crate::{http::Progress, stored};
use serde::Deserialize;
use siteseer::internals::kernel::BuildId;
use siteseer_encoder::{BaseKernel, KernelTypes};
use siteseer_sites::Machine;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// How to add to a hub.
#[derive(Debug, Default)]
pub struct Options {
    /// What `uname -r` prints on the kernel; by default what the image says.
    pub release: Option<String>,
    /// A folder with the files of its modules, with debug information or encoded.
    pub modules: Option<PathBuf>,
    /// What signs; without it, the hub is not signed.
    pub signer: Option<Signer>,
    /// zstd's level.
    pub level: i32,
    /// Whether a kernel that is in the folder already is made again.
    pub again: bool,
    /// The package that the image is from.
    pub package: Option<String>,
    /// How many modules are encoded side by side.
    pub jobs: Jobs,
}

/// The outcome of a kernel.
#[derive(Debug)]
pub struct Added {
    /// What the index says about it.
    pub kernel: Kernel,
    /// Whether it was there.
    pub was_there: bool,
    /// Modules that have no debug information, or otherwise cannot be encoded.
    pub left_out: usize,
}

/// The index of a hub; an empty one if the folder has none.
///
/// # Errors
/// [`HubError::Io`], [`HubError::Malformed`].
pub fn index(folder: &Path) -> Result<Index, HubError> {
    let path = folder.join(INDEX);
    match fs::read(&path) {
        Ok(bytes) => parse_index(&path.display().to_string(), &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Index { version: VERSION, ..Index::default() })
        }
        Err(error) => Err(io(&path)(error)),
    }
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Reads an index.
pub(crate) fn parse_index(what: &str, bytes: &[u8]) -> Result<Index, HubError> {
    let bad = |why: Cause| HubError::Malformed { what: what.to_owned(), why };
    let not_one = |error: serde_json::Error| bad(format!("not an index of a hub: {error}").into());
    // What else is in another version need not have the shape of this one.
    let Version { version } = serde_json::from_slice(bytes).map_err(not_one)?;
    if !(1..=VERSION).contains(&version) {
        return Err(bad(format!(
            "an index of version {version}, which another release of siteseer made: this one reads versions up to {VERSION}"
        )
        .into()));
    }
    serde_json::from_slice(bytes).map_err(not_one)
}

/// How many bytes each part of a kernel's files has, packed and then compressed alone: file, part, and both numbers. By
/// this, one sees where the bytes are; together they have more than the file.
///
/// # Errors
/// [`HubError`] if the files are not those of this version.
pub fn parts(folder: &Path, kernel: &Kernel) -> Result<Vec<(&'static str, &'static str, Sizes)>, HubError> {
    let mut all = Vec::new();
    for (name, sizes) in [(SITES, kernel.image), (BTF, kernel.btf), (MODULES, kernel.modules)] {
        if sizes.stored > 0 && kernel.format == VERSION {
            let path = folder.join("buildid").join(&kernel.build_id).join(name);
            for (part, sizes) in stored::parts(&path.display().to_string(), &fs::read(&path).map_err(io(&path))?)? {
                all.push((name, part, sizes));
            }
        }
    }
    Ok(all)
}

/// Adds a kernel to a hub, from its image with debug information or its site file.
///
/// # Errors
/// [`HubError`]. What was there before is there still.
pub fn add(folder: &Path, image: &Path, options: &Options, progress: &dyn Progress) -> Result<Added, HubError> {
    fs::create_dir_all(folder).map_err(io(folder))?;
    let _lock = Lock::take(folder, "hub", || progress.say("waiting for another siteseer hub"))?;
    let local = Local::open(image)?;
    let bad = |why: &str| HubError::Malformed { what: image.display().to_string(), why: why.into() };
    if local.is_module() {
        return Err(bad("a module, not a kernel's image: name the image, and the folder of its modules (--modules)"));
    }
    let index = index(folder)?;
    let id = &local.build_id;
    let files = options.modules.as_deref().map(modules).transpose()?.unwrap_or_default();
    let known = index.kernels.iter().find(|kernel| kernel.build_id == id.to_string());
    if let Some(kernel) = known
        .filter(|kernel| !options.again && has(folder, kernel, options.modules.is_some(), options.signer.is_some()))
    {
        let mut kernel = kernel.clone();
        if options.package.is_some() && kernel.package != options.package {
            kernel.package.clone_from(&options.package);
            put(folder, index, &kernel, options.signer.as_ref())?;
        }
        return Ok(Added { kernel, was_there: true, left_out: 0 });
    }
    progress.say(&format!("{}: encoding", image.display()));
    let sites = local.sites(None)?;
    let about = look(&image.display().to_string(), &sites, |file| {
        let machine = match file.machine() {
            Machine::X86_64 => "x86_64",
            Machine::Aarch64 => "aarch64",
        };
        let census = Census { functions: file.function_count().into(), sites: file.site_count().into() };
        (machine.to_owned(), census, file.base_btf_bytes().map(<[u8]>::to_vec))
    })?;
    let (machine, census, btf) = about;
    let btf = btf.ok_or_else(|| bad("its site data has no copy of .BTF"))?;
    let (encoded, left_out) = encode_modules(&files, &btf, id, options.jobs, progress);
    progress.say(&format!("{}: compressing", image.display()));
    let stored = stored::store(&image.display().to_string(), &sites, &btf, &encoded, options.level)?;
    let sizes = |name: &str, files: usize, bytes: usize| match stored.len(name) {
        0 => Sizes::default(),
        stored => Sizes { files: files as u64, bytes: bytes as u64, stored },
    };
    let release = options.release.clone().or_else(|| local.release()).unwrap_or_default();
    let kernel = Kernel {
        release,
        build_id: id.to_string(),
        machine,
        encoder: env!("CARGO_PKG_VERSION").to_owned(),
        format: VERSION,
        image: sizes(SITES, 1, sites.len()),
        btf: sizes(BTF, 1, btf.len()),
        modules: sizes(MODULES, encoded.len(), encoded.iter().map(|(_, data)| data.len()).sum()),
        package: options.package.clone(),
        census,
    };
    store(folder, id, &stored.files, options.signer.as_ref())?;
    put(folder, index, &kernel, options.signer.as_ref())?;
    Ok(Added { kernel, was_there: false, left_out })
}

/// Puts a kernel into the index.
fn put(folder: &Path, mut index: Index, kernel: &Kernel, signer: Option<&Signer>) -> Result<(), HubError> {
    index.version = VERSION;
    index.kernels.retain(|other| other.build_id != kernel.build_id);
    index.kernels.push(kernel.clone());
    index.kernels.sort_by(|one, other| (&one.release, &one.build_id).cmp(&(&other.release, &other.build_id)));
    write_index(folder, &index, signer)
}

/// Whether a kernel is there as this release of siteseer would make it, if need be with modules and signatures.
pub(crate) fn has(folder: &Path, kernel: &Kernel, with_modules: bool, signed: bool) -> bool {
    let at = |file: &str| folder.join("buildid").join(&kernel.build_id).join(file);
    let is_there = |file: &str| at(file).is_file() && (!signed || at(&format!("{file}{SIGNATURE}")).is_file());
    kernel.encoder == env!("CARGO_PKG_VERSION")
        && kernel.format == VERSION
        && is_there(SITES)
        && (kernel.btf.stored == 0 || is_there(BTF))
        && (!with_modules || kernel.modules.files > 0 && is_there(MODULES))
}

/// The files of modules in a folder and below it, by name.
fn modules(folder: &Path) -> Result<Vec<PathBuf>, HubError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(io(&folder))? {
            let entry = entry.map_err(io(&folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(io(&folder))?);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() {
                folders.push(path);
            } else if [".ko", ".ko.debug", ".sites"].iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The site files of modules, named by build id, and how many could not be encoded.
pub(crate) fn encode_modules(
    files: &[PathBuf],
    btf: &[u8],
    id: &BuildId,
    jobs: Jobs,
    progress: &dyn Progress,
) -> (Vec<(String, Vec<u8>)>, usize) {
    if files.is_empty() {
        return (Vec::new(), 0);
    }
    let Ok(types) = KernelTypes::new(btf) else { return (Vec::new(), files.len()) };
    let kernel = BaseKernel { types: &types, build_id: &id.0 };
    progress.begin("modules", Some(files.len() as u64));
    let results = jobs.each(files, |path| one_module(path, kernel), |done| progress.at(done));
    let left_out = results.iter().filter(|result| result.is_err()).count();
    // By path, as the files are: the same module is at the same place in the next release, which is then stored as what
    // is different.
    let mut known = HashSet::new();
    let encoded = results.into_iter().flatten().filter(|(name, _)| known.insert(name.clone())).collect();
    (encoded, left_out)
}

fn one_module(path: &Path, kernel: BaseKernel<'_>) -> Result<(String, Vec<u8>), HubError> {
    let local = Local::open(path)?;
    let bad = |why: &str| HubError::Malformed { what: path.display().to_string(), why: why.into() };
    if !local.is_module() {
        return Err(bad("not a module"));
    }
    let data = local.sites(Some(kernel))?;
    let theirs = siteseer_sites::file::module_kernel(&data).ok().flatten().unwrap_or_default();
    if theirs != kernel.build_id {
        return Err(bad("of another kernel"));
    }
    Ok((format!("{}.sites", local.build_id), data))
}

/// Writes the files of a kernel in a new folder, which then takes the place of the old one.
fn store(folder: &Path, id: &BuildId, files: &[(&str, Vec<u8>)], signer: Option<&Signer>) -> Result<(), HubError> {
    let all = folder.join("buildid");
    fs::create_dir_all(&all).map_err(io(&all))?;
    let new = tempfile::Builder::new().prefix(".new.").tempdir_in(&all).map_err(io(&all))?;
    for (name, data) in files {
        install(new.path(), name, data)?;
        if let Some(signer) = signer {
            install(new.path(), &format!("{name}{SIGNATURE}"), &signer.sign(data, &layout::path(id, name))?)?;
        }
    }
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(new.path(), mode).map_err(io(new.path()))?;
    let (place, old) = (all.join(id.to_string()), all.join(format!(".old.{id}")));
    let had = place.exists();
    if had {
        fs::rename(&place, &old).map_err(io(&place))?;
    }
    let new = new.keep();
    if let Err(error) = fs::rename(&new, &place) {
        if had {
            // What was there is there again.
            let _ = fs::rename(&old, &place);
        }
        let _ = fs::remove_dir_all(&new);
        return Err(io(&place)(error));
    }
    if had { fs::remove_dir_all(&old).map_err(io(&old)) } else { Ok(()) }
}

fn write_index(folder: &Path, index: &Index, signer: Option<&Signer>) -> Result<(), HubError> {
    let bad = |error: serde_json::Error| HubError::Malformed { what: INDEX.to_owned(), why: error.into() };
    let mut text = serde_json::to_vec_pretty(index).map_err(bad)?;
    text.push(b'\n');
    install(folder, INDEX, &text)?;
    if let Some(signer) = signer {
        install(folder, &format!("{INDEX}{SIGNATURE}"), &signer.sign(&text, INDEX)?)?;
    }
    install(folder, PAGE, page(index).as_bytes())?;
    Ok(())
}

/// The index for people.
fn page(index: &Index) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut page =
        "<!doctype html>\n<meta charset=utf-8>\n<title>Site data</title>\n<h1>Site data</h1>\n<table>\n".to_owned();
    page += "<tr><th>Release<th>Machine<th>Build id<th>Functions<th>Sites<th>Modules<th>Bytes\n";
    for kernel in &index.kernels {
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td><a href=\"buildid/{}/\">{}</a><td>{}<td>{}<td>{}<td>{}",
            escape(&kernel.release),
            escape(&kernel.machine),
            escape(&kernel.build_id),
            escape(&kernel.build_id),
            kernel.census.functions,
            kernel.census.sites,
            kernel.modules.files,
            kernel.stored(),
        );
    }
    page + "</table>\n"
}
