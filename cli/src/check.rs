// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer check`: what functions are on several kernels, and whether that is what an application can live with.

mod json;
mod sarif;
mod text;

pub(crate) use json::machine;

use crate::Failure;
use crate::kernels::{self, Kernel};
use crate::output::tell;
use clap::Args;
use siteseer::internals::check::{self, Answer, Question, Rule};
use siteseer::internals::object_file::{self, FileProgram, PlainProgram};
use siteseer::internals::section::Wanted;
use siteseer_sites::with_causes;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Report the state of functions on several kernels: plain, inlined, cloned, changed or missing, and what siteseer can
/// attach
///
/// Reads only site files, and needs neither a running kernel nor privileges. The exit status is 0 if no rule of --deny
/// finds anything, 1 if one does, and 2 if the check fails. docs/check.md describes the rules and the formats.
#[derive(Args)]
pub(crate) struct Arguments {
    /// BPF objects (a path that has a / in it or ends in .o), with programs that name functions by their sections; or
    /// names of functions, [module:]FUNC
    #[arg(required = true, value_name = "OBJECT|NAME", add = crate::complete::functions())]
    about: Vec<String>,
    /// Site files made by `siteseer encode`, and folders of them (*.sites). Files of modules are used with the image of
    /// their kernel. The other kernels are compared with the first one that has the function
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    kernels: Vec<PathBuf>,
    /// The rules that make the exit status 1, separated by commas: missing, no_data, refused, incomplete, arguments,
    /// unprobeable, wholly_inlined, partly_inlined, cloned, signature_changed, several_bodies, ambiguous, prototype,
    /// shape; all; none
    #[arg(long, value_name = "RULES", default_value = "missing,no_data,refused")]
    deny: Denied,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print SARIF 2.1.0, which code review tools show
    #[arg(long, conflicts_with = "json")]
    sarif: bool,
}

/// The rules that are denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Denied(BTreeSet<Rule>);

impl std::str::FromStr for Denied {
    type Err = String;

    fn from_str(text: &str) -> Result<Denied, String> {
        let mut rules = BTreeSet::new();
        for word in text.split(',').map(str::trim) {
            match word {
                "all" => rules.extend(Rule::ALL),
                "none" => {}
                _ => {
                    let known = || Rule::ALL.map(Rule::key).join(", ");
                    let rule = Rule::ALL.into_iter().find(|rule| rule.key() == word);
                    rules
                        .insert(rule.ok_or_else(|| format!("no rule {word:?}; the rules are {}, all, none", known()))?);
                }
            }
        }
        Ok(Denied(rules))
    }
}

impl Denied {
    fn has(&self, rule: Rule) -> bool {
        self.0.contains(&rule)
    }
}

/// Who asks about a function.
#[derive(Debug)]
enum Asker {
    Name,
    Program { object: PathBuf, program: Box<FileProgram> },
    Plain { object: PathBuf, program: PlainProgram },
}

impl Asker {
    fn question(&self) -> Question<'_> {
        match self {
            Asker::Name => Question::Name,
            Asker::Program { program, .. } => Question::Program(program),
            Asker::Plain { program, .. } => Question::Plain(program),
        }
    }

    /// The object, the program's name and its section.
    fn program(&self) -> Option<(&Path, &str, &str)> {
        match self {
            Asker::Name => None,
            Asker::Program { object, program } => Some((object, &program.program.name, &program.section)),
            Asker::Plain { object, program } => Some((object, &program.name, &program.section)),
        }
    }
}

/// A function that is asked about, and by whom.
#[derive(Debug)]
struct Subject {
    wanted: Wanted,
    asker: Asker,
}

impl Subject {
    /// `[module:]function`.
    fn name(&self) -> String {
        let function = self.wanted.function.as_deref().unwrap_or_default();
        self.wanted.module.as_ref().map_or_else(|| function.to_owned(), |module| format!("{module}:{function}"))
    }
}

/// A program with a section that names no function.
struct Unchecked {
    object: PathBuf,
    program: String,
    section: String,
}

/// All that is printed.
struct Results<'a> {
    kernels: &'a [Kernel],
    subjects: &'a [Subject],
    unchecked: &'a [Unchecked],
    /// One for each subject, in which one for each kernel.
    answers: Vec<Vec<Answer>>,
    deny: &'a Denied,
}

