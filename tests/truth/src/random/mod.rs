// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Random programs: `siteseer-truth random`.
//!
//! 1. `generate` writes a program ([`program`]) from a seed ([`prng`]), or `csmith` does.
//! 2. `build` compiles it without optimisation and with a log, and `observe` runs it in the emulator on several inputs:
//!    the truth ([`truth`]).
//! 3. `config` draws ways to compile it; each is built, encoded, and run on the same inputs with a hook at each site.
//! 4. `align` pairs hits with calls, and `judge` compares the values.
//! 5. `reduce` makes a program that shows a failure small.

mod align;
pub(crate) mod build;
mod callers;
mod config;
mod csmith;
mod generate;
mod judge;
mod observe;
mod prng;
mod program;
mod reduce;
mod symbols;
mod truth;

use crate::budget::Budget;
use crate::machine::EmulatorError;
use crate::page;
use crate::random::build::{BuildError, build, build_truth};
use crate::random::callers::{BadDebugInfo, Callers, DebugSections};
use crate::random::config::{Compiler, Config, compilers};
use crate::random::csmith::CsmithError;
use crate::random::judge::{Judge, JudgeError};
use crate::random::observe::{RunError, Runner};
use crate::random::prng::Prng;
use crate::random::program::Program;
use crate::random::symbols::Symbols;
use crate::random::truth::{BadLog, Trace};
use crate::report::{Failure, Report};
use clap::{Args, ValueEnum};
use rayon::prelude::*;
use siteseer_sites::Machine;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Who writes the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generator {
    /// We
    Own,
    /// csmith, of the package of that name
    Csmith,
}

impl Generator {
    /// How the budget names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Generator::Own => "own",
            Generator::Csmith => "csmith",
        }
    }

    /// Which section of docs/truth.md its tables are in.
    fn section(self) -> &'static str {
        match self {
            Generator::Own => "random",
            Generator::Csmith => "csmith",
        }
    }
}

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Who writes the programs
    #[arg(long, value_enum, default_value = "own")]
    generator: Generator,
    /// The first program's seed; a fresh one if it is not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many programs, each with the next seed
    #[arg(long, default_value_t = 20)]
    count: u64,
    /// Begin no more programs after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Only compilers whose name contains one of these
    #[arg(long)]
    compiler: Vec<String>,
    /// Only this configuration, by the name that a failure prints
    #[arg(long)]
    only: Option<String>,
    /// In how many ways each program is compiled; by default once by each compiler for each machine
    #[arg(long)]
    configs: Option<usize>,
    /// On how many inputs each program runs
    #[arg(long, default_value_t = 16)]
    inputs: usize,
    /// A build root to take compilers from, besides the host's own
    #[arg(long)]
    root: Vec<PathBuf>,
    /// Keep sources and images here
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Make each program small that shows a failure of a kind that contains this
    #[arg(long)]
    reduce: Option<String>,
    /// Write the counts as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the tables into this page
    #[arg(long)]
    docs: Option<PathBuf>,
    /// What is accepted
    #[arg(long)]
    budget: Option<PathBuf>,
    /// How many programs to work on at a time
    #[arg(long)]
    threads: Option<usize>,
    /// How many failures of each kind to print
    #[arg(long, default_value_t = 3)]
    show: usize,
}

