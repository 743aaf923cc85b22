// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! What the host and the guest half tell each other: one file into the initramfs, three kinds of frames out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the host puts [`Orders`] in the initramfs.
pub(crate) const ORDERS_PATH: &str = "/vmtest.json";

/// The environment variable that names, inside the guest, the file to write results to.
#[cfg(feature = "guest")]
pub(crate) const RESULTS_VARIABLE: &str = "VMTEST_RESULTS";

/// What init is to do. A file rather than the kernel command line: that is limited to 2 KiB and has no quoting that
/// all kernels agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The marker of this run's frames.
    pub(crate) marker: String,
    /// The device that carries frames, below `/dev`.
    pub(crate) results_device: String,
    /// The program to run; none means init's own executable, started again as an ordinary process.
    pub(crate) program: Option<String>,
    /// Its arguments, without the program's name.
    pub(crate) arguments: Vec<String>,
    /// Variables added to its environment.
    pub(crate) environment: BTreeMap<String, String>,
}

/// The first frame: init runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// `uname -r`.
    pub(crate) release: String,
    /// Seconds since the kernel started.
    pub(crate) uptime: f64,
    /// Whether frames come by the UART (else by the kernel log).
    pub(crate) uart: bool,
}

/// The last frame: the program has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Farewell {
    /// The exit code, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that killed it, if one did.
    pub(crate) signal: Option<i32>,
    /// Seconds since the kernel started.
    pub(crate) uptime: f64,
    /// `/proc/sys/kernel/tainted`, 0 if it cannot be read.
    pub(crate) taint: u64,
}
