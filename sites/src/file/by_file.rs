// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a site file stores about a source file.
//!
//! It says where functions with sites of their own were declared. It says nothing directly of a symbol that is not a
//! site; but most functions have something inlined into them, and where that was called is in the function's own source
//! file.

use super::ext::{Ext, NONE24, from24};
use super::function::FunctionRef;
use super::read::{FileError, SiteFile};
use super::site::{ContainerRef, Source};
use crate::site::SiteKind;
use zerocopy::IntoBytes;

impl<'a> SiteFile<'a> {
    /// The names of the source files. Damaged ones are left out; none without the companion section.
    pub fn source_files(&self) -> impl Iterator<Item = &'a str> + '_ {
        let table = self.ext.map_or(&[][..], |ext| ext.files);
        (0..table.len()).filter_map(|nth| self.string(self.row(table, nth)?.get()))
    }

    /// Which source files are meant, by their numbers.
    fn files_meant(&self, ext: &Ext<'a>, is_meant: impl Fn(&str) -> bool) -> Vec<bool> {
        let name = |nth| self.row(ext.files, nth).and_then(|name| self.string(name.get()));
        (0..ext.files.len()).map(|nth| name(nth).is_some_and(&is_meant)).collect()
    }

    /// The out-of-line symbols whose own code, not that of a copy inlined into it, calls something that was inlined
    /// there, in a source file that is meant. By address. None without the companion section.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn containers_in(&self, is_meant: impl Fn(&str) -> bool) -> Result<Vec<ContainerRef<'a>>, FileError> {
        let Some(ext) = self.ext else { return Ok(Vec::new()) };
        let meant = self.files_meant(&ext, is_meant);
        // All of them are looked at: checked together they cost a fraction.
        self.touch(ext.sites.as_bytes());
        self.touch(ext.details.as_bytes());
        self.whole()?;
        let mut found = vec![false; ext.containers.len()];
        for (nth, raw) in (0u32..).zip(ext.sites) {
            let corrupt = || FileError::corrupt("site", nth);
            let file = from24(raw.file);
            if raw.parent.get() != 0 || file == NONE24 || !*meant.get(file as usize).ok_or_else(corrupt)? {
                continue;
            }
            let details = ext.details.get(raw.details.get() as usize).ok_or_else(corrupt)?;
            if SiteKind::from_code(details.kind) == Some(SiteKind::Inline) {
                *found.get_mut(raw.container.get() as usize).ok_or_else(corrupt)? = true;
            }
        }
        let containers = (0u32..).zip(found).filter(|&(_, found)| found).map(|(nth, _)| {
            let container = self.row(ext.containers, nth as usize).and_then(|raw| ContainerRef::read(self, raw));
            container.ok_or(FileError::corrupt("container", nth))
        });
        let containers = containers.collect::<Result<Vec<_>, _>>()?;
        self.whole()?;
        Ok(containers)
    }

    /// The functions that a source file declares that is meant, in the order of their names. None without the companion
    /// section.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn functions_in(&self, is_meant: impl Fn(&str) -> bool) -> Result<Vec<FunctionRef<'_, 'a>>, FileError> {
        let Some(ext) = self.ext else { return Ok(Vec::new()) };
        let meant = self.files_meant(&ext, is_meant);
        self.touch(ext.declarations.as_bytes());
        self.touch(ext.functions.as_bytes());
        self.whole()?;
        let mut found: Vec<u32> = Vec::new();
        for (nth, raw) in (0u32..).zip(ext.declarations) {
            if meant.get(raw.file.get() as usize) == Some(&true) {
                // The last function whose declarations begin here or before: those that have none share their first
                // with the next.
                let after = ext.functions.partition_point(|function| function.declarations.get() <= nth);
                let function = after.checked_sub(1).ok_or(FileError::corrupt("declaration", nth))?;
                found.push(function as u32);
            }
        }
        found.dedup();
        found.into_iter().map(|nth| self.function(nth)).collect()
    }

    /// A declaration; `None` if its file is not known.
    pub(super) fn declaration(&self, nth: u32) -> Result<Option<Source<'a>>, FileError> {
        let corrupt = || FileError::corrupt("declaration", nth);
        let ext = self.ext.ok_or_else(corrupt)?;
        let raw = self.row(ext.declarations, nth as usize).ok_or_else(corrupt)?;
        let declared = super::site::source_of_declaration(self, &ext, raw).ok_or_else(corrupt)?;
        self.whole()?;
        Ok(declared)
    }
}
