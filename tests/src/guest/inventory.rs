// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What this process and the kernel have, to be compared before and after.

use crate::guest::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel frees programs, links and maps some time after their last descriptor is closed.
const PATIENCE: Duration = Duration::from_secs(60);
/// By how much the process may have grown: an allocator keeps some of what it had at its busiest.
const SLACK: u64 = 16 << 20;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inventory {
    descriptors: usize,
    threads: usize,
    programs: usize,
    maps: usize,
    links: usize,
    /// Definitions in tracefs, of anybody.
    definitions: usize,
    /// Kprobes, of anybody.
    kprobes: usize,
    /// Bytes of this process, if they are to be compared.
    memory: Option<u64>,
}

/// The two, in words.
pub(crate) struct Compared {
    before: Inventory,
    after: Inventory,
}

impl Inventory {
    pub(crate) fn take() -> Result<Inventory, Failure> {
        let process = procfs::process::Process::myself()?;
        Ok(Inventory {
            descriptors: process.fd_count()?,
            threads: usize::try_from(process.stat()?.num_threads)?,
            programs: ids(sys::bpf_prog_get_next_id)?,
            maps: ids(sys::bpf_map_get_next_id)?,
            links: ids(sys::bpf_link_get_next_id)?,
            definitions: lines("/sys/kernel/tracing/kprobe_events")?,
            kprobes: lines("/sys/kernel/debug/kprobes/list")?,
            memory: Some(process.statm()?.resident * procfs::page_size()),
        })
    }

    /// The same without memory: an allocator may keep much after one thing, and no more after many.
    pub(crate) fn without_memory(self) -> Inventory {
        Inventory { memory: None, ..self }
    }

    /// BPF programs, maps, links, and kprobes that are armed, of anybody.
    pub(crate) fn armed() -> Result<[usize; 4], Failure> {
        let kprobes = fs::read_to_string("/sys/kernel/debug/kprobes/list")?;
        Ok([
            ids(sys::bpf_prog_get_next_id)?,
            ids(sys::bpf_map_get_next_id)?,
            ids(sys::bpf_link_get_next_id)?,
            kprobes.lines().filter(|line| !line.contains("[DISABLED]")).count(),
        ])
    }

    /// Bytes of this process.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.unwrap_or(0)
    }

    /// What there is when the kernel has freed what it frees later: when it is the same for a second.
    pub(crate) fn settled() -> Result<Inventory, Failure> {
        let begin = Instant::now();
        let mut last = Inventory::take()?;
        loop {
            thread::sleep(Duration::from_secs(1));
            let now = Inventory::take()?;
            if now == last {
                return Ok(now);
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("it does not come to rest: {last:?}, {now:?}").into());
            }
            last = now;
        }
    }

    /// Whether none of these is more than before.
    fn is_within(&self, before: &Inventory) -> bool {
        let counts =
            |of: &Inventory| [of.descriptors, of.threads, of.programs, of.maps, of.links, of.definitions, of.kprobes];
        let fits = counts(self).iter().zip(counts(before)).all(|(after, before)| *after <= before);
        let memory = self.memory.zip(before.memory);
        fits && memory.is_none_or(|(after, before)| after <= before + SLACK)
    }

    /// Whether there is now no more than there was, as soon as the kernel has freed what it frees later.
    pub(crate) fn compare(self) -> Result<Compared, Failure> {
        let begin = Instant::now();
        loop {
            let compared = Compared { before: self, after: Inventory::take()? };
            if compared.after.is_within(&self) {
                return Ok(compared);
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("something is left:\n{compared}\nopen now: {}", open()?).into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { before, after } = self;
        let rows = [
            ("file descriptors", before.descriptors, after.descriptors),
            ("threads", before.threads, after.threads),
            ("BPF programs", before.programs, after.programs),
            ("BPF maps", before.maps, after.maps),
            ("BPF links", before.links, after.links),
            ("definitions in tracefs", before.definitions, after.definitions),
            ("kprobes", before.kprobes, after.kprobes),
        ];
        let rows = rows.map(|(what, before, after)| format!("{what}: {before} before, {after} after"));
        f.write_str(&rows.join("\n"))?;
        match before.memory.zip(after.memory) {
            Some((before, after)) => write!(f, "\nmemory: {} KiB before, {} KiB after", before >> 10, after >> 10),
            None => Ok(()),
        }
    }
}

/// What the descriptors of this process refer to.
fn open() -> Result<String, Failure> {
    let descriptors = procfs::process::Process::myself()?.fd()?.flatten();
    let shown: Vec<String> = descriptors.map(|one| format!("{} {:?}", one.fd, one.target)).collect();
    Ok(shown.join(", "))
}

/// How many ids the kernel tells.
fn ids(next: unsafe extern "C" fn(u32, *mut u32) -> i32) -> io::Result<usize> {
    let (mut id, mut count) = (0, 0);
    // SAFETY: the id lives through the call.
    while unsafe { next(id, &raw mut id) } == 0 {
        count += 1;
    }
    match io::Error::last_os_error() {
        end if end.raw_os_error() == Some(libc::ENOENT) => Ok(count),
        error => Err(error),
    }
}

fn lines(path: &str) -> io::Result<usize> {
    Ok(fs::read_to_string(path)?.lines().count())
}
