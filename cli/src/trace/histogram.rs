// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Histograms by powers of two, in the shape that bpftrace has made known.

use std::fmt::Write as _;

/// The values of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bucket {
    /// From the number of bits of their magnitude; the value 0 has none.
    Negative(std::cmp::Reverse<u32>),
    Zero,
    Positive(u32),
}

impl Bucket {
    /// Values of so many bits.
    pub(super) fn new(bits: u32, negative: bool) -> Bucket {
        match bits {
            0 => Bucket::Zero,
            bits if negative => Bucket::Negative(std::cmp::Reverse(bits)),
            bits => Bucket::Positive(bits),
        }
    }

    /// The least and the greatest of its values.
    pub(super) fn range(self) -> (i128, i128) {
        let magnitudes = |bits: u32| (1i128 << (bits - 1), (1i128 << bits) - 1);
        match self {
            Bucket::Zero => (0, 0),
            Bucket::Positive(bits) => magnitudes(bits),
            Bucket::Negative(std::cmp::Reverse(bits)) => {
                let (low, high) = magnitudes(bits);
                (-high, -low)
            }
        }
    }

    /// `[4K, 8K)`, `[1]`, `(-8, -4]`.
    pub(super) fn label(self) -> String {
        match (self, self.range()) {
            (_, (low, high)) if low == high => format!("[{low}]"),
            (Bucket::Negative(_), (low, high)) => format!("({}, {}]", short(low - 1), short(high)),
            (_, (low, high)) => format!("[{}, {})", short(low), short(high + 1)),
        }
    }

    /// The one that comes after it.
    fn next(self) -> Bucket {
        match self {
            Bucket::Negative(std::cmp::Reverse(1)) => Bucket::Zero,
            Bucket::Negative(std::cmp::Reverse(bits)) => Bucket::Negative(std::cmp::Reverse(bits - 1)),
            Bucket::Zero => Bucket::Positive(1),
            Bucket::Positive(bits) => Bucket::Positive(bits + 1),
        }
    }
}

/// A power of two as `64K`, `1M`.
fn short(value: i128) -> String {
    let units = [(60, "E"), (50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(bits, _)| value.abs() >= 1 << bits && value % (1 << bits) == 0);
    unit.map_or_else(|| value.to_string(), |(bits, unit)| format!("{}{unit}", value / (1 << bits)))
}

/// How many characters the longest bar has.
const WIDTH: u64 = 50;

/// The rows from the first to the last that has a number; the numbers are sorted by bucket.
pub(super) fn rows(numbers: &[(Bucket, u64)]) -> Vec<(Bucket, u64)> {
    let (Some(&(first, _)), Some(&(last, _))) = (numbers.first(), numbers.last()) else { return Vec::new() };
    let (mut rows, mut bucket) = (Vec::new(), first);
    loop {
        let number = numbers.iter().find(|(known, _)| *known == bucket).map_or(0, |&(_, number)| number);
        rows.push((bucket, number));
        if bucket >= last {
            return rows;
        }
        bucket = bucket.next();
    }
}

/// The same as text.
pub(super) fn text(numbers: &[(Bucket, u64)]) -> String {
    let most = numbers.iter().map(|&(_, number)| number).max().unwrap_or(0).max(1);
    let mut text = String::new();
    for (bucket, number) in rows(numbers) {
        let bar = (u128::from(number) * u128::from(WIDTH) / u128::from(most)) as usize;
        let width = WIDTH as usize;
        let _ = writeln!(text, "{:<20} {number:>10} |{:<width$}|", bucket.label(), "@".repeat(bar));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_buckets() {
        let bucket = Bucket::new;
        assert_eq!(
            [bucket(1, false), bucket(3, false), bucket(3, true)].map(Bucket::range),
            [(1, 1), (4, 7), (-7, -4)]
        );
        assert_eq!(bucket(64, false).range(), (1 << 63, (1 << 64) - 1));
        let labels = [bucket(0, false), bucket(1, false), bucket(13, false), bucket(21, true), bucket(64, false)];
        assert_eq!(labels.map(Bucket::label), ["[0]", "[1]", "[4K, 8K)", "(-2M, -1M]", "[8E, 16E)"]);
        let mut numbers = vec![(bucket(3, false), 5), (bucket(1, true), 10), (bucket(0, false), 1)];
        numbers.sort_unstable();
        let text = text(&numbers);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].starts_with("[-1] ") && lines[0].contains(&format!(" 10 |{}|", "@".repeat(50))), "{text}");
        assert!(lines[2].starts_with("[1] ") && lines[2].contains(" 0 |"), "{text}");
        assert!(lines[4].starts_with("[4, 8) ") && lines[4].contains(&format!(" 5 |{} ", "@".repeat(25))), "{text}");
        assert_eq!(super::text(&[]), "");
    }
}
