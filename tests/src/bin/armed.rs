// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/armed`: boots a kernel that looks for its own faults, has each site armed there, and prints
//! which were.

use clap::Parser;
use siteseer_conformance::measure::armed::{Armed, FIRST_DENIED, page, plant};
use siteseer_conformance::measure::tables::fill;
use siteseer_kernels::KernelPaths;
use siteseer_sites::{file, with_causes};
use siteseer_vmtest::{ExitStatus, Outcome, Vm, VmError, build_guest_for, splat};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arms each site of a kernel once, under load.
#[derive(Parser)]
struct Arguments {
    /// The kernel: a row of kernels/debug.toml that is in the cache
    #[arg(default_value = "kasan-7.3-x86_64")]
    kernel: String,
    /// Arm these instructions alone, by their numbers in the order of addresses, as the kernel's log has them
    #[arg(long, num_args = 2, value_names = ["FIRST", "END"], conflicts_with_all = ["plant", "update"])]
    instructions: Option<Vec<usize>>,
    /// Make faults on purpose, and say which of them were found
    #[arg(long, conflicts_with = "update")]
    plant: bool,
    /// Where the console goes; with --plant, the name of each boot is added
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    /// Put the tables into this page
    #[arg(long, value_name = "PAGE")]
    update: Option<PathBuf>,
}

/// All sites take an hour on two idle cores.
const TIME_LIMIT: Duration = Duration::from_secs(4 * 3600);
/// What the guest that does nothing any more has.
const SOON: Duration = Duration::from_secs(240);
/// KASAN has an eighth of the memory.
const MEMORY: u32 = 4096;

fn boot(
    kernel: &KernelPaths,
    arguments: &[String],
    sites: Option<(&Path, &str)>,
    limit: Duration,
    console: Option<&Path>,
) -> Result<Result<Outcome, VmError>, Box<dyn Error>> {
    let arch = kernel.record.arch;
    let guest = build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "guest")?;
    let mut vm = Vm::new(arch, &kernel.vmlinuz).init(&guest).args(arguments).memory(MEMORY).cpus(2).time_limit(limit);
    if let Some((sites, id)) = sites {
        vm = vm.file(sites, format!("/var/cache/siteseer/{id}.sites"));
    }
    if let Some(path) = console {
        vm = vm.console(fs::File::create(path)?);
    }
    Ok(vm.run())
}

/// Whether the kernel has only said that vmalloc() did not get memory, while memory was denied to it: it prints a trace
/// then (`warn_alloc()` in mm/page_alloc.c).
fn is_of_failing_memory(outcome: &Outcome) -> bool {
    let after = outcome.console.split_once(FIRST_DENIED).map_or("", |(_, after)| after);
    let splats = splat::find(after);
    splats.len() == outcome.splats.len() && splats.iter().all(|splat| splat.text.contains("warn_alloc"))
}

fn arm(arguments: &Arguments, kernel: &KernelPaths) -> Result<(), Box<dyn Error>> {
    let image = fs::read(&kernel.vmlinux)?;
    let options = siteseer_encoder::Options { code: true, ..siteseer_encoder::Options::default() };
    let encoded = siteseer_encoder::encode_all(&image, &options)?;
    drop(image);
    let id: String = encoded.set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let sites = tempfile::NamedTempFile::new()?;
    file::write_with(&encoded.set, &encoded.optional(), &mut sites.as_file())?;
    let mut words = vec!["armed".to_owned()];
    words.extend(arguments.instructions.iter().flatten().map(usize::to_string));
    let outcome = match boot(kernel, &words, Some((sites.path(), &id)), TIME_LIMIT, arguments.console.as_deref())? {
        Err(VmError::Splat { outcome }) if is_of_failing_memory(&outcome) => *outcome,
        other => other?,
    };
    // The guest program says last what went wrong, unless it panicked. The kernel's lines have the time in brackets.
    let said = outcome.console.rfind("siteseer-guest: ").map_or(&*outcome.console, |begin| &outcome.console[begin..]);
    let own = || said.lines().filter(|line| !line.starts_with('[')).collect::<Vec<&str>>().join("; ");
    let failed = || format!("the guest ended with {:?}: {}", outcome.exit_status, own());
    let lines = outcome.result_lines();
    let armed: Armed = serde_json::from_str(lines.first().ok_or_else(failed)?)?;
    let text =
        page::print(&arguments.kernel, &outcome.release, &armed, outcome.wall.as_secs() / 60, outcome.splats.len());
    print!("{text}");
    if !outcome.exit_status.is_some_and(ExitStatus::success) {
        return Err(failed().into());
    }
    if let Some(path) = &arguments.update {
        fs::write(path, fill(&fs::read_to_string(path)?, &[("armed", text)])?)?;
    }
    Ok(())
}

/// Each kind of fault must be found.
fn planted(arguments: &Arguments, kernel: &KernelPaths) -> Result<(), Box<dyn Error>> {
    let run = |what: &str, limit| {
        let words = ["planted".to_owned(), what.to_owned()];
        let console = arguments.console.as_ref().map(|path| path.with_added_extension(what));
        boot(kernel, &words, None, limit, console.as_deref())
    };
    let mut wrong = Vec::new();
    match run("faults", TIME_LIMIT)? {
        Ok(_) => wrong.push("a boot full of faults counts as good".to_owned()),
        Err(error) => wrong.extend(plant::missed(error.outcome().map_or("", |outcome| &outcome.console))),
    }
    match run(plant::GONE, TIME_LIMIT)? {
        Err(VmError::WentDown { .. }) => {}
        other => wrong.push(format!("a guest that went away: {:?}", other.map(|outcome| outcome.exit_status))),
    }
    match run(plant::STILL, SOON)? {
        Err(VmError::TimeLimit { .. }) => {}
        other => {
            wrong.push(format!("a guest that does nothing any more: {:?}", other.map(|outcome| outcome.exit_status)));
        }
    }
    if wrong.is_empty() {
        println!("each of {} kinds of faults was found", plant::FAULTS.len() + 2);
        return Ok(());
    }
    Err(format!("not found: {}", wrong.join(", ")).into())
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = &arguments.kernel;
    let kernel =
        siteseer_kernels::cached(name).ok_or_else(|| format!("{name} is not in the cache: ci/kernel {name}"))?;
    if arguments.plant { planted(arguments, &kernel) } else { arm(arguments, &kernel) }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("armed: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
