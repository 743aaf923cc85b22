// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Text that the running kernel does not have as the image has it.
//!
//! The kernel changes its own text, at boot and later, at the places that its tables list. Besides the tables of
//! [`super::tables`], which others need too:
//!
//! | table | entry | what may change | source |
//! |---|---|---|---|
//! | `.retpoline_sites` | s32, relative to the field | an indirect branch; with kCFI also the check before it | arch/x86/kernel/alternative.c `apply_retpolines`, `cfi_rewrite_callers` |
//! | `.return_sites` | likewise | a return | `apply_returns` |
//! | `.call_sites` | likewise | the target of a call | arch/x86/kernel/callthunks.c `patch_call_sites` |
//! | `.ibt_endbr_seal` | likewise | `endbr64` | `apply_seal_endbr` |
//! | `.cfi_sites` | likewise | the preamble before a function, and its `endbr64` | `cfi_rewrite_preamble` |
//! | `.smp_locks` | likewise | a lock prefix | `alternatives_smp_lock` |
//! | `.parainstructions` | u64, u8, u8 length | a call through `pv_ops` (before Linux 6.8) | `apply_paravirt` |
//! | `runtime_*` | s32, relative to the field | a constant in an instruction | arch/*/include/asm/runtime-const.h |
//!
//! A module's text has relocations in addition. What debuggers and tracers put into the text is not here.

use super::image::Image;
use super::tables::{entries, relative};
use siteseer_sites::Machine;
use std::ops::Range;

/// The longest instruction that replaces a call, a jump or a return on x86.
const BRANCH: u64 = 7;
/// An instruction on arm64.
const WORD: u64 = 4;
/// The check that kCFI puts before an indirect call (`fineibt_caller_size`), with some room.
const CFI_CHECK: u64 = 16;
/// The preamble that kCFI puts before a function, and its `endbr64`.
const CFI_PREAMBLE: u64 = 16 + 4;

/// The ranges of text that may change.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Sorted, without overlaps.
    ranges: Vec<Range<u64>>,
}

impl Changes {
    /// Finds what may change in an image or module.
    pub(crate) fn find(image: &Image<'_>) -> Changes {
        let tables = image.tables();
        let is_x86 = image.machine() == Machine::X86_64;
        let branch = if is_x86 { BRANCH } else { WORD };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let after = |address: u64, len: u64| address..address.saturating_add(len);
        ranges.extend(tables.alternatives.iter().map(|alternative| alternative.start..alternative.end));
        ranges.extend(tables.jump_labels.iter().map(|label| after(label.code, label.size.into())));
        ranges.extend(tables.static_calls.iter().map(|&call| after(call, branch)));
        // On arm64 the no-op before the one that is listed changes too, and so do the two before the function, where
        // ftrace keeps a pointer (DYNAMIC_FTRACE_WITH_CALL_OPS).
        let before = if is_x86 { 0 } else { 4 * WORD };
        ranges.extend(tables.ftrace.iter().map(|&call| call.saturating_sub(before)..call.saturating_add(branch)));
        let site = |name| sites(image, image.section_range(name));
        ranges.extend(site(".retpoline_sites").map(|at| at.saturating_sub(CFI_CHECK)..at.saturating_add(BRANCH)));
        ranges.extend(site(".return_sites").map(|at| after(at, BRANCH)));
        ranges.extend(site(".call_sites").map(|at| after(at, BRANCH)));
        ranges.extend(site(".ibt_endbr_seal").map(|at| after(at, 4)));
        ranges.extend(site(".cfi_sites").map(|at| after(at, CFI_PREAMBLE)));
        ranges.extend(site(".smp_locks").map(|at| after(at, 1)));
        ranges.extend(paravirt(image));
        let constants = image.section_ranges("runtime_").into_iter().flat_map(|range| sites(image, range));
        // On arm64 it is a sequence of moves, on x86 a constant of at most 8 bytes.
        ranges.extend(constants.map(|at| after(at, if is_x86 { 8 } else { 4 * WORD })));
        ranges.extend(image.relocated().iter().map(|&at| after(at, 8)));
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        Changes { ranges: joined }
    }

    /// What may change from an address on, up to `end`.
    pub(crate) fn within(&self, address: u64, end: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= address);
        let ranges = self.ranges[first..].iter().take_while(move |range| range.start < end);
        ranges.map(move |range| range.start.max(address)..range.end.min(end))
    }
}

/// What a table of relative addresses refers to.
fn sites<'i>(image: &'i Image<'_>, range: Range<u64>) -> impl Iterator<Item = u64> + use<'i> {
    let start = range.start;
    let bytes = image.bytes(range).unwrap_or_default();
    entries(start, bytes, 4).filter_map(|(place, entry)| relative(place, entry, 0))
}

fn paravirt<'i>(image: &'i Image<'_>) -> impl Iterator<Item = Range<u64>> + use<'i> {
    let bytes = image.bytes(image.section_range(".parainstructions")).unwrap_or_default();
    bytes.chunks_exact(16).filter_map(|entry| {
        let start = u64::from_le_bytes(*entry.first_chunk::<8>()?);
        Some(start..start.saturating_add(u64::from(*entry.get(9)?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_in_a_range() {
        let changes = Changes { ranges: vec![0x10..0x15, 0x20..0x24] };
        let within =
            |from, to| changes.within(from, to).map(|range| (range.start, range.end)).collect::<Vec<(u64, u64)>>();
        assert_eq!(within(0x8, 0x10), []);
        assert_eq!(within(0x8, 0x18), [(0x10, 0x15)]);
        assert_eq!(within(0x12, 0x22), [(0x12, 0x15), (0x20, 0x22)]);
        assert_eq!(within(0x15, 0x20), []);
    }
}
