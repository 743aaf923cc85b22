// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Words for a site: where it is, what its arguments are, and why a program does not run there. Plain data, about no
//! kernel and no program in particular.

pub(crate) mod bpf;
pub mod candidate;
pub(crate) mod live_patch;
pub mod reason;
pub mod refusal;
pub(crate) mod shown;
pub mod unavailable;