/// Why a program tells nothing.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Log(#[from] BadLog),
    #[error(transparent)]
    DebugInfo(#[from] BadDebugInfo),
    #[error(transparent)]
    Judge(#[from] JudgeError),
    #[error(transparent)]
    Csmith(#[from] CsmithError),
    #[error("cannot make a folder")]
    Folder(#[from] std::io::Error),
}

/// Runs the instrument.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let all = compilers(&arguments.root);
    let wanted = |compiler: &&Compiler| {
        arguments.compiler.is_empty() || arguments.compiler.iter().any(|part| compiler.name.contains(part.as_str()))
    };
    let chosen: Vec<Compiler> = all.iter().filter(wanted).cloned().collect();
    let is_reference = |compiler: &&Compiler| compiler.machine == Machine::X86_64;
    let Some(reference) = all.iter().rev().filter(is_reference).find(|compiler| !compiler.is_clang) else {
        return Err("there is no gcc for x86-64 to tell the truth by".into());
    };
    if chosen.is_empty() {
        return Err("none of the compilers that are asked for is there".into());
    }
    let names: Vec<String> = chosen.iter().map(|compiler| format!("{} {}", compiler.name, compiler.machine)).collect();
    if let Some(name) = &arguments.only
        && Config::parse(name, &chosen).is_none()
    {
        let names = names.join(", ");
        return Err(format!("{name} is not COMPILER/MACHINE/O2/dwarf5/.. with one of these compilers: {names}").into());
    }
    eprintln!("seed {seed}, {} programs, compilers: {}", arguments.count, names.join(", "));
    if let Some(threads) = arguments.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let work = Work { arguments, chosen: &chosen, reference };
    let begun = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let total = Mutex::new((Report::default(), 0u64));
    (0..arguments.count as usize).into_par_iter().with_max_len(1).for_each(|index| {
        if limit.is_some_and(|limit| begun.elapsed() > limit) {
            return;
        }
        let seed = seed.wrapping_add(index as u64);
        let report = work.program(seed).unwrap_or_else(|error| failed("program", "-", work.repeat(seed, "-"), &error));
        if let Ok(mut total) = total.lock() {
            total.0.add(report);
            total.1 += 1;
        }
    });
    let (report, programs) = total.into_inner()?;
    println!("{report}");
    eprintln!("{programs} programs in {:.0?}; {} told nothing", begun.elapsed(), report.untold);
    finish(arguments, &report)
}

/// Writes what is asked for, prints failures, and checks the budget.
fn finish(arguments: &Arguments, report: &Report) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if let Some(path) = &arguments.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report.json())?)?;
    }
    if let Some(path) = &arguments.docs {
        page::update(path, arguments.generator.section(), &page::tables(report))?;
    }
    for ((compiler, kind), failures) in &report.failures {
        println!("\n{compiler}: {kind}");
        for failure in failures.iter().take(arguments.show) {
            println!("  {} times: {}\n    {}", failure.times, failure.text, failure.repeat);
        }
    }
    let Some(path) = &arguments.budget else { return Ok(ExitCode::SUCCESS) };
    let exceeded = Budget::read(path)?.exceeded_by(report, arguments.generator.name());
    for line in &exceeded {
        println!("over budget: {line}");
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn fresh_seed() -> u64 {
    // Short enough to be typed.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64 % 1_000_000_000)
}

fn failed(kind: &str, config: &str, repeat: String, error: &dyn std::error::Error) -> Report {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    let mut report = Report::default();
    let compiler = config.split('/').next().unwrap_or(config).to_owned();
    report.fail(Failure { kind: kind.to_owned(), compiler, repeat, text, times: 1 });
    report
}

/// What programs are compiled by.
struct Work<'w> {
    arguments: &'w Arguments,
    chosen: &'w [Compiler],
    reference: &'w Compiler,
}

/// How many calls a run may make that are compared: hits and calls are aligned in a table.
const MAX_CALLS: usize = 600;

/// What one compiler's unoptimised build did, on the inputs with which it ended.
type Truth = (Vec<Vec<u64>>, Vec<Trace>);

