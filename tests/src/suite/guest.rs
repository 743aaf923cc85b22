// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Inside the virtual machine: runs the cases that the host has put there, one module at a time, and writes down what
//! is seen.

use super::job::{
    Attached, Attempt, Attempted, FOLDER, JOB, Job, MODULE, OBJECT, Observation, Refused, Sent, SiteLine,
};
use super::limits;
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use crate::guest::removal;
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use siteseer::{Attach, AttachOptions, Link, Outcome, Policy, Report, SiteReport, SourceOptions, Target};
use siteseer_bpf_progs::set_constant;
use siteseer_sites::Machine;
use siteseer_sites::location::{Argument, LocationKind};
use siteseer_sites::with_causes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the program's name in a record, and how many values there are (`struct suite_record`,
/// tests/cases/suite.bpf.h).
const NAME: usize = 32;
const VALUES: usize = 16;
const RECORD: usize = NAME + 8 + 8 * VALUES;
/// How long the kernel may hold on to a module after everything in it was detached: it lets go in the background.
const LET_GO: Duration = Duration::from_secs(120);

/// Runs the cases that it finds, and writes a line for each.
///
/// # Errors
/// If a job cannot be read: the host wrote it. What goes wrong with a case is in its line.
pub fn run(results: &mut impl Write) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(FOLDER) else { return Ok(()) };
    let mut folders: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    folders.sort();
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    for folder in folders {
        let job: Job = serde_json::from_slice(&fs::read(folder.join(JOB))?)?;
        let begin = Instant::now();
        let mut seen = Observation {
            suite: job.case.clone(),
            broken: None,
            addresses: BTreeMap::new(),
            attempts: Vec::new(),
            milliseconds: 0,
        };
        if let Err(failure) = one(&job, &folder, &mut seen) {
            seen.broken = Some(with_causes(&*failure));
        }
        seen.milliseconds = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        writeln!(results, "{}", serde_json::to_string(&seen)?)?;
    }
    Ok(())
}

/// A module that is loaded, until it is dropped.
struct Loaded<'a> {
    name: &'a str,
}

impl<'a> Loaded<'a> {
    fn new(name: &'a str, path: &Path) -> Result<Loaded<'a>, Failure> {
        let file = fs::File::open(path)?;
        let no_parameters = [0u8];
        let fd = file.as_raw_fd() as u64;
        syscall(libc::SYS_finit_module, [fd, no_parameters.as_ptr() as u64, 0, 0, 0, 0])
            .map_err(|error| format!("the module cannot be loaded: {error}"))?;
        Ok(Loaded { name })
    }

    fn unload(&self) -> Result<(), Failure> {
        let name = CString::new(self.name)?;
        let begin = Instant::now();
        loop {
            match syscall(libc::SYS_delete_module, [name.as_ptr() as u64, libc::O_NONBLOCK as u64, 0, 0, 0, 0]) {
                Ok(_) => return Ok(()),
                // Trampolines of the kernel hold the module until they are freed, which is done in the background.
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) && begin.elapsed() < LET_GO =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("the module cannot be unloaded: {error}").into()),
            }
        }
    }
}

/// Runs one case.
fn one(job: &Job, folder: &Path, seen: &mut Observation) -> Result<(), Failure> {
    let module = Loaded::new(&job.module, &folder.join(MODULE))?;
    let result = attempts(job, folder, seen);
    // First that: a module that stays would be in the way of those that follow.
    let removed = removal::wait();
    module.unload()?;
    result.and(removed)
}

fn attempts(job: &Job, folder: &Path, seen: &mut Observation) -> Result<(), Failure> {
    let bytes = fs::read(folder.join(OBJECT))?;
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(&bytes)?;
    let process = if job.any_process { 0 } else { std::process::id() };
    set_constant(&mut open, &bytes, "suite_tgid", process)?;
    let object = open.load().map_err(|error| format!("the programs cannot be loaded: {error}"))?;
    let target = Target::running(&SourceOptions::default())?;
    seen.addresses = addresses(&job.symbols, &job.module)?;
    let case = Case { job, object: &object, target: &target };
    for attempt in &job.attempts {
        seen.attempts.push(case.attempt(attempt).unwrap_or_else(|failure| Attempted::Error(with_causes(&*failure))));
    }
    Ok(())
}

/// Addresses of symbols: those of the module, else those of the kernel.
fn addresses(wanted: &[String], module: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let mut found = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let bracketed = format!("[{module}]");
    let mut in_module = BTreeSet::new();
    for line in fs::read_to_string("/proc/kallsyms")?.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let holder = words.next();
        let own = holder == Some(&bracketed);
        if !wanted.iter().any(|symbol| symbol == name) || !(own || holder.is_none()) || in_module.contains(name) {
            continue;
        }
        if own {
            in_module.insert(name.to_owned());
        }
        found.insert(name.to_owned(), u64::from_str_radix(address, 16)?);
    }
    Ok(found)
}

struct Case<'a> {
    job: &'a Job,
    object: &'a Object,
    target: &'a Target,
}

