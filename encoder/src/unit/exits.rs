// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! At how many inlined copies a program could run when the copy returns.
//!
//! Such a program needs three things. All ways out of the copy are known. Each of them has a place that can be probed
//! and that control passes on this way alone. And the return value is located there. DWARF has no attribute for the
//! value of an inlined call (DWARF 5, 3.3.8.2): only a copy that returns nothing has all that the program reads.

use super::UnitEncoder;
use super::copies::InlinedCopy;
use crate::unit::entry::Entry;
use siteseer_sites::Marks;

/// Inlined copies, and how control leaves them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExitCensus {
    /// All copies.
    pub copies: u64,
    /// Those of functions that return a value.
    pub with_value: u64,
    /// Those with all entries and all ways out known.
    pub known: u64,
    /// Those of them with a place for a probe on each way.
    pub probeable: u64,
    /// Those of them that return nothing: a program at the exits would have all that it reads.
    pub certain: u64,
}

impl ExitCensus {
    pub(crate) fn plus(self, other: ExitCensus) -> ExitCensus {
        ExitCensus {
            copies: self.copies + other.copies,
            with_value: self.with_value + other.with_value,
            known: self.known + other.known,
            probeable: self.probeable + other.probeable,
            certain: self.certain + other.certain,
        }
    }
}

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Counts how control leaves a copy.
    pub(super) fn count_exits(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, entries: &[Entry], marks: Marks) {
        let (text, has_value) = (copy.text, copy.origin.result.is_some());
        let counts = &mut self.out.tally.exits;
        counts.copies += 1;
        counts.with_value += u64::from(has_value);
        let doubtful = [Marks::MAY_MISS, Marks::MAY_REPEAT, Marks::ENTRY_UNCERTAIN];
        let is_doubtful = doubtful.into_iter().any(|mark| marks.contains(mark))
            || entries.iter().any(|entry| entry.uncertain || text.reentered_from(entry.address, copy.body));
        if is_doubtful {
            return;
        }
        let addresses: Vec<u64> = entries.iter().map(|entry| entry.address).collect();
        let Some(exits) = text.exits(&addresses, copy.body) else { return };
        counts.known += 1;
        let prober = &mut self.prober;
        if exits.iter().all(|exit| exit.probe.is_some_and(|probe| prober.check(text, probe).is_none())) {
            counts.probeable += 1;
            counts.certain += u64::from(!has_value);
        }
    }
}
