// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is explained without loading is what is attached: the plan of a program as its object file has it, against the
//! plan of the same program as libbpf has loaded it.

use crate::guest::case::{Case, Failure, case};
use libbpf_rs::ObjectBuilder;
use siteseer::internals::plan::Decision;
use siteseer::internals::section::Wanted;
use siteseer::internals::{explain, object_file};
use siteseer::{Attach, AttachOptions, Outcome, Policy, Target};
use siteseer_bpf_progs::{BAD, JUMPS_TRACE, TRUTH};
use siteseer_sites::with_causes;
use std::fmt::Write as _;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    // Proves S22.1, S22.3.
    vec![case("explain", "file_and_loaded_program_agree", agree)]
}

/// A plan's decisions, a line a site, and how many sites are attached.
fn of_file(target: &Target, wanted: &Wanted, program: &object_file::FileProgram) -> Result<(String, usize), Failure> {
    let explanations = explain::program(target, wanted, program)?;
    let [explanation] = explanations.as_slice() else {
        return Err(format!("{} prototypes", explanations.len()).into());
    };
    let verdict = explanation.verdicts.first().ok_or("no verdict")?;
    let (mut text, mut attached) = (String::new(), 0);
    for site in &verdict.plan.as_ref().map_err(String::clone)?.sites {
        let decision = match &site.decision {
            Decision::Attach { mechanism, .. } => {
                attached += 1;
                mechanism.to_string()
            }
            Decision::Skip(reason) => reason.to_string(),
        };
        writeln!(text, "{}+{:#x}: {decision}", site.site.symbol, site.site.offset())?;
    }
    Ok((text, attached))
}

fn of_loaded<'p>(attach: &Attach<'_>, program: impl Into<siteseer::Program<'p>>) -> Result<String, Failure> {
    let mut text = String::new();
    for site in attach.plan(program)?.report().sites() {
        let outcome = match &site.outcome {
            Outcome::Attached { mechanism, .. } => mechanism.to_string(),
            Outcome::Skipped(reason) => reason.to_string(),
        };
        writeln!(text, "{}+{:#x}: {outcome}", site.symbol, site.offset)?;
    }
    Ok(text)
}

fn agree(target: &Target) -> Result<String, Failure> {
    let (mut planned, mut refused) = (0, 0);
    for elf in [TRUTH, BAD, JUMPS_TRACE] {
        let programs = object_file::read(elf)?;
        let object = ObjectBuilder::default().open_memory(elf)?.load()?;
        for program in programs {
            let name = &program.program.name;
            let loaded = object.progs_mut().find(|other| other.name() == name.as_str());
            let loaded = loaded.ok_or_else(|| format!("libbpf has no program {name}"))?;
            let mut options = AttachOptions::default().policy(Policy::BestEffort);
            let mut wanted = program.wanted.clone();
            if wanted.function.is_none() {
                options = options.function("ns_capable");
                wanted.function = Some("ns_capable".to_owned());
            }
            match (of_file(target, &wanted, &program), of_loaded(&Attach::with(target, options), &loaded)) {
                (Ok((file, 1..)), Ok(loaded)) if file == loaded => planned += 1,
                // A plan with nothing left is an error when attaching, and a list here.
                (Ok((_, 0)), Err(error)) if error.to_string().contains("none of its") => refused += 1,
                (Err(_), Err(_)) => refused += 1,
                (file, loaded) => {
                    let file = file.map_or_else(|error| with_causes(&*error), |(text, _)| text);
                    let loaded = loaded.unwrap_or_else(|error| with_causes(&*error));
                    return Err(format!("{name}: from the file\n{file}\nloaded\n{loaded}").into());
                }
            }
        }
    }
    if planned < 5 || refused == 0 {
        return Err(format!("{planned} plans and {refused} refusals compared: too few").into());
    }
    Ok(format!("{planned} plans and {refused} refusals are the same"))
}
