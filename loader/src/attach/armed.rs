// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What arms sites, and how it is undone.
//!
//! Everything that arms a site is a file descriptor, so a process that is killed leaves nothing armed. (What it may
//! leave is the definition of an event in tracefs, which does nothing, and which the next process removes.) Detaching
//! takes the programs away and waits until none runs; disarming events of tracefs and removing their definitions is
//! then left to a short-lived process ([`super::background`]). Closing the descriptor of one kprobe, or of one event
//! with many, waits for RCU grace periods, a few dozen milliseconds; several threads close many of them, so that the
//! waits overlap in part.

use super::profile::missed_at_events;
use super::tracefs::{Definition, remove_all};
use super::wait::wait_for_programs;
use crate::bpf::objects::link_info;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

/// The most threads that close descriptors.
const CLOSERS: usize = 32;
/// Fewer are closed one after the other.
const FEW: usize = 4;

/// What arms sites. When it is dropped, no program runs there any more.
#[derive(Debug, Default)]
pub(crate) struct Armed {
    /// What runs the programs at the sites.
    pub(super) links: Vec<OwnedFd>,
    /// Events of tracefs, which are armed until they are undone.
    pub(super) definitions: Vec<Definition>,
}

impl Armed {
    /// Events alone, without their links.
    pub(crate) fn events(definitions: Vec<Definition>) -> Armed {
        Armed { links: Vec::new(), definitions }
    }

    /// How many files it keeps open.
    pub(super) fn files(&self) -> usize {
        self.links.len() + self.definitions.len()
    }

    /// How many hits did not get as far as a program.
    pub(super) fn missed(&self) -> io::Result<u64> {
        missed_by(&self.links, &self.definitions)
    }

    /// Takes over what arms other sites.
    pub(super) fn append(&mut self, other: &mut Armed) {
        self.links.append(&mut other.links);
        self.definitions.append(&mut other.definitions);
    }

    /// The kernel's ids of the links.
    pub(crate) fn ids(&self) -> io::Result<Vec<u32>> {
        self.links.iter().map(|link| link_info(link.as_fd()).map(|info| info.id)).collect()
    }

    /// The links, whoever closes them, and the events.
    pub(crate) fn into_parts(mut self) -> (Vec<OwnedFd>, Vec<Definition>) {
        (std::mem::take(&mut self.links), std::mem::take(&mut self.definitions))
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        close_all(std::mem::take(&mut self.links));
        let mut definitions = std::mem::take(&mut self.definitions);
        if !definitions.is_empty() && wait_for_programs().is_err() {
            // To close an event is to wait, too, however long it takes.
            definitions.iter_mut().for_each(|definition| drop(definition.take_event()));
        }
        remove_all(definitions);
    }
}

/// How many hits did not get as far as a program, by the links and the events that some of them are on.
pub(crate) fn missed_by<'d>(
    links: &[OwnedFd],
    definitions: impl IntoIterator<Item = &'d Definition>,
) -> io::Result<u64> {
    let (mut at_kprobes, mut others) = (0, 0);
    for link in links {
        match missed_by_link(link)? {
            Missed::AtKprobe(count) => at_kprobes += count,
            Missed::Elsewhere(count) => others += count,
        }
    }
    // For an event with many probes, the link tells the number of the first one, which tracefs tells too.
    let events = missed_at_events(definitions)?;
    Ok(others + events.all + at_kprobes.saturating_sub(events.first))
}

enum Missed {
    AtKprobe(u64),
    Elsewhere(u64),
}

/// How many hits of a link did not get as far as a program.
fn missed_by_link(link: &OwnedFd) -> io::Result<Missed> {
    let info = link_info(link.as_fd())?;
    let about = info.__bindgen_anon_1;
    // SAFETY: the kernel says which member it has filled, and any bytes are a value of each.
    Ok(unsafe {
        match info.type_ {
            sys::BPF_LINK_TYPE_KPROBE_MULTI => Missed::Elsewhere(about.kprobe_multi.missed),
            sys::BPF_LINK_TYPE_PERF_EVENT => match about.perf_event.type_ {
                sys::BPF_PERF_EVENT_KRETPROBE => Missed::Elsewhere(about.perf_event.__bindgen_anon_1.kprobe.missed),
                sys::BPF_PERF_EVENT_KPROBE => Missed::AtKprobe(about.perf_event.__bindgen_anon_1.kprobe.missed),
                _ => Missed::Elsewhere(0),
            },
            _ => Missed::Elsewhere(0),
        }
    })
}

/// Closes descriptors, many of them from several threads.
fn close_all(mut descriptors: Vec<OwnedFd>) {
    if descriptors.len() <= FEW {
        return;
    }
    let each = descriptors.len().div_ceil(CLOSERS).max(1);
    thread::scope(|scope| {
        while !descriptors.is_empty() {
            let part = descriptors.split_off(descriptors.len().saturating_sub(each));
            // If no thread can be created, the part is closed here: a closure that is not run is dropped.
            let _ = thread::Builder::new().spawn_scoped(scope, move || drop(part));
        }
    });
}
