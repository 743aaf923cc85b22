// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The tables of the companion section, lined up with the upstream part.

use super::ext::{
    Around, NONE16, NONE24, RawContainer, RawDeclaration, RawDetails, RawFunction, RawLoaded, RawRun, RawSection,
    RawSite, assemble, halves, to24,
};
use super::write::{Upstream, WriteError};
use crate::both::both;
use crate::btf::{CHECKPOINT_STRIDE, Outline, StringTable, TypeId};
use crate::set::SiteSet;
use crate::site::SourceLine;
use hashbrown::HashMap;
use std::hash::Hash;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// Numbers distinct values in the order in which they come.
struct Distinct<T> {
    values: Vec<T>,
    index: HashMap<T, u32>,
}

impl<T: Hash + Eq + Copy> Distinct<T> {
    fn new() -> Distinct<T> {
        Distinct { values: Vec::new(), index: HashMap::new() }
    }

    fn number(&mut self, value: T) -> u32 {
        *self.index.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }
}

/// The companion section, and what comes after it needs.
pub(super) struct Companion {
    pub(super) bytes: Vec<u8>,
    /// Its strings, and those before them.
    pub(super) strings: StringTable,
    /// Its first checksum.
    pub(super) root: u32,
}

/// Makes the companion section.
pub(super) fn companion(
    set: &SiteSet,
    base: &Outline,
    upstream: &Upstream,
    orders: &Orders<'_>,
    named: Named,
    around: &Around<'_>,
) -> Result<Companion, WriteError> {
    let (records, by_function) = both(|| Records::of(set, upstream, orders), || ByFunction::of(set, upstream, orders));
    let Named { mut strings, containers, loaded, module, files, functions: names } = named;
    let sections = section_table(set, upstream, &mut |name| strings.add(name));
    let Records { prototypes, details, mut sites } = records;
    let ByFunction { functions: of_functions, runs, declarations, declared } = by_function;
    sites.iter_mut().zip(declared).for_each(|(site, declaration)| site.declaration = declaration.into());
    let names = names.into_iter().zip(&orders.functions).map(|(name, &(_, func))| (name, func)).chain([(0, 0)]);
    let functions: Vec<RawFunction> = names
        .zip(of_functions)
        .map(|((name, func), (run, declaration))| RawFunction {
            name: name.into(),
            func: func.into(),
            runs: run.into(),
            declarations: declaration.into(),
        })
        .collect();
    let words = |words: &[u32]| words.iter().map(|w| U32::new(*w)).collect::<Vec<U32>>();
    let base_checkpoints = words(&base.checkpoints);
    let split_checkpoints = words(&upstream.types.checkpoints(CHECKPOINT_STRIDE));
    let split_count = upstream.types.end_id() - upstream.types.first_id();
    let tables = [
        sections.as_bytes(),
        functions.as_bytes(),
        runs.as_bytes(),
        declarations.as_bytes(),
        sites.as_bytes(),
        details.as_bytes(),
        prototypes.as_bytes(),
        &upstream.programs,
        containers.as_bytes(),
        files.as_bytes(),
        strings.own(),
        base_checkpoints.as_bytes(),
        split_checkpoints.as_bytes(),
        orders.container_names.as_bytes(),
        orders.base_functions.as_bytes(),
        loaded.as_bytes(),
        &module,
    ];
    let total: usize = tables.iter().map(|t| t.len()).sum();
    // The checksums take a thousandth of what they are of, which is no more than three sections of 4 GB.
    if total > (u32::MAX - (1 << 24)) as usize
        || u32::try_from(u64::from(strings.base_len()) + strings.own().len() as u64).is_err()
    {
        return Err(WriteError::TooMany { what: "bytes in .BTF.inline.ext", count: total });
    }
    let (bytes, root) = assemble(set.base, base.count, split_count, &tables, around);
    Ok(Companion { bytes, strings, root })
}

/// What has names, and the strings that those are.
pub(super) struct Named {
    strings: StringTable,
    containers: Vec<RawContainer>,
    loaded: Vec<RawLoaded>,
    module: Vec<u8>,
    files: Vec<U32>,
    /// The names of the functions, in their order.
    functions: Vec<u32>,
}

impl Named {
    /// `strings` goes on after all that the upstream part has.
    pub(super) fn of(set: &SiteSet, mut strings: StringTable, orders: &Orders<'_>) -> Named {
        let containers = container_table(set, &orders.containers, &mut |name| strings.add(name));
        let (loaded, module) = module_tables(set, &mut |name| strings.add(name));
        let files = set.files.iter().map(|name| strings.add(name).into()).collect();
        let functions = orders.functions.iter().map(|(name, _)| strings.add(name)).collect();
        Named { strings, containers, loaded, module, files, functions }
    }
}

