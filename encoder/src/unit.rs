// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of one unit.
//!
//! Units are encoded in parallel and know nothing of each other: functions, location prototypes, containing symbols and
//! files are numbered within the unit here, and numbered anew when the units are merged. What only all units together
//! can tell (whether a parameter is assigned to in some copy of its function) is left open: see [`Provisional`].

use crate::arguments::{At, Found, Gathered, Surroundings};
use crate::assigned::Body;
use crate::cfi::{Cursor, Frames};
use crate::clang::{self, Passed};
use crate::doubt::{self, Evidence};
use crate::dwarf::{DebugInfo, DebugUnit};
use crate::entry::{self, Entry, Moved};
use crate::filter::Filter;
use crate::folded::{Folded, Folds, SharedAddresses};
use crate::image::{Container, Image};
use crate::lines::{Lines, Place};
use crate::loclist::Point;
use crate::lower::ParamType;
use crate::markers::{Callee, Markers, State};
use crate::observe::{Observed, Observer};
use crate::origin::{Foreign, Origin, Origins};
use crate::outofline::{self, Role};
use crate::probeable::Prober;
use crate::repeats;
use crate::returns::{self, Pending};
use crate::signature::{self, Compiler, Copy, Signature};
use crate::split;
use crate::text::{self, DirectEntries, FunctionText, Known, behind_fentry, idle_prefix};
use crate::types::{BaseIndex, NewType, TypeRef};
use crate::walk::{RawCall, RawFunction, RawParameter, RawSite, Visitor};
use hashbrown::{HashMap, HashSet};
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::btf::{Kind, TypeId};
use siteseer_sites::location::{Argument, Location, Missing};
use siteseer_sites::site::SourceLine;
use siteseer_sites::{Doubt, Machine, Marks, Site, SiteKind, Unprobeable};
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::Arc;

/// What all units share.
pub(crate) struct Shared<'a, 'd> {
    pub(crate) image: &'d Image<'a>,
    pub(crate) debug: &'d DebugInfo<'a>,
    pub(crate) base: &'d BaseIndex<'a>,
    pub(crate) frames: &'d Frames<'a>,
    /// Functions that are called by name; `None` where no unit was found to be clang's.
    pub(crate) direct: Option<DirectEntries>,
    /// Names that other symbols bear with a suffix.
    pub(crate) namesakes: HashSet<&'a str>,
    pub(crate) shared_addresses: SharedAddresses<'a>,
    pub(crate) foreign: Foreign<'a, 'd>,
    pub(crate) filter: Option<Filter>,
    pub(crate) observer: Option<Observer<'d>>,
}

/// A function as one unit declares it.
#[derive(Debug, Clone)]
pub(crate) struct UnitFunction<'a> {
    /// The name: the abstract function's, but for what is left of a split function, which bears its symbol's.
    pub(crate) name: &'a str,
    pub(crate) origin: Arc<Origin<'a>>,
    /// Its FUNC in the base.
    pub(crate) func: Option<TypeId>,
}

/// An argument whose location stands only if its parameter is not assigned to in any copy of the function.
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

/// A parameter, across units: the function's name and line, and the parameter's index.
pub(crate) type ParameterKey<'a> = (&'a str, u32, u16);

