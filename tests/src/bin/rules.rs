// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Checks what the encoder writes by the kernel's rules: `ci/rules`.

use clap::Parser;
use siteseer::internals::source::BaseTypes;
use siteseer_conformance::measure::proposal::rules;
use siteseer_conformance::measure::tables::{fill, table};
use siteseer_encoder::{BaseKernel, KernelTypes};
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Encodes kernels' images and modules, and checks each site file by the rules that the kernel has for BTF.
#[derive(Parser)]
struct Arguments {
    /// Kernels in the cache, by name
    #[arg(required = true)]
    kernels: Vec<String>,
    /// How many modules of each kernel that Debian built; their debug information is fetched
    #[arg(long, value_name = "N", default_value_t = 150)]
    modules: usize,
    /// Put the table into this page
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let (mut rows, mut all) = (Vec::new(), rules::Counts::default());
    for name in &arguments.kernels {
        let kernel = siteseer_kernels::cached(name)
            .ok_or_else(|| format!("{name} is not in the cache: run ci/kernel {name}"))?;
        let counts = rules::check(&kernel.vmlinux, None).map_err(|error| format!("{name}: {error}"))?;
        rows.push(counts.row(name, "the image".to_owned()));
        all.add(counts);
        if arguments.modules == 0 {
            continue;
        }
        let Some(modules) = siteseer_kernels::debug_modules(&kernel, arguments.modules, |line| eprintln!("{line}"))?
        else {
            continue;
        };
        let base = BaseTypes::open(&kernel.vmlinux)?;
        let types = KernelTypes::new(&base.btf)?;
        let base = BaseKernel { types: &types, build_id: &base.build_id.0 };
        let mut counts = rules::Counts::default();
        for path in &modules.files {
            counts.add(rules::check(path, Some(base)).map_err(|error| format!("{name}: {error}"))?);
        }
        rows.push(counts.row(name, format!("{} of {} modules", modules.files.len(), modules.all)));
        all.add(counts);
    }
    let text = table(&rules::HEADER, &rows);
    println!("{text}");
    if let Some(path) = &arguments.docs {
        let page = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        fs::write(path, fill(&page, &[("rules", text)])?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    all.told.iter().for_each(|violation| eprintln!("{violation}"));
    Ok(if all.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
