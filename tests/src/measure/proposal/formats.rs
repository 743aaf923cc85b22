// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The formats that were proposed, for one kernel: how many bytes they have, what they can express, and how long
//! writing them and finding a function in them lasts.
//!
//! All rows have one basis. The formats are written from the same sites: inlined copies, with the locations that are
//! certain. Each row has the types that only inlined functions use, which are also a row of their own. What a format
//! expresses is counted by reading back what was written.

use super::compressed;
use siteseer_sites::btf::{Btf, TypeId};
use siteseer_sites::earlier::{april_2025, conference_2024};
use siteseer_sites::file::{self, Image, SiteFile};
use siteseer_sites::location::{Argument, Missing};
use siteseer_sites::{Site, SiteKind, SiteSet};
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The header of [`rows`].
pub const HEADER: [&str; 8] =
    ["kernel", "format", "bytes", "gzip -9", "sites", "arguments", "written in", "all copies of one function found in"];

/// What all formats are given: the inlined copies of a set, and of their arguments' locations the certain ones. No
/// format has a word for doubt, and only upstream's has out-of-line copies.
fn common(set: &SiteSet) -> SiteSet {
    let mut common = set.clone();
    common.sites.retain(|site| site.kind == SiteKind::Inline);
    common.sites.iter_mut().for_each(|site| site.parent = None);
    let doubtful = |argument: &&mut Argument| argument.as_ref().is_ok_and(|located| !located.is_certain());
    for prototype in &mut common.prototypes {
        prototype.iter_mut().filter(doubtful).for_each(|argument| *argument = Err(Missing::Unknown));
    }
    common
}

/// How often something is done to time it. The fastest one counts: what else the machine does only adds to it.
const ROUNDS: usize = 5;

fn timed<T>(mut work: impl FnMut() -> T) -> (T, Duration) {
    let mut least = Duration::MAX;
    let mut once = || {
        let start = Instant::now();
        let result = black_box(work());
        least = least.min(start.elapsed());
        result
    };
    let mut result = once();
    for _ in 1..ROUNDS {
        result = once();
    }
    (result, least)
}

/// The function with the most inlined copies.
fn most_copied(set: &SiteSet) -> u32 {
    let mut copies = vec![0usize; set.functions.len()];
    for site in set.sites.iter().filter(|site| site.kind == SiteKind::Inline) {
        if let Some(copies) = copies.get_mut(site.function as usize) {
            *copies += 1;
        }
    }
    let most = copies.iter().enumerate().max_by_key(|(_, copies)| **copies);
    most.map_or(0, |(function, _)| function as u32)
}

/// What is read back of a format.
#[derive(Debug, Default)]
struct Found {
    sites: usize,
    arguments: usize,
}

impl Found {
    fn add(&mut self, located: impl Iterator<Item = bool>) {
        self.sites += 1;
        self.arguments += located.filter(|is_located| *is_located).count();
    }
}

/// A format: its data, how long writing it lasted, how long finding all copies of one function lasts, and how many it
/// found.
struct Format {
    name: &'static str,
    data: Vec<u8>,
    written: Duration,
    searched: Duration,
    copies: usize,
    all: Found,
}

fn upstream(set: &SiteSet, base: &Btf<'_>, func: TypeId) -> Result<Format, Box<dyn Error>> {
    let (data, written) = timed(|| file::write_raw(set));
    let data = data?;
    let image = Image {
        machine: set.machine,
        build_id: set.build_id.clone(),
        base_address: Some(set.base),
        sections: set.sections.clone(),
    };
    let search = || -> Result<usize, Box<dyn Error>> {
        let file = SiteFile::from_inline(&data, base, image.clone())?;
        let mut copies = 0;
        for function in file.all_functions() {
            let function = function?;
            if function.func() == func {
                for site in function.sites() {
                    black_box(site?.arguments()?);
                    copies += 1;
                }
            }
        }
        Ok(copies)
    };
    let (copies, searched) = timed(search);
    let copies = copies?;
    let mut all = Found::default();
    for site in SiteFile::from_inline(&data, base, image.clone())?.sites() {
        all.add(site?.arguments()?.iter().map(Argument::is_ok));
    }
    Ok(Format { name: "LOC kinds (upstream)", data, written, searched, copies, all })
}

fn april(set: &SiteSet, func: TypeId) -> Result<Format, Box<dyn Error>> {
    let (data, written) = timed(|| april_2025::write(set));
    let search = || april_2025::read(&data).map(|all| all.iter().filter(|copy| copy.callee == func).count());
    let (copies, searched) = timed(search);
    let copies = copies?;
    let mut all = Found::default();
    april_2025::read(&data)?.iter().for_each(|copy| all.add(copy.parameters.iter().map(Option::is_some)));
    Ok(Format { name: ".BTF.inline of April 2025", data: with_types(data, set), written, searched, copies, all })
}

fn conference(set: &SiteSet, func: TypeId) -> Result<Format, Box<dyn Error>> {
    let (data, written) = timed(|| conference_2024::write(set));
    let search = || conference_2024::open(&data, set.types.end_id()).and_then(|sites| sites.copies(func));
    let (copies, searched) = timed(search);
    let copies = copies?.len();
    let mut all = Found::default();
    let copy = |copy: &conference_2024::Inlined<'_>| all.add(copy.locations.iter().map(|text| !text.is_empty()));
    conference_2024::open(&data, set.types.end_id())?.all()?.iter().for_each(copy);
    let name = "conference of 2024, locations as text";
    Ok(Format { name, data: with_types(data, set), written, searched, copies, all })
}

/// Adds the types that the data refers to. Upstream's data has them already.
fn with_types(mut data: Vec<u8>, set: &SiteSet) -> Vec<u8> {
    data.extend_from_slice(&set.types.to_bytes());
    data
}

/// A row for each format, and one for the types that all of them need.
///
/// # Errors
/// If a format cannot be written, or its reader does not find what was written.
pub fn rows(kernel: &str, set: &SiteSet) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let base = Btf::parse(&set.base_btf)?;
    let function = most_copied(set);
    let func = set.functions.get(function as usize).map_or(0, |function| function.func);
    let set = &common(set);
    // Functions of one name and prototype share a FUNC.
    let of_func = |site: &&Site| set.functions.get(site.function as usize).is_some_and(|its| its.func == func);
    let copies = set.sites.iter().filter(of_func).count();
    let types = set.types.to_bytes();
    let cells = |name: &str, data: &[u8], rest: [String; 4]| -> Result<Vec<String>, Box<dyn Error>> {
        let own = [kernel.to_owned(), name.to_owned(), data.len().to_string(), compressed(data)?.to_string()];
        Ok(own.into_iter().chain(rest).collect())
    };
    let none = || "-".to_owned();
    let mut rows = vec![cells("types that only inlined functions use", &types, [none(), none(), none(), none()])?];
    for format in [upstream(set, &base, func)?, april(set, func)?, conference(set, func)?] {
        let Format { name, ref data, written, searched, all, .. } = format;
        if (all.sites, format.copies) != (set.sites.len(), copies) {
            let (sites, found) = (set.sites.len(), format.copies);
            return Err(format!("{name}: {} of {sites} sites, {found} of {copies} copies found", all.sites).into());
        }
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
        let rest = [all.sites.to_string(), all.arguments.to_string(), milliseconds(written), milliseconds(searched)];
        rows.push(cells(&format!("{name}, with these types"), data, rest)?);
    }
    Ok(rows)
}
