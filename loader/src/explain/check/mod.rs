// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a compiler made of a function on a kernel that need not run, and what would happen to programs there: by rules
//! that an application's own tests can deny.
//!
//! Each question is about one function of one kernel. The answer has the function's *shape* (a plain body, inlined in
//! part or wholly, clones alone, missing), its arguments site by site in numbers, and an *outlook* for each kind of
//! program: how many sites would be attached, and which ones stand in the way of the policy `complete`. What is worth
//! a word is a [`Finding`] by a [`Rule`]. Two answers about one function differ by the rules [`Rule::Prototype`] and
//! [`Rule::Shape`] ([`compare`]).
//!
//! Shapes and numbers are those of code that runs: sites in text that is freed after boot are counted apart
//! ([`Answer::dead`]).
//!
//! The program that is asked about is one of three:
//!
//! * one of an object file in a section of ours: what it reads is read from its code ([`crate::program::object_file`]);
//! * one of a kprobe's section or the like, which reads registers, so that its code does not tell which arguments it
//!   means: a program that reads all stands for it;
//! * none: a name alone is answered for programs that read all, at the entry and at the return.

use crate::explain::ExplainError;
use crate::explain::{by_prototype, reader};
use crate::kernel::Kernel;
use crate::plan::mechanism::Barred;
use crate::plan::{self, Decision, InTheWay, Plan, PlanError, PlanOptions, Policy};
use crate::program::declared::Declared;
use crate::program::object_file::{FileProgram, PlainProgram};
use crate::program::section::{Form, Kind, Wanted};
use crate::program::{self, UserProgram};
use crate::site::reason::Reason;
use crate::target::function::{Candidate, Function, Prototype, SelectError, Selection};
use crate::target::{Target, TargetError};
use siteseer_sites::location::Located;
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What is asked about a function.
#[derive(Debug, Clone, Copy)]
pub enum Question<'a> {
    /// What programs that read all arguments would meet.
    Name,
    /// What a program in a section of ours would meet.
    Program(&'a FileProgram),
    /// What a program would meet that libbpf alone attaches, if it were in a section of ours.
    Plain(&'a PlainProgram),
}

/// What the compiler made of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    /// Symbols of its name, and nothing else.
    Plain,
    /// Out-of-line copies, and inlined ones.
    PartlyInlined,
    /// Inlined copies alone.
    WhollyInlined,
    /// No inlined copies, and symbols made from the name.
    Cloned,
    /// Nothing: there is no function of the name.
    Missing,
    /// It is in a module for which no site data was given.
    NoData,
}

impl Shape {
    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            Shape::Plain => "plain",
            Shape::PartlyInlined => "partly_inlined",
            Shape::WhollyInlined => "wholly_inlined",
            Shape::Cloned => "cloned",
            Shape::Missing => "missing",
            Shape::NoData => "no_data",
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Plain => "plain",
            Shape::PartlyInlined => "partly inlined",
            Shape::WhollyInlined => "wholly inlined",
            Shape::Cloned => "cloned",
            Shape::Missing => "missing",
            Shape::NoData => "no data",
        })
    }
}

