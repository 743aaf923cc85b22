// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Locks for what a process has once, which a forked child never finds locked.
//!
//! fork(2) copies the thread that calls it, and no other one. A lock that another thread held at this moment is locked
//! in the child for ever: `std::sync::Mutex` waits for a thread that is not there. Applications fork with threads, and
//! ours are among these. pthread_atfork(3) would require an order of all locks, and does not see clone(2).
//!
//! So each value belongs to the process that made it. A child that comes to a value of another process takes it over if
//! its lock is free. If the lock is held, nobody knows how far the holder came in changing the value: the child leaves
//! it alone, and begins with a fresh one.

use std::process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value of a process, under a lock.
pub(crate) struct ForkLock<T: 'static> {
    /// From `Box::leak`, or null before the first use. What it pointed to before is never freed: another thread may use
    /// it.
    current: AtomicPtr<Owned<T>>,
    fresh: fn() -> T,
}

struct Owned<T> {
    process: u32,
    value: Mutex<T>,
}

impl<T: Send + 'static> ForkLock<T> {
    pub(crate) const fn new(fresh: fn() -> T) -> ForkLock<T> {
        ForkLock { current: AtomicPtr::new(ptr::null_mut()), fresh }
    }

    /// Locks the value of this process. A value that a thread left by a panic is as it left it.
    pub(crate) fn lock(&'static self) -> MutexGuard<'static, T> {
        loop {
            let here = process::id();
            let found = self.current.load(Ordering::Acquire);
            // SAFETY: null, or from `Box::leak` below.
            let theirs: Option<&'static Owned<T>> = unsafe { found.as_ref() };
            if let Some(own) = theirs.filter(|owned| owned.process == here) {
                return own.value.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let own = Box::into_raw(Box::new(Owned { process: here, value: Mutex::new((self.fresh)()) }));
            // SAFETY: it was made just now, and is freed below only if nobody else has seen it.
            let value: &'static Mutex<T> = unsafe { &(*own).value };
            // Locked before others see it: they wait until it has what is taken over.
            let mut guard = value.lock().unwrap_or_else(PoisonError::into_inner);
            if self.current.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire).is_err() {
                drop(guard);
                // SAFETY: from `Box::into_raw`, and not in `current`.
                drop(unsafe { Box::from_raw(own) });
                continue;
            }
            if let Some(theirs) = theirs
                && let Ok(mut former) = theirs.value.try_lock()
            {
                std::mem::swap(&mut *guard, &mut *former);
            }
            return guard;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serial_test::serial;
    use std::sync::mpsc;
    use std::thread;

    /// Whether a child ends well that is forked while another thread has what `hold` gives. Tests that call it are
    /// `serial`: as long as the child lives, it has what other tests have open, and their locks.
    pub(crate) fn child_ends<G: 'static>(hold: fn() -> G, child: impl FnOnce() -> bool) -> bool {
        let (held, is_held) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            let _guard = hold();
            held.send(()).unwrap();
            is_done.recv().unwrap_or_default();
        });
        is_held.recv().unwrap();
        // SAFETY: the child ends by _exit(2), or by a signal if it waits for what will not come. What it allocates, the
        // C library provides for.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: plain calls.
            unsafe {
                libc::alarm(20);
                libc::_exit(if child() { 7 } else { 1 });
            }
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        drop(done);
        holder.join().unwrap();
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
    }

    static NUMBERS: ForkLock<Vec<u32>> = ForkLock::new(Vec::new);

    #[test]
    #[serial]
    fn a_child_begins_afresh_if_its_parent_held_the_lock_and_takes_over_if_not() {
        NUMBERS.lock().push(1);
        let fresh = || {
            let seen = NUMBERS.lock().len();
            NUMBERS.lock().push(2);
            seen == 0 && NUMBERS.lock().len() == 1
        };
        assert!(child_ends(|| NUMBERS.lock(), fresh));
        assert!(child_ends(|| (), || *NUMBERS.lock() == [1]));
        assert_eq!(*NUMBERS.lock(), [1]);
    }

    #[test]
    fn threads_have_one_value() {
        static COUNT: ForkLock<u32> = ForkLock::new(|| 0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1000).for_each(|_| *COUNT.lock() += 1));
            }
        });
        assert_eq!(*COUNT.lock(), 8000);
    }
}
