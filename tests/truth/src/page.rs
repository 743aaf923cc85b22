// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The tables of docs/truth.md: each instrument writes its own section of the page.

use crate::report::{Report, Values};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Why the page cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// It cannot be read or written.
    #[error("{}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// It has no place for the instrument's tables.
    #[error("{}: no section between {begin:?} and {end:?}", path.display())]
    NoSection {
        /// The page.
        path: PathBuf,
        /// What the section is between.
        begin: String,
        /// The same.
        end: String,
    },
}

/// Puts an instrument's tables into its section of the page.
pub(crate) fn update(path: &Path, instrument: &str, tables: &str) -> Result<(), PageError> {
    let page = std::fs::read_to_string(path).map_err(|error| PageError::File(path.to_owned(), error))?;
    let (begin, end) = (format!("<!-- {instrument}: -->"), format!("<!-- :{instrument} -->"));
    let section = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = section else { return Err(PageError::NoSection { path: path.to_owned(), begin, end }) };
    let page = format!("{before}{begin}\n{tables}\n{end}{after}");
    std::fs::write(path, page).map_err(|error| PageError::File(path.to_owned(), error))
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.4}%", part as f64 * 100.0 / whole as f64) }
}

/// A report as tables in Markdown.
pub(crate) fn tables(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "| compiler | runs | calls | missed, no mark | of these recursion | missed, marked | counted twice, no mark | counted twice, marked | late |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for (compiler, calls) in &report.calls {
        let share = |count| format!("{count} ({})", percent(count, calls.calls));
        let _ = writeln!(
            out,
            "| {compiler} | {} | {} | {} | {} | {} | {} | {} | {} |",
            calls.runs,
            calls.calls,
            share(calls.missed),
            calls.missed_recursive,
            share(calls.missed_marked),
            share(calls.doubled),
            share(calls.doubled_marked),
            share(calls.late)
        );
    }
    let _ =
        writeln!(out, "\n| compiler | certain values | wrong | doubtful values | wrong |\n|---|---:|---:|---:|---:|");
    for compiler in report.calls.keys() {
        let (certain, doubtful) = (report.of_compiler(compiler, true), report.of_compiler(compiler, false));
        let wrong = |values: Values| format!("{} ({})", values.wrong, percent(values.wrong, values.compared()));
        let _ = writeln!(
            out,
            "| {compiler} | {} | {} | {} | {} |",
            certain.compared(),
            wrong(certain),
            doubtful.compared(),
            wrong(doubtful)
        );
    }
    out.push_str("\n| site | form | doubt |");
    let compilers: Vec<&String> = report.calls.keys().collect();
    for compiler in &compilers {
        let _ = write!(out, " {compiler} | wrong |");
    }
    let _ = writeln!(out, "\n|---|---|---|{}", "---:|---:|".repeat(compilers.len()));
    let mut rows: BTreeMap<(&str, &str, &str), BTreeMap<&str, Values>> = BTreeMap::new();
    for (key, values) in &report.values {
        let row = (&*key.site, &*key.form, key.doubt.as_deref().unwrap_or(""));
        rows.entry(row).or_default().entry(&key.compiler).or_default().add(*values);
    }
    for ((site, form, doubt), of) in rows {
        let _ = write!(out, "| {site} | {form} | {doubt} |");
        for compiler in &compilers {
            let values = of.get(compiler.as_str()).copied().unwrap_or_default();
            match values.compared() {
                0 => out.push_str(" | |"),
                compared => {
                    let _ = write!(out, " {compared} | {} |", percent(values.wrong, compared));
                }
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ValueKey;

    #[test]
    fn a_section_is_replaced_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\n<!-- random: -->\nold\n<!-- :random -->\nb\n").unwrap();
        update(file.path(), "random", "new").unwrap();
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "a\n<!-- random: -->\nnew\n<!-- :random -->\nb\n");
        assert!(matches!(update(file.path(), "kernel", "new"), Err(PageError::NoSection { .. })));
    }

    #[test]
    fn values_of_a_compiler_stand_in_its_column() {
        let mut report = Report::default();
        for compiler in ["clang-22", "gcc-14"] {
            report.calls.entry(compiler.to_owned()).or_default().calls = 10;
        }
        let key = ValueKey {
            compiler: "gcc-14".to_owned(),
            machine: "arm64".to_owned(),
            site: "inline".to_owned(),
            form: "list register".to_owned(),
            doubt: None,
        };
        report.value(key.clone(), true);
        report.value(key, false);
        assert!(tables(&report).contains("| inline | list register |  | | | 2 | 50.0000% |"), "{}", tables(&report));
    }
}
