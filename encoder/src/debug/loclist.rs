// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Location lists, with GCC's location views.
//!
//! A location list says where a variable is, by ranges of addresses. GCC numbers the *views* of one address: each
//! step of the source that produced no instruction of its own is a view, and a range runs from (address, view) to
//! (address, view). Readers that ignore views see many ranges of zero width, `[pc, pc)`, and throw them away; they
//! are how GCC describes a parameter that the body, or the register allocator, is about to replace, and for a fifth
//! of all arguments at inlined copies they are the only thing that holds where the copy is entered. No instruction
//! runs between two views of one address, so what holds at the entry view is true of the machine when a probe at
//! that address is hit.
//!
//! Views are written in one of two ways: `DW_AT_GNU_locviews` refers to a table of (begin view, end view) pairs, one
//! per bounded entry of the list, in order; or a `DW_LLE_GNU_view_pair` precedes an entry inside the list. A list
//! without views is one where every view is 0, and the rules below come down to plain covering.
//!
//! The lists are read by hand: gimli's iterators drop the entries of zero width and stop at view pairs.

use crate::debug::slice::Slice;
use gimli::{DebugAddrIndex, Reader, Unit};
use std::ops::Range;

/// `DW_LLE_GNU_view_pair`, GCC's extension (include/dwarf2.h in GCC).
const DW_LLE_GNU_VIEW_PAIR: u8 = 0x09;

/// More entries than any list has; a list that claims more is malformed.
const MAX_ENTRIES: usize = 1 << 16;

/// An address and a view of it: the order of steps of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) address: u64,
    pub(crate) view: u32,
}

/// One bounded entry of a location list. `begin` and `end` may have the same address and differ only in their views.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListEntry<'a> {
    pub(crate) begin: Point,
    pub(crate) end: Point,
    pub(crate) expression: Slice<'a>,
}

impl ListEntry<'_> {
    /// Whether the entry covers an address in plain terms, whatever the view.
    pub(crate) fn covers(&self, address: u64) -> bool {
        self.begin.address <= address && address < self.end.address
    }

    /// Whether the entry holds at a view of an address.
    pub(crate) fn holds_at(&self, point: Point) -> bool {
        self.begin <= point && point < self.end
    }

    /// Whether the compiler says that there is no value here: an empty expression.
    pub(crate) fn is_empty(&self) -> bool {
        self.expression.is_empty()
    }
}

/// What a list says about a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The entry with this index holds at the point.
    Holds(usize),
    /// No entry holds at the point; the one with this index begins at the same address, at a later view.
    Late(usize),
    /// Nothing.
    Nothing,
}

