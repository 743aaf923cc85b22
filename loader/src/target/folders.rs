// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which functions of the image are inlined, by the folder of their source.
//!
//! A function counts for the file that declares it. The site data names that file for functions with inlined copies.
//! For others it says what was inlined into them, and in which file that was called. The folder of a function with
//! neither is not known. Functions of one name count as one.

use super::Target;
use super::error::TargetError;
use super::function::is_fragment;
use siteseer_sites::SiteKind;
use siteseer_sites::file::{FileError, SiteFile};
use std::collections::{BTreeMap, HashMap};

/// The functions of one folder of the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folder {
    /// The folder, without a `/` at its end; `None` for functions without a known folder.
    pub path: Option<String>,
    /// How many functions have only inlined copies: no symbol has their names.
    pub wholly: usize,
    /// How many have inlined copies and a symbol.
    pub partly: usize,
    /// How many have a symbol alone.
    pub never: usize,
}

impl Folder {
    /// All its functions.
    pub fn functions(&self) -> usize {
        self.wholly + self.partly + self.never
    }
}

impl Target {
    /// All folders of the image's source, by path; functions without one come first.
    ///
    /// # Errors
    /// [`TargetError::Source`] if the site data cannot be read.
    #[doc(hidden)]
    pub fn folders(&self) -> Result<Vec<Folder>, TargetError> {
        self.data.read(&[], folders)?.map_err(|error| self.damaged(error))
    }
}

/// What is known of the functions of one name.
#[derive(Default)]
struct Known<'a> {
    inlined: bool,
    symbol: bool,
    folder: Option<&'a str>,
}

fn folders(file: &SiteFile<'_>) -> Result<Vec<Folder>, FileError> {
    // Without it no site has a kind, and every function would count as not inlined.
    if !file.is_complete() {
        return Err(FileError::NoSection(".BTF.inline.ext"));
    }
    let mut functions: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    // Where the code of a symbol calls what was inlined there.
    let mut callers: HashMap<u64, &str> = HashMap::new();
    for function in file.all_functions() {
        let function = function?;
        // What the compiler left of a function is not a function of its own.
        if function.name().contains('.') {
            continue;
        }
        let known = functions.entry(function.name()).or_default();
        if known.folder.is_none()
            && let Some(declared) = function.declared().next()
        {
            known.folder = Some(folder(declared?.file));
        }
        for site in function.sites() {
            let site = site?;
            let is_inlined = site.kind() == Some(SiteKind::Inline);
            known.inlined |= is_inlined;
            known.symbol |= !is_inlined;
            if is_inlined
                && site.parent().is_none()
                && let (Some(holder), Some(source)) = (site.container(), site.source())
            {
                callers.entry(holder.address).or_insert(folder(source.file));
            }
        }
    }
    for holder in file.containers().filter(|holder| !is_fragment(holder.name)) {
        // What begins with a dot is a label of assembly.
        let Some(name) = base_name(holder.name) else { continue };
        let known = functions.entry(name).or_default();
        known.symbol = true;
        known.folder = known.folder.or_else(|| callers.get(&holder.address).copied());
    }
    file.whole()?;
    let mut found: BTreeMap<Option<&str>, Folder> = BTreeMap::new();
    // The site data may name a function that has no code left.
    for known in functions.values().filter(|known| known.inlined || known.symbol) {
        let folder = found.entry(known.folder).or_default();
        match (known.inlined, known.symbol) {
            (true, false) => folder.wholly += 1,
            (true, true) => folder.partly += 1,
            (false, _) => folder.never += 1,
        }
    }
    let named = |(path, folder): (Option<&str>, Folder)| Folder { path: path.map(str::to_owned), ..folder };
    Ok(found.into_iter().map(named).collect())
}

/// The name in the source: clones have more after a dot.
fn base_name(name: &str) -> Option<&str> {
    name.split('.').next().filter(|name| !name.is_empty())
}

/// The folder of a file; that of the whole source is `.`.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or(".", |(folder, _)| folder).trim_start_matches("./")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_folders() {
        assert_eq!([base_name("foo.isra.0"), base_name("foo"), base_name(".x")], [Some("foo"), Some("foo"), None]);
        assert_eq!((folder("./include/linux/fs.h"), folder("fs/open.c"), folder("x.c")), ("include/linux", "fs", "."));
    }
}
