// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer trace`: prints each call of functions of the running kernel.
//!
//! One BPF program, compiled when siteseer was built, is attached once for each function; the number of the function is
//! its cookie. It sends the raw slots of every argument that a site has; types turn them into text here.

use crate::Failure;
use crate::filter::Condition;
use crate::target::Modules;
use clap::Args;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, RingBufferBuilder};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use siteseer::function::Parameter;
use siteseer::report::{FunctionReport, SiteReport};
use siteseer::target::Types;
use siteseer::{Attach, Link, Policy, Target, section};
use siteseer_bpf_progs::trace::{Function as Wanted, PARAMETERS, Record, SLOTS, STRINGS};
use siteseer_sites::Doubt;
use siteseer_sites::btf::{self, Btf, Kind};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Print each call of functions of the running kernel, wherever their bodies start
///
/// Takes root. Says first what is attached and what is not, and why; ends at ctrl-C.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The functions' names in the source: in the kernel's image and all loaded modules; module:FUNC is in that module only
    #[arg(required = true, value_name = "FUNC")]
    functions: Vec<String>,
    /// Print only calls for which this holds: FIELD OP VALUE, where FIELD is an argument's name or one of kind, in,
    /// pid, tid, cpu, comm, and OP one of = != < <= > >=. May be given again; then all must hold
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<Condition>,
    /// Trace only this process
    #[arg(short, long, value_name = "PID", default_value_t = 0, hide_default_value = true)]
    pid: u32,
    /// Print what `char *` arguments point to, as text
    #[arg(short, long)]
    strings: bool,
    /// Attach at every site or not at all
    #[arg(long)]
    complete: bool,
    /// Leave out values that may be wrong, which are otherwise printed with a question mark
    #[arg(long)]
    certain: bool,
    /// End after this many calls were printed
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
    /// End after this many seconds
    #[arg(short, long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Site data, or a debug vmlinux, of the running kernel [default: found by build id]
    #[arg(long, value_name = "FILE")]
    sites: Option<PathBuf>,
    #[command(flatten)]
    modules: Modules,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Set by the signal handler.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: nix::libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Has ctrl-C and a polite kill end the loop instead of the process, so that what is known of losses is still said.
fn stop_on_signals() -> Result<(), Failure> {
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: The handler only stores to an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.functions.len() > MAX_FUNCTIONS {
        return Err(format!("at most {MAX_FUNCTIONS} functions can be traced at once").into());
    }
    siteseer::register_with(siteseer::register::Options::default().plan_at_load(false))?;
    let target = Target::running(&arguments.modules.options(arguments.sites.clone()))?;
    let object = load(arguments.pid)?;
    let policy = if arguments.complete { Policy::Complete } else { Policy::BestEffort };
    let program = object.progs_mut().next().ok_or("the embedded program is missing")?;
    let wanted = arguments.functions.iter().map(|name| section::Wanted::parse(name)).collect::<Result<Vec<_>, _>>()?;
    stop_on_signals()?;
    let functions = target.functions(&wanted)?;
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    let modules =
        functions.iter().flat_map(|function| &function.prototypes).filter_map(|prototype| prototype.module.clone());
    let modules: BTreeSet<_> = modules.collect();
    target.with_types(&names, modules, |types| -> Result<(), Failure> {
        let mut traced = Vec::new();
        for (cookie, (name, function)) in (0u64..).zip(arguments.functions.iter().zip(&functions)) {
            let attach = Attach::new(&target).function(name).policy(policy).cookie(cookie);
            let attach = attach.all_prototypes(true).accept_doubt(!arguments.certain);
            want(&object, cookie, &function.prototypes, types, arguments.strings)?;
            let link = attach.attach(&program)?;
            traced.push(Traced { attach, link, gone: 0, failed: Vec::new() });
        }
        for Traced { link, .. } in &traced {
            eprint!("{}", link.report());
        }
        follow(arguments, &object, &program, traced, types)
    })?
}

/// A function that is traced.
struct Traced<'t> {
    attach: Attach<'t>,
    link: Link,
    /// How many modules that were unloaded have been told of.
    gone: usize,
    /// The modules in which it could not be attached when they had been loaded.
    failed: Vec<String>,
}

impl Traced<'_> {
    /// Says which sites went away with their modules, and attaches in modules that have come.
    fn keep_up(&mut self, program: &ProgramMut<'_>) -> Result<(), Failure> {
        let gone = self.link.gone()?;
        for gone in gone.iter().skip(self.gone) {
            eprintln!("{gone}");
        }
        self.gone = gone.len();
        let unseen = self.link.unseen_modules()?;
        if unseen.is_empty() || unseen == self.failed {
            return Ok(());
        }
        match self.attach.refresh(program, &mut self.link) {
            Ok(0) => {}
            Ok(_) => eprint!("{}", self.link.report()),
            // The rest goes on being traced.
            Err(error) => {
                eprintln!("in modules that were loaded since: {error}");
                self.failed = unseen;
            }
        }
        Ok(())
    }
}