/// What is worth a word about a function on a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// There is no function of the name.
    Missing,
    /// The function is in a module for which no site data was given.
    NoData,
    /// siteseer would attach the program nowhere.
    Refused,
    /// The policy `complete` would refuse the program: sites are in the way.
    Incomplete,
    /// Some site lacks an argument that the program reads.
    Arguments,
    /// Some site cannot be probed, whatever the program.
    Unprobeable,
    /// Only inlined copies are left.
    WhollyInlined,
    /// Inlined copies are there besides out-of-line ones.
    PartlyInlined,
    /// Some out-of-line copy has another symbol, made from the name.
    Cloned,
    /// The compiler changed the signature of some out-of-line copy.
    SignatureChanged,
    /// Several bodies have the name.
    SeveralBodies,
    /// Functions of the name take different arguments.
    Ambiguous,
    /// The prototype is another than on the first kernel that has the function.
    Prototype,
    /// The shape is another than on the first kernel that has the function.
    Shape,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 14] = [
        Rule::Missing,
        Rule::NoData,
        Rule::Refused,
        Rule::Incomplete,
        Rule::Arguments,
        Rule::Unprobeable,
        Rule::WhollyInlined,
        Rule::PartlyInlined,
        Rule::Cloned,
        Rule::SignatureChanged,
        Rule::SeveralBodies,
        Rule::Ambiguous,
        Rule::Prototype,
        Rule::Shape,
    ];

    /// A stable identifier, for people and for machines.
    pub fn key(self) -> &'static str {
        match self {
            Rule::Missing => "missing",
            Rule::NoData => "no_data",
            Rule::Refused => "refused",
            Rule::Incomplete => "incomplete",
            Rule::Arguments => "arguments",
            Rule::Unprobeable => "unprobeable",
            Rule::WhollyInlined => "wholly_inlined",
            Rule::PartlyInlined => "partly_inlined",
            Rule::Cloned => "cloned",
            Rule::SignatureChanged => "signature_changed",
            Rule::SeveralBodies => "several_bodies",
            Rule::Ambiguous => "ambiguous",
            Rule::Prototype => "prototype",
            Rule::Shape => "shape",
        }
    }

    /// What it says, in a sentence.
    pub fn describe(self) -> &'static str {
        match self {
            Rule::Missing => "The kernel has no function of the name.",
            Rule::NoData => "The function is in a module for which no site data was given.",
            Rule::Refused => "siteseer would attach the program nowhere.",
            Rule::Incomplete => "The policy complete would refuse the program: sites are in the way.",
            Rule::Arguments => "A site lacks an argument that the program reads.",
            Rule::Unprobeable => "A site cannot be probed, whatever the program.",
            Rule::WhollyInlined => {
                "Only inlined copies of the function are left: a plain kprobe or fentry sees no call."
            }
            Rule::PartlyInlined => "Some calls were inlined: a plain kprobe or fentry misses them.",
            Rule::Cloned => {
                "Some copies have a symbol made from the name: a plain kprobe or fentry misses their calls."
            }
            Rule::SignatureChanged => "A copy's signature was changed: its arguments are not where the ABI has them.",
            Rule::SeveralBodies => "Several bodies have the name: plain libbpf attaches to one of them or to none.",
            Rule::Ambiguous => "Functions of the name take different arguments.",
            Rule::Prototype => "The prototype differs from that on the first kernel that has the function.",
            Rule::Shape => "The compiler treated the function otherwise than on the first kernel that has it.",
        }
    }
}

/// What a rule says about a function on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// What was found, for people.
    pub message: String,
}

/// In how many sites a parameter has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentCounts {
    /// Its name; empty where the prototype has none.
    pub name: String,
    /// Its type as C text.
    pub type_name: String,
    /// Sites that have a location of it.
    pub located: usize,
    /// Those whose location is certain: what programs read unless they accept doubt.
    pub certain: usize,
    /// Sites without, by the reason's key ([`Missing::key`](siteseer_sites::location::Missing::key)).
    pub missing: BTreeMap<&'static str, usize>,
}

/// A prototype that functions of the name have on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrototypeCounts {
    /// As C text.
    pub text: String,
    /// Its types without the names of parameters: what tells kernels apart.
    pub types: String,
    /// Sites that have it.
    pub sites: usize,
    /// Sites at which all arguments are certain.
    pub complete: usize,
    /// One for each parameter.
    pub arguments: Vec<ArgumentCounts>,
}

/// What would happen to a program.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The section that is asked about.
    pub form: Form,
    /// For which prototype, if it is not asked about all functions of the name.
    pub prototype: Option<String>,
    /// Sites, those in dead text among them.
    pub sites: usize,
    /// Sites that [`Policy::BestEffort`] attaches.
    pub attached: usize,
    /// The mechanisms, and how many sites each attaches.
    pub mechanisms: BTreeMap<&'static str, usize>,
    /// Why the program does not fit the function at all.
    pub refusal: Option<String>,
    /// What [`Policy::BestEffort`] does not attach, sites in dead text among them.
    pub skipped: Vec<InTheWay>,
    /// What stands in the way of [`Policy::Complete`].
    pub in_the_way: Vec<InTheWay>,
}

