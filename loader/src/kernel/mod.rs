// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the running kernel can do, found out once.
//!
//! A plan needs to know which mechanisms there are. Versions say little (distributions backport and configure as they
//! like), so each is asked for where it shows: the kprobe event source in sysfs, the kfuncs and the attach types in the
//! kernel's BTF. A mechanism that an architecture or a configuration lacks is one with functions that are not compiled:
//! an architecture may load fentry programs and have no BPF trampolines, or no ftrace direct calls to reach them (arm64
//! before 6.4), or none that many functions can share, as tracing-multi links need (arm64). Their FUNCs are not in the
//! kernel's BTF then. Nothing is attached to find out: that takes grace periods, which the user would wait for. What is
//! compiled and still refused is planned again ([`crate::attach`]).
//!
//! A [`Kernel`] is plain data: plans for other kernels, and tests, make one themselves.

pub mod symbols;
pub mod sysfs;
pub(crate) mod text;
mod types;

use crate::bpf::call::errno;
use crate::bpf::insn::{Insn, Width};
use crate::bpf::load::LoadAs;
use crate::site::candidate::Candidate;
use crate::site::reason::Reason;
use crate::trampoline::Kfunc;
use libbpf_sys as sys;
use procfs::process::Process;
use procfs::{ConfigSetting, ProcResult};
use siteseer_sites::Machine;
use siteseer_sites::btf::Btf;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::sync::{Arc, OnceLock};
use types::KernelTypes;

/// Why the running kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A machine that sites are not described for.
    #[error("machine {0} is not supported (x86_64 and aarch64 are)")]
    Machine(String),
    /// The system call that names the kernel failed.
    #[error("uname")]
    Uname(#[source] io::Error),
    /// A file of the kernel could not be read.
    #[error("{path}")]
    Read {
        /// The file.
        path: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// `/sys/kernel/notes` has no GNU build id.
    #[error("/sys/kernel/notes has no GNU build id: site data cannot be matched to this kernel")]
    NoBuildId,
}

impl KernelError {
    /// The number that stands for it where only a number can be given: positive, as in errno.h.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            KernelError::Machine(_) | KernelError::NoBuildId => libc::EOPNOTSUPP,
            KernelError::Uname(error) | KernelError::Read { error, .. } => errno(error),
        }
    }
}

/// A GNU build id; printed in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BuildId(pub Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// What this process may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privileges {
    /// CAP_BPF or CAP_SYS_ADMIN: load programs.
    pub bpf: bool,
    /// CAP_PERFMON or CAP_SYS_ADMIN: attach them to kprobes, and read kernel memory.
    pub perfmon: bool,
    /// CAP_SYS_ADMIN: open BPF objects by id.
    pub sys_admin: bool,
}

/// The kfuncs of kprobe sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// `bpf_session_is_return`
    pub is_return: Kfunc,
    /// `bpf_session_cookie`
    pub cookie: Kfunc,
}

