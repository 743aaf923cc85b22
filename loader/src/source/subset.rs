// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Site data that the application brings along: a subset of the site data of many kernels (`siteseer subset`).
//!
//! The running kernel is found in it by its build id. The subset refers to the types of the kernel's BTF. It stores the
//! length and the checksum of that BTF, and is joined with it here; from then on it is a site file like any other, in
//! memory.
//!
//! A subset knows the functions that its maker asked for, and no others. To look for another in it finds nothing, and
//! nothing found is inlined copies missed silently: so whoever asks for a function asks first whether the subset is
//! about it ([`SiteData::check_asked`]).

use super::own::SYSFS;
use super::trust::Contents;
use super::{Bytes, Origin, SiteData, SourceError, read_error};
use crate::kernel::Kernel;
use crate::program::pattern::Pattern;
use crate::program::section::{Wanted, kernel_name};
use crate::source::modules::Loaded;
use siteseer_sites::btf::{Btf, BtfError};
use siteseer_sites::file;
use siteseer_sites::subset::{Subset, SubsetError};
use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// A subset of site data, in memory: of the application's image, or a copy.
#[derive(Clone)]
pub(crate) struct Embedded(Arc<Cow<'static, [u8]>>);

impl Deref for Embedded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl<B: Into<Cow<'static, [u8]>>> From<B> for Embedded {
    fn from(bytes: B) -> Embedded {
        Embedded(Arc::new(bytes.into()))
    }
}

/// Which functions a subset is about.
#[derive(Debug)]
pub(super) struct Asked(Vec<Pattern>);

impl Asked {
    fn of(subset: &Subset<'_>) -> Result<Asked, SubsetError> {
        // What is not a pattern to this release stands for nothing.
        Ok(Asked(subset.asked()?.into_iter().filter_map(|text| text.parse().ok()).collect()))
    }

    /// Whether all is known about a name, in a module or wherever it is.
    fn has_name(&self, module: Option<&str>, name: &str) -> bool {
        self.0.iter().any(|pattern| {
            let everywhere = pattern.module().is_none();
            let there = everywhere || module.is_some_and(|module| pattern.in_module(&kernel_name(module)));
            // A pattern stands for names without what the compiler appends, unless it has such itself.
            let dotted = pattern.function().to_string().contains('.');
            there && !pattern.has_file() && pattern.is_of(name) && (dotted || !name.contains('.'))
        })
    }

    /// Whether all is known that a pattern stands for: if the very same was asked for.
    fn has_pattern(&self, wanted: &Pattern) -> bool {
        self.0.contains(wanted)
    }
}

impl SiteData {
    /// What a subset says about the running kernel.
    pub(super) fn of_subset(embedded: &Embedded, kernel: &Kernel) -> Result<SiteData, SourceError> {
        let btf = kernel.btf.as_deref().ok_or(SourceError::KernelBtf(BtfError::TruncatedHeader(0)))?;
        Self::joined(embedded, &kernel.build_id.0, btf, None)
    }

    /// What a subset says about a loaded module.
    pub(super) fn of_subset_module(
        embedded: &Embedded,
        kernel: &Kernel,
        module: &Loaded,
    ) -> Result<SiteData, SourceError> {
        Self::of_subset_module_in(Path::new(SYSFS), embedded, kernel, module)
    }

    fn of_subset_module_in(
        folder: &Path,
        embedded: &Embedded,
        kernel: &Kernel,
        module: &Loaded,
    ) -> Result<SiteData, SourceError> {
        let path = folder.join(&module.name);
        let btf = kernel.btf.as_deref().ok_or(SourceError::KernelBtf(BtfError::TruncatedHeader(0)))?;
        let base = Btf::parse(btf).map_err(SourceError::KernelBtf)?;
        let own = fs::read(&path).map_err(read_error(&path))?;
        Self::joined(embedded, &module.build_id.0, &own, Some(&base))
    }

    fn joined(
        embedded: &Embedded,
        build_id: &[u8],
        btf: &[u8],
        kernel: Option<&Btf<'_>>,
    ) -> Result<SiteData, SourceError> {
        let subset = Subset::parse(embedded)?;
        let Some(image) = subset.find(build_id)? else { return Err(SourceError::NotInSubset { images: subset.len() }) };
        let data = file::write(&image.site_set(btf, kernel)?).map_err(SubsetError::from)?;
        let asked = Asked::of(&subset)?;
        Ok(SiteData { asked: Some(asked), ..SiteData::new(Origin::Embedded, Bytes::Encoded(Contents::Copied(data))) })
    }

