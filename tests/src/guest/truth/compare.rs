// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Hits against calls: where each call is to be seen on this kernel, and whether it was, with its arguments.
//!
//! Hits come in the order of the calls. A call that may be missed is passed over where the next hit is not it; what is
//! left then must be hits of the calls that follow.

use super::{Expected, Truth, Value};
use crate::guest::case::{Failure, Lack, Shown};
use crate::guest::shape::{self, Place, Shape, callers_of};
use siteseer::internals::unavailable::available;
use siteseer::{Outcome, Reason, Report, SiteReport, Target};
use siteseer_bpf_progs::trace::Record;
use siteseer_sites::SiteKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

/// A call, and the sites that it can be at.
struct Wanted<'e> {
    call: &'e Expected,
    /// Their numbers in the report.
    sites: Vec<u32>,
    /// Whether it need not be seen: one of them is not attached, or may be passed by.
    may_miss: bool,
}

/// What came of comparing.
pub(super) struct Compared {
    pub(super) shown: Shown,
    /// A site where calls were missed that control may have come into past its entry: its symbol, and bytes from it.
    pub(super) passed_by: Option<(String, u64)>,
}

/// Every hit is the expected call at its place, and there are as many.
pub(super) fn compare(
    truth: &Truth,
    target: &Target,
    stated: &[Expected],
    hits: &[Record],
    report: &Report,
) -> Result<Compared, Failure> {
    if stated.is_empty() {
        return Err("the case expects nothing".into());
    }
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let callers = callers(truth, target, report)?;
    let mut differences = BTreeSet::new();
    let mut expected = Vec::new();
    for call in stated {
        expected.extend(places(call, report, &callers, &mut differences)?);
    }
    if expected.is_empty() {
        if let [hit, ..] = hits {
            return Err(format!("no call can be seen, and one is: {}", describe(hit, report)).into());
        }
        return Err(Lack::Shapes(shapes(truth, stated)).into());
    }
    let mut wrong = String::new();
    let mut missed: Vec<&Wanted<'_>> = Vec::new();
    let (mut calls, mut rest, mut nth) = (expected.as_slice(), hits, 0);
    while let [hit, ..] = rest {
        // Copies that begin at one address run one after the other in no stated order.
        let together = sites_of(hit, report).count().clamp(1, calls.len().min(rest.len()).max(1));
        let (Some((these, later_calls)), (now, later)) = (calls.split_at_checked(together), rest.split_at(together))
        else {
            break;
        };
        match (assign(&these.iter().collect::<Vec<_>>(), now, report, &symbols), calls) {
            (Ok(found), _) => differences.extend(found),
            (Err(_), [first, others @ ..]) if first.may_miss => {
                missed.push(first);
                (calls, nth) = (others, nth + 1);
                continue;
            }
            (Err(why), _) => writeln!(wrong, "call {nth}: {why}")?,
        }
        (calls, rest, nth) = (later_calls, later, nth + together);
    }
    missed.extend(calls.iter().filter(|call| call.may_miss));
    if hits.len() + missed.len() != expected.len() {
        writeln!(
            wrong,
            "{} calls, {} of them missed where they may be, {} hits:",
            expected.len(),
            missed.len(),
            hits.len()
        )?;
        for hit in hits {
            writeln!(wrong, "  {}", describe(hit, report))?;
        }
    }
    if !wrong.is_empty() {
        return Err(format!("{wrong}{}", report.long()).into());
    }
    let mut passed_by = None;
    for call in &missed {
        let sites = || report.sites().filter(|site| call.sites.contains(&site.id));
        let place = sites().map(|site| format!("{}+{:#x}", site.symbol, site.offset)).collect::<Vec<_>>().join(" or ");
        let site = sites().find(|site| site.may_miss);
        passed_by = passed_by.or(site.map(|site| (site.symbol.clone(), site.offset)));
        let count = missed.iter().filter(|other| other.sites == call.sites).count();
        let all = expected.iter().filter(|other| other.sites == call.sites).count();
        differences.insert(format!(
            "{count} of {all} calls are not seen at {place}, which may happen according to the site data"
        ));
    }
    let mut places: BTreeMap<(SiteKind, String), usize> = BTreeMap::new();
    for hit in hits {
        let site = hit.site.and_then(|id| report.site(id)).ok_or("a hit without a site")?;
        *places.entry((site.kind, format!("{}+{:#x}", site.symbol, site.offset))).or_default() += 1;
    }
    let located = |hit: &Record| {
        hit.site
            .and_then(|id| report.site(id))
            .map_or(0, |site| site.arguments.iter().flatten().filter(|located| located.is_certain()).count())
    };
    let arguments: usize = hits.iter().map(located).sum();
    let places: Vec<String> = places.iter().map(|((kind, place), count)| format!("{count} {kind} {place}")).collect();
    let text = format!(
        "{:<24} {:>3} calls, {:>3} hits, {:>3} arguments equal   {} ({})",
        truth.function,
        expected.len(),
        hits.len(),
        arguments,
        places.join(", "),
        truth.shows
    );
    Ok(Compared { shown: Shown { text, differences: differences.into_iter().collect() }, passed_by })
}

