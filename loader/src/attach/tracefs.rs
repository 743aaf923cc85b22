// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Many kprobes as one: a tracefs event that holds them, one perf event on it, one BPF link.
//!
//! A perf kprobe and a link per site cost a grace period of RCU each when they are taken down. The probes of one trace event are
//! armed and disarmed together. `p:GROUP/EVENT SYMBOL+OFFSET`, written to `kprobe_events`, defines an event; the same line
//! with another place adds a probe to it (kernel/trace/trace_kprobe.c, `append_trace_kprobe()`). Places must be given
//! by symbol (two bare addresses count as the same probe). Where the name of the symbol that holds a place is not unique, the
//! distance from `_stext` does. A place that the kernel does not take here is left to a perf kprobe of its own.
//!
//! The event is armed by a file descriptor, as all else is. Its *definition* is not: it stays when the process ends, unarmed, and has
//! to be removed, which takes a grace period per probe again. Nobody should wait for that, so a short-lived
//! process of our own does it after the link is gone. What a killed process leaves is removed by the next one: the group's
//! name tells whose it is.

use super::kprobe;
use crate::symbols::{Symbols, tracefs};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// What the names of our groups begin with.
const PREFIX: &str = "siteseer";

/// A site by symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) symbol: &'a str,
    pub(super) offset: u64,
    pub(super) address: u64,
}

/// How many probes one event gets. The kernel removes an event's definition as a whole, holding a lock that everyone who attaches
/// kprobes wants, for a grace period per probe: events must not be too large, or others wait too long.
const PROBES: usize = 128;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What arms the events.
    pub(super) links: Vec<OwnedFd>,
    /// The definitions of the events.
    pub(super) definitions: Vec<Definition>,
    /// The places that are not armed: indices.
    pub(super) left: Vec<usize>,
}

/// A definition in tracefs, to be removed once all that arms it is closed.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Group, a slash, event.
    name: String,
    folder: PathBuf,
}

impl Definition {
    /// The line that removes it.
    fn removal(&self) -> String {
        format!("-:{}\n", self.name)
    }
}

/// Names this process: definitions of one that is gone may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    /// Inode of its PID namespace: processes of others cannot be seen.
    namespace: u64,
    pid: u32,
    /// When it started, in ticks since boot: PIDs are used again.
    started: u64,
}

impl Owner {
    fn of(pid: u32) -> Option<Owner> {
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = namespace.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // proc_pid_stat(5): the name, in brackets, may have blanks and brackets; the start is field 22.
        let started = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(Owner { namespace, pid, started })
    }

    fn group(&self, nth: u32) -> String {
        format!("{PREFIX}_{}_{}_{}_{nth}", self.namespace, self.pid, self.started)
    }

    fn parse(group: &str) -> Option<Owner> {
        let mut words = group.strip_prefix(PREFIX)?.strip_prefix('_')?.split('_');
        let mut next = || words.next()?.parse::<u64>().ok();
        let (namespace, pid, started) = (next()?, u32::try_from(next()?).ok()?, next()?);
        next()?;
        words.next().is_none().then_some(Owner { namespace, pid, started })
    }

    /// Whether the process is known to be gone.
    fn is_gone(&self, here: &Owner) -> bool {
        self.namespace == here.namespace && Owner::of(self.pid).as_ref() != Some(self)
    }
}

fn events_file(folder: &Path) -> io::Result<File> {
    // Never truncated: that would remove everybody's events.
    OpenOptions::new().append(true).open(folder.join("kprobe_events"))
}

/// Names an event after the function, as far as an event may be called so.
fn event_name(function: &str) -> String {
    // The kernel takes 63 bytes; a number is added.
    const LONGEST: usize = 50;
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = function.chars().take(LONGEST).map(valid).collect();
    match name.chars().next() {
        Some(first) if !first.is_ascii_digit() => name,
        _ => format!("_{name}"),
    }
}

