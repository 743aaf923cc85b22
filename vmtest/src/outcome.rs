// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What a run brought back.

use std::{fmt, time::Duration};

use crate::{accel::Accelerator, splat::Splat};

/// How the guest's program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl ExitStatus {
    /// Whether it exited with code 0.
    pub fn success(self) -> bool {
        self == ExitStatus::Code(0)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ExitStatus::Code(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(name) => write!(f, "killed by {name}"),
                Err(_) => write!(f, "killed by signal {signal}"),
            },
        }
    }
}

/// What carried the results out (see the crate's page).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A serial port of their own.
    Uart,
    /// Messages of the kernel log.
    KernelLog,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Carrier::Uart => "a port of their own",
            Carrier::KernelLog => "the kernel log",
        })
    }
}

/// What is known about a run, whole if it came to its end, else as far as it came.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How the program ended; none if its end was not seen.
    pub exit_status: Option<ExitStatus>,
    /// Everything that appeared on the console, without carriage returns.
    pub console: String,
    /// Everything that the program wrote to its results file.
    pub results: Vec<u8>,
    /// Complaints of the kernel.
    pub splats: Vec<Splat>,
    /// `uname -r` of the guest; empty if init was not reached.
    pub release: String,
    /// Guest seconds from the kernel's start to init's.
    pub boot_seconds: Option<f64>,
    /// Guest seconds from the kernel's start to the program's end.
    pub guest_seconds: Option<f64>,
    /// Host time from QEMU's start to its end.
    pub wall: Duration,
    /// What ran the guest's instructions.
    pub accelerator: Accelerator,
    /// What carried the results; none if init was not reached.
    pub carrier: Option<Carrier>,
}

impl Outcome {
    /// The results as lines of text.
    pub fn result_lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.results).lines().map(str::to_owned).collect()
    }

    /// Whether the program exited with code 0 and the kernel did not complain.
    pub fn success(&self) -> bool {
        self.exit_status.is_some_and(ExitStatus::success) && self.splats.is_empty()
    }
}
