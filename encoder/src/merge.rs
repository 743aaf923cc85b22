// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From the sites of all units to one set.
//!
//! Units come in the order of `.debug_info`, and everything is numbered by first appearance, so that the same image
//! gives the same set, whatever the number of threads. A function is its name and its prototype: copies in all
//! units of a `static inline` are one function, two functions of one name that differ in a type stay two. What a unit
//! left open is settled first: see [`Provisional`].

use crate::census::{Census, Counts};
use crate::filter::Filter;
use crate::image::Image;
use crate::probeable::Prober;
use crate::types::TypeRef;
use crate::unit::{ParameterKey, Provisional, Shared, UnitFunction, UnitSites};
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;
use siteseer_sites::btf::{Btf, Kind, Linkage, SplitBtf, TypeId};
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::set::{Container, Function, Section, SiteSet};
use siteseer_sites::site::SourceLine;
use siteseer_sites::{Marks, Site, SiteKind};

/// Settles and merges the units.
pub(crate) fn merge(
    shared: &Shared<'_, '_>,
    base_btf: &[u8],
    base: &Btf<'_>,
    mut units: Vec<UnitSites<'_>>,
) -> (SiteSet, Census) {
    let assigned: HashSet<ParameterKey<'_>> = units.iter().flat_map(|unit| unit.assigned.iter().copied()).collect();
    let mut counts: Vec<Counts> = units.par_iter_mut().map(|unit| settle(unit, &assigned)).collect();
    let image = shared.image;
    let mut merged = Merged::new(base);
    merged.symbols(image, shared.filter.as_ref());
    let numbering: Vec<Numbering> = units.iter().map(|unit| merged.number(unit)).collect();
    let sites = renumber(&units, &numbering);
    let mut set = SiteSet {
        machine: image.machine(),
        build_id: image.build_id().to_vec(),
        base: image.base(),
        base_btf: base_btf.to_vec(),
        types: merged.types,
        sections: image
            .text_sections()
            .iter()
            .map(|section| Section { name: section.name.to_owned(), address: section.address, size: section.size })
            .collect(),
        functions: merged.functions,
        prototypes: merged.prototypes,
        containers: merged.containers,
        files: merged.files,
        sites,
    };
    let mut census = Census::take(&set, counts.drain(..).fold(Counts::default(), Counts::plus));
    let rests: Vec<u32> = units
        .iter()
        .zip(&numbering)
        .flat_map(|(unit, numbers)| unit.rests.iter().map(|site| numbers.first_site + site))
        .collect();
    drop_sites(&mut set, &rests);
    census.functions = set.functions.len() as u64;
    census.prototypes = set.prototypes.len() as u64;
    (set, census)
}

/// Takes sites out of a set, and the functions and location prototypes that only they had. `drop` is sorted.
fn drop_sites(set: &mut SiteSet, drop: &[u32]) {
    if drop.is_empty() {
        return;
    }
    // Where each site goes; a dropped one leads to the site that it is in.
    let mut place: Vec<Option<u32>> = Vec::with_capacity(set.sites.len());
    let (mut kept, mut dropped) = (0, drop.iter().copied().peekable());
    for (index, site) in set.sites.iter().enumerate() {
        if dropped.next_if_eq(&(index as u32)).is_some() {
            place.push(site.parent.and_then(|parent| place.get(parent as usize).copied().flatten()));
        } else {
            place.push(Some(kept));
            kept += 1;
        }
    }
    let mut dropped = drop.iter().copied().peekable();
    let mut index = 0u32;
    set.sites.retain(|_| {
        let is_dropped = dropped.next_if_eq(&index).is_some();
        index += 1;
        !is_dropped
    });
    let mut functions = vec![false; set.functions.len()];
    let mut prototypes = vec![false; set.prototypes.len()];
    for site in &set.sites {
        functions[site.function as usize] = true;
        prototypes[site.prototype as usize] = true;
    }
    let function_of = compact(&mut set.functions, &functions);
    let prototype_of = compact(&mut set.prototypes, &prototypes);
    for site in &mut set.sites {
        site.parent = site.parent.and_then(|parent| place.get(parent as usize).copied().flatten());
        site.function = function_of[site.function as usize];
        site.prototype = prototype_of[site.prototype as usize];
    }
}

