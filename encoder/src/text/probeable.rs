// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether the kernel will take a kprobe event at an address.
//!
//! The answer is predicted from the image by the kernel's own rules: kernel/trace/trace_kprobe.c
//! `within_notrace_func`, kernel/kprobes.c `check_kprobe_address_safe`, `within_kprobe_blacklist`, and each
//! architecture's `arch_prepare_kprobe`. Where several rules refuse, the reason given is the one that says most: dead
//! text before the section it is in, the section before the function, the function before the instruction. (noinstr
//! text, say, is also notrace.) `notrace` comes last: it is the one rule that a kernel may be without
//! (CONFIG_KPROBE_EVENTS_ON_NOTRACE), which the loader finds out; where it is the reason, it is the only one.
//!
//! The rules go by kallsyms, not by DWARF: `foo.cold` is a symbol of its own, without a patch site for ftrace; the
//! kernel then asks for the name up to the dot, and takes the probe if `foo` can be traced.
//!
//! What depends on the running machine is not predicted: with a single CPU, x86 refuses lock prefixes that it removed
//! (`alternatives_text_reserved`); debuggers' breakpoints.

use crate::elf::image::{Container, Image};
use crate::elf::tables::{Bug, JumpLabel, jump_label_at, reaching};
use crate::text::{FunctionText, instruction_refusal};
use siteseer_sites::{Machine, Unprobeable};
use std::ops::Range;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Answers for many addresses, fastest if those of one function come together.
pub struct Prober<'i, 'a> {
    image: &'i Image<'a>,
    /// The symbol of the last answer, and what holds for all of it.
    symbol: Range<u64>,
    verdict: Option<Unprobeable>,
    is_notrace: bool,
    /// What lies in it, or may.
    jump_labels: &'i [JumpLabel],
    static_calls: &'i [u64],
    bugs: &'i [Bug],
}

impl<'i, 'a> Prober<'i, 'a> {
    /// For the addresses of an image.
    pub fn new(image: &'i Image<'a>) -> Prober<'i, 'a> {
        Prober { image, symbol: 0..0, verdict: None, is_notrace: false, jump_labels: &[], static_calls: &[], bugs: &[] }
    }

    /// Why a probe at that address, in that function, will be refused; `None` if it will be taken.
    pub fn check(&mut self, text: &FunctionText<'_, '_>, address: u64) -> Option<Unprobeable> {
        let refusal = self.refusal(address).or_else(|| {
            let address = self.adjusted(address);
            if !text.is_boundary(address) {
                return Some(Unprobeable::NotAnInstruction);
            }
            instruction_refusal(self.image, address)
        });
        refusal.or(self.notrace())
    }

    /// The same, at an address where there is an instruction.
    pub(crate) fn check_instruction(&mut self, address: u64) -> Option<Unprobeable> {
        let refusal = self.refusal(address);
        refusal.or_else(|| instruction_refusal(self.image, self.adjusted(address))).or(self.notrace())
    }

    /// The same without looking at instructions: for addresses in functions that were not decoded, such as the
    /// first of a body.
    pub fn check_address(&mut self, address: u64) -> Option<Unprobeable> {
        self.refusal(address).or(self.notrace())
    }

    /// What holds for the symbol of the last address, if nothing else stands in the way.
    fn notrace(&self) -> Option<Unprobeable> {
        self.is_notrace.then_some(Unprobeable::Notrace)
    }

