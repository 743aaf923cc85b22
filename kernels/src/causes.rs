// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Errors in one line, for those who print them: what `siteseer_sites` has, too. This crate uses none of the others.

/// The text of an error and of all its causes. An error here does not repeat what its `source()` says.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
