// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The instructions before an address that run exactly when control comes to that address.
//!
//! A probe can stand before such an instruction instead of at the address, if nothing that the probe's program reads is
//! changed in between. All ways that control may take are asked for: the branches of the bytes, what jump labels,
//! alternatives and exceptions do at run time, indirect jumps, and other symbols that control may be sent to.

use super::{Effects, FunctionText, Step, arm64, idle_prefix, x86};
use crate::elf::image::Image;
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;

impl<'i, 'a> FunctionText<'i, 'a> {
    /// The instructions right before an address, the last first. Control goes from each of them to the next one and
    /// nowhere else, and comes to the next one, and to the address, in no other way.
    pub(crate) fn walk_back(&self, from: u64) -> WalkBack<'_, 'i, 'a> {
        let at = if self.has_unknown_targets() { None } else { self.index(from) };
        WalkBack { text: self, at, effects: Effects::new(self.image.machine()) }
    }

    /// Whether control comes to an instruction from the one before alone, as far as that can be known.
    fn is_entered_by_itself(&self, address: u64) -> bool {
        address != self.entry
            && self.edges_to(address).is_empty()
            && self.image.symbol_at(address).is_empty()
            && !is_landing_pad(self.image, address)
    }
}

/// The iterator of [`FunctionText::walk_back`].
pub(crate) struct WalkBack<'t, 'i, 'a> {
    text: &'t FunctionText<'i, 'a>,
    at: Option<(usize, usize)>,
    effects: Effects,
}

impl Iterator for WalkBack<'_, '_, '_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (piece, index) = self.at.take()?;
        let (text, image) = (self.text, self.text.image);
        let next = text.address(piece, index);
        if !text.is_entered_by_itself(next) {
            return None;
        }
        let previous = text.fall_through_into(piece, index)?;
        let address = text.address(piece, previous);
        let effect = self.effects.at(image, address)?;
        let tables = image.tables();
        let is_patched = tables.jump_label_at(address).is_some()
            || tables.static_calls.binary_search(&address).is_ok()
            || tables.in_alternative(address)
            || tables.ftrace.binary_search(&address).is_ok();
        // Tracers and the kernel's own patching own the first instructions of a function.
        let is_at_start = address == text.entry || idle_prefix(image, text.entry).any(|place| place == next);
        let may_go_elsewhere = !effect.plain || !effect.straight || effect.next != next || tables.may_fault(address);
        if is_patched || is_at_start || may_go_elsewhere {
            return None;
        }
        self.at = Some((piece, previous));
        Some(Step { address, next, writes: effect.writes, stores: effect.stores, ends: false })
    }
}

/// Whether an instruction may be the target of an indirect jump or call.
fn is_landing_pad(image: &Image<'_>, address: u64) -> bool {
    match image.machine() {
        Machine::X86_64 => x86::is_landing_pad(image, address),
        Machine::Aarch64 => arm64::is_landing_pad(image, address),
    }
}

/// The register that an instruction copies all of another one to, and that other one, if this is all that it does.
pub(crate) fn register_copy(image: &Image<'_>, address: u64) -> Option<(Register, Register)> {
    match image.machine() {
        Machine::X86_64 => x86::register_copy(image, address),
        Machine::Aarch64 => arm64::register_copy(image, address),
    }
}
