// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The formats for inlined copies that were proposed before the LOC kinds, for comparison: what each can express, and
//! in how many bytes. `ci/proposal` compares them on whole kernels. Nothing else uses them.

pub mod april_2025;
pub mod conference_2024;
