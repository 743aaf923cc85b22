// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The functions of one name, and every place where their bodies may start executing on a given kernel.
//!
//! Three sources are joined:
//!
//! * the site data: inlined copies, and the out-of-line copies that a name cannot tell (clones, changed signatures,
//!   several functions of one name), with link-time addresses;
//! * the kernel's symbols: where all that is now, and out-of-line copies that the site data does not mention. A symbol
//!   that has exactly the function's name is a body, and its arguments are where the ABI puts them. A symbol
//!   `foo.anything` is a clone about which nothing is known;
//! * BTF: the prototypes.
//!
//! `foo.cold` (a continuation) and `foo.part.N` (what is left of foo after its head was inlined) are not places where
//! foo starts. Either may be named explicitly; then it is a function of its own.
//!
//! That is done for the kernel's image and for each loaded module by itself: each has site data, BTF and symbols of its
//! own. [`Function::merged`] takes the functions of a name together.
//!
//! Everything that any of the sources knows becomes a [`Candidate`]. What stands against one, whatever the program, is
//! found here ([`Candidate::obstacle`]); what a program adds to that is the plan's business. No candidate is left out.

use crate::kernel::symbols::{Symbol, Symbols};
use crate::site::reason::Reason;
use crate::source::placement::Placement;
use siteseer_sites::btf::{Btf, TypeId};
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::site::{Marks, SiteKind, Unprobeable};
use siteseer_sites::{CodeSum, Machine};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

mod prototype;
mod select;

pub use crate::site::candidate::{Candidate, Place};
pub use prototype::{Parameter, Prototype};
pub use select::{LeftOut, Namesake, SelectError, Selection};

/// The symbol that holds a site, with its link-time address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Name.
    pub name: String,
    /// Link-time address.
    pub address: u64,
    /// Bytes; 0 where the site data does not say.
    pub size: u64,
}

impl Holder {
    /// Whether a body that starts at `entry`, with its probe at `probe`, lies in it. Both are link-time addresses.
    fn holds(&self, entry: Option<u64>, probe: u64) -> bool {
        let within = |address: u64| address.checked_sub(self.address).is_some_and(|offset| offset < self.size);
        self.size == 0 || (entry.is_some_and(within) && within(probe))
    }
}

/// The symbol that holds a site in the kernel, and what the kernel's symbols have against that.
struct Held {
    symbol: String,
    address: u64,
    size: u64,
    contradiction: Option<Reason>,
}

/// One site as the site data has it.
#[derive(Debug, Clone)]
pub struct DataSite {
    /// The site's number in the site data.
    pub index: u32,
    /// BTF FUNC of the function.
    pub func: TypeId,
    /// What the site is.
    pub kind: SiteKind,
    /// Link-time address of the probe.
    pub address: u64,
    /// How many bytes before the probe the body starts; with [`Marks::MOVED_BACK`], how many bytes after it.
    pub moved: u8,
    /// One per parameter.
    pub arguments: Vec<Argument>,
    /// The symbol that holds it; `None` where the site data does not say.
    pub holder: Option<Holder>,
    /// Where it was called (inline site) or declared.
    pub source: Option<Place>,
    /// Where the function was declared.
    pub declared: Option<Place>,
    /// Flags.
    pub marks: Marks,
    /// Why it cannot be probed, as far as the image tells.
    pub unprobeable: Option<Unprobeable>,
    /// The sum of the code at the probe, as far as the data has it.
    pub code: CodeSum,
}

impl DataSite {
    /// Link-time address at which the body starts; `None` if the data puts that below all addresses.
    fn entry(&self) -> Option<u64> {
        self.entry_of(self.address)
    }

    /// The same for a probe that is at `probe`.
    fn entry_of(&self, probe: u64) -> Option<u64> {
        probe.checked_add_signed(-i64::from(self.marks.signed_distance(self.moved)))
    }
}

/// All functions of one name.
#[derive(Debug, Clone)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The different prototypes that functions of the name have.
    pub prototypes: Vec<Prototype>,
    /// Where the bodies start.
    pub candidates: Vec<Candidate>,
    /// Functions of the name that are not meant: see [`Function::select`].
    pub left_out: Vec<LeftOut>,
    /// What is added to the address constants of its locations to get run-time addresses. Those of sites in modules
    /// have been settled, and are plain constants.
    pub displacement: u64,
}

