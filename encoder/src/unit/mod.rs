// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of one unit.
//!
//! Units are encoded in parallel and know nothing of each other: functions, location prototypes, containing symbols and
//! files are numbered within the unit here, and numbered again when the units are merged. What only all units together
//! can tell (whether a parameter is assigned to in some copy of its function) is left open: see [`Provisional`].
//!
//! Here is what all kinds of sites share; `copies` makes those of inlined copies, `bodies` those of functions
//! themselves, `folds` those of functions that were folded into others (`folded` finds them), and `gathering` the
//! ranges of copies. The other modules each answer one question about a copy:
//!
//! * What is it a copy of (`origin`), and is it a call at all (`split`)?
//! * Where is it entered: by its statements (`markers`, `repeats`), and where can a probe go (`entry`)?
//! * Where are its arguments (`arguments`), which of them does a body assign to (`assigned`), and which are to be
//!   doubted (`doubt`)?
//! * For a symbol of its own: which part it plays (`outofline`), which signature it has (`signature`, `clang`), and
//!   whether it returns what the function does (`returns`).

use crate::debug::cfi::{Cursor, Frames};
use crate::debug::compiler::Compiler;
use crate::debug::filter::Filter;
use crate::debug::lines::Lines;
use crate::debug::units::{DebugInfo, DebugUnit};
use crate::debug::walk::{RawCall, RawFunction, RawParameter, Visitor};
use crate::elf::image::{Container, Image};
use crate::lower::ParamType;
use crate::observe::{Observed, Observer};
use crate::text::probeable::Prober;
use crate::text::{DirectEntries, after_fentry};
use crate::types::{BaseIndex, NewType, TypeRef};
use crate::unit::arguments::{Found, Gathered};
use crate::unit::doubt::Evidence;
use crate::unit::entry::Entry;
use crate::unit::entry_census::EntryCensus;
use crate::unit::exits::ExitCensus;
use crate::unit::folded::{Folds, SharedAddresses};
use crate::unit::markers::Markers;
use crate::unit::marks::Recursion;
use crate::unit::origin::{Foreign, Origin, Origins};
use crate::unit::own::Own;
use crate::unit::ranges::{Detail, UnitRanges};
use crate::unit::rescue::Refusal;
use crate::unit::returns::Pending;
use gathering::Gathering;
use gimli::{Expression, Operation};
use hashbrown::{HashMap, HashSet};
use siteseer_sites::abi::ParamShape;
use siteseer_sites::btf::{Kind, TypeId};
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::machine::Register;
use siteseer_sites::site::SourceLine;
use siteseer_sites::{Site, SiteKind, Unprobeable};
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::Arc;

mod arguments;
mod assigned;
mod beginnings;
mod bodies;
mod clang;
mod copies;
pub(crate) mod doubt;
mod early;
mod entry;
pub(crate) mod entry_census;
mod exchanged;
pub(crate) mod exits;
pub(crate) mod folded;
mod folds;
mod gathering;
mod hoisted;
mod markers;
mod marks;
mod members;
mod merged;
pub(crate) mod origin;
pub(crate) mod outofline;
mod own;
pub(crate) mod ranges;
mod repeats;
pub(crate) mod rescue;
mod returns;
mod signature;
mod split;
mod width;

/// What all units share.
pub(crate) struct Shared<'a, 'd> {
    pub(crate) image: &'d Image<'a>,
    pub(crate) debug: &'d DebugInfo<'a>,
    pub(crate) base: &'d BaseIndex<'a>,
    pub(crate) frames: &'d Frames<'a>,
    /// Functions that are called by name; `None` where no unit was found to be clang's.
    pub(crate) direct: Option<DirectEntries>,
    /// Names that other symbols have with a suffix.
    pub(crate) namesakes: HashSet<&'a str>,
    pub(crate) shared_addresses: SharedAddresses<'a>,
    pub(crate) foreign: Foreign<'a, 'd>,
    pub(crate) filter: Option<Filter>,
    pub(crate) observer: Option<Observer<'d>>,
    /// Whether to count how copies are left.
    pub(crate) exits: bool,
    /// What is to be found out about the text of copies.
    pub(crate) ranges: Detail,
}

