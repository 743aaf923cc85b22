// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The BPF programs that a tool has loaded, and how often each has run.

use crate::guest::case::Failure;
use libbpf_rs::libbpf_sys as sys;
use serde::{Deserialize, Serialize};
use siteseer_sites::btf::{Btf, Kind};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The function that siteseer's own programs begin with.
const TRAMPOLINE: &str = "siteseer_trampoline";

/// What names of an iterator's FUNCs begin with. A link that siteseer makes holds a program of one, which never runs.
const ITERATOR: &str = "bpf_iter_";

/// What a program is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum To {
    /// A function: fentry, fexit, kprobes of all kinds.
    Function,
    /// Something else: tracepoints, perf events, sockets. siteseer does not touch these programs.
    Other,
}

/// Who loaded the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The tool's: libbpf loaded it.
    Tool,
    /// siteseer's: it runs the tool's program at other sites.
    Siteseer,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The tool's name for it. The kernel keeps 15 characters, and the program's types the whole name.
    pub name: String,
    /// Who loaded it.
    pub whose: Whose,
    /// What it is attached to.
    pub to: To,
    /// The function that it was loaded for; kprobe programs are loaded for none.
    pub function: Option<String>,
    /// How often it ran while the calls were made, for each time that they were.
    pub runs: Vec<u64>,
}

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

/// The programs of a tool that runs.
pub struct Watched {
    open: Vec<OwnedFd>,
    programs: Vec<Program>,
}

impl Watched {
    /// The programs that are not among these. `types` are the kernel's.
    ///
    /// # Errors
    /// If the kernel does not tell about one.
    pub fn besides(others: &BTreeSet<u32>, types: &Btf<'_>) -> Result<Watched, Failure> {
        let mut watched = Watched { open: Vec::new(), programs: Vec::new() };
        for id in ids()?.difference(others) {
            // SAFETY: plain call.
            let fd = unsafe { sys::bpf_prog_get_fd_by_id(*id) };
            // It is gone already.
            if fd < 0 {
                continue;
            }
            // SAFETY: a new descriptor that nobody else owns.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            watched.programs.push(describe(&fd, types).map_err(|error| format!("program {id}: {error}"))?);
            watched.open.push(fd);
        }
        Ok(watched)
    }

    /// Counts what runs while something is done.
    ///
    /// # Errors
    /// If that fails, or the kernel does not tell.
    pub fn during(&mut self, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let before = self.counts()?;
        work()?;
        for ((program, after), before) in self.programs.iter_mut().zip(counts(&self.open)?).zip(before) {
            program.runs.push(after - before);
        }
        Ok(())
    }

    /// Whether one of them is attached to functions.
    pub fn has_functions(&self) -> bool {
        self.programs.iter().any(|program| program.to == To::Function)
    }

    /// What was counted.
    pub fn programs(self) -> Vec<Program> {
        self.programs
    }

    fn counts(&self) -> io::Result<Vec<u64>> {
        counts(&self.open)
    }
}

/// How often calls have come to each program. The kernel does not run a program of fentry or fexit that is running on
/// the processor already: a task that interrupts another one in it is not seen, by whomever the program was attached.
/// What keeps a kprobe program from running may be any other kprobe program, one of siteseer's too, so that its misses
/// are calls that it lost.
fn counts(programs: &[OwnedFd]) -> io::Result<Vec<u64>> {
    let count = |fd: &OwnedFd| {
        let mut info = sys::bpf_prog_info::default();
        tell(fd, &mut info)?;
        let is_tracing = info.type_ == sys::BPF_PROG_TYPE_TRACING;
        Ok(info.run_cnt + if is_tracing { info.recursion_misses } else { 0 })
    };
    programs.iter().map(count).collect()
}

fn describe(fd: &OwnedFd, types: &Btf<'_>) -> Result<Program, Failure> {
    let mut info = sys::bpf_prog_info::default();
    tell(fd, &mut info)?;
    let short: Vec<u8> = info.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    let short = String::from_utf8_lossy(&short).into_owned();
    let functions = functions(fd, &info)?;
    let is_own = functions.first().is_some_and(|first| first == TRAMPOLINE);
    // The program is one of the trampoline's functions; nothing else of the tool has its name.
    let name = functions.into_iter().find(|function| function.starts_with(&short)).unwrap_or(short);
    // An fentry program has a FUNC, and one of a tracepoint a TYPEDEF.
    let target = types.ty(info.attach_btf_id).filter(|ty| info.attach_btf_obj_id <= 1 && ty.kind() == Kind::Func);
    let to = match info.type_ {
        sys::BPF_PROG_TYPE_KPROBE => To::Function,
        sys::BPF_PROG_TYPE_TRACING if target.is_some_and(|ty| ty.name().starts_with(ITERATOR)) => To::Other,
        sys::BPF_PROG_TYPE_TRACING if info.attach_btf_obj_id > 1 || target.is_some() => To::Function,
        _ => To::Other,
    };
    let function = target.filter(|_| info.type_ == sys::BPF_PROG_TYPE_TRACING).map(|ty| ty.name().to_owned());
    let whose = if is_own { Whose::Siteseer } else { Whose::Tool };
    Ok(Program { name, whose, to, function, runs: Vec::new() })
}

/// The names of a program's functions, in the order of its instructions. A program without types has none.
fn functions(fd: &OwnedFd, info: &sys::bpf_prog_info) -> Result<Vec<String>, Failure> {
    if info.btf_id == 0 {
        return Ok(Vec::new());
    }
    let mut records = vec![sys::bpf_func_info::default(); info.nr_func_info as usize];
    let mut asked = sys::bpf_prog_info {
        nr_func_info: info.nr_func_info,
        func_info_rec_size: size_of::<sys::bpf_func_info>() as u32,
        func_info: records.as_mut_ptr() as u64,
        ..Default::default()
    };
    tell(fd, &mut asked)?;
    // SAFETY: plain call.
    let types = unsafe { sys::bpf_btf_get_fd_by_id(info.btf_id) };
    if types < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let types = unsafe { OwnedFd::from_raw_fd(types) };
    let mut about = sys::bpf_btf_info::default();
    tell(&types, &mut about)?;
    let mut bytes = vec![0_u8; about.btf_size as usize];
    let mut about =
        sys::bpf_btf_info { btf: bytes.as_mut_ptr() as u64, btf_size: bytes.len() as u32, ..Default::default() };
    tell(&types, &mut about)?;
    let types = Btf::parse(&bytes)?;
    Ok(records.iter().filter_map(|record| Some(types.ty(record.type_id)?.name().to_owned())).collect())
}

/// What the kernel says about an object of BPF. `info` is the structure of that kind of object, and its pointers are to
/// as many bytes as the lengths in it say.
fn tell<T>(fd: &OwnedFd, info: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as u32;
    // SAFETY: the structure is as long as the call is told.
    match unsafe { sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), std::ptr::from_mut(info).cast(), &mut size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the kernel count, and returns its types.
///
/// # Errors
/// If the kernel does not count or has no types.
pub fn count_runs() -> Result<Vec<u8>, Failure> {
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1")?;
    Ok(fs::read("/sys/kernel/btf/vmlinux")?)
}
