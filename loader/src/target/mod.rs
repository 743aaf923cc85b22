// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A kernel to attach to: its site data, symbols and capabilities, and the functions looked up in them.
//!
//! Site data has link-time addresses. The kernel lies elsewhere (KASLR), all of it displaced by one number, which
//! follows from the symbol `_text`. The number is checked twice: against `_stext`, and, site by site, by the symbol
//! that the site data says is there ([`crate::Reason::SymbolMismatch`]).
//!
//! The kernel's table of symbols is long, and the kernel is slow to write it. The table's first lines have `_text`.
//! Site data has the link-time addresses of the symbols that a lookup needs, and the kernel confirms each of them
//! ([`crate::kernel::symbols`], `part`). The whole table is read for what site data does not tell: modules without site
//! data, live patches, names that are not known.
//!
//! A name stands for the functions that have it in the image and in all loaded modules, each with site data of its own
//! ([`crate::source::modules`]), unless a module is named.

pub mod bpf_program;
mod budget;
mod code;
mod error;
mod folders;
pub mod function;
mod list;
pub mod livepatch;
mod opened;

use crate::kernel::symbols::{self, Asker, Bases, Confirmed, Symbols, SymbolsError};
use crate::kernel::sysfs;
use crate::kernel::{BuildId, Kernel};
use crate::program::section::{Wanted, kernel_name};
use crate::site::reason::Reason;
use crate::source::modules::{Known, ModuleData, Modules, NoData, no_data};
use crate::source::placement::Placement;
use crate::source::{self, BaseTypes, ModuleFinder, Over, RunTime, SiteData, SourceError, SourceOptions};
use crate::target::function::{DataSite, Function, Holder, Place, Sources, is_fragment};
use crate::target::livepatch::LivePatches;
use budget::Budget;
use siteseer_sites::btf::{Btf, BtfError, TypeId};
use siteseer_sites::file::{Code, ContainerRef, FileError, SiteFile, SiteRef, Source};
use siteseer_sites::site::{SiteKind, Unprobeable};
use siteseer_sites::{CodeSum, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

pub use error::TargetError;
pub use folders::Folder;
pub use list::Listed;
pub use opened::Opened;

/// The types that prototypes are numbers of.
#[derive(Debug, Clone)]
pub struct Types<'a> {
    image: Btf<'a>,
    modules: Vec<(Arc<str>, Btf<'a>)>,
}

impl<'a> Types<'a> {
    /// Those of the image, or of a module that was asked for
    /// ([`Prototype::module`](crate::target::function::Prototype::module)).
    pub fn of(&self, module: Option<&str>) -> Option<&Btf<'a>> {
        match module {
            None => Some(&self.image),
            Some(module) => self.modules.iter().find(|(name, _)| **name == *module).map(|(_, btf)| btf),
        }
    }
}

/// A kernel to attach to.
#[derive(Debug)]
pub struct Target {
    /// All of its symbols; those of the running kernel are read when something asks for them all.
    symbols: OnceLock<Symbols>,
    /// Where the running kernel's image lies.
    bases: Option<Bases>,
    machine: Machine,
    build_id: BuildId,
    /// Of an image, found out when it is asked for: that requires a walk over all types, and a lookup does not need it.
    kernel: OnceLock<Kernel>,
    data: Arc<SiteData>,
    /// Whether the symbols are those of the site data, taken for each function when it is looked up.
    own_symbols: bool,
    live_patches: LivePatches,
    modules: Modules,
    /// Where the modules' site data is looked for.
    options: SourceOptions,
    /// The types that the modules' are over.
    base: OnceLock<Option<BaseTypes>>,
    /// Why the code at sites could not be compared with the site data.
    unread: OnceLock<String>,
}

/// What the kernel's image is called where a module may be named.
const IMAGE: &str = "vmlinux";
/// The kernel is asked for so many symbols one by one; it takes no longer to read more of them from its table.
const MOST_ASKED: usize = 2000;
/// How many names an error suggests.
const SUGGESTIONS: usize = 5;

