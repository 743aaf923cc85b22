// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Boots a kernel and prints what passes there from start to first event, step by step: medians, and the range; or how
//! long tools take to start with plain libbpf and with siteseer. The guest's time goes by instructions, as with
//! `ci/bench`: the load of this machine does not matter.

use clap::Parser;
use siteseer_conformance::guest::starts::{self, Start};
use siteseer_conformance::measure::startup::FUNCTION;
use siteseer_sites::Machine;
use siteseer_vmtest::{Arch, Vm, build_guest_for};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Measures the way from start to first event on a booted kernel.
#[derive(Parser)]
struct Arguments {
    /// The folder with vmlinuz
    kernel: PathBuf,
    /// The kernel's site file
    sites: PathBuf,
    /// Rounds that count, after one that does not
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tools that start, beside plain libbpf
    #[arg(long)]
    beside: bool,
    /// The guest's program, in place of the one that is built
    #[arg(long)]
    guest: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let bytes = fs::read(&arguments.sites)?;
    let file = siteseer_sites::file::SiteFile::parse(&bytes)?;
    let arch = match file.machine() {
        Machine::X86_64 => Arch::X86_64,
        Machine::Aarch64 => Arch::Arm64,
    };
    let guest = match arguments.guest {
        Some(guest) => guest,
        None => build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "release")?,
    };
    let build_id: String = file.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let outcome = Vm::new(arch, &arguments.kernel.join("vmlinuz"))
        .init(&guest)
        .arg(if arguments.beside { "starts" } else { "startup" })
        .arg((arguments.rounds + 1).to_string())
        .file(&arguments.sites, format!("/var/cache/siteseer/{build_id}.sites"))
        .memory(2048)
        .cpus(2)
        .count_instructions()
        .time_limit(Duration::from_secs(900))
        .run()?;
    if !outcome.success() {
        return Err(format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into());
    }
    if arguments.beside {
        let all: Vec<Start> =
            outcome.result_lines().iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
        print!("{}", starts::table(&starts::medians(&all)));
        return Ok(());
    }
    let mut steps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in outcome.result_lines().iter().skip(1) {
        let round: BTreeMap<String, f64> = serde_json::from_str(line)?;
        round.into_iter().for_each(|(step, seconds)| steps.entry(step).or_default().push(seconds));
    }
    println!("{FUNCTION}, {} rounds in the guest: median (least to most), milliseconds", arguments.rounds);
    for (step, mut seconds) in steps {
        seconds.sort_by(f64::total_cmp);
        let at = |place: usize| seconds.get(place).map_or(f64::NAN, |seconds| seconds * 1000.0);
        println!("  {step:<58} {:>9.2}  ({:.2} to {:.2})", at(seconds.len() / 2), at(0), at(seconds.len() - 1));
    }
    Ok(())
}
