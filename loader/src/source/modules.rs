// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The loaded modules of a kernel, and their site data.
//!
//! A module has site data of its own, found by its build id as the kernel's are, over types that continue the kernel's.
//! A machine has 150 modules, and a name may be inlined in any of them (functions of headers are), so a name without a
//! module is looked up in all. What is needed for that is found when it is first asked for, and kept: a file is opened,
//! not read, and a name costs a few pages of it. A module that has no site data is not an error there: it is noted
//! ([`Modules::without_data`]).
//!
//! Modules come and go. What is found here is of one loading of a module ([`Loaded::instance`]), and whoever attaches
//! to it has to ask whether that is still there.

use crate::kernel::symbols::SymbolsError;
pub use crate::kernel::sysfs::Loaded;
use crate::kernel::{BuildId, sysfs};
use crate::source::placement::{Placed, Placement};
use crate::source::{ModuleFinder, SiteData};
use siteseer_sites::file::SiteFile;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Why there is no usable site data of a module. It is found out once, and given for each function that is asked for.
pub type NoData = Arc<dyn Error + Send + Sync>;

/// A cause, shared.
pub(crate) fn no_data(why: impl Into<Box<dyn Error + Send + Sync>>) -> NoData {
    Arc::from(why.into())
}

/// The loaded modules of a kernel.
#[derive(Debug, Default)]
pub struct Modules {
    /// Where the kernel tells about them; `None` if there is no such kernel, and they are files.
    root: Option<PathBuf>,
    entries: Vec<Arc<Entry>>,
}

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    /// Which loading of it this is.
    instance: Option<u64>,
    found: OnceLock<Result<ModuleData, NoData>>,
    /// Why what was found is of no use.
    broken: OnceLock<NoData>,
}

impl Entry {
    fn new(name: &str, instance: Option<u64>, found: OnceLock<Result<ModuleData, NoData>>) -> Arc<Entry> {
        Arc::new(Entry { name: name.into(), instance, found, broken: OnceLock::new() })
    }

    fn why_not(&self) -> Option<&NoData> {
        self.broken.get().or_else(|| self.found.get()?.as_ref().err())
    }
}

/// A module's site data.
#[derive(Debug)]
pub struct ModuleData {
    /// The module; `None` if it is not loaded anywhere, and its addresses are those of its file.
    pub loaded: Option<Loaded>,
    /// Its site data.
    pub data: SiteData,
    /// Whether the running kernel has its BTF, with the types that the site data has.
    types: OnceLock<Known>,
}

/// What the running kernel knows of a module's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// What the site data says.
    Same,
    /// Nothing: the kernel did not accept the module's BTF, or it has none.
    Nothing,
    /// Other types.
    Other,
}

impl ModuleData {
    fn new(loaded: Option<Loaded>, data: SiteData) -> ModuleData {
        ModuleData { loaded, data, types: OnceLock::new() }
    }

    /// Where its sections are.
    pub(crate) fn placement(&self, file: &SiteFile<'_>) -> Placement {
        let Some(loaded) = self.loaded.as_ref().filter(|_| !self.data.is_run_time()) else {
            return Placement::Whole(0);
        };
        Placement::of_sections(
            file.loaded_sections()
                // The kernel puts these somewhere else, for each CPU.
                .filter(|section| section.name != ".data..percpu")
                .filter_map(|section| {
                    let run = *loaded.sections.get(section.name)?;
                    Some(Placed { link: section.address, size: section.size, run })
                })
                .collect(),
        )
    }

    /// What the running kernel knows of its types: of a module that is not loaded, what its file has.
    pub(crate) fn types(&self, own_btf: Option<&[u8]>) -> Known {
        *self.types.get_or_init(|| {
            // The kernel's own data are over the kernel's own types.
            let Some(loaded) = self.loaded.as_ref().filter(|_| !self.data.is_run_time()) else { return Known::Same };
            match std::fs::read(Path::new("/sys/kernel/btf").join(&loaded.name)) {
                Err(_) => Known::Nothing,
                Ok(running) if own_btf == Some(&running[..]) => Known::Same,
                Ok(_) => Known::Other,
            }
        })
    }
}

impl Modules {
    /// Modules that the kernel says are loaded, by [`sysfs::all`]. Nothing is read yet; what `before` knows of those
    /// that are still there is kept.
    pub(crate) fn running(loaded: &BTreeMap<String, u64>, before: &Modules) -> Modules {
        let entry = |(name, &instance): (&String, &u64)| {
            let same = |entry: &&Arc<Entry>| *entry.name == **name && entry.instance == Some(instance);
            let known = before.entries.iter().find(same).cloned();
            known.unwrap_or_else(|| Entry::new(name, Some(instance), OnceLock::new()))
        };
        Modules { root: Some(sysfs::SYSFS.into()), entries: loaded.iter().map(entry).collect() }
    }

