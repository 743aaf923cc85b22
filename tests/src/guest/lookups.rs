// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Lookups that ask the kernel of a few symbols find what lookups in all of its symbols find.
//!
//! A target that has read no symbols yet looks a name up by those of the site data, each confirmed by the kernel; one
//! that has read them all, by its table. Both are asked the same names.

use crate::guest::case::{Capability, Case, Failure, case, need};
use crate::guest::modules::Loaded;
use siteseer::internals::function::{Candidate, Function};
use siteseer::internals::section::Wanted;
use siteseer::sites::CodeSum;
use siteseer::sites::subset::SubsetWriter;
use siteseer::{SourceOptions, Target, TargetError};

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("lookups", name, run);
    vec![
        // Proves S2.16.
        case("a_part_of_the_symbols_says_what_all_say", a_part_says_what_all_say),
        case("so_it_does_of_a_module", of_a_module),
        case("an_unknown_name", unknown),
        case("a_subset_says_what_all_site_data_say", of_a_subset),
    ]
}

/// How many names of the site data the case asks for, at even distances, besides those of other cases.
const NAMES: usize = 500;
/// Functions with a body and copies, with a body alone, and with inlined copies alone.
const KNOWN: [&str; 6] = ["do_getpgid", "vfs_rename", "__bpf_copy_key", "ns_capable", "kfree", "vfs_statfs"];

/// What differs of the candidates that the two ways find. Whether ftrace knows a function matters at its entry alone,
/// and a kernel that lists names (before Linux 6.5) does not say it of a name that several functions have: site data
/// does. Only the whole table tells where a module's text ends.
fn differences(name: &str, part: &Function, all: &Function) -> Vec<String> {
    // A prototype is a number among those of its function.
    let told = |function: &Function, candidate: &Candidate| {
        let prototype = function.prototypes.get(candidate.prototype);
        let candidate = Candidate { traceable: None, ends_module: false, prototype: 0, ..candidate.clone() };
        format!("{candidate:?} {prototype:?}")
    };
    let differ = |(one, other): &(&Candidate, &Candidate)| {
        let traced = one.traceable == other.traceable || other.traceable.is_none() || !one.is_entry();
        !traced || told(part, one) != told(all, other)
    };
    let counts = (part.candidates.len(), all.candidates.len());
    let mut found: Vec<String> = part
        .candidates
        .iter()
        .zip(&all.candidates)
        .filter(differ)
        .map(|(part, all)| format!("{name}: by a part {part:?}, by all {all:?}"))
        .collect();
    if counts.0 != counts.1 {
        found.push(format!("{name}: {} sites by a part, {} by all", counts.0, counts.1));
    }
    found
}

/// Where the kernel has data of its own, all symbols are read first.
fn a_part_says_what_all_say(target: &Target) -> Result<String, Failure> {
    need(target, Capability::OthersSiteData)?;
    let names: Vec<String> = target.data().read(&[], |file| {
        let all: Vec<&str> = file.function_names().collect();
        let chosen = all.iter().step_by((all.len() / NAMES).max(1)).copied();
        chosen.chain(KNOWN).map(str::to_owned).collect()
    })?;
    let by_part = compare(&names)?;
    if by_part * 10 < names.len() * 9 {
        return Err(format!("only {by_part} of {} names were found without reading all symbols", names.len()).into());
    }
    Ok(format!("{by_part} of {} names without reading all symbols", names.len()))
}

/// With a module loaded that has site data.
fn of_a_module(target: &Target) -> Result<String, Failure> {
    need(target, Capability::OthersSiteData)?;
    let _module = Loaded::load()?;
    let of_module = ["life_body", "life_copied", "siteseer_life:life_body", "vmlinux:vfs_rename"];
    let names: Vec<String> = KNOWN.iter().chain(&of_module).map(|name| (*name).to_owned()).collect();
    let by_part = compare(&names)?;
    // A part does not tell where a module's text ends.
    if by_part < names.len() && !target.kernel().decodes_past_modules {
        return Err(format!("only {by_part} of {} names were found without reading all symbols", names.len()).into());
    }
    Ok(format!("{by_part} of {} names without reading all symbols", names.len()))
}

/// A subset that is about some functions, made from the running kernel's site data.
pub(crate) fn subset_of(target: &Target, names: &[&str]) -> Result<Vec<u8>, Failure> {
    let mut writer = SubsetWriter::new(names);
    target.data().read(&[], |file| writer.add(file, names.iter().copied()))??;
    Ok(writer.finish()?)
}

/// Without what numbers mean in one file alone.
fn without_numbers(mut function: Function) -> Function {
    function.candidates.iter_mut().for_each(|candidate| (candidate.index, candidate.code) = (None, CodeSum::NONE));
    function.prototypes.iter_mut().for_each(|prototype| prototype.func = prototype.func.map(|_| 0));
    function
}

fn of_a_subset(target: &Target) -> Result<String, Failure> {
    let subset = subset_of(target, &KNOWN)?;
    let bytes = subset.len();
    let of_subset = Target::running(&SourceOptions::default().embedded(subset))?;
    let all = Target::running(&SourceOptions::default())?;
    let mut wrong = Vec::new();
    for name in KNOWN {
        let (found, expected) = (look_up(&of_subset, name)?, look_up(&all, name)?);
        wrong.extend(differences(name, &without_numbers(found), &without_numbers(expected)));
    }
    if let Some(first) = wrong.first() {
        return Err(format!("{} differences; the first: {first}", wrong.len()).into());
    }
    match look_up(&of_subset, "vfs_read") {
        Err(error) if error.to_string().contains("vfs_read") => Ok(format!("{bytes} bytes; {error}")),
        other => Err(format!("a function that it is not about: {other:?}").into()),
    }
}

fn look_up(target: &Target, name: &str) -> Result<Function, siteseer::Error> {
    let found = target.functions(&[Wanted::parse(name)?])?.pop();
    found.ok_or_else(|| TargetError::Unknown { name: name.to_owned(), nearest: Vec::new() }.into())
}

/// Holds the two ways against each other, and says how many names did not take all symbols.
fn compare(names: &[String]) -> Result<usize, Failure> {
    let all = Target::running(&SourceOptions::default())?;
    all.symbols()?;
    let (mut by_part, mut wrong) = (0, Vec::new());
    let mut part = Target::running(&SourceOptions::default())?;
    for name in names {
        match (look_up(&part, name), look_up(&all, name)) {
            (Ok(found), Ok(expected)) => wrong.extend(differences(name, &found, &expected)),
            (Err(found), Err(expected)) if found.to_string() == expected.to_string() => {}
            (found, expected) => wrong.push(format!("{name}: {:?}, {:?}", found.err(), expected.err())),
        }
        if part.has_read_symbols() {
            part = Target::running(&SourceOptions::default())?;
        } else {
            by_part += 1;
        }
    }
    if !wrong.is_empty() {
        return Err(format!("{} differences; the first: {}", wrong.len(), wrong[0]).into());
    }
    Ok(by_part)
}

fn unknown(_: &Target) -> Result<String, Failure> {
    let target = Target::running(&SourceOptions::default())?;
    match target.function("vfs_renames") {
        Err(error) if error.to_string().contains("vfs_rename") && target.has_read_symbols() => Ok(error.to_string()),
        Err(error) => Err(format!("it does not suggest vfs_rename: {error}").into()),
        Ok(_) => Err("there is no such function".into()),
    }
}