/// A kernel's capabilities.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The architecture.
    pub machine: Machine,
    /// The build id of its image.
    pub build_id: BuildId,
    /// Its BTF, as `/sys/kernel/btf/vmlinux` has it.
    pub btf: Option<Arc<[u8]>>,
    /// The BTF id of the kfunc `bpf_rdonly_cast()` (Linux 6.2), which gives typed pointers their type back.
    pub rdonly_cast: Option<u32>,
    /// The number of the `kprobe` event source; `None` without CONFIG_KPROBE_EVENTS.
    pub kprobe_pmu: Option<u32>,
    /// Whether one link can attach to many function entries (BPF_TRACE_KPROBE_MULTI, Linux 5.18, CONFIG_FPROBE).
    pub kprobe_multi: bool,
    /// Whether links carry a cookie (Linux 5.15).
    pub cookies: bool,
    /// Whether fentry and fexit programs can be attached: BPF trampolines, and ftrace direct calls to reach them.
    pub fentry: bool,
    /// Whether one fentry or fexit program can be attached to many functions (BPF_TRACE_FENTRY_MULTI, Linux 7.3).
    pub tracing_multi: bool,
    /// What kprobe sessions require (BPF_TRACE_KPROBE_SESSION, Linux 6.14): programs that run at a function's entry and
    /// at its return; `None` where there are none that can be relied on.
    pub kprobe_session: Option<Session>,
    /// The bit of a `kprobe` event's `config` that asks for the return; `None` where the event source has no such bit.
    pub kretprobe: Option<u32>,
    /// Whether each function of a KPROBE or TRACING program has the 512 bytes of stack for itself (Linux 6.13, by
    /// architecture: `check_max_stack_depth_subprog()` in kernel/bpf/verifier.c).
    pub private_stack: bool,
    /// Whether kprobe events may be in functions that ftrace does not know (CONFIG_KPROBE_EVENTS_ON_NOTRACE, which
    /// distributions do not set). Read from the kernel's own configuration; if that cannot be read, it is not set.
    pub notrace_events: bool,
    /// Whether a kprobe in the last function of a module's text may crash it. For kallsyms that function ends with its
    /// page; x86 decodes all of it to find out whether the probe can be optimised (`can_optimize()` in
    /// arch/x86/kernel/kprobes/opt.c). If what fills the page decodes as an instruction that begins on it and ends on
    /// the next, which is not mapped, that is a page fault. Up to Linux 6.3 a module's data came next (`core_layout` of
    /// struct module); kernels with a cache for text (CONFIG_ARCH_HAS_EXECMEM_ROX, x86 since Linux 6.16) fill it with
    /// one-byte traps.
    pub decodes_past_modules: bool,
    /// Whether nobody knows where the kernel lies in memory (KASLR), because it does not run: a program for it cannot
    /// have the kernel's addresses as constants.
    pub unplaced: bool,
    /// What this process may do.
    pub privileges: Privileges,
}

impl Kernel {
    /// Probes the running kernel.
    ///
    /// # Errors
    /// [`KernelError`] if the machine is not supported, or the kernel does not say what it is. A mechanism that is
    /// missing is not an error here: the plan says what it means for each site.
    pub fn running() -> Result<Kernel, KernelError> {
        Ok(Kernel::identity()?.probed())
    }

    /// The running kernel, with its known identity and what it can do.
    pub(crate) fn probed(self) -> Kernel {
        let Kernel { release, machine, build_id, btf, .. } = self;
        let types = KernelTypes::new(running_types().cloned());
        let kprobe_pmu = fs::read_to_string("/sys/bus/event_source/devices/kprobe/type").ok();
        let privileges = privileges(effective_capabilities().unwrap_or(0));
        let kprobe_multi = types.kprobe_multi();
        let fentry = types.fentry();
        let sessions = kprobe_multi && types.has_attach_type("BPF_TRACE_KPROBE_SESSION");
        let kretprobe = fs::read_to_string("/sys/bus/event_source/devices/kprobe/format/retprobe").ok();
        Kernel {
            kprobe_multi,
            cookies: types.has_attach_type("BPF_PERF_EVENT"),
            fentry,
            tracing_multi: fentry && types.tracing_multi(),
            kprobe_session: if sessions { types.session() } else { None },
            kretprobe: kretprobe.as_deref().and_then(config_bit),
            // Where the function is, the architecture may still be without (arm64 before Linux 6.18).
            private_stack: types.has("bpf_jit_supports_private_stack") && has_private_stack(),
            notrace_events: notrace_events(),
            decodes_past_modules: machine == Machine::X86_64 && types.decodes_past_modules(),
            unplaced: false,
            release,
            machine,
            build_id,
            rdonly_cast: types.function("bpf_rdonly_cast"),
            kprobe_pmu: kprobe_pmu.and_then(|text| text.trim().parse().ok()),
            privileges,
            btf,
        }
    }

