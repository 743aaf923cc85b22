// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of a function's inlined copies.

use super::{Provisional, UnitEncoder, resolved_kind, start_of};
use crate::debug::lines::{Lines, Place, Row};
use crate::debug::loclist::Point;
use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawFunction, RawParameter, RawSite};
use crate::text::{FunctionText, Known, Slot};
use crate::unit::arguments::{At, Surroundings};
use crate::unit::assigned::Body;
use crate::unit::doubt::{self, Evidence};
use crate::unit::entry::{self, Entry, Moved};
use crate::unit::markers::{Callee, State};
use crate::unit::origin::{Origin, Origins};
use crate::unit::outofline::{self, Role};
use crate::unit::repeats::{self, OwnLines};
use crate::unit::split;
use hashbrown::HashMap;
use siteseer_sites::btf::Kind;
use siteseer_sites::location::{Located, Location, Missing};
use siteseer_sites::{Doubt, Marks, Site, SiteKind};
use std::ops::Range;
use std::sync::Arc;

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    pub(super) fn inline_sites(&mut self, function: &RawFunction<'a>) {
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

    /// Whether a function is entered as its source says: see [`Surroundings::is_whole`].
    pub(super) fn is_whole(&mut self, function: &RawFunction<'a>) -> bool {
        let offset = self.unit.offset.saturating_add(function.die);
        let entry = function.entry.or(function.ranges.first().map(|range| range.start));
        let (Some(name), Some(entry)) = (self.origins.name(offset), entry) else { return false };
        let symbols = self.shared.image.symbol_at(entry);
        !function.nocall && !outofline::role(symbols.iter().map(|symbol| symbol.name), name).is_changed()
    }

    /// Whether a function is what is left of one that was split.
    fn is_part(&mut self, function: &RawFunction<'a>) -> bool {
        let name = self.origins.name(self.unit.offset.saturating_add(function.die));
        let symbols = self.shared.image.symbol_at(start_of(function));
        name.is_some_and(|name| {
            matches!(outofline::role(symbols.iter().map(|symbol| symbol.name), name), Role::Part(_))
        })
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

    /// Where a copy's function is declared, and the one that it is in.
    fn declared(
        &mut self,
        function: &RawFunction<'a>,
        copy: usize,
        origin: &Origin<'a>,
    ) -> Option<(Place, Option<Place>)> {
        let caller = match function.sites[copy].parent {
            Some(parent) => function.sites[parent as usize].origin,
            None => self.unit.offset.saturating_add(function.die),
        };
        let caller = self.origins.get(caller);
        let (unit, origins, file_here) = (self.unit, &mut self.origins, &mut self.file_here);
        let callee = place_of(unit, origins, file_here, origin)?;
        Some((callee, caller.and_then(|caller| place_of(unit, origins, file_here, &caller))))
    }

    /// The lines of a copy's own statements.
    fn own_lines(&mut self, function: &RawFunction<'a>, copy: usize, origin: &Origin<'a>) -> Option<OwnLines> {
        let (declared, caller) = self.declared(function, copy, origin)?;
        let after = caller.filter(|caller| caller.file == declared.file && caller.line > declared.line);
        let end = after.map_or(u32::MAX, |caller| caller.line);
        let inside = copies_inside(function, Some(copy), function.sites[copy].origin);
        Some(OwnLines { declared, end, has_opening: false, inside })
    }

    /// Further entries of GCC's copy that has one, and no marker: see `repeats`.
    fn entries_after_caller(
        &mut self,
        function: &RawFunction<'a>,
        copy: usize,
        origin: &Origin<'a>,
        first: Entry,
        body: &[Range<u64>],
    ) -> Vec<Point> {
        let Some((callee, caller)) = self.declared(function, copy, origin) else { return Vec::new() };
        let Some(caller) = caller else { return Vec::new() };
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let is_callees = |place: Place| place.file == callee.file && place.line >= callee.line;
        // Of two functions in one file, the later one's lines end what the earlier one's may be.
        let is_callers = |place: Place| {
            let is_later = place.file == caller.file && place.line >= caller.line;
            is_later && (callee.file != caller.file || callee.line <= caller.line || !is_callees(place))
        };
        let point = Point { address: first.address, view: first.view };
        let mut again = repeats::after_caller(lines, point, body, is_callers);
        let is_anothers = |address: u64| {
            let begins_there =
                |site: &RawSite| site.origin == function.sites[copy].origin && site.entry == Some(address);
            let mut others = function.sites.iter().enumerate().filter(|(other, _)| *other != copy);
            is_other_copys(function, copy, address) || others.any(|(_, site)| begins_there(site))
        };
        again.retain(|point| !is_anothers(point.address));
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
        let is_merged = self.unit.is_gcc() && has_joined(function, copy, text);
        if self.unit.is_gcc() && joins(function, copy, text) {
            self.out.tally.merged += 1;
            return None;
        }
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        match self.markers.state(copy) {
            State::Known => {
                for point in self.markers.of(copy) {
                    let entry = entry::given(point, body, text);
                    // What was moved away from several markers is done once.
                    let is_known = entry.address != point.address
                        && entries.iter().any(|known: &Entry| known.address == entry.address);
                    if !is_known {
                        entries.push(entry);
                    }
                }
            }
            _ => entries.extend(entry::find(raw.entry, raw.view, body, text)),
        }
        let (mut may_begin_again, mut may_be_own) = (false, false);
        let is_given = raw.entry.is_some() || self.markers.state(copy) == State::Known;
        if self.is_by_clang
            && let [first] = entries[..]
        {
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
            let again = self.entries_after_caller(function, copy, &origin, first, body);
            let is_next =
                |point: &Point| text.is_boundary(point.address) && text.is_straight(first.address, point.address);
            entries.extend(again.into_iter().filter(is_next).map(entry::by_row));
        }
        if self.unit.is_gcc()
            && let [first] = entries[..]
        {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            let nested = nested(function, Some(copy));
            let again = repeats::in_line(lines, text, first.address, &Body { text, ranges: body, nested: &nested });
            may_begin_again |= again.is_unclear && self.markers.state(copy) == State::None;
            entries.extend(again.entries.into_iter().map(entry::by_act));
        }
        self.gather(function, &origin, parameters);
        if self.unit.is_gcc() {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            for entry in &entries {
                if let Some(padding) = text.padding_before(entry.address) {
                    self.gathered.settle_padding(padding, entry.address, |point| lines.has_later_step(point));
                }
            }
        }
        if self.is_by_clang {
            let nested = nested(function, Some(copy));
            if let Some(first) = entries.first() {
                self.note_assigned(&origin, &Body { text, ranges: body, nested: &nested }, first.address);
            }
        }
        // Where a function was split in the middle of a copy, its rest begins with the rest of the copy.
        if self.unit.is_gcc()
            && !is_given
            && let [first] = entries[..]
            && text.is_straight(start_of(function), first.address)
            && self.is_part(function)
        {
            may_be_own = true;
        }
        // The first instruction of a loop with which the body begins may have lost its line, and with it its place in the copy.
        if self.is_by_clang
            && let [first] = entries[..]
            && let Some(head) = text.loop_before(first.address, body)
        {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            may_be_own |= lines.has_no_line(head);
        }
        let first_site = self.out.sites.len() as u32;
        let is_rest = split::is_rest(self.unit, &mut self.origins, function, raw, &origin);
        let is_recursive = self.is_in_recursion(function, copy);
        let own = if self.unit.is_gcc() { self.own_lines(function, copy, &origin) } else { None };
        let mut marks = self.marks_of_copy(function, copy, &entries, own, body, text);
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
            let is_joined = self.is_joined(function, copy, *entry, text);
            let around = Around { entries: count, is_merged, is_recursive, is_joined };
            self.inline_site(function, raw, *entry, &origin, body, text, section, marks, around);
        }
        self.entries = entries;
        let sites = first_site..self.out.sites.len() as u32;
        if self.unit.is_gcc() && sites.len() > 1 {
            self.out.several.push(sites.collect());
        }
        Some(())
    }

    /// Whether a copy, or one that it is in, is in another copy of the same function or in the function itself: a
    /// recursion that was inlined into itself. The rest of a function that was split is not a recursion.
    fn is_in_recursion(&mut self, function: &RawFunction<'a>, copy: usize) -> bool {
        let outermost = function.origin.unwrap_or(self.unit.offset.saturating_add(function.die));
        let mut next = Some(copy);
        while let Some(site) = next.and_then(|copy| function.sites.get(copy)) {
            let parent = |site: &&RawSite| site.parent.and_then(|parent| function.sites.get(parent as usize));
            let mut around = std::iter::successors(parent(&site), parent).map(|site| site.origin).chain([outermost]);
            if around.any(|origin| origin == site.origin)
                && let Some(origin) = self.origins.get(site.origin)
                && !split::is_rest(self.unit, &mut self.origins, function, site, &origin)
            {
                return true;
            }
            next = site.parent.map(|parent| parent as usize);
        }
        false
    }

    /// Whether control comes to an entry of GCC's in several ways, and the statement with the call does not begin there. GCC merges
    /// code that is equal, and with it calls in different statements; what the debug information has is of one of them.
    ///
    /// One of the ways must be a jump from the caller's own code. If the statement with the call is in the straight line to the
    /// entry, the jump must be another statement's; if it is not, the jump must be that statement's.
    fn is_joined(&self, function: &RawFunction<'a>, copy: usize, entry: Entry, text: &FunctionText<'d, 'a>) -> bool {
        let raw = &function.sites[copy];
        let Some(lines) = self.lines.get().filter(|_| self.unit.is_gcc()) else { return false };
        let is_call = |row: &Row| (row.place.file, row.place.line) == (raw.call_file, raw.call_line);
        let mut sources = text.jumps_to(entry.address).peekable();
        if sources.peek().is_none() || lines.statements(&(entry.address..entry.address)).iter().any(is_call) {
            return false;
        }
        let parent = raw.parent.map_or(&function.ranges[..], |parent| ranges_of(function, parent as usize));
        let is_callers = |at: u64| {
            let inner = function.sites.iter().enumerate().filter(|(_, site)| site.parent == raw.parent);
            let mut inner = inner.flat_map(|(site, _)| ranges_of(function, site));
            parent.iter().any(|range| range.contains(&at)) && !inner.any(|range| range.contains(&at))
        };
        let mut before = text.line_before(entry.address).filter_map(|at| lines.statement_at(at));
        let is_begun = before.any(is_call);
        sources
            .any(|source| is_callers(source) && lines.statement_at(source).is_some_and(|row| is_call(row) != is_begun))
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
            let bytes = located.size.min(8) as u8;
            if is_one && body.is_stale(&self.gathered, index, address, bytes, encoding) {
                located.doubt = Some(Doubt::Stale);
            }
        }
    }

    /// Marks what is said to be on the stack where the body fills that place later.
    fn doubt_unfilled(&mut self, text: &FunctionText<'d, 'a>, address: u64) {
        let machine = self.shared.image.machine();
        for found in &mut self.found {
            let Ok(located) = &mut found.argument else { continue };
            let is_unfilled = |slot: &Slot| slot.is_on_stack(machine) && text.fills_later(address, slot);
            if Slot::all_of(located).iter().any(is_unfilled) {
                located.doubt = Some(Doubt::Home);
            }
        }
    }

    /// Marks what is doubtful of an inlined copy's arguments by how the debug information gives them.
    fn doubt_forms(&mut self, origin: &Origin<'a>, around: Around, is_ordered: bool) {
        let (compiler, machine) = (self.unit.compiler(), self.shared.image.machine());
        let is_by_clang = self.is_by_clang;
        for (found, parameter) in self.found.iter_mut().zip(&origin.parameters) {
            let is_sum = matches!(&found.argument, Ok(located) if doubt::is_computed(located, machine));
            let doubt =
                found.argument.as_ref().ok().and_then(|located| doubt::of_form(compiler, machine, found, located));
            // Callers compute addresses of members; sums of numbers are as often the body's.
            let is_number = || resolved_kind(self.shared.base, &parameter.type_ref) != Some(Kind::Ptr);
            let doubt = doubt.or((is_by_clang && is_sum && is_number()).then_some(Doubt::Stale));
            let doubt = doubt.or((found.late && (around.is_recursive || !is_ordered)).then_some(Doubt::LateView));
            if let Ok(located) = &mut found.argument {
                // A list that is of several calls has constants of other calls, too.
                let is_of_others = doubt == Some(Doubt::Constant) && around.entries > 1;
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
        own: Option<OwnLines>,
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
        if let Some(own) = own
            && let Some(lines) = self.lines.get()
            && (entries.iter().any(|entry| {
                let point = Point { address: entry.address, view: entry.view };
                repeats::first_statement_comes_again(lines, text, point, body, &own)
            }) || {
                let nested = nested(function, Some(copy));
                let body = Body { text, ranges: body, nested: &nested };
                repeats::first_acts_come_again(lines, text, addresses, &body, &own, &function.ranges, is_other_copy)
            })
        {
            marks |= Marks::MAY_MISS;
        }
        if self.unit.is_gcc()
            && state == State::None
            && let [entry] = *addresses
            && (text.was_moved_out_of_loop(entry, body) || text.comes_again_after_others(entry, body))
        {
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
        around: Around,
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
            entry::after_branch(&surroundings, text, entry, body, origin, &self.gathered, &self.found)
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
            entry::keep_own(&mut self.found, &self.gathered, &entry);
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
        self.doubt_unfilled(text, address);
        if around.is_merged {
            let located = self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok());
            located.for_each(|located| located.doubt = Some(Doubt::Merged));
        }
        if entry.uncertain {
            marks |= Marks::ENTRY_UNCERTAIN;
        }
        if text.reentered_from(entry.address, body) {
            marks |= Marks::MAY_REPEAT;
        }
        self.observe(origin.name, SiteKind::Inline, address);
        self.note_evidence(origin, around.entries);
        // If the step after the entry does not begin a statement, a statement of the body may have been lost before it.
        let next = Point { address: entry.address, view: entry.view.saturating_add(1) };
        let is_ordered = self.lines.get().is_some_and(|lines| lines.has(next));
        self.doubt_forms(origin, around, is_ordered);
        // What is the same at each hit is of one call alone.
        let may_be_others = |located: &Located| {
            if around.is_joined && located.at.is_fixed() {
                Some(Doubt::Merged)
            } else if self.unit.is_gcc() && marks.contains(Marks::MAY_REPEAT) && located.at.is_fixed() {
                Some(Doubt::OtherCall)
            } else {
                None
            }
        };
        for located in self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok()) {
            located.doubt = located.doubt.or_else(|| may_be_others(located));
        }
        self.arguments.clear();
        self.arguments.extend(self.found.drain(..).map(|found| found.argument));
        let parent = raw.parent.and_then(|parent| self.site_around(parent as usize, address));
        let unprobeable = self.prober.check(text, address);
        let prototype = self.prototype();
        let source = self.source(self.unit.index, raw.call_file, raw.call_line);
        let declared = self.source(origin.declared_in, origin.declared_file, origin.declared_line);
        let container = self.container(address);
        let function = self.function(origin.name, Arc::clone(origin));
        self.out.steps.push((site, entry.view));
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
}

/// What the entries of a copy have in common.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// How many they are.
    entries: usize,
    /// Whether another copy of the function goes on here.
    is_merged: bool,
    /// Whether it is in a recursion that was inlined into itself: GCC has one parameter stand for those of several calls then.
    is_recursive: bool,
    /// Whether another call may go on here: see [`UnitEncoder::is_joined`].
    is_joined: bool,
}

