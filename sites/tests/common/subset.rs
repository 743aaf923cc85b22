// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Asks for everything that a subset offers, over some BTF. Errors are fine. Shared by the property tests and the fuzz
//! target.

use siteseer_sites::SiteSet;
use siteseer_sites::subset::{Subset, SubsetError};

/// The sets of all of its images; the first error if there is one.
pub(crate) fn exercise_subset(data: &[u8], btf: &[u8]) -> Result<Vec<SiteSet>, SubsetError> {
    let subset = Subset::parse(data)?;
    let mut first_error = None;
    let mut sets = Vec::new();
    if let Err(error) = subset.asked() {
        first_error.get_or_insert(error);
    }
    for image in subset.images().take(1000) {
        let set = image.and_then(|image| {
            let _ = image.module_kernel()?;
            let found = subset.find(image.build_id())?;
            assert!(found.is_some_and(|found| found.build_id() == image.build_id()) || subset.len() > 1);
            image.site_set(btf, None)
        });
        match set {
            Ok(set) => sets.push(set),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(sets),
    }
}

/// Makes the checksums right again, as docs/format.md says they are, as far as the file can be understood.
pub(crate) fn reseal_subset(data: &mut [u8]) {
    let _ = try_reseal(data);
}

fn try_reseal(data: &mut [u8]) -> Option<()> {
    let word = |data: &[u8], at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?) as usize)
    };
    let header = word(data, 12)?;
    let sums = word(data, 16 + 10 * 8)?;
    let blocks: Vec<u8> = data.get(header..sums)?.chunks(4096).flat_map(|b| crc32fast::hash(b).to_le_bytes()).collect();
    let rest = data.get_mut(sums.checked_add(4)?..)?;
    let len = rest.len().min(blocks.len());
    rest[..len].copy_from_slice(&blocks[..len]);
    let mut first = crc32fast::Hasher::new();
    first.update(data.get(..header)?);
    first.update(data.get(sums + 4..)?);
    data[sums..sums + 4].copy_from_slice(&first.finalize().to_le_bytes());
    Some(())
}
