// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/clients`: boots a kernel with libbpf-tools, and prints what each does with siteseer and
//! without.

use clap::Parser;
use siteseer_conformance::compare::clients::judge::{Verdict, judge};
use siteseer_conformance::compare::clients::prepare::{Prepared, prepare};
use siteseer_conformance::compare::clients::{Linking, Run, Way, boot, page};
use siteseer_conformance::measure::tables::fill;
use siteseer_kernels::KernelPaths;
use siteseer_sites::file;
use siteseer_sites::with_causes;
use siteseer_vmtest::build_guest_for;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Runs libbpf-tools with siteseer and without it, on the same calls.
#[derive(Parser)]
struct Arguments {
    /// A kernel of kernels/matrix.toml that has been fetched
    #[arg(long)]
    kernel: String,
    /// Where siteseer's library is installed
    #[arg(long)]
    installed: PathBuf,
    /// Which libbpf the tools and siteseer use [default: one, then the other]
    #[arg(long, value_enum)]
    libbpf: Option<Linking>,
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
    let linkings = arguments.libbpf.map_or_else(|| vec![Linking::Static, Linking::Shared], |linking| vec![linking]);
    let ways: Vec<Way> = linkings.iter().flat_map(|linking| linking.ways()).collect();
    let prepare = |tools: &[String]| prepare(folder.path(), &arguments.installed, tools, &ways);
    let mut prepared = prepare(&arguments.tools)?;
    let unbuilt = std::mem::take(&mut prepared.unbuilt);
    let options = siteseer_encoder::Options { code: true, ..siteseer_encoder::Options::default() };
    let encoded = siteseer_encoder::encode_all(&fs::read(&paths.vmlinux)?, &options)?;
    let mut runs: Vec<Run> = Vec::new();
    let mut verdicts: BTreeMap<Linking, Vec<Verdict>> = BTreeMap::new();
    let mut judge_all = |runs: &[Run], prepared: &Prepared| {
        let judge = |linking: &Linking| (*linking, judge(runs, *linking, &prepared.known));
        verdicts = linkings.iter().map(judge).collect();
        wrong(&verdicts)
    };
    let mut wrong_tools = Vec::new();
    if let Some(path) = &arguments.runs {
        let lines = fs::read_to_string(path)?;
        runs = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        wrong_tools = judge_all(&runs, &prepared);
    } else {
        let guest = build_guest_for(paths.record.arch, "siteseer-conformance", "siteseer-guest", "release")?;
        let sites = folder.path().join("sites");
        file::write_with(&encoded.set, &encoded.optional(), &mut fs::File::create(&sites)?)?;
        for _ in 0..ATTEMPTS {
            let json = arguments.json.as_ref().map(|path| OpenOptions::new().create(true).append(true).open(path));
            runs.extend(boot(&paths, &guest, &sites, &prepared, json.transpose()?)?);
            wrong_tools = judge_all(&runs, &prepared);
            if wrong_tools.is_empty() {
                break;
            }
            prepared = prepare(&wrong_tools)?;
        }
    }
    let about = format!("libbpf-tools {}, Linux {}", prepared.version, paths.record.release);
    let copies = page::copies(&encoded.set);
    let tables: Vec<_> = verdicts
        .iter()
        .flat_map(|(linking, verdicts)| page::tables(verdicts, &about, *linking, &copies, &unbuilt))
        .collect();
    for (_, table) in &tables {
        println!("{table}");
    }
    if let Some(path) = &arguments.docs {
        fs::write(path, fill(&fs::read_to_string(path)?, &tables)?)?;
    }
    let wrong = wrong_tools;
    if !wrong.is_empty() {
        return Err(format!("not as without siteseer: {}", wrong.join(", ")).into());
    }
    let failed: Vec<String> =
        unbuilt.into_iter().map(|(tool, why)| format!("{tool}: cannot be built: {why}")).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// The tools with something wrong.
fn wrong(verdicts: &BTreeMap<Linking, Vec<Verdict>>) -> Vec<String> {
    let wrong = verdicts.values().flatten().filter(|verdict| !verdict.wrong.is_empty());
    wrong.map(|verdict| verdict.tool.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Runs the jobs in a guest.
fn boot(
    paths: &KernelPaths,
    guest: &Path,
    sites: &Path,
    prepared: &Prepared,
    mut json: Option<File>,
) -> Result<Vec<Run>, Box<dyn Error>> {
    let mut vm = boot::machine(paths, guest, sites, prepared).count_instructions();
    vm = vm.time_limit(Duration::from_secs(3 * 3600));
    let all: usize = prepared.jobs.iter().map(|job| job.ways.len()).sum();
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
    let runs = boot::boot(vm);
    eprintln!();
    runs
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
