// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is kept of each program that libbpf loads, from its handler's call just before: what libbpf does not give out
//! later.
//!
//! A program is known by its address. libbpf says when a program comes to be, and not when it goes, so an address is a
//! name that is given again: what an earlier program left there is dropped when libbpf opens the next one ([`born`]).

use crate::bpf::info::{FuncInfo, LineInfo};
use crate::forked::ForkLock;
use crate::program::section::Told;
use libbpf_sys as sys;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

/// How a program was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Loading {
    /// It was not, or its load failed before the kernel saw it.
    #[default]
    Not,
    /// Behind the guard.
    Guarded,
    /// As libbpf would have, for its own function. siteseer attaches it there, and what it reaches besides.
    Own,
    /// As libbpf would have, which also attaches it: siteseer has nothing to add.
    Plain,
}

/// A program that went through the handlers.
#[derive(Debug, Clone)]
pub(crate) struct Passed {
    pub(crate) loading: Loading,
    /// What `bpf_program__set_attach_target()` was told.
    pub(crate) told: Told,
    /// Offsets are relative to the program without the guard.
    pub(crate) func_info: Arc<[FuncInfo]>,
    /// Likewise.
    pub(crate) line_info: Arc<[LineInfo]>,
    /// The object's BTF. The kernel gives it by descriptor, which libbpf has while it loads; by id it requires
    /// CAP_SYS_ADMIN.
    pub(crate) btf: Option<Arc<[u8]>>,
}

impl Default for Passed {
    fn default() -> Passed {
        Passed {
            loading: Loading::Not,
            told: Told::Nothing,
            func_info: Arc::from([]),
            line_info: Arc::from([]),
            btf: None,
        }
    }
}

static PROGRAMS: ForkLock<Option<HashMap<usize, Passed>>> = ForkLock::new(|| None);

fn programs() -> MutexGuard<'static, Option<HashMap<usize, Passed>>> {
    PROGRAMS.lock()
}

fn key(program: NonNull<sys::bpf_program>) -> usize {
    program.as_ptr().addr()
}

/// Notes a program that has come to be.
pub(crate) fn born(program: NonNull<sys::bpf_program>) {
    let _former = programs().get_or_insert_default().insert(key(program), Passed::default());
}

/// BTF to keep: programs of one object share it.
pub(crate) fn kept(btf: Vec<u8>) -> Arc<[u8]> {
    let same = |passed: &Passed| passed.btf.as_ref().filter(|known| ***known == *btf).map(Arc::clone);
    programs().as_ref().and_then(|programs| programs.values().find_map(same)).unwrap_or_else(|| Arc::from(btf))
}

/// What is kept of a program.
pub(crate) fn passed(program: NonNull<sys::bpf_program>) -> Option<Passed> {
    programs().as_ref()?.get(&key(program)).cloned()
}

/// Changes what is kept of a program. Whether there is something.
pub(crate) fn change(program: NonNull<sys::bpf_program>, with: impl FnOnce(&mut Passed)) -> bool {
    programs().as_mut().and_then(|programs| programs.get_mut(&key(program))).map(with).is_some()
}

/// Forgets all.
pub(crate) fn forget() {
    let _all = programs().take();
}