/// A function as one unit declares it.
#[derive(Debug, Clone)]
pub(crate) struct UnitFunction<'a> {
    /// The name: the abstract function's. What is left of a split function has the name of its symbol instead.
    pub(crate) name: &'a str,
    pub(crate) origin: Arc<Origin<'a>>,
    /// Its FUNC in the base.
    pub(crate) func: Option<TypeId>,
}

/// An argument with a location that stands only if its parameter is not assigned to in any copy of the function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provisional {
    /// Index of the site in the unit.
    pub(crate) site: u32,
    /// Index of the parameter.
    pub(crate) parameter: u16,
    /// What the argument is otherwise.
    pub(crate) otherwise: Missing,
    /// Whether it counts as usable.
    pub(crate) usable: bool,
}

impl Provisional {
    /// An argument that is located after the entry of a site.
    fn not_at_entry(site: u32, parameter: usize) -> Provisional {
        let parameter = u16::try_from(parameter).unwrap_or(u16::MAX);
        Provisional { site, parameter, otherwise: Missing::NotAtEntry, usable: false }
    }
}

/// What a site is in a function with the same code as the one around it. All else of it is the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CopiedSite {
    /// Index of the site in the unit.
    pub(crate) site: u32,
    /// Where that function begins.
    pub(crate) function: u64,
    pub(crate) address: u64,
    pub(crate) section: u16,
    pub(crate) container: u32,
    pub(crate) unprobeable: Option<Unprobeable>,
}

/// A parameter, across units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ParameterKey<'a> {
    /// The function's name, and the line that declares it.
    function: &'a str,
    line: u32,
    index: u16,
}

impl<'a> ParameterKey<'a> {
    /// That of an abstract function's parameter.
    fn of(origin: &Origin<'a>, index: usize) -> ParameterKey<'a> {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        ParameterKey { function: origin.name, line: origin.declared_line, index }
    }
}

impl<'a> UnitFunction<'a> {
    /// What stands for a parameter across units.
    pub(crate) fn parameter(&self, index: usize) -> ParameterKey<'a> {
        ParameterKey { function: self.name, ..ParameterKey::of(&self.origin, index) }
    }
}

/// Counts that the sites themselves do not tell.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Inlined copies at addresses that are not in the image's text.
    pub(crate) outside_text: u64,
    /// Inlined copies of abstract functions that cannot be read.
    pub(crate) without_origin: u64,
    pub(crate) merged: u64,
    /// Arguments at inline sites for which the debug information has any location.
    pub(crate) usable: u64,
    /// Those of them that are located.
    pub(crate) located_of_usable: u64,
    /// Where inlined copies are entered.
    pub(crate) entries: EntryCensus,
    pub(crate) exits: ExitCensus,
}

/// The sites of one unit. Indices are those of the unit's own tables.
#[derive(Debug, Default)]
pub(crate) struct UnitSites<'a> {
    pub(crate) functions: Vec<UnitFunction<'a>>,
    pub(crate) prototypes: Vec<Box<[Argument]>>,
    /// With the reason why their first byte cannot be probed, if so.
    pub(crate) containers: Vec<(Container<'a>, Option<Unprobeable>)>,
    pub(crate) files: Vec<String>,
    pub(crate) sites: Vec<Site>,
    /// Those of them that are not sites, but parts of a call that has another site: see `split` and `hoisted`. In
    /// order.
    pub(crate) rests: Vec<u32>,
    /// Those of them that are entries by a marker, at an address that control comes to in one way: whatever else begins
    /// there begins each time. In order.
    pub(crate) in_line: Vec<u32>,
    /// The entries of each copy by GCC that has more than one.
    pub(crate) several: Vec<Vec<u32>>,
    /// Arguments that are constants and may be those of an earlier call: the sites, and the parameters. In order.
    pub(crate) constants: Vec<(u32, u16)>,
    /// Those of them with a probe that would be refused because of the instruction where it would be. In order.
    pub(crate) refused: Vec<(u32, Refusal)>,
    /// Those of them that are also in functions with the same code that no debug entry describes.
    pub(crate) copied: Vec<CopiedSite>,
    pub(crate) provisional: Vec<Provisional>,
    /// Parameters that are assigned to.
    pub(crate) assigned: Vec<ParameterKey<'a>>,
    /// What the copies show of parameters.
    pub(crate) evidence: HashMap<ParameterKey<'a>, Evidence>,
    /// Who made the unit.
    pub(crate) compiler: Compiler,
    pub(crate) tally: Tally,
    pub(crate) ranges: UnitRanges<'a>,
}

