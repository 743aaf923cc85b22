// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The target of all programs that libbpf's own calls load and attach: read once, and again when modules or live
//! patches come and go.
//!
//! A failure is kept for the process, until [`super::register_with`] sets where site data is: to find out that there
//! are none takes as long as to find some.

use super::{RegisterError, options, warn};
use crate::forked::ForkLock;
use crate::kernel::symbols::SymbolsError;
use crate::target::{Target, TargetError};
use std::fs;
use std::path::Path;
use std::sync::Arc;

enum Shared {
    Read { of: Vec<u8>, target: Arc<Target> },
    Failed(Arc<TargetError>),
}

static SHARED: ForkLock<Option<Shared>> = ForkLock::new(|| None);

/// What says that the kernel's text is another.
fn fingerprint() -> Vec<u8> {
    // Names, sizes and addresses; reference counts go up and down.
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    let mut of: Vec<u8> = Vec::new();
    for line in modules.lines() {
        let word = |nth| line.split_whitespace().nth(nth).unwrap_or_default();
        for word in [word(0), word(1), word(4), word(5)] {
            of.extend_from_slice(word.as_bytes());
            of.push(b' ');
        }
    }
    let mut patches: Vec<_> = fs::read_dir("/sys/kernel/livepatch")
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    patches.sort();
    for patch in patches {
        let read = |file: &str| fs::read(Path::new(&patch).join(file)).unwrap_or_default();
        of.extend_from_slice(patch.as_os_str().as_encoded_bytes());
        of.extend(read("enabled"));
        of.extend(read("transition"));
    }
    of
}

/// The running kernel, as it is now.
pub(super) fn target() -> Result<Arc<Target>, RegisterError> {
    let options = options();
    let mut shared = SHARED.lock();
    if let Some(Shared::Failed(error)) = shared.as_ref() {
        return Err(RegisterError::Earlier(Arc::clone(error)));
    }
    let of = fingerprint();
    if let Some(Shared::Read { of: before, target }) = shared.as_ref()
        && *before == of
    {
        return Ok(Arc::clone(target));
    }
    match Target::running(&options.source) {
        Ok(target) => {
            let target = Arc::new(target);
            *shared = Some(Shared::Read { of, target: Arc::clone(&target) });
            Ok(target)
        }
        // Another moment may be a better one.
        Err(error @ TargetError::Symbols(SymbolsError::Restless)) => Err(error.into()),
        Err(error) => {
            let error = Arc::new(error);
            *shared = Some(Shared::Failed(Arc::clone(&error)));
            Err(RegisterError::Earlier(error))
        }
    }
}

/// Reads it again when it is next asked for.
pub(super) fn forget() {
    *SHARED.lock() = None;
    warn::again();
}
