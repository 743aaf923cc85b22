// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which record belongs to which site.
//!
//! A record is at its site's address, or a few instructions after it: the compiler puts the asm statement after a
//! prologue, or after what computes an operand. Now and then it is before the site, where the probe was moved forward.
//! No other record of the function is in between. What is left over in the end is a copy that the encoder missed, or
//! something that the encoder wrongly took for a site.

use super::code::Code;

/// How many instructions a record may be after its site.
const AFTER: usize = 64;
/// How many it may be before.
const BEFORE: usize = 24;

/// What belongs together, as indices into the sites and the records that were given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    /// A site and a record.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Sites without a record.
    pub(super) sites: Vec<usize>,
    /// Records without a site.
    pub(super) records: Vec<usize>,
}

/// Pairs the sites of one function in one container with its records there. Both are addresses.
pub(super) fn pair(code: &Code, sites: &[u64], records: &[u64]) -> Pairs {
    let mut pairs = Pairs::default();
    let mut free_records: Vec<usize> = (0..records.len()).collect();
    let mut free_sites = Vec::new();
    for (site, address) in sites.iter().enumerate() {
        match free_records.iter().position(|&record| records[record] == *address) {
            Some(found) => pairs.pairs.push((site, free_records.remove(found))),
            None => free_sites.push(site),
        }
    }
    let mut near = Vec::new();
    for &site in &free_sites {
        for &record in &free_records {
            near.extend(distance(code, sites[site], records[record], records).map(|far| (far, site, record)));
        }
    }
    near.sort_unstable();
    for (_, site, record) in near {
        if free_sites.contains(&site) && free_records.contains(&record) {
            pairs.pairs.push((site, record));
            free_sites.retain(|&free| free != site);
            free_records.retain(|&free| free != record);
        }
    }
    pairs.sites = free_sites;
    pairs.records = free_records;
    pairs
}

/// How many instructions lead from a site to a record, or the other way round, without another record on the way.
fn distance(code: &Code, site: u64, record: u64, records: &[u64]) -> Option<usize> {
    let (from, to) = (code.at(site)?, code.at(record)?);
    let is_other = |index: usize| {
        let address = code.address(index);
        address != record && records.contains(&address)
    };
    let forward = code.way(from, to, AFTER, &is_other);
    let backward = || code.way(to, from, BEFORE, &is_other);
    forward.or_else(backward).map(|way| way.len())
}