impl UnitSites<'_> {
    /// Where the probe of a site is, or would be if it were not refused there.
    pub(crate) fn unrescued(&self, site: u32) -> u64 {
        self.refusal(site).map_or(self.sites[site as usize].address, |refusal| refusal.address)
    }

    /// Why the probe of a site would be refused where it would be.
    pub(crate) fn refusal(&self, site: u32) -> Option<&Refusal> {
        let index = self.refused.binary_search_by_key(&site, |&(site, _)| site).ok()?;
        Some(&self.refused[index].1)
    }
}

/// Takes the functions of one unit and makes its sites.
pub(crate) struct UnitEncoder<'a, 'd, 'u> {
    shared: &'u Shared<'a, 'd>,
    unit: &'u DebugUnit<'a, 'd>,
    origins: Origins<'a, 'd, 'u>,
    prober: Prober<'d, 'a>,
    frames: RefCell<Cursor<'d, 'a>>,
    no_jump_tables: bool,
    is_by_clang: bool,
    wanted: HashMap<usize, bool>,
    out: UnitSites<'a>,
    function_of: HashMap<(*const Origin<'a>, &'a str), u32>,
    prototype_of: HashMap<Box<[Argument]>, u32>,
    container_of: HashMap<u64, u32>,
    /// The addresses of the one that was asked for last, and its number.
    last_container: (Range<u64>, u32),
    file_of: HashMap<(usize, u64), u32>,
    /// For files of other units, by their indices there, the index in this unit's line table.
    file_here: HashMap<(usize, u64), Option<u64>>,
    /// What is given for the parameters of the copy or body at hand, and of the function around the copy.
    gathered: Gathered<'a>,
    own: Own<'a>,
    found: Vec<Found>,
    arguments: Vec<Argument>,
    /// Whether the function at hand is entered as its source says: see [`Surroundings::is_whole`].
    is_whole: bool,
    /// For the copies of the function at hand, their sites.
    site_of: Vec<Range<u32>>,
    /// For the copies of the function at hand, if it is GCC's, what they have to do with recursions.
    recursions: Vec<Recursion>,
    /// The unit's statements, once they are asked for.
    lines: OnceCell<Lines>,
    /// The markers of the copies of the function at hand, and the entries of the copy at hand.
    markers: Markers,
    entries: Vec<Entry>,
    /// The unit's functions, if it is GCC's: some may have been folded.
    folds: Folds<'a>,
    /// The unit's calls, and the sites that they may tell of.
    calls: Vec<RawCall>,
    pending: Vec<Pending>,
    ranges: Gathering<'a>,
}

impl<'a, 'd, 'u> UnitEncoder<'a, 'd, 'u> {
    pub(crate) fn new(shared: &'u Shared<'a, 'd>, unit: &'u DebugUnit<'a, 'd>) -> Self {
        UnitEncoder {
            shared,
            unit,
            origins: Origins::new(unit, &shared.foreign),
            prober: Prober::new(shared.image),
            frames: RefCell::new(shared.frames.cursor()),
            no_jump_tables: unit.has_no_jump_tables(),
            is_by_clang: unit.clang().is_some(),
            wanted: HashMap::new(),
            out: UnitSites { compiler: unit.compiler(), ..UnitSites::default() },
            function_of: HashMap::new(),
            prototype_of: HashMap::new(),
            container_of: HashMap::new(),
            last_container: (0..0, 0),
            file_of: HashMap::new(),
            file_here: HashMap::new(),
            gathered: Gathered::default(),
            own: Own::default(),
            found: Vec::new(),
            arguments: Vec::new(),
            is_whole: true,
            site_of: Vec::new(),
            recursions: Vec::new(),
            lines: OnceCell::new(),
            markers: Markers::default(),
            entries: Vec::new(),
            folds: Folds::default(),
            calls: Vec::new(),
            pending: Vec::new(),
            ranges: Gathering::new(shared.ranges),
        }
    }

