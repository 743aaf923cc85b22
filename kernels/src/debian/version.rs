// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! The order of Debian versions, as dpkg has it, for kernel releases too: `6.12.9` is older than `6.12.48`.

use std::process::{Command, Stdio};

use crate::error::GetError;

/// The one of the newest version. If several have it, it is the first of them.
pub(crate) fn newest<T>(all: impl IntoIterator<Item = T>, version: impl Fn(&T) -> &str) -> Result<Option<T>, GetError> {
    let mut newest: Option<T> = None;
    for one in all {
        if newest.as_ref().map_or(Ok(true), |newest| is_newer(version(&one), version(newest)))? {
            newest = Some(one);
        }
    }
    Ok(newest)
}

/// Whether a version is newer than another one (dpkg(1), `--compare-versions`).
fn is_newer(version: &str, than: &str) -> Result<bool, GetError> {
    let status = Command::new("dpkg")
        .args(["--compare-versions", version, "gt", than])
        .stdin(Stdio::null())
        // It warns about versions that policy does not allow, and compares them all the same.
        .stderr(Stdio::null())
        .status()
        .map_err(|_| GetError::NoProgram { program: "dpkg".to_owned(), package: "dpkg" })?;
    Ok(status.success())
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
    fn the_newest_is_dpkgs() {
        let newest = |versions: &[&'static str]| newest(versions.iter().copied(), |version| version).unwrap();
        assert_eq!(newest(&["6.12.9-1", "6.12.48-1", "6.1.158-1"]), Some("6.12.48-1"));
        assert_eq!(newest(&["7.3.4-1", "7.3.4-1~bpo13+1"]), Some("7.3.4-1"));
        assert_eq!(newest(&["7.3.4-10", "1:0.1"]), Some("1:0.1"));
        assert_eq!(newest(&["1.0", "1.00"]), Some("1.0"), "they are equal");
        assert_eq!(newest(&[]), None);
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