impl Target {
    /// The running kernel: finds its site data, and where its image lies, which requires privileges (see
    /// [`symbols::running`]). All of its symbols are read when a lookup needs what site data does not have
    /// ([`Target::symbols`]).
    ///
    /// # Errors
    /// [`TargetError::Kernel`], [`TargetError::Symbols`] or [`TargetError::Source`].
    pub fn running(options: &SourceOptions) -> Result<Target, TargetError> {
        // Without site data nothing else is of use.
        let kernel = Kernel::identity()?;
        let (data, bases, symbols, loaded) = if source::kernel_has_its_own() {
            let (symbols, loaded) = running_symbols()?;
            let (text, stext) = (text_base(&symbols, "_text")?, text_base(&symbols, "_stext")?);
            let at = RunTime { text, stext, init: text_base(&symbols, "_sinittext").ok() };
            // A site file may be found before the kernel's own data.
            let bases = Bases { text, stext: Some(stext) };
            (SiteData::find(options, &kernel, at)?, Some(bases), OnceLock::from(symbols), loaded)
        } else {
            let data = SiteData::find(options, &kernel, RunTime { text: 0, stext: 0, init: None })?;
            (data, Some(Bases::running()?), OnceLock::new(), loaded_modules()?)
        };
        Ok(Target {
            symbols,
            bases,
            machine: kernel.machine,
            build_id: kernel.build_id.clone(),
            kernel: OnceLock::from(kernel.probed()),
            data: Arc::new(data),
            own_symbols: false,
            live_patches: LivePatches::running_or_noted(),
            modules: Modules::running(&loaded, &Modules::default()),
            options: options.clone(),
            base: OnceLock::new(),
            unread: OnceLock::new(),
        })
    }

    /// The running kernel as its symbols and its BTF describe it, without any site data: of a function only what has
    /// its name is known, and what is made from it. Whatever was inlined is missed, which is for whoever asks to say.
    ///
    /// # Errors
    /// [`TargetError::Kernel`], [`TargetError::Symbols`], or [`TargetError::Source`] if the kernel has no BTF.
    pub fn without_site_data() -> Result<Target, TargetError> {
        let kernel = Kernel::running()?;
        let (symbols, _) = running_symbols()?;
        let data = SiteData::nothing(&kernel)?;
        Ok(Target::new(symbols, kernel, data).with_live_patches(LivePatches::running_or_noted()))
    }

    /// A kernel for which everything is given; plans for it can be computed without it running.
    #[doc(hidden)]
    pub fn new(symbols: Symbols, kernel: Kernel, data: SiteData) -> Target {
        Target {
            symbols: OnceLock::from(symbols),
            bases: None,
            machine: kernel.machine,
            build_id: kernel.build_id.clone(),
            kernel: OnceLock::from(kernel),
            data: Arc::new(data),
            own_symbols: false,
            live_patches: LivePatches::default(),
            modules: Modules::default(),
            options: SourceOptions::default(),
            base: OnceLock::new(),
            unread: OnceLock::new(),
        }
    }

    /// Sets which functions live patches have replaced.
    #[doc(hidden)]
    #[must_use]
    pub fn with_live_patches(mut self, live_patches: LivePatches) -> Target {
        self.live_patches = live_patches;
        self
    }

    /// A kernel image that need not run anywhere: addresses are those of link time, and whether a probe can be put is
    /// what the image tells. Nothing can be attached to it.
    ///
    /// # Errors
    /// [`TargetError::Source`] if the site data cannot be read.
    #[doc(hidden)]
    pub fn image(data: SiteData) -> Result<Target, TargetError> {
        let (machine, build_id) = data.image()?;
        Ok(Target {
            symbols: OnceLock::from(Symbols::default()),
            bases: None,
            machine,
            build_id,
            kernel: OnceLock::new(),
            data: Arc::new(data),
            own_symbols: true,
            live_patches: LivePatches::default(),
            modules: Modules::default(),
            options: SourceOptions::default(),
            base: OnceLock::new(),
            unread: OnceLock::new(),
        })
    }

    /// Adds the site data of modules that need not be loaded anywhere, to [`Target::image`].
    ///
    /// # Errors
    /// [`TargetError::Source`] if they cannot be read, or are not for this kernel.
    #[doc(hidden)]
    pub fn with_modules(mut self, modules: Vec<SiteData>) -> Result<Target, TargetError> {
        if modules.is_empty() {
            return Ok(self);
        }
        let types = self.base_types();
        let named = self.data.read(&["vmlinux"], |file| -> Result<Vec<String>, SourceError> {
            let name = |data: &SiteData| match types {
                Some(types) => data.module_name(Over { btf: file.base_btf(), types }),
                None => Ok(String::new()),
            };
            modules.iter().map(name).collect()
        })??;
        self.modules = Modules::files(named.into_iter().zip(modules));
        Ok(self)
    }

