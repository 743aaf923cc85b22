// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites of a function's inlined copies.

use super::{ParameterKey, Provisional, UnitEncoder, resolved_kind, start_of};
use crate::debug::cfi::Cursor;
use crate::debug::lines::{Lines, Place};
use crate::debug::loclist::Point;
use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawFunction, RawParameter, RawSite};
use crate::elf::image::Image;
use crate::text::{FunctionText, Slot};
use crate::unit::arguments::{At, Surroundings};
use crate::unit::assigned::Body;
use crate::unit::beginnings::Cut;
use crate::unit::doubt::{self, Evidence};
use crate::unit::entry::{self, Entry, Moved};
use crate::unit::entry_census::EntryCensus;
use crate::unit::markers::{Callee, State};
use crate::unit::marks::Recursion;
use crate::unit::merged::Merged;
use crate::unit::origin::{Origin, Origins};
use crate::unit::outofline;
use crate::unit::rescue::{self, Refusal, Rescue};
use hashbrown::HashMap;
use siteseer_sites::btf::Kind;
use siteseer_sites::location::{Location, Missing};
use siteseer_sites::{Doubt, Marks, Site, SiteKind};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    pub(super) fn inline_sites(&mut self, function: &RawFunction<'a>) {
        let text = self.text_of(function);
        self.find_markers(function);
        self.site_of.clear();
        if self.unit.is_gcc() {
            self.find_recursions(function);
        }
        let (_, mut parameters) = function.split_parameters();
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
        self.settle_hoisted(function, &text);
    }

    /// Whether a function is entered as its source says: see [`Surroundings::is_whole`].
    pub(super) fn is_whole(&mut self, function: &RawFunction<'a>) -> bool {
        let offset = self.unit.offset.saturating_add(function.die);
        let entry = function.entry.or(function.ranges.first().map(|range| range.start));
        let (Some(name), Some(entry)) = (self.origins.name(offset), entry) else { return false };
        let symbols = self.shared.image.symbol_at(entry);
        !function.nocall && !outofline::role(symbols.iter().map(|symbol| symbol.name), name).is_changed()
    }

    /// Finds the markers of a function's copies.
    fn find_markers(&mut self, function: &RawFunction<'a>) {
        self.markers.clear();
        if !self.unit.is_gcc() {
            return;
        }
        let lines = self.lines.get_or_init(|| Lines::read(self.unit));
        let (unit, origins, file_here) = (self.unit, &mut self.origins, &mut self.file_here);
        let own = origins.get(unit.offset.saturating_add(function.die));
        let own = own.and_then(|own| place_of(unit, origins, file_here, &own));
        self.markers.find(lines, function, own, |site| {
            let origin = origins.get(site.origin)?;
            let place = place_of(unit, origins, file_here, &origin)?;
            Some(Callee { place, by_macro: origin.by_macro })
        });
    }

    /// Makes the sites of one inlined copy: one for each of its entries.
    fn copy(
        &mut self,
        function: &RawFunction<'a>,
        index: usize,
        parameters: &[RawParameter<'a>],
        text: &FunctionText<'d, 'a>,
    ) -> Option<()> {
        let raw = &function.sites[index];
        let Some(origin) = self.origins.get(raw.origin) else {
            self.out.tally.without_origin += 1;
            return None;
        };
        if self.merged(function, text).joins(index) {
            self.out.tally.merged += 1;
            return None;
        }
        let copy = InlinedCopy { function, index, origin: &origin, body: ranges_of(function, index), text };
        let beginnings = self.beginnings(&copy);
        let is_rest = beginnings.cut == Some(Cut::Is) || self.is_rest(function, index);
        self.gather_of(&copy, parameters, &beginnings.entries);
        let mut marks = self.marks_of_copy(&copy, &beginnings);
        let merged = self.merged(function, text);
        if merged.is_hit_by_others(index, &beginnings.entries) {
            marks |= Marks::MAY_REPEAT;
        }
        let is_merged = merged.stands_for_others(index);
        if self.shared.exits {
            self.count_exits(&copy, &beginnings.entries, marks);
        }
        let around = Around {
            entries: beginnings.entries.len() + usize::from(beginnings.may_be_more),
            is_merged,
            recursion: self.recursions.get(index).copied().unwrap_or_default(),
            is_joined: false,
        };
        let is_known = self.markers.state(index) == State::Known;
        let first = self.out.sites.len() as u32;
        for &entry in &beginnings.entries {
            let Some(section) = self.shared.image.section_at(entry.address) else {
                self.out.tally.outside_text += 1;
                continue;
            };
            let site = self.out.sites.len() as u32;
            if is_rest {
                self.out.rests.push(site);
            }
            // If two calls begin at one address, the first one does nothing. If the body acts, jump threading has made
            // two calls of one, or the caller's loop was unrolled and may not turn as often.
            let is_once = || beginnings.entries.iter().filter(|other| other.address == entry.address).count() == 1;
            if is_known && !text.has_two_ways_in(entry.address) && (is_once() || text.all_acts(copy.body).is_empty()) {
                self.out.in_line.push(site);
            }
            let around = Around { is_joined: self.is_joined(&copy, entry), ..around };
            self.inline_site(&copy, entry, section, marks, around);
        }
        let sites = first..self.out.sites.len() as u32;
        if !is_rest && !sites.is_empty() {
            let counts = EntryCensus::of(raw, &beginnings.entries, marks);
            self.out.tally.entries = self.out.tally.entries.plus(counts);
        }
        self.entries = beginnings.entries;
        if self.unit.is_gcc() && sites.len() > 1 {
            self.out.several.push(sites.collect());
        }
        Some(())
    }

    /// What tells which copies of a function were merged.
    pub(super) fn merged<'m>(
        &'m self,
        function: &'m RawFunction<'a>,
        text: &'m FunctionText<'d, 'a>,
    ) -> Merged<'m, 'a, 'd> {
        Merged { function, text, lines: self.lines.get().filter(|_| self.unit.is_gcc()) }
    }

    /// Gathers what the debug information gives for a copy's parameters.
    fn gather_of(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, parameters: &[RawParameter<'a>], entries: &[Entry]) {
        self.gather(copy.function, copy.origin, parameters);
        if self.unit.is_gcc() {
            let lines = self.lines.get_or_init(|| Lines::read(self.unit));
            for entry in entries {
                if let Some(padding) = copy.text.padding_before(entry.address) {
                    self.gathered.settle_padding(padding, entry.address, |point| lines.has_later_step(point));
                }
            }
        }
        if self.is_by_clang
            && let Some(first) = entries.first()
        {
            let nested = nested(copy.function, Some(copy.index));
            self.note_assigned(
                copy.origin,
                &Body { text: copy.text, ranges: copy.body, nested: &nested },
                first.address,
            );
        }
    }

    /// Makes the site of one entry of an inlined copy.
    fn inline_site(
        &mut self,
        copy: &InlinedCopy<'_, 'a, 'd>,
        entry: Entry,
        section: u16,
        mut marks: Marks,
        around: Around,
    ) {
        let (raw, origin, text) = (copy.raw(), copy.origin, copy.text);
        marks |= self.find_at_entry(copy, entry);
        let moved = self.move_probe(copy, entry);
        let located_at = entry.address + u64::from(moved);
        let rescue = self.rescue(copy, entry.address, located_at);
        let address = rescue.as_ref().map_or(located_at, |rescue| rescue.address);
        if address < entry.address {
            marks |= Marks::MOVED_BACK;
        }
        // Neither way is farther than that.
        let moved = address.abs_diff(entry.address) as u8;
        if entry.uncertain {
            marks |= Marks::ENTRY_UNCERTAIN;
        }
        if text.reentered_from(entry.address, copy.body) {
            marks |= Marks::MAY_REPEAT;
        }
        self.doubt_code(copy, Point { address: located_at, view: entry.view }, around.is_merged);
        self.observe(origin.name, SiteKind::Inline, address, entry.view);
        self.note_evidence(origin, around.entries);
        self.doubt_forms(origin, around, self.is_ordered_after(entry));
        self.doubt_others(around, marks);
        if self.unit.is_gcc() {
            self.note_constants(around);
        }
        if let Some(rescue) = rescue {
            self.change_places(rescue);
        }
        self.arguments.clear();
        self.arguments.extend(self.found.drain(..).map(|found| found.argument));
        let parent = raw.parent.and_then(|parent| self.site_around(parent as usize, located_at));
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

    /// Finds the arguments at an entry, into [`UnitEncoder::found`]. Gives the marks that follow from how they were
    /// found.
    fn find_at_entry(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, entry: Entry) -> Marks {
        let site = self.out.sites.len() as u32;
        let surroundings = copy.surroundings(self.shared.image, self.unit, &self.frames, self.is_whole);
        let at = At::new(&surroundings, entry.address);
        let mut marks = Marks::default();
        self.found.clear();
        for (index, parameter) in copy.origin.parameters.iter().enumerate() {
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
            entry::after_branch(&surroundings, copy.text, entry, copy.body, copy.origin, &self.gathered, &self.found)
        {
            self.out.provisional.push(Provisional::not_at_entry(site, index));
            self.found[index].argument = Ok(located);
        }
        if entry.by_statement {
            entry::keep_own(&mut self.found, &self.gathered, &entry);
            marks |= Marks::MAY_REPEAT;
        }
        marks
    }

    /// Moves the probe to where more arguments are located than at the entry. Gives how far.
    fn move_probe(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, entry: Entry) -> u8 {
        let site = self.out.sites.len() as u32;
        let surroundings = copy.surroundings(self.shared.image, self.unit, &self.frames, self.is_whole);
        let (address, raw) = (entry.address, copy.raw());
        let point = Point { address, view: entry.view };
        let lines = &self.lines;
        let next_statement = || {
            let lines = lines.get_or_init(|| Lines::read(self.unit));
            lines.next_statement(point, copy.body, (raw.call_file, raw.call_line))
        };
        let better = entry::move_probe(
            &surroundings,
            &mut self.prober,
            entry::Start { address, next_statement },
            copy.origin,
            &self.gathered,
            &self.found,
        );
        let Some(Moved { address: better, gained }) = better else { return 0 };
        let Ok(distance) = u8::try_from(better - address) else { return 0 };
        for (index, located) in gained {
            self.out.provisional.push(Provisional::not_at_entry(site, index));
            self.found[index].argument = Ok(located);
        }
        distance
    }

    /// Looks for another place for a probe if the instruction where it would be is in the way.
    fn rescue(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, entry: u64, address: u64) -> Option<Rescue> {
        let reason = self.prober.check(copy.text, address).filter(|&reason| rescue::is_of_instruction(reason))?;
        let arguments = self.found.iter().map(|found| &found.argument);
        let machine = self.shared.image.machine();
        let found = rescue::find(copy.text, machine, &mut self.prober, entry, address, arguments);
        self.out.refused.push((self.out.sites.len() as u32, Refusal::new(reason, address, found.as_ref())));
        found
    }

    /// Puts the arguments of the site at hand where they are at another place for its probe.
    fn change_places(&mut self, rescue: Rescue) {
        let site = self.out.sites.len() as u32;
        for (index, change) in rescue.changed {
            let found = &mut self.found[index];
            match (change, &mut found.argument) {
                (Ok(at), Ok(located)) => located.at = at,
                (Err(missing), argument @ Ok(_)) => {
                    *argument = Err(missing);
                    let usable = u64::from(found.usable);
                    self.out.tally.located_of_usable = self.out.tally.located_of_usable.saturating_sub(usable);
                    // It stays missing, whatever other copies show.
                    let first = self.out.provisional.partition_point(|open| open.site < site);
                    let mut open = self.out.provisional.split_off(first);
                    open.retain(|open| usize::from(open.parameter) != index);
                    self.out.provisional.append(&mut open);
                }
                _ => {}
            }
        }
    }

    /// Marks what is doubtful because of the machine code around an address.
    fn doubt_code(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, point: Point, is_merged: bool) {
        let address = point.address;
        if self.is_by_clang {
            self.doubt_stale(copy.origin, &Body { text: copy.text, ranges: copy.body, nested: &[] }, address);
        }
        self.doubt_unfilled(copy.text, address);
        if self.unit.is_gcc() {
            self.doubt_removed_loads(copy.text);
            self.doubt_counters(copy.text, address);
            self.doubt_exchanged(copy, point);
            self.doubt_members(copy, point);
        }
        if is_merged {
            let located = self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok());
            located.for_each(|located| located.doubt = Some(Doubt::Merged));
        }
    }

    /// Marks what is the same at each hit, and may be of another call.
    fn doubt_others(&mut self, around: Around, marks: Marks) {
        let doubt = if around.is_joined {
            Doubt::Merged
        } else if self.unit.is_gcc() && marks.contains(Marks::MAY_REPEAT) {
            Doubt::OtherCall
        } else {
            return;
        };
        let located = self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok());
        located.filter(|located| located.at.is_fixed()).for_each(|located| {
            located.doubt.get_or_insert(doubt);
        });
    }

    /// Notes the constants that may be what an earlier call passed. GCC keeps the arguments for parameters that it
    /// removes in variables that all calls of a function share. If it loses what a call puts there, the variable goes
    /// on to have what the call before did.
    fn note_constants(&mut self, around: Around) {
        let site = self.out.sites.len() as u32;
        for (index, found) in (0u16..).zip(&self.found) {
            let is_fixed = matches!(&found.argument, Ok(located) if located.at.is_fixed());
            if is_fixed && (found.late || around.recursion.is_beside) {
                self.out.constants.push((site, index));
            }
        }
    }

    /// Whether the step after an entry begins a statement. If it does not, a statement of the body may have been lost
    /// before it.
    fn is_ordered_after(&self, entry: Entry) -> bool {
        let next = Point { address: entry.address, view: entry.view.saturating_add(1) };
        self.lines.get().is_some_and(|lines| lines.has(next))
    }

    /// Notes what the lists of an inlined copy show of its parameters.
    fn note_evidence(&mut self, origin: &Origin<'a>, entries: usize) {
        let mut note = |index: usize, evidence: Evidence| {
            if !evidence.is_empty() {
                self.out.evidence.entry(ParameterKey::of(origin, index)).or_default().and(evidence);
            }
        };
        let machine = self.shared.image.machine();
        for (index, found) in self.found.iter().enumerate() {
            note(index, Evidence::of(found, machine));
            note(index, Evidence::of_places(&self.found, index));
        }
        self.gathered.assigned().for_each(|index| note(index, Evidence::ASSIGNED));
        if entries == 1 {
            self.gathered.changing(self.unit.unit.encoding()).for_each(|index| note(index, Evidence::ASSIGNED));
        }
    }

    /// Notes the parameters that a body by clang assigns to.
    pub(super) fn note_assigned(&mut self, origin: &Origin<'a>, body: &Body<'_, '_, '_>, entry: u64) {
        let (evidence, encoding) = (&mut self.out.evidence, self.unit.unit.encoding());
        body.assigned(&self.gathered, encoding, entry, |index, at_once| {
            let evidence = evidence.entry(ParameterKey::of(origin, index)).or_default();
            evidence.and(Evidence::ASSIGNED);
            if at_once {
                evidence.and(Evidence::AT_ONCE);
            }
        });
    }

    /// Marks what cannot be what was passed at an address of an inlined copy by clang.
    fn doubt_stale(&mut self, origin: &Origin<'a>, body: &Body<'_, '_, '_>, address: u64) {
        let encoding = self.unit.unit.encoding();
        for (index, (found, parameter)) in self.found.iter_mut().zip(&origin.parameters).enumerate() {
            let Ok(located) = &mut found.argument else { continue };
            let is_one = matches!(located.at, Location::Register(_) | Location::Constant(_) | Location::Address(_));
            let is_number = resolved_kind(self.shared.base, &parameter.type_ref) != Some(Kind::Ptr);
            let bytes = if is_number { located.size.min(8) as u8 } else { 0 };
            if is_one && body.is_stale(&self.gathered, index, address, bytes, encoding) {
                located.doubt = Some(Doubt::Stale);
            }
        }
    }

    /// Marks what is said to be on the stack where the body fills that place later, where nothing may have been put
    /// there, or where the stack does not reach: the kernel has no red zone. GCC loses count of the stack pointer where
    /// it is restored from a register.
    fn doubt_unfilled(&mut self, text: &FunctionText<'d, 'a>, address: u64) {
        let (machine, is_by_gcc) = (self.shared.image.machine(), self.unit.is_gcc());
        for found in &mut self.found {
            let Ok(located) = &mut found.argument else { continue };
            let slots = Slot::all_of(located);
            let is_unfilled = |slot: &Slot| slot.is_on_stack(machine) && text.fills_later(address, slot);
            let is_expression = is_by_gcc && matches!(located.at, Location::Computed(_));
            let is_unread = |slot: &Slot| is_expression && !text.may_be_read(address, slot);
            if slots.iter().any(is_unfilled) || doubt::is_below_stack(&located.at, machine) {
                located.doubt = Some(Doubt::Home);
            } else if slots.iter().any(is_unread) {
                located.doubt = Some(Doubt::Stale);
            } else if slots.iter().any(|slot| text.may_be_unwritten(address, slot)) {
                located.doubt = Some(Doubt::Unwritten);
            }
        }
    }

    /// Marks what is said to be in a variable that the function stores to, though nothing reads it there for the copy.
    fn doubt_removed_loads(&mut self, text: &FunctionText<'d, 'a>) {
        let is_stored = |bytes: &Range<u64>| text.may_store_to(bytes);
        let located = self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok());
        located.filter(|located| doubt::removed_loads(&located.at).iter().any(is_stored)).for_each(|located| {
            located.doubt = Some(Doubt::Stale);
        });
    }

    /// Marks what is computed from a register that was counted on just before: in a loop, GCC's expression may be for
    /// what the register had before. If the expression does what was done to the register, this is so wherever that
    /// was.
    fn doubt_counters(&mut self, text: &FunctionText<'d, 'a>, address: u64) {
        let machine = self.shared.image.machine();
        let mut makers = text.makers();
        for located in self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok()) {
            let registers = doubt::computed_from(located, machine);
            if registers.into_iter().any(|register| makers.was_counted_on(register, address))
                || doubt::changes(located).any(|(register, change)| makers.may_be_changed_by(register, change, address))
            {
                located.doubt = Some(Doubt::Stale);
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
            let doubt =
                doubt.or((found.late && (around.recursion.is_inside || !is_ordered)).then_some(Doubt::LateView));
            let is_expression = matches!(&found.argument, Ok(located) if matches!(located.at, Location::Computed(_)));
            let is_in_recursion = !is_by_clang && around.recursion.is_inside;
            let doubt = doubt.or((is_in_recursion && is_expression).then_some(Doubt::OtherCall));
            if let Ok(located) = &mut found.argument {
                // A list that is of several calls has constants of other calls, too.
                let is_of_others = doubt == Some(Doubt::Constant) && around.entries > 1;
                located.doubt = located.doubt.or(if is_of_others { Some(Doubt::Stale) } else { doubt });
            }
        }
    }

    /// The site of an enclosing copy that an address belongs to: the last before it, if it has several.
    fn site_around(&self, copy: usize, address: u64) -> Option<u32> {
        let mut sites = self.site_of.get(copy)?.clone();
        let first = sites.clone().next();
        sites.rfind(|&site| self.out.unrescued(site) <= address).or(first)
    }
}

