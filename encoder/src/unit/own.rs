// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The parameters of the function around the copies at hand: where they are tells of the arguments that it passes.

use super::UnitEncoder;
use super::copies::InlinedCopy;
use crate::unit::arguments::Gathered;
use crate::unit::origin::Origin;
use std::sync::Arc;

/// What the debug information gives for the parameters of the function at hand itself.
#[derive(Default)]
pub(super) struct Own<'a> {
    /// The function's debug entry.
    die: Option<usize>,
    pub(super) origin: Option<Arc<Origin<'a>>>,
    pub(super) gathered: Gathered<'a>,
}

impl<'a> UnitEncoder<'a, '_, '_> {
    /// Gathers what the debug information gives for the parameters of the function around a copy.
    pub(super) fn gather_own(&mut self, copy: &InlinedCopy<'_, 'a, '_>, own: &mut Own<'a>) {
        let function = copy.function;
        if own.die == Some(function.die) {
            return;
        }
        own.die = Some(function.die);
        own.origin = self.origins.get(self.unit.offset.saturating_add(function.die));
        if let Some(origin) = &own.origin {
            own.gathered.gather(self.unit, origin, function.split_parameters().0, |offset| self.origins.root(offset));
        }
    }
}
