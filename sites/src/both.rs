// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Two things at once, if a second thread can be created.
//!
//! A library has no say in how many threads there may be (cgroup pids.max, RLIMIT_NPROC, seccomp). Without a second
//! one, one thing is done after the other.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// The results of two functions, which run at once if they can.
pub fn both<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    both_by(one, other, thread::Builder::new())
}

fn both_by<A, B: Send>(one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send, builder: thread::Builder) -> (A, B) {
    // A thread that does not come to be drops what it was to run: that must be no more than the way to it.
    let other = Mutex::new(Some(other));
    let run_other = || other.lock().unwrap_or_else(PoisonError::into_inner).take().map(|other| other());
    thread::scope(|scope| {
        let spawned = builder.spawn_scoped(scope, run_other).ok();
        let one = one();
        let there = spawned.and_then(|spawned| spawned.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let Some(second) = there.or_else(run_other) else { unreachable!("it ran neither there nor here") };
        (one, second)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_run_with_and_without_a_thread() {
        assert_eq!(both(|| 1, || "two"), (1, "two"));
        let here = thread::current().id();
        // No system has room for such a stack.
        let no_thread = thread::Builder::new().stack_size(1 << 62);
        let (one, other) = both_by(|| thread::current().id(), || thread::current().id(), no_thread);
        assert_eq!((one, other), (here, here));
    }
}
