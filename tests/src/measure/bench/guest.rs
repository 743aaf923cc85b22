// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Measures in a virtual machine whose time goes by instructions.

use super::commands::median;
use crate::guest::starts::{self, Start};
use crate::measure::cost::Figure;
use siteseer_vmtest::{Arch, Vm, build_guest_for};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// A guest that hangs is stopped then.
const TIME_LIMIT: Duration = Duration::from_secs(1500);

/// The machine to measure in.
pub struct Guest<'a> {
    /// The kernel.
    pub vmlinuz: &'a Path,
    /// What it runs on.
    pub arch: Arch,
    /// Its encoded site data.
    pub sites: &'a Path,
    /// Its build id.
    pub build_id: &'a str,
}

impl Guest<'_> {
    fn run(&self, cpus: u32, arguments: &[&str]) -> Result<Vec<String>, Box<dyn Error>> {
        let guest = build_guest_for(self.arch, "siteseer-conformance", "siteseer-guest", "release")?;
        let outcome = Vm::new(self.arch, self.vmlinuz)
            .init(&guest)
            .args(arguments.iter().copied())
            .file(self.sites, format!("/var/cache/siteseer/{}.sites", self.build_id))
            .memory(2048)
            .cpus(cpus)
            .count_instructions()
            .time_limit(TIME_LIMIT)
            .run()?;
        if !outcome.success() {
            // The kernel's lines have the time in brackets.
            let own: Vec<&str> = outcome.console.lines().filter(|line| !line.starts_with('[')).collect();
            return Err(format!("the guest ended with {:?}: {}", outcome.exit_status, own.join("; ")).into());
        }
        Ok(outcome.result_lines().iter().map(ToString::to_string).collect())
    }

    /// Hits, on one CPU, so that nothing else runs between two of them.
    ///
    /// # Errors
    /// If the machine is not available, or the program fails.
    pub fn hits(&self) -> Result<Vec<Figure>, Box<dyn Error>> {
        Ok(parse(self.run(1, &["cost", "hits"])?.iter().map(String::as_str))?)
    }

    /// Programs and attaching, on two, because with one no grace period ever takes any time.
    ///
    /// # Errors
    /// As [`Guest::hits`].
    pub fn attaching(&self) -> Result<Vec<Figure>, Box<dyn Error>> {
        Ok(parse(self.run(2, &["cost", "programs", "attach"])?.iter().map(String::as_str))?)
    }

    /// Seconds of each step from a tool's start to its first event, median of some rounds after one that does not
    /// count.
    ///
    /// # Errors
    /// As [`Guest::hits`].
    pub fn startup(&self) -> Result<BTreeMap<String, f64>, Box<dyn Error>> {
        let mut steps: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for line in self.run(2, &["startup", "6"])?.iter().skip(1) {
            let round: BTreeMap<String, f64> = serde_json::from_str(line)?;
            round.into_iter().for_each(|(step, seconds)| steps.entry(step).or_default().push(seconds));
        }
        Ok(steps.into_iter().map(|(step, seconds)| (step, median(seconds))).collect())
    }

    /// Tools from their start until they are attached: each part's median of some rounds after one that does not count.
    ///
    /// # Errors
    /// As [`Guest::hits`].
    pub fn starts(&self) -> Result<Vec<Start>, Box<dyn Error>> {
        let lines = self.run(2, &["starts", "4"])?;
        let all: Vec<Start> = lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?;
        Ok(starts::medians(&all))
    }
}

/// One link for many addresses beside today's ways, on a kernel with `kernels/patches/kprobe-multi-addresses.patch`. It
/// has site data of its own, and gets none.
///
/// # Errors
/// As [`Guest::hits`].
pub fn links(arch: Arch, vmlinuz: &Path, time: Time) -> Result<Vec<Figure>, Box<dyn Error>> {
    let guest = build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "release")?;
    let vm = Vm::new(arch, vmlinuz).init(&guest).args(["cost", "links"]).memory(2048).cpus(2).time_limit(TIME_LIMIT);
    let outcome = if time == Time::Instructions { vm.count_instructions() } else { vm }.run()?;
    let figures = parse(outcome.result_lines().iter().map(String::as_str))?;
    if !outcome.success() {
        let last: Vec<&str> = outcome.console.lines().rev().take(40).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        return Err(format!("the guest ended with {:?}:\n{}", outcome.exit_status, last.join("\n")).into());
    }
    Ok(figures)
}

/// What the guest's clock goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// Instructions: the same on a busy machine.
    Instructions,
    /// The machine's clock, by KVM if it works here.
    Machine,
}

/// What the guest sent: a figure a line.
///
/// # Errors
/// If a line is none.
pub fn parse<'l>(lines: impl Iterator<Item = &'l str>) -> Result<Vec<Figure>, serde_json::Error> {
    lines.filter(|line| line.starts_with('{')).map(serde_json::from_str).collect()
}
