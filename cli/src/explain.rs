// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer explain`: what would be attached to a function and how, what would not, and why.

mod code;
mod html;
mod listing;

use crate::Failure;
use crate::target::{self, About};
use clap::Args;
use listing::{Files, Listed};
use siteseer::internals::explain::{self, Explanation, Verdict};
use siteseer::internals::object_file::{self, FileProgram};
use siteseer::internals::pattern::Pattern;
use siteseer::internals::plan::Decision;
use siteseer::internals::section::Wanted;
use siteseer::{Plan, Target};
use siteseer_sites::with_causes;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Explain what would be attached to a function and how, what would not, and why
///
/// The program is one that reads all arguments, or one of an object file. Nothing is loaded or changed. Without
/// --vmlinux and --sites, the kernel is the running one (which requires root).
#[derive(Args)]
pub(crate) struct Arguments {
    /// The function's name in the source, or a pattern as for `siteseer list`. It is optional with --object: the
    /// sections of the programs name their functions
    #[arg(required_unless_present = "object", add = crate::complete::functions())]
    function: Option<Pattern>,
    /// A BPF object with programs in SEC("fentry/..."), SEC("fexit/...") or SEC("kprobe_maybe_inline/...")
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Only this program of the object
    #[arg(long, value_name = "NAME", requires = "object")]
    program: Option<String>,
    #[command(flatten)]
    about: About,
    /// Print an HTML page with a graph; it has no scripts and loads nothing
    #[arg(long, conflicts_with = "json")]
    html: bool,
    /// For --html without --vmlinux: the kernel's image, which must have the same build id. The page then has the
    /// machine code around each site
    #[arg(long, value_name = "FILE", requires = "html", conflicts_with = "vmlinux")]
    image: Option<PathBuf>,
    /// For --html: a source tree of the kernel. The page then has the text of source lines beside the machine code
    #[arg(long, value_name = "DIR", requires = "html")]
    source: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many functions are explained at once.
const MOST: usize = 64;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let programs = arguments.object.as_ref().map(|path| programs(path, arguments.program.as_deref())).transpose()?;
    let target = arguments.about.target(arguments.function.as_slice())?;
    let chosen = target::choose(&target, arguments.function.as_slice(), MOST)?;
    let mut explanations = Vec::new();
    match programs {
        Some(programs) => {
            for program in programs {
                let own = std::slice::from_ref(&program.wanted);
                let given: Vec<Wanted> = chosen.iter().map(|chosen| chosen.wanted.clone()).collect();
                for wanted in if given.is_empty() { own } else { &given } {
                    if wanted.function.is_none() {
                        let name = &program.program.name;
                        return Err(format!("program {name}: its section names no function: name one").into());
                    }
                    explanations.extend(explain::program(&target, wanted, &program)?);
                }
            }
        }
        None => {
            for chosen in &chosen {
                explanations.extend(explain::function(&target, &chosen.name())?);
            }
        }
    }
    let mut stdout = io::stdout().lock();
    if arguments.json {
        let all: Vec<serde_json::Value> = explanations.iter().map(json).collect();
        writeln!(stdout, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    if arguments.html {
        let listed = listed(arguments, &target, &explanations)?;
        write!(stdout, "{}", html::text(&explanations, listed.as_deref(), target.machine()))?;
        return Ok(());
    }
    for (nth, explanation) in explanations.iter().enumerate() {
        write!(stdout, "{}{explanation}", if nth == 0 { "" } else { "\n" })?;
    }
    Ok(())
}

/// The machine code around the sites of each function; `None` if no file has it.
fn listed(
    arguments: &Arguments,
    target: &Target,
    explanations: &[Explanation],
) -> Result<Option<Vec<Vec<Listed>>>, Failure> {
    let file = arguments.about.file();
    let image = file.filter(|(_, is_image)| *is_image).map(|(path, _)| path).or(arguments.image.as_deref());
    // Which file the running kernel loaded a module from is not known here.
    let modules = if file.is_some() { arguments.about.module_files() } else { &[] };
    if image.is_none() && modules.is_empty() {
        return Ok(None);
    }
    // The sites were found in any other image than that of --image.
    let of_sites = target.data().image()?.1;
    let files = Files::read(image, modules, arguments.image.is_some().then_some(&of_sites))?;
    Ok(Some(files.list(explanations, arguments.source.as_deref())?))
}

/// The programs of an object file, or the one that is named.
fn programs(path: &Path, name: Option<&str>) -> Result<Vec<FileProgram>, Failure> {
    let data = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut programs =
        object_file::read(&data).map_err(|error| format!("{}: {}", path.display(), with_causes(&error)))?;
    if let Some(name) = name {
        let all: Vec<String> = programs.iter().map(|program| program.program.name.clone()).collect();
        programs.retain(|program| program.program.name == name);
        if programs.is_empty() {
            return Err(format!("{}: no program {name}; it has {}", path.display(), all.join(", ")).into());
        }
    }
    Ok(programs)
}

/// The explanation for machines: every site, for each kind of program.
fn json(explanation: &Explanation) -> serde_json::Value {
    let verdict = |verdict: &Verdict| {
        serde_json::json!({
            "section": verdict.form.kind.word(),
            "policy": verdict.policy.to_string(),
            "attached": verdict.is_attached(),
            "refusal": verdict.plan.as_ref().err(),
            "in_the_way": verdict.in_the_way,
            "sites": verdict.plan.as_ref().map_or_else(|_| Vec::new(), sites),
        })
    };
    serde_json::json!({
        "function": explanation.function.name,
        "prototype": explanation.function.prototypes.first().map(|prototype| &prototype.text),
        "kernel": explanation.kernel,
        "program": explanation.program,
        "programs": explanation.verdicts.iter().map(verdict).collect::<Vec<_>>(),
        "notes": explanation.notes,
    })
}

fn sites(plan: &Plan) -> Vec<serde_json::Value> {
    let site = |planned: &siteseer::internals::plan::PlannedSite| {
        let (mechanism, reason) = match &planned.decision {
            Decision::Attach { mechanism, .. } => (Some(mechanism.word()), None),
            Decision::Skip(reason) => (None, Some(reason)),
        };
        let site = &planned.site;
        serde_json::json!({
            "kind": site.kind.word(),
            "module": site.module.as_deref(),
            "symbol": site.symbol,
            "offset": site.offset(),
            "address": format!("{:#x}", site.link_address),
            "file": site.source.as_ref().map(|place| &place.file),
            "line": site.source.as_ref().map(|place| place.line),
            "mechanism": mechanism,
            "reason": reason.map(|reason| reason.key()),
            "why": reason.map(ToString::to_string),
            "doubtful": planned.doubtful.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    plan.sites.iter().map(site).collect()
}
