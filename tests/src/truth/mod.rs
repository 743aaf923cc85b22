// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Ground truth: functions of the kernel are called in known ways, and every hit must be exactly what was called.
//!
//! A [`Truth`] names a function and makes system calls that are known to lead into it. Before each call it states what must be
//! seen: the kind of site, the symbol that contains it, and each argument. All sites of the function are attached with the
//! program of `siteseer trace`, which sends whatever a site has. Then the hits must be the expected calls, all of them, in
//! their order, and nothing else: a missed call, a call counted twice, and a wrong value all fail.
//!
//! # Other compilers
//! Where a function is inlined, and which arguments have a location there, is the compiler's choice; the cases state that of one
//! kernel. On another, the kernel's site data say what holds instead, and only this: where they have no site of the stated
//! kind in the stated symbol, the call may be seen at another; an argument that a site lacks must be reported as missing, and
//! one that it has must be exact. Each difference is reported, and the harness accepts none on the kernel that the cases are
//! written for. The number of calls, their order and the values never depend on the kernel.

mod cases;

use crate::case::{Case, Failure, Lack, Shown};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramAttachType, ProgramType, RingBufferBuilder};
use siteseer::report::{Outcome, Report, SiteReport};
use siteseer::{Attach, Policy, Target};
use siteseer_bpf_progs::oracle::Oracle;
use siteseer_bpf_progs::trace::{Function, Record};
use siteseer_bpf_progs::{ORACLE, TRACE, set_constant};
use siteseer_sites::SiteKind;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;

/// A function, and calls of it.
pub struct Truth {
    /// The function.
    pub function: &'static str,
    /// What the case is there for.
    pub shows: &'static str,
    /// Makes the calls, and states what must be seen of them.
    pub calls: fn(&mut Calls<'_>) -> io::Result<()>,
}

/// What an argument must be.
#[derive(Debug, Clone)]
pub enum Value {
    /// This number, as extended from the parameter's type.
    Is(u64),
    /// These bits are these.
    Masked {
        /// The bits.
        value: u64,
        /// Which are looked at.
        mask: u64,
    },
    /// A structure by value, slot by slot.
    Slots(Vec<Value>),
    /// The run-time address of a symbol.
    Address(&'static str),
    /// A pointer to this text and a NUL.
    Text(&'static str),
    /// A pointer to memory that begins with these bytes.
    Memory(Vec<u8>),
    /// One of these.
    OneOf(Vec<Value>),
    /// What a plain program on the same path saw.
    Oracle(Oracle),
    /// This site does not have it, and says so. Where another kernel's does, it is this.
    Missing(Box<Value>),
}

/// A call that must be seen.
struct Expected {
    /// Kind and containing symbol; `None` where any site will do.
    site: Option<(SiteKind, &'static str)>,
    arguments: Vec<Value>,
}

/// What was called so far.
pub struct Calls<'o> {
    expected: Vec<Expected>,
    report: &'o Report,
    oracle: Option<&'o Object>,
}

impl Calls<'_> {
    /// The next call must be seen at a site of this kind in this symbol.
    pub fn expect(&mut self, kind: SiteKind, within: &'static str, arguments: Vec<Value>) {
        self.expected.push(Expected { site: Some((kind, within)), arguments });
    }

    /// The next call must be seen at some site.
    pub fn expect_anywhere(&mut self, arguments: Vec<Value>) {
        self.expected.push(Expected { site: None, arguments });
    }

    /// Whether the kernel's site data have a site of this kind in this symbol.
    pub fn has_site(&self, kind: SiteKind, within: &str) -> bool {
        sites_at(self.report, (kind, within)).next().is_some()
    }

    /// Asks the oracle what it saw during the last call: its values are those of the latest call only.
    ///
    /// # Errors
    /// If the oracle's map cannot be read.
    pub fn settle(&mut self) -> io::Result<()> {
        let (Some(oracle), Some(last)) = (self.oracle, self.expected.last_mut()) else { return Ok(()) };
        let map = oracle.maps().find(|map| map.name() == "seen").ok_or(io::ErrorKind::NotFound)?;
        for value in &mut last.arguments {
            let value = if let Value::Missing(inner) = value { inner.as_mut() } else { value };
            if let Value::Oracle(what) = value {
                let key = (*what as u32).to_ne_bytes();
                let seen = map.lookup(&key, MapFlags::ANY).map_err(io::Error::other)?.unwrap_or_default();
                let seen = seen.try_into().map_or(0, u64::from_ne_bytes);
                if seen == 0 {
                    return Err(io::Error::other(format!("the oracle has not seen {what:?}")));
                }
                *value = Value::Is(seen);
            }
        }
        Ok(())
    }
}

/// All ground-truth cases.
pub fn cases() -> Vec<Case> {
    cases::TRUTHS
        .iter()
        .map(|truth| Case {
            name: format!("truth::{}", truth.function),
            run: Box::new(move |target| {
                // Each kprobe by itself, then all of them together, however few they are.
                check(truth, target, usize::MAX).map_err(|why| format!("each kprobe by itself: {why}"))?;
                check(truth, target, 1)
            }),
        })
        .collect()
}

/// The maps of `object` by name.
fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>, Failure> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| format!("no map {name}").into())
}

