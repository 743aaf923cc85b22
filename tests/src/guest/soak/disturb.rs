// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What else happens on a machine, each in a thread of its own: a processor goes off and on, other tools put probes on
//! the same functions and take them away, ftrace traces these functions. A process takes most of the memory.

use crate::guest::case::Failure;
use crate::guest::faults::Off;
use crate::measure::cost::perf;
use std::fmt::{self, Display};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TRACEFS: &str = "/sys/kernel/tracing";
/// An instance of ftrace, so that nobody else's settings change.
const INSTANCE: &str = "/sys/kernel/tracing/instances/soak";
/// The function that all share.
const FUNCTION: &str = "ksys_semget";
/// How long something may be busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much of the memory that is left is taken.
const TAKEN: u64 = 60;

/// What is changing.
type Worker = JoinHandle<Result<u64, String>>;

/// The threads.
#[derive(Default)]
pub(super) struct Disturbance {
    is_over: Arc<AtomicBool>,
    workers: Vec<(&'static str, Worker)>,
    hog: Option<Hog>,
}

/// How often each was done.
pub(super) struct Disturbed(Vec<(&'static str, u64)>);

impl Disturbance {
    pub(super) fn begin() -> Result<Disturbance, Failure> {
        let mut disturbance = Disturbance { hog: Some(Hog::new()?), ..Disturbance::default() };
        disturbance.repeat("a processor went off and on", Duration::from_millis(150), processor)?;
        disturbance.repeat("other probes came and went", Duration::from_millis(20), probes)?;
        disturbance.repeat("ftrace traced the same function", Duration::from_millis(60), ftrace)?;
        Ok(disturbance)
    }

    /// Does something again and again, with a pause after each.
    fn repeat(
        &mut self,
        what: &'static str,
        pause: Duration,
        mut work: impl FnMut() -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let is_over = Arc::clone(&self.is_over);
        let run = move || {
            let mut times = 0;
            while !is_over.load(Ordering::Relaxed) {
                work().map_err(|error| error.to_string())?;
                times += 1;
                thread::sleep(pause);
            }
            Ok(times)
        };
        self.workers.push((what, thread::Builder::new().spawn(run)?));
        Ok(())
    }

    /// Ends all of it.
    pub(super) fn end(self) -> Result<Disturbed, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for (what, worker) in self.workers {
            let times = worker.join().map_err(|_| format!("{what}: it panicked"))?;
            done.push((what, times.map_err(|why| format!("{what}: {why}"))?));
        }
        if let Some(hog) = self.hog {
            done.push(("most of the memory was taken", hog.times()));
        }
        if let Some((what, _)) = done.iter().find(|(_, times)| *times == 0) {
            return Err(format!("not once in all this time: {what}").into());
        }
        // It is there if ftrace traced anything.
        if fs::exists(INSTANCE)? {
            fs::remove_dir(INSTANCE)?;
        }
        Ok(Disturbed(done))
    }
}

impl Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (what, times)) in self.0.iter().enumerate() {
            write!(f, "{}{what} {times} times", if nth > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// The second processor goes off and comes back.
fn processor() -> Result<(), Failure> {
    let off = Off::new(1)?;
    thread::sleep(Duration::from_millis(30));
    Ok(off.on()?)
}

/// A tool that writes definitions of tracefs, and opens what it defined.
fn probes() -> Result<(), Failure> {
    let write = |line: &str| -> io::Result<()> {
        OpenOptions::new().append(true).open(format!("{TRACEFS}/kprobe_events"))?.write_all(line.as_bytes())
    };
    write(&format!("p:soak/probe {FUNCTION}\n"))?;
    let event = perf::counting_event("soak/probe")?;
    thread::sleep(Duration::from_millis(10));
    drop(event);
    // A process that siteseer starts has a copy of the event, until it has closed what it does not need.
    let begin = Instant::now();
    loop {
        match write("-:soak/probe\n") {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5));
            }
            written => return Ok(written?),
        }
    }
}

/// The function tracer on the same functions.
fn ftrace() -> Result<(), Failure> {
    if !fs::exists(INSTANCE)? {
        fs::create_dir(INSTANCE)?;
    }
    let set = |file: &str, text: &str| fs::write(format!("{INSTANCE}/{file}"), text);
    set("set_ftrace_filter", FUNCTION)?;
    set("current_tracer", "function")?;
    thread::sleep(Duration::from_millis(20));
    Ok(set("current_tracer", "nop")?)
}

/// A process that takes most of the memory and gives it back, again and again, until it is dropped.
///
/// It is made before anything is attached: a child has its parent's descriptors, and a program runs for as long as any
/// process has its link open (S13.7).
struct Hog {
    process: libc::pid_t,
    /// How often it did that. Both processes have this page.
    times: *mut u64,
}

impl Hog {
    fn new() -> io::Result<Hog> {
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a page of our own; the child makes system calls alone until it is killed.
        unsafe {
            let times = libc::mmap(std::ptr::null_mut(), size_of::<u64>(), protection, shared, -1, 0);
            if times == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let times = times.cast::<u64>();
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                0 => Hog::take(times),
                process => Ok(Hog { process, times }),
            }
        }
    }

    /// What the child does.
    ///
    /// # Safety
    /// In a process that has just been forked.
    unsafe fn take(times: *mut u64) -> ! {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: system calls with memory of this process.
        unsafe {
            loop {
                let mut machine: libc::sysinfo = std::mem::zeroed();
                libc::sysinfo(&raw mut machine);
                let length = (machine.freeram * u64::from(machine.mem_unit) / 100 * TAKEN) as usize;
                let start = libc::mmap(std::ptr::null_mut(), length, libc::PROT_WRITE, private, -1, 0);
                libc::nanosleep(&raw const pause, std::ptr::null_mut());
                if start != libc::MAP_FAILED {
                    libc::munmap(start, length);
                    times.write_volatile(times.read() + 1);
                }
            }
        }
    }

    fn times(&self) -> u64 {
        // SAFETY: the page lives as long as this, and an aligned word is written whole.
        unsafe { self.times.read_volatile() }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        // SAFETY: a child of this process that nobody else waits for, and a page that nothing refers to afterwards.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, std::ptr::null_mut(), 0);
            libc::munmap(self.times.cast(), size_of::<u64>());
        }
    }
}
