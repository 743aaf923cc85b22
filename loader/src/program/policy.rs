// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What to do when not every site can be attached: the caller says it, or the program itself
//! ([`declared`](super::declared)), or its section.

use super::section::Kind;
use std::fmt;

/// What to do when not every site can be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// All sites or none.
    Complete,
    /// What plain libbpf attaches to, as it does, and each other site that can be attached. A site whose hits could
    /// outnumber calls is left out.
    AtLeastLibbpf,
    /// What can be attached is, and the rest is reported.
    #[default]
    BestEffort,
}

impl Policy {
    /// What holds for a section's programs if nothing is said: `fentry` and `fexit` programs must never silently miss
    /// calls; the name of `kprobe_maybe_inline` says that it may.
    #[doc(hidden)]
    pub fn of(kind: Kind) -> Policy {
        match kind {
            Kind::KprobeMaybeInline => Policy::BestEffort,
            Kind::Fentry | Kind::Fexit => Policy::Complete,
        }
    }

    /// What holds for a section's programs that libbpf's own calls attach, if nothing is said: a tool that worked with
    /// plain libbpf must go on working, and see no fewer calls.
    #[doc(hidden)]
    pub fn by_libbpf(kind: Kind) -> Policy {
        match kind {
            Kind::KprobeMaybeInline => Policy::BestEffort,
            Kind::Fentry | Kind::Fexit => Policy::AtLeastLibbpf,
        }
    }

    /// The policy of a name, as [`Display`](fmt::Display) writes it.
    pub(crate) fn named(name: &str) -> Option<Policy> {
        [Policy::Complete, Policy::AtLeastLibbpf, Policy::BestEffort].into_iter().find(|policy| policy.word() == name)
    }

    fn word(self) -> &'static str {
        match self {
            Policy::Complete => "complete",
            Policy::AtLeastLibbpf => "at_least_libbpf",
            Policy::BestEffort => "best_effort",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
