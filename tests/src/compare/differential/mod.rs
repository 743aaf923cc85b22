// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The differential: our sites and locations beside those of `perf probe`, on the same kernel image.
//!
//! perf reads the same DWARF by rules of its own. Where both say the same, two independent readers agree; where they
//! do not, each disagreement is given a [`Class`] by evidence from DWARF itself. What no class explains is
//! [`Class::Unexplained`], and an error of one of the two, or of this comparison.
//!
//! `perf` looks DWARF through from the start at each question, which takes it about a second.

pub mod class;
pub mod compare;
pub mod evidence;
pub mod perf;
pub mod perf_rules;
pub mod report;
pub mod trial;

pub use class::Class;
pub use report::Report;

use crate::guest::case::Failure;
use compare::{Context, compare};
use evidence::{Evidence, Sections};
use perf::{Answer, Perf};
use siteseer::Target;
use siteseer::internals::function::Function;
use siteseer::internals::section::Wanted;
use siteseer::internals::source::SiteData;
use siteseer_encoder::elf::image::Image;
use siteseer_sites::file::{FileError, SiteFile};
use siteseer_sites::site::SiteKind;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many perf processes run at once.
const AT_ONCE: usize = 2;

/// What to compare.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// The kernel image with DWARF.
    pub vmlinux: PathBuf,
    /// Its encoded sites; without them it is encoded.
    pub sites: Option<PathBuf>,
    /// How many functions that have inlined copies, chosen at random.
    pub count: usize,
    /// What the choice depends on.
    pub seed: u64,
    /// Functions to compare besides, or instead if the count is 0.
    pub functions: Vec<String>,
}

/// Compares.
///
/// # Errors
/// If a file cannot be read or perf cannot be run. Disagreements are not errors: the report lists them.
pub fn run(question: &Question) -> Result<Report, Failure> {
    Perf::check().map_err(|error| format!("the differential needs perf (package linux-perf): {error}"))?;
    let vmlinux = &question.vmlinux;
    let bytes = std::fs::read(vmlinux).map_err(|error| format!("{}: {error}", vmlinux.display()))?;
    let image = Image::parse(&bytes)?;
    let source = question.sites.as_ref().unwrap_or(vmlinux);
    let target = Target::image(SiteData::open(source, None, true)?)?;
    let names = match question.count {
        0 => question.functions.clone(),
        count => {
            let (build_id, inlined) =
                target.data().read(&[], |file| inlined(file).map(|names| (file.build_id().to_vec(), names)))??;
            if build_id != image.build_id() {
                return Err(format!("{} is not of {}", source.display(), vmlinux.display()).into());
            }
            let mut names = question.functions.clone();
            names.extend(choose(inlined, count, question.seed));
            names
        }
    };
    let wanted: Vec<Wanted> = names.iter().map(|name| Wanted { module: None, function: Some(name.clone()) }).collect();
    let functions = target.functions(&wanted)?;
    let parameters: Vec<Vec<String>> = functions.iter().map(parameters).collect();
    let of_names: HashMap<String, BTreeSet<String>> = functions
        .iter()
        .zip(&parameters)
        .map(|(function, names)| (function.name.clone(), names.iter().cloned().collect()))
        .collect();
    let sections = Sections::load(&image)?;
    let evidence = Evidence::collect(&sections, &of_names)?;
    let answers = ask(&Perf { vmlinux, machine: image.machine() }, &functions, &parameters)?;
    let comparisons = functions
        .iter()
        .zip(&answers)
        .map(|(function, answers)| compare(Context { image: &image, evidence: &evidence, function }, answers));
    Ok(Report { comparisons: comparisons.collect() })
}

/// Asks perf for all functions, a few at once.
fn ask(perf: &Perf<'_>, functions: &[Function], parameters: &[Vec<String>]) -> Result<Vec<Vec<Answer>>, Failure> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let (Some(function), Some(parameters)) = (functions.get(nth), parameters.get(nth)) else {
                return Ok::<_, std::io::Error>(answers);
            };
            answers.push((nth, perf.ask(&function.name, parameters)?));
        }
    };
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(answers) => all.extend(answers?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, std::io::Error>(all)
    })?;
    all.sort_by_key(|(nth, _)| *nth);
    Ok(all.into_iter().map(|(_, answers)| answers).collect())
}

/// The names of functions that have inlined copies, in order.
fn inlined(file: &SiteFile<'_>) -> Result<Vec<String>, FileError> {
    let mut names = BTreeSet::new();
    for function in file.all_functions() {
        let function = function?;
        for site in function.sites() {
            if site?.kind() == Some(SiteKind::Inline) {
                names.insert(function.name().to_owned());
                break;
            }
        }
    }
    Ok(names.into_iter().collect())
}

/// Chooses so many at random: the same for the same seed and names.
fn choose(mut names: Vec<String>, count: usize, seed: u64) -> Vec<String> {
    let count = count.min(names.len());
    for place in 0..count {
        let rest = (names.len() - place) as u64;
        let other = place + (trial::mix(trial::mix(seed) ^ place as u64) % rest) as usize;
        names.swap(place, other);
    }
    names.truncate(count);
    names
}

/// The names of the parameters of all functions of the name, each once.
fn parameters(function: &Function) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for parameter in function.prototypes.iter().flat_map(|prototype| &prototype.parameters) {
        if !parameter.name.is_empty() && !names.contains(&parameter.name) {
            names.push(parameter.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_depends_on_the_seed_alone() {
        let names: Vec<String> = (0..100).map(|nth| format!("f{nth}")).collect();
        let chosen = choose(names.clone(), 10, 1);
        assert_eq!(chosen, choose(names.clone(), 10, 1));
        assert_ne!(chosen, choose(names.clone(), 10, 2));
        assert_eq!(chosen.iter().collect::<BTreeSet<_>>().len(), 10);
        assert_eq!(choose(names, 1000, 3).len(), 100);
    }
}
