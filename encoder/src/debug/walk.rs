// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One unit's tree of debug entries, walked once, in order.
//!
//! What is wanted is small beside what is there: functions that have an address, the inlined copies inside them
//! (`DW_TAG_inlined_subroutine`, at any depth, under lexical blocks), and the formal parameters of both. Everything
//! else is stepped over, by `DW_AT_sibling` where the compiler wrote it (GCC does, clang does not). Abstract functions
//! are not walked either: `origin` reads them where a copy refers to one.
//!
//! Nothing is interpreted here. The walk gathers the raw facts of one function in a [`RawFunction`] and gives it to the
//! [`Visitor`]. It uses the buffers again for the next function.

use crate::debug::skip::skip_attributes;
use crate::debug::slice::Slice;
use crate::debug::units::DebugUnit;
use gimli::{AttributeValue, EntriesRaw, UnitOffset};
use std::ops::Range;

/// The raw facts of a function that has text: a body, a clone, or something that only looks like one.
#[derive(Debug, Default)]
pub(crate) struct RawFunction<'a> {
    /// Offset of the debug entry in its unit.
    pub(crate) die: usize,
    /// The entry that it is a concrete instance of, as an offset in `.debug_info`.
    pub(crate) origin: Option<usize>,
    /// The function's text; the first range is the one that `DW_AT_low_pc` or the first of `DW_AT_ranges` says.
    pub(crate) ranges: Vec<Range<u64>>,
    /// `DW_AT_entry_pc`.
    pub(crate) entry: Option<u64>,
    /// `DW_AT_inline`.
    pub(crate) inline: Option<gimli::DwInl>,
    /// `DW_AT_declaration`: it is defined elsewhere, or is another name of what is.
    pub(crate) declaration: bool,
    /// `DW_AT_calling_convention` is `DW_CC_nocall`: the compiler changed how it is called.
    pub(crate) nocall: bool,
    /// `DW_AT_frame_base`.
    pub(crate) frame_base: Option<Slice<'a>>,
    /// The inlined copies in it, enclosing ones before enclosed ones.
    pub(crate) sites: Vec<RawSite>,
    /// Ranges of all the copies.
    pub(crate) site_ranges: Vec<Range<u64>>,
    /// The direct calls in it, as far as the debug information tells.
    pub(crate) calls: Vec<RawCall>,
    /// The jumps in it that are tail calls (`DW_AT_call_pc`), sorted. Clang tells them, GCC where they return to.
    pub(crate) tail_calls: Vec<u64>,
    /// The parameters that the function and its copies mention, grouped by site; the function's own come first.
    pub(crate) parameters: Vec<RawParameter<'a>>,
}

impl<'a> RawFunction<'a> {
    /// The parameters of the function itself, and those of its copies.
    pub(crate) fn split_parameters(&self) -> (&[RawParameter<'a>], &[RawParameter<'a>]) {
        self.parameters.split_at(self.parameters.partition_point(|parameter| parameter.site == RawParameter::OWN))
    }
}

/// A call, identified by the address after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawCall {
    /// `DW_AT_call_origin`: the function called, as an offset in `.debug_info`.
    pub(crate) callee: usize,
    /// `DW_AT_call_return_pc`.
    pub(crate) returns_to: u64,
}

/// The raw facts of one inlined copy.
#[derive(Debug, Clone)]
pub(crate) struct RawSite {
    /// The abstract function, as an offset in `.debug_info`.
    pub(crate) origin: usize,
    /// Index of the copy that encloses this one.
    pub(crate) parent: Option<u32>,
    /// Its text: a part of [`RawFunction::site_ranges`].
    pub(crate) ranges: Range<u32>,
    /// `DW_AT_entry_pc`.
    pub(crate) entry: Option<u64>,
    /// `DW_AT_GNU_entry_view`.
    pub(crate) view: u32,
    /// `DW_AT_call_file`.
    pub(crate) call_file: u64,
    /// `DW_AT_call_line`.
    pub(crate) call_line: u32,
    /// `DW_AT_call_column`.
    pub(crate) call_column: u32,
    /// Whether the visitor wants it.
    pub(crate) wanted: bool,
}

