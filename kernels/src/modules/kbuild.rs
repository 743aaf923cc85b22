// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Runs kbuild for modules, and finds out which of them is to blame when it fails.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use object::{Object, ReadCache};
use tempfile::TempDir;

use super::{ModuleFailure, ModulesError, Sources};
use crate::{
    buildroot::{BuildRoot, Mount},
    log::last_lines,
    module_tree::ModuleTree,
};

/// Where the build root has the folder of a build.
const INSIDE: &str = "/build/modules";

/// How much of a log a failure shows.
const SHOWN_LINES: usize = 30;

/// kbuild for one kernel.
pub(super) struct Kbuild<'a> {
    root: &'a BuildRoot,
    tree: &'a ModuleTree,
    /// Each run has a folder in it.
    directory: TempDir,
}

/// What a run made.
struct Run {
    directory: PathBuf,
    is_success: bool,
    log: String,
}

impl Run {
    /// Where a module is, if it was made.
    fn module(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory.join(name).join(format!("{name}.ko"))).filter(|path| path.is_file())
    }
}

impl<'a> Kbuild<'a> {
    pub(super) fn new(root: &'a BuildRoot, tree: &'a ModuleTree) -> Result<Kbuild<'a>, ModulesError> {
        let directory = tempfile::Builder::new()
            .prefix("siteseer-modules-")
            .tempdir()
            .map_err(ModulesError::io("cannot make a temporary folder"))?;
        Ok(Kbuild { root, tree, directory })
    }

    /// Builds all, and says about each where it is or what is wrong with it. The files live as long as this.
    pub(super) fn build(&self, modules: &[&Sources]) -> Result<Vec<Result<PathBuf, ModuleFailure>>, ModulesError> {
        let together = self.run("together", modules)?;
        let suspects: Vec<&Sources> = match blamed(&together, modules) {
            blamed if together.is_success => blamed,
            // It failed, and nothing says at which.
            blamed if blamed.is_empty() => modules.to_vec(),
            blamed => blamed,
        };
        let rest: Vec<&Sources> = modules.iter().copied().filter(|module| !suspects.contains(module)).collect();
        let again = match rest.as_slice() {
            rest if together.is_success || rest.is_empty() => together,
            rest => self.run("again", rest)?,
        };
        let mut results = Vec::new();
        for module in modules {
            let run = match again.module(&module.name) {
                Some(_) if rest.contains(module) => &again,
                _ => &self.run(&format!("alone-{}", module.name), &[module])?,
            };
            results.push(check(run, &module.name, self.tree.resolves_btf_ids));
        }
        Ok(results)
    }

    /// Runs kbuild in a folder of its own.
    fn run(&self, name: &str, modules: &[&Sources]) -> Result<Run, ModulesError> {
        let directory = self.directory.path().join(name);
        let write = || -> io::Result<()> {
            for (path, text) in kbuild_files(modules) {
                let path = directory.join(path);
                fs::create_dir_all(path.parent().unwrap_or(&directory))?;
                fs::write(path, text)?;
            }
            Ok(())
        };
        write().map_err(ModulesError::io(format!("cannot write to {}", directory.display())))?;
        let mut mounts: Vec<Mount<'_>> =
            self.tree.mounts.iter().map(|(host, inside)| Mount::read_only(host, inside)).collect();
        mounts.push(Mount::writable(&directory, INSIDE));
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let words = ["make".to_owned(), "-k".to_owned(), format!("-j{jobs}"), format!("M={INSIDE}")];
        let words: Vec<&OsStr> = words.iter().chain(&self.tree.arguments).map(OsStr::new).collect();
        let environment = [("LC_ALL".to_owned(), "C".to_owned())];
        let output = self
            .root
            .command(&mounts, &environment, &words)
            .output()
            .map_err(ModulesError::io("cannot run unshare"))?;
        // kbuild tells what it does on one stream and what is wrong on the other; both are short.
        let log = [&output.stdout, &output.stderr].map(|stream| String::from_utf8_lossy(stream).into_owned()).concat();
        Ok(Run { directory, is_success: output.status.success(), log })
    }
}

