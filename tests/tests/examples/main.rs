// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The examples, installed, built and run as a user would.
//!
//! The tool and the library are installed into a folder by `make install`, once for the system's libbpf and once with
//! the vendored one. Against each, the C examples are built by their own Makefiles, and the program of README.md is
//! taken out of the page and built by the commands that stand beside it ([`build`]). Then each kernel of
//! `SITESEER_KERNELS` that is Debian's and of this machine's architecture boots once, with all of the programs, and
//! every example is a test ([`siteseer_conformance::guest::examples`] makes the calls and compares). So is every loader
//! of what `siteseer compile` makes of opensnoop ([`loaders`]). [`installed`] looks at what was installed, and removes
//! it.
//!
//! On the reference kernel the outputs are those of docs/before-and-after.md, which is written again if
//! SITESEER_UPDATE_DOCS is set ([`page`]).

mod build;
mod installed;
mod loaders;
mod page;
mod two_libbpfs;

use build::Built;
use libtest_mimic::{Arguments, Failed, Trial};
use siteseer_conformance::guest::examples::{BY_LIBBPF, FOLDER, LOADERS, Verdict, names};
use siteseer_conformance::guest::extent::{Extent, is_booted};
use siteseer_kernels::{DEBIAN, REFERENCE};
use siteseer_sites::with_causes;
use siteseer_vmtest::{Arch, Vm, build_guest};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How many calls of fsync() and the like come by inlined copies there.
const FSYNCS: &str = "4 measured, 5 by inlined copies";
/// Emulated machines are slow, and so are loaded ones; a guest that hangs is stopped then.
const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// A kernel that boots when the first of its tests runs.
struct Boot {
    kernel: String,
    run: OnceLock<Run>,
}

impl Boot {
    fn run(&self) -> &Run {
        self.run.get_or_init(|| boot(&self.kernel))
    }
}

/// What one boot brought back.
struct Run {
    verdicts: BTreeMap<String, Verdict>,
    failure: Option<String>,
}

/// The programs, built when the first test runs.
static BUILT: OnceLock<Result<Built, String>> = OnceLock::new();

fn built() -> Result<&'static Built, String> {
    BUILT.get_or_init(build::build).as_ref().map_err(Clone::clone)
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let chosen = siteseer_kernels::chosen().map_err(|error| with_causes(&error));
    let (chosen, extent) = match chosen.and_then(|chosen| Ok((chosen, Extent::chosen()?))) {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    // The examples ask for all calls, which the debug information of clang's kernels does not let them have: it lacks
    // arguments of some copies, and what is printed is a refusal that names these.
    //
    // C programs for another architecture would take a system's libraries for it.
    let host = Arch::host().map(|arch| arch.to_string()).unwrap_or_default();
    let is_fit = |name: &str| name.ends_with(&host) && name.starts_with(DEBIAN);
    let fit = chosen.into_iter().filter(|name| is_fit(name) && is_booted(name, extent));
    let boots: Vec<Arc<Boot>> = fit.map(|kernel| Arc::new(Boot { kernel, run: OnceLock::new() })).collect();
    // Example by example rather than kernel by kernel: the threads of the test program then boot different kernels.
    let mut trials = Vec::new();
    for name in names().into_iter().chain(loaders::CHECKS.map(str::to_owned)) {
        for boot in &boots {
            let (boot, name) = (boot.clone(), name.clone());
            trials.push(Trial::test(format!("{}::{name}", boot.kernel), move || {
                verdict(&boot.kernel, boot.run(), &name)
            }));
        }
    }
    for boot in boots {
        let same = boot.clone();
        trials.push(Trial::test(format!("{}::the_kernel_does_not_complain", boot.kernel), move || {
            same.run().failure.clone().map_or(Ok(()), |why| Err(Failed::from(why)))
        }));
        if boot.kernel == REFERENCE {
            trials.push(Trial::test(format!("{REFERENCE}::the_page_is_what_is_printed"), move || {
                page::check(&boot.run().verdicts, built()?).map_err(Failed::from)
            }));
        }
    }
    trials.push(Trial::test("installed::by_make", || built().and_then(installed::uninstall).map_err(Failed::from)));
    trials.push(Trial::test("installed::beside_another_libbpf", || {
        built().and_then(two_libbpfs::refused).map_err(Failed::from)
    }));
    trials.push(Trial::test("installed::as_debian_packages", || {
        built().and_then(installed::packages).map_err(Failed::from)
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn verdict(kernel: &str, run: &Run, name: &str) -> Result<(), Failed> {
    let none = || run.failure.clone().unwrap_or_else(|| "the guest said nothing of this example".to_owned());
    let verdict = run.verdicts.get(name).ok_or_else(none)?;
    if let Some(why) = &verdict.failure {
        return Err(why.clone().into());
    }
    let printed: String = verdict.printed.iter().map(|(_, text)| text.as_str()).collect();
    if kernel == REFERENCE && name.starts_with("fsynclat") && !printed.contains(FSYNCS) {
        return Err(format!("expected {FSYNCS:?} on this kernel:\n{printed}").into());
    }
    Ok(())
}

fn boot(kernel: &str) -> Run {
    try_boot(kernel).unwrap_or_else(|why| Run { verdicts: BTreeMap::new(), failure: Some(why) })
}

fn try_boot(kernel: &str) -> Result<Run, String> {
    let built = built()?;
    let paths = siteseer_kernels::cached(kernel)
        .ok_or_else(|| format!("kernel {kernel} has not been fetched: run ci/kernel {kernel}"))?;
    let sites = built.encode(&paths.vmlinux, &paths.record.build_id)?;
    let guest = build_guest("siteseer-conformance", "siteseer-guest", "guest").map_err(|error| with_causes(&error))?;
    let mut vm = Vm::new(paths.record.arch, &paths.vmlinuz)
        .init(&guest)
        .arg("examples")
        .args(names())
        .args(LOADERS.into_iter().chain(BY_LIBBPF))
        .file(&sites, format!("/var/cache/siteseer/{}.sites", paths.record.build_id))
        .memory(2048)
        .time_limit(TIME_LIMIT);
    for (name, program) in &built.programs {
        vm = vm.file(program, format!("{FOLDER}/{name}"));
    }
    for (file, place) in loaders::files(built, &paths, &sites)? {
        vm = vm.file(&file, place);
    }
    if std::env::var_os("SITESEER_CONSOLE").is_some() {
        vm = vm.console(std::io::stderr());
    }
    let outcome = vm.run().map_err(|error| with_causes(&error))?;
    let verdicts: BTreeMap<String, Verdict> = outcome
        .result_lines()
        .iter()
        .filter_map(|line| serde_json::from_str::<Verdict>(line).ok())
        .map(|verdict| (verdict.name.clone(), verdict))
        .collect();
    for verdict in verdicts.values() {
        for (command, text) in &verdict.printed {
            println!("\n{kernel}, {}: {command}\n{text}", verdict.name);
        }
    }
    let failure = (!outcome.success()).then(|| {
        let splats: Vec<String> = outcome.splats.iter().map(|splat| format!("{splat:?}")).collect();
        format!("the guest ended with {:?}\n{}\n{}", outcome.exit_status, splats.join("\n"), outcome.console)
    });
    Ok(Run { verdicts, failure })
}
