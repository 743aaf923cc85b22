// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Process 1 of the guest.
//!
//! A test program calls [`main`] with what it wants to do. Started as process 1, it becomes init: it sets the system
//! up, says that it is alive, and starts its own executable once more as an ordinary child, with the arguments and the
//! environment that the host gave. That second process, and one started on any other machine, goes straight
//! to its work. Init itself never runs test code: a test may crash, fork or take all memory it is allowed, and
//! there is still someone to report it.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     siteseer_vmtest::guest::main(|| {
//!         use std::io::Write;
//!         let mut results = siteseer_vmtest::guest::results().expect("runs in the virtual machine");
//!         writeln!(results, "{} arguments", std::env::args().len() - 1).expect("init reads them");
//!         std::process::ExitCode::SUCCESS
//!     })
//! }
//! ```
//!
//! The child's standard output and error are the console. Its results go to the file that [`results`] opens: a pipe
//! whose other end init packs into frames as they come. What descendants write there after the child has ended is lost:
//! the machine is switched off when the child ends.

mod channel;
mod setup;

use std::{
    fs,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    os::unix::process::ExitStatusExt,
    process::{Command, ExitCode, Stdio},
    thread,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::reboot::{RebootMode, reboot},
    unistd::{pipe, pipe2},
};

use self::channel::Channel;
use crate::{
    frame::Kind,
    handover::{Farewell, Hello, ORDERS_PATH, Orders, RESULTS_VARIABLE},
};

/// Runs `payload`; as process 1, sets the machine up first, has a child run it, and switches the machine off.
pub fn main(payload: impl FnOnce() -> ExitCode) -> ExitCode {
    if std::process::id() != 1 {
        return payload();
    }
    if let Err(error) = init() {
        // Without a channel the console is all there is.
        eprintln!("init: {error}");
    }
    power_off()
}

/// Whether this process was started by this crate's init.
pub fn is_guest() -> bool {
    std::env::var_os(RESULTS_VARIABLE).is_some()
}

/// Opens the file that takes this program's results; they reach the host as they are written. It is named by the
/// environment variable `VMTEST_RESULTS`, which serves to run the program without this crate's init, too.
///
/// # Errors
/// `NotFound` outside a virtual machine started by this crate.
pub fn results() -> io::Result<fs::File> {
    let path = std::env::var_os(RESULTS_VARIABLE).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{RESULTS_VARIABLE} is not set: not started by vmtest's init"))
    })?;
    fs::OpenOptions::new().write(true).open(path)
}

/// Sets up, runs the program, reports.
fn init() -> io::Result<()> {
    setup::mount_essentials()?;
    let orders: Orders = serde_json::from_slice(&fs::read(ORDERS_PATH)?)?;
    let mut channel = Channel::open(&orders)?;
    channel.send_json(Kind::Hello, &Hello { release: release(), uptime: uptime(), uart: channel.is_uart() })?;
    match setup::finish().and_then(|()| run(&orders, &mut channel)) {
        Ok(status) => channel.send_json(
            Kind::Farewell,
            &Farewell { code: status.code(), signal: status.signal(), uptime: uptime(), taint: taint() },
        )?,
        Err(error) => channel.send(Kind::Failure, error.to_string().as_bytes())?,
    }
    channel.finish()
}

/// Runs the program and passes its results on until it has ended.
fn run(orders: &Orders, channel: &mut Channel) -> io::Result<std::process::ExitStatus> {
    let program = orders.program.as_deref().unwrap_or("/proc/self/exe");
    // Inheritable, so that the child, and what the child starts, can open it by /proc/self/fd/N.
    let (results, writer) = pipe()?;
    fcntl(&results, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    fcntl(&results, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;

    let mut child = Command::new(program)
        .args(&orders.arguments)
        .env_clear()
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .env("HOME", "/")
        .env("TERM", "dumb")
        .env(RESULTS_VARIABLE, format!("/proc/self/fd/{}", writer.as_raw_fd()))
        .envs(&orders.environment)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot start {program}: {error}")))?;
    drop(writer);

    // The wait is a thread's, so that this one can sleep until there is a result or an end.
    let (ended, end) = pipe2(OFlag::O_CLOEXEC)?;
    let waiter = thread::spawn(move || {
        let status = child.wait();
        drop(end);
        status
    });
    pump(results, ended, channel)?;
    waiter.join().map_err(|_| io::Error::other("the thread that waits for the program panicked"))?
}

/// Sends what comes from `results` until `ended` is closed and nothing is left.
fn pump(results: OwnedFd, ended: OwnedFd, channel: &mut Channel) -> io::Result<()> {
    let mut file = fs::File::from(results);
    let mut buffer = vec![0; 64 * 1024];
    let mut open = true;
    loop {
        let mut over = false;
        {
            let mut wanted = vec![PollFd::new(ended.as_fd(), PollFlags::POLLIN)];
            if open {
                wanted.push(PollFd::new(file.as_fd(), PollFlags::POLLIN));
            }
            match poll(&mut wanted, PollTimeout::NONE) {
                Ok(_) => over = wanted[0].any().unwrap_or(true),
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        while open {
            match file.read(&mut buffer) {
                Ok(0) => open = false,
                Ok(count) => channel.send(Kind::Data, &buffer[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if over {
            return Ok(());
        }
    }
}

fn release() -> String {
    nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// Seconds since the kernel started.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

fn taint() -> u64 {
    fs::read_to_string("/proc/sys/kernel/tainted").ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

fn power_off() -> ExitCode {
    let _ = io::stdout().flush();
    nix::unistd::sync();
    match reboot(RebootMode::RB_POWER_OFF) {
        Ok(never) => match never {},
        // The kernel then panics because it has no init, which ends the machine as well.
        Err(error) => {
            eprintln!("init: cannot power off: {error}");
            ExitCode::FAILURE
        }
    }
}
