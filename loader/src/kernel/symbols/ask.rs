// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Asks the kernel which symbol holds an address, without reading its table.
//!
//! A BPF program of the type SYSCALL (Linux 5.14) runs when it is told to, attached to nothing. It prints the address
//! as `%pS` (`sprint_symbol()` in kernel/kallsyms.c): the symbol, the distance from it, its size, and the module. That
//! is the kernel's own lookup, by which it names probes and refuses them. It requires what loading a tracing program
//! requires, and no table in `/proc`.

use crate::bpf::insn::{Insn, Width, pseudo};
use crate::bpf::load::LoadAs;
use crate::bpf::map::{self, Map};
use crate::bpf::objects;
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// `KSYM_NAME_LEN` is 512 since Linux 6.1; two numbers and a module's name come after it.
const ANSWER: usize = 640;
const FORMAT: [u8; 4] = *b"%pS\0";
/// `BPF_FUNC_snprintf`
const SNPRINTF: u32 = 165;

/// What the kernel says about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The symbol; the first of the table if several are at the address.
    pub(crate) symbol: String,
    /// Bytes from it to the address.
    pub(crate) offset: u64,
    /// Bytes from it to the next one.
    pub(crate) size: u64,
    pub(crate) module: Option<String>,
}

impl Answer {
    /// Parses `name+0x10/0x40`, for a module's symbol with ` [module]` after it. An address that no symbol holds is a
    /// bare number.
    fn parse(text: &str) -> Option<Answer> {
        let (place, module) = match text.strip_suffix(']') {
            Some(text) => text.rsplit_once(" [").map(|(place, module)| (place, Some(module.to_owned())))?,
            None => (text, None),
        };
        let (symbol, numbers) = place.rsplit_once('+')?;
        let (offset, size) = numbers.split_once('/')?;
        let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let (offset, size) = (number(offset)?, number(size)?);
        (!symbol.is_empty()).then(|| Answer { symbol: symbol.to_owned(), offset, size, module })
    }
}

/// The program that asks.
pub(crate) struct Asker {
    program: OwnedFd,
    answer: OwnedFd,
}

impl Asker {
    /// Loads it.
    ///
    /// # Errors
    /// If the kernel does not have it, or the process may not load it.
    pub(crate) fn new() -> io::Result<Asker> {
        let format = array(c"siteseer_format", FORMAT.len(), sys::BPF_F_RDONLY_PROG)?;
        map::update(format.as_fd(), &0u32.to_ne_bytes(), &FORMAT)?;
        // The verifier takes only what nobody can change any more for a format.
        map::freeze(format.as_fd())?;
        let answer = array(c"siteseer_answer", ANSWER, 0)?;
        let value = |register, map: &OwnedFd| Insn::load64(register, pseudo::MAP_VALUE, map.as_raw_fd() as u64);
        let mut insns = vec![Insn::load(Width::D, 6, 1, 0), Insn::store(Width::D, 10, -8, 6)];
        insns.extend(value(1, &answer));
        insns.push(Insn::mov_imm(2, ANSWER as i32));
        insns.extend(value(3, &format));
        insns.extend([
            Insn::mov(4, 10),
            Insn::alu_imm(crate::bpf::insn::Alu::Add, 4, -8),
            Insn::mov_imm(5, 8),
            Insn::call(SNPRINTF),
            Insn::mov_imm(0, 0),
            Insn::exit(),
        ]);
        let program = LoadAs::plain(sys::BPF_PROG_TYPE_SYSCALL, sys::BPF_F_SLEEPABLE).load_probe(&insns)?;
        Ok(Asker { program, answer })
    }

    /// The symbol that holds an address; `None` if none does.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub(crate) fn ask(&self, address: u64) -> io::Result<Option<Answer>> {
        objects::run(self.program.as_fd(), [address])?;
        let mut text = [0u8; ANSWER];
        // SAFETY: the map was made with values of this length.
        unsafe { map::lookup(self.answer.as_fd(), 0, &mut text) }?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(ANSWER);
        Ok(std::str::from_utf8(&text[..end]).ok().and_then(Answer::parse))
    }
}

/// An array with one element.
pub(in crate::kernel) fn array(name: &std::ffi::CStr, bytes: usize, flags: u32) -> io::Result<OwnedFd> {
    Map { flags, ..Map::plain(sys::BPF_MAP_TYPE_ARRAY, name, 4, bytes as u32, 1) }.create()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(symbol: &str, offset: u64, size: u64, module: Option<&str>) -> Option<Answer> {
        Some(Answer { symbol: symbol.to_owned(), offset, size, module: module.map(str::to_owned) })
    }

    #[test]
    fn what_the_kernel_prints() {
        assert_eq!(Answer::parse("vfs_read+0x0/0x340"), answer("vfs_read", 0, 0x340, None));
        assert_eq!(
            Answer::parse("foo.isra.0+0x1f/0x20 [a_module]"),
            answer("foo.isra.0", 0x1f, 0x20, Some("a_module"))
        );
        for nothing in ["0xffffffff81000000", "", "vfs_read", "vfs_read+0x10", "+0x0/0x10", "a+0x0/0x10]", "a+10/20"] {
            assert_eq!(Answer::parse(nothing), None, "{nothing}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_be_printed(text in ".{0,80}") {
            let _ = Answer::parse(&text);
        }

        #[test]
        fn what_is_printed_is_understood(
            symbol in "[a-z_.]{1,20}", offset: u64, size: u64, module in proptest::option::of("[a-z_]{1,10}"),
        ) {
            let suffix = module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
            let text = format!("{symbol}+{offset:#x}/{size:#x}{suffix}");
            prop_assert_eq!(Answer::parse(&text), answer(&symbol, offset, size, module.as_deref()));
        }
    }
}
