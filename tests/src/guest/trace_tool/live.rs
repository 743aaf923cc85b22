// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Numbers that are printed while calls are counted (`--top`): those of the last second are those of the end.

use super::{run, workload};
use crate::guest::case::Failure;
use siteseer::Target;
use std::fs;
use std::thread;
use std::time::Duration;

/// The picture of what was counted.
const PLOT: &str = "/counted.svg";

/// So many reads does the workload make.
const READS: u64 = 4;

pub(super) fn numbers(_: &Target) -> Result<String, Failure> {
    // How, what the number of calls is called.
    for (more, number) in [(&[][..], "count"), (&["--hist", "count"], "count"), (&["--latency"], "calls")] {
        let base = ["trace", "vfs_read", "--json", "--where", "comm = workload", "--plot", PLOT, "--top"];
        let arguments: Vec<String> = base.iter().chain(more).map(|&word| word.to_owned()).collect();
        let printed = run(&arguments, &[], || {
            workload()?;
            // On a slow machine a second of the tool's takes longer.
            thread::sleep(Duration::from_secs(4));
            Ok(())
        })?;
        let wrong = |why: &str| Failure::from(format!("{more:?}: {why}\n{}{}", printed.output, printed.messages));
        let lines = printed.output.lines().map(serde_json::from_str::<serde_json::Value>);
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        let (live, last): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| !line["top"].is_null());
        let Some(so_far) = live.last() else { return Err(wrong("nothing was printed meanwhile")) };
        if so_far["top"].as_array() != Some(&last) || so_far["seconds"].as_u64().is_none_or(|seconds| seconds < 1) {
            return Err(wrong("the last numbers are not those of the end"));
        }
        let calls: u64 = last.iter().filter_map(|row| row[number].as_u64()).sum();
        let is_lossy = ["calls not seen", "calls not timed"].iter().any(|lost| printed.messages.contains(lost));
        if calls != READS && !is_lossy {
            return Err(wrong(&format!("{calls} of {READS} calls")));
        }
        let plot = fs::read_to_string(PLOT)?;
        fs::remove_file(PLOT)?;
        // The ground, and bars: one for the function, or the histogram's.
        let least = if more.is_empty() { 2 } else { 1 + last.len() };
        if plot.matches("<rect ").count() < least || !plot.contains(">vfs_read") || !plot.ends_with("</svg>\n") {
            return Err(wrong(&format!("the picture is {plot}")));
        }
    }
    Ok("counts, a histogram and times, printed every second".to_owned())
}
