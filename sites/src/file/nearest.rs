// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Names like a name that is not there, for error messages.

/// Longer names are compared by their beginnings.
const MAX_LEN: usize = 64;

/// How unlike two names are; less is nearer. `None` if they are not alike at all.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    // A name that goes on, or has something before, is likelier meant than one that is spelt otherwise.
    if !wanted.is_empty() && name.starts_with(wanted) {
        return Some(1 + (name.len() - wanted.len()) / 8);
    }
    if wanted.len() >= 4 && name.contains(wanted) {
        return Some(2 + (name.len() - wanted.len()) / 8);
    }
    let (wanted, name) = (cut(wanted), cut(name));
    let limit = wanted.len() / 3;
    if wanted.len().abs_diff(name.len()) > limit {
        return None;
    }
    edits(wanted, name, limit)
}

fn cut(name: &str) -> &[u8] {
    &name.as_bytes()[..name.len().min(MAX_LEN)]
}

/// Insertions, deletions, replacements and swaps of neighbours that make one of the other; `None` beyond a limit.
fn edits(a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
    let mut rows = [[0usize; MAX_LEN + 1]; 3];
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        let [before_last, last, now] = {
            // The row being written, the one before, and the one before that.
            let n = rows.len();
            [(i + n - 2) % n, (i + n - 1) % n, i % n]
        };
        rows[now][0] = i;
        let mut least = i;
        for j in 1..=b.len() {
            let replaced = rows[last][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut cost = replaced.min(rows[last][j] + 1).min(rows[now][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                cost = cost.min(rows[before_last][j - 2] + 1);
            }
            rows[now][j] = cost;
            least = least.min(cost);
        }
        if least > limit {
            return None;
        }
    }
    let result = rows[a.len() % 3][b.len()];
    (result <= limit).then_some(result)
}

/// The names nearest to one, at most so many, the nearest first.
pub fn nearest<'n>(names: impl Iterator<Item = &'n str>, wanted: &str, count: usize) -> Vec<&'n str> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in names {
        if let Some(distance) = distance(wanted, name) {
            found.push((distance, name));
            // Bounded, however many are alike.
            if found.len() >= 4 * count.max(16) {
                found.sort_unstable();
                found.truncate(count);
            }
        }
    }
    found.sort_unstable();
    found.truncate(count);
    found.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first() {
        let names = ["__bpf_copy_key", "bpf_copy_key_2", "copy_from_bpfptr", "ns_capable", "ns_capable_noaudit", "x"];
        let near = |wanted| nearest(names.into_iter(), wanted, 2);
        assert_eq!(near("ns_capabel"), ["ns_capable"]);
        assert_eq!(near("ns_cap"), ["ns_capable", "ns_capable_noaudit"]);
        assert_eq!(near("bpf_copy_key"), ["bpf_copy_key_2", "__bpf_copy_key"]);
        assert!(near("quite_another").is_empty());
        assert!(near("").is_empty());
        assert_eq!(nearest(names.into_iter(), "x", 0), [] as [&str; 0]);
    }

    #[test]
    fn edits_are_counted() {
        let count = |a: &str, b: &str| edits(a.as_bytes(), b.as_bytes(), 9);
        assert_eq!(count("", ""), Some(0));
        assert_eq!(count("abc", ""), Some(3));
        assert_eq!(count("kitten", "sitting"), Some(3));
        assert_eq!(count("abcd", "abdc"), Some(1));
        assert_eq!(edits(b"abcdef", b"uvwxyz", 2), None);
    }
}
