// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! `kernels/buildroot.toml`: which build roots there are. The file itself says what its fields mean.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::BuildRootError;

/// All rows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    buildroot: BTreeMap<String, Recipe>,
}

/// What a build root is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    /// Debian's names, the one that runs first.
    pub(super) architectures: Vec<String>,
    pub(super) packages: Vec<Packages>,
}

/// Packages of one suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Packages {
    pub(super) suite: String,
    pub(super) names: Vec<String>,
    /// Source packages. A row without them keeps the key that it had before there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<String>,
    /// The suites that these are from: the first whose archive the mirror has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) source_suites: Vec<String>,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub(super) name: String,
    pub(super) recipe: Recipe,
}

impl Rows {
    /// Reads a file of rows.
    ///
    /// # Errors
    /// If it cannot be read, is not of the right shape, or a row holds a word that is not a name.
    pub fn read(path: &Path) -> Result<Rows, BuildRootError> {
        let error = |reason: String| BuildRootError::Rows { path: path.to_owned(), reason };
        let text = fs::read_to_string(path).map_err(|why| error(why.to_string()))?;
        Rows::parse(&text).map_err(error)
    }

    fn parse(text: &str) -> Result<Rows, String> {
        let rows: Rows = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, recipe) in &rows.buildroot {
            if recipe.architectures.is_empty() || recipe.packages.is_empty() {
                return Err(format!("build root {name}: no architecture or no packages"));
            }
            let all = recipe.packages.iter();
            let suites =
                all.flat_map(|of| of.names.iter().chain(&of.sources).chain(&of.source_suites).chain([&of.suite]));
            // They become words of command lines, some of a shell's.
            if let Some(wrong) = suites.chain(&recipe.architectures).chain([name]).find(|word| !is_name(word)) {
                return Err(format!("build root {name}: {wrong:?} is not a name"));
            }
        }
        Ok(rows)
    }

    /// The names of all rows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.buildroot.keys().map(String::as_str)
    }

    /// One row.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn row(&self, name: &str) -> Result<Row, BuildRootError> {
        let recipe = self.buildroot.get(name).cloned().ok_or_else(|| BuildRootError::Unknown {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })?;
        Ok(Row { name: name.to_owned(), recipe })
    }
}

/// Whether a word is of the characters of package names (Debian policy 5.6.1), with an architecture after a colon.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.:_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_this_workspace_are_right() {
        let rows = super::super::workspace_rows().unwrap();
        let row = rows.row("guest-arm64").unwrap();
        assert_eq!(row.recipe.architectures, ["amd64", "arm64"]);
        let error = rows.row("guest-mips").unwrap_err().to_string();
        assert!(error.contains("guest-mips") && error.contains("guest-arm64"), "{error}");
    }

    #[test]
    fn words_that_a_shell_would_take_otherwise_are_refused() {
        for name in ["a b", "x;y", "$(x)", "-t", ""] {
            let text = format!(
                "[buildroot.x]\narchitectures = [\"amd64\"]\n[[buildroot.x.packages]]\nsuite = \"sid\"\nnames = [{name:?}]\n"
            );
            assert!(Rows::parse(&text).unwrap_err().contains("is not a name"), "{name}");
            let text = text.replace("names", "names = []\nsources");
            assert!(Rows::parse(&text).unwrap_err().contains("is not a name"), "{name}");
        }
        let text = "[buildroot.x]\narchitectures = []\npackages = []\n";
        assert!(Rows::parse(text).unwrap_err().contains("build root x"));
        assert!(Rows::parse("[buildroot.x]\ntypo = 1\n").unwrap_err().contains("typo"));
    }
}
