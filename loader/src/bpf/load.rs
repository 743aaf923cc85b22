// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loading programs.
//!
//! A program is first loaded without a verifier log, which costs time, and once more with one if the kernel refuses it.

use super::call::opened;
use super::info::{FuncInfo, LineInfo};
use super::insn::Insn;
use super::objects;
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

/// What the kernel wrote to a log.
pub(super) fn text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
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
pub(crate) struct LoadAs {
    pub(crate) program_type: sys::bpf_prog_type,
    pub(crate) attach_type: sys::bpf_attach_type,
    /// The FUNC that it is for; 0 for none.
    pub(crate) func: TypeId,
    /// Descriptor of the module's BTF that has it; 0 for that of the kernel's image.
    pub(crate) module: u32,
    /// The BPF program whose FUNC that is, by id, if it is not the kernel's.
    pub(crate) program: Option<u32>,
    pub(crate) flags: u32,
}

impl LoadAs {
    /// Whether, and with which words, the kernel refuses a program that does nothing too.
    pub(crate) fn refuses_all(self) -> Option<Refused> {
        self.load_nothing().err()
    }

    /// Loads a program that does nothing.
    pub(crate) fn load_nothing(self) -> Result<OwnedFd, Refused> {
        const NOTHING: [Insn; 2] = [Insn::mov_imm(0, 0), Insn::exit()];
        self.probe(&NOTHING).load()
    }

    /// A program for no function in particular.
    pub(crate) fn plain(program_type: sys::bpf_prog_type, flags: u32) -> LoadAs {
        LoadAs { program_type, attach_type: 0, func: 0, module: 0, program: None, flags }
    }

    /// Loads a program that finds something out.
    pub(crate) fn load_probe(self, insns: &[Insn]) -> io::Result<OwnedFd> {
        self.probe(insns).try_load(&mut [])
    }

    fn probe(self, insns: &[Insn]) -> Request<'_> {
        let name = "siteseer_probe";
        Request { name, gpl: true, kind: self, insns, func_info: &[], line_info: &[], btf: None }
    }
}

/// A program to load.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) gpl: bool,
    pub(crate) kind: LoadAs,
    pub(crate) insns: &'a [Insn],
    pub(crate) func_info: &'a [FuncInfo],
    pub(crate) line_info: &'a [LineInfo],
    pub(crate) btf: Option<BorrowedFd<'a>>,
}

impl Request<'_> {
    fn try_load(&self, log: &mut [u8]) -> io::Result<OwnedFd> {
        // The kernel keeps 15 bytes of the name; libbpf cuts it.
        let name = CString::new(self.name.replace('\0', "")).unwrap_or_default();
        let target = self.kind.program.map(objects::open_program).transpose()?;
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
