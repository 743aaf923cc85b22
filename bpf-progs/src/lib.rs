// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The BPF programs of siteseer's tools and tests, compiled at build time and embedded: no compiler is needed where
//! they run. One constant per `*.bpf.c`, which holds the ELF object for libbpf to open.

// The headers' folder is this dependency's only use.
use libbpf_sys as _;

pub mod compile;
mod constant;
pub mod cost;
pub mod count;
pub mod fields;
pub mod filter;
pub mod latency;
pub mod oracle;
pub mod tools;
pub mod trace;
pub mod truth;

pub use constant::{ConstantError, set_constant, set_constant_bytes};

/// Where libbpf's headers are on the machine that this was built on.
pub const LIBBPF_INCLUDE: &str = env!("LIBBPF_INCLUDE");

include!(concat!(env!("OUT_DIR"), "/objects.rs"));
