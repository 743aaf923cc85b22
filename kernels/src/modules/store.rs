// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Where modules that were built are kept.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::{ModulesError, Sources};
use crate::record::KernelPaths;

/// A module that was not asked for this long is removed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// All that a module is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recipe {
    pub(super) name: String,
    files: Vec<(String, String)>,
    flags: Vec<String>,
    build_id: String,
    made_of: String,
    tools: BTreeMap<String, String>,
}

impl Recipe {
    /// `made_of` stands for what the kernel's side brings; the tools are packages and their versions.
    pub(super) fn new(
        source: &Sources,
        kernel: &KernelPaths,
        made_of: &str,
        tools: &BTreeMap<String, String>,
    ) -> Recipe {
        Recipe {
            name: source.name.clone(),
            files: source.files.clone(),
            flags: source.flags.clone(),
            build_id: kernel.record.build_id.clone(),
            made_of: made_of.to_owned(),
            tools: tools.clone(),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, ModulesError> {
        serde_json::to_vec_pretty(self).map_err(|error| ModulesError::io("cannot write a recipe")(error.into()))
    }
}

/// The folder of a kernel's modules.
pub(super) struct Store {
    directory: PathBuf,
}

impl Store {
    /// Makes the folder if need be, and removes what nobody has asked for.
    pub(super) fn open(directory: &Path) -> Result<Store, ModulesError> {
        fs::create_dir_all(directory).map_err(ModulesError::io(format!("cannot make {}", directory.display())))?;
        let store = Store { directory: directory.to_owned() };
        store.remove_unused(SystemTime::now());
        Ok(store)
    }

    fn entry(&self, recipe: &Recipe, bytes: &[u8]) -> PathBuf {
        self.directory.join(format!("{}-{:08x}", recipe.name, crc32fast::hash(bytes)))
    }

    /// The module that this recipe makes, if it is here.
    pub(super) fn find(&self, recipe: &Recipe) -> Option<PathBuf> {
        let bytes = recipe.bytes().ok()?;
        let entry = self.entry(recipe, &bytes);
        let recipe_path = entry.join("recipe.json");
        if fs::read(&recipe_path).ok()? != bytes {
            return None;
        }
        // Its time says when it was last asked for. A cache that cannot be written to does not need to know.
        let _ = File::options().append(true).open(recipe_path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(entry.join(format!("{}.ko", recipe.name))).filter(|path| path.is_file())
    }

    /// Keeps a module: complete or not at all.
    pub(super) fn keep(&self, recipe: &Recipe, module: &Path) -> Result<(), ModulesError> {
        let bytes = recipe.bytes()?;
        let entry = self.entry(recipe, &bytes);
        let write = || {
            let temporary = tempfile::Builder::new().prefix(".new-").tempdir_in(&self.directory)?;
            fs::copy(module, temporary.path().join(format!("{}.ko", recipe.name)))?;
            fs::write(temporary.path().join("recipe.json"), &bytes)?;
            fs::set_permissions(temporary.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            match fs::rename(temporary.path(), &entry) {
                Ok(()) => {
                    // Renamed, it is no longer there to be removed.
                    let _ = temporary.keep();
                    Ok(())
                }
                // Another run was faster, and made the same.
                Err(_) if self.find(recipe).is_some() => Ok(()),
                Err(_) => {
                    fs::remove_dir_all(&entry)?;
                    fs::rename(temporary.keep(), &entry)
                }
            }
        };
        write().map_err(ModulesError::io(format!("cannot keep a module in {}", self.directory.display())))
    }

    /// Failing to is not a reason to fail.
    fn remove_unused(&self, now: SystemTime) {
        for file in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let path = file.path();
            let used = fs::metadata(path.join("recipe.json")).or_else(|_| fs::metadata(&path));
            let is_old = used
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > KEPT));
            if is_old {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str, flags: &[&str], build_id: &str, tool: &str) -> Recipe {
        Recipe {
            name: "m".to_owned(),
            files: vec![("a.c".to_owned(), text.to_owned())],
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            build_id: build_id.to_owned(),
            made_of: "headers 1".to_owned(),
            tools: [("gcc-14".to_owned(), tool.to_owned())].into(),
        }
    }

    #[test]
    fn all_that_makes_a_module_tells_it_from_others() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let module = directory.path().join("made.ko");
        fs::write(&module, "a module").unwrap();
        let first = recipe("int x;", &["-O2"], "aa", "14.2");
        assert_eq!(store.find(&first), None);
        store.keep(&first, &module).unwrap();
        store.keep(&first, &module).unwrap();
        assert_eq!(fs::read(store.find(&first).unwrap()).unwrap(), b"a module");
        for other in [
            recipe("int y;", &["-O2"], "aa", "14.2"),
            recipe("int x;", &[], "aa", "14.2"),
            recipe("int x;", &["-O2"], "ab", "14.2"),
            recipe("int x;", &["-O2"], "aa", "14.3"),
        ] {
            assert_eq!(store.find(&other), None, "{other:?}");
        }
    }

    #[test]
    fn an_entry_of_the_same_checksum_and_another_recipe_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let module = directory.path().join("made.ko");
        fs::write(&module, "right").unwrap();
        let recipe = recipe("", &[], "", "");
        let entry = store.entry(&recipe, &recipe.bytes().unwrap());
        fs::create_dir(&entry).unwrap();
        fs::write(entry.join("recipe.json"), "{}").unwrap();
        fs::write(entry.join("m.ko"), "wrong").unwrap();
        assert_eq!(store.find(&recipe), None);
        store.keep(&recipe, &module).unwrap();
        assert_eq!(fs::read(store.find(&recipe).unwrap()).unwrap(), b"right");
    }

    #[test]
    fn what_nobody_asks_for_goes() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let module = directory.path().join("made.ko");
        fs::write(&module, "a module").unwrap();
        let recipe = recipe("", &[], "", "");
        store.keep(&recipe, &module).unwrap();
        store.remove_unused(SystemTime::now() + KEPT / 2);
        assert!(store.find(&recipe).is_some());
        store.remove_unused(SystemTime::now() + KEPT * 2);
        assert!(store.find(&recipe).is_none());
    }
}
