// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! "BTF functions that plain fentry cannot reach: before and after", on the running kernel.
//!
//! Two questions are put to every function that the kernel's BTF names.
//!
//! *Has its name no symbol of its own?* The kernel looks an fentry program's function up by exactly that name
//! (`bpf_check_attach_target()` in kernel/bpf/verifier.c), so such a program does not load. That is tried for each
//! (`plain`). Then siteseer attaches two programs to each: one that reads no argument, and one that reads all. Many
//! functions share a link, so that they share grace periods too; the outcome is each function's own, from the report.
//!
//! *Does it have a body that plain fentry reaches, and inlined copies?* There a plain program attaches, and sees a part
//! of the calls, and nothing says so. What siteseer would do is a plan for the running kernel, for every such function;
//! nothing is attached.
//!
//! Every function ends in one outcome: attached everywhere, attached in part, or not, with a reason. A reason is
//! [`siteseer::Reason::key`], or the kind of [`PlanError`].

mod plain;
mod table;

use crate::guest::case::{Case, Failure};
use libbpf_rs::ObjectBuilder;
use siteseer::internals::function::Function;
use siteseer::internals::insn::Insn;
use siteseer::internals::plan::{PlanOptions, plan};
use siteseer::internals::program::{UserProgram, Uses, analyse};
use siteseer::internals::section::{Form, Kind as Section, Wanted};
use siteseer::{
    Attach, AttachError, AttachOptions, FunctionReport, InTheWay, Link, Outcome, PlanError, Policy, Reason, Report,
    Target,
};
use siteseer_bpf_progs::REACH;
use siteseer_sites::btf::{Btf, Kind, TypeId};
use siteseer_sites::site::SiteKind;
use siteseer_sites::with_causes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use table::print;

/// What keeps every probe from a function, whatever puts it there: it has no code, its code never runs, or the kernel
/// refuses probes in it. A function whose name has no symbol is kept from a program that reads nothing by these alone.
const NOBODYS: [&str; 11] = [
    NO_CODE,
    ANOTHER_NAME,
    "init",
    "exit",
    "noinstr",
    "entry",
    "blacklisted",
    "notrace",
    "jump_label",
    "static_call",
    "bug",
];
const NO_CODE: &str = "no_code";
const ANOTHER_NAME: &str = "another_name";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything: `ci/reach`.
    All,
    /// What the suite has time for: programs that read all arguments are planned and not attached, and of the functions
    /// with inlined copies there is a sample.
    Suite,
}

/// How many of the functions with inlined copies the suite looks at.
const SAMPLE: usize = 400;

/// The outcome of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// At all of its sites that can run.
    Complete,
    /// At some; the first reason of those where it is not, by how many sites have it.
    Partly(Why),
    /// At none.
    Not(Why),
}

/// A reason: its key, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// What is counted by.
    pub key: &'static str,
    /// One of the sentences that were given for it.
    pub sentence: String,
}

/// What a kind of program makes of a list of functions.
#[derive(Debug, Default)]
pub struct Fates(pub BTreeMap<String, Fate>);

impl Fates {
    fn count(&self, is: impl Fn(&Fate) -> bool) -> usize {
        self.0.values().filter(|fate| is(fate)).count()
    }

    /// Functions that are attached under `complete`.
    pub fn complete(&self) -> usize {
        self.count(|fate| *fate == Fate::Complete)
    }

    /// Functions that are attached under `best_effort`.
    pub fn attached(&self) -> usize {
        self.count(|fate| !matches!(fate, Fate::Not(_)))
    }
}

