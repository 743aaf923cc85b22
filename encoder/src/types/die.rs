// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Reading single debugging information entries, of this and of other units, by their offset in `.debug_info`.

use gimli::{AttributeValue, Dwarf, EntriesRaw, Unit, UnitHeader, UnitOffset, UnitType};
use hashbrown::HashMap;
use std::cell::{OnceCell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::debug::skip::skip_attributes;
use crate::debug::slice::Slice;

/// What is read of an entry that describes a type or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Die<'a> {
    /// Offset in `.debug_info`.
    pub(super) offset: usize,
    pub(super) tag: gimli::DwTag,
    pub(super) name: Option<Slice<'a>>,
    /// Offset of the type that it refers to.
    pub(super) ty: Option<usize>,
    pub(super) byte_size: Option<u64>,
    pub(super) bit_size: Option<u64>,
    pub(super) encoding: Option<gimli::DwAte>,
    /// What the source asks for by `aligned`.
    pub(super) alignment: Option<u64>,
    pub(super) is_declaration: bool,
    pub(super) has_children: bool,
    /// Byte offset of a member.
    pub(super) location: Option<u64>,
    /// Bit offset of a member, from the start of the whole.
    pub(super) data_bit_offset: Option<u64>,
    /// Bit offset of a member, from the most significant bit of its storage, as DWARF 3 has it.
    pub(super) bit_offset: Option<u64>,
    /// Elements of a dimension of an array.
    pub(super) count: Option<u64>,
    /// Value of an enumerator, or of an annotation.
    pub(super) value: Option<AttributeValue<Slice<'a>>>,
}

/// A unit: the one at hand, or another that it refers to.
pub(super) enum UnitHandle<'d, 'a> {
    Own(&'d Unit<Slice<'a>>),
    Foreign(Arc<Unit<Slice<'a>>>),
}

impl<'a> Deref for UnitHandle<'_, 'a> {
    type Target = Unit<Slice<'a>>;
    fn deref(&self) -> &Unit<Slice<'a>> {
        match self {
            UnitHandle::Own(unit) => unit,
            UnitHandle::Foreign(unit) => unit,
        }
    }
}

/// The units that types are read from.
pub(super) struct Units<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    headers: &'d [UnitHeader<Slice<'a>>],
    own: &'d Unit<Slice<'a>>,
    foreign: RefCell<HashMap<usize, Arc<Unit<Slice<'a>>>>>,
    /// The type of each type unit, by signature.
    signatures: OnceCell<HashMap<u64, usize>>,
    /// Entries that comparisons have read: one with several candidates reads the same entries for each.
    known: RefCell<HashMap<usize, Option<Rc<Die<'a>>>>>,
    known_children: RefCell<HashMap<usize, Rc<Children<'a>>>>,
}

/// The children of an entry.
struct Children<'a> {
    dies: Vec<Die<'a>>,
    /// Whether none is malformed. They end before the first that is.
    whole: bool,
}

fn start_of(header: &UnitHeader<Slice<'_>>) -> usize {
    header.debug_info_offset().map_or(usize::MAX, |offset| offset.0)
}

