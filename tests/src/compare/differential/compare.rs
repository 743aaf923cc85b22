// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Comparing perf's answer for one function with ours.
//!
//! Places are matched by address: perf's are symbol + offset, and there may be several symbols of one name. At
//! each place that both have, arguments are compared in one form, or by their values. Where they differ, DWARF is asked
//! what holds there, and what perf's rules make of it: if the one is what we say and the other what perf says, the rule
//! that makes the difference is the class. What does not come out so is unexplained.

use super::class::Class;
use super::evidence::{Evidence, Instance, Point, Truth, Variable};
use super::perf::{Answer, Line, PerfLocation};
use super::perf_rules::PerfReading;
use super::trial;
use siteseer::internals::function::{Candidate, Function};
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::{FunctionText, Known};
use siteseer_sites::location::{Argument, Located};
use siteseer_sites::machine::Register;
use siteseer_sites::site::{Marks, SiteKind};
use siteseer_sites::{Location, Missing, Op};
use std::collections::BTreeSet;

/// One disagreement.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// Why.
    pub class: Class,
    /// The place.
    pub address: u64,
    /// The parameter; none where it is about the place.
    pub parameter: Option<String>,
    /// What we say.
    pub ours: String,
    /// What perf says.
    pub perf: String,
    /// What DWARF says.
    pub dwarf: String,
}

/// A question that perf refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The parameters asked for.
    pub parameters: Vec<String>,
    /// perf's message.
    pub message: String,
}

/// How perf and we compare on one function.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    /// The function.
    pub function: String,
    /// Places that both have.
    pub sites: usize,
    /// Arguments that both have at the same location.
    pub arguments: usize,
    /// Arguments that both say are not there.
    pub missing: usize,
    /// The rest.
    pub disagreements: Vec<Disagreement>,
    /// What perf would not answer.
    pub refusals: Vec<Refusal>,
}

/// What a comparison looks into.
#[derive(Clone, Copy)]
pub struct Context<'c, 'i, 'a> {
    /// The kernel image.
    pub image: &'c Image<'i>,
    /// Its DWARF.
    pub evidence: &'c Evidence<'a>,
    /// Our function.
    pub function: &'c Function,
}

/// Compares perf's answers with ours.
pub fn compare(context: Context<'_, '_, '_>, answers: &[Answer]) -> Comparison {
    let mut comparison = Comparison { function: context.function.name.clone(), ..Comparison::default() };
    let mut first = true;
    for answer in answers {
        match &answer.lines {
            Ok(lines) => {
                Matching { context, comparison: &mut comparison, with_places: first }.run(lines);
                first = false;
            }
            Err(message) => {
                let (parameters, message) = (answer.parameters.clone(), message.clone());
                comparison.refusals.push(Refusal { parameters, message });
            }
        }
    }
    comparison
}

struct Matching<'m, 'c, 'i, 'a> {
    context: Context<'c, 'i, 'a>,
    comparison: &'m mut Comparison,
    /// Whether places are compared, which is done once.
    with_places: bool,
}

impl<'c, 'a> Matching<'_, 'c, '_, 'a> {
    fn run(&mut self, lines: &[Line]) {
        let candidates = &self.context.function.candidates;
        let mut paired = vec![false; candidates.len()];
        let mut listed = BTreeSet::new();
        for line in lines {
            let mut addresses = self.addresses(line);
            if !addresses.iter().any(|&address| self.is_known(address))
                && let Some(instance) = self.in_overridden(line)
            {
                let ours = format!("{:#x}", instance.entry);
                if self.with_places {
                    let dwarf = format!("{:#x} in {}", instance.offset, instance.around_name);
                    self.add(Class::OverriddenWeak, instance.entry, None, [ours, line.text.clone(), dwarf]);
                }
                addresses = vec![instance.entry];
            }
            listed.extend(addresses.iter().copied());
            let at = |candidate: &Candidate| {
                addresses.contains(&entry(candidate)) || addresses.contains(&candidate.link_address)
            };
            let here: Vec<usize> = (0..candidates.len()).filter(|&nth| at(&candidates[nth])).collect();
            let like = |&nth: &usize| (!paired[nth], self.likeness(&candidates[nth], line));
            let Some(nth) = here.iter().copied().max_by_key(like) else {
                self.only_perf(line, &addresses);
                continue;
            };
            if paired[nth] {
                // Which of the copies is meant cannot be told if there are more lines than copies of ours.
                if self.likeness(&candidates[nth], line) < line.arguments.len() {
                    self.collapsed(line, &candidates[nth]);
                }
                continue;
            }
            paired[nth] = true;
            if self.with_places {
                self.comparison.sites += 1;
            }
            let candidate = &candidates[nth];
            let place = if addresses.contains(&entry(candidate)) { entry(candidate) } else { candidate.link_address };
            for (name, perf) in &line.arguments {
                if let Some((ours, nth)) = argument(self.context.function, candidate, name) {
                    self.argument(candidate, place, (name, nth), ours, perf);
                }
            }
        }
        if self.with_places {
            for (candidate, _) in candidates.iter().zip(&paired).filter(|(_, paired)| !**paired) {
                self.only_ours(candidate, &listed);
            }
        }
    }