/// Everything that the table is made of.
pub struct Reach {
    /// `uname -r`.
    pub release: String,
    /// FUNCs of the kernel's BTF.
    pub functions: usize,
    /// What plain fentry does with those that have no symbol: by stage and error.
    pub plain: BTreeMap<(plain::Stage, i32), usize>,
    /// Those, attached by a program that reads nothing.
    pub nothing: Fates,
    /// The same by one that reads all arguments.
    pub everything: Fates,
    /// Functions with a symbol and inlined copies: how many there are, and how many of them were looked at.
    pub inlined: (usize, usize),
    /// Those that plain fentry traces in part, planned for a program that reads nothing.
    pub part_nothing: Fates,
    /// The same for one that reads all arguments.
    pub part_everything: Fates,
    /// Whether [`Reach::everything`] is a plan, and was not attached.
    pub planned: bool,
    /// How long each part took.
    pub times: Vec<(&'static str, Duration)>,
}

/// The case of the suite.
pub fn cases() -> Vec<Case> {
    vec![Case {
        name: "reach::functions_that_plain_fentry_cannot_reach".to_owned(),
        run: Box::new(|target| {
            let reach = measure(target, Extent::Suite)?;
            let table = print(&reach);
            check(&reach).map_err(|why| format!("{why}\n{table}"))?;
            Ok(table.into())
        }),
    }]
}

/// What must hold on every kernel.
fn check(reach: &Reach) -> Result<(), Failure> {
    let all = reach.nothing.0.len();
    if all == 0 || reach.everything.0.len() != all || reach.plain.values().sum::<usize>() != all {
        return Err(format!("{all} functions without a symbol, and the columns have other numbers").into());
    }
    let reached: usize =
        reach.plain.iter().filter(|((stage, _), _)| *stage == plain::Stage::Attached).map(|(_, count)| count).sum();
    if reached != 0 {
        return Err(format!("plain fentry reaches {reached} functions that have no symbol").into());
    }
    let lists = [&reach.nothing, &reach.everything, &reach.part_nothing, &reach.part_everything];
    for (name, fate) in lists.iter().flat_map(|fates| &fates.0) {
        if let Fate::Partly(why) | Fate::Not(why) = fate
            && (why.key.is_empty() || why.sentence.is_empty())
        {
            return Err(format!("{name} is not attached, and no reason is given").into());
        }
    }
    if reach.nothing.attached() * 2 < all {
        return Err("most of the functions without a symbol are not attached".into());
    }
    for (name, fate) in &reach.nothing.0 {
        if let Fate::Not(why) = fate
            && !NOBODYS.contains(&why.key)
        {
            return Err(format!("{name} could be attached: {}: {}", why.key, why.sentence).into());
        }
    }
    if reach.part_nothing.0.is_empty() {
        return Err("no function is traced in part: that cannot be".into());
    }
    Ok(())
}

/// Measures. Everything that was attached is detached when it returns.
///
/// # Errors
/// If the kernel cannot be used. What it refuses for one function is that function's outcome.
pub fn measure(target: &Target, extent: Extent) -> Result<Reach, Failure> {
    let mut clock = Clock { last: Instant::now(), times: Vec::new() };
    let data = target.kernel().btf.clone().ok_or("the kernel has no BTF")?;
    let btf = Btf::parse(&data)?;
    let funcs: BTreeMap<&str, TypeId> =
        btf.types().filter(|ty| ty.kind() == Kind::Func).map(|ty| (ty.name(), ty.id())).collect();
    let functions = btf.types().filter(|ty| ty.kind() == Kind::Func).count();
    let symbols: BTreeSet<&str> =
        target.symbols()?.iter().filter(|symbol| symbol.module.is_none()).map(|symbol| symbol.name).collect();
    let without: BTreeMap<&str, TypeId> =
        funcs.iter().filter(|(name, _)| !symbols.contains(*name)).map(|(name, id)| (*name, *id)).collect();
    clock.lap("finding them");
    let mut plain = BTreeMap::new();
    for &id in without.values() {
        *plain.entry(plain::fentry(id)?).or_default() += 1;
    }
    clock.lap("plain fentry on each");

    let names: Vec<&str> = without.keys().copied().collect();
    let (known, unknown) = look_up(target, &names)?;
    clock.lap("looking them up");
    let object = ObjectBuilder::default().open_memory(REACH)?.load()?;
    let mut columns = Vec::new();
    for (column, name) in ["nothing", "everything"].into_iter().enumerate() {
        let mut fates = plan_all(target, &known, &hypothetical(column == 1)?)?;
        fates.0.extend(unknown.iter().map(|name| ((*name).to_owned(), Fate::Not(no_code(name, &symbols)))));
        if column == 1 && extent == Extent::Suite {
            columns.push(fates);
            break;
        }
        let program = object.progs().find(|program| program.name() == name).ok_or("no such program")?;
        let links = attach_all(target, &program, &mut fates)?;
        clock.lap(if column == 0 { "attaching, no argument" } else { "attaching, all arguments" });
        detach(links);
        clock.lap(if column == 0 { "detaching, no argument" } else { "detaching, all arguments" });
        columns.push(fates);
    }
    let (Some(everything), Some(nothing)) = (columns.pop(), columns.pop()) else { return Err("no columns".into()) };

    let mut names = inlined_somewhere(target, &funcs, &symbols)?;
    let all = names.len();
    if extent == Extent::Suite {
        // Always the same ones.
        names.sort_by_key(|name| seeded(name));
        names.truncate(SAMPLE);
    }
    let inlined = (all, names.len());
    let (known, _) = look_up(target, &names)?;
    let parts: Vec<Function> = known.into_iter().filter(is_traced_in_part).collect();
    clock.lap("looking up what is traced in part");
    let part_nothing = plan_all(target, &parts, &hypothetical(false)?)?;
    let part_everything = plan_all(target, &parts, &hypothetical(true)?)?;
    clock.lap("planning that");
    Ok(Reach {
        release: target.kernel().release.clone(),
        functions,
        plain,
        nothing,
        everything,
        inlined,
        part_nothing,
        part_everything,
        planned: extent == Extent::Suite,
        times: clock.times,
    })
}

/// A number that says nothing of a name: FNV-1a, from a seed.
fn seeded(name: &str) -> u64 {
    const SEED: u64 = 0xcbf2_9ce4_8422_2325;
    name.bytes().fold(SEED, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

struct Clock {
    last: Instant,
    times: Vec<(&'static str, Duration)>,
}

impl Clock {
    fn lap(&mut self, what: &'static str) {
        self.times.push((what, self.last.elapsed()));
        self.last = Instant::now();
    }
}

/// Why there is neither symbol nor site. A kfunc with implicit arguments has two FUNCs: one of its own name, as BPF
/// programs call it, and one with all parameters, named NAME_impl (KF_IMPLICIT_ARGS, tools/bpf/resolve_btfids).
fn no_code(name: &str, symbols: &BTreeSet<&str>) -> Why {
    match name.strip_suffix("_impl").filter(|kfunc| symbols.contains(kfunc)) {
        Some(kfunc) => Why {
            key: ANOTHER_NAME,
            sentence: format!("another name, in BTF alone, of the kfunc {kfunc}, which has a symbol"),
        },
        None => Why { key: NO_CODE, sentence: "the kernel has neither a symbol nor an inlined copy of it".to_owned() },
    }
}

/// Drops links side by side: each waits for the kernel.
fn detach(links: Vec<Link>) {
    std::thread::scope(|scope| {
        for link in links {
            scope.spawn(move || drop(link));
        }
    });
}

/// The functions of these names, and the names for which the kernel has no code.
fn look_up<'n>(target: &Target, names: &[&'n str]) -> Result<(Vec<Function>, Vec<&'n str>), Failure> {
    let described: BTreeSet<String> =
        target.data().read(&[], |file| file.function_names().map(str::to_owned).collect())?;
    let symbols = target.symbols()?;
    let (known, unknown): (Vec<&str>, Vec<&str>) = names.iter().copied().partition(|name| {
        described.contains(*name)
            || symbols.named(name).any(|symbol| !symbol.is_generated())
            || symbols.suffixed(name).any(|symbol| !siteseer::internals::function::is_fragment(symbol.name))
    });
    let wanted = |name: &&str| Wanted { module: None, function: Some((*name).to_owned()) };
    let functions = target.functions(&known.iter().map(wanted).collect::<Vec<Wanted>>())?;
    Ok((functions, unknown))
}

/// Names in the kernel's BTF that have a symbol and an inlined copy that can run.
fn inlined_somewhere<'n>(
    target: &Target,
    funcs: &BTreeMap<&'n str, TypeId>,
    symbols: &BTreeSet<&str>,
) -> Result<Vec<&'n str>, Failure> {
    let inlined = target.data().read(&[], |file| -> Result<BTreeSet<String>, Failure> {
        let mut names = BTreeSet::new();
        for function in file.all_functions() {
            let function = function?;
            for site in function.sites() {
                let site = site?;
                if site.kind() == Some(SiteKind::Inline) && !site.unprobeable().is_some_and(|why| why.is_dead()) {
                    names.insert(function.name().to_owned());
                    break;
                }
            }
        }
        Ok(names)
    })??;
    Ok(funcs.keys().copied().filter(|name| symbols.contains(name) && inlined.contains(*name)).collect())
}