    /// All of its symbols: those of the running kernel are read when this is first called.
    ///
    /// # Errors
    /// [`SymbolsError`] if they cannot be read.
    #[doc(hidden)]
    pub fn symbols(&self) -> Result<&Symbols, SymbolsError> {
        if let Some(symbols) = self.symbols.get() {
            return Ok(symbols);
        }
        let (symbols, _) = running_symbols()?;
        Ok(self.symbols.get_or_init(|| symbols))
    }

    /// The symbols of the image that have some names, and `_stext`, by the site data; `None` if all symbols have been
    /// read, or have to be. What they say is how many addresses a name stands for.
    pub(crate) fn bearing(&self, names: &BTreeSet<&str>) -> Option<Symbols> {
        // To ask debug information for other names is to encode them, and a subset does not know them.
        if self.has_read_symbols() || self.own_symbols || self.data.reads_dwarf() || self.data.is_subset() {
            return None;
        }
        let stext = self.bases?.stext?;
        let found = self.data.read(&[], |file| {
            let displacement = self.displacement(file).ok().filter(|_| file.is_complete())?;
            let mut found = vec![(stext, "_stext")];
            for name in names {
                let bearing = file.containers_of(name).ok()?.into_iter().filter(|symbol| symbol.name == *name);
                found.extend(bearing.map(|symbol| (symbol.address.wrapping_add(displacement), symbol.name)));
            }
            Some(Symbols::of_files(found, None))
        });
        found.ok().flatten()
    }

    /// Whether all of its symbols have been read.
    #[doc(hidden)]
    pub fn has_read_symbols(&self) -> bool {
        self.symbols.get().is_some()
    }

    /// What the kernel did not let us read of its symbols, as far as they were read.
    pub(crate) fn unavailable(&self) -> &[String] {
        self.symbols.get().map(Symbols::unavailable).unwrap_or_default()
    }

    /// Its capabilities; for an image, those that it was compiled with.
    #[doc(hidden)]
    pub fn kernel(&self) -> &Kernel {
        self.kernel.get_or_init(|| Kernel::of_image(self.machine, self.build_id.clone(), self.data.base_btf()))
    }

    /// Its architecture.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Its site data.
    #[doc(hidden)]
    pub fn data(&self) -> &SiteData {
        &self.data
    }

    /// Which kernel it is, in words.
    pub fn describe(&self) -> String {
        let Kernel { release, machine, build_id, .. } = self.kernel();
        let machine = match machine {
            Machine::X86_64 => "x86-64",
            Machine::Aarch64 => "arm64",
        };
        if self.own_symbols {
            format!("a kernel image for {machine} (build id {build_id}), with all that it was compiled for")
        } else {
            format!("Linux {release} ({machine}), which is running")
        }
    }

    /// Looks up the functions of several names at once, in their order: of the kernel's image and of all loaded
    /// modules, or of the one that is named (`vmlinux` is the image). A module that has no site data is
    /// passed over unless it is named ([`Modules::without_data`]).
    ///
    /// # Errors
    /// [`TargetError`] if a name is not known, or a module that is named not loaded or without site data;
    /// [`TargetError::Source`] if the site data cannot be read.
    #[doc(hidden)]
    pub fn functions(&self, wanted: &[Wanted]) -> Result<Vec<Function>, TargetError> {
        let names: Vec<&str> = wanted.iter().map(|wanted| wanted.function.as_deref().unwrap_or_default()).collect();
        self.data.check_asked(wanted)?;
        let found = self.data.read(&names, |file| self.look_up(file, wanted))?;
        let found = found.or_else(|error| match error {
            // What was read of debug information is the functions asked for; other names take reading all.
            TargetError::Unknown { name, nearest } if nearest.is_empty() && self.data.reads_dwarf() => {
                let symbols = self.symbols()?;
                let nearest = self.data.read(&[], |file| self.nearest(file, symbols, &name)).unwrap_or_default();
                Err(TargetError::Unknown { name, nearest })
            }
            other => Err(other),
        });
        let mut functions: Vec<Function> = found?;
        if !self.live_patches.is_empty() {
            let symbols = self.symbols()?;
            for function in &mut functions {
                self.live_patches.mark(&mut function.candidates, symbols);
            }
        }
        if self.bases.is_some() {
            let candidates = functions.iter_mut().flat_map(|function| &mut function.candidates);
            if let Err(error) = code::confirm(candidates) {
                // The first reason is as good as a later one.
                let _ = self.unread.set(error.to_string());
            }
        }
        Ok(functions)
    }