fn load(elf: &'static [u8]) -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(elf)?;
    set_constant(&mut open, elf, "only_tgid", std::process::id())?;
    // The oracle's programs are fentry programs that go past siteseer, which has libbpf's own section name.
    for mut program in open.progs_mut() {
        let section = program.section().to_string_lossy().into_owned();
        if let Some(function) = section.strip_prefix("oracle/") {
            program.set_prog_type(ProgramType::Tracing);
            program.set_attach_type(ProgramAttachType::TraceFentry);
            program.set_attach_target(0, Some(function.to_owned()))?;
        }
    }
    Ok(open.load()?)
}

/// `many` is from how many kprobes on they are armed together.
fn check(truth: &Truth, target: &Target, many: usize) -> Result<Shown, Failure> {
    let oracle = load(ORACLE)?;
    let _watching: Vec<Link> =
        oracle.progs_mut().map(|program| program.attach_trace()).collect::<Result<_, libbpf_rs::Error>>()?;
    let object = load(TRACE)?;
    // Text at the first parameters, wherever they point; what cannot be read is no text.
    let wanted = Function { kernel_strings: 0b1111, ..Function::default() };
    map(&object, "functions")?.update(&0u32.to_ne_bytes(), &wanted.to_bytes(), MapFlags::ANY)?;

    let records = RefCell::new(Vec::new());
    let buffer = map(&object, "records")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&buffer, |data| {
        records.borrow_mut().push(Record::parse(data));
        0
    })?;
    let ring = builder.build()?;

    let program = object.progs().next().ok_or("no program")?;
    let attach =
        Attach::new(target).function(truth.function).policy(Policy::BestEffort).all_prototypes(true).bulk_from(many);
    let link = attach.attach(&program)?;
    // Attaching made system calls of its own.
    ring.consume()?;
    records.borrow_mut().clear();

    let mut calls = Calls { expected: Vec::new(), report: link.report(), oracle: Some(&oracle) };
    (truth.calls)(&mut calls).map_err(|error| format!("the calls could not be made: {error}"))?;
    ring.consume()?;

    drop(ring);
    let hits: Option<Vec<Record>> = records.into_inner().into_iter().collect();
    let hits = hits.ok_or("a record is too short")?;
    let dropped = map(&object, "dropped")?.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    if dropped.iter().flatten().any(|&byte| byte != 0) {
        return Err("hits were dropped for want of room".into());
    }
    let expected = calls.expected;
    let report = link.report().clone();
    let faults = link.faults()?;
    link.detach();
    if faults > 0 {
        return Err(format!("{faults} hits left out because memory could not be read").into());
    }
    compare(truth, &expected, &hits, &report)
}

