// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site data of modules.
//!
//! In order: the files that the caller names, if one has the module's build id; a site file in a cache folder, by that
//! build id; what the kernel itself provides for it; the module's file with debug information in the usual places: by
//! its build id, and by the path that `modules.dep` has for its name. Only the functions asked for are encoded from
//! DWARF.
//!
//! A module's types continue its kernel's. A site file says which kernel that is, and is of no use with another. The
//! types must be those that the running kernel knows the module by: they are compared with `/sys/kernel/btf/MODULE`,
//! byte by byte.

use super::own::SYSFS;
use super::trust::Chosen;
use super::{
    Bytes, EMBEDDED, Elf, Origin, SiteData, SourceError, SourceOptions, Tried, caches, contents, elf_build_id,
    of_kinds, read_error, reason,
};
use crate::kernel::{BuildId, Kernel, build_id};
use crate::program::section::kernel_name;
use crate::source::modules::{Loaded, known};
use object::{Object, ObjectSection};
use siteseer_sites::btf::{Btf, MAGIC};
use siteseer_sites::file::{FileError, SiteFile, module_kernel};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kernel's types, for modules over them.
#[derive(Debug, Clone)]
pub struct BaseTypes {
    /// Its BTF.
    pub btf: Arc<[u8]>,
    /// The build id of its image; empty if it is not known.
    pub build_id: BuildId,
}

impl BaseTypes {
    /// The running kernel's.
    ///
    /// # Errors
    /// [`SourceError::Read`] if it does not show them.
    pub fn running() -> Result<BaseTypes, SourceError> {
        let path = Path::new("/sys/kernel/btf/vmlinux");
        let btf = fs::read(path).map_err(read_error(path))?.into();
        let notes = Path::new("/sys/kernel/notes");
        let id = build_id(&fs::read(notes).map_err(read_error(notes))?);
        Ok(BaseTypes { btf, build_id: id.unwrap_or_default() })
    }

    /// Those in a file: an ELF file with a `.BTF` section, such as a vmlinux or its site file, or BTF itself.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot be read, or has no BTF.
    pub fn open(path: &Path) -> Result<BaseTypes, SourceError> {
        let bytes = contents(path, Chosen::ByCaller)?;
        if bytes.starts_with(&MAGIC.to_le_bytes()) {
            return Ok(BaseTypes { btf: Arc::from(&*bytes), build_id: BuildId::default() });
        }
        let malformed = |error| SourceError::Malformed { origin: Origin::Encoded(path.to_owned()), error };
        let elf = Elf::parse(&*bytes).map_err(|error| malformed(FileError::Elf(error)))?;
        let section = elf.section_by_name(".BTF").ok_or_else(|| malformed(FileError::NoSection(".BTF")))?;
        let data = section.data().map_err(|error| malformed(FileError::Elf(error)))?;
        Ok(BaseTypes { btf: Arc::from(data), build_id: elf_build_id(&elf) })
    }
}

/// A kernel's types, read.
#[derive(Clone, Copy)]
pub(crate) struct Over<'k, 'a> {
    pub(crate) btf: &'k Btf<'a>,
    /// The same, and the kernel's build id.
    pub(crate) types: &'k BaseTypes,
}

/// Finds the site data of loaded modules.
#[derive(Debug, Clone, Copy)]
pub struct ModuleFinder<'t> {
    pub(crate) options: &'t SourceOptions,
    pub(crate) kernel: &'t Kernel,
}

impl ModuleFinder<'_> {
    /// Finds the site data of a loaded module.
    ///
    /// # Errors
    /// [`SourceError`]; a search that finds nothing says where it looked.
    pub(crate) fn find(&self, module: &Loaded) -> Result<SiteData, SourceError> {
        let Some(id) = known(&module.build_id) else {
            return Err(SourceError::NoModuleBuildId { module: module.name.clone() });
        };
        let mut tried = Vec::new();
        if let Some(embedded) = &self.options.embedded {
            match SiteData::of_subset_module(embedded, self.kernel, module) {
                Ok(data) => return Ok(data),
                Err(error) => tried.push(Tried { path: EMBEDDED.into(), why: reason(&error) }),
            }
        }
        let named = self.options.modules.iter().map(|path| (path.clone(), Chosen::ByCaller));
        for (path, chosen) in named.chain(caches(id).into_iter().map(|path| (path, Chosen::BySearch))) {
            match self.open(&path, id, chosen) {
                Ok(data) => return Ok(data),
                Err(why) => tried.push(Tried { path, why }),
            }
        }
        match SiteData::of_kernels_module(self.kernel, module) {
            Ok(data) => return Ok(data),
            Err(error) => {
                let path = format!("{SYSFS}/{}.inline", module.name).into();
                tried.push(Tried { path, why: reason(&error) });
            }
        }
        for path in places(id, &module.name, &self.kernel.release) {
            match self.open(&path, id, Chosen::BySearch) {
                Ok(data) => return Ok(data),
                Err(why) => tried.push(Tried { path, why }),
            }
        }
        Err(SourceError::ModuleNotFound { module: module.name.clone(), build_id: id.clone(), tried })
    }

    /// Opens a module's file for this kernel. The error says why it does not serve.
    fn open(&self, path: &Path, id: &BuildId, chosen: Chosen) -> Result<SiteData, String> {
        let data = SiteData::open_chosen_module(path, Some(id), self.options.dwarf.reads(chosen), chosen)
            .map_err(|error| reason(&error))?;
        match data.kernel_of_module() {
            Some(theirs) if theirs != self.kernel.build_id => {
                Err(format!("its types are based on those of another kernel (build id {theirs})"))
            }
            _ => Ok(data),
        }
    }
}