/// Where a function is declared, with the file's index in a unit's line table.
pub(super) fn place_of<'a>(
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

/// The ranges of a copy.
fn ranges_of<'r>(function: &'r RawFunction<'_>, copy: usize) -> &'r [Range<u64>] {
    let ranges = &function.sites[copy].ranges;
    &function.site_ranges[ranges.start as usize..ranges.end as usize]
}

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
pub(super) fn nested(function: &RawFunction<'_>, copy: Option<usize>) -> Vec<Range<u64>> {
    let parent = copy.map(|copy| copy as u32);
    let inner = function.sites.iter().filter(|site| site.parent == parent);
    let ranges = |site: &RawSite| &function.site_ranges[site.ranges.start as usize..site.ranges.end as usize];
    inner.flat_map(ranges).filter(|range| !range.is_empty()).cloned().collect()
}

/// How many copies of a function are in a copy, or in the out-of-line function.
pub(super) fn copies_inside(function: &RawFunction<'_>, copy: Option<usize>, origin: usize) -> usize {
    // Copies come before those in them, and these before all others.
    let inside = match copy {
        Some(copy) => {
            let is_inside = |site: &&RawSite| site.parent.is_some_and(|parent| parent as usize >= copy);
            let after = &function.sites[copy + 1..];
            &after[..after.iter().take_while(is_inside).count()]
        }
        None => &function.sites[..],
    };
    inside.iter().filter(|site| site.origin == origin).count()
}

