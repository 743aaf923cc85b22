// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Output that cannot be written: a full disk, a pipe that closes, a terminal that goes away. The tool says what it
//! could not write, prints what it counted so far, ends, and leaves nothing armed.

use super::{READY, workload};
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use siteseer::Target;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::guest::demo::TOOL;

/// How long a busy machine may take for what happens by itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is traced: five calls of the workload, three of the body and two in an inlined copy.
const CALLS: [&str; 4] = ["trace", "ns_capable", "--where", "comm = workload"];

/// All that is armed by kprobes, and all their definitions.
pub(super) fn armed() -> io::Result<(Vec<String>, Vec<String>)> {
    let lines = |path: &str| -> io::Result<Vec<String>> {
        let mut lines: Vec<String> = fs::read_to_string(path)?.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        Ok(lines)
    };
    Ok((lines("/sys/kernel/debug/kprobes/list")?, lines("/sys/kernel/tracing/kprobe_events")?))
}

/// Waits until the tool has ended.
fn ended(tool: &mut Child) -> Result<ExitStatus, Failure> {
    let begin = Instant::now();
    loop {
        match tool.try_wait()? {
            Some(status) => return Ok(status),
            None if begin.elapsed() > PATIENCE => {
                tool.kill()?;
                tool.wait()?;
                return Err("the tool went on though nothing could be written".into());
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Runs the tool with an output that takes nothing, has the workload make its calls, and ends the tool if it is one
/// that writes at its end only. Gives its status and its messages.
fn refused(more: &[&str], output: impl Into<Stdio>, at_the_end: bool) -> Result<(ExitStatus, String), Failure> {
    let mut command = Command::new(TOOL);
    let mut tool = command.args(CALLS).args(more).stdout(output).stderr(Stdio::piped()).spawn()?;
    // The command has a copy of the output.
    drop(command);
    let messages = BufReader::new(tool.stderr.take().ok_or("no messages")?);
    let (ready, is_ready) = mpsc::channel();
    let listener = thread::spawn(move || {
        let mut text = String::new();
        for line in messages.lines().map_while(Result::ok) {
            if line.ends_with(READY) {
                let _ = ready.send(());
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    });
    if is_ready.recv_timeout(PATIENCE).is_ok() {
        workload()?;
        if at_the_end {
            thread::sleep(Duration::from_millis(500));
            syscall(libc::SYS_kill, [u64::from(tool.id()), libc::SIGINT as u64, 0, 0, 0, 0])?;
        }
    }
    let status = ended(&mut tool).map_err(|error| format!("{more:?}: {error}"))?;
    Ok((status, listener.join().map_err(|_| "the listener panicked")?))
}

/// Every way of writing, to a full disk and to a pipe that nobody reads.
pub(super) fn refused_output(_: &Target) -> Result<String, Failure> {
    // The options, whether they write at the end only, and what is said.
    let table: [(&[&str], bool, &str, &[&str]); 6] = [
        (&["--json"], false, "the calls", &["0 calls printed", "not printed because they could not be written"]),
        (&[], false, "the calls", &["0 calls printed"]),
        (&["--tree", "--json"], false, "the trees", &["0 trees printed"]),
        (&["--count"], true, "the counts", &["5 calls counted", "5  ns_capable"]),
        (&["--count", "--json"], true, "the counts", &["5 calls counted", r#""count":5"#]),
        (&["--latency"], true, "the times", &["ns_capable, nanoseconds: 3 calls"]),
    ];
    let before = armed()?;
    for (more, at_the_end, what, words) in table {
        for is_full in [true, false] {
            let output = match is_full {
                true => Stdio::from(File::options().write(true).open("/dev/full")?),
                false => {
                    let (reader, writer) = io::pipe()?;
                    drop(reader);
                    Stdio::from(writer)
                }
            };
            let (status, messages) = refused(more, output, at_the_end)?;
            let wrong =
                |why: &str| Failure::from(format!("{more:?}, a full disk: {is_full}: {why} ({status})\n{messages}"));
            let error = format!("siteseer: cannot write {what} to standard output: No space left on device");
            // Whoever closes a pipe has seen enough.
            if is_full && (status.code() != Some(1) || !messages.contains(&error)) {
                return Err(wrong("no error"));
            }
            if !is_full && (status.code() != Some(141) || messages.contains("siteseer: ")) {
                return Err(wrong("not as for a pipe that closes"));
            }
            // A program does not run for calls that are made while it runs on that CPU: a loaded machine has such.
            let is_known = messages.contains("calls not seen") || messages.contains("calls not timed");
            if let Some(word) = words.iter().find(|&&word| !messages.contains(word) && !is_known) {
                return Err(wrong(&format!("no {word:?}")));
            }
            nothing_left(&before).map_err(|why| wrong(&why.to_string()))?;
        }
    }
    terminal_that_goes_away()?;
    nothing_left(&before)?;
    Ok("a full disk and a closed pipe, 6 ways of writing each; a terminal that goes away".to_owned())
}

/// Whether kprobes are as before; the kernel removes them a little later.
pub(super) fn nothing_left(before: &(Vec<String>, Vec<String>)) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let now = armed()?;
        if now == *before {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("left armed: {now:?}; before: {before:?}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A new terminal: our end of it, and the other.
fn terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut master, mut slave) = (-1, -1);
    let (no_name, as_usual, no_size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: Writes two descriptors; the other pointers may be null.
    if unsafe { libc::openpty(&raw mut master, &raw mut slave, no_name, as_usual, no_size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: They are new, and nobody else's.
    let [master, slave] = [master, slave].map(|file| unsafe { OwnedFd::from_raw_fd(file) });
    // A tool that has our end itself would keep the terminal there.
    for file in [&master, &slave] {
        syscall(libc::SYS_fcntl, [file.as_raw_fd() as u64, libc::F_SETFD as u64, libc::FD_CLOEXEC as u64, 0, 0, 0])?;
    }
    Ok((master, slave))
}

/// The tool on a terminal of its own, which goes away while calls are printed.
fn terminal_that_goes_away() -> Result<(), Failure> {
    let (master, slave) = terminal()?;
    let side = || -> io::Result<Stdio> { Ok(Stdio::from(slave.try_clone()?)) };
    let mut command = Command::new(TOOL);
    command.args(CALLS).stdin(side()?).stdout(side()?).stderr(side()?);
    // SAFETY: Two system calls, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            syscall(libc::SYS_setsid, [0; 6])?;
            syscall(libc::SYS_ioctl, [0, u64::from(libc::TIOCSCTTY as u32), 0, 0, 0, 0]).map(drop)
        });
    }
    let mut tool = command.spawn()?;
    drop(command);
    drop(slave);
    let mut master = File::from(master);
    let (mut seen, mut bytes) = (String::new(), [0; 4096]);
    while !seen.contains(READY) {
        match master.read(&mut bytes) {
            Ok(count) if count > 0 => seen.push_str(&String::from_utf8_lossy(&bytes[..count])),
            // The other side is closed: it has ended.
            _ => return Err(format!("on a terminal: {seen}").into()),
        }
    }
    drop(master);
    let _ = workload();
    let status = ended(&mut tool).map_err(|error| format!("a terminal that goes away: {error}"))?;
    // The hang-up ends it politely; whether a write fails before depends on who is first.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => Err(format!("a terminal that goes away: {status}").into()),
    }
}