/// Counts that the sites themselves do not tell.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Inlined copies at addresses that are not in the image's text.
    pub(crate) outside_text: u64,
    /// Inlined copies of abstract functions that cannot be read.
    pub(crate) without_origin: u64,
    /// Arguments at inline sites for which the debug information has any location.
    pub(crate) usable: u64,
    /// Those of them that are located.
    pub(crate) located_of_usable: u64,
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
    /// Those of them that are no sites, but the rest of a function that was split. In order.
    pub(crate) rests: Vec<u32>,
    /// Those of them that are of functions that were folded, unless another unit has the text. In order, and the last.
    pub(crate) wrappers: Vec<u32>,
    /// Where its functions are entered.
    pub(crate) entries: Vec<u64>,
    /// Those of them that are entries by a marker, at an address that control comes to in one way: whatever else begins there
    /// begins each time. In order.
    pub(crate) in_line: Vec<u32>,
    pub(crate) provisional: Vec<Provisional>,
    /// Parameters that are assigned to.
    pub(crate) assigned: Vec<ParameterKey<'a>>,
    /// What the copies show of parameters.
    pub(crate) evidence: HashMap<ParameterKey<'a>, Evidence>,
    /// Who made the unit.
    pub(crate) compiler: Compiler,
    pub(crate) tally: Tally,
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
    gathered: Gathered<'a>,
    found: Vec<Found>,
    arguments: Vec<Argument>,
    /// Whether the function at hand is entered as its source says: see [`Surroundings::is_whole`].
    is_whole: bool,
    /// For the copies of the function at hand, their sites.
    site_of: Vec<Range<u32>>,
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
            found: Vec::new(),
            arguments: Vec::new(),
            is_whole: true,
            site_of: Vec::new(),
            lines: OnceCell::new(),
            markers: Markers::default(),
            entries: Vec::new(),
            folds: Folds::default(),
            calls: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// The unit's sites.
    pub(crate) fn finish(mut self) -> UnitSites<'a> {
        self.folded_sites();
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

    /// Whether a function is entered as its source says: see [`Surroundings::is_whole`].
    fn is_whole(&mut self, function: &RawFunction<'a>) -> bool {
        let offset = self.unit.offset.saturating_add(function.die);
        let entry = function.entry.or(function.ranges.first().map(|range| range.start));
        let (Some(name), Some(entry)) = (self.origins.name(offset), entry) else { return false };
        let symbols = self.shared.image.symbol_at(entry);
        !function.nocall && !outofline::role(symbols.iter().map(|symbol| symbol.name), name).is_changed()
    }

    fn inline_sites(&mut self, function: &RawFunction<'a>) {
        let shared = self.shared;
        let known = Known {
            entry: function.entry,
            no_jump_tables: self.no_jump_tables,
            tail_calls: &function.tail_calls,
            noreturn: None,
        };
        let text = FunctionText::decode(shared.image, &function.ranges, &known);
        self.find_markers(function);
        self.site_of.clear();
        let mut parameters = &function.parameters[..];
        // The function's own come first.
        let own = parameters.partition_point(|parameter| parameter.site == RawParameter::OWN);
        parameters = &parameters[own..];
        for (index, site) in function.sites.iter().enumerate() {
            let mentioned = parameters.iter().take_while(|parameter| parameter.site as usize == index).count();
            let (own, rest) = parameters.split_at(mentioned);
            parameters = rest;
            let first = self.out.sites.len() as u32;
            if site.wanted {
                self.copy(function, index, own, &text);
            }
            self.site_of.push(first..self.out.sites.len() as u32);
        }
    }

    /// Finds the markers of a function's copies.
    fn find_markers(&mut self, function: &RawFunction<'a>) {
        self.markers.clear();
        if !self.unit.is_gcc() {
            return;
        }
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let (unit, origins, file_here) = (self.unit, &mut self.origins, &mut self.file_here);
        self.markers.find(lines, function, |site| {
            let origin = origins.get(site.origin)?;
            let place = place_of(unit, origins, file_here, &origin)?;
            Some(Callee { place, by_macro: origin.by_macro })
        });
    }

    /// Further entries of GCC's copy that has one, and no marker: see `repeats`.
    fn entries_behind_caller(
        &mut self,
        function: &RawFunction<'a>,
        copy: usize,
        origin: &Origin<'a>,
        first: Entry,
        body: &[Range<u64>],
    ) -> Vec<Point> {
        let caller = match function.sites[copy].parent {
            Some(parent) => function.sites[parent as usize].origin,
            None => self.unit.offset.saturating_add(function.die),
        };
        let caller = self.origins.get(caller);
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let (unit, origins, file_here) = (self.unit, &mut self.origins, &mut self.file_here);
        let mut place = |origin: &Origin<'a>| place_of(unit, origins, file_here, origin);
        let (Some(caller), Some(callee)) = (caller.and_then(|caller| place(&caller)), place(origin)) else {
            return Vec::new();
        };
        let is_callees = |place: Place| place.file == callee.file && place.line >= callee.line;
        // Of two functions in one file, the later one's lines end what the earlier one's may be.
        let is_callers = |place: Place| {
            let is_behind = place.file == caller.file && place.line >= caller.line;
            is_behind && (callee.file != caller.file || callee.line <= caller.line || !is_callees(place))
        };
        let point = Point { address: first.address, view: first.view };
        let mut again = repeats::behind_caller(lines, point, body, is_callers);
        again.retain(|point| !is_other_copys(function, copy, point.address));
        again
    }

    /// Makes the sites of one inlined copy: one for each of its entries.
    fn copy(
        &mut self,
        function: &RawFunction<'a>,
        copy: usize,
        parameters: &[RawParameter<'a>],
        text: &FunctionText<'d, 'a>,
    ) -> Option<()> {
        let shared = self.shared;
        let raw = &function.sites[copy];
        let Some(origin) = self.origins.get(raw.origin) else {
            self.out.tally.without_origin += 1;
            return None;
        };
        let body = &function.site_ranges[raw.ranges.start as usize..raw.ranges.end as usize];
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        match self.markers.state(copy) {
            State::Known => entries.extend(self.markers.of(copy).map(|point| entry::marked(point, body, text))),
            _ => entries.extend(entry::find(raw.entry, raw.view, body, text)),
        }
        let (mut may_begin_again, mut may_be_own) = (false, false);
        if self.is_by_clang
            && let [first] = &mut entries[..]
        {
            first.address = text.behind_others(first.address, body).unwrap_or(first.address);
            let first = *first;
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let own = innermost(function, copy, first.address);
            let again = repeats::find(lines, text, first.address, own, body);
            (may_begin_again, may_be_own) = (again.is_unclear, again.may_be_own);
            entries.extend(again.entries.into_iter().map(entry::by_statement));
        }
        if self.markers.state(copy) == State::None
            && self.unit.is_gcc()
            && let [first] = entries[..]
        {
            let again = self.entries_behind_caller(function, copy, &origin, first, body);
            let is_next =
                |point: &Point| text.is_boundary(point.address) && text.is_straight(first.address, point.address);
            entries.extend(again.into_iter().filter(is_next).map(entry::by_row));
        }
        self.gather(function, &origin, parameters);
        if self.is_by_clang {
            let nested = nested(function, Some(copy));
            if let Some(first) = entries.first() {
                self.note_assigned(&origin, &Body { text, ranges: body, nested: &nested }, first.address);
            }
        }
        let is_rest = split::is_rest(self.unit, &mut self.origins, function, raw, &origin);
        let mut marks = self.marks_of_copy(function, copy, &entries, body, text);
        if may_begin_again {
            marks |= Marks::MAY_MISS;
        }
        if may_be_own {
            marks |= Marks::MAY_REPEAT;
        }
        for entry in &entries {
            let Some(section) = shared.image.section_at(entry.address) else {
                self.out.tally.outside_text += 1;
                continue;
            };
            if is_rest {
                self.out.rests.push(self.out.sites.len() as u32);
            }
            if self.markers.state(copy) == State::Known && !text.has_two_ways_in(entry.address) {
                self.out.in_line.push(self.out.sites.len() as u32);
            }
            let count = entries.len() + usize::from(may_begin_again);
            self.inline_site(function, raw, *entry, &origin, body, text, section, marks, count);
        }
        self.entries = entries;
        Some(())
    }

    /// Gathers what the debug information gives for a copy's parameters.
    fn gather(&mut self, function: &RawFunction<'a>, origin: &Origin<'a>, parameters: &[RawParameter<'a>]) {
        self.gathered.gather(self.unit, origin, parameters, |offset| self.origins.root(offset));
        if self.unit.is_gcc() {
            let start = start_of(function);
            self.gathered.settle(start, || behind_fentry(self.shared.image, start));
        }
        self.note_assignments(origin);
    }

    /// Notes what the lists of an inlined copy show of its parameters.
    fn note_evidence(&mut self, origin: &Origin<'a>, entries: usize) {
        let mut note = |index: usize, evidence: Evidence| {
            if !evidence.is_empty() {
                let key = (origin.name, origin.declared_line, u16::try_from(index).unwrap_or(u16::MAX));
                self.out.evidence.entry(key).or_default().and(evidence);
            }
        };
        let machine = self.shared.image.machine();
        self.found.iter().enumerate().for_each(|(index, found)| note(index, Evidence::of(found, machine)));
        self.gathered.assigned().for_each(|index| note(index, Evidence::ASSIGNED));
        if entries == 1 {
            self.gathered.changing(self.unit.unit.encoding()).for_each(|index| note(index, Evidence::ASSIGNED));
        }
    }

    /// Notes the parameters that a body by clang assigns to.
    fn note_assigned(&mut self, origin: &Origin<'a>, body: &Body<'_, '_, '_>, entry: u64) {
        let (evidence, encoding) = (&mut self.out.evidence, self.unit.unit.encoding());
        body.assigned(&self.gathered, encoding, entry, |index, at_once| {
            let key = (origin.name, origin.declared_line, u16::try_from(index).unwrap_or(u16::MAX));
            let evidence = evidence.entry(key).or_default();
            evidence.and(Evidence::ASSIGNED);
            if at_once {
                evidence.and(Evidence::AT_ONCE);
            }
        });
    }

    /// Marks what cannot be what was passed at an address of an inlined copy by clang.
    fn doubt_stale(&mut self, body: &Body<'_, '_, '_>, address: u64) {
        let encoding = self.unit.unit.encoding();
        for (index, found) in self.found.iter_mut().enumerate() {
            let Ok(located) = &mut found.argument else { continue };
            let is_one = matches!(located.at, Location::Register(_) | Location::Constant(_) | Location::Address(_));
            if is_one && body.is_stale(&self.gathered, index, address, encoding) {
                located.doubt = Some(Doubt::Stale);
            }
        }
    }

    /// Marks what is doubtful of an inlined copy's arguments by how the debug information gives them.
    fn doubt_forms(&mut self, origin: &Origin<'a>, entries: usize) {
        let (compiler, machine) = (self.unit.compiler(), self.shared.image.machine());
        let is_by_clang = self.is_by_clang;
        for (found, parameter) in self.found.iter_mut().zip(&origin.parameters) {
            let is_sum = matches!(&found.argument, Ok(located) if doubt::is_computed(located, machine));
            let doubt =
                found.argument.as_ref().ok().and_then(|located| doubt::of_form(compiler, machine, found, located));
            // Callers compute addresses of members; sums of numbers are as often the body's.
            let is_number = || resolved_kind(self.shared.base, &parameter.type_ref) != Some(Kind::Ptr);
            let doubt = doubt.or((is_by_clang && is_sum && is_number()).then_some(Doubt::Stale));
            if let Ok(located) = &mut found.argument {
                // A list that is of several calls has constants of other calls, too.
                let is_of_others = doubt == Some(Doubt::Constant) && entries > 1;
                located.doubt = located.doubt.or(if is_of_others { Some(Doubt::Stale) } else { doubt });
            }
        }
    }

    /// The marks that all sites of a copy have.
    fn marks_of_copy(
        &self,
        function: &RawFunction<'a>,
        copy: usize,
        entries: &[Entry],
        body: &[Range<u64>],
        text: &FunctionText<'d, 'a>,
    ) -> Marks {
        let raw = &function.sites[copy];
        let state = self.markers.state(copy);
        let mut marks = Marks::default();
        if self.is_by_clang && split::may_be_merged(self.unit, function, raw) {
            marks |= Marks::ENTRY_UNCERTAIN;
        }
        let (one, many);
        let addresses: &[u64] = if let [entry] = entries {
            one = [entry.address];
            &one
        } else {
            many = entries.iter().map(|entry| entry.address).collect::<Vec<u64>>();
            &many
        };
        let is_other_copy = |address: u64| is_other_copys(function, copy, address);
        if state == State::Several || text.bypasses(addresses, body, state == State::Known, &is_other_copy) {
            marks |= Marks::MAY_MISS;
        }
        marks
    }

    /// Makes the site of one entry of an inlined copy.
    #[expect(clippy::too_many_arguments, reason = "what is known of the copy, and of the entry")]
    fn inline_site(
        &mut self,
        function: &RawFunction<'a>,
        raw: &RawSite,
        entry: Entry,
        origin: &Arc<Origin<'a>>,
        body: &[Range<u64>],
        text: &FunctionText<'d, 'a>,
        section: u16,
        mut marks: Marks,
        entries: usize,
    ) {
        let shared = self.shared;
        let site = self.out.sites.len() as u32;
        let surroundings = Surroundings {
            image: shared.image,
            unit: self.unit,
            frames: &self.frames,
            frame_base: function.frame_base,
            text: Some(text),
            entry: start_of(function),
            is_whole: self.is_whole,
        };
        let at = At::new(&surroundings, entry.address);
        self.found.clear();
        for (index, parameter) in origin.parameters.iter().enumerate() {
            let found = at.find(&self.gathered, index, parameter, entry.view);
            if found.late {
                marks |= Marks::LATE_VIEW;
                self.out.provisional.push(Provisional {
                    site,
                    parameter: u16::try_from(index).unwrap_or(u16::MAX),
                    otherwise: Missing::AfterEntry,
                    usable: found.usable,
                });
            }
            self.out.tally.usable += u64::from(found.usable);
            self.out.tally.located_of_usable += u64::from(found.usable && found.argument.is_ok());
            self.found.push(found);
        }
        if let Some((index, located)) =
            entry::behind_branch(&surroundings, text, entry, body, origin, &self.gathered, &self.found)
        {
            self.out.provisional.push(Provisional {
                site,
                parameter: u16::try_from(index).unwrap_or(u16::MAX),
                otherwise: Missing::NotAtEntry,
                usable: false,
            });
            self.found[index].argument = Ok(located);
        }
        if entry.by_statement {
            entry::keep_own(&mut self.found, &self.gathered, entry.address);
            marks |= Marks::MAY_REPEAT;
        }
        let mut address = entry.address;
        let mut moved = 0;
        let point = Point { address, view: entry.view };
        let lines = &self.lines;
        let next_statement = || {
            let lines = lines.get_or_init(|| Lines::read(self.unit));
            lines.next_statement(point, body, (raw.call_file, raw.call_line))
        };
        let better = entry::move_probe(
            &surroundings,
            &mut self.prober,
            entry::Start { address, next_statement },
            origin,
            &self.gathered,
            &self.found,
        );
        if let Some(Moved { address: better, gained }) = better
            && let Ok(distance) = u8::try_from(better - entry.address)
        {
            address = better;
            moved = distance;
            for (index, located) in gained {
                self.out.provisional.push(Provisional {
                    site,
                    parameter: u16::try_from(index).unwrap_or(u16::MAX),
                    otherwise: Missing::NotAtEntry,
                    usable: false,
                });
                self.found[index].argument = Ok(located);
            }
        }
        if self.is_by_clang {
            self.doubt_stale(&Body { text, ranges: body, nested: &[] }, address);
        }
        if entry.uncertain {
            marks |= Marks::ENTRY_UNCERTAIN;
        }
        if text.reentered_from(entry.address, body) {
            marks |= Marks::MAY_REPEAT;
        }
        self.observe(origin.name, SiteKind::Inline, address);
        self.note_evidence(origin, entries);
        self.doubt_forms(origin, entries);
        self.arguments.clear();
        self.arguments.extend(self.found.drain(..).map(|found| found.argument));
        let parent = raw.parent.and_then(|parent| self.site_around(parent as usize, address));
        let unprobeable = self.prober.check(text, address);
        let prototype = self.prototype();
        let source = self.source(self.unit.index, raw.call_file, raw.call_line);
        let declared = self.source(origin.declared_in, origin.declared_file, origin.declared_line);
        let container = self.container(address);
        let function = self.function(origin.name, Arc::clone(origin));
        self.out.sites.push(Site {
            function,
            kind: SiteKind::Inline,
            address,
            moved,
            section,
            prototype,
            container,
            source,
            declared,
            parent,
            marks,
            unprobeable,
        });
    }

    /// The site of an enclosing copy that an address belongs to: the last before it, if it has several.
    fn site_around(&self, copy: usize, address: u64) -> Option<u32> {
        let mut sites = self.site_of.get(copy)?.clone();
        let first = sites.clone().next();
        sites.rfind(|&site| self.out.sites[site as usize].address <= address).or(first)
    }

    /// Makes a site of the function itself, if its name alone cannot tell.
    fn out_of_line_site(&mut self, function: &RawFunction<'a>, offset: usize) -> Option<()> {
        let shared = self.shared;
        let image = shared.image;
        let address = function.entry.unwrap_or(function.ranges.first()?.start);
        let section = image.section_at(address)?;
        let own_name = self.origins.name(offset)?;
        if shared.filter.as_ref().is_some_and(|filter| !filter.has_stem(own_name)) {
            return None;
        }
        let symbols = image.symbol_at(address);
        let role = outofline::role(symbols.iter().map(|symbol| symbol.name), own_name);
        let kind = role.kind()?;
        let name = if let Role::Part(symbol) = role { symbol } else { own_name };
        if shared.filter.as_ref().is_some_and(|filter| !filter.has_name(name)) {
            return None;
        }
        let origin = self.origins.get(offset)?;
        self.find_own(function, &origin, address, !(role.is_changed() || function.nocall));
        let shapes: Vec<ParamShape> = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
        let abi = abi_arguments(image.machine(), &shapes, origin.result.as_ref().map(shape));
        let symbol = symbols.iter().find(|symbol| outofline::role([symbol.name], own_name) == role);
        let copy = Copy {
            role,
            symbol: symbol.map_or(own_name, |symbol| symbol.name),
            compiler: self.unit.compiler(),
            is_c: self.unit.is_c,
            is_global: symbols.iter().any(|symbol| symbol.name == own_name && symbol.global),
            nocall: function.nocall,
            is_called: shared.direct.as_ref().is_none_or(|direct| direct.has(address)),
        };
        let passed: Vec<Passed> = (origin.parameters.iter().zip(&self.found).zip(&abi))
            .map(|((parameter, found), abi)| {
                let kind = resolved_kind(shared.base, &parameter.type_ref);
                let is_memory = matches!(kind, None | Some(Kind::Ptr | Kind::Struct | Kind::Union));
                Passed::new(&found.argument, abi, is_memory)
            })
            .collect();
        let signature = copy.signature(&passed);
        let name_tells = matches!(role, Role::Body)
            && signature == Signature::Source
            && !passed.iter().any(|passed| copy.may_be_left_out(passed))
            && !abi.iter().zip(&shapes).any(|(abi, shape)| copy.may_be_unfilled(abi, shape))
            && image.symbols_named(name).nth(1).is_none()
            && !shared.namesakes.contains(name)
            // A module's name is looked up in its own BTF alone.
            && base_function(shared.base, name, &origin).is_some_and(|func| func >= shared.base.btf().first_id());
        if name_tells {
            return None;
        }
        self.observe(name, kind, address);
        let found = std::mem::take(&mut self.found);
        self.arguments = match signature {
            Signature::Source => signature::of_source(&copy, found, abi, &shapes, &passed),
            Signature::Changed => {
                let is_kept = |register| text::is_kept(image, &function.ranges, register);
                signature::of_changed(&copy, image.machine(), found, is_kept)
            }
        };
        let mut marks = Marks::default();
        if signature == Signature::Changed {
            marks |= Marks::SIGNATURE_CHANGED;
            match self.returned(&origin, function.nocall, address) {
                Returned::Nothing => {}
                Returned::Kept => marks |= Marks::RETURN_KEPT,
                Returned::IfUsed => {
                    let entries = [offset, function.origin.unwrap_or(offset)];
                    self.pending.push(Pending { site: self.out.sites.len() as u32, address, entries });
                }
            }
        }
        let known = Known {
            entry: function.entry,
            no_jump_tables: self.no_jump_tables,
            tail_calls: &function.tail_calls,
            noreturn: None,
        };
        let text = FunctionText::decode(image, &function.ranges, &known);
        if text.reentered_from(address, &function.ranges) {
            marks |= Marks::MAY_REPEAT;
        }
        if self.is_by_clang {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let start = behind_tracer(image, address);
            if repeats::begins_with_loop(&text, lines, start, &function.ranges) {
                marks |= Marks::MAY_MISS;
            }
        }
        let unprobeable = self.prober.check(&text, address);
        let prototype = self.prototype();
        let declared = self.source(origin.declared_in, origin.declared_file, origin.declared_line);
        let container = self.container(address);
        let function = self.function(name, origin);
        self.out.sites.push(Site {
            function,
            kind,
            address,
            moved: 0,
            section,
            prototype,
            container,
            source: declared,
            declared,
            parent: None,
            marks,
            unprobeable,
        });
        Some(())
    }

    /// Makes the sites of functions that were folded into others, and marks those of the others.
    fn folded_sites(&mut self) {
        let folds = std::mem::take(&mut self.folds);
        let resolved = folds.resolve(self.shared.image, &self.shared.shared_addresses);
        let clones = self.twins_of(&folds);
        let mut has_copies = false;
        for (index, site) in (0u32..).zip(&mut self.out.sites) {
            let name = self.out.functions[site.function as usize].name;
            if clones.contains(&index) {
                site.marks |= Marks::MAY_REPEAT;
            }
            if resolved.kept.binary_search(&name).is_ok() {
                site.marks |= Marks::MAY_REPEAT;
                has_copies |= site.kind == SiteKind::Inline;
            }
        }
        for (die, folded) in resolved.folded {
            let site = self.out.sites.len() as u32;
            if self.folded_site(die, folded, has_copies).is_some() && matches!(folded, Folded::Wrapper(_)) {
                self.out.wrappers.push(site);
            }
        }
        self.out.entries = folds.entries().collect();
    }

    /// The clones that functions of which nothing is left may have been folded into: those of the same shape.
    fn twins_of(&mut self, folds: &Folds<'a>) -> HashSet<u32> {
        let shape_of = |origin: &Origin<'a>| {
            let parameters: Vec<ParamShape> = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
            (parameters, origin.result.as_ref().map(shape))
        };
        let mut gone = Vec::new();
        for die in folds.gone(self.shared.image) {
            // What a header declares and the unit does not call is no such function.
            let origin = self.origins.get(die).filter(|origin| origin.declared_file == PRIMARY_FILE);
            gone.extend(origin.map(|origin| shape_of(&origin)));
        }
        if gone.is_empty() {
            return HashSet::new();
        }
        let is_changed = |site: &Site| site.kind == SiteKind::Clone && site.marks.contains(Marks::SIGNATURE_CHANGED);
        let clones = (0u32..).zip(&self.out.sites).filter(|(_, site)| is_changed(site));
        clones
            .filter(|(_, site)| gone.contains(&shape_of(&self.out.functions[site.function as usize].origin)))
            .map(|(index, _)| index)
            .collect()
    }

    /// Makes the site of a function that was folded into another; `has_copies` tells whether such another has inlined copies.
    fn folded_site(&mut self, die: usize, folded: Folded, has_copies: bool) -> Option<()> {
        let image = self.shared.image;
        let (address, mut marks) = match folded {
            Folded::Alias(address) if has_copies => (address, Marks::MAY_REPEAT | Marks::MAY_MISS),
            Folded::Body(address) | Folded::Alias(address) => (address, Marks::MAY_REPEAT),
            Folded::Wrapper(address) => (address, Marks::MAY_MISS),
        };
        let section = image.section_at(address)?;
        let own_name = self.origins.name(die)?;
        let role = outofline::role(image.symbol_at(address).iter().map(|symbol| symbol.name), own_name);
        let kind = role.kind()?;
        let name = if let Role::Part(symbol) = role { symbol } else { own_name };
        if self.shared.filter.as_ref().is_some_and(|filter| !filter.has_name(name)) {
            return None;
        }
        let origin = self.origins.get(die)?;
        self.arguments = if role.is_changed() {
            marks |= Marks::SIGNATURE_CHANGED;
            vec![Err(Missing::NotMentioned); origin.parameters.len()]
        } else {
            let shapes: Vec<ParamShape> = origin.parameters.iter().map(|parameter| shape(&parameter.ty)).collect();
            abi_arguments(image.machine(), &shapes, origin.result.as_ref().map(shape))
        };
        let unprobeable = self.prober.check_address(address);
        let prototype = self.prototype();
        let declared = self.source(origin.declared_in, origin.declared_file, origin.declared_line);
        let container = self.container(address);
        let function = self.function(name, origin);
        self.out.sites.push(Site {
            function,
            kind,
            address,
            moved: 0,
            section,
            prototype,
            container,
            source: declared,
            declared,
            parent: None,
            marks,
            unprobeable,
        });
        Some(())
    }

    /// Finds what the debug information has of an out-of-line function's own arguments at its entry.
    fn find_own(&mut self, function: &RawFunction<'a>, origin: &Origin<'a>, address: u64, is_whole: bool) {
        let own = function.parameters.partition_point(|parameter| parameter.site == RawParameter::OWN);
        self.gathered.gather(self.unit, origin, &function.parameters[..own], |offset| self.origins.root(offset));
        self.note_assignments(origin);
        let surroundings = Surroundings {
            image: self.shared.image,
            unit: self.unit,
            frames: &self.frames,
            frame_base: function.frame_base,
            text: None,
            entry: address,
            is_whole,
        };
        let at = At::new(&surroundings, address);
        self.found.clear();
        for (index, parameter) in origin.parameters.iter().enumerate() {
            let found = at.find(&self.gathered, index, parameter, 0);
            self.found.push(found);
        }
        if self.unit.clang().is_some() {
            look_behind_patch_site(&surroundings, origin, &self.gathered, &mut self.found);
            clang::look_behind_prologue(&at, &self.gathered, origin, &mut self.found);
        }
    }

    /// Whether a copy with a changed signature returns what the function does.
    fn returned(&self, origin: &Origin<'a>, nocall: bool, address: u64) -> Returned {
        if origin.returns == TypeRef::Void || !self.unit.is_c {
            return Returned::Nothing;
        }
        let kept = match self.unit.clang() {
            Some(version) => version >= clang::MARKS_DEAD && !nocall,
            None => {
                self.unit.is_gcc()
                    && self.shared.image.symbol_at(address).iter().all(|symbol| {
                        match symbol.name.strip_prefix(origin.name) {
                            Some("") | None => true,
                            Some(suffix) => returns::gcc_keeps(suffix.split('.').skip(1)),
                        }
                    })
            }
        };
        if kept {
            Returned::Kept
        } else if !self.unit.is_gcc()
            && matches!(resolved_kind(self.shared.base, &origin.returns), None | Some(Kind::Struct | Kind::Union))
        {
            // Clang may drop a part of it.
            Returned::Nothing
        } else {
            Returned::IfUsed
        }
    }

    fn note_assignments(&mut self, origin: &Origin<'a>) {
        for index in self.gathered.assigned() {
            let index = u16::try_from(index).unwrap_or(u16::MAX);
            self.out.assigned.push((origin.name, origin.declared_line, index));
        }
    }

    /// Tells of a site what its arguments are made from.
    fn observe(&self, function: &str, kind: SiteKind, address: u64) {
        let Some(observer) = self.shared.observer else { return };
        let forms: Vec<&str> =
            self.found.iter().map(|found| if found.late { "late" } else { found.form.word() }).collect();
        observer(&Observed { function, kind, address, forms: &forms });
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

/// Where a function is declared, with the file's index in a unit's line table.
fn place_of<'a>(
    unit: &DebugUnit<'a, '_>,
    origins: &Origins<'a, '_, '_>,
    file_here: &mut HashMap<(usize, u64), Option<u64>>,
    origin: &Origin<'a>,
) -> Option<Place> {
    let declared = (origin.declared_in, origin.declared_file);
    let file = if declared.0 == unit.index {
        declared.1
    } else {
        // With link-time optimisation, what is declared in another unit has another index in this one's line table.
        (*file_here.entry(declared).or_insert_with(|| unit.file_index(&origins.file_name(declared.0, declared.1)?)))?
    };
    Some(Place { file, line: origin.declared_line, column: origin.declared_column })
}

/// The index of the unit's own source in its line table, as GCC numbers files.
const PRIMARY_FILE: u64 = 1;

/// The ranges of the innermost copy in a copy, or of that itself, that hold an address.
fn innermost<'r>(function: &'r RawFunction<'_>, copy: usize, address: u64) -> &'r [Range<u64>] {
    let ranges = |site: &RawSite| &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize];
    let mut found = copy;
    // Copies come before those in them.
    for (inner, site) in function.sites.iter().enumerate().skip(copy + 1) {
        if site.parent == Some(found as u32) && ranges(site).iter().any(|range| range.contains(&address)) {
            found = inner;
        }
    }
    ranges(&function.sites[found])
}

