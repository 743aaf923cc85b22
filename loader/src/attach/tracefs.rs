// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Many kprobes as one: a tracefs event that holds them, one perf event on it, one BPF link.
//!
//! `p:GROUP/EVENT SYMBOL+OFFSET`, written to `kprobe_events`, defines an event; the same line with another place adds a
//! probe to it (kernel/trace/trace_kprobe.c, `append_trace_kprobe()`). Places must be given by symbol (two bare
//! addresses count as the same probe). Where the name of the symbol that holds a place is not unique, the distance from
//! `_stext` does. A place that the kernel does not accept here is left to a perf kprobe of its own.
//!
//! A place in a module is given without the module's name. With it, the kernel would put the probe back when the module
//! is loaded again (`trace_kprobe_module_callback()`), at the same distance from the symbol in what may be another
//! build.
//!
//! # Arming
//! Defining is what takes long: the kernel decodes the function that holds the place, and goes through its tables of
//! static branches, static calls and bugs from end to end (`check_kprobe_address_safe()` in kernel/kprobes.c,
//! `can_optimize()` in arch/x86/kernel/kprobes/opt.c). It is the same for every kind of kprobe. Opening the event then
//! arms all of its probes in microseconds each. All is defined before anything is armed: a few ticks after the first
//! probe is armed the kernel's jump optimizer begins, and holds `kprobe_mutex`, which each definition needs, for a
//! grace period of Tasks RCU in each pass (`kprobe_optimizer()`). One perf kprobe per site runs into that all the time.
//!
//! # Disarming
//! Three things are undone, and only the first is worth waiting for:
//! 1. The program is taken from the event when the link is closed (`perf_event_detach_bpf_prog()`). From then on it
//!    does not run. Waits of several links overlap.
//! 2. The probes are disarmed when the event is closed, too (`perf_trace_destroy()`), all of an event's at once, but
//!    one event after the other: a grace period passes under the lock that everyone who defines, opens or closes an
//!    event wants. Until then a hit finds no program to run.
//! 3. The definition is not undone by closing anything. It stays when the process ends, and has to be removed, which
//!    takes a grace period per probe (`__unregister_trace_kprobe()`).
//!
//! So the event's descriptor is kept beside the link's, and handed to a short-lived process of our own when the link is
//! gone: that closes it and removes the definition, a probe at a time, so that the lock is free in between. A killed
//! process leaves no descriptor open, and so nothing armed; the definitions that it leaves are removed by the next one
//! ([`super::reap`]).

use super::background;
use super::owner::{Owner, events_file};
use super::reap;
use crate::bpf::perf_kprobe;
use crate::kernel::symbols::{Symbols, tracefs};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// How many probes one event gets. Each that is added is compared with all that the event has.
pub(super) const PROBES: usize = 512;

/// A site by symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) symbol: &'a str,
    pub(super) offset: u64,
    pub(super) address: u64,
    /// Whether it is in a module.
    pub(super) in_module: bool,
}

/// The places of one location prototype.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) program: BorrowedFd<'a>,
    /// By which the program knows them.
    pub(super) cookie: u64,
    /// What its events are named after.
    pub(super) function: &'a str,
    pub(super) places: Vec<Place<'a>>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What runs the programs at the events.
    pub(super) links: Vec<OwnedFd>,
    /// The events.
    pub(super) definitions: Vec<Definition>,
    /// The places that are not armed: number of the group, number of the place in it.
    pub(super) left: Vec<(usize, usize)>,
    /// The first thing that failed, and why, if that was not the kernel's answer about one place.
    pub(super) failed: Option<Failed>,
}

/// What tracefs, or the machine, did not do.
#[derive(Debug)]
pub(super) struct Failed {
    what: &'static str,
    error: io::Error,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

/// Keeps the first error that is not about a place.
#[derive(Debug, Default)]
struct Errors(Option<Failed>);

impl Errors {
    /// The value, if there is one.
    fn ok<T>(&mut self, what: &'static str, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.note(what, error)).ok()
    }

    fn note(&mut self, what: &'static str, error: io::Error) {
        // The place is not accepted, or not by symbol.
        let about_place = [
            libc::EINVAL,
            libc::ENOENT,
            libc::EILSEQ,
            libc::EADDRNOTAVAIL,
            libc::EEXIST,
            libc::ERANGE,
            libc::EOPNOTSUPP,
        ];
        if !error.raw_os_error().is_some_and(|errno| about_place.contains(&errno)) {
            self.0.get_or_insert(Failed { what, error });
        }
    }
}

/// A definition in tracefs, and what arms it: to be undone once no program is to run there.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Group, a slash, event.
    name: String,
    /// Its probes' places, as they were written.
    places: Vec<String>,
    folder: PathBuf,
    /// The event, if it could be opened.
    event: Option<OwnedFd>,
}

