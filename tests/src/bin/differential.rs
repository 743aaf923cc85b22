// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Compares our sites and locations with those of `perf probe` on the same kernel image.

use clap::Parser;
use siteseer_conformance::compare::differential::{self, Class, Question};
use siteseer_conformance::guest::case::Failure;
use siteseer_sites::with_causes;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares sites and locations of random inlined functions with those of `perf probe`.
///
/// Ends with 1 if a disagreement is not explained.
#[derive(Parser)]
struct Arguments {
    /// The kernel image with DWARF
    #[arg(long, value_name = "FILE")]
    vmlinux: PathBuf,
    /// Its sites, made by `siteseer encode`; without, it is encoded in memory
    #[arg(long, value_name = "FILE")]
    sites: Option<PathBuf>,
    /// How many functions to choose
    #[arg(long, value_name = "N", default_value_t = 0)]
    count: usize,
    /// What the choice depends on
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// A function to compare besides
    #[arg(long, value_name = "NAME")]
    function: Vec<String>,
    /// List every disagreement, not those alone that are not explained
    #[arg(long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn run(arguments: Arguments) -> Result<bool, Failure> {
    let Arguments { vmlinux, sites, count, seed, function: functions, verbose, json } = arguments;
    if count == 0 && functions.is_empty() {
        return Err("nothing to compare: give --count or --function".into());
    }
    let report = differential::run(&Question { vmlinux, sites, count, seed, functions })?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    } else {
        print!("{}{report}", report.list(|class| verbose || class == Class::Unexplained));
    }
    Ok(report.count(Class::Unexplained) == 0)
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("siteseer-differential: {}", with_causes(&*failure));
            ExitCode::from(2)
        }
    }
}
