// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Printing calls, one a line, or in trees.

mod tree;

use super::latency;
use super::members::Member;
use super::out::Out;
use super::pace::{Pace, stop_on_signals};
use super::programs::{Constants, Embedded, Programs, filter_constants, member_constants};
use super::stacks::{self, Callers};
use super::tree::Trees;
use super::{Arguments, Traceable, Traced, Tracing, argument_name, tell_of, tell_of_losses};
use crate::Failure;
use crate::filter::{self, Filter, RESULT, Type};
use crate::output::{Unwritten, tell};
use crate::symbolise::trace::Frame;
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};
use nix::errno::Errno;
use siteseer::internals::function::{Parameter, Prototype};
use siteseer::internals::path::shown;
use siteseer::internals::target::Types;
use siteseer::{FunctionReport, Policy, SiteReport};
use siteseer_bpf_progs::fields::Read;
use siteseer_bpf_progs::trace::{FRAMES, Function as Wanted, PARAMETERS, Record, SLOTS, STRINGS};
use siteseer_bpf_progs::{
    TRACE, TRACE_FIELDS, TRACE_FIELDS_RETURN, TRACE_FILTERED, TRACE_RETURN, TRACE_STACK, TRACE_TIMED, TRACE_TREE,
};
use siteseer_sites::btf::{self, Btf, Kind};
use siteseer_sites::{Doubt, SiteKind, with_causes};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

const EVERY_CALL: Embedded = Embedded { elf: TRACE, program: "trace" };
const SOME_CALLS: Embedded = Embedded { elf: TRACE_FILTERED, program: "trace_filtered" };
const RETURNS: Embedded = Embedded { elf: TRACE_RETURN, program: "trace_return" };
const MEMBERS: Embedded = Embedded { elf: TRACE_FIELDS, program: "trace_fields" };
const STACKS: Embedded = Embedded { elf: TRACE_STACK, program: "trace_stack" };
const MEMBERS_AT_RETURN: Embedded = Embedded { elf: TRACE_FIELDS_RETURN, program: "trace_fields_return" };
const TIMED: Embedded = Embedded { elf: TRACE_TIMED, program: "trace_timed" };
const ENTER: Embedded = Embedded { elf: TRACE_TREE, program: "tree_enter" };
const LEAVE: Embedded = Embedded { elf: TRACE_TREE, program: "tree_leave" };

