// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What a caller does with what a function returned.

use super::{arm64, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;

/// What an instruction has to do with the register that a value is returned in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Result {
    /// Nothing; control goes on at that address, and nowhere else.
    Untouched(u64),
    /// It reads the register for its value.
    Read,
    /// It writes it, or may, or control goes elsewhere, or what it does is not known.
    Over,
}

/// How many instructions a value is followed for.
const FARTHEST: usize = 64;

/// Whether the instructions that control comes to from an address on, without a choice, read the return register before
/// they do anything else to it.
pub(crate) fn uses_result(image: &Image<'_>, address: u64) -> bool {
    let mut at = address;
    let mut x86 = x86::Effects::default();
    for _ in 0..FARTHEST {
        // What will be there at run time is not known.
        if image.tables().in_alternative(at) {
            return false;
        }
        let result = match image.machine() {
            Machine::X86_64 => x86.result_at(image, at),
            Machine::Aarch64 => arm64::result_at(image, at),
        };
        match result {
            Result::Untouched(next) => at = next,
            Result::Read => return true,
            Result::Over => return false,
        }
    }
    false
}

/// Whom the instruction before an address calls, if it is a direct call.
pub(crate) fn call_target(image: &Image<'_>, returns_to: u64) -> Option<u64> {
    match image.machine() {
        Machine::X86_64 => x86::call_target(image, returns_to),
        Machine::Aarch64 => arm64::call_target(image, returns_to),
    }
}