/// Whether plain fentry attaches to the function, by its name, and an inlined copy that can run is elsewhere.
fn is_traced_in_part(function: &Function) -> bool {
    let body = function.candidates.iter().any(|site| {
        site.kind == SiteKind::Body && site.traceable == Some(true) && site.obstacle.is_none() && site.is_entry()
    });
    let dead = |reason: &Option<Reason>| reason.as_ref().is_some_and(Reason::is_dead);
    body && function.candidates.iter().any(|site| site.kind == SiteKind::Inline && !dead(&site.obstacle))
}

/// A program that is planned with and never run: it reads no argument, or, by a number that is not a constant, all.
pub(crate) fn hypothetical(everything: bool) -> Result<(UserProgram, Uses), Failure> {
    const GET_FUNC_ARG: i32 = siteseer::internals::helper::GET_FUNC_ARG as i32;
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: i32| Insn { code, dst_src: dst | src << 4, off, imm };
    let exit = [insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)];
    let mut insns = Vec::new();
    if everything {
        insns.extend([
            // r2 = a random number; r3 = r10 - 8; bpf_get_func_arg(ctx, r2, r3)
            insn(0xbf, 6, 1, 0, 0),
            insn(0x85, 0, 0, 0, 7),
            insn(0xbf, 2, 0, 0, 0),
            insn(0xbf, 1, 6, 0, 0),
            insn(0xbf, 3, 10, 0, 0),
            insn(0x07, 3, 0, 0, -8),
            insn(0x85, 0, 0, 0, GET_FUNC_ARG),
        ]);
    }
    insns.extend(exit);
    let program = UserProgram { name: "hypothetical".to_owned(), insns, ..UserProgram::default() };
    let uses = analyse(&program).map_err(|refusal| refusal.to_string())?;
    Ok((program, uses))
}

