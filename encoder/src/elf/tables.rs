// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The tables by which the kernel patches, guards and traces its text.
//!
//! | table | entry | source |
//! |---|---|---|
//! | kprobe blacklist | address of a function | kernel/kprobes.c `populate_kprobe_blacklist` |
//! | jump labels | s32 code, s32 target, long key; relative to the field | include/linux/jump_label.h |
//! | static calls | s32 call, s32 key; relative to the field | include/linux/static_call_types.h |
//! | bugs | s32 trap, relative to the field, ..., u16 flags | include/asm-generic/bug.h |
//! | exceptions | s32 instruction, s32 fixup, relative to the field, ... | arch/*/include/asm/extable.h |
//! | alternatives | s32 original, s32 replacement, relative to the field, ..., u8 and u8 their lengths | arch/*/include/asm/alternative.h |
//! | ftrace | address of a patch site | kernel/trace/ftrace.c `ftrace_process_locs` |
//!
//! The sizes of bug, exception and alternative entries depend on the version and configuration. They are found by
//! trying the known sizes until every entry points into text. A module has the same tables in sections of their own.

use crate::elf::image::Image;
use siteseer_sites::Machine;
use std::ops::Range;

/// A place that is either a no-op or a jump to its target, as the key says at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JumpLabel {
    /// Address of the instruction that is patched.
    pub code: u64,
    /// Where it jumps when it is a jump.
    pub target: u64,
    /// Size of the instruction in bytes.
    pub size: u8,
}

/// A trap that reports a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bug {
    /// Address of the instruction.
    pub address: u64,
    /// Whether execution goes on after it (WARN), as far as known.
    pub resumes: bool,
}

/// An instruction that may fault, and where execution goes on then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exception {
    /// Address of the instruction.
    pub instruction: u64,
    /// Address of its fixup.
    pub fixup: u64,
}

/// Instructions that may be replaced at boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alternative {
    /// First address of what is replaced.
    pub start: u64,
    /// End of it.
    pub end: u64,
    /// Where the replacement is stored.
    pub replacement: u64,
    /// Bytes of the replacement; 0 if the kernel computes it.
    pub replacement_len: u8,
}

/// The tables, each sorted by address.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Functions on the kprobe blacklist, with the range of text that their symbol covers.
    pub blacklist: Vec<Range<u64>>,
    /// Jump labels.
    pub jump_labels: Vec<JumpLabel>,
    /// Addresses of inline static calls.
    pub static_calls: Vec<u64>,
    /// Traps.
    pub bugs: Vec<Bug>,
    /// Exception fixups.
    pub exceptions: Vec<Exception>,
    /// Alternatives.
    pub alternatives: Vec<Alternative>,
    /// Addresses of the instructions that ftrace patches.
    pub ftrace: Vec<u64>,
    /// Addresses of the traps of kCFI checks.
    pub kcfi_traps: Vec<u64>,
}

/// The entries of `items` with an address in a range; `items` is sorted by that address.
pub(crate) fn within<'t, T, F: Fn(&T) -> u64>(
    items: &'t [T],
    range: &Range<u64>,
    address: F,
) -> impl Iterator<Item = &'t T> + use<'t, T, F> {
    let start = items.partition_point(|item| address(item) < range.start);
    let end = range.end;
    items[start..].iter().take_while(move |item| address(item) < end)
}

impl Tables {
    pub(crate) fn read(image: &Image<'_>) -> Tables {
        let mut tables = Tables {
            blacklist: read_blacklist(image),
            jump_labels: read_jump_labels(image),
            static_calls: read_static_calls(image),
            bugs: read_bugs(image),
            exceptions: read_exceptions(image),
            alternatives: read_alternatives(image),
            ftrace: read_ftrace(image),
            kcfi_traps: read_kcfi_traps(image),
        };
        tables.blacklist.sort_unstable_by_key(|range| (range.start, range.end));
        tables.jump_labels.sort_unstable();
        tables.static_calls.sort_unstable();
        tables.bugs.sort_unstable();
        tables.exceptions.sort_unstable();
        tables.alternatives.sort_unstable();
        tables.ftrace.sort_unstable();
        tables.ftrace.dedup();
        tables.kcfi_traps.sort_unstable();
        tables
    }

    /// The jump label whose patched instruction holds an address.
    pub fn jump_label_at(&self, address: u64) -> Option<&JumpLabel> {
        jump_label_at(&self.jump_labels, address)
    }

    /// The trap at exactly that address.
    pub fn bug_at(&self, address: u64) -> Option<&Bug> {
        let index = self.bugs.binary_search_by_key(&address, |bug| bug.address).ok()?;
        Some(&self.bugs[index])
    }

    /// Whether an exception of the instruction at that address has a fixup.
    pub fn may_fault(&self, address: u64) -> bool {
        self.exceptions.binary_search_by_key(&address, |e| e.instruction).is_ok()
    }

