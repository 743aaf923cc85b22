// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What only the kernel can tell about what is attached.

use super::AttachError;
use std::io;

/// Makes an error of the kernel's say what was asked, for `map_err()`.
pub(crate) fn unanswered(what: &'static str) -> impl Fn(io::Error) -> AttachError {
    move |error| AttachError::Unanswered { what, error }
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