impl Definition {
    /// Group, a slash, event.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What arms it, to be closed elsewhere, before it is removed.
    pub(crate) fn take_event(&mut self) -> Option<OwnedFd> {
        self.event.take()
    }

    /// The lines that remove it, one per probe.
    fn removal(&self) -> impl Iterator<Item = String> + '_ {
        self.places.iter().map(|place| format!("-:{} {place}\n", self.name))
    }
}

/// An event that is being defined.
struct Event {
    definition: Definition,
    group: usize,
    /// Which of the group's places it has.
    members: Vec<usize>,
}

/// Names an event after the function, as far as an event may be called so. The number comes first, because the kernel
/// finds an event by comparing its name with those of all probes.
fn event_name(nth: usize, function: &str) -> String {
    // The kernel takes 63 bytes.
    const LONGEST: usize = 50;
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = function.chars().take(LONGEST).map(valid).collect();
    format!("e{nth}_{name}")
}

/// A symbol that means one address only, and the distance from it.
fn by_symbol<'a>(place: &Place<'a>, symbols: &Symbols, start: Option<u64>) -> Option<(&'a str, u64)> {
    let mut named = symbols.named(place.symbol);
    let first = named.next().map(|symbol| symbol.address.wrapping_add(place.offset));
    if first == Some(place.address) && named.next().is_none() {
        return Some((place.symbol, place.offset));
    }
    if place.in_module {
        return None;
    }
    // `struct kprobe` has 32 bits for it.
    let offset = place.address.checked_sub(start?).filter(|&offset| u32::try_from(offset).is_ok())?;
    Some(("_stext", offset))
}

/// A place as the kernel writes and compares it.
fn written(symbol: &str, offset: u64) -> String {
    if offset == 0 { symbol.to_owned() } else { format!("{symbol}+{offset}") }
}