/// How many functions the program's map has room for.
const MAX_FUNCTIONS: usize = 64;

/// Opens and loads the embedded program.
fn load(pid: u32) -> Result<Object, Failure> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(siteseer_bpf_progs::TRACE)?;
    siteseer_bpf_progs::set_constant(&mut open, siteseer_bpf_progs::TRACE, "only_tgid", pid)?;
    siteseer_bpf_progs::set_constant(&mut open, siteseer_bpf_progs::TRACE, "except_tgid", std::process::id())?;
    Ok(open.load()?)
}

/// Which pointers to text the program is to follow.
fn text_parameters(parameters: &[Parameter], btf: &Btf<'_>) -> Wanted {
    let mut wanted = Wanted::default();
    let mut count = 0;
    for (nth, parameter) in parameters.iter().enumerate().take(PARAMETERS) {
        if count < STRINGS && is_text(btf, parameter) {
            wanted.kernel_strings |= 1 << nth;
            count += 1;
        }
    }
    wanted
}

/// The same for all prototypes of a function. Of a module that came later the types are not at hand.
fn all_text_parameters(prototypes: &[siteseer::function::Prototype], types: &Types<'_>) -> u32 {
    prototypes.iter().fold(0, |mask, prototype| match types.of(prototype.module.as_deref()) {
        Some(btf) => mask | text_parameters(&prototype.parameters, btf).kernel_strings,
        None => mask,
    })
}

fn is_text(btf: &Btf<'_>, parameter: &Parameter) -> bool {
    let pointer = btf.resolve(parameter.ty).filter(|ty| ty.kind() == Kind::Ptr);
    let target = pointer.and_then(|pointer| btf.resolve(pointer.target()?));
    target.is_some_and(|target| target.kind() == Kind::Int && target.name() == "char")
}

fn want(
    object: &Object,
    cookie: u64,
    prototypes: &[siteseer::function::Prototype],
    types: &Types<'_>,
    strings: bool,
) -> Result<(), Failure> {
    let mut wanted = Wanted::default();
    if strings {
        // Functions of one name share an entry; a pointer that is followed in vain gives no text.
        wanted.kernel_strings = all_text_parameters(prototypes, types);
    }
    let map = object.maps().find(|map| map.name() == "functions").ok_or("the embedded program lacks a map")?;
    map.update(&(cookie as u32).to_ne_bytes(), &wanted.to_bytes(), MapFlags::ANY)?;
    Ok(())
}

/// Prints records until it is time to stop, then what was lost.
fn follow(
    arguments: &Arguments,
    object: &Object,
    program: &ProgramMut<'_>,
    traced: Vec<Traced<'_>>,
    types: &Types<'_>,
) -> Result<(), Failure> {
    let begin = monotonic()?;
    let printer = RefCell::new(Printer {
        arguments,
        traced,
        types,
        begin,
        printed: 0,
        aligned: io::stdout().is_terminal(),
        failure: None,
    });
    let records = object.maps().find(|map| map.name() == "records").ok_or("the embedded program lacks a map")?;
    let mut builder = RingBufferBuilder::new();
    builder.add(&records, |data| -i32::from(!printer.borrow_mut().record(data)))?;
    let ring = builder.build()?;
    if !arguments.json {
        println!("{:>12} {:>3} {:<22} CALL", "TIME", "CPU", "TASK");
    }
    let deadline = arguments.duration.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let over = |printer: &Printer<'_, '_, '_>| {
        STOP.load(Ordering::Relaxed)
            || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || printer.failure.is_some()
            || printer.is_done()
    };
    let mut looked = Instant::now();
    while !over(&printer.borrow()) {
        // An interrupted poll is a signal, which the loop's condition sees; the callback's own errors are kept by it.
        let _ = ring.poll(Duration::from_millis(100));
        io::stdout().flush()?;
        if looked.elapsed() >= MODULES_EVERY {
            looked = Instant::now();
            printer.borrow_mut().traced.iter_mut().try_for_each(|traced| traced.keep_up(program))?;
        }
    }
    drop(ring);
    let printer = printer.into_inner();
    if let Some(failure) = printer.failure {
        return Err(failure.into());
    }
    losses(object, &printer.traced, printer.printed)
}

/// How often modules that come and go are looked for.
const MODULES_EVERY: Duration = Duration::from_secs(1);

