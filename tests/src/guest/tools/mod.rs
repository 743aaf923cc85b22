// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Ordinary tools, with and without siteseer, on the same calls.
//!
//! The programs of `tools_*.bpf.c` are fentry and fexit programs of the kinds that public collections have. Each object
//! is loaded twice: by siteseer, here; and by plain libbpf in [another process](plain), because [`siteseer::register`]
//! is for a whole process. Then each tool's function is called in known ways. What siteseer's copy counted must be
//! exactly what was called, by number and by the sum of what the program read; plain libbpf's can never be more, and is
//! less wherever the compiler left the function in other places than its symbol.
//!
//! siteseer attaches under the default policy, `complete`: no site is left out, or the case fails. Where it refuses
//! because a copy may be passed by (the compiler duplicated it), and for nothing else, the tool is attached by best
//! effort, and calls may be missed: that was said.
//!
//! What a call leads to is known from the source of one kernel, the reference; only there they run
//! ([`ON_THE_REFERENCE`](crate::guest::extent::ON_THE_REFERENCE)).

mod files;
pub mod plain;
mod returns;
mod sockets;
mod tasks;

use crate::guest::calls::syscall;
use crate::guest::case::{Case, Failure, Shown};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject};
use siteseer::{Attach, AttachError, AttachOptions, Link, PlanError, Policy, Reason, Target};
use siteseer_bpf_progs::set_constant;
use siteseer_bpf_progs::tools::{Count, MAX};
use siteseer_sites::SiteKind;
use siteseer_sites::with_causes;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The tools of an object.
pub struct Group {
    /// Name of the case.
    pub name: &'static str,
    /// The object.
    pub elf: &'static [u8],
    /// The tools, in the order of the object's enumeration.
    pub tools: &'static [Tool],
    /// Programs that count nothing themselves.
    pub others: &'static [&'static str],
}

impl Group {
    /// All programs of the object.
    fn programs(&self) -> impl Iterator<Item = &'static str> {
        self.tools.iter().map(|tool| tool.program).chain(self.others.iter().copied())
    }
}

/// A tool, and calls of its function.
pub struct Tool {
    /// The program.
    pub program: &'static str,
    /// Makes calls, and tells each.
    pub drive: fn(&mut Tally) -> io::Result<()>,
}

impl Tool {
    const fn new(program: &'static str, drive: fn(&mut Tally) -> io::Result<()>) -> Tool {
        Tool { program, drive }
    }
}

/// Bytes of a page.
fn page_size() -> u64 {
    procfs::page_size()
}

/// All objects.
pub const GROUPS: [&Group; 4] = [&files::GROUP, &tasks::GROUP, &sockets::GROUP, &returns::GROUP];

/// What was called.
#[derive(Debug, Default)]
pub struct Tally(Count);

impl Tally {
    /// A call. The program sees `value` of it.
    pub fn call(&mut self, value: u64) {
        self.0.calls += 1;
        self.0.sum = self.0.sum.wrapping_add(value);
    }
}

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    GROUPS
        .iter()
        .map(|group| Case {
            name: format!("tools::{}", group.name),
            run: Box::new(move |target| compare(group, target).map(Shown::from)),
        })
        .collect()
}

/// Opens an object whose programs watch one process.
fn open(group: &Group, tgid: u32) -> Result<OpenObject, Failure> {
    let mut open = ObjectBuilder::default().open_memory(group.elf)?;
    set_constant(&mut open, group.elf, "only_tgid", tgid)?;
    Ok(open)
}

/// What each tool counted so far.
fn counts(object: &Object) -> Result<Vec<Count>, Failure> {
    let map = object.maps().find(|map| MapCore::name(map) == "counts").ok_or("no map counts")?;
    let entry = |slot: u32| {
        let values = map.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        Count::of_cpus(&values).ok_or_else(|| Failure::from("an entry of counts is too short"))
    };
    (0..MAX).map(entry).collect()
}

