// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The site data of a kernel's image and of its modules, all open at once: for whoever has addresses, and not names of
//! functions.

use super::{Target, TargetError};
use crate::source::placement::Placement;
use siteseer_sites::file::SiteFile;
use std::sync::Arc;

/// Site data that are open, and where what they are about lies.
#[derive(Debug, Clone)]
pub struct Opened<'f> {
    /// The module; `None` for the kernel's image.
    pub module: Option<Arc<str>>,
    /// The site data.
    pub file: &'f SiteFile<'f>,
    /// Where the image or module lies.
    pub placement: Placement,
}

impl Target {
    /// Opens the site data of the image and of modules, and calls `with` once. The image comes first; a module whose
    /// site data cannot be opened is left out
    /// ([`Modules::without_data`](crate::source::modules::Modules::without_data)).
    ///
    /// # Errors
    /// If the image's site data cannot be read, or it is not known where the image lies.
    #[doc(hidden)]
    pub fn opened<R>(
        &self,
        modules: impl IntoIterator<Item = Arc<str>>,
        mut with: impl FnMut(&[Opened<'_>]) -> R,
    ) -> Result<R, TargetError> {
        let modules: Vec<Arc<str>> = modules.into_iter().collect();
        self.data.read(&[], |file| -> Result<R, TargetError> {
            let displacement = if self.own_symbols { 0 } else { self.displacement(file)? };
            let image = Opened { module: None, file, placement: Placement::Whole(displacement) };
            Ok(self.open_rest(&modules, file, &[image], &mut with))
        })?
    }

    /// Opens one module after the other: each stays open as long as the next ones are.
    fn open_rest<R>(
        &self,
        modules: &[Arc<str>],
        image: &SiteFile<'_>,
        opened: &[Opened<'_>],
        with: &mut dyn FnMut(&[Opened<'_>]) -> R,
    ) -> R {
        let Some((module, rest)) = modules.split_first() else { return with(opened) };
        let found = self.with_module(module, &[], image, |file, data| {
            let mut all: Vec<Opened<'_>> = opened.to_vec();
            all.push(Opened { module: Some(Arc::clone(module)), file, placement: data.placement(file) });
            self.open_rest(rest, image, &all, with)
        });
        found.unwrap_or_else(|why| {
            self.modules.note(module, &why);
            self.open_rest(rest, image, opened, with)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SiteData;
    use siteseer_sites::btf::{Btf, SplitBtf};
    use siteseer_sites::{Machine, SiteSet};

    #[test]
    fn the_image_is_open_and_what_is_not_loaded_is_left_out() {
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.sites");
        std::fs::write(&path, siteseer_sites::file::write(&set).unwrap()).unwrap();
        let target = Target::image(SiteData::open(&path, None, false).unwrap()).unwrap();
        let opened = target.opened([Arc::from("absent")], |opened| {
            let of = |one: &Opened<'_>| (one.module.clone(), one.placement.run_time(0x1000), one.file.base_address());
            opened.iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(opened.unwrap(), [(None, Some(0x1000), 0x1000)]);
    }
}