impl<'d, 'a> Units<'d, 'a> {
    pub(super) fn new(
        dwarf: &'d Dwarf<Slice<'a>>,
        headers: &'d [UnitHeader<Slice<'a>>],
        own: &'d Unit<Slice<'a>>,
    ) -> Units<'d, 'a> {
        Units {
            dwarf,
            headers,
            own,
            foreign: RefCell::default(),
            signatures: OnceCell::new(),
            known: RefCell::default(),
            known_children: RefCell::default(),
        }
    }

    /// The unit that holds an offset, and the offset in it.
    fn unit_at(&self, offset: usize) -> Option<(UnitHandle<'d, 'a>, UnitOffset)> {
        let inside = |header: &UnitHeader<Slice<'a>>| {
            let at = offset.checked_sub(start_of(header))?;
            (at < header.length_including_self()).then_some(UnitOffset(at))
        };
        if let Some(at) = inside(&self.own.header) {
            return Some((UnitHandle::Own(self.own), at));
        }
        let index = self.headers.partition_point(|header| start_of(header) <= offset).checked_sub(1)?;
        let header = self.headers.get(index)?;
        let at = inside(header)?;
        let mut foreign = self.foreign.borrow_mut();
        let unit = match foreign.get(&index) {
            Some(unit) => Arc::clone(unit),
            None => {
                let unit = Arc::new(self.dwarf.unit(*header).ok()?);
                foreign.insert(index, Arc::clone(&unit));
                unit
            }
        };
        Some((UnitHandle::Foreign(unit), at))
    }

    fn signature(&self, signature: u64) -> Option<usize> {
        let signatures = self.signatures.get_or_init(|| {
            let types = self.headers.iter().filter_map(|header| match header.type_() {
                UnitType::Type { type_signature, type_offset } => {
                    Some((type_signature.0, start_of(header).checked_add(type_offset.0)?))
                }
                _ => None,
            });
            types.collect()
        });
        signatures.get(&signature).copied()
    }

    /// The language of the unit at hand.
    pub(super) fn language(&self) -> Option<gimli::DwLang> {
        let mut entries = self.own.entries_raw(None).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let mut language = None;
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification).ok()?;
            if let (gimli::DW_AT_language, AttributeValue::Language(value)) = (attribute.name(), attribute.value()) {
                language = Some(value);
            }
        }
        language
    }

    /// The entry at an offset, `None` if there is none or it is malformed.
    pub(super) fn read(&self, offset: usize) -> Option<Die<'a>> {
        let (unit, at) = self.unit_at(offset)?;
        let mut entries = unit.entries_raw(Some(at)).ok()?;
        self.next(&unit, &mut entries, offset)?
    }

    /// The same, remembered.
    pub(super) fn known(&self, offset: usize) -> Option<Rc<Die<'a>>> {
        if let Some(known) = self.known.borrow().get(&offset) {
            return known.clone();
        }
        let read = self.read(offset).map(Rc::new);
        self.known.borrow_mut().insert(offset, read.clone());
        read
    }

    /// As [`Units::children`], remembered.
    pub(super) fn known_children(&self, offset: usize, mut each: impl FnMut(&Die<'a>) -> bool) -> Option<()> {
        let known = self.known_children.borrow().get(&offset).map(Rc::clone);
        let children = known.unwrap_or_else(|| {
            let mut dies = Vec::new();
            let read = self.children(offset, |die| {
                dies.push(die);
                true
            });
            let children = Rc::new(Children { dies, whole: read.is_some() });
            self.known_children.borrow_mut().insert(offset, Rc::clone(&children));
            children
        });
        match children.dies.iter().all(&mut each) {
            true => children.whole.then_some(()),
            false => Some(()),
        }
    }

    /// Calls a function with each child of an entry until it returns `false`. `None` if an entry is malformed.
    pub(super) fn children(&self, offset: usize, mut each: impl FnMut(Die<'a>) -> bool) -> Option<()> {
        let (unit, at) = self.unit_at(offset)?;
        let start = offset - at.0;
        let mut entries = unit.entries_raw(Some(at)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        skip_attributes(&mut entries, abbreviation.attributes()).ok()?;
        let parent = 0;
        while !entries.is_empty() && entries.next_depth() > parent {
            if entries.next_depth() > parent + 1 {
                if let Some(abbreviation) = entries.read_abbreviation().ok()? {
                    skip_attributes(&mut entries, abbreviation.attributes()).ok()?;
                }
                continue;
            }
            let child = start + entries.next_offset().0;
            if let Some(die) = self.next(&unit, &mut entries, child)?
                && !each(die)
            {
                return Some(());
            }
        }
        Some(())
    }

    /// Reads the next entry: `Some(None)` for the end of a list of children.
    fn next(
        &self,
        unit: &Unit<Slice<'a>>,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        offset: usize,
    ) -> Option<Option<Die<'a>>> {
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            return Some(None);
        };
        let mut die = Die {
            offset,
            tag: abbreviation.tag(),
            name: None,
            ty: None,
            byte_size: None,
            bit_size: None,
            encoding: None,
            alignment: None,
            is_declaration: false,
            has_children: abbreviation.has_children(),
            location: None,
            data_bit_offset: None,
            bit_offset: None,
            count: None,
            value: None,
        };
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification).ok()?;
            match attribute.name() {
                gimli::DW_AT_name => die.name = self.dwarf.attr_string(unit, attribute.value()).ok(),
                gimli::DW_AT_type => die.ty = self.reference(unit, attribute.value()),
                gimli::DW_AT_byte_size => die.byte_size = attribute.udata_value(),
                gimli::DW_AT_bit_size => die.bit_size = attribute.udata_value(),
                gimli::DW_AT_alignment => die.alignment = attribute.udata_value(),
                gimli::DW_AT_encoding => {
                    if let AttributeValue::Encoding(encoding) = attribute.value() {
                        die.encoding = Some(encoding);
                    }
                }
                gimli::DW_AT_declaration => die.is_declaration = attribute.value() == AttributeValue::Flag(true),
                gimli::DW_AT_data_member_location => die.location = attribute.udata_value(),
                gimli::DW_AT_data_bit_offset => die.data_bit_offset = attribute.udata_value(),
                gimli::DW_AT_bit_offset => die.bit_offset = attribute.udata_value(),
                gimli::DW_AT_count => die.count = attribute.udata_value(),
                // An upper bound of -1, however wide, is an array without elements.
                gimli::DW_AT_upper_bound => {
                    let bound = attribute.sdata_value().and_then(|bound| u64::try_from(bound.wrapping_add(1)).ok());
                    die.count = die.count.or(bound);
                }
                gimli::DW_AT_const_value => die.value = Some(attribute.value()),
                _ => {}
            }
        }
        Some(Some(die))
    }

    /// The offset in `.debug_info` of the entry that an attribute refers to.
    fn reference(&self, unit: &Unit<Slice<'a>>, value: AttributeValue<Slice<'a>>) -> Option<usize> {
        match value {
            AttributeValue::UnitRef(offset) => start_of(&unit.header).checked_add(offset.0),
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            AttributeValue::DebugTypesRef(signature) => self.signature(signature.0),
            _ => None,
        }
    }

    /// The text of an attribute that an annotation has as its value.
    pub(super) fn text(&self, value: AttributeValue<Slice<'a>>) -> Option<Slice<'a>> {
        self.dwarf.attr_string(self.own, value).ok()
    }
}

