// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The conformance suite: what siteseer promises, shown on a booted kernel.
//!
//! `cargo test` boots each kernel once and runs the program `siteseer-guest` in it, which goes through the
//! [cases](case::cases) and reports each as a line of JSON; the harness (`tests/vm.rs`) shows each as a test of its
//! own. The list of cases is in this library, so that both sides have the same.

pub mod bench;
pub mod bpf_target;
pub mod calls;
pub mod case;
pub mod census;
pub mod clients;
pub mod compared;
mod compiled;
pub mod context;
pub mod cost;
pub mod demo;
pub mod denied;
pub mod differential;
pub mod examples;
pub mod explain;
pub mod faults;
pub mod fentry;
pub mod killed;
pub mod known;
pub mod libbpf;
pub mod lookups;
pub mod modules;
pub mod namesakes;
pub mod own_data;
pub mod proposal;
pub mod raw_link;
pub mod reach;
pub mod refusals;
pub mod refused;
pub mod removal;
pub mod shape;
pub mod sharing;
pub mod starts;
pub mod startup;
pub mod suite;
pub mod tools;
pub mod trace_tool;
pub mod trampolines;
pub mod truth;
pub mod typed;
mod watch;