/// The sites' own records, and what many sites have in common.
struct Records {
    prototypes: Vec<U32>,
    details: Vec<RawDetails>,
    /// In the order of the LOCSECs, without their declarations.
    sites: Vec<RawSite>,
}

impl Records {
    fn of(set: &SiteSet, upstream: &Upstream, orders: &Orders<'_>) -> Records {
        let (prototypes, prototype_of) = prototype_table(&upstream.details);
        let mut place_of = vec![0u32; set.sites.len()];
        for (place, site) in upstream.order.iter().enumerate() {
            place_of[*site as usize] = place as u32;
        }
        let mut details: Distinct<(u32, [u8; 4])> = Distinct::new();
        let record = |&site: &u32| {
            let site = &set.sites[site as usize];
            let unprobeable = site.unprobeable.map_or(0, |reason| reason as u8);
            let key = [site.kind as u8, site.marks.0, unprobeable, site.moved];
            RawSite {
                details: details.number((prototype_of[site.prototype as usize], key)).into(),
                container: orders.place_of_container[site.container as usize].into(),
                parent: site.parent.map_or(0, |parent| place_of[parent as usize] + 1).into(),
                line: to24(site.source.line, 0),
                file: to24(site.source.file, NONE24),
                declaration: NONE16.into(),
            }
        };
        let sites = upstream.order.iter().map(record).collect();
        Records { prototypes, details: details.values.iter().map(raw_details).collect(), sites }
    }
}

/// What goes by function.
struct ByFunction {
    /// Per function, in their order, its first run and its first declaration; after them the numbers of both.
    functions: Vec<(u32, u32)>,
    runs: Vec<RawRun>,
    declarations: Vec<RawDeclaration>,
    /// Per site, in the order of the LOCSECs, the place of its declaration among its function's.
    declared: Vec<u16>,
}

impl ByFunction {
    fn of(set: &SiteSet, upstream: &Upstream, orders: &Orders<'_>) -> ByFunction {
        let runs_of = function_runs(upstream, &orders.functions);
        let mut declared = vec![NONE16; set.sites.len()];
        let (mut functions, mut runs) = (Vec::with_capacity(runs_of.len() + 1), Vec::new());
        let mut declarations: Vec<SourceLine> = Vec::new();
        for of_function in &runs_of {
            functions.push((runs.len() as u32, declarations.len() as u32));
            let first_declaration = declarations.len();
            for (first, count) in of_function {
                runs.push(RawRun { first: (*first).into(), count: (*count).into() });
                let places = *first as usize..(*first + *count) as usize;
                for (place, site) in declared[places.clone()].iter_mut().zip(&upstream.order[places]) {
                    let site = &set.sites[*site as usize];
                    *place = declaration_of(&mut declarations, first_declaration, site.declared);
                }
            }
        }
        functions.push((runs.len() as u32, declarations.len() as u32));
        let place = |d: &SourceLine| RawDeclaration { file: d.file.into(), line: d.line.into() };
        ByFunction { functions, runs, declarations: declarations.iter().map(place).collect(), declared }
    }
}

fn raw_details(&(prototype, [kind, marks, unprobeable, moved]): &(u32, [u8; 4])) -> RawDetails {
    RawDetails { prototype: prototype.into(), kind, marks, unprobeable, moved }
}

fn section_table(set: &SiteSet, upstream: &Upstream, name: &mut dyn FnMut(&str) -> u32) -> Vec<RawSection> {
    let mut table = Vec::new();
    for (index, locsec, first, count) in &upstream.sections {
        let section = &set.sections[*index];
        let (address_low, address_high) = halves(section.address);
        let (size_low, size_high) = halves(section.size);
        table.push(RawSection {
            name: name(&section.name).into(),
            address_low,
            address_high,
            size_low,
            size_high,
            locsec: (*locsec).into(),
            first: (*first).into(),
            count: (*count).into(),
        });
    }
    table
}

/// What only a module has: its sections, and its name followed by the build id of its kernel.
fn module_tables(set: &SiteSet, name: &mut dyn FnMut(&str) -> u32) -> (Vec<RawLoaded>, Vec<u8>) {
    let Some(module) = &set.module else { return (Vec::new(), Vec::new()) };
    let loaded = module.loaded.iter().map(|section| {
        let (address_low, address_high) = halves(section.address);
        let (size_low, size_high) = halves(section.size);
        RawLoaded { name: name(&section.name).into(), address_low, address_high, size_low, size_high }
    });
    let loaded = loaded.collect();
    let mut about = name(&module.name).to_le_bytes().to_vec();
    about.extend_from_slice(&module.kernel_build_id);
    (loaded, about)
}