impl SiteData {
    /// Opens a file that may hold a module's site data or DWARF. `build_id` is the module's, if it is loaded.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot be read, is of another module, or has no sites.
    pub fn open_module(path: &Path, build_id: Option<&BuildId>, dwarf: bool) -> Result<SiteData, SourceError> {
        SiteData::open_chosen_module(path, build_id, dwarf, Chosen::ByCaller)
    }

    fn open_chosen_module(
        path: &Path,
        build_id: Option<&BuildId>,
        dwarf: bool,
        chosen: Chosen,
    ) -> Result<SiteData, SourceError> {
        let bytes = contents(path, chosen)?;
        let malformed = |error| SourceError::Malformed { origin: Origin::Encoded(path.to_owned()), error };
        let elf = Elf::parse(&*bytes).map_err(|error| malformed(FileError::Elf(error)))?;
        if let Some(ours) = build_id {
            let theirs = elf_build_id(&elf);
            if theirs != *ours {
                return Err(SourceError::Foreign { path: path.to_owned(), theirs, ours: ours.clone() });
            }
        }
        let has = |name| elf.section_by_name(name).is_some();
        // Upstream's kinds alone do not say where a module's sections are: its debug information does.
        if has(".BTF.inline.ext") || has(".BTF.inline") && !has(".debug_info") {
            return match module_kernel(&bytes) {
                Err(error) => Err(malformed(error)),
                Ok(None) => Err(SourceError::NotModule { path: path.to_owned() }),
                Ok(Some(_)) => Ok(SiteData::new(Origin::Encoded(path.to_owned()), Bytes::Encoded(bytes))),
            };
        }
        SiteData::of_dwarf(path, bytes, dwarf, chosen)
    }

    /// The build id of the kernel that a module's encoded data are for, if they say.
    pub fn kernel_of_module(&self) -> Option<BuildId> {
        let Bytes::Encoded(bytes) = &self.bytes else { return None };
        let id = BuildId(module_kernel(bytes).ok()??.to_vec());
        (!id.0.is_empty()).then_some(id)
    }

    /// The name of the module that they are about, as the kernel has it.
    ///
    /// # Errors
    /// [`SourceError`] if they are malformed.
    pub(crate) fn module_name(&self, over: Over<'_, '_>) -> Result<String, SourceError> {
        let named = match &self.bytes {
            // What encoding would find out is in the file.
            Bytes::Dwarf(bytes) => modinfo_name(bytes),
            _ => self.read_over(over, &[], |file| file.module().map(|module| module.name.to_owned()))?,
        };
        let stem = || match &self.origin {
            Origin::Encoded(path) | Origin::Dwarf(path) => path.file_name()?.to_str()?.split('.').next(),
            Origin::KernelModule(path) => path.file_stem()?.to_str(),
            Origin::Kernel | Origin::Embedded | Origin::Nothing => None,
        };
        let name = named.filter(|name| !name.is_empty());
        Ok(kernel_name(&name.or_else(|| stem().map(str::to_owned)).unwrap_or_default()))
    }

