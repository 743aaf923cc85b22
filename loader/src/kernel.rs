// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the running kernel can do, found out once.
//!
//! A plan needs to know which mechanisms there are. Versions say little (distributions backport and configure as they
//! like), so each is asked for where it shows: the kprobe event source in sysfs, the kfuncs and the attach types in the
//! kernel's BTF, and, for kprobe.multi, an attachment that cannot succeed, whose error tells whether the kernel has heard of it.
//!
//! A [`Kernel`] is plain data: plans for other kernels, and tests, make one themselves.

use libbpf_sys as sys;
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, Kind};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Why the running kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A machine that sites are not described for.
    #[error("machine {0} is not supported (x86_64 and aarch64 are)")]
    Machine(String),
    /// The system call that names the kernel failed.
    #[error("uname: {0}")]
    Uname(io::Error),
    /// A file of the kernel could not be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// `/sys/kernel/notes` has no GNU build id.
    #[error("/sys/kernel/notes has no GNU build id: site data cannot be matched to this kernel")]
    NoBuildId,
}

/// A GNU build id; printed in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// What this process may do.
    pub privileges: Privileges,
}

impl Kernel {
    /// Probes the running kernel.
    ///
    /// # Errors
    /// [`KernelError`] if the machine is not supported, or the kernel does not say what it is. A mechanism that is missing
    /// is no error here: the plan says what it means for each site.
    pub fn running() -> Result<Kernel, KernelError> {
        let (release, machine) = uname()?;
        let machine = match machine.as_str() {
            "x86_64" => Machine::X86_64,
            "aarch64" => Machine::Aarch64,
            _ => return Err(KernelError::Machine(machine)),
        };
        let path = "/sys/kernel/notes";
        let notes = fs::read(path).map_err(|error| KernelError::Read { path, error })?;
        let build_id = build_id(&notes).ok_or(KernelError::NoBuildId)?;
        let btf: Option<Arc<[u8]>> = fs::read("/sys/kernel/btf/vmlinux").ok().map(Arc::from);
        let parsed = btf.as_deref().and_then(|data| Btf::parse(data).ok());
        let rdonly_cast = parsed.as_ref().and_then(|btf| btf.find(Kind::Func, "bpf_rdonly_cast")).map(|func| func.id());
        let kprobe_pmu = fs::read_to_string("/sys/bus/event_source/devices/kprobe/type").ok();
        let privileges = privileges(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        let attach_type = |name: &str| parsed.as_ref().is_some_and(|btf| has_enumerator(btf, "bpf_attach_type", name));
        Ok(Kernel {
            kprobe_multi: attach_type("BPF_TRACE_KPROBE_MULTI") && kprobe_multi_attaches(),
            cookies: attach_type("BPF_PERF_EVENT"),
            release,
            machine,
            build_id,
            rdonly_cast,
            kprobe_pmu: kprobe_pmu.and_then(|text| text.trim().parse().ok()),
            privileges,
            btf,
        })
    }

    /// A kernel of which only the image is known. It can do nothing.
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
            privileges: Privileges::default(),
        }
    }
}

fn has_enumerator(btf: &Btf<'_>, enumeration: &str, name: &str) -> bool {
    let found = btf.find(Kind::Enum, enumeration);
    found.is_some_and(|ty| ty.enumerators().any(|enumerator| enumerator.name == name))
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

/// The effective capabilities of a `/proc/PID/status`.
fn privileges(status: &str) -> Privileges {
    const CAP_SYS_ADMIN: u32 = 21;
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|word| u64::from_str_radix(word.trim(), 16).ok()).unwrap_or(0);
    let has = |capability: u32| set >> capability & 1 == 1;
    let sys_admin = has(CAP_SYS_ADMIN);
    Privileges { bpf: sys_admin || has(CAP_BPF), perfmon: sys_admin || has(CAP_PERFMON), sys_admin }
}

/// Whether the kernel attaches by kprobe.multi: an attachment to nothing is invalid where it can, and not supported where
/// it cannot (CONFIG_FPROBE). Without the privilege to ask, it cannot be used either.
fn kprobe_multi_attaches() -> bool {
    let insn = |code: u32| sys::bpf_insn { code: code as u8, ..Default::default() };
    let insns = [insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K), insn(sys::BPF_JMP | sys::BPF_EXIT)];
    let mut opts = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        expected_attach_type: sys::BPF_TRACE_KPROBE_MULTI,
        ..Default::default()
    };
    // SAFETY: all pointers live through the calls; a non-negative result is a descriptor of ours.
    unsafe {
        let program = sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_KPROBE,
            c"siteseer_probe".as_ptr(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as sys::size_t,
            &mut opts,
        );
        if program < 0 {
            return false;
        }
        let program = OwnedFd::from_raw_fd(program);
        let opts = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
            ..Default::default()
        };
        let link = sys::bpf_link_create(program.as_raw_fd(), 0, sys::BPF_TRACE_KPROBE_MULTI, &opts);
        if link >= 0 {
            drop(OwnedFd::from_raw_fd(link));
        }
        link == -libc::EINVAL
    }
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
        let root = privileges("Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert!(root.bpf && root.perfmon && root.sys_admin);
        let some = privileges("CapEff:\t000000c000000000\n");
        assert!(some.bpf && some.perfmon && !some.sys_admin);
        assert_eq!(privileges("CapEff:\t0\n"), Privileges::default());
        assert_eq!(privileges(""), Privileges::default());
    }

    proptest! {
        #[test]
        fn notes_may_be_anything(notes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = build_id(&notes);
        }
    }
}