/// The functions of the source that each inlined copy is in, from the inside out, by its number in the report.
type Callers = BTreeMap<u32, Vec<String>>;

fn callers(truth: &Truth, target: &Target, report: &Report) -> Result<Callers, Failure> {
    target.data().read(&[truth.function], |file| -> Result<Callers, Failure> {
        let mut callers = BTreeMap::new();
        for site in report.sites().filter(|site| site.kind == SiteKind::Inline) {
            let Some(index) = site.index else { continue };
            callers.insert(site.id, callers_of(file, index)?);
        }
        Ok(callers)
    })?
}

/// Where a call is to be seen on this kernel; nothing where its site data keep the program from all of the places.
fn places<'e>(
    call: &'e Expected,
    report: &Report,
    callers: &Callers,
    differences: &mut BTreeSet<String>,
) -> Result<Option<Wanted<'e>>, Failure> {
    let (kind, within) = call.place;
    let caller = call.caller.unwrap_or(within);
    let by = |site: &SiteReport| callers.get(&site.id).map_or(&[] as &[String], Vec::as_slice);
    let is_called_by = |site: &&SiteReport| by(site).first().is_some_and(|by| by == caller);
    let stated = |site: &&SiteReport| {
        is_named(site, kind, within) && (call.caller.is_none() || site.kind != SiteKind::Inline || is_called_by(site))
    };
    let on_behalf =
        |site: &&SiteReport| is_called_by(site) && by(site).iter().skip(1).any(|by| Some(by.as_str()) == call.origin);
    let inlined: Vec<&SiteReport> = match call {
        _ if kind == SiteKind::Inline => report.sites().filter(on_behalf).collect(),
        Expected { caller: Some(_), .. } => report.sites().filter(is_called_by).collect(),
        _ => Vec::new(),
    };
    let mut sites: Vec<&SiteReport> = report.sites().filter(stated).collect();
    if sites.is_empty() || !inlined.is_empty() {
        sites = if inlined.is_empty() { report.sites().filter(is_called_by).collect() } else { inlined };
        if sites.is_empty() {
            sites = report.sites().filter(|site| site.kind != SiteKind::Inline).collect();
        }
        let found: Vec<String> = sites.iter().map(|site| format!("{} in {}", site.kind, site.symbol)).collect();
        let found = if found.len() > 3 { format!("{} out-of-line copies", found.len()) } else { found.join(" or ") };
        differences.insert(format!("{found} instead of {kind} in {within}"));
    }
    if sites.is_empty() {
        return Err(format!(
            "no {kind} in {within}, nothing inlined in {caller}, and nothing that could be called:\n{}",
            report.long()
        )
        .into());
    }
    let skipped: Vec<&Reason> = sites
        .iter()
        .filter_map(|site| match &site.outcome {
            Outcome::Skipped(reason) => Some(reason),
            Outcome::Attached { .. } => None,
        })
        .collect();
    if let Some(reason) = skipped.first() {
        differences.insert(format!(
            "{} of {} places of {kind} in {within} not attached: {reason}",
            skipped.len(),
            sites.len()
        ));
    }
    if skipped.len() == sites.len() {
        return Ok(None);
    }
    let may_miss = !skipped.is_empty() || sites.iter().any(|site| site.may_miss);
    Ok(Some(Wanted { call, sites: sites.iter().map(|site| site.id).collect(), may_miss }))
}

