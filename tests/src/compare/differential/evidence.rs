// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What DWARF itself says about the functions that are compared: the judge between perf and us.
//!
//! It is read here a second time, with nothing of the encoder but its tables of call frames: the copies of a function,
//! where each is entered, and the entries of its parameters' location lists with GCC's location views.

use super::trial;
use gimli::{
    Attribute, AttributeValue, EvaluationResult, Expression, LittleEndian, RawLocListEntry, RawRngListEntry, Reader,
    Unit, UnitHeader, UnitOffset, Value, ValueType,
};
use siteseer_encoder::debug::cfi::{Cfa, Frames};
use siteseer_encoder::elf::image::{Image, ImageError};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

type Slice<'a> = gimli::EndianSlice<'a, LittleEndian>;
type Entry<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// The debug sections of an image.
pub struct Sections<'a> {
    dwarf: gimli::DwarfSections<Cow<'a, [u8]>>,
    loc: Cow<'a, [u8]>,
    loclists: Cow<'a, [u8]>,
    frame: Cow<'a, [u8]>,
}

impl<'a> Sections<'a> {
    /// Takes them from the image.
    ///
    /// # Errors
    /// If the image has no readable debug sections.
    pub fn load(image: &Image<'a>) -> Result<Sections<'a>, ImageError> {
        Ok(Sections {
            dwarf: gimli::DwarfSections::load(|id| image.debug_section(id.name()))?,
            loc: image.debug_section(".debug_loc")?,
            loclists: image.debug_section(".debug_loclists")?,
            frame: image.debug_section(".debug_frame")?,
        })
    }
}

/// An address, and a view of it.
pub type Point = (u64, u64);

/// An expression, and from where to where it holds.
#[derive(Debug, Clone, Copy)]
pub struct Holding<'a> {
    pub(super) begin: Point,
    pub(super) end: Point,
    pub(super) expression: Slice<'a>,
}

/// A parameter, or another variable of a parameter's name.
#[derive(Debug, Clone, Default)]
pub struct Variable<'a> {
    /// Its constant value, as bytes; the last one is repeated for ever by its sign.
    pub(super) constant: Option<Vec<u8>>,
    /// Where it is. A location without a list holds everywhere.
    pub(super) entries: Vec<Holding<'a>>,
}

impl<'a> Variable<'a> {
    /// The entry that holds at a view of an address: the one that begins last, if there are several.
    pub fn holding(&self, point: Point) -> Option<&Holding<'a>> {
        let holds = self.entries.iter().filter(|entry| entry.begin <= point && point < entry.end);
        holds.max_by_key(|entry| entry.begin)
    }

    /// The first entry that begins at the address, after the view.
    fn late(&self, point: Point) -> Option<&Holding<'a>> {
        let later = self.entries.iter().filter(|entry| {
            entry.begin.0 == point.0 && entry.begin > point && entry.begin < entry.end && !entry.expression.is_empty()
        });
        later.min_by_key(|entry| entry.begin)
    }

    /// The first entry whose addresses include this one: all that a reader can find that knows nothing of views.
    pub(super) fn covering(&self, address: u64) -> Option<&Holding<'a>> {
        self.entries.iter().find(|entry| entry.begin.0 <= address && address < entry.end.0)
    }

    /// Whether perf finds nothing at the address: no constant, and no entry that covers it or an empty one.
    pub fn is_nothing_to_perf(&self, address: u64) -> bool {
        self.constant.is_none() && self.covering(address).is_none_or(|entry| entry.expression.is_empty())
    }

    /// For people: every entry.
    pub fn describe(&self) -> String {
        if let Some(constant) = &self.constant {
            return format!("constant {constant:02x?}");
        }
        let bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let entry = |entry: &Holding<'_>| {
            if entry.end.0 == u64::MAX {
                return bytes(entry.expression.slice());
            }
            let ((begin, begin_view), (end, end_view)) = (entry.begin, entry.end);
            format!("[{begin:#x} v{begin_view}, {end:#x} v{end_view}) {}", bytes(entry.expression.slice()))
        };
        let shown: Vec<String> = self.entries.iter().take(8).map(entry).collect();
        if shown.is_empty() { "nowhere".to_owned() } else { shown.join("; ") }
    }
}

