// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing a site file.
//!
//! First the upstream part: the set's location prototypes become LOC_PROTOs, its sites the sorted entries of LOCSECs. Their
//! order is the order of everything after. What a prototype loses on the way (reasons, computed locations) becomes a
//! prototype of the companion section, and so does what upstream does not say about a site.
//!
//! The output depends on the set alone, not on addresses in memory or the order of a hash table.

use super::elf;
use super::ext::{
    Around, NONE16, NONE24, RawContainer, RawDeclaration, RawDetails, RawFunction, RawLoaded, RawRun, RawSection,
    RawSite, assemble, halves, to24,
};
use super::program;
use crate::btf::{Btf, BtfError, CHECKPOINT_STRIDE, Kind, LocsecEntry, MAX_VLEN, Outline, SplitBtf, TypeId, loc};
use crate::location::Argument;
use crate::set::SiteSet;
use crate::site::SourceLine;
use hashbrown::HashMap;
use std::hash::Hash;
use std::thread;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

/// Why a set cannot be written. All but the last are contradictions in the set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The base BTF is malformed.
    #[error("the image's BTF: {0}")]
    BaseBtf(#[from] BtfError),
    /// The new types are not over this base.
    #[error("the new types begin at number {found}, the image's BTF ends at {expected}")]
    ForeignTypes {
        /// The first number of the new types.
        found: TypeId,
        /// The base's end.
        expected: TypeId,
    },
    /// An index leads nowhere.
    #[error("site {site} has {what} {index}, of which there are {count}")]
    Index {
        /// Index of the site.
        site: usize,
        /// What is referred to.
        what: &'static str,
        /// The index.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// A function's type is not a FUNC of its name.
    #[error("function {name} refers to BTF type {func}, which is not a FUNC of that name")]
    NotAFunc {
        /// Name of the function.
        name: String,
        /// The type.
        func: TypeId,
    },
    /// A site outside of its section.
    #[error("site {site} at {address:#x} is not in section {section}")]
    OutsideSection {
        /// Index of the site.
        site: usize,
        /// Its address.
        address: u64,
        /// Name of the section.
        section: String,
    },
    /// A computed location that is not well formed.
    #[error("location prototype {prototype}, parameter {parameter}: the computed location is not well formed")]
    Program {
        /// Index of the prototype.
        prototype: usize,
        /// Index of the parameter.
        parameter: usize,
    },
    /// More of something than the format can number.
    #[error("{count} {what}: more than the format holds")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: usize,
    },
    /// The ELF file cannot be laid out.
    #[error("ELF: {0}")]
    Elf(object::write::Error),
}

