// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What `siteseer compile` makes, loaded and attached by other loaders: the examples with aya and with cilium/ebpf, and libbpf
//! without siteseer, see the same calls, with the same arguments: all that are made.
//!
//! The object of examples/opensnoop is compiled for each of Debian's x86-64 kernels in `SITESEER_KERNELS`, which boots once with both programs. The
//! guest's half makes the calls and compares (`siteseer_conformance::examples`).

use libtest_mimic::{Arguments, Failed, Trial};
use siteseer_bpf_progs::compile;
use siteseer_kernels::DEBIAN;
use siteseer_sites::with_causes;
use siteseer_vmtest::{Vm, build_go, build_guest_for};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Emulated machines are slow, and so are loaded ones.
const TIME_LIMIT: Duration = Duration::from_secs(1200);
/// Of one loader: it sees all calls; it refuses what does not fit.
const CHECKS: [&str; 6] = [
    // Proves S25.2.
    "opensnoop-libbpf",
    "whole-libbpf",
    "opensnoop-aya",
    // Proves S25.5.
    "opensnoop-aya-refuses",
    "opensnoop-cilium",
    "opensnoop-cilium-refuses",
];

/// A kernel that boots when the first of its tests runs.
struct Boot {
    kernel: String,
    run: OnceLock<Result<BTreeMap<String, Option<String>>, String>>,
}

fn words<E: std::error::Error + 'static>(error: E) -> String {
    with_causes(&error)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("loaders")
}

/// The objects, by name: that of examples/opensnoop, and tests/programs/whole.bpf.c. They are the same for all kernels.
fn objects() -> Result<[(&'static str, PathBuf); 2], String> {
    static OBJECTS: OnceLock<Result<[(&'static str, PathBuf); 2], String>> = OnceLock::new();
    let make = || {
        let include = folder().join("include");
        fs::create_dir_all(&include).map_err(words)?;
        // All that the program wants of the kernel's types.
        fs::write(include.join("vmlinux.h"), "#include \"kernel.h\"\n").map_err(words)?;
        let examples = root().join("examples");
        let (types, own) = (examples.join("capsnoop/src"), root().join("loader/include"));
        let includes = [Path::new(siteseer_bpf_progs::LIBBPF_INCLUDE), &include, &types, &own];
        let sources = [
            ("compiled", examples.join("opensnoop/opensnoop.bpf.c")),
            ("whole", root().join("cli/tests/programs/whole.bpf.c")),
        ];
        let clang = compile::clang()?;
        let make = |(name, source): &(&'static str, PathBuf)| -> Result<(&'static str, PathBuf), String> {
            let object = folder().join(format!("{name}.bpf.o"));
            // The programs read no registers: they are the same for all architectures.
            compile::compile(&clang, source, &object, "x86", &includes, name)?;
            Ok((*name, object))
        };
        let [one, other] = &sources;
        Ok([make(one)?, make(other)?])
    };
    OBJECTS.get_or_init(make).clone()
}

/// Runs the tool.
fn siteseer(arguments: &[&OsStr]) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siteseer"));
    let output = command.args(arguments).output().map_err(words)?;
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {output:?}")) }
}

/// Compiles the objects for a kernel; they and their manifests, each with its place in the guest. One is compiled by site data, which
/// knows all symbols, so that places are counted from the symbols that hold them; the other by the image, where they are counted from
/// _stext.
fn compile_for(kernel: &str, vmlinux: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    fs::create_dir_all(folder()).map_err(words)?;
    let sites = folder().join(format!("{kernel}.sites"));
    siteseer(&["encode".as_ref(), vmlinux.as_ref(), "-o".as_ref(), sites.as_ref()])?;
    let mut files = Vec::new();
    for ((name, object), (option, about)) in objects()?.into_iter().zip([("--sites", &*sites), ("--vmlinux", vmlinux)])
    {
        let compiled = folder().join(format!("{kernel}-{name}.bpf.o"));
        // aya gives kprobes no cookies.
        let options: [&OsStr; 4] = ["compile".as_ref(), "--no-cookies".as_ref(), option.as_ref(), about.as_ref()];
        siteseer(&[&options[..], &[object.as_ref(), "-o".as_ref(), compiled.as_ref()]].concat())?;
        let manifest = folder().join(format!("{kernel}-{name}.bpf.o.json"));
        let text = fs::read_to_string(&manifest).map_err(words)?;
        if text.contains("_stext") != (option == "--vmlinux") {
            return Err(format!("{option}: places are counted from other symbols than expected:\n{text}"));
        }
        files.extend([
            (compiled, format!("/examples/{name}.bpf.o")),
            (manifest, format!("/examples/{name}.bpf.o.json")),
        ]);
    }
    Ok(files)
}

fn boot(kernel: &str) -> Result<BTreeMap<String, Option<String>>, String> {
    let paths = siteseer_kernels::cached(kernel)
        .ok_or_else(|| format!("kernel {kernel} is not there: run ci/kernel {kernel}"))?;
    let arch = paths.record.arch;
    let files = compile_for(kernel, &paths.vmlinux)?;
    let guest = build_guest_for(arch, "siteseer-conformance", "siteseer-guest", "release").map_err(words)?;
    let aya = build_guest_for(arch, "siteseer-example-aya", "opensnoop-aya", "release").map_err(words)?;
    let cilium = build_go(arch, Path::new("examples/cilium")).map_err(words)?;
    let mut vm = Vm::new(arch, &paths.vmlinuz)
        .init(&guest)
        .args(["examples", "opensnoop-libbpf", "whole-libbpf", "opensnoop-aya", "opensnoop-cilium"])
        .file(&aya, "/examples/opensnoop-aya")
        .file(&cilium, "/examples/opensnoop-cilium")
        .memory(2048)
        .time_limit(TIME_LIMIT);
    for (file, place) in &files {
        vm = vm.file(file, place);
    }
    if env::var_os("SITESEER_CONSOLE").is_some() {
        vm = vm.console(std::io::stderr());
    }
    let outcome = vm.run().map_err(words)?;
    let mut verdicts = BTreeMap::new();
    for line in outcome.result_lines() {
        let verdict: serde_json::Value = serde_json::from_str(&line).map_err(words)?;
        println!("\n{kernel}, {}: {}", verdict["name"], verdict["printed"]);
        let name = verdict["name"].as_str().unwrap_or_default().to_owned();
        verdicts.insert(name, verdict["failure"].as_str().map(str::to_owned));
    }
    if outcome.success() {
        Ok(verdicts)
    } else {
        Err(format!("the guest ended with {:?}\n{:?}\n{}", outcome.exit_status, outcome.splats, outcome.console))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let chosen = match siteseer_kernels::chosen() {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("{}", with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    // The debug information of clang's kernels does not have all arguments, and opensnoop asks for all calls. The
    // loaders' examples are not built for arm64.
    let can_run = |name: &str| name.starts_with(DEBIAN) && name.ends_with("-x86_64");
    let mut trials = Vec::new();
    for kernel in chosen.into_iter().filter(|name| can_run(name)) {
        let boot_it = Arc::new(Boot { kernel: kernel.clone(), run: OnceLock::new() });
        for check in CHECKS {
            let boot_it = boot_it.clone();
            trials.push(Trial::test(format!("{kernel}::{check}"), move || {
                let run = boot_it.run.get_or_init(|| boot(&boot_it.kernel));
                match run.as_ref().map_err(|why| Failed::from(why.clone()))?.get(check) {
                    Some(None) => Ok(()),
                    Some(Some(why)) => Err(why.clone().into()),
                    None => Err("the guest said nothing of it".into()),
                }
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
