// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prints the tables of docs/proposal.md: `ci/proposal`.

use clap::Parser;
use siteseer_conformance::proposal::{fill, formats, forms, functions, table};
use siteseer_encoder::Options;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

/// Prints what functions and arguments are concerned, form by form, and what each proposed format makes of them.
#[derive(Parser)]
struct Arguments {
    /// Kernels in the cache, by name
    #[arg(required = true)]
    kernels: Vec<String>,
    /// Put the tables into this page
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let (mut needs, mut policies, mut counted, mut format_rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for name in &arguments.kernels {
        let kernel = siteseer_kernels::cached(name)
            .ok_or_else(|| format!("{name} is not in the cache: run ci/kernel {name}"))?;
        let image = fs::read(&kernel.vmlinux).map_err(|error| format!("{}: {error}", kernel.vmlinux.display()))?;
        let (set, _) =
            siteseer_encoder::encode(&image, &Options::default()).map_err(|error| format!("{name}: {error}"))?;
        drop(image);
        let counts = functions::count(&set);
        needs.push(counts.needs(name));
        policies.extend(counts.policies(name));
        counted.push((name.clone(), forms::count(&set)));
        format_rows.extend(formats::rows(name, &set).map_err(|error| format!("{name}: {error}"))?);
    }
    let (form_header, form_rows) = forms::rows(&counted);
    let tables = [
        ("needs", table(&functions::NEEDS, &needs)),
        ("policies", table(&functions::POLICIES, &policies)),
        ("forms", table(&form_header, &form_rows)),
        ("formats", table(&formats::HEADER, &format_rows)),
    ];
    for (name, text) in &tables {
        println!("{name}\n\n{text}");
    }
    if let Some(path) = &arguments.docs {
        let page = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        fs::write(path, fill(&page, &tables)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}