/// A symbol that means one address only, and the distance from it.
fn by_symbol<'a>(place: &Place<'a>, symbols: &Symbols, start: Option<u64>) -> Option<(&'a str, u64)> {
    let mut named = symbols.named(place.symbol);
    let first = named.next().map(|symbol| symbol.address.wrapping_add(place.offset));
    if first == Some(place.address) && named.next().is_none() {
        return Some((place.symbol, place.offset));
    }
    // `struct kprobe` has 32 bits for it.
    let offset = place.address.checked_sub(start?).filter(|&offset| u32::try_from(offset).is_ok())?;
    Some(("_stext", offset))
}

/// Puts events on places, as many on each as it may have.
pub(super) fn attach(program: BorrowedFd<'_>, function: &str, places: &[Place<'_>], symbols: &Symbols) -> Outcome {
    let mut outcome = Outcome { left: (0..places.len()).collect(), ..Outcome::default() };
    let Some(folder) = tracefs() else { return outcome };
    let (Some(owner), Ok(mut file)) = (Owner::of(std::process::id()), events_file(folder)) else { return outcome };
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let group = owner.group(COUNTER.fetch_add(1, Ordering::Relaxed));
    let start = symbols.named("_stext").find(|symbol| symbol.in_kernel()).map(|symbol| symbol.address);
    let mut armed = vec![false; places.len()];
    for (nth, (places, armed)) in places.chunks(PROBES).zip(armed.chunks_mut(PROBES)).enumerate() {
        let name = format!("{group}/{}_{nth}", event_name(function));
        let defined: Vec<bool> = places
            .iter()
            .map(|place| {
                let Some((symbol, offset)) = by_symbol(place, symbols, start) else { return false };
                // One line per write: the kernel takes a line or refuses it.
                file.write_all(format!("p:{name} {symbol}+{offset}\n").as_bytes()).is_ok()
            })
            .collect();
        if !defined.contains(&true) {
            continue;
        }
        let link = arm(program, folder, &name);
        outcome.definitions.push(Definition { name, folder: folder.to_owned() });
        if let Ok(link) = link {
            outcome.links.push(link);
            armed.copy_from_slice(&defined);
        }
    }
    outcome.left.retain(|&index| armed.get(index) != Some(&true));
    // Last: the kernel lets one at a time define or remove, and what others left can wait.
    static CLEANED: Once = Once::new();
    CLEANED.call_once(|| clean_in_background(folder, &file));
    outcome
}

/// Arms a defined event.
fn arm(program: BorrowedFd<'_>, folder: &Path, name: &str) -> io::Result<OwnedFd> {
    let id = fs::read_to_string(folder.join("events").join(name).join("id"))?;
    let id = id.trim().parse::<u64>().map_err(io::Error::other)?;
    let event = kprobe::open_event(TRACEPOINT, id, 0)?;
    kprobe::link_event(program, event.as_fd())
}

/// Removes definitions without anyone waiting for it.
pub(crate) fn remove_all(definitions: Vec<Definition>) {
    let Some(folder) = definitions.first().map(|definition| definition.folder.clone()) else { return };
    let lines: Vec<String> = definitions.iter().map(Definition::removal).collect();
    if let Ok(file) = events_file(&folder) {
        in_background(&file, &lines);
    }
}

/// Has a process of its own write the lines, each by one system call.
fn in_background(file: &File, lines: &[String]) {
    let to: RawFd = file.as_raw_fd();
    let writes: Vec<(*const libc::c_void, usize)> =
        lines.iter().map(|line| (line.as_ptr().cast(), line.len())).collect();
    // SAFETY: between fork and _exit the children make system calls only, on memory that was set up before; that is allowed
    // after a fork of a process with threads. Descriptors are closed in the child, so that it keeps nothing alive that the
    // process closes meanwhile. The first child ends at once, and is waited for; the second one is init's.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            if libc::fork() == 0 {
                libc::setsid();
                libc::dup2(to, 0);
                libc::syscall(libc::SYS_close_range, 1 as libc::c_uint, libc::c_uint::MAX, 0 as libc::c_uint);
                for (bytes, len) in &writes {
                    libc::write(0, *bytes, *len);
                }
            }
            libc::_exit(0);
        }
        if child > 0 {
            let mut status = 0;
            while libc::waitpid(child, &mut status, 0) < 0 && *libc::__errno_location() == libc::EINTR {}
            return;
        }
    }
    // No process to be had: then here.
    for (bytes, len) in writes {
        // SAFETY: the lines are alive.
        unsafe { libc::write(to, bytes, len) };
    }
}

