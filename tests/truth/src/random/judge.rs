// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compares what was seen at the sites of a compiled program with what its unoptimised build logged.

use crate::random::align::{Known, Span, align};
use crate::random::build::{Built, base_btf};
use crate::random::callers::Place;
use crate::random::config::Config;
use crate::random::observe::{Hit, RunError, Runner, STACK_RANGE, Seen, Watch};
use crate::random::program::{Function, Program, START};
use crate::random::symbols::Symbols;
use crate::random::truth::{Argument, Call, Trace};
use crate::report::{Calls, Failure, Report, ValueKey};
use object::{Object, ObjectSymbol};
use siteseer_encoder::{BaseKernel, EncodeError, KernelTypes, Observed, Options};
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::{Marks, Site, SiteKind, SiteSet};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Mutex;

/// Why a compiled program could not be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JudgeError {
    /// The encoder refuses it.
    #[error("the encoder refuses the image")]
    Encode(#[from] EncodeError),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The image cannot be read.
    #[error("the image cannot be read")]
    Image(#[from] object::Error),
}

/// What a mark about hits is: without one, hits are promised to be calls.
const ABOUT_HITS: [Marks; 3] = [Marks::MAY_REPEAT, Marks::ENTRY_UNCERTAIN, Marks::MAY_MISS];

fn is_marked(site: &Site) -> bool {
    ABOUT_HITS.iter().any(|mark| site.marks.contains(*mark))
}

/// One program in one configuration, with the counts so far.
pub(crate) struct Judge<'j> {
    pub(crate) program: &'j Program,
    pub(crate) config: &'j Config,
    /// How to repeat a failure.
    pub(crate) repeat: String,
}

