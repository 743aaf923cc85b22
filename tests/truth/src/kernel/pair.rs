// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which record belongs to which site.
//!
//! A record is at its site's address, or a few instructions after it: the compiler puts the asm statement after a
//! prologue, or after what computes an operand. Now and then it is before the site, where the probe was moved forward.
//! No other record of the function is in between.
//!
//! What is at one address is paired first, then what is near. In a row of calls each record may be where the next
//! call's site is: then the first site and the last record are left over, and the pairs between them are shifted by
//! one. Therefore a site that is left over may take the record of another site that has a second one to go to, and so
//! on (Kuhn's way to a matching of the most pairs). What is left over in the end is a copy that the encoder missed, or
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
    /// How many sites have a record at another address although there is one at theirs: another site has that.
    pub(super) shifted: u64,
}

/// Pairs the sites of one function in one container with its records there. Both are addresses.
pub(super) fn pair(code: &Code, sites: &[u64], records: &[u64]) -> Pairs {
    let mut matching = Matching { near: vec![Vec::new(); sites.len()], site_of: vec![None; records.len()] };
    for (site, address) in sites.iter().enumerate() {
        let is_free = |&record: &usize| records[record] == *address && matching.site_of[record].is_none();
        if let Some(record) = (0..records.len()).find(is_free) {
            matching.site_of[record] = Some(site);
        }
    }
    let mut free: Vec<usize> = (0..sites.len()).filter(|site| !matching.site_of.contains(&Some(*site))).collect();
    if !free.is_empty() && matching.site_of.contains(&None) {
        for (site, near) in matching.near.iter_mut().enumerate() {
            let far = |record| distance(code, sites[site], records[record], records).map(|far| (far, record));
            near.extend((0..records.len()).filter_map(far));
            near.sort_unstable();
        }
        matching.take_nearest();
        free.retain(|site| !matching.site_of.contains(&Some(*site)));
        free.retain(|&site| !matching.take_of_others(site, &mut vec![false; records.len()]));
        matching.exchange();
    }
    let with_site = matching.site_of.iter().enumerate();
    let mut pairs: Vec<(usize, usize)> = with_site.filter_map(|(record, site)| Some(((*site)?, record))).collect();
    pairs.sort_unstable();
    let left = (0..records.len()).filter(|&record| matching.site_of[record].is_none()).collect();
    let is_shifted =
        |&&(site, record): &&(usize, usize)| records[record] != sites[site] && records.contains(&sites[site]);
    let shifted = pairs.iter().filter(is_shifted).count() as u64;
    Pairs { pairs, sites: free, records: left, shifted }
}

/// Which record has which site.
struct Matching {
    /// The records that a site may have, the nearest first: how many instructions lead there, and which.
    near: Vec<Vec<(usize, usize)>>,
    /// The site that a record has.
    site_of: Vec<Option<usize>>,
}

impl Matching {
    /// Gives sites records that are free, the nearest pairs first.
    fn take_nearest(&mut self) {
        let far = |(site, near): (usize, &Vec<(usize, usize)>)| {
            near.iter().map(move |&(far, record)| (far, site, record)).collect::<Vec<_>>()
        };
        let mut near: Vec<(usize, usize, usize)> = self.near.iter().enumerate().flat_map(far).collect();
        near.sort_unstable();
        for (_, site, record) in near {
            if self.site_of[record].is_none() && !self.site_of.contains(&Some(site)) {
                self.site_of[record] = Some(site);
            }
        }
    }

    /// Gives a site a record, if need be that of another site which gets another one in turn.
    fn take_of_others(&mut self, site: usize, asked: &mut [bool]) -> bool {
        for (_, record) in self.near[site].clone() {
            if std::mem::replace(&mut asked[record], true) {
                continue;
            }
            if self.site_of[record].is_none_or(|other| self.take_of_others(other, asked)) {
                self.site_of[record] = Some(site);
                return true;
            }
        }
        false
    }

    /// Exchanges the records of two sites where both are nearer by that.
    fn exchange(&mut self) {
        let far = |site: usize, record: usize| self.near[site].iter().find(|near| near.1 == record).map(|near| near.0);
        for one in 0..self.site_of.len() {
            for other in one + 1..self.site_of.len() {
                let (Some(first), Some(second)) = (self.site_of[one], self.site_of[other]) else { continue };
                let now = far(first, one).zip(far(second, other)).map(|(one, other)| one + other);
                let then = far(first, other).zip(far(second, one)).map(|(one, other)| one + other);
                if then.is_some_and(|then| now.is_none_or(|now| then < now)) {
                    (self.site_of[one], self.site_of[other]) = (Some(second), Some(first));
                }
            }
        }
    }
}

/// How many instructions lead from a site to a record, or the other way round, without another record on the way.
fn distance(code: &Code, site: u64, record: u64, records: &[u64]) -> Option<usize> {
    let (from, to) = (code.at(site)?, code.at(record)?);
    let is_other = |index: usize| {
        let address = code.address(index);
        address != record && records.contains(&address)
    };
    // In a loop there are both, and one of them goes through the next turn.
    let ways = [code.way(from, to, AFTER, &is_other), code.way(to, from, BEFORE, &is_other)];
    ways.into_iter().flatten().map(|way| way.len()).min()
}