/// A function to print the calls of.
struct Printed<'t> {
    name: &'t str,
    /// The members of structures that are read.
    members: &'t [Member],
    /// At the entries, and the number of the program.
    entries: Option<(Traced<'t>, usize)>,
    /// At the returns.
    returns: Option<(Traced<'t>, usize)>,
    /// At the beginnings of the calls that are timed.
    begins: Option<(Traced<'t>, usize)>,
    /// Where the returns are seen: calls there are printed when they return.
    returning: HashSet<u64>,
}

impl<'t> Printed<'t> {
    fn links(&self) -> impl Iterator<Item = &Traced<'t>> {
        self.entries.iter().chain(&self.returns).chain(&self.begins).map(|(traced, _)| traced)
    }

    fn keep_up(&mut self, programs: &Programs) -> Result<(), Failure> {
        for (traced, program) in self.entries.iter_mut().chain(&mut self.returns).chain(&mut self.begins) {
            traced.keep_up(&programs.program(*program)?)?;
        }
        self.note_returning();
        Ok(())
    }

    fn note_returning(&mut self) {
        let reports = self.returns.iter().map(|(traced, _)| traced.link.report());
        self.returning = reports.flat_map(|report| report.attached()).map(|site| site.address).collect();
    }
}

pub(super) fn run(tracing: &Tracing<'_, '_>) -> Result<(), Failure> {
    let Tracing { arguments, functions, types, .. } = *tracing;
    let filter = tracing.filter.as_ref();
    let mut programs = Programs::new(arguments.pid, functions.len());
    let (mut printed, mut left) = (Vec::new(), None);
    let read = || Callers::read(tracing.target, functions.iter().map(|function| function.function));
    let callers = arguments.stack.then(read).transpose()?;
    for (function, members) in functions.iter().zip(tracing.members) {
        let (mut constants, more) = filter_constants(filter, function.function, members, types, arguments.returns);
        left = left.or(more);
        constants.extend(member_constants(members)?);
        printed.push(attach(tracing, function, members, constants, &mut programs)?);
    }
    if let (Some(why), Some(_)) = (left, filter) {
        tell!(
            "note: the kernel's program does not check the whole condition ({why}): it may send many more {} than \
             are printed",
            if arguments.tree { "trees" } else { "calls" }
        );
    }
    if printed.iter().all(|function| function.links().next().is_none()) {
        return Err("none of the functions can be traced".into());
    }
    tell_of(printed.iter().flat_map(|function| function.entries.iter().map(|(traced, _)| traced.link.report())));
    for function in printed.iter().filter(|_| arguments.sees_returns()) {
        let sites = function.entries.iter().map(|(traced, _)| traced.link.report().attached().count()).sum::<usize>();
        tell!("{}: returns are seen at {} of {sites} sites", function.name, function.returning.len());
    }
    callers.as_ref().map_or(Ok(()), Callers::prepare)?;
    // Until here they end the process, which leaves nothing attached: attaching may take long.
    stop_on_signals()?;
    follow(tracing, &programs, printed, callers)
}

/// Attaches to one of the functions. One that a pattern stands for may fail.
fn attach<'t>(
    tracing: &Tracing<'t, '_>,
    function: &Traceable<'t>,
    members: &'t [Member],
    constants: Constants,
    programs: &mut Programs,
) -> Result<Printed<'t>, Failure> {
    let Tracing { arguments, target, types, .. } = *tracing;
    let program = match constants.is_empty() {
        _ if arguments.tree => ENTER,
        _ if arguments.stack => STACKS,
        true => EVERY_CALL,
        false if members.is_empty() => SOME_CALLS,
        false => MEMBERS,
    };
    let nth = programs.load(program, constants.clone())?;
    want(programs, function, types, arguments.strings)?;
    if arguments.tree {
        latency::check(tracing, function)?;
    }
    let attach = arguments.attach(target, function, arguments.policy());
    let entries = match Traced::new(attach, &programs.program(nth)?, members) {
        Ok(traced) if arguments.tree => Some((traced.staying(NOT_IN_TREES), nth)),
        Ok(traced) => Some((traced, nth)),
        Err(error) if function.chosen.is_name() => return Err(error.into()),
        Err(error) => {
            tell!("not traced: {}: {}", function.function.name, with_causes(&error));
            None
        }
    };
    let mut returns = None;
    let mut begins = None;
    if arguments.sees_returns() {
        let program = match members.is_empty() {
            _ if arguments.tree => LEAVE,
            _ if arguments.latency => TIMED,
            true => RETURNS,
            false => MEMBERS_AT_RETURN,
        };
        // Which trees are wanted is decided when they begin.
        let nth = programs.load(program, if arguments.tree { Constants::new() } else { constants })?;
        // Inlined copies have no return, so that no policy but this one will do.
        let attach = arguments.attach(target, function, Policy::BestEffort);
        match Traced::new(attach, &programs.program(nth)?, members) {
            Ok(traced) => {
                if arguments.latency {
                    begins = latency::begins_of(tracing, function, programs, &traced.link, program.program)?;
                }
                let traced = if arguments.tree { traced.staying(NOT_IN_TREES) } else { traced };
                returns = Some((traced, nth));
            }
            Err(error) => tell!("no returns of {} can be seen: {}", function.function.name, with_causes(&error)),
        }
    }
    let name = &function.function.name;
    let mut printed = Printed { name, members, entries, returns, begins, returning: HashSet::new() };
    printed.note_returning();
    Ok(printed)
}

/// What is said of calls in modules that are loaded later.
const NOT_IN_TREES: &str = "not in the trees";

