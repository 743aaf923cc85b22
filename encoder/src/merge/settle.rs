// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a unit left open, because it depends on other copies, of the unit or of all units.
//!
//! Copies at one address may be branches that were merged, and what copies in any unit show of a parameter makes
//! locations of it doubtful in all: see `doubt`.

use crate::merge::census::Counts;
use crate::merge::copied;
use crate::unit::doubt::Evidence;
use crate::unit::rescue::Refused;
use crate::unit::{ParameterKey, Provisional, UnitSites};
use hashbrown::{HashMap, HashSet};
use siteseer_sites::location::{Argument, Location, Missing};
use siteseer_sites::{Doubt, Machine, Marks, Site, SiteKind};

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
        entries: unit.tally.entries,
        refused: Refused::default(),
        exits: unit.tally.exits,
    };
    let shared = mark_shared(unit);
    doubt_where_shared(unit, &shared);
    let provisional = std::mem::take(&mut unit.provisional);
    doubt_by_evidence(unit, machine, evidence);
    doubt_what_others_lack(unit);
    doubt_what_earlier_calls_had(unit);
    let mut changed: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for of_site in provisional.chunk_by(|a, b| a.site == b.site) {
        let Some(first) = of_site.first() else { continue };
        let site = &mut unit.sites[first.site as usize];
        let function = &unit.functions[site.function as usize];
        let stands = |provisional: &&Provisional| !assigned.contains(&function.parameter(provisional.parameter.into()));
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
    copied::add(unit);
    counts.refused = Refused::count(unit.refused.iter().map(|(_, refusal)| refusal));
    counts
}

/// Marks copies of one function that begin at one address, unless markers in a straight line say that they are calls
/// one after the other. They may be branches that the compiler merged, and control takes only one of these. The debug
/// information does not say; a program that runs for each of them may run more often than the function was called.
/// Gives the pairs.
fn mark_shared(unit: &mut UnitSites<'_>) -> Vec<[u32; 2]> {
    let rests: HashSet<u32> = unit.rests.iter().copied().collect();
    let order: Vec<u32> = (0u32..)
        .zip(&unit.sites)
        .filter(|(index, site)| site.kind == SiteKind::Inline && !rests.contains(index))
        .map(|(index, _)| index)
        .collect();
    let mut order: Vec<(u64, u32, u32)> =
        order.into_iter().map(|index| (unit.unrescued(index), unit.sites[index as usize].function, index)).collect();
    order.sort_unstable();
    let (sites, in_line) = (&mut unit.sites, &unit.in_line);
    let is_in_line = |index: u32| in_line.binary_search(&index).is_ok();
    let mut pairs = Vec::new();
    for pair in order.windows(2) {
        let [(address, function, one), (other_address, other_function, other)] = [pair[0], pair[1]];
        let is_shared = (address, function) == (other_address, other_function);
        if is_shared && !(is_in_line(one) && is_in_line(other)) {
            sites[one as usize].marks |= Marks::MAY_REPEAT;
            sites[other as usize].marks |= Marks::MAY_REPEAT;
            pairs.push([one, other]);
        }
    }
    pairs
}

