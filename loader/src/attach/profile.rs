// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How often probes of tracefs events were hit while another kprobe was being handled, and did nothing.
//!
//! `kprobe_profile` has a line for each probe: event, hits, misses. It leaves out the event's group. `kprobe_events`
//! has a line for each probe, too, in the same order (both go through the list of dynamic events,
//! kernel/trace/trace_kprobe.c), and has the group: the lines of both belong together if nothing is defined or removed
//! meanwhile.

use super::Definition;
use crate::kernel::symbols::tracefs;
use std::collections::HashMap;
use std::fs;
use std::io;

/// How often both are read until nothing changes meanwhile.
const ATTEMPTS: usize = 5;

/// Hits that were missed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AtEvents {
    /// By all probes.
    pub(crate) all: u64,
    /// By the first probe of each event.
    pub(crate) first: u64,
}

/// What the probes of these events have missed.
///
/// # Errors
/// If tracefs cannot be read, or is being changed all the time.
pub(crate) fn missed_at_events<'d>(definitions: impl IntoIterator<Item = &'d Definition>) -> io::Result<AtEvents> {
    let names: Vec<&str> = definitions.into_iter().map(Definition::name).collect();
    if names.is_empty() {
        return Ok(AtEvents::default());
    }
    let folder = tracefs().ok_or(io::ErrorKind::NotFound)?;
    let (events, profile) = (folder.join("kprobe_events"), folder.join("kprobe_profile"));
    let mut listing = fs::read_to_string(&events)?;
    for _ in 0..ATTEMPTS {
        let profile = fs::read_to_string(&profile)?;
        let after = fs::read_to_string(&events)?;
        if after == listing
            && let Some(missed) = sum(&names, &listing, &profile)
        {
            return Ok(missed);
        }
        listing = after;
    }
    Err(io::Error::other("kprobe_events changes all the time: what was missed cannot be counted"))
}

/// Sums the lines of these events; `None` if the two texts do not belong together.
fn sum(names: &[&str], events: &str, profile: &str) -> Option<AtEvents> {
    let mut seen: HashMap<&str, bool> = names.iter().map(|&name| (name, false)).collect();
    let mut missed = AtEvents::default();
    let mut lines = profile.lines();
    for defined in events.lines() {
        let mut words = lines.next()?.split_ascii_whitespace();
        let (event, misses) = (words.next()?, words.nth(1)?.parse::<u64>().ok()?);
        // `p:group/event place`, `r16:group/event place`.
        let name = defined.split_once(':')?.1.split_ascii_whitespace().next()?;
        if name.split_once('/').is_none_or(|(_, own)| own != event) {
            return None;
        }
        if let Some(seen) = seen.get_mut(name) {
            missed.all += misses;
            missed.first += if std::mem::replace(seen, true) { 0 } else { misses };
        }
    }
    lines.next().is_none().then_some(missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "p:siteseer_1/e0_foo bar+12\n\
                          r16:kprobes/mine do_sys_open\n\
                          p:siteseer_2/e0_foo bar+12\n\
                          p:siteseer_1/e0_foo baz+3\n\
                          p:siteseer_1/e1_foo baz+7\n";

    #[test]
    fn misses_are_of_the_events_asked_for() {
        let profile =
            "  e0_foo    10    1\n  mine    10    20\n  e0_foo  10  300\n  e0_foo  0  4000\n  e1_foo  1  50000\n";
        let asked = sum(&["siteseer_1/e0_foo", "siteseer_1/e1_foo"], EVENTS, profile);
        assert_eq!(asked, Some(AtEvents { all: 54_001, first: 50_001 }));
        assert_eq!(sum(&["siteseer_2/e0_foo"], EVENTS, profile), Some(AtEvents { all: 300, first: 300 }));
        assert_eq!(sum(&["siteseer_3/e0_foo"], EVENTS, profile), Some(AtEvents::default()));
    }

    #[test]
    fn texts_that_do_not_belong_together() {
        let wrong = [
            "",
            "  e0_foo 1 1\n",
            "  e0_foo 1 1\n  other 1 1\n  e0_foo 1 1\n  e0_foo 1 1\n  e1_foo 1 1\n",
            "  e0_foo 1 1\n  mine 1 1\n  e0_foo 1 1\n  e0_foo 1 1\n  e1_foo 1 1\n  e1_foo 1 1\n",
            "  e0_foo 1 x\n  mine 1 1\n  e0_foo 1 1\n  e0_foo 1 1\n  e1_foo 1 1\n",
        ];
        for profile in wrong {
            assert_eq!(sum(&["siteseer_1/e0_foo"], EVENTS, profile), None, "{profile}");
        }
    }
}
