// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What each policy does to ordinary tools: the programs of the suite (`crate::guest::tools`), which are fentry and
//! fexit programs of the kinds that public collections have. Nothing is booted: plans for the kernel are made, as
//! `siteseer check` does.

use crate::guest::tools::GROUPS;
use crate::measure::tables::share;
use siteseer::Target;
use siteseer::internals::check::{self, Answer, Question, Shape};
use siteseer::internals::object_file;
use siteseer::internals::source::SiteData;
use siteseer_sites::{SiteSet, file};
use std::error::Error;
use std::io::Write;

/// The header of [`row`].
pub const HEADER: [&str; 7] = [
    "kernel",
    "tools",
    "the kernel has the function",
    "libbpf alone misses calls in silence",
    "all-or-none refuses",
    "best effort attaches, and says what is missing",
    "no policy attaches",
];

/// The row of a kernel.
///
/// # Errors
/// If the sites cannot be written and opened, or a program cannot be read.
pub fn row(kernel: &str, set: &SiteSet) -> Result<Vec<String>, Box<dyn Error>> {
    let mut place = tempfile::NamedTempFile::new()?;
    place.write_all(&file::write(set)?)?;
    place.flush()?;
    let target = Target::image(SiteData::open(place.path(), None, true)?)?;
    let mut answers = Vec::new();
    for group in GROUPS {
        for program in object_file::read_all(group.elf)?.0 {
            answers.push(check::check(&target, &program.wanted, Question::Program(&program))?);
        }
    }
    Ok(of_answers(kernel, &answers))
}

fn of_answers(kernel: &str, answers: &[Answer]) -> Vec<String> {
    let there: Vec<&Answer> = answers.iter().filter(|answer| answer.has_function()).collect();
    let is_complete = |answer: &Answer| answer.outlooks.iter().any(check::Outlook::is_complete);
    let attaches = |answer: &Answer| answer.outlooks.iter().any(|outlook| outlook.attached > 0);
    let of = |wanted: &dyn Fn(&Answer) -> bool| there.iter().filter(|answer| wanted(answer)).count();
    let part = |wanted: &dyn Fn(&Answer) -> bool| share(of(wanted), there.len());
    vec![
        kernel.to_owned(),
        answers.len().to_string(),
        there.len().to_string(),
        // With a symbol of the name, a program attaches; without one it is refused, which is not silent.
        part(&|answer| answer.bodies > 0 && matches!(answer.shape, Shape::PartlyInlined | Shape::Cloned)),
        part(&|answer| !is_complete(answer)),
        part(&|answer| !is_complete(answer) && attaches(answer)),
        part(&|answer| !attaches(answer)),
    ]
}