/// What would happen to each function.
fn plan_all(target: &Target, functions: &[Function], (program, uses): &(UserProgram, Uses)) -> Result<Fates, Failure> {
    let form = Form { kind: Section::Fentry, sleepable: false };
    // What siteseer can reach: the few risky places, too, which a user has to allow.
    let options = PlanOptions { policy: Some(Policy::BestEffort), form, allow_risky: true, ..PlanOptions::default() };
    let mut fates = Fates::default();
    for function in functions {
        let planned = plan(std::slice::from_ref(function), program, uses, target.kernel(), options);
        let fate = match planned {
            Ok(plan) => fate(plan.report().functions.first().ok_or("a plan without functions")?),
            Err(error) => Fate::Not(why_not(&error)),
        };
        fates.0.insert(function.name.clone(), fate);
    }
    Ok(fates)
}

/// The outcome of a function that is attached somewhere.
fn fate(function: &FunctionReport) -> Fate {
    let (repeat, miss) = (Reason::MayRepeat, Reason::MayMiss);
    let reasons = function.sites.iter().filter_map(|site| match &site.outcome {
        Outcome::Skipped(reason) => Some(reason),
        // Under `complete` such a site is not attached.
        Outcome::Attached { .. } if site.may_miss => Some(&miss),
        Outcome::Attached { .. } => site.may_repeat.then_some(&repeat),
    });
    match foremost(reasons) {
        None => Fate::Complete,
        Some(why) if function.sites.iter().any(siteseer::SiteReport::is_attached) => Fate::Partly(why),
        Some(why) => Fate::Not(why),
    }
}