/// Whether a site is of this kind in this symbol. A link that is optimised as a whole leaves the name to one of several
/// namesakes, and adds a number to the names of the others, like the suffixes of clones. What one file has from
/// another's gets a hash (ThinLTO).
pub(super) fn is_named(site: &SiteReport, kind: SiteKind, within: &str) -> bool {
    let suffix = site.symbol.strip_prefix(within).and_then(|rest| rest.strip_prefix('.'));
    let told_apart = suffix.is_some_and(|suffix| {
        let number = suffix.strip_prefix("llvm.").unwrap_or(suffix);
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    match (site.kind, kind) {
        _ if site.symbol == within => site.kind == kind,
        (SiteKind::Clone, SiteKind::Body) | (SiteKind::Inline, SiteKind::Inline) => told_apart,
        _ => false,
    }
}

/// What a kernel must have if any of the calls can be seen: the rules of [`places`].
fn shapes(truth: &Truth, stated: &[Expected]) -> Vec<Shape> {
    let mut shapes = BTreeSet::new();
    for call in stated {
        let (kind, within) = call.place;
        let caller = call.caller.unwrap_or(within);
        let there = shape::site(kind.into()).within(within);
        let inlined = shape::site(Place::Inline).called_by(caller);
        let out_of_line = Shape::new(truth.function, [shape::site(Place::OutOfLine)])
            .and_no(there.clone().attachable_or_not())
            .and_no(inlined.clone().attachable_or_not());
        shapes.insert(Shape::new(truth.function, [there.clone()]));
        shapes.insert(Shape::new(truth.function, [inlined]).and_no(there.attachable_or_not()));
        shapes.insert(out_of_line);
    }
    shapes.into_iter().collect()
}

fn describe(hit: &Record, report: &Report) -> String {
    let site = hit.site.and_then(|id| report.site(id));
    let place = site.map_or_else(
        || format!("unknown site at {:#x}", hit.address),
        |site| format!("{} {}+{:#x}", site.kind, site.symbol, site.offset),
    );
    let count = site.map_or(6, |site| site.arguments.len());
    let values: Vec<String> =
        (0..count).map(|n| hit.value(n, 0).map_or_else(|| "none".to_owned(), |value| format!("{value:#x}"))).collect();
    format!("{place}: {}", values.join(", "))
}

/// The sites that a hit can be of: those at its address. The number that it carries is that of one of them
/// (docs/semantics.md, S2.6).
fn sites_of<'r>(hit: &Record, report: &'r Report) -> impl Iterator<Item = &'r SiteReport> {
    let site = hit.site.and_then(|id| report.site(id));
    report.attached().filter(move |other| site.is_some_and(|site| other.address == site.address))
}

