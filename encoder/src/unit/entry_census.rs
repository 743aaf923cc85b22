// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the debug information says of where inlined copies are entered, and what was found, in numbers.

use crate::debug::walk::RawSite;
use crate::unit::entry::Entry;
use siteseer_sites::Marks;

/// Where inlined copies are entered: what the debug information says, and what was found. The copies are those that
/// have a site, without the rests of functions that were split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntryCensus {
    /// All of them.
    pub copies: u64,
    /// Those with `DW_AT_entry_pc`.
    pub named: u64,
    /// Those of them that have no entry at this address: the body starts elsewhere.
    pub elsewhere: u64,
    /// Those with several entries. `DW_AT_entry_pc` can say only one.
    pub several: u64,
    /// The entries of these, apart from the first of each.
    pub further: u64,
    /// Those with one entry that control may pass by.
    pub passed_by: u64,
}

impl EntryCensus {
    /// Counts one copy.
    pub(super) fn of(raw: &RawSite, entries: &[Entry], marks: Marks) -> EntryCensus {
        let is_entry = |address: u64| entries.iter().any(|entry| entry.address == address);
        let further = entries.len().saturating_sub(1) as u64;
        EntryCensus {
            copies: 1,
            named: u64::from(raw.entry.is_some()),
            elsewhere: u64::from(raw.entry.is_some_and(|named| !is_entry(named))),
            several: u64::from(further > 0),
            further,
            passed_by: u64::from(further == 0 && marks.contains(Marks::MAY_MISS)),
        }
    }

    pub(crate) fn plus(self, other: EntryCensus) -> EntryCensus {
        EntryCensus {
            copies: self.copies + other.copies,
            named: self.named + other.named,
            elsewhere: self.elsewhere + other.elsewhere,
            several: self.several + other.several,
            further: self.further + other.further,
            passed_by: self.passed_by + other.passed_by,
        }
    }
}