/// A site's step, and the forms of its arguments: [`Observed`].
type Given = (u32, Vec<&'static str>);

/// The sites of an image, and the functions of the program that they are of.
struct Sites {
    set: SiteSet,
    /// For each site, the place of its function in the program.
    functions: Vec<Option<usize>>,
    /// For each site, where the call is that was inlined, if that is known.
    places: Vec<Option<Place>>,
    /// For each site, the step of the source at which it begins, of those at its address; and how the debug information
    /// gives each argument.
    given: Vec<Given>,
    /// Where addresses of a module are in the image that is run.
    moved: Vec<(Range<u64>, u64)>,
    /// Symbols of text in the image that is run, sorted.
    symbols: Vec<(Range<u64>, String)>,
    /// Functions and variables of the program in the image that is run.
    known: Symbols,
}

impl Sites {
    fn of(built: &Built, program: &Program) -> Result<Sites, JudgeError> {
        let base = base_btf();
        let types = built.module.as_ref().map(|_| KernelTypes::new(&base)).transpose()?;
        let kernel = types.as_ref().map(|types| BaseKernel { types, build_id: &[] });
        // Copies of one function may be at one address. They are observed in the order of their sites.
        let observed: Mutex<HashMap<_, VecDeque<Given>>> = Mutex::default();
        let observer = |site: &Observed<'_>| {
            if let Ok(mut observed) = observed.lock() {
                let key = (site.function.to_owned(), site.address, site.kind);
                observed.entry(key).or_default().push_back((site.step, site.forms.to_vec()));
            }
        };
        let options = Options { kernel, observer: Some(&observer), ..Options::default() };
        let (set, _) = siteseer_encoder::encode(built.module.as_deref().unwrap_or(&built.image), &options)?;
        let mut observed = observed.into_inner().unwrap_or_default();
        let given_of = |site: &Site| {
            let function = set.functions[site.function as usize].name.clone();
            observed.get_mut(&(function, site.address, site.kind)).and_then(VecDeque::pop_front).unwrap_or_default()
        };
        let given = set.sites.iter().map(given_of).collect();
        // What is left of a function that was split (`f1.part.0`) is a function of its own: a program on `f1` is not
        // attached to it.
        let function_of = |site: &Site| {
            let name = &set.functions[site.function as usize].name;
            let function = program.functions.iter().find(|function| function.name == **name)?;
            (function.name != START).then_some(function.id)
        };
        let functions = set.sites.iter().map(function_of).collect();
        let place_of = |site: &Site| {
            let file = set.files.get(site.source.file as usize)?;
            let is_known = site.kind == SiteKind::Inline && site.source.line != 0;
            is_known.then(|| Place::new(file, site.source.line))
        };
        let places = set.sites.iter().map(place_of).collect();
        let file = object::File::parse(&*built.image)?;
        let mut symbols: Vec<(Range<u64>, String)> = file
            .symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
            .map(|symbol| (symbol.address()..symbol.address() + symbol.size(), symbol.name().unwrap_or("?").to_owned()))
            .collect();
        symbols.sort_by_key(|(range, _)| range.start);
        let moved = match &built.module {
            Some(module) => displacements(&set, module, &file)?,
            None => Vec::new(),
        };
        let known = Symbols::of(&file, program);
        Ok(Sites { set, functions, places, given, moved, symbols, known })
    }

    /// Where an address of the site data is in the image that is run.
    fn at(&self, address: u64) -> Option<u64> {
        if self.set.module.is_none() {
            return Some(address);
        }
        let (_, displacement) = self.moved.iter().find(|(range, _)| range.contains(&address))?;
        Some(address.wrapping_add(*displacement))
    }

    /// The location with its addresses as they are in the image that is run.
    fn relocated(&self, located: &Located) -> Located {
        let mut located = located.clone();
        match &mut located.at {
            Location::Address(address) => *address = self.at(*address).unwrap_or(0),
            Location::Computed(computed) => {
                for op in computed.slots.iter_mut().flatten() {
                    if let Op::Address(address) = op {
                        *address = self.at(*address).unwrap_or(0);
                    }
                }
            }
            _ => {}
        }
        located
    }

    /// Where to look. Copies that begin at one address are in the order in which they begin.
    fn watches(&self) -> Vec<Watch> {
        let watch = |(index, site): (usize, &Site)| {
            self.functions[index]?;
            let arguments = self.set.prototypes[site.prototype as usize]
                .iter()
                .map(|argument| argument.as_ref().ok().map(|located| self.relocated(located)))
                .collect();
            Some(Watch { address: self.at(site.address)?, index, arguments, displacement: 0 })
        };
        let mut watches: Vec<Watch> = self.set.sites.iter().enumerate().filter_map(watch).collect();
        watches.sort_by_key(|watch| (watch.address, self.given[watch.index].0));
        watches
    }

    /// The symbol that holds an address.
    fn symbol(&self, address: u64) -> Option<&(Range<u64>, String)> {
        let next = self.symbols.partition_point(|(range, _)| range.start <= address);
        self.symbols[..next].iter().rev().find(|(range, _)| range.contains(&address))
    }
}

/// How far each section of a module was moved when it was linked: by a symbol that both have.
fn displacements(
    set: &SiteSet,
    module: &[u8],
    image: &object::File<'_>,
) -> Result<Vec<(Range<u64>, u64)>, object::Error> {
    use object::ObjectSection;
    let places: HashMap<&str, u64> =
        image.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.address()))).collect();
    let module = object::File::parse(module)?;
    let mut moved = Vec::new();
    for symbol in module.symbols() {
        let (Ok(name), Some(index)) = (symbol.name(), symbol.section_index()) else { continue };
        // Labels that mark code and data on arm64 have all the same names.
        if symbol.size() == 0 {
            continue;
        }
        let section = module.section_by_index(index)?;
        let Some(place) = places.get(name).filter(|_| !name.is_empty()) else { continue };
        let loaded = set.module.iter().flat_map(|module| &module.loaded);
        let Some(loaded) = loaded.into_iter().find(|loaded| Ok(&*loaded.name) == section.name()) else { continue };
        let range = loaded.address..loaded.address + loaded.size;
        if !moved.iter().any(|(known, _)| *known == range) {
            moved.push((range, place.wrapping_sub(loaded.address + symbol.address())));
        }
    }
    Ok(moved)
}

