// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! As what a trampoline is loaded, by its mechanism.

use crate::bpf::load::LoadAs;
use crate::bpf::tracing_multi;
use crate::plan::mechanism::Mechanism;
use libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::os::fd::{AsRawFd, BorrowedFd};

impl LoadAs {
    /// What a mechanism requires.
    pub(crate) fn of(
        mechanism: Mechanism,
        func: Option<TypeId>,
        module: Option<BorrowedFd<'_>>,
        program: Option<u32>,
        sleepable: bool,
    ) -> LoadAs {
        let attach_type = match mechanism {
            Mechanism::Fentry => sys::BPF_TRACE_FENTRY,
            Mechanism::Fexit => sys::BPF_TRACE_FEXIT,
            Mechanism::TracingMulti => tracing_multi::FENTRY_MULTI,
            Mechanism::TracingMultiExit => tracing_multi::FEXIT_MULTI,
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti => sys::BPF_TRACE_KPROBE_MULTI,
            Mechanism::KprobeSession => sys::BPF_TRACE_KPROBE_SESSION,
            Mechanism::Kprobe | Mechanism::Kretprobe => 0,
        };
        let tracing = mechanism.probe().is_tracing();
        LoadAs {
            program_type: if tracing { sys::BPF_PROG_TYPE_TRACING } else { sys::BPF_PROG_TYPE_KPROBE },
            attach_type,
            func: func.unwrap_or(0),
            module: module.map_or(0, |btf| btf.as_raw_fd() as u32),
            program,
            flags: if sleepable { sys::BPF_F_SLEEPABLE } else { 0 },
        }
    }
}
