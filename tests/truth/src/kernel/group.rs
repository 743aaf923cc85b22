// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites and records of one out-of-line function, with the cold part that the compiler split from it.
//!
//! The encoder does not describe a body if its name tells everything: the symbol is the site, and the calling
//! convention says where the arguments are. Such a body becomes a site here if a record of its function is in the
//! symbol.

use super::code::Code;
use super::compare::{Pair, Verdict};
use super::cpu::Cpu;
use super::meaning;
use super::pair::{Pairs, pair};
use super::record::{ParameterKind, Record};
use super::tally::{Finding, Key, Tally, Unpaired};
use siteseer_encoder::elf::image::{Container, Image};
use siteseer_sites::abi::{ParamShape, abi_arguments};
use siteseer_sites::btf::{Btf, Kind, NameIndex};
use siteseer_sites::{Argument, Located, Machine, Marks, SiteKind, SiteSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A site, from the set or implied.
#[derive(Debug)]
struct Place {
    address: u64,
    word: &'static str,
    marks: Marks,
    arguments: Vec<Argument>,
}

/// A function and its text.
pub(super) struct Group<'g> {
    name: &'g str,
    ranges: Vec<Range<u64>>,
    /// Indices of sites of the set.
    sites: Vec<u32>,
    records: Vec<&'g Record<'g>>,
}

/// What the image's BTF says about functions.
pub(super) struct Types<'r> {
    btf: &'r Btf<'r>,
    functions: NameIndex<'r>,
}

impl<'r> Types<'r> {
    /// Of all functions.
    pub(super) fn new(btf: &'r Btf<'r>) -> Types<'r> {
        Types { btf, functions: NameIndex::new(btf, &[Kind::Func]) }
    }

    /// The bits of a parameter of the functions of that name that have a meaning; none if all do.
    fn meaning(&self, name: &str, nth: usize) -> Option<Vec<u8>> {
        meaning::bits(self.btf, &self.functions, name, nth)
    }

    /// The result of the functions of that name, if it has more than 16 bytes: then it is in memory, and its address is
    /// passed.
    fn in_memory(&self, name: &str) -> Option<ParamShape> {
        let result = |function| self.btf.ty(self.btf.ty(function)?.target()?)?.target();
        let sizes = self.functions.get(Kind::Func, name).filter_map(result).filter_map(|ty| self.btf.size_of(ty));
        let size = sizes.max().filter(|size| *size > 16)?;
        Some(ParamShape { size: u32::try_from(size).ok()?, composite: true, ..ParamShape::default() })
    }
}

/// All groups that have a site or a record.
pub(super) fn groups<'g>(image: &'g Image<'g>, set: &SiteSet, records: &'g [Record<'g>]) -> Vec<Group<'g>> {
    let mut groups: BTreeMap<u64, Group<'g>> = BTreeMap::new();
    let group_at = |groups: &mut BTreeMap<u64, Group<'g>>, address: u64| -> Option<u64> {
        let container = image.container(address)?;
        let (name, ranges) = with_cold_part(image, &container);
        let start = ranges.first()?.start;
        groups.entry(start).or_insert_with(|| Group { name, ranges, sites: Vec::new(), records: Vec::new() });
        Some(start)
    };
    for (index, site) in (0u32..).zip(&set.sites) {
        if let Some(group) = group_at(&mut groups, site.address).and_then(|start| groups.get_mut(&start)) {
            group.sites.push(index);
        }
    }
    for record in records {
        if let Some(group) = group_at(&mut groups, record.address).and_then(|start| groups.get_mut(&start)) {
            group.records.push(record);
        }
    }
    groups.into_values().collect()
}

/// The name and the ranges of the function that a symbol is, or is the cold part of.
fn with_cold_part<'g>(image: &'g Image<'g>, container: &Container<'g>) -> (&'g str, Vec<Range<u64>>) {
    let of = |address: u64, size: u64| address..address.saturating_add(size);
    let only = |name: &str| {
        let mut named = image.symbols_named(name);
        let found = named.next().map(|symbol| (symbol.name, of(symbol.address, symbol.size)));
        found.filter(|_| named.next().is_none())
    };
    let own = of(container.address, container.size);
    if let Some(hot) = container.name.strip_suffix(".cold") {
        return match (only(hot), only(container.name)) {
            (Some((name, range)), Some(_)) => (name, vec![range, own]),
            _ => (container.name, vec![own]),
        };
    }
    let cold = only(container.name).and_then(|_| only(&format!("{}.cold", container.name)));
    (container.name, std::iter::once(own).chain(cold.map(|(_, range)| range)).collect())
}

