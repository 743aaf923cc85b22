// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How the debug information gives each site and its arguments: told to who measures how far it can be trusted.
//!
//! Site data does not say it: what is known to be doubtful is marked there, and the rest is for programs to read. An
//! instrument that counts wrong values needs it, since which values are wrong depends on the form in which they are
//! given.

use siteseer_sites::SiteKind;

/// A site, as soon as it is made.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'s> {
    /// Name of the function.
    pub function: &'s str,
    /// What the site is.
    pub kind: SiteKind,
    /// Address of the probe.
    pub address: u64,
    /// The step of the source, of those at this address, at which it begins: the view of GCC's debug information.
    /// Copies of one function that begin at one address are calls in this order.
    pub step: u32,
    /// For each parameter, how the debug information gives it at the entry: `constant` (`DW_AT_const_value`),
    /// `expression` (one for all addresses), `list` (an entry that covers the address), `view` (one that holds at a
    /// view alone), `late` (one that begins a view after the entry), `entry value`, or `nothing`: what is located all
    /// the same was found by moving the probe, or is where the calling convention puts it.
    pub forms: &'s [&'static str],
}

/// Called with each site, from any thread.
pub type Observer<'o> = &'o (dyn Fn(&Observed<'_>) + Sync);