/// Whether nothing is left of a copy except a jump to where another copy of the same function begins. GCC merges code
/// that is equal (`-fcrossjumping`), and with it copies with different arguments, if the code does not depend on these.
fn joins(function: &RawFunction<'_>, copy: usize, text: &FunctionText<'_, '_>) -> bool {
    let is_there = |target| {
        let others = function.sites.iter().enumerate().filter(|(other, _)| *other != copy);
        let origin = function.sites[copy].origin;
        others.into_iter().any(|(_, site)| site.origin == origin && site.entry == Some(target))
    };
    only_jump(function, copy, text).is_some_and(is_there)
}

/// Whether another copy of the same function joins this one: see [`joins`].
fn has_joined(function: &RawFunction<'_>, copy: usize, text: &FunctionText<'_, '_>) -> bool {
    let (origin, entry) = (function.sites[copy].origin, function.sites[copy].entry);
    let Some(entry) = entry else { return false };
    text.jumps_to(entry).any(|source| {
        let mut others = function.sites.iter().enumerate();
        others.any(|(other, site)| {
            other != copy
                && site.origin == origin
                && site.entry == Some(source)
                && only_jump(function, other, text) == Some(entry)
        })
    })
}

/// Where the one instruction jumps to that is a copy's text, if it is a jump.
fn only_jump(function: &RawFunction<'_>, copy: usize, text: &FunctionText<'_, '_>) -> Option<u64> {
    let ranges = &function.sites[copy].ranges;
    let mut ranges =
        function.site_ranges[ranges.start as usize..ranges.end as usize].iter().filter(|range| !range.is_empty());
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return None };
    text.only_jump(range)
}

/// Whether an address is in another copy of the same function.
fn is_other_copys(function: &RawFunction<'_>, copy: usize, address: u64) -> bool {
    is_in_copy(function, Some(copy), function.sites[copy].origin, address)
}

/// Whether an address is in a copy of a function, other than `except`.
pub(super) fn is_in_copy(function: &RawFunction<'_>, except: Option<usize>, origin: usize, address: u64) -> bool {
    function.sites.iter().enumerate().any(|(copy, site)| {
        let is_there = || ranges_of(function, copy).iter().any(|range| range.contains(&address));
        Some(copy) != except && site.origin == origin && is_there()
    })
}
