// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sums of the code at sites: the running kernel has that code, and sites that were moved are found out by it.
//!
//! The harness writes site data in which ten thousand copies are somewhere else ([`moved`]), with right checksums, as
//! whoever wants to deceive would write it. What cannot be read is not compared, and would pass as what fits: that
//! these sites are found out shows that the text is read, on each kernel.

use crate::guest::case::{Capability, Case, Failure, case, need};
use siteseer::internals::function::Candidate;
use siteseer::internals::section::Wanted;
use siteseer::sites::file::FileError;
use siteseer::sites::{SiteKind, SiteSet};
use siteseer::{Reason, SourceOptions, Target};
use siteseer_encoder::Encoded;
use siteseer_encoder::elf::image::Image;
use siteseer_encoder::text::{FunctionText, Known};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where the harness puts the site data with moved sites.
pub const FILE: &str = "/siteseer/moved.sites";
/// How many sites are moved.
const MOVED: usize = 10_000;
/// Names that are looked up at once.
const AT_ONCE: usize = 2000;
/// Every so many names are a part of them.
const PART: usize = 16;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, run| case("code", name, run);
    vec![
        // Proves S2.18.
        case("the_kernel_has_it_at_sites", |target| has_it(target, PART)),
        case("the_kernel_has_it_at_every_site", |target| has_it(target, 1)),
        case("ten_thousand_moved_sites_are_refused", |_| moved_sites()),
    ]
}

/// Random numbers, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 33) % end.max(1)
    }
}

/// Keeps ten thousand inlined copies, and puts each somewhere else: to another instruction of the symbol that holds it,
/// into the middle of one, out of the symbol, and into another symbol that is then said to hold it.
///
/// # Errors
/// If the image cannot be read, or has too few sites.
pub fn moved(encoded: &mut Encoded, image: &[u8]) -> Result<(), String> {
    let image = Image::parse(image).map_err(|error| error.to_string())?;
    let SiteSet { sites, containers, sections, .. } = &mut encoded.set;
    let code = encoded.code.as_deref().ok_or("the code was not summed")?;
    let mut numbers = Numbers(1);
    let text = sections.iter().position(|section| section.name == ".text").ok_or("no .text")?;
    let extent = |of: &siteseer::sites::set::Container| of.address..of.address + of.size;
    let of_text = sections[text].address..sections[text].address + sections[text].size;
    let targets: Vec<u32> =
        (0u32..).zip(&*containers).filter(|(_, one)| of_text.contains(&one.address)).map(|(nth, _)| nth).collect();
    let is_meant = |site: &siteseer::sites::Site| {
        let range = extent(&containers[site.container as usize]);
        site.kind == SiteKind::Inline
            && usize::from(site.section) == text
            && site.unprobeable.is_none()
            && range.end - range.start >= 64
    };
    let meant: Vec<usize> = (0..sites.len()).filter(|&nth| is_meant(&sites[nth])).collect();
    // Some cannot be moved as they should.
    let step = (meant.len() / (2 * MOVED)).max(1);
    let (mut kept, mut sums) = (Vec::new(), Vec::new());
    for &nth in meant.iter().step_by(step) {
        let mut site = sites[nth];
        let own = extent(&containers[site.container as usize]);
        let kind = kept.len() % 4;
        let other = targets[numbers.below(targets.len() as u64) as usize];
        let range: Range<u64> = if kind < 2 { own.clone() } else { extent(&containers[other as usize]) };
        let decoded = FunctionText::decode(&image, std::slice::from_ref(&range), &Known::default());
        let boundaries: Vec<u64> = decoded.addresses().collect();
        let place = match kind {
            1 => range.start + numbers.below(range.end - range.start),
            _ => match boundaries.len() {
                0 => continue,
                len => boundaries[numbers.below(len as u64) as usize],
            },
        };
        let wanted = match kind {
            0 => place != site.address,
            1 => !decoded.is_boundary(place),
            _ => !own.contains(&place),
        };
        if !wanted {
            continue;
        }
        (site.address, site.moved, site.parent) = (place, 0, None);
        if kind == 3 {
            site.container = other;
        }
        kept.push(site);
        sums.push(code[nth]);
        if kept.len() == MOVED {
            break;
        }
    }
    if kept.len() < MOVED {
        return Err(format!("only {} sites were moved", kept.len()));
    }
    (*sites, encoded.code) = (kept, Some(sums));
    Ok(())
}

/// The described candidates of the functions that have sites in a target's data, each `step` names.
fn described(target: &Target, step: usize, mut each: impl FnMut(&Candidate)) -> Result<(), Failure> {
    let names = target.data().read(&[], |file| -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        for function in file.all_functions() {
            let function = function?;
            if function.sites().next().is_some() {
                names.push(function.name().to_owned());
            }
        }
        names.dedup();
        Ok(names.into_iter().step_by(step).collect())
    })??;
    // What is in a module is not meant.
    let wanted: Vec<Wanted> =
        names.into_iter().map(|name| Wanted { module: Some("vmlinux".to_owned()), function: Some(name) }).collect();
    // All symbols are read once, and not asked for name by name.
    target.symbols()?;
    for wanted in wanted.chunks(AT_ONCE) {
        for function in target.functions(wanted)? {
            function.candidates.iter().filter(|site| site.described).for_each(&mut each);
        }
    }
    Ok(())
}

fn has_it(target: &Target, step: usize) -> Result<String, Failure> {
    need(target, Capability::OthersSiteData)?;
    let (mut known, mut unknown, mut refused) = (0, 0, 0);
    let mut wrong = Vec::new();
    described(target, step, |site| match &site.obstacle {
        Some(Reason::CodeDiffers) => wrong.push(format!("{}+{:#x}", site.symbol, site.offset())),
        Some(_) => refused += 1,
        None if site.code.is_empty() => unknown += 1,
        None => known += 1,
    })?;
    if !wrong.is_empty() || known < 10 * unknown {
        let some = &wrong[..wrong.len().min(20)];
        return Err(format!("{known} sites fit, {unknown} are not known, {} do not fit: {some:?}", wrong.len()).into());
    }
    Ok(format!("{known} sites fit; {unknown} are not known; {refused} cannot be probed"))
}

fn moved_sites() -> Result<String, Failure> {
    let target = Target::running(&SourceOptions::default().file(FILE))?;
    let mut by_reason: BTreeMap<&'static str, usize> = BTreeMap::new();
    let (mut all, mut unknown, mut left) = (0, 0, 0);
    described(&target, 1, |site| {
        all += 1;
        match &site.obstacle {
            Some(reason) => *by_reason.entry(reason.key()).or_default() += 1,
            None if site.code.is_empty() => unknown += 1,
            None => left += 1,
        }
    })?;
    let text =
        format!("{all} sites: {by_reason:?}; at {unknown} the code is not known, {left} are where it is the same");
    let differs = by_reason.get("code_differs").copied().unwrap_or(0);
    // A sum is of a few bytes in some places, and of none in a hundredth of them.
    let is_right = all == MOVED && differs > all / 2 && unknown + left < all / 50 && left < all / 500;
    if is_right { Ok(text) } else { Err(text.into()) }
}
