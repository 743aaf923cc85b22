// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Copies that are not calls: the rest of a function that was split.
//!
//! GCC splits a function if its head often returns early (`-fpartial-inlining`): the head is inlined into callers, the
//! rest becomes `foo.part.0`. If the rest is inlined as well, back into `foo` or after a copy of its head, the debug
//! information shows a copy of `foo` inside `foo`. The body does not start there; it goes on. As a site it would be
//! counted twice, and out of line, as `foo.part.0`, it would not be one either. If the rests of two functions are
//! equal, one stands for both, and the rest of `bar` is shown as a copy of `foo` inside `bar`.
//!
//! Such a copy gives itself away by where it is called: the call is the compiler's own and has no place in the source,
//! and GCC gives the copy the place of the callee's declaration instead (`expand_call_inline` in gcc/tree-inline.cc).
//! Recursion that is inlined into itself, which else looks the same, is called from a line of the body. Calls that do
//! come from the callee's line are those between functions that one macro wrote: all their places are that of the
//! macro's use. Then the function around the copy is declared there as well, and is another one.
//!
//! If the head ends in the middle of a call that was inlined into the function, the rest begins with the rest of this
//! call. No entry of it is given there. If the call's copy in the head is at hand, as it is if the rest was inlined
//! after the head, it is known that the call began before; otherwise it may have.

use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawFunction, RawSite};
use crate::unit::origin::{Origin, Origins};
use std::sync::Arc;

/// Whether a copy of a function is the rest of one that was split.
pub(crate) fn is_rest<'a>(
    unit: &DebugUnit<'a, '_>,
    origins: &mut Origins<'a, '_, '_>,
    function: &RawFunction<'a>,
    site: &RawSite,
    origin: &Arc<Origin<'a>>,
) -> bool {
    let is_called_where_it_is_declared = site.call_line != 0
        && site.call_line == origin.declared_line
        && site.call_column == origin.declared_column
        && is_same_file(origins, (unit.index, site.call_file), (origin.declared_in, origin.declared_file));
    if !is_called_where_it_is_declared || !unit.is_gcc() {
        return false;
    }
    let around = match site.parent {
        Some(parent) => function.sites.get(parent as usize).map(|parent| parent.origin),
        None => Some(unit.offset.saturating_add(function.die)),
    };
    let Some(around) = around.and_then(|around| origins.get(around)) else { return false };
    let by_one_macro = around.declared_line == origin.declared_line
        && around.declared_column == origin.declared_column
        && is_same_file(
            origins,
            (around.declared_in, around.declared_file),
            (origin.declared_in, origin.declared_file),
        );
    Arc::ptr_eq(&around, origin) || !by_one_macro
}

/// Whether a copy with which an inlined rest begins has begun before: beside the rest there is a copy of the same call,
/// in copies of the same calls.
pub(crate) fn has_begun(function: &RawFunction<'_>, copy: usize, rest: usize) -> bool {
    let parent = |copy: &usize| function.sites[*copy].parent.map(|parent| parent as usize);
    let call = |site: &RawSite| (site.origin, site.call_file, site.call_line, site.call_column);
    let cut: Vec<usize> = std::iter::successors(Some(copy), parent).take_while(|copy| *copy != rest).collect();
    let mut beside = function.sites[rest].parent;
    for site in cut.iter().rev().map(|&copy| &function.sites[copy]) {
        let is_head = |head: &RawSite| head.parent == beside && head.entry.is_some() && call(head) == call(site);
        let Some(head) = function.sites.iter().position(is_head) else { return false };
        beside = u32::try_from(head).ok();
    }
    true
}

/// Whether two indices of files, each of a unit, are of one file.
fn is_same_file(origins: &Origins<'_, '_, '_>, one: (usize, u64), other: (usize, u64)) -> bool {
    one == other || (one.0 != other.0 && origins.file_name(one.0, one.1) == origins.file_name(other.0, other.1))
}