    /// [`Target::functions`] with the image's site data.
    fn look_up(&self, file: &SiteFile<'_>, wanted: &[Wanted]) -> Result<Vec<Function>, TargetError> {
        let mut in_modules: Vec<Vec<Function>> = vec![Vec::new(); wanted.len()];
        let mut covered = BTreeSet::new();
        // Whether what is in modules is known from site data: else their symbols are all that is known about them.
        let mut all_covered = true;
        for module in self.modules.names() {
            let here: Vec<usize> = (0..wanted.len())
                .filter(|&nth| wanted[nth].module.as_ref().is_none_or(|named| kernel_name(named) == **module))
                .collect();
            if here.is_empty() {
                continue;
            }
            let names: Vec<&str> =
                here.iter().map(|&nth| wanted[nth].function.as_deref().unwrap_or_default()).collect();
            match self.in_module(module, &names, file) {
                Ok(functions) => {
                    covered.insert(&**module);
                    for (nth, function) in here.into_iter().zip(functions) {
                        in_modules[nth].extend(function);
                    }
                }
                // A module that nobody asked for by name is noted.
                Err(why) => {
                    all_covered = false;
                    if let Some(&nth) = here.iter().find(|&&nth| wanted[nth].module.is_some()) {
                        let function = wanted[nth].function.clone().unwrap_or_default();
                        return Err(TargetError::NoModuleData { module: module.to_string(), function, why });
                    }
                }
            }
        }
        let mut functions = Vec::with_capacity(wanted.len());
        for (in_modules, wanted) in in_modules.into_iter().zip(wanted) {
            let name = wanted.function.clone().unwrap_or_default();
            let mut in_image = None;
            if matches!(wanted.module.as_deref(), None | Some(IMAGE)) {
                let is_told = wanted.module.is_some() || all_covered;
                let by_part = if is_told { self.in_image_by_part(file, &name)? } else { None };
                in_image = match by_part {
                    Some(Some(function)) => Some(function),
                    // A name that nothing has might be a symbol that site data does not have.
                    Some(None) if !in_modules.is_empty() => None,
                    Some(None) | None => self.in_image(file, &name)?,
                };
            }
            let mut function = Function::merged(in_image.into_iter().chain(in_modules));
            if let Some(function) = &mut function {
                // A symbol in a module has a candidate of the module's site data, if that tells about it; vmlinux:foo
                // leaves all of them out.
                let only_image = wanted.module.is_some();
                function.candidates.retain(|site| match &site.obstacle {
                    Some(Reason::InModule(module)) => !only_image && !covered.contains(module.as_str()),
                    _ => true,
                });
            }
            match function.filter(|function| !function.candidates.is_empty()) {
                Some(function) => functions.push(function),
                None => return Err(self.unknown(file, name, wanted.module.as_deref())?),
            }
        }
        Ok(functions)
    }

    /// What a name that nothing has is refused with.
    fn unknown(&self, file: &SiteFile<'_>, name: String, module: Option<&str>) -> Result<TargetError, SymbolsError> {
        let Some(module) = module.filter(|&module| module != IMAGE).map(kernel_name) else {
            let nearest = self.nearest(file, self.symbols()?, &name);
            return Ok(TargetError::Unknown { name, nearest });
        };
        if !self.modules.names().any(|known| **known == *module) {
            return Ok(TargetError::NotLoaded { module, function: name });
        }
        let nearest = self.with_module(&module, &[], file, |file, _| {
            let symbols = Symbols::default();
            self.nearest(file, &symbols, &name)
        });
        Ok(TargetError::UnknownInModule { module, name, nearest: nearest.unwrap_or_default() })
    }

