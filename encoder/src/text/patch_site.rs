// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The instruction that ftrace patches, at the start of a function.

use super::{Effects, call_target, idle_prefix};
use crate::elf::image::Image;
use siteseer_sites::Machine;

/// More instructions than compilers put before the call to ftrace: a landing pad.
const FARTHEST: usize = 2;

/// Where a function does something itself: after landing pads and the call to ftrace.
pub(crate) fn past_tracer(image: &Image<'_>, entry: u64) -> u64 {
    after_fentry(image, entry).unwrap_or_else(|| idle_prefix(image, entry).last().unwrap_or(entry))
}

/// The address after a function's call to ftrace, if only no-ops come before the call and GCC does not know of it.
///
/// With `-mfentry` GCC for x86-64 writes the call into the assembly by itself (`x86_function_profiler()` in
/// gcc/config/i386/i386.cc): the rest of the compiler does not see it as an instruction, and location lists may use the
/// labels of the function's start where they mean the place after the call. On arm64 the no-ops that become the call
/// are instructions like any other.
///
/// The call is one that the image lists for ftrace, or one of `__fentry__()`: not all images have the list.
pub(crate) fn after_fentry(image: &Image<'_>, entry: u64) -> Option<u64> {
    if image.machine() != Machine::X86_64 {
        return None;
    }
    let mut effects = Effects::new(image.machine());
    let mut at = entry;
    for _ in 0..FARTHEST {
        let effect = effects.at(image, at)?;
        let is_fentry = |target: u64| image.is_named(target, "__fentry__");
        if image.tables().ftrace.binary_search(&at).is_ok() || call_target(image, effect.next).is_some_and(is_fentry) {
            return Some(effect.next);
        }
        if !effect.straight || effect.stores || !effect.writes.is_empty() {
            return None;
        }
        at = effect.next;
    }
    None
}