impl Judge<'_> {
    /// Runs the program on each input, and compares.
    pub(crate) fn judge(&self, built: &Built, inputs: &[Vec<u64>], traces: &[Trace]) -> Result<Report, JudgeError> {
        let sites = Sites::of(built, self.program)?;
        let mut report = Report::default();
        self.count_sites(&sites, &mut report);
        let mut runner = Runner::new(&built.image, sites.set.machine, built.world, sites.watches())?;
        let mut failures: BTreeMap<(String, usize, usize), Failure> = BTreeMap::new();
        for (input, trace) in inputs.iter().zip(traces) {
            let calls = report.calls.entry(self.config.compiler.name.clone()).or_default();
            calls.runs += 1;
            let numbers = |seen: &Seen| seen.stores.iter().map(|store| store.number).eq(trace.stores.iter().copied());
            match runner.run(input) {
                Ok(seen) if numbers(&seen) => self.compare(&sites, trace, &seen, &mut report, &mut failures),
                outcome => {
                    calls.failed_runs += 1;
                    let text = match outcome {
                        Ok(seen) => {
                            let pairs = seen.stores.iter().map(|store| store.number).zip(trace.stores.iter().copied());
                            let differs = pairs.clone().position(|(one, other)| one != other);
                            format!(
                                "does something else: store {differs:?} differs ({:?}), {} stores, not {}",
                                differs.and_then(|at| pairs.clone().nth(at)),
                                seen.stores.len(),
                                trace.stores.len()
                            )
                        }
                        Err(error) => error.to_string(),
                    };
                    report.fail(self.failure("run", text));
                    break;
                }
            }
        }
        for failure in failures.into_values() {
            report.fail(failure);
        }
        Ok(report)
    }

    fn failure(&self, kind: &str, text: String) -> Failure {
        Failure {
            kind: kind.to_owned(),
            compiler: self.config.compiler.name.clone(),
            repeat: self.repeat.clone(),
            text,
            times: 1,
        }
    }

    fn count_sites(&self, sites: &Sites, report: &mut Report) {
        let compiler = &self.config.compiler.name;
        let calls: &mut Calls = report.calls.entry(compiler.clone()).or_default();
        for (site, _) in sites.set.sites.iter().zip(&sites.functions).filter(|(_, function)| function.is_some()) {
            calls.sites += 1;
            calls.marked_sites += u64::from(is_marked(site));
            calls.unprobeable_sites += u64::from(site.unprobeable.is_some());
            for argument in &sites.set.prototypes[site.prototype as usize] {
                match argument {
                    Ok(_) => *report.located.entry(compiler.clone()).or_default() += 1,
                    Err(missing) => {
                        *report.missing.entry((compiler.clone(), missing.key().to_owned())).or_default() += 1;
                    }
                }
            }
        }
    }

    fn compare(
        &self,
        sites: &Sites,
        trace: &Trace,
        seen: &Seen,
        report: &mut Report,
        failures: &mut BTreeMap<(String, usize, usize), Failure>,
    ) {
        for function in &self.program.functions {
            let calls: Vec<&Call> = trace.calls.iter().filter(|call| call.function == function.id).collect();
            let of_function = |hit: &&Hit| sites.functions[hit.index] == Some(function.id);
            let hits: Vec<&Hit> = seen.hits.iter().filter(of_function).collect();
            let spans: Vec<Span> = calls.iter().map(|call| call.begin..call.end).collect();
            let times: Vec<usize> = hits.iter().map(|hit| hit.time).collect();
            let pairs = align(&spans, &times, &Pairing { judge: self, sites, calls: &calls, hits: &hits });
            let mut fail = |kind: String, index: usize, argument: usize, text: &dyn Fn() -> String| {
                let times = &mut failures
                    .entry((kind.clone(), index, argument))
                    .or_insert_with(|| Failure { times: 0, ..self.failure(&kind, text()) })
                    .times;
                *times += 1;
            };
            let mut is_paired = vec![false; hits.len()];
            let counts = report.calls.entry(self.config.compiler.name.clone()).or_default();
            let mut pairs_of_values = Vec::new();
            // The function where the program begins has no caller, and is not asked about.
            if function.name == START {
                continue;
            }
            for (call, pair) in calls.iter().zip(&pairs) {
                if let Some(hit) = pair {
                    is_paired[*hit] = true;
                    pairs_of_values.push((*call, hits[*hit]));
                }
                let Some(store) = call.store else { continue };
                counts.calls += 1;
                match pair.map(|hit| hits[hit]) {
                    Some(hit) => {
                        counts.seen += 1;
                        counts.late += u64::from(hit.time > store);
                        counts.at_marked += u64::from(is_marked(&sites.set.sites[hit.index]));
                    }
                    None => {
                        let pc = seen.stores[store].pc;
                        let (kind, marked, near) = where_missed(sites, call, function, pc);
                        if marked {
                            counts.missed_marked += 1;
                        } else {
                            counts.missed += 1;
                            counts.missed_recursive += u64::from(call.is_recursive);
                            let place = sites.symbol(pc).map_or("?", |(_, name)| name);
                            fail(format!("missed {kind}"), pc as usize, 0, &|| {
                                format!(
                                    "a call of {} that stores its number at {pc:#x} in {place} is not seen; {near}",
                                    function.name
                                )
                            });
                        }
                    }
                }
            }
            for (hit, _) in hits.iter().zip(&is_paired).filter(|(_, paired)| !**paired) {
                let site = &sites.set.sites[hit.index];
                if is_marked(site) {
                    counts.doubled_marked += 1;
                } else {
                    counts.doubled += 1;
                    fail(format!("doubled {}", site.kind), hit.index, 0, &|| {
                        format!("a hit of {} is of no call", describe(sites, hit.index))
                    });
                }
            }
            for (call, hit) in pairs_of_values {
                self.compare_values(sites, function.id, call, hit, report, &mut fail);
            }
        }
    }

    fn compare_values(
        &self,
        sites: &Sites,
        function: usize,
        call: &Call,
        hit: &Hit,
        report: &mut Report,
        fail: &mut impl FnMut(String, usize, usize, &dyn Fn() -> String),
    ) {
        let site = &sites.set.sites[hit.index];
        let prototype = &sites.set.prototypes[site.prototype as usize];
        let Some(parameters) = self.program.function(function).map(|function| &function.parameters) else { return };
        for (index, (passed, read)) in call.arguments.iter().zip(&hit.arguments).enumerate() {
            let (Some(read), Some(Ok(located))) = (read, prototype.get(index)) else { continue };
            let Some(is_right) = self.is_right(sites, read, passed) else { continue };
            let form = form(site, located, sites.given[hit.index].1.get(index).copied());
            let doubt = located.doubt.map(|doubt| doubt.key().to_owned());
            if !is_right {
                let sure = if doubt.is_some() { "doubtful value" } else { "value" };
                let whose = if call.is_recursive { ", recursion" } else { "" };
                fail(format!("{sure} {} {form}{whose}", site.kind), hit.index, index, &|| {
                    format!(
                        "{} at {}: {} of type {} is at {}, which gives {read:x?}, and {} was passed",
                        parameters[index].name,
                        describe(sites, hit.index),
                        parameters[index].name,
                        parameters[index].ty.name(),
                        located.display(sites.set.machine),
                        shown(passed)
                    )
                });
            }
            let key = ValueKey {
                compiler: self.config.compiler.name.clone(),
                machine: self.config.compiler.machine.to_string(),
                site: site.kind.word().to_owned(),
                form,
                doubt,
            };
            report.value(key, is_right);
        }
    }
}