/// A place in the source as the unit numbers it: file, line, column.
pub type SourceIndex = (u64, u64, u64);

/// A copy of a function: inlined, or out of line.
#[derive(Debug, Clone)]
pub struct Instance<'a> {
    pub(super) header: UnitHeader<Slice<'a>>,
    /// Offset in `.debug_info`.
    pub offset: usize,
    /// Whether it is an inlined copy.
    pub is_inline: bool,
    /// Where it is entered: `DW_AT_entry_pc`, else `DW_AT_low_pc`, else its first range.
    pub entry: u64,
    /// Where its first range begins, which may be empty.
    pub first: u64,
    /// Whether `DW_AT_entry_pc` states where it is entered.
    pub states_entry: bool,
    /// Its ranges that are not empty.
    ranges: Vec<gimli::Range>,
    /// The view at which it is entered.
    pub entry_view: u64,
    /// Where it was called from.
    pub call: SourceIndex,
    /// Where the function was declared.
    pub declared: SourceIndex,
    /// The out-of-line function around it: where that is entered, and up to where it goes.
    pub(super) around: (u64, u64),
    /// Its name.
    pub around_name: String,
    pub(super) frame_base: Option<Slice<'a>>,
    parameters: BTreeMap<String, Variable<'a>>,
    /// Variables of the names of parameters in copies and blocks inside.
    pub(super) inner: Vec<(String, Variable<'a>)>,
}

impl<'a> Instance<'a> {
    /// The parameter, if the copy mentions it.
    pub fn parameter(&self, name: &str) -> Option<&Variable<'a>> {
        self.parameters.get(name)
    }

    /// Whether an address is in its ranges.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.begin <= address && address < range.end)
    }

    /// How far it is from the start of the out-of-line function around it.
    pub fn offset_in_function(&self) -> u64 {
        self.entry.wrapping_sub(self.around.0)
    }

    /// Whether the copy seems to be called from its own declaration's line, which is how perf knows what it leaves out.
    pub fn is_called_at_declaration(&self) -> bool {
        self.is_inline && (self.call.0, self.call.1) == (self.declared.0, self.declared.1)
    }
}

/// Where text is.
struct Place {
    entry: u64,
    first: u64,
    states_entry: bool,
    ranges: Vec<gimli::Range>,
}

impl Place {
    /// The end of the range at its entry.
    fn end(&self) -> u64 {
        let at_entry = self.ranges.iter().find(|range| range.begin <= self.entry && self.entry < range.end);
        at_entry.map_or(0, |range| range.end)
    }
}

/// What DWARF says about a parameter at a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truth {
    /// Something holds there, and it has these values in the trial states; bytes that do not exist are `None`.
    Known(Vec<Vec<Option<u8>>>),
    /// Something holds there, but cannot be known at a probe, for this reason.
    Unknowable(&'static str),
    /// Nothing holds there.
    Nothing,
}

/// DWARF, and the copies of the functions that were asked for.
pub struct Evidence<'a> {
    pub(super) dwarf: gimli::Dwarf<Slice<'a>>,
    lists: (Slice<'a>, Slice<'a>),
    frames: Frames<'a>,
    instances: HashMap<String, Vec<Instance<'a>>>,
}

