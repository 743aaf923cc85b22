// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Writing a site file.
//!
//! First the upstream part: the set's location prototypes become LOC_PROTOs, its sites the sorted entries of LOCSECs.
//! Their order is the order of everything after. What a prototype loses on the way (reasons, computed and doubtful
//! locations) becomes a prototype of the companion section, and so does what upstream does not say about a site.
//!
//! The output depends on the set alone, not on addresses in memory or the order of a hash table.

use super::companion::{Companion, Named, Orders, companion};
use super::elf;
use super::ext::Around;
use super::program;
use super::ranges;
use super::read::locsec_name;
use crate::both::both;
use crate::btf::{Btf, BtfError, Kind, LocsecEntry, MAX_VLEN, Outline, SplitBtf, TypeId, loc};
use crate::code::CodeSum;
use crate::location::{Argument, Location};
use crate::ranges::Ranges;
use crate::set::SiteSet;
use crate::site::SourceLine;
use hashbrown::HashMap;
use std::io;

/// Why a set cannot be written. All but the last are contradictions in the set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The base BTF is malformed.
    #[error("the image's BTF")]
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
    #[error("site {site} refers to {what} {index}, but the count is {count}")]
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
    /// A function's FUNC_PROTO has another number of elements.
    #[error("function {name}: its FUNC_PROTO has {found} elements, not {expected}")]
    Vlen {
        /// Name of the function.
        name: String,
        /// What the set says.
        expected: u32,
        /// What the type has.
        found: u32,
    },
    /// A site's location prototype does not go with the function's prototype.
    #[error("site {site}: its location prototype has {found} elements, function {name} has {expected} parameters")]
    Parameters {
        /// Index of the site.
        site: usize,
        /// Name of the function.
        name: String,
        /// How many parameters it has.
        expected: u32,
        /// How many elements the location prototype has.
        found: usize,
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
    /// The ranges of copies contradict themselves.
    #[error("the ranges of copies: {what} {index} contradicts the others")]
    Ranges {
        /// What does.
        what: &'static str,
        /// Its index.
        index: usize,
    },
    /// Not as many sums of code as sites.
    #[error("{sums} sums of code for {sites} sites")]
    Code {
        /// How many sums there are.
        sums: usize,
        /// How many sites there are.
        sites: usize,
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
    #[error("ELF")]
    Elf(#[source] object::write::Error),
    /// It cannot be written.
    #[error(transparent)]
    Io(io::Error),
}

/// The sites as a site file.
///
/// # Errors
/// If the set contradicts itself: see [`WriteError`].
pub fn write(set: &SiteSet) -> Result<Vec<u8>, WriteError> {
    let mut bytes = Vec::new();
    write_to(set, &mut bytes)?;
    Ok(bytes)
}

/// Writes the sites as a site file, from its beginning to its end.
///
/// # Errors
/// As [`write()`], before anything is written, or [`WriteError::Io`].
pub fn write_to(set: &SiteSet, out: &mut dyn io::Write) -> Result<(), WriteError> {
    write_with(set, &Optional::default(), out)
}

/// What a site file may have besides the sites.
#[derive(Debug, Clone, Copy, Default)]
pub struct Optional<'o> {
    /// Which copy each instruction belongs to.
    pub ranges: Option<&'o Ranges>,
    /// The sums of the code at the sites, as many as there are sites, in their order.
    pub code: Option<&'o [CodeSum]>,
}

/// Writes the sites as a site file, and what else is known.
///
/// # Errors
/// As [`write_to()`]; also if what is optional contradicts itself or the sites.
pub fn write_with(set: &SiteSet, optional: &Optional<'_>, out: &mut dyn io::Write) -> Result<(), WriteError> {
    let Optional { ranges, code } = *optional;
    if let Some(code) = code.filter(|code| code.len() != set.sites.len()) {
        return Err(WriteError::Code { sums: code.len(), sites: set.sites.len() });
    }
    let base = check(set)?;
    let types = named_types(set);
    let strings = types.strings().continued();
    // What goes by names has nothing to do with the rest.
    let by_name = || {
        let orders = Orders::of(set, &base);
        let named = Named::of(set, strings, &orders);
        (orders, named)
    };
    let (upstream, (orders, named)) = both(|| Upstream::build(set, types), by_name);
    let upstream = upstream?;
    let inline = upstream.types.to_bytes();
    let around = Around { machine: set.machine, build_id: &set.build_id, btf: &set.base_btf, inline: &inline };
    let (companion, encoded) = both(
        || companion(set, &base, &upstream, &orders, named, &around),
        || ranges.map(ranges::Encoded::of).transpose(),
    );
    let (Companion { bytes: ext, strings, root }, encoded) = (companion?, encoded?);
    let ranges = match ranges.zip(encoded) {
        Some((ranges, encoded)) => ranges::section(ranges, &encoded, strings.continued(), root)?,
        None => Vec::new(),
    };
    let in_order = |code: &[CodeSum]| {
        let sums = upstream.order.iter().map(|&site| code[site as usize]);
        super::code::section(sums, root)
    };
    let code = code.map(in_order).unwrap_or_default();
    let (build_id, btf) = (&set.build_id, &set.base_btf);
    let contents = elf::Contents { build_id, btf, inline: &inline, ext: &ext, ranges: &ranges, code: &code };
    elf::assemble(set.machine, &contents, out)
}

/// The sites as split BTF alone, as `/sys/kernel/btf/vmlinux.inline` has them.
///
/// # Errors
/// As [`write()`].
pub fn write_raw(set: &SiteSet) -> Result<Vec<u8>, WriteError> {
    check(set)?;
    Ok(Upstream::build(set, named_types(set))?.types.to_bytes())
}

/// The upstream part, and how the rest lines up with it.
pub(super) struct Upstream {
    pub(super) types: SplitBtf,
    /// Per prototype of the set: the words of its counterpart in the companion section, `None` if no site has it. The
    /// mark of a variadic function has none.
    pub(super) details: Vec<Option<Box<[u32]>>>,
    /// Bytes of the locations that these words refer to.
    pub(super) programs: Vec<u8>,
    /// Sites in the order of the LOCSECs: indices into the set.
    pub(super) order: Vec<u32>,
    /// FUNC of each, in the same order.
    pub(super) funcs: Vec<TypeId>,
    /// Per section of the set that has sites: its index, LOCSEC, first site, number of sites.
    pub(super) sections: Vec<(usize, TypeId, u32, u32)>,
}

impl Upstream {
    fn build(set: &SiteSet, mut types: SplitBtf) -> Result<Upstream, WriteError> {
        let mut programs = Programs::default();
        let used = Used::of(set)?;
        let mut protos = vec![LocProtos::default(); set.prototypes.len()];
        let mut details = vec![None; set.prototypes.len()];
        for (index, prototype) in set.prototypes.iter().enumerate().filter(|(index, _)| used[*index].any()) {
            let mut ids = Vec::with_capacity(prototype.len());
            let mut words = Vec::with_capacity(prototype.len());
            for (parameter, argument) in prototype.iter().enumerate() {
                let (id, word) = lower(argument, set, &mut types, &mut programs)
                    .ok_or(WriteError::Program { prototype: index, parameter })?;
                ids.push(id);
                words.push(word);
            }
            let mut proto = |wanted: bool, ids: &[TypeId]| if wanted { types.loc_proto(ids) } else { 0 };
            protos[index].plain = proto(used[index].plain, &ids);
            // A variadic function's mark is an element of its FUNC_PROTO, and the kernel wants as many in the
            // LOC_PROTO.
            ids.push(0);
            protos[index].variadic = proto(used[index].variadic, &ids);
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
            let locsec = types.locsec(&locsec_name(&set.sections[index].name), &entries);
            sections.push((index, locsec, first, run.len() as u32));
            first += run.len() as u32;
        }
        let order = sorted.iter().map(|s| s.site).collect();
        let funcs = sorted.iter().map(|s| s.func).collect();
        let programs = programs.bytes;
        Ok(Upstream { types, details, programs, order, funcs, sections })
    }
}

/// The set's types, with all strings that the upstream part will have: LOCSECs have names, the other new types have
/// none.
fn named_types(set: &SiteSet) -> SplitBtf {
    let mut types = set.types.clone();
    let mut used = vec![false; set.sections.len()];
    set.sites.iter().for_each(|site| used[usize::from(site.section)] = true);
    for (section, _) in set.sections.iter().zip(used).filter(|(_, used)| *used) {
        types.name(&locsec_name(&section.name));
    }
    types
}

/// The LOC_PROTOs of a location prototype; 0 if no site needs it.
#[derive(Debug, Clone, Copy, Default)]
struct LocProtos {
    /// With an element for each parameter.
    plain: TypeId,
    /// With one more, for a variadic function.
    variadic: TypeId,
}

/// Which LOC_PROTOs sites need of a location prototype.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    plain: bool,
    variadic: bool,
}