/// Which pointers to text the program is to follow.
fn text_parameters(parameters: &[Parameter], btf: &Btf<'_>) -> Wanted {
    let mut wanted = Wanted::default();
    let mut count = 0;
    for (nth, parameter) in parameters.iter().enumerate().take(PARAMETERS) {
        if count < STRINGS && is_text(btf, parameter) {
            wanted.strings |= 1 << nth;
            count += 1;
        }
    }
    wanted
}

/// The same for all prototypes of a function. The types of a module that came later are not at hand.
fn all_text_parameters(prototypes: &[Prototype], types: &Types<'_>) -> u32 {
    prototypes.iter().fold(0, |mask, prototype| match types.of(prototype.module.as_deref()) {
        Some(btf) => mask | text_parameters(&prototype.parameters, btf).strings,
        None => mask,
    })
}

fn is_text(btf: &Btf<'_>, parameter: &Parameter) -> bool {
    let pointer = btf.resolve(parameter.ty).filter(|ty| ty.kind() == Kind::Ptr);
    let target = pointer.and_then(|pointer| btf.resolve(pointer.target()?));
    target.is_some_and(|target| target.kind() == Kind::Int && target.name() == "char")
}

/// Tells the programs what to send of a function's calls besides the arguments.
fn want(programs: &Programs, function: &Traceable<'_>, types: &Types<'_>, strings: bool) -> Result<(), Failure> {
    let mut wanted = Wanted::default();
    if strings {
        // Functions of one name share an entry. A pointer that cannot be followed gives no text.
        wanted.strings = all_text_parameters(&function.function.prototypes, types);
    }
    let key = (function.cookie as u32).to_ne_bytes();
    programs.shared_map("functions")?.update(&key, &wanted.to_bytes(), MapFlags::ANY)?;
    Ok(())
}

/// Prints records until it is time to stop, or until they cannot be written; then what was lost.
fn follow(
    tracing: &Tracing<'_, '_>,
    programs: &Programs,
    functions: Vec<Printed<'_>>,
    callers: Option<Callers<'_>>,
) -> Result<(), Failure> {
    let Tracing { arguments, types, .. } = *tracing;
    let begin = monotonic()?;
    let printer = RefCell::new(Printer {
        arguments,
        filter: tracing.filter.as_ref(),
        callers,
        functions,
        types,
        begin,
        printed: 0,
        unread: 0,
        aligned: io::stdout().is_terminal(),
        out: Out::stdout()?,
        pace: Pace::new(arguments.duration.map(Duration::from_secs)),
        ended: None,
        trees: arguments.tree.then(Trees::default),
        skipped: 0,
        looked: begin,
        undecided: 0,
    });
    if arguments.tree {
        printer.borrow_mut().begin_trees(programs)?;
    }
    let records = programs.shared_map("records")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&records, |data| -i32::from(!printer.borrow_mut().record(data)))?;
    let ring = builder.build()?;
    if !arguments.json {
        let what = if arguments.tree { "CALLS" } else { "CALL" };
        printer.borrow_mut().out.heading(&format!("{:>12} {:>3} {:<22} {what}", "TIME", "CPU", "TASK"));
    }
    tell!("tracing; ctrl-C ends it");
    let followed = print_until_over(&printer, &ring, programs);
    // What comes now is counted.
    printer.borrow_mut().ended = Some(Instant::now());
    let _ = ring.poll(Duration::ZERO);
    drop(ring);
    let mut printer = printer.into_inner();
    // Whatever ended it, the numbers are printed.
    let ended = printer.end_trees(programs);
    let written = printer.end().map_err(Failure::from);
    let told = losses(programs, &printer, written.is_ok());
    followed.and(written).and(ended).and(told)
}