/// Gives each hit a call that it matches, no two the same. Returns what differs from the reference.
fn assign(calls: &[&Wanted<'_>], hits: &[Record], report: &Report, symbols: &str) -> Result<BTreeSet<String>, String> {
    let Some((hit, later)) = hits.split_first() else { return Ok(BTreeSet::new()) };
    let mut why = None;
    for (nth, call) in calls.iter().enumerate() {
        let others: Vec<&Wanted<'_>> = [&calls[..nth], &calls[nth + 1..]].concat();
        let result = matches(call, hit, report, symbols).and_then(|mut found| {
            found.extend(assign(&others, later, report, symbols)?);
            Ok(found)
        });
        match result {
            Ok(found) => return Ok(found),
            Err(reason) => _ = why.get_or_insert(reason),
        }
    }
    Err(why.unwrap_or_else(|| format!("one hit too many: {}", describe(hit, report))))
}

/// Whether a hit is this call at some site at its address. Returns what differs from the reference.
fn matches(call: &Wanted<'_>, hit: &Record, report: &Report, symbols: &str) -> Result<BTreeSet<String>, String> {
    let mut why = None;
    for site in sites_of(hit, report) {
        match matches_at(site, call, hit, report, symbols) {
            Ok(found) => return Ok(found),
            Err(reason) => _ = why.get_or_insert(reason),
        }
    }
    Err(why.unwrap_or_else(|| "a hit without a site".to_owned()))
}

fn matches_at(
    site: &SiteReport,
    Wanted { call, sites, .. }: &Wanted<'_>,
    hit: &Record,
    report: &Report,
    symbols: &str,
) -> Result<BTreeSet<String>, String> {
    let mut differences = BTreeSet::new();
    if !sites.contains(&site.id) {
        let (kind, within) = call.place;
        return Err(format!(
            "expected {kind} in {within} or what this kernel has instead, seen {}",
            describe(hit, report)
        ));
    }
    // A parameter more than stated would be one that nobody checked.
    let parameters = site.arguments.len();
    if parameters != call.arguments.len() {
        return Err(format!("{} arguments stated, the function has {parameters}", call.arguments.len()));
    }
    for (nth, (value, argument)) in call.arguments.iter().zip(&site.arguments).enumerate() {
        let value = match (value, available(argument, false)) {
            (Value::Missing(_), Err(_)) => value,
            (Value::Missing(value), Ok(_)) => {
                differences.insert(format!("argument {nth} has a location at {} in {}", site.kind, site.symbol));
                value
            }
            (value, Ok(_)) => value,
            (_, Err(why)) => {
                differences.insert(format!("argument {nth} has none at {} in {}: {why}", site.kind, site.symbol));
                &Value::Missing(Box::new(value.clone()))
            }
        };
        let ok = match value {
            Value::Slots(slots) => {
                slots.iter().enumerate().all(|(slot, value)| is(value, hit.value(nth, slot), None, symbols))
            }
            single => is(single, hit.value(nth, 0), hit.string(nth), symbols),
        };
        if !ok {
            return Err(format!("argument {nth}: expected {value:x?}, seen {}", describe(hit, report)));
        }
    }
    Ok(differences)
}

fn is(expected: &Value, seen: Option<u64>, text: Option<&[u8]>, symbols: &str) -> bool {
    match expected {
        Value::Is(value) => seen == Some(*value),
        Value::Masked { value, mask } => seen.is_some_and(|seen| seen & mask == *value),
        Value::Address(name) => seen.is_some() && seen == address_of(symbols, name),
        Value::Text(wanted) => text == Some(wanted.as_bytes()),
        Value::Memory(bytes) => text.is_some_and(|text| text.starts_with(bytes)),
        Value::Missing(_) => seen.is_none(),
        Value::OneOf(values) => values.iter().any(|value| is(value, seen, text, symbols)),
        // Slots do not nest, and an oracle that was not asked has no value.
        Value::Slots(_) | Value::Oracle(_) => false,
    }
}

/// The run-time address of a symbol, if the kernel has exactly one.
fn address_of(symbols: &str, name: &str) -> Option<u64> {
    let mut found = symbols.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(1)? == name).then_some(address)
    });
    found.next().filter(|_| found.next().is_none())
}
