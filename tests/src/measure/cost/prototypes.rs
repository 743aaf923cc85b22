// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Location prototypes: how many functions have, and what their programs cost.

use super::attach::definitions_gone;
use super::{Bench, Figure, load, settle};
use crate::guest::case::Failure;
use serde::{Deserialize, Serialize};
use siteseer::{Attach, AttachOptions, Policy};
use siteseer_sites::file::{FileError, SiteFile};
use siteseer_sites::site::SiteKind;
use std::collections::HashSet;

/// How many location prototypes a function has if all of its arguments are read.
#[derive(Debug, Clone)]
pub struct Prototypes {
    /// The function.
    pub function: String,
    /// Parameters.
    pub parameters: usize,
    /// Inline sites that have all arguments.
    pub sites: usize,
    /// Distinct tuples of locations among them.
    pub prototypes: usize,
}

/// Counts them for every function of a site file.
///
/// # Errors
/// If the file is damaged.
pub fn census(file: &SiteFile<'_>) -> Result<Vec<Prototypes>, FileError> {
    let mut all = Vec::new();
    for function in file.all_functions() {
        let function = function?;
        let (mut sites, mut distinct, mut parameters) = (0, HashSet::new(), 0);
        for site in function.sites() {
            let site = site?;
            if site.kind() != Some(SiteKind::Inline) || site.unprobeable().is_some() {
                continue;
            }
            let arguments = site.arguments()?;
            if arguments.iter().all(Result::is_ok) {
                sites += 1;
                parameters = arguments.len();
                distinct.insert(arguments);
            }
        }
        if sites > 0 {
            let function = function.name().to_owned();
            all.push(Prototypes { function, parameters, sites, prototypes: distinct.len() });
        }
    }
    Ok(all)
}

/// What the programs of one attachment cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Programs {
    /// The function.
    pub function: String,
    /// Sites attached.
    pub sites: usize,
    /// Location prototypes.
    pub prototypes: usize,
    /// Programs loaded.
    pub programs: usize,
    /// Bytes of machine code.
    pub jited: u64,
    /// Seconds to load them.
    pub loading: f64,
    /// Seconds to arm the sites.
    pub arming: f64,
    /// Files open.
    pub files: usize,
    /// Seconds to detach.
    pub detach: f64,
}

/// Functions that are measured: those with about so many programs.
const AIMS: [usize; 3] = [10, 60, 200];

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let object = load()?;
    let mut all = bench.target.data().read(&[], census)??;
    // One and the same name may be several functions; a program that reads arguments cannot have them together.
    all.retain(|function| (1..=3).contains(&function.parameters) && function.sites >= function.prototypes * 4);
    for aim in AIMS {
        all.sort_by_key(|function| function.prototypes.abs_diff(aim));
        let mut measured = false;
        for candidate in all.iter().take(6) {
            let name = format!("read{}", candidate.parameters);
            let program = object.progs().find(|program| *program.name() == *name).ok_or("no such program")?;
            // A program for each, and as few as there can be.
            for beyond in [usize::MAX, 1] {
                let options = AttachOptions::default().max_sites(usize::MAX).function(&candidate.function);
                let options = options.policy(Policy::BestEffort).share_beyond(beyond);
                let Ok(link) = Attach::with(&bench.target, options).attach(&program) else { break };
                let (cost, report) = (link.cost()?, link.report());
                let (sites, prototypes) = (report.attached().count(), report.trampolines);
                let begin = std::time::Instant::now();
                link.detach();
                bench.say(&Figure::Programs(Programs {
                    function: candidate.function.clone(),
                    sites,
                    prototypes,
                    programs: cost.programs,
                    jited: cost.jited,
                    loading: cost.loading.as_secs_f64(),
                    arming: cost.arming.as_secs_f64(),
                    files: cost.files,
                    detach: begin.elapsed().as_secs_f64(),
                }))?;
                definitions_gone()?;
                settle();
                measured = true;
            }
            if measured {
                break;
            }
        }
        if !measured {
            bench.say(&Figure::Note(format!("no function with about {aim} location prototypes could be attached")))?;
        }
    }
    Ok(())
}
