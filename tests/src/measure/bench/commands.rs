// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Commands beside each other, on the same file, in one run.
//!
//! Every figure is of a whole process, from the operating system's own account of it (wait4): wall time, CPU time,
//! peak memory. Commands of a pair run in turn, A B A B, so that a machine whose speed drifts does not favour one;
//! what is given is the median and the range, and the median of the ratios pair by pair.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// One run of a command.
struct Run {
    wall: f64,
    cpu: f64,
    peak_mib: f64,
}

/// Runs a command to its end with its output thrown away.
fn run(argv: &[OsString]) -> Result<Run, Box<dyn Error>> {
    // Where things lie on this machine is nobody's business.
    let text = || Path::new(&argv[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
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
        return Err(format!("{} ended with {status}", text()).into());
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    Ok(Run { wall, cpu, peak_mib: usage.ru_maxrss as f64 / 1024.0 })
}

/// The median; NaN of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1).and_then(|below| values.get(below))) {
        (Some(high), Some(low)) if values.len().is_multiple_of(2) => (low + high) / 2.0,
        (Some(value), _) => *value,
        (None, _) => f64::NAN,
    }
}

/// Two commands for one job.
pub struct Pair {
    /// What both do.
    pub job: &'static str,
    /// siteseer's command line.
    pub ours: Vec<OsString>,
    /// What the other is called in print.
    pub theirs_name: &'static str,
    /// The other's command line.
    pub theirs: Vec<OsString>,
}

/// A command line.
pub fn words(list: &[&dyn AsRef<OsStr>]) -> Vec<OsString> {
    list.iter().map(|word| AsRef::<OsStr>::as_ref(*word).to_owned()).collect()
}

/// All runs of one command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Seconds: median, least and most.
    pub wall: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Seconds of all CPUs, median.
    pub cpu: f64,
    /// The most memory, MiB.
    pub peak_mib: f64,
}

impl Summary {
    fn of(runs: &[Run]) -> Summary {
        let walls = || runs.iter().map(|run| run.wall);
        Summary {
            wall: median(walls().collect()),
            min: walls().fold(f64::INFINITY, f64::min),
            max: walls().fold(0.0, f64::max),
            cpu: median(runs.iter().map(|run| run.cpu).collect()),
            peak_mib: runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max),
        }
    }
}

/// What came of a pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// What both do.
    pub job: String,
    /// siteseer.
    pub ours: Summary,
    /// The other's name.
    pub theirs_name: String,
    /// The other.
    pub theirs: Summary,
    /// How many times as fast siteseer is: median of the pairs.
    pub times_faster: f64,
}

/// Measures a pair: once without counting, then `runs` times. The inner error is what the other says if it cannot do
/// the job, which its users would meet as well.
///
/// # Errors
/// If one of the commands cannot be started, ours fails, or the other fails that has done it before.
pub fn measure(pair: &Pair, runs: usize) -> Result<Result<Comparison, String>, Box<dyn Error>> {
    run(&pair.ours)?;
    if let Err(why) = run(&pair.theirs) {
        return Ok(Err(why.to_string()));
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs.max(1) {
        ours.push(run(&pair.ours)?);
        theirs.push(run(&pair.theirs)?);
    }
    Ok(Ok(Comparison {
        job: pair.job.to_owned(),
        times_faster: median(ours.iter().zip(&theirs).map(|(a, b)| b.wall / a.wall).collect()),
        ours: Summary::of(&ours),
        theirs_name: pair.theirs_name.to_owned(),
        theirs: Summary::of(&theirs),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
    }
}
