// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Ground truth: functions of the kernel are called in known ways, and every hit must be exactly what was called.
//!
//! A [`Truth`] names a function and makes system calls that are known to lead into it. Before each call it states what
//! must be seen: the kind of site, the symbol that contains it, and each argument. All sites of the function are
//! attached with the program of `siteseer trace`, which sends whatever a site has. Then the hits must be the expected
//! calls, all of them, in their order, and nothing else: a missed call, a call counted twice, and a wrong value all
//! fail.
//!
//! # Other compilers
//! Where a function is inlined, and which arguments have a location there, is the compiler's choice; the cases state
//! that of one kernel, and the function of the source that makes each call. On another kernel, its site data says what
//! holds instead, and only this ([`compare`]):
//! * where they have inlined copies in the calling function that were inlined, with it, into the function that a case
//!   names as the one that the call comes from in the end, the call is at one of those;
//! * else, where the stated site is out of line, but they have inlined copies in the calling function, at one of those;
//! * else, where they have sites of the stated kind in the stated symbol, at one of those; a link that is optimised as
//!   a whole gives namesakes a number after the name;
//! * else, where they have inlined copies that the calling function has in the source, at one of those;
//! * else the function is called, and the call is at an out-of-line copy.
//!
//! An argument that a site lacks must be reported as missing, and one that it has must be exact. A call at a site that
//! the site data keep the program from is not seen; at one that control may come into by another way than its entry it
//! may be missed, and then `complete` must refuse that very site. Each difference is reported, and the harness accepts
//! none on the kernel that the cases are written for. The number of calls, their order and the values never depend on
//! the kernel.

mod cases;
mod compare;

use crate::guest::case::{Capability, Case, Failure, Lack, Shown, need};
use crate::guest::watch::Watch;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramAttachType, ProgramType};
use siteseer::{Attach, AttachError, AttachOptions, InTheWay, PlanError, Policy, Reason, Report, SiteReport, Target};
use siteseer_bpf_progs::oracle::Oracle;
use siteseer_bpf_progs::{ORACLE, set_constant};
use siteseer_sites::SiteKind;
use siteseer_sites::location::Location;
use siteseer_sites::with_causes;
use std::io;

/// A function, and calls of it.
pub struct Truth {
    /// The function.
    pub function: &'static str,
    /// What the case is there for.
    pub shows: &'static str,
    /// Whether some value is what the oracle saw: only then it is attached.
    pub asks: bool,
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
#[derive(Debug)]
pub struct Expected {
    /// Kind and containing symbol.
    place: (SiteKind, &'static str),
    /// The function of the source that makes the call, if not the one that the symbol is of.
    caller: Option<&'static str>,
    /// The function of the source that has the caller make it.
    origin: Option<&'static str>,
    arguments: Vec<Value>,
}

impl Expected {
    /// The function of the source that makes the call: what tells the place where a compiler inlined otherwise.
    pub fn called_by(&mut self, caller: &'static str) {
        self.caller = Some(caller);
    }

    /// The function of the source that has the caller make it: a compiler may inline the two of them into it.
    pub fn on_behalf_of(&mut self, origin: &'static str) {
        self.origin = Some(origin);
    }
}

/// What was called so far.
pub struct Calls<'o> {
    expected: Vec<Expected>,
    report: &'o Report,
    oracle: Option<&'o Object>,
}

impl Calls<'_> {
    /// The next call must be seen at a site of this kind in this symbol.
    pub fn expect(&mut self, kind: SiteKind, within: &'static str, arguments: Vec<Value>) -> &mut Expected {
        self.expected.push(Expected { place: (kind, within), caller: None, origin: None, arguments });
        let last = self.expected.len() - 1;
        &mut self.expected[last]
    }

    /// Whether the kernel's site data has a site of this kind in this symbol.
    pub fn has_site(&self, kind: SiteKind, within: &str) -> bool {
        self.report.sites().any(|site| compare::is_named(site, kind, within))
    }

    /// How many copies of the function are out of line.
    pub fn out_of_line(&self) -> usize {
        self.report.sites().filter(|site| site.kind != SiteKind::Inline).count()
    }

    /// How many parameters the function has.
    pub fn parameters(&self) -> usize {
        self.report.sites().map(|site| site.arguments.len()).max().unwrap_or(0)
    }

    /// Whether the compiler knows an argument at all of the function's sites, and it is this number.
    pub fn is_always(&self, argument: usize, value: u64) -> bool {
        let is = |site: &SiteReport| matches!(site.arguments.get(argument), Some(Ok(located)) if located.is_certain() && located.at == Location::Constant(value));
        self.report.sites().all(is)
    }

