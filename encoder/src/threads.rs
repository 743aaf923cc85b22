// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The threads that encode.
//!
//! rayon's own pool panics if a thread cannot be created (cgroup pids.max, RLIMIT_NPROC, seccomp). An application that
//! encodes has a limit of its own, so the pool is made here: with as many threads as are wanted, or with the calling
//! thread alone.

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

/// Runs the work with a number of threads, by default as many as there are processors.
///
/// # Errors
/// If not even the calling thread can do it.
pub(crate) fn run<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R, ThreadPoolBuildError> {
    // Within a pool the work is the pool's.
    if threads.is_none() && rayon::current_thread_index().is_some() {
        return Ok(work());
    }
    // 0 is rayon's word for the default.
    match ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build() {
        Ok(pool) => Ok(pool.install(work)),
        Err(_) => alone(work),
    }
}

/// Runs the work in the calling thread.
fn alone<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, ThreadPoolBuildError> {
    let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?;
    Ok(pool.install(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn work_is_done_without_threads() {
        let sum = || (0..1000u64).into_par_iter().sum::<u64>();
        let here = std::thread::current().id();
        assert_eq!(alone(|| (sum(), std::thread::current().id())).unwrap(), (499_500, here));
        assert_eq!(run(Some(2), sum).unwrap(), 499_500);
        // The thread is a pool's from now on, and its work is done there.
        assert_eq!(run(None, sum).unwrap(), 499_500);
    }
}
