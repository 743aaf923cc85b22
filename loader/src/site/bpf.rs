// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! A site in a BPF program.

use std::fmt;

/// A slot of a prog array that holds a program: `bpf_tail_call()` enters the program from there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct TailSlot {
    /// Id of the program.
    pub program: u32,
    /// Id of the map.
    pub map: u32,
    /// Name of the map; may be empty, and is cut to 15 bytes by the kernel.
    pub map_name: String,
    /// Index.
    pub slot: u32,
}

impl fmt::Display for TailSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.map_name.as_str() {
            "" => write!(f, "slot {} of map {}", self.slot, self.map),
            name => write!(f, "slot {} of map {name} (id {})", self.slot, self.map),
        }
    }
}

/// `slot 1 of map a (id 3) and slot 2 of map b (id 4)`, the first of many.
pub(crate) fn write_slots(f: &mut fmt::Formatter<'_>, slots: &[TailSlot]) -> fmt::Result {
    const SHOWN: usize = 8;
    let shown = slots.len().min(SHOWN);
    for (nth, slot) in slots.iter().take(shown).enumerate() {
        let last = nth + 1 == slots.len();
        f.write_str(if nth == 0 {
            ""
        } else if last {
            " and "
        } else {
            ", "
        })?;
        write!(f, "{slot}")?;
    }
    if slots.len() > shown { write!(f, " and {} more", slots.len() - shown) } else { Ok(()) }
}

/// What a candidate in a BPF program is besides a body.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BpfSite {
    /// Id of the program.
    pub program: u32,
    /// From where it is entered after the probe.
    pub tail_slots: Vec<TailSlot>,
    /// Whether it is a subprogram: clang may have inlined copies of it.
    pub subprogram: bool,
}