    /// Which kernel runs, without what it can do.
    pub(crate) fn identity() -> Result<Kernel, KernelError> {
        let (release, machine) = uname()?;
        let machine = match machine.as_str() {
            "x86_64" => Machine::X86_64,
            "aarch64" => Machine::Aarch64,
            _ => return Err(KernelError::Machine(machine)),
        };
        let path = "/sys/kernel/notes";
        let notes = fs::read(path).map_err(|error| KernelError::Read { path, error })?;
        let build_id = build_id(&notes).ok_or(KernelError::NoBuildId)?;
        Ok(Kernel { release, btf: running_btf(), ..Kernel::image(machine, build_id) })
    }

    /// A kernel with known image BTF: what it could do if it ran, with all privileges. Each mechanism shows by a
    /// function that is compiled with it alone; [`Kernel::notrace_events`] shows by none. Numbers that only a running
    /// kernel gives are made up, and of no use except for planning.
    pub fn of_image(machine: Machine, build_id: BuildId, btf: Option<Arc<[u8]>>) -> Kernel {
        let parsed = btf.as_deref().and_then(|data| Btf::parse(data).ok());
        if parsed.is_none() {
            return Kernel::image(machine, build_id);
        }
        let types = KernelTypes::new(parsed);
        let has = |function| types.has(function);
        let (kprobe_multi, fentry) = (types.kprobe_multi(), types.fentry());
        let sessions = kprobe_multi && types.has_attach_type("BPF_TRACE_KPROBE_SESSION");
        Kernel {
            rdonly_cast: types.function("bpf_rdonly_cast"),
            kprobe_pmu: has("perf_kprobe_init").then_some(0),
            kprobe_multi,
            cookies: types.has_attach_type("BPF_PERF_EVENT"),
            fentry,
            tracing_multi: fentry && types.tracing_multi(),
            kprobe_session: if sessions { types.session() } else { None },
            kretprobe: has("register_kretprobe").then_some(0),
            // arm64 has it since Linux 6.18 only, which the image does not tell.
            private_stack: machine == Machine::X86_64 && has("bpf_jit_supports_private_stack"),
            decodes_past_modules: types.decodes_past_modules(),
            privileges: Privileges { bpf: true, perfmon: true, sys_admin: true },
            btf: btf.clone(),
            ..Kernel::image(machine, build_id)
        }
    }

    /// A kernel for which only the image is known. It can do nothing.
    pub fn image(machine: Machine, build_id: BuildId) -> Kernel {
        Kernel {
            release: String::new(),
            machine,
            build_id,
            btf: None,
            rdonly_cast: None,
            kprobe_pmu: None,
            kprobe_multi: false,
            cookies: false,
            fentry: false,
            tracing_multi: false,
            kprobe_session: None,
            kretprobe: None,
            private_stack: false,
            notrace_events: false,
            decodes_past_modules: false,
            unplaced: false,
            privileges: Privileges::default(),
        }
    }
}

impl Kernel {
    /// What stands against a probe at a site on this kernel, whatever the program.
    pub(crate) fn obstacle<'s>(&self, site: &'s Candidate) -> Option<&'s Reason> {
        let obstacle = site.obstacle.as_ref().filter(|obstacle| !(self.notrace_events && obstacle.is_notrace()));
        obstacle.or((self.decodes_past_modules && site.ends_module).then_some(&Reason::EndsModule))
    }
}

/// The BTF of the running kernel's image, which does not change: read once.
static BTF: OnceLock<Option<Arc<[u8]>>> = OnceLock::new();

fn read_btf() -> &'static Option<Arc<[u8]>> {
    BTF.get_or_init(|| fs::read("/sys/kernel/btf/vmlinux").ok().map(Arc::from))
}

/// The BTF of the running kernel's image.
pub(crate) fn running_btf() -> Option<Arc<[u8]>> {
    read_btf().clone()
}

/// The types in it.
pub(crate) fn running_types() -> Option<&'static Btf<'static>> {
    static TYPES: OnceLock<Option<Btf<'static>>> = OnceLock::new();
    TYPES.get_or_init(|| Btf::parse(read_btf().as_deref()?).ok()).as_ref()
}

