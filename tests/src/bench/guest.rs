// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Measures in a virtual machine whose time goes by instructions.

use crate::cost::Figure;
use siteseer_vmtest::{Arch, Vm, build_guest};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// A guest that hangs is stopped then.
const TIME_LIMIT: Duration = Duration::from_secs(1500);

/// Boots the kernel and has `siteseer-guest cost` measure in it. Hits have one CPU, so that nothing else runs between two of
/// them; attaching has two, because with one no grace period ever takes any time.
///
/// # Errors
/// If the machine cannot be had, or the program fails.
pub fn measure(vmlinuz: &Path, sites: &Path, build_id: &str) -> Result<Vec<Figure>, Box<dyn Error>> {
    let guest = build_guest("siteseer-conformance", "siteseer-guest", "release")?;
    let mut figures = Vec::new();
    for (cpus, what) in [(1, vec!["hits"]), (2, vec!["programs", "attach"])] {
        let outcome = Vm::new(Arch::X86_64, vmlinuz)
            .init(&guest)
            .arg("cost")
            .args(what)
            .file(sites, format!("/var/cache/siteseer/{build_id}.sites"))
            .memory(2048)
            .cpus(cpus)
            .count_instructions()
            .time_limit(TIME_LIMIT)
            .run()?;
        if !outcome.success() {
            return Err(format!("the guest ended with {:?}\n{}", outcome.exit_status, outcome.console).into());
        }
        let lines = outcome.result_lines();
        figures.extend(parse(lines.iter().map(AsRef::as_ref))?);
    }
    Ok(figures)
}

/// What the guest sent: a figure a line.
///
/// # Errors
/// If a line is none.
pub fn parse<'l>(lines: impl Iterator<Item = &'l str>) -> Result<Vec<Figure>, serde_json::Error> {
    lines.filter(|line| line.starts_with('{')).map(serde_json::from_str).collect()
}
