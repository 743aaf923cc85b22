// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A kernel to attach to: its site data, symbols and capabilities, and the functions looked up in them.
//!
//! Site data carry link-time addresses. The kernel lies elsewhere (KASLR), all of it displaced by one number, which follows
//! from the symbol `_text`. That the number is right is checked twice: against `_stext`, and, site by site, by the
//! symbol that the site data say is there ([`crate::Reason::SymbolMismatch`]).

use crate::error::Error;
use crate::function::{DataSite, Function, Holder, Place, Sources, is_fragment};
use crate::kernel::{BuildId, Kernel};
use crate::livepatch::LivePatches;
use crate::reason::Reason;
use crate::section::Wanted;
use crate::source::{Origin, RunTime, SiteData, SourceOptions};
use crate::symbols::{self, Symbols};
use siteseer_sites::Machine;
use siteseer_sites::btf::TypeId;
use siteseer_sites::file::{FileError, SiteFile, SiteRef, Source};
use siteseer_sites::site::{SiteKind, Unprobeable};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread;

/// Why a function cannot be looked up.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no function of that name.
    #[error("there is no function {name} in this kernel{}", nearest_text(nearest))]
    Unknown {
        /// The name.
        name: String,
        /// Names like it that there are.
        nearest: Vec<String>,
    },
    /// A module was named.
    #[error("{module}:{function}: functions of modules are not supported yet")]
    Module {
        /// The module.
        module: String,
        /// The function.
        function: String,
    },
    /// The kernel's symbols do not say where its image lies.
    #[error("the kernel's symbols have no {0}: where its image lies is not known")]
    NoBase(&'static str),
    /// The site data and the kernel disagree about the layout of the image.
    #[error(
        "the site data do not fit the running kernel: by _text it is displaced by {by_text:#x}, by _stext by {by_stext:#x}"
    )]
    Displacement {
        /// By `_text`.
        by_text: u64,
        /// By `_stext`.
        by_stext: u64,
    },
    /// The site data are damaged.
    #[error("{origin}: {error}")]
    Damaged {
        /// Where they are from.
        origin: Origin,
        /// What is wrong.
        error: FileError,
    },
}