    /// The unit's sites.
    pub(crate) fn finish(mut self) -> UnitSites<'a> {
        self.folded_sites();
        self.out.ranges = self.finish_ranges();
        returns::mark(self.shared.image, &mut self.pending, &mut self.calls, &mut self.out.sites);
        let mut files = vec![String::new(); self.file_of.len()];
        for ((unit, file), index) in &self.file_of {
            files[*index as usize] = self.origins.file_name(*unit, *file).unwrap_or_default();
        }
        self.out.files = files;
        let mut prototypes: Vec<(Box<[Argument]>, u32)> = self.prototype_of.drain().collect();
        prototypes.sort_unstable_by_key(|(_, index)| *index);
        self.out.prototypes = prototypes.into_iter().map(|(prototype, _)| prototype).collect();
        self.out
    }

    /// The register that has the frame's address, if that is not the stack pointer. GCC gives the frame relative to the
    /// CFA, and does not say.
    fn frame_pointer(&self, function: &RawFunction<'a>) -> Option<Register> {
        let mut operations = Expression(function.frame_base?).operations(self.unit.unit.encoding());
        match (operations.next(), operations.next()) {
            (Ok(Some(Operation::Register { register })), Ok(None)) => {
                Some(register.0).filter(|&register| register != self.shared.image.machine().stack_pointer())
            }
            _ => None,
        }
    }

    /// Gathers what the debug information gives for a copy's parameters.
    fn gather(&mut self, function: &RawFunction<'a>, origin: &Origin<'a>, parameters: &[RawParameter<'a>]) {
        self.gathered.gather(self.unit, origin, parameters, |offset| self.origins.root(offset));
        if self.unit.is_gcc() {
            let start = start_of(function);
            self.gathered.settle(start, || after_fentry(self.shared.image, start));
        }
        self.note_assignments(origin);
    }

    fn note_assignments(&mut self, origin: &Origin<'a>) {
        self.out.assigned.extend(self.gathered.assigned().map(|index| ParameterKey::of(origin, index)));
    }

    /// Tells the observer what a site's arguments are made from, and at which step of the source it begins.
    fn observe(&self, function: &str, kind: SiteKind, address: u64, step: u32) {
        let Some(observer) = self.shared.observer else { return };
        let forms: Vec<&str> =
            self.found.iter().map(|found| if found.late { "late" } else { found.form.word() }).collect();
        observer(&Observed { function, kind, address, step, forms: &forms });
    }

    fn prototype(&mut self) -> u32 {
        if let Some(known) = self.prototype_of.get(&self.arguments[..]) {
            return *known;
        }
        let index = self.prototype_of.len() as u32;
        self.prototype_of.insert(self.arguments.clone().into_boxed_slice(), index);
        index
    }

    fn function(&mut self, name: &'a str, origin: Arc<Origin<'a>>) -> u32 {
        let base = self.shared.base;
        let next = self.out.functions.len() as u32;
        *self.function_of.entry((Arc::as_ptr(&origin), name)).or_insert_with(|| {
            let func = base_function(base, name, &origin);
            self.out.functions.push(UnitFunction { name, origin, func });
            next
        })
    }

    fn container(&mut self, address: u64) -> u32 {
        let (range, number) = &self.last_container;
        if range.contains(&address) {
            return *number;
        }
        let container = self.shared.image.container(address).unwrap_or(Container { name: "", address, size: 0 });
        let next = self.out.containers.len() as u32;
        let (containers, prober) = (&mut self.out.containers, &mut self.prober);
        let number = *self.container_of.entry(container.address).or_insert_with(|| {
            containers.push((container, prober.check_address(container.address)));
            next
        });
        self.last_container = (container.address..container.address.saturating_add(container.size), number);
        number
    }

    fn source(&mut self, unit: usize, file: u64, line: u32) -> SourceLine {
        if line == 0 {
            return SourceLine::UNKNOWN;
        }
        let next = self.file_of.len() as u32;
        SourceLine { file: *self.file_of.entry((unit, file)).or_insert(next), line }
    }
}