/// The raw facts of one formal parameter of a function or a copy.
#[derive(Debug, Clone)]
pub(crate) struct RawParameter<'a> {
    /// Index of the copy; [`RawParameter::OWN`] for the function's own.
    pub(crate) site: u32,
    /// The parameter of the abstract function, as an offset in `.debug_info`, or else its own offset there.
    pub(crate) origin: usize,
    /// Its value.
    pub(crate) value: RawValue<'a>,
}

impl RawParameter<'_> {
    /// The `site` of a parameter of the out-of-line function itself.
    pub(crate) const OWN: u32 = u32::MAX;
}

/// How the debug information gives a parameter's value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RawValue<'a> {
    /// Not at all.
    Absent,
    /// `DW_AT_const_value`.
    Constant(AttributeValue<Slice<'a>>),
    /// One expression for all addresses.
    Expression(Slice<'a>),
    /// A location list, and GCC's view pairs: offsets in the sections of lists.
    List { offset: usize, views: Option<usize> },
    /// A form that no `DW_AT_location` may have.
    Malformed,
}

/// Takes what the walk finds.
pub(crate) trait Visitor<'a> {
    /// Whether copies of the abstract function at this offset of `.debug_info` are wanted.
    fn wants(&mut self, origin: usize) -> bool;

    /// A definition without text; `die` is its offset in the unit.
    fn without_text(&mut self, die: usize, inline: Option<gimli::DwInl>);

    /// A function with text, complete with all that is in it.
    fn function(&mut self, function: &mut RawFunction<'a>);
}

/// An error of the tree itself, and where: an offset in the unit.
#[derive(Debug)]
pub(crate) struct WalkError {
    pub(crate) offset: usize,
    pub(crate) error: gimli::Error,
}

/// Walks a unit.
pub(crate) fn walk<'a>(unit: &DebugUnit<'a, '_>, visitor: &mut impl Visitor<'a>) -> Result<(), WalkError> {
    let mut walker = Walker {
        unit,
        entries: unit
            .unit
            .entries_raw(None)
            .map_err(|error| WalkError { offset: unit.unit.header.size_of_header(), error })?,
        function: RawFunction::default(),
    };
    walker.top(visitor).map_err(|error| WalkError { offset: walker.entries.next_offset().0, error })
}

struct Walker<'u, 'a> {
    unit: &'u DebugUnit<'a, 'u>,
    entries: EntriesRaw<'u, Slice<'a>>,
    function: RawFunction<'a>,
}

/// What a level of the tree below a function belongs to.
type Owner = u32;

