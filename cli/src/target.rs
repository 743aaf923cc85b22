// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which kernel a command is about, and which modules with it.

use crate::Failure;
use clap::Args;
use siteseer::internals::function::{Function, Selection};
use siteseer::internals::pattern::Pattern;
use siteseer::internals::section::Wanted;
use siteseer::internals::source::{SiteData, SourceError};
use siteseer::internals::target::Listed;
use siteseer::{Dwarf, Place, SourceOptions, Target, TargetError};
use siteseer_sites::with_causes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct About {
    /// A kernel image with debug information
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Site data made by `siteseer encode`
    #[arg(long, value_name = "FILE", conflicts_with = "vmlinux")]
    sites: Option<PathBuf>,
    #[command(flatten)]
    modules: Modules,
    /// If there is no site data for the running kernel, fetch it first, as `siteseer fetch` does without options
    #[cfg(feature = "network")]
    #[arg(long, conflicts_with_all = ["vmlinux", "sites"])]
    fetch: bool,
}

#[derive(Args)]
pub(crate) struct Modules {
    /// Site data of a module made by `siteseer encode`, or a module with debug information. May be given again. For the
    /// running kernel, a file is used if exactly this module is loaded
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,
    /// Also read the DWARF of debug images that are found in the usual places. Without this option, a process with
    /// privileges reads the DWARF only of files that are named
    #[arg(long)]
    dwarf: bool,
}

impl Modules {
    /// The running kernel's site data, these modules' among them.
    pub(crate) fn options(&self, file: Option<PathBuf>) -> SourceOptions {
        let dwarf = if self.dwarf { Dwarf::Found } else { Dwarf::default() };
        let options = SourceOptions::default().modules(self.modules.clone()).dwarf(dwarf);
        match file {
            Some(file) => options.file(file),
            None => options,
        }
    }
}

impl About {
    /// The image that was given, or the running kernel as far as its site data describe it: that takes no privileges.
    /// `patterns` are the functions that are asked for.
    pub(crate) fn described(&self, patterns: &[Pattern]) -> Result<Target, Failure> {
        match self.sites.is_none() && self.vmlinux.is_none() {
            true => opened(self.fetches(), patterns, || Target::described(&self.modules.options(None))),
            false => self.target(patterns),
        }
    }

    /// Whether missing site data is fetched.
    fn fetches(&self) -> bool {
        #[cfg(feature = "network")]
        return self.fetch;
        #[cfg(not(feature = "network"))]
        false
    }

    /// The file that was given, and whether it is an image with debug information; `None`: it is about the running
    /// kernel.
    pub(crate) fn file(&self) -> Option<(&Path, bool)> {
        let sites = self.sites.as_deref().map(|path| (path, false));
        sites.or_else(|| self.vmlinux.as_deref().map(|path| (path, true)))
    }

    /// The files of modules that were given.
    pub(crate) fn module_files(&self) -> &[PathBuf] {
        &self.modules.modules
    }

    /// The image that was given, or the running kernel. `patterns` are the functions that are asked for.
    pub(crate) fn target(&self, patterns: &[Pattern]) -> Result<Target, Failure> {
        let Some(path) = self.sites.as_ref().or(self.vmlinux.as_ref()) else {
            return opened(self.fetches(), patterns, || Target::running(&self.modules.options(None)));
        };
        let open = |path: &PathBuf| SiteData::open_module(path, None, true);
        let modules = self.modules.modules.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Target::image(SiteData::open(path, None, true)?)?.with_modules(modules)?)
    }
}

/// What to do about missing site data, if this command can fetch it.
const HINT: &str = "or give --fetch, and this command fetches it first";

/// The running kernel. If it has no site data, or a module that one of the patterns names has none, this is fetched
/// first if `fetch` says so. Without that, nothing uses the network.
pub(crate) fn opened(
    fetch: bool,
    patterns: &[Pattern],
    open: impl Fn() -> Result<Target, TargetError>,
) -> Result<Target, Failure> {
    let of_modules = |pattern: &&Pattern| pattern.module().is_some_and(|module| module.to_string() != "vmlinux");
    let of_modules: Vec<Pattern> = patterns.iter().filter(of_modules).cloned().collect();
    match open() {
        Ok(target) if fetch && lacks_modules(&target, &of_modules)? => {}
        Err(TargetError::Source(SourceError::NotFound { .. })) if fetch => {}
        Err(TargetError::Source(error @ SourceError::NotFound { .. })) if cfg!(feature = "network") => {
            return Err(Box::new(Unfetched(error)));
        }
        opened => return Ok(opened?),
    }
    #[cfg(feature = "network")]
    crate::fetch::missing(!of_modules.is_empty())?;
    Ok(open()?)
}

/// Whether a loaded module that one of the patterns names has no site data.
fn lacks_modules(target: &Target, patterns: &[Pattern]) -> Result<bool, TargetError> {
    if patterns.is_empty() {
        return Ok(false);
    }
    target.list(patterns)?;
    let mut without = target.modules().without_data();
    Ok(without.any(|(module, _)| patterns.iter().any(|pattern| pattern.in_module(module))))
}

