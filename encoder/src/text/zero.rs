// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Branches on whether a register is zero.

use super::{Edge, FunctionText, arm64, x86};
use siteseer_sites::Machine;
use siteseer_sites::machine::Register;

/// A conditional branch on whether a register is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroBranch {
    /// The register, by its DWARF number.
    pub register: Register,
    /// How many bytes of it count.
    pub size: u8,
    /// Where control goes on if they are not zero.
    pub not_zero: u64,
}

impl FunctionText<'_, '_> {
    /// The branch on zero at an address, if it is one that control only comes to from the instruction before, and if where it
    /// goes on otherwise cannot be reached in any other way.
    pub fn zero_branch(&self, address: u64) -> Option<ZeroBranch> {
        let (piece, index) = self.index(address)?;
        let tables = self.image.tables();
        let is_replaced = |at: u64| tables.in_alternative(at) || tables.jump_label_at(at).is_some();
        if self.has_unknown_targets() || is_replaced(address) {
            return None;
        }
        let branch = match self.image.machine() {
            Machine::Aarch64 => arm64::zero_branch(self.image, address)?,
            Machine::X86_64 => {
                // The flags are those of the instruction before.
                let previous = self.fall_through_into(piece, index)?;
                let test = self.address(piece, previous);
                if !self.edges_to(address).is_empty() || is_replaced(test) {
                    return None;
                }
                x86::zero_branch(self.image, test, address)?
            }
        };
        self.is_only_from(branch.not_zero, address).then_some(branch)
    }

    /// Whether control comes to an instruction from one other alone.
    fn is_only_from(&self, address: u64, from: u64) -> bool {
        let Some((piece, index)) = self.index(address) else { return false };
        let falls = self.fall_through_into(piece, index).map(|previous| self.address(piece, previous));
        address != self.entry
            && falls.is_none_or(|previous| previous == from)
            && self.edges_to(address).iter().all(|&Edge { source, .. }| source == from)
    }
}