    /// The addresses that a line may mean.
    fn addresses(&self, line: &Line) -> Vec<u64> {
        let named = self.context.image.symbols_named(&line.symbol);
        named.map(|symbol| symbol.address.wrapping_add(line.offset)).collect()
    }

    /// Whether DWARF or we have something of the function at an address.
    fn is_known(&self, address: u64) -> bool {
        candidates_at(self.context.function, address)
            || self.instances().iter().any(|instance| instance.entry == address || instance.first == address)
    }

    /// The copy that a line means in a function that DWARF has and the symbols have elsewhere: it is weak, and another
    /// one was linked in its place.
    fn in_overridden(&self, line: &Line) -> Option<&'c Instance<'a>> {
        self.instances().iter().find(|instance| {
            let start = instance.entry.wrapping_sub(instance.offset_in_function());
            instance.around_name == line.symbol
                && instance.offset_in_function() == line.offset
                && !self.context.image.symbol_at(start).iter().any(|symbol| symbol.name == line.symbol)
        })
    }

    /// How many arguments of a line agree with a candidate's.
    fn likeness(&self, candidate: &Candidate, line: &Line) -> usize {
        let same = |(name, perf): &&(String, PerfLocation)| match argument(self.context.function, candidate, name) {
            Some((Ok(located), _)) => trial::equal(located, perf),
            Some((Err(_), _)) | None => *perf == PerfLocation::Magic,
        };
        line.arguments.iter().filter(same).count()
    }

