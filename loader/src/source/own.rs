// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kernel's own site data: what it was built with, in `/sys/kernel/btf`.
//!
//! A kernel with CONFIG_DEBUG_INFO_BTF_INLINE has `vmlinux.inline`, and `MODULE.inline` for its modules. Where the data
//! of the image are a module themselves (`btf_vmlinux_inline`), reading the file loads it. A module that was built
//! outside of the kernel's tree has its sites in `MODULE`, among its types.
//!
//! A LOCSEC is named for a section of the image, and its offsets count from where that section is now. For the image,
//! only symbols tell where that is; for a module, sysfs does. What a module's address constants are relative to is not
//! settled: they count as unknown.
//!
//! Only upstream's kinds are in these data. They do not say that a copy may be passed by, or why an argument is
//! missing.

use super::{Bytes, Elf, Origin, SiteData, SourceError, read_error};
use crate::kernel::Kernel;
use crate::source::modules::Loaded;
use object::Object;
use siteseer_sites::btf::Btf;
use siteseer_sites::file::{Image, SiteFile, has_sites};
use siteseer_sites::set::Section;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the kernel has its BTF.
pub(super) const SYSFS: &str = "/sys/kernel/btf";

/// The kernel's own site data of its image.
pub(super) const KERNEL_INLINE: &str = "/sys/kernel/btf/vmlinux.inline";

/// The addresses that the kernel's own site data is relative to.
#[derive(Debug, Clone, Copy)]
pub struct RunTime {
    /// `_text`.
    pub text: u64,
    /// `_stext`: where `.text` begins.
    pub stext: u64,
    /// `_sinittext`: where `.init.text` began; `None` if there is no such symbol.
    pub init: Option<u64>,
}

impl RunTime {
    /// The sections of the image that symbols locate.
    fn sections(self) -> Vec<Section> {
        let section = |name: &str, address| Section { name: name.to_owned(), address, size: 0 };
        let init = self.init.map(|address| section(".init.text", address));
        [section(".text", self.stext)].into_iter().chain(init).collect()
    }
}

/// Reads a file of split BTF with sites.
fn read_inline(path: &Path) -> Result<Vec<u8>, SourceError> {
    let data = std::fs::read(path).map_err(|error| not_there(path, error))?;
    if data.is_empty() || (data.starts_with(&siteseer_sites::btf::MAGIC.to_le_bytes()) && !has_sites(&data)) {
        let why = "there are no sites in it: the kernel was built with CONFIG_DEBUG_INFO_BTF_INLINE, by a pahole that \
            does not support it";
        return Err(SourceError::NotInKernel { path: path.to_owned(), why });
    }
    Ok(data)
}

/// What it means that the file cannot be read.
fn not_there(path: &Path, error: io::Error) -> SourceError {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT) => "not there: the kernel was built without CONFIG_DEBUG_INFO_BTF_INLINE",
        Some(libc::ENODEV) => "the kernel cannot load its module btf_vmlinux_inline, which has the data",
        _ => return read_error(path)(error),
    };
    SourceError::NotInKernel { path: path.to_owned(), why }
}

impl SiteData {
    /// The kernel's own, of its image.
    pub(super) fn of_kernel(kernel: &Kernel, at: RunTime) -> Result<SiteData, SourceError> {
        Self::of_image_in(Path::new(SYSFS), kernel, at)
    }

    fn of_image_in(folder: &Path, kernel: &Kernel, at: RunTime) -> Result<SiteData, SourceError> {
        let inline = read_inline(&folder.join("vmlinux.inline"))?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the kernel has no BTF");
        let btf = kernel.btf.clone().ok_or_else(|| read_error(&folder.join("vmlinux"))(missing()))?;
        let image = Image {
            machine: kernel.machine,
            build_id: kernel.build_id.0.clone(),
            base_address: Some(at.text),
            sections: at.sections(),
        };
        let base = Btf::parse(&btf).map_err(SourceError::KernelBtf)?;
        let opened = SiteFile::from_inline(&inline, &base, image.clone());
        opened.map_err(|error| SourceError::Malformed { origin: Origin::Kernel, error })?;
        drop(base);
        Ok(SiteData::new(Origin::Kernel, Bytes::Kernel { inline: Some(inline), btf, image }))
    }

