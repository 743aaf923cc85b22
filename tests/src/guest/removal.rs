// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Waiting until removed kprobes are gone, before their module goes.
//!
//! siteseer closes events and removes their definitions in a process of its own after `detach` has returned. The kernel
//! then keeps an optimised kprobe on a list until its optimiser runs. If the module goes meanwhile,
//! `kill_optimized_kprobe()` takes the probe off that list and nobody frees it: it stays in the table of probes, and
//! who probes that address next gets EINVAL and a warning of `reuse_unused_kprobe()` (kernel/kprobes.c).

use crate::guest::case::Failure;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// What groups of siteseer's events begin with.
const GROUP: &str = "siteseer";
const DEFINITIONS: &str = "/sys/kernel/tracing/kprobe_events";
/// There where the kernel optimises kprobes.
const OPTIMISATION: &str = "/proc/sys/debug/kprobes-optimization";
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until no event of siteseer's is defined and no kprobe waits for the optimiser. For when nothing is attached.
///
/// # Errors
/// If events stay.
pub fn wait() -> Result<(), Failure> {
    let begin = Instant::now();
    while let Some(left) = defined()? {
        if begin.elapsed() > PATIENCE {
            return Err(format!("an event stays after everything was detached: {left}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(finish_optimiser()?)
}

/// An event of siteseer's that is defined.
fn defined() -> io::Result<Option<String>> {
    let listing = match fs::read_to_string(DEFINITIONS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        listing => listing?,
    };
    let own = |line: &&str| line.split_once(':').is_some_and(|(_, event)| event.starts_with(GROUP));
    Ok(listing.lines().find(own).map(str::to_owned))
}

/// Writing 0 waits for the optimiser.
fn finish_optimiser() -> io::Result<()> {
    for value in ["0", "1"] {
        match fs::write(OPTIMISATION, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}