fn nearest_text(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

/// A kernel to attach to.
#[derive(Debug)]
pub struct Target {
    symbols: Symbols,
    machine: Machine,
    build_id: BuildId,
    /// Of an image, found out when it is asked for: that takes a walk over all types, and a lookup does not need it.
    kernel: OnceLock<Kernel>,
    data: SiteData,
    /// Whether the symbols are those of the site data, taken for each function when it is looked up.
    own_symbols: bool,
    live_patches: LivePatches,
}

/// How many names an error suggests.
const SUGGESTIONS: usize = 5;

impl Target {
    /// The running kernel. Reads its symbols (which takes root, see [`symbols::running`]) and finds its site data.
    ///
    /// # Errors
    /// [`Error::Kernel`], [`Error::Symbols`] or [`Error::Source`].
    pub fn running(options: &SourceOptions) -> Result<Target, Error> {
        // Each waits for the kernel, which writes tables for the one and checks programs for the other.
        let (kernel, symbols) = thread::scope(|scope| {
            let symbols = scope.spawn(symbols::running);
            let kernel = Kernel::running();
            (kernel, symbols.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (kernel, symbols) = (kernel?, symbols?);
        let at = RunTime { text: text_base(&symbols, "_text")?, stext: text_base(&symbols, "_stext")? };
        let data = SiteData::find(options, &kernel, at)?;
        // Where they cannot be read, no code is taken for dead.
        let live_patches = LivePatches::running().unwrap_or_default();
        Ok(Target::new(symbols, kernel, data).with_live_patches(live_patches))
    }

    /// A kernel of which everything is given; plans for it can be computed without it running.
    pub fn new(symbols: Symbols, kernel: Kernel, data: SiteData) -> Target {
        Target {
            symbols,
            machine: kernel.machine,
            build_id: kernel.build_id.clone(),
            kernel: OnceLock::from(kernel),
            data,
            own_symbols: false,
            live_patches: LivePatches::default(),
        }
    }

    /// Sets which functions live patches have replaced.
    #[must_use]
    pub fn with_live_patches(mut self, live_patches: LivePatches) -> Target {
        self.live_patches = live_patches;
        self
    }

    /// A kernel image that need not run anywhere: addresses are those of link time, and whether a probe can be put is what
    /// the image tells. Nothing can be attached to it.
    ///
    /// # Errors
    /// [`Error::Source`] if the site data cannot be read.
    pub fn image(data: SiteData) -> Result<Target, Error> {
        let (machine, build_id) = data.image()?;
        Ok(Target {
            symbols: Symbols::default(),
            machine,
            build_id,
            kernel: OnceLock::new(),
            data,
            own_symbols: true,
            live_patches: LivePatches::default(),
        })
    }

    /// Its symbols.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Its capabilities; of an image, what it was compiled for.
    pub fn kernel(&self) -> &Kernel {
        self.kernel.get_or_init(|| Kernel::of_image(self.machine, self.build_id.clone(), self.data.base_btf()))
    }

    /// Its architecture.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Its site data.
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

    /// Looks up the functions of several names at once, in their order.
    ///
    /// # Errors
    /// [`Error::Target`] if a name is not known or in a module, [`Error::Source`] if the site data cannot be read.
    pub fn functions(&self, wanted: &[Wanted]) -> Result<Vec<Function>, Error> {
        let mut names = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let name = wanted.function.as_deref().unwrap_or_default();
            if let Some(module) = wanted.module.as_deref().filter(|&module| module != "vmlinux") {
                let (module, function) = (module.to_owned(), name.to_owned());
                return Err(TargetError::Module { module, function }.into());
            }
            names.push(name);
        }
        let found = self.data.read(&names, |file| -> Result<Vec<Function>, TargetError> {
            if self.own_symbols {
                let lookup = |name: &&str| {
                    let symbols = image_symbols(file, name).map_err(|error| self.damaged(error))?;
                    self.lookup(file, name, 0, &symbols)
                };
                return names.iter().map(lookup).collect();
            }
            let displacement = self.displacement(file)?;
            names.iter().map(|name| self.lookup(file, name, displacement, &self.symbols)).collect()
        })?;
        let found = found.map_err(|error| match error {
            // What was read of debug information is the functions asked for; other names take reading all.
            TargetError::Unknown { name, nearest } if nearest.is_empty() && self.data.reads_dwarf() => {
                let nearest = self.data.read(&[], |file| self.nearest(file, &name)).unwrap_or_default();
                TargetError::Unknown { name, nearest }
            }
            other => other,
        });
        let mut functions = found?;
        for function in &mut functions {
            self.live_patches.mark(&mut function.candidates, &self.symbols);
        }
        for (function, wanted) in functions.iter_mut().zip(wanted) {
            if wanted.module.is_some() {
                // vmlinux:foo leaves the modules' functions of that name out, rather than not reaching them.
                function.candidates.retain(|c| !matches!(c.obstacle, Some(crate::Reason::InModule(_))));
            }
        }
        Ok(functions)
    }

    /// Looks up the functions of one name.
    ///
    /// # Errors
    /// As [`Target::functions`].
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let wanted = Wanted { module: None, function: Some(name.to_owned()) };
        let found = self.functions(std::slice::from_ref(&wanted))?.pop();
        found.ok_or_else(|| TargetError::Unknown { name: name.to_owned(), nearest: Vec::new() }.into())
    }

    /// What is added to the site data's addresses to get those of the running kernel.
    fn displacement(&self, file: &SiteFile<'_>) -> Result<u64, TargetError> {
        if self.data.is_run_time() {
            return Ok(0);
        }
        let by_text = text_base(&self.symbols, "_text")?.wrapping_sub(file.base_address());
        let text = file.sections().iter().find(|section| section.name == ".text");
        if let (Some(text), Ok(stext)) = (text, text_base(&self.symbols, "_stext")) {
            let by_stext = stext.wrapping_sub(text.address);
            if by_stext != by_text {
                return Err(TargetError::Displacement { by_text, by_stext });
            }
        }
        Ok(by_text)
    }

    fn lookup(
        &self,
        file: &SiteFile<'_>,
        name: &str,
        displacement: u64,
        symbols: &Symbols,
    ) -> Result<Function, TargetError> {
        let damaged = |error| self.damaged(error);
        let mut sites = Vec::new();
        for function in file.functions(name).map_err(damaged)? {
            for site in function.sites() {
                let site = site.map_err(damaged)?;
                sites.push(self.data_site(name, site, displacement).map_err(damaged)?);
            }
        }
        let has_plain_body = symbols.named(name).any(|symbol| symbol.in_kernel());
        let plain: Vec<TypeId> = if has_plain_body { file.base_functions(name).map_err(damaged)? } else { Vec::new() };
        let holders = file.containers_of(name).map_err(damaged)?;
        let outlines: Vec<_> = holders.iter().map(|symbol| (symbol.address, symbol.unprobeable)).collect();
        let sources = Sources {
            outlines: &outlines,
            machine: file.machine(),
            btf: file.btf(),
            kernel_types: file.base_btf().end_id(),
            symbols,
            displacement,
        };
        let fragment = name.starts_with("__pfx_") || name.starts_with("__cfi_");
        let mut found = if fragment { None } else { Function::join(name, sites, &plain, sources) };
        // What the image says of symbols that no site tells of.
        for candidate in found.iter_mut().flat_map(|function| &mut function.candidates) {
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
        found.ok_or_else(|| TargetError::Unknown { name: name.to_owned(), nearest: self.nearest(file, name) })
    }

    fn damaged(&self, error: FileError) -> TargetError {
        TargetError::Damaged { origin: self.data.origin().clone(), error }
    }

    fn data_site(&self, name: &str, site: SiteRef<'_, '_>, displacement: u64) -> Result<DataSite, FileError> {
        let place = |source: Source<'_>| Place { file: source.file.to_owned(), line: source.line };
        let holder = site.container();
        // Where the data do not say what a site is, the symbols do.
        let kind = site.kind().unwrap_or_else(|| {
            let made_from = |symbol: &str| symbol.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
            let address = site.address().wrapping_add(displacement);
            if self.symbols.at(address).any(|symbol| symbol.name == name) {
                SiteKind::Body
            } else if self.symbols.at(address).any(|symbol| made_from(symbol.name)) {
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
            holder: holder.map(|holder| Holder { name: holder.name.to_owned(), address: holder.address }),
            source: site.source().map(place),
            declared: site.declared()?.map(place),
            marks: site.marks(),
            unprobeable: site.unprobeable(),
        })
    }

    /// Names like one that is not there, of functions with sites and of symbols.
    fn nearest(&self, file: &SiteFile<'_>, name: &str) -> Vec<String> {
        let symbols = self.symbols.iter().filter(|s| s.in_kernel()).map(|s| s.name);
        let holders = file.containers().map(|holder| holder.name);
        let made: BTreeSet<&str> = symbols.chain(holders).filter(|symbol| !is_fragment(symbol)).collect();
        let all: BTreeSet<&str> = file.function_names().chain(made).collect();
        siteseer_sites::file::nearest(all.into_iter(), name, SUGGESTIONS).into_iter().map(str::to_owned).collect()
    }
}

/// The image's symbols that have to do with a function: those of its name, those made from it, and those that hold its sites.
fn image_symbols(file: &SiteFile<'_>, name: &str) -> Result<Symbols, FileError> {
    let mut holders: BTreeSet<(u64, &str)> = BTreeSet::new();
    for function in file.functions(name)? {
        for site in function.sites() {
            holders.extend(site?.container().map(|holder| (holder.address, holder.name)));
        }
    }
    holders.extend(file.containers_of(name)?.iter().map(|holder| (holder.address, holder.name)));
    Ok(Symbols::from_image(holders))
}

/// The address of a symbol that marks a place in the image.
fn text_base(symbols: &Symbols, name: &'static str) -> Result<u64, TargetError> {
    symbols.named(name).find(|symbol| symbol.in_kernel()).map(|symbol| symbol.address).ok_or(TargetError::NoBase(name))
}