/// The loop: until it is time to stop, or something fails.
fn print_until_over(
    printer: &RefCell<Printer<'_, '_>>,
    ring: &RingBuffer<'_>,
    programs: &Programs,
) -> Result<(), Failure> {
    while !printer.borrow().is_over() {
        let wait = printer.borrow().pace.begin();
        // An interrupted poll is a signal, which the loop's condition sees; the callback ends it when its time is up.
        let _ = ring.poll(wait);
        printer.borrow_mut().print_trees(programs)?;
        printer.borrow_mut().write()?;
        let is_due = printer.borrow().pace.is_second_over();
        if is_due {
            printer.borrow_mut().functions.iter_mut().try_for_each(|function| function.keep_up(programs))?;
            // A thread whose return was skipped seems to be in that call until then.
            printer.borrow_mut().look_for_skipped(programs)?;
        }
    }
    Ok(())
}

/// For how long what is left is counted, and written, when tracing ends.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// CLOCK_MONOTONIC, which is the program's clock too.
fn monotonic() -> Result<u64, Failure> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

fn losses(programs: &Programs, printer: &Printer<'_, '_>, is_written: bool) -> Result<(), Failure> {
    let dropped = programs.sum("dropped")?;
    let unprinted = printer.out.left();
    let printed = printer.printed.saturating_sub(unprinted);
    let left = unprinted + printer.unread;
    match &printer.trees {
        Some(trees) => tree::losses(programs, trees, printed, dropped, printer.undecided)?,
        None => tell!("{printed} calls printed, {dropped} lost because the buffer was full"),
    }
    if left > 0 && !is_written {
        tell!("at least {left} calls not printed because they could not be written");
    } else if left > 0 && !printer.is_done() {
        tell!("at least {left} calls not printed because the time was over");
    }
    let links = || printer.functions.iter().flat_map(Printed::links).map(|traced| &traced.link);
    tell_of_losses(links())?;
    if printer.arguments.latency {
        latency::tell_untimed(programs)?;
        latency::tell_of_doubt(links().map(siteseer::Link::missed).sum::<Result<u64, _>>()?);
    }
    Ok(())
}

struct Printer<'p, 'b> {
    arguments: &'p Arguments,
    filter: Option<&'p Filter>,
    /// If stacks are printed.
    callers: Option<Callers<'p>>,
    functions: Vec<Printed<'p>>,
    types: &'p Types<'b>,
    begin: u64,
    printed: u64,
    /// Records that are not looked at any more.
    unread: u64,
    aligned: bool,
    out: Out,
    pace: Pace,
    /// Since when records are counted only.
    ended: Option<Instant>,
    /// If trees are printed.
    trees: Option<Trees>,
    /// How many programs the kernel had skipped when it was last asked, and when that was.
    skipped: u64,
    looked: u64,
    /// Doubtful trees for which the condition could not be decided.
    undecided: u64,
}

/// One argument of a call.
struct Value {
    name: String,
    /// `None` where the site does not have it.
    text: Option<String>,
    /// Why the value may be wrong.
    doubt: Option<Doubt>,
    string: Option<String>,
}

/// `cap=21`, `cap=21?` if the value may be wrong, `cap=?` if there is none.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = &self.text else { return write!(f, "{}=?", self.name) };
        let mark = if self.doubt.is_some() { "?" } else { "" };
        write!(f, "{}={text}{mark}", self.name)?;
        self.string.as_ref().map_or(Ok(()), |string| write!(f, " {string:?}"))
    }
}

impl Printer<'_, '_> {
    fn is_done(&self) -> bool {
        self.arguments.limit.is_some_and(|limit| self.printed >= limit)
    }

    /// Whether tracing has to end.
    fn is_over(&self) -> bool {
        self.pace.is_over() || self.is_done()
    }

    /// Writes the lines of a turn.
    fn write(&mut self) -> Result<(), Unwritten> {
        let what = self.unwritten();
        let Printer { out, pace, .. } = self;
        out.write(|| pace.is_over()).map_err(what)
    }

    /// Writes what is left.
    fn end(&mut self) -> Result<(), Unwritten> {
        let begin = Instant::now();
        let what = self.unwritten();
        self.out.write(|| begin.elapsed() >= AFTERWARDS).map_err(what)
    }

    fn unwritten(&self) -> impl Fn(io::Error) -> Unwritten + use<> {
        Unwritten::of(if self.trees.is_some() { "the trees" } else { "the calls" })
    }

