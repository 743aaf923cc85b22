// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a site file stores for a name: functions, symbols, types. Each is a binary search.

use super::function::FunctionRef;
use super::read::{FileError, SiteFile};
use super::site::ContainerRef;
use crate::btf::{Kind, TypeId};

impl<'a> SiteFile<'a> {
    /// The functions of a name: several if their prototypes differ, none if there is none.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn functions(&self, name: &str) -> Result<Vec<FunctionRef<'_, 'a>>, FileError> {
        let count = self.function_count();
        let less = |nth: usize| Ok(self.function(nth as u32)?.name().as_bytes() < name.as_bytes());
        let first = lower_bound(count as usize, less)? as u32;
        let mut found = Vec::new();
        for nth in first..count {
            let function = self.function(nth)?;
            if function.name() != name {
                break;
            }
            found.push(function);
        }
        Ok(found)
    }

    /// The functions' names, sorted, each once. Damaged ones are left out.
    pub fn function_names(&self) -> impl Iterator<Item = &'a str> + '_ {
        let mut last = None;
        self.all_functions().filter_map(move |function| {
            let name = function.ok()?.name();
            (last.replace(name) != Some(name)).then_some(name)
        })
    }

    /// The functions whose names begin with the given text, in the order of their names.
    ///
    /// # Errors
    /// If data on the way are damaged; then the iterator's item is the error, or there is no iterator.
    pub fn functions_from<'f>(
        &'f self,
        prefix: &'f str,
    ) -> Result<impl Iterator<Item = Result<FunctionRef<'f, 'a>, FileError>> + 'f, FileError> {
        let count = self.function_count();
        let less = |nth: usize| Ok(self.function(nth as u32)?.name().as_bytes() < prefix.as_bytes());
        let first = lower_bound(count as usize, less)? as u32;
        let begins = move |function: &Result<FunctionRef<'_, 'a>, FileError>| {
            function.as_ref().map_or(true, |function| function.name().starts_with(prefix))
        };
        Ok((first..count).map(|nth| self.function(nth)).take_while(begins))
    }

    /// The out-of-line symbols whose names begin with the given text, by name, then by address. None without the
    /// companion section.
    ///
    /// # Errors
    /// As [`SiteFile::functions_from`].
    pub fn containers_from<'f>(
        &'f self,
        prefix: &'f str,
    ) -> Result<impl Iterator<Item = Result<ContainerRef<'a>, FileError>> + 'f, FileError> {
        let count = self.ext.map_or(0, |ext| ext.container_names.len());
        let less = |nth: usize| Ok(self.named_container(nth)?.name.as_bytes() < prefix.as_bytes());
        let first = lower_bound(count, less)?;
        let begins = move |container: &Result<ContainerRef<'a>, FileError>| {
            container.as_ref().map_or(true, |container| container.name.starts_with(prefix))
        };
        Ok((first..count).map(|nth| self.named_container(nth)).take_while(begins))
    }

    /// The nth out-of-line symbol in the order of names.
    fn named_container(&self, nth: usize) -> Result<ContainerRef<'a>, FileError> {
        let place = self.ext.and_then(|ext| {
            let index = self.row(ext.container_names, nth)?;
            self.row(ext.containers, index.get() as usize)
        });
        let container = place.and_then(|raw| ContainerRef::read(self, raw));
        container.ok_or(FileError::Corrupt { what: "container name", index: nth as u32 })
    }

    /// Names like one that is not there, the likeliest first, at most so many.
    pub fn nearest_names(&self, name: &str, count: usize) -> Vec<&'a str> {
        super::nearest::nearest(self.function_names(), name, count)
    }

    /// The out-of-line symbols that have the name, or are made from it: `foo`, `foo.isra.0`, `foo.cold`. By name, then
    /// by address. None without the companion section.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn containers_of(&self, name: &str) -> Result<Vec<ContainerRef<'a>>, FileError> {
        let Some(ext) = &self.ext else { return Ok(Vec::new()) };
        let at = |nth: usize| self.named_container(nth);
        let mut found = Vec::new();
        // Between `foo` and `foo.isra.0` there may be others: `foo$x`.
        let prefix = format!("{name}.");
        for (from, is_made) in [(name, false), (prefix.as_str(), true)] {
            let first = lower_bound(ext.container_names.len(), |nth| Ok(at(nth)?.name.as_bytes() < from.as_bytes()))?;
            for nth in first..ext.container_names.len() {
                let container = at(nth)?;
                if !(container.name == name || is_made && container.name.starts_with(from)) {
                    break;
                }
                found.push(container);
            }
        }
        self.whole()?;
        Ok(found)
    }

    /// The FUNCs of exactly that name in the image's own BTF, in order. A walk of that BTF without the companion
    /// section.
    ///
    /// # Errors
    /// If data on the way are damaged.
    pub fn base_functions(&self, name: &str) -> Result<Vec<TypeId>, FileError> {
        let Some(ext) = &self.ext else {
            return Ok(self.base.named(Kind::Func, name).map(|ty| ty.id()).collect());
        };
        let at = |nth: usize| -> Result<(TypeId, &'a str), FileError> {
            let id = self.row(ext.base_functions, nth).map(|id| id.get());
            let ty = id.and_then(|id| self.base.ty(id)).filter(|ty| ty.kind() == Kind::Func);
            let ty = ty.ok_or(FileError::Corrupt { what: "base function", index: nth as u32 })?;
            Ok((ty.id(), ty.name()))
        };
        let count = ext.base_functions.len();
        let mut found = Vec::new();
        for nth in lower_bound(count, |nth| Ok(at(nth)?.1.as_bytes() < name.as_bytes()))?..count {
            let (id, its) = at(nth)?;
            if its != name {
                break;
            }
            found.push(id);
        }
        self.whole()?;
        Ok(found)
    }
}

/// The first of so many places in order that is not less than what is looked for.
fn lower_bound(count: usize, is_less: impl Fn(usize) -> Result<bool, FileError>) -> Result<usize, FileError> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_less(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
