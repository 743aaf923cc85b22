// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How to attach: to which functions, under which policy, with which cookie.

use super::{AttachError, kprobes};
use crate::plan::{PlanOptions, Policy};
use crate::program::section::Form;

/// How to attach a program. The default is to the function that its section names, under the section's policy
/// ([`Policy::of`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachOptions {
    policy: Option<Policy>,
    cookie: u64,
    all_prototypes: bool,
    pub(crate) functions: Vec<String>,
    pub(super) bpf_program: Option<u32>,
    pub(super) file: Option<String>,
    /// From how many kprobes on they are armed together.
    many: Option<usize>,
    share_beyond: Option<usize>,
    pub(crate) paired: Option<bool>,
    accept_doubt: Option<bool>,
    max_sites: Option<usize>,
    allow_risky: bool,
}

/// At as many sites a program is attached unless more are allowed.
pub const MAX_SITES: usize = 1024;

impl AttachOptions {
    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> AttachOptions {
        self.policy = Some(policy);
        self
    }

    /// Sets what `bpf_get_attach_cookie()` answers.
    #[must_use]
    pub fn cookie(mut self, cookie: u64) -> AttachOptions {
        self.cookie = cookie;
        self
    }

    /// Attaches to this function, `[module:]name`, in place of the one that the section names. May be called again for
    /// more.
    #[must_use]
    pub fn function(mut self, name: impl Into<String>) -> AttachOptions {
        self.functions.push(name.into());
        self
    }

    /// Attaches to a function of a loaded BPF program, by the kernel's id of it
    /// ([`id_of`](crate::target::bpf_program::id_of) a descriptor), in place of one of the kernel's. It comes before
    /// what `bpf_program__set_attach_target()` said. The function is the one that the section names, or
    /// [`AttachOptions::function`].
    #[must_use]
    pub fn bpf_program(mut self, id: u32) -> AttachOptions {
        self.bpf_program = Some(id);
        self
    }

    /// Takes only functions that this source file declares: its path, or the last components of it
    /// (`kernel/capability.c`).
    #[must_use]
    pub fn file(mut self, path: impl Into<String>) -> AttachOptions {
        self.file = Some(path.into());
        self
    }

    /// Takes all functions of the name even if their prototypes differ. The program has to tell them apart, by
    /// `siteseer_site()` and [`crate::plan::report::SiteReport::prototype`].
    #[must_use]
    pub fn all_prototypes(mut self, all: bool) -> AttachOptions {
        self.all_prototypes = all;
        self
    }

    /// Whether many kprobes may be armed together, through an event in tracefs (the default), or each on its own.
    /// Together is many times faster; a process that is killed then leaves the event's definition, unarmed, until the
    /// next one attaches or [`clean`](crate::clean) is called.
    #[must_use]
    pub fn bulk(mut self, bulk: bool) -> AttachOptions {
        self.many = (!bulk).then_some(usize::MAX);
        self
    }

    /// From how many kprobes on they are armed together, where [`AttachOptions::bulk`] would say 5.
    #[must_use]
    pub fn bulk_from(mut self, kprobes: usize) -> AttachOptions {
        self.many = Some(kprobes);
        self
    }

    /// Beyond how many location prototypes at kprobes they share programs: 128, if it is not set. A program for each
    /// makes the cheapest hits; a shared one takes less memory and is loaded sooner. `usize::MAX` for never.
    #[must_use]
    pub fn share_beyond(mut self, prototypes: usize) -> AttachOptions {
        self.share_beyond = Some(prototypes);
        self
    }

    /// Allows a program to be attached at so many sites: [`MAX_SITES`], if it is not set; `usize::MAX` for any
    /// number. Functions with thousands of copies are on the hottest paths of the kernel: a program there slows the
    /// whole machine down, and arming and disarming take minutes. So beyond that it is refused
    /// ([`AttachError::TooManySites`](super::AttachError::TooManySites)), under every policy.
    #[must_use]
    pub fn max_sites(mut self, sites: usize) -> AttachOptions {
        self.max_sites = Some(sites);
        self
    }

