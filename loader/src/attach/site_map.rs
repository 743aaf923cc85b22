// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The map by which a program finds out which site it is at.

use super::AttachError;
use crate::bpf::map::{self, Map};
use crate::kernel::Kernel;
use crate::plan::{Decision, Plan};
use crate::trampoline::SiteRecord;
use crate::trampoline::arch::Arch;
use libbpf_sys as sys;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

/// Makes and fills the map. Two copies of a function may begin at one address, one call after the other without an
/// instruction between; the program then runs for each, and is told the later one both times.
pub(super) fn site_map(plan: &Plan, kernel: &Kernel) -> Result<OwnedFd, AttachError> {
    let failed = |error| AttachError::Map { what: "sites", error };
    let mut records: BTreeMap<u64, SiteRecord> = BTreeMap::new();
    for (id, planned) in (plan.first_id..).zip(&plan.sites) {
        if !matches!(planned.decision, Decision::Attach { .. }) {
            continue;
        }
        let site = &planned.site;
        let record = SiteRecord {
            id,
            kind: site.kind as u32,
            address: site.address,
            symbol: site.symbol_address,
            offset: u32::try_from(site.offset()).unwrap_or(u32::MAX),
            reserved: 0,
        };
        records.insert(site.address, record);
        if site.is_entry() {
            records.extend(Arch::of(kernel.machine).entry_addresses(site.address).map(|address| (address, record)));
        }
    }
    let entries = u32::try_from(records.len().max(1)).unwrap_or(u32::MAX);
    let map = Map::plain(sys::BPF_MAP_TYPE_HASH, c"siteseer_sites", 8, size_of::<SiteRecord>() as u32, entries)
        .create()
        .map_err(failed)?;
    for (address, record) in records {
        map::update(map.as_fd(), &address.to_ne_bytes(), &record.to_bytes()).map_err(failed)?;
    }
    Ok(map)
}