/// The reason that most of the sites have. What never runs is in no one's way, unless there is nothing else.
fn foremost<'r>(reasons: impl Iterator<Item = &'r Reason>) -> Option<Why> {
    let mut counts: BTreeMap<&'static str, (usize, &Reason)> = BTreeMap::new();
    for reason in reasons.filter(|reason| !reason.is_dead()) {
        counts.entry(reason.key()).or_insert((0, reason)).0 += 1;
    }
    let (key, (_, reason)) = counts.into_iter().max_by_key(|(_, (count, _))| *count)?;
    Some(Why { key, sentence: reason.to_string() })
}

/// Why there is no plan.
fn why_not(error: &PlanError) -> Why {
    let key = match error {
        PlanError::Nothing { sites, .. } => return nothing(sites),
        PlanError::Incomplete { .. } => "incomplete",
        PlanError::Ambiguous { .. } => "ambiguous",
        PlanError::Program { .. } => "program",
        PlanError::Prototype { .. } => "prototype",
        _ => "plan",
    };
    Why { key, sentence: error.to_string().lines().next().unwrap_or_default().to_owned() }
}

fn nothing(sites: &[InTheWay]) -> Why {
    foremost(sites.iter().map(|site| &site.reason)).unwrap_or_else(|| {
        // All of them are in text that is gone.
        let sentence = sites.first().map_or_else(|| "it has no site".to_owned(), |site| site.reason.to_string());
        Why { key: sites.first().map_or(NO_CODE, |site| site.reason.key()), sentence }
    })
}

/// How many functions share a link.
const TOGETHER: usize = 128;

/// Attaches a program to all functions that can be, and corrects the outcomes if the kernel refuses a site.
fn attach_all(target: &Target, program: &libbpf_rs::Program<'_>, fates: &mut Fates) -> Result<Vec<Link>, Failure> {
    let planned: Vec<String> =
        fates.0.iter().filter(|(_, fate)| !matches!(fate, Fate::Not(_))).map(|(name, _)| name.clone()).collect();
    let mut links = Vec::new();
    for names in planned.chunks(TOGETHER) {
        let attach = |names: &[String]| {
            let options = AttachOptions::default().max_sites(usize::MAX).policy(Policy::BestEffort);
            let options = names.iter().fold(options, AttachOptions::function);
            Attach::with(target, options).attach(program)
        };
        match attach(names) {
            Ok(link) => {
                note(link.report(), fates);
                links.push(link);
            }
            // One stands in the way of the others.
            Err(_) => {
                for name in names {
                    match attach(std::slice::from_ref(name)) {
                        Ok(link) => {
                            note(link.report(), fates);
                            links.push(link);
                        }
                        Err(AttachError::Plan(error)) => {
                            fates.0.insert(name.clone(), Fate::Not(why_not(&error)));
                        }
                        Err(error) => {
                            let why = Why { key: "attach", sentence: with_causes(&error) };
                            fates.0.insert(name.clone(), Fate::Not(why));
                        }
                    }
                }
            }
        }
    }
    Ok(links)
}

/// What a link's report says about its functions.
fn note(report: &Report, fates: &mut Fates) {
    for function in &report.functions {
        fates.0.insert(function.name.clone(), fate(function));
    }
}
