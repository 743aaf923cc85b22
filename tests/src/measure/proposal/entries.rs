// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether the entry points of inlined copies are known: what the debug information says, and what is left open after
//! the text and the line table were asked.

use crate::measure::tables::share;
use siteseer_encoder::Census;

/// The header of [`rows`].
pub const HEADER: [&str; 7] = [
    "kernel",
    "probes",
    "number",
    "entry not known",
    "may be passed by",
    "may be hit again by one call",
    "probe moved",
];

/// Two rows for a kernel: a probe for each copy where the debug information says, and a probe for each entry that was
/// found.
pub fn rows(kernel: &str, census: &Census) -> [Vec<String>; 2] {
    let (said, sites) = (census.entries, &census.sites);
    let share = |part: u64, whole: u64| share(part as usize, whole as usize);
    // Without an address, or with one where the body does not start.
    let not_known = said.copies - said.named + said.elsewhere;
    let before = vec![
        kernel.to_owned(),
        "one for each copy".to_owned(),
        said.copies.to_string(),
        share(not_known, said.copies),
        share(said.several + said.passed_by, said.copies),
        "not told".to_owned(),
        "-".to_owned(),
    ];
    let after = vec![
        kernel.to_owned(),
        "one for each entry".to_owned(),
        sites.total.to_string(),
        share(sites.entry_uncertain, sites.total),
        share(sites.may_miss, sites.total),
        share(sites.may_repeat, sites.total),
        share(sites.moved, sites.total),
    ];
    [before, after]
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_encoder::census::EntryCensus;

    #[test]
    fn what_the_debug_information_leaves_open() {
        let mut census = Census {
            entries: EntryCensus { copies: 100, named: 90, elsewhere: 5, several: 7, further: 20, passed_by: 3 },
            ..Census::default()
        };
        (census.sites.total, census.sites.may_miss, census.sites.moved) = (120, 3, 6);
        let [before, after] = rows("k", &census);
        assert_eq!(before[2..5], ["100", "15 (15.0%)", "10 (10.0%)"]);
        assert_eq!(after[2..], ["120", "0 (0.0%)", "3 (2.5%)", "0 (0.0%)", "6 (5.0%)"]);
    }
}
