// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! A kernel that a test needs.

use std::env;

use crate::record::{KernelPaths, cached};

/// Says that tests which need a kernel may be left out when it is not there.
const SKIP_VARIABLE: &str = "SITESEER_SKIP_VM";

/// A kernel that a test needs is not in the cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel {name} is not in the cache, and this test needs it: run `ci/kernel {name}`, or set {SKIP_VARIABLE}=1 to leave such tests out"
)]
pub struct Absent {
    /// The kernel's name.
    pub name: String,
    /// Whether the environment says that the test may be left out.
    pub may_skip: bool,
}

/// The kernel of this name for a test. A test that cannot run must say so: it fails with [`Absent`]'s words, unless
/// `SITESEER_SKIP_VM` is set (and not to `0`), which [`Absent::may_skip`] tells.
///
/// # Errors
/// If it is not in the cache.
pub fn for_test(name: &str) -> Result<KernelPaths, Absent> {
    cached(name).ok_or_else(|| Absent {
        name: name.to_owned(),
        may_skip: env::var_os(SKIP_VARIABLE).is_some_and(|value| !value.is_empty() && value != "0"),
    })
}