    /// Whether the program is attached at places where it is a risk to the kernel, such as in functions that the kernel
    /// calls for each BPF program that it runs. By default such sites are skipped
    /// ([`Reason::Risky`](crate::Reason::Risky), which says why), and prevent attaching under
    /// [`Policy::Complete`](crate::Policy::Complete).
    #[must_use]
    pub fn allow_risky(mut self, allow: bool) -> AttachOptions {
        self.allow_risky = allow;
        self
    }

    /// Whether a `fentry` program that libbpf's own calls attach is kept to the calls that a `fexit` program of the
    /// same object on the same function reaches, and the reverse. So it is under [`Policy::AtLeastLibbpf`], if it is
    /// not set: what pairs entries with returns would have entries without one, at inlined copies.
    #[must_use]
    pub fn paired(mut self, paired: bool) -> AttachOptions {
        self.paired = Some(paired);
        self
    }

    /// The policy that is set.
    pub(crate) fn given_policy(&self) -> Option<Policy> {
        self.policy
    }

    /// Whether doubtful arguments count as located. By default they do not: a doubtful argument counts as missing, so
    /// that a site where the program must have it is not attached, and `siteseer_arg()` returns `-ENOENT` for it. With
    /// doubt accepted the program gets the value that the debug information names, which may be wrong. The
    /// [`Report`](crate::Report) says which arguments are doubtful at which sites, and why.
    #[must_use]
    pub fn accept_doubt(mut self, accept: bool) -> AttachOptions {
        self.accept_doubt = Some(accept);
        self
    }

    /// With a policy, unless one is set.
    #[must_use]
    pub(crate) fn or_policy(mut self, policy: Option<Policy>) -> AttachOptions {
        self.policy = self.policy.or(policy);
        self
    }

    /// Whether it is said that doubtful arguments count as located.
    pub(crate) fn accepts_doubt(&self) -> bool {
        self.accept_doubt.unwrap_or_default()
    }

    /// With doubt accepted or not, unless it is said already.
    #[must_use]
    pub(crate) fn or_accept_doubt(mut self, accept: bool) -> AttachOptions {
        self.accept_doubt = self.accept_doubt.or(Some(accept));
        self
    }

    pub(crate) fn given_cookie(&self) -> u64 {
        self.cookie
    }

    /// Whether they leave it to the program what it is attached to.
    pub(crate) fn names_nothing(&self) -> bool {
        self.functions.is_empty() && self.bpf_program.is_none()
    }

    /// Whether so many sites may be attached.
    pub(super) fn allow(&self, sites: usize) -> Result<(), AttachError> {
        let limit = self.max_sites.unwrap_or(MAX_SITES);
        if sites <= limit { Ok(()) } else { Err(AttachError::TooManySites { sites, limit }) }
    }

    pub(super) fn many(&self) -> usize {
        self.many.unwrap_or(kprobes::MANY)
    }

    pub(super) fn plan(&self, form: Form) -> PlanOptions {
        let AttachOptions { policy, cookie, all_prototypes, share_beyond, allow_risky, .. } = *self;
        let accept_doubt = self.accepts_doubt();
        PlanOptions { policy, form, cookie, all_prototypes, accept_doubt, allow_risky, share_beyond, own: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_sites_than_a_thousand_are_asked_for() {
        let default = AttachOptions::default();
        assert!(default.allow(MAX_SITES).is_ok());
        let refused = default.allow(MAX_SITES + 1).unwrap_err();
        assert!(matches!(refused, AttachError::TooManySites { sites: 1025, limit: 1024 }));
        assert!(refused.to_string().contains("max_sites"), "{refused}");
        assert!(AttachOptions::default().max_sites(usize::MAX).allow(100_000).is_ok());
        assert!(AttachOptions::default().max_sites(2).allow(3).is_err());
    }
}