impl Judge<'_> {
    /// Whether something that was read for certain at a hit is not what was passed in a call.
    fn differ(&self, sites: &Sites, call: &Call, hit: &Hit) -> bool {
        let prototype = &sites.set.prototypes[sites.set.sites[hit.index].prototype as usize];
        let arguments = prototype.iter().zip(&hit.arguments).zip(&call.arguments);
        arguments.into_iter().any(|((located, read), passed)| match (located, read) {
            (Ok(located), Some(read)) if located.is_certain() => self.is_right(sites, read, passed) == Some(false),
            _ => false,
        })
    }

    /// Whether what was read of an argument is what was passed; `None` if that cannot be told.
    fn is_right(&self, sites: &Sites, read: &[u64], passed: &Argument) -> Option<bool> {
        Some(match (passed, read) {
            (Argument::Stack, [pointer]) => STACK_RANGE.contains(pointer),
            (Argument::Function(function), [pointer]) => self.is_function(sites, *pointer, *function),
            (Argument::Variable { name, size, offset }, [pointer]) => {
                *pointer == sites.known.address(name, *size)?.wrapping_add(*offset)
            }
            (Argument::Bits { slots, mask }, _) => {
                let differs = |((read, passed), mask): ((&u64, &u64), &u64)| (read ^ passed) & mask != 0;
                read.len() == slots.len() && !read.iter().zip(slots).zip(mask).any(differs)
            }
            _ => false,
        })
    }

    /// Whether a pointer is to a function, or to one that is equal to it.
    fn is_function(&self, sites: &Sites, pointer: u64, expected: usize) -> bool {
        let there = sites.symbol(pointer).filter(|(range, _)| range.start == pointer);
        let there = there.and_then(|(_, name)| self.program.named(name));
        let expected = self.program.function(expected);
        there.map(|function| function.number) == expected.map(|function| function.number)
    }
}

