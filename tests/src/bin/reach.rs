// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/reach`: encodes a kernel, boots it, and prints which functions plain fentry cannot reach
//! there and siteseer can.

use clap::Parser;
use siteseer_sites::file;
use siteseer_sites::with_causes;
use siteseer_vmtest::{Vm, build_guest_for};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// Prints which functions plain fentry cannot reach, before and after.
#[derive(Parser)]
struct Arguments {
    /// A kernel of kernels/matrix.toml that has been fetched
    kernel: String,
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = &arguments.kernel;
    let paths = siteseer_kernels::cached(name)
        .ok_or_else(|| format!("kernel {name} has not been fetched: run ci/kernel {name}"))?;
    let arch = paths.record.arch;
    let guest = build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "release")?;
    let image = std::fs::read(&paths.vmlinux)?;
    let options = siteseer_encoder::Options { code: true, ..siteseer_encoder::Options::default() };
    let encoded = siteseer_encoder::encode_all(&image, &options)?;
    let id: String = encoded.set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let sites = std::env::temp_dir().join(format!("siteseer-reach-{}.sites", std::process::id()));
    file::write_with(&encoded.set, &encoded.optional(), &mut std::fs::File::create(&sites)?)?;
    let outcome = Vm::new(arch, &paths.vmlinuz)
        .init(&guest)
        .arg("reach")
        .file(&sites, format!("/var/cache/siteseer/{id}.sites"))
        .memory(2048)
        .cpus(2)
        .time_limit(Duration::from_secs(900))
        .run();
    std::fs::remove_file(&sites)?;
    let outcome = outcome?;
    print!("{}", String::from_utf8_lossy(&outcome.results));
    if outcome.success() {
        Ok(())
    } else {
        Err(format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into())
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reach: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
