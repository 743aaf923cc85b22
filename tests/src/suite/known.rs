// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Cases that are known to fail on a kernel, and what is wrong. They are not looked at more leniently: such a case fails, and shows
//! as that. When it does not fail any more, its line has to go.

use super::judge::{Status, Verdict};

/// A kernel of kernels/matrix.toml, a case of tests/cases, and what is wrong in a sentence.
type Known = (&'static str, &'static str, &'static str);

const KNOWN: &[Known] = &[];

/// The verdict on a case of the suite, given what is known about it.
pub fn judged(kernel: &str, case: &str, verdict: Verdict) -> Verdict {
    judged_by(KNOWN, kernel, case, verdict)
}

fn judged_by(known: &[Known], kernel: &str, case: &str, verdict: Verdict) -> Verdict {
    match known.iter().find(|line| (line.0, line.1) == (kernel, case)) {
        None => verdict,
        Some((_, _, wrong)) if verdict.status == Status::Fail => {
            Verdict::new(Status::Known, format!("{wrong}\n{}", verdict.detail))
        }
        Some(_) => Verdict::new(
            Status::Fail,
            format!("it is listed as known to fail, and ended with: {}; its line has to go", verdict.status),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case_file;
    use super::*;

    #[test]
    fn what_is_known_fails_and_nothing_else_may() {
        const LIST: &[Known] = &[("one", "case", "why")];
        let end = |kernel, status| judged_by(LIST, kernel, "case", Verdict::new(status, "detail"));
        assert_eq!(end("one", Status::Fail), Verdict::new(Status::Known, "why\ndetail"));
        for status in [Status::Pass, Status::NotExercised, Status::Unsupported] {
            assert_eq!(end("one", status).status, Status::Fail);
            assert_eq!(end("two", status).status, status);
        }
        assert_eq!(end("two", Status::Fail).status, Status::Fail);
    }

    #[test]
    fn lines_are_of_kernels_and_cases_that_there_are() {
        let matrix = siteseer_kernels::workspace_matrix().unwrap();
        let cases = case_file::all(&case_file::folder()).unwrap();
        for (kernel, case, _) in KNOWN {
            assert!(matrix.row(kernel).is_ok(), "{kernel}");
            assert!(cases.iter().any(|(name, _)| name == case), "{case}");
        }
    }
}
