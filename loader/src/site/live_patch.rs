// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How a live patch concerns a site.

/// How a live patch concerns a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Concern {
    /// It replaced the function whose entry this is: calls are seen there before they go on in the new code.
    Entry {
        /// The patch.
        patch: String,
    },
    /// It replaced the function that holds the site.
    OldBody {
        /// The patch.
        patch: String,
        /// Whether nothing runs it any more.
        dead: bool,
    },
}
