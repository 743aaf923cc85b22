// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The formats that were proposed, for one kernel: how many bytes they have, what they can express, and how long writing them and
//! finding a function in them lasts. All of them need the types of functions that were inlined everywhere; these are a row of
//! their own.

use flate2::Compression;
use flate2::write::GzEncoder;
use siteseer_sites::btf::{Btf, TypeId};
use siteseer_sites::earlier::{april_2025, conference_2024};
use siteseer_sites::file::{self, Image, SiteFile};
use siteseer_sites::location::Argument;
use siteseer_sites::{Location, SiteKind, SiteSet};
use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

/// The header of [`rows`].
pub const HEADER: [&str; 8] =
    ["kernel", "format", "bytes", "gzip -9", "sites", "arguments", "written in", "all copies of one function found in"];

/// Which locations a format can express.
fn arguments(set: &SiteSet, can: impl Fn(&Argument) -> bool) -> usize {
    let of_prototype: Vec<usize> =
        set.prototypes.iter().map(|prototype| prototype.iter().filter(|&argument| can(argument)).count()).collect();
    set.sites
        .iter()
        .filter(|site| site.kind == SiteKind::Inline)
        .map(|site| of_prototype.get(site.prototype as usize).copied().unwrap_or_default())
        .sum()
}

fn is_in_upstreams_kinds(argument: &Argument) -> bool {
    argument.as_ref().is_ok_and(|located| !matches!(located.at, Location::Computed(_)))
}

fn is_in_april_2025(argument: &Argument) -> bool {
    let lacks = |location: &Location| matches!(location, Location::Computed(_) | Location::RegisterPair(..));
    argument.as_ref().is_ok_and(|located| !lacks(&located.at))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = black_box(work());
    (result, start.elapsed())
}

fn compressed(data: &[u8]) -> std::io::Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data)?;
    Ok(encoder.finish()?.len())
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

fn upstream_copies(inline: &[u8], base: &Btf<'_>, set: &SiteSet, func: TypeId) -> Result<usize, Box<dyn Error>> {
    let image = Image {
        machine: set.machine,
        build_id: set.build_id.clone(),
        base_address: Some(set.base),
        sections: set.sections.clone(),
    };
    let file = SiteFile::from_inline(inline, base, image)?;
    let mut found = 0;
    for function in file.all_functions() {
        let function = function?;
        if function.func() == func {
            for site in function.sites() {
                black_box(site?.arguments()?);
                found += 1;
            }
        }
    }
    Ok(found)
}

/// A row for each format.
///
/// # Errors
/// If a format cannot be written, or its reader does not find what was written.
pub fn rows(kernel: &str, set: &SiteSet) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let base = Btf::parse(&set.base_btf)?;
    let types = set.types.to_bytes();
    let function = most_copied(set);
    let func = set.functions.get(function as usize).map_or(0, |function| function.func);
    let inline = set.sites.iter().filter(|site| site.kind == SiteKind::Inline).count();
    let copies = set.sites.iter().filter(|site| site.kind == SiteKind::Inline && site.function == function).count();

    let (upstream, upstream_written) = timed(|| file::write_raw(set));
    let upstream = upstream?;
    let (upstream_found, upstream_read) = timed(|| upstream_copies(&upstream, &base, set, func));
    let (april, april_written) = timed(|| april_2025::write(set));
    let (april_found, april_read) =
        timed(|| april_2025::read(&april).map(|all| all.iter().filter(|instance| instance.callee == func).count()));
    let (conference, conference_written) = timed(|| conference_2024::write(set));
    let (upstream_found, april_found) = (upstream_found?, april_found?);
    if upstream_found < copies || april_found < copies {
        return Err(format!("{copies} copies were written, {upstream_found} and {april_found} found").into());
    }

    let row =
        |name: &str, data: &[u8], arguments: Option<usize>, written: Option<Duration>, found: Option<Duration>| {
            let milliseconds = |time: Option<Duration>| {
                time.map_or("-".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1000.0))
            };
            let sites = arguments.map_or("-".to_owned(), |_| inline.to_string());
            Ok::<_, std::io::Error>(vec![
                kernel.to_owned(),
                name.to_owned(),
                data.len().to_string(),
                compressed(data)?.to_string(),
                sites,
                arguments.map_or("-".to_owned(), |arguments| arguments.to_string()),
                milliseconds(written),
                milliseconds(found),
            ])
        };
    let all = arguments(set, Argument::is_ok);
    Ok(vec![
        row("types that only inlined functions use, needed by all", &types, None, None, None)?,
        row(
            "LOC kinds (upstream), with these types",
            &upstream,
            Some(arguments(set, is_in_upstreams_kinds)),
            Some(upstream_written),
            Some(upstream_read),
        )?,
        row(
            ".BTF.inline of April 2025",
            &april,
            Some(arguments(set, is_in_april_2025)),
            Some(april_written),
            Some(april_read),
        )?,
        row("conference of 2024, locations as text", &conference, Some(all), Some(conference_written), None)?,
    ])
}