impl Work<'_> {
    fn program(&self, seed: u64) -> Result<Report, ProgramError> {
        let program = match self.arguments.generator {
            Generator::Own => generate::generate(seed),
            Generator::Csmith => csmith::generate(seed)?,
        };
        let inputs: Vec<Vec<u64>> = (0..self.arguments.inputs as u64).map(|index| input(seed, index)).collect();
        let mut truths: BTreeMap<(String, String), Truth> = BTreeMap::new();
        let mut report = Report::default();
        for config in self.configs(seed) {
            let reference = self.reference(&config.compiler);
            let truth = match truths.entry((reference.name.clone(), reference.machine.to_string())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(self.truth(&program, &inputs, reference)?),
            };
            if truth.0.is_empty() {
                report.untold = 1;
                break;
            }
            let judged = self.config(&program, &config, seed, truth);
            let failed = |error| failed("build", &config.name, self.repeat(seed, &config.name), &error);
            report.add(judged.unwrap_or_else(failed));
        }
        if let Some(kind) = &self.arguments.reduce {
            self.reduce(&program, seed, &inputs, &report, kind)?;
        }
        Ok(report)
    }

    /// The compiler that tells the truth about what another makes. Programs of our own do the same with all. The order
    /// in which operands are evaluated matters in those of csmith, and is a compiler's choice.
    fn reference<'c>(&'c self, compiler: &'c Compiler) -> &'c Compiler {
        match self.arguments.generator {
            Generator::Own => self.reference,
            Generator::Csmith => compiler,
        }
    }

    fn repeat(&self, seed: u64, config: &str) -> String {
        let generator = match self.arguments.generator {
            Generator::Own => "",
            Generator::Csmith => "--generator csmith ",
        };
        format!("ci/truth random {generator}--count 1 --seed {seed} --only {config}")
    }

    fn configs(&self, seed: u64) -> Vec<Config> {
        if let Some(name) = &self.arguments.only {
            return Config::parse(name, self.chosen).into_iter().collect();
        }
        // The program's own sequence began with its seed.
        let mut prng = Prng::new(!seed);
        let count = self.arguments.configs.unwrap_or(self.chosen.len());
        let first = prng.below(self.chosen.len());
        (0..count).map(|index| Config::draw(&self.chosen[(first + index) % self.chosen.len()], &mut prng)).collect()
    }

    /// A folder for a build, and what keeps it there.
    fn folder(&self, name: &str) -> Result<(PathBuf, Option<tempfile::TempDir>), std::io::Error> {
        match &self.arguments.keep {
            Some(keep) => {
                let path = keep.join(name.replace('/', "_"));
                std::fs::create_dir_all(&path)?;
                Ok((path.canonicalize()?, None))
            }
            None => {
                let folder = tempfile::Builder::new().prefix("siteseer-truth-").tempdir()?;
                Ok((folder.path().to_owned(), Some(folder)))
            }
        }
    }

    fn truth(&self, program: &Program, inputs: &[Vec<u64>], reference: &Compiler) -> Result<Truth, ProgramError> {
        let (folder, _guard) = self.folder("truth")?;
        let built = build_truth(&folder, program, reference)?;
        let mut runner = Runner::new(&built.image, reference.machine, built.world, Vec::new())?.with_log()?;
        let file = object::File::parse(&*built.image).map_err(RunError::Image)?;
        let symbols = Symbols::of(&file, program);
        let sections = DebugSections::of(&file);
        let callers = Callers::of(&sections)?;
        let mut truth = Truth::default();
        for input in inputs {
            let trace = match (runner.log(input), self.arguments.generator) {
                (Ok(log), _) => Trace::parse(&log, program, &symbols, &callers)?,
                // Nobody promises that a program of csmith's ends. A slow machine may reach the limit of time first.
                (
                    Err(
                        RunError::TooLong
                        | RunError::Emulator(EmulatorError::Stopped { .. } | EmulatorError::Endless { .. }),
                    ),
                    Generator::Csmith,
                ) => continue,
                (Err(error), _) => return Err(error.into()),
            };
            if trace.calls.len() <= MAX_CALLS {
                truth.0.push(input.clone());
                truth.1.push(trace);
            }
        }
        Ok(truth)
    }

    fn config(&self, program: &Program, config: &Config, seed: u64, truth: &Truth) -> Result<Report, ProgramError> {
        let (folder, _guard) = self.folder(&format!("{seed}_{}", config.name))?;
        let built = build(&folder, program, config)?;
        let judge = Judge { program, config, repeat: self.repeat(seed, &config.name) };
        Ok(judge.judge(&built, &truth.0, &truth.1)?)
    }

    /// Makes the program small for the first failure of a kind.
    fn reduce(
        &self,
        program: &Program,
        seed: u64,
        inputs: &[Vec<u64>],
        report: &Report,
        wanted: &str,
    ) -> Result<(), ProgramError> {
        let Some(failure) = report.failures.values().flatten().find(|failure| failure.kind.contains(wanted)) else {
            return Ok(());
        };
        let name = failure.repeat.rsplit(' ').next().unwrap_or_default();
        let Some(config) = Config::parse(name, self.chosen) else { return Ok(()) };
        let still = |program: &Program| -> Option<String> {
            let truth = self.truth(program, inputs, self.reference(&config.compiler)).ok()?;
            let report = self.config(program, &config, seed, &truth).ok()?;
            let mut failures = report.failures.into_values().flatten();
            failures.find(|left| left.kind == failure.kind).map(|left| left.text)
        };
        let small = reduce::reduce(program, &|program| still(program).is_some());
        print_program(&small, &config, &failure.kind, &still(&small).unwrap_or_default(), &failure.repeat);
        if let Some(keep) = &self.arguments.keep {
            self.keep_small(&small, &config, keep)?;
        }
        Ok(())
    }

    fn keep_small(&self, program: &Program, config: &Config, keep: &Path) -> Result<(), ProgramError> {
        let folder = keep.join("reduced");
        std::fs::create_dir_all(&folder)?;
        build(&folder.canonicalize()?, program, config)?;
        Ok(())
    }
}

fn print_program(program: &Program, config: &Config, kind: &str, text: &str, repeat: &str) {
    use std::fmt::Write;
    let mut out = format!("\n=== {kind}: {}\n{text}\n{repeat}\n", config.name);
    for unit in 0..program::UNITS {
        // What every program begins with says nothing.
        let own = program.own(unit);
        if !own.trim().is_empty() {
            let _ = writeln!(out, "--- unit{unit}.c\n{}", own.trim());
        }
    }
    println!("{out}");
}

/// What a program reads from its volatile memory.
fn input(seed: u64, index: u64) -> Vec<u64> {
    let mut prng = Prng::new(seed.wrapping_mul(31).wrapping_add(index).wrapping_add(1 << 40));
    (0..64)
        .map(|_| match prng.below(4) {
            0 => prng.below(8) as u64,
            1 => prng.below(256) as u64,
            2 => *prng.pick(&[0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff, 0x8000, 0x80]),
            _ => prng.next(),
        })
        .collect()
}
