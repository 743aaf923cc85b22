// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BPF as the kernel has it: instructions, helpers, and the system calls.
//!
//! All calls of bpf(2) and perf_event_open(2) that siteseer makes itself are here, as functions that know nothing of
//! sites. (libbpf makes its own when it opens, loads and attaches objects.) A test of the conformance suite keeps them
//! here.

pub(crate) mod btf;
pub(crate) mod call;
pub(crate) mod fentry;
pub mod helper;
pub(crate) mod info;
pub mod insn;
pub(crate) mod kprobe_multi;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod objects;
pub(crate) mod perf_kprobe;
pub(crate) mod tracing_multi;
