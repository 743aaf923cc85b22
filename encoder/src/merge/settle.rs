// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a unit left open, because it depends on other copies, of the unit or of all units.
//!
//! *Order.* Copies of one function that begin at one address begin one after the other, in the order of the steps of the source.
//! Their sites are in this order, whatever the order of their debug entries.
//!
//! *Evidence.* What copies in any unit show of a parameter makes locations of it doubtful in all: see `doubt`.

use crate::merge::census::Counts;
use crate::unit::doubt::Evidence;
use crate::unit::{ParameterKey, Provisional, UnitSites};
use hashbrown::{HashMap, HashSet};
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::{Doubt, Machine, Marks, SiteKind};

/// Settles what a unit left open.
pub(super) fn settle(
    unit: &mut UnitSites<'_>,
    machine: Machine,
    assigned: &HashSet<ParameterKey<'_>>,
    evidence: &HashMap<ParameterKey<'_>, Evidence>,
) -> Counts {
    let mut counts = Counts {
        rests: unit.rests.len() as u64,
        outside_text: unit.tally.outside_text,
        without_origin: unit.tally.without_origin,
        merged: unit.tally.merged,
        usable: unit.tally.usable,
        located_of_usable: unit.tally.located_of_usable,
        gained_by_moving: 0,
    };
    order_by_step(unit);
    mark_shared(unit);
    let provisional = std::mem::take(&mut unit.provisional);
    doubt_by_evidence(unit, machine, evidence);
    doubt_what_others_lack(unit);
    let mut changed: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for of_site in provisional.chunk_by(|a, b| a.site == b.site) {
        let Some(first) = of_site.first() else { continue };
        let site = &mut unit.sites[first.site as usize];
        let function = &unit.functions[site.function as usize];
        let stands = |provisional: &&Provisional| {
            !assigned.contains(&(function.name, function.origin.declared_line, provisional.parameter))
        };
        counts.gained_by_moving +=
            of_site.iter().filter(stands).filter(|provisional| provisional.otherwise == Missing::NotAtEntry).count()
                as u64;
        if of_site.iter().filter(stands).count() == of_site.len() {
            continue;
        }
        let mut arguments = unit.prototypes[site.prototype as usize].clone();
        let mut is_late = false;
        for provisional in of_site {
            if stands(&provisional) {
                is_late |= provisional.otherwise == Missing::AfterEntry;
            } else if let Some(argument) = arguments.get_mut(usize::from(provisional.parameter)) {
                *argument = Err(provisional.otherwise);
                counts.located_of_usable -= u64::from(provisional.usable);
            }
        }
        if !is_late {
            site.marks = Marks(site.marks.0 & !Marks::LATE_VIEW.0);
        }
        let next = unit.prototypes.len() as u32;
        site.prototype = *changed.entry(arguments).or_insert_with_key(|arguments| {
            unit.prototypes.push(arguments.clone());
            next
        });
    }
    counts
}

/// Puts the copies of one function that begin at one address in the order in which they begin.
fn order_by_step(unit: &mut UnitSites<'_>) {
    let key = |site: u32| (unit.sites[site as usize].address, unit.sites[site as usize].function);
    let step = |site: u32| unit.steps.binary_search_by_key(&site, |&(site, _)| site).map_or(0, |at| unit.steps[at].1);
    let mut order: Vec<u32> = unit.steps.iter().map(|&(site, _)| site).collect();
    order.sort_unstable_by_key(|&site| (key(site), site));
    // From where a site was to where it goes.
    let mut moves: HashMap<u32, u32> = HashMap::new();
    for same in order.chunk_by(|&one, &other| key(one) == key(other)) {
        let mut begun = same.to_vec();
        begun.sort_by_key(|&site| step(site));
        moves.extend(begun.into_iter().zip(same.iter().copied()).filter(|(from, to)| from != to));
    }
    if moves.is_empty() {
        return;
    }
    let place = |site: u32| moves.get(&site).copied().unwrap_or(site);
    let moved: Vec<_> = moves.iter().map(|(&from, &to)| (to, unit.sites[from as usize])).collect();
    for (to, site) in moved {
        unit.sites[to as usize] = site;
    }
    unit.sites.iter_mut().for_each(|site| site.parent = site.parent.map(place));
    for list in [&mut unit.rests, &mut unit.in_line] {
        list.iter_mut().for_each(|site| *site = place(*site));
        list.sort_unstable();
    }
    unit.provisional.iter_mut().for_each(|provisional| provisional.site = place(provisional.site));
    unit.provisional.sort_by_key(|provisional| provisional.site);
    unit.several.iter_mut().flatten().for_each(|site| *site = place(*site));
}

/// Marks copies of one function that begin at one address, unless markers in a straight line say that they are calls
/// one after the other. They may be branches that the compiler merged, and control takes only one of these. The debug
/// information does not say; a program that runs for each of them may run more often than the function was called.
fn mark_shared(unit: &mut UnitSites<'_>) {
    let rests: HashSet<u32> = unit.rests.iter().copied().collect();
    let mut order: Vec<u32> = (0u32..)
        .zip(&unit.sites)
        .filter(|(index, site)| site.kind == SiteKind::Inline && !rests.contains(index))
        .map(|(index, _)| index)
        .collect();
    let (sites, in_line) = (&mut unit.sites, &unit.in_line);
    let is_in_line = |index: u32| in_line.binary_search(&index).is_ok();
    order.sort_unstable_by_key(|&index| (sites[index as usize].address, sites[index as usize].function));
    for pair in order.windows(2) {
        let (one, other) = (pair[0] as usize, pair[1] as usize);
        let is_shared = (sites[one].address, sites[one].function) == (sites[other].address, sites[other].function);
        if is_shared && !(is_in_line(pair[0]) && is_in_line(pair[1])) {
            sites[one].marks |= Marks::MAY_REPEAT;
            sites[other].marks |= Marks::MAY_REPEAT;
        }
    }
}

