// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer trace`: calls of functions of the running kernel, printed or counted.
//!
//! The BPF programs were compiled when siteseer was built ([`programs`]). One is attached once for each function; the
//! number of the function is its cookie. To print calls ([`print`]) it sends the raw slots of every argument that a
//! site has; types turn them into text here. To count them ([`count`]) nothing is sent: the kernel counts, so that no
//! call is lost however many there are.

mod count;
mod histogram;
mod latency;
mod live;
pub(crate) mod members;
mod out;
mod pace;
mod plot;
mod print;
mod programs;
mod stacks;
mod tree;

use crate::Failure;
use crate::filter::{Fields, Filter, argument_name};
use crate::output::tell;
use crate::target::{self, Chosen, Modules};
use clap::Args;
use libbpf_rs::ProgramMut;
use members::{Member, Paths};
use siteseer::internals::attach::MAX_SITES;
use siteseer::internals::function::Function;
use siteseer::internals::pattern::Pattern;
use siteseer::internals::target::Types;
use siteseer::{Attach, AttachError, AttachOptions, Link, Policy, Report, Target};
use siteseer_sites::access::Path;
use siteseer_sites::with_causes;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Print or count calls of functions of the running kernel, wherever their bodies start
///
/// Requires root. First prints what is attached, what is not, and why. Ctrl-C ends it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The functions' names in the source, or patterns as for `siteseer list`: vfs_*, @read_write.c, ext4:. A name is
    /// looked for in the kernel's image and all loaded modules; module:FUNC is in that module only
    #[arg(required = true, value_name = "FUNC", add = crate::complete::functions())]
    functions: Vec<Pattern>,
    /// Trace only calls for which this condition is true: FIELD OP VALUE. FIELD is an argument's name, retval, or one
    /// of kind, in, module, pid, tid, cpu, comm. OP is one of = != < <= > >= ~ !~ (~ is for globs). `and`, `or`, `not`
    /// and ( ) connect conditions. May be given again; then all must be true
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<Filter>,
    /// Print a member of a structure with each call, as C writes it: file->f_path.dentry->d_name.name. It begins with
    /// an argument, with retval (with --returns), or with task, which is the current thread. May be given again.
    /// --where, --count and --hist accept members too
    #[arg(short, long = "field", value_name = "MEMBER")]
    fields: Vec<String>,
    /// Trace only this process
    #[arg(short, long, value_name = "PID", default_value_t = 0, hide_default_value = true)]
    pid: u32,
    /// Print what `char *` arguments point to, as text
    #[arg(short, long)]
    strings: bool,
    /// Print calls when they return, with what they return, and errors by name. Inlined copies have no return: their
    /// calls are printed when they begin
    #[arg(short, long)]
    returns: bool,
    /// Print a histogram of how long calls take, in nanoseconds, from their beginning to their return. With --returns
    /// print each call, with its time. Inlined copies have no return, and are not timed
    #[arg(short, long, conflicts_with_all = ["count", "hist"])]
    latency: bool,
    /// Print the kernel's stack of each call, with the inlined functions if the site data has their ranges or lines
    #[arg(long, conflicts_with_all = ["returns", "latency", "count", "hist", "top"])]
    stack: bool,
    /// Print trees of calls: for each thread which of the functions were called in others, with what they returned and
    /// how long they took. A tree is printed when its outermost call returns; --where is about that call. Inlined
    /// copies have no return: their calls are in the tree, and no other call is under them
    #[arg(long, conflicts_with_all = ["returns", "latency", "stack", "count", "hist", "top"])]
    tree: bool,
    /// Count calls in the kernel, and print the numbers at the end: by function, and by KEY, which is an argument's
    /// name or one of site, pid, tid, cpu, comm, stack. No call is lost. The option must come after the functions'
    /// names
    #[arg(long, value_name = "KEY", num_args = 0..=1, conflicts_with_all = ["fields", "strings", "returns", "hist", "limit"])]
    count: Option<Option<String>>,
    /// Print a histogram of an argument's values, by powers of two. The kernel counts them, so no call is lost
    #[arg(long, value_name = "ARG", conflicts_with_all = ["fields", "strings", "returns", "limit"])]
    hist: Option<String>,
    /// Count as --count does, and print the greatest numbers every second. With --hist or --latency print the
    /// histograms so far
    #[arg(long, conflicts_with_all = ["fields", "strings", "returns", "limit"])]
    top: bool,
    /// Also draw what --count, --hist, --top or --latency counted, as an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Attach at every site or not at all
    #[arg(long)]
    complete: bool,
    /// Leave out values that may be wrong, which are otherwise printed with a question mark
    #[arg(long)]
    certain: bool,
    /// Allow more than 1,024 sites. So many slow the whole machine down, and take minutes to arm
    #[arg(short, long)]
    yes: bool,
    /// Attach also at places where a program is a risk to the kernel. The report says which these are, and why
    #[arg(long)]
    allow_risky: bool,
    /// End after this many calls were printed; with --tree, this many trees
    #[arg(short = 'n', long, value_name = "COUNT")]
    limit: Option<u64>,
    /// End after this many seconds
    #[arg(short, long, value_name = "SECONDS")]
    duration: Option<u64>,
    /// Site data, or a debug vmlinux, of the running kernel [default: found by build id]
    #[arg(long, value_name = "FILE")]
    sites: Option<PathBuf>,
    /// If there is no site data for the running kernel, fetch it first, as `siteseer fetch` does without options. If a
    /// function's name has a module, that of the modules too
    #[cfg(feature = "network")]
    #[arg(long, conflicts_with = "sites")]
    fetch: bool,
    #[command(flatten)]
    modules: Modules,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Whether returns are looked at.
    fn sees_returns(&self) -> bool {
        self.returns || self.tree
    }

    /// What calls are counted by, if they are counted.
    fn key(&self) -> Option<count::Key<'_>> {
        match (&self.hist, &self.count) {
            (Some(argument), _) => Some(count::Key::Histogram(argument)),
            (None, Some(key)) => Some(count::Key::parse(key.as_deref())),
            (None, None) => (self.top && !self.latency).then_some(count::Key::Function),
        }
    }

    /// Whether the times of calls are counted, and no call is printed.
    fn only_times(&self) -> bool {
        self.latency && !self.returns
    }

    /// Refuses what is about calls that are printed, where none is.
    fn check(&self) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            if self.key().is_none() && !self.only_times() {
                return Err("--plot draws what is counted: give --count, --hist, --top or --latency".into());
            }
            // Not only when all is counted.
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                return Err(format!("cannot write {}: there is no folder {}", path.display(), folder.display()).into());
            }
        }
        let printing =
            [("--field", !self.fields.is_empty()), ("--strings", self.strings), ("--limit", self.limit.is_some())];
        match printing.iter().find(|(_, given)| *given && self.only_times()) {
            Some((option, _)) => {
                Err(format!("{option} is about calls that are printed: give --returns with --latency").into())
            }
            None => Ok(()),
        }
    }

    fn policy(&self) -> Policy {
        if self.complete { Policy::Complete } else { Policy::BestEffort }
    }

    /// How a function is attached to.
    fn attach<'t>(&self, target: &'t Target, function: &Traceable<'_>, policy: Policy) -> Attach<'t> {
        let options = AttachOptions::default().function(function.chosen.name()).policy(policy).cookie(function.cookie);
        let mut options = options.all_prototypes(true).accept_doubt(!self.certain).allow_risky(self.allow_risky);
        if let Some(file) = function.chosen.file(function.function) {
            options = options.file(file);
        }
        if self.yes {
            options = options.max_sites(usize::MAX);
        }
        Attach::with(target, options)
    }
}

