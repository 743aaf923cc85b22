// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The conformance suite: what siteseer promises, shown on a booted kernel.
//!
//! * [`guest`]: what runs inside. `cargo test` boots each kernel once and runs the program `siteseer-guest` in it. It
//!   goes through the [cases](guest::case::cases) and reports each as a line of JSON; the harness (`tests/vm.rs`) shows
//!   each as a test of its own. The list of cases is in this library, so that both sides have the same.
//! * [`suite`]: the cases of `tests/cases`, which are modules, expectations and snapshots, and how they are judged.
//! * [`compare`]: siteseer beside plain libbpf, `perf probe` and other tracers, on the same calls.
//! * [`measure`]: what the pages of numbers are made of.
//! * [`install`]: how tests on this machine run siteseer's Makefile.

pub mod compare;
pub mod guest;
pub mod install;
pub mod measure;
pub mod suite;