    /// The kernel's own, of a loaded module.
    pub(super) fn of_kernels_module(kernel: &Kernel, module: &Loaded) -> Result<SiteData, SourceError> {
        Self::of_module_in(Path::new(SYSFS), kernel, module)
    }

    fn of_module_in(folder: &Path, kernel: &Kernel, module: &Loaded) -> Result<SiteData, SourceError> {
        let own = folder.join(&module.name);
        let path = PathBuf::from(format!("{}.inline", own.display()));
        let (inline, path) = match read_inline(&path) {
            Ok(inline) => (Some(inline), path),
            Err(error) => match std::fs::read(&own) {
                Ok(btf) if has_sites(&btf) => (None, own.clone()),
                _ => return Err(error),
            },
        };
        let btf: Arc<[u8]> = std::fs::read(&own).map_err(read_error(&own))?.into();
        let section = |(name, &address): (&String, &u64)| Section { name: name.clone(), address, size: 0 };
        let image = Image {
            machine: kernel.machine,
            build_id: module.build_id.0.clone(),
            base_address: None,
            sections: module.sections.iter().map(section).collect(),
        };
        Ok(SiteData::new(Origin::KernelModule(path), Bytes::Kernel { inline, btf, image }))
    }

    /// What a report should say about data that have upstream's kinds alone.
    pub(crate) fn note_of_lacking(&self) -> Option<String> {
        if *self.origin() == Origin::Nothing {
            let note = "there is no site data: only symbols with the function's name are traced, and calls of inlined copies are missed \
                        (siteseer fetch gets site data)";
            return Some(note.to_owned());
        }
        (!self.is_complete()).then(|| {
            format!(
                "the site data ({}) has upstream's kinds only: which inlined copies may be passed by or counted twice \
                 is not known, nor why an argument is missing",
                self.origin()
            )
        })
    }