/// Every hit is the expected call at its place, and there are as many.
fn compare(truth: &Truth, stated: &[Expected], hits: &[Record], report: &Report) -> Result<Shown, Failure> {
    if stated.is_empty() {
        return Err("the case expects nothing".into());
    }
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let mut differences = BTreeSet::new();
    let expected = visible(stated, report, &mut differences);
    if expected.is_empty() {
        return Err(Lack::Sites(differences.into_iter().collect::<Vec<_>>().join("; ")).into());
    }
    let mut wrong = String::new();
    let (mut calls, mut rest, mut nth) = (expected.as_slice(), hits, 0);
    while let [hit, ..] = rest {
        // Copies that begin at one address run one after the other in no stated order.
        let together = sites_of(hit, report).count().clamp(1, calls.len().min(rest.len()).max(1));
        let (Some((these, later_calls)), (now, later)) = (calls.split_at_checked(together), rest.split_at(together))
        else {
            break;
        };
        match assign(these, now, report, &symbols) {
            Ok(found) => differences.extend(found),
            Err(why) => writeln!(wrong, "call {nth}: {why}")?,
        }
        (calls, rest, nth) = (later_calls, later, nth + together);
    }
    if hits.len() != expected.len() {
        writeln!(wrong, "{} calls, {} hits:", expected.len(), hits.len())?;
        for hit in hits {
            writeln!(wrong, "  {}", describe(hit, report))?;
        }
    }
    if !wrong.is_empty() {
        return Err(format!("{wrong}{}", report.long()).into());
    }
    let mut places: BTreeMap<(SiteKind, String), usize> = BTreeMap::new();
    for hit in hits {
        let site = hit.site.and_then(|id| report.site(id)).ok_or("a hit without a site")?;
        *places.entry((site.kind, format!("{}+{:#x}", site.symbol, site.offset))).or_default() += 1;
    }
    let located = |hit: &Record| {
        hit.site.and_then(|id| report.site(id)).map_or(0, |site| site.arguments.iter().flatten().count())
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
    Ok(Shown { text, differences: differences.into_iter().collect() })
}

/// The sites of a kind in a symbol.
fn sites_at<'r>(report: &'r Report, (kind, within): (SiteKind, &'r str)) -> impl Iterator<Item = &'r SiteReport> {
    report.sites().filter(move |site| (site.kind, site.symbol.as_str()) == (kind, within))
}

/// The calls that are to be seen: all, but for those at a site that this kernel's site data keep the program from.
fn visible<'e>(stated: &'e [Expected], report: &Report, differences: &mut BTreeSet<String>) -> Vec<&'e Expected> {
    let is_visible = |call: &&Expected| {
        let Some(place @ (kind, within)) = call.site else { return true };
        let skipped = |site: &SiteReport| match &site.outcome {
            Outcome::Skipped(reason) => Some(reason.to_string()),
            Outcome::Attached { .. } => None,
        };
        let reasons = |sites: &mut dyn Iterator<Item = &SiteReport>| -> Option<String> {
            let all: Option<Vec<String>> = sites.map(skipped).collect();
            all.and_then(|all| all.into_iter().next())
        };
        if let Some(reason) = reasons(&mut sites_at(report, place)) {
            differences.insert(format!("{kind} in {within} is not attached: {reason}"));
            return false;
        }
        // A function that is not inlined there is called.
        let mut called = report.sites().filter(|site| site.kind != SiteKind::Inline);
        if let Some(reason) = reasons(&mut called)
            && sites_at(report, place).next().is_none()
        {
            differences.insert(format!("no {kind} in {within}, and what is called instead is not attached: {reason}"));
            return false;
        }
        true
    };
    stated.iter().filter(is_visible).collect()
}

fn describe(hit: &Record, report: &Report) -> String {
    let site = hit.site.and_then(|id| report.site(id));
    let place = site.map_or_else(
        || format!("unknown site at {:#x}", hit.address),
        |site| format!("{} {}+{:#x}", site.kind, site.symbol, site.offset),
    );
    let values: Vec<String> =
        (0..6).map(|n| hit.value(n, 0).map_or_else(|| "none".to_owned(), |value| format!("{value:#x}"))).collect();
    format!("{place}: {}", values.join(", "))
}

/// The sites that a hit can be of: those at its address. The number that it carries is that of one of them
/// (docs/semantics.md, S2.6).
fn sites_of<'r>(hit: &Record, report: &'r Report) -> impl Iterator<Item = &'r SiteReport> {
    let site = hit.site.and_then(|id| report.site(id));
    report.attached().filter(move |other| site.is_some_and(|site| other.address == site.address))
}

/// Gives each hit a call that it matches, no two the same. Returns what differs from the reference.
fn assign(calls: &[&Expected], hits: &[Record], report: &Report, symbols: &str) -> Result<BTreeSet<String>, String> {
    let Some((hit, later)) = hits.split_first() else { return Ok(BTreeSet::new()) };
    let mut why = None;
    for (nth, call) in calls.iter().enumerate() {
        let others: Vec<&Expected> = [&calls[..nth], &calls[nth + 1..]].concat();
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
fn matches(call: &Expected, hit: &Record, report: &Report, symbols: &str) -> Result<BTreeSet<String>, String> {
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
    call: &Expected,
    hit: &Record,
    report: &Report,
    symbols: &str,
) -> Result<BTreeSet<String>, String> {
    let mut differences = BTreeSet::new();
    if let Some(place @ (kind, within)) = call.site
        && (site.kind, site.symbol.as_str()) != place
    {
        if sites_at(report, place).next().is_some() {
            return Err(format!("expected {kind} in {within}, seen {}", describe(hit, report)));
        }
        differences.insert(format!("{} in {} instead of {kind} in {within}", site.kind, site.symbol));
    }
    // A parameter more than stated would be one that nobody checked.
    let parameters = site.arguments.len();
    if parameters != call.arguments.len() {
        return Err(format!("{} arguments stated, the function has {parameters}", call.arguments.len()));
    }
    for (nth, (value, located)) in call.arguments.iter().zip(&site.arguments).enumerate() {
        let value = match (value, located) {
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
