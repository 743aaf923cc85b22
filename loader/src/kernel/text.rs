// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The running kernel's text: what instructions it has at an address now.
//!
//! A BPF program of the type SYSCALL (Linux 5.14) copies the bytes, by bpf_probe_read_kernel(). It requires what
//! loading a tracing program requires. A kernel that is locked down for confidentiality refuses it.

use super::symbols::array;
use crate::bpf::insn::{Alu, Insn, Width, pseudo};
use crate::bpf::load::LoadAs;
use crate::bpf::{map, objects};
use libbpf_sys as sys;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// `BPF_FUNC_probe_read_kernel`
const PROBE_READ_KERNEL: u32 = 113;
/// Room for the bytes: a power of two.
const ROOM: usize = 32;
/// What kallsyms calls a page of [`jump_pages`].
const JUMP_PAGE: &str = "kprobe_optinsn_page";
/// The value of the map: what the helper returned, and the bytes.
const VALUE: usize = 8 + ROOM;

/// The program that reads.
pub(crate) struct TextReader {
    program: OwnedFd,
    value: OwnedFd,
}

impl TextReader {
    /// Loads it.
    ///
    /// # Errors
    /// If the kernel does not have it, or the process may not load it.
    pub(crate) fn new() -> io::Result<TextReader> {
        let value = array(c"siteseer_text", VALUE, 0)?;
        let mut insns = vec![Insn::load(Width::D, 3, 1, 0), Insn::load(Width::D, 2, 1, 8)];
        insns.push(Insn::alu_imm(Alu::And, 2, ROOM as i32 - 1));
        insns.extend(Insn::load64(6, pseudo::MAP_VALUE, value.as_raw_fd() as u64));
        insns.extend([
            Insn::mov(1, 6),
            Insn::alu_imm(Alu::Add, 1, 8),
            Insn::call(PROBE_READ_KERNEL),
            Insn::store(Width::D, 6, 0, 0),
            Insn::mov_imm(0, 0),
            Insn::exit(),
        ]);
        let program = LoadAs::plain(sys::BPF_PROG_TYPE_SYSCALL, sys::BPF_F_SLEEPABLE).load_probe(&insns)?;
        Ok(TextReader { program, value })
    }

    /// The bytes at an address, fewer than 32; `None` if there are none that can be read.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub(crate) fn read(&self, address: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        debug_assert!(len < ROOM, "the program takes the length modulo its room");
        objects::run(self.program.as_fd(), [address, len as u64])?;
        let mut value = [0u8; VALUE];
        // SAFETY: the map was made with values of this length.
        unsafe { map::lookup(self.value.as_fd(), 0, &mut value) }?;
        let (returned, bytes) = value.split_at(VALUE - ROOM);
        Ok(bytes.get(..len).filter(|_| returned == [0; VALUE - ROOM]).map(<[u8]>::to_vec))
    }
}

/// Where the kernel has kprobes; `None` if that cannot be read.
pub(crate) fn kprobes() -> Option<Vec<u64>> {
    parse(&fs::read_to_string("/sys/kernel/debug/kprobes/list").ok()?)
}

/// The addresses of lines such as `ffffffff81234567  k  vfs_read+0x0    [OPTIMIZED]`; `None` if they are hidden.
fn parse(list: &str) -> Option<Vec<u64>> {
    let address = |line: &str| u64::from_str_radix(line.split_whitespace().next()?, 16).ok().filter(|&at| at != 0);
    list.lines().map(address).collect()
}

/// The pages that the jumps of optimised kprobes lead to: the kernel's copies of the instructions under them (since
/// Linux 5.9). Empty if there are none, or they cannot be read.
pub(crate) fn jump_pages() -> Vec<u64> {
    let Ok(kallsyms) = File::open("/proc/kallsyms") else { return Vec::new() };
    jump_pages_of(BufReader::new(kallsyms))
}

/// The addresses of lines such as `ffffffffc0201000 t kprobe_optinsn_page  [__builtin__kprobes]`.
fn jump_pages_of(kallsyms: impl BufRead) -> Vec<u64> {
    let address = |line: String| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        (words.nth(1)? == JUMP_PAGE).then_some(address)
    };
    kallsyms.lines().map_while(Result::ok).filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kprobes() {
        let line = "ffffffff81234567  k  vfs_read+0x0    [DISABLED][FTRACE]\n";
        assert_eq!(parse(line), Some(vec![0xffff_ffff_8123_4567]));
        assert_eq!(parse(""), Some(Vec::new()));
        assert_eq!(parse("0000000000000000  k  vfs_read+0x0\n"), None, "addresses are hidden");
        assert_eq!(parse("(____ptrval____)  k  vfs_read+0x0\n"), None);
    }

    #[test]
    fn the_pages_of_jumps() {
        let kallsyms = "ffffffff81000000 T _stext\n\
                        ffffffffc0200000 t kprobe_insn_page\t[__builtin__kprobes]\n\
                        ffffffffc0201000 t kprobe_optinsn_page\t[__builtin__kprobes]\n";
        assert_eq!(jump_pages_of(kallsyms.as_bytes()), [0xffff_ffff_c020_1000]);
    }
}
