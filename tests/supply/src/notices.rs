// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What the licences of linked crates ask us to pass on: their texts, with the copyright lines that they have.
//!
//! The texts are those in the crates' own folders. One that several crates have is printed once.

use crate::graph::{Graph, Package};
use crate::licence::normal;
use crate::{SupplyError, entries, read};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What files with a licence, or with what goes with it, are called.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "copyright"];

/// The licence files of a crate; some have a folder of them.
fn texts(package: &Package) -> Result<Vec<String>, SupplyError> {
    let mut texts = Vec::new();
    for path in entries(package.folder())? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if !NAMES.iter().any(|begin| name.starts_with(begin)) {
            continue;
        }
        let files = if path.is_dir() { entries(&path)? } else { vec![path] };
        for file in files.iter().filter(|file| file.is_file() && file.extension().is_none_or(|ending| ending != "rs")) {
            texts.push(read(file)?.replace("\r\n", "\n").trim_end().to_owned());
        }
    }
    Ok(texts)
}

/// The notices of everything that is linked into what is shipped.
///
/// # Errors
/// [`SupplyError::Read`].
pub fn notices(graph: &Graph) -> Result<String, SupplyError> {
    let shipped = graph.shipped();
    let mut out = String::from(
        "siteseer is linked with the crates below, which are other people's. After the list are their licences, as they \
         come with the crates.\n\n",
    );
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &shipped {
        let Package { name, version, license, .. } = package;
        let found = texts(package)?;
        let alone = if found.is_empty() { " (the crate has no licence text of its own)" } else { "" };
        let licence = license.as_deref().map_or_else(|| "no licence".to_owned(), normal);
        let _ = writeln!(out, "{name} {version}: {licence}{alone}");
        for text in found {
            by_text.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = by_text.into_iter().map(|(text, crates)| (crates, text)).collect();
    texts.sort();
    for (crates, text) in texts {
        let _ = write!(out, "\n{}\n{}:\n\n{text}\n", "-".repeat(78), crates.join(", "));
    }
    Ok(out)
}