/// What a function is put together from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The module; `None` for the kernel's image.
    pub module: Option<&'a Arc<str>>,
    /// The architecture.
    pub machine: Machine,
    /// The kernel's BTF, a module's over it, and the site data's over that.
    pub btf: &'a Btf<'a>,
    /// The first type number that the BTF of the kernel's image does not have.
    pub kernel_types: TypeId,
    /// The first type number that the running kernel does not have at all: neither its image nor the module.
    pub running_types: TypeId,
    /// The kernel's tables.
    pub symbols: &'a Symbols,
    /// Where it lies.
    pub placement: &'a Placement,
    /// What the site data knows of out-of-line symbols that have the name or are made from it: link-time address, and
    /// why its first byte cannot be probed.
    pub outlines: &'a [(u64, Option<Unprobeable>)],
}

/// Whether a symbol made from the name is not a place where the function starts: a continuation, or what is left of it
/// after its head was inlined.
pub fn is_fragment(symbol: &str) -> bool {
    symbol.split('.').skip(1).any(|word| word == "cold" || word == "part")
        || symbol.starts_with("__pfx_")
        || symbol.starts_with("__cfi_")
}

impl<'a> Sources<'a> {
    /// Whether a symbol is of the image, or the module.
    fn owns(&self, symbol: &Symbol<'_>) -> bool {
        symbol.module == self.module.map(|module| &**module)
    }

    /// Finds the symbol that holds a site which the kernel has at `address`.
    ///
    /// The checksums of site data protect from accidents, not from intent. The names under which sites are reported are
    /// therefore those that the kernel's own symbols confirm: the holder is where the site data says, it is as large,
    /// and the site is inside of it.
    fn holder_of(&self, site: &DataSite, address: u64) -> Option<Held> {
        let Some(holder) = &site.holder else {
            let found = self.symbols.containing(address)?;
            let contradiction = (!self.owns(&found.symbol)).then_some(Reason::SymbolMismatch);
            let symbol = found.symbol.name.to_owned();
            return Some(Held { symbol, address: found.symbol.address, size: found.size, contradiction });
        };
        let at = self.placement.run_time(holder.address).unwrap_or(0);
        let known = self.symbols.at(at).any(|found| found.name == holder.name && self.owns(&found));
        let size = self.symbols.containing(at).map_or(0, |found| found.size - found.offset);
        let entry = site.entry_of(address);
        let inside = |address: u64| address.checked_sub(at).is_some_and(|offset| offset < size);
        let contradiction = if !known || holder.size > size {
            Some(Reason::SymbolMismatch)
        } else if !holder.holds(site.entry(), site.address) || !inside(address) || !entry.is_some_and(inside) {
            Some(Reason::OutsideSymbol)
        } else {
            None
        };
        Some(Held { symbol: holder.name.clone(), address: at, size, contradiction })
    }

    fn prototype(&self, func: TypeId) -> Option<Prototype> {
        let prototype = Prototype::of(self.btf, func, self.kernel_types)?;
        Some(Prototype { module: self.module.cloned(), ..prototype })
    }

    /// The prototype of a copy if none is known.
    fn no_prototype(&self, name: &str) -> Prototype {
        Prototype { module: self.module.cloned(), ..Prototype::unknown(name) }
    }
}

impl Function {
    /// Joins what is known about the functions of a name in the image, or in one module. `funcs` are the FUNCs of
    /// exactly that name in its own BTF. `None` if nothing is known: there is no such function. For the image, symbols
    /// in modules are taken for bodies about which nothing is known.
    pub fn join(name: &str, data: Vec<DataSite>, funcs: &[TypeId], sources: Sources<'_>) -> Option<Function> {
        let mut function = Function {
            name: name.to_owned(),
            prototypes: Vec::new(),
            candidates: Vec::new(),
            left_out: Vec::new(),
            displacement: sources.placement.displacement(),
        };
        // Prototypes by FUNC: a function may have thousands of sites.
        let mut read: HashMap<TypeId, usize> = HashMap::new();
        let mut described: HashSet<u64> = HashSet::new();
        for site in data {
            if site.kind != SiteKind::Inline {
                let symbol = site.holder.as_ref().map(|holder| holder.address).or_else(|| site.entry());
                described.extend(symbol.and_then(|symbol| sources.placement.run_time(symbol)));
            }
            function.add_described(site, &mut read, sources);
        }
        // By name alone a body is told only where the name is one body's and one FUNC's: else the FUNC might be
        // another's.
        let bodies = sources.symbols.named(name).filter(|symbol| sources.owns(symbol));
        let undescribed: HashSet<u64> =
            bodies.map(|symbol| symbol.address).filter(|address| !described.contains(address)).collect();
        let plain = match funcs {
            &[func] if undescribed.len() == 1 => Some(func),
            _ => None,
        };
        for symbol in sources.symbols.named(name).filter(|symbol| !symbol.is_generated()) {
            match symbol.module {
                _ if sources.owns(&symbol) && !described.contains(&symbol.address) => {
                    function.add_plain(symbol.address, plain, sources);
                }
                Some(module) if sources.module.is_none() => function.add_module(symbol.address, module, sources),
                _ => {}
            }
        }
        for symbol in sources.symbols.suffixed(name).filter(|symbol| !is_fragment(symbol.name)) {
            match symbol.module {
                _ if sources.owns(&symbol) && !described.contains(&symbol.address) => {
                    function.add_unknown_clone(symbol.address, symbol.name, sources);
                }
                Some(module) if sources.module.is_none() && !symbol.is_generated() => {
                    function.add_module(symbol.address, module, sources);
                }
                _ => {}
            }
        }
        if function.candidates.is_empty() {
            return None;
        }
        function.mark_exact(funcs, sources);
        function.sort();
        Some(function)
    }

