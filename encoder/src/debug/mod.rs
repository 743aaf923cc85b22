// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The debug sections, as far as no function is looked at: what DWARF says, without judging it.
//!
//! `units` opens the sections and the units, `compiler` tells who made a unit, and `filter` which units can hold what
//! is asked for. `walk` visits a unit's functions, inlined copies and parameters; `skip` is the way past what it does
//! not look at. `lines` reads the line table, `loclist` the location lists with their views, and [`cfi`] the call frame
//! information.

pub mod cfi;
pub(crate) mod compiler;
pub(crate) mod filter;
pub(crate) mod lines;
pub(crate) mod loclist;
pub(crate) mod skip;
pub(crate) mod slice;
pub(crate) mod units;
pub(crate) mod walk;