/// Where a function's text is entered.
fn start_of(function: &RawFunction<'_>) -> u64 {
    function.ranges.first().map_or(0, |range| function.entry.unwrap_or(range.start))
}

/// What the calling convention must know of a parameter; a size of 0 where its type is not known.
fn shape(ty: &Result<ParamType, Missing>) -> ParamShape {
    match ty {
        Ok(ty) => {
            ParamShape { size: ty.size, signed: ty.signed, composite: ty.is_composite, irregular: ty.is_irregular }
        }
        Err(_) => ParamShape::default(),
    }
}

/// The kind of a type without its typedefs and qualifiers; `None` for `void` and what is malformed.
fn resolved_kind(base: &BaseIndex<'_>, ty: &TypeRef) -> Option<Kind> {
    match ty {
        TypeRef::Void => None,
        TypeRef::Base(id) => base.btf().resolve(*id).map(|ty| ty.kind()),
        TypeRef::New(new) => match &**new {
            NewType::Typedef { to, .. } => resolved_kind(base, to),
            NewType::Modifier { kind, to } if kind.is_qualifier() => resolved_kind(base, to),
            NewType::Modifier { kind, .. } | NewType::Composite { kind, .. } => Some(*kind),
            NewType::Fwd { is_union, .. } => Some(if *is_union { Kind::Union } else { Kind::Struct }),
            NewType::Int { .. } => Some(Kind::Int),
            NewType::Float { .. } => Some(Kind::Float),
            NewType::Enumeration { .. } => Some(Kind::Enum),
            NewType::Array { .. } => Some(Kind::Array),
            NewType::FuncProto { .. } => Some(Kind::FuncProto),
        },
    }
}

/// The FUNC of the base with the name and the function's prototype.
fn base_function(base: &BaseIndex<'_>, name: &str, origin: &Origin<'_>) -> Option<TypeId> {
    if base.named(Kind::Func, name.as_bytes()).is_empty() {
        return None;
    }
    let parameters: Vec<TypeRef> = origin.parameters.iter().map(|parameter| parameter.type_ref.clone()).collect();
    base.function(name.as_bytes(), &origin.returns, &parameters, origin.variadic)
}

impl<'a> Visitor<'a> for UnitEncoder<'a, '_, '_> {
    fn wants(&mut self, origin: usize) -> bool {
        let Some(filter) = &self.shared.filter else { return true };
        let origins = &self.origins;
        *self.wanted.entry(origin).or_insert_with(|| origins.name(origin).is_some_and(|name| filter.has_name(name)))
    }

    fn without_text(&mut self, die: usize, inline: Option<gimli::DwInl>) {
        if !self.unit.is_gcc() || !self.unit.is_c {
            return;
        }
        let offset = self.unit.offset.saturating_add(die);
        if matches!(inline, Some(gimli::DW_INL_declared_not_inlined | gimli::DW_INL_declared_inlined)) {
            // Their names are read if there is text that may be theirs.
            self.folds.declared_inline(offset);
            return;
        }
        let Some(name) = self.origins.name(offset) else { return };
        self.folds.without_text(offset, name, inline.is_some());
    }

    fn function(&mut self, function: &mut RawFunction<'a>) {
        self.gather_ranges(function);
        if function.sites.iter().any(|site| site.wanted) {
            self.is_whole = self.is_whole(function);
            self.inline_sites(function);
        }
        if self.unit.is_c {
            self.calls.append(&mut function.calls);
        }
        if !self.unit.is_assembler {
            let offset = self.unit.offset.saturating_add(function.die);
            let has_site = self.out_of_line_site(function, offset).is_some();
            if self.unit.is_gcc()
                && let Some(name) = self.origins.name(offset)
            {
                self.folds.body(start_of(function), name, offset, has_site);
            }
        }
    }
}