    fn sort(&mut self) {
        self.candidates.sort_by(|a, b| {
            let order = |c: &Candidate| (c.kind, c.address);
            order(a).cmp(&order(b)).then_with(|| a.module.cmp(&b.module)).then_with(|| a.index.cmp(&b.index))
        });
    }

    /// Takes functions of one name, in the image and in modules, together. `None` if there are none.
    pub fn merged(functions: impl IntoIterator<Item = Function>) -> Option<Function> {
        let mut functions = functions.into_iter();
        let mut all = functions.next()?;
        for function in functions {
            let first = all.prototypes.len();
            all.prototypes.extend(function.prototypes);
            all.left_out.extend(function.left_out);
            // One of a module has settled its addresses, and does not displace them.
            if all.candidates.iter().all(|candidate| candidate.module.is_some()) {
                all.displacement = function.displacement;
            }
            let moved = function.candidates.into_iter();
            all.candidates.extend(moved.map(|site| Candidate { prototype: first + site.prototype, ..site }));
        }
        all.sort();
        Some(all)
    }

    /// Finds the body that the only FUNC of the name, and the only symbol of the name, both mean.
    fn mark_exact(&mut self, funcs: &[TypeId], sources: Sources<'_>) {
        let func = match *funcs {
            [func] => func,
            // A module's BTF does not repeat a FUNC that its kernel has, name and prototype.
            [] if sources.module.is_some() => {
                let bodies = self.candidates.iter().filter(|site| site.kind == SiteKind::Body && site.described);
                let funcs = bodies.filter_map(|site| self.prototypes.get(site.prototype)?.func);
                let mut funcs: Vec<TypeId> = funcs.filter(|&func| func < sources.running_types).collect();
                funcs.dedup();
                let &[func] = funcs.as_slice() else { return };
                func
            }
            _ => return,
        };
        let mut named = sources.symbols.named(&self.name).filter(|symbol| sources.owns(symbol));
        let (Some(symbol), None) = (named.next(), named.next()) else { return };
        let Some(own) = sources.prototype(func) else { return };
        let Function { prototypes, candidates, .. } = self;
        for candidate in candidates {
            let alike = prototypes.get(candidate.prototype).is_some_and(|prototype| prototype.is_like(&own));
            let there = candidate.is_entry() && candidate.address == symbol.address && candidate.moved == 0;
            if candidate.kind == SiteKind::Body && there && alike {
                candidate.exact = Some(func);
            }
        }
    }

    /// The prototype's index; equal texts are one prototype.
    fn prototype(&mut self, prototype: Prototype) -> usize {
        let known = self.prototypes.iter().position(|other| other.is_like(&prototype));
        known.unwrap_or_else(|| {
            self.prototypes.push(prototype);
            self.prototypes.len() - 1
        })
    }

