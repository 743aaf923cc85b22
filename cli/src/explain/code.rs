// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The instructions around a site, as text.
//!
//! Instructions of x86 have different lengths. So decoding begins where the symbol begins, and not some bytes before
//! the site. The site's address is a boundary, whatever decoding says: what would reach over it is `(bad)`, as are
//! bytes that are not an instruction.
//!
//! x86 is in Intel's syntax: iced-x86's formatter of that syntax adds 60 KB to the program, and the one of AT&T's adds
//! 160 KB. The released program is limited in size.

use iced_x86::{Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction};
use siteseer_sites::Machine;
use siteseer_sites::location::{Location, Op};
use siteseer_sites::machine::Register;
use std::collections::VecDeque;
use std::ops::Range;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64;

/// How many instructions are shown before a site, and how many after it.
const BEFORE: usize = 5;
const AFTER: usize = 5;

/// What stands for bytes that are not an instruction.
const BAD: &str = "(bad)";

/// The bytes of an arm64 instruction.
const WORD: usize = 4;

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) address: u64,
    pub(super) text: String,
    /// Where it may jump to, or what it calls.
    pub(super) target: Option<u64>,
}

/// The instructions around `site`, which is in a symbol's `bytes` from `address` on. Empty if it is not.
pub(super) fn around(machine: Machine, bytes: &[u8], address: u64, site: u64) -> Vec<Shown> {
    let offset = site.checked_sub(address).and_then(|offset| usize::try_from(offset).ok());
    let Some(offset) = offset.filter(|&offset| offset < bytes.len()) else { return Vec::new() };
    let mut before = VecDeque::new();
    boundaries(machine, &bytes[..offset], |span| {
        if before.len() == BEFORE {
            before.pop_front();
        }
        before.push_back(span);
        true
    });
    let mut spans: Vec<Range<usize>> = before.into();
    let mut left = AFTER + 1;
    boundaries(machine, &bytes[offset..], |span| {
        spans.push(span.start + offset..span.end + offset);
        left -= 1;
        left > 0
    });
    spans.into_iter().map(|span| show(machine, &bytes[span.clone()], address.wrapping_add(span.start as u64))).collect()
}

/// Where instructions are, one after the other, as long as they are wanted. A byte that does not begin one stands
/// alone.
fn boundaries(machine: Machine, bytes: &[u8], mut wanted: impl FnMut(Range<usize>) -> bool) {
    let mut start = 0;
    let mut instruction = Instruction::default();
    while start < bytes.len() {
        let size = match machine {
            Machine::Aarch64 => WORD.min(bytes.len() - start),
            Machine::X86_64 => {
                Decoder::new(64, &bytes[start..], DecoderOptions::NONE).decode_out(&mut instruction);
                if instruction.is_invalid() { 1 } else { instruction.len().max(1) }
            }
        };
        if !wanted(start..start + size) {
            return;
        }
        start += size;
    }
}

fn show(machine: Machine, bytes: &[u8], address: u64) -> Shown {
    let (text, target) = match machine {
        Machine::X86_64 => x86(bytes, address),
        Machine::Aarch64 => arm64(bytes, address),
    }
    .unwrap_or_else(|| (BAD.to_owned(), None));
    Shown { address, text, target }
}

fn x86(bytes: &[u8], address: u64) -> Option<(String, Option<u64>)> {
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let mut formatter = FastFormatter::new();
    let options = formatter.options_mut();
    options.set_use_hex_prefix(true);
    options.set_uppercase_hex(false);
    let mut text = String::new();
    formatter.format(&instruction, &mut text);
    let is_near = match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => true,
        FlowControl::Call => instruction.is_call_near(),
        _ => false,
    };
    Some((text, is_near.then(|| instruction.near_branch_target())))
}

fn arm64(bytes: &[u8], address: u64) -> Option<(String, Option<u64>)> {
    let bytes: &[u8; WORD] = bytes.try_into().ok()?;
    let instruction = a64::InstDecoder::default().decode(&mut U8Reader::new(bytes)).ok()?;
    let mut text = instruction.to_string();
    let offset = instruction.operands.iter().find_map(|operand| match operand {
        a64::Operand::PCOffset(offset) => Some(*offset),
        _ => None,
    });
    let Some(offset) = offset else { return Some((text, None)) };
    // Relative to the page of the instruction.
    let is_page = instruction.opcode == a64::Opcode::ADRP;
    let target = if is_page { address & !0xfff } else { address }.wrapping_add_signed(offset);
    // The decoder does not know the address, and writes `$+0x10`.
    let end = |at: usize| text[at + 2..].find([',', ']', ' ']).map_or(text.len(), |length| at + 2 + length);
    if let Some(at) = text.find("$+").or_else(|| text.find("$-")) {
        text.replace_range(at..end(at), &format!("{target:#x}"));
    }
    Some((text, (!is_page && instruction.opcode != a64::Opcode::ADR).then_some(target)))
}

/// The registers that a value is computed from.
pub(super) fn registers(location: &Location) -> Vec<Register> {
    match location {
        Location::Constant(_) | Location::Address(_) => Vec::new(),
        Location::Register(register) | Location::RegisterOffset(register, _) | Location::Memory(register, _) => {
            vec![*register]
        }
        Location::RegisterPair(first, second) => vec![*first, *second],
        Location::Computed(computed) => {
            let register = |op: &Op| if let Op::Register(register) = op { Some(*register) } else { None };
            computed.slots.iter().flatten().filter_map(register).collect()
        }
    }
}