/// What tells which hit of a function belongs to which call.
struct Pairing<'p> {
    judge: &'p Judge<'p>,
    sites: &'p Sites,
    calls: &'p [&'p Call],
    hits: &'p [&'p Hit],
}

impl Pairing<'_> {
    fn of(&self, hit: usize) -> &Site {
        &self.sites.set.sites[self.hits[hit].index]
    }
}

impl Known for Pairing<'_> {
    fn differ(&self, call: usize, hit: usize) -> bool {
        self.judge.differ(self.sites, self.calls[call], self.hits[hit])
    }

    fn is_elsewhere(&self, call: usize, hit: usize) -> bool {
        let site = self.sites.places[self.hits[hit].index].as_ref();
        site.zip(self.calls[call].place.as_ref()).is_some_and(|(site, call)| site != call)
    }

    fn site(&self, hit: usize) -> usize {
        self.hits[hit].index
    }

    fn is_marked(&self, hit: usize) -> bool {
        is_marked(self.of(hit))
    }

    fn is_called(&self, hit: usize) -> bool {
        self.of(hit).kind != SiteKind::Inline
    }
}

/// What was passed, in words.
fn shown(passed: &Argument) -> String {
    match passed {
        Argument::Bits { slots, mask } if mask.iter().all(|mask| *mask == !0) => format!("{slots:x?}"),
        Argument::Bits { slots, mask } => format!("{slots:x?} (only {mask:x?} has a meaning)"),
        Argument::Variable { name, offset, .. } => format!("{name}+{offset}"),
        Argument::Stack => "a pointer into the stack".to_owned(),
        Argument::Function(function) => format!("function {function}"),
    }
}

