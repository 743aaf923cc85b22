// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Numbers: what attaching and hits cost ([`cost`] in the guest, [`bench`] outside), from start to first event
//! ([`startup`]), what is located ([`census`]), and the tables of docs/proposal.md ([`proposal`]).

pub mod bench;
pub mod census;
pub mod cost;
pub mod proposal;
pub mod startup;
