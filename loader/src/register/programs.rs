// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is kept of each program that went through the handlers: how it is to be attached, and what was planned or done.
//! What libbpf told when it loaded the program is kept by [`crate::program::passed`].
//!
//! A program is known by its address, as there. Its records are a few kilobytes, which stay until another program has
//! the address.

use super::pairs::End;
use crate::attach::{AttachOptions, OwnFunction};
use crate::forked::ForkLock;
use crate::plan::report::Report;
use crate::program::object::Program;
use crate::program::passed;
use crate::program::policy::Policy;
use crate::program::section::Wanted;
use libbpf_sys as sys;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

/// A program that went through the handlers.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// How libbpf's own calls attach it.
    pub(super) options: AttachOptions,
    /// The policy that the program itself states.
    pub(super) stated: Option<Policy>,
    /// What its section names, if it runs at returns.
    pub(super) returns_of: Option<Wanted>,
    /// Which object it is of, and at which calls of a function it is, if it was planned to be loaded.
    pub(super) end: Option<Arc<End>>,
    /// The function that it was loaded for, if it was for its own.
    pub(super) own: Option<OwnFunction>,
    /// What was planned or done last.
    pub(super) report: Option<Arc<Report>>,
}

impl Known {
    /// The application's options, and where they do not say, what the program states.
    pub(super) fn stated_options(&self) -> AttachOptions {
        self.options.clone().or_policy(self.stated)
    }
}

static PROGRAMS: ForkLock<Option<HashMap<usize, Known>>> = ForkLock::new(|| None);

fn programs() -> MutexGuard<'static, Option<HashMap<usize, Known>>> {
    PROGRAMS.lock()
}

fn key(program: NonNull<sys::bpf_program>) -> usize {
    program.as_ptr().addr()
}

/// Notes a program that has come to be.
pub(super) fn born(program: NonNull<sys::bpf_program>) {
    passed::born(program);
    // SAFETY: libbpf has just made the program, and calls us with it.
    let section = unsafe { Program::from_raw(program) }.section().ok();
    let returns_of = section.filter(|section| section.form.kind.is_exit()).map(|section| section.wanted);
    let _former = programs().get_or_insert_default().insert(key(program), Known { returns_of, ..Known::default() });
}

/// Whether a program that was opened runs at the returns of what another one is at the entries of. It may be another
/// object's: which object a program is of is known when it is loaded.
pub(super) fn has_exit(wanted: &Wanted) -> bool {
    programs().iter().flat_map(HashMap::values).any(|known| known.returns_of.as_ref() == Some(wanted))
}

/// What is kept of a program.
pub(super) fn known(program: NonNull<sys::bpf_program>) -> Option<Known> {
    programs().as_ref()?.get(&key(program)).cloned()
}

/// Which ends of calls all programs are at.
pub(super) fn ends() -> Vec<Arc<End>> {
    let programs = programs();
    programs.iter().flat_map(HashMap::values).filter_map(|known| known.end.clone()).collect()
}

/// Changes what is kept of a program. Whether there is something.
pub(super) fn change(program: NonNull<sys::bpf_program>, with: impl FnOnce(&mut Known)) -> bool {
    programs().as_mut().and_then(|programs| programs.get_mut(&key(program))).map(with).is_some()
}

/// Forgets all.
pub(super) fn forget() {
    let _all = programs().take();
    passed::forget();
}