    fn add_described(&mut self, site: DataSite, read: &mut HashMap<TypeId, usize>, sources: Sources<'_>) {
        let prototype = *read.entry(site.func).or_insert_with(|| {
            let prototype = sources.prototype(site.func);
            self.prototype(prototype.unwrap_or_else(|| sources.no_prototype(&self.name)))
        });
        let mut count = 0;
        if let Some(prototype) = self.prototypes.get_mut(prototype) {
            count = prototype.parameters.len();
            if let Some(place) = &site.declared
                && !prototype.declared.contains(place)
            {
                prototype.declared.push(place.clone());
            }
        }
        let mut obstacle = site.unprobeable.map(Reason::Unprobeable);
        let placed = sources.placement.run_time(site.address);
        if placed.is_none() && obstacle.is_none() {
            obstacle = Some(Reason::SymbolMismatch);
        }
        let address = placed.unwrap_or(0);
        let held = sources.holder_of(&site, address).unwrap_or_else(|| {
            let symbol = site.holder.as_ref().map_or(&self.name, |holder| &holder.name).clone();
            Held { symbol, address, size: 0, contradiction: None }
        });
        let Held { symbol, address: symbol_address, size: symbol_size, contradiction } = held;
        let obstacle = obstacle.or(contradiction);
        let mut arguments: Vec<Argument> =
            site.arguments.into_iter().map(|argument| sources.placement.settle(argument)).collect();
        arguments.resize(count, Err(Missing::NotMentioned));
        self.candidates.push(Candidate {
            module: sources.module.cloned(),
            index: Some(site.index),
            kind: site.kind,
            address,
            link_address: site.address,
            moved: site.moved,
            obstacle: obstacle.or_else(|| running_obstacle(address, sources.symbols)),
            ends_module: sources.symbols.ends_module(address),
            traceable: sources.symbols.traceable(symbol_address, symbol_size),
            symbol,
            symbol_address,
            symbol_size,
            prototype,
            arguments,
            marks: site.marks,
            source: site.source,
            declared: site.declared,
            code: site.code,
            described: true,
            exact: None,
            bpf: None,
            live_patch: None,
        });
    }

    /// A candidate that only the kernel's symbols know.
    fn add_symbol(
        &mut self,
        kind: SiteKind,
        address: u64,
        name: &str,
        prototype: usize,
        arguments: Vec<Argument>,
        sources: Sources<'_>,
    ) {
        let size = sources.symbols.containing(address).map_or(0, |found| found.size);
        let link_address = sources.placement.link_time(address).unwrap_or(address);
        let outline = sources.outlines.iter().find(|(at, _)| *at == link_address);
        let unprobeable = outline.and_then(|(_, why)| *why).map(Reason::Unprobeable);
        self.candidates.push(Candidate {
            module: sources.module.cloned(),
            index: None,
            kind,
            address,
            link_address,
            moved: 0,
            symbol: name.to_owned(),
            symbol_address: address,
            symbol_size: size,
            prototype,
            arguments,
            marks: Marks::default(),
            source: None,
            declared: None,
            obstacle: unprobeable.or_else(|| running_obstacle(address, sources.symbols)),
            ends_module: sources.symbols.ends_module(address),
            traceable: sources.symbols.traceable(address, size),
            code: CodeSum::NONE,
            described: false,
            exact: None,
            bpf: None,
            live_patch: None,
        });
    }

    /// A body that needs no description: the ABI says where its arguments are.
    fn add_plain(&mut self, address: u64, plain: Option<TypeId>, sources: Sources<'_>) {
        let found = plain.and_then(|func| sources.prototype(func));
        let name = self.name.clone();
        let (prototype, arguments) = match found {
            Some(prototype) => {
                let arguments = prototype.by_convention(sources.machine);
                (self.prototype(prototype), arguments)
            }
            None => (self.prototype(sources.no_prototype(&name)), Vec::new()),
        };
        self.add_symbol(SiteKind::Body, address, &name, prototype, arguments, sources);
    }

    fn add_unknown_clone(&mut self, address: u64, symbol: &str, sources: Sources<'_>) {
        let prototype = self.prototype(sources.no_prototype(&self.name.clone()));
        self.add_symbol(SiteKind::Clone, address, symbol, prototype, Vec::new(), sources);
    }

    fn add_module(&mut self, address: u64, module: &str, sources: Sources<'_>) {
        let name = self.name.clone();
        let prototype = self.prototype(Prototype::unknown(&name));
        self.add_symbol(SiteKind::Body, address, &name, prototype, Vec::new(), sources);
        if let Some(candidate) = self.candidates.last_mut() {
            candidate.module = Some(module.into());
            candidate.obstacle = Some(Reason::InModule(module.to_owned()));
        }
    }

    /// The prototypes that are known.
    pub fn known_prototypes(&self) -> impl Iterator<Item = &Prototype> {
        self.prototypes.iter().filter(|prototype| prototype.func.is_some())
    }
}

/// What the running kernel's own tables say against a probe.
fn running_obstacle(address: u64, symbols: &Symbols) -> Option<Reason> {
    if symbols.blacklisted(address) == Some(true) {
        return Some(Reason::Blacklisted);
    }
    (symbols.notrace(address) == Some(true)).then_some(Reason::Notrace)
}
