// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loading trampolines: BTF, maps, programs.
//!
//! A program is first loaded without a verifier log, which costs time, and once more with one if the kernel refuses it.

use super::tracing_multi;
use crate::bpf::insn::Insn;
use crate::plan::mechanism::Mechanism;
use crate::program::object::{check, opened};
use crate::program::{FuncInfo, LineInfo};
use crate::target::bpf_program;
use crate::trampoline::SavedMap;
use libbpf_sys as sys;
use siteseer_sites::btf::TypeId;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The verifier's (or the BTF checker's) refusal.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: io::Error,
    pub(crate) log: String,
}

/// The most bytes of log that are asked for.
const LOG_BYTES: usize = 16 << 20;

fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}

/// Loads BTF.
pub(crate) fn btf(data: &[u8]) -> Result<OwnedFd, Refused> {
    let size = size_of::<sys::bpf_btf_load_opts>() as sys::size_t;
    let mut opts = sys::bpf_btf_load_opts { sz: size, ..Default::default() };
    // SAFETY: the data lives through the call.
    let first = opened(unsafe { sys::bpf_btf_load(data.as_ptr().cast(), data.len() as sys::size_t, &mut opts) });
    let error = match first {
        Ok(btf) => return Ok(btf),
        Err(error) => error,
    };
    let mut log = vec![0u8; 1 << 20];
    let mut opts = sys::bpf_btf_load_opts {
        sz: size,
        log_buf: log.as_mut_ptr().cast(),
        log_size: log.len() as u32,
        log_level: 1,
        ..Default::default()
    };
    // SAFETY: as above; the kernel writes at most `log_size` bytes to the log.
    let second = opened(unsafe { sys::bpf_btf_load(data.as_ptr().cast(), data.len() as sys::size_t, &mut opts) });
    second.map_err(|_| Refused { error, log: text(&log) })
}

// The records are passed to the kernel as they are.
const _: () = {
    assert!(size_of::<Insn>() == size_of::<sys::bpf_insn>());
    assert!(size_of::<FuncInfo>() == size_of::<sys::bpf_func_info>());
    assert!(size_of::<LineInfo>() == size_of::<sys::bpf_line_info>());
};

/// One of libbpf's instructions as ours.
pub(crate) fn insn(insn: &sys::bpf_insn) -> Insn {
    Insn::new(insn.code, insn.dst_reg(), insn.src_reg(), insn.off, insn.imm)
}

/// What a program is loaded as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    program_type: sys::bpf_prog_type,
    attach_type: sys::bpf_attach_type,
    /// The FUNC that it is for; 0 for none.
    func: TypeId,
    /// Descriptor of the module's BTF that has it; 0 for that of the kernel's image.
    module: u32,
    /// The BPF program whose FUNC that is, by id, if it is not the kernel's.
    program: Option<u32>,
    flags: u32,
}

impl Kind {
    /// What a mechanism takes.
    pub(crate) fn of(
        mechanism: Mechanism,
        func: Option<TypeId>,
        module: Option<BorrowedFd<'_>>,
        program: Option<u32>,
        sleepable: bool,
    ) -> Kind {
        let attach_type = match mechanism {
            Mechanism::Fentry => sys::BPF_TRACE_FENTRY,
            Mechanism::Fexit => sys::BPF_TRACE_FEXIT,
            Mechanism::TracingMulti => tracing_multi::FENTRY_MULTI,
            Mechanism::TracingMultiExit => tracing_multi::FEXIT_MULTI,
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti => sys::BPF_TRACE_KPROBE_MULTI,
            Mechanism::KprobeSession => sys::BPF_TRACE_KPROBE_SESSION,
            Mechanism::Kprobe | Mechanism::Kretprobe => 0,
        };
        let tracing = mechanism.probe().is_tracing();
        Kind {
            program_type: if tracing { sys::BPF_PROG_TYPE_TRACING } else { sys::BPF_PROG_TYPE_KPROBE },
            attach_type,
            func: func.unwrap_or(0),
            module: module.map_or(0, |btf| btf.as_raw_fd() as u32),
            program,
            flags: if sleepable { sys::BPF_F_SLEEPABLE } else { 0 },
        }
    }

    /// Whether, and with which words, the kernel refuses a program that does nothing too.
    pub(crate) fn refuses_all(self) -> Option<Refused> {
        self.load_nothing().err()
    }

