// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The host's half of `ci/compared`: encodes a kernel, boots it with the tools, and writes the page.

use clap::Parser;
use siteseer_conformance::compare::compared::cost::{BUSY, WAYS};
use siteseer_conformance::compare::compared::page::{Measured, Versions, page};
use siteseer_conformance::compare::compared::wishes::{Probe, WISHES};
use siteseer_conformance::compare::compared::{FOLDER, ORDERS, Printed, Round, Tool, libraries};
use siteseer_kernels::buildroot::{self, BuildRoot, Mount};
use siteseer_sites::with_causes;
use siteseer_vmtest::{Arch, Vm, build_guest};
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Compares siteseer with bpftrace, perf and retsnoop on a booted kernel.
#[derive(Parser)]
struct Arguments {
    /// A kernel of kernels/matrix.toml for x86-64 that has been fetched
    #[arg(long, value_name = "NAME", default_value = "deb-7.3-x86_64")]
    kernel: String,
    /// A static retsnoop, which is run too
    #[arg(long, value_name = "BINARY")]
    retsnoop: Option<PathBuf>,
    /// Write the page here, instead of printing it
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// Also write what every command printed, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the guests need.
struct Machine {
    folder: PathBuf,
    build_id: String,
    root: BuildRoot,
    siteseer: PathBuf,
    guest: PathBuf,
    retsnoop: Option<PathBuf>,
    scratch: tempfile::TempDir,
}

/// Where the build root sees the kernel's folder.
const INSIDE: &str = "/build/kernel";

impl Machine {
    fn sites(&self) -> PathBuf {
        self.scratch.path().join("vmlinux.sites")
    }

