// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The truth about a whole kernel: `siteseer-truth kernel`.
//!
//! The kernel was compiled with a plugin (tests/truth/plugins) that writes a record at the start of each copy of each
//! function's body: the address, and where the compiler has the parameters there. So two things can be told without
//! running the kernel.
//!
//! * **Sites**: each record belongs to a site of its function, and each site to a record ([`pair`]). A record that is
//!   left over is a copy that the encoder says nothing about: calls there would be missed.
//! * **Values**: what a site's locations give is what the record's operands give ([`compare`]).
//!
//! [`record`] reads the records, [`code`] the machine code, [`cpu`] emulates it, [`group`] puts sites and records of a
//! symbol together, [`tally`] counts.

mod code;
mod compare;
mod cpu;
mod group;
mod meaning;
mod pair;
mod record;
mod tally;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

use crate::budget::Budget;
use crate::page;
use clap::Args;
use group::{Group, Types};
use siteseer_encoder::elf::image::Image;
use siteseer_sites::btf::Btf;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally::Tally;

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The kernel's name, by which the budget knows it: a row of kernels/truth.toml
    pub(crate) name: String,
    /// Its vmlinux; `ci/truth kernel NAME` gets it and names it here
    #[arg(long)]
    pub(crate) vmlinux: PathBuf,
    /// Write all that was found to this file, as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
    /// What is accepted; without it, whatever is found is success
    #[arg(long)]
    pub(crate) budget: Option<PathBuf>,
    /// Put the tables into the kernel's section of this page: docs/truth.md
    #[arg(long, value_name = "PAGE")]
    pub(crate) docs: Option<PathBuf>,
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
    if let Some(docs) = &arguments.docs {
        page::update(docs, &arguments.name, &format!("### {}\n\n```text\n{tally}```", arguments.name))?;
    }
    let Some(budget) = &arguments.budget else { return Ok(ExitCode::SUCCESS) };
    let exceeded = exceeded(&Budget::read(budget)?, &arguments.name, &tally);
    exceeded.iter().for_each(|line| println!("\nmore than the budget has: {line}"));
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a kernel has too much of. The same kernel is counted each time, so nothing is allowed for chance.
fn exceeded(budget: &Budget, name: &str, tally: &Tally) -> Vec<String> {
    let values = tally.sum(true);
    let compared = values.right + values.wrong + values.all_unconfirmed();
    let counts = [
        ("wrong", values.wrong, compared),
        ("unconfirmed", values.all_unconfirmed(), compared),
        ("missed", tally.missed.len() as u64, tally.records),
        ("excused", tally.missed_marked.len() as u64, tally.records),
        ("extra", tally.extra_in_recorded(), tally.sites),
        ("unrecorded", tally.extra.len() as u64 - tally.extra_in_recorded(), tally.sites),
    ];
    let too_many = counts.into_iter().filter_map(|(kind, count, of)| {
        let (share, reason) = budget.share(name, kind);
        let is_accepted = count as f64 <= share * of as f64 / 1e6;
        (!is_accepted).then(|| format!("{name}: {count} {kind} of {of}, {share} of a million accepted: {reason}"))
    });
    too_many.collect()
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
    let btf = Btf::parse(&set.base_btf)?;
    let types = Types::new(&btf);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Tally::default());
    let outcomes: Vec<Result<(), cpu::CpuError>> = rayon::broadcast(|_| {
        let mut cpu = cpu::Cpu::new(&image)?;
        let mut tally = Tally::default();
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            tally.add(Group::check(group, &image, &set, &types, &mut cpu));
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