impl Used {
    /// Which are needed of each prototype.
    fn of(set: &SiteSet) -> Result<Vec<Used>, WriteError> {
        let mut used = vec![Used::default(); set.prototypes.len()];
        for (index, site) in set.sites.iter().enumerate() {
            let function = &set.functions[site.function as usize];
            let found = set.prototypes[site.prototype as usize].len();
            let used = &mut used[site.prototype as usize];
            if found != function.parameters as usize {
                let (name, expected) = (function.name.clone(), function.parameters);
                return Err(WriteError::Parameters { site: index, name, expected, found });
            }
            if function.variadic {
                used.variadic = true;
            } else {
                used.plain = true;
            }
        }
        Ok(used)
    }

    fn any(self) -> bool {
        self.plain || self.variadic
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

fn sort_sites(set: &SiteSet, protos: &[LocProtos]) -> Result<Vec<Entry>, WriteError> {
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
        let (function, prototype) = (&set.functions[site.function as usize], site.prototype as usize);
        entries.push(Entry {
            section: site.section,
            func: function.func,
            offset,
            loc_proto: if function.variadic { protos[prototype].variadic } else { protos[prototype].plain },
            site: index as u32,
        });
    }
    let (one, other) = entries.split_at_mut(set.sites.len() / 2);
    both(|| one.sort_unstable(), || other.sort_unstable());
    // This merges two sorted runs.
    entries.sort();
    Ok(entries)
}

/// Checks that the set does not contradict itself, except for what is seen only while it is written.
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
        // What is in the BTF of a module's kernel cannot be looked at here.
        if let Some(found) = vlen(set, base.as_ref(), function.func)
            && found != function.vlen()
        {
            return Err(WriteError::Vlen { name: function.name.clone(), expected: function.vlen(), found });
        }
    }
    Ok(outline)
}

/// How many elements the FUNC_PROTO of a FUNC has, if both are at hand.
fn vlen(set: &SiteSet, base: Option<&Btf<'_>>, func: TypeId) -> Option<u32> {
    let proto = match set.types.get(func) {
        Some((_, _, proto)) => proto,
        None => base?.ty(func)?.target()?,
    };
    let (kind, vlen) = match set.types.vlen(proto) {
        Some(vlen) => (set.types.get(proto)?.0, vlen),
        None => base?.ty(proto).map(|ty| (ty.kind(), ty.vlen()))?,
    };
    (kind == Kind::FuncProto).then_some(vlen)
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

/// Locations that upstream has no shape for, and doubtful ones, each stored once.
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
    // The kernel allocates the parts of a module one by one: nothing in the file says how far an address will be from
    // the base.
    let is_loose = set.module.is_some() && matches!(located.at, Location::Address(_));
    // A reader of upstream's kinds alone would take a doubtful location for a certain one.
    if let Some(param) = loc::to_upstream(located, set.base).filter(|_| located.is_certain() && !is_loose) {
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
