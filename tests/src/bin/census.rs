// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prints what of the arguments is located on each kernel, and fails if it is too little: `ci/census`. With `--flow`,
//! compares the encoder's decoders with llvm-objdump instead.

use clap::Parser;
use siteseer_conformance::measure::census::flow::Agreement;
use siteseer_conformance::measure::census::kept::with_kept;
use siteseer_conformance::measure::census::{LEAST, Row, page};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{fs, io};

/// Prints what of the arguments at inlined copies is located, kernel by kernel.
#[derive(Parser)]
struct Arguments {
    /// Kernels in the cache, by name.
    #[arg(required = true)]
    kernels: Vec<String>,
    /// Compare where control goes after each instruction with what llvm-objdump says, and nothing else.
    #[arg(long, conflicts_with = "docs")]
    flow: bool,
    /// Write the rows into census.md in this folder. Rows of other kernels stay.
    #[arg(long)]
    docs: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut code = ExitCode::SUCCESS;
    let mut rows = Vec::new();
    for name in &arguments.kernels {
        let kernel = siteseer_kernels::cached(name)
            .ok_or_else(|| format!("{name} is not in the cache: run ci/kernel {name}"))?;
        if arguments.flow {
            let agreement = Agreement::of(&kernel).map_err(|error| format!("{name}: {error}"))?;
            println!("{name}: {agreement}");
            if agreement.disagreed > 0 {
                code = ExitCode::FAILURE;
            }
            continue;
        }
        rows.push(Row::of(&kernel).map_err(|error| format!("{name}: {error}"))?);
    }
    if arguments.flow {
        return Ok(code);
    }
    let page = page(&rows);
    print!("{page}");
    if let Some(docs) = &arguments.docs {
        let path = docs.join("census.md");
        let before = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        fs::write(path, with_kept(&page, &before))?;
    }
    for row in rows.iter().filter(|row| !row.is_enough()) {
        eprintln!("{}: of the usable arguments, fewer than {LEAST} of a thousand are located", row.name);
        code = ExitCode::FAILURE;
    }
    Ok(code)
}