impl Results<'_> {
    /// How many findings are by denied rules.
    fn denied(&self) -> usize {
        let findings = self.answers.iter().flatten().flat_map(|answer| &answer.findings);
        findings.filter(|finding| self.deny.has(finding.rule)).count()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (subjects, unchecked) = subjects(&arguments.about)?;
    let kernels = kernels::find(&arguments.kernels)?;
    let results = Results {
        kernels: &kernels,
        subjects: &subjects,
        unchecked: &unchecked,
        answers: ask(&kernels, &subjects)?,
        deny: &arguments.deny,
    };
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&json::all(&results))?)
    } else if arguments.sarif {
        format!("{}\n", serde_json::to_string_pretty(&sarif::log(&results))?)
    } else {
        text::all(&results)
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    for Unchecked { object, program, section } in &unchecked {
        tell!("not checked: program {program} of {}: SEC(\"{section}\") names no function", object.display());
    }
    Ok(if results.denied() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Asks one kernel after the other, so that one is open at a time; then compares.
fn ask(kernels: &[Kernel], subjects: &[Subject]) -> Result<Vec<Vec<Answer>>, Failure> {
    let mut answers: Vec<Vec<Answer>> = subjects.iter().map(|_| Vec::with_capacity(kernels.len())).collect();
    for kernel in kernels {
        let target = kernel.open()?;
        for (subject, answers) in subjects.iter().zip(&mut answers) {
            let answer = check::check(&target, &subject.wanted, subject.asker.question());
            answers.push(answer.map_err(|error| format!("{}: {}", kernel.file.display(), with_causes(&error)))?);
        }
    }
    for answers in &mut answers {
        let Some(first) = answers.iter().position(Answer::has_function) else { continue };
        let (before, others) = answers.split_at_mut(first + 1);
        for other in others {
            other.findings.extend(check::compare(&before[first], other));
        }
    }
    Ok(answers)
}

fn subjects(about: &[String]) -> Result<(Vec<Subject>, Vec<Unchecked>), Failure> {
    let (mut subjects, mut unchecked) = (Vec::new(), Vec::new());
    for text in about {
        if text.contains('/') || text.ends_with(".o") {
            let object = PathBuf::from(text);
            let before = subjects.len() + unchecked.len();
            read(&object, &mut subjects, &mut unchecked)?;
            if subjects.len() + unchecked.len() == before {
                return Err(format!(
                    "{text}: no program in it is for a function of the kernel: none is in SEC(\"fentry/...\"), \
                     SEC(\"fexit/...\"), SEC(\"kprobe_maybe_inline/...\"), SEC(\"kprobe/...\") or the like"
                )
                .into());
            }
            continue;
        }
        let wanted = Wanted::parse(text).map_err(|error| {
            format!("{error}; an object's path has a / in it or ends in .o, and patterns are not accepted here")
        })?;
        subjects.push(Subject { wanted, asker: Asker::Name });
    }
    if subjects.is_empty() {
        return Err("no program's section names a function: name the functions beside the objects".into());
    }
    Ok((subjects, unchecked))
}

fn read(object: &Path, subjects: &mut Vec<Subject>, unchecked: &mut Vec<Unchecked>) -> Result<(), Failure> {
    let failed = |error: &dyn std::error::Error| format!("{}: {}", object.display(), with_causes(error));
    let data = std::fs::read(object).map_err(|error| failed(&error))?;
    let (ours, plain) = object_file::read_all(&data).map_err(|error| failed(&error))?;
    for program in ours {
        if program.wanted.function.is_none() {
            let (program, section) = (program.program.name, program.section);
            unchecked.push(Unchecked { object: object.to_owned(), program, section });
            continue;
        }
        let wanted = program.wanted.clone();
        let asker = Asker::Program { object: object.to_owned(), program: Box::new(program) };
        subjects.push(Subject { wanted, asker });
    }
    for program in plain {
        match program.plain.wanted.clone() {
            Some(wanted) => {
                subjects.push(Subject { wanted, asker: Asker::Plain { object: object.to_owned(), program } });
            }
            None => {
                unchecked.push(Unchecked {
                    object: object.to_owned(),
                    program: program.name,
                    section: program.section,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_named() {
        let parsed = |text: &str| text.parse::<Denied>();
        assert_eq!(parsed("missing, shape").unwrap().0, BTreeSet::from([Rule::Missing, Rule::Shape]));
        assert_eq!(parsed("all").unwrap().0.len(), Rule::ALL.len());
        assert_eq!(parsed("none").unwrap(), Denied::default());
        for unknown in ["", "mising", "missing;shape", "Missing"] {
            assert!(parsed(unknown).unwrap_err().contains("signature_changed"), "{unknown}");
        }
        // The help names them all.
        let help = <crate::Cli as clap::CommandFactory>::command();
        let check = help.find_subcommand("check").unwrap();
        let deny = check.get_arguments().find(|argument| argument.get_id() == "deny").unwrap();
        let help = deny.get_help().unwrap().to_string();
        assert!(Rule::ALL.iter().all(|rule| help.contains(rule.key())), "{help}");
    }

    #[test]
    fn what_is_no_name_and_no_object() {
        for text in ["vfs_*", "", "a b", "ext4:"] {
            let Err(failure) = subjects(&[text.to_owned()]) else { panic!("{text:?}") };
            assert!(failure.to_string().contains("is not [module:]function"), "{failure}");
        }
        let Err(failure) = subjects(&["./absent.bpf.o".to_owned()]) else { panic!("it is not there") };
        assert!(failure.to_string().starts_with("./absent.bpf.o: "), "{failure}");
    }
}
