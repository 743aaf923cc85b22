// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! From the sites of all units to one set.
//!
//! Units come in the order of `.debug_info`, and everything is numbered by first appearance, so that the same image
//! gives the same set, whatever the number of threads. A function is its name and its prototype: copies in all
//! units of a `static inline` are one function, two functions of one name that differ in a type stay two. What a unit
//! left open is settled first: see `settle`.

use crate::debug::filter::Filter;
use crate::elf::image::{self, Image};
use crate::merge::census::{Census, Counts};
use crate::text::probeable::Prober;
use crate::unit::doubt::Evidence;
use crate::unit::{ParameterKey, Shared, UnitFunction, UnitSites};
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};
use rayon::prelude::*;
use siteseer_sites::Site;
use siteseer_sites::btf::{Btf, Kind, KnownStrings, Linkage, SplitBtf, TypeId};
use siteseer_sites::location::Argument;
use siteseer_sites::set::{Container, Function, Module, Section, SiteSet};
use siteseer_sites::site::SourceLine;
use std::hash::{BuildHasher, Hash, Hasher};

pub mod census;
mod copied;
mod settle;

/// The part of a set that no unit has a say in: it can be made while units are encoded.
pub(crate) struct Beginning {
    types: SplitBtf,
    containers: Containers,
}

/// Makes that part. `kernel` has the strings of a module's kernel.
pub(crate) fn begin(shared: &Shared<'_, '_>, base: &Btf<'_>, kernel: Option<&KnownStrings>) -> Beginning {
    let mut types = match kernel {
        Some(kernel) => SplitBtf::over_known(base, kernel),
        None => SplitBtf::new(base),
    };
    types.reuse(base, &[Kind::FuncProto]);
    let mut containers = Containers::default();
    containers.symbols(shared.image, shared.filter.as_ref());
    Beginning { types, containers }
}

/// Settles and merges the units.
pub(crate) fn merge(
    shared: &Shared<'_, '_>,
    base_btf: &[u8],
    kernel_build_id: &[u8],
    beginning: Beginning,
    mut units: Vec<UnitSites<'_>>,
) -> (SiteSet, Census) {
    let assigned: HashSet<ParameterKey<'_>> = units.iter().flat_map(|unit| unit.assigned.iter().copied()).collect();
    let mut evidence: HashMap<ParameterKey<'_>, Evidence> = HashMap::new();
    for (key, of_unit) in units.iter().flat_map(|unit| &unit.evidence) {
        evidence.entry(*key).or_default().and(*of_unit);
    }
    let hasher = DefaultHashBuilder::default();
    let settled: Vec<(Counts, Hashes)> = units
        .par_iter_mut()
        .map(|unit| (settle::settle(unit, shared.image.machine(), &assigned, &evidence), Hashes::of(unit, &hasher)))
        .collect();
    let image = shared.image;
    let Beginning { types, mut containers } = beginning;
    // Functions on one thread, all else on another: the numbers of one have nothing to do with the other's.
    let ((types, functions, function_numbers), (prototypes, files, other_numbers)) = rayon::join(
        || {
            let mut merged = Functions::new(types);
            let mut numbers = Vec::with_capacity(units.len());
            for (unit, (_, hashes)) in units.iter().zip(&settled) {
                numbers.push(merged.number(unit, hashes));
            }
            (merged.types, merged.functions, numbers)
        },
        || {
            let (mut prototypes, mut files) = (Prototypes::default(), Files::default());
            let mut numbers = Vec::with_capacity(units.len());
            for (unit, (_, hashes)) in units.iter().zip(&settled) {
                numbers.push((prototypes.number(unit, hashes), containers.number(unit), files.number(unit)));
            }
            (prototypes.prototypes, files.files, numbers)
        },
    );
    let mut first_site = 0;
    let mut numbering = Vec::with_capacity(units.len());
    for ((unit, functions), (prototypes, containers, files)) in units.iter().zip(function_numbers).zip(other_numbers) {
        numbering.push(Numbering { functions, prototypes, containers, files, first_site });
        first_site += unit.sites.len() as u32;
    }
    let mut set = SiteSet {
        module: module_of(image, kernel_build_id),
        machine: image.machine(),
        build_id: image.build_id().to_vec(),
        base: image.base(),
        base_btf: base_btf.to_vec(),
        types,
        sections: image
            .text_sections()
            .iter()
            .map(|section| Section { name: section.name.to_owned(), address: section.address, size: section.size })
            .collect(),
        functions,
        prototypes,
        containers: containers.containers,
        files,
        sites: renumber(&units, &numbering),
    };
    let with_numbers = units.iter().zip(&numbering);
    let rests: Vec<u32> =
        with_numbers.flat_map(|(unit, numbers)| unit.rests.iter().map(|site| numbers.first_site + site)).collect();
    let counts = settled.into_iter().fold(Counts::default(), |sum, (counts, _)| sum.plus(counts));
    // The units are a million small allocations.
    let (census, ()) = rayon::join(
        || {
            let mut census = Census::take(&set, counts);
            drop_sites(&mut set, &rests);
            census.functions = set.functions.len() as u64;
            census.prototypes = set.prototypes.len() as u64;
            census
        },
        || units.into_par_iter().for_each(drop),
    );
    (set, census)
}