/// A function that is to be traced.
#[derive(Clone, Copy)]
struct Traceable<'f> {
    chosen: &'f Chosen,
    function: &'f Function,
    /// Its number.
    cookie: u64,
}

/// How many functions are traced at once.
const MAX_FUNCTIONS: usize = 1024;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.check()?;
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    let target = target(arguments)?;
    let chosen = target::choose(&target, &arguments.functions, MAX_FUNCTIONS)?;
    let functions = target::functions(&target, &chosen)?;
    check_number(arguments, &functions)?;
    let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    let modules =
        functions.iter().flat_map(|function| &function.prototypes).filter_map(|prototype| prototype.module.clone());
    let modules: BTreeSet<_> = modules.collect();
    let traceable = (0u64..).zip(chosen.iter().zip(&functions));
    let traceable: Vec<Traceable<'_>> =
        traceable.map(|(cookie, (chosen, function))| Traceable { chosen, function, cookie }).collect();
    target.with_types(&names, modules, |types| -> Result<(), Failure> {
        let filter = Filter::all(arguments.conditions.iter().cloned());
        let members = members(arguments, filter.as_ref(), &functions, types)?;
        if let Some(filter) = &filter {
            let mut fields = Fields::of(functions.iter(), arguments.sees_returns(), |module| types.of(module));
            let there = members.iter().flatten().filter(|member| member.is_there());
            there.for_each(|member| fields.add(&member.name, member.ty.clone()));
            filter.check(&fields)?;
        }
        let tracing = Tracing { arguments, target: &target, functions: &traceable, types, filter, members: &members };
        let traced = match arguments.key() {
            Some(key) => count::run(&tracing, key),
            None if arguments.only_times() => latency::run(&tracing),
            None => print::run(&tracing),
        };
        match traced {
            Err(error) if tracing.filter.is_some() && is_too_much_to_verify(&*error) => Err(
                "--where: the kernel's verifier gives up before the end of a program with this condition, which has too \
                 many branches for it: give a shorter condition, or one with fewer members of structures"
                    .into(),
            ),
            traced => traced,
        }
    })?
}