/// Whether the configuration lets kprobe events into notrace functions. It is where libbpf looks for it: in
/// `/proc/config.gz` (CONFIG_IKCONFIG_PROC), or in `/boot`, by the kernel's release.
fn notrace_events() -> bool {
    let option = |config: HashMap<String, ConfigSetting>| config.get("CONFIG_KPROBE_EVENTS_ON_NOTRACE").cloned();
    procfs::kernel_config().ok().and_then(option) == Some(ConfigSetting::Yes)
}

/// Release and machine.
fn uname() -> Result<(String, String), KernelError> {
    // SAFETY: the structure is plain bytes, and the call fills it.
    let (result, names) = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        (libc::uname(&mut names), names)
    };
    if result != 0 {
        return Err(KernelError::Uname(io::Error::last_os_error()));
    }
    let text = |field: &[libc::c_char]| -> String {
        field.iter().take_while(|&&c| c != 0).map(|&c| char::from(c as u8)).collect()
    };
    Ok((text(&names.release), text(&names.machine)))
}

/// The GNU build id among ELF notes (`NT_GNU_BUILD_ID`, gABI "Note Section").
pub fn build_id(notes: &[u8]) -> Option<BuildId> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
        let (name_len, len, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name_end = 12usize.checked_add(name_len)?;
        let start = name_end.checked_next_multiple_of(4)?;
        let end = start.checked_add(len)?;
        if kind == NT_GNU_BUILD_ID && rest.get(12..name_end)? == b"GNU\0" {
            let id = rest.get(start..end)?;
            return (!id.is_empty()).then(|| BuildId(id.to_vec()));
        }
        rest = rest.get(end.checked_next_multiple_of(4)?..)?;
    }
}

/// What this process may do (capabilities(7)).
fn effective_capabilities() -> ProcResult<u64> {
    Ok(Process::myself()?.status()?.capeff)
}

/// The effective capabilities of a `/proc/PID/status`.
fn privileges(capabilities: u64) -> Privileges {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let has = |capability: u32| capabilities >> capability & 1 == 1;
    let sys_admin = has(CAP_SYS_ADMIN);
    Privileges { bpf: sys_admin || has(CAP_BPF), perfmon: sys_admin || has(CAP_PERFMON), sys_admin }
}

/// The bit in `config:0`, the format of a field of an event source.
fn config_bit(format: &str) -> Option<u32> {
    format.trim().strip_prefix("config:")?.parse().ok().filter(|&bit| bit < 64)
}

/// Whether a function and its caller may take more than 512 bytes of stack together.
fn has_private_stack() -> bool {
    let insns = [
        Insn::store_imm(Width::D, 10, -304, 0),
        Insn::call_subprogram(1),
        Insn::exit(),
        Insn::store_imm(Width::D, 10, -304, 0),
        Insn::mov_imm(0, 0),
        Insn::exit(),
    ];
    LoadAs::plain(sys::BPF_PROG_TYPE_KPROBE, 0).load_probe(&insns).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        for part in [name, desc] {
            note.extend_from_slice(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn finds_the_build_id() {
        let mut notes = note(b"Linux\0", 257, b"x");
        notes.extend(note(b"Xen\0", 3, b"not this"));
        notes.extend(note(b"GNU\0", 3, &[0xab, 0x01, 0xff]));
        assert_eq!(build_id(&notes).unwrap().to_string(), "ab01ff");
        assert_eq!(build_id(&notes[..20]), None);
    }

    #[test]
    fn reads_capabilities() {
        let root = privileges(0x1ff_ffff_ffff);
        assert!(root.bpf && root.perfmon && root.sys_admin);
        let some = privileges(0xc0_0000_0000);
        assert!(some.bpf && some.perfmon && !some.sys_admin);
        assert_eq!(privileges(0), Privileges::default());
    }

    #[test]
    fn reads_the_bit_of_a_format() {
        assert_eq!(config_bit("config:0\n"), Some(0));
        assert_eq!(config_bit("config:3"), Some(3));
        for other in ["config1:0", "config:0-3", "config:64", ""] {
            assert_eq!(config_bit(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn notes_may_be_anything(notes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = build_id(&notes);
        }
    }
}