/// The ranges of the copies that are right in a copy, or in the function itself.
fn nested(function: &RawFunction<'_>, copy: Option<usize>) -> Vec<Range<u64>> {
    let parent = copy.map(|copy| copy as u32);
    let inner = function.sites.iter().filter(|site| site.parent == parent);
    let ranges = |site: &RawSite| &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize];
    inner.flat_map(ranges).filter(|range| !range.is_empty()).cloned().collect()
}

/// Where a function does something itself: behind landing pads and the call to ftrace.
fn behind_tracer(image: &Image<'_>, entry: u64) -> u64 {
    /// The length of a call.
    const CALL: u64 = 5;
    let start = idle_prefix(image, entry).last().unwrap_or(entry);
    let behind = start.saturating_add(CALL);
    let is_tracer = |target| image.symbol_at(target).iter().any(|symbol| symbol.name == "__fentry__");
    let is_call = image.machine() == Machine::X86_64 && text::call_target(image, behind).is_some_and(is_tracer);
    if is_call { behind } else { start }
}

/// Whether an address is in another copy of the same function, or that begins there.
fn is_other_copys(function: &RawFunction<'_>, copy: usize, address: u64) -> bool {
    let origin = function.sites[copy].origin;
    function.sites.iter().enumerate().any(|(other, site)| {
        let ranges = &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize];
        let is_there = || site.entry == Some(address) || ranges.iter().any(|range| range.contains(&address));
        other != copy && site.origin == origin && is_there()
    })
}

