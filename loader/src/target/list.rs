// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The functions that a pattern stands for, and how many sites each has.
//!
//! All of it is read from the site data: not from the kernel's symbols: only root can read those, and it takes a
//! second. A function is listed if [`Target::functions`] finds sites of it, with the numbers that it finds.

use super::{IMAGE, Target, TargetError};
use crate::kernel::Kernel;
use crate::kernel::symbols::SymbolsError;
use crate::kernel::sysfs;
use crate::program::pattern::Pattern;
use crate::source::modules::{Modules, no_data};
use crate::source::{RunTime, SiteData, SourceOptions};
use crate::target::function::is_fragment;
use siteseer_sites::file::{FileError, FunctionRef, SiteFile, SiteRef};
use siteseer_sites::site::SiteKind;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A function, or several of one name, and the number of its sites in the image or in one module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// The name in the source.
    pub name: String,
    /// The module that they are in; `None` for the image.
    pub module: Option<Arc<str>>,
    /// Sites that are symbols of the function's name.
    pub bodies: usize,
    /// Sites that are symbols made from it.
    pub clones: usize,
    /// Inlined copies.
    pub inlined: usize,
    /// Sites about which only the kernel's symbols tell anything: the site data has no companion section.
    pub unknown: usize,
    /// How many of all these cannot be probed, as far as the image tells.
    pub unprobeable: usize,
}

impl Listed {
    /// All sites.
    pub fn sites(&self) -> usize {
        self.bodies + self.clones + self.inlined + self.unknown
    }

    fn count(&mut self, kind: Option<SiteKind>, probeable: bool) {
        let counter = match kind {
            Some(SiteKind::Body) => &mut self.bodies,
            Some(SiteKind::Clone) => &mut self.clones,
            Some(SiteKind::Inline) => &mut self.inlined,
            None => &mut self.unknown,
        };
        *counter += 1;
        self.unprobeable += usize::from(!probeable);
    }
}

impl Target {
    /// The running kernel as far as its site data and those of its modules describe it. Reads neither its symbols nor
    /// what it can do, so that it needs no privileges. Nothing can be attached to it.
    ///
    /// # Errors
    /// [`TargetError::Kernel`], [`TargetError::Source`], or [`TargetError::Symbols`] if the loaded modules cannot be
    /// listed.
    #[doc(hidden)]
    pub fn described(options: &SourceOptions) -> Result<Target, TargetError> {
        let kernel = Kernel::identity()?;
        let data = SiteData::find(options, &kernel, RunTime { text: 0, stext: 0, init: None })?;
        let loaded = sysfs::all().map_err(|error| SymbolsError::Read { path: sysfs::SYSFS.into(), error })?;
        let target = Target::new(crate::kernel::symbols::Symbols::default(), kernel, data);
        let modules = Modules::running(&loaded, &Modules::default());
        Ok(Target { own_symbols: true, modules, options: options.clone(), ..target })
    }

    /// The functions that each pattern stands for: those of the image, then those of each module, by name. None if
    /// there are none. A module without site data is passed over ([`Modules::without_data`]).
    ///
    /// # Errors
    /// [`TargetError::Source`] if the site data of the image cannot be read.
    #[doc(hidden)]
    pub fn list(&self, patterns: &[Pattern]) -> Result<Vec<Vec<Listed>>, TargetError> {
        self.data.check_patterns(patterns)?;
        let literal = patterns.iter().all(Pattern::is_name);
        let names: Vec<String> = patterns.iter().map(|pattern| pattern.function().to_string()).collect();
        let names: Vec<&str> = if literal { names.iter().map(String::as_str).collect() } else { Vec::new() };
        let listed = self.data.read(&names, |file| -> Result<Vec<Vec<Listed>>, FileError> {
            let image = patterns.iter().map(|pattern| match pattern.in_module(IMAGE) {
                true => list(file, pattern, None),
                false => Ok(Vec::new()),
            });
            let mut listed = image.collect::<Result<Vec<_>, _>>()?;
            for module in self.modules.names() {
                let here: Vec<usize> = (0..patterns.len()).filter(|&nth| patterns[nth].in_module(module)).collect();
                if here.is_empty() {
                    continue;
                }
                let found = self.with_module(module, &names, file, |file, _| -> Result<Vec<Vec<Listed>>, FileError> {
                    here.iter().map(|&nth| list(file, &patterns[nth], Some(module))).collect()
                });
                match found.and_then(|found| found.map_err(no_data)) {
                    Ok(found) => here.iter().zip(found).for_each(|(&nth, found)| listed[nth].extend(found)),
                    Err(why) => self.modules.note(module, &why),
                }
            }
            Ok(listed)
        })?;
        listed.map_err(|error| self.damaged(error))
    }
}