/// What only a module has.
fn module_of(image: &Image<'_>, kernel_build_id: &[u8]) -> Option<Module> {
    let loaded = image.loaded_sections().into_iter().map(|section| Section {
        name: section.name.to_owned(),
        address: section.address,
        size: section.size,
    });
    image.is_relocatable().then(|| Module {
        name: image.module_name().unwrap_or_default().to_owned(),
        kernel_build_id: kernel_build_id.to_vec(),
        loaded: loaded.collect(),
    })
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
    for site in &mut set.sites {
        site.parent = site.parent.and_then(|parent| place.get(parent as usize).copied().flatten());
    }
    compact_tables(&mut set.sites, &mut set.functions, &mut set.prototypes);
}

/// Takes out the functions and location prototypes that no site has.
fn compact_tables<F, P>(sites: &mut [Site], functions: &mut Vec<F>, prototypes: &mut Vec<P>) {
    let mut has_function = vec![false; functions.len()];
    let mut has_prototype = vec![false; prototypes.len()];
    for site in &*sites {
        has_function[site.function as usize] = true;
        has_prototype[site.prototype as usize] = true;
    }
    let function_of = compact(functions, &has_function);
    let prototype_of = compact(prototypes, &has_prototype);
    for site in sites {
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

/// For each of a unit's numbers, the set's.
struct Numbering {
    functions: Vec<u32>,
    prototypes: Vec<u32>,
    containers: Vec<u32>,
    files: Vec<u32>,
    first_site: u32,
}

/// Hashes of what of a unit is merged, made for all units side by side.
struct Hashes {
    functions: Vec<u64>,
    prototypes: Vec<u64>,
}

impl Hashes {
    fn of(unit: &UnitSites<'_>, hasher: &DefaultHashBuilder) -> Hashes {
        let of_function = |function: &UnitFunction<'_>| {
            let mut state = hasher.build_hasher();
            match function.func {
                Some(func) => func.hash(&mut state),
                None => {
                    let origin = &*function.origin;
                    (function.name, &origin.returns, origin.variadic).hash(&mut state);
                    origin.parameters.iter().for_each(|parameter| parameter.type_ref.hash(&mut state));
                }
            }
            state.finish()
        };
        Hashes {
            functions: unit.functions.iter().map(of_function).collect(),
            prototypes: unit.prototypes.iter().map(|prototype| hasher.hash_one(prototype)).collect(),
        }
    }
}

/// Whether two units declare the same function: one FUNC of the base, or one name and equal types.
fn is_same(one: &UnitFunction<'_>, other: &UnitFunction<'_>) -> bool {
    let types = |function: &UnitFunction<'_>| function.origin.parameters.len();
    let (a, b) = (&*one.origin, &*other.origin);
    match (one.func, other.func) {
        (Some(one), Some(other)) => one == other,
        (None, None) => {
            (one.name, a.variadic, types(one)) == (other.name, b.variadic, types(other))
                && a.returns == b.returns
                && a.parameters.iter().zip(&b.parameters).all(|(a, b)| a.type_ref == b.type_ref)
        }
        _ => false,
    }
}

/// The functions of all units, each once.
struct Functions<'u, 'a> {
    types: SplitBtf,
    functions: Vec<Function>,
    /// As the first unit that has it declares each.
    declared: Vec<&'u UnitFunction<'a>>,
    /// Hash and number.
    known: HashTable<(u64, u32)>,
}

impl<'u, 'a> Functions<'u, 'a> {
    fn new(types: SplitBtf) -> Functions<'u, 'a> {
        Functions { types, functions: Vec::new(), declared: Vec::new(), known: HashTable::new() }
    }

    fn number(&mut self, unit: &'u UnitSites<'a>, hashes: &Hashes) -> Vec<u32> {
        let functions = unit.functions.iter().zip(&hashes.functions);
        functions.map(|(function, &hash)| self.function(function, hash)).collect()
    }

    fn function(&mut self, function: &'u UnitFunction<'a>, hash: u64) -> u32 {
        let declared = &self.declared;
        let is_it = |&(its, number): &(u64, u32)| its == hash && is_same(declared[number as usize], function);
        if let Some(&(_, number)) = self.known.find(hash, is_it) {
            return number;
        }
        let (origin, types) = (&*function.origin, &mut self.types);
        let func = function.func.unwrap_or_else(|| {
            let returns = origin.returns.intern(types);
            let parameters: Vec<(&str, TypeId)> =
                origin.parameters.iter().map(|parameter| (parameter.name, parameter.type_ref.intern(types))).collect();
            let prototype = types.func_proto(returns, &parameters, origin.variadic);
            types.func(function.name, prototype, if origin.external { Linkage::Global } else { Linkage::Static })
        });
        let number = self.functions.len() as u32;
        let (name, parameters) = (function.name.to_owned(), origin.parameters.len() as u32);
        self.functions.push(Function { name, func, parameters, variadic: origin.variadic });
        self.declared.push(function);
        self.known.insert_unique(hash, (hash, number), |&(hash, _)| hash);
        number
    }
}

/// The location prototypes of all units, each once.
#[derive(Default)]
struct Prototypes {
    prototypes: Vec<Box<[Argument]>>,
    /// Hash and number.
    known: HashTable<(u64, u32)>,
}

impl Prototypes {
    fn number(&mut self, unit: &UnitSites<'_>, hashes: &Hashes) -> Vec<u32> {
        let prototypes = unit.prototypes.iter().zip(&hashes.prototypes);
        prototypes.map(|(prototype, &hash)| self.prototype(prototype, hash)).collect()
    }

    fn prototype(&mut self, prototype: &[Argument], hash: u64) -> u32 {
        let all = &self.prototypes;
        let is_it = |&(its, number): &(u64, u32)| its == hash && *all[number as usize] == *prototype;
        if let Some(&(_, number)) = self.known.find(hash, is_it) {
            return number;
        }
        let number = self.prototypes.len() as u32;
        self.prototypes.push(prototype.into());
        self.known.insert_unique(hash, (hash, number), |&(hash, _)| hash);
        number
    }
}

/// The out-of-line symbols.
#[derive(Default)]
struct Containers {
    containers: Vec<Container>,
    by_address: HashMap<u64, u32>,
}

impl Containers {
    /// Every symbol that may be a body without a site. With a filter, only the symbols with a name that
    /// it asks for, or with a name made from one of these.
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
                self.by_address.entry(symbol.address).or_insert(self.containers.len() as u32);
            }
            self.containers.push(Container {
                name: symbol.name.to_owned(),
                address: symbol.address,
                size: holder.map_or(symbol.size, |holder| holder.size),
                unprobeable: prober.check_address(symbol.address),
            });
        }
    }

    fn number(&mut self, unit: &UnitSites<'_>) -> Vec<u32> {
        let number = |(container, unprobeable): &(image::Container<'_>, _)| {
            let next = self.containers.len() as u32;
            *self.by_address.entry(container.address).or_insert_with(|| {
                self.containers.push(Container {
                    name: container.name.to_owned(),
                    address: container.address,
                    size: container.size,
                    unprobeable: *unprobeable,
                });
                next
            })
        };
        unit.containers.iter().map(number).collect()
    }
}

/// The source files.
#[derive(Default)]
struct Files<'u> {
    files: Vec<String>,
    known: HashMap<&'u str, u32>,
}

impl<'u> Files<'u> {
    fn number(&mut self, unit: &'u UnitSites<'_>) -> Vec<u32> {
        let number = |file: &'u String| {
            let next = self.files.len() as u32;
            *self.known.entry(file).or_insert_with(|| {
                self.files.push(file.clone());
                next
            })
        };
        unit.files.iter().map(number).collect()
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