impl Outlook {
    /// Whether [`Policy::Complete`] attaches the program.
    pub fn is_complete(&self) -> bool {
        self.refusal.is_none() && self.attached > 0 && self.in_the_way.is_empty()
    }

    /// Why [`Policy::Complete`] refuses the program, in words, if it does: each reason once, with the number of its
    /// sites.
    pub fn refused_by_complete(&self) -> Option<String> {
        if self.is_complete() {
            return None;
        }
        let sites = if self.in_the_way.is_empty() { &self.skipped } else { &self.in_the_way };
        Some(self.refusal.clone().unwrap_or_else(|| by_reason(sites.iter().map(|site| &site.reason))))
    }
}

/// What is to be said about a function on a kernel.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What the compiler made of it.
    pub shape: Shape,
    /// Live sites that are symbols of the function's name.
    pub bodies: usize,
    /// Live sites that are symbols made from it.
    pub clones: usize,
    /// Live sites that are inlined copies.
    pub inlined: usize,
    /// Sites in text that never runs again.
    pub dead: usize,
    /// Live sites that cannot be probed, whatever the program.
    pub unprobeable: usize,
    /// Live out-of-line copies whose signature the compiler changed.
    pub changed_signatures: usize,
    /// The prototypes that functions of the name have.
    pub prototypes: Vec<PrototypeCounts>,
    /// What would happen to programs.
    pub outlooks: Vec<Outlook>,
    /// What is worth a word.
    pub findings: Vec<Finding>,
}

impl Answer {
    fn without_function(shape: Shape, rule: Rule, message: String) -> Answer {
        Answer {
            shape,
            bodies: 0,
            clones: 0,
            inlined: 0,
            dead: 0,
            unprobeable: 0,
            changed_signatures: 0,
            prototypes: Vec::new(),
            outlooks: Vec::new(),
            findings: vec![Finding { rule, message }],
        }
    }

    /// Whether the kernel has the function, as far as is known.
    pub fn has_function(&self) -> bool {
        !matches!(self.shape, Shape::Missing | Shape::NoData)
    }

    fn find(&mut self, rule: Rule, message: String) {
        self.findings.push(Finding { rule, message });
    }
}