    /// Has a program of the build root print something.
    fn ask(&self, program: &[&str]) -> Result<String, Box<dyn Error>> {
        let mounts = [Mount::read_only(&self.folder, INSIDE)];
        let program: Vec<&OsStr> = program.iter().map(OsStr::new).collect();
        let output = self.root.command(&mounts, &[], &program).output()?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into())
        }
    }

    /// The probes that perf makes of a definition. If it makes none, the guest has none, and the page says what perf
    /// printed there.
    fn probes(&self, definition: &str) -> Vec<String> {
        match self.ask(&["perf", "probe", "-k", &format!("{INSIDE}/vmlinux"), "-D", definition]) {
            Ok(lines) => lines.lines().map(str::to_owned).collect(),
            Err(why) => {
                eprintln!("perf probe -D '{definition}': {why}");
                Vec::new()
            }
        }
    }

    /// Boots the kernel, and has it run everything.
    fn run(&self, rounds: &[Round], counts_instructions: bool) -> Result<Vec<Printed>, Box<dyn Error>> {
        let orders = self.scratch.path().join("orders.json");
        fs::write(&orders, serde_json::to_vec(rounds)?)?;
        let directory = self.root.directory();
        let mut vm = Vm::new(Arch::X86_64, &self.folder.join("vmlinuz"))
            .init(&self.guest)
            .arg("compared")
            .file(&orders, ORDERS)
            .file(&self.siteseer, format!("{FOLDER}/siteseer"))
            .file(&self.sites(), format!("/var/cache/siteseer/{}.sites", self.build_id))
            .memory(4096)
            .time_limit(Duration::from_secs(3600));
        for program in ["usr/bin/bpftrace", "usr/bin/perf"] {
            vm = vm.file(&directory.join(program), format!("/{program}"));
        }
        for library in libraries::needed(directory, &["usr/bin/bpftrace", "usr/bin/perf"])? {
            // /lib64 is a link to usr/lib64, and a guest has no links.
            let place = library.strip_prefix("usr/lib64/").map(|name| format!("/lib64/{name}"));
            vm = vm.file(&directory.join(&library), place.unwrap_or_else(|| format!("/{library}")));
        }
        if let Some(retsnoop) = &self.retsnoop {
            vm = vm.file(retsnoop, format!("{FOLDER}/retsnoop"));
        }
        let vm = vm.on_results(|piece| eprint!("{}", ".".repeat(piece.iter().filter(|&&byte| byte == b'\n').count())));
        // With one CPU nothing else runs while calls are made.
        let outcome = if counts_instructions { vm.cpus(1).count_instructions() } else { vm }.run()?;
        eprintln!();
        if !outcome.success() {
            return Err(
                format!("the guest ended with {:?}; its console:\n{}", outcome.exit_status, outcome.console).into()
            );
        }
        outcome.result_lines().iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// What the tools' `--version` says.
    fn versions(&self, kernel: String) -> Result<Versions, Box<dyn Error>> {
        let own = |program: &Path| -> Result<String, Box<dyn Error>> {
            let output = Command::new(program).arg("--version").output()?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let mut tools =
            vec![own(&self.siteseer)?, self.ask(&["bpftrace", "--version"])?, self.ask(&["perf", "--version"])?];
        tools.extend(self.retsnoop.as_deref().map(own).transpose()?);
        Ok(Versions { kernel, tools })
    }
}

/// Runs all rounds, and those that missed something once more: the kernel skips a program that it has interrupted, now
/// and then.
fn best(machine: &Machine, rounds: &[Round]) -> Result<Vec<Printed>, Box<dyn Error>> {
    let seen = |printed: &Printed| {
        let of = WISHES.get(printed.wish).zip(printed.tool);
        of.map(|(wish, tool)| (wish.seen(tool).count(&printed.output), wish.made))
    };
    let mut first = machine.run(rounds, false)?;
    let missed = |printed: &Printed| seen(printed).is_some_and(|(seen, made)| seen < made);
    let again = rounds.iter().zip(&first).filter(|(_, printed)| missed(printed)).map(|(round, _)| round.clone());
    for printed in machine.run(&again.collect::<Vec<Round>>(), false)? {
        let of = first.iter_mut().find(|known| known.wish == printed.wish && known.tool == printed.tool);
        if let Some(known) = of.filter(|known| seen(known) < seen(&printed)) {
            *known = printed;
        }
    }
    Ok(first)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = &arguments.kernel;
    let paths = siteseer_kernels::cached(name)
        .ok_or_else(|| format!("kernel {name} has not been fetched: run ci/kernel {name}"))?;
    let machine = Machine {
        folder: paths.vmlinux.parent().ok_or("the kernel has no folder")?.to_owned(),
        build_id: paths.record.build_id.clone(),
        root: BuildRoot::get(buildroot::workspace_rows()?.row("tracers")?, false, |line| eprintln!("{line}"))?,
        siteseer: build_guest("siteseer-cli", "siteseer", "release")?,
        guest: build_guest("siteseer-conformance", "siteseer-guest", "release")?,
        retsnoop: arguments.retsnoop.clone(),
        scratch: tempfile::tempdir()?,
    };
    let encoded = Command::new(&machine.siteseer)
        .args(["encode", "--ranges", "--lines", "-o"])
        .args([&machine.sites(), &paths.vmlinux])
        .output()?;
    if !encoded.status.success() {
        return Err(String::from_utf8_lossy(&encoded.stderr).into_owned().into());
    }

    let mut rounds = Vec::new();
    for (nth, wish) in WISHES.iter().enumerate() {
        for tool in Tool::ALL {
            if tool == Tool::Retsnoop && arguments.retsnoop.is_none() {
                continue;
            }
            let probes = match (tool, wish.perf.probe) {
                (Tool::Perf, Probe::Dwarf(definition)) => machine.probes(definition),
                _ => Vec::new(),
            };
            rounds.push(wish.round(nth, tool, probes));
        }
    }
    let mut costs = Vec::new();
    for (nth, busy) in BUSY.iter().enumerate() {
        let probes = machine.probes(busy.function);
        costs.extend(WAYS.iter().map(|way| way.round(nth, busy, &probes)));
    }
    let versions = machine.versions(format!("{} ({name})", paths.record.release))?;
    let wishes = best(&machine, &rounds)?;
    let measured = Measured { wishes, costs: machine.run(&costs, true)? };
    if let Some(json) = &arguments.json {
        fs::write(json, serde_json::to_vec_pretty(&measured)?)?;
    }
    let text = page(&versions, &measured);
    match &arguments.docs {
        Some(path) => fs::write(path, text)?,
        None => print!("{text}"),
    }
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compared: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}