/// An inlined copy at hand.
pub(super) struct InlinedCopy<'c, 'a, 'd> {
    pub(super) function: &'c RawFunction<'a>,
    /// Its index among the function's copies.
    pub(super) index: usize,
    pub(super) origin: &'c Arc<Origin<'a>>,
    /// Its ranges.
    pub(super) body: &'c [Range<u64>],
    /// The function's text.
    pub(super) text: &'c FunctionText<'d, 'a>,
}

impl<'c, 'a, 'd> InlinedCopy<'c, 'a, 'd> {
    /// Its debug entry.
    pub(super) fn raw(&self) -> &'c RawSite {
        &self.function.sites[self.index]
    }

    /// What its arguments are looked up in.
    pub(super) fn surroundings<'s>(
        &self,
        image: &'s Image<'a>,
        unit: &'s DebugUnit<'a, 'd>,
        frames: &'s RefCell<Cursor<'d, 'a>>,
        is_whole: bool,
    ) -> Surroundings<'s, 'a, 'd>
    where
        'c: 's,
    {
        Surroundings {
            image,
            unit,
            frames,
            frame_base: self.function.frame_base,
            text: Some(self.text),
            entry: start_of(self.function),
            is_whole,
        }
    }
}

/// What the entries of a copy have in common.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// How many they are.
    entries: usize,
    /// Whether another copy of the function goes on here.
    is_merged: bool,
    /// In a recursion that was inlined into itself, GCC has one parameter stand for those of several calls.
    recursion: Recursion,
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
pub(super) fn ranges_of<'r>(function: &'r RawFunction<'_>, copy: usize) -> &'r [Range<u64>] {
    let ranges = &function.sites[copy].ranges;
    &function.site_ranges[ranges.start as usize..ranges.end as usize]
}

/// The innermost copy that an address is in, of those in a copy and that itself, or of all in the function.
pub(super) fn innermost(function: &RawFunction<'_>, copy: Option<usize>, address: u64) -> Option<usize> {
    let mut found = copy;
    // Copies come before those in them.
    for (inner, site) in function.sites.iter().enumerate().skip(copy.map_or(0, |copy| copy + 1)) {
        let is_next = site.parent.map(|parent| parent as usize) == found;
        if is_next && ranges_of(function, inner).iter().any(|range| range.contains(&address)) {
            found = Some(inner);
        }
    }
    found
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

/// Whether an address is in another copy of the same function.
pub(super) fn is_other_copys(function: &RawFunction<'_>, copy: usize, address: u64) -> bool {
    is_in_copy(function, Some(copy), function.sites[copy].origin, address)
}

/// Whether an address is in a copy of a function, other than `except`.
pub(super) fn is_in_copy(function: &RawFunction<'_>, except: Option<usize>, origin: usize, address: u64) -> bool {
    function.sites.iter().enumerate().any(|(copy, site)| {
        let is_there = || ranges_of(function, copy).iter().any(|range| range.contains(&address));
        Some(copy) != except && site.origin == origin && is_there()
    })
}