    /// Takes one record; false ends the polling.
    fn record(&mut self, data: &[u8]) -> bool {
        if let Some(ended) = self.ended {
            self.unread += 1;
            return ended.elapsed() < AFTERWARDS;
        }
        self.print(data);
        !(self.is_done() || self.out.is_full() || self.pace.has_turned())
    }

    fn print(&mut self, data: &[u8]) {
        let Some(record) = Record::parse(data) else { return };
        if let Some(trees) = &mut self.trees {
            trees.take(record);
            return;
        }
        let Some(printed) = self.printed_function(&record) else { return };
        // It is printed when it returns.
        if !record.is_return && printed.returning.contains(&record.address) {
            return;
        }
        let Some(call) = self.call(&record, record.is_return) else { return };
        if self.filter.is_some_and(|filter| filter.holds(&|field| self.field(&call, field)) != Some(true)) {
            return;
        }
        let line = if self.arguments.json { self.json(&call).to_string() } else { self.text(&call) };
        self.out.line(&line);
        self.printed += 1;
    }

    /// The function that a record is of.
    fn printed_function(&self, record: &Record) -> Option<&Printed<'_>> {
        usize::try_from(record.function).ok().and_then(|nth| self.functions.get(nth))
    }

    /// What is known of a call, with what it returned if that is known.
    fn call<'c>(&'c self, record: &'c Record, has_returned: bool) -> Option<Call<'c>> {
        let printed = self.printed_function(record)?;
        let link = if record.is_return { &printed.returns } else { &printed.entries };
        let function = link.as_ref().and_then(|(traced, _)| traced.link.report().functions.first())?;
        let site = record.site.and_then(|id| function.sites.iter().find(|site| site.id == id));
        let prototype = function.prototypes.get(site.map_or(0, |site| site.prototype));
        Some(Call {
            function,
            prototype,
            site,
            values: self.values(function, site, record),
            members: printed.members,
            returned: has_returned.then(|| self.returned(prototype, record)),
            record,
        })
    }

    /// What a call has by that name.
    fn field(&self, call: &Call<'_>, name: &str) -> Option<filter::Value> {
        let Call { record, site, .. } = *call;
        let parameters = call.prototype.map_or(&[][..], |prototype| &prototype.parameters);
        let btf = call.prototype.and_then(|prototype| self.types.of(prototype.module.as_deref()));
        if let Some(nth) = call.values.iter().position(|value| value.name == name) {
            let value = &call.values[nth];
            let texts = value.text.iter().chain(&value.string).cloned().collect();
            let slot = record.value(nth, 0).filter(|_| value.text.is_some())?;
            return Some(filter::Value::of(&Type::of(parameters.get(nth)?, btf), slot, texts));
        }
        if let Some((member, read)) = call.members().find(|(member, _)| member.name == name) {
            return member.value(read, self.types);
        }
        match name {
            RESULT => {
                let parameter = call.prototype?.result.as_ref()?;
                let text = call.returned.as_ref()?.text.clone();
                Some(filter::Value::of(&Type::of(parameter, btf), record.result?, text.into_iter().collect()))
            }
            "kind" => site.map(|site| filter::Value::text(site.kind.word())),
            "in" => site.map(|site| filter::Value::text(&site.symbol)),
            "module" => site.map(|site| filter::Value::text(site.module.as_deref().unwrap_or("vmlinux"))),
            "comm" => Some(filter::Value::text(&record.comm)),
            "pid" => Some(filter::Value::unsigned(record.tgid)),
            "tid" => Some(filter::Value::unsigned(record.pid)),
            "cpu" => Some(filter::Value::unsigned(record.cpu)),
            _ => None,
        }
    }

    fn returned(&self, prototype: Option<&Prototype>, record: &Record) -> Returned {
        let result = prototype.and_then(|prototype| Some((prototype, prototype.result.as_ref()?)));
        let Some((prototype, result)) = result else { return Returned { text: None, error: None, is_void: true } };
        let btf = self.types.of(prototype.module.as_deref());
        let text = record.result.map(|slot| match btf {
            Some(btf) => btf::format_value(btf, result.ty, &[slot]),
            None => format!("{slot:#x}"),
        });
        Returned { text, error: record.result.and_then(|slot| error(slot, result)), is_void: false }
    }

    fn values(&self, function: &FunctionReport, site: Option<&SiteReport>, record: &Record) -> Vec<Value> {
        let prototype = function.prototypes.get(site.map_or(0, |site| site.prototype));
        let Some(prototype) = prototype else { return Vec::new() };
        // Strings come in the order of the parameters that wanted them, which are those of all prototypes together.
        let wanted = all_text_parameters(&function.prototypes, self.types);
        let btf = self.types.of(prototype.module.as_deref());
        let mut values = Vec::new();
        for (nth, parameter) in prototype.parameters.iter().enumerate() {
            let wide = parameter.slots as usize;
            let slots: Option<Vec<u64>> = (0..wide.min(SLOTS)).map(|slot| record.value(nth, slot)).collect();
            let text = slots.map(|slots| {
                let text = match btf {
                    Some(btf) => btf::format_value(btf, parameter.ty, &slots),
                    None => slots.iter().map(|slot| format!("{slot:#x}")).collect::<Vec<_>>().join(" "),
                };
                if wide > SLOTS { format!("{text}...") } else { text }
            });
            let string = (self.arguments.strings && wanted >> nth.min(31) & 1 == 1)
                .then(|| record.string((wanted & ((1u32 << nth) - 1)).count_ones() as usize))
                .flatten()
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let doubt = site.and_then(|site| site.doubtful.iter().find(|argument| argument.index == nth));
            let doubt = doubt.map(|argument| argument.why);
            values.push(Value { name: argument_name(nth, parameter), text, doubt, string });
        }
        values
    }

    fn line(&self, call: &Call<'_>) -> String {
        let record = call.record;
        let seconds = record.time.saturating_sub(self.begin) as f64 / 1e9;
        let task = format!("{}/{}", record.comm, record.pid);
        let returned = call.returned.as_ref().map(Returned::to_string).unwrap_or_default();
        let members = self.members(call);
        let took = match (record.duration, call.returned.is_some() && self.arguments.latency) {
            (Some(took), _) => format!(" took {}", latency::text(took)),
            (None, true) => " took ?".to_owned(),
            (None, false) => String::new(),
        };
        let text = format!("{}({}){returned}{took}{members}", shown(&call.function.name), arguments(call));
        let place = place_of(call);
        let text = if self.aligned { format!("{text:<58}") } else { text };
        format!("{seconds:>12.6} {:>3} {task:<22} {text}  {place}", record.cpu)
    }
}