/// Marks arguments that copies of one function, which begin at one address, do not have in one place: a hit may be of
/// each of the calls.
fn doubt_where_shared(unit: &mut UnitSites<'_>, pairs: &[[u32; 2]]) {
    // All copies at one address follow each other.
    for group in pairs.chunk_by(|one, other| one[1] == other[0]) {
        let sites: Vec<u32> = group.iter().map(|pair| pair[0]).chain(group.last().map(|pair| pair[1])).collect();
        let prototype = |site: u32| &unit.prototypes[unit.sites[site as usize].prototype as usize];
        let of_all: Vec<Box<[Argument]>> = sites.iter().map(|&site| prototype(site).clone()).collect();
        let at =
            |argument: Option<&Argument>| argument.and_then(|one| one.as_ref().ok()).map(|located| located.at.clone());
        let differs = |index: usize| of_all.iter().any(|one| at(one.get(index)) != at(of_all[0].get(index)));
        for (&site, before) in sites.iter().zip(&of_all) {
            let mut arguments = before.clone();
            for (index, argument) in arguments.iter_mut().enumerate() {
                if let Ok(located) = argument
                    && differs(index)
                {
                    located.doubt.get_or_insert(Doubt::Merged);
                }
            }
            if arguments != *before {
                unit.sites[site as usize].prototype = unit.prototypes.len() as u32;
                unit.prototypes.push(arguments);
            }
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
            for (index, argument) in arguments.iter_mut().enumerate() {
                if let Ok(located) = argument {
                    let evidence = evidence.get(&function.parameter(index)).copied().unwrap_or_default();
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

/// Marks constants that one entry of a copy by GCC has, and another entry of it lacks. The compiler merges beginnings
/// that it duplicated for a value of an argument with those for other values, and what is left may say either.
fn doubt_what_others_lack(unit: &mut UnitSites<'_>) {
    let mut doubted: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for copy in &unit.several {
        let arguments_of = |site: u32| &unit.prototypes[unit.sites[site as usize].prototype as usize];
        // What the place of a probe lacks, the entry may have.
        let is_lacking = |argument: &Argument| argument.as_ref().is_err_and(|missing| *missing != Missing::Overwritten);
        let lacks = |index: usize| copy.iter().any(|&site| arguments_of(site).get(index).is_some_and(is_lacking));
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

/// Marks constants that may be what an earlier call passed.
fn doubt_what_earlier_calls_had(unit: &mut UnitSites<'_>) {
    let mut known: HashMap<Box<[Argument]>, u32> = HashMap::new();
    for (site, arguments) in with_constants_of_earlier_calls(unit) {
        let next = unit.prototypes.len() as u32;
        unit.sites[site as usize].prototype = *known.entry(arguments).or_insert_with_key(|arguments| {
            unit.prototypes.push(arguments.clone());
            next
        });
    }
}

/// The sites whose constants may be what an earlier call passed, because a copy before them in the same function has
/// the same ones, and what their arguments are then.
fn with_constants_of_earlier_calls(unit: &UnitSites<'_>) -> Vec<(u32, Box<[Argument]>)> {
    if unit.constants.is_empty() {
        return Vec::new();
    }
    let mut first: HashMap<(u32, u32, u16, &Location), u64> = HashMap::new();
    let inlined = |(_, site): &(u32, &Site)| site.kind == SiteKind::Inline;
    for (index, site) in (0u32..).zip(&unit.sites).filter(inlined) {
        let address = unit.unrescued(index);
        for (parameter, argument) in (0u16..).zip(&unit.prototypes[site.prototype as usize]) {
            if let Ok(located) = argument
                && located.at.is_fixed()
            {
                let first = first.entry((site.container, site.function, parameter, &located.at)).or_insert(address);
                *first = address.min(*first);
            }
        }
    }
    let mut doubted: Vec<(u32, Box<[Argument]>)> = Vec::new();
    for of_site in unit.constants.chunk_by(|one, other| one.0 == other.0) {
        let Some(&(index, _)) = of_site.first() else { continue };
        let site = &unit.sites[index as usize];
        let before = &unit.prototypes[site.prototype as usize];
        let mut arguments = before.clone();
        for &(_, parameter) in of_site {
            let Some(Ok(located)) = arguments.get_mut(usize::from(parameter)) else { continue };
            let key = (site.container, site.function, parameter, &located.at);
            if first.get(&key).is_some_and(|&first| first < unit.unrescued(index)) {
                located.doubt.get_or_insert(Doubt::OtherCall);
            }
        }
        if arguments != *before {
            doubted.push((index, arguments));
        }
    }
    doubted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::rescue::Refusal;
    use siteseer_sites::Unprobeable;
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
    fn a_probe_that_is_elsewhere_is_not_the_beginning_of_another_copy() {
        let mut unit = UnitSites {
            sites: vec![site(8, 0, 0, None), site(8, 0, 0, None), site(24, 0, 0, None), site(24, 0, 0, None)],
            // The first begins after the second, and the last two begin at one place.
            refused: [(0, 12), (2, 28), (3, 28)]
                .map(|(site, address)| (site, Refusal::new(Unprobeable::StaticCall, address, None)))
                .into(),
            ..UnitSites::default()
        };
        mark_shared(&mut unit);
        let marks: Vec<Marks> = unit.sites.iter().map(|site| site.marks).collect();
        assert_eq!(marks, [Marks::default(), Marks::default(), Marks::MAY_REPEAT, Marks::MAY_REPEAT]);
    }

    #[test]
    fn what_copies_at_one_address_do_not_agree_on_is_doubtful() {
        let at = |location| Ok(Located::certain(8, false, location));
        let (three, four, register) = (at(Location::Constant(3)), at(Location::Constant(4)), at(Location::Register(5)));
        let mut unit = UnitSites {
            sites: vec![site(8, 0, 0, None), site(8, 0, 0, None), site(8, 0, 1, None), site(24, 0, 0, None)],
            prototypes: vec![
                Box::new([three.clone(), register.clone(), register.clone()]),
                Box::new([four, register, Err(Missing::NotAtEntry)]),
            ],
            ..UnitSites::default()
        };
        let shared = mark_shared(&mut unit);
        assert_eq!(shared, [[0, 1], [1, 2]]);
        doubt_where_shared(&mut unit, &shared);
        let doubts = |site: usize| {
            let arguments = &unit.prototypes[unit.sites[site].prototype as usize];
            arguments.iter().map(|argument| argument.as_ref().ok()?.doubt).collect::<Vec<_>>()
        };
        for first in 0..2 {
            assert_eq!(doubts(first), [Some(Doubt::Merged), None, Some(Doubt::Merged)], "the third differs from both");
        }
        assert_eq!(doubts(2), [Some(Doubt::Merged), None, None]);
        assert_eq!(doubts(3), [None, None, None], "it is alone");
    }

    #[test]
    fn what_is_lost_at_the_place_of_a_probe_says_nothing_of_other_entries() {
        let three = Ok(Located::certain(8, false, Location::Constant(3)));
        let mut unit = UnitSites {
            sites: vec![site(0, 0, 0, None), site(8, 0, 1, None)],
            prototypes: vec![Box::new([three.clone()]), Box::new([Err(Missing::Overwritten)])],
            several: vec![vec![0, 1]],
            ..UnitSites::default()
        };
        doubt_what_others_lack(&mut unit);
        assert_eq!(*unit.prototypes[unit.sites[0].prototype as usize], [three]);
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

    #[test]
    fn constants_of_a_call_before_are_doubtful() {
        let at = |location| Ok(Located::certain(8, false, location));
        let (three, four) = (at(Location::Constant(3)), at(Location::Constant(4)));
        let elsewhere = Site { container: 1, ..site(40, 0, 0, None) };
        let mut unit = UnitSites {
            sites: vec![site(8, 0, 0, None), site(16, 0, 0, None), site(24, 0, 1, None), elsewhere],
            prototypes: vec![Box::new([three.clone(), three.clone()]), Box::new([four, three])],
            constants: vec![(0, 0), (1, 0), (2, 0), (2, 1), (3, 0)],
            ..UnitSites::default()
        };
        doubt_what_earlier_calls_had(&mut unit);
        let doubts = |site: usize| {
            let arguments = &unit.prototypes[unit.sites[site].prototype as usize];
            arguments.iter().map(|argument| argument.as_ref().ok()?.doubt).collect::<Vec<_>>()
        };
        assert_eq!(doubts(0), [None, None], "it is the first");
        assert_eq!(doubts(1), [Some(Doubt::OtherCall), None], "the second was bound as it should be");
        assert_eq!(doubts(2), [None, Some(Doubt::OtherCall)], "four is of no call before");
        assert_eq!(doubts(3), [None, None], "in another function");
    }
}
