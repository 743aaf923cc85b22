// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The tables of pages that other commands write. Figures are taken from there, so that none of them is typed twice.

/// A table of Markdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<'p> {
    /// The names of the columns.
    pub header: Vec<&'p str>,
    /// The cells of each row.
    pub rows: Vec<Vec<&'p str>>,
}

impl<'p> Table<'p> {
    /// All tables of a page.
    pub fn all(page: &'p str) -> Vec<Table<'p>> {
        let mut tables = Vec::new();
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            let (Some(header), Some(rule)) = (cells(line), lines.peek().copied().and_then(cells)) else { continue };
            if !rule.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':'))) {
                continue;
            }
            lines.next();
            let mut rows = Vec::new();
            while let Some(row) = lines.peek().copied().and_then(cells) {
                rows.push(row);
                lines.next();
            }
            tables.push(Table { header, rows });
        }
        tables
    }

    /// The number of the column of that name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|header| *header == name)
    }

    /// The cell of a row in the column of that name.
    pub fn cell(&self, row: &[&'p str], name: &str) -> Option<&'p str> {
        row.get(self.column(name)?).copied()
    }
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_a_page() {
        let page = "# a\n\n| x | y |\n|---|---:|\n| 1 | |\n| 2 | 3 |\n\ntext | text\n\n| not | ended |\n";
        let tables = Table::all(page);
        assert_eq!(tables, [Table { header: vec!["x", "y"], rows: vec![vec!["1", ""], vec!["2", "3"]] }]);
        assert_eq!(tables[0].cell(&tables[0].rows[1], "y"), Some("3"));
        assert_eq!(tables[0].cell(&tables[0].rows[1], "z"), None);
    }
}