/// Whether the verifier gave up a program (E2BIG, the limit on instructions that it looks at; kernel/bpf/verifier.c).
fn is_too_much_to_verify(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_limit = |error: &std::io::Error| error.raw_os_error() == Some(nix::errno::Errno::E2BIG as i32);
    let of_trampoline = matches!(error.downcast_ref(), Some(AttachError::Verifier { error, .. }) if is_limit(error));
    // Of an object, by libbpf.
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    of_trampoline || causes.any(|cause| cause.downcast_ref().is_some_and(is_limit))
}

/// The members of structures that a command names, for each function. The one that is counted by and those that are
/// compared come first: the kernel's programs look at the first ones only.
fn members(
    arguments: &Arguments,
    filter: Option<&Filter>,
    functions: &[Function],
    types: &Types<'_>,
) -> Result<Vec<Vec<Member>>, Failure> {
    let key = arguments.key().and_then(count::Key::argument).filter(|name| Path::is_meant(name));
    let compared = filter.map_or(Vec::new(), Filter::paths);
    let paths = Paths::new(key.into_iter().chain(compared).chain(arguments.fields.iter().map(String::as_str)), types)?;
    let all = functions.iter().map(|function| paths.of(function, arguments.returns, types));
    let all = all.collect::<Result<Vec<Vec<Member>>, String>>()?;
    for (nth, name) in paths.names().enumerate() {
        if all.iter().any(|members| members[nth].is_there()) {
            continue;
        }
        let parameters = functions.iter().flat_map(|function| &function.prototypes);
        let parameters = parameters.flat_map(|prototype| prototype.parameters.iter().enumerate());
        let known: BTreeSet<String> = parameters.map(|(nth, parameter)| argument_name(nth, parameter)).collect();
        let known: Vec<String> = known.into_iter().chain([members::TASK.to_owned()]).collect();
        return Err(format!("{name}: no call has what the path begins with; there are: {}", known.join(", ")).into());
    }
    Ok(all)
}

/// The running kernel. Without site data it is what its symbols tell, unless they were asked for.
fn target(arguments: &Arguments) -> Result<Target, Failure> {
    #[cfg(feature = "network")]
    let fetch = arguments.fetch;
    #[cfg(not(feature = "network"))]
    let fetch = false;
    let options = arguments.modules.options(arguments.sites.clone());
    let opened = target::opened(fetch, &arguments.functions, || Target::running(&options));
    let Err(failure) = opened else { return opened };
    if !target::is_missing(&*failure) {
        return Err(failure);
    }
    if let Some(pattern) = arguments.functions.iter().find(|pattern| !pattern.is_name()) {
        return Err(format!("{pattern} is looked up in site data, and there is {failure}").into());
    }
    if arguments.complete {
        return Err(failure);
    }
    if cfg!(feature = "network") {
        tell!("no site data for this kernel was found: with --fetch, siteseer fetches it first");
    }
    Ok(Target::without_site_data()?)
}

/// Refuses more sites in all than one function may have.
fn check_number(arguments: &Arguments, functions: &[Function]) -> Result<(), Failure> {
    let candidates = functions.iter().flat_map(|function| &function.candidates);
    let sites = candidates.filter(|candidate| candidate.obstacle.is_none()).count();
    if functions.len() > 1 && sites > MAX_SITES && !arguments.yes {
        let count = functions.len();
        return Err(format!(
            "{count} functions would be attached to at {sites} sites, and {MAX_SITES} are allowed: so many slow the \
             whole machine down, and take minutes to arm and to disarm. To attach to them nevertheless, give --yes"
        )
        .into());
    }
    Ok(())
}