    /// Whether they are those of the running kernel.
    pub(crate) fn are_running(&self) -> bool {
        self.root.is_some()
    }

    /// Whether other modules are loaded now, or other loadings of them.
    pub(crate) fn have_changed(&self) -> Result<bool, SymbolsError> {
        let now = sysfs::all().map_err(|error| SymbolsError::Read { path: sysfs::SYSFS.into(), error })?;
        Ok(now != self.instances())
    }

    /// Which loading of each of these modules it is, for those that are loaded.
    pub(crate) fn instances_of(&self, names: &BTreeSet<Arc<str>>) -> Vec<(Arc<str>, u64)> {
        let instances = names.iter().filter_map(|name| {
            let entry = self.entries.iter().find(|entry| entry.name == *name)?;
            Some((Arc::clone(name), entry.instance?))
        });
        instances.collect()
    }

    /// Which loading of each module it is.
    pub(crate) fn instances(&self) -> BTreeMap<String, u64> {
        self.entries.iter().filter_map(|entry| Some((entry.name.to_string(), entry.instance?))).collect()
    }

    /// Modules that are not loaded anywhere: names and site data.
    pub(crate) fn files(files: impl IntoIterator<Item = (String, SiteData)>) -> Modules {
        let entry =
            |(name, data): (String, SiteData)| Entry::new(&name, None, OnceLock::from(Ok(ModuleData::new(None, data))));
        Modules { root: None, entries: files.into_iter().map(entry).collect() }
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.iter().map(|entry| &entry.name)
    }

    /// The site data of a module, found when they are first asked for. `None` if no such module is loaded; the error
    /// says why there are none.
    pub(crate) fn get(&self, name: &str, finder: &ModuleFinder<'_>) -> Option<Result<&ModuleData, NoData>> {
        let entry = self.entries.iter().find(|entry| &*entry.name == name)?;
        let found = entry.found.get_or_init(|| match &self.root {
            None => Err(no_data("it has no file")),
            Some(root) => match Loaded::read(root, name) {
                Ok(Some(loaded)) if entry.instance == Some(loaded.instance) => {
                    let data = finder.find(&loaded).map_err(no_data)?;
                    Ok(ModuleData::new(Some(loaded), data))
                }
                Ok(_) => Err(no_data("it is not loaded any more, or was loaded again")),
                Err(error) => Err(no_data(SymbolsError::Read { path: root.join(name), error })),
            },
        });
        Some(match entry.broken.get() {
            Some(why) => Err(Arc::clone(why)),
            None => found.as_ref().map_err(Arc::clone),
        })
    }

    /// Notes that a module's site data is of no use.
    pub(crate) fn note(&self, name: &str, why: &NoData) {
        if let Some(entry) = self.entries.iter().find(|entry| *entry.name == *name) {
            let _ = entry.broken.set(Arc::clone(why));
        }
    }

    /// What a report should say about the first module whose site data does not have all that siteseer's own has.
    pub(crate) fn note_of_lacking(&self) -> Option<String> {
        let mut found = self.entries.iter().filter_map(|entry| entry.found.get()?.as_ref().ok());
        found.find_map(|data| data.data.note_of_lacking())
    }

    /// What a report should say about modules that turned out to have no site data.
    pub(crate) fn note_of_missing(&self) -> Option<String> {
        const SHOWN: usize = 8;
        let missing: Vec<&str> = self.without_data().map(|(name, _)| name).collect();
        if missing.is_empty() {
            return None;
        }
        let shown = missing.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
        let more = if missing.len() > SHOWN { format!(" and {} more", missing.len() - SHOWN) } else { String::new() };
        Some(format!(
            "there is no site data of {} of the {} loaded modules ({shown}{more}): copies that were inlined there are not known",
            missing.len(),
            self.entries.len()
        ))
    }

    /// The modules that turned out to have no site data, and why.
    pub fn without_data(&self) -> impl Iterator<Item = (&str, &NoData)> {
        self.entries.iter().filter_map(|entry| Some((&*entry.name, entry.why_not()?)))
    }
}

/// The build id, if it is one.
pub(crate) fn known(build_id: &BuildId) -> Option<&BuildId> {
    (!build_id.0.is_empty()).then_some(build_id)
}
