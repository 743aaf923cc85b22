// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Many files side by side, within a bound of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How many files are encoded side by side, and how much memory they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jobs {
    /// At most so many.
    pub count: usize,
    /// Bytes, for all of them together. A file that would take more is encoded alone.
    pub memory: u64,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs { count: thread::available_parallelism().map_or(1, usize::from), memory: 1 << 30 }
    }
}

/// What a module takes while it is encoded, whatever its size: its kernel's types and their index. And for each of its
/// bytes; most of them are debug information.
const EACH: u64 = 64 << 20;
const PER_BYTE: u64 = 4;

/// Files that are not done yet, and what is being taken.
struct State {
    next: usize,
    done: u64,
    taken: u64,
}

impl Jobs {
    /// Calls for each file, and tells now and then how many are done. The results are in the order of the files.
    pub(crate) fn each<R: Send>(
        self,
        files: &[PathBuf],
        with: impl Fn(&Path) -> R + Sync,
        done: impl Fn(u64),
    ) -> Vec<R> {
        let state = Mutex::new(State { next: 0, done: 0, taken: 0 });
        let changed = Condvar::new();
        let count = self.count.clamp(1, files.len().max(1));
        let worker = |tell: &dyn Fn(u64)| {
            let mut results = Vec::new();
            loop {
                let mut own = lock(&state);
                let Some(path) = files.get(own.next) else { return results };
                let nth = own.next;
                own.next += 1;
                let size = fs::metadata(path).map_or(0, |about| about.len());
                let takes = EACH.saturating_add(size.saturating_mul(PER_BYTE));
                while own.taken > 0 && own.taken.saturating_add(takes) > self.memory {
                    own = changed.wait(own).unwrap_or_else(PoisonError::into_inner);
                }
                own.taken += takes;
                drop(own);
                results.push((nth, with(path)));
                let mut own = lock(&state);
                own.taken -= takes;
                own.done += 1;
                changed.notify_all();
                let done = own.done;
                drop(own);
                tell(done);
            }
        };
        let mut results: Vec<(usize, R)> = thread::scope(|scope| {
            let others: Vec<_> = (1..count).map(|_| scope.spawn(|| worker(&|_| ()))).collect();
            let mut results = worker(&done);
            for other in others {
                results.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        results.sort_by_key(|(nth, _)| *nth);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_are_done_within_the_bound() {
        let files: Vec<PathBuf> = (0..50).map(|nth| PathBuf::from(nth.to_string())).collect();
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let with = |path: &Path| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(std::time::Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
            path.to_owned()
        };
        for (jobs, bound) in [
            (Jobs { count: 4, memory: u64::MAX }, 4),
            (Jobs { count: 4, memory: 2 * EACH }, 2),
            (Jobs { count: 4, memory: 1 }, 1),
        ] {
            most.store(0, Ordering::SeqCst);
            assert_eq!(jobs.each(&files, with, |done| assert!(done <= 50)), files);
            assert!(most.load(Ordering::SeqCst) <= bound, "{jobs:?}");
        }
        assert!(Jobs::default().each(&[], with, |_| {}).is_empty());
    }
}
