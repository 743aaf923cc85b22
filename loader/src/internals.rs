// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the project's own tools are built from: **not part of the interface**.
//!
//! The command, the C library and the conformance suite see more of siteseer than an application has to: site data,
//! symbols, plans in detail, trampolines. They are released together with this crate, and change with it. Whatever is
//! reached through this module may change or go in any release, and the change log does not mention it; an
//! application that uses it pins the version of the crate.
//!
//! The names are those of the phases and their parts. What is missing for an application belongs into the facade, the
//! names that the crate has at its root.

pub use crate::attach::link;
pub use crate::bpf::{helper, insn};
pub use crate::explain::{check, outline};
pub use crate::kernel::{symbols, sysfs};
pub use crate::plan::{mechanism, report};
pub use crate::program::{declared, object, object_file, path, pattern, section};
pub use crate::register::log;
pub use crate::site::{candidate, reason, refusal, unavailable};
pub use crate::source::{modules, placement};
pub use crate::target::{bpf_program as bpf_target, function, livepatch};
pub use crate::trampoline::arch;

/// Carrying plans out.
pub mod attach {
    pub use crate::attach::*;
}
/// Objects with trampolines, for other loaders.
pub mod compile {
    pub use crate::compile::*;
}
/// The library's error.
pub mod error {
    pub use crate::error::*;
}
/// Plans in words.
pub mod explain {
    pub use crate::explain::*;
}
/// What a kernel is and can do.
pub mod kernel {
    pub use crate::kernel::*;
}
/// What is attached, and how.
pub mod plan {
    pub use crate::plan::*;
}
/// What a program reads and calls.
pub mod program {
    pub use crate::program::*;
}
/// siteseer inside of libbpf's calls.
pub mod register {
    pub use crate::register::*;
}
/// Site data.
pub mod source {
    pub use crate::source::*;
}
/// Functions and their places.
pub mod target {
    pub use crate::target::*;
}
/// BPF code that gathers arguments.
pub mod trampoline {
    pub use crate::trampoline::*;
}
