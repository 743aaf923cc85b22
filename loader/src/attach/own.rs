// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The program that libbpf loaded for its own function, as one of those that a plan needs.
//!
//! Where siteseer has something to add to a program, libbpf loads it for its function all the same, and it serves the
//! body there: no other program is loaded for that, the kernel's information on it names the function, and the kernel
//! refuses to attach it twice.

use super::AttachError;
use crate::bpf::btf::btf_of;
use crate::bpf::fentry;
use crate::bpf::load::LoadAs;
use crate::plan::PlannedTrampoline;
use crate::plan::mechanism::Mechanism;
use libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The function that libbpf loaded a program for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnFunction {
    /// Its FUNC.
    pub(crate) func: TypeId,
    /// The module whose BTF has that; `None` for the kernel's image.
    pub(crate) module: Option<Arc<str>>,
    /// The BPF program whose FUNC that is, by id, if it is not the kernel's.
    pub(crate) program: Option<u32>,
}

impl OwnFunction {
    /// Whether a program for that function is what a trampoline stands for.
    fn serves(&self, planned: &PlannedTrampoline) -> bool {
        planned.mechanism.is_for_one()
            && planned.func == Some(self.func)
            && planned.module == self.module
            && planned.program == self.program
    }
}

/// The program that libbpf loaded.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) function: OwnFunction,
    pub(super) program: OwnedFd,
}

impl Own {
    /// The program in place of the only trampoline that it is planned for; `None` if that is another, or no
    /// descriptor is left for it: then one is loaded.
    pub(super) fn in_place_of(&self, members: &[&PlannedTrampoline]) -> Option<OwnedFd> {
        let &[planned] = members else { return None };
        if self.function.serves(planned) { self.program.try_clone().ok() } else { None }
    }

    /// Whether the kernel refuses to link it because it is linked already: if it is the function that cannot have a
    /// program, it cannot have an empty one either.
    pub(super) fn is_linked(&self, planned: &PlannedTrampoline, error: &io::Error) -> bool {
        if !self.function.serves(planned) || error.raw_os_error() != Some(libc::EBUSY) {
            return false;
        }
        let module = planned.module.as_deref().map(btf_of).transpose().ok().flatten();
        let kind =
            LoadAs::of(planned.mechanism, planned.func, module.as_ref().map(AsFd::as_fd), planned.program, false);
        let exit = planned.mechanism == Mechanism::Fexit;
        let attach_type = if exit { sys::BPF_TRACE_FEXIT } else { sys::BPF_TRACE_FENTRY };
        kind.load_nothing().is_ok_and(|nothing| fentry::attach(nothing.as_fd(), attach_type, 0).is_ok())
    }

    /// The error of linking it twice.
    pub(super) fn twice(name: &str) -> AttachError {
        AttachError::Twice { program: name.to_owned() }
    }
}