/// `1 body, 3 inline`.
fn sites(link: &Link) -> String {
    let mut kinds: BTreeMap<SiteKind, usize> = BTreeMap::new();
    link.report().attached().for_each(|site| *kinds.entry(site.kind).or_default() += 1);
    kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

/// A line of the table.
struct Row {
    program: &'static str,
    function: String,
    sites: String,
    only_bodies: bool,
    known: Count,
    siteseer: Count,
    /// `None` where plain libbpf could not attach.
    plain: Option<Count>,
    /// Whether `complete` was refused because calls may be missed, and it is attached by best effort.
    may_miss: bool,
}

fn compare(group: &Group, target: &Target) -> Result<String, Failure> {
    let mut plain = plain::Process::start(group.name)?;
    let object = open(group, std::process::id())?.load()?;
    let mut links: Vec<(&str, String, Link)> = Vec::new();
    let mut wrong = String::new();
    for program in object.progs() {
        let name = program.name().to_string_lossy().into_owned();
        let name = group.programs().find(|known| *known == name).ok_or_else(|| format!("{name} is in no list"))?;
        let section = program.section().to_string_lossy().into_owned();
        let function = section.split_once('/').map_or(section.clone(), |(_, function)| function.to_owned());
        let mut attached = Attach::new(target).attach(&program);
        if attached.as_ref().is_err_and(says_that_it_may_miss) {
            attached = Attach::with(target, AttachOptions::default().policy(Policy::BestEffort)).attach(&program);
        }
        match attached {
            Ok(link) => links.push((name, function, link)),
            Err(error) => writeln!(wrong, "{name}: not attached: {}", with_causes(&error))?,
        }
    }
    let mut rows = Vec::new();
    for (slot, tool) in group.tools.iter().enumerate() {
        let Some((_, function, link)) = links.iter().find(|(name, ..)| *name == tool.program) else { continue };
        let mut tally = Tally::default();
        let before = (counts(&object)?, plain.counts()?);
        let driven = (tool.drive)(&mut tally);
        let after = (counts(&object)?, plain.counts()?);
        if let Err(error) = driven {
            writeln!(wrong, "{}: the calls could not be made: {error}", tool.program)?;
            continue;
        }
        rows.push(Row {
            program: tool.program,
            function: function.clone(),
            sites: sites(link),
            only_bodies: link.report().attached().all(|site| site.kind == SiteKind::Body),
            known: tally.0,
            siteseer: after.0[slot].since(before.0[slot]),
            plain: plain.attached(tool.program).then(|| after.1[slot].since(before.1[slot])),
            may_miss: link.report().policy == Policy::BestEffort,
        });
    }
    let mut missed = 0;
    for (_, _, link) in &links {
        missed += link.missed()? + link.faults()?;
    }
    if missed != 0 {
        writeln!(wrong, "{missed} hits were not run, or left out for arguments that could not be read")?;
    }
    drop(links);
    for row in &rows {
        wrong.extend(row.wrong().map(|why| format!("{}: {why}\n", row.program)));
    }
    let table = table(&rows, &plain);
    if wrong.is_empty() { Ok(table) } else { Err(format!("{wrong}{table}").into()) }
}

/// Whether `complete` is refused because calls may be missed, and for nothing else.
fn says_that_it_may_miss(error: &AttachError) -> bool {
    matches!(error, AttachError::Plan(PlanError::Incomplete { sites, .. })
        if sites.iter().all(|site| matches!(site.reason, Reason::MayMiss)))
}

impl Row {
    /// What must not be, even where calls may be missed.
    fn impossible(&self) -> Option<String> {
        let plain = self.plain.map_or(0, |plain| plain.calls);
        (self.siteseer.calls > self.known.calls || plain > self.known.calls).then(|| {
            format!("called {} times, siteseer saw {}, plain libbpf {plain}", self.known.calls, self.siteseer.calls)
        })
    }

    /// What is not as it must be.
    fn wrong(&self) -> Option<String> {
        if self.known.calls == 0 {
            return Some("it was never called".to_owned());
        }
        if self.may_miss {
            return self.impossible();
        }
        if self.siteseer != self.known {
            return Some(format!("called {:?}, siteseer saw {:?}", self.known, self.siteseer));
        }
        match self.plain {
            Some(plain) if plain.calls > self.known.calls => Some(format!("plain libbpf saw {}", plain.calls)),
            Some(plain) if self.only_bodies && plain != self.known => {
                Some(format!("called {:?}, plain libbpf saw {plain:?} though there are bodies only", self.known))
            }
            _ => None,
        }
    }

    /// Whether plain libbpf misses calls.
    fn is_missed(&self) -> bool {
        self.plain.is_none_or(|plain| plain.calls < self.known.calls)
    }
}

/// The rows as text, and the count of those where plain libbpf misses calls.
fn table(rows: &[Row], plain: &plain::Process) -> String {
    let mut text = format!(
        "{} programs; siteseer misses calls of {}, plain libbpf of {}\n",
        rows.len(),
        rows.iter().filter(|row| row.siteseer != row.known).count(),
        rows.iter().filter(|row| row.is_missed()).count()
    );
    text.push_str(&format!(
        "    {:<16} {:<24} {:<28} {:>5} {:>6} {:>9}\n",
        "program", "function", "sites", "calls", "plain", "siteseer"
    ));
    for row in rows {
        let seen = row.plain.map_or_else(|| "-".to_owned(), |plain| plain.calls.to_string());
        text.push_str(&format!(
            "    {:<16} {:<24} {:<28} {:>5} {:>6} {:>9}\n",
            row.program, row.function, row.sites, row.known.calls, seen, row.siteseer.calls
        ));
    }
    for row in rows.iter().filter(|row| row.may_miss) {
        text.push_str(&format!("    {}: by best_effort; complete is refused, as calls may be missed\n", row.program));
    }
    for row in rows.iter().filter(|row| row.plain.is_none()) {
        text.push_str(&format!("    -: plain libbpf cannot attach {}: {}\n", row.program, plain.why(row.program)));
    }
    text
}

/// A path as the kernel takes it.
fn path(text: &str) -> io::Result<CString> {
    Ok(CString::new(text)?)
}

/// A new descriptor from a system call's result.
fn owned(fd: i64) -> OwnedFd {
    // SAFETY: The kernel has just given us this descriptor.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// The number of a descriptor as a system call's argument.
fn number(fd: &OwnedFd) -> u64 {
    fd.as_raw_fd() as u64
}

/// A file of tmpfs without a name in any folder: `memfd:` and this name.
fn memfd(name: &str, flags: u64) -> io::Result<OwnedFd> {
    let name = path(name)?;
    Ok(owned(syscall(libc::SYS_memfd_create, [name.as_ptr() as u64, flags, 0, 0, 0, 0])?))
}

/// A call that is known to fail in the kernel, after the function that is watched.
fn fails(result: io::Result<i64>, errno: i32) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(errno) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other(format!("expected error {errno}, and there was none"))),
    }
}
