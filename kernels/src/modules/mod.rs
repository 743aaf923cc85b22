// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Builds kernel modules for kernels of the matrix.
//!
//! A module fits one kernel: its configuration, its compiler, its symbols' versions. For a kernel of Debian's the
//! packages of headers have all that (they are kept beside the kernel); a kernel that was built here keeps its own
//! tree. The compiler that made the kernel is in the build root of its row. kbuild runs there, with the vmlinux at
//! hand: the modules come out with DWARF, as the kernel has it, and with BTF that is split over the kernel's.
//!
//! All modules are built by one run of kbuild (`make -k M=...`), each in a folder of its own. kbuild makes no module at
//! all if one cannot be compiled, or lacks a symbol: then the ones to blame are built each by itself, so that each gets
//! its own words, and the rest once more together.
//!
//! A module that was built stays in the kernel's folder, in `modules/NAME-KEY`, beside `recipe.json`, which says all
//! that made it: the sources, the kernel, the headers, the compiler. The key is a checksum of the recipe, and the
//! recipe is compared. Failures are not kept. Modules that were not asked for in a week are removed.

mod kbuild;
mod store;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use self::{
    kbuild::Kbuild,
    store::{Recipe, Store},
};
use crate::{
    build,
    buildroot::{self, BuildRoot, BuildRootError},
    debian::headers,
    error::GetError,
    matrix::{self, MatrixError, USUAL_ROOT},
    module_tree::ModuleTree,
    record::KernelPaths,
};

/// A module to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSource {
    /// Its name: a C identifier, as `/proc/modules` shows it.
    pub name: String,
    /// The folder of its sources. All its `.c` and `.S` files are linked, its `.h` files are at hand; the rest, and
    /// folders in it, are not looked at.
    pub folder: PathBuf,
    /// Further words for the C compiler (kbuild's `ccflags-y`).
    pub flags: Vec<String>,
}

/// Why no module could be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModulesError {
    /// A module's name would not do as one.
    #[error("{0:?} cannot be the name of a module: it must be a C identifier")]
    Name(String),
    /// Two modules have one name.
    #[error("there are two modules of the name {0:?}")]
    Twice(String),
    /// A flag would mean something to make.
    #[error("{name}: the compiler flag {flag:?} holds a character that means something to make")]
    Flag {
        /// The module.
        name: String,
        /// The flag.
        flag: String,
    },
    /// A source file cannot be read.
    #[error("module {name}: {path}", path = path.display())]
    Source {
        /// The module.
        name: String,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A module has nothing to compile.
    #[error("module {name}: there is no .c file in {folder}", folder = folder.display())]
    Empty {
        /// The module.
        name: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// What modules for this kernel are built with is not available.
    #[error("cannot get what modules for {kernel} are built with")]
    Headers {
        /// The kernel.
        kernel: String,
        /// Why not.
        #[source]
        error: Box<GetError>,
    },
    /// The kernel's row cannot be read.
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    /// The build root is not available.
    #[error(transparent)]
    BuildRoot(#[from] BuildRootError),
    /// Something else failed on this host.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        #[source]
        error: io::Error,
    },
}

impl ModulesError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> ModulesError {
        let what = what.into();
        move |error| ModulesError::Io { what, error }
    }
}

/// One module could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("module {name}: {reason}\n{log}")]
pub struct ModuleFailure {
    /// Its name.
    pub name: String,
    /// What went wrong, in a few words.
    pub reason: String,
    /// The end of what kbuild said.
    pub log: String,
}

/// Builds modules for a kernel, or finds them in the cache. The results are in the order of `modules`: where each `.ko`
/// is, with DWARF and BTF in it, or why that one could not be built. The first call for a kernel fetches what it takes;
/// the build root is made if it is not there.
///
/// # Errors
/// If nothing can be built: a source that is not there, or something that the build requires is not available.
pub fn build(
    kernel: &KernelPaths,
    modules: &[ModuleSource],
) -> Result<Vec<Result<PathBuf, ModuleFailure>>, ModulesError> {
    let sources = modules.iter().map(Sources::read).collect::<Result<Vec<_>, _>>()?;
    for (index, source) in sources.iter().enumerate() {
        if sources[..index].iter().any(|earlier| earlier.name == source.name) {
            return Err(ModulesError::Twice(source.name.clone()));
        }
    }
    let progress = |line: &str| eprintln!("{line}");
    let root = BuildRoot::get(buildroot::workspace_rows()?.row(&root_of(&kernel.name)?)?, false, progress)?;
    let tree = module_tree(kernel, progress)
        .map_err(|error| ModulesError::Headers { kernel: kernel.name.clone(), error: Box::new(error) })?;
    let store = Store::open(&kernel.directory.join("modules"))?;
    let tools = root.versions()?;
    let recipes: Vec<Recipe> =
        sources.iter().map(|source| Recipe::new(source, kernel, &tree.made_of, &tools)).collect();
    let missing: Vec<&Sources> = sources
        .iter()
        .zip(&recipes)
        .filter(|(_, recipe)| store.find(recipe).is_none())
        .map(|(source, _)| source)
        .collect();
    let mut failures = Vec::new();
    if !missing.is_empty() {
        progress(&format!("{}: building {} modules", kernel.name, missing.len()));
        let kbuild = Kbuild::new(&root, &tree)?;
        for (source, result) in missing.iter().zip(kbuild.build(&missing)?) {
            let recipe = recipes.iter().find(|recipe| recipe.name == source.name);
            match (result, recipe) {
                (Ok(module), Some(recipe)) => store.keep(recipe, &module)?,
                (Err(failure), _) => failures.push(failure),
                (Ok(_), None) => {}
            }
        }
    }
    let results = recipes.iter().map(|recipe| match store.find(recipe) {
        Some(path) => Ok(Ok(path)),
        None => failures.iter().find(|failure| failure.name == recipe.name).cloned().map(Err).ok_or_else(|| {
            ModulesError::io(format!("{} vanished from the cache", recipe.name))(io::ErrorKind::NotFound.into())
        }),
    });
    results.collect()
}

