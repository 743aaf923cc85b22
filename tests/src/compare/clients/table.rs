// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! tests/clients/tools.toml: arguments of tools, and known differences. The file itself says what its fields mean.

use crate::guest::case::Failure;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What is known about a tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Known {
    /// The tool, if its name is not that of the row.
    pub program: Option<String>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Why it does not start here, with or without siteseer.
    pub does_not_start: Option<String>,
    /// Why it may start in one way and not in the other, or end in another way.
    pub differs: Option<String>,
    /// Programs that may see less, and why.
    pub less: BTreeMap<String, String>,
    /// Why its programs on functions see no calls.
    pub start_only: Option<String>,
    /// Programs that must see so many calls with siteseer, as so many are made each time.
    pub calls: BTreeMap<String, u64>,
}

/// All tools of the file.
///
/// # Errors
/// If it cannot be read or has an error.
pub fn read() -> Result<BTreeMap<String, Known>, Failure> {
    #[derive(Deserialize)]
    struct Table {
        tool: BTreeMap<String, Known>,
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/tools.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(toml::from_str::<Table>(&text).map_err(|error| format!("{}: {error}", path.display()))?.tool)
}
