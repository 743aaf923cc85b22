// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether an out-of-line copy with a changed signature still returns the function's value.
//!
//! A compiler that sees all callers may drop a return value that none of them uses. The copy's DWARF has the source's
//! type all the same, and whoever reads the return register when it returns reads garbage. Two things show that the
//! value is there:
//!
//! * How the compiler works. GCC drops return values in IPA-SRA, which names its clones `.isra` (gcc/ipa-sra.cc
//!   `process_isra_node_results`), and in function splitting, `.part` (gcc/ipa-split.cc `split_function`). Constant
//!   propagation makes `.constprop` of a function with its return value, or hands down what an earlier clone was
//!   (gcc/ipa-cp.cc `create_specialized_node`: `m_skip_return` of the old adjustments), and then the earlier suffix
//!   stays in the name. Clang drops them in dead argument elimination, which leaves the name and says `DW_CC_nocall`
//!   from version 16 on (llvm/lib/Transforms/IPO/DeadArgumentElimination.cpp).
//! * A caller that uses it. Its `DW_TAG_call_site` tells where the call returns to, and the call instruction, whom it
//!   calls. If the first instruction after the call that has to do with the return register reads it, the value is
//!   there: a compiler gives no such register to anything else between a call that clobbers it and its first write.
//!   Instructions that read it for no value's sake do not count (`push %rax` for alignment, `xor`, `sbb`, `and $0`,
//!   no-ops with an address); neither does anything after a conditional branch or a further call.
//!
//! Nothing shows that a value is not there, so a copy is left unmarked if its callers show nothing.

use crate::debug::walk::RawCall;
use crate::elf::image::Image;
use crate::text;
use siteseer_sites::{Marks, Site};

/// An out-of-line site with a return value that only a caller can show to be there.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Index of the site in the unit.
    pub(crate) site: u32,
    /// Where the copy begins.
    pub(crate) address: u64,
    /// What its callers may refer to: its own entry and the abstract one, as offsets in `.debug_info`.
    pub(crate) entries: [usize; 2],
}

/// Whether GCC keeps the return value of copies with this name, given the words after the function's own.
pub(crate) fn gcc_keeps<'s>(mut suffix: impl Iterator<Item = &'s str>) -> bool {
    suffix.all(|word| {
        matches!(word, "constprop" | "lto_priv" | "localalias") || word.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Marks the sites for which a call in the unit shows that the value is returned.
pub(crate) fn mark(image: &Image<'_>, pending: &mut Vec<Pending>, calls: &mut Vec<RawCall>, sites: &mut [Site]) {
    if !pending.is_empty() {
        calls.sort_unstable_by_key(|call| call.callee);
    }
    for Pending { site, address, entries } in pending.drain(..) {
        let is_used = entries.into_iter().any(|entry| {
            let first = calls.partition_point(|call| call.callee < entry);
            calls[first..].iter().take_while(|call| call.callee == entry).any(|call| {
                text::call_target(image, call.returns_to) == Some(address) && text::uses_result(image, call.returns_to)
            })
        });
        if is_used && let Some(site) = sites.get_mut(site as usize) {
            site.marks |= Marks::RETURN_KEPT;
        }
    }
    calls.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_which_gcc_keeps_the_value() {
        let keeps = |name: &str| gcc_keeps(name.split('.').skip(1));
        for kept in ["foo", "foo.constprop.0", "foo.constprop.0.constprop.1", "foo.lto_priv.3.constprop.0"] {
            assert!(keeps(kept), "{kept}");
        }
        for open in ["foo.isra.0", "foo.constprop.0.isra.0", "foo.isra.0.constprop.0", "foo.part.0", "foo.simdclone.0"]
        {
            assert!(!keeps(open), "{open}");
        }
    }
}
