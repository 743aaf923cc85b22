// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where the kernel's text cannot be read, sites are not compared with it, and that is told.

use super::refuse::{Refused, refuse};
use crate::guest::case::{Capability, Failure, need};
use siteseer::internals::function::Candidate;
use siteseer::{SourceOptions, Target};
use std::thread;

/// A function with inlined copies whose code the site data has.
const FUNCTION: &str = "ns_capable";
/// `BPF_PROG_TEST_RUN`, include/uapi/linux/bpf.h
const TEST_RUN: u32 = 10;
const NOTE: &str = "the code at the sites was not compared with the site data";

/// The obstacles at the function's sites, and what is said about the site data.
fn look_up() -> Result<(Vec<String>, Vec<String>), Failure> {
    let target = Target::running(&SourceOptions::default())?;
    let function = target.function(FUNCTION)?;
    let obstacle = |site: &Candidate| site.obstacle.as_ref().map_or(String::new(), ToString::to_string);
    Ok((function.candidates.iter().map(obstacle).collect(), target.notes_of_data().collect()))
}

// Proves S2.18.
pub(super) fn unread_text_is_told(target: &Target) -> Result<String, Failure> {
    need(target, Capability::OthersSiteData)?;
    let (sites, notes) = look_up()?;
    if let Some(note) = notes.iter().find(|note| note.contains(NOTE)) {
        return Err(format!("nothing is refused, and it says: {note}").into());
    }
    // What is refused to a thread is refused to nobody else.
    let refused = thread::scope(|scope| {
        let looking = thread::Builder::new().spawn_scoped(scope, || {
            refuse(&[Refused { call: libc::SYS_bpf, argument: Some((0, TEST_RUN)), errno: libc::EPERM }])?;
            look_up().map_err(|error| std::io::Error::other(error.to_string()))
        });
        looking.map_err(Failure::from)?.join().map_err(|_| "it panicked")?.map_err(Failure::from)
    })?;
    let said = refused.1.iter().find(|note| note.contains(NOTE)).ok_or_else(|| format!("it says: {:?}", refused.1))?;
    if refused.0 != sites {
        return Err(format!("the sites are {:?}, and {sites:?} where text can be read", refused.0).into());
    }
    Ok(said.clone())
}
