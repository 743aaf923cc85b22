// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a program could not be attached, or what is attached not be asked.

use crate::bpf::call::errno;
use crate::plan::PlanError;
use crate::plan::mechanism::Mechanism;
use crate::program::declared::DeclaredError;
use crate::program::object::ObjectError;
use crate::program::section::SectionError;
use crate::target::TargetError;
use crate::target::bpf_program::BpfTargetError;
use crate::target::function::SelectError;
use std::io;

/// Why a program could not be planned for its functions, or the plan not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A function's name is malformed.
    #[doc(hidden)]
    #[error(transparent)]
    Section(#[from] SectionError),
    /// The function cannot be looked up.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A function of a BPF program cannot be a target.
    #[doc(hidden)]
    #[error(transparent)]
    BpfTarget(#[from] BpfTargetError),
    /// What the program states of the function cannot be read.
    #[doc(hidden)]
    #[error(transparent)]
    Declared(#[from] DeclaredError),
    /// None of the functions of the name is the one that is meant.
    #[doc(hidden)]
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The program cannot be taken over from libbpf.
    #[doc(hidden)]
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The program cannot be attached to the function.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The process may not.
    #[error("attaching requires CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN): run as root")]
    Privileges,
    /// The program's section names no function, and none was given.
    #[error("program {program}: SEC(\"{section}\") names no function, and none was given to attach to")]
    NoFunction {
        /// Name of the program.
        program: String,
        /// The section, without a function.
        section: &'static str,
    },
    /// `bpf_program__set_attach_target()` named a function that is not to be found any more.
    #[error("program {program}: type {btf_id} of the kernel's BTF object {object} is not a function")]
    NoSuchType {
        /// Name of the program.
        program: String,
        /// Id of the BTF object; 0 for that of the kernel's image.
        object: u32,
        /// Id of the type.
        btf_id: u32,
    },
    /// libbpf's program for its own function is attached already, and the kernel attaches it once.
    #[error("program {program} is attached already: destroy its link first")]
    Twice {
        /// Name of the program.
        program: String,
    },
    /// Modules were loaded and unloaded each time that the program was to be attached in them.
    #[error(
        "modules that the function is in are loaded and unloaded all the time: it cannot be attached while nothing changes"
    )]
    ModulesChange,
    /// The kernel does not answer a question about what is attached. That stays as it is.
    #[error("the kernel does not tell {what}")]
    Unanswered {
        /// What was asked.
        what: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// The program would run at more sites than it may.
    #[error(
        "the program would be attached at {sites} sites, and {limit} are allowed: so many slow the whole machine down, \
         and take minutes to arm and to disarm. To attach to them nevertheless, raise the limit \
         (AttachOptions::max_sites(), max_sites of struct siteseer_attach_opts, --yes)"
    )]
    TooManySites {
        /// How many.
        sites: usize,
        /// The limit.
        limit: usize,
    },
    /// The kernel lets nobody do it.
    #[error("the kernel is locked down ({mode}), which keeps even root from attaching: see kernel_lockdown(7)")]
    LockedDown {
        /// `integrity` or `confidentiality`.
        mode: String,
        /// What was refused.
        #[source]
        error: Box<AttachError>,
    },
    /// Every site is attached, and a switch of the kernel's keeps the program from running there. Under
    /// [`Policy::Complete`](crate::Policy::Complete).
    #[error("the policy is complete, and {0}")]
    SwitchedOff(String),
    /// More files would be needed than may be open.
    #[error("{needed} files would have to be open, the limit is {limit} and cannot be raised")]
    Files {
        /// How many.
        needed: u64,
        /// The limit.
        limit: u64,
        /// What the system said when it was to be raised.
        #[source]
        error: io::Error,
    },
    /// Arguments are read by helpers that the program's licence does not allow.
    #[error(
        "program {program} does not declare a GPL-compatible licence, and its arguments at {site} need helpers that \
         only such programs may call (bpf_probe_read_kernel, bpf_rdonly_cast)"
    )]
    Licence {
        /// Name of the program.
        program: String,
        /// One of the sites.
        site: String,
    },
    /// The kernel does not accept the BTF of a trampoline.
    #[error("the kernel refuses the BTF of the trampoline for {site}: {error}{}", tail(log))]
    Btf {
        /// One of its sites.
        site: String,
        /// The error.
        error: io::Error,
        /// The kernel's log.
        log: String,
    },
    /// The verifier rejects a trampoline.
    #[error("the kernel rejects program {program} in the trampoline for {site}: {error}{}", tail(log))]
    Verifier {
        /// Name of the program.
        program: String,
        /// One of the trampoline's sites.
        site: String,
        /// The error.
        error: io::Error,
        /// The whole log.
        log: String,
    },
    /// A map could not be made or filled.
    #[error("the map of {what}")]
    Map {
        /// What it holds.
        what: &'static str,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// A site could not be armed for a reason that is not the site's.
    #[error(
        "{mechanism} at {site}{}",
        if error.raw_os_error() == Some(libc::EACCES) { PARANOID } else { "" }
    )]
    Arm {
        /// The mechanism.
        mechanism: Mechanism,
        /// The site.
        site: String,
        /// The error.
        #[source]
        error: io::Error,
    },
}

impl AttachError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            AttachError::Section(_) | AttachError::Declared(_) => libc::EINVAL,
            AttachError::Target(error) => error.errno(),
            AttachError::BpfTarget(error) => error.errno(),
            AttachError::Select(_) => libc::ENOENT,
            AttachError::Object(error) => error.errno(),
            AttachError::Plan(error) => error.errno(),
            AttachError::Privileges | AttachError::LockedDown { .. } => libc::EPERM,
            AttachError::TooManySites { .. } => libc::E2BIG,
            AttachError::SwitchedOff(_) => libc::EOPNOTSUPP,
            AttachError::NoFunction { .. } | AttachError::NoSuchType { .. } => libc::EINVAL,
            AttachError::Licence { .. } => libc::EACCES,
            AttachError::Twice { .. } => libc::EBUSY,
            AttachError::ModulesChange => libc::EAGAIN,
            AttachError::Unanswered { error, .. }
            | AttachError::Files { error, .. }
            | AttachError::Btf { error, .. }
            | AttachError::Verifier { error, .. }
            | AttachError::Map { error, .. }
            | AttachError::Arm { error, .. } => errno(error),
        }
    }
}

/// What refuses perf events to a process that has CAP_PERFMON.
const PARANOID: &str =
    " (Debian's kernels require CAP_SYS_ADMIN for perf events while sysctl kernel.perf_event_paranoid is 3 or more)";

/// The end of a log: what matters comes last.
fn tail(log: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = log.trim_end().lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = lines.len().saturating_sub(LINES);
    let cut = if from > 0 { "  [...]\n" } else { "" };
    format!("\n{cut}  {}", lines[from..].join("\n  "))
}
