// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the programs of `tools_*.bpf.c` count: `tools.h` in Rust.

/// Entries of the map `counts`.
pub const MAX: u32 = 24;

/// An entry of the map `counts`: how often a tool's program ran, and the sum of what it saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it ran.
    pub calls: u64,
    /// The sum, modulo 2^64.
    pub sum: u64,
}

impl Count {
    /// Adds up the processors' values; `None` if one is too short.
    pub fn of_cpus(values: &[Vec<u8>]) -> Option<Count> {
        let mut all = Count::default();
        for value in values {
            all.calls += u64::from_ne_bytes(value.get(..8)?.try_into().ok()?);
            all.sum = all.sum.wrapping_add(u64::from_ne_bytes(value.get(8..16)?.try_into().ok()?));
        }
        Some(all)
    }

    /// What was added since an earlier moment.
    #[must_use]
    pub fn since(self, before: Count) -> Count {
        Count { calls: self.calls - before.calls, sum: self.sum.wrapping_sub(before.sum) }
    }
}
