// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/demo`: encodes a kernel, shows the sites of a function, boots the kernel, and shows what
//! `siteseer trace` prints there.

use clap::Parser;
use siteseer_conformance::guest::demo::{FUNCTIONS, TOOL};
use siteseer_sites::with_causes;
use siteseer_vmtest::{Arch, Vm, build_guest};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Shows siteseer at work on a kernel.
#[derive(Parser)]
struct Arguments {
    /// The folder with vmlinuz and vmlinux
    kernel: PathBuf,
}

fn step(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}

fn tool(siteseer: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    println!("$ siteseer {}", arguments.join(" "));
    let status = Command::new(siteseer).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("siteseer {}: {status}", arguments.join(" ")).into()) }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let siteseer = build_guest("siteseer-cli", "siteseer", "release")?;
    let guest = build_guest("siteseer-conformance", "siteseer-guest", "release")?;
    let vmlinux = arguments.kernel.join("vmlinux");
    let vmlinux_text = vmlinux.to_str().ok_or("the kernel's path is not UTF-8")?;
    let scratch = std::env::temp_dir().join(format!("siteseer-demo-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let sites = scratch.join("vmlinux.sites");
    let sites_text = sites.to_str().ok_or("the scratch folder's path is not UTF-8")?;

    step("1. Encode the kernel's DWARF as site data");
    tool(&siteseer, &["encode", vmlinux_text, "-o", sites_text])?;
    step("2. Every place where three functions start, and where their arguments are there");
    for function in FUNCTIONS {
        tool(&siteseer, &["sites", function, "--sites", sites_text])?;
    }
    step("3. Boot that kernel, and trace them while a small workload calls them");
    println!("$ siteseer trace {} --where comm=workload", FUNCTIONS.join(" "));
    let outcome = Vm::new(Arch::X86_64, &arguments.kernel.join("vmlinuz"))
        .init(&guest)
        .arg("demo")
        .file(&siteseer, TOOL)
        // By build id the tool would look in the cache; under this name it is what --sites would be given.
        .file(&sites, format!("/var/cache/siteseer/{}.sites", build_id(&sites)?))
        .memory(2048)
        .time_limit(Duration::from_secs(900))
        .run();
    std::fs::remove_dir_all(&scratch)?;
    let outcome = outcome?;
    print!("{}", String::from_utf8_lossy(&outcome.results));
    if outcome.success() {
        Ok(())
    } else {
        Err(format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into())
    }
}

/// The build id of the kernel that site data is for.
fn build_id(sites: &Path) -> Result<String, Box<dyn Error>> {
    let bytes = std::fs::read(sites)?;
    let file = siteseer_sites::file::SiteFile::parse(&bytes)?;
    Ok(file.build_id().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