/// Chooses the entry that tells a variable's value at a point.
///
/// An entry that holds at the point is chosen first. If several hold, the one that begins last is chosen. If none
/// holds, the choice is among those that begin at the same address at a later view: the one that begins first is the
/// nearest to the point. Entries with an empty expression never count as late ones.
pub(crate) fn choose(entries: &[ListEntry<'_>], point: Point) -> Choice {
    let mut holds: Option<usize> = None;
    let mut late: Option<usize> = None;
    for (index, entry) in entries.iter().enumerate() {
        if entry.holds_at(point) {
            if holds.is_none_or(|best| entries[best].begin <= entry.begin) {
                holds = Some(index);
            }
        } else if entry.begin.address == point.address
            && entry.begin > point
            && entry.begin < entry.end
            && !entry.is_empty()
            && late.is_none_or(|best| entry.begin < entries[best].begin)
        {
            late = Some(index);
        }
    }
    match (holds, late) {
        (Some(index), _) => Choice::Holds(index),
        (None, Some(index)) => Choice::Late(index),
        (None, None) => Choice::Nothing,
    }
}

/// Reads the list at `offset` of `.debug_loclists` (`.debug_loc` before DWARF 5) into `entries`, in list order.
///
/// Entries of discarded text are left out. Entries with an end before their begin are compiler bugs, and are left out,
/// too.
pub(crate) fn read<'a>(
    dwarf: &gimli::Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    sections: &ListSections<'a>,
    offset: usize,
    views: Option<usize>,
    entries: &mut Vec<ListEntry<'a>>,
) -> gimli::Result<()> {
    entries.clear();
    let encoding = unit.encoding();
    let section = if encoding.version >= 5 { sections.loclists } else { sections.loc };
    let mut list = section;
    list.skip(offset)?;
    let mut views = match views {
        Some(views) => {
            let mut table = section;
            table.skip(views)?;
            Some(table)
        }
        None => None,
    };
    // DWARF 5 section 7.7.3: where no base address entry precedes, the base is the unit's.
    let mut reader = List { dwarf, unit, list, base: unit.low_pc, pending_views: None };
    for _ in 0..MAX_ENTRIES {
        let (range, expression) =
            match if encoding.version >= 5 { reader.of_version_5() } else { reader.of_version_4() }? {
                Next::End => return Ok(()),
                Next::Nothing => continue,
                Next::Entry(range, expression) => (range, expression),
            };
        let (begin_view, end_view) = match (&mut views, reader.pending_views.take()) {
            (_, Some(pair)) => pair,
            (Some(table), None) => (view(table.read_uleb128()?), view(table.read_uleb128()?)),
            (None, None) => (0, 0),
        };
        if range.start > range.end || is_discarded(range.start) {
            continue;
        }
        entries.push(ListEntry {
            begin: Point { address: range.start, view: begin_view },
            end: Point { address: range.end, view: end_view },
            expression,
        });
    }
    Err(gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(0)))
}

/// What comes next in a list.
enum Next<'a> {
    End,
    /// A base address, or views: these are of the next entry.
    Nothing,
    Entry(Range<u64>, Slice<'a>),
}

/// The list that is read.
struct List<'r, 'a> {
    dwarf: &'r gimli::Dwarf<Slice<'a>>,
    unit: &'r Unit<Slice<'a>>,
    list: Slice<'a>,
    base: u64,
    pending_views: Option<(u32, u32)>,
}

impl<'a> List<'_, 'a> {
    /// Reads an entry of `.debug_loclists`.
    fn of_version_5(&mut self) -> gimli::Result<Next<'a>> {
        let size = self.unit.encoding().address_size;
        let range = match self.list.read_u8()? {
            0x00 => return Ok(Next::End),
            0x01 => {
                self.base = self.indexed()?;
                return Ok(Next::Nothing);
            }
            0x02 => self.indexed()?..self.indexed()?,
            0x03 => {
                let begin = self.indexed()?;
                begin..begin.wrapping_add(self.list.read_uleb128()?)
            }
            0x04 => {
                let (base, begin, end) = (self.base, self.list.read_uleb128()?, self.list.read_uleb128()?);
                if is_discarded(base) { base..base } else { base.wrapping_add(begin)..base.wrapping_add(end) }
            }
            // DW_LLE_default_location: wherever no other entry holds. No compiler writes it for a parameter.
            0x05 => 0..u64::MAX,
            0x06 => {
                self.base = self.list.read_address(size)?;
                return Ok(Next::Nothing);
            }
            0x07 => self.list.read_address(size)?..self.list.read_address(size)?,
            0x08 => {
                let begin = self.list.read_address(size)?;
                begin..begin.wrapping_add(self.list.read_uleb128()?)
            }
            DW_LLE_GNU_VIEW_PAIR => {
                self.pending_views = Some((view(self.list.read_uleb128()?), view(self.list.read_uleb128()?)));
                return Ok(Next::Nothing);
            }
            other => return Err(gimli::Error::UnknownLocListsEntry(gimli::DwLle(other))),
        };
        let length = usize::try_from(self.list.read_uleb128()?).map_err(|_| gimli::Error::UnsupportedOffset)?;
        Ok(Next::Entry(range, self.list.split(length)?))
    }

    /// Reads an entry of `.debug_loc`.
    fn of_version_4(&mut self) -> gimli::Result<Next<'a>> {
        let size = self.unit.encoding().address_size;
        let begin = self.list.read_address(size)?;
        let end = self.list.read_address(size)?;
        if begin == 0 && end == 0 {
            return Ok(Next::End);
        }
        if begin == u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8))) {
            self.base = end;
            return Ok(Next::Nothing);
        }
        let length = usize::from(self.list.read_u16()?);
        let range = self.base.wrapping_add(begin)..self.base.wrapping_add(end);
        Ok(Next::Entry(range, self.list.split(length)?))
    }

    /// Reads an index into `.debug_addr`, and the address there.
    fn indexed(&mut self) -> gimli::Result<u64> {
        let index = usize::try_from(self.list.read_uleb128()?).map_err(|_| gimli::Error::UnsupportedOffset)?;
        self.dwarf.address(self.unit, DebugAddrIndex(index))
    }
}

