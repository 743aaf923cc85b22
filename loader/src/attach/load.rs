// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Loading trampolines: BTF, maps, programs.
//!
//! A program is first loaded without a verifier log, which costs time, and once more with one if the kernel refuses it.

use crate::insn::Insn;
use crate::object::{check, opened};
use crate::program::{FuncInfo, LineInfo};
use libbpf_sys as sys;
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
pub(super) fn insn(insn: &sys::bpf_insn) -> Insn {
    Insn::new(insn.code, insn.dst_reg(), insn.src_reg(), insn.off, insn.imm)
}

/// A program to load.
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    pub(crate) gpl: bool,
    pub(crate) attach_type: sys::bpf_attach_type,
    pub(crate) insns: &'a [Insn],
    pub(crate) func_info: &'a [FuncInfo],
    pub(crate) line_info: &'a [LineInfo],
    pub(crate) btf: Option<BorrowedFd<'a>>,
}

impl Request<'_> {
    fn try_load(&self, log: &mut [u8]) -> io::Result<OwnedFd> {
        // The kernel keeps 15 bytes of the name; libbpf cuts it.
        let name = CString::new(self.name.replace('\0', "")).unwrap_or_default();
        // What the object's licence allowed is allowed here: the program is the same.
        let licence = if self.gpl { c"GPL" } else { c"Proprietary" };
        let mut opts = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            expected_attach_type: self.attach_type,
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
                sys::BPF_PROG_TYPE_KPROBE,
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

/// Sets an element of a map whose key and value have these sizes.
pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    // SAFETY: both slices are as long as the map's key and value, which the callers create it with.
    let result = unsafe {
        sys::bpf_map_update_elem(map.as_raw_fd(), key.as_ptr().cast(), value.as_ptr().cast(), u64::from(sys::BPF_ANY))
    };
    check(result).map(|_| ())
}
