// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The order of Debian versions (Debian policy 5.6.12), for kernel releases too: `6.12.9` is older than `6.12.48`.

use std::cmp::Ordering;

/// Compares two versions.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (epoch_a, rest_a) = epoch(a);
    let (epoch_b, rest_b) = epoch(b);
    let (upstream_a, revision_a) = revision(rest_a);
    let (upstream_b, revision_b) = revision(rest_b);
    compare_digits(epoch_a, epoch_b)
        .then_with(|| compare_part(upstream_a, upstream_b))
        .then_with(|| compare_part(revision_a, revision_b))
}

fn epoch(version: &str) -> (&str, &str) {
    version.split_once(':').unwrap_or(("0", version))
}

fn revision(version: &str) -> (&str, &str) {
    version.rsplit_once('-').unwrap_or((version, "0"))
}

/// Runs of other characters and runs of digits, in turn.
fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, after_a) = split(a, |byte| !byte.is_ascii_digit());
        let (text_b, after_b) = split(b, |byte| !byte.is_ascii_digit());
        let (digits_a, rest_a) = split(after_a, |byte| byte.is_ascii_digit());
        let (digits_b, rest_b) = split(after_b, |byte| byte.is_ascii_digit());
        let order = compare_text(text_a, text_b).then_with(|| compare_digits(digits_a, digits_b));
        if order != Ordering::Equal {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn split(text: &str, is_in: impl Fn(u8) -> bool) -> (&str, &str) {
    // A cut beside an ASCII digit is at a character boundary.
    text.split_at(text.bytes().position(|byte| !is_in(byte)).unwrap_or(text.len()))
}

/// `~` before the end, the end before letters, letters before the rest.
fn compare_text(a: &str, b: &str) -> Ordering {
    let rank = |byte: Option<u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(byte),
        Some(byte) => i32::from(byte) + 256,
    };
    let (mut a, mut b) = (a.bytes(), b.bytes());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (x, y) => match rank(x).cmp(&rank(y)) {
                Ordering::Equal => {}
                order => return order,
            },
        }
    }
}

/// Numbers of any length.
fn compare_digits(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// What `*` in `pattern` stands for in `text`, if it fits: digits and dots, at least one.
pub(crate) fn release_matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail)).is_some_and(|middle| {
            !middle.is_empty() && middle.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_dpkg_orders_them() {
        let ascending = [
            "6.1.153-1~rc1",
            "6.1.153-1",
            "6.1.153-1+b1",
            "6.1.158-1",
            "6.12.9-1",
            "6.12.48-1",
            "7.3.4-1~bpo13+1",
            "7.3.4-1",
            "7.3.4-10",
            "1:0.1",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        for (a, b) in [("1.0", "1.0"), ("0:1", "1"), ("1.01", "1.1"), ("1-0", "1")] {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
        // No order is defined for these; they must only not panic.
        compare("ä1ö", "1ä-é:~");
    }

    #[test]
    fn releases_fit_their_pattern() {
        let pattern = "6.1.0-*-cloud-amd64";
        assert!(release_matches(pattern, "6.1.0-41-cloud-amd64"));
        for other in [
            "6.1.0-41-amd64",
            "6.1.0--cloud-amd64",
            "6.1.0-4a-cloud-amd64",
            "6.1.0-41-rt-cloud-amd64",
            "6.1.0-cloud-amd64",
        ] {
            assert!(!release_matches(pattern, other), "{other}");
        }
        assert!(release_matches("7.3.*+deb13-cloud-amd64", "7.3.4+deb13-cloud-amd64"));
        assert!(!release_matches("7.3.*+deb13-cloud-amd64", "7.3~rc1+deb13-cloud-amd64"));
    }
}
