// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Measures siteseer beside the tools that people would use instead, on the same file, in one run.
//!
//! Every figure is of a whole process, from the operating system's own account of it (wait4): wall time, CPU time,
//! peak memory. Commands of a pair run in turn, A B A B, so that a machine whose speed drifts does not favour one;
//! what is printed is the median and the range, and the median of the ratios pair by pair. Nothing is
//! asserted here.

use clap::Parser;
use siteseer_sites::file::SiteFile;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// Measures siteseer beside pahole and perf.
#[derive(Parser)]
struct Arguments {
    /// The kernel image with DWARF.
    #[arg(long)]
    vmlinux: PathBuf,
    /// The siteseer command (a release build).
    #[arg(long)]
    siteseer: PathBuf,
    /// The function that is looked up.
    #[arg(long, default_value = "__bpf_copy_key")]
    function: String,
    /// Runs of each command that count, after one that does not.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One run of a command.
struct Run {
    wall: f64,
    cpu: f64,
    peak_mib: f64,
}

/// Runs a command to its end with its output thrown away.
fn run(argv: &[OsString]) -> Result<Run, Box<dyn Error>> {
    let text = || argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let begin = Instant::now();
    let child = Command::new(&argv[0])
        .args(&argv[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", text()))?;
    let mut status = 0;
    // SAFETY: rusage is plain data, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: The pointers are to live values of the right types; the child is ours and not yet waited for.
    let pid = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    let wall = begin.elapsed().as_secs_f64();
    if pid < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let status = ExitStatus::from_raw(status);
    if !status.success() {
        return Err(format!("{}: {status}", text()).into());
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    Ok(Run { wall, cpu, peak_mib: usage.ru_maxrss as f64 / 1024.0 })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Two commands for one job.
struct Pair {
    job: &'static str,
    ours: Vec<OsString>,
    theirs_name: &'static str,
    theirs: Vec<OsString>,
}

fn words(list: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    list.iter().map(|word| AsRef::<OsStr>::as_ref(*word).to_owned()).collect()
}

fn seconds(value: f64) -> String {
    if value < 0.1 { format!("{:.2} ms", value * 1000.0) } else { format!("{value:.2} s") }
}

fn measure(pair: &Pair, runs: usize) -> Result<serde_json::Value, Box<dyn Error>> {
    run(&pair.ours)?;
    run(&pair.theirs)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        ours.push(run(&pair.ours)?);
        theirs.push(run(&pair.theirs)?);
    }
    let figures = |list: &[Run]| {
        let walls: Vec<f64> = list.iter().map(|run| run.wall).collect();
        let peak = list.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
        let low = walls.iter().copied().fold(f64::INFINITY, f64::min);
        let high = walls.iter().copied().fold(0.0, f64::max);
        (median(walls), low, high, median(list.iter().map(|run| run.cpu).collect()), peak)
    };
    let ratio = median(ours.iter().zip(&theirs).map(|(a, b)| b.wall / a.wall).collect());
    println!("{}", pair.job);
    let mut json = serde_json::json!({ "job": pair.job, "times_faster": ratio });
    for (name, list) in [("siteseer", &ours), (pair.theirs_name, &theirs)] {
        let (middle, low, high, cpu, peak) = figures(list);
        println!(
            "  {name:<28} {:>10}  ({} to {})   cpu {:>10}   peak {peak:>6.0} MiB",
            seconds(middle),
            seconds(low),
            seconds(high),
            seconds(cpu)
        );
        json[name] = serde_json::json!({ "wall": middle, "min": low, "max": high, "cpu": cpu, "peak_mib": peak });
    }
    println!("  {ratio:.1} times as fast (wall, median of the pairs)\n");
    Ok(json)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let (siteseer, vmlinux, function) = (&arguments.siteseer, &arguments.vmlinux, &arguments.function);
    let scratch = std::env::temp_dir().join(format!("siteseer-bench-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let (sites, btf) = (scratch.join("vmlinux.sites"), scratch.join("vmlinux.btf"));

    let census = Command::new(siteseer).arg("encode").arg(vmlinux).arg("-o").arg(&sites).arg("--json").output()?;
    if !census.status.success() {
        return Err(String::from_utf8_lossy(&census.stderr).into_owned().into());
    }
    let census: serde_json::Value = serde_json::from_slice(&census.stdout)?;
    let number = |path: &str| census.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let (total, all) = (number("/sites/total"), number("/sites/all_arguments"));
    let (arguments_total, located) = (number("/arguments/total"), number("/arguments/located"));
    let (usable, located_of_usable) = (number("/arguments/usable"), number("/arguments/located_of_usable"));
    println!("Census of {}", vmlinux.display());
    println!("  inline sites        {total:>9}   all arguments located at {all} ({:.1}%)", 100.0 * all / total);
    println!(
        "  arguments           {arguments_total:>9}   located {located} ({:.1}%)",
        100.0 * located / arguments_total
    );
    println!(
        "  usable by DWARF     {usable:>9}   of these located {located_of_usable} ({:.2}%)",
        100.0 * located_of_usable / usable
    );
    let sizes = SiteFile::parse(&fs::read(&sites)?)?.sizes();
    let (inline, ext) = (sizes.inline, sizes.ext);
    println!("  .BTF.inline         {inline:>9} bytes, {:.1} a site", inline as f64 / total);
    println!("  .BTF.inline.ext     {ext:>9} bytes, {:.1} a site\n", ext as f64 / total);

    let mut probe = function.clone();
    if let Some(names) = parameters(siteseer, &sites, function)? {
        for name in names {
            probe.push(' ');
            probe.push_str(&name);
        }
    }
    let perf = words(&[&"perf", &"probe", &"-k", vmlinux, &"-D", &probe]);
    let detached = OsString::from(format!("--btf_encode_detached={}", btf.display()));
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
    ];
    let mut measured = Vec::new();
    let mut failure = None;
    for pair in &pairs {
        match measure(pair, arguments.runs) {
            Ok(json) => measured.push(json),
            Err(error) => {
                println!("{}: {error}\n", pair.job);
                failure = Some(error);
            }
        }
    }
    fs::remove_dir_all(&scratch)?;
    if let Some(path) = &arguments.json {
        let all = serde_json::json!({
            "census": census,
            "bytes": { ".BTF.inline": inline, ".BTF.inline.ext": ext },
            "measured": measured,
        });
        fs::write(path, serde_json::to_vec_pretty(&all)?)?;
    }
    failure.map_or(Ok(()), Err)
}

/// The names of a function's parameters, which perf must be told.
fn parameters(siteseer: &Path, sites: &Path, function: &str) -> Result<Option<Vec<String>>, Box<dyn Error>> {
    let output = Command::new(siteseer).arg("sites").arg(function).arg("--sites").arg(sites).arg("--json").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let arguments = json.pointer("/sites/0/arguments").and_then(serde_json::Value::as_array);
    Ok(arguments.map(|list| list.iter().filter_map(|argument| argument["name"].as_str()).map(str::to_owned).collect()))
}
