// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! siteseer beside others, on the same calls: libbpf-tools with it and without it ([`clients`]), other tracers
//! ([`compared`]), what `perf probe` finds ([`differential`]), and what plain fentry cannot reach ([`reach`]).

pub mod clients;
pub mod compared;
pub mod differential;
pub mod reach;
