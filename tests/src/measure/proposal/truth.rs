// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How true locations are, by form: from the tables that `ci/truth` writes into docs/truth.md.
//!
//! The page has a row for each form and each reason for doubt. Here a form is one row: how many of all its values are
//! wrong, which is what a reader gets that believes the debug information, and how many of those that the encoder takes
//! for certain.

use super::pages::Table;
use std::collections::BTreeMap;

/// Forms with fewer values, of all compilers, are one row.
const LEAST: u64 = 2000;

/// Values, and how many of them are wrong.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    values: u64,
    wrong: f64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.values += other.values;
        self.wrong += other.wrong;
    }

    fn text(self) -> String {
        match self.values {
            0 => "-".to_owned(),
            values => format!("{:.2}% of {values}", self.wrong * 100.0 / values as f64),
        }
    }
}

/// A form's values: all, and those without a doubt.
#[derive(Debug, Clone, Copy, Default)]
struct Form {
    all: Count,
    certain: Count,
}

/// The columns, and a row for each form of location at inlined copies: the worst first, by the share that is wrong of
/// all compilers' values.
///
/// # Errors
/// If the page does not have the table that `ci/truth random` writes.
pub fn rows(page: &str) -> Result<(Vec<String>, Vec<Vec<String>>), String> {
    let tables = Table::all(page);
    let is_wanted = |table: &&Table<'_>| table.header.get(..3) == Some(&["site", "form", "doubt"]);
    let table = tables.iter().find(is_wanted).ok_or("docs/truth.md has no table of sites, forms and doubts")?;
    let compilers: Vec<&str> = table.header[3..].iter().copied().filter(|&name| name != "wrong").collect();
    let mut forms: BTreeMap<String, Vec<Form>> = BTreeMap::new();
    for row in table.rows.iter().filter(|row| row.first() == Some(&"inline")) {
        let (form, doubt) = (row.get(1).copied().unwrap_or_default(), row.get(2).copied().unwrap_or_default());
        let counts = forms.entry(named(form)).or_insert_with(|| vec![Form::default(); compilers.len()]);
        for (counts, cells) in counts.iter_mut().zip(row[3..].chunks(2)) {
            let count = count(cells).ok_or_else(|| format!("docs/truth.md: {form}: {cells:?}"))?;
            counts.all.add(count);
            if doubt.is_empty() {
                counts.certain.add(count);
            }
        }
    }
    let sum = |counts: &[Form]| {
        let mut sum = Count::default();
        counts.iter().for_each(|form| sum.add(form.all));
        sum
    };
    let mut rare = vec![Form::default(); compilers.len()];
    let mut frequent: Vec<(String, Vec<Form>)> = Vec::new();
    for (name, counts) in forms {
        if sum(&counts).values >= LEAST {
            frequent.push((name, counts));
            continue;
        }
        for (rare, form) in rare.iter_mut().zip(&counts) {
            rare.all.add(form.all);
            rare.certain.add(form.certain);
        }
    }
    let worst = |counts: &[Form]| sum(counts).wrong / sum(counts).values.max(1) as f64;
    frequent.sort_by(|a, b| worst(&b.1).total_cmp(&worst(&a.1)));
    frequent.push(("forms with few values".to_owned(), rare));
    let mut header = vec!["the debug information has, and what it is".to_owned()];
    header.extend(compilers.iter().flat_map(|name| [format!("{name}: wrong"), "without the doubtful".to_owned()]));
    let rows = frequent.into_iter().map(|(name, counts)| {
        let cells = counts.iter().flat_map(|form| [form.all.text(), form.certain.text()]);
        std::iter::once(name).chain(cells).collect()
    });
    Ok((header, rows.collect()))
}

/// The words of docs/truth.md for how a location is given, in words that need no page.
fn named(form: &str) -> String {
    let (given, made) = form.rsplit_once(' ').unwrap_or(("", form));
    let given = match given {
        "list" => "list entry",
        "view" => "list entry at the view alone",
        "late" => "list entry a view after the entry",
        "expression" => "one expression for all addresses",
        "constant" => "DW_AT_const_value",
        "moved" => "found where the probe was moved to",
        "branch" => "found after a first branch",
        other => other,
    };
    format!("{given}: {}", made.replace('_', " "))
}

/// `123`, `4.5678%`; nothing if the compiler has no such values.
fn count(cells: &[&str]) -> Option<Count> {
    match *cells {
        ["", _] | [""] => Some(Count::default()),
        [values, wrong] => {
            let values: u64 = values.parse().ok()?;
            let share: f64 = wrong.strip_suffix('%')?.parse().ok()?;
            Some(Count { values, wrong: (share / 100.0 * values as f64).round() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_a_row() {
        let page = "| site | form | doubt | clang-22 | wrong | gcc-14 | wrong |\n|---|---|---|---:|---:|---:|---:|\n\
                    | body | list register |  | 7 | 0.0000% | | |\n\
                    | inline | entry value register |  | 10 | 50.0000% | | |\n\
                    | inline | list constant |  | 2000 | 1.0000% | 4000 | 0.0000% |\n\
                    | inline | list constant | stale | 2000 | 9.0000% | | |\n";
        let (header, rows) = rows(page).unwrap();
        assert_eq!(header[1..3], ["clang-22: wrong", "without the doubtful"]);
        assert_eq!(
            rows[0],
            ["list entry: constant", "5.00% of 4000", "1.00% of 2000", "0.00% of 4000", "0.00% of 4000"]
        );
        assert_eq!(rows[1], ["forms with few values", "50.00% of 10", "50.00% of 10", "-", "-"]);
        assert_eq!(rows.len(), 2);
        assert!(super::rows("").is_err());
        assert!(super::rows(&page.replace("9.0000%", "nine")).is_err());
    }
}