    /// Whether an address lies in instructions that may be replaced at boot.
    pub fn in_alternative(&self, address: u64) -> bool {
        // Alternatives do not overlap except that several share a start, and none is longer than 255 bytes.
        let near = address.saturating_sub(255)..address.saturating_add(1);
        within(&self.alternatives, &near, |a| a.start).any(|a| (a.start..a.end).contains(&address))
    }

    /// Whether ftrace patches an instruction in that range.
    pub fn has_ftrace(&self, range: &Range<u64>) -> bool {
        within(&self.ftrace, range, |&address| address).next().is_some()
    }
}

/// The jump label of a sorted list whose patched instruction holds an address.
pub(crate) fn jump_label_at(labels: &[JumpLabel], address: u64) -> Option<&JumpLabel> {
    let label = &labels[labels.partition_point(|label| label.code <= address).checked_sub(1)?];
    (address - label.code < u64::from(label.size)).then_some(label)
}

/// The entries of a sorted table in a range, and the one before: it may reach into the range.
pub(crate) fn reaching<'t, T>(table: &'t [T], range: &Range<u64>, address: impl Fn(&T) -> u64) -> &'t [T] {
    let start = table.partition_point(|entry| address(entry) < range.start).saturating_sub(1);
    let rest = &table[start..];
    &rest[..rest.partition_point(|entry| address(entry) < range.end)]
}

/// A table's address and bytes: between linker symbols, or a module's section.
fn table<'i>(image: &'i Image<'_>, start: &str, stop: &str, section: &str) -> (u64, &'i [u8]) {
    let range = if image.is_relocatable() { image.section_range(section) } else { image.between(start, stop) };
    (range.start, image.bytes(range).unwrap_or_default())
}

fn i32_at(bytes: &[u8], offset: usize) -> Option<i64> {
    let bytes = bytes.get(offset..)?.first_chunk::<4>()?;
    Some(i64::from(i32::from_le_bytes(*bytes)))
}

/// The address that the relative field at `offset` of an entry at `place` points to.
pub(super) fn relative(place: u64, entry: &[u8], offset: usize) -> Option<u64> {
    Some(place.wrapping_add(offset as u64).wrapping_add_signed(i32_at(entry, offset)?))
}

/// The entries of a table, each with its address.
pub(super) fn entries(base: u64, bytes: &[u8], size: usize) -> impl Iterator<Item = (u64, &[u8])> {
    bytes.chunks_exact(size).enumerate().map(move |(index, entry)| (base.wrapping_add((index * size) as u64), entry))
}

/// The first of the sizes for which (nearly) all entries begin with a relative address in text. The slack is for
/// entries that the linker left pointing nowhere.
fn entry_size(image: &Image<'_>, base: u64, bytes: &[u8], sizes: &[usize]) -> Option<usize> {
    sizes.iter().copied().find(|&size| {
        let count = bytes.len() / size;
        let good = entries(base, bytes, size)
            .filter(|(place, entry)| relative(*place, entry, 0).is_some_and(|a| image.section_at(a).is_some()))
            .count();
        count > 0 && bytes.len().is_multiple_of(size) && good + count / 100 >= count
    })
}

fn read_blacklist(image: &Image<'_>) -> Vec<Range<u64>> {
    let range = if image.is_relocatable() {
        image.section_range("_kprobe_blacklist")
    } else {
        image.between("__start_kprobe_blacklist", "__stop_kprobe_blacklist")
    };
    let functions = pointers(image, range);
    functions
        .into_iter()
        .filter_map(|entry| {
            let container = image.container(entry)?;
            Some(entry..entry.saturating_add(container.size))
        })
        .collect()
}

fn read_jump_labels(image: &Image<'_>) -> Vec<JumpLabel> {
    let (base, bytes) = table(image, "__start___jump_table", "__stop___jump_table", "__jump_table");
    entries(base, bytes, 16)
        .filter_map(|(place, entry)| {
            let code = relative(place, entry, 0)?;
            let target = relative(place, entry, 4)?;
            let size = match image.machine() {
                Machine::Aarch64 => 4,
                Machine::X86_64 => match image.bytes(code..code.checked_add(2)?)? {
                    [0xeb, _] | [0x66, 0x90] => 2,
                    _ => 5,
                },
            };
            Some(JumpLabel { code, target, size })
        })
        .collect()
}

fn read_static_calls(image: &Image<'_>) -> Vec<u64> {
    let (base, bytes) = table(image, "__start_static_call_sites", "__stop_static_call_sites", ".static_call_sites");
    entries(base, bytes, 8).filter_map(|(place, entry)| relative(place, entry, 0)).collect()
}

fn read_bugs(image: &Image<'_>) -> Vec<Bug> {
    const WARNING: u8 = 1;
    let (base, bytes) = table(image, "__start___bug_table", "__stop___bug_table", "__bug_table");
    let Some(size) = entry_size(image, base, bytes, &[8, 12, 16, 20, 24]) else { return Vec::new() };
    // Without file and line the flags come right after the address, else they are last.
    let flags = if size == 8 { 4 } else { size - 2 };
    let is_warning = |entry: &[u8]| entry.get(flags).is_some_and(|flags| flags & WARNING != 0);
    // A kernel without a single WARN means that the flags are elsewhere.
    let flags_known = entries(base, bytes, size).any(|(_, entry)| is_warning(entry));
    entries(base, bytes, size)
        .filter_map(|(place, entry)| {
            let address = relative(place, entry, 0)?;
            Some(Bug { address, resumes: !flags_known || is_warning(entry) })
        })
        .collect()
}