/// Whether a word of an instruction is a register's name, or that of its lower part.
pub(super) fn is_register(machine: Machine, word: &str, register: Register) -> bool {
    let Some(name) = machine.register_name(register) else { return false };
    if word == name {
        return true;
    }
    match machine {
        Machine::Aarch64 => match (word.strip_prefix('w'), name.strip_prefix('x')) {
            (Some(number), Some(own)) => number == own,
            _ => false,
        },
        Machine::X86_64 => {
            let Some(short) = name.strip_prefix('r') else { return false };
            // r8d, r8w, r8b
            if short.starts_with(|first: char| first.is_ascii_digit()) {
                let part = word.strip_prefix(name);
                return part.is_some_and(|part| matches!(part, "d" | "w" | "b" | "l"));
            }
            // eax, ax, al, ah; esi, si, sil
            let low = short.strip_suffix('x').unwrap_or(short);
            let byte = word.strip_suffix(['l', 'h']).is_some_and(|word| word == low);
            word == short || byte || word.strip_prefix('e') == Some(short)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `push rbp; mov rbp,rsp; mov rbx,rdi; call +0; test eax,eax; je -2`
    const X86: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xfb, 0xe8, 0, 0, 0, 0, 0x85, 0xc0, 0x74, 0xfe, //
    ];

    fn lines(shown: &[Shown]) -> Vec<(u64, &str)> {
        shown.iter().map(|shown| (shown.address, shown.text.as_str())).collect()
    }

    #[test]
    fn instructions_of_x86() {
        let shown = around(Machine::X86_64, X86, 0x1000, 0x1004);
        let wanted = [
            (0x1000, "push rbp"),
            (0x1001, "mov rbp,rsp"),
            (0x1004, "mov rbx,rdi"),
            (0x1007, "call 0x100c"),
            (0x100c, "test eax,eax"),
            (0x100e, "je 0x100e"),
        ];
        assert_eq!(lines(&shown), wanted);
        assert_eq!(shown.iter().map(|shown| shown.target).collect::<Vec<_>>()[3..], [Some(0x100c), None, Some(0x100e)]);
        // So many before the site, and no more.
        let nops = [0x90; 40];
        let shown = around(Machine::X86_64, &nops, 0, 20);
        assert_eq!((shown.len(), shown[0].address), (BEFORE + 1 + AFTER, 15));
    }

    #[test]
    fn the_site_is_a_boundary() {
        // The site is inside of `mov rbp,rsp`; the bytes before it are not an instruction.
        let shown = around(Machine::X86_64, X86, 0x1000, 0x1002);
        assert_eq!(shown.iter().position(|shown| shown.address == 0x1002), Some(2));
        assert_eq!(lines(&shown)[..2], [(0x1000, "push rbp"), (0x1001, BAD)]);
    }

    #[test]
    fn instructions_of_arm64() {
        // mov x29, sp; bl +8; cbz x0, -4; a word that is not an instruction; half a word
        let words = [0x9100_03fdu32, 0x9400_0002, 0xb4ff_ffe0, 0xffff_ffff];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([0x1f, 0x20]);
        let shown = around(Machine::Aarch64, &bytes, 0x1000, 0x1004);
        let wanted =
            [(0x1000, "mov x29, sp"), (0x1004, "bl 0x100c"), (0x1008, "cbz x0, 0x1004"), (0x100c, BAD), (0x1010, BAD)];
        assert_eq!(lines(&shown), wanted);
        assert_eq!((shown[1].target, shown[2].target), (Some(0x100c), Some(0x1004)));
        // adrp x0, one page on
        let shown = around(Machine::Aarch64, &0xb000_0000u32.to_le_bytes(), 0x1234, 0x1234);
        assert_eq!(lines(&shown), [(0x1234, "adrp x0, 0x2000")]);
    }

    #[test]
    fn what_is_outside_is_nothing() {
        for site in [0, 0xfff, 0x1010, u64::MAX] {
            assert_eq!(around(Machine::X86_64, X86, 0x1000, site), [], "{site:#x}");
        }
        assert_eq!(around(Machine::X86_64, &[], 0x1000, 0x1000), []);
        let cut = around(Machine::X86_64, &X86[..9], 0x1000, 0x1007);
        assert_eq!(lines(&cut)[3..], [(0x1007, BAD), (0x1008, BAD)]);
    }

    #[test]
    fn names_of_registers() {
        let number = |machine: Machine, name: &str| {
            let names = machine.register_names();
            names.iter().position(|its| *its == name).unwrap_or_else(|| panic!("{name}")) as Register
        };
        let x86 = |word, name| is_register(Machine::X86_64, word, number(Machine::X86_64, name));
        for (name, words) in [
            ("rax", &["rax", "eax", "ax", "al", "ah"][..]),
            ("rsi", &["rsi", "esi", "si", "sil"]),
            ("rbp", &["rbp", "ebp", "bp", "bpl"]),
            ("r8", &["r8", "r8d", "r8w", "r8b"]),
            ("r13", &["r13", "r13d"]),
        ] {
            assert!(words.iter().all(|word| x86(word, name)), "{name}");
        }
        for (word, name) in [("r10", "r13"), ("r13", "r12"), ("edi", "rdx"), ("mov", "rax"), ("l", "rax"), ("", "rax")]
        {
            assert!(!x86(word, name), "{word} {name}");
        }
        let arm = |word, name| is_register(Machine::Aarch64, word, number(Machine::Aarch64, name));
        assert!(arm("x19", "x19") && arm("w19", "x19") && !arm("x1", "x19") && !arm("w1", "x19"));
    }
}
