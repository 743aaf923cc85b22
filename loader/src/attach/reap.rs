// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Removing the definitions that processes have left in tracefs: those that were killed, or did not take them away in
//! time.
//!
//! `kprobe_events` lists every probe of everyone, a line each, in the form that defines it. Those whose group names an
//! owner that is gone ([`Owner::is_gone`]) are removed one by one; all others are left alone, whatever they are called.

use super::background;
use super::owner::{Owner, events_file};
use crate::kernel::symbols;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A probe of a process that is gone.
#[derive(Debug, PartialEq, Eq)]
struct Stale {
    /// Group, a slash, event.
    event: String,
    /// The line that removes it.
    removal: String,
}

/// The probes in a listing whose owners are gone.
fn stale_in(listing: &str, mut is_gone: impl FnMut(&Owner) -> bool) -> Vec<Stale> {
    let mut known: HashMap<Owner, bool> = HashMap::new();
    let mut stale = Vec::new();
    for line in listing.lines() {
        let Some((event, place)) = line.strip_prefix("p:").and_then(|line| line.split_once(' ')) else { continue };
        let Some(owner) = event.split_once('/').and_then(|(group, _)| Owner::parse(group)) else { continue };
        if *known.entry(owner.clone()).or_insert_with(|| is_gone(&owner)) {
            stale.push(Stale { event: event.to_owned(), removal: format!("-:{event} {place}\n") });
        }
    }
    stale
}

/// The probes of processes that are gone.
fn stale(folder: &Path, events: &File) -> io::Result<Vec<Stale>> {
    let listing = fs::read_to_string(folder.join("kprobe_events"))?;
    Ok(stale_in(&listing, |owner| owner.is_gone(events)))
}

/// Removes what processes that are gone have left in tracefs, and nothing else. Gives the number of events. Attaching
/// does this too, without waiting for it.
///
/// # Errors
/// If tracefs is there and cannot be read or written.
pub fn clean() -> io::Result<usize> {
    let Some(folder) = symbols::tracefs() else { return Ok(0) };
    let mut file = events_file(folder)?;
    let mut removed = BTreeSet::new();
    for probe in stale(folder, &file)? {
        match file.write_all(probe.removal.as_bytes()) {
            Ok(()) => {
                removed.insert(probe.event);
            }
            // Another process was faster, or someone else is using the event: it is not ours to take away.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed.len())
}

/// [`clean`] without waiting for it, and without complaint.
pub(super) fn clean_in_background(folder: &Path, events: &File) {
    let lines: Vec<String> = stale(folder, events).unwrap_or_default().into_iter().map(|probe| probe.removal).collect();
    if !lines.is_empty() {
        background::close_and_write(events, &lines, Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_of_owners_that_are_gone_are_stale() {
        let listing = "p:kprobes/mine do_sys_open\n\
                       p:siteseer_1_2_3_0/e0_foo bar+12\n\
                       p:siteseer_1_2_3_0/e0_foo _stext+3456\n\
                       r8:siteseer_1_2_3_0/e9_foo bar\n\
                       p:siteseer_1_9_3_0/e0_foo bar+12\n\
                       p:siteseer_tool/e0 bar+12 a=%di\n";
        let stale = stale_in(listing, |owner| *owner == Owner::parse("siteseer_1_2_3_7").unwrap());
        let lines: Vec<&str> = stale.iter().map(|probe| probe.removal.as_str()).collect();
        assert_eq!(lines, ["-:siteseer_1_2_3_0/e0_foo bar+12\n", "-:siteseer_1_2_3_0/e0_foo _stext+3456\n"]);
    }
}