/// Keeps the used ones; returns the new number of each.
fn compact<T>(all: &mut Vec<T>, used: &[bool]) -> Vec<u32> {
    let mut next = 0;
    let numbers = used
        .iter()
        .map(|used| {
            let number = next;
            next += u32::from(*used);
            number
        })
        .collect();
    let mut used = used.iter().copied();
    all.retain(|_| used.next().unwrap_or(false));
    numbers
}

/// Marks copies of one function that begin at one address. They are calls one after the other, of which the first left no
/// instruction, or branches that the compiler merged, of which control takes one. The debug information does not say; a
/// program that runs for each of them may run more often than the function was called.
fn mark_shared(unit: &mut UnitSites<'_>) {
    let rests: HashSet<u32> = unit.rests.iter().copied().collect();
    let mut order: Vec<u32> = (0u32..)
        .zip(&unit.sites)
        .filter(|(index, site)| site.kind == SiteKind::Inline && !rests.contains(index))
        .map(|(index, _)| index)
        .collect();
    let sites = &mut unit.sites;
    order.sort_unstable_by_key(|&index| (sites[index as usize].address, sites[index as usize].function));
    for pair in order.windows(2) {
        let (one, other) = (pair[0] as usize, pair[1] as usize);
        if (sites[one].address, sites[one].function) == (sites[other].address, sites[other].function) {
            sites[one].marks |= Marks::MAY_REPEAT;
            sites[other].marks |= Marks::MAY_REPEAT;
        }
    }
}

/// Settles what a unit left open.
fn settle(unit: &mut UnitSites<'_>, assigned: &HashSet<ParameterKey<'_>>) -> Counts {
    let mut counts = Counts {
        rests: unit.rests.len() as u64,
        outside_text: unit.tally.outside_text,
        without_origin: unit.tally.without_origin,
        usable: unit.tally.usable,
        located_of_usable: unit.tally.located_of_usable,
        gained_by_moving: 0,
    };
    mark_shared(unit);
    let provisional = std::mem::take(&mut unit.provisional);
    let mut changed: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for of_site in provisional.chunk_by(|a, b| a.site == b.site) {
        let Some(first) = of_site.first() else { continue };
        let site = &mut unit.sites[first.site as usize];
        let function = &unit.functions[site.function as usize];
        let stands = |provisional: &&Provisional| {
            !assigned.contains(&(function.name, function.origin.declared_line, provisional.parameter))
        };
        counts.gained_by_moving +=
            of_site.iter().filter(stands).filter(|provisional| provisional.otherwise == Missing::NotAtEntry).count()
                as u64;
        if of_site.iter().filter(stands).count() == of_site.len() {
            continue;
        }
        let mut arguments = unit.prototypes[site.prototype as usize].clone();
        let mut is_late = false;
        for provisional in of_site {
            if stands(&provisional) {
                is_late |= provisional.otherwise == Missing::AfterEntry;
            } else if let Some(argument) = arguments.get_mut(usize::from(provisional.parameter)) {
                *argument = Err(provisional.otherwise);
                counts.located_of_usable -= u64::from(provisional.usable);
            }
        }
        if !is_late {
            site.marks = Marks(site.marks.0 & !Marks::LATE_VIEW.0);
        }
        let next = unit.prototypes.len() as u32;
        site.prototype = *changed.entry(arguments).or_insert_with_key(|arguments| {
            unit.prototypes.push(arguments.clone());
            next
        });
    }
    counts
}

/// For each of a unit's numbers, the set's.
struct Numbering {
    functions: Vec<u32>,
    prototypes: Vec<u32>,
    containers: Vec<u32>,
    files: Vec<u32>,
    first_site: u32,
}

/// What tells one function from another: its FUNC in the base, or its name and types.
#[derive(Debug, PartialEq, Eq, Hash)]
enum FunctionKey<'u> {
    Base(TypeId),
    New { name: &'u str, returns: &'u TypeRef, parameters: Vec<&'u TypeRef>, variadic: bool },
}

struct Merged<'u> {
    types: SplitBtf,
    functions: Vec<Function>,
    prototypes: Vec<Box<[Argument]>>,
    containers: Vec<Container>,
    files: Vec<String>,
    sites: u32,
    function_of: HashMap<FunctionKey<'u>, u32>,
    prototype_of: HashMap<&'u [Argument], u32>,
    container_of: HashMap<u64, u32>,
    file_of: HashMap<&'u str, u32>,
}