impl Case<'_> {
    /// Attaches, runs, detaches, and runs again.
    fn attempt(&self, attempt: &Attempt) -> Result<Attempted, Failure> {
        let (mut links, mut plan): (Vec<Link>, Vec<SiteLine>) = (Vec::new(), Vec::new());
        for name in &attempt.programs {
            let program = self.object.progs_mut().find(|program| program.name() == name.as_str());
            let program = program.ok_or_else(|| format!("no program {name}"))?;
            let mut options = AttachOptions::default()
                .cookie(attempt.cookie)
                .all_prototypes(attempt.all_prototypes)
                .accept_doubt(attempt.accept_doubt);
            if let Some(complete) = attempt.complete {
                options = options.policy(if complete { Policy::Complete } else { Policy::BestEffort });
            }
            if let Some(function) = &attempt.function {
                options = options.function(function);
            }
            if let Some(file) = &attempt.file {
                options = options.file(file);
            }
            match Attach::with(self.target, options).attach(&program) {
                Ok(link) => {
                    plan.extend(lines(link.report(), self.target.machine()));
                    links.push(link);
                }
                Err(error) => {
                    drop(links);
                    let Some(reasons) = limits::of_error(&error) else { return Err(error.into()) };
                    let after = self.record()?;
                    return Ok(Attempted::Refused(Refused { reasons, text: with_causes(&error), after }));
                }
            }
        }
        let (mut sites, mut skipped) = (BTreeMap::new(), BTreeMap::new());
        for link in &links {
            for site in link.report().attached() {
                *sites.entry(site.kind.word().to_owned()).or_default() += 1;
            }
            for (_, reason) in link.report().skipped() {
                *skipped.entry(limits::of_reason(reason).0).or_default() += 1;
            }
        }
        let lost = self.lost()?;
        let events = self.record()?;
        let (mut faults, mut missed) = (0, 0);
        for link in &links {
            faults += link.faults()?;
            missed += link.missed()?;
        }
        links.into_iter().for_each(Link::detach);
        let after = self.record()?;
        let lost = self.lost()? - lost;
        Ok(Attempted::Attached(Attached { events, after, faults, missed, lost, sites, skipped, plan }))
    }

    /// Has the module make its calls, and returns what was sent meanwhile.
    fn record(&self) -> Result<Vec<Sent>, Failure> {
        let sent = RefCell::new(Vec::new());
        let map = self.object.maps().find(|map| MapCore::name(map) == "suite_events").ok_or("no map suite_events")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, |data| {
            sent.borrow_mut().push(parse(data));
            0
        })?;
        let ring = builder.build()?;
        ring.consume()?;
        sent.borrow_mut().clear();
        fs::write(format!("/sys/module/{}/parameters/run", self.job.module), self.job.run.to_string())
            .map_err(|error| format!("the module does not make its calls: {error}"))?;
        ring.consume()?;
        drop(ring);
        let all: Option<Vec<Sent>> = sent.into_inner().into_iter().collect();
        all.ok_or_else(|| "a record is malformed".into())
    }

    /// Events that found no room.
    fn lost(&self) -> Result<u64, Failure> {
        let map = self.object.maps().find(|map| MapCore::name(map) == "suite_lost").ok_or("no map suite_lost")?;
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.ok_or("suite_lost is empty")?;
        Ok(u64::from_ne_bytes(value.as_slice().try_into()?))
    }
}

/// Reads a record; `None` if it is none.
fn parse(data: &[u8]) -> Option<Sent> {
    let data = data.get(..RECORD)?;
    let (name, rest) = data.split_at(NAME);
    let word = |at: usize| rest.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (count, present) = (usize::try_from(word(0)?).ok()?, word(4)?);
    if count > VALUES {
        return None;
    }
    let name = name.split(|&byte| byte == 0).next()?;
    let program = std::str::from_utf8(name).ok()?.trim_start_matches('_').to_owned();
    let values = rest.get(8..)?.chunks_exact(8).take(count).enumerate().map(|(nth, bytes)| {
        (present & (1 << nth) != 0).then(|| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    });
    Some(Sent { program, values: values.collect() })
}

/// A report's sites, without addresses.
fn lines(report: &Report, machine: Machine) -> Vec<SiteLine> {
    let mut lines = Vec::new();
    for function in &report.functions {
        for site in &function.sites {
            let parameters = function.prototypes.get(site.prototype).map(|prototype| &prototype.parameters[..]);
            let names = parameters.unwrap_or_default().iter().map(|parameter| parameter.name.as_str());
            let arguments = site.arguments.iter().zip(names.chain(std::iter::repeat("")));
            lines.push(SiteLine {
                function: function.name.clone(),
                kind: site.kind.word().to_owned(),
                in_image: site.module.is_none(),
                symbol: site.symbol.clone(),
                source: source(site),
                outcome: match &site.outcome {
                    Outcome::Attached { mechanism, .. } => mechanism.to_string(),
                    Outcome::Skipped(reason) => format!("not attached: {reason}"),
                },
                arguments: arguments.map(|(argument, name)| located(name, argument, machine)).collect(),
            });
        }
    }
    lines
}

fn source(site: &SiteReport) -> String {
    let Some(place) = &site.source else { return String::new() };
    format!("{}:{}", place.file.rsplit('/').next().unwrap_or_default(), place.line)
}

/// Where an argument is. Addresses are those of one build.
fn located(name: &str, argument: &Argument, machine: Machine) -> String {
    match argument {
        Ok(located) => {
            let doubt = located.doubt.map(|doubt| format!(" (doubtful: {})", doubt.key())).unwrap_or_default();
            match located.at.kind() {
                kind @ (LocationKind::Address | LocationKind::Computed) => format!("{name} = {}{doubt}", kind.key()),
                _ => format!("{name} = {}{doubt}", located.display(machine)),
            }
        }
        Err(why) => format!("{name}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_others_are_not() {
        let mut data = vec![0u8; RECORD];
        data[..9].copy_from_slice(b"____entry");
        data[NAME] = 3;
        data[NAME + 4] = 0b101;
        data[NAME + 8] = 7;
        data[NAME + 24] = 9;
        let sent = parse(&data).unwrap();
        assert_eq!(sent, Sent { program: "entry".to_owned(), values: vec![Some(7), None, Some(9)] });
        assert_eq!(parse(&data[..RECORD - 1]), None);
        data[NAME] = 17;
        assert_eq!(parse(&data), None);
    }
}
