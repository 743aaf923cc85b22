// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The DWARF of an image: its sections, its units, and references between them.

use crate::debug::compiler::{CLANG, Compiler, clang_version};
use crate::debug::loclist::ListSections;
use crate::debug::slice::Slice;
use crate::elf::image::{Image, ImageError};
use crate::error::EncodeError;
use gimli::{AttributeValue, DwarfSections, LittleEndian, Section as _, Unit, UnitHeader};
use std::borrow::Cow;
use std::ops::Range;

/// The bytes of the debug sections, decompressed and relocated.
pub(crate) struct DebugSections<'a> {
    sections: DwarfSections<Cow<'a, [u8]>>,
    loc: Cow<'a, [u8]>,
    loclists: Cow<'a, [u8]>,
}

impl<'a> DebugSections<'a> {
    /// Takes the debug sections of an image.
    pub(crate) fn load(image: &Image<'a>) -> Result<DebugSections<'a>, ImageError> {
        Ok(DebugSections {
            sections: DwarfSections::load(|id| image.debug_section(id.name()))?,
            loc: image.debug_section(".debug_loc")?,
            loclists: image.debug_section(".debug_loclists")?,
        })
    }
}

/// The DWARF of an image and the headers of its units, in order of their offsets.
pub(crate) struct DebugInfo<'a> {
    pub(crate) dwarf: gimli::Dwarf<Slice<'a>>,
    pub(crate) lists: ListSections<'a>,
    pub(crate) headers: Vec<UnitHeader<Slice<'a>>>,
}

impl<'a> DebugInfo<'a> {
    /// Splits `.debug_info` into units.
    pub(crate) fn new(sections: &'a DebugSections<'_>) -> Result<DebugInfo<'a>, EncodeError> {
        let dwarf = sections.sections.borrow(|bytes| Slice::new(bytes, LittleEndian));
        let lists = ListSections {
            loc: Slice::new(&sections.loc, LittleEndian),
            loclists: Slice::new(&sections.loclists, LittleEndian),
        };
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        let mut end = 0usize;
        loop {
            let unit = units.next().map_err(|source| EncodeError::Dwarf {
                section: ".debug_info",
                offset: end as u64,
                unit: format!("number {}", headers.len() + 1),
                source,
            })?;
            let Some(header) = unit else { break };
            end = unit_offset(&header).saturating_add(header.length_including_self());
            headers.push(header);
        }
        Ok(DebugInfo { dwarf, lists, headers })
    }

    /// Whether clang may have made any unit: producers are among the strings.
    pub(crate) fn is_by_clang(&self) -> bool {
        let names = [self.dwarf.debug_str.reader().slice(), self.dwarf.debug_line_str.reader().slice()];
        names.into_iter().any(|strings| memchr::memmem::find(strings, CLANG.as_bytes()).is_some())
    }

    /// The index of the unit that holds an offset of `.debug_info`.
    pub(crate) fn unit_at(&self, offset: usize) -> Option<usize> {
        let after = self.headers.partition_point(|header| unit_offset(header) <= offset);
        let index = after.checked_sub(1)?;
        let header = &self.headers[index];
        (offset - unit_offset(header) < header.length_including_self()).then_some(index)
    }

    /// Opens a unit: reads its abbreviations and its own entry.
    pub(crate) fn open(&self, index: usize) -> Result<DebugUnit<'a, '_>, EncodeError> {
        let header = self.headers[index];
        let offset = unit_offset(&header);
        let failed = |source| EncodeError::Dwarf {
            section: ".debug_info",
            offset: offset as u64,
            unit: format!("number {}", index + 1),
            source,
        };
        let unit = self.dwarf.unit(header).map_err(failed)?;
        let mut language = None;
        let mut producer = None;
        let mut entries = unit.entries_raw(None).map_err(failed)?;
        if let Some(abbreviation) = entries.read_abbreviation().map_err(failed)? {
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification).map_err(failed)?;
                match (attribute.name(), attribute.value()) {
                    (gimli::DW_AT_language, AttributeValue::Language(value)) => language = Some(value),
                    (gimli::DW_AT_producer, value) => producer = self.dwarf.attr_string(&unit, value).ok(),
                    _ => {}
                }
            }
        }
        let is_c = matches!(
            language,
            None | Some(gimli::DW_LANG_C89 | gimli::DW_LANG_C | gimli::DW_LANG_C99 | gimli::DW_LANG_C11)
                | Some(gimli::DW_LANG_C17)
        );
        let is_assembler = language == Some(gimli::DW_LANG_Mips_Assembler);
        Ok(DebugUnit { debug: self, index, offset, unit, producer, is_c, is_assembler })
    }
}

/// The offset of a unit's header in `.debug_info`.
fn unit_offset(header: &UnitHeader<Slice<'_>>) -> usize {
    header.debug_info_offset().map_or(0, |offset| offset.0)
}