    /// Reads a module's, as [`SiteData::read`] does an image's.
    ///
    /// # Errors
    /// [`SourceError`] if they are malformed, or are not over the types of this kernel.
    pub(crate) fn read_over<R>(
        &self,
        over: Over<'_, '_>,
        functions: &[&str],
        with: impl FnOnce(&SiteFile<'_>) -> R,
    ) -> Result<R, SourceError> {
        let malformed = |error| SourceError::Malformed { origin: self.origin.clone(), error };
        let read = |file: Result<SiteFile<'_>, FileError>| {
            let file = file.map_err(malformed)?;
            let result = with(&file);
            file.whole().map_err(malformed)?;
            Ok(result)
        };
        match &self.bytes {
            Bytes::Encoded(bytes) => {
                if let (Some(theirs), Some(ours)) = (self.kernel_of_module(), known(&over.types.build_id))
                    && theirs != *ours
                {
                    return Err(SourceError::OtherKernel { origin: self.origin.clone(), theirs, ours: ours.clone() });
                }
                read(SiteFile::parse_module(bytes, over.btf))
            }
            Bytes::Dwarf(image) => {
                let bytes = self.encoded(image, functions, Some(over.types))?;
                read(SiteFile::parse_module(&bytes, over.btf))
            }
            Bytes::Kernel { inline, btf, image } => {
                let own = Btf::parse_split(btf, over.btf).map_err(SourceError::KernelBtf)?;
                read(of_kinds(inline.as_deref(), &own, image))
            }
        }
    }
}

/// The module's name in its `.modinfo` section.
fn modinfo_name(image: &[u8]) -> Option<String> {
    let elf = Elf::parse(image).ok()?;
    let section = elf.section_by_name(".modinfo")?.data().ok()?;
    let name = section.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(b"name="))?;
    std::str::from_utf8(name).ok().map(str::to_owned)
}

/// Where a module's file with debug information is looked for.
fn places(id: &BuildId, name: &str, release: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let text = id.to_string();
    if let Some((folder, rest)) = text.split_at_checked(2) {
        places.push(format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug").into());
    }
    let folder = Path::new("/lib/modules").join(release);
    let listed = fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
    // The debug file beside a compressed module is not compressed.
    let paths = module_paths(&listed, name)
        .map(|path| path.trim_end_matches(".xz").trim_end_matches(".zst").trim_end_matches(".gz"));
    for path in paths {
        let debug = Path::new("/usr/lib/debug/lib/modules").join(release);
        places.extend([debug.join(path), debug.join(format!("{path}.debug")), folder.join(path)]);
    }
    places
}

/// The paths that `modules.dep` lists for a module: lines of `path: dependencies`.
fn module_paths<'l>(listing: &'l str, name: &'l str) -> impl Iterator<Item = &'l str> {
    listing.lines().filter_map(|line| line.split_once(':')).map(|(path, _)| path).filter(move |path| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.split_once(".ko").is_some_and(|(stem, _)| kernel_name(stem) == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::btf::SplitBtf;
    use siteseer_sites::{Machine, SiteSet};

    #[test]
    fn an_images_file_is_not_a_modules() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.sites");
        std::fs::write(&path, image()).unwrap();
        let error = SiteData::open_module(&path, None, true).unwrap_err();
        assert!(matches!(error, SourceError::NotModule { .. }), "{error}");
        let other = BuildId(vec![7]);
        let error = SiteData::open_module(&path, Some(&other), true).unwrap_err();
        assert!(matches!(error, SourceError::Foreign { .. }), "{error}");
        let types = BaseTypes::open(&path).unwrap();
        assert_eq!(types.build_id, BuildId(vec![1, 2]));
        std::fs::write(&path, &types.btf).unwrap();
        assert_eq!(BaseTypes::open(&path).unwrap().btf, types.btf, "BTF by itself");
        assert!(matches!(SiteData::open_module(&path, None, true), Err(SourceError::Malformed { .. })));
    }

    /// A site file of an image without sites.
    fn image() -> Vec<u8> {
        let base_btf = SplitBtf::standalone().to_bytes();
        let base = Btf::parse(&base_btf).unwrap();
        let set = SiteSet {
            module: None,
            machine: Machine::X86_64,
            build_id: vec![1, 2],
            base: 0x1000,
            types: SplitBtf::new(&base),
            sections: Vec::new(),
            functions: Vec::new(),
            prototypes: Vec::new(),
            containers: Vec::new(),
            files: Vec::new(),
            sites: Vec::new(),
            base_btf: base_btf.clone(),
        };
        siteseer_sites::file::write(&set).unwrap()
    }

    // Proves S2.11.
    #[test]
    fn paths_of_a_module() {
        let listing = "kernel/net/8021q/8021q.ko.xz: kernel/net/802/mrp.ko.xz\n\
                       kernel/drivers/block/loop.ko.zst:\n\
                       updates/dkms/snd-loop.ko: kernel/loop.ko\n\
                       rubbish\n";
        assert_eq!(module_paths(listing, "loop").collect::<Vec<_>>(), ["kernel/drivers/block/loop.ko.zst"]);
        assert_eq!(module_paths(listing, "snd_loop").collect::<Vec<_>>(), ["updates/dkms/snd-loop.ko"]);
        assert_eq!(module_paths(listing, "none").count(), 0);
    }
}
