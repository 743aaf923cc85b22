// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The guest's half: starts each tool in each way, makes the calls, and says what was seen.

use super::programs::{self, Watched};
use super::workload;
use super::{JOBS, Job, Run, Way};
use crate::guest::calls::syscall;
use crate::guest::case::Failure;
use siteseer_sites::btf::Btf;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a tool is looked at.
const TICK: Duration = Duration::from_millis(5);
/// A tool that sleeps for so many looks is attached: none of them sleeps before.
const LOOKS: usize = 4;
/// How long a tool may take to start, and to end.
const LIMIT: Duration = Duration::from_secs(60);
/// How often the calls are made for a tool with programs on functions. For the others nothing is compared.
const REPETITIONS: usize = 3;
/// How much of what a tool prints is kept.
const KEPT: usize = 3000;

/// System calls in which tools wait for events: read, poll, select, pause, nanosleep, rt_sigtimedwait, rt_sigsuspend,
/// restart_syscall, clock_nanosleep, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2.
#[cfg(target_arch = "x86_64")]
const WAITS: [libc::c_long; 13] = [
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_pause,
    libc::SYS_nanosleep,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_restart_syscall,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_wait,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
];
/// The tools are for x86-64.
#[cfg(not(target_arch = "x86_64"))]
const WAITS: [libc::c_long; 0] = [];

/// Runs all jobs; a line of JSON for each run goes to `results`.
///
/// # Errors
/// If a call of the workload fails, or the kernel does not count.
pub fn run(results: &mut impl Write) -> Result<(), Failure> {
    let jobs: Vec<Job> = serde_json::from_slice(&fs::read(JOBS)?)?;
    let types = programs::count_runs()?;
    let types = Btf::parse(&types)?;
    workload::mount_disk()?;
    // What is read for the first time is read from the disk.
    workload::run()?;
    for job in &jobs {
        for way in &job.ways {
            let run = watch(job, *way, &types).map_err(|error| format!("{}: {error}", job.name))?;
            writeln!(results, "{}", serde_json::to_string(&run)?)?;
        }
    }
    Ok(())
}

fn watch(job: &Job, way: Way, types: &Btf<'_>) -> Result<Run, Failure> {
    let others = programs::ids()?;
    let (output, messages) = ("/tmp/output", "/tmp/messages");
    fs::create_dir_all("/tmp")?;
    let program = way.program(&job.file);
    let mut command = Command::new(&program);
    command.arg0(&job.tool);
    // Without a time zone the C library looks for a file each time, which opensnoop prints, with the time.
    command.args(&job.arguments).env("TZ", "UTC0").stdin(Stdio::null());
    command.stdout(File::create(output)?).stderr(File::create(messages)?);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let attached = wait_until_attached(&mut child, started)?;
    let mut seen = Vec::new();
    if attached.is_some() {
        let mut watched = Watched::besides(&others, types)?;
        // What the tool does itself would be seen too, and differs from run to run. Its BPF programs run without it.
        signal(&child, libc::SIGSTOP)?;
        for _ in 0..if watched.has_functions() { REPETITIONS } else { 1 } {
            watched.during(workload::run)?;
        }
        signal(&child, libc::SIGCONT)?;
        seen = watched.programs();
    }
    let stopped = Instant::now();
    let status = stop(&mut child)?;
    let run = Run {
        tool: job.name.clone(),
        way,
        attached,
        stopped: stopped.elapsed().as_secs_f64(),
        status: describe(status),
        programs: seen,
        printed: kept(output)?,
        messages: kept(messages)?,
    };
    // The kernel frees programs later.
    let begin = Instant::now();
    while !programs::ids()?.is_subset(&others) && begin.elapsed() < Duration::from_secs(3) {
        thread::sleep(TICK);
    }
    Ok(run)
}

/// Seconds from the start until the tool waits for events, or nothing if it ended or never waits.
fn wait_until_attached(child: &mut Child, started: Instant) -> Result<Option<f64>, Failure> {
    // It is opened once: some tools wake up for each file that is opened.
    let state = File::open(format!("/proc/{}/syscall", child.id()))?;
    let mut looks = 0;
    let mut since = 0.0;
    while started.elapsed() < LIMIT {
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        let mut call = [0; 8];
        let read = state.read_at(&mut call, 0).unwrap_or(0);
        let call = String::from_utf8_lossy(&call[..read]);
        let number = call.split(' ').next().and_then(|word| word.parse().ok());
        if number.is_some_and(|number: libc::c_long| WAITS.contains(&number)) {
            if looks == 0 {
                since = started.elapsed().as_secs_f64();
            }
            looks += 1;
            if looks == LOOKS {
                return Ok(Some(since));
            }
        } else {
            looks = 0;
        }
        thread::sleep(TICK);
    }
    Ok(None)
}

/// Has it end, as ctrl-C does.
fn stop(child: &mut Child) -> Result<ExitStatus, Failure> {
    let begin = Instant::now();
    let mut interrupts = 0;
    while begin.elapsed() < LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // A tool that prints at intervals may need a second one.
        if begin.elapsed() >= Duration::from_secs(5) * interrupts {
            signal(child, libc::SIGINT)?;
            interrupts += 1;
        }
        thread::sleep(TICK);
    }
    child.kill()?;
    Ok(child.wait()?)
}

fn signal(child: &Child, signal: i32) -> Result<(), Failure> {
    syscall(libc::SYS_kill, [u64::from(child.id()), signal as u64, 0, 0, 0, 0])?;
    Ok(())
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

/// The end of a file.
fn kept(path: &str) -> Result<String, Failure> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(KEPT)..]).into_owned())
}
