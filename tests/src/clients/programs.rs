// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The BPF programs that the kernel has, and how often each has run.

use crate::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use serde::{Deserialize, Serialize};
use siteseer_sites::btf::{Btf, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a program is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// A function: fentry, fexit, kprobes of all kinds.
    Function,
    /// Something else: tracepoints, perf events, sockets. siteseer does not touch these programs.
    Other,
}

/// A program, or several that have the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it is attached to.
    pub to: To,
    /// How many programs have the name.
    pub count: u64,
    /// How often they ran.
    pub runs: u64,
    /// How often the kernel did not run them because one was running already.
    pub missed: u64,
}

/// Programs by their names. The kernel keeps 15 characters of a name.
pub type Programs = BTreeMap<String, Program>;

/// The ids of all programs.
///
/// # Errors
/// If the kernel does not tell them.
pub fn ids() -> io::Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let mut id = 0;
    // SAFETY: the id lives through the call.
    while unsafe { sys::bpf_prog_get_next_id(id, &mut id) } == 0 {
        ids.insert(id);
    }
    match io::Error::last_os_error() {
        end if end.raw_os_error() == Some(libc::ENOENT) => Ok(ids),
        error => Err(error),
    }
}

/// The programs that are not among these.
///
/// # Errors
/// If the kernel does not tell about one.
pub fn besides(others: &BTreeSet<u32>, types: &Btf<'_>) -> Result<Programs, Failure> {
    let mut programs = Programs::new();
    for id in ids()?.difference(others) {
        // SAFETY: plain call.
        let fd = unsafe { sys::bpf_prog_get_fd_by_id(*id) };
        // It is gone already.
        if fd < 0 {
            continue;
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the structure is as long as the call is told; it has no pointers.
        if unsafe { sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &mut size) } != 0 {
            return Err(format!("program {id}: {}", io::Error::last_os_error()).into());
        }
        let name: Vec<u8> = info.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
        // An fentry program has a FUNC, and one of a tracepoint a TYPEDEF. That of an iterator runs only when it is read.
        let is_func = || types.ty(info.attach_btf_id).is_some_and(|ty| ty.kind() == Kind::Func);
        let to = match info.type_ {
            sys::BPF_PROG_TYPE_KPROBE => To::Function,
            sys::BPF_PROG_TYPE_TRACING if info.attach_btf_obj_id > 1 || is_func() => To::Function,
            _ => To::Other,
        };
        let new = Program { to, count: 0, runs: 0, missed: 0 };
        let program = programs.entry(String::from_utf8_lossy(&name).into_owned()).or_insert(new);
        program.to = program.to.min(to);
        program.count += 1;
        program.runs += info.run_cnt;
        program.missed += info.recursion_misses;
    }
    Ok(programs)
}

/// The runs since an earlier count.
pub fn since(before: &Programs, after: &Programs) -> Programs {
    let mut runs = after.clone();
    for (name, program) in &mut runs {
        if let Some(before) = before.get(name) {
            program.runs = program.runs.saturating_sub(before.runs);
            program.missed = program.missed.saturating_sub(before.missed);
        }
    }
    runs
}

/// Has the kernel count, and returns its types.
///
/// # Errors
/// If the kernel does not count or has no types.
pub fn count_runs() -> Result<Vec<u8>, Failure> {
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1")?;
    Ok(fs::read("/sys/kernel/btf/vmlinux")?)
}