impl Printer<'_, '_> {
    /// The members that are asked for; others are only compared.
    fn printed<'c>(&self, call: &Call<'c>) -> impl Iterator<Item = (&'c Member, &'c Read)> {
        call.members().filter(|(member, _)| self.arguments.fields.contains(&member.name))
    }

    /// Two spaces, and all of them.
    fn members(&self, call: &Call<'_>) -> String {
        let members: Vec<String> = self.printed(call).map(|(member, read)| self.member(call, member, read)).collect();
        if members.is_empty() { String::new() } else { format!("  {}", members.join(", ")) }
    }

    /// `file->f_mode=21`, with a question mark if the argument that it begins with may be wrong.
    fn member(&self, call: &Call<'_>, member: &Member, read: &Read) -> String {
        let mark = if call.doubt(member).is_some() && matches!(read, Read::Value { .. }) { "?" } else { "" };
        format!("{}={}{mark}", member.name, member.outcome(read, self.types))
    }

    fn json(&self, call: &Call<'_>) -> serde_json::Value {
        let mut json = json(call);
        if self.arguments.latency {
            json["latency"] = call.record.duration.into();
        }
        if !self.arguments.fields.is_empty() {
            let members = self.printed(call);
            let members = members.map(|(member, read)| member.json(read, call.doubt(member), self.types));
            json["fields"] = members.collect();
        }
        if let Some(stack) = &call.record.stack {
            let frames = self.frames(call, stack);
            json["stack"] = frames.map(|frames| stacks::json(&frames)).ok().into();
        }
        json
    }

    /// The functions of a call's stack, or why there are none.
    fn frames(&self, call: &Call<'_>, stack: &Result<Vec<u64>, i32>) -> Result<Vec<Frame>, String> {
        let addresses = stack.as_ref().map_err(|&error| format!("{:?}", Errno::from_raw(error)))?;
        let callers = self.callers.as_ref().ok_or("no stack was asked for")?;
        let site = (call.record.address, call.site);
        callers.frames(&call.function.name, site, addresses).map_err(|error| error.to_string())
    }

    /// A line, and one for each function of the stack.
    fn text(&self, call: &Call<'_>) -> String {
        let mut text = self.line(call);
        if let Some(stack) = &call.record.stack {
            match self.frames(call, stack) {
                Ok(frames) => text.push_str(&stacks::text(&frames)),
                Err(why) => text.push_str(&format!("\n\t(no stack: {why})")),
            }
            if stack.as_ref().is_ok_and(|stack| stack.len() >= FRAMES) {
                text.push_str("\n\t...");
            }
        }
        text
    }
}

