// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! tests/clients/tools.toml: arguments of tools, and known differences. The file itself says what its fields mean.

use crate::case::Failure;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The file.
const TABLE: &str = include_str!("../../clients/tools.toml");

/// What is known about a tool.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Known {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Why it does not start here, with or without siteseer.
    pub does_not_start: Option<String>,
    /// Why it may start in one way and not in the other, or end in another way.
    pub differs: Option<String>,
    /// Programs that may see less, and why.
    pub less: BTreeMap<String, String>,
}

/// All tools of the file.
///
/// # Errors
/// If it has an error.
pub fn read() -> Result<BTreeMap<String, Known>, Failure> {
    #[derive(Deserialize)]
    struct Table {
        tool: BTreeMap<String, Known>,
    }
    Ok(toml::from_str::<Table>(TABLE)?.tool)
}
