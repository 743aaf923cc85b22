// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `siteseer`: the command-line tool. Thin: what a library's user could want is in the library.

mod check;
mod check_btf;
mod clean;
mod compile;
mod complete;
mod encode;
mod explain;
#[cfg(feature = "network")]
mod fetch;
mod filter;
mod generate;
#[cfg(feature = "network")]
mod hub;
mod kernels;
mod list;
mod map;
mod output;
mod page;
mod plan;
mod sandbox;
mod sites;
mod subset;
mod symbolise;
mod target;
mod trace;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::CompleteEnv;
use std::process::ExitCode;

/// `encode` makes millions of small pieces on all threads.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trace every copy of a kernel function: its body, its clones, and everywhere it was inlined.
#[derive(Parser)]
#[command(name = "siteseer", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Encode(encode::Arguments),
    List(list::Arguments),
    Sites(sites::Arguments),
    Where(symbolise::Arguments),
    Explain(explain::Arguments),
    Map(map::Arguments),
    Check(check::Arguments),
    Plan(plan::Arguments),
    Compile(compile::Arguments),
    Trace(trace::Arguments),
    Subset(subset::Arguments),
    #[cfg(feature = "network")]
    Fetch(fetch::Arguments),
    #[cfg(feature = "network")]
    Hub(hub::Arguments),
    Clean(clean::Arguments),
    CheckBtf(check_btf::Arguments),
    Generate(generate::Arguments),
}

/// What any command may fail with: the text is for people.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    // If it is a shell that asks, this does not return.
    CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE).complete();
    let cli = Cli::parse();
    let done = |result: Result<(), Failure>| result.map(|()| ExitCode::SUCCESS);
    let result = match &cli.command {
        Command::Encode(arguments) => done(encode::run(arguments)),
        Command::List(arguments) => done(list::run(arguments)),
        Command::Sites(arguments) => done(sites::run(arguments)),
        Command::Where(arguments) => done(symbolise::run(arguments)),
        Command::Explain(arguments) => done(explain::run(arguments)),
        Command::Map(arguments) => done(map::run(arguments)),
        Command::Check(arguments) => check::run(arguments),
        Command::Plan(arguments) => done(plan::run(arguments)),
        Command::Compile(arguments) => done(compile::run(arguments)),
        Command::Trace(arguments) => done(trace::run(arguments)),
        Command::Subset(arguments) => done(subset::run(arguments)),
        #[cfg(feature = "network")]
        Command::Fetch(arguments) => done(fetch::run(arguments)),
        #[cfg(feature = "network")]
        Command::Hub(arguments) => done(hub::run(arguments)),
        Command::Clean(arguments) => done(clean::run(arguments)),
        Command::CheckBtf(arguments) => done(check_btf::run(arguments)),
        Command::Generate(arguments) => done(generate::run(arguments)),
    };
    match result {
        Ok(status) => status,
        // It is not a failure if a reader that has seen enough (`siteseer sites foo | head`) closes the pipe.
        Err(failure) if output::is_broken_pipe(&*failure) => ExitCode::from(141),
        Err(failure) => {
            output::tell!("siteseer: {}", output::chain(&*failure));
            // A denial is not a failure of `check`: the exit code tells the two apart.
            if matches!(cli.command, Command::Check(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
