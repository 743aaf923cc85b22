// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Probes that the kernel refuses in the middle of many, after the plan held them for possible.
//!
//! The harness writes site data in which one site of a function is a byte off, in the middle of an instruction, where
//! the kernel takes no probe ([`spoil`]). Whatever the policy and the way of attaching, that site alone is refused,
//! with the kernel's own reason, and the others stay attached or none does.

use crate::guest::case::{Case, Failure, Shown};
use crate::guest::killed::{call, counters, load};
use siteseer::{Attach, AttachOptions, Outcome, Policy, Reason, SourceOptions, Target};
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::{FunctionText, Known};
use siteseer_sites::with_causes;
use siteseer_sites::{SiteKind, SiteSet};
use std::fs;
use std::io;

/// The function that [`call`] calls, and another with several sites.
pub const FUNCTIONS: [&str; 2] = ["ksys_semget", "ksys_shmget"];
/// Where the harness puts the site data.
pub const FILE: &str = "/siteseer/refused.sites";

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn() -> Result<String, Failure>| Case {
        name: format!("refused::{name}"),
        run: Box::new(move |_| Ok(run()?.into())),
    };
    vec![
        case("one_of_many_events", || one_is_refused(1)),
        case("one_of_many_kprobes", || one_is_refused(usize::MAX)),
        Case { name: "refused::complete_leaves_nothing".to_owned(), run: Box::new(|_| complete_leaves_nothing()) },
    ]
}

/// Moves one inlined copy of the second function into the middle of an instruction.
///
/// # Errors
/// If there is none that can be moved so.
pub fn spoil(set: &mut SiteSet, image: &[u8]) -> Result<(), String> {
    let image = Image::parse(image).map_err(|error| error.to_string())?;
    let name = FUNCTIONS[1];
    let is_inside = |address: u64| {
        let container = image.container(address)?;
        let range = container.address..container.address + container.size;
        let text = FunctionText::decode(&image, std::slice::from_ref(&range), &Known::default());
        (text.is_boundary(address) && !text.is_boundary(address + 1)).then_some(())
    };
    let functions = &set.functions;
    let site = set.sites.iter_mut().find(|site| {
        let is_it = functions.get(site.function as usize).is_some_and(|function| function.name == name);
        is_it && site.kind == SiteKind::Inline && site.unprobeable.is_none() && is_inside(site.address).is_some()
    });
    site.ok_or_else(|| format!("{name} has no inlined copy with an instruction of two bytes"))?.address += 1;
    Ok(())
}

fn target() -> Result<Target, Failure> {
    Ok(Target::running(&SourceOptions::default().file(FILE))?)
}

/// Places where probes are registered and not disabled.
fn armed() -> io::Result<Vec<String>> {
    let list = fs::read_to_string("/sys/kernel/debug/kprobes/list")?;
    Ok(list.lines().filter(|line| !line.contains("[DISABLED]")).map(str::to_owned).collect())
}

fn one_is_refused(bulk_from: usize) -> Result<String, Failure> {
    let (target, object) = (target()?, load()?);
    let program = object.progs().find(|program| program.name() == "read0").ok_or("no program read0")?;
    let options = AttachOptions::default().policy(Policy::BestEffort).all_prototypes(true).bulk_from(bulk_from);
    let options = FUNCTIONS.iter().fold(options, |options, function| options.function(*function));
    let attach = Attach::with(&target, options);
    let link = attach.attach(&program)?;
    let attached = link.report().attached().count();
    let sites = || link.report().functions.iter().flat_map(|function| &function.sites);
    let refused: Vec<String> = sites()
        .filter_map(|site| match &site.outcome {
            Outcome::Skipped(reason @ Reason::Kernel { .. }) => {
                Some(format!("{}+{:#x}: {reason}", site.symbol, site.offset))
            }
            _ => None,
        })
        .collect();
    if refused.len() != 1 || attached < 2 {
        return Err(format!("{attached} attached, refused by the kernel: {refused:?}\n{}", link.report()).into());
    }
    let before = counters(&object)?;
    call(1)?;
    let fires = counters(&object)? != before;
    link.detach();
    let after = counters(&object)?;
    call(1)?;
    match (fires, counters(&object)? == after) {
        (true, true) => Ok(format!("{attached} attached; {}", refused.concat())),
        (fires, quiet) => Err(format!("fires when attached: {fires}; quiet after: {quiet}").into()),
    }
}

fn complete_leaves_nothing() -> Result<Shown, Failure> {
    let (target, object) = (target()?, load()?);
    let program = object.progs().find(|program| program.name() == "read0").ok_or("no program read0")?;
    let mut shown = Shown::default();
    for bulk_from in [1, usize::MAX] {
        let before = armed()?;
        let options = AttachOptions::default().policy(Policy::Complete).all_prototypes(true).bulk_from(bulk_from);
        let options = FUNCTIONS.iter().fold(options, |options, function| options.function(*function));
        let attach = Attach::with(&target, options);
        // What the kernel refuses is found out by attaching. Elsewhere something else is in the way already.
        let is_planned = attach.plan(&program).is_ok();
        let text = match attach.attach(&program) {
            Ok(link) => return Err(format!("it is attached:\n{}", link.report()).into()),
            Err(error) => with_causes(&error),
        };
        if !text.contains(FUNCTIONS[1]) || is_planned && !text.contains("the kernel refused") {
            return Err(format!("the refusal does not say what the kernel refused: {text}").into());
        }
        shown.text = text.lines().next().unwrap_or_default().to_owned();
        if !is_planned {
            shown.differences.push(format!("refused before the kernel was asked: {}", shown.text));
        }
        let counted = counters(&object)?;
        call(1)?;
        if counters(&object)? != counted {
            return Err("it was refused, and fires".into());
        }
        // Definitions that were made are removed in the background.
        let begin = std::time::Instant::now();
        while armed()? != before {
            if begin.elapsed().as_secs() > 240 {
                return Err(format!("armed before: {before:?}; four minutes after: {:?}", armed()?).into());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    Ok(shown)
}