impl Group<'_> {
    /// Pairs and compares everything.
    pub(super) fn check(&self, image: &Image<'_>, set: &SiteSet, types: &Types<'_>, cpu: &mut Cpu<'_>) -> Tally {
        let mut tally = Tally::default();
        let code = Code::decode(image, &self.ranges);
        let function = |index: &u32| {
            let site = &set.sites[*index as usize];
            set.functions.get(site.function as usize).map_or("", |function| function.name.as_str())
        };
        let names: BTreeSet<&str> =
            self.sites.iter().map(function).chain(self.records.iter().map(|record| record.function)).collect();
        for name in names {
            let records: Vec<&Record<'_>> = self.records.iter().copied().filter(|r| r.function == name).collect();
            let sites = self.sites.iter().filter(|&index| function(index) == name);
            let mut places: Vec<Place> = sites.map(|&index| place(set, index)).collect();
            places.extend(self.implied(image.machine(), types, name, &places, &records));
            let count = places.iter().map(|place| place.arguments.len()).max().unwrap_or(0);
            let meaning = (0..count).map(|nth| types.meaning(name, nth)).collect();
            let machine = image.machine();
            Function { group: self, name, code: &code, places, records, meaning, machine }.check(cpu, &mut tally);
        }
        tally
    }

    /// The body that the encoder does not describe.
    fn implied(
        &self,
        machine: Machine,
        types: &Types<'_>,
        name: &str,
        places: &[Place],
        records: &[&Record<'_>],
    ) -> Option<Place> {
        let is_described = places.iter().any(|place| place.word != SiteKind::Inline.word());
        if name != self.name || is_described {
            return None;
        }
        let record = records.iter().min_by_key(|record| record.address)?;
        let shape = |parameter: &super::record::Parameter| ParamShape {
            size: parameter.size,
            signed: parameter.kind == ParameterKind::Signed,
            composite: parameter.kind == ParameterKind::Composite,
            irregular: false,
        };
        let shapes: Vec<ParamShape> = record.parameters.iter().map(shape).collect();
        Some(Place {
            address: self.ranges.first()?.start,
            word: "plain",
            marks: Marks::default(),
            arguments: abi_arguments(machine, &shapes, types.in_memory(name)),
        })
    }
}

fn place(set: &SiteSet, index: u32) -> Place {
    let site = &set.sites[index as usize];
    let arguments = set.prototypes.get(site.prototype as usize).map(|prototype| prototype.to_vec());
    Place { address: site.address, word: site.kind.word(), marks: site.marks, arguments: arguments.unwrap_or_default() }
}

/// One function in one group.
struct Function<'f> {
    group: &'f Group<'f>,
    name: &'f str,
    code: &'f Code,
    places: Vec<Place>,
    records: Vec<&'f Record<'f>>,
    /// The bits of each argument that have a meaning; none if all do.
    meaning: Vec<Option<Vec<u8>>>,
    machine: Machine,
}