impl<'u> Merged<'u> {
    fn new(base: &Btf<'_>) -> Merged<'u> {
        let mut types = SplitBtf::new(base);
        types.reuse(base, &[Kind::FuncProto]);
        Merged {
            types,
            functions: Vec::new(),
            prototypes: Vec::new(),
            containers: Vec::new(),
            files: Vec::new(),
            sites: 0,
            function_of: HashMap::new(),
            prototype_of: HashMap::new(),
            container_of: HashMap::new(),
            file_of: HashMap::new(),
        }
    }

    /// Every symbol that could be a body of which no site tells, or only those of the names asked for and made from them.
    fn symbols(&mut self, image: &Image<'_>, only: Option<&Filter>) {
        let mut prober = Prober::new(image);
        for symbol in image.symbols().iter() {
            let wanted = only.is_none_or(|filter| filter.has_symbol(symbol.name));
            let generated = symbol.name.starts_with("__pfx_") || symbol.name.starts_with("__cfi_");
            if !wanted || generated {
                continue;
            }
            let holder = image.container(symbol.address);
            if holder.is_some_and(|holder| holder.name == symbol.name) {
                self.container_of.entry(symbol.address).or_insert(self.containers.len() as u32);
            }
            self.containers.push(Container {
                name: symbol.name.to_owned(),
                address: symbol.address,
                size: holder.map_or(symbol.size, |holder| holder.size),
                unprobeable: prober.check_address(symbol.address),
            });
        }
    }

    fn number(&mut self, unit: &'u UnitSites<'_>) -> Numbering {
        let first_site = self.sites;
        self.sites += unit.sites.len() as u32;
        let functions = unit.functions.iter().map(|function| self.function(function)).collect();
        let prototypes = unit
            .prototypes
            .iter()
            .map(|prototype| {
                let next = self.prototypes.len() as u32;
                *self.prototype_of.entry(prototype).or_insert_with(|| {
                    self.prototypes.push(prototype.clone());
                    next
                })
            })
            .collect();
        let containers = unit
            .containers
            .iter()
            .map(|(container, unprobeable)| {
                let next = self.containers.len() as u32;
                *self.container_of.entry(container.address).or_insert_with(|| {
                    self.containers.push(Container {
                        name: container.name.to_owned(),
                        address: container.address,
                        size: container.size,
                        unprobeable: *unprobeable,
                    });
                    next
                })
            })
            .collect();
        let files = unit
            .files
            .iter()
            .map(|file| {
                let next = self.files.len() as u32;
                *self.file_of.entry(file).or_insert_with(|| {
                    self.files.push(file.clone());
                    next
                })
            })
            .collect();
        Numbering { functions, prototypes, containers, files, first_site }
    }

    fn function(&mut self, function: &'u UnitFunction<'_>) -> u32 {
        let origin = &*function.origin;
        let key = match function.func {
            Some(func) => FunctionKey::Base(func),
            None => FunctionKey::New {
                name: function.name,
                returns: &origin.returns,
                parameters: origin.parameters.iter().map(|parameter| &parameter.type_ref).collect(),
                variadic: origin.variadic,
            },
        };
        let (types, functions) = (&mut self.types, &mut self.functions);
        *self.function_of.entry(key).or_insert_with(|| {
            let func = function.func.unwrap_or_else(|| {
                let returns = origin.returns.intern(types);
                let parameters: Vec<(&str, TypeId)> = origin
                    .parameters
                    .iter()
                    .map(|parameter| (parameter.name, parameter.type_ref.intern(types)))
                    .collect();
                let prototype = types.func_proto(returns, &parameters, origin.variadic);
                types.func(function.name, prototype, if origin.external { Linkage::Global } else { Linkage::Static })
            });
            functions.push(Function { name: function.name.to_owned(), func });
            (functions.len() - 1) as u32
        })
    }
}

/// All sites, with the set's numbers.
fn renumber(units: &[UnitSites<'_>], numbering: &[Numbering]) -> Vec<Site> {
    let line = |files: &[u32], line: SourceLine| SourceLine {
        file: files.get(line.file as usize).copied().unwrap_or(SourceLine::NO_FILE),
        line: line.line,
    };
    units
        .par_iter()
        .zip(numbering)
        .flat_map_iter(|(unit, numbers)| {
            unit.sites.iter().map(move |site| Site {
                function: numbers.functions[site.function as usize],
                prototype: numbers.prototypes[site.prototype as usize],
                container: numbers.containers[site.container as usize],
                source: line(&numbers.files, site.source),
                declared: line(&numbers.files, site.declared),
                parent: site.parent.map(|parent| numbers.first_site + parent),
                ..*site
            })
        })
        .collect()
}
