// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Past the attributes of a debug entry.

use crate::debug::slice::Slice;
use gimli::{AttributeSpecification, EntriesRaw};

/// Skips the attributes of an entry, as [`EntriesRaw::skip_attributes`] does.
///
/// That adds up the lengths of attributes, and overflows if one says that it is as long as the address space. So each
/// one that says its length itself is the last of those that are skipped at once.
pub(crate) fn skip_attributes<'a>(
    entries: &mut EntriesRaw<'_, Slice<'a>>,
    attributes: &[AttributeSpecification],
) -> gimli::Result<()> {
    let says_its_length = |attribute: &AttributeSpecification| {
        matches!(attribute.form(), gimli::DW_FORM_block | gimli::DW_FORM_exprloc | gimli::DW_FORM_indirect)
    };
    attributes.split_inclusive(says_its_length).try_for_each(|some| entries.skip_attributes(some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_all_memory_is_an_error() {
        // An entry with an expression and a byte after it; DW_TAG_compile_unit, no children, DW_AT_location,
        // DW_AT_inline.
        let abbreviations = [1, 0x11, 0, 0x02, 0x18, 0x20, 0x0b, 0, 0, 0];
        let expression = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let body = [&5u16.to_le_bytes()[..], &[1, 8, 0, 0, 0, 0, 1], &expression, &[1]].concat();
        let info = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        let slice = |bytes| Slice::new(bytes, gimli::LittleEndian);
        let dwarf = gimli::Dwarf {
            debug_info: slice(&info[..]).into(),
            debug_abbrev: slice(&abbreviations[..]).into(),
            ..gimli::Dwarf::default()
        };
        let header = dwarf.units().next().unwrap().expect("one unit");
        let abbreviations = dwarf.abbreviations(&header).unwrap();
        let mut entries = header.entries_raw(&abbreviations, None).unwrap();
        let abbreviation = entries.read_abbreviation().unwrap().expect("an entry");
        assert!(skip_attributes(&mut entries, abbreviation.attributes()).is_err());
    }
}
