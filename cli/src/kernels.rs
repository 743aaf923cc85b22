// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The kernels that a command compares: site files, and folders of them, each image with its modules' files.

use crate::Failure;
use crate::output::tell;
use siteseer::Target;
use siteseer::internals::kernel::BuildId;
use siteseer::internals::source::{Origin, SiteData, SourceError};
use siteseer_sites::Machine;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A kernel's image, and the files of its modules.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What tells it from the others: what is particular in its path.
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) build_id: BuildId,
    pub(crate) machine: Machine,
    modules: Vec<PathBuf>,
}

impl Kernel {
    /// The files of its modules.
    pub(crate) fn modules(&self) -> &[PathBuf] {
        &self.modules
    }

    /// Opens it, for as long as questions about it are asked.
    pub(crate) fn open(&self) -> Result<Target, Failure> {
        let open = |path: &PathBuf| SiteData::open_module(path, None, true);
        let modules = self.modules.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Target::image(SiteData::open(&self.file, None, true)?)?.with_modules(modules)?)
    }
}

/// The kernels of files and folders, in their order; those of a folder in that of their paths, 6.9 before 6.12.
pub(crate) fn find(given: &[PathBuf]) -> Result<Vec<Kernel>, Failure> {
    let mut files = Vec::new();
    for path in given {
        if path.is_dir() {
            let before = files.len();
            add_folder(path, &mut files)?;
            if files.len() == before {
                return Err(format!("{}: no site files (*.sites) in this folder", path.display()).into());
            }
            files[before..].sort_by(|one, other| natural(&one.to_string_lossy(), &other.to_string_lossy()));
        } else {
            files.push(path.clone());
        }
    }
    let (mut kernels, mut modules): (Vec<Kernel>, Vec<(PathBuf, BuildId)>) = (Vec::new(), Vec::new());
    for file in files {
        if let Some(kernel) = module_kernel(&file)? {
            modules.push((file, kernel));
            continue;
        }
        let (machine, build_id) = SiteData::open(&file, None, true)?.image()?;
        let is_same = |kernel: &&Kernel| kernel.build_id == build_id && !build_id.0.is_empty();
        if let Some(known) = kernels.iter().find(is_same) {
            tell!("{}: the same kernel as {}: left out", file.display(), known.file.display());
            continue;
        }
        kernels.push(Kernel { name: String::new(), file, build_id, machine, modules: Vec::new() });
    }
    for (file, id) in modules {
        match kernels.iter_mut().find(|kernel| kernel.build_id == id) {
            Some(kernel) => kernel.modules.push(file),
            None => {
                let file = file.display();
                return Err(format!(
                    "{file}: a module of the kernel with build id {id}: give the image of this kernel too"
                )
                .into());
            }
        }
    }
    let names = names(&kernels.iter().map(|kernel| kernel.file.as_path()).collect::<Vec<_>>());
    kernels.iter_mut().zip(names).for_each(|(kernel, name)| kernel.name = name);
    Ok(kernels)
}

/// The kernel that a file's module is for; `None` for an image's file.
fn module_kernel(file: &Path) -> Result<Option<BuildId>, Failure> {
    match SiteData::open_module(file, None, true) {
        Ok(data) => match data.origin() {
            // Debug information does not say what it is of before it is read; a module's file has its name.
            Origin::Dwarf(_) if file.extension() == Some(OsStr::new("ko")) => {
                let file = file.display();
                Err(format!("{file}: a module's debug information: encode it (siteseer encode {file} --base VMLINUX)")
                    .into())
            }
            Origin::Dwarf(_) => Ok(None),
            _ => match data.kernel_of_module() {
                Some(id) => Ok(Some(id)),
                None => {
                    Err(format!("{}: site data of a module that does not say which kernel it is for", file.display())
                        .into())
                }
            },
        },
        Err(SourceError::NotModule { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The site files below a folder. Links are followed to files, and not to folders, which might lead back.
fn add_folder(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            add_folder(&path, files)?;
        } else if path.extension() == Some(OsStr::new("sites")) {
            files.push(path);
        }
    }
    Ok(())
}

/// Compares numbers in texts as numbers.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    let number = |text: &str| -> usize { text.bytes().take_while(u8::is_ascii_digit).count() };
    loop {
        let (Some(a), Some(b)) = (one.chars().next(), other.chars().next()) else { return one.len().cmp(&other.len()) };
        let order = match (number(one), number(other)) {
            (m, n) if m > 0 && n > 0 => {
                let ((x, rest), (y, others)) = (one.split_at(m), other.split_at(n));
                (one, other) = (rest, others);
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                x.len().cmp(&y.len()).then_with(|| x.cmp(y))
            }
            _ => {
                (one, other) = (&one[a.len_utf8()..], &other[b.len_utf8()..]);
                a.cmp(&b)
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Names that tell files apart: their paths without what is the same in all at the beginning and the end.
fn names(files: &[&Path]) -> Vec<String> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    for file in files {
        let file =
            if file.extension() == Some(OsStr::new("sites")) { file.with_extension("") } else { file.to_path_buf() };
        paths.push(file.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect());
    }
    let shortest = paths.iter().map(Vec::len).min().unwrap_or(0);
    let is_same = |at: &dyn Fn(&Vec<String>) -> Option<String>| {
        paths.first().is_some_and(|first| paths.iter().all(|path| at(path) == at(first)))
    };
    let mut front = (0..shortest.saturating_sub(1)).take_while(|&nth| is_same(&|path| path.get(nth).cloned())).count();
    let most = shortest.saturating_sub(front + 1);
    let mut back = (0..most).take_while(|&nth| is_same(&|path| path.iter().rev().nth(nth).cloned())).count();
    // Of one file everything is the same.
    if paths.len() == 1 {
        (front, back) = (shortest.saturating_sub(1), 0);
    }
    paths.iter().map(|path| path[front..path.len() - back].join("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_particular() {
        let named = |files: &[&str]| names(&files.iter().map(Path::new).collect::<Vec<_>>());
        assert_eq!(named(&["a/6.1.sites", "a/6.12.sites"]), ["6.1", "6.12"]);
        assert_eq!(named(&["/a/6.1/vmlinux.sites", "/a/6.12/vmlinux.sites"]), ["6.1", "6.12"]);
        assert_eq!(named(&["/a/x/one/f.sites", "/a/y/f.sites"]), ["x/one", "y"]);
        assert_eq!(named(&["/a/6.12.3"]), ["6.12.3"]);
        assert_eq!(named(&["vmlinux", "old/vmlinux"]), ["vmlinux", "old/vmlinux"]);
        assert_eq!(named(&[]), [""; 0]);
    }

    #[test]
    fn numbers_are_in_their_order() {
        let mut names = ["7.3", "6.12-2", "6.9", "6.12-10", "6.12", "6.012-1"];
        names.sort_by(|one, other| natural(one, other));
        assert_eq!(names, ["6.9", "6.12", "6.012-1", "6.12-2", "6.12-10", "7.3"]);
    }
}
