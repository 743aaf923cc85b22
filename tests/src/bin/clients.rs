// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/clients`: boots a kernel with Debian's libbpf-tools, and prints what each does with siteseer and without.

use clap::Parser;
use siteseer_conformance::clients::judge::{Verdict, judge};
use siteseer_conformance::clients::prepare::{Prepared, prepare};
use siteseer_conformance::clients::{Linking, Run, page};
use siteseer_conformance::proposal::fill;
use siteseer_kernels::KernelPaths;
use siteseer_sites::file;
use siteseer_sites::with_causes;
use siteseer_vmtest::{Vm, build_guest_for};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Runs Debian's libbpf-tools with siteseer and without it, on the same calls.
#[derive(Parser)]
struct Arguments {
    /// A kernel of kernels/matrix.toml that has been fetched
    #[arg(long)]
    kernel: String,
    /// Where siteseer's library is installed
    #[arg(long)]
    installed: PathBuf,
    /// Which libbpf the tools and siteseer use
    #[arg(long, value_enum, default_value = "static")]
    libbpf: Linking,
    /// Write docs/clients.md, or another page of that form
    #[arg(long)]
    docs: Option<PathBuf>,
    /// Append all runs, each a line of JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Judge the runs of such a file, and boot nothing
    #[arg(long, conflicts_with = "json")]
    runs: Option<PathBuf>,
    /// Tools [default: all]
    tools: Vec<String>,
}

/// How often a tool that seems to see less is looked at. What else the guest does differs from run to run.
const ATTEMPTS: usize = 2;

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = &arguments.kernel;
    let paths = siteseer_kernels::cached(name)
        .ok_or_else(|| format!("kernel {name} has not been fetched: run ci/kernel {name}"))?;
    let folder = tempfile::tempdir()?;
    let ways = arguments.libbpf.ways();
    let prepare = |tools: &[String]| prepare(folder.path(), &arguments.installed, tools, &ways);
    let mut prepared = prepare(&arguments.tools)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut verdicts: Vec<Verdict> = Vec::new();
    if let Some(path) = &arguments.runs {
        let lines = fs::read_to_string(path)?;
        runs = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        verdicts = judge(&runs, arguments.libbpf, &prepared.known);
    } else {
        let guest = build_guest_for(paths.record.arch, "siteseer-conformance", "siteseer-guest", "release")?;
        let (set, _) = siteseer_encoder::encode(&fs::read(&paths.vmlinux)?, &siteseer_encoder::Options::default())?;
        let sites = folder.path().join("sites");
        fs::write(&sites, file::write(&set)?)?;
        for _ in 0..ATTEMPTS {
            let json = arguments.json.as_ref().map(|path| OpenOptions::new().create(true).append(true).open(path));
            runs.extend(boot(&paths, &guest, &sites, &prepared, json.transpose()?)?);
            verdicts = judge(&runs, arguments.libbpf, &prepared.known);
            let again = wrong(&verdicts);
            if again.is_empty() {
                break;
            }
            prepared = prepare(&again)?;
        }
    }
    let tables = page::tables(&verdicts, &prepared.version, &paths.record.release, arguments.libbpf);
    for (_, table) in &tables {
        println!("{table}");
    }
    if let Some(path) = &arguments.docs {
        fs::write(path, fill(&fs::read_to_string(path)?, &tables)?)?;
    }
    let wrong = wrong(&verdicts);
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as without siteseer: {}", wrong.join(", ")).into()) }
}

/// The tools with something wrong.
fn wrong(verdicts: &[Verdict]) -> Vec<String> {
    verdicts.iter().filter(|verdict| !verdict.wrong.is_empty()).map(|verdict| verdict.tool.clone()).collect()
}

/// Runs the jobs in a guest.
fn boot(
    paths: &KernelPaths,
    guest: &Path,
    sites: &Path,
    prepared: &Prepared,
    mut json: Option<File>,
) -> Result<Vec<Run>, Box<dyn Error>> {
    let mut vm = Vm::new(paths.record.arch, &paths.vmlinuz)
        .init(guest)
        .arg("clients")
        .file(sites, format!("/var/cache/siteseer/{}.sites", paths.record.build_id))
        .qemu_arg("-drive")
        .qemu_arg(format!("file={},if=none,id=disk,format=raw", prepared.disk.display()))
        .qemu_arg("-device")
        .qemu_arg("nvme,drive=disk,serial=clients")
        .memory(3072)
        .count_instructions()
        .time_limit(Duration::from_secs(3 * 3600));
    for (place, file) in &prepared.files {
        vm = vm.file(file, place);
    }
    let all = prepared.jobs.iter().map(|job| job.ways.len()).sum::<usize>();
    let mut done = 0;
    vm = vm.on_results(|bytes| {
        done += bytes.iter().filter(|byte| **byte == b'\n').count();
        eprint!("\r{done} of {all} runs");
        if let Some(Err(error)) = json.as_mut().map(|json| json.write_all(bytes)) {
            eprintln!("clients: {error}");
        }
    });
    if std::env::var_os("SITESEER_CONSOLE").is_some() {
        vm = vm.console(std::io::stderr());
    }
    let outcome = vm.run()?;
    eprintln!();
    if !outcome.success() {
        return Err(format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into());
    }
    Ok(outcome.result_lines().iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("clients: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