/// One call, to be printed.
struct Call<'c> {
    function: &'c FunctionReport,
    prototype: Option<&'c Prototype>,
    site: Option<&'c SiteReport>,
    values: Vec<Value>,
    /// The members of structures that were read, as far as they are known to this function.
    members: &'c [Member],
    returned: Option<Returned>,
    record: &'c Record,
}

impl<'c> Call<'c> {
    fn members(&self) -> impl Iterator<Item = (&'c Member, &'c Read)> + use<'c> {
        self.members.iter().zip(&self.record.fields)
    }

    /// Why the argument that a member begins with may be wrong.
    fn doubt(&self, member: &Member) -> Option<Doubt> {
        self.values.get(member.parameter()?)?.doubt
    }
}

/// The arguments in words.
fn arguments(call: &Call<'_>) -> String {
    let arguments: Vec<String> = call.values.iter().map(Value::to_string).collect();
    arguments.join(", ")
}

/// Its site in words.
fn place_of(call: &Call<'_>) -> String {
    call.site.map_or_else(|| format!("at {:#x}", call.record.address), place)
}

/// What a call returned.
struct Returned {
    /// `None` if it is not known, or if there is nothing.
    text: Option<String>,
    /// The error's name, if it is one.
    error: Option<String>,
    is_void: bool,
}

/// ` = -2 (ENOENT)`, ` = ?` if it is not known; nothing for a function that returns nothing.
impl fmt::Display for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.text, &self.error) {
            (Some(text), Some(error)) => write!(f, " = {text} ({error})"),
            (Some(text), None) => write!(f, " = {text}"),
            (None, _) if self.is_void => Ok(()),
            (None, _) => f.write_str(" = ?"),
        }
    }
}

