// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The end of a trace while calls go on: records come faster than they are printed, and the tool still ends.

use super::READY;
use crate::guest::calls::{open, syscall};
use crate::guest::case::Failure;
use crate::guest::demo::TOOL;
use siteseer::Target;
use std::ffi::CString;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A tool that has not ended after this time does not end before the calls do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that reads from /dev/zero for as long as it lives.
pub(super) struct Load {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<u64>>,
}

impl Load {
    pub(super) fn begin() -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let file = open(&CString::new("/dev/zero")?)?;
            let (mut byte, mut reads) = (0u8, 0);
            while !seen.load(Ordering::Relaxed) {
                syscall(libc::SYS_read, [file, (&raw mut byte) as u64, 1, 0, 0, 0])?;
                reads += 1;
            }
            syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
            Ok(reads)
        });
        Load { is_over, thread }
    }

    /// How many reads there were.
    pub(super) fn end(self) -> Result<u64, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the load panicked")??)
    }
}

/// By itself, and when it is asked to: printed calls, counted ones, and those in a tree.
pub(super) fn ends(_: &Target) -> Result<String, Failure> {
    let mut said = Vec::new();
    for (arguments, is_asked) in
        [(&["--duration", "2"][..], false), (&[], true), (&["--count", "comm"], true), (&["--tree"], true)]
    {
        let load = Load::begin();
        let ended = trace(arguments, is_asked);
        let reads = load.end()?;
        let status = ended.map_err(|why| format!("{arguments:?}: {why}"))?;
        if !status.success() {
            return Err(format!("{arguments:?}: {status}").into());
        }
        if reads == 0 {
            return Err(format!("{arguments:?}: there was no load").into());
        }
        said.push(format!("{arguments:?}"));
    }
    Ok(format!("ended while calls went on: {}", said.join(", ")))
}

/// Traces the function that the load calls, and gives how the tool ended.
fn trace(arguments: &[&str], is_asked: bool) -> Result<ExitStatus, Failure> {
    let mut command = Command::new(TOOL);
    command.args(["trace", "vfs_read"]).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tool = command.spawn().map_err(|error| format!("{TOOL}: {error}"))?;
    let messages = tool.stderr.take().ok_or("no messages")?;
    let mut lines = BufReader::new(messages).lines().map_while(Result::ok);
    let before: Vec<String> = lines.by_ref().take_while(|line| !line.ends_with(READY)).collect();
    // What it says at its end must not fill the pipe.
    let rest = thread::spawn(move || lines.last());
    if is_asked {
        thread::sleep(Duration::from_secs(1));
        // If it ended before, the status says so.
        let _ = syscall(libc::SYS_kill, [u64::from(tool.id()), libc::SIGINT as u64, 0, 0, 0, 0]);
    }
    let ended = end_of(&mut tool)?;
    rest.join().map_err(|_| "the listener panicked")?;
    ended.ok_or_else(|| format!("it goes on for as long as calls do; it said {before:?}").into())
}

/// How a tool ends; nothing if it does not, and was killed.
fn end_of(tool: &mut Child) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = tool.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(20));
    }
    tool.kill()?;
    tool.wait()?;
    Ok(None)
}