    /// Asks the oracle what it saw during the last call: its values are those of the latest call only.
    ///
    /// # Errors
    /// If the oracle's map cannot be read.
    pub fn settle(&mut self) -> io::Result<()> {
        let oracle = self.oracle.ok_or_else(|| io::Error::other("the case says that it asks no oracle"))?;
        let Some(last) = self.expected.last_mut() else { return Ok(()) };
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
                // Each kprobe by itself, and all of them together, however few they are; a program for each location
                // prototype, and as few as there can be.
                for (many, beyond) in [(usize::MAX, usize::MAX), (usize::MAX, 1), (1, 1)] {
                    check(truth, target, target, many, beyond).map_err(|why| in_mode(why, many, beyond))?;
                }
                check(truth, target, target, 1, usize::MAX)
            }),
        })
        .collect()
}

/// Says in which mode it failed. What is lacking is lacking in all.
fn in_mode(why: Failure, many: usize, beyond: usize) -> Failure {
    if why.is::<Lack>() {
        return why;
    }
    let kprobes = if many == 1 { "kprobes together" } else { "each kprobe by itself" };
    let programs = if beyond == 1 { "shared programs" } else { "a program for each location prototype" };
    format!("{kprobes}, {programs}: {why}").into()
}

fn load_oracle() -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(ORACLE)?;
    set_constant(&mut open, ORACLE, "only_tgid", std::process::id())?;
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

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = &'static str> {
    cases::TRUTHS.iter().map(|truth| truth.function)
}

/// All of them by site data that says less. `full` says what the sites are: they have the same numbers there. An
/// argument that the data cannot express is one that a site lacks.
///
/// # Errors
/// If a call is missed or a value is wrong.
pub(crate) fn with_less(less: &Target, full: &Target) -> Result<Shown, Failure> {
    let (mut shown, mut lost) = (Vec::new(), Vec::new());
    for truth in cases::TRUTHS {
        match check(truth, less, full, usize::MAX, usize::MAX) {
            Ok(found) => {
                shown.push(found.text);
                lost.extend(found.differences.into_iter().map(|what| format!("{}: {what}", truth.function)));
            }
            Err(why) if why.is::<Lack>() => {}
            Err(why) => return Err(format!("{}: {why}", truth.function).into()),
        }
    }
    if shown.is_empty() {
        return Err("no function was exercised".into());
    }
    Ok(Shown { text: format!("{}\n{}", shown.join("\n"), lost.join("\n")), differences: Vec::new() })
}

/// `described` has the same sites as `target`, with all that is known of them. `many` is from how many kprobes on they
/// are armed together, `beyond` beyond how many location prototypes programs are shared.
fn check(truth: &Truth, target: &Target, described: &Target, many: usize, beyond: usize) -> Result<Shown, Failure> {
    if truth.asks {
        need(target, Capability::Fentry)?;
    }
    let oracle = truth.asks.then(load_oracle).transpose()?;
    let _watching: Vec<Link> = oracle
        .iter()
        .flat_map(|oracle| oracle.progs_mut())
        .map(|program| program.attach_trace())
        .collect::<Result<_, libbpf_rs::Error>>()?;
    let watch = Watch::load()?;
    let options = AttachOptions::default().function(truth.function).all_prototypes(true);
    let all = options.clone().policy(Policy::BestEffort).bulk_from(many).share_beyond(beyond);
    let link = watch.attach(&Attach::with(target, all))?;
    let mut calls = Calls { expected: Vec::new(), report: link.report(), oracle: oracle.as_ref() };
    (truth.calls)(&mut calls).map_err(|error| format!("the calls could not be made: {error}"))?;
    let hits = watch.records()?;
    watch.has_all()?;
    let stated = calls.expected;
    let report = link.report().clone();
    let faults = link.faults()?;
    link.detach();
    if faults > 0 {
        return Err(format!("{faults} hits left out because memory could not be read").into());
    }
    let result = compare::compare(truth, described, &stated, &hits, &report)?;
    if let Some(site) = &result.passed_by {
        let attach = Attach::with(target, options.policy(Policy::Complete));
        refused_by_complete(&attach, &watch.program()?, site, &report)?;
    }
    Ok(result.shown)
}

/// The site that calls were missed at is what keeps `complete` from attaching, and best effort says so.
fn refused_by_complete(
    attach: &Attach<'_>,
    program: &libbpf_rs::ProgramMut<'_>,
    (symbol, offset): &(String, u64),
    report: &Report,
) -> Result<(), Failure> {
    let is_it =
        |site: &InTheWay| (&site.symbol, &site.offset) == (symbol, offset) && matches!(site.reason, Reason::MayMiss);
    let missed = format!("calls were missed at {symbol}+{offset:#x}");
    match attach.plan(program) {
        Err(AttachError::Plan(PlanError::Incomplete { sites, .. } | PlanError::Nothing { sites, .. }))
            if sites.iter().any(is_it) => {}
        Err(error) => {
            return Err(format!("{missed}, and complete is refused for other sites: {}", with_causes(&error)).into());
        }
        Ok(_) => return Err(format!("{missed}, and complete is not refused").into()),
    }
    if report.to_string().contains("some calls may not be seen") {
        Ok(())
    } else {
        Err(format!("calls were missed, and the report does not say that they may be:\n{report}").into())
    }
}
