// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Numbers: what attaching and hits cost ([`cost`] in the guest, [`mod@bench`] outside), from start to first event
//! ([`startup`]), what is located ([`census`]), the tables of docs/proposal.md ([`proposal`]), and whether each site
//! may be armed ([`armed`]). They write [`tables`] into pages.

pub mod armed;
pub mod bench;
pub mod census;
pub mod cost;
pub mod proposal;
pub mod startup;
pub mod tables;