/// The form of a location: how the debug information gives it, and what was made of it.
fn form(site: &Site, located: &Located, given: Option<&str>) -> String {
    let is_conventional = site.kind != SiteKind::Inline && !site.marks.contains(Marks::SIGNATURE_CHANGED);
    let given = match given {
        // Where the signature is the source's, the calling convention decides.
        _ if is_conventional => "convention",
        Some("nothing") if site.moved > 0 => "moved",
        Some("nothing") => "branch",
        Some(given) => given,
        None => "?",
    };
    format!("{given} {}", located.at.kind().key())
}

/// What kind of copy lost a call, and whether a site there has a mark. `pc` is where the call's body stored its number.
fn where_missed(sites: &Sites, call: &Call, function: &Function, pc: u64) -> (&'static str, bool, String) {
    let Some((symbol, name)) = sites.symbol(pc) else { return ("nowhere", false, String::new()) };
    let stem = name.split('.').next().unwrap_or(name);
    let is_own = stem == function.name;
    let all: Vec<(usize, &Site)> = (sites.set.sites.iter().enumerate())
        .filter(|(index, _)| sites.functions[*index] == Some(call.function))
        .collect();
    // What was moved out of a function's hot path is still that function's.
    let hot = |name: &str| name.strip_suffix(".cold").unwrap_or(name).to_owned();
    let is_here = |site: &Site| {
        let at = sites.at(site.address);
        at.is_some_and(|at| symbol.contains(&at) || sites.symbol(at).is_some_and(|(_, other)| hot(other) == hot(name)))
    };
    let here: Vec<&(usize, &Site)> = all.iter().filter(|(_, site)| is_here(site)).collect();
    // Nothing can be attached to a function without sites, and nobody is misled. If the function has sites elsewhere
    // only, the mark at its own symbol tells of such calls, or at all sites if there is none at a symbol.
    let marked = match (&all[..], &here[..]) {
        ([], _) => true,
        (all, []) => {
            let may_miss = |(_, site): &(usize, &Site)| site.marks.contains(Marks::MAY_MISS);
            let is_own = |(_, site): &&(usize, &Site)| site.kind != SiteKind::Inline;
            all.iter().filter(is_own).any(may_miss) || all.iter().all(may_miss)
        }
        (_, here) => here.iter().any(|(_, site)| is_marked(site)),
    };
    let near: Vec<String> = here.iter().map(|(index, _)| describe(sites, *index)).collect();
    let kind = match (is_own, here.is_empty()) {
        _ if call.is_recursive => "recursion",
        (true, true) => "out of line without a site",
        (true, false) => "out of line",
        (false, true) => "inlined without a site",
        (false, false) => "inlined",
    };
    (kind, marked, format!("sites there: {}", near.join("; ")))
}

/// A site in words.
fn describe(sites: &Sites, index: usize) -> String {
    let site = &sites.set.sites[index];
    let function = &sites.set.functions[site.function as usize].name;
    let container = &sites.set.containers[site.container as usize];
    let place = match site.kind {
        SiteKind::Inline => {
            format!("{function} inlined in {} at {:#x}", container.name, sites.at(site.address).unwrap_or(site.address))
        }
        kind => format!("{kind} {} at {:#x}", container.name, sites.at(site.address).unwrap_or(site.address)),
    };
    let marks = [
        (Marks::MAY_REPEAT, "may repeat"),
        (Marks::ENTRY_UNCERTAIN, "entry uncertain"),
        (Marks::MAY_MISS, "may miss"),
        (Marks::LATE_VIEW, "late view"),
        (Marks::SIGNATURE_CHANGED, "signature changed"),
    ];
    let marks: Vec<&str> = marks.iter().filter(|(mark, _)| site.marks.contains(*mark)).map(|(_, word)| *word).collect();
    let moved = if site.moved > 0 { format!(", moved {}", site.moved) } else { String::new() };
    if marks.is_empty() { format!("{place}{moved}") } else { format!("{place} ({}{moved})", marks.join(", ")) }
}