    /// The functions of a name in the image, by those of its symbols that the lookup needs. `None` if all are needed.
    fn in_image_by_part(&self, file: &SiteFile<'_>, name: &str) -> Result<Option<Option<Function>>, TargetError> {
        if self.own_symbols || self.data.is_run_time() {
            return Ok(None);
        }
        let placement = Placement::Whole(self.displacement(file)?);
        let damaged = |error| self.damaged(error);
        let Some(symbols) = self.part(file, name, None, &placement).map_err(damaged)? else { return Ok(None) };
        self.lookup(file, name, None, &placement, &symbols).map(Some).map_err(damaged)
    }

    /// The symbols that a lookup of a name needs, of the image or a module, each confirmed by the kernel. `None` if all
    /// are read already, or have to be: the kernel does not confirm one, or does not answer, or site data does not tell
    /// all.
    fn part(
        &self,
        file: &SiteFile<'_>,
        name: &str,
        module: Option<&Arc<str>>,
        placement: &Placement,
    ) -> Result<Option<Symbols>, FileError> {
        let is_known = self.symbols.get().is_some() || !file.is_complete() || !self.live_patches.is_empty();
        // A part does not tell where a module's text ends.
        if is_known || module.is_some() && self.kernel().decodes_past_modules {
            return Ok(None);
        }
        let rows = outlines(file, name)?;
        if rows.len() > MOST_ASKED {
            return Ok(None);
        }
        let mut confirmed = Vec::with_capacity(rows.len());
        let mut asker = None;
        for (&(address, symbol), &unprobeable) in &rows {
            let Some(address) = placement.run_time(address) else { continue };
            let asker = match &asker {
                Some(asker) => asker,
                None => match Asker::new() {
                    Ok(opened) => &*asker.insert(opened),
                    Err(_) => return Ok(None),
                },
            };
            let traceable = symbols::traceable(unprobeable);
            let is_own = symbol == name || symbol.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            match asker.ask(address) {
                Ok(Some(answer))
                    if answer.symbol == symbol
                        && answer.offset == 0
                        && answer.module.as_deref() == module.map(|module| &**module)
                        && (traceable.is_some() || !is_own || is_fragment(symbol)) =>
                {
                    confirmed.push(Confirmed { address, size: answer.size, name: symbol, traceable });
                }
                // What was freed after boot is nobody's, or somebody else's.
                Ok(_) if matches!(unprobeable, Some(Unprobeable::Init | Unprobeable::Exit)) => {}
                _ => return Ok(None),
            }
        }
        Ok(Some(Symbols::of_part(&confirmed, module.map(|module| &**module))))
    }

    fn in_image(&self, file: &SiteFile<'_>, name: &str) -> Result<Option<Function>, TargetError> {
        let damaged = |error| self.damaged(error);
        if self.own_symbols {
            let symbols = image_symbols(file, name, None).map_err(damaged)?;
            return self.lookup(file, name, None, &Placement::Whole(0), &symbols).map_err(damaged);
        }
        let placement = Placement::Whole(self.displacement(file)?);
        self.lookup(file, name, None, &placement, self.symbols()?).map_err(damaged)
    }

    /// The functions of several names in a module; the error says why there is no site data of it.
    fn in_module(
        &self,
        module: &Arc<str>,
        names: &[&str],
        image: &SiteFile<'_>,
    ) -> Result<Vec<Option<Function>>, NoData> {
        let found = self.with_module(module, names, image, |file, data| -> Result<Vec<Option<Function>>, NoData> {
            let placement = data.placement(file);
            let one = |name: &&str| {
                let own = if self.own_symbols {
                    image_symbols(file, name, Some(module)).map(Some)
                } else {
                    self.part(file, name, Some(module), &placement)
                };
                let own = own.map_err(no_data)?;
                let symbols = match &own {
                    Some(symbols) => symbols,
                    None => self.symbols().map_err(no_data)?,
                };
                let mut function = self.lookup(file, name, Some(module), &placement, symbols).map_err(no_data)?;
                if let Some(function) = &mut function {
                    match data.types(file.base_btf_bytes()) {
                        Known::Same => {}
                        // Nothing that goes by a FUNC can be attached.
                        Known::Nothing => function.candidates.iter_mut().for_each(|site| site.exact = None),
                        Known::Other => {
                            return Err(no_data(format!(
                                "{}: its .BTF is not the module's, though the build id is",
                                data.data.origin()
                            )));
                        }
                    }
                }
                Ok(function)
            };
            names.iter().map(one).collect()
        });
        found.and_then(|functions| functions).inspect_err(|why| self.modules.note(module, why))
    }