    fn refusal(&mut self, address: u64) -> Option<Unprobeable> {
        if !self.symbol.contains(&address) {
            let Some(container) = self.image.container(address) else { return Some(Unprobeable::NotText) };
            self.symbol = container.address..container.address.saturating_add(container.size);
            self.verdict = symbol_verdict(self.image, &container);
            self.is_notrace = within_notrace(self.image, &container);
            let tables = self.image.tables();
            // The address that counts may be after the symbol's `endbr64`, and so past the end of the symbol.
            let near = container.address..self.symbol.end.saturating_add(ENDBR64.len() as u64);
            self.jump_labels = reaching(&tables.jump_labels, &near, |label| label.code);
            self.static_calls = reaching(&tables.static_calls, &near, |&call| call);
            self.bugs = reaching(&tables.bugs, &near, |bug| bug.address);
        }
        if self.verdict.is_some() {
            return self.verdict;
        }
        let address = self.adjusted(address);
        if jump_label_at(self.jump_labels, address).is_some() {
            return Some(Unprobeable::JumpLabel);
        }
        if is_in_static_call(self.static_calls, address) {
            return Some(Unprobeable::StaticCall);
        }
        self.bugs.binary_search_by_key(&address, |bug| bug.address).ok().map(|_| Unprobeable::Bug)
    }

    /// Where the kernel puts a probe that is asked for at a function's `endbr64`: after it
    /// (arch/x86/kernel/kprobes/core.c `arch_adjust_kprobe_addr`).
    fn adjusted(&self, address: u64) -> u64 {
        let is_endbr = || {
            let end = address.checked_add(ENDBR64.len() as u64);
            end.and_then(|end| self.image.bytes(address..end)) == Some(&ENDBR64[..])
        };
        if self.image.machine() == Machine::X86_64 && address == self.symbol.start && is_endbr() {
            address + ENDBR64.len() as u64
        } else {
            address
        }
    }
}

/// Why a probe at an address of a function will be refused; `None` if it will be taken. See [`Prober`] for many.
pub fn unprobeable(image: &Image<'_>, text: &FunctionText<'_, '_>, address: u64) -> Option<Unprobeable> {
    Prober::new(image).check(text, address)
}

/// What holds for every address of a symbol.
fn symbol_verdict(image: &Image<'_>, symbol: &Container<'_>) -> Option<Unprobeable> {
    let special = image.special();
    let at = symbol.address;
    if special.init.contains(&at) {
        return Some(Unprobeable::Init);
    }
    if special.exit.contains(&at) {
        return Some(Unprobeable::Exit);
    }
    if !special.core.contains(&at) {
        return Some(Unprobeable::NotText);
    }
    if special.noinstr.contains(&at) {
        return Some(Unprobeable::Noinstr);
    }
    if special.entry.contains(&at) {
        return Some(Unprobeable::Entry);
    }
    if special.kprobes.contains(&at) || special.arch.iter().any(|range| range.contains(&at)) {
        return Some(Unprobeable::Blacklisted);
    }
    if is_blacklisted(image, at) || unsuffixed(image, symbol).is_some_and(|address| is_blacklisted(image, address)) {
        return Some(Unprobeable::Blacklisted);
    }
    if symbol.name.starts_with("__cfi_") || symbol.name.starts_with("__pfx_") {
        return Some(Unprobeable::CfiPreamble);
    }
    None
}

/// The function that is named like a symbol up to its first dot.
fn unsuffixed(image: &Image<'_>, symbol: &Container<'_>) -> Option<u64> {
    let (name, _) = symbol.name.split_once('.')?;
    image.symbols_named(name).next().map(|symbol| symbol.address)
}

/// Whether kprobe events are refused in a symbol because ftrace does not know it.
fn within_notrace(image: &Image<'_>, symbol: &Container<'_>) -> bool {
    is_notrace(image, symbol.address) && unsuffixed(image, symbol).is_none_or(|address| is_notrace(image, address))
}

fn is_blacklisted(image: &Image<'_>, address: u64) -> bool {
    let blacklist = &image.tables().blacklist;
    let after = blacklist.partition_point(|range| range.start <= address);
    // Entries are whole symbols: they do not overlap.
    after.checked_sub(1).is_some_and(|index| blacklist[index].contains(&address))
}

