// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Hits that the kernel does not handle, because the processor handles another kprobe: it counts them, and siteseer
//! tells the number.

use crate::entry;
use crate::guest::calls::syscall;
use crate::guest::case::{Capability, Failure, choose};
use crate::guest::killed::counters;
use crate::guest::shape::{Place, Shape, site};
use crate::guest::typed::{load, program_of, record};
use libbpf_rs::ObjectBuilder;
use siteseer::{Attach, AttachOptions, Target};
use siteseer_bpf_progs::{BLOOM, set_constant};

/// How often another program hashes a value, and how often each calls jhash().
const CALLS: u64 = 5;
const HASHES: u64 = 3;

// Proves S12.4.
pub(super) fn hits_inside_of_another_kprobe_are_counted(target: &Target) -> Result<String, Failure> {
    choose(target, &[Shape::new("jhash", [site(Place::Inline).within("hash")])], Shape::clone)?;
    let object = load(std::process::id())?;
    let mut open = ObjectBuilder::default().open_memory(BLOOM)?;
    set_constant(&mut open, BLOOM, "only_tgid", std::process::id())?;
    let bloom = open.load()?;
    let pushed = || -> Result<u64, Failure> {
        let bytes = counters(&bloom)?;
        Ok(u64::from_ne_bytes(bytes.get(..8).ok_or("a short .bss")?.try_into()?))
    };
    let _other = program_of(&bloom, "nested")?.attach_kprobe(false, entry!("getppid"))?;
    // Probes of tracefs events have always been counted; those of perf events, since Linux 6.7.
    let mut ways = vec![("events of tracefs", AttachOptions::default().bulk_from(1))];
    if Capability::MissCounts.is_had(target) {
        ways.push(("perf events", AttachOptions::default().bulk(false)));
    }
    for (way, options) in &ways {
        let link = Attach::with(target, options.clone().function("jhash")).attach(&program_of(&object, "count")?)?;
        let before = (link.missed()?, pushed()?);
        let seen = record(&object, || (0..CALLS).try_for_each(|_| syscall(libc::SYS_getppid, [0; 6]).map(drop)))?;
        let after = (link.missed()?, pushed()?);
        let found = (seen.len(), after.1 - before.1, after.0 - before.0);
        if found != (0, CALLS, CALLS * HASHES) {
            return Err(format!("{way}: seen, hashed and missed: {found:?}, of {CALLS} calls").into());
        }
    }
    let ways: Vec<&str> = ways.iter().map(|(way, _)| *way).collect();
    Ok(format!("{} hits inside of another kprobe, all counted as missed, by {}", CALLS * HASHES, ways.join(" and by ")))
}