/// The events of processes that are gone.
fn stale(folder: &Path) -> io::Result<Vec<Definition>> {
    let Some(here) = Owner::of(std::process::id()) else { return Ok(Vec::new()) };
    let mut events = Vec::new();
    for entry in fs::read_dir(folder.join("events"))? {
        let group = entry?;
        let name = group.file_name().to_string_lossy().into_owned();
        if !Owner::parse(&name).is_some_and(|owner| owner.is_gone(&here)) {
            continue;
        }
        // Another process may be removing the same.
        for event in fs::read_dir(group.path()).into_iter().flatten().flatten() {
            if event.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = format!("{name}/{}", event.file_name().to_string_lossy());
                events.push(Definition { name, folder: folder.to_owned() });
            }
        }
    }
    Ok(events)
}

/// Removes what processes that are gone have left in tracefs, and nothing else. Gives the number of events. Attaching does
/// this too, without waiting for it.
///
/// # Errors
/// If tracefs is there and cannot be read or written.
pub fn clean() -> io::Result<usize> {
    let Some(folder) = tracefs() else { return Ok(0) };
    let events = stale(folder)?;
    if events.is_empty() {
        return Ok(0);
    }
    let mut file = events_file(folder)?;
    let mut removed = 0;
    for event in events {
        match file.write_all(event.removal().as_bytes()) {
            Ok(()) => removed += 1,
            // Another process was faster, or someone else is using the event: it is not ours to take away.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// [`clean`] without waiting for it, and without complaint.
fn clean_in_background(folder: &Path, file: &File) {
    let lines: Vec<String> = stale(folder).unwrap_or_default().iter().map(Definition::removal).collect();
    if !lines.is_empty() {
        in_background(file, &lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_tell_their_owner() {
        let owner = Owner::of(std::process::id()).unwrap();
        let group = owner.group(3);
        assert!(group.len() < 64, "{group}");
        assert_eq!(Owner::parse(&group).as_ref(), Some(&owner));
        assert!(!owner.is_gone(&owner));
        let earlier = Owner { started: owner.started.wrapping_sub(1), ..owner.clone() };
        assert!(earlier.is_gone(&owner), "a process of that number lives, but started later");
        let elsewhere = Owner { namespace: owner.namespace + 1, ..earlier };
        assert!(!elsewhere.is_gone(&owner), "processes of another namespace cannot be seen");
        for foreign in
            ["kprobes", "siteseer", "siteseer_1_2_3", "siteseer_1_2_3_4_5", "siteseer_a_2_3_4", "perf_bpf_probe"]
        {
            assert_eq!(Owner::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn places_by_symbols_that_are_unique() {
        let symbols = Symbols::parse("1000 T _stext\n1100 t foo\n1200 t foo\n1300 t bar\n");
        let by = |symbol, offset, address| by_symbol(&Place { symbol, offset, address }, &symbols, Some(0x1000));
        assert_eq!(by("bar", 4, 0x1304), Some(("bar", 4)));
        assert_eq!(by("foo", 4, 0x1204), Some(("_stext", 0x204)));
        assert_eq!(by("bar", 4, 0x1404), Some(("_stext", 0x404)), "the symbol is not where it should be");
        assert_eq!(by("foo", 4, 0x104), None);
    }

    #[test]
    fn events_have_valid_names() {
        assert_eq!(event_name("foo.isra.0"), "foo_isra_0");
        assert_eq!(event_name("0day"), "_0day");
        assert_eq!(event_name(""), "_");
        assert_eq!(event_name(&"x".repeat(200)).len(), 50);
    }
}
