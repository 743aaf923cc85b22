// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The guest's half: runs each command while `calls` makes the calls.

use super::{FOLDER, ORDERS, Printed, Round, words, work};
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Where kprobes are defined.
const KPROBES: &str = "/sys/kernel/tracing/kprobe_events";

/// Where site data is, and where it is hidden.
const SITES: &str = "/var/cache/siteseer";
const HIDDEN: &str = "/var/cache/siteseer-hidden";

/// How long a command may take until it is attached, and to end after that. bpftrace compiles with LLVM, on an emulated
/// machine.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs all commands that the host has ordered. Results are a line of JSON each.
///
/// # Errors
/// If a command cannot be started, or if the calls cannot be made. A command that fails has printed why.
pub fn run(results: &mut impl Write) -> Result<(), Failure> {
    std::os::unix::fs::symlink("/init", work::PATH)?;
    let rounds: Vec<Round> = serde_json::from_slice(&fs::read(ORDERS)?)?;
    for round in rounds {
        let hide = round.without_site_data && fs::exists(SITES)?;
        if hide {
            fs::rename(SITES, HIDDEN)?;
        }
        let printed = one(&round);
        if hide {
            fs::rename(HIDDEN, SITES)?;
        }
        let printed = printed.map_err(|error| format!("{}: {error}", round.command))?;
        writeln!(results, "{}", serde_json::to_string(&printed)?)?;
    }
    Ok(())
}

fn one(round: &Round) -> Result<Printed, Failure> {
    let mut printed = Printed {
        wish: round.wish,
        tool: round.tool,
        command: round.command.clone(),
        output: String::new(),
        messages: String::new(),
        cost: None,
    };
    // What the kernel refuses is told as perf would.
    if let Err(error) = fs::write(KPROBES, round.probes.iter().map(|probe| format!("{probe}\n")).collect::<String>()) {
        printed.messages.push_str(&format!("{KPROBES}: {error}\n"));
    }
    for command in &round.before {
        Running::start(command)?.end(&mut printed)?;
    }
    let mut running = Running::start(&round.command)?;
    if !round.calls.is_empty() && running.is_ready() {
        let calls = Command::new(work::PATH).args(words(&round.calls)).stdin(Stdio::null()).output()?;
        if !calls.status.success() {
            return Err(format!("calls {}: {}", round.calls, String::from_utf8_lossy(&calls.stderr)).into());
        }
        printed.cost = String::from_utf8_lossy(&calls.stdout).trim().parse().ok();
        // Tools look into their buffers now and then.
        thread::sleep(Duration::from_millis(500));
        running.signal(libc::SIGINT)?;
    }
    running.end(&mut printed)?;
    if !round.after.is_empty() {
        // What the command before printed is not what is shown.
        printed.output.clear();
    }
    for command in &round.after {
        Running::start(command)?.end(&mut printed)?;
    }
    if round.calls.is_empty() {
        // perf has `calls` write to its own output.
        printed.cost = printed.output.lines().find_map(|line| line.parse().ok());
    }
    // What an earlier round has defined is not for the next.
    fs::write(KPROBES, "")?;
    Ok(printed)
}

/// A command that runs.
struct Running {
    child: Child,
    output: JoinHandle<String>,
    messages: JoinHandle<String>,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &str) -> Result<Running, Failure> {
        let words = words(command);
        let (program, arguments) = words.split_first().ok_or("no command")?;
        let mut child = Command::new(format!("{FOLDER}/{program}"))
            .args(arguments)
            .env("PATH", FOLDER)
            .current_dir("/tmp")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let (sender, lines) = mpsc::channel();
        let output = follow(child.stdout.take().ok_or("no output")?, sender.clone());
        let messages = follow(child.stderr.take().ok_or("no messages")?, sender);
        Ok(Running { child, output, messages, lines })
    }

    /// Waits until it says that it is attached. A command that ends before is not.
    fn is_ready(&mut self) -> bool {
        let end = Instant::now() + LIMIT;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if line.ends_with("; ctrl-C ends it") || line.starts_with("Attached ") || line.starts_with("Receiving data")
            {
                return true;
            }
        }
        false
    }

    fn signal(&self, signal: libc::c_int) -> Result<(), Failure> {
        syscall(libc::SYS_kill, [u64::from(self.child.id()), signal as u64, 0, 0, 0, 0])?;
        Ok(())
    }

    /// Waits for its end, and adds what it has printed.
    fn end(mut self, printed: &mut Printed) -> Result<(), Failure> {
        let end = Instant::now() + LIMIT;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
                self.child.wait()?;
                printed.messages.push_str("(it did not end, and was killed)\n");
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        printed.output.push_str(&self.output.join().map_err(|_| "a reader panicked")?);
        printed.messages.push_str(&self.messages.join().map_err(|_| "a reader panicked")?);
        Ok(())
    }
}

/// Reads all lines, and tells of each as it comes.
fn follow(from: impl Read + Send + 'static, lines: Sender<String>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        let (mut from, mut bytes) = (BufReader::new(from), Vec::new());
        while from.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
            let line = String::from_utf8_lossy(&bytes).into_owned();
            text.push_str(&line);
            // Nobody listens after the command was ready.
            let _ = lines.send(line.trim_end().to_owned());
            bytes.clear();
        }
        text
    })
}