/// What a pattern stands for in the site data of the image, or of a module.
fn list(file: &SiteFile<'_>, pattern: &Pattern, module: Option<&Arc<str>>) -> Result<Vec<Listed>, FileError> {
    let glob = pattern.function();
    let prefix = pattern.prefix();
    // What the compiler left of a function (`foo.part.0`), and each clone, is a function of its own to those alone who
    // ask for it.
    let dotted = glob.to_string().contains('.');
    let in_file = |path: &str| pattern.in_file(path);
    // All functions of a file are at hand at once; only those names are read that begin as the pattern does.
    let (functions, mut holders) = if pattern.has_file() {
        (file.functions_in(in_file)?, file.containers_in(in_file)?)
    } else {
        (
            file.functions_from(&prefix)?.collect::<Result<_, _>>()?,
            file.containers_from(&prefix)?.collect::<Result<_, _>>()?,
        )
    };
    let mut found: BTreeMap<&str, Listed> = BTreeMap::new();
    let mut described: HashSet<(&str, u64)> = HashSet::new();
    for function in functions {
        let name = function.name();
        if !pattern.is_of(name) || (!dotted && name.contains('.')) {
            continue;
        }
        let meant = meant_by_file(&function, pattern)?;
        for site in function.sites() {
            let site = site?;
            if site.kind().is_some_and(|kind| kind != SiteKind::Inline) {
                described.insert((name, site.container().map_or(site.entry_address(), |holder| holder.address)));
            }
            if is_meant(&site, meant, pattern)? {
                found.entry(name).or_default().count(site.kind(), site.unprobeable().is_none());
            }
        }
    }
    // A symbol may be there twice.
    holders.sort_unstable_by_key(|holder| (holder.name, holder.address));
    holders.dedup_by_key(|holder| (holder.name, holder.address));
    for holder in holders {
        let name = if dotted { holder.name } else { holder.name.split('.').next().unwrap_or_default() };
        let is_clone = name.len() < holder.name.len();
        // Local labels of assembly begin with a dot.
        let is_label = name.is_empty();
        if is_label || !pattern.is_of(name) || (!dotted && is_fragment(holder.name)) {
            continue;
        }
        if described.contains(&(name, holder.address)) {
            continue;
        }
        let kind = if is_clone { SiteKind::Clone } else { SiteKind::Body };
        found.entry(name).or_default().count(Some(kind), holder.unprobeable.is_none());
    }
    let named = |(name, listed): (&str, Listed)| Listed { name: name.to_owned(), module: module.cloned(), ..listed };
    Ok(found.into_iter().map(named).collect())
}

/// Whether all sites of a function are meant, as far as files go, or none; `None` if some are.
fn meant_by_file(function: &FunctionRef<'_, '_>, pattern: &Pattern) -> Result<Option<bool>, FileError> {
    if !pattern.has_file() {
        return Ok(Some(true));
    }
    let (mut some, mut all) = (false, true);
    for declared in function.declared() {
        let meant = pattern.in_file(declared?.file);
        some |= meant;
        all &= meant;
    }
    Ok((some == all || !some).then_some(some))
}

fn is_meant(site: &SiteRef<'_, '_>, all: Option<bool>, pattern: &Pattern) -> Result<bool, FileError> {
    match all {
        Some(all) => Ok(all),
        None => Ok(site.declared()?.is_some_and(|declared| pattern.in_file(declared.file))),
    }
}
