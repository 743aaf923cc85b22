// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Cases: what a test inside the virtual machine is.

use serde::{Deserialize, Serialize};
use siteseer::{SourceOptions, Target};

/// What a case fails with.
pub type Failure = Box<dyn std::error::Error>;

/// What a case does.
pub type Body = dyn Fn(&Target) -> Result<String, Failure>;

/// One case.
pub struct Case {
    /// Its name, with the group before the colons.
    pub name: String,
    /// Runs it. What it returns is shown with the result.
    pub run: Box<Body>,
}

/// What became of a case: one line of the guest's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The case.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What it showed, or why it failed.
    pub detail: String,
}

/// All cases, in the order in which they run.
pub fn cases() -> Vec<Case> {
    let mut all = crate::truth::cases();
    all.extend(crate::typed::cases());
    all.extend(crate::refusals::cases());
    all.extend(crate::killed::cases());
    all
}

/// Runs the cases whose names are given (all, if none is) and hands each verdict out as soon as there is one.
///
/// # Errors
/// If the kernel cannot be used at all.
pub fn run(names: &[String], mut report: impl FnMut(Verdict)) -> Result<(), Failure> {
    siteseer::register()?;
    let target = Target::running(&SourceOptions::default())?;
    for case in cases() {
        if !names.is_empty() && !names.contains(&case.name) {
            continue;
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.run)(&target)));
        let (passed, detail) = match result {
            Ok(Ok(detail)) => (true, detail),
            Ok(Err(failure)) => (false, failure.to_string()),
            Err(_) => (false, "it panicked; the console has the message".to_owned()),
        };
        report(Verdict { name: case.name, passed, detail });
    }
    Ok(())
}