    fn instances(&self) -> &'c [Instance<'a>] {
        self.context.evidence.instances(&self.context.function.name)
    }

    fn only_perf(&mut self, line: &Line, addresses: &[u64]) {
        if !self.with_places {
            return;
        }
        let mut dwarf = Vec::new();
        let mut class = Class::Unexplained;
        for instance in self.instances() {
            if !addresses.contains(&instance.entry) && !addresses.contains(&instance.first) {
                continue;
            }
            dwarf.push(format!(
                "{:#x}: entry {:#x} v{}{}, first range from {:#x}, called from {:?}, declared at {:?}",
                instance.offset,
                instance.entry,
                instance.entry_view,
                if instance.states_entry { "" } else { " (not stated)" },
                instance.first,
                instance.call,
                instance.declared
            ));
            let is_ours = |candidate: &Candidate| instance.contains(entry(candidate));
            if instance.is_inline && instance.call == instance.declared {
                class = Class::SplitRest;
            } else if !instance.states_entry && self.context.function.candidates.iter().any(is_ours) {
                class = Class::OtherEntry;
            }
        }
        let fragment = |name: &str| name.split('.').skip(1).any(|part| part == "part" || part == "cold");
        if addresses.iter().any(|&at| self.context.image.symbol_at(at).iter().any(|symbol| fragment(symbol.name))) {
            class = Class::Fragment;
        }
        let address = addresses.first().copied().unwrap_or(0);
        self.add(class, address, None, ["no site".to_owned(), line.text.clone(), dwarf.join("; ")]);
    }

    fn only_ours(&mut self, candidate: &Candidate, listed: &BTreeSet<u64>) {
        let place = entry(candidate);
        let here: Vec<&Instance<'_>> = self.instances().iter().filter(|instance| instance.entry == place).collect();
        let section = self.context.image.section_at(place);
        let section = section.and_then(|nth| self.context.image.text_sections().get(usize::from(nth)));
        let is_entered_otherwise = |instance: &Instance<'_>| {
            !instance.states_entry
                && instance.first != place
                && listed.contains(&instance.first)
                && instance.contains(place)
        };
        let is_entered_again = |instance: &Instance<'_>| {
            instance.is_inline
                && instance.entry != place
                // It may be at an empty range. Nothing is left of that but the mark.
                && (instance.around.0..instance.around.1).contains(&place)
                && self.context.evidence.is_marked(instance, place)
        };
        let class = if section.is_none_or(|section| section.name != ".text") {
            Class::OutOfText
        } else if !here.is_empty() && here.iter().all(|instance| instance.is_called_at_declaration()) {
            Class::CalledAtDeclaration
        } else if listed.contains(&place) && here.len() > 1 {
            Class::Collapsed
        } else if here.is_empty() && candidate.kind != SiteKind::Inline && !candidate.described {
            Class::NoDwarf
        } else if self.instances().iter().any(is_entered_otherwise) {
            Class::OtherEntry
        } else if self.instances().iter().any(is_entered_again) {
            Class::FurtherEntry
        } else {
            Class::Unexplained
        };
        let ours = format!("{} in {}+{:#x}", candidate.kind, candidate.symbol, candidate.offset());
        let dwarf = here.iter().map(|instance| {
            format!("{:#x}: called from {:?}, declared at {:?}", instance.offset, instance.call, instance.declared)
        });
        let dwarf: Vec<String> = dwarf.collect();
        self.add(class, place, None, [ours, "not listed".to_owned(), dwarf.join("; ")]);
    }

    fn collapsed(&mut self, line: &Line, candidate: &Candidate) {
        let place = entry(candidate);
        let copies = self.instances().iter().filter(|instance| instance.entry == place).count();
        let ours = self.context.function.candidates.iter().filter(|candidate| entry(candidate) == place).count();
        let class = if copies > ours { Class::Collapsed } else { Class::Unexplained };
        self.add(class, place, None, [format!("{ours} sites"), line.text.clone(), format!("{copies} copies")]);
    }

    fn argument(
        &mut self,
        candidate: &Candidate,
        place: u64,
        (name, nth): (&str, usize),
        ours: &Argument,
        perf: &PerfLocation,
    ) {
        match ours {
            Err(_) if *perf == PerfLocation::Magic => {
                self.comparison.missing += 1;
                return;
            }
            Ok(located) if is_same(located, perf) => {
                self.comparison.arguments += 1;
                return;
            }
            _ => {}
        }
        let machine = self.context.image.machine();
        let text = match ours {
            Ok(located) => located.display(machine).to_string(),
            Err(missing) => format!("none: {missing}"),
        };
        let (class, dwarf) = if ours.as_ref().is_ok_and(|located| trial::equal(located, perf)) {
            (Class::ValueEqual, String::new())
        } else {
            self.judge(candidate, place, (name, nth), ours, perf)
        };
        self.add(class, place, Some(name.to_owned()), [text, format!("{perf:?}"), dwarf]);
    }

    /// Finds out from DWARF who is right, and why the other says otherwise.
    fn judge(
        &self,
        candidate: &Candidate,
        place: u64,
        (name, nth): (&str, usize),
        ours: &Argument,
        perf: &PerfLocation,
    ) -> (Class, String) {
        let prototype = self.context.function.prototypes.get(candidate.prototype);
        let size = prototype.and_then(|prototype| prototype.parameters.get(nth)).map_or(8, |parameter| parameter.size);
        let mut said = Vec::new();
        let nowhere = Variable::default();
        for instance in self.instances().iter().filter(|instance| instance.entry == place) {
            let parameter = instance.parameter(name);
            let variable = parameter.unwrap_or(&nowhere);
            said.push(format!(
                "{:#x} entered at v{}: {}",
                instance.offset,
                instance.entry_view,
                parameter.map_or_else(|| "not mentioned".to_owned(), Variable::describe)
            ));
            let verdict = Judge { context: self.context, instance, variable, candidate, place, ours, perf, size };
            if let Some(class) = verdict.class(name, nth) {
                return (class, said.pop().unwrap_or_default());
            }
        }
        (Class::Unexplained, said.join(" | "))
    }

    fn add(&mut self, class: Class, address: u64, parameter: Option<String>, [ours, perf, dwarf]: [String; 3]) {
        self.comparison.disagreements.push(Disagreement { class, address, parameter, ours, perf, dwarf });
    }
}