/// Marks doubtful arguments of inlined copies, from what all copies show about the parameters.
fn doubt_by_evidence(unit: &mut UnitSites<'_>, machine: Machine, evidence: &HashMap<ParameterKey<'_>, Evidence>) {
    let mut doubted: HashMap<(u32, u32), u32> = HashMap::new();
    for site in unit.sites.iter_mut().filter(|site| site.kind == SiteKind::Inline) {
        site.prototype = *doubted.entry((site.function, site.prototype)).or_insert_with(|| {
            let function = &unit.functions[site.function as usize];
            let before = &unit.prototypes[site.prototype as usize];
            let mut arguments = before.clone();
            for (index, argument) in (0u16..).zip(&mut arguments) {
                let key = (function.name, function.origin.declared_line, index);
                if let Ok(located) = argument {
                    let evidence = evidence.get(&key).copied().unwrap_or_default();
                    located.doubt = evidence.doubt(unit.compiler, machine, located);
                }
            }
            if arguments == *before {
                return site.prototype;
            }
            unit.prototypes.push(arguments);
            unit.prototypes.len() as u32 - 1
        });
    }
}

/// Marks constants that one entry of a copy by GCC has, and another entry of it lacks. The compiler merges beginnings that it
/// duplicated for a value of an argument with those for other values, and what is left may say either.
fn doubt_what_others_lack(unit: &mut UnitSites<'_>) {
    let mut doubted: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for copy in &unit.several {
        let arguments_of = |site: u32| &unit.prototypes[unit.sites[site as usize].prototype as usize];
        let lacks = |index: usize| copy.iter().any(|&site| arguments_of(site).get(index).is_some_and(Result::is_err));
        let count = copy.first().map_or(0, |&site| arguments_of(site).len());
        let lacking: Vec<usize> = (0..count).filter(|&index| lacks(index)).collect();
        for &site in copy {
            let site = &mut unit.sites[site as usize];
            let before = &unit.prototypes[site.prototype as usize];
            let mut arguments = before.clone();
            for &index in &lacking {
                if let Some(Ok(located)) = arguments.get_mut(index)
                    && located.at.is_fixed()
                {
                    located.doubt = located.doubt.or(Some(Doubt::OtherCall));
                }
            }
            if arguments != *before {
                let next = unit.prototypes.len() as u32;
                site.prototype = *doubted.entry(arguments).or_insert_with_key(|arguments| {
                    unit.prototypes.push(arguments.clone());
                    next
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::Site;
    use siteseer_sites::location::{Located, Location};
    use siteseer_sites::site::SourceLine;

    fn site(address: u64, function: u32, prototype: u32, parent: Option<u32>) -> Site {
        Site {
            function,
            kind: SiteKind::Inline,
            address,
            moved: 0,
            section: 0,
            prototype,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent,
            marks: Marks::default(),
            unprobeable: None,
        }
    }

    #[test]
    fn copies_at_one_address_are_in_the_order_of_their_steps() {
        // By prototype: 0 and 2 change places, and 1, of another function, stays.
        let sites = vec![site(16, 0, 0, None), site(16, 1, 1, None), site(16, 0, 2, Some(0)), site(20, 1, 3, Some(2))];
        let provisional = |site| Provisional { site, parameter: 0, otherwise: Missing::AfterEntry, usable: false };
        let mut unit = UnitSites {
            sites,
            steps: vec![(0, 5), (1, 9), (2, 3), (3, 0)],
            rests: vec![0],
            in_line: vec![2, 3],
            provisional: vec![provisional(0), provisional(3)],
            several: vec![vec![0, 3]],
            ..UnitSites::default()
        };
        order_by_step(&mut unit);
        let order: Vec<(u32, Option<u32>)> = unit.sites.iter().map(|site| (site.prototype, site.parent)).collect();
        assert_eq!(order, [(2, Some(2)), (1, None), (0, None), (3, Some(0))]);
        assert_eq!((unit.rests, unit.in_line), (vec![2], vec![0, 3]));
        let provisional: Vec<u32> = unit.provisional.iter().map(|provisional| provisional.site).collect();
        assert_eq!(provisional, [2, 3]);
        assert_eq!(unit.several, [[2, 3]]);
    }

    #[test]
    fn constants_that_another_entry_lacks_are_doubtful() {
        let at = |location| Ok(Located::certain(8, false, location));
        let (three, register) = (at(Location::Constant(3)), at(Location::Register(5)));
        let has: Box<[Argument]> = Box::new([three.clone(), three.clone(), register.clone()]);
        let lacks: Box<[Argument]> = Box::new([Err(Missing::NotAtEntry), three, Err(Missing::NotAtEntry)]);
        let mut unit = UnitSites {
            sites: vec![site(0, 0, 0, None), site(8, 0, 1, None), site(16, 0, 0, None)],
            prototypes: vec![has, lacks.clone()],
            several: vec![vec![0, 1]],
            ..UnitSites::default()
        };
        doubt_what_others_lack(&mut unit);
        let of = |site: usize| &unit.prototypes[unit.sites[site].prototype as usize];
        let doubts = |site| of(site).iter().map(|argument| argument.as_ref().ok()?.doubt).collect::<Vec<_>>();
        assert_eq!(doubts(0), [Some(Doubt::OtherCall), None, None], "the register is read at each entry");
        assert_eq!(*of(1), lacks);
        assert_eq!(doubts(2), [None, None, None], "it is of another copy");
    }
}