fn read_exceptions(image: &Image<'_>) -> Vec<Exception> {
    let (base, bytes) = table(image, "__start___ex_table", "__stop___ex_table", "__ex_table");
    let Some(size) = entry_size(image, base, bytes, &[12, 8]) else { return Vec::new() };
    entries(base, bytes, size)
        .filter_map(|(place, entry)| {
            Some(Exception { instruction: relative(place, entry, 0)?, fixup: relative(place, entry, 4)? })
        })
        .collect()
}

fn read_alternatives(image: &Image<'_>) -> Vec<Alternative> {
    let (base, bytes) = table(image, "__alt_instructions", "__alt_instructions_end", ".altinstructions");
    let Some(size) = entry_size(image, base, bytes, &[14, 12, 13]) else { return Vec::new() };
    // The lengths are the last two bytes; with 13 (before 5.13) a padding length follows them.
    let lengths = if size == 13 { 10 } else { size - 2 };
    entries(base, bytes, size)
        .filter_map(|(place, entry)| {
            let start = relative(place, entry, 0)?;
            let len = *entry.get(lengths)?;
            (len > 0).then_some(Alternative {
                start,
                end: start.saturating_add(u64::from(len)),
                replacement: relative(place, entry, 4)?,
                replacement_len: *entry.get(lengths + 1)?,
            })
        })
        .collect()
}

fn read_kcfi_traps(image: &Image<'_>) -> Vec<u64> {
    let (base, bytes) = table(image, "__start___kcfi_traps", "__stop___kcfi_traps", ".kcfi_traps");
    entries(base, bytes, 4).filter_map(|(place, entry)| relative(place, entry, 0)).collect()
}

fn read_ftrace(image: &Image<'_>) -> Vec<u64> {
    let range = if image.is_relocatable() {
        // FTRACE_CALLSITE_SECTION of include/linux/ftrace.h. If the compiler lists the calls to ftrace here, the other
        // table may still exist: it then lists the room before functions that x86 asks for.
        let calls = image.section_range("__mcount_loc");
        if calls.is_empty() { image.section_range("__patchable_function_entries") } else { calls }
    } else {
        image.between("__start_mcount_loc", "__stop_mcount_loc")
    };
    let addresses = pointers(image, range);
    match image.machine() {
        Machine::X86_64 => addresses,
        Machine::Aarch64 => addresses.into_iter().map(|address| adjust_ftrace_aarch64(image, address)).collect(),
    }
}

/// From the first no-op of a function's patch area to the one that becomes the branch (arch/arm64/kernel/ftrace.c
/// `ftrace_call_adjust`). With DYNAMIC_FTRACE_WITH_CALL_OPS the area begins with two no-ops before the function.
fn adjust_ftrace_aarch64(image: &Image<'_>, address: u64) -> u64 {
    const BTI_C: u32 = 0xd503_245f;
    const BTI_MASK: u32 = 0xffff_ff3f;
    let word = |at: u64| {
        let bytes = image.bytes(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(*bytes.first_chunk::<4>()?))
    };
    let function = address.wrapping_add(8);
    if image.symbol_at(address).is_empty() && !image.symbol_at(function).is_empty() {
        // bti and bti c, j, jc differ in two bits.
        let has_bti = word(function).is_some_and(|w| w & BTI_MASK == BTI_C & BTI_MASK);
        return function.wrapping_add(if has_bti { 8 } else { 4 });
    }
    address.wrapping_add(4)
}

/// An array of addresses. In a position-independent image (arm64) the dynamic relocations hold the values.
fn pointers(image: &Image<'_>, range: Range<u64>) -> Vec<u64> {
    const ENTRY: usize = 24;
    const R_AARCH64_RELATIVE: u64 = 1027;
    let bytes = image.bytes(range.clone()).unwrap_or_default();
    let mut values: Vec<u64> =
        bytes.chunks_exact(8).filter_map(|b| b.first_chunk::<8>()).map(|b| u64::from_le_bytes(*b)).collect();
    if image.machine() == Machine::Aarch64 && !image.is_relocatable() && !values.is_empty() {
        let relocations = image.bytes(image.section_range(".rela.dyn")).unwrap_or_default();
        for entry in relocations.chunks_exact(ENTRY) {
            let field =
                |at: usize| entry.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b));
            let place = field(0);
            if range.contains(&place) && field(8) == R_AARCH64_RELATIVE {
                let index = usize::try_from((place - range.start) / 8).unwrap_or(usize::MAX);
                if let Some(value) = values.get_mut(index) {
                    *value = field(16);
                }
            }
        }
    }
    values.retain(|&value| value != 0);
    values
}
