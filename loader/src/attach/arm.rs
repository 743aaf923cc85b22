// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arming the sites of a trampoline, by any mechanism but kprobes ([`super::kprobes`]).

use super::link::Part;
use crate::bpf::{fentry, kprobe_multi, perf_kprobe, tracing_multi};
use crate::plan::mechanism::Mechanism;
use crate::plan::{PlannedSite, PlannedTrampoline};
use crate::target::Target;
use crate::target::function::Candidate;
use libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `caller+0x12`.
pub(super) fn place(site: &Candidate) -> String {
    format!("{}+{:#x}", site.symbol, site.offset())
}

/// What is being attached.
#[derive(Clone, Copy)]
pub(super) struct Arm<'a> {
    pub(super) target: &'a Target,
    /// What `bpf_get_attach_cookie()` answers in a program that asks the kernel.
    pub(super) cookie: u64,
    /// From how many kprobes on they are armed together.
    pub(super) many: usize,
}

impl Arm<'_> {
    /// Arms the sites of a trampoline with the program of a number. Gives the sites that could not be, by place in
    /// the list, and the errors.
    pub(super) fn arm(
        self,
        program: usize,
        planned: &PlannedTrampoline,
        sites: &[&PlannedSite],
        part: &mut Part,
    ) -> Vec<(usize, io::Error)> {
        let addresses: Vec<u64> = sites.iter().map(|site| site.site.address).collect();
        let Part { programs, armed, .. } = part;
        let each_refused = |error: io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            (0..sites.len()).map(|nth| (nth, io::Error::from_raw_os_error(errno))).collect()
        };
        let Some(program) = programs.get(program).map(|program| program.as_fd()) else {
            return each_refused(io::Error::from_raw_os_error(libc::EINVAL));
        };
        match planned.mechanism {
            Mechanism::Fentry | Mechanism::Fexit => {
                let exit = planned.mechanism == Mechanism::Fexit;
                let attach_type = if exit { sys::BPF_TRACE_FEXIT } else { sys::BPF_TRACE_FENTRY };
                match fentry::attach(program, attach_type, self.cookie) {
                    Ok(link) => armed.links.push(link),
                    Err(error) => return each_refused(error),
                }
                Vec::new()
            }
            Mechanism::TracingMulti | Mechanism::TracingMultiExit => {
                let exit = planned.mechanism == Mechanism::TracingMultiExit;
                let attach_type = if exit { tracing_multi::FEXIT_MULTI } else { tracing_multi::FENTRY_MULTI };
                let functions: Option<Vec<TypeId>> = sites.iter().map(|site| site.site.exact).collect();
                match tracing_multi::attach(program, attach_type, &functions.unwrap_or_default(), self.cookie) {
                    Ok(link) => armed.links.push(link),
                    Err(error) => return each_refused(error),
                }
                Vec::new()
            }
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti | Mechanism::KprobeSession => {
                let at = match planned.mechanism {
                    Mechanism::KretprobeMulti => kprobe_multi::At::Return,
                    Mechanism::KprobeSession => kprobe_multi::At::Both,
                    _ => kprobe_multi::At::Entry,
                };
                let (links, errors) = kprobe_multi::attach(program, at, &addresses);
                armed.links.extend(links);
                errors
            }
            // Those of all trampolines are armed together: [`Arm::kprobes`].
            Mechanism::Kprobe => Vec::new(),
            Mechanism::Kretprobe => {
                let config = self.target.kernel().kretprobe.map_or(0, |bit| 1 << bit);
                let (links, errors) = self.each(program, config, 0, &addresses);
                armed.links.extend(links);
                errors
            }
        }
    }

    /// A perf kprobe, or kretprobe, at each address, with a cookie on its link.
    pub(super) fn each(
        self,
        program: BorrowedFd<'_>,
        config: u64,
        cookie: u64,
        addresses: &[u64],
    ) -> (Vec<OwnedFd>, Vec<(usize, io::Error)>) {
        let pmu = self.target.kernel().kprobe_pmu.unwrap_or(0);
        perf_kprobe::attach_each(program, pmu, config, cookie, addresses)
    }
}

/// Whether an error is the kernel's answer about this one site, not about the process or the machine.
pub(super) fn is_refusal(error: &io::Error, mechanism: Mechanism) -> bool {
    match error.raw_os_error() {
        // As many programs as a function may have.
        Some(libc::E2BIG) => mechanism.probe().is_tracing(),
        Some(libc::EPERM | libc::EACCES | libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR | libc::ENOSYS)
        | None => false,
        Some(_) => true,
    }
}