impl<'a> Die<'a> {
    /// The name, empty if there is none.
    pub(super) fn name(&self) -> &'a [u8] {
        self.name.map_or(&[], |name| name.slice())
    }

    /// Bit offset and bits of a member; 0 bits for one that is not a bitfield.
    pub(super) fn member_bits(&self) -> Option<(u64, u64)> {
        let bytes = self.location.unwrap_or(0).checked_mul(8)?;
        let bits = self.bit_size.unwrap_or(0);
        let offset = match (self.data_bit_offset, self.bit_offset) {
            (Some(offset), _) => offset,
            // Counted from the most significant bit of `byte_size` bytes of storage.
            (None, Some(from_top)) => {
                let storage = self.byte_size?.checked_mul(8)?;
                bytes.checked_add(storage.checked_sub(from_top)?.checked_sub(bits)?)?
            }
            (None, None) => bytes,
        };
        Some((offset, bits))
    }

    /// The value of an enumerator. Data forms have no sign of their own: `signed` tells.
    pub(super) fn enumerator(&self, signed: bool) -> Option<i64> {
        Some(match self.value? {
            AttributeValue::Data1(value) if signed => i64::from(value as i8),
            AttributeValue::Data2(value) if signed => i64::from(value as i16),
            AttributeValue::Data4(value) if signed => i64::from(value as i32),
            AttributeValue::Sdata(value) => value,
            other => other.udata_value()? as i64,
        })
    }
}