impl Function<'_> {
    fn check(&self, cpu: &mut Cpu<'_>, tally: &mut Tally) {
        let sites: Vec<u64> = self.places.iter().map(|place| place.address).collect();
        let records: Vec<u64> = self.records.iter().map(|record| record.address).collect();
        let mut pairs = pair(self.code, &sites, &records);
        tally.exchanged += self.exchange(&mut pairs, cpu);
        tally.shifted += pairs.shifted;
        tally.sites += sites.len() as u64;
        tally.records += records.len() as u64;
        tally.paired += pairs.pairs.len() as u64;
        for &(site, record) in &pairs.pairs {
            tally.at_once += u64::from(sites[site] == records[record]);
            self.compare(&self.places[site], self.records[record], cpu, tally);
        }
        tally.extra.extend(pairs.sites.iter().map(|&site| self.unpaired(self.places[site].word, sites[site])));
        for &record in &pairs.records {
            let unpaired = self.unpaired("record", records[record]);
            let is_marked = self.places.iter().any(|place| tells_of_more(place.marks));
            if is_marked { &mut tally.missed_marked } else { &mut tally.missed }.push(unpaired);
        }
    }

    /// Exchanges records, if they or their sites are at one address, where more values are right by that: an address
    /// does not tell which of several calls that begin there is whose. The same is done with a record at that address
    /// that is left over. Gives how often.
    fn exchange(&self, Pairs { pairs, records: left, .. }: &mut Pairs, cpu: &mut Cpu<'_>) -> u64 {
        let mut exchanged = 0;
        let mut wrong = |site: usize, record: usize| {
            let place = &self.places[site];
            self.pair(place, self.records[record])
                .compare(self.code, cpu)
                .iter()
                .filter(|verdict| matches!(verdict, Verdict::Wrong(..)))
                .count()
        };
        for one in 0..pairs.len() {
            for other in one + 1..pairs.len() {
                let ((site, record), (other_site, other_record)) = (pairs[one], pairs[other]);
                let (place, other_place) = (&self.places[site], &self.places[other_site]);
                let is_one_record = self.records[record].address == self.records[other_record].address;
                if !is_one_record && place.address != other_place.address {
                    continue;
                }
                let now = wrong(site, record) + wrong(other_site, other_record);
                if now > 0 && wrong(site, other_record) + wrong(other_site, record) < now {
                    (pairs[one].1, pairs[other].1) = (other_record, record);
                    exchanged += 1;
                }
            }
            let (site, record) = pairs[one];
            let now = if left.is_empty() { 0 } else { wrong(site, record) };
            let mut is_better = |other: &mut usize| {
                self.records[record].address == self.records[*other].address && wrong(site, *other) < now
            };
            if let Some(other) = left.iter_mut().find_map(|other| is_better(other).then_some(other)) {
                std::mem::swap(&mut pairs[one].1, other);
                exchanged += 1;
            }
        }
        exchanged
    }

    fn unpaired(&self, site: &'static str, address: u64) -> Unpaired {
        let mut marks: Vec<_> = self.places.iter().flat_map(|place| words(place.marks)).collect();
        marks.sort_unstable();
        marks.dedup();
        Unpaired {
            site,
            address,
            function: self.name.to_owned(),
            container: self.group.name.to_owned(),
            sites: self.places.len(),
            records: self.records.len(),
            in_recorded: !self.group.records.is_empty(),
            marks,
        }
    }

    fn pair<'p>(&'p self, place: &'p Place, record: &'p Record<'p>) -> Pair<'p> {
        Pair { site: place.address, arguments: &place.arguments, meaning: &self.meaning, record }
    }

    fn compare(&self, place: &Place, record: &Record<'_>, cpu: &mut Cpu<'_>, tally: &mut Tally) {
        for (index, verdict) in self.pair(place, record).compare(self.code, cpu).into_iter().enumerate() {
            let located = match &place.arguments[index] {
                Ok(located) => located,
                Err(missing) => {
                    let is_told = record.parameters.get(index).is_some_and(|parameter| !parameter.parts.is_empty());
                    *tally.missing.entry(missing.key()).or_default() += u64::from(is_told);
                    continue;
                }
            };
            let key = Key { site: place.word, form: located.at.kind().key(), doubt: doubt(located) };
            let values = tally.values.entry(key).or_default();
            let (kind, read) = match verdict {
                Verdict::Right => {
                    values.right += 1;
                    continue;
                }
                Verdict::Missing | Verdict::Untold => {
                    values.untold += 1;
                    continue;
                }
                Verdict::Wrong(ours, theirs) => {
                    values.wrong += 1;
                    ("wrong".to_owned(), Some((hexadecimal(&ours), hexadecimal(&theirs))))
                }
                Verdict::Unconfirmed(why) => {
                    *values.unconfirmed.entry(why).or_default() += 1;
                    (format!("{why:?}").to_lowercase(), None)
                }
            };
            tally.findings.push(Finding {
                kind,
                doubt: doubt(located),
                site: place.word,
                address: place.address,
                function: self.name.to_owned(),
                container: self.group.name.to_owned(),
                argument: index,
                location: located.display(self.machine).to_string(),
                record: record.address,
                operands: record.parameters.get(index).map(|p| p.text(self.machine)).unwrap_or_default(),
                values: read,
                marks: words(place.marks),
            });
        }
    }
}

/// Why a location is doubtful.
fn doubt(located: &Located) -> Option<String> {
    located.doubt.map(|doubt| doubt.key().to_owned())
}

/// Whether a site's marks say that calls may not be seen there.
fn tells_of_more(marks: Marks) -> bool {
    [Marks::MAY_MISS, Marks::ENTRY_UNCERTAIN, Marks::MAY_REPEAT].into_iter().any(|mark| marks.contains(mark))
}

fn words(marks: Marks) -> Vec<&'static str> {
    let words = [
        (Marks::MAY_REPEAT, "may_repeat"),
        (Marks::ENTRY_UNCERTAIN, "entry_uncertain"),
        (Marks::SIGNATURE_CHANGED, "signature_changed"),
        (Marks::LATE_VIEW, "late_view"),
        (Marks::MAY_MISS, "may_miss"),
    ];
    words.into_iter().filter(|(mark, _)| marks.contains(*mark)).map(|(_, word)| word).collect()
}

/// The value as a number.
fn hexadecimal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}
