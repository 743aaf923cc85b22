// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where calls are in the source, by their return addresses in the build that is not optimised.

use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};
use std::borrow::Cow;

/// A line of one of the program's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file's name, without folders.
    pub(crate) file: String,
    pub(crate) line: u32,
}

impl Place {
    pub(crate) fn new(path: &str, line: u32) -> Place {
        Place { file: path.rsplit('/').next().unwrap_or(path).to_owned(), line }
    }
}

/// Debug information that is not readable.
#[derive(Debug, thiserror::Error)]
#[error("the debug information of the unoptimised build")]
pub(crate) struct BadDebugInfo(#[source] addr2line::gimli::Error);

/// The calls of an image.
pub(crate) struct Callers<'d>(addr2line::Context<EndianSlice<'d, LittleEndian>>);

/// The sections of an image that tell of its source.
pub(crate) struct DebugSections<'d>(Vec<(SectionId, Cow<'d, [u8]>)>);

impl<'d> DebugSections<'d> {
    pub(crate) fn of(file: &object::File<'d>) -> DebugSections<'d> {
        const WANTED: [SectionId; 8] = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugInfo,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
            SectionId::DebugStr,
        ];
        let data = |id: SectionId| file.section_by_name(id.name())?.uncompressed_data().ok();
        DebugSections(WANTED.into_iter().filter_map(|id| Some((id, data(id)?))).collect())
    }
}

impl<'d> Callers<'d> {
    /// Those of an image with these sections.
    pub(crate) fn of(sections: &'d DebugSections<'_>) -> Result<Callers<'d>, BadDebugInfo> {
        let data = |id: SectionId| {
            let found = sections.0.iter().find(|(known, _)| *known == id);
            Ok(EndianSlice::new(found.map_or(&[][..], |(_, data)| data), LittleEndian))
        };
        Ok(Callers(Dwarf::load(data).and_then(addr2line::Context::from_dwarf).map_err(BadDebugInfo)?))
    }

    /// Where the call is that returns to an address.
    pub(crate) fn place(&self, return_address: u64) -> Option<Place> {
        let location = self.0.find_location(return_address.checked_sub(1)?).ok().flatten()?;
        Some(Place::new(location.file?, location.line.filter(|&line| line != 0)?))
    }
}