    /// Opens the site data of a module, over the types of the image's.
    fn with_module<R>(
        &self,
        module: &str,
        names: &[&str],
        image: &SiteFile<'_>,
        with: impl FnOnce(&SiteFile<'_>, &ModuleData) -> R,
    ) -> Result<R, NoData> {
        let finder = ModuleFinder { options: &self.options, kernel: self.kernel() };
        let data = self.modules.get(module, &finder).unwrap_or_else(|| Err(no_data("it is not loaded")))?;
        let types =
            self.base_types().ok_or_else(|| no_data("the kernel has no BTF, which the module's types refer to"))?;
        let over = Over { btf: image.base_btf(), types };
        let here = |&name: &&str| Wanted { module: Some(module.to_owned()), function: Some(name.to_owned()) };
        data.data.check_asked(&names.iter().map(here).collect::<Vec<_>>()).map_err(no_data)?;
        data.data.read_over(over, names, |file| with(file, data)).map_err(no_data)
    }

    /// Opens the types that prototypes are numbers of: of the image, and of modules. They are those of the functions'
    /// names that were looked up last, if the site data is read from DWARF.
    ///
    /// # Errors
    /// [`TargetError::Source`] if the site data cannot be read. A module without available data is left out.
    #[doc(hidden)]
    pub fn with_types<R>(
        &self,
        names: &[&str],
        modules: impl IntoIterator<Item = Arc<str>>,
        with: impl FnOnce(&Types<'_>) -> R,
    ) -> Result<R, TargetError> {
        let modules: Vec<Arc<str>> = modules.into_iter().collect();
        let mut with = Some(with);
        let mut result = None;
        self.data.read(names, |file| {
            let types = Types { image: file.btf().clone(), modules: Vec::new() };
            self.add_types(names, &modules, file, types, &mut |types| {
                if let Some(with) = with.take() {
                    result = Some(with(types));
                }
            });
        })?;
        let nothing = || SourceError::KernelBtf(BtfError::TooDeep);
        result.ok_or_else(|| nothing().into())
    }

    /// Opens one module after the other: what is read of each is there as long as the next are open.
    fn add_types<'a>(
        &self,
        names: &[&str],
        modules: &[Arc<str>],
        image: &SiteFile<'a>,
        types: Types<'a>,
        with: &mut dyn FnMut(&Types<'_>),
    ) {
        let Some((module, rest)) = modules.split_first() else { return with(&types) };
        let known = types.clone();
        let opened = self.with_module(module, names, image, |file, _| {
            let mut types = known;
            types.modules.push((Arc::clone(module), file.btf().clone()));
            self.add_types(names, rest, image, types, with);
        });
        if opened.is_err() {
            self.add_types(names, rest, image, types, with);
        }
    }

    /// The types of the kernel's image, for modules over them.
    fn base_types(&self) -> Option<&BaseTypes> {
        let found = self.base.get_or_init(|| {
            let btf = self.kernel.get().and_then(|kernel| kernel.btf.clone()).or_else(|| self.data.base_btf())?;
            Some(BaseTypes { btf, build_id: self.build_id.clone() })
        });
        found.as_ref()
    }

    /// The running kernel as it is now, if modules have come or gone since this was made; `None` if all is as it was.
    ///
    /// # Errors
    /// As [`Target::running`].
    pub fn reread(&self) -> Result<Option<Target>, TargetError> {
        let kernel = match self.kernel.get() {
            Some(kernel) if self.modules.are_running() => kernel.clone(),
            _ => return Ok(None),
        };
        if !self.modules.have_changed()? {
            return Ok(None);
        }
        let loaded = loaded_modules()?;
        Ok(Some(Target {
            symbols: OnceLock::new(),
            bases: self.bases,
            machine: self.machine,
            build_id: self.build_id.clone(),
            kernel: OnceLock::from(kernel),
            data: Arc::clone(&self.data),
            own_symbols: self.own_symbols,
            live_patches: LivePatches::running_or_noted(),
            modules: Modules::running(&loaded, &self.modules),
            options: self.options.clone(),
            base: OnceLock::new(),
            unread: OnceLock::new(),
        }))
    }

    /// What a report should say about site data that do not have all that siteseer's own have, or that could not be
    /// compared with the running kernel.
    #[doc(hidden)]
    pub fn notes_of_data(&self) -> impl Iterator<Item = String> {
        let lacking = self.data.note_of_lacking().or_else(|| self.modules.note_of_lacking());
        let unread = self.unread.get().map(|why| {
            format!(
                "the code at the sites was not compared with the site data, because the kernel's text cannot be read: {why}"
            )
        });
        lacking.into_iter().chain(unread)
    }

    /// What a report should say about live patches.
    pub(crate) fn note_of_live_patches(&self) -> Option<String> {
        self.live_patches.note()
    }

    /// The loaded modules, and what is known about their site data.
    #[doc(hidden)]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Looks up the functions of one name.
    ///
    /// # Errors
    /// As [`Target::functions`].
    #[doc(hidden)]
    pub fn function(&self, name: &str) -> Result<Function, TargetError> {
        let wanted = Wanted { module: None, function: Some(name.to_owned()) };
        let found = self.functions(std::slice::from_ref(&wanted))?.pop();
        found.ok_or_else(|| TargetError::Unknown { name: name.to_owned(), nearest: Vec::new() })
    }

    /// What is added to the site data's addresses to get those of the running kernel.
    fn displacement(&self, file: &SiteFile<'_>) -> Result<u64, TargetError> {
        if self.data.is_run_time() {
            return Ok(0);
        }
        let bases = match (self.bases, self.symbols.get()) {
            (Some(bases), _) => bases,
            (None, Some(symbols)) => {
                Bases { text: text_base(symbols, "_text")?, stext: text_base(symbols, "_stext").ok() }
            }
            (None, None) => return Err(TargetError::NoBase("_text")),
        };
        let by_text = bases.text.wrapping_sub(file.base_address());
        let text = file.sections().iter().find(|section| section.name == ".text");
        if let (Some(text), Some(stext)) = (text, bases.stext) {
            let by_stext = stext.wrapping_sub(text.address);
            if by_stext != by_text {
                return Err(TargetError::Displacement { by_text, by_stext });
            }
        }
        Ok(by_text)
    }

    /// The functions of a name in the image, or in a module.
    fn lookup(
        &self,
        file: &SiteFile<'_>,
        name: &str,
        module: Option<&Arc<str>>,
        placement: &Placement,
        symbols: &Symbols,
    ) -> Result<Option<Function>, FileError> {
        if name.starts_with("__pfx_") || name.starts_with("__cfi_") {
            return Ok(None);
        }
        let mut sites = Vec::new();
        let code = file.code()?;
        let mut budget = Budget::of(file.sizes());
        for function in file.functions(name)? {
            for site in function.sites() {
                let site = data_site(name, site?, placement, symbols, code.as_ref())?;
                budget.take(&site)?;
                sites.push(site);
            }
        }
        let has_plain_body = symbols.named(name).any(|symbol| symbol.module == module.map(|module| &**module));
        let plain: Vec<TypeId> = if has_plain_body { file.base_functions(name)? } else { Vec::new() };
        let holders = file.containers_of(name)?;
        let outlines: Vec<_> = holders.iter().map(|symbol| (symbol.address, symbol.unprobeable)).collect();
        let own = file.base_btf();
        let sources = Sources {
            module,
            outlines: &outlines,
            machine: file.machine(),
            btf: file.btf(),
            kernel_types: if module.is_some() { own.first_id() } else { own.end_id() },
            running_types: own.end_id(),
            symbols,
            placement,
        };
        let mut found = Function::join(name, sites, &plain, sources);
        // What the image says about symbols that no site tells about.
        for candidate in found.iter_mut().flat_map(|function| &mut function.candidates) {
            if candidate.module.as_ref() != module {
                continue;
            }
            let holder = holders
                .iter()
                .find(|holder| holder.address == candidate.link_address && holder.name == candidate.symbol);
            if self.own_symbols && candidate.is_entry() {
                candidate.traceable = holder.map(|holder| holder.unprobeable != Some(Unprobeable::Notrace));
            }
            if candidate.index.is_none() && candidate.obstacle.is_none() {
                candidate.obstacle = holder.and_then(|holder| holder.unprobeable).map(Reason::Unprobeable);
            }
        }
        Ok(found)
    }

    pub(crate) fn damaged(&self, error: FileError) -> TargetError {
        TargetError::Damaged { origin: self.data.origin().clone(), error }
    }

    /// Names like one that is not there, of functions with sites and of symbols.
    fn nearest(&self, file: &SiteFile<'_>, symbols: &Symbols, name: &str) -> Vec<String> {
        let symbols = symbols.iter().filter(|s| s.in_kernel()).map(|s| s.name);
        let holders = file.containers().map(|holder| holder.name);
        let made: BTreeSet<&str> = symbols.chain(holders).filter(|symbol| !is_fragment(symbol)).collect();
        let all: BTreeSet<&str> = file.function_names().chain(made).collect();
        siteseer_sites::file::nearest(all.into_iter(), name, SUGGESTIONS).into_iter().map(str::to_owned).collect()
    }
}

/// One site as the data have it.
fn data_site(
    name: &str,
    site: SiteRef<'_, '_>,
    placement: &Placement,
    symbols: &Symbols,
    code: Option<&Code<'_>>,
) -> Result<DataSite, FileError> {
    let place = |source: Source<'_>| Place { file: source.file.to_owned(), line: source.line };
    let holder = site.container();
    // Where the data do not say what a site is, the symbols do.
    let kind = site.kind().unwrap_or_else(|| {
        let made_from = |symbol: &str| symbol.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        let address = placement.run_time(site.address()).unwrap_or(0);
        if symbols.at(address).any(|symbol| symbol.name == name) {
            SiteKind::Body
        } else if symbols.at(address).any(|symbol| made_from(symbol.name)) {
            SiteKind::Clone
        } else {
            SiteKind::Inline
        }
    });
    Ok(DataSite {
        index: site.index(),
        func: site.func(),
        kind,
        address: site.address(),
        moved: site.moved(),
        arguments: site.arguments()?,
        holder: holder.map(|holder| Holder {
            name: holder.name.to_owned(),
            address: holder.address,
            size: u64::from(holder.size),
        }),
        source: site.source().map(place),
        declared: site.declared()?.map(place),
        code: code.map_or(Ok(CodeSum::NONE), |code| code.of(site.index()))?,
        marks: site.marks(),
        unprobeable: site.unprobeable(),
    })
}

/// The image's symbols that have to do with a function, and why the first byte of each cannot be probed: those of its
/// name, those made from it, and those that hold its sites.
fn outlines<'a>(file: &SiteFile<'a>, name: &str) -> Result<BTreeMap<(u64, &'a str), Option<Unprobeable>>, FileError> {
    let mut outlines = BTreeMap::new();
    let mut add = |symbol: ContainerRef<'a>| outlines.insert((symbol.address, symbol.name), symbol.unprobeable);
    for function in file.functions(name)? {
        for site in function.sites() {
            site?.container().map(&mut add);
        }
    }
    file.containers_of(name)?.into_iter().for_each(|symbol| {
        add(symbol);
    });
    Ok(outlines)
}

/// The same as symbols of an image that need not run.
fn image_symbols(file: &SiteFile<'_>, name: &str, module: Option<&str>) -> Result<Symbols, FileError> {
    Ok(Symbols::of_files(outlines(file, name)?.into_keys(), module))
}

/// The modules that are loaded, and which loading of each.
fn loaded_modules() -> Result<BTreeMap<String, u64>, SymbolsError> {
    sysfs::all().map_err(|error| SymbolsError::Read { path: sysfs::SYSFS.into(), error })
}

/// The running kernel's symbols, and the modules that were loaded all the while they were read.
fn running_symbols() -> Result<(Symbols, BTreeMap<String, u64>), SymbolsError> {
    const ATTEMPTS: usize = 5;
    let mut before = loaded_modules()?;
    for _ in 0..ATTEMPTS {
        let symbols = symbols::running()?;
        let after = loaded_modules()?;
        if after == before {
            return Ok((symbols, before));
        }
        before = after;
    }
    Err(SymbolsError::Restless)
}

/// The address of a symbol that marks a place in the image.
fn text_base(symbols: &Symbols, name: &'static str) -> Result<u64, TargetError> {
    symbols.named(name).find(|symbol| symbol.in_kernel()).map(|symbol| symbol.address).ok_or(TargetError::NoBase(name))
}