/// The sites as a site file.
///
/// # Errors
/// If the set contradicts itself: see [`WriteError`].
pub fn write(set: &SiteSet) -> Result<Vec<u8>, WriteError> {
    let base = check(set)?;
    // What is sorted by name has nothing to do with the rest.
    let (upstream, orders) = thread::scope(|scope| {
        let orders = scope.spawn(|| Orders::of(set, &base));
        let upstream = Upstream::build(set);
        (upstream, orders.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let upstream = upstream?;
    let inline = upstream.types.to_bytes();
    let around = Around { machine: set.machine, build_id: &set.build_id, btf: &set.base_btf, inline: &inline };
    let ext = companion(set, &base, &upstream, &orders, &around)?;
    elf::assemble(set.machine, &set.build_id, &set.base_btf, &inline, &ext).map_err(WriteError::Elf)
}

/// The sites as split BTF alone, as `/sys/kernel/btf/vmlinux.inline` has them.
///
/// # Errors
/// As [`write()`].
pub fn write_raw(set: &SiteSet) -> Result<Vec<u8>, WriteError> {
    check(set)?;
    Ok(Upstream::build(set)?.types.to_bytes())
}

/// The upstream part, and how the rest lines up with it.
struct Upstream {
    types: SplitBtf,
    /// Per prototype of the set: the words of its counterpart in the companion section, `None` if no site has it.
    details: Vec<Option<Box<[u32]>>>,
    /// Bytes of the locations that these words refer to.
    programs: Vec<u8>,
    /// Sites in the order of the LOCSECs: indices into the set.
    order: Vec<u32>,
    /// FUNC of each, in the same order.
    funcs: Vec<TypeId>,
    /// Per section of the set that has sites: its index, LOCSEC, first site, number of sites.
    sections: Vec<(usize, TypeId, u32, u32)>,
}

impl Upstream {
    fn build(set: &SiteSet) -> Result<Upstream, WriteError> {
        let mut types = set.types.clone();
        let mut programs = Programs::default();
        let mut used = vec![false; set.prototypes.len()];
        set.sites.iter().for_each(|site| used[site.prototype as usize] = true);
        let mut protos = vec![0; set.prototypes.len()];
        let mut details = vec![None; set.prototypes.len()];
        for (index, prototype) in set.prototypes.iter().enumerate().filter(|(index, _)| used[*index]) {
            let mut ids = Vec::with_capacity(prototype.len());
            let mut words = Vec::with_capacity(prototype.len());
            for (parameter, argument) in prototype.iter().enumerate() {
                let (id, word) = lower(argument, set, &mut types, &mut programs)
                    .ok_or(WriteError::Program { prototype: index, parameter })?;
                ids.push(id);
                words.push(word);
            }
            protos[index] = types.loc_proto(&ids);
            details[index] = Some(words.into());
        }
        let sorted = sort_sites(set, &protos)?;
        let mut sections = Vec::new();
        let mut first = 0;
        for run in sorted.chunk_by(|a, b| a.section == b.section) {
            if run.len() > MAX_VLEN {
                return Err(WriteError::TooMany { what: "sites in one section", count: run.len() });
            }
            let index = usize::from(run[0].section);
            let entries: Vec<LocsecEntry> =
                run.iter().map(|s| LocsecEntry::new(s.func, s.loc_proto, s.offset)).collect();
            let locsec = types.locsec(&set.sections[index].name, &entries);
            sections.push((index, locsec, first, run.len() as u32));
            first += run.len() as u32;
        }
        let order = sorted.iter().map(|s| s.site).collect();
        let funcs = sorted.iter().map(|s| s.func).collect();
        let programs = programs.bytes;
        Ok(Upstream { types, details, programs, order, funcs, sections })
    }
}

/// A site on its way into a LOCSEC. The order of the fields is the order of the sites.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    section: u16,
    func: TypeId,
    offset: u32,
    loc_proto: TypeId,
    site: u32,
}

fn sort_sites(set: &SiteSet, protos: &[TypeId]) -> Result<Vec<Entry>, WriteError> {
    let mut entries = Vec::with_capacity(set.sites.len());
    for (index, site) in set.sites.iter().enumerate() {
        let section = &set.sections[usize::from(site.section)];
        let offset = site.address.checked_sub(section.address).filter(|offset| *offset < section.size);
        let offset = offset.and_then(|offset| u32::try_from(offset).ok());
        let offset = offset.ok_or_else(|| WriteError::OutsideSection {
            site: index,
            address: site.address,
            section: section.name.clone(),
        })?;
        entries.push(Entry {
            section: site.section,
            func: set.functions[site.function as usize].func,
            offset,
            loc_proto: protos[site.prototype as usize],
            site: index as u32,
        });
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Checks that the set does not contradict itself, but for what is seen only while it is written.
fn check(set: &SiteSet) -> Result<Outline, WriteError> {
    let base = check_types(set)?;
    check_indices(set)?;
    Ok(base)
}

/// Checks that the functions are FUNCs of their names, and walks the base.
fn check_types(set: &SiteSet) -> Result<Outline, WriteError> {
    let first = set.types.base_first_id();
    // A module's BTF is split over the kernel's, which is not at hand: its types are walked, not looked at.
    let base = if first == 1 { Some(Btf::parse(&set.base_btf)?) } else { None };
    let outline = Btf::outline(&set.base_btf, first)?;
    let end = first + outline.count;
    if end != set.types.first_id() {
        return Err(WriteError::ForeignTypes { found: set.types.first_id(), expected: end });
    }
    for function in &set.functions {
        let is_func = match (set.types.get(function.func), &base) {
            (Some((kind, name, _)), _) => kind == Kind::Func && name == function.name,
            (None, Some(base)) => {
                base.ty(function.func).is_some_and(|ty| ty.kind() == Kind::Func && ty.name() == function.name)
            }
            (None, None) => function.func != 0 && function.func < set.types.first_id(),
        };
        if !is_func {
            return Err(WriteError::NotAFunc { name: function.name.clone(), func: function.func });
        }
    }
    Ok(outline)
}

fn check_indices(set: &SiteSet) -> Result<(), WriteError> {
    if u32::try_from(set.sites.len()).is_err() {
        return Err(WriteError::TooMany { what: "sites", count: set.sites.len() });
    }
    for (index, site) in set.sites.iter().enumerate() {
        let check = |what, index_of: u32, count: usize| {
            let inside = (index_of as usize) < count;
            if inside { Ok(()) } else { Err(WriteError::Index { site: index, what, index: index_of, count }) }
        };
        check("function", site.function, set.functions.len())?;
        check("section", u32::from(site.section), set.sections.len())?;
        check("prototype", site.prototype, set.prototypes.len())?;
        check("container", site.container, set.containers.len())?;
        if let Some(parent) = site.parent {
            check("parent site", parent, set.sites.len())?;
        }
        for source in [site.source, site.declared] {
            if source.file != SourceLine::NO_FILE {
                check("file", source.file, set.files.len())?;
            }
        }
    }
    Ok(())
}

/// Locations that upstream has no shape for, each stored once.
#[derive(Default)]
struct Programs {
    bytes: Vec<u8>,
    offsets: HashMap<Vec<u8>, u32>,
}

/// An argument's LOC_PARAM and its word in the companion section.
fn lower(argument: &Argument, set: &SiteSet, types: &mut SplitBtf, programs: &mut Programs) -> Option<(TypeId, u32)> {
    let located = match argument {
        Ok(located) => located,
        Err(missing) => return Some((0, *missing as u32)),
    };
    if let Some(param) = loc::to_upstream(located, set.base) {
        return Some((types.loc_param(param.size, param.flags, param.words()), 0));
    }
    if !program::is_well_formed(located, set.machine) {
        return None;
    }
    let bytes = program::encode(located, set.base);
    let offset = *programs.offsets.entry(bytes).or_insert_with_key(|bytes| {
        let offset = programs.bytes.len() as u32;
        programs.bytes.extend_from_slice(bytes);
        offset
    });
    Some((0, FIRST_PROGRAM + offset))
}

/// What the offset of a location is raised by in a prototype's word: lower ones are reasons.
pub(super) const FIRST_PROGRAM: u32 = 256;

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

/// The companion section.
fn companion(
    set: &SiteSet,
    base: &Outline,
    upstream: &Upstream,
    orders: &Orders<'_>,
    around: &Around<'_>,
) -> Result<Vec<u8>, WriteError> {
    let mut strings = upstream.types.strings().continued();
    let sections: Vec<RawSection> = section_table(set, upstream, &mut |name| strings.add(name));
    let (prototypes, prototype_of) = prototype_table(&upstream.details);
    let container_table = container_table(set, &orders.containers, &mut |name| strings.add(name));
    let (loaded, module) = module_tables(set, &mut |name| strings.add(name));
    let files: Vec<U32> = set.files.iter().map(|name| strings.add(name).into()).collect();

    let rows = function_rows(upstream, &orders.functions);
    let mut stable = vec![0u32; set.sites.len()];
    for (place, site) in upstream.order.iter().enumerate() {
        stable[*site as usize] = place as u32;
    }
    let mut details: Distinct<(u32, [u8; 4])> = Distinct::new();
    let mut sites = vec![None; set.sites.len()];
    let (mut functions, mut runs) = (Vec::with_capacity(rows.len() + 1), Vec::new());
    let mut declarations: Vec<SourceLine> = Vec::new();
    for row in &rows {
        functions.push(RawFunction {
            name: strings.add(row.name).into(),
            func: row.func.into(),
            runs: (runs.len() as u32).into(),
            declarations: (declarations.len() as u32).into(),
        });
        let first_declaration = declarations.len();
        for (first, count) in &row.runs {
            runs.push(RawRun { first: (*first).into(), count: (*count).into() });
            for place in *first..*first + *count {
                let site = &set.sites[upstream.order[place as usize] as usize];
                let declaration = declaration_of(&mut declarations, first_declaration, site.declared);
                let unprobeable = site.unprobeable.map_or(0, |reason| reason as u8);
                let key = [site.kind as u8, site.marks.0, unprobeable, site.moved];
                sites[place as usize] = Some(RawSite {
                    details: details.number((prototype_of[site.prototype as usize], key)).into(),
                    container: orders.place_of_container[site.container as usize].into(),
                    parent: site.parent.map_or(0, |parent| stable[parent as usize] + 1).into(),
                    line: to24(site.source.line, 0),
                    file: to24(site.source.file, NONE24),
                    declaration: declaration.into(),
                });
            }
        }
    }
    functions.push(RawFunction {
        name: 0.into(),
        func: 0.into(),
        runs: (runs.len() as u32).into(),
        declarations: (declarations.len() as u32).into(),
    });
    // Every site is in a run of its function.
    let sites: Vec<RawSite> = sites.into_iter().flatten().collect();
    let details: Vec<RawDetails> = details.values.iter().map(raw_details).collect();
    let declarations: Vec<RawDeclaration> =
        declarations.iter().map(|d| RawDeclaration { file: d.file.into(), line: d.line.into() }).collect();
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
        container_table.as_bytes(),
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
    Ok(assemble(set.base, base.count, split_count, &tables, around))
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

/// What only a module has: its sections, and its name with the build id of its kernel behind.
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
struct Orders<'s> {
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
    fn of(set: &'s SiteSet, base: &Outline) -> Orders<'s> {
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

/// A function and where its sites are.
struct Row<'s> {
    name: &'s str,
    func: TypeId,
    runs: Vec<(u32, u32)>,
}

fn function_rows<'s>(upstream: &Upstream, functions: &[(&'s str, TypeId)]) -> Vec<Row<'s>> {
    let mut rows: Vec<Row<'_>> = functions.iter().map(|&(name, func)| Row { name, func, runs: Vec::new() }).collect();
    let place: HashMap<TypeId, usize> = rows.iter().enumerate().map(|(i, row)| (row.func, i)).collect();
    for (_, _, first, count) in &upstream.sections {
        let mut start = *first;
        let section = &upstream.funcs[*first as usize..(*first + *count) as usize];
        for run in section.chunk_by(|a, b| a == b) {
            rows[place[&run[0]]].runs.push((start, run.len() as u32));
            start += run.len() as u32;
        }
    }
    rows
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