/// An opened unit.
pub(crate) struct DebugUnit<'a, 'd> {
    pub(crate) debug: &'d DebugInfo<'a>,
    /// Index among the headers.
    pub(crate) index: usize,
    /// Offset of its header in `.debug_info`.
    pub(crate) offset: usize,
    pub(crate) unit: Unit<Slice<'a>>,
    producer: Option<Slice<'a>>,
    /// Whether functions are only at the top level, as in C.
    pub(crate) is_c: bool,
    /// Whether its functions have no parameters in the debug information, as in assembler sources.
    pub(crate) is_assembler: bool,
}

impl<'a> DebugUnit<'a, '_> {
    /// A reference to another entry, of this or another unit, as an offset in `.debug_info`.
    pub(crate) fn reference(&self, value: AttributeValue<Slice<'a>>) -> Option<usize> {
        match value {
            AttributeValue::UnitRef(offset) => self.offset.checked_add(offset.0),
            AttributeValue::DebugInfoRef(offset) => Some(offset.0),
            _ => None,
        }
    }

    /// The offset of a location list.
    pub(crate) fn locations_offset(&self, value: AttributeValue<Slice<'a>>) -> Option<usize> {
        self.debug.dwarf.attr_locations_offset(&self.unit, value).ok().flatten().map(|offset| offset.0)
    }

    /// The unit's name, for messages.
    pub(crate) fn name(&self) -> String {
        self.unit.name.map_or_else(String::new, |name| String::from_utf8_lossy(name.slice()).into_owned())
    }

    /// The name of a source file by its index in the line table, relative to where the compiler ran.
    pub(crate) fn file_name(&self, index: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let text = |value| self.debug.dwarf.attr_string(&self.unit, value).ok().map(|text| text.to_string_lossy());
        let name = text(file.path_name())?;
        let mut path = String::new();
        if !name.starts_with('/')
            && let Some(directory) = file.directory(header).and_then(text)
            && self.unit.comp_dir.is_none_or(|here| here.slice() != directory.as_bytes())
        {
            path.push_str(&directory);
            path.push('/');
        }
        path.push_str(&name);
        let here = self.unit.comp_dir.map(|here| here.to_string_lossy()).unwrap_or_default();
        let relative = path
            .strip_prefix(here.as_ref())
            .filter(|_| !here.is_empty())
            .and_then(|path| path.strip_prefix('/'))
            .unwrap_or(&path);
        Some(relative.strip_prefix("./").unwrap_or(relative).to_owned())
    }

    /// The index of the source file with a name, as [`DebugUnit::file_name`] gives it.
    pub(crate) fn file_index(&self, name: &str) -> Option<u64> {
        let count = self.unit.line_program.as_ref()?.header().file_names().len() as u64;
        // In DWARF 5 the first is there twice, and rows have the second.
        (1..=count).chain([0]).find(|&index| self.file_name(index).as_deref() == Some(name))
    }

    /// Whether names of the unit's functions may be elsewhere than in `.debug_str` and the unit: reached through an
    /// index of strings, or in another unit.
    pub(crate) fn refers_elsewhere(&self) -> bool {
        let of_functions = |tag| matches!(tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine);
        (1..)
            .map_while(|code| self.unit.abbreviations.get(code))
            .filter(|abbreviation| of_functions(abbreviation.tag()))
            .flat_map(|abbreviation| abbreviation.attributes())
            .any(|attribute| match attribute.name() {
                gimli::DW_AT_name | gimli::DW_AT_linkage_name => {
                    !matches!(attribute.form(), gimli::DW_FORM_strp | gimli::DW_FORM_string)
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    !matches!(attribute.form(), gimli::DW_FORM_ref4 | gimli::DW_FORM_ref_udata)
                }
                _ => false,
            })
    }

    /// The unit's text. Broken parts of it are left out: nothing is counted as the unit's text that is not.
    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        if let Ok(mut of_unit) = self.debug.dwarf.unit_ranges(&self.unit) {
            while let Ok(Some(range)) = of_unit.next() {
                ranges.push(range.begin..range.end);
            }
        }
        ranges
    }

    /// Whether GCC made the unit.
    pub(crate) fn is_gcc(&self) -> bool {
        self.producer.is_some_and(|producer| producer.slice().starts_with(b"GNU "))
    }

    /// Whether GCC made the unit when it linked: `lto1` calls its language GIMPLE.
    pub(crate) fn is_by_gcc_lto(&self) -> bool {
        self.producer.is_some_and(|producer| producer.slice().starts_with(b"GNU GIMPLE "))
    }

    /// The major version of clang, if clang made the unit.
    pub(crate) fn clang(&self) -> Option<u32> {
        clang_version(std::str::from_utf8(self.producer?.slice()).ok()?)
    }

    /// Who made the unit.
    pub(crate) fn compiler(&self) -> Compiler {
        match self.clang() {
            Some(version) => Compiler::Clang(version),
            None if self.is_gcc() => Compiler::Gcc,
            None => Compiler::Other,
        }
    }

    /// Whether the compiler was told to make no jump tables.
    pub(crate) fn has_no_jump_tables(&self) -> bool {
        self.producer.is_some_and(|producer| {
            let words = producer.slice().split(|byte| *byte == b' ');
            words.into_iter().any(|word| word == b"-fno-jump-tables")
        })
    }
}
