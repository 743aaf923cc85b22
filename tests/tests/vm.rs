// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Boots each kernel once and shows every case inside as a test of its own.
//!
//! The first test of a kernel that runs boots it, with all the cases that were asked for; the others take their verdict from
//! that run. A machine without QEMU, or a kernel that was not fetched (`ci/kernel NAME`), fails the tests with a sentence that
//! says what to do.

use libtest_mimic::{Arguments, Failed, Trial};
use siteseer_conformance::case::{Verdict, cases};
use siteseer_sites::file;
use siteseer_vmtest::{Arch, Vm, build_guest, kernels};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The kernels that are tested: rows of kernels/matrix.toml.
const KERNELS: [&str; 1] = ["deb-7.3-x86_64"];
/// Emulated machines are slow, and so are loaded ones; a guest that hangs is stopped then.
const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// What one boot brought back.
struct Run {
    verdicts: BTreeMap<String, Verdict>,
    /// What went wrong with the run as a whole.
    failure: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for kernel in KERNELS {
        let run: Arc<OnceLock<Run>> = Arc::default();
        let selected: Arc<Vec<String>> = Arc::new(selection(&arguments, kernel));
        for case in cases() {
            let (run, selected) = (run.clone(), selected.clone());
            let name = case.name.clone();
            trials.push(Trial::test(format!("{kernel}::{}", case.name), move || {
                let run = run.get_or_init(|| boot(kernel, &selected));
                verdict(run, &name)
            }));
        }
        let (run, selected) = (run.clone(), selected.clone());
        // The run itself is a test: splats, a crash of the guest's program, or a kernel that does not boot.
        trials.push(Trial::test(format!("{kernel}::the_kernel_does_not_complain"), move || {
            let run = run.get_or_init(|| boot(kernel, &selected));
            run.failure.clone().map_or(Ok(()), |why| Err(Failed::from(why)))
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The cases of a kernel that the command line's filters leave.
fn selection(arguments: &Arguments, kernel: &str) -> Vec<String> {
    let names = cases().into_iter().map(|case| case.name);
    names
        .filter(|name| {
            let full = format!("{kernel}::{name}");
            let hit = |filter: &String| if arguments.exact { full == *filter } else { full.contains(filter.as_str()) };
            arguments.filter.as_ref().is_none_or(hit) && !arguments.skip.iter().any(hit)
        })
        .collect()
}

fn verdict(run: &Run, name: &str) -> Result<(), Failed> {
    match run.verdicts.get(name) {
        Some(verdict) if verdict.passed => Ok(()),
        Some(verdict) => Err(verdict.detail.clone().into()),
        None => Err(run.failure.clone().unwrap_or_else(|| "the guest said nothing of this case".to_owned()).into()),
    }
}

fn boot(kernel: &str, selected: &[String]) -> Run {
    let failed = |failure: String| Run { verdicts: BTreeMap::new(), failure: Some(failure) };
    let Some(paths) = kernels::cached(kernel) else {
        return failed(format!("kernel {kernel} has not been fetched: run ci/kernel {kernel}"));
    };
    let sites = match site_file(&paths.vmlinux) {
        Ok(sites) => sites,
        Err(why) => return failed(format!("site data of {kernel}: {why}")),
    };
    let guest = match build_guest("siteseer-conformance", "siteseer-guest", "release") {
        Ok(guest) => guest,
        Err(why) => return failed(why.to_string()),
    };
    let id = sites.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut vm = Vm::new(Arch::X86_64, &paths.vmlinuz)
        .init(&guest)
        .arg("test")
        .args(selected.iter().cloned())
        .file(&sites, format!("/var/cache/siteseer/{id}"))
        .memory(2048)
        .cpus(2)
        .time_limit(TIME_LIMIT);
    if std::env::var_os("SITESEER_CONSOLE").is_some() {
        vm = vm.console(std::io::stderr());
    }
    match vm.run() {
        Ok(outcome) => {
            let lines = outcome.result_lines();
            let verdicts: BTreeMap<String, Verdict> = lines
                .iter()
                .filter_map(|line| serde_json::from_str::<Verdict>(line).ok())
                .map(|verdict| (verdict.name.clone(), verdict))
                .collect();
            print_table(kernel, &verdicts);
            let failure = (!outcome.success()).then(|| {
                let splats: Vec<String> = outcome.splats.iter().map(|splat| format!("{splat:?}")).collect();
                format!(
                    "the guest ended with {:?}\n{}\n{}",
                    outcome.exit_status,
                    splats.join("\n"),
                    tail(&outcome.console)
                )
            });
            Run { verdicts, failure }
        }
        Err(error) => failed(error.to_string()),
    }
}

/// The end of the console.
fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// The ground truth of a run, a line a function.
fn print_table(kernel: &str, verdicts: &BTreeMap<String, Verdict>) {
    println!("\nGround truth on {kernel}:");
    for verdict in verdicts.values().filter(|verdict| verdict.passed && verdict.name.starts_with("truth::")) {
        println!("  {}", verdict.detail);
    }
    println!();
}

/// The encoded site data of an image, made anew if the image or the format changed since.
fn site_file(vmlinux: &Path) -> Result<PathBuf, String> {
    let image = std::fs::read(vmlinux).map_err(|error| format!("{}: {error}", vmlinux.display()))?;
    let (set, _) = siteseer_encoder::encode(&image, &siteseer_encoder::Options::default())
        .map_err(|error| format!("{}: {error}", vmlinux.display()))?;
    let bytes = file::write(&set).map_err(|error| error.to_string())?;
    let id: String = set.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{id}.sites"));
    std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
