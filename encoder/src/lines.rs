// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The source lines of a few addresses, for listings of machine code. What an address belongs to is its row of the line
//! table, as in [`siteseer_sites::ranges`]. Only the line tables of units that have one of the addresses are read.

use crate::debug::units::{DebugInfo, DebugSections, DebugUnit};
use crate::elf::image::Image;
use crate::error::EncodeError;
use crate::threads;
use crate::unit::ranges::rows;
use rayon::prelude::*;

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file, relative to where the compiler ran.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// The source line of each address; `None` where the debug information has none. A unit that cannot be read is passed
/// over.
///
/// # Errors
/// [`EncodeError`] if the image has no debug information, or it cannot be split into units.
pub fn find(image: &Image<'_>, addresses: &[u64]) -> Result<Vec<Option<Line>>, EncodeError> {
    threads::run(None, || find_here(image, addresses)).map_err(EncodeError::Threads)?
}

fn find_here(image: &Image<'_>, addresses: &[u64]) -> Result<Vec<Option<Line>>, EncodeError> {
    let sections = DebugSections::load(image)?;
    let debug = DebugInfo::new(&sections)?;
    let of_unit = |index| of_unit(&debug.open(index).ok()?, addresses).ok();
    let units: Vec<Vec<(usize, Line)>> = (0..debug.headers.len()).into_par_iter().filter_map(of_unit).collect();
    let mut lines = vec![None; addresses.len()];
    for (nth, line) in units.into_iter().flatten() {
        lines[nth].get_or_insert(line);
    }
    Ok(lines)
}

/// The lines of those addresses that are a unit's, each with the address's index.
fn of_unit(unit: &DebugUnit<'_, '_>, addresses: &[u64]) -> gimli::Result<Vec<(usize, Line)>> {
    let mut own: Vec<usize> = Vec::new();
    let mut ranges = unit.debug.dwarf.unit_ranges(&unit.unit)?;
    while let Some(range) = ranges.next()? {
        let is_in = |address: u64| (range.begin..range.end).contains(&address);
        own.extend((0..addresses.len()).filter(|&nth| is_in(addresses[nth])));
    }
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let rows = rows(unit);
    let line = |nth: usize| {
        let count = rows.partition_point(|row| row.address <= addresses[nth]);
        let row = rows[count.checked_sub(1)?];
        (!row.is_end && row.line > 0).then_some(())?;
        Some((nth, Line { file: unit.file_name(row.file)?, line: row.line }))
    };
    Ok(own.into_iter().filter_map(line).collect())
}