    /// Whether they are about some functions alone.
    pub(crate) fn is_subset(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether they are about functions that are looked up.
    ///
    /// # Errors
    /// [`SourceError::NotAsked`].
    pub(crate) fn check_asked(&self, wanted: &[Wanted]) -> Result<(), SourceError> {
        let Some(asked) = &self.asked else { return Ok(()) };
        let name = |wanted: &Wanted| wanted.function.clone().unwrap_or_default();
        match wanted.iter().find(|wanted| !asked.has_name(wanted.module.as_deref(), &name(wanted))) {
            Some(wanted) => Err(SourceError::NotAsked { function: name(wanted) }),
            None => Ok(()),
        }
    }

    /// The same for patterns.
    ///
    /// # Errors
    /// [`SourceError::NotAsked`].
    pub(crate) fn check_patterns(&self, patterns: &[Pattern]) -> Result<(), SourceError> {
        let Some(asked) = &self.asked else { return Ok(()) };
        let known = |pattern: &&Pattern| {
            let module = pattern.module().filter(|module| module.is_literal()).map(ToString::to_string);
            let is_whole = pattern.module().is_none() || module.is_some();
            let by_name = || asked.has_name(module.as_deref(), &pattern.function().to_string());
            asked.has_pattern(pattern) || pattern.is_name() && is_whole && by_name()
        };
        match patterns.iter().find(|pattern| !known(pattern)) {
            Some(pattern) => Err(SourceError::NotAsked { function: pattern.to_string() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RunTime, SourceOptions};
    use super::*;
    use crate::kernel::BuildId;
    use siteseer_sites::btf::{Linkage, SplitBtf};
    use siteseer_sites::file::SiteFile;
    use siteseer_sites::set::{Container, Function, Module, Section};
    use siteseer_sites::site::{Marks, Site, SiteKind, SourceLine};
    use siteseer_sites::subset::SubsetWriter;
    use siteseer_sites::{Machine, SiteSet};
    use std::collections::BTreeMap;

    /// A site file with `foo` and `other`, each inlined once, of an image or of a module over its types.
    fn site_file(build_id: u8, module: Option<&[u8]>) -> Vec<u8> {
        let mut own = SplitBtf::standalone();
        let proto = own.func_proto::<&str>(0, &[], false);
        let funcs = ["foo", "other"].map(|name| own.func(name, proto, Linkage::Static));
        let image_btf = own.to_bytes();
        let image = Btf::parse(&image_btf).unwrap();
        let mut of_module = SplitBtf::new(&image);
        let modules = ["foo", "other"].map(|name| of_module.func(name, proto, Linkage::Global));
        let module_btf = of_module.to_bytes();
        let base = Btf::parse_split(&module_btf, &image).unwrap();
        let site = |function: u32| Site {
            function,
            kind: SiteKind::Inline,
            address: 0x10100 + u64::from(function),
            moved: 0,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks: Marks::default(),
            unprobeable: None,
        };
        let section = Section { name: ".text".to_owned(), address: 0x10000, size: 0x1000 };
        let funcs = if module.is_some() { modules } else { funcs };
        let function =
            |(name, func): (&str, u32)| Function { name: name.to_owned(), func, parameters: 0, variadic: false };
        let set = SiteSet {
            machine: Machine::X86_64,
            build_id: vec![build_id; 3],
            base: 0x10000,
            types: if module.is_some() { SplitBtf::new(&base) } else { SplitBtf::new(&image) },
            sections: vec![section.clone()],
            functions: ["foo", "other"].into_iter().zip(funcs).map(function).collect(),
            prototypes: vec![Box::default()],
            containers: vec![Container { name: "caller".to_owned(), address: 0x10100, size: 8, unprobeable: None }],
            files: Vec::new(),
            sites: vec![site(0), site(1)],
            module: module.map(|kernel| Module {
                name: "a_module".to_owned(),
                kernel_build_id: kernel.to_vec(),
                loaded: vec![section],
            }),
            base_btf: if module.is_some() { module_btf.clone() } else { image_btf.clone() },
        };
        file::write(&set).unwrap()
    }

    fn btf_of(data: &[u8], kernel: Option<&Btf<'_>>) -> Vec<u8> {
        let file = match kernel {
            Some(kernel) => SiteFile::parse_module(data, kernel),
            None => SiteFile::parse(data),
        };
        file.unwrap().base_btf_bytes().unwrap().to_vec()
    }

    fn wanted(text: &str) -> Vec<Wanted> {
        vec![Wanted::parse(text).unwrap()]
    }

    #[test]
    fn a_kernel_and_a_module_of_a_subset() {
        let (image, module) = (site_file(1, None), site_file(2, Some(&[1; 3])));
        let btf = btf_of(&image, None);
        let base = Btf::parse(&btf).unwrap();
        let mut writer = SubsetWriter::new(["foo", "vfs_*", "ext4:bar"]);
        writer.add(&SiteFile::parse(&image).unwrap(), ["foo"]).unwrap();
        writer.add(&SiteFile::parse_module(&module, &base).unwrap(), ["foo"]).unwrap();
        let embedded = Embedded::from(writer.finish().unwrap());
        let kernel =
            Kernel { build_id: BuildId(vec![1; 3]), btf: Some(btf.clone().into()), ..super::super::tests::kernel() };
        let options = SourceOptions { embedded: Some(embedded.clone()), ..SourceOptions::default() };
        let at = RunTime { text: 0, stext: 0, init: None };
        let data = SiteData::find(&options, &kernel, at).unwrap();
        assert_eq!((data.origin(), data.is_subset(), data.is_run_time()), (&Origin::Embedded, true, false));
        let sites = data.read(&["foo"], |file| {
            let sites: Vec<u64> =
                file.functions("foo").unwrap()[0].sites().map(|site| site.unwrap().address()).collect();
            (sites, file.function_count())
        });
        assert_eq!(sites.unwrap(), (vec![0x10100], 1));
        // What it is about.
        for known in ["foo", "vfs_read", "ext4:bar", "ext4:foo"] {
            data.check_asked(&wanted(known)).unwrap();
        }
        for unknown in ["other", "bar", "xfs:bar", "vfs_read.isra.0"] {
            let error = data.check_asked(&wanted(unknown)).unwrap_err();
            assert!(matches!(error, SourceError::NotAsked { .. }), "{error}");
        }
        let pattern = |text: &str| [text.parse::<Pattern>().unwrap()];
        for known in ["foo", "vfs_*", "vfs_read", "ext4:bar"] {
            data.check_patterns(&pattern(known)).unwrap();
        }
        for unknown in ["vfs_r*", "*", "ext4:*", "foo@x.c", "e*:foo"] {
            assert!(data.check_patterns(&pattern(unknown)).is_err(), "{unknown}");
        }
        // The module, over the types that sysfs provides for it.
        let folder = tempfile::tempdir().unwrap();
        let loaded = Loaded {
            name: "a_module".to_owned(),
            instance: 1,
            build_id: BuildId(vec![2; 3]),
            sections: BTreeMap::new(),
        };
        let find = |loaded: &Loaded| SiteData::of_subset_module_in(folder.path(), &embedded, &kernel, loaded);
        assert!(matches!(find(&loaded), Err(SourceError::Read { .. })));
        fs::write(folder.path().join("a_module"), btf_of(&module, Some(&base))).unwrap();
        let data = find(&loaded).unwrap();
        assert_eq!(data.kernel_of_module(), Some(kernel.build_id.clone()));
        let other = find(&Loaded { build_id: BuildId(vec![9; 3]), ..loaded }).unwrap_err();
        assert!(matches!(other, SourceError::NotInSubset { images: 2 }), "{other}");
    }

    #[test]
    fn what_a_subset_cannot_be_used_for() {
        let image = site_file(1, None);
        let mut writer = SubsetWriter::new(["foo"]);
        writer.add(&SiteFile::parse(&image).unwrap(), ["foo"]).unwrap();
        let mut data = writer.finish().unwrap();
        let kernel = Kernel { build_id: BuildId(vec![1; 3]), ..super::super::tests::kernel() };
        let at = RunTime { text: 0, stext: 0, init: None };
        let find = |embedded: Embedded, kernel: &Kernel| {
            let options = SourceOptions { embedded: Some(embedded), ..SourceOptions::default() };
            SiteData::find(&options, kernel, at).unwrap_err()
        };
        let error = find(Embedded::from(data.clone()), &kernel);
        assert!(matches!(error, SourceError::KernelBtf(_)), "{error}");
        // Another kernel's: the search goes on, and says so.
        let btf: Arc<[u8]> = btf_of(&image, None).into();
        let other = Kernel { build_id: BuildId(vec![7; 3]), btf: Some(Arc::clone(&btf)), ..kernel.clone() };
        let error = find(Embedded::from(data.clone()), &other);
        assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
        assert!(error.to_string().contains("the application's own: none for this kernel among those of 1"), "{error}");
        // Of this build id, over other types.
        let changed: Arc<[u8]> = [&btf[..], &[0]].concat().into();
        let error = find(Embedded::from(data.clone()), &Kernel { btf: Some(changed), ..kernel.clone() });
        assert!(matches!(error, SourceError::Subset(SubsetError::OtherTypes { .. })), "{error}");
        // What is damaged is not passed over: it is the application's, and would never serve.
        let last = data.len() - 1;
        data[last] ^= 1;
        let error = find(Embedded::from(data), &Kernel { btf: Some(btf), ..kernel.clone() });
        assert!(matches!(error, SourceError::Subset(SubsetError::Damaged { .. })), "{error}");
        let error = find(Embedded::from(&b"hello"[..]), &Kernel { btf: Some(vec![0].into()), ..kernel });
        assert!(matches!(error, SourceError::Subset(SubsetError::Magic)), "{error}");
    }
}