/// The two sections that hold location lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListSections<'a> {
    pub(crate) loc: Slice<'a>,
    pub(crate) loclists: Slice<'a>,
}

/// A view number; no address has so many that saturation could confuse two.
fn view(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Linkers overwrite addresses of text that they discard with 0, 1, -1 or -2.
fn is_discarded(address: u64) -> bool {
    address >= u64::MAX - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(begin: (u64, u32), end: (u64, u32), expression: &'static [u8]) -> ListEntry<'static> {
        ListEntry {
            begin: Point { address: begin.0, view: begin.1 },
            end: Point { address: end.0, view: end.1 },
            expression: Slice::new(expression, gimli::LittleEndian),
        }
    }

    /// A list that is read through a unit made for it: version, low pc, then the section with the list at `offset`.
    fn read_list(
        version: u16,
        list: &[u8],
        offset: usize,
        views: Option<usize>,
    ) -> gimli::Result<Vec<(Point, Point, Vec<u8>)>> {
        let abbreviations = [1, 0x11, 0, 0x11, 0x01, 0, 0, 0];
        let mut info = Vec::new();
        let body: Vec<u8> = if version >= 5 {
            [&version.to_le_bytes()[..], &[1, 8], &[0; 4]].concat()
        } else {
            [&version.to_le_bytes()[..], &[0; 4], &[8]].concat()
        };
        let unit = [&body[..], &[1], &0x1000u64.to_le_bytes()].concat();
        info.extend((unit.len() as u32).to_le_bytes());
        info.extend(unit);
        let slice = |bytes| Slice::new(bytes, gimli::LittleEndian);
        let dwarf = gimli::Dwarf {
            debug_info: slice(&info[..]).into(),
            debug_abbrev: slice(&abbreviations[..]).into(),
            ..gimli::Dwarf::default()
        };
        let header = dwarf.units().next()?.expect("one unit");
        let unit = dwarf.unit(header)?;
        let sections = ListSections { loc: slice(list), loclists: slice(list) };
        let mut entries = Vec::new();
        read(&dwarf, &unit, &sections, offset, views, &mut entries)?;
        Ok(entries.iter().map(|e| (e.begin, e.end, e.expression.slice().to_vec())).collect())
    }

    #[test]
    fn lists_of_dwarf_5_with_a_table_of_views() {
        let views = [0, 2, 2, 0];
        let list = [
            &views[..],
            &[0x04, 0x10, 0x10, 1, 0x55], // offset_pair, of zero width
            &[0x04, 0x10, 0x20, 1, 0x53], // offset_pair
            &[0x00],                      // end_of_list
        ]
        .concat();
        let read = read_list(5, &list, 4, Some(0)).unwrap();
        assert_eq!(read, [(at(0x1010, 0), at(0x1010, 2), vec![0x55]), (at(0x1010, 2), at(0x1020, 0), vec![0x53]),]);
        assert_eq!(read_list(5, &list, 4, None).unwrap()[0].1, at(0x1010, 0), "without the table all views are 0");
    }

    #[test]
    fn lists_of_dwarf_5_with_views_inside() {
        let mut list = vec![0x06]; // base_address
        list.extend(0x2000u64.to_le_bytes());
        list.extend([0x09, 3, 4, 0x04, 8, 8, 1, 0x55]); // view_pair, offset_pair
        list.push(0x08); // start_length
        list.extend(0x3000u64.to_le_bytes());
        list.extend([0x10, 1, 0x50, 0]);
        let read = read_list(5, &list, 0, None).unwrap();
        assert_eq!(read, [(at(0x2008, 3), at(0x2008, 4), vec![0x55]), (at(0x3000, 0), at(0x3010, 0), vec![0x50]),]);
    }

    #[test]
    fn lists_of_dwarf_4() {
        let mut list = Vec::new();
        let mut pair = |begin: u64, end: u64, expression: Option<&[u8]>| {
            list.extend(begin.to_le_bytes());
            list.extend(end.to_le_bytes());
            if let Some(expression) = expression {
                list.extend((expression.len() as u16).to_le_bytes());
                list.extend(expression);
            }
        };
        pair(0x10, 0x20, Some(&[0x55]));
        pair(u64::MAX, 0x8000, None); // base address selection
        pair(0x10, 0x10, Some(&[0x53]));
        pair(0, 0, None);
        let read = read_list(4, &list, 0, None).unwrap();
        assert_eq!(read, [(at(0x1010, 0), at(0x1020, 0), vec![0x55]), (at(0x8010, 0), at(0x8010, 0), vec![0x53]),]);
    }

    #[test]
    fn broken_lists_are_errors() {
        assert!(read_list(5, &[0x04, 0x10], 0, None).is_err(), "cut off");
        assert!(
            read_list(5, &[0x04, 0x10, 0x20, 9, 0x55, 0], 0, None).is_err(),
            "an expression longer than the section"
        );
        assert!(read_list(5, &[0x33, 0], 0, None).is_err(), "an unknown kind of entry");
        assert!(read_list(5, &[0], 7, None).is_err(), "beyond the section");
        let backwards = [0x04, 0x20, 0x10, 1, 0x55, 0];
        assert!(read_list(5, &backwards, 0, None).unwrap().is_empty());
    }

    fn at(address: u64, view: u32) -> Point {
        Point { address, view }
    }

    #[test]
    fn without_views_covering_decides() {
        let list = [entry((0x10, 0), (0x20, 0), &[0x50]), entry((0x20, 0), (0x30, 0), &[0x51])];
        assert_eq!(choose(&list, at(0x10, 0)), Choice::Holds(0));
        assert_eq!(choose(&list, at(0x1f, 0)), Choice::Holds(0));
        assert_eq!(choose(&list, at(0x20, 0)), Choice::Holds(1));
        assert_eq!(choose(&list, at(0x30, 0)), Choice::Nothing);
        assert_eq!(choose(&list, at(0xf, 0)), Choice::Nothing);
    }

    #[test]
    fn an_entry_of_zero_width_holds_at_its_views_only() {
        let list = [entry((0x10, 1), (0x10, 3), &[0x50]), entry((0x10, 3), (0x20, 0), &[0x51])];
        assert_eq!(choose(&list, at(0x10, 1)), Choice::Holds(0));
        assert_eq!(choose(&list, at(0x10, 2)), Choice::Holds(0));
        assert_eq!(choose(&list, at(0x10, 3)), Choice::Holds(1));
        assert_eq!(choose(&list, at(0x10, 0)), Choice::Late(0), "the nearest of the later ones");
    }

    #[test]
    fn late_entries_count_only_at_the_same_address() {
        let list = [entry((0x10, 2), (0x20, 0), &[0x50])];
        assert_eq!(choose(&list, at(0x10, 1)), Choice::Late(0));
        assert_eq!(choose(&list, at(0xf, 1)), Choice::Nothing);
        let empty = [entry((0x10, 2), (0x20, 0), &[])];
        assert_eq!(choose(&empty, at(0x10, 1)), Choice::Nothing);
    }

    #[test]
    fn of_several_that_hold_the_last_to_begin_wins() {
        let list = [entry((0x8, 0), (0x20, 0), &[0x50]), entry((0x10, 1), (0x18, 0), &[0x51])];
        assert_eq!(choose(&list, at(0x10, 1)), Choice::Holds(1));
        assert_eq!(choose(&list, at(0x10, 0)), Choice::Holds(0));
    }
}
