// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Makes a build root and prints its folder; what `ci/buildroot` runs.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use siteseer_kernels::buildroot::{BuildRoot, Rows, workspace_rows};

/// Make a build root in the cache and print its folder
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// File of rows [default: the workspace's kernels/buildroot.toml]
    #[arg(long)]
    rows: Option<PathBuf>,
    /// Make it again, of the packages that the mirror has today
    #[arg(long)]
    refresh: bool,
    /// List the build roots
    #[arg(long, conflicts_with = "name")]
    list: bool,
    /// The build root's name
    #[arg(required_unless_present = "list")]
    name: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("buildroot-get: {}", siteseer_kernels::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let rows = match &arguments.rows {
        Some(path) => Rows::read(path)?,
        None => workspace_rows()?,
    };
    if let Some(name) = &arguments.name {
        let root = BuildRoot::get(rows.row(name)?, arguments.refresh, |line| eprintln!("{line}"))?;
        println!("{}", root.directory().display());
    } else {
        for name in rows.names() {
            println!("{name}");
        }
    }
    Ok(())
}