/// The build root that has the compiler of a kernel: what its row says. A kernel without a row has the usual one.
fn root_of(kernel: &str) -> Result<String, MatrixError> {
    match matrix::workspace_matrix()?.row(kernel) {
        Ok(row) => Ok(row.how.root().to_owned()),
        Err(MatrixError::Unknown { .. }) => Ok(USUAL_ROOT.to_owned()),
        Err(error) => Err(error),
    }
}

/// What modules for this kernel are built with; it is fetched if it is not in the cache.
fn module_tree(kernel: &KernelPaths, progress: impl Fn(&str)) -> Result<ModuleTree, GetError> {
    match &kernel.record.build {
        Some(build) => build::module_tree(kernel, build, progress),
        None => headers::module_tree(kernel, progress),
    }
}

/// A module's sources, read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sources {
    name: String,
    /// By file name.
    files: Vec<(String, String)>,
    flags: Vec<String>,
}

impl Sources {
    fn read(module: &ModuleSource) -> Result<Sources, ModulesError> {
        let name = &module.name;
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        // The kernel's limit: MODULE_NAME_LEN (include/linux/module.h) holds 55 characters on 64-bit machines.
        if !is_identifier || name.len() > 55 {
            return Err(ModulesError::Name(name.clone()));
        }
        if let Some(flag) = module.flags.iter().find(|flag| flag.contains(['\n', '$', '#', '\\', '\'', '"', '`', ';']))
        {
            return Err(ModulesError::Flag { name: name.clone(), flag: flag.clone() });
        }
        let error = |path: &Path| {
            let path = path.to_owned();
            move |error| ModulesError::Source { name: name.clone(), path, error }
        };
        let mut files = Vec::new();
        for file in fs::read_dir(&module.folder).map_err(error(&module.folder))? {
            let path = file.map_err(error(&module.folder))?.path();
            let is_source = path.extension().is_some_and(|extension| ["c", "h", "S"].iter().any(|e| extension == *e));
            if let (true, Some(file_name)) = (is_source, path.file_name()) {
                let text = fs::read_to_string(&path).map_err(error(&path))?;
                files.push((file_name.to_string_lossy().into_owned(), text));
            }
        }
        files.sort();
        if !files.iter().any(|(file, _)| file.ends_with(".c")) {
            return Err(ModulesError::Empty { name: name.clone(), folder: module.folder.clone() });
        }
        Ok(Sources { name: name.clone(), files, flags: module.flags.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str, folder: &Path, flags: &[&str]) -> ModuleSource {
        ModuleSource {
            name: name.to_owned(),
            folder: folder.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    #[test]
    fn sources_are_the_c_files_and_what_they_include() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| fs::write(directory.path().join(name), name).unwrap();
        assert!(matches!(Sources::read(&module("m", directory.path(), &[])), Err(ModulesError::Empty { .. })));
        ["b.c", "a.c", "a.h", "notes.md", "x.bpf.o"].iter().for_each(|name| write(name));
        fs::create_dir(directory.path().join("deep")).unwrap();
        let sources = Sources::read(&module("m", directory.path(), &["-DX=1"])).unwrap();
        let names: Vec<_> = sources.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.c", "a.h", "b.c"]);
        let gone = directory.path().join("gone");
        let error = Sources::read(&module("m", &gone, &[])).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
    }

    #[test]
    fn words_that_mean_something_to_make_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.c"), "").unwrap();
        for name in ["", "a-b", "1a", "a/b", "a b", "$(x)"] {
            let error = Sources::read(&module(name, directory.path(), &[])).unwrap_err();
            assert!(matches!(error, ModulesError::Name(_)), "{name}: {error}");
        }
        for flag in ["$(shell x)", "-DX=\"a\"", "a\nb", "#"] {
            let error = Sources::read(&module("a", directory.path(), &[flag])).unwrap_err();
            assert!(matches!(error, ModulesError::Flag { .. }), "{flag}: {error}");
        }
    }
}