    /// Whether they have what siteseer's own have.
    fn is_complete(&self) -> bool {
        match &self.bytes {
            Bytes::Kernel { .. } => false,
            Bytes::Dwarf(_) => true,
            Bytes::Encoded(bytes) => {
                Elf::parse(&**bytes).is_ok_and(|elf| elf.section_by_name(".BTF.inline.ext").is_some())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::kernel;
    use super::*;
    use crate::kernel::BuildId;
    use siteseer_sites::btf::{IntEncoding, Linkage, LocsecEntry, SplitBtf, loc_flags};
    use siteseer_sites::location::{Location, Missing};
    use siteseer_sites::site::Unprobeable;
    use std::collections::BTreeMap;
    use std::fs;

    const AT: RunTime = RunTime { text: 0x1000, stext: 0x2000, init: Some(0x8000) };

    /// BTF with a function of one parameter, and where its FUNC is.
    fn types() -> (Vec<u8>, u32) {
        let mut b = SplitBtf::standalone();
        let int = b.int("int", 4, 32, IntEncoding::SIGNED);
        let proto = b.func_proto(int, &[("only", int)], false);
        let func = b.func("foo", proto, Linkage::Static);
        (b.to_bytes(), func)
    }

    /// A site of the function in each of the sections, the parameter being an address constant.
    fn add_sites(b: &mut SplitBtf, func: u32, sections: &[&str]) {
        let param = b.loc_param(4, loc_flags::CONST | loc_flags::ADDR, &[0x10]);
        let proto = b.loc_proto(&[param]);
        for section in sections {
            b.locsec(section, &[LocsecEntry::new(func, proto, 0x40)]);
        }
    }

    fn why(error: SourceError) -> String {
        assert!(matches!(error, SourceError::NotInKernel { .. }), "{error}");
        error.to_string()
    }

    // Proves S2.15.
    #[test]
    fn the_images_own() {
        let folder = tempfile::tempdir().unwrap();
        let (btf, func) = types();
        let kernel = Kernel { btf: Some(btf.clone().into()), ..kernel() };
        let find = || SiteData::of_image_in(folder.path(), &kernel, AT);
        let path = folder.path().join("vmlinux.inline");
        let error = find().unwrap_err();
        assert!(matches!(error, SourceError::NotInKernel { .. }), "{error}");
        assert!(error.to_string().contains("built without CONFIG_DEBUG_INFO_BTF_INLINE"), "{error}");
        let base = Btf::parse(&btf).unwrap();
        let empty = SplitBtf::new(&base);
        for nothing in [vec![], empty.to_bytes()] {
            fs::write(&path, nothing).unwrap();
            assert!(why(find().unwrap_err()).contains("there are no sites in it"));
        }
        fs::write(&path, [0xeb, 0x9f, 1, 0, 0, 0, 0, 24]).unwrap();
        let error = find().unwrap_err();
        assert!(matches!(error, SourceError::Malformed { .. }), "{error}");
        assert!(!error.to_string().contains("no sites"), "{error}");
        let mut sites = empty.clone();
        add_sites(&mut sites, func, &["inline.text", "inline.init.text", "inline.strange.text"]);
        fs::write(&path, sites.to_bytes()).unwrap();
        let data = find().unwrap();
        assert!(data.is_run_time());
        assert!(data.note_of_lacking().unwrap().contains("vmlinux.inline"));
        let told = data.read(&[], |file| {
            assert!(!file.is_complete());
            let site = |site: siteseer_sites::file::SiteRef<'_, '_>| {
                let at = site.arguments().unwrap().remove(0).unwrap().at;
                (site.section().name.to_owned(), site.address(), site.unprobeable(), at)
            };
            file.sites().map(|found| site(found.unwrap())).collect::<Vec<_>>()
        });
        let at = Location::Address(0x1010);
        assert_eq!(
            told.unwrap(),
            [
                (".text".to_owned(), 0x2040, None, at.clone()),
                (".init.text".to_owned(), 0x8040, Some(Unprobeable::Init), at.clone()),
                (".strange.text".to_owned(), 0x40, Some(Unprobeable::Unplaced), at),
            ]
        );
    }

    #[test]
    fn errors_of_the_kernel_are_told_apart() {
        let path = Path::new(KERNEL_INLINE);
        let of = |number| not_there(path, io::Error::from_raw_os_error(number));
        assert!(why(of(libc::ENODEV)).contains("cannot load its module btf_vmlinux_inline"));
        assert!(why(of(libc::ENOENT)).contains("CONFIG_DEBUG_INFO_BTF_INLINE"));
        assert!(matches!(of(libc::EACCES), SourceError::Read { .. }));
    }

    #[test]
    fn a_modules_own() {
        let folder = tempfile::tempdir().unwrap();
        let (btf, func) = types();
        let kernel = Kernel { btf: Some(btf.clone().into()), ..kernel() };
        let base = Btf::parse(&btf).unwrap();
        let sections = BTreeMap::from([(".text".to_owned(), 0xffff_0000)]);
        let module = Loaded { name: "a_module".to_owned(), instance: 1, build_id: BuildId(vec![1]), sections };
        let find = || SiteData::of_module_in(folder.path(), &kernel, &module);
        assert!(why(find().unwrap_err()).contains("a_module.inline"));
        let mut own = SplitBtf::new(&base);
        let pointer = own.modifier(siteseer_sites::btf::Kind::Ptr, 1);
        let types = own.to_bytes();
        fs::write(folder.path().join("a_module"), &types).unwrap();
        assert!(why(find().unwrap_err()).contains("built without"));

        let check = |data: SiteData, expected: &str| {
            assert!(data.origin().to_string().ends_with(expected), "{}", data.origin());
            let over = super::super::BaseTypes { btf: btf.clone().into(), build_id: BuildId::default() };
            let over = super::super::Over { btf: &base, types: &over };
            let told = data.read_over(over, &[], |file| {
                let site = file.functions("foo").unwrap()[0].sites().next().unwrap().unwrap();
                (site.address(), site.arguments().unwrap())
            });
            // What the constant is relative to is not known.
            assert_eq!(told.unwrap(), (0xffff_0040, vec![Err(Missing::Unsupported)]));
        };
        // Built outside of the tree: among the module's own types.
        add_sites(&mut own, func, &["inline.text"]);
        fs::write(folder.path().join("a_module"), own.to_bytes()).unwrap();
        check(find().unwrap(), "a_module");
        // Split off.
        fs::write(folder.path().join("a_module"), &types).unwrap();
        let module_types = Btf::parse_split(&types, &base).unwrap();
        assert_eq!(module_types.end_id(), pointer + 1);
        let mut split = SplitBtf::new(&module_types);
        add_sites(&mut split, func, &[".text"]);
        fs::write(folder.path().join("a_module.inline"), split.to_bytes()).unwrap();
        check(find().unwrap(), "a_module.inline");
    }
}