/// CLOCK_MONOTONIC, which is the program's clock too.
fn monotonic() -> Result<u64, Failure> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

fn losses(object: &Object, traced: &[Traced<'_>], printed: u64) -> Result<(), Failure> {
    let map = object.maps().find(|map| map.name() == "dropped").ok_or("the embedded program lacks a map")?;
    let per_cpu = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let word = |bytes: &Vec<u8>| bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let dropped: u64 = per_cpu.iter().map(word).sum();
    let (mut faults, mut missed) = (0, 0);
    for Traced { link, .. } in traced {
        faults += link.faults()?;
        missed += link.missed()?;
    }
    eprintln!("{printed} calls printed, {dropped} lost for want of room in the buffer");
    if faults > 0 {
        eprintln!("{faults} calls left out because an argument's memory could not be read");
    }
    if missed > 0 {
        eprintln!("{missed} calls not seen because the kernel runs no tracing programs where they were made");
    }
    Ok(())
}

struct Printer<'p, 'b, 't> {
    arguments: &'p Arguments,
    traced: Vec<Traced<'t>>,
    types: &'p Types<'b>,
    begin: u64,
    printed: u64,
    aligned: bool,
    failure: Option<io::Error>,
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

impl Printer<'_, '_, '_> {
    fn is_done(&self) -> bool {
        self.arguments.count.is_some_and(|count| self.printed >= count)
    }

    /// Takes one record; false ends the polling.
    fn record(&mut self, data: &[u8]) -> bool {
        if self.is_done() {
            return false;
        }
        let Some(record) = Record::parse(data) else { return true };
        let traced = usize::try_from(record.function).ok().and_then(|nth| self.traced.get(nth));
        let Some(function) = traced.and_then(|traced| traced.link.report().functions.first()) else { return true };
        let site = record.site.and_then(|id| function.sites.iter().find(|site| site.id == id));
        let values = self.values(function, site, &record);
        if !self.arguments.conditions.iter().all(|condition| holds(condition, &record, site, &values)) {
            return true;
        }
        let line = if self.arguments.json {
            self.json(function, site, &record, &values).to_string()
        } else {
            self.line(function, site, &record, &values)
        };
        if let Err(error) = writeln!(io::stdout(), "{line}") {
            self.failure = Some(error);
            return false;
        }
        self.printed += 1;
        true
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
            let name = if parameter.name.is_empty() { format!("arg{nth}") } else { parameter.name.clone() };
            let doubt = site.and_then(|site| site.doubtful.iter().find(|argument| argument.index == nth));
            values.push(Value { name, text, doubt: doubt.map(|argument| argument.why), string });
        }
        values
    }

    fn line(&self, function: &FunctionReport, site: Option<&SiteReport>, record: &Record, values: &[Value]) -> String {
        let seconds = record.time.saturating_sub(self.begin) as f64 / 1e9;
        let task = format!("{}/{}", record.comm, record.pid);
        let arguments: Vec<String> = values.iter().map(Value::to_string).collect();
        let call = format!("{}({})", function.name, arguments.join(", "));
        let place = site.map_or_else(|| format!("at {:#x}", record.address), place);
        let call = if self.aligned { format!("{call:<58}") } else { call };
        format!("{seconds:>12.6} {:>3} {task:<22} {call}  {place}", record.cpu)
    }

    fn json(
        &self,
        function: &FunctionReport,
        site: Option<&SiteReport>,
        record: &Record,
        values: &[Value],
    ) -> serde_json::Value {
        let arguments: Vec<serde_json::Value> = values
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
        serde_json::json!({
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
        })
    }
}

/// The site in words: `body`, `clone foo.isra.0`, `inlined in bar+0x12 (file.c:34)`.
fn place(site: &SiteReport) -> String {
    use siteseer_sites::SiteKind;
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

/// Whether a condition holds for a call. A field that the call does not have fulfils none.
fn holds(condition: &Condition, record: &Record, site: Option<&SiteReport>, values: &[Value]) -> bool {
    if let Some(value) = values.iter().find(|value| value.name == condition.field) {
        let texts = [&value.text, &value.string];
        return texts.into_iter().flatten().any(|text| condition.holds(text));
    }
    match condition.field.as_str() {
        "kind" => site.is_some_and(|site| condition.holds(site.kind.word())),
        "in" => site.is_some_and(|site| condition.holds(&site.symbol)),
        "pid" => condition.holds(&record.tgid.to_string()),
        "tid" => condition.holds(&record.pid.to_string()),
        "cpu" => condition.holds(&record.cpu.to_string()),
        "comm" => condition.holds(&record.comm),
        _ => false,
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
}
