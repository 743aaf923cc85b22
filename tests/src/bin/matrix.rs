// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/matrix`: the conformance suite on kernels of the matrix, and the page that says what came
//! out.

use clap::Parser;
use siteseer_conformance::suite::case_file::{self, CaseFile};
use siteseer_conformance::suite::judge::Status;
use siteseer_conformance::suite::results::Results;
use siteseer_conformance::suite::{chart, page, run};
use siteseer_sites::with_causes;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the conformance suite on kernels of kernels/matrix.toml, one boot each.
///
/// The exit status is 1 if a case fails on a kernel, or a kernel does not run.
#[derive(Parser)]
struct Arguments {
    /// A kernel of the matrix; may be given again. All, if none is
    #[arg(long = "kernel", value_name = "NAME")]
    kernels: Vec<String>,
    /// A case of tests/cases; may be given again. All, if none is, and the functions of the kernel itself
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Make the first expectation of each case wrong: then each case that passes must fail, and does
    #[arg(long)]
    plant: bool,
    /// Write docs/conformance.md and docs/conformance.svg. It requires all kernels and all cases
    #[arg(long)]
    update_docs: bool,
    /// Make the page from this result, and run nothing; may be given again, for runs of other kernels
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernels", "cases", "plant"])]
    from: Vec<PathBuf>,
    /// Where the result goes, and beside it the consoles of the guests
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    at_once: usize,
}

/// The cases that are wanted, and those of them that cannot be read.
fn wanted_cases(names: &[String]) -> Result<(Vec<CaseFile>, Vec<run::Unreadable>), Box<dyn Error>> {
    let all = case_file::all(&case_file::folder())?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|(known, _)| known != *name)) {
        let known: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!("no case {unknown:?}; there are: {}", known.join(", ")).into());
    }
    let (mut cases, mut unreadable) = (Vec::new(), Vec::new());
    for (name, case) in all.into_iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        match case {
            Ok(case) => cases.push(case),
            Err(why) => unreadable.push((name, why.to_string())),
        }
    }
    Ok((cases, unreadable))
}

fn measure(arguments: &Arguments) -> Result<Results, Box<dyn Error>> {
    let matrix = siteseer_kernels::workspace_matrix()?;
    if let Some(unknown) = arguments.kernels.iter().find(|name| matrix.row(name).is_err()) {
        let known: Vec<&str> = matrix.names().collect();
        return Err(format!("no kernel {unknown:?}; there are: {}", known.join(", ")).into());
    }
    let chosen = |name: &&str| arguments.kernels.is_empty() || arguments.kernels.iter().any(|wanted| wanted == name);
    let truth = siteseer_conformance::guest::truth::cases().into_iter().map(|case| case.name);
    let consoles = arguments.json.with_extension("consoles");
    std::fs::create_dir_all(&consoles)?;
    let (cases, unreadable) = wanted_cases(&arguments.cases)?;
    let wanted = run::Wanted {
        kernels: matrix.names().filter(chosen).map(str::to_owned).collect(),
        cases,
        unreadable,
        truth: if arguments.cases.is_empty() { truth.collect() } else { Vec::new() },
        planted: arguments.plant,
        consoles,
        at_once: arguments.at_once,
    };
    Ok(run::run(&wanted, &|line| eprintln!("{line}")))
}

fn print(results: &Results) {
    for row in &results.rows {
        println!("{}::{}", row.group, row.name);
        for kernel in &results.kernels {
            if let Some(verdict) = results.cell(row, kernel) {
                println!("  {:22} {}: {}", kernel.name, verdict.status, verdict.detail.replace('\n', "\n      "));
            }
        }
    }
    for kernel in &results.kernels {
        let counts = results.counts(&kernel.name);
        let count = |status| counts.get(&status).copied().unwrap_or(0);
        let counts: Vec<String> = Status::ALL.iter().map(|&status| format!("{} {status}", count(status))).collect();
        println!(
            "{:22} {} ({}), {} s: {}",
            kernel.name,
            kernel.release,
            kernel.made_with,
            kernel.seconds,
            counts.join(", ")
        );
        if let Some(problem) = &kernel.problem {
            println!("  {}", problem.replace('\n', "\n  "));
        }
    }
}

fn write_docs(results: &Results, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let matrix = siteseer_kernels::workspace_matrix()?;
    let all = matrix.names().all(|name| results.kernels.iter().any(|kernel| kernel.name == name));
    if !all || !arguments.cases.is_empty() || arguments.plant {
        return Err("--update-docs requires all kernels and all cases: docs/conformance.md is left as it is".into());
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::write(docs.join("conformance.md"), page::page(results))?;
    std::fs::write(docs.join("conformance.svg"), chart::chart(results))?;
    Ok(())
}

fn read(path: &Path) -> Result<Results, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string());
    let results = bytes.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
    results.map_err(|why| format!("{}: {why}", path.display()))
}

fn matrix(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let results = match &arguments.from[..] {
        [] => {
            let results = measure(arguments)?;
            std::fs::write(&arguments.json, serde_json::to_string_pretty(&results)?)?;
            results
        }
        [first, others @ ..] => {
            let matrix = siteseer_kernels::workspace_matrix()?;
            let order: Vec<&str> = matrix.names().collect();
            others.iter().try_fold(read(first)?, |results, path| {
                let joined = results.join(read(path)?, &order);
                joined.map_err(|why| format!("{}: {why}", path.display()))
            })?
        }
    };
    print(&results);
    if arguments.update_docs {
        write_docs(&results, arguments)?;
    }
    let failures = results.failures();
    if !failures.is_empty() {
        println!("\n{} failures:", failures.len());
        for failure in &failures {
            println!("  {}", failure.lines().next().unwrap_or_default());
        }
    }
    Ok(failures.is_empty())
}

fn main() -> ExitCode {
    match matrix(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("matrix: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
