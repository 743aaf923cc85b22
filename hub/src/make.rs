// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Making and keeping a hub.
//!
//! Images are encoded one after the other: an image takes all processors by itself, and about 0.8 GB. What is there
//! already, of the same siteseer, is left as it is.

use crate::error::{Cause, HubError, io};
use crate::jobs::Jobs;
use crate::layout::{
    self, BTF, Base, Census, INDEX, Index, Kernel, MODULES, PACKED, PAGE, Part, SIGNATURE, SITES, Sizes, VERSION,
};
use crate::local::{Local, look};
use crate::place::{Lock, install};
use crate::sign::Signer;
use crate::{http::Progress, pack, stored};
use serde::Deserialize;
use siteseer::internals::kernel::BuildId;
use siteseer_encoder::{BaseKernel, EncodeError, KernelTypes};
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
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Index { version: PACKED, ..Index::default() }),
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
pub fn parts(
    folder: &Path,
    index: &Index,
    kernel: &Kernel,
) -> Result<Vec<(&'static str, &'static str, Sizes)>, HubError> {
    let mut all = Vec::new();
    for (name, part) in kernel.parts() {
        if part.stored > 0 && kernel.format == PACKED {
            let what = format!("{}: {name}", kernel.build_id);
            for (part, sizes) in stored::parts(&what, &stored::load(folder, index, kernel, name)?)? {
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
    let mut index = index(folder)?;
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
    let EncodedModules { files: encoded, left_out } = encode_modules(&files, &btf, id, options.jobs, progress)?;
    progress.say(&format!("{}: compressing", image.display()));
    let packed = stored::pack_all(&image.display().to_string(), &sites, &btf, &encoded)?;
    let part = |files: usize, bytes: usize| Part { files: files as u64, bytes: bytes as u64, ..Part::default() };
    let release = options.release.clone().or_else(|| local.release()).unwrap_or_default();
    let mut kernel = Kernel {
        release,
        build_id: id.to_string(),
        machine,
        encoder: env!("CARGO_PKG_VERSION").to_owned(),
        format: PACKED,
        image: part(1, sites.len()),
        btf: Part::default(),
        modules: part(encoded.len(), encoded.iter().map(|(_, data)| data.len()).sum()),
        package: options.package.clone(),
        census,
    };
    if packed.iter().any(|(file, _)| *file == BTF) {
        kernel.btf = part(1, btf.len());
    }
    drop((sites, encoded));
    let mut files = Vec::new();
    for (file, data) in &packed {
        // A base that cannot be read is not one.
        let base = base_for(&index, &kernel, file);
        let base = base.and_then(|base| Some((base, stored::load(folder, &index, base, file).ok()?)));
        let (compressed, base) = stored::compress(data, base, options.level)?;
        let part = kernel.part_mut(file);
        part.stored = compressed.len() as u64;
        part.base = base;
        files.push((kernel.part(file).name(file), compressed));
    }
    free(folder, &mut index, &kernel, &packed, options)?;
    store(folder, id, &files, options.signer.as_ref())?;
    put(folder, index, &kernel, options.signer.as_ref())?;
    Ok(Added { kernel, was_there: false, left_out })
}

/// The kernel that a file is best stored over: the newest of the same series and flavour with this file whole. None if
/// others are stored over the kernel at hand, which then must be whole.
fn base_for<'i>(index: &'i Index, kernel: &Kernel, file: &str) -> Option<&'i Kernel> {
    if index.kernels.iter().any(|other| other.is_over(&kernel.build_id)) {
        return None;
    }
    let own = layout::release(&kernel.release)?;
    let fits = |other: &&Kernel| {
        let part = other.part(file);
        other.build_id != kernel.build_id
            && other.machine == kernel.machine
            && other.encoder == kernel.encoder
            && other.format == PACKED
            && part.stored > 0
            && part.base.is_none()
            && layout::release(&other.release).is_some_and(|other| other.is_near(&own))
    };
    let candidates = index.kernels.iter().filter(fits);
    candidates.max_by_key(|other| (layout::release(&other.release), &other.build_id))
}

/// Stores the kernels whole that are stored over files of another that will not have the same bytes any more.
fn free(
    folder: &Path,
    index: &mut Index,
    kernel: &Kernel,
    packed: &[(&'static str, Vec<u8>)],
    options: &Options,
) -> Result<(), HubError> {
    let is_same = |file: &str, base: &Base| {
        packed.iter().any(|(other, data)| *other == file && pack::sha256(data) == base.sha256)
    };
    let over = |other: &Kernel| -> Vec<&'static str> {
        let over = other.parts().into_iter().filter(|(file, part)| {
            part.base.as_ref().is_some_and(|base| base.build_id == kernel.build_id && !is_same(file, base))
        });
        over.map(|(file, _)| file).collect()
    };
    let all: Vec<(Kernel, Vec<&str>)> = index.kernels.iter().map(|other| (other.clone(), over(other))).collect();
    for (mut other, over) in all.into_iter().filter(|(_, over)| !over.is_empty()) {
        let mut files = Vec::new();
        let all = other.clone();
        for (file, part) in all.parts().into_iter().filter(|(_, part)| part.stored > 0) {
            if over.contains(&file) {
                let data = pack::compress(&stored::load(folder, index, &all, file)?, options.level)?;
                let part = other.part_mut(file);
                part.stored = data.len() as u64;
                part.base = None;
                files.push((file, data));
            } else {
                let path = folder.join("buildid").join(&all.build_id).join(part.name(file));
                files.push((part.name(file), fs::read(&path).map_err(io(&path))?));
            }
        }
        let bad = || HubError::Malformed { what: INDEX.to_owned(), why: "a build id in it is not one".into() };
        let id = layout::parse_id(&other.build_id).ok_or_else(bad)?;
        store(folder, &id, &files, options.signer.as_ref())?;
        put(folder, index.clone(), &other, options.signer.as_ref())?;
        index.kernels.retain(|known| known.build_id != other.build_id);
        index.kernels.push(other);
    }
    Ok(())
}

/// Removes a kernel from a hub.
///
/// # Errors
/// [`HubError::IsBase`] if others are stored over it, [`HubError::NotThere`], and those of writing.
pub fn remove(folder: &Path, build_id: &str, signer: Option<&Signer>, progress: &dyn Progress) -> Result<(), HubError> {
    let _lock = Lock::take(folder, "hub", || progress.say("waiting for another siteseer hub"))?;
    let mut index = index(folder)?;
    let over = index.kernels.iter().filter(|other| other.is_over(build_id));
    let others: Vec<String> = over.map(|other| other.build_id.clone()).collect();
    if !others.is_empty() {
        return Err(HubError::IsBase { build_id: build_id.to_owned(), others });
    }
    let id = layout::parse_id(build_id).filter(|_| index.kernels.iter().any(|kernel| kernel.build_id == build_id));
    let place = folder.join("buildid").join(build_id);
    let id = id.ok_or_else(|| HubError::NotThere { url: place.display().to_string() })?;
    index.kernels.retain(|kernel| kernel.build_id != build_id);
    // Who reads the index now does not look for it any more.
    write_index(folder, &index, signer)?;
    let place = folder.join("buildid").join(id.to_string());
    fs::remove_dir_all(&place).map_err(io(&place))
}

/// Checks that a kernel of a hub can be fetched: that its files, and those that they are stored over, are there, and
/// are site files of this kernel and of its modules.
///
/// # Errors
/// [`HubError`] with the first file that is not right.
pub fn check(folder: &Path, index: &Index, kernel: &Kernel) -> Result<(), HubError> {
    let what = |file: &str| format!("{}: {file}", kernel.build_id);
    if kernel.format != PACKED {
        let why = "it is stored as siteseer stored it before files were packed: add it again".into();
        return Err(HubError::Malformed { what: kernel.build_id.clone(), why });
    }
    let limit = crate::http::Limits::default().unpacked;
    let load = |file: &'static str| stored::load(folder, index, kernel, file);
    let image = stored::image(&what(SITES), load(SITES)?, None, limit, || load(BTF))?;
    let id = look(&what(SITES), &image, |file| BuildId(file.build_id().to_vec()))?;
    if id.to_string() != kernel.build_id {
        let ours = layout::parse_id(&kernel.build_id).unwrap_or_default();
        return Err(HubError::Foreign { what: what(SITES), theirs: id, ours });
    }
    if kernel.modules.stored > 0 {
        let modules = stored::modules(&what(MODULES), &load(MODULES)?, &image, limit)?;
        if modules.len() as u64 != kernel.modules.files {
            let why = format!("it has {} modules, and the index says {}", modules.len(), kernel.modules.files);
            return Err(HubError::Malformed { what: what(MODULES), why: why.into() });
        }
    }
    Ok(())
}

/// Puts a kernel into the index.
fn put(folder: &Path, mut index: Index, kernel: &Kernel, signer: Option<&Signer>) -> Result<(), HubError> {
    index.kernels.retain(|other| other.build_id != kernel.build_id);
    index.kernels.push(kernel.clone());
    index.kernels.sort_by(|one, other| (&one.release, &one.build_id).cmp(&(&other.release, &other.build_id)));
    write_index(folder, &index, signer)
}

/// Whether a kernel is there as this release of siteseer would make it, if need be with modules and signatures.
pub(crate) fn has(folder: &Path, kernel: &Kernel, with_modules: bool, signed: bool) -> bool {
    let at = |file: &str| folder.join("buildid").join(&kernel.build_id).join(file);
    let is_there = |file: &str| at(file).is_file() && (!signed || at(&format!("{file}{SIGNATURE}")).is_file());
    let is_there = |file: &'static str| {
        let part = kernel.part(file);
        let base = |base: &Base| folder.join("buildid").join(&base.build_id).join(file).is_file();
        is_there(part.name(file)) && part.base.as_ref().is_none_or(base)
    };
    kernel.encoder == env!("CARGO_PKG_VERSION")
        && kernel.format == PACKED
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

/// The site files of modules.
#[derive(Debug, Default)]
pub(crate) struct EncodedModules {
    /// Each with its name, which is made of the module's build id.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// How many modules could not be encoded.
    pub(crate) left_out: usize,
}

/// Encodes modules.
///
/// # Errors
/// [`HubError::Malformed`] if the kernel's `.BTF` cannot be read.
pub(crate) fn encode_modules(
    files: &[PathBuf],
    btf: &[u8],
    id: &BuildId,
    jobs: Jobs,
    progress: &dyn Progress,
) -> Result<EncodedModules, HubError> {
    if files.is_empty() {
        return Ok(EncodedModules::default());
    }
    let bad = |error: EncodeError| HubError::Malformed { what: format!("kernel {id}"), why: error.into() };
    let types = KernelTypes::new(btf).map_err(bad)?;
    let kernel = BaseKernel { types: &types, build_id: &id.0 };
    progress.begin("modules", Some(files.len() as u64));
    let results = jobs.each(files, |path| one_module(path, kernel), |done| progress.at(done));
    let left_out = results.iter().filter(|result| result.is_err()).count();
    // By path, as the files are: the same module is at the same place in the next release, which is then stored as what
    // is different.
    let mut known = HashSet::new();
    let encoded = results.into_iter().flatten().filter(|(name, _)| known.insert(name.clone())).collect();
    Ok(EncodedModules { files: encoded, left_out })
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
    let is_delta = |kernel: &Kernel| kernel.parts().iter().any(|(_, part)| part.base.is_some());
    // Older releases of siteseer read a hub that has no differences.
    let version = if index.kernels.iter().any(is_delta) { VERSION } else { PACKED };
    let index = &Index { version, ..index.clone() };
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