/// Errors that the kernel keeps to itself: include/linux/errno.h.
const OWN_ERRORS: [(i32, &str); 13] = [
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"),
    (517, "EPROBE_DEFER"),
    (518, "EOPENSTALE"),
    (519, "ENOPARAM"),
    (521, "EBADHANDLE"),
    (523, "EBADCOOKIE"),
    (524, "ENOTSUPP"),
    (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"),
];

/// The name of the error that a function returned: as a negative number, or as a pointer that stands for an error
/// (`ERR_PTR`).
fn error(slot: u64, result: &Parameter) -> Option<String> {
    let number = match result.size {
        4 if result.signed => i64::from(slot as i32),
        8 if result.signed || result.type_name.ends_with('*') => slot as i64,
        _ => return None,
    };
    // MAX_ERRNO
    let number = i32::try_from(number.checked_neg()?).ok().filter(|number| (1..=4095).contains(number))?;
    if let Some((_, name)) = OWN_ERRORS.iter().find(|(known, _)| *known == number) {
        return Some((*name).to_owned());
    }
    let known = Errno::from_raw(number);
    (known != Errno::UnknownErrno).then(|| format!("{known:?}"))
}

/// What every call has.
fn json(call: &Call<'_>) -> serde_json::Value {
    let Call { function, site, record, .. } = *call;
    let arguments: Vec<serde_json::Value> = call
        .values
        .iter()
        .map(|value| {
            serde_json::json!({
                "name": value.name,
                "value": value.text,
                "string": value.string,
                "doubt": value.doubt.filter(|_| value.text.is_some()).map(|doubt| doubt.to_string()),
            })
        })
        .collect();
    let mut json = serde_json::json!({
        "time": record.time,
        "cpu": record.cpu,
        "comm": record.comm,
        "pid": record.tgid,
        "tid": record.pid,
        "function": function.name,
        "arguments": arguments,
        "site": site.map(|site| serde_json::json!({
            "id": site.id,
            "kind": site.kind.word(),
            "module": site.module.as_deref(),
            "address": format!("{:#x}", site.link_address),
            "symbol": site.symbol,
            "offset": site.offset,
            "file": site.source.as_ref().map(|place| &place.file),
            "line": site.source.as_ref().map(|place| place.line),
        })),
    });
    if let Some(returned) = &call.returned {
        json["returned"] = serde_json::json!({ "value": returned.text, "error": returned.error });
    }
    json
}

/// The site in words: `body`, `clone foo.isra.0`, `inlined in bar+0x12 (file.c:34)`.
pub(super) fn place(site: &SiteReport) -> String {
    let module = site.module.as_ref().map(|module| format!(" [{module}]")).unwrap_or_default();
    match site.kind {
        SiteKind::Body => format!("body{module}"),
        SiteKind::Clone => format!("clone {}{module}", site.symbol),
        SiteKind::Inline => {
            let source = site.source.as_ref().map(|place| format!(" ({}:{})", place.file, place.line));
            format!("inlined in {}+{:#x}{module}{}", site.symbol, site.offset, source.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubtful_value_has_a_question_mark() {
        let value = |text: Option<&str>, doubt, string: Option<&str>| {
            let (text, string) = (text.map(str::to_owned), string.map(str::to_owned));
            Value { name: "cap".to_owned(), text, doubt, string }.to_string()
        };
        let doubt = Some(Doubt::Assigned);
        assert_eq!(value(Some("21"), None, None), "cap=21");
        assert_eq!(value(Some("21"), doubt, None), "cap=21?");
        assert_eq!(value(Some("0xff"), doubt, Some("a")), "cap=0xff? \"a\"");
        assert_eq!(value(Some("0xff"), None, Some("a")), "cap=0xff \"a\"");
        // Nothing is doubtful about what is not there.
        assert_eq!(value(None, doubt, None), "cap=?");
    }

    #[test]
    fn errors_have_names() {
        let result = |size, signed, type_name: &str| Parameter {
            name: String::new(),
            ty: 0,
            type_name: type_name.to_owned(),
            size,
            signed,
            composite: false,
            irregular: false,
            slots: 1,
            pointee: None,
            foreign: false,
        };
        let int = result(4, true, "int");
        // What is above the 32 bits is anything.
        assert_eq!(error(0x1234_ffff_fffe, &int).as_deref(), Some("ENOENT"));
        assert_eq!(error((-512i64) as u64, &result(8, true, "ssize_t")).as_deref(), Some("ERESTARTSYS"));
        assert_eq!(error((-13i64) as u64, &result(8, false, "struct file *")).as_deref(), Some("EACCES"));
        for none in [0, 2, (-4096i64) as u64, (-4000i64) as u64] {
            assert_eq!(error(none, &int), None, "{none:#x}");
        }
        assert_eq!(error((-2i64) as u64, &result(8, false, "size_t")), None);
        assert_eq!(error((-2i64) as u64, &result(2, true, "short")), None);
    }
}
