// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Which kernels the tests run on.

use std::env;

use crate::matrix::{Matrix, MatrixError, workspace_matrix};

/// Names the kernels to test.
const VARIABLE: &str = "SITESEER_KERNELS";
/// The kernel that is tested if none is named.
pub const REFERENCE: &str = "deb-7.3-x86_64";
/// The oldest kernel that is supported.
const OLDEST: &str = "deb-6.1-x86_64";
/// The kernels of each day: the oldest, the newest, and the newest of the other architecture. What the kernels between
/// them alone can show is left to whole runs.
const DAILY: [&str; 3] = [OLDEST, REFERENCE, "deb-7.3-arm64"];
/// Begins the names of Debian's kernels.
pub const DEBIAN: &str = "deb-";

/// The kernels that the variable `SITESEER_KERNELS` names, in the matrix's order. It has rows of the matrix, or `all`,
/// or `daily`: the oldest and the newest, or `default`: Debian's, but not that of sid, because its compiler changes by
/// itself. Without it, [`REFERENCE`].
///
/// # Errors
/// If the matrix cannot be read, or does not have a kernel that is named.
pub fn chosen() -> Result<Vec<String>, MatrixError> {
    named(&workspace_matrix()?, &env::var(VARIABLE).unwrap_or_default())
}

fn named(matrix: &Matrix, words: &str) -> Result<Vec<String>, MatrixError> {
    let mut words: Vec<&str> = words.split([' ', ',', '\n']).filter(|name| !name.is_empty()).collect();
    if words.is_empty() {
        words.push(REFERENCE);
    }
    for name in words.iter().filter(|word| !matches!(**word, "all" | "daily" | "default")) {
        matrix.row(name)?;
    }
    let by_default =
        |name: &str| name.strip_prefix(DEBIAN).is_some_and(|suite| suite.starts_with(|c: char| c.is_ascii_digit()));
    let is_chosen = |name: &str| {
        words.iter().any(|&word| match word {
            "all" => true,
            "daily" => DAILY.contains(&name),
            "default" => by_default(name),
            this => this == name,
        })
    };
    Ok(matrix.names().filter(|name| is_chosen(name)).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_kernels() {
        let matrix = workspace_matrix().unwrap();
        let named = |words: &str| named(&matrix, words).unwrap();
        assert_eq!(named(""), [REFERENCE]);
        assert_eq!(named("deb-7.3-arm64,deb-6.1-x86_64\n"), ["deb-6.1-x86_64", "deb-7.3-arm64"], "the matrix's order");
        assert_eq!(named("all"), matrix.names().collect::<Vec<_>>());
        let default = named("default");
        assert!(default.len() > 1 && default.iter().all(|name| name.starts_with(DEBIAN)), "{default:?}");
        assert!(!default.contains(&"deb-sid-x86_64".to_owned()), "{default:?}");
        assert_eq!(named("daily").len(), DAILY.len());
        assert!(
            matches!(super::named(&matrix, "deb-7.3"), Err(MatrixError::Unknown { name, .. }) if name == "deb-7.3")
        );
    }
}
