// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The figures of docs/proposal.md, from a kernel's site data (`ci/proposal`).
//!
//! | table | file |
//! |---|---|
//! | which functions need it, and what a policy costs | [`functions`] |
//! | what a policy does to ordinary tools | [`tools`] |
//! | whether entry points are known | [`entries`] |
//! | which arguments the debug information does not have, by compiler | [`missing`] |
//! | how true locations are, by form | [`truth`] |
//! | which forms of location earn their place | [`forms`] |
//! | the formats that were proposed, side by side | [`formats`] |
//! | what one link for many addresses saves, on a kernel that is patched and booted (`ci/proposal --attach`) | [`links`] |
//! | the kernel's rules on what the encoder writes, and its size (`ci/rules`) | [`rules`] |
//!
//! [`missing`] and [`truth`] include what other commands wrote into pages of their own ([`pages`]).

pub mod entries;
pub mod formats;
pub mod forms;
pub mod functions;
pub mod links;
pub mod missing;
pub mod pages;
pub mod rules;
pub mod tools;
pub mod truth;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// A table of Markdown: the first column is text, the others are numbers.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|---|{}\n", header.join(" | "), "---:|".repeat(header.len().saturating_sub(1)));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// `1234 (5.6%)` of a whole.
pub(crate) fn share(part: usize, whole: usize) -> String {
    format!("{part} ({:.1}%)", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Bytes after `gzip -9`.
pub(crate) fn compressed(data: &[u8]) -> io::Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data)?;
    Ok(encoder.finish()?.len())
}

/// Puts tables into a page: each `(name, text)` between `<!-- name: -->` and `<!-- :name -->`.
///
/// # Errors
/// The name of a table that the page has no place for.
pub fn fill(page: &str, tables: &[(&str, String)]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, text) in tables {
        let (open, close) = (format!("<!-- {name}: -->"), format!("<!-- :{name} -->"));
        let place = || format!("the page has no place for the table {name}: {open} ... {close}");
        let start = page.find(&open).ok_or_else(place)? + open.len();
        let end = page[start..].find(&close).ok_or_else(place)? + start;
        page.replace_range(start..end, &format!("\n{text}"));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_those_of_the_last_time() {
        let page = "a\n<!-- one: -->\nold\n<!-- :one -->\nb\n";
        let text = table(&["kernel", "sites"], &[vec!["x".to_owned(), "1".to_owned()]]);
        let filled = fill(page, &[("one", text)]).unwrap();
        assert_eq!(filled, "a\n<!-- one: -->\n| kernel | sites |\n|---|---:|\n| x | 1 |\n<!-- :one -->\nb\n");
        assert_eq!(fill(&filled, &[("one", "| y |\n".to_owned())]).unwrap(), page.replace("old", "| y |"));
        assert!(fill(page, &[("two", String::new())]).is_err());
    }
}
