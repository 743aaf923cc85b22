// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs that serve many location prototypes see what programs for one each see.
//!
//! Functions with dozens of location prototypes have their copies in what every system call does, where nobody knows
//! the calls beforehand. So the same sites are attached twice, once in each way: the records of both must be the same,
//! hit by hit. That a program for one location prototype is right, the ground truth shows.

use crate::guest::calls::syscall;
use crate::guest::case::{Case, Failure, Shown, case};
use crate::guest::watch::Watch;
use crate::measure::cost::prototypes::{Prototypes, census};
use siteseer::{Attach, AttachOptions, Policy, Target};
use siteseer_bpf_progs::trace::Record;
use siteseer_sites::SiteKind;
use siteseer_sites::file::{FileError, SiteFile};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::ffi::CString;
use std::io;

/// How many location prototypes a function should have, so that it is not too many sites.
const PROTOTYPES: std::ops::RangeInclusive<usize> = 8..=128;
/// The most sites.
const SITES: usize = 300;
/// How many functions are tried, and of how many there should be hits.
const TRIED: usize = 12;
const WANTED: usize = 2;
/// Functions that [`calls`] lead through, whatever the compiler.
const ON_THE_WAY: [&str; 8] =
    ["do_mmap", "vfs_read", "vfs_write", "path_openat", "do_filp_open", "handle_mm_fault", "seq_read_iter", "do_pipe2"];

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![
        Case { name: "sharing::same_records".to_owned(), run: Box::new(same_records) },
        case("sharing", "thousands_of_prototypes_are_few_programs", few_programs),
    ]
}

/// System calls that go through many parts of the kernel.
pub(crate) fn calls() -> io::Result<()> {
    let path = CString::new("/proc/self/status")?;
    let file = syscall(libc::SYS_openat, [libc::AT_FDCWD as u64, path.as_ptr() as u64, 0, 0, 0, 0])? as u64;
    let mut bytes = [0u8; 512];
    syscall(libc::SYS_read, [file, bytes.as_mut_ptr() as u64, 512, 0, 0, 0])?;
    syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
    let mut pipe = [0i32; 2];
    syscall(libc::SYS_pipe2, [pipe.as_mut_ptr() as u64, 0, 0, 0, 0, 0])?;
    syscall(libc::SYS_write, [pipe[1] as u64, bytes.as_ptr() as u64, 64, 0, 0, 0])?;
    pipe.iter().try_for_each(|&end| syscall(libc::SYS_close, [end as u64, 0, 0, 0, 0, 0]).map(drop))?;
    let memory = syscall(libc::SYS_mmap, [0, 1 << 16, 3, 0x22, u64::MAX, 0])? as u64;
    // SAFETY: the mapping has just been made, writable, and is ours.
    unsafe { (memory as *mut u8).write_volatile(1) };
    syscall(libc::SYS_munmap, [memory, 1 << 16, 0, 0, 0, 0])?;
    Ok(())
}

/// The records without what differs between two programs at one hit.
fn seen(watch: &Watch) -> Result<Vec<Record>, Failure> {
    let mut records = watch.records()?;
    for record in &mut records {
        (record.time, record.cpu) = (0, 0);
    }
    Ok(records)
}

fn same_records(target: &Target) -> Result<Shown, Failure> {
    let functions = target.data().read(&[], many_on_the_way)??;
    let mut shown = Vec::new();
    for function in functions.iter().take(TRIED) {
        let options = AttachOptions::default().max_sites(usize::MAX).function(function).policy(Policy::BestEffort);
        let options = options.all_prototypes(true);
        let attach = |beyond| Attach::with(target, options.clone().share_beyond(beyond));
        let together = Watch::load()?;
        let Ok(shared) = together.attach(&attach(1)) else { continue };
        calls()?;
        // Functions that nothing comes to, and those that reading the records comes to, again and again.
        if together.records().map_or(true, |records| records.is_empty()) {
            continue;
        }
        let apart = Watch::load()?;
        let plain = apart.attach(&attach(usize::MAX))?;
        // Attaching the other made calls, too.
        together.forget()?;
        apart.forget()?;
        together.records()?;
        calls()?;
        let (ours, others) = (seen(&together)?, seen(&apart)?);
        together.has_all()?;
        apart.has_all()?;
        let (few, many) = (shared.programs(), plain.programs());
        if let Some(at) = (0..ours.len().max(others.len())).find(|&at| ours.get(at) != others.get(at)) {
            let (ours, others) = (ours.get(at), others.get(at));
            return Err(format!("{}: hit {at}: shared {ours:?}, apart {others:?}", function).into());
        }
        if few >= many {
            return Err(format!("{}: {few} programs in place of {many}", function).into());
        }
        shown.push(format!("{}: {} hits, {few} programs in place of {many}", function, ours.len()));
        if shown.len() == WANTED {
            break;
        }
    }
    let differences = if shown.is_empty() { vec!["none of the functions is hit".to_owned()] } else { Vec::new() };
    Ok(Shown { text: shown.join("; "), differences })
}

/// Functions with many location prototypes, those with the most copies in functions that the calls lead through first.
fn many_on_the_way(file: &SiteFile<'_>) -> Result<Vec<String>, FileError> {
    let fits = |function: &Prototypes| PROTOTYPES.contains(&function.prototypes) && function.sites <= SITES;
    let names: HashSet<String> = census(file)?.into_iter().filter(fits).map(|function| function.function).collect();
    let mut scored = Vec::new();
    for function in file.all_functions() {
        let function = function?;
        if !names.contains(function.name()) {
            continue;
        }
        let mut on_the_way = 0;
        for site in function.sites() {
            let site = site?;
            let within = site.container().map_or("", |container| container.name);
            on_the_way += usize::from(site.kind() == Some(SiteKind::Inline) && ON_THE_WAY.contains(&within));
        }
        if on_the_way > 0 {
            scored.push((Reverse(on_the_way), function.name().to_owned()));
        }
    }
    scored.sort();
    Ok(scored.into_iter().map(|(_, name)| name).collect())
}

/// The function with the most location prototypes, planned as it comes.
fn few_programs(target: &Target) -> Result<String, Failure> {
    let functions = target.data().read(&[], census)??;
    let most = functions.iter().max_by_key(|function| function.prototypes).ok_or("no functions")?;
    let watch = Watch::load()?;
    let options = AttachOptions::default().max_sites(usize::MAX).function(&most.function).policy(Policy::BestEffort);
    let report = Attach::with(target, options.all_prototypes(true)).plan(&watch.program()?)?.report();
    let text = format!("{}: {} prototypes, {} programs", most.function, report.trampolines, report.programs);
    if report.trampolines > 300 && report.programs * 20 < report.trampolines { Ok(text) } else { Err(text.into()) }
}
