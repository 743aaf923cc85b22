// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions of units without text.
//!
//! With link-time optimisation, GCC describes the functions of a source when it compiles that, in a unit without text
//! ("early debug"). When it links, it makes other units, with entries for the text that is left, which refer to the
//! former. A function that was folded into an equal one has no such entry, though its symbol may have text: only the
//! unit of its source describes it.

use crate::debug::units::DebugInfo;
use crate::debug::walk::{RawFunction, Visitor, walk};

/// The definitions of all units by GCC without text: their debug entries, as offsets in `.debug_info`.
pub(crate) fn definitions(debug: &DebugInfo<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    for index in 0..debug.headers.len() {
        // A unit that cannot be read is an error where it is encoded.
        let Ok(unit) = debug.open(index) else { continue };
        if !unit.is_gcc() || unit.is_by_gcc_lto() || !unit.is_c || !unit.ranges().is_empty() {
            continue;
        }
        let mut definitions = Definitions::default();
        if walk(&unit, &mut definitions).is_ok() {
            found.extend(definitions.dies.into_iter().map(|die| unit.offset.saturating_add(die)));
        }
    }
    found
}

/// The definitions of a unit, as offsets in it.
#[derive(Default)]
struct Definitions {
    dies: Vec<usize>,
}

impl<'a> Visitor<'a> for Definitions {
    fn wants(&mut self, _: usize) -> bool {
        false
    }

    fn without_text(&mut self, die: usize, _: Option<gimli::DwInl>) {
        self.dies.push(die);
    }

    fn function(&mut self, _: &mut RawFunction<'a>) {}
}