/// Whether ftrace has no patch site in the symbol that holds an address. A kernel without any is one without
/// dynamic ftrace, where the rule does not exist.
fn is_notrace(image: &Image<'_>, address: u64) -> bool {
    let tables = image.tables();
    let Some(symbol) = image.container(address) else { return false };
    let range = symbol.address..symbol.address.saturating_add(symbol.size);
    !tables.ftrace.is_empty() && !tables.has_ftrace(&range)
}

/// Whether an address is in the five bytes of a static call (kernel/static_call_inline.c).
fn is_in_static_call(sites: &[u64], address: u64) -> bool {
    const CALL: u64 = 5;
    let after = sites.partition_point(|&site| site <= address);
    after.checked_sub(1).is_some_and(|index| address - sites[index] < CALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::{TEXT, TestImage, relative};
    use crate::text::Known;

    /// One function every 16 bytes, with an ftrace call where `traced` says so.
    fn kernel(machine: Machine, code: &[u8], functions: &[&str], traced: &[u64]) -> TestImage {
        let mut text = vec![if machine == Machine::X86_64 { 0x90 } else { 0 }; functions.len() * 16];
        text[..code.len()].copy_from_slice(code);
        let mut test = TestImage::kernel(machine, &text);
        for (name, at) in functions.iter().zip((TEXT..).step_by(16)) {
            test.function(name, at, 16);
        }
        let sites: Vec<u8> = traced.iter().flat_map(|at| (TEXT + at).to_le_bytes()).collect();
        test.table("__mcount_loc", "__start_mcount_loc", "__stop_mcount_loc", TEXT + 0x1000, &sites);
        test
    }

    fn answer(test: TestImage, offset: u64) -> Option<Unprobeable> {
        let bytes = test.build();
        let image = Image::parse(&bytes).expect("a kernel");
        let section = image.text_sections()[0].range();
        let ranges: Vec<_> = section.clone().step_by(16).map(|at| at..(at + 16).min(section.end)).collect();
        let text = FunctionText::decode(&image, &ranges, &Known::default());
        unprobeable(&image, &text, TEXT + offset)
    }

    fn x86(code: &[u8], offset: u64, add: impl FnOnce(&mut TestImage)) -> Option<Unprobeable> {
        let mut test = kernel(Machine::X86_64, code, &["f", "g"], &[0, 16]);
        add(&mut test);
        answer(test, offset)
    }

    #[test]
    fn ordinary_text_is_taken() {
        assert_eq!(x86(&[0x89, 0xf8], 0, |_| {}), None);
        assert_eq!(x86(&[0x89, 0xf8], 2, |_| {}), None);
        assert_eq!(x86(&[0x89, 0xf8], 1, |_| {}), Some(Unprobeable::NotAnInstruction));
        assert_eq!(x86(&[], 32, |_| {}), Some(Unprobeable::NotText));
    }

    #[test]
    fn special_text_is_refused() {
        let between = |start: &str, end: &str| {
            x86(&[], 20, |test| {
                test.label(start, TEXT + 16, 1);
                test.label(end, TEXT + 32, 1);
            })
        };
        assert_eq!(between("__noinstr_text_start", "__noinstr_text_end"), Some(Unprobeable::Noinstr));
        assert_eq!(between("__entry_text_start", "__entry_text_end"), Some(Unprobeable::Entry));
        assert_eq!(between("__kprobes_text_start", "__kprobes_text_end"), Some(Unprobeable::Blacklisted));
        assert_eq!(between("_sinittext", "_einittext"), Some(Unprobeable::Init));
        assert_eq!(between("__irqentry_text_start", "__irqentry_text_end"), None);
    }

    #[test]
    fn arm64_refuses_the_entries_of_interrupts_too() {
        for name in ["irqentry", "idmap", "hyp", "hyp_idmap"] {
            let mut test = kernel(Machine::Aarch64, &[], &["f", "g"], &[0, 16]);
            test.label(&format!("__{name}_text_start"), TEXT + 16, 1);
            test.label(&format!("__{name}_text_end"), TEXT + 32, 1);
            assert_eq!(answer(test, 20), Some(Unprobeable::Blacklisted), "{name}");
        }
    }

    #[test]
    fn the_blacklist_holds_whole_functions_and_their_cold_parts() {
        let functions = ["f", "f.cold", "g", "g.cold"];
        let check = |offset: u64| {
            let mut test = kernel(Machine::X86_64, &[], &functions, &[0, 16, 32, 48]);
            let entry = TEXT.to_le_bytes();
            test.table("list", "__start_kprobe_blacklist", "__stop_kprobe_blacklist", TEXT + 0x2000, &entry);
            answer(test, offset)
        };
        assert_eq!(check(0), Some(Unprobeable::Blacklisted));
        assert_eq!(check(15), Some(Unprobeable::Blacklisted));
        assert_eq!(check(16), Some(Unprobeable::Blacklisted));
        assert_eq!(check(32), None);
        assert_eq!(check(48), None);
    }

    #[test]
    fn notrace_functions_are_refused_and_suffixed_ones_ask_for_their_base() {
        let functions = ["f", "f.cold", "g", "g.cold", "h.isra.0.cold"];
        let check = |offset: u64| answer(kernel(Machine::X86_64, &[], &functions, &[0]), offset);
        assert_eq!(check(4), None);
        assert_eq!(check(20), None, "f can be traced");
        assert_eq!(check(32), Some(Unprobeable::Notrace));
        assert_eq!(check(48), Some(Unprobeable::Notrace));
        assert_eq!(check(64), Some(Unprobeable::Notrace), "there is no h");
        assert_eq!(answer(kernel(Machine::X86_64, &[], &functions, &[]), 32), None, "a kernel without ftrace");
    }

    #[test]
    fn notrace_is_the_reason_where_there_is_no_other() {
        let functions = ["f", "g"];
        // In g: a mov, and a trap.
        let mut code = [0x90; 32];
        code[16..20].copy_from_slice(&[0x89, 0xf8, 0x0f, 0x0b]);
        let check = |offset: u64| answer(kernel(Machine::X86_64, &code, &functions, &[0]), offset);
        assert_eq!(check(16), Some(Unprobeable::Notrace));
        assert_eq!(check(17), Some(Unprobeable::NotAnInstruction));
        assert_eq!(check(18), Some(Unprobeable::Bug));
    }

    #[test]
    fn preambles_are_refused() {
        let check = |offset| answer(kernel(Machine::X86_64, &[], &["e", "__cfi_f", "f"], &[0, 16, 32]), offset);
        assert_eq!(check(16), Some(Unprobeable::CfiPreamble));
        assert_eq!(check(32), None);
    }

    #[test]
    fn patch_sites_are_refused() {
        let jump = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 2)[..], &relative(place + 4, TEXT + 8), &[0; 8]].concat();
            test.table("__jump_table", "__start___jump_table", "__stop___jump_table", place, &entry);
        };
        let code = [0x89, 0xf8, 0xeb, 0x04, 0x90];
        assert_eq!(x86(&code, 0, jump), None);
        assert_eq!(x86(&code, 2, jump), Some(Unprobeable::JumpLabel));
        assert_eq!(x86(&code, 3, jump), Some(Unprobeable::JumpLabel));
        assert_eq!(x86(&code, 4, jump), None);
        let call = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 2)[..], &[0; 4]].concat();
            test.table("calls", "__start_static_call_sites", "__stop_static_call_sites", place, &entry);
        };
        let code = [0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0x90];
        assert_eq!(x86(&code, 2, call), Some(Unprobeable::StaticCall));
        assert_eq!(x86(&code, 6, call), Some(Unprobeable::StaticCall));
        assert_eq!(x86(&code, 7, call), None);
        let bug = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            let entry = [&relative(place, TEXT + 2)[..], &[0; 8]].concat();
            test.table("bugs", "__start___bug_table", "__stop___bug_table", place, &entry);
        };
        assert_eq!(x86(&[0x89, 0xf8, 0x89, 0xf8], 2, bug), Some(Unprobeable::Bug), "whatever the instruction");
        assert_eq!(x86(&[0x89, 0xf8, 0x0f, 0x0b], 2, |_| {}), Some(Unprobeable::Bug), "whatever the table");
    }

    #[test]
    fn a_probe_at_endbr_moves_past_it() {
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x0b];
        assert_eq!(x86(&code, 0, |_| {}), Some(Unprobeable::Bug));
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xe8, 0, 0, 0, 0];
        assert_eq!(x86(&code, 0, |_| {}), None);
        assert_eq!(x86(&code, 4, |_| {}), None);
    }

    #[test]
    fn instructions_that_x86_cannot_emulate() {
        for code in [&[0xff, 0x17][..], &[0xff, 0x27], &[0xff, 0x2f], &[0x48, 0xcf], &[0x8e, 0xd0]] {
            assert_eq!(x86(code, 0, |_| {}), Some(Unprobeable::Unsteppable), "{code:x?}");
        }
        for code in [&[0xff, 0xd0][..], &[0xff, 0xe0], &[0xc3], &[0xe8, 0, 0, 0, 0], &[0xf0, 0xff, 0x07], &[0xfa]] {
            assert_eq!(x86(code, 0, |_| {}), None, "{code:x?}");
        }
    }

    #[test]
    fn kcfi_checks_hold_a_type() {
        // mov $1,%r10d; add -4(%r11),%r10d; je 1f; ud2; 1:
        let code = [0x41, 0xba, 1, 0, 0, 0, 0x45, 0x03, 0x53, 0xfc, 0x74, 0x02, 0x0f, 0x0b];
        let traps = |test: &mut TestImage| {
            let place = TEXT + 0x2000;
            test.table("traps", "__start___kcfi_traps", "__stop___kcfi_traps", place, &relative(place, TEXT + 12));
        };
        assert_eq!(x86(&code, 0, traps), Some(Unprobeable::CfiPreamble));
        assert_eq!(x86(&code, 6, traps), Some(Unprobeable::CfiPreamble));
        assert_eq!(x86(&code, 10, traps), None);
        assert_eq!(x86(&code, 0, |_| {}), None);
    }

    #[test]
    fn arm64_instructions() {
        let check = |words: &[u32], offset: u64| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            // ftrace's patch site is in g.
            answer(kernel(Machine::Aarch64, &code, &["f", "f.cold", "g"], &[0]), offset)
        };
        let nop = 0xd503_201f;
        assert_eq!(check(&[0xaa01_03e0, nop, 0x8b00_0020], 8), None);
        assert_eq!(check(&[0xaa01_03e0, nop], 2), Some(Unprobeable::NotAnInstruction));
        assert_eq!(check(&[nop, nop], 4), Some(Unprobeable::Unsteppable), "what ftrace patches");
        assert_eq!(check(&[nop, nop, 0xd421_0000], 8), Some(Unprobeable::Bug), "brk");
        for word in [0xd503_205f_u32, 0xd503_23bf, 0xd518_4100, 0xd53b_4220, 0xd65f_0bff, 0xd400_0001, 0xc85f_7c20] {
            assert_eq!(check(&[nop, nop, word], 8), Some(Unprobeable::Unsteppable), "{word:#x}");
        }
        for word in [0xd503_233f_u32, 0xd503_245f, 0xd538_4100, 0xd65f_03c0, 0xd63f_0000, 0x5800_0040, 0xc8df_fc20] {
            assert_eq!(check(&[nop, nop, word], 8), None, "{word:#x}");
        }
        // ldxr; nop; stxr; nop: between the two, and after.
        let exclusive = [0xc85f_7c20, nop, 0xc800_7c41, nop];
        assert_eq!(check(&exclusive, 8), Some(Unprobeable::Unsteppable));
        assert_eq!(check(&exclusive, 12), None);
    }
}
