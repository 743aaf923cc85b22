// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Prints the tables of docs/proposal.md: `ci/proposal`.

use clap::Parser;
use siteseer_conformance::measure::bench::guest::{self, Time};
use siteseer_conformance::measure::census::Row;
use siteseer_conformance::measure::proposal::{entries, formats, forms, functions, links, missing, tools, truth};
use siteseer_conformance::measure::tables::{fill, table};
use siteseer_encoder::Options;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints what functions and arguments are concerned, form by form, and what each proposed format makes of them. A
/// kernel that is not in the cache is named, and left out.
#[derive(Parser)]
struct Arguments {
    /// Kernels, by name
    #[arg(required_unless_present = "attach")]
    kernels: Vec<String>,
    /// Boot this kernel, which has kernels/patches/kprobe-multi-addresses.patch, and print what attaching costs there,
    /// and no other table
    #[arg(long, value_name = "KERNEL", conflicts_with = "kernels")]
    attach: Option<String>,
    /// With --attach: measure by the machine's clock, with KVM if it works here. The page has times that go by
    /// instructions
    #[arg(long, requires = "attach", conflicts_with = "update")]
    machine_clock: bool,
    /// The folder of pages. Figures of census.md and truth.md in it are included
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    pages: PathBuf,
    /// Put the tables into proposal.md of that folder
    #[arg(long)]
    update: bool,
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The table of `--attach`.
fn attaching(arguments: &Arguments, name: &str) -> Result<(), Box<dyn Error>> {
    let kernel =
        siteseer_kernels::cached(name).ok_or_else(|| format!("{name} is not in the cache (ci/kernel {name})"))?;
    let time = if arguments.machine_clock { Time::Machine } else { Time::Instructions };
    let figures = guest::links(kernel.record.arch, &kernel.vmlinuz, time)?;
    let text = table(&links::HEADER, &links::rows(&figures)) + &links::remarks(&figures);
    println!("{text}");
    if arguments.update {
        put(arguments, &[("attach", text)])?;
    }
    Ok(())
}

fn put(arguments: &Arguments, tables: &[(&str, String)]) -> Result<(), String> {
    let path = arguments.pages.join("proposal.md");
    let page = fill(&read(&path)?, tables)?;
    fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    if let Some(name) = &arguments.attach {
        return attaching(&arguments, name);
    }
    let (mut needs, mut policies, mut tool_rows, mut entry_rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut counted, mut format_rows, mut kernels, mut lacking) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for name in &arguments.kernels {
        let Some(kernel) = siteseer_kernels::cached(name) else {
            eprintln!("{name} is not in the cache: its rows are missing (ci/kernel {name})");
            lacking.push(name.as_str());
            continue;
        };
        let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let image = fs::read(&kernel.vmlinux).map_err(|error| failed(&error))?;
        let (set, census) = siteseer_encoder::encode(&image, &Options::default()).map_err(|error| failed(&error))?;
        entry_rows.extend(entries::rows(name, &census));
        kernels.push(Row::with(&kernel, &image, census));
        drop(image);
        let counts = functions::count(&set);
        needs.push(counts.needs(name));
        policies.extend(counts.policies(name));
        counted.push((name.clone(), forms::count(&set)));
        tool_rows.push(tools::row(name, &set).map_err(|error| failed(&error))?);
        format_rows.extend(formats::rows(name, &set).map_err(|error| failed(&error))?);
    }
    let (form_header, form_rows) = forms::rows(&counted);
    let (truth_header, truth_rows) = truth::rows(&read(&arguments.pages.join("truth.md"))?)?;
    let truth_header: Vec<&str> = truth_header.iter().map(String::as_str).collect();
    let missing_rows = missing::rows(&kernels, &read(&arguments.pages.join("census.md"))?)?;
    let lacking = match lacking.is_empty() {
        true => "No kernel of `kernels/matrix.toml` is missing.\n".to_owned(),
        false => format!("Kernels that were not at hand when the tables were written: {}.\n", lacking.join(", ")),
    };
    let tables = [
        ("lacking", lacking),
        ("needs", table(&functions::NEEDS, &needs)),
        ("entries", table(&entries::HEADER, &entry_rows)),
        ("policies", table(&functions::POLICIES, &policies)),
        ("tools", table(&tools::HEADER, &tool_rows)),
        ("forms", table(&form_header, &form_rows)),
        ("missing", table(&missing::HEADER, &missing_rows)),
        ("truth", table(&truth_header, &truth_rows)),
        ("formats", table(&formats::HEADER, &format_rows)),
    ];
    for (name, text) in &tables {
        println!("{name}\n\n{text}");
    }
    if arguments.update {
        put(&arguments, &tables)?;
    }
    Ok(())
}