/// The distinct tuples of words, and for each prototype of the set the place of its own.
fn prototype_table(details: &[Option<Box<[u32]>>]) -> (Vec<U32>, Vec<u32>) {
    let mut table: Vec<U32> = Vec::new();
    let mut places: HashMap<&[u32], u32> = HashMap::new();
    let mut place_of = vec![0; details.len()];
    for (index, words) in details.iter().enumerate() {
        let Some(words) = words else { continue };
        place_of[index] = *places.entry(words).or_insert_with(|| {
            let place = table.len() as u32;
            table.push((words.len() as u32).into());
            table.extend(words.iter().map(|w| U32::new(*w)));
            place
        });
    }
    (table, place_of)
}

/// What is sorted by name or address.
pub(super) struct Orders<'s> {
    /// Indices of the containers, by address.
    containers: Vec<usize>,
    /// For each container of the set, its place among them.
    place_of_container: Vec<u32>,
    /// These places, by name, then by address.
    container_names: Vec<U32>,
    /// The FUNCs of the base, by name, then by number.
    base_functions: Vec<U32>,
    /// The functions by name, then by FUNC; each FUNC once.
    functions: Vec<(&'s str, TypeId)>,
}

impl<'s> Orders<'s> {
    pub(super) fn of(set: &'s SiteSet, base: &Outline) -> Orders<'s> {
        let mut containers: Vec<usize> = (0..set.containers.len()).collect();
        containers.sort_by_key(|i| (set.containers[*i].address, &set.containers[*i].name, *i));
        let mut place_of_container = vec![0; set.containers.len()];
        (0u32..).zip(&containers).for_each(|(place, index)| place_of_container[*index] = place);
        let names = set.containers.iter().zip(&place_of_container);
        let container_names = by_name(names.map(|(container, &place)| (container.name.as_str(), place)).collect());
        let strings = set.types.strings();
        let base_functions = by_name(base.functions.iter().map(|&(name, id)| (strings.get(name), id)).collect());
        let mut functions: Vec<(&str, TypeId)> = set.functions.iter().map(|f| (f.name.as_str(), f.func)).collect();
        functions.sort_unstable();
        functions.dedup_by_key(|(_, func)| *func);
        Orders { containers, place_of_container, container_names, base_functions, functions }
    }
}

/// The containers by address.
fn container_table(set: &SiteSet, order: &[usize], name: &mut dyn FnMut(&str) -> u32) -> Vec<RawContainer> {
    let record = |&index: &usize| {
        let container = &set.containers[index];
        let (address_low, address_high) = halves(container.address);
        let size = u32::try_from(container.size).unwrap_or(u32::MAX);
        RawContainer {
            name: name(&container.name).into(),
            address_low,
            address_high,
            // What is too large to be told is as large as can be told.
            size: to24(size, NONE24),
            unprobeable: container.unprobeable.map_or(0, |why| why as u8),
        }
    };
    order.iter().map(record).collect()
}

/// Numbers in the order of their names, those of one name in their own.
fn by_name(mut named: Vec<(&str, u32)>) -> Vec<U32> {
    named.sort_unstable();
    named.into_iter().map(|(_, number)| number.into()).collect()
}

/// Where the sites of each function are: the first and the number of each run.
fn function_runs(upstream: &Upstream, functions: &[(&str, TypeId)]) -> Vec<Vec<(u32, u32)>> {
    let mut runs: Vec<Vec<(u32, u32)>> = vec![Vec::new(); functions.len()];
    let place: HashMap<TypeId, usize> = functions.iter().enumerate().map(|(i, &(_, func))| (func, i)).collect();
    for (_, _, first, count) in &upstream.sections {
        let mut start = *first;
        let section = &upstream.funcs[*first as usize..(*first + *count) as usize];
        for run in section.chunk_by(|a, b| a == b) {
            runs[place[&run[0]]].push((start, run.len() as u32));
            start += run.len() as u32;
        }
    }
    runs
}

/// The place of a declaration among its function's.
fn declaration_of(declarations: &mut Vec<SourceLine>, first: usize, declared: SourceLine) -> u16 {
    if declared == SourceLine::UNKNOWN {
        return NONE16;
    }
    let known = declarations[first..].iter().position(|d| *d == declared);
    let place = known.unwrap_or_else(|| {
        declarations.push(declared);
        declarations.len() - 1 - first
    });
    // A function with more declarations than that does not exist; one too many is unknown, not another.
    u16::try_from(place).unwrap_or(NONE16)
}