/// Where a function's text is entered.
fn start_of(function: &RawFunction<'_>) -> u64 {
    function.ranges.first().map_or(0, |range| function.entry.unwrap_or(range.start))
}

/// What is known of the return value of a copy with a changed signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    /// There is none, or nothing can be known of it.
    Nothing,
    /// It is there.
    Kept,
    /// It is there if a caller uses it.
    IfUsed,
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

/// The kind of a type behind typedefs and qualifiers; `None` for `void` and what is malformed.
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
        let is_declared_inline =
            matches!(inline, Some(gimli::DW_INL_declared_not_inlined | gimli::DW_INL_declared_inlined));
        if !self.unit.is_gcc() || !self.unit.is_c || is_declared_inline {
            return;
        }
        let offset = self.unit.offset.saturating_add(die);
        let Some(name) = self.origins.name(offset) else { return };
        self.folds.without_text(offset, name, inline.is_some());
    }

    fn function(&mut self, function: &mut RawFunction<'a>) {
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

/// Finds the arguments that clang locates only from behind the instruction that ftrace patches on: nothing happens before
/// it, so that they are there at the entry too.
fn look_behind_patch_site<'a>(
    surroundings: &Surroundings<'_, 'a, '_>,
    origin: &Origin<'a>,
    gathered: &Gathered<'a>,
    found: &mut [Found],
) {
    let is_missing = |found: &Found| found.argument == Err(Missing::NotAtEntry);
    if !found.iter().any(is_missing) {
        return;
    }
    for place in idle_prefix(surroundings.image, surroundings.entry) {
        let at = At::new(surroundings, place);
        for (index, parameter) in origin.parameters.iter().enumerate() {
            if is_missing(&found[index]) {
                found[index] = at.find(gathered, index, parameter, 0);
            }
        }
    }
}
