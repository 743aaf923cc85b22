// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a link was asked, and the kernel did not answer. The link stays as it is.

use crate::bpf::call::errno;
use std::io;

/// A question about a [`Link`](crate::Link) that the kernel does not answer. The program stays attached.
#[derive(Debug, thiserror::Error)]
#[error("the kernel does not tell {what}")]
#[non_exhaustive]
pub struct LinkError {
    /// What was asked.
    what: &'static str,
    /// What the kernel said.
    #[source]
    error: io::Error,
}

impl LinkError {
    /// For `map_err()`.
    pub(crate) fn of(what: &'static str) -> impl Fn(io::Error) -> LinkError {
        move |error| LinkError { what, error }
    }

    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        errno(&self.error)
    }
}

/// Which modules are loaded.
pub(crate) const MODULES: &str = "which modules are loaded (/sys/module)";
/// What live patches have replaced.
pub(crate) const LIVE_PATCHES: &str = "which functions live patches have replaced (/sys/kernel/livepatch)";
/// What a program takes.
pub(crate) const COST: &str = "how large its programs are";
/// How many calls were left out.
pub(crate) const FAULTS: &str = "how many calls were left out because of what could not be read";
/// How many calls were missed.
pub(crate) const MISSED: &str = "how many calls its programs missed";
/// What prog arrays hold.
pub(crate) const TAIL_SLOTS: &str = "what the machine's prog arrays hold (which requires CAP_SYS_ADMIN)";
