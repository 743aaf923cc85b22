// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Gets a kernel of the matrix and prints its folder; what `ci/kernel` runs.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use siteseer_kernels::{Getter, Matrix, cached, chosen, own_site_data, workspace_matrix};

/// Get a kernel of the matrix into the cache and print the folder that holds its vmlinuz and vmlinux
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Matrix file [default: the workspace's kernels/matrix.toml]
    #[arg(long)]
    matrix: Option<PathBuf>,
    /// Look for a newer one even if the cache is not a day old
    #[arg(long)]
    refresh: bool,
    /// List the kernels of the matrix, and say which of those in the cache have site data of their own
    #[arg(long, conflicts_with = "name")]
    list: bool,
    /// List the kernels that SITESEER_KERNELS names, which are those that the tests boot
    #[arg(long, conflicts_with_all = ["name", "list"])]
    chosen: bool,
    /// The kernel's name
    #[arg(required_unless_present_any = ["list", "chosen"])]
    name: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kernel-get: {}", siteseer_kernels::with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let matrix = match &arguments.matrix {
        Some(path) => Matrix::read(path)?,
        None => workspace_matrix()?,
    };
    if let Some(name) = &arguments.name {
        let paths = Getter::new(matrix, |line| eprintln!("{line}"))?.refresh(arguments.refresh).get(name)?;
        println!("{}", paths.directory.display());
    } else if arguments.chosen {
        for name in chosen()? {
            println!("{name}");
        }
    } else {
        for name in matrix.names() {
            println!("{name}");
            // Standard output has the names alone.
            if let Some(shown_by) = cached(name).as_ref().and_then(own_site_data) {
                eprintln!("{name} has site data of its own ({shown_by})");
            }
        }
    }
    Ok(())
}