/// No site data was found, and the command was not told to fetch it.
#[derive(Debug, thiserror::Error)]
#[error("{0}\n{HINT}")]
struct Unfetched(SourceError);

/// Whether a command failed only because no site data was found.
pub(crate) fn is_missing(failure: &(dyn std::error::Error + 'static)) -> bool {
    let plain = matches!(failure.downcast_ref(), Some(TargetError::Source(SourceError::NotFound { .. })));
    plain || failure.is::<Unfetched>()
}

/// A function that a command was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub(crate) wanted: Wanted,
    /// What chose it.
    pattern: Pattern,
}

impl Chosen {
    /// Whether it was named, and not found by a pattern.
    pub(crate) fn is_name(&self) -> bool {
        self.pattern.is_name()
    }

    /// `[module:]function`.
    pub(crate) fn name(&self) -> String {
        let function = self.wanted.function.as_deref().unwrap_or_default();
        self.wanted.module.as_ref().map_or_else(|| function.to_owned(), |module| format!("{module}:{function}"))
    }

    /// The source file whose functions of the name are meant, where others declare functions of that name too.
    pub(crate) fn file<'f>(&self, function: &'f Function) -> Option<&'f str> {
        if !self.pattern.has_file() {
            return None;
        }
        let places = function.prototypes.iter().flat_map(|prototype| &prototype.declared);
        let of = |place: &&Place| self.pattern.in_file(&place.file);
        let (meant, others): (Vec<&Place>, Vec<&Place>) = places.partition(of);
        if others.is_empty() { None } else { Some(&meant.first()?.file) }
    }
}

/// The functions that patterns stand for, at most so many. A name is taken as it is: whether there is such a function
/// is found out when it is looked up.
pub(crate) fn choose(target: &Target, patterns: &[Pattern], most: usize) -> Result<Vec<Chosen>, Failure> {
    let others: Vec<Pattern> = patterns.iter().filter(|pattern| !pattern.is_name()).cloned().collect();
    let mut listed = if others.is_empty() { Vec::new() } else { target.list(&others)? }.into_iter();
    let (mut chosen, mut seen) = (Vec::new(), BTreeSet::new());
    for pattern in patterns {
        let found: Vec<Wanted> = if pattern.is_name() {
            vec![Wanted::parse(&pattern.to_string())?]
        } else {
            let found = listed.next().unwrap_or_default();
            if found.is_empty() {
                return Err(nothing(target, pattern));
            }
            found.into_iter().map(|listed| wanted(listed, pattern)).collect()
        };
        if found.len() > most {
            let sum = found.len();
            return Err(format!(
                "{pattern} stands for {sum} functions, and at most {most} are allowed: `siteseer list` counts them"
            )
            .into());
        }
        for wanted in found {
            if seen.insert((wanted.module.clone(), wanted.function.clone())) {
                chosen.push(Chosen { wanted, pattern: pattern.clone() });
            }
        }
    }
    if chosen.len() > most {
        return Err(format!("the patterns stand for {} functions, and at most {most} are allowed", chosen.len()).into());
    }
    Ok(chosen)
}

/// What is listed by a pattern that names a module or a file is meant in that module; else the name is, wherever it is.
fn wanted(listed: Listed, pattern: &Pattern) -> Wanted {
    let narrow = pattern.module().is_some() || pattern.has_file();
    let module = narrow.then(|| listed.module.as_deref().unwrap_or("vmlinux").to_owned());
    Wanted { module, function: Some(listed.name) }
}

/// The error for a pattern that stands for nothing.
pub(crate) fn nothing(target: &Target, pattern: &Pattern) -> Failure {
    let is_known = |module: &str| module == "vmlinux" || target.modules().names().any(|known| **known == *module);
    if let Some(module) = pattern.module().filter(|module| module.is_literal()).map(ToString::to_string) {
        if !is_known(&module) {
            return format!("{pattern}: there is no module {module} here").into();
        }
        if let Some((_, why)) = target.modules().without_data().find(|(name, _)| *name == module) {
            return format!("{pattern}: {}", with_causes(why)).into();
        }
    }
    // The look-up of a name knows names like it.
    if pattern.is_name()
        && let Ok(wanted) = Wanted::parse(&pattern.to_string())
        && let Err(error) = target.functions(&[wanted])
    {
        return error.into();
    }
    let file = if pattern.has_file() { ", as far as the site data has the files of functions" } else { "" };
    format!("no function matches {pattern}{file}").into()
}

/// Looks up what was chosen.
pub(crate) fn functions(target: &Target, chosen: &[Chosen]) -> Result<Vec<Function>, Failure> {
    let wanted: Vec<Wanted> = chosen.iter().map(|chosen| chosen.wanted.clone()).collect();
    let found = target.functions(&wanted)?;
    let narrow = |(function, chosen): (Function, &Chosen)| -> Result<Function, Failure> {
        let file = chosen.file(&function).map(str::to_owned);
        Ok(function.select(&Selection { prototype: None, file })?)
    };
    found.into_iter().zip(chosen).map(narrow).collect()
}