impl<'a> Walker<'_, 'a> {
    /// The levels above functions.
    fn top(&mut self, visitor: &mut impl Visitor<'a>) -> gimli::Result<()> {
        let mut depth = 0usize;
        loop {
            if self.entries.is_empty() {
                return Ok(());
            }
            let die = self.entries.next_offset();
            let Some(abbreviation) = self.entries.read_abbreviation()? else {
                // The unit's own entry is at depth 0: what follows its last child is padding.
                if depth <= 1 {
                    return Ok(());
                }
                depth -= 1;
                continue;
            };
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let sibling = self.subprogram(die, abbreviation.attributes())?;
                    if self.function.ranges.is_empty() {
                        let function = &self.function;
                        if !function.declaration && function.origin.is_none() {
                            visitor.without_text(function.die, function.inline);
                        }
                        if abbreviation.has_children() {
                            self.skip_children(sibling)?;
                        }
                        continue;
                    }
                    if abbreviation.has_children() {
                        self.inside(visitor)?;
                    }
                    // Parameters after nested copies would break the grouping; the sort is stable and all but free.
                    self.function.parameters.sort_by_key(|parameter| parameter.site.wrapping_add(1));
                    self.function.tail_calls.sort_unstable();
                    visitor.function(&mut self.function);
                }
                // What may hold functions: namespaces of any language, and types of languages that have methods.
                gimli::DW_TAG_compile_unit
                | gimli::DW_TAG_partial_unit
                | gimli::DW_TAG_namespace
                | gimli::DW_TAG_module => {
                    skip_attributes(&mut self.entries, abbreviation.attributes())?;
                    if abbreviation.has_children() {
                        depth += 1;
                    }
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_enumeration_type
                | gimli::DW_TAG_interface_type
                    if !self.unit.is_c =>
                {
                    skip_attributes(&mut self.entries, abbreviation.attributes())?;
                    if abbreviation.has_children() {
                        depth += 1;
                    }
                }
                _ => self.skip_entry(abbreviation)?,
            }
        }
    }

    /// Below a function with text: gathers copies and parameters until the function's children end.
    fn inside(&mut self, visitor: &mut impl Visitor<'a>) -> gimli::Result<()> {
        let mut owners: Vec<Owner> = vec![RawParameter::OWN];
        while let Some(&owner) = owners.last() {
            let die = self.entries.next_offset();
            let Some(abbreviation) = self.entries.read_abbreviation()? else {
                owners.pop();
                continue;
            };
            match abbreviation.tag() {
                gimli::DW_TAG_formal_parameter => {
                    if owner == RawParameter::OWN || self.function.sites[owner as usize].wanted {
                        self.parameter(die, owner, abbreviation.attributes())?;
                    } else {
                        skip_attributes(&mut self.entries, abbreviation.attributes())?;
                    }
                    if abbreviation.has_children() {
                        self.skip_children(None)?;
                    }
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let site = self.inlined(owner, abbreviation.attributes(), visitor)?;
                    if abbreviation.has_children() {
                        // A copy without text has no text inside it either, but its parameters must not be mistaken for
                        // those of the copy around it.
                        match site {
                            Some(site) => owners.push(site),
                            None => self.skip_children(None)?,
                        }
                    }
                }
                gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => self.call(abbreviation)?,
                gimli::DW_TAG_lexical_block
                | gimli::DW_TAG_try_block
                | gimli::DW_TAG_catch_block
                | gimli::DW_TAG_with_stmt => {
                    skip_attributes(&mut self.entries, abbreviation.attributes())?;
                    if abbreviation.has_children() {
                        owners.push(owner);
                    }
                }
                _ => self.skip_entry(abbreviation)?,
            }
        }
        Ok(())
    }

    /// Reads a subprogram into `self.function`; its `ranges` stay empty if it has no text. Returns its sibling.
    fn subprogram(
        &mut self,
        die: UnitOffset,
        attributes: &[gimli::AttributeSpecification],
    ) -> gimli::Result<Option<UnitOffset>> {
        let function = &mut self.function;
        function.die = die.0;
        function.origin = None;
        function.ranges.clear();
        function.entry = None;
        function.declaration = false;
        function.inline = None;
        function.nocall = false;
        function.frame_base = None;
        function.sites.clear();
        function.site_ranges.clear();
        function.calls.clear();
        function.tail_calls.clear();
        function.parameters.clear();
        let mut text = Text::default();
        let mut sibling = None;
        for specification in attributes {
            let attribute = self.entries.read_attribute(*specification)?;
            match attribute.name() {
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    function.origin = self.unit.reference(attribute.raw_value());
                }
                gimli::DW_AT_calling_convention => {
                    function.nocall =
                        attribute.udata_value().is_some_and(|value| value == u64::from(gimli::DW_CC_nocall.0));
                }
                gimli::DW_AT_declaration => function.declaration = true,
                gimli::DW_AT_inline => {
                    function.inline = match attribute.value() {
                        AttributeValue::Inline(inline) => Some(inline),
                        _ => None,
                    };
                }
                gimli::DW_AT_frame_base => function.frame_base = attribute.exprloc_value().map(|e| e.0),
                gimli::DW_AT_sibling => sibling = unit_reference(attribute.raw_value()),
                _ => text.take(&attribute),
            }
        }
        text.ranges(self.unit, &mut function.ranges)?;
        function.ranges.retain(|range| !range.is_empty());
        function.entry = text.entry(self.unit, function.ranges.first())?;
        Ok(sibling)
    }

    /// Reads an inlined copy. Returns its index, or `None` if it has no text.
    fn inlined(
        &mut self,
        owner: Owner,
        attributes: &[gimli::AttributeSpecification],
        visitor: &mut impl Visitor<'a>,
    ) -> gimli::Result<Option<u32>> {
        let mut text = Text::default();
        let mut origin = None;
        let mut view = 0;
        let mut call_file = 0;
        let mut call_line = 0;
        let mut call_column = 0;
        for specification in attributes {
            let attribute = self.entries.read_attribute_inline(*specification)?;
            match attribute.name() {
                gimli::DW_AT_abstract_origin => origin = self.unit.reference(attribute.raw_value()),
                gimli::DW_AT_GNU_entry_view => view = attribute.udata_value().unwrap_or(0),
                gimli::DW_AT_call_file => {
                    call_file = match attribute.value() {
                        AttributeValue::FileIndex(index) => index,
                        _ => 0,
                    }
                }
                gimli::DW_AT_call_line => call_line = attribute.udata_value().unwrap_or(0),
                gimli::DW_AT_call_column => call_column = attribute.udata_value().unwrap_or(0),
                _ => text.take(&attribute),
            }
        }
        let function = &mut self.function;
        let first = function.site_ranges.len();
        text.ranges(self.unit, &mut function.site_ranges)?;
        let entry = text.entry(self.unit, function.site_ranges.get(first))?;
        let has_address = entry.is_some() || function.site_ranges.len() > first;
        let Some(origin) = origin.filter(|_| has_address) else {
            function.site_ranges.truncate(first);
            return Ok(None);
        };
        let index = |value: usize| u32::try_from(value).map_err(|_| gimli::Error::UnsupportedOffset);
        let site = index(function.sites.len())?;
        let wanted = visitor.wants(origin);
        function.sites.push(RawSite {
            origin,
            parent: (owner != RawParameter::OWN).then_some(owner),
            ranges: index(first)?..index(function.site_ranges.len())?,
            entry,
            view: u32::try_from(view).unwrap_or(u32::MAX),
            call_file,
            call_line: u32::try_from(call_line).unwrap_or(0),
            call_column: u32::try_from(call_column).unwrap_or(0),
            wanted,
        });
        Ok(Some(site))
    }

    fn parameter(
        &mut self,
        die: UnitOffset,
        site: u32,
        attributes: &[gimli::AttributeSpecification],
    ) -> gimli::Result<()> {
        let mut origin = None;
        let mut location = RawValue::Absent;
        let mut constant = None;
        let mut view_table = None;
        for specification in attributes {
            let attribute = self.entries.read_attribute_inline(*specification)?;
            match attribute.name() {
                gimli::DW_AT_abstract_origin => origin = self.unit.reference(attribute.raw_value()),
                gimli::DW_AT_const_value => constant = Some(attribute.value()),
                gimli::DW_AT_GNU_locviews => view_table = attribute.offset_value(),
                gimli::DW_AT_location => {
                    location = match attribute.value() {
                        AttributeValue::Exprloc(expression) => RawValue::Expression(expression.0),
                        AttributeValue::Block(block) => RawValue::Expression(block),
                        value => match self.unit.locations_offset(value) {
                            Some(offset) => RawValue::List { offset, views: None },
                            None => RawValue::Malformed,
                        },
                    }
                }
                _ => {}
            }
        }
        let value = match (location, constant) {
            (RawValue::List { offset, .. }, _) => RawValue::List { offset, views: view_table },
            (RawValue::Absent, Some(constant)) => RawValue::Constant(constant),
            (location, _) => location,
        };
        let origin = origin.unwrap_or(self.unit.offset.saturating_add(die.0));
        self.function.parameters.push(RawParameter { site, origin, value });
        Ok(())
    }

    /// Reads a call, and steps over what it says about arguments. Before DWARF 5 it was an extension of GCC's, with
    /// other attributes.
    fn call(&mut self, abbreviation: &gimli::Abbreviation) -> gimli::Result<()> {
        let (mut callee, mut returns_to, mut sibling) = (None, None, None);
        let (mut is_tail_call, mut jump) = (false, None);
        for specification in abbreviation.attributes() {
            let attribute = self.entries.read_attribute_inline(*specification)?;
            match attribute.name() {
                gimli::DW_AT_call_tail_call => is_tail_call = attribute.value() == gimli::AttributeValue::Flag(true),
                gimli::DW_AT_call_pc => jump = Some(attribute.value()),
                gimli::DW_AT_call_origin | gimli::DW_AT_abstract_origin => {
                    callee = self.unit.reference(attribute.raw_value());
                }
                gimli::DW_AT_call_return_pc | gimli::DW_AT_low_pc => returns_to = Some(attribute.value()),
                gimli::DW_AT_sibling => sibling = unit_reference(attribute.raw_value()),
                _ => {}
            }
        }
        if let (Some(callee), Some(returns_to)) = (callee, returns_to)
            && let Some(returns_to) = self.unit.debug.dwarf.attr_address(&self.unit.unit, returns_to)?
        {
            self.function.calls.push(RawCall { callee, returns_to });
        }
        if is_tail_call
            && let Some(jump) = jump
            && let Some(jump) = self.unit.debug.dwarf.attr_address(&self.unit.unit, jump)?
        {
            self.function.tail_calls.push(jump);
        }
        if abbreviation.has_children() {
            self.skip_children(sibling)?;
        }
        Ok(())
    }

    /// Steps over an entry and all that is below it.
    fn skip_entry(&mut self, abbreviation: &gimli::Abbreviation) -> gimli::Result<()> {
        if !abbreviation.has_children() {
            return skip_attributes(&mut self.entries, abbreviation.attributes());
        }
        let mut sibling = None;
        if abbreviation.attributes().iter().any(|specification| specification.name() == gimli::DW_AT_sibling) {
            for specification in abbreviation.attributes() {
                let attribute = self.entries.read_attribute(*specification)?;
                if attribute.name() == gimli::DW_AT_sibling {
                    sibling = unit_reference(attribute.raw_value());
                }
            }
        } else {
            skip_attributes(&mut self.entries, abbreviation.attributes())?;
        }
        self.skip_children(sibling)
    }

    /// Steps over the children of the entry that was just read.
    fn skip_children(&mut self, sibling: Option<UnitOffset>) -> gimli::Result<()> {
        // A sibling that does not lie ahead would be a loop.
        if let Some(sibling) = sibling.filter(|sibling| *sibling > self.entries.next_offset()) {
            self.entries = self.unit.unit.entries_raw(Some(sibling))?;
            return Ok(());
        }
        let mut depth = 1usize;
        while depth > 0 {
            match self.entries.read_abbreviation()? {
                None => depth -= 1,
                Some(abbreviation) => {
                    skip_attributes(&mut self.entries, abbreviation.attributes())?;
                    if abbreviation.has_children() {
                        depth += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The attributes that say where an entry's text is.
#[derive(Default)]
struct Text<'a> {
    low: Option<AttributeValue<Slice<'a>>>,
    high: Option<AttributeValue<Slice<'a>>>,
    list: Option<AttributeValue<Slice<'a>>>,
    entry: Option<AttributeValue<Slice<'a>>>,
}

impl<'a> Text<'a> {
    #[inline]
    fn take(&mut self, attribute: &gimli::Attribute<Slice<'a>>) {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = Some(attribute.value()),
            gimli::DW_AT_high_pc => self.high = Some(attribute.value()),
            gimli::DW_AT_ranges => self.list = Some(attribute.value()),
            gimli::DW_AT_entry_pc => self.entry = Some(attribute.value()),
            _ => {}
        }
    }

    /// Appends the entry's ranges, without those of text that the linker discarded. A copy with no instruction left has
    /// an empty range: it still says where the copy is.
    fn ranges(&self, unit: &DebugUnit<'a, '_>, out: &mut Vec<Range<u64>>) -> gimli::Result<()> {
        let mut push = |range: Range<u64>| {
            // 0 and 1, too, stand for discarded text; no kernel has text there.
            if range.start > 1 && range.start <= range.end {
                out.push(range);
            }
        };
        if let Some(list) = self.list {
            let Some(offset) = unit.debug.dwarf.attr_ranges_offset(&unit.unit, list)? else { return Ok(()) };
            return for_each_range(unit, offset, push);
        }
        let Some(low) = self.address(unit, self.low)? else { return Ok(()) };
        let high = match self.high {
            Some(AttributeValue::Udata(size)) => Some(low.wrapping_add(size)),
            Some(value) => match value.udata_value() {
                Some(size) => Some(low.wrapping_add(size)),
                None => self.address(unit, Some(value))?,
            },
            // DWARF 5 section 2.17.1: a low pc alone is a single address.
            None => low.checked_add(1),
        };
        if let Some(high) = high {
            push(low..high);
        }
        Ok(())
    }

    /// `DW_AT_entry_pc`: an address, or an offset from the start of the text (DWARF 5 section 2.18).
    fn entry(&self, unit: &DebugUnit<'a, '_>, first: Option<&Range<u64>>) -> gimli::Result<Option<u64>> {
        let Some(value) = self.entry else { return Ok(None) };
        if let Some(address) = self.address(unit, Some(value))? {
            return Ok(Some(address).filter(|address| *address > 1 && *address < u64::MAX - 1));
        }
        let base = match self.address(unit, self.low)? {
            Some(low) => Some(low),
            None => first.map(|range| range.start),
        };
        Ok(base.zip(value.udata_value()).map(|(base, offset)| base.wrapping_add(offset)))
    }

    fn address(
        &self,
        unit: &DebugUnit<'a, '_>,
        value: Option<AttributeValue<Slice<'a>>>,
    ) -> gimli::Result<Option<u64>> {
        match value {
            Some(value) => unit.debug.dwarf.attr_address(&unit.unit, value),
            None => Ok(None),
        }
    }
}

/// Calls `found` with the ranges of a list, also the empty ones, which gimli's own iterator leaves out: GCC writes one
/// where nothing but the marker of a copy's entry is left.
fn for_each_range(
    unit: &DebugUnit<'_, '_>,
    offset: gimli::RangeListsOffset,
    mut found: impl FnMut(Range<u64>),
) -> gimli::Result<()> {
    let mut entries = unit.debug.dwarf.raw_ranges(&unit.unit, offset)?;
    let mut base = Some(unit.unit.low_pc);
    let indexed = |index| unit.debug.dwarf.address(&unit.unit, index);
    while let Some(entry) = entries.next()? {
        use gimli::RawRngListEntry as Entry;
        let range = match entry {
            Entry::BaseAddress { addr } => {
                base = Some(addr).filter(|addr| !is_discarded(*addr));
                continue;
            }
            Entry::BaseAddressx { addr } => {
                base = Some(indexed(addr)?).filter(|addr| !is_discarded(*addr));
                continue;
            }
            Entry::AddressOrOffsetPair { begin, end } | Entry::OffsetPair { begin, end } => {
                let Some(base) = base else { continue };
                base.wrapping_add(begin)..base.wrapping_add(end)
            }
            Entry::StartxEndx { begin, end } => indexed(begin)?..indexed(end)?,
            Entry::StartxLength { begin, length } => with_length(indexed(begin)?, length),
            Entry::StartEnd { begin, end } => begin..end,
            Entry::StartLength { begin, length } => with_length(begin, length),
        };
        if !is_discarded(range.start) {
            found(range);
        }
    }
    Ok(())
}

fn with_length(begin: u64, length: u64) -> Range<u64> {
    begin..begin.wrapping_add(length)
}

/// Whether an address stands for text that the linker discarded: the highest, or the one before it in the lists of
/// DWARF 4.
fn is_discarded(address: u64) -> bool {
    address >= u64::MAX - 1
}

fn unit_reference(value: AttributeValue<Slice<'_>>) -> Option<UnitOffset> {
    match value {
        AttributeValue::UnitRef(offset) => Some(offset),
        _ => None,
    }
}
