// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Tables of Markdown, and the places in pages that they are put into.

use std::fmt::Write as _;

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
