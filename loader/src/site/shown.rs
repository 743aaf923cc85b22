// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Parts of a line about a site.

use super::bpf::{TailSlot, write_slots};
use std::fmt;

/// ` [module]`, as the kernel writes it; nothing for the image.
pub(crate) struct InModule<'a>(pub(crate) Option<&'a str>);

impl fmt::Display for InModule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |module| write!(f, " [{module}]"))
    }
}

/// Slots of prog arrays, the first of many.
pub(crate) struct Slots<'a>(pub(crate) &'a [TailSlot]);

impl fmt::Display for Slots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_slots(f, self.0)
    }
}
