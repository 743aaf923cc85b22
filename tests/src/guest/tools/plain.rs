// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The same programs, loaded and attached by libbpf alone, in a process that has never called [`siteseer::register`].
//!
//! The process is the guest's program once more: `siteseer-guest plain GROUP TGID`. It attaches what can be attached,
//! says about each program how that went, and then answers every line with what each tool has counted.

use super::{GROUPS, Group, counts, open};
use crate::guest::case::Failure;
use libbpf_rs::{Link, Object, ObjectBuilder};
use serde::{Deserialize, Serialize};
use siteseer_bpf_progs::tools::Count;
use siteseer_sites::btf::{Btf, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The outcome of each program: `None` if it is attached, else why not.
type Outcomes = BTreeMap<String, Option<String>>;

/// What the process answers to every line.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Calls and sum by tool.
    counts: Vec<(u64, u64)>,
}

/// The process, seen from the one that makes the calls.
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    outcomes: Outcomes,
}

impl Process {
    /// Starts it, and waits until everything is attached.
    pub(super) fn start(group: &str) -> Result<Process, Failure> {
        let mut child = Command::new("/proc/self/exe")
            .args(["plain", group, &std::process::id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut process = Process { child, orders, answers, outcomes: Outcomes::new() };
        process.outcomes = process.answer()?;
        Ok(process)
    }

    fn answer<T: for<'d> Deserialize<'d>>(&mut self) -> Result<T, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if line.is_empty() {
            return Err("the plain process has ended".into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// What each tool has counted so far.
    pub(super) fn counts(&mut self) -> Result<Vec<Count>, Failure> {
        self.orders.as_mut().ok_or("no input")?.write_all(b"\n")?;
        let answer: Answer = self.answer()?;
        Ok(answer.counts.into_iter().map(|(calls, sum)| Count { calls, sum }).collect())
    }

    /// Whether a program is attached.
    pub(super) fn attached(&self, program: &str) -> bool {
        matches!(self.outcomes.get(program), Some(None))
    }

    /// Why it is not.
    pub(super) fn why(&self, program: &str) -> &str {
        self.outcomes.get(program).and_then(Option::as_deref).unwrap_or("it is not in the object")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input is the end of the process.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// `siteseer-guest plain GROUP TGID`.
///
/// # Errors
/// If there is no such group, or the kernel cannot be used at all. That a program cannot be attached is not an error.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let [name, tgid] = arguments else { return Err("expected a group and a process".into()) };
    let group = GROUPS.iter().find(|group| group.name == name).ok_or_else(|| format!("no group {name}"))?;
    let tgid: u32 = tgid.parse()?;
    let mut outcomes = Outcomes::new();
    let all: BTreeSet<&str> = group.programs().collect();
    let reachable = reachable(group, &all)?;
    let (object, links) = attach(group, tgid, &reachable)?;
    for program in &all {
        // A program that stands in the way of the others' loading is tried by itself, for the kernel's own word.
        let why = if reachable.contains(program) { None } else { Some(refusal(group, tgid, program)) };
        outcomes.insert((*program).to_owned(), why);
    }
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&outcomes)?)?;
    for line in io::stdin().lock().lines() {
        line?;
        let counts = counts(&object)?.into_iter().map(|count| (count.calls, count.sum)).collect();
        writeln!(output, "{}", serde_json::to_string(&Answer { counts })?)?;
    }
    drop(links);
    Ok(())
}

/// The programs whose function the kernel's BTF and symbols have by exactly this name.
fn reachable<'p>(group: &Group, all: &BTreeSet<&'p str>) -> Result<BTreeSet<&'p str>, Failure> {
    let data = fs::read("/sys/kernel/btf/vmlinux")?;
    let btf = Btf::parse(&data)?;
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let symbols: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).collect();
    let open = ObjectBuilder::default().open_memory(group.elf)?;
    let mut found = BTreeSet::new();
    for program in open.progs() {
        let section = program.section().to_string_lossy().into_owned();
        let function = section.split_once('/').map_or("", |(_, function)| function);
        let name = program.name().to_string_lossy().into_owned();
        if btf.find(Kind::Func, function).is_some() && symbols.contains(function) {
            found.extend(all.get(name.as_str()));
        }
    }
    Ok(found)
}

/// Loads an object with these programs alone, and attaches them.
fn attach(group: &Group, tgid: u32, programs: &BTreeSet<&str>) -> Result<(Object, Vec<Link>), Failure> {
    let mut open = open(group, tgid)?;
    for mut program in open.progs_mut() {
        let wanted = programs.contains(program.name().to_string_lossy().as_ref());
        program.set_autoload(wanted);
    }
    let object = open.load()?;
    let mut links = Vec::new();
    for program in object.progs_mut() {
        if programs.contains(program.name().to_string_lossy().as_ref()) {
            links.push(program.attach()?);
        }
    }
    Ok((object, links))
}

/// Why a program cannot be attached.
fn refusal(group: &Group, tgid: u32, program: &str) -> String {
    match attach(group, tgid, &BTreeSet::from([program])) {
        Ok(_) => "it can, although the kernel has no such symbol".to_owned(),
        Err(error) => error.to_string(),
    }
}
