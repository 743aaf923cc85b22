// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The sites in functions with the same code as another function, and without a debug entry for what is inlined.
//!
//! Each is as the other function's is: their code finds the same in the same registers and slots. So they are made
//! when that function's are settled.

use crate::unit::{CopiedSite, UnitSites, rescue};
use hashbrown::HashMap;
use siteseer_sites::Site;

/// Adds a unit's.
pub(super) fn add(unit: &mut UnitSites<'_>) {
    let copied = std::mem::take(&mut unit.copied);
    for of_function in copied.chunk_by(|one, other| one.function == other.function) {
        let numbers: HashMap<u32, u32> =
            of_function.iter().map(|copied| copied.site).zip(unit.sites.len() as u32..).collect();
        for copied in of_function {
            let site = &unit.sites[copied.site as usize];
            // The rest of a split function has no site.
            let mut around = std::iter::successors(site.parent, |&parent| unit.sites[parent as usize].parent);
            let parent = around.find_map(|parent| numbers.get(&parent).copied());
            let &CopiedSite { address, section, container, unprobeable, .. } = copied;
            let copy = Site { address, section, container, unprobeable, parent, ..*site };
            if let Some(refusal) = unit.refusal(copied.site).copied()
                && unprobeable.is_none_or(rescue::is_of_instruction)
            {
                let from_probe = refusal.address.wrapping_sub(site.address);
                unit.refused.push((unit.sites.len() as u32, refusal.at(address.wrapping_add(from_probe))));
            }
            unit.sites.push(copy);
        }
    }
}