/// Puts events on the places of all groups, as many places on each as it may have.
pub(super) fn attach(groups: &[Group<'_>], symbols: &Symbols) -> Outcome {
    let mut armed: Vec<Vec<bool>> = groups.iter().map(|group| vec![false; group.places.len()]).collect();
    let (mut links, mut definitions) = (Vec::new(), Vec::new());
    let mut errors = Errors::default();
    if let Some(folder) = tracefs()
        && let Some(owner) = errors.ok("the lock on kprobe_events", Owner::claim(folder))
        && let Some(mut file) = errors.ok("kprobe_events", events_file(folder))
    {
        let mut events = define(groups, symbols, &owner, folder, &mut file, &mut errors);
        // All are open before the optimizer begins, which is a few ticks after the first.
        let numbers: Vec<io::Result<u64>> = events.iter().map(|event| number(&event.definition)).collect();
        for (event, number) in events.iter_mut().zip(numbers) {
            let opened = number.and_then(|number| perf_kprobe::open_event(TRACEPOINT, number, 0));
            event.definition.event = errors.ok("opening an event", opened);
        }
        for Event { definition, group, members } in events {
            if let (Some(Group { program, cookie, .. }), Some(armed)) = (groups.get(group), armed.get_mut(group))
                && let Some(event) = &definition.event
                && let Some(link) =
                    errors.ok("linking an event", perf_kprobe::link_event(*program, event.as_fd(), *cookie))
            {
                links.push(link);
                for member in members {
                    if let Some(armed) = armed.get_mut(member) {
                        *armed = true;
                    }
                }
            }
            definitions.push(definition);
        }
        // Last: the kernel lets one at a time define or remove, and what others left can wait. Once in each process,
        // and one that was forked is another.
        static CLEANED: AtomicU32 = AtomicU32::new(0);
        let here = std::process::id();
        if CLEANED.swap(here, Ordering::Relaxed) != here {
            reap::clean_in_background(folder, &file);
        }
    }
    let left = armed.iter().enumerate().flat_map(|(group, places)| {
        places.iter().enumerate().filter(|(_, armed)| !**armed).map(move |(place, _)| (group, place))
    });
    Outcome { left: left.collect(), links, definitions, failed: errors.0 }
}

/// Defines events for the places that the kernel accepts.
fn define(
    groups: &[Group<'_>],
    symbols: &Symbols,
    owner: &Owner,
    folder: &Path,
    file: &mut File,
    errors: &mut Errors,
) -> Vec<Event> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let own_group = owner.group(COUNTER.fetch_add(1, Ordering::Relaxed));
    let start = symbols.named("_stext").find(|symbol| symbol.in_kernel()).map(|symbol| symbol.address);
    let mut events: Vec<Event> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let numbered: Vec<(usize, &Place<'_>)> = group.places.iter().enumerate().collect();
        for chunk in numbered.chunks(PROBES) {
            let name = format!("{own_group}/{}", event_name(events.len(), group.function));
            let definition = Definition { name, places: Vec::new(), folder: folder.to_owned(), event: None };
            let mut event = Event { definition, group: number, members: Vec::new() };
            for &(member, place) in chunk {
                let Some((symbol, offset)) = by_symbol(place, symbols, start) else { continue };
                let place = written(symbol, offset);
                // One line per write: the kernel accepts a line or refuses it.
                let written = file.write_all(format!("p:{} {place}\n", event.definition.name).as_bytes());
                if errors.ok("defining an event in kprobe_events", written).is_some() {
                    event.definition.places.push(place);
                    event.members.push(member);
                }
            }
            if !event.members.is_empty() {
                events.push(event);
            }
        }
    }
    events
}

/// The number by which a defined event is opened.
fn number(definition: &Definition) -> io::Result<u64> {
    let id = fs::read_to_string(definition.folder.join("events").join(&definition.name).join("id"))?;
    id.trim().parse().map_err(io::Error::other)
}

/// Disarms events and removes their definitions, without anyone waiting for it.
pub(crate) fn remove_all(definitions: Vec<Definition>) {
    let Some(folder) = definitions.first().map(|definition| definition.folder.clone()) else { return };
    let lines: Vec<String> = definitions.iter().flat_map(Definition::removal).collect();
    if let Ok(file) = events_file(&folder) {
        let events: Vec<OwnedFd> = definitions.into_iter().filter_map(|definition| definition.event).collect();
        background::close_and_write(&file, &lines, events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves S13.2.
    #[test]
    fn places_by_symbols_that_are_unique() {
        let symbols = Symbols::parse("1000 T _stext\n1100 t foo\n1200 t foo\n1300 t bar\n");
        let by = |symbol, offset, address| {
            by_symbol(&Place { symbol, offset, address, in_module: false }, &symbols, Some(0x1000))
        };
        assert_eq!(by("bar", 4, 0x1304), Some(("bar", 4)));
        assert_eq!(by("foo", 4, 0x1204), Some(("_stext", 0x204)));
        assert_eq!(by("bar", 4, 0x1404), Some(("_stext", 0x404)), "the symbol is not where it should be");
        assert_eq!(by("foo", 4, 0x104), None);
        let in_module = Place { symbol: "foo", offset: 4, address: 0x1204, in_module: true };
        assert_eq!(by_symbol(&in_module, &symbols, Some(0x1000)), None, "the distance is not the module's");
    }

    /// Probes are then armed one by one, which takes long: whoever waits for it is told why.
    #[test]
    fn why_nothing_is_defined_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let symbols = Symbols::parse("1000 T _stext\n1100 t foo\n1300 t bar\n");
        let places = vec![
            Place { symbol: "foo", offset: 4, address: 0x1104, in_module: false },
            Place { symbol: "bar", offset: 4, address: 0x1304, in_module: false },
        ];
        let program = File::open("/dev/null").unwrap();
        let groups = [Group { program: program.as_fd(), cookie: 0, function: "foo", places }];
        let owner = Owner::here().unwrap();
        let defined = |file: &str| {
            let mut errors = Errors::default();
            let mut file = File::options().append(true).create(true).open(file).unwrap();
            let events = define(&groups, &symbols, &owner, folder.path(), &mut file, &mut errors);
            (events.len(), errors.0.map(|failed| failed.to_string()))
        };
        let (events, failed) = defined("/dev/full");
        assert_eq!(events, 0);
        let failed = failed.unwrap();
        assert!(failed.starts_with("defining an event in kprobe_events: No space left on device"), "{failed}");
        assert_eq!(defined(&folder.path().join("kprobe_events").display().to_string()), (1, None));
        // What the kernel says about one place is the place's.
        let mut errors = Errors::default();
        errors.note("defining", io::Error::from_raw_os_error(libc::EINVAL));
        assert!(errors.0.is_none());
    }

    #[test]
    fn events_have_valid_names() {
        assert_eq!(event_name(0, "foo.isra.0"), "e0_foo_isra_0");
        assert_eq!(event_name(12, ""), "e12_");
        assert!(event_name(100_000, &"x".repeat(200)).len() < 64);
    }

    #[test]
    fn a_definition_is_removed_probe_by_probe() {
        let places = vec![written("foo", 17), written("bar", 0)];
        let definition = Definition { name: "g/e".to_owned(), places, folder: PathBuf::new(), event: None };
        let lines: Vec<String> = definition.removal().collect();
        // trace_kprobe_match_command_head() compares with the symbol alone where there is no offset.
        assert_eq!(lines, ["-:g/e foo+17\n", "-:g/e bar\n"]);
    }
}
