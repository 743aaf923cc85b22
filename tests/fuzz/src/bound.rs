// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How much memory an input may take: 64 MB and 8 times its size.
//!
//! libFuzzer looks at the memory of the whole process, which holds the corpus too, once in a while. Here each
//! allocation is counted, and the one that goes beyond the bound ends the process with the stack that asked for it. The
//! most that an input took, of memory and of time, is printed at the end, as libFuzzer prints its statistics.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const FIXED: usize = 64 << 20;
const PER_BYTE: usize = 8;

/// Bytes that are allocated, and how many there may be.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The most that was allocated at once since the input at hand came.
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The most of any input, in bytes and in microseconds.
static MOST_BYTES: AtomicUsize = AtomicUsize::new(0);
static MOST_TIME: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grow(by: usize) {
    let live = LIVE.fetch_add(by, Relaxed).saturating_add(by);
    PEAK.fetch_max(live, Relaxed);
    let limit = LIMIT.load(Relaxed);
    if live > limit {
        // The report allocates as well.
        LIMIT.store(usize::MAX, Relaxed);
        let stack = Backtrace::force_capture();
        eprintln!("an allocation of {by} bytes: {live} in all, and {limit} are the bound\n{stack}");
        std::process::abort();
    }
}

// SAFETY: all is the system allocator's; it is only counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size.saturating_sub(layout.size()));
        LIVE.fetch_sub(layout.size().saturating_sub(size), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

extern "C" fn print() {
    eprintln!("stat::peak_input_bytes: {}", MOST_BYTES.load(Relaxed));
    eprintln!("stat::slowest_input_us: {}", MOST_TIME.load(Relaxed));
}

/// Microseconds of processor time that this process has used: the machine may do other things as well.
fn time_used() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Runs a target's code for an input of so many bytes. Ends the process if it allocates more than it may.
pub fn bounded(len: usize, run: impl FnOnce()) {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        // SAFETY: the function may be called at any time. Without it nothing is printed.
        unsafe { libc::atexit(print) };
    });
    let before = LIVE.load(Relaxed);
    LIMIT.store(before.saturating_add(FIXED + PER_BYTE * len), Relaxed);
    PEAK.store(before, Relaxed);
    let start = time_used();
    run();
    MOST_TIME.fetch_max(time_used().saturating_sub(start), Relaxed);
    MOST_BYTES.fetch_max(PEAK.load(Relaxed).saturating_sub(before), Relaxed);
    LIMIT.store(usize::MAX, Relaxed);
}
