// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the programs that time calls tell user space: `latency.h` in Rust.

/// Reasons for which a call has no time: indices of the map `untimed`.
pub const UNTIMED_REASONS: usize = 3;

/// Rows of a histogram: 0, and the numbers of 1 to 64 bits.
pub const BUCKETS: usize = 65;

/// The times of one function's calls: a value of the map `latencies`. The map's key is the attachment's cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    /// Nanoseconds.
    pub sum: u64,
    /// Calls, by the number of bits of the nanoseconds that they took.
    pub counts: [u64; BUCKETS],
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { sum: 0, counts: [0; BUCKETS] }
    }
}

impl Latencies {
    /// Adds what one processor has counted; false if it is too short to be that.
    pub fn add(&mut self, data: &[u8]) -> bool {
        let mut words = data.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        if data.len() < 8 * (1 + BUCKETS) {
            return false;
        }
        self.sum = self.sum.saturating_add(words.next().unwrap_or(0));
        self.counts.iter_mut().zip(words).for_each(|(count, more)| *count += more);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_program_writes() {
        let mut data = vec![0; 8 * (1 + BUCKETS)];
        data[..8].copy_from_slice(&70u64.to_ne_bytes());
        data[8 * 6..][..8].copy_from_slice(&2u64.to_ne_bytes());
        let mut all = Latencies::default();
        assert!(all.add(&data) && all.add(&data) && !all.add(&data[1..]));
        assert_eq!((all.sum, all.counts[5], all.counts.iter().sum::<u64>()), (140, 4, 4));
    }
}
