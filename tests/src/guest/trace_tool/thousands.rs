// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A function with thousands of copies, on busy paths: the tool asks before it attaches, ends soon when it is told to,
//! and leaves nothing when it is killed.

use super::READY;
use super::busy::Load;
use super::unwritten::{armed, nothing_left};
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use crate::guest::demo::TOOL;
use crate::guest::removal;
use siteseer::Target;
use siteseer::internals::attach::MAX_SITES;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Of functions with so many copies, the first that the kernel has.
const FUNCTIONS: [&str; 3] = ["__list_add", "list_empty", "INIT_LIST_HEAD"];
/// How long a busy machine may take to arm them all.
const ARMING: Duration = Duration::from_secs(400);
/// A tool that has not ended after this time is hung.
const ENDING: Duration = Duration::from_secs(60);

/// The tool, which is killed when it is dropped.
struct Tool {
    child: Child,
    /// What it said until it was ready.
    said: String,
    arming: Duration,
}

impl Tool {
    /// Waits until everything is attached.
    fn ready(function: &str) -> Result<Tool, Failure> {
        let begin = Instant::now();
        let mut command = Command::new(TOOL);
        command.args(["trace", function, "--count", "--yes"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{TOOL}: {error}"))?;
        let messages = child.stderr.take().ok_or("no messages")?;
        let mut tool = Tool { child, said: String::new(), arming: Duration::ZERO };
        let (said, says) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(messages).lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        while let Ok(line) = says.recv_timeout(ARMING.saturating_sub(begin.elapsed())) {
            if line.ends_with(READY) {
                tool.arming = begin.elapsed();
                return Ok(tool);
            }
            tool.said.push_str(&line);
            tool.said.push('\n');
        }
        Err(format!("{function} was not attached: {}", tool.said).into())
    }

    /// Sends it a signal, and waits until it is gone.
    fn end(&mut self, signal: libc::c_int) -> Result<Duration, Failure> {
        let begin = Instant::now();
        syscall(libc::SYS_kill, [u64::from(self.child.id()), signal as u64, 0, 0, 0, 0])?;
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > ENDING {
                return Err(format!("signal {signal} did not end it in {} s", ENDING.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(begin.elapsed())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn probes() -> Result<usize, Failure> {
    Ok(fs::read_to_string("/sys/kernel/debug/kprobes/list")?.lines().count())
}

/// The refusal of so many sites, and of a function that has them among others.
fn asks(function: &str) -> Result<(), Failure> {
    for functions in [&[function][..], &[function, "vfs_read"]] {
        let mut command = Command::new(TOOL);
        command.arg("trace").args(functions).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let status = child.wait()?;
        let mut said = String::new();
        child.stderr.take().ok_or("no messages")?.read_to_string(&mut said)?;
        if status.code() != Some(1) || !said.contains(&format!("{MAX_SITES} are allowed")) || !said.contains("--yes") {
            return Err(format!("{functions:?}: {status}: {said}").into());
        }
    }
    Ok(())
}

/// More sites than are attached without a question, under load, ended by each of the two signals.
pub(super) fn asked_for_and_left(target: &Target) -> Result<String, Failure> {
    let many = |function: &&&str| {
        target.function(function).is_ok_and(|function| {
            let sites = function.candidates.iter().filter(|site| site.obstacle.is_none()).count();
            sites > MAX_SITES && sites < 3 * MAX_SITES
        })
    };
    let function = FUNCTIONS.iter().find(many).ok_or("no function has some thousands of sites")?;
    // What other cases have left to be removed goes before it is looked at.
    siteseer::clean()?;
    removal::wait()?;
    let before = armed()?;
    asks(function)?;
    nothing_left(&before)?;
    let mut said = Vec::new();
    for (name, signal) in [("SIGTERM", libc::SIGTERM), ("SIGKILL", libc::SIGKILL)] {
        let load = Load::begin();
        let ended = Tool::ready(function).and_then(|mut tool| {
            let there = probes()?;
            // What it counts is counted on the paths of the load.
            thread::sleep(Duration::from_secs(1));
            Ok((there, tool.arming, tool.end(signal)?))
        });
        let reads = load.end()?;
        let (there, arming, ending) = ended.map_err(|why| format!("{name}: {why}"))?;
        if there < MAX_SITES || reads == 0 {
            return Err(format!("{name}: {there} probes, {reads} reads").into());
        }
        // A killed process may leave definitions, which the next one removes.
        let status = Command::new(TOOL).arg("clean").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            return Err(format!("{name}: siteseer clean: {status}").into());
        }
        nothing_left(&before).map_err(|why| format!("{name}: {why}"))?;
        said.push(format!(
            "{there} probes armed in {} ms, {name} ended it in {} ms",
            arming.as_millis(),
            ending.as_millis()
        ));
    }
    Ok(format!("{function}: {}", said.join("; ")))
}