    /// Loads a program that does nothing.
    pub(crate) fn load_nothing(self) -> Result<OwnedFd, Refused> {
        const NOTHING: [Insn; 2] = [Insn::mov_imm(0, 0), Insn::exit()];
        let request = Request {
            name: "siteseer_probe",
            gpl: true,
            kind: self,
            insns: &NOTHING,
            func_info: &[],
            line_info: &[],
            btf: None,
        };
        request.load()
    }
}

/// A program to load.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) gpl: bool,
    pub(crate) kind: Kind,
    pub(crate) insns: &'a [Insn],
    pub(crate) func_info: &'a [FuncInfo],
    pub(crate) line_info: &'a [LineInfo],
    pub(crate) btf: Option<BorrowedFd<'a>>,
}

impl Request<'_> {
    fn try_load(&self, log: &mut [u8]) -> io::Result<OwnedFd> {
        // The kernel keeps 15 bytes of the name; libbpf cuts it.
        let name = CString::new(self.name.replace('\0', "")).unwrap_or_default();
        let target = self.kind.program.map(bpf_program::open).transpose()?;
        // What the object's licence allowed is allowed here: the program is the same.
        let licence = if self.gpl { c"GPL" } else { c"Proprietary" };
        let mut opts = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            expected_attach_type: self.kind.attach_type,
            attach_btf_id: self.kind.func,
            attach_btf_obj_fd: self.kind.module,
            attach_prog_fd: target.as_ref().map_or(0, |target| target.as_raw_fd() as u32),
            prog_flags: self.kind.flags,
            ..Default::default()
        };
        if let Some(btf) = self.btf {
            opts.prog_btf_fd = btf.as_raw_fd() as u32;
            opts.func_info = self.func_info.as_ptr().cast();
            opts.func_info_cnt = self.func_info.len() as u32;
            opts.func_info_rec_size = size_of::<FuncInfo>() as u32;
            opts.line_info = self.line_info.as_ptr().cast();
            opts.line_info_cnt = self.line_info.len() as u32;
            opts.line_info_rec_size = size_of::<LineInfo>() as u32;
        }
        if !log.is_empty() {
            opts.log_level = 1;
            opts.log_buf = log.as_mut_ptr().cast();
            opts.log_size = log.len() as u32;
        }
        // SAFETY: every pointer has the length that goes with it, and lives through the call.
        opened(unsafe {
            sys::bpf_prog_load(
                self.kind.program_type,
                name.as_ptr(),
                licence.as_ptr(),
                self.insns.as_ptr().cast(),
                self.insns.len() as sys::size_t,
                &mut opts,
            )
        })
    }

    /// Whether the kernel takes the program.
    pub(crate) fn is_taken(&self) -> bool {
        self.try_load(&mut []).is_ok()
    }

    /// Loads the program.
    pub(crate) fn load(&self) -> Result<OwnedFd, Refused> {
        let error = match self.try_load(&mut []) {
            Ok(program) => return Ok(program),
            Err(error) => error,
        };
        let mut log = vec![0u8; 1 << 20];
        loop {
            match self.try_load(&mut log) {
                Ok(program) => return Ok(program),
                Err(again) if again.raw_os_error() == Some(libc::ENOSPC) && log.len() < LOG_BYTES => {
                    log = vec![0u8; LOG_BYTES];
                }
                Err(_) => return Err(Refused { error, log: text(&log) }),
            }
        }
    }
}

/// Creates a map.
pub(crate) fn map(
    kind: sys::bpf_map_type,
    name: &std::ffi::CStr,
    key_size: u32,
    value_size: u32,
    entries: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: the name lives through the call; options may be absent.
    opened(unsafe { sys::bpf_map_create(kind, name.as_ptr(), key_size, value_size, entries, std::ptr::null()) })
}

/// Creates the map that keeps arguments from a function's entry to its return.
pub(crate) fn saved_map(saved: &SavedMap) -> io::Result<OwnedFd> {
    let opts = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: sys::BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    // SAFETY: the name and the options live through the call.
    opened(unsafe {
        sys::bpf_map_create(
            sys::BPF_MAP_TYPE_HASH,
            c"siteseer_saved".as_ptr(),
            saved.key_size,
            saved.value_size,
            saved.max_entries,
            &opts,
        )
    })
}

/// Sets an element of a map whose key and value have these sizes.
pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: both slices are as long as the map's key and value, which the callers create it with.
    let result = unsafe {
        sys::bpf_map_update_elem(map.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), u64::from(sys::BPF_ANY))
    };
    check(result).map(|_| ())
}
