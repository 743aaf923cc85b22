// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The modules of a kernel that Debian built, with debug information: they are in the package that the vmlinux came
//! from.
//!
//! All of them are gigabytes. Some are unpacked, at even distances in the order of their paths, and they are not kept.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{suite::Suite, unpack};
use crate::{
    error::GetError,
    lock::lock,
    partial::{self, check_space},
    record::KernelPaths,
};

/// Modules of a kernel. Their files are removed when this is dropped.
#[derive(Debug)]
pub struct DebugModules {
    /// The files, in the order of their paths in the package.
    pub files: Vec<PathBuf>,
    /// How many the package has.
    pub all: usize,
    _folder: TempDir,
}

/// Fetches the package of debug information again, and unpacks at most so many modules of it. `None` for a kernel that
/// was not built by Debian.
///
/// # Errors
/// If the package is no longer in the suite, or cannot be fetched or unpacked.
pub fn debug_modules(
    kernel: &KernelPaths,
    most: usize,
    progress: impl Fn(&str),
) -> Result<Option<DebugModules>, GetError> {
    let record = &kernel.record;
    let debug = record.packages.iter().find(|package| package.name.ends_with("-dbg"));
    let (None, Some(debug)) = (&record.build, debug) else { return Ok(None) };
    let place = kernel.directory.parent().unwrap_or(&kernel.directory);
    let _lock = lock(&place.join("lock"), || progress(&format!("{}: waiting for another run", kernel.name)))?;
    let suite = Suite::read(place, &record.suite, record.arch)?;
    let package = suite.find(&debug.name, Some(&debug.version))?;
    check_space(place, package.size * 2)?;
    progress(&format!("{}: fetching the modules' debug information", kernel.name));
    let file = suite.fetch(&package)?;
    let mut names: Vec<String> = unpack::list(&file)?
        .into_iter()
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == "ko"))
        .collect();
    names.sort();
    let chosen: Vec<&str> = at_even_distances(&names, most).collect();
    let folder = tempfile::Builder::new()
        .prefix(partial::PREFIX)
        .tempdir_in(place)
        .map_err(|error| GetError::disk(place, format!("cannot make a folder in {}", place.display()), error))?;
    progress(&format!("{}: unpacking {} of {} modules", kernel.name, chosen.len(), names.len()));
    unpack::unpack_some(&file, &chosen, folder.path())?;
    suite.discard_downloads();
    let files = chosen.iter().map(|name| folder.path().join(name)).collect();
    Ok(Some(DebugModules { files, all: names.len(), _folder: folder }))
}

/// At most so many, from the whole length.
fn at_even_distances(names: &[String], most: usize) -> impl Iterator<Item = &str> {
    let count = most.min(names.len());
    (0..count).filter_map(move |nth| Some(names.get(nth * names.len() / count)?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_many() {
        let names: Vec<String> = (0..10).map(|nth| nth.to_string()).collect();
        let some = |most| at_even_distances(&names, most).collect::<Vec<_>>();
        assert_eq!(some(3), ["0", "3", "6"]);
        assert_eq!(some(10).len(), 10);
        assert_eq!(some(100).len(), 10);
        assert_eq!(at_even_distances(&[], 3).count(), 0);
    }
}
