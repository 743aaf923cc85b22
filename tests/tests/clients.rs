// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A part of ci/clients: a few of libbpf-tools on each kernel, without siteseer and with it, on the same calls. None
//! sees less with siteseer, and those on functions with copies see what tests/clients/tools.toml says that is called.
//!
//! Each of `SITESEER_KERNELS` that is Debian's and for x86-64, as the tools are, boots once. Each tool is a test.

use libtest_mimic::{Arguments, Failed, Trial};
use siteseer_conformance::compare::clients::judge::{Verdict, judge};
use siteseer_conformance::compare::clients::prepare::{Prepared, prepare};
use siteseer_conformance::compare::clients::{Linking, boot};
use siteseer_conformance::guest::extent::{Extent, is_booted};
use siteseer_conformance::install::make;
use siteseer_kernels::DEBIAN;
use siteseer_sites::{file, with_causes};
use siteseer_vmtest::{Arch, build_guest};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Rows of tests/clients/tools.toml, or names of tools.
const TOOLS: [&str; 7] = [
    // fentry programs; one of their functions has copies.
    "vfsstat",
    // fentry and fexit programs on the same functions.
    "readahead",
    "klockstat",
    // The same, on a function that is called at its copies only.
    "funclatency vfs_fchmod",
    // Asks what can be attached to.
    "cachestat",
    // kprobes.
    "filelife",
    // Tracepoints, which siteseer does not touch.
    "opensnoop",
];
/// Emulated machines are slow, and so are loaded ones; a guest that hangs is stopped then.
const TIME_LIMIT: Duration = Duration::from_secs(1800);
/// How often a tool that seems to see less is looked at.
const ATTEMPTS: usize = 2;

/// A kernel that boots when the first of its tests runs.
struct Boot {
    kernel: String,
    verdicts: OnceLock<Result<Vec<Verdict>, String>>,
}

impl Boot {
    fn verdict(&self, tool: &str) -> Result<(), Failed> {
        let verdicts = self.verdicts.get_or_init(|| try_boot(&self.kernel)).as_ref().map_err(Failed::from)?;
        let verdict =
            verdicts.iter().find(|verdict| verdict.tool == tool).ok_or("the guest said nothing of this tool")?;
        let said: String = verdict.runs.iter().map(|run| format!("\n{:?}:\n{}", run.way, run.messages)).collect();
        match (verdict.starts(), &verdict.wrong[..]) {
            (true, []) => Ok(()),
            (false, []) => Err(format!("it does not start{said}").into()),
            (_, wrong) => Err(format!("{}{said}", wrong.join("\n")).into()),
        }
    }
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
    let is_fit = |name: &String| name.starts_with(DEBIAN) && name.ends_with(&Arch::X86_64.to_string());
    let fit = chosen
        .into_iter()
        .filter(is_fit)
        .filter(|kernel| is_booted(kernel, extent))
        .filter(|_| Arch::host() == Some(Arch::X86_64));
    let boots: Vec<Arc<Boot>> = fit.map(|kernel| Arc::new(Boot { kernel, verdicts: OnceLock::new() })).collect();
    // Tool by tool rather than kernel by kernel: the threads of the test program then boot different kernels.
    let mut trials = Vec::new();
    for tool in TOOLS {
        for boot in &boots {
            let boot = boot.clone();
            trials.push(Trial::test(format!("{}::{tool}", boot.kernel), move || boot.verdict(tool)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// What all kernels share.
struct Shared {
    guest: PathBuf,
    prepared: Prepared,
}

/// The tools, siteseer's library and the guest's program, when the first test runs.
fn shared() -> Result<&'static Shared, String> {
    static SHARED: OnceLock<Result<Shared, String>> = OnceLock::new();
    let make = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let installed = folder.join("installed");
        install(&installed)?;
        let guest = build_guest("siteseer-conformance", "siteseer-guest", "guest");
        let tools = TOOLS.map(str::to_owned);
        let prepared = prepare(&folder, &installed, &tools, &Linking::Static.ways());
        let prepared = prepared.map_err(|error| with_causes(&*error))?;
        if let Some((tool, why)) = prepared.unbuilt.first_key_value() {
            return Err(format!("{tool} cannot be built: {why}"));
        }
        Ok(Shared { guest: guest.map_err(|error| with_causes(&error))?, prepared })
    };
    SHARED.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// Installs siteseer's library.
fn install(prefix: &Path) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = make(&root, Path::new(env!("CARGO_TARGET_TMPDIR")));
    command.arg("install-library").arg(format!("PREFIX={}", prefix.display()));
    let output = command.output().map_err(|error| format!("make: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("make install-library: {}\n{said}", output.status)) }
}

fn try_boot(kernel: &str) -> Result<Vec<Verdict>, String> {
    let Shared { guest, prepared } = shared()?;
    let paths = siteseer_kernels::cached(kernel)
        .ok_or_else(|| format!("kernel {kernel} has not been fetched: run ci/kernel {kernel}"))?;
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", paths.vmlinux.display());
    let image = fs::read(&paths.vmlinux).map_err(|error| failed(&error))?;
    let (set, _) = siteseer_encoder::encode(&image, &Default::default()).map_err(|error| failed(&error))?;
    let sites = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clients/{kernel}.sites"));
    let bytes = file::write(&set).map_err(|error| failed(&error))?;
    fs::write(&sites, bytes).map_err(|error| format!("{}: {error}", sites.display()))?;
    let mut runs = Vec::new();
    let mut verdicts = Vec::new();
    for _ in 0..ATTEMPTS {
        let mut vm = boot::machine(&paths, guest, &sites, prepared).time_limit(TIME_LIMIT);
        if std::env::var_os("SITESEER_CONSOLE").is_some() {
            vm = vm.console(std::io::stderr());
        }
        runs.extend(boot::boot(vm).map_err(|error| with_causes(&*error))?);
        verdicts = judge(&runs, Linking::Static, &prepared.known);
        if verdicts.iter().all(|verdict| verdict.wrong.is_empty()) {
            break;
        }
    }
    println!("\nCalls seen on {kernel} without siteseer, and with it:");
    for verdict in &verdicts {
        let [before, after] = verdict.calls();
        println!("  {:24} {before} -> {after} {:?}", verdict.tool, verdict.gains);
    }
    Ok(verdicts)
}
