// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Why a run failed. Those that happen after the start hold what is known about the run.

use std::{io, path::PathBuf, time::Duration};

use siteseer_kernels::{Arch, image::ImageError, log::last_lines};

use crate::{initramfs::InitramfsError, outcome::Outcome, splat::Splat};

/// How much of the console an error shows.
const SHOWN_LINES: usize = 25;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// There is no QEMU for this architecture.
    #[error("{program} is not installed: apt-get install --no-install-recommends {package}")]
    NoQemu {
        /// The program that was looked for in `PATH`.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The kernel image cannot be used.
    #[error("kernel image {path}", path = path.display())]
    Image {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        error: ImageError,
    },
    /// The kernel image is for another architecture.
    #[error("kernel image {path} is for {found}, not for {wanted}", path = path.display())]
    ImageArch {
        /// Its path.
        path: PathBuf,
        /// What it is for.
        found: Arch,
        /// What was asked for.
        wanted: Arch,
    },
    /// The program to run cannot run there.
    #[error("{path}: {reason}", path = path.display())]
    Program {
        /// Its path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// No program was given.
    #[error("no program to run: call Vm::init")]
    NoInit,
    /// The initramfs could not be made.
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    /// The guest has too little memory for its initramfs.
    #[error("{memory} MiB of memory are too few for an initramfs of {initramfs} MiB: {needed} MiB are needed")]
    Memory {
        /// What was asked for.
        memory: u32,
        /// The archive's size.
        initramfs: u64,
        /// The least that would do.
        needed: u64,
    },
    /// KVM was asked for, and cannot be used.
    #[error("KVM cannot be used: {0}")]
    NoKvm(String),
    /// The host failed.
    #[error("{what}")]
    Host {
        /// What was tried.
        what: String,
        /// How it failed.
        #[source]
        error: io::Error,
    },
    /// QEMU ended, or the time was over, before init ran.
    #[error("the guest never reached init ({how}){qemu}\nlast lines of the console:\n{console}",
        qemu = said(qemu), console = shown(outcome))]
    NeverReachedInit {
        /// What happened instead.
        how: String,
        /// What QEMU wrote to its standard error.
        qemu: String,
        /// The run so far.
        outcome: Box<Outcome>,
    },
    /// Init could not run the program.
    #[error("init failed in the guest: {reason}")]
    Init {
        /// Its words.
        reason: String,
        /// The run so far.
        outcome: Box<Outcome>,
    },
    /// The time limit passed; the guest was killed.
    #[error("the time limit of {} s passed; last lines of the console:\n{}", limit.as_secs_f64(), shown(outcome))]
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// The run so far.
        outcome: Box<Outcome>,
    },
    /// The machine went down before the program's end was reported.
    #[error("the guest went down while the program ran ({how}){qemu}\nlast lines of the console:\n{console}",
        qemu = said(qemu), console = shown(outcome))]
    WentDown {
        /// How QEMU ended.
        how: String,
        /// What QEMU wrote to its standard error.
        qemu: String,
        /// The run so far.
        outcome: Box<Outcome>,
    },
    /// Frames are missing: the results are not whole.
    #[error("{missing} frames of the results were lost on the way ({damaged} arrived damaged)")]
    ResultsLost {
        /// How many are missing.
        missing: u64,
        /// How many were received and did not add up.
        damaged: usize,
        /// The run; its results have holes.
        outcome: Box<Outcome>,
    },
    /// The kernel complained.
    #[error("the kernel complained:\n{}", splat_texts(&outcome.splats))]
    Splat {
        /// The run, with the splats.
        outcome: Box<Outcome>,
    },
    /// A signal killed the program.
    #[error("the program crashed in the guest: {}; last lines of the console:\n{}",
        outcome.exit_status.map(|status| status.to_string()).unwrap_or_default(), shown(outcome))]
    Crashed {
        /// The run.
        outcome: Box<Outcome>,
    },
}

impl VmError {
    /// What is known about the run, if there was one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            VmError::NeverReachedInit { outcome, .. }
            | VmError::Init { outcome, .. }
            | VmError::TimeLimit { outcome, .. }
            | VmError::WentDown { outcome, .. }
            | VmError::ResultsLost { outcome, .. }
            | VmError::Splat { outcome }
            | VmError::Crashed { outcome } => Some(outcome),
            _ => None,
        }
    }

    pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> VmError {
        let what = what.into();
        move |error| VmError::Host { what, error }
    }
}

fn shown(outcome: &Outcome) -> String {
    let last = last_lines(&outcome.console, SHOWN_LINES);
    // What made the kernel complain first is often far above its last words.
    match outcome.splats.first() {
        Some(splat) => {
            let first = splat.text.lines().take(SHOWN_LINES).collect::<Vec<_>>().join("\n");
            format!("{last}\nthe kernel's first complaint:\n{first}")
        }
        None => last,
    }
}

fn said(qemu: &str) -> String {
    match qemu.trim() {
        "" => String::new(),
        text => format!("; QEMU said: {text}"),
    }
}

fn splat_texts(splats: &[Splat]) -> String {
    splats.iter().map(|splat| splat.text.as_str()).collect::<Vec<_>>().join("\n\n")
}
