// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The truth about a whole kernel: `siteseer-truth kernel`.
//!
//! The kernel was compiled with a plugin (tests/truth/plugins) that writes a record at the start of each copy of each function's
//! body: the address, and where the compiler has the parameters there. So two things can be told without running the kernel.
//!
//! * **Sites**: each record belongs to a site of its function, and each site to a record ([`pair`]). A record that is left is a
//!   copy of which the encoder says nothing: calls there would be missed.
//! * **Values**: what a site's locations give is what the record's operands give ([`compare`]).
//!
//! [`record`] reads the records, [`code`] the machine code, [`cpu`] emulates it, [`group`] puts sites and records of a symbol
//! together, [`tally`] counts.

mod code;
mod compare;
mod cpu;
mod group;
mod pair;
mod record;
mod tally;

use clap::Args;
use group::Group;
use siteseer_encoder::image::Image;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally::Tally;

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel's name, by which the budget knows it: a row of kernels/matrix.toml that has a plugin
    pub(crate) name: String,
    /// Its vmlinux; `ci/truth kernel NAME` gets it and names it here
    #[arg(long)]
    pub(crate) vmlinux: PathBuf,
    /// Write all that was found to this file, as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// How many findings of each kind to print
    #[arg(long, default_value_t = 20)]
    pub(crate) show: usize,
}

/// Why a kernel cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    /// The vmlinux has no records.
    #[error("there is no section {}: was it compiled with the plugin?", record::SECTION)]
    NoRecords,
}

/// Checks a kernel.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let path = &arguments.vmlinux;
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let tally = check(&bytes)?;
    print!("{tally}");
    show(&tally, arguments.show);
    if let Some(json) = &arguments.json {
        std::fs::write(json, serde_json::to_vec_pretty(&tally)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares all sites of a kernel with all its records.
fn check(bytes: &[u8]) -> Result<Tally, Box<dyn Error>> {
    let image = Image::parse(bytes)?;
    let section = image.debug_section(record::SECTION)?;
    if section.is_empty() {
        return Err(KernelError::NoRecords.into());
    }
    let records = record::read(&section, image.machine())?;
    let (set, _) = siteseer_encoder::encode(bytes, &siteseer_encoder::Options::default())?;
    let groups = group::groups(&image, &set, &records);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    let outcomes: Vec<Result<(), cpu::CpuError>> = rayon::broadcast(|_| {
        let mut cpu = cpu::Cpu::new(&image)?;
        let mut tally = Tally::default();
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            tally.add(Group::check(group, &image, &set, &mut cpu));
        }
        total.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(tally);
        Ok(())
    });
    outcomes.into_iter().collect::<Result<(), _>>()?;
    let mut tally = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.sort();
    Ok(tally)
}

fn show(tally: &Tally, most: usize) {
    for findings in tally.findings.chunk_by(|a, b| a.kind == b.kind) {
        println!();
        findings.iter().take(most).for_each(|finding| println!("{finding}"));
    }
    for (word, list) in
        [("missed", &tally.missed), ("missed, marked", &tally.missed_marked), ("no record", &tally.extra)]
    {
        println!();
        list.iter().take(most).for_each(|unpaired| println!("{word}: {unpaired}"));
    }
}
