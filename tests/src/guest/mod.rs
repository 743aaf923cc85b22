// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What runs in the guest: groups of [cases](case), a file or a folder each, and what they share.
//!
//! * Every group uses [`calls`] (system calls that reach known functions), [`shape`] (whether a kernel has the sites
//!   that a case is about), [`removal`] and `watch`. [`extent`] says which cases run on which kernels, [`known`] which
//!   fail.
//! * What a program sees at its sites: [`truth`], [`typed`], [`fentry`], [`trampolines`], [`context`], [`sharing`],
//!   [`namesakes`], [`lookups`], [`bpf_target`], [`modules`], [`own_data`], [`raw_link`], [`explain`].
//! * What other programs and tools see: [`libbpf`], [`tools`], [`trace_tool`], [`starts`], [`examples`], [`demo`].
//! * What goes wrong: [`refusals`], [`refused`], [`code`], [`denied`], [`faults`], [`killed`], [`soak`].

pub mod bpf_target;
pub mod calls;
pub mod case;
pub mod code;
mod compiled;
pub mod context;
pub mod demo;
pub mod denied;
pub mod examples;
pub mod explain;
pub mod extent;
pub mod faults;
pub mod fentry;
pub(crate) mod inventory;
pub mod jumps;
pub mod killed;
pub mod known;
pub mod libbpf;
pub mod lookups;
pub mod modules;
pub mod namesakes;
pub mod own_data;
pub mod raw_link;
pub mod refusals;
pub mod refused;
pub mod removal;
pub mod shape;
pub mod sharing;
pub mod soak;
pub mod starts;
pub mod tools;
pub mod trace_tool;
pub mod trampolines;
pub mod truth;
pub mod typed;
pub(crate) mod watch;