impl<'a> Evidence<'a> {
    /// Finds all copies of functions, each with the names of its parameters.
    ///
    /// # Errors
    /// If the debug information is malformed.
    pub fn collect(
        sections: &'a Sections<'_>,
        wanted: &HashMap<String, BTreeSet<String>>,
    ) -> gimli::Result<Evidence<'a>> {
        let dwarf = sections.dwarf.borrow(|bytes| Slice::new(bytes, LittleEndian));
        let slice = |bytes: &'a Cow<'_, [u8]>| Slice::new(bytes, LittleEndian);
        let mut evidence = Evidence {
            dwarf,
            lists: (slice(&sections.loc), slice(&sections.loclists)),
            frames: Frames::parse(&sections.frame),
            instances: HashMap::new(),
        };
        let mut headers = Vec::new();
        let mut units = evidence.dwarf.units();
        while let Some(header) = units.next()? {
            headers.push(header);
        }
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let found: Vec<gimli::Result<Vec<(String, Instance<'a>)>>> = std::thread::scope(|scope| {
            let work = || {
                let mut found = Vec::new();
                while let Some(header) = headers.get(next.fetch_add(1, Ordering::Relaxed)) {
                    evidence.walk(*header, wanted, &mut found)?;
                }
                Ok(found)
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(found) => found,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().map(join).collect()
        });
        let mut instances: HashMap<String, Vec<Instance<'a>>> = HashMap::new();
        for found in found {
            for (name, instance) in found? {
                instances.entry(name).or_default().push(instance);
            }
        }
        evidence.instances = instances;
        Ok(evidence)
    }

    /// The copies of a function.
    pub fn instances(&self, function: &str) -> &[Instance<'a>] {
        self.instances.get(function).map_or(&[], Vec::as_slice)
    }

    /// Whether the line table has a statement at an address that is at the place of a copy's declaration: GCC's marker
    /// of an entry.
    pub fn is_marked(&self, instance: &Instance<'_>, address: u64) -> bool {
        let rows = || -> gimli::Result<bool> {
            let unit = self.dwarf.unit(instance.header)?;
            let Some(program) = unit.line_program.clone() else { return Ok(false) };
            let mut rows = program.rows();
            while let Some((_, row)) = rows.next_row()? {
                let line = row.line().map_or(0, std::num::NonZero::get);
                if row.is_stmt()
                    && row.address() == address
                    && (row.file_index(), line) == (instance.declared.0, instance.declared.1)
                {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        rows().unwrap_or(false)
    }

    fn walk(
        &self,
        header: UnitHeader<Slice<'a>>,
        wanted: &HashMap<String, BTreeSet<String>>,
        found: &mut Vec<(String, Instance<'a>)>,
    ) -> gimli::Result<()> {
        let unit = self.dwarf.unit(header)?;
        let named = self.named(&unit, wanted)?;
        if named.is_empty() {
            return Ok(());
        }
        // The copies that the walk is inside of, with their depths; and the out-of-line function.
        let mut open: Vec<(isize, String, Instance<'a>)> = Vec::new();
        let mut around = (0, 0);
        let mut around_name = String::new();
        let mut frame_base = None;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            while let Some((_, name, instance)) = open.pop_if(|(at, ..)| *at >= depth) {
                found.push((name, instance));
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine => {
                    let is_inline = entry.tag() == gimli::DW_TAG_inlined_subroutine;
                    let place = self.place(&unit, entry)?;
                    // Declarations inside of functions are such entries, too.
                    if !is_inline && (place.is_some() || depth <= 1) {
                        around = place.as_ref().map_or((0, 0), |place| (place.entry, place.end()));
                        around_name = self.name(&unit, entry)?.unwrap_or_default();
                        frame_base = match entry.attr_value(gimli::DW_AT_frame_base) {
                            Some(AttributeValue::Exprloc(expression)) => Some(expression.0),
                            _ => None,
                        };
                    }
                    let origin = match entry.attr_value(gimli::DW_AT_abstract_origin) {
                        Some(AttributeValue::UnitRef(offset)) => offset,
                        _ => entry.offset(),
                    };
                    if let (Some(name), Some(place)) = (named.get(&origin), place) {
                        let number = |name| entry.attr(name).and_then(Attribute::udata_value).unwrap_or(0);
                        let instance = Instance {
                            header,
                            offset: entry.offset().to_debug_info_offset(&header).map_or(0, |offset| offset.0),
                            is_inline,
                            entry: place.entry,
                            first: place.first,
                            states_entry: place.states_entry,
                            ranges: place.ranges,
                            entry_view: number(gimli::DW_AT_GNU_entry_view),
                            call: (
                                file_index(entry, gimli::DW_AT_call_file),
                                number(gimli::DW_AT_call_line),
                                number(gimli::DW_AT_call_column),
                            ),
                            declared: declaration(&unit.entry(origin)?),
                            around,
                            around_name: around_name.clone(),
                            frame_base,
                            parameters: BTreeMap::new(),
                            inner: Vec::new(),
                        };
                        open.push((depth, name.clone(), instance));
                    }
                }
                tag @ (gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable) if !open.is_empty() => {
                    let Some(name) = self.name(&unit, entry)? else { continue };
                    for (at, function, instance) in &mut open {
                        if !wanted.get(function).is_some_and(|names| names.contains(&name)) {
                            continue;
                        }
                        let variable = self.variable(&unit, entry)?;
                        if *at + 1 == depth && tag == gimli::DW_TAG_formal_parameter {
                            instance.parameters.insert(name.clone(), variable);
                        } else {
                            instance.inner.push((name.clone(), variable));
                        }
                    }
                }
                _ => {}
            }
        }
        found.extend(open.into_iter().map(|(_, name, instance)| (name, instance)));
        Ok(())
    }

    /// The functions of the unit that are wanted, by the offsets of the entries that name them.
    fn named(
        &self,
        unit: &Unit<Slice<'a>>,
        wanted: &HashMap<String, BTreeSet<String>>,
    ) -> gimli::Result<HashMap<UnitOffset, String>> {
        let mut named = HashMap::new();
        // Definitions that refer to their declarations, as those of Rust do.
        let mut specified: Vec<(UnitOffset, UnitOffset)> = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                if let (gimli::DW_AT_specification, AttributeValue::UnitRef(declared)) =
                    (attribute.name(), attribute.value())
                {
                    specified.push((offset, declared));
                }
                if matches!(attribute.name(), gimli::DW_AT_name | gimli::DW_AT_linkage_name) {
                    let name = self.dwarf.attr_string(unit, attribute.value())?;
                    if let Some((name, _)) = wanted.get_key_value(name.to_string_lossy().as_ref()) {
                        named.insert(offset, name.clone());
                    }
                }
            }
        }
        for (definition, declaration) in specified {
            if let Some(name) = named.get(&declaration).cloned() {
                named.insert(definition, name);
            }
        }
        Ok(named)
    }

    /// The name of an entry or of the one that it is a copy of.
    fn name(&self, unit: &Unit<Slice<'a>>, entry: &Entry<'a>) -> gimli::Result<Option<String>> {
        if let Some(name) = entry.attr_value(gimli::DW_AT_name) {
            return Ok(Some(self.dwarf.attr_string(unit, name)?.to_string_lossy().into_owned()));
        }
        match entry.attr_value(gimli::DW_AT_abstract_origin) {
            Some(AttributeValue::UnitRef(origin)) if origin != entry.offset() => {
                let origin = unit.entry(origin)?;
                match origin.attr_value(gimli::DW_AT_name) {
                    Some(name) => Ok(Some(self.dwarf.attr_string(unit, name)?.to_string_lossy().into_owned())),
                    None => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// Where a copy or function is; `None` if it is not text.
    fn place(&self, unit: &Unit<Slice<'a>>, entry: &Entry<'a>) -> gimli::Result<Option<Place>> {
        let mut ranges = Vec::new();
        let mut iterator = self.dwarf.die_ranges(unit, entry)?;
        while let Some(range) = iterator.next()? {
            ranges.push(range);
        }
        let low = match entry.attr_value(gimli::DW_AT_low_pc) {
            Some(value) => self.dwarf.attr_address(unit, value)?,
            None => None,
        };
        let stated = match entry.attr_value(gimli::DW_AT_entry_pc) {
            None => None,
            Some(value) => match self.dwarf.attr_address(unit, value)? {
                Some(address) => Some(address),
                // DWARF 5, section 2.18: an offset from the base address, which is the low pc.
                None => value.udata_value().zip(low).map(|(offset, low)| low.wrapping_add(offset)),
            },
        };
        let Some(address) = stated.or(low).or_else(|| ranges.first().map(|range| range.begin)) else { return Ok(None) };
        let listed = match entry.attr_value(gimli::DW_AT_ranges) {
            Some(value) => self.first_listed(unit, value)?,
            None => None,
        };
        let first = low.or(listed).unwrap_or(address);
        Ok(Some(Place { entry: address, first, states_entry: stated.is_some(), ranges }))
    }

    /// Where the first range of a list begins, even if it is empty.
    fn first_listed(&self, unit: &Unit<Slice<'a>>, value: AttributeValue<Slice<'a>>) -> gimli::Result<Option<u64>> {
        let Some(offset) = self.dwarf.attr_ranges_offset(unit, value)? else { return Ok(None) };
        let mut base = unit.low_pc;
        let mut raw = self.dwarf.raw_ranges(unit, offset)?;
        while let Some(entry) = raw.next()? {
            match entry {
                RawRngListEntry::BaseAddress { addr } => base = addr,
                RawRngListEntry::BaseAddressx { addr } => base = self.dwarf.address(unit, addr)?,
                RawRngListEntry::AddressOrOffsetPair { begin, .. } | RawRngListEntry::OffsetPair { begin, .. } => {
                    return Ok(Some(base.wrapping_add(begin)));
                }
                RawRngListEntry::StartEnd { begin, .. } | RawRngListEntry::StartLength { begin, .. } => {
                    return Ok(Some(begin));
                }
                RawRngListEntry::StartxEndx { begin, .. } | RawRngListEntry::StartxLength { begin, .. } => {
                    return self.dwarf.address(unit, begin).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn variable(&self, unit: &Unit<Slice<'a>>, entry: &Entry<'a>) -> gimli::Result<Variable<'a>> {
        let constant = entry.attr_value(gimli::DW_AT_const_value).and_then(|value| constant(&value));
        let entries = match entry.attr_value(gimli::DW_AT_location) {
            None => Vec::new(),
            Some(AttributeValue::Exprloc(expression)) => {
                vec![Holding { begin: (0, 0), end: (u64::MAX, u64::MAX), expression: expression.0 }]
            }
            Some(list) => {
                let views = match entry.attr_value(gimli::DW_AT_GNU_locviews) {
                    Some(AttributeValue::SecOffset(offset)) => Some(offset),
                    Some(AttributeValue::LocationListsRef(offset)) => Some(offset.0),
                    _ => None,
                };
                self.list(unit, list, views)?
            }
        };
        Ok(Variable { constant, entries })
    }

    fn list(
        &self,
        unit: &Unit<Slice<'a>>,
        value: AttributeValue<Slice<'a>>,
        views: Option<usize>,
    ) -> gimli::Result<Vec<Holding<'a>>> {
        let Some(offset) = self.dwarf.attr_locations_offset(unit, value)? else { return Ok(Vec::new()) };
        let mut views = match views {
            Some(offset) => {
                let mut table = if unit.encoding().version >= 5 { self.lists.1 } else { self.lists.0 };
                table.skip(offset)?;
                Some(table)
            }
            None => None,
        };
        let mut base = unit.low_pc;
        let mut holdings = Vec::new();
        let mut raw = self.dwarf.raw_locations(unit, offset)?;
        let indexed = |index| self.dwarf.address(unit, index);
        while let Some(entry) = raw.next()? {
            let (begin, end, expression) = match entry {
                RawLocListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawLocListEntry::BaseAddressx { addr } => {
                    base = indexed(addr)?;
                    continue;
                }
                RawLocListEntry::AddressOrOffsetPair { begin, end, data }
                | RawLocListEntry::OffsetPair { begin, end, data } => {
                    (base.wrapping_add(begin), base.wrapping_add(end), data)
                }
                RawLocListEntry::StartEnd { begin, end, data } => (begin, end, data),
                RawLocListEntry::StartLength { begin, length, data } => (begin, begin.wrapping_add(length), data),
                RawLocListEntry::StartxEndx { begin, end, data } => (indexed(begin)?, indexed(end)?, data),
                RawLocListEntry::StartxLength { begin, length, data } => {
                    let begin = indexed(begin)?;
                    (begin, begin.wrapping_add(length), data)
                }
                RawLocListEntry::DefaultLocation { data } => (0, u64::MAX, data),
            };
            let (begin_view, end_view) = match &mut views {
                Some(table) => (table.read_uleb128()?, table.read_uleb128()?),
                None => (0, 0),
            };
            holdings.push(Holding { begin: (begin, begin_view), end: (end, end_view), expression: expression.0 });
        }
        Ok(holdings)
    }

    /// What DWARF says about a variable of `size` bytes at a point. `late`: whether an entry that begins at the address
    /// but after the view counts. `entry_values`: whether registers are taken to be as they were when the function
    /// around was entered.
    pub fn truth(
        &self,
        instance: &Instance<'a>,
        variable: &Variable<'a>,
        point: Point,
        size: u32,
        (late, entry_values): (bool, bool),
    ) -> Truth {
        if let Some(constant) = &variable.constant {
            let fill = if constant.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
            let bytes = constant.iter().copied().chain(std::iter::repeat(fill)).take(size as usize).map(Some).collect();
            return Truth::Known(vec![bytes; trial::STATES.len()]);
        }
        let entry = variable.holding(point).or_else(|| if late { variable.late(point) } else { None });
        let Some(entry) = entry else { return Truth::Nothing };
        if entry.expression.is_empty() {
            return Truth::Unknowable("the entry is empty");
        }
        let values = trial::STATES
            .iter()
            .map(|&state| self.evaluate(instance, entry.expression, point.0, size, (state, entry_values)));
        match values.collect() {
            Ok(values) => Truth::Known(values),
            Err(why) => Truth::Unknowable(why),
        }
    }

    pub(super) fn cfa(&self, address: u64) -> Option<Cfa> {
        self.frames.cursor().cfa_at(address)
    }

    /// The bytes of what an expression describes, in a state.
    fn evaluate(
        &self,
        instance: &Instance<'a>,
        expression: Slice<'a>,
        address: u64,
        size: u32,
        (state, entry_values): (u64, bool),
    ) -> Result<Vec<Option<u8>>, &'static str> {
        let malformed = |_| "the expression is malformed";
        let unit = self.dwarf.unit(instance.header).map_err(malformed)?;
        let base_type = |offset: UnitOffset| -> Result<ValueType, &'static str> {
            if offset.0 == 0 {
                return Ok(ValueType::Generic);
            }
            let entry = unit.entry(offset).map_err(malformed)?;
            ValueType::from_entry(&entry).map_err(malformed)?.ok_or("a base type is none")
        };
        let typed = |offset, bits: u64| Value::from_u64(base_type(offset)?, bits).map_err(malformed);
        let cfa = || {
            let cfa = self.cfa(address).ok_or("no call frame information")?;
            Ok(trial::register(state, cfa.register).wrapping_add_signed(cfa.offset))
        };
        let mut evaluation = Expression(expression).evaluation(unit.encoding());
        let mut step = evaluation.evaluate().map_err(malformed)?;
        loop {
            step = match step {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, base_type } => {
                    evaluation.resume_with_register(typed(base_type, trial::register(state, register.0))?)
                }
                EvaluationResult::RequiresMemory { address, size, base_type, .. } => {
                    let mut bytes = [0; 8];
                    let wanted = bytes.get_mut(..usize::from(size)).ok_or("a load is too wide")?;
                    trial::memory(state, address, wanted);
                    evaluation.resume_with_memory(typed(base_type, u64::from_le_bytes(bytes))?)
                }
                EvaluationResult::RequiresFrameBase => {
                    let base = instance.frame_base.ok_or("no frame base")?;
                    let base = match base.slice() {
                        [op] if *op == gimli::DW_OP_call_frame_cfa.0 => cfa()?,
                        [op] if (gimli::DW_OP_reg0.0..=gimli::DW_OP_reg31.0).contains(op) => {
                            trial::register(state, u16::from(op - gimli::DW_OP_reg0.0))
                        }
                        _ => return Err("a frame base of another kind"),
                    };
                    evaluation.resume_with_frame_base(base)
                }
                EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(cfa()?),
                EvaluationResult::RequiresBaseType(offset) => evaluation.resume_with_base_type(base_type(offset)?),
                EvaluationResult::RequiresRelocatedAddress(address) => {
                    evaluation.resume_with_relocated_address(address)
                }
                EvaluationResult::RequiresIndexedAddress { index, .. } => {
                    let address = self.dwarf.address(&unit, index).map_err(malformed)?;
                    evaluation.resume_with_indexed_address(address)
                }
                EvaluationResult::RequiresEntryValue(inner) => {
                    if !entry_values {
                        return Err("a value at the entry of the function around");
                    }
                    let bytes = self.evaluate(instance, inner.0, address, 8, (state, true))?;
                    let bytes: Option<Vec<u8>> = bytes.into_iter().collect();
                    let bytes =
                        bytes.and_then(|bytes| bytes.try_into().ok()).ok_or("an entry value without a value")?;
                    evaluation.resume_with_entry_value(Value::Generic(u64::from_le_bytes(bytes)))
                }
                _ => return Err("the expression asks for what a probe does not have"),
            }
            .map_err(malformed)?;
        }
        let mut bytes = Vec::new();
        for piece in evaluation.as_result() {
            let wanted = match piece.size_in_bits {
                Some(bits) if bits % 8 == 0 => (bits / 8) as usize,
                Some(_) => return Err("a piece that does not consist of whole bytes"),
                None => size as usize,
            };
            if piece.bit_offset.is_some_and(|offset| offset != 0) || wanted > size as usize {
                return Err("a piece that does not consist of whole bytes");
            }
            let word = |word: u64| {
                let bytes = word.to_le_bytes().into_iter().map(Some);
                bytes.chain(std::iter::repeat(None)).take(wanted).collect::<Vec<_>>()
            };
            bytes.extend(match piece.location {
                gimli::Location::Register { register } => word(trial::register(state, register.0)),
                gimli::Location::Value { value } => word(value.to_u64(u64::MAX).map_err(malformed)?),
                gimli::Location::Address { address } => {
                    let mut there = vec![0; wanted];
                    trial::memory(state, address, &mut there);
                    there.into_iter().map(Some).collect()
                }
                gimli::Location::Bytes { value } => {
                    value.slice().iter().copied().map(Some).chain(std::iter::repeat(None)).take(wanted).collect()
                }
                gimli::Location::ImplicitPointer { .. } => return Err("a pointer to an object that exists nowhere"),
                gimli::Location::Empty => vec![None; wanted],
            });
        }
        bytes.truncate(size as usize);
        if bytes.iter().all(Option::is_none) { Err("no byte of it exists") } else { Ok(bytes) }
    }
}

/// The file of an attribute, which gimli gives as an index.
fn file_index(entry: &Entry<'_>, name: gimli::DwAt) -> u64 {
    match entry.attr_value(name) {
        Some(AttributeValue::FileIndex(index)) => index,
        Some(value) => value.udata_value().unwrap_or(0),
        None => 0,
    }
}

fn declaration(entry: &Entry<'_>) -> SourceIndex {
    let number = |name| entry.attr(name).and_then(Attribute::udata_value).unwrap_or(0);
    (file_index(entry, gimli::DW_AT_decl_file), number(gimli::DW_AT_decl_line), number(gimli::DW_AT_decl_column))
}

/// The bytes of a constant, as wide as its form.
fn constant(value: &AttributeValue<Slice<'_>>) -> Option<Vec<u8>> {
    Some(match value {
        AttributeValue::Data1(value) => vec![*value],
        AttributeValue::Data2(value) => value.to_le_bytes().to_vec(),
        AttributeValue::Data4(value) => value.to_le_bytes().to_vec(),
        AttributeValue::Data8(value) | AttributeValue::Udata(value) => value.to_le_bytes().to_vec(),
        AttributeValue::Sdata(value) => value.to_le_bytes().to_vec(),
        AttributeValue::Block(bytes) => bytes.slice().to_vec(),
        _ => return None,
    })
}
