// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Measures what siteseer costs beside what people would use instead, in one run: `ci/bench`.

use clap::Parser;
use object::{Object, ObjectSection};
use siteseer_conformance::measure::bench::commands::{Pair, measure, words};
use siteseer_conformance::measure::bench::guest::Guest;
use siteseer_conformance::measure::bench::{Distribution, Figures, page};
use siteseer_conformance::measure::cost::{Figure, prototypes};
use siteseer_sites::Machine;
use siteseer_sites::file::SiteFile;
use siteseer_vmtest::Arch;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Measures siteseer beside pahole, perf and plain BPF.
#[derive(Parser)]
struct Arguments {
    /// A kernel's name and its folder: vmlinux with DWARF, and vmlinuz. May be given several times.
    #[arg(long, value_name = "NAME=FOLDER", required = true, value_parser = kernel)]
    kernel: Vec<Kernel>,
    /// The siteseer command (a release build).
    #[arg(long)]
    siteseer: PathBuf,
    /// The function that is looked up.
    #[arg(long, default_value = "__bpf_copy_key")]
    function: String,
    /// Runs of each command that count, after one that does not.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Leave out what takes a virtual machine.
    #[arg(long)]
    no_guest: bool,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write performance.md and its plots into this folder.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// A kernel to measure on.
#[derive(Clone)]
struct Kernel {
    name: String,
    folder: PathBuf,
}

fn kernel(text: &str) -> Result<Kernel, String> {
    let (name, folder) = text.split_once('=').ok_or("it is NAME=FOLDER")?;
    Ok(Kernel { name: name.to_owned(), folder: folder.into() })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let scratch = std::env::temp_dir().join(format!("siteseer-bench-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let measured = all_figures(&arguments, &scratch);
    fs::remove_dir_all(&scratch)?;
    let (figures, failures) = measured?;
    let text = page::page(&figures);
    print!("{text}");
    if let Some(path) = &arguments.json {
        fs::write(path, serde_json::to_vec_pretty(&figures)?)?;
    }
    if !failures.is_empty() {
        return Err(format!("not measured, and nothing documented:\n{}", failures.join("\n")).into());
    }
    if let Some(docs) = &arguments.docs {
        fs::create_dir_all(docs.join("performance"))?;
        fs::write(docs.join("performance.md"), text)?;
        for (name, plot) in figures.iter().flat_map(page::plots) {
            fs::write(docs.join("performance").join(name), plot)?;
        }
    }
    Ok(())
}

/// All commands first, which a busy machine would slow down; the time of virtual machines goes by instructions. With
/// the figures comes what failed and should not have: what else was measured is worth seeing.
fn all_figures(arguments: &Arguments, scratch: &Path) -> Result<(Vec<Figures>, Vec<String>), Box<dyn Error>> {
    let commands = arguments.kernel.iter().map(|kernel| commands(arguments, kernel, scratch));
    let mut all = commands.collect::<Result<Vec<Figures>, _>>()?;
    let mut failures = Vec::new();
    if !arguments.no_guest {
        // Their time is not that of this machine, which may run several.
        thread::scope(|scope| {
            let both = all.iter_mut().zip(&arguments.kernel);
            let guests: Vec<_> = both
                .map(|(figures, kernel)| (scope.spawn(move || guest(figures, kernel, scratch)), &kernel.name))
                .collect();
            for (guest, name) in guests {
                let failed = guest.join().unwrap_or_else(|_| vec!["a panic".to_owned()]);
                failures.extend(failed.into_iter().map(|failure| format!("{name}: {failure}")));
            }
        });
    }
    Ok((all, failures))
}

/// What is measured on this machine.
fn commands(arguments: &Arguments, kernel: &Kernel, scratch: &Path) -> Result<Figures, Box<dyn Error>> {
    let (siteseer, function) = (&arguments.siteseer, &arguments.function);
    let vmlinux = &kernel.folder.join("vmlinux");
    let (sites, btf) = (encoded(scratch, kernel), scratch.join("vmlinux.btf"));
    let census = Command::new(siteseer).arg("encode").arg(vmlinux).arg("-o").arg(&sites).arg("--json").output()?;
    if !census.status.success() {
        return Err(String::from_utf8_lossy(&census.stderr).into_owned().into());
    }
    let census: serde_json::Value = serde_json::from_slice(&census.stdout)?;
    let data = fs::read(&sites)?;
    let file = SiteFile::parse(&data)?;
    let sizes = file.sizes();
    let prototypes = Distribution::of(prototypes::census(&file)?);

    let mut probe = function.clone();
    for name in parameters(siteseer, &sites, function)? {
        probe.push(' ');
        probe.push_str(&name);
    }
    let perf = words(&[&"perf", &"probe", &"-k", vmlinux, &"-D", &probe]);
    let detached = OsString::from(format!("--btf_encode_detached={}", btf.display()));
    let complete = ["env", "SITESEER_COMPLETE=bash", "_CLAP_COMPLETE_INDEX=4", "_CLAP_COMPLETE_COMP_TYPE=9"];
    let complete: Vec<OsString> = complete.iter().map(OsString::from).collect();
    let pairs = [
        Pair {
            job: "encode: DWARF to site data, beside DWARF to BTF",
            ours: words(&[siteseer, &"encode", vmlinux, &"-o", &sites]),
            theirs_name: "pahole -J -j2",
            theirs: words(&[&"pahole", &"-J", &"-j2", &detached, vmlinux]),
        },
        Pair {
            job: "look up one function in the encoded file",
            ours: words(&[siteseer, &"sites", function, &"--sites", &sites]),
            theirs_name: "perf probe -D",
            theirs: perf.clone(),
        },
        Pair {
            job: "look up one function straight from DWARF",
            ours: words(&[siteseer, &"sites", function, &"--vmlinux", vmlinux]),
            theirs_name: "perf probe -D",
            theirs: perf,
        },
        Pair {
            job: "list the functions of a pattern (vfs_*)",
            ours: words(&[siteseer, &"list", &"vfs_*", &"--sites", &sites]),
            theirs_name: "perf probe -F",
            theirs: words(&[&"perf", &"probe", &"-k", vmlinux, &"-F", &"vfs_*"]),
        },
        Pair {
            job: "complete a function's name (vfs_re), as a shell asks",
            ours: [complete, words(&[siteseer, &"--", &"siteseer", &"list", &"--sites", &sites, &"vfs_re"])].concat(),
            theirs_name: "perf probe -F",
            theirs: words(&[&"perf", &"probe", &"-k", vmlinux, &"-F", &"vfs_re*"]),
        },
    ];
    let (mut commands, mut notes) = (Vec::new(), Vec::new());
    for pair in &pairs {
        match measure(pair, arguments.runs)? {
            Ok(compared) => commands.push(compared),
            Err(why) => notes.push(Figure::Note(format!("{}: {why}", pair.job))),
        }
    }
    Ok(Figures {
        kernel: kernel.name.clone(),
        arch: arch(&file).debian().to_owned(),
        census,
        image: fs::metadata(vmlinux)?.len(),
        dwarf: dwarf_size(vmlinux)?,
        bytes: (sizes.inline as u64, sizes.ext as u64),
        commands,
        prototypes,
        startup: BTreeMap::new(),
        starts: Vec::new(),
        guest: notes,
    })
}

/// Bytes of an image's debug information.
fn dwarf_size(vmlinux: &Path) -> Result<u64, Box<dyn Error>> {
    let file = object::ReadCache::new(fs::File::open(vmlinux)?);
    let elf = object::File::parse(&file)?;
    let sections = elf.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
    Ok(sections.map(|section| section.file_range().map_or(0, |(_, size)| size)).sum())
}

/// Where the kernel's site data is.
fn encoded(scratch: &Path, kernel: &Kernel) -> PathBuf {
    scratch.join(format!("{}.sites", kernel.name))
}

fn arch(file: &SiteFile<'_>) -> Arch {
    match file.machine() {
        Machine::X86_64 => Arch::X86_64,
        Machine::Aarch64 => Arch::Arm64,
    }
}

/// What is measured in a virtual machine. What fails leaves the rest, and is returned.
fn guest(figures: &mut Figures, kernel: &Kernel, scratch: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    if let Err(why) = measure_in_guest(figures, kernel, scratch, &mut failures) {
        failures.push(why.to_string());
    }
    failures
}

fn measure_in_guest(
    figures: &mut Figures,
    kernel: &Kernel,
    scratch: &Path,
    failures: &mut Vec<String>,
) -> Result<(), Box<dyn Error>> {
    let (sites, vmlinuz) = (encoded(scratch, kernel), kernel.folder.join("vmlinuz"));
    let data = fs::read(&sites)?;
    let file = SiteFile::parse(&data)?;
    let build_id: String = file.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = Guest { vmlinuz: &vmlinuz, arch: arch(&file), sites: &sites, build_id: &build_id };
    match machine.hits() {
        Ok(measured) => figures.guest.extend(measured),
        Err(why) => failures.push(format!("hits: {why}")),
    }
    match machine.attaching() {
        Ok(measured) => figures.guest.extend(measured),
        Err(why) => failures.push(format!("programs and attaching: {why}")),
    }
    match machine.startup() {
        Ok(steps) => figures.startup = steps,
        Err(why) => failures.push(format!("start to first event: {why}")),
    }
    match machine.starts() {
        Ok(starts) => figures.starts = starts,
        Err(why) => failures.push(format!("starts beside plain libbpf: {why}")),
    }
    Ok(())
}

/// The names of a function's parameters, which perf must be told: of those that have a location at each site, as perf
/// takes no others.
fn parameters(siteseer: &Path, sites: &Path, function: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let output = Command::new(siteseer).arg("sites").arg(function).arg("--sites").arg(sites).arg("--json").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let mut located: BTreeMap<&str, bool> = BTreeMap::new();
    let listed = json["sites"].as_array().into_iter().flatten();
    for argument in listed.filter_map(|site| site["arguments"].as_array()).flatten() {
        if let Some(name) = argument["name"].as_str() {
            *located.entry(name).or_insert(true) &= argument["location"].is_string();
        }
    }
    Ok(located.into_iter().filter(|&(_, everywhere)| everywhere).map(|(name, _)| name.to_owned()).collect())
}
