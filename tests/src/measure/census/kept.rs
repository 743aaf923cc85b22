// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Rows of the page that a run did not measure.
//!
//! Some kernels take an hour to build, and compilers of others are gone from the archive. So a run replaces the rows of
//! its own kernels, and the page keeps those of the others. The columns are those of both: reasons come and go.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a row does not have, because it was measured before there was such a column.
const NOTHING: &str = "-";

/// A table, of kernels.
struct Table<'p> {
    /// The line before it, which names it.
    title: &'p str,
    columns: Vec<&'p str>,
    /// How the columns are aligned: the line below the header.
    alignment: Vec<&'p str>,
    /// The cells of each kernel, by its name.
    rows: BTreeMap<&'p str, Vec<&'p str>>,
}

/// The page, with the rows of kernels that only the page before has.
pub fn with_kept(page: &str, before: &str) -> String {
    let old = tables(before);
    let mut merged = String::new();
    let mut new = tables(page).into_iter();
    let mut in_table = false;
    for line in page.lines() {
        let is_row = line.starts_with('|');
        if is_row && !in_table {
            if let Some(table) = new.next() {
                let kept = old.iter().find(|old| old.title == table.title);
                merged.push_str(&rendered(&table, kept));
            }
        } else if !is_row {
            merged.push_str(line);
            merged.push('\n');
        }
        in_table = is_row;
    }
    merged
}

fn tables(page: &str) -> Vec<Table<'_>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    let (mut title, mut in_table) = ("", false);
    for line in page.lines() {
        if !line.starts_with('|') {
            in_table = false;
            if !line.is_empty() {
                title = line;
            }
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        match tables.last_mut().filter(|_| in_table) {
            None => tables.push(Table { title, columns: cells, alignment: Vec::new(), rows: BTreeMap::new() }),
            Some(table) if table.alignment.is_empty() => table.alignment = cells,
            Some(table) => _ = table.rows.insert(cells[0], cells),
        }
        in_table = true;
    }
    tables
}

fn rendered(table: &Table<'_>, old: Option<&Table<'_>>) -> String {
    let further: Vec<&str> = old.map_or(Vec::new(), |old| {
        old.columns.iter().copied().filter(|column| !table.columns.contains(column)).collect()
    });
    let columns: Vec<&str> = table.columns.iter().copied().chain(further.iter().copied()).collect();
    let alignment: Vec<&str> = table.alignment.iter().copied().chain(further.iter().map(|_| "---:")).collect();
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // The rows of this run are the last, and replace those before.
    for from in old.into_iter().chain([table]) {
        for (name, cells) in &from.rows {
            let cell = |column: &&str| {
                let place = from.columns.iter().position(|other| other == column);
                place.and_then(|place| cells.get(place)).copied().unwrap_or(NOTHING)
            };
            rows.insert(name, columns.iter().map(cell).collect());
        }
    }
    let mut text = format!("| {} |\n|{}|\n", columns.join(" | "), alignment.join("|"));
    for cells in rows.values() {
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# Page\n\n* rows\n\n| kernel | old | both |\n|---|---:|---:|\n| a | 1 | 2 |\n| c | 3 | 4 |\n\nOthers:\n\n\
                          | kernel | x |\n|---|---:|\n| c | 5 |\n";

    #[test]
    fn rows_that_were_not_measured_are_kept() {
        let page = "# Page\n\n* rows\n\n| kernel | both | new |\n|---|---:|---:|\n| b | 6 | 7 |\n| c | 8 | 9 |\n\nOthers:\n\n\
                    | kernel | x |\n|---|---:|\n| b | 0 |\n";
        let merged = "# Page\n\n* rows\n\n| kernel | both | new | old |\n|---|---:|---:|---:|\n| a | 2 | - | 1 |\n| b | 6 | 7 | - |\n\
                      | c | 8 | 9 | - |\n\nOthers:\n\n| kernel | x |\n|---|---:|\n| b | 0 |\n| c | 5 |\n";
        assert_eq!(with_kept(page, BEFORE), merged);
        assert_eq!(with_kept(merged, BEFORE), merged, "nothing more is kept");
    }

    #[test]
    fn a_page_without_a_page_before_stays() {
        assert_eq!(with_kept(BEFORE, ""), BEFORE);
        assert_eq!(with_kept(BEFORE, "# Nothing\n"), BEFORE);
    }
}