/// The address where a candidate's body starts.
fn entry(candidate: &Candidate) -> u64 {
    candidate.link_address.wrapping_sub(u64::from(candidate.moved))
}

fn candidates_at(function: &Function, address: u64) -> bool {
    function.candidates.iter().any(|candidate| entry(candidate) == address)
}

/// A candidate's argument by the parameter's name, with its place among the parameters.
fn argument<'f>(function: &'f Function, candidate: &'f Candidate, name: &str) -> Option<(&'f Argument, usize)> {
    let parameters = &function.prototypes.get(candidate.prototype)?.parameters;
    let nth = parameters.iter().position(|parameter| parameter.name == name)?;
    Some((candidate.arguments.get(nth)?, nth))
}

/// Whether both are of one form and mean the same.
fn is_same(ours: &Located, perf: &PerfLocation) -> bool {
    let low = |value: u64| if ours.size >= 8 { value } else { value & !(u64::MAX << (8 * ours.size)) };
    match (&ours.at, perf.normalised()) {
        (Location::Constant(ours), Some(Location::Constant(perf))) => low(*ours) == low(perf),
        // The kernel's address as a constant, which perf does not displace.
        (Location::Address(ours), Some(Location::Constant(perf))) => *ours == perf,
        (Location::RegisterPair(first, _), Some(Location::Register(perf))) => *first == perf,
        (ours, Some(perf)) => *ours == perf,
        (_, None) => false,
    }
}

/// One argument of one copy.
struct Judge<'j, 'c, 'i, 'a> {
    context: Context<'c, 'i, 'a>,
    instance: &'j Instance<'a>,
    variable: &'j Variable<'a>,
    candidate: &'j Candidate,
    place: u64,
    ours: &'j Argument,
    perf: &'j PerfLocation,
    /// Bytes of the parameter's type.
    size: u32,
}

impl Judge<'_, '_, '_, '_> {
    fn class(&self, name: &str, nth: usize) -> Option<Class> {
        let evidence = self.context.evidence;
        let reading = evidence.as_perf_reads(self.instance, self.variable, self.place);
        let perf_is_explained = match (&reading, self.perf) {
            (None, PerfLocation::Magic) => self.variable.is_nothing_to_perf(self.place),
            (Some(reading), perf) => same_reading(&reading.location, perf),
            (None, _) => false,
        };
        if !perf_is_explained {
            // perf found something else by that name, where ours has to be what DWARF says about the parameter itself.
            let inner = evidence.inner_readings(self.instance, name, self.place);
            let is_inner = reading.is_none() && inner.iter().any(|location| same_reading(location, self.perf));
            return (is_inner && self.is_ours_right(false, false)).then_some(Class::InnerVariable);
        }
        if self.candidate.moved > 0 {
            return (self.is_ours_right(false, false) || self.is_kept()).then_some(Class::Moved);
        }
        if self.is_ours_right(false, false) {
            return self.by_perfs_rule(reading.as_ref());
        }
        if self.is_ours_right(false, true) {
            return Some(Class::EntryValue);
        }
        if self.candidate.marks.contains(Marks::LATE_VIEW) && self.is_ours_right(true, false) {
            return Some(Class::LateView);
        }
        let is_abi = self.candidate.kind == SiteKind::Body
            && *self.perf == PerfLocation::Magic
            && self.context.function.prototypes.get(self.candidate.prototype).is_some_and(|prototype| {
                prototype.by_convention(self.context.image.machine()).get(nth) == Some(self.ours)
            });
        is_abi.then_some(Class::ByAbi)
    }

