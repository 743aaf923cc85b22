// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arguments that no format can carry, because the debug information does not have them: by compiler.
//!
//! Kernels that are not in the cache are taken from docs/census.md, which `ci/census` writes.

use super::pages::Table;
use crate::measure::census::Row;
use siteseer_sites::Missing;
use std::collections::BTreeSet;

/// The header of [`rows`].
pub const HEADER: [&str; 7] =
    ["kernel", "compiler", "link", "arguments", "not mentioned in the copy", "optimised out", "from"];

const REASONS: [Missing; 2] = [Missing::NotMentioned, Missing::OptimisedOut];

/// A row for each kernel: those that were counted now, then those that the page has besides.
///
/// # Errors
/// If the page does not have the tables that `ci/census` writes.
pub fn rows(counted: &[Row], page: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows: Vec<Vec<String>> = counted.iter().map(of_kernel).collect();
    let known: BTreeSet<&str> = counted.iter().map(|row| row.name.as_str()).collect();
    let tables = Table::all(page);
    let find = |columns: &[&str]| {
        let has_all = |table: &&Table<'_>| columns.iter().all(|column| table.column(column).is_some());
        tables.iter().find(has_all).ok_or_else(|| format!("docs/census.md has no table with {columns:?}"))
    };
    let reasons = REASONS.map(|reason| reason.to_string());
    let (kernels, by_reason) =
        (find(&["kernel", "compiler", "link", "arguments"])?, find(&["kernel", &reasons[0], &reasons[1]])?);
    for row in &kernels.rows {
        let cell = |column| kernels.cell(row, column).unwrap_or_default().to_owned();
        let name = cell("kernel");
        if known.contains(name.as_str()) {
            continue;
        }
        let of_name = |row: &&Vec<&str>| by_reason.cell(row, "kernel") == Some(name.as_str());
        let shares =
            by_reason.rows.iter().find(of_name).ok_or_else(|| format!("docs/census.md: no reasons of {name}"))?;
        let [mentioned, out] = reasons.each_ref().map(|reason| by_reason.cell(shares, reason).unwrap_or_default());
        let (mentioned, out) = (mentioned.to_owned(), out.to_owned());
        rows.push(vec![
            name.clone(),
            cell("compiler"),
            cell("link"),
            cell("arguments"),
            mentioned,
            out,
            "[census.md](census.md)".to_owned(),
        ]);
    }
    Ok(rows)
}

fn of_kernel(row: &Row) -> Vec<String> {
    let arguments = &row.census.arguments;
    let share = |reason| {
        let count = arguments.unavailable.get(&reason).copied().unwrap_or_default();
        format!("{:.2}%", count as f64 * 100.0 / arguments.total.max(1) as f64)
    };
    let [mentioned, out] = REASONS.map(share);
    vec![
        row.name.clone(),
        row.compiler.clone(),
        row.link.to_owned(),
        arguments.total.to_string(),
        mentioned,
        out,
        "this run".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_are_not_at_hand_are_the_pages() {
        let page = "| kernel | compiler | link | arguments |\n|---|---|---|---:|\n| a | gcc | ordinary | 5 |\n\
                    | b | clang | full LTO | 10 |\n\n\
                    | kernel | this copy's debug information does not mention it | optimised out |\n|---|---:|---:|\n\
                    | a | 0.00% | 9.00% |\n| b | 20.00% | 0.10% |\n";
        let mut census = siteseer_encoder::Census::default();
        (census.arguments.total, census.arguments.unavailable) = (4, [(Missing::NotMentioned, 1)].into());
        let row = Row {
            name: "a".to_owned(),
            release: "7".to_owned(),
            arch: "x86_64".to_owned(),
            compiler: "gcc 14".to_owned(),
            link: "ordinary",
            census,
        };
        let rows = rows(&[row], page).unwrap();
        assert_eq!(rows[0][..6], ["a", "gcc 14", "ordinary", "4", "25.00%", "0.00%"]);
        assert_eq!(rows[1][..6], ["b", "clang", "full LTO", "10", "20.00%", "0.10%"]);
        assert_eq!(rows.len(), 2);
        assert!(super::rows(&[], "").is_err());
    }
}