/// What happens to a function on a kernel. That it is not there is an answer, and no error.
///
/// # Errors
/// [`ExplainError::Target`] if the site data cannot be read; [`ExplainError::Declared`] if the object's BTF cannot.
pub fn check(target: &Target, wanted: &Wanted, question: Question<'_>) -> Result<Answer, ExplainError> {
    let function = match target.functions(std::slice::from_ref(wanted)) {
        Ok(mut functions) => functions.pop(),
        Err(error) => return not_there(target, wanted, error),
    };
    let Some(function) = function else {
        return Ok(Answer::without_function(Shape::Missing, Rule::Missing, "there is no such function".to_owned()));
    };
    let stated = match question {
        Question::Program(program) => {
            let find = |btf: &[u8]| Declared::find(btf, &program.program.name);
            program.btf.as_deref().map(find).transpose()?.flatten()
        }
        Question::Name | Question::Plain(_) => None,
    };
    match function.clone().select(&Selection { file: None, prototype: stated }) {
        Ok(function) => Ok(answer(target, &function, question)),
        Err(error @ SelectError::Prototype { .. }) => {
            let mut answer = answer(target, &function, Question::Name);
            answer.outlooks.clear();
            answer.findings.retain(|finding| is_about_shape(finding.rule));
            answer.find(Rule::Refused, error.to_string());
            Ok(answer)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a rule is about the function, whatever the program.
fn is_about_shape(rule: Rule) -> bool {
    !matches!(rule, Rule::Refused | Rule::Incomplete | Rule::Arguments)
}

fn not_there(target: &Target, wanted: &Wanted, error: TargetError) -> Result<Answer, ExplainError> {
    match error {
        TargetError::NotLoaded { module, .. } => {
            let message = format!("no site data for module {module} was given");
            Ok(Answer::without_function(Shape::NoData, Rule::NoData, message))
        }
        error @ (TargetError::Unknown { .. } | TargetError::UnknownInModule { .. }) => {
            let has_modules = target.modules().names().next().is_some();
            let may_be_there = match wanted.module.is_none() && !has_modules {
                true => " (no site data of modules was given)",
                false => "",
            };
            Ok(Answer::without_function(Shape::Missing, Rule::Missing, format!("{error}{may_be_there}")))
        }
        other => Err(other.into()),
    }
}

fn is_dead(site: &Candidate) -> bool {
    site.obstacle.as_ref().is_some_and(Reason::is_dead)
}

/// Shape, numbers, outlooks and findings of a function that exists.
fn answer(target: &Target, function: &Function, question: Question<'_>) -> Answer {
    let dead = function.candidates.iter().filter(|site| is_dead(site)).count();
    let all_dead = dead == function.candidates.len();
    // If no site runs any more, the shape is that of the sites that there were.
    let live: Vec<&Candidate> = function.candidates.iter().filter(|site| all_dead || !is_dead(site)).collect();
    let of = |kind: SiteKind| live.iter().filter(|site| site.kind == kind).count();
    let (bodies, clones, inlined) = (of(SiteKind::Body), of(SiteKind::Clone), of(SiteKind::Inline));
    let shape = match (bodies, clones, inlined) {
        (0, 0, _) => Shape::WhollyInlined,
        (_, _, 1..) => Shape::PartlyInlined,
        (_, 0, 0) => Shape::Plain,
        (_, _, 0) => Shape::Cloned,
    };
    let changed = |site: &&&Candidate| site.kind != SiteKind::Inline && site.marks.contains(Marks::SIGNATURE_CHANGED);
    let kernel = target.kernel();
    let mut answer = Answer {
        shape,
        bodies,
        clones,
        inlined,
        dead,
        unprobeable: live.iter().filter(|site| kernel.obstacle(site).is_some() && !is_dead(site)).count(),
        changed_signatures: live.iter().filter(changed).count(),
        prototypes: by_prototype(function).iter().filter_map(prototype).collect(),
        outlooks: outlooks(target, function, question),
        findings: Vec::new(),
    };
    about_shape(&mut answer, function, &live, kernel);
    about_programs(&mut answer);
    answer
}

/// The findings that hold whatever the program.
fn about_shape(answer: &mut Answer, function: &Function, live: &[&Candidate], kernel: &Kernel) {
    let Answer { bodies, clones, inlined, changed_signatures, unprobeable, .. } = *answer;
    match answer.shape {
        Shape::WhollyInlined => {
            answer.find(Rule::WhollyInlined, format!("inlined at {} and nowhere else", places(inlined)));
        }
        Shape::PartlyInlined => {
            answer.find(
                Rule::PartlyInlined,
                format!("inlined at {}, besides {} out of line", places(inlined), bodies + clones),
            );
        }
        _ => {}
    }
    let symbols = |wanted: &dyn Fn(&Candidate) -> bool| -> String {
        let symbols: BTreeSet<&str> =
            live.iter().filter(|site| wanted(site)).map(|site| site.symbol.as_str()).collect();
        let mut shown: Vec<&str> = symbols.iter().copied().take(SHOWN).collect();
        if symbols.len() > SHOWN {
            shown.push("...");
        }
        shown.join(", ")
    };
    if clones > 0 {
        answer.find(Rule::Cloned, format!("in {}", symbols(&|site| site.kind == SiteKind::Clone)));
    }
    if changed_signatures > 0 {
        let changed = |site: &Candidate| site.kind != SiteKind::Inline && site.marks.contains(Marks::SIGNATURE_CHANGED);
        answer.find(Rule::SignatureChanged, format!("of {}", symbols(&changed)));
    }
    if bodies > 1 {
        answer.find(Rule::SeveralBodies, format!("{bodies} bodies have the name"));
    }
    if !function.prototypes_agree() {
        let texts: BTreeSet<&str> = function.known_prototypes().map(|prototype| prototype.text.as_str()).collect();
        answer.find(Rule::Ambiguous, texts.into_iter().collect::<Vec<_>>().join("; "));
    }
    if unprobeable > 0 {
        let reasons = live.iter().filter(|site| !is_dead(site)).filter_map(|site| kernel.obstacle(site));
        answer.find(Rule::Unprobeable, by_reason(reasons));
    }
}

/// How many symbols a message names.
const SHOWN: usize = 5;

fn places(count: usize) -> String {
    format!("{count} place{}", if count == 1 { "" } else { "s" })
}

/// The findings about the programs at the entry; or about the program, if it is at the return.
fn about_programs(answer: &mut Answer) {
    // A name is answered for both ends, and the return of an inlined copy is in nobody's way who did not ask for it.
    let asked = |outlook: &&Outlook| answer.outlooks.len() == 1 || !outlook.form.kind.is_exit();
    let mut findings = Vec::new();
    for outlook in answer.outlooks.iter().filter(asked) {
        let about = outlook.prototype.as_ref().filter(|_| answer.prototypes.len() > 1);
        let mut find = |rule: Rule, message: String| {
            let message = about.map_or_else(|| message.clone(), |prototype| format!("{prototype}: {message}"));
            findings.push(Finding { rule, message });
        };
        if outlook.attached == 0 {
            find(Rule::Refused, outlook.refused_by_complete().unwrap_or_default());
        } else if let Some(why) = outlook.refused_by_complete() {
            find(Rule::Incomplete, why);
        }
        let missing = outlook.skipped.iter().map(|site| &site.reason);
        let missing: Vec<&Reason> = missing.filter(|reason| matches!(reason, Reason::MissingArguments(_))).collect();
        if !missing.is_empty() {
            find(Rule::Arguments, by_reason(missing.into_iter()));
        }
    }
    answer.findings.extend(findings);
}

/// `at 3 sites: its value is ...; at 1 site: ...`, the most frequent first.
fn by_reason<'a>(reasons: impl Iterator<Item = &'a Reason>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    reasons.for_each(|reason| *counts.entry(reason.to_string()).or_default() += 1);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let one =
        |(reason, count): &(String, usize)| format!("at {count} site{}: {reason}", if *count == 1 { "" } else { "s" });
    counts.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A prototype and its sites in numbers. The function has no other.
fn prototype(function: &Function) -> Option<PrototypeCounts> {
    let prototype = function.prototypes.first()?;
    let mut live: Vec<&Candidate> = function.candidates.iter().filter(|site| !is_dead(site)).collect();
    if live.is_empty() {
        live = function.candidates.iter().collect();
    }
    let arguments = prototype.parameters.iter().enumerate().map(|(nth, parameter)| {
        let mut counts = ArgumentCounts {
            name: parameter.name.clone(),
            type_name: parameter.type_name.clone(),
            located: 0,
            certain: 0,
            missing: BTreeMap::new(),
        };
        for site in &live {
            match site.available(nth, true) {
                Ok(located) => {
                    counts.located += 1;
                    counts.certain += usize::from(Located::is_certain(located));
                }
                Err(why) => *counts.missing.entry(why.key()).or_default() += 1,
            }
        }
        counts
    });
    let all = 0..prototype.parameters.len();
    let complete = live.iter().filter(|site| all.clone().all(|nth| site.available(nth, false).is_ok())).count();
    Some(PrototypeCounts {
        text: prototype.text.clone(),
        types: types(prototype),
        sites: live.len(),
        complete,
        arguments: arguments.collect(),
    })
}

/// The types of a prototype, which is known or not.
fn types(prototype: &Prototype) -> String {
    if prototype.func.is_none() {
        return "?".to_owned();
    }
    let mut parameters: Vec<&str> = prototype.parameters.iter().map(|parameter| parameter.type_name.as_str()).collect();
    if prototype.variadic {
        parameters.push("...");
    }
    let result = prototype.result.as_ref().map_or("void", |result| result.type_name.as_str());
    format!("{result} ({})", parameters.join(", "))
}

fn outlooks(target: &Target, function: &Function, question: Question<'_>) -> Vec<Outlook> {
    let kinds: &[Kind] = match question {
        Question::Program(program) => return vec![outlook(target, function, &program.program, program.form, None)],
        Question::Plain(PlainProgram { plain, .. }) if plain.exit => &[Kind::Fexit],
        Question::Plain(_) => &[Kind::Fentry],
        Question::Name => &[Kind::Fentry, Kind::Fexit],
    };
    let mut outlooks = Vec::new();
    // No program reads the arguments of all functions of a name if they take different ones.
    for function in by_prototype(function) {
        let Some(prototype) = function.prototypes.first() else { continue };
        for &kind in kinds {
            let form = Form { kind, sleepable: false };
            let reader = reader(prototype, kind.is_exit());
            outlooks.push(outlook(target, &function, &reader, form, Some(prototype.text.clone())));
        }
    }
    outlooks
}

/// Decides a function's sites for a program, by the policy that leaves most standing and by the one that asks for all.
fn outlook(
    target: &Target,
    function: &Function,
    program: &UserProgram,
    form: Form,
    prototype: Option<String>,
) -> Outlook {
    let decide = |policy| -> Result<Plan, PlanError> {
        let uses = program::analyse(program)
            .map_err(|refusal| PlanError::Program { program: program.name.clone(), refusal })?;
        let options = PlanOptions { policy: Some(policy), form, ..PlanOptions::default() };
        plan::decide(std::slice::from_ref(function), program, &uses, target.kernel(), options, &Barred::default())
    };
    let mut outlook = Outlook {
        form,
        prototype,
        sites: function.candidates.len(),
        attached: 0,
        mechanisms: BTreeMap::new(),
        refusal: None,
        skipped: Vec::new(),
        in_the_way: Vec::new(),
    };
    match decide(Policy::BestEffort) {
        Ok(plan) => {
            for site in &plan.sites {
                match &site.decision {
                    Decision::Attach { mechanism, .. } => {
                        outlook.attached += 1;
                        *outlook.mechanisms.entry(mechanism.word()).or_default() += 1;
                    }
                    Decision::Skip(reason) => outlook.skipped.push(InTheWay::new(&site.site, reason)),
                }
            }
        }
        Err(error) => outlook.refusal = Some(error.to_string()),
    }
    if let Ok(plan) = decide(Policy::Complete) {
        let in_the_way = plan.sites.iter().filter_map(|site| match &site.decision {
            Decision::Skip(reason) if !reason.is_dead() => Some(InTheWay::new(&site.site, reason)),
            _ => None,
        });
        outlook.in_the_way = in_the_way.collect();
    }
    outlook
}

/// In what a function differs from what it is on another kernel; nothing if one of the two does not have it.
pub fn compare(first: &Answer, other: &Answer) -> Vec<Finding> {
    if !first.has_function() || !other.has_function() {
        return Vec::new();
    }
    let types = |answer: &Answer| -> BTreeMap<String, String> {
        let known = answer.prototypes.iter().filter(|prototype| prototype.types != "?");
        known.map(|prototype| (prototype.types.clone(), prototype.text.clone())).collect()
    };
    let (before, now) = (types(first), types(other));
    let texts = |types: &BTreeMap<String, String>| types.values().cloned().collect::<Vec<_>>().join("; ");
    let mut findings = Vec::new();
    // Nobody knows whether an unknown prototype differs.
    if !before.is_empty() && !now.is_empty() && !before.keys().eq(now.keys()) {
        findings.push(Finding {
            rule: Rule::Prototype,
            message: format!("it was {}, and is {}", texts(&before), texts(&now)),
        });
    }
    if first.shape != other.shape {
        findings
            .push(Finding { rule: Rule::Shape, message: format!("it was {}, and is {}", first.shape, other.shape) });
    }
    findings
}

#[cfg(test)]
mod tests;