    /// Ours is right, and perf's is explained by its rules: the rule that makes the difference.
    fn by_perfs_rule(&self, reading: Option<&PerfReading<'_>>) -> Option<Class> {
        let Some(reading) = reading else {
            // perf found nothing; what we have is not in a range that it could see.
            return self.ours.is_ok().then_some(Class::ZeroWidth);
        };
        if reading.further_on {
            return Some(Class::FurtherOn);
        }
        if !reading.holds_at((self.place, self.instance.entry_view)) {
            return Some(if self.ours.is_ok() { Class::ZeroWidth } else { Class::NotAtEntryView });
        }
        if matches!(self.perf, PerfLocation::At(_)) && !reading.more {
            return Some(Class::StaticMemory);
        }
        reading.more.then_some(Class::FirstOperation)
    }

    /// Whether ours is what DWARF says at the probe.
    fn is_ours_right(&self, late: bool, entry_values: bool) -> bool {
        if self.candidate.moved > 0 {
            return self.is_ours_right_at((self.candidate.link_address, 0), late, entry_values);
        }
        self.is_ours_right_at((self.place, self.instance.entry_view), late, entry_values)
    }

    /// Whether ours is what DWARF says at the entry, and no instruction from there to the probe changes what it is made
    /// of.
    fn is_kept(&self) -> bool {
        let Some(registers) = self.ours.as_ref().ok().and_then(registers) else { return false };
        let Candidate { symbol_address, symbol_size, link_address, .. } = *self.candidate;
        let whole = symbol_address..symbol_address.saturating_add(symbol_size);
        let text = FunctionText::decode(self.context.image, &[whole], &Known::default());
        let mut reached = self.place;
        for step in text.walk_block(self.place) {
            if step.address >= link_address {
                break;
            }
            if registers.iter().any(|&register| step.writes.contains(register)) {
                return false;
            }
            reached = step.next;
        }
        reached == link_address && self.is_ours_right_at((self.place, self.instance.entry_view), false, false)
    }

    /// Whether ours is what DWARF says at a view of an address.
    fn is_ours_right_at(&self, point: Point, late: bool, entry_values: bool) -> bool {
        let size = match self.ours {
            Ok(located) => located.size,
            Err(_) => self.size,
        };
        let truth = self.context.evidence.truth(self.instance, self.variable, point, size, (late, entry_values));
        match (self.ours, truth) {
            (Ok(located), Truth::Known(values)) => values.iter().zip(trial::STATES).all(|(dwarf, state)| {
                let Some(ours) = trial::of_ours(located, state) else { return false };
                dwarf.len() == ours.len()
                    && dwarf.iter().zip(&ours).all(|(dwarf, ours)| dwarf.is_none_or(|b| b == *ours))
            }),
            (Err(_), Truth::Nothing | Truth::Unknowable(_)) => true,
            (Err(Missing::Partial), Truth::Known(values)) => values.iter().flatten().any(Option::is_none),
            _ => false,
        }
    }
}

/// The registers that a location is made of; `None` if it reads memory, too.
fn registers(located: &Located) -> Option<Vec<Register>> {
    match &located.at {
        Location::Constant(_) | Location::Address(_) => Some(Vec::new()),
        Location::Register(register) | Location::RegisterOffset(register, _) => Some(vec![*register]),
        Location::RegisterPair(first, second) => Some(vec![*first, *second]),
        Location::Memory(..) => None,
        Location::Computed(computed) => {
            let mut registers = Vec::new();
            for op in computed.slots.iter().flatten() {
                match op {
                    Op::Register(register) => registers.push(*register),
                    Op::Load(_) => return None,
                    _ => {}
                }
            }
            Some(registers)
        }
    }
}

/// Whether perf printed what its rules make. It prints memory at an address by a symbol, and constants as 32 bits.
fn same_reading(made: &PerfLocation, printed: &PerfLocation) -> bool {
    match (made, printed) {
        (PerfLocation::At(_), PerfLocation::At(_)) => true,
        (PerfLocation::Constant(made), PerfLocation::Constant(printed)) => *made as u32 == *printed as u32,
        (made, printed) => made == printed,
    }
}