/// What is traced, and how.
struct Tracing<'a, 'b> {
    arguments: &'a Arguments,
    target: &'a Target,
    functions: &'a [Traceable<'a>],
    types: &'a Types<'b>,
    filter: Option<Filter>,
    /// The members of structures that are read, for each function.
    members: &'a [Vec<Member>],
}

/// Prints reports. A note that several have is printed once.
fn tell_of<'r>(reports: impl Iterator<Item = &'r Report>) {
    let mut notes: Vec<String> = Vec::new();
    for report in reports {
        let mut own = report.clone();
        own.notes.clear();
        tell!("{}", own.to_string().trim_end());
        notes.extend(report.notes.iter().filter(|note| !notes.contains(note)).cloned().collect::<Vec<_>>());
    }
    notes.iter().for_each(|note| tell!("note: {note}"));
}

/// A program that is attached to a function.
struct Traced<'t> {
    attach: Attach<'t>,
    link: Link,
    /// The number of unloaded modules that have been reported.
    gone: usize,
    /// The modules in which it could not be attached when they had been loaded.
    failed: Vec<String>,
    /// Why the program is not attached in modules that are loaded later: what is said of their calls.
    stays: Option<&'static str>,
    /// What is known to keep the program from running.
    in_the_way: Vec<String>,
}

impl<'t> Traced<'t> {
    fn new(attach: Attach<'t>, program: &ProgramMut<'_>, members: &[Member]) -> Result<Traced<'t>, AttachError> {
        let link = attach.attach(program)?;
        // The report says it.
        let in_the_way = link.in_the_way().unwrap_or_default();
        // They are read by the types of the modules that are loaded now.
        let stays = (!members.is_empty()).then_some("not traced: members of structures may be elsewhere there");
        Ok(Traced { attach, link, gone: 0, failed: Vec::new(), stays, in_the_way })
    }

    /// The same, without modules that are loaded later.
    fn staying(self, stays: &'static str) -> Traced<'t> {
        Traced { stays: Some(stays), ..self }
    }

    /// Says which sites went away with their modules, and what keeps the program from running or no longer does;
    /// attaches in modules that have come.
    fn keep_up(&mut self, program: &ProgramMut<'_>) -> Result<(), Failure> {
        let gone = self.link.gone()?;
        for gone in gone.iter().skip(self.gone) {
            tell!("{gone}");
        }
        self.gone = gone.len();
        // What cannot be read could not be read before either: the report says so.
        let in_the_way = self.link.in_the_way().unwrap_or_else(|_| self.in_the_way.clone());
        in_the_way.iter().filter(|what| !self.in_the_way.contains(what)).for_each(|what| tell!("since now: {what}"));
        self.in_the_way.iter().filter(|what| !in_the_way.contains(what)).for_each(|what| tell!("no longer: {what}"));
        self.in_the_way = in_the_way;
        let unseen = self.link.unseen_modules()?;
        if unseen.is_empty() || unseen == self.failed {
            return Ok(());
        }
        if let Some(stays) = self.stays {
            tell!("calls in modules that were loaded since ({}) are {stays}", unseen.join(", "));
            self.failed = unseen;
            return Ok(());
        }
        match self.attach.refresh(program, &mut self.link) {
            Ok(0) => {}
            Ok(_) => tell!("{}", self.link.report().to_string().trim_end()),
            // The rest goes on being traced.
            Err(error) => {
                tell!("in modules that were loaded since: {}", with_causes(&error));
                self.failed = unseen;
            }
        }
        Ok(())
    }
}

/// Reports what the links saw and nothing else would report.
fn tell_of_losses<'l>(links: impl Iterator<Item = &'l Link>) -> Result<(), Failure> {
    let (mut faults, mut missed) = (0, 0);
    for link in links {
        faults += link.faults()?;
        missed += link.missed()?;
    }
    if faults > 0 {
        tell!("{faults} calls left out because an argument's memory could not be read");
    }
    if missed > 0 {
        tell!("{missed} calls not seen because the kernel runs no tracing programs where they were made");
    }
    Ok(())
}
