// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Measures what siteseer's encoder says against the truth, at scale: `ci/truth`.
//!
//! Two instruments. `random` writes programs that nobody chose, compiles each in many ways, and runs it in an emulator
//! with a hook at each site; the truth is what the same program logs when it is not optimised. `kernel` looks at whole
//! kernels, compiled with a plugin that has each function body write down where its parameters are. Both count in the
//! same tables ([`report`]), and what is accepted of each kind stands in a budget file ([`budget`]).

mod budget;
mod kernel;
mod machine;
mod page;
mod random;
mod report;

use clap::{Parser, Subcommand};
use siteseer_sites::with_causes;
use std::process::ExitCode;

/// Measures siteseer's sites and locations against the truth.
#[derive(Debug, Parser)]
#[command(name = "siteseer-truth")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random programs, compiled in many ways and run in an emulator
    Random(random::Arguments),
    /// Whole kernels, compiled with a plugin that writes down where parameters are
    Kernel(kernel::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Random(arguments) => random::run(&arguments),
        Command::Kernel(arguments) => kernel::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("siteseer-truth: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