/// The files of a build, by their path in its folder.
fn kbuild_files(modules: &[&Sources]) -> Vec<(PathBuf, String)> {
    let folders: Vec<String> = modules.iter().map(|module| format!(" {}/", module.name)).collect();
    let mut files = vec![(PathBuf::from("Kbuild"), format!("obj-m +={}\n", folders.concat()))];
    for Sources { name, files: sources, flags } in modules {
        // In a folder of their own, as a module of several objects must not have one of its own name.
        let objects: Vec<String> = sources
            .iter()
            .filter_map(|(file, _)| file.strip_suffix(".c").or_else(|| file.strip_suffix(".S")))
            .map(|stem| format!(" src/{stem}.o"))
            .collect();
        let text = format!("obj-m := {name}.o\n{name}-y :={}\nccflags-y := {}\n", objects.concat(), flags.join(" "));
        files.push((Path::new(name).join("Kbuild"), text));
        files.extend(sources.iter().map(|(file, text)| (Path::new(name).join("src").join(file), text.clone())));
    }
    files
}

/// The modules that a run failed at: those that could not be linked, and those that modpost names.
fn blamed<'a>(run: &Run, modules: &[&'a Sources]) -> Vec<&'a Sources> {
    let is_blamed = |module: &&&Sources| {
        let name = &module.name;
        !run.directory.join(name).join(format!("{name}.o")).is_file()
            || run.log.lines().any(|line| line.contains("ERROR: modpost:") && line.contains(&format!("{name}.ko]")))
    };
    modules.iter().filter(is_blamed).copied().collect()
}

/// Whether a module came out as it must be.
fn check(run: &Run, name: &str, resolves_btf_ids: bool) -> Result<PathBuf, ModuleFailure> {
    let failure =
        |reason: String| ModuleFailure { name: name.to_owned(), reason, log: last_lines(&run.log, SHOWN_LINES) };
    let path = run.module(name).ok_or_else(|| failure("it cannot be built".to_owned()))?;
    let missing = File::open(&path).map_err(|error| error.to_string()).and_then(|file| {
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let has = |section| file.section_by_name(section).is_some();
        if !resolves_btf_ids && has(".BTF_ids") {
            return Ok(Some("resolved BTF ids: its kernel's packages lack the program for it"));
        }
        Ok([".BTF", ".debug_info"].into_iter().find(|section| !has(section)))
    });
    match missing {
        Ok(None) => Ok(path),
        Ok(Some(what)) => Err(failure(format!("it came out without {what}"))),
        Err(error) => Err(failure(format!("what came out cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(name: &str) -> Sources {
        Sources {
            name: name.to_owned(),
            files: vec![
                (format!("{name}.c"), "int x;".to_owned()),
                ("b.S".to_owned(), String::new()),
                ("c.h".to_owned(), String::new()),
            ],
            flags: vec!["-O2".to_owned(), "-DX".to_owned()],
        }
    }

    #[test]
    fn each_module_has_a_folder_and_its_objects_another() {
        let files = kbuild_files(&[&sources("one"), &sources("two")]);
        let text = |path: &str| &files.iter().find(|(file, _)| file == Path::new(path)).unwrap().1;
        assert_eq!(text("Kbuild"), "obj-m += one/ two/\n");
        assert_eq!(text("two/Kbuild"), "obj-m := two.o\ntwo-y := src/two.o src/b.o\nccflags-y := -O2 -DX\n");
        assert_eq!(text("one/src/one.c"), "int x;");
        assert!(files.iter().any(|(file, _)| file == Path::new("one/src/c.h")));
    }

    #[test]
    fn those_that_did_not_link_and_those_that_lack_a_symbol_are_to_blame() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join(format!("{name}.o")), "").unwrap();
        }
        let run = |log: &str| Run { directory: directory.path().to_owned(), is_success: false, log: log.to_owned() };
        let all = [&sources("one"), &sources("two"), &sources("three")];
        let names = |run| blamed(&run, &all).iter().map(|module| module.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(run("")), ["three"]);
        let log = "ERROR: modpost: \"nothing\" [/build/modules/two/two.ko] undefined!\n";
        assert_eq!(names(run(log)), ["two", "three"]);
        let failure = check(&run(log), "two", true).unwrap_err();
        assert!(failure.to_string().contains("nothing"), "{failure}");
    }

    #[test]
    fn what_is_no_module_is_not_taken_for_one() {
        let directory = tempfile::tempdir().unwrap();
        let run = Run { directory: directory.path().to_owned(), is_success: true, log: String::new() };
        fs::create_dir(directory.path().join("m")).unwrap();
        let module = directory.path().join("m/m.ko");
        fs::write(&module, "nonsense").unwrap();
        assert!(check(&run, "m", true).unwrap_err().reason.contains("cannot be read"));
        // An ELF file that is not a module: it has no BTF.
        fs::copy(std::env::current_exe().unwrap(), &module).unwrap();
        assert!(check(&run, "m", true).unwrap_err().reason.contains(".BTF"));
    }
}
