// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Cases that are known to fail on a kernel, and what is wrong: those of the suite (`suite::NAME`), and all others that
//! run in virtual machines. They are not judged more leniently: such a case fails, and is shown as known. When it no
//! longer fails, its line must go.

/// A kernel of kernels/matrix.toml, a case's name, and what is wrong in a sentence.
pub type Known = (&'static str, &'static str, &'static str);

/// The table.
pub const KNOWN: &[Known] = &[];

/// Before the names of the suite's cases.
pub const SUITE: &str = "suite::";

/// What an outcome counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The table has nothing about it.
    AsItIs,
    /// It failed, and this is what is wrong.
    Known(&'static str),
    /// It did not fail, and the table says that it does, for this reason.
    Outdated(&'static str),
}

/// Looks an outcome up in a table.
pub fn judge(table: &[Known], kernel: &str, case: &str, failed: bool) -> Judged {
    match table.iter().find(|(on, name, _)| (*on, *name) == (kernel, case)) {
        None => Judged::AsItIs,
        Some((_, _, wrong)) if failed => Judged::Known(wrong),
        Some((_, _, wrong)) => Judged::Outdated(wrong),
    }
}

/// What is wrong with a table, line by line: a kernel or a case that does not exist, a case twice, or a line that does
/// not say what is wrong.
pub fn faults(table: &[Known], kernels: &[String], cases: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (nth, (kernel, case, wrong)) in table.iter().enumerate() {
        let mut fault = |what: &str| faults.push(format!("{kernel}, {case}: {what}"));
        if !kernels.iter().any(|name| name == kernel) {
            fault("there is no such kernel");
        }
        if !cases.iter().any(|name| name == case) {
            fault("there is no such case");
        }
        if table[..nth].iter().any(|(on, name, _)| (on, name) == (kernel, case)) {
            fault("it is listed twice");
        }
        if wrong.trim().is_empty() {
            fault("the line does not say what is wrong");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::case_file;

    const PLANTED: &[Known] = &[("one", "suite::case", "why"), ("two", "truth::f", "because")];

    #[test]
    fn what_is_known_must_fail_and_nothing_else_is_excused() {
        assert_eq!(judge(PLANTED, "one", "suite::case", true), Judged::Known("why"));
        assert_eq!(judge(PLANTED, "one", "suite::case", false), Judged::Outdated("why"));
        assert_eq!(judge(PLANTED, "two", "truth::f", true), Judged::Known("because"));
        for (kernel, case) in [("two", "suite::case"), ("one", "truth::f"), ("one", "case"), ("three", "truth::f")] {
            assert_eq!(judge(PLANTED, kernel, case, true), Judged::AsItIs);
            assert_eq!(judge(PLANTED, kernel, case, false), Judged::AsItIs);
        }
    }

    #[test]
    fn wrong_lines_are_found() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (kernels, cases) = (names(&["one", "two"]), names(&["suite::case", "truth::f"]));
        assert_eq!(faults(PLANTED, &kernels, &cases), Vec::<String>::new());
        let wrong: &[Known] = &[
            ("three", "truth::f", "why"),
            ("one", "case", "why"),
            ("one", "truth::f", "why"),
            ("one", "truth::f", "why"),
            ("two", "truth::f", " "),
        ];
        assert_eq!(
            faults(wrong, &kernels, &cases),
            [
                "three, truth::f: there is no such kernel",
                "one, case: there is no such case",
                "one, truth::f: it is listed twice",
                "two, truth::f: the line does not say what is wrong",
            ]
        );
    }

    #[test]
    fn the_table_is_of_kernels_and_cases_that_exist() {
        let matrix = siteseer_kernels::workspace_matrix().unwrap();
        let kernels: Vec<String> = matrix.names().map(str::to_owned).collect();
        let suite = case_file::all(&case_file::folder()).unwrap().into_iter().map(|(name, _)| format!("{SUITE}{name}"));
        let cases: Vec<String> = suite.chain(crate::guest::case::cases().into_iter().map(|case| case.name)).collect();
        assert!(kernels.len() > 4 && cases.len() > 50, "{kernels:?}, {cases:?}");
        assert_eq!(faults(KNOWN, &kernels, &cases), Vec::<String>::new());
    }
}
