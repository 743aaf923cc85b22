// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Further entries of copies whose compiler does not mark them: the first statement of the body, made again.
//!
//! Clang's debug information has one copy for all bodies of a loop that it unrolled around a call, and for all beginnings that it
//! duplicated. Its line table has a row for the first statement in each of them. So has the test of a loop with which the body
//! begins, and a statement whose instructions are mixed with others'. Control flow tells them apart:
//!
//! * A loop of the body's own comes back to its test without leaving the body.
//! * Between two calls something happens that can be seen: the body of the first is run. Between two parts of one statement
//!   nothing needs to.
//!
//! That is what compilers do as a rule, not what they promise (a loop of the body's own may be unrolled until nothing comes back), so
//! such a site is one at which hits may outnumber calls.

use crate::lines::Lines;
use crate::text::FunctionText;
use std::ops::Range;

/// Finds where the statement at a copy's entry begins again, as a new call. `own` are the ranges of the innermost copy that the
/// entry is in; `body` those of the copy.
pub(crate) fn find(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    entry: u64,
    own: &[Range<u64>],
    body: &[Range<u64>],
) -> Vec<u64> {
    let rows = || own.iter().filter(|range| !range.is_empty()).flat_map(|range| lines.statements(range));
    let Some(first) = rows().find(|row| row.point.address == entry) else { return Vec::new() };
    let mut again: Vec<u64> = rows()
        .filter(|row| row.place == first.place && row.point.address != entry)
        .map(|row| row.point.address)
        .filter(|address| body.iter().any(|range| range.contains(address)))
        .collect();
    if again.is_empty() {
        return again;
    }
    again.sort_unstable();
    again.dedup();
    again.retain(|&address| text.is_boundary(address) && !text.comes_back(address, body));
    text.begin_anew(entry, &mut again);
    again
}
