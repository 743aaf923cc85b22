// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! When tracing has to turn from the records to something else, and when it ends.
//!
//! libbpf's poll does not return while records come, and of a busy function they come faster than they are printed. So
//! whoever takes a record asks here whether to go on, and the poll is left when it is time.

use crate::Failure;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For how long records are taken before anything else is looked at.
pub(super) const TURN: Duration = Duration::from_millis(50);

/// How often modules that come and go are looked for, and numbers printed.
const SECOND: Duration = Duration::from_secs(1);

/// Set by the signal handler.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: nix::libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// Has ctrl-C, a polite kill and a terminal that goes away end the loop instead of the process, so that what is known
/// about losses is still printed. A second one ends the process.
pub(super) fn stop_on_signals() -> Result<(), Failure> {
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::SA_RESETHAND, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: The handler only stores to an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// How far tracing has come.
pub(super) struct Pace {
    stop: &'static AtomicBool,
    deadline: Option<Instant>,
    /// When this turn began.
    begun: Cell<Instant>,
    /// When the last second was over.
    looked: Cell<Instant>,
}

impl Pace {
    /// Until a signal comes, or that much time has passed.
    pub(super) fn new(duration: Option<Duration>) -> Pace {
        let now = Instant::now();
        let deadline = duration.and_then(|duration| now.checked_add(duration));
        Pace { stop: &STOP, deadline, begun: Cell::new(now), looked: Cell::new(now) }
    }

    /// Begins a turn, and gives how long a poll may wait in it.
    pub(super) fn begin(&self) -> Duration {
        let now = Instant::now();
        self.begun.set(now);
        let left = self.deadline.map_or(TURN, |deadline| deadline.saturating_duration_since(now));
        // The kernel's clock counts milliseconds, and a poll of none would not wait at all.
        left.clamp(Duration::from_millis(1), TURN)
    }

    /// Whether tracing has to end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether a second has passed since this was last true, and tracing goes on.
    pub(super) fn is_second_over(&self) -> bool {
        let is_over = self.looked.get().elapsed() >= SECOND && !self.is_over();
        if is_over {
            self.looked.set(Instant::now());
        }
        is_over
    }

    /// Whether the turn is over.
    pub(super) fn has_turned(&self) -> bool {
        self.is_over() || self.begun.get().elapsed() >= TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A poll as libbpf's: it returns when there is no record, or when the callback says so. Here there always is one:
    /// if the poll is not left, the test does not end.
    fn poll_busy(pace: &Pace) {
        let _ = pace.begin();
        while !pace.has_turned() {}
    }

    #[test]
    fn a_poll_is_left_though_records_come() {
        static NONE: AtomicBool = AtomicBool::new(false);
        let endless = Pace { stop: &NONE, ..Pace::new(None) };
        poll_busy(&endless);
        assert!(endless.begun.get().elapsed() >= TURN, "a turn is not cut short");
        assert!(!endless.is_over());
        let begin = Instant::now();
        let short = Pace { stop: &NONE, ..Pace::new(Some(Duration::from_millis(120))) };
        while !short.is_over() {
            poll_busy(&short);
        }
        assert!(begin.elapsed() >= Duration::from_millis(120), "the whole duration is waited for");
        assert!(short.begin() <= Duration::from_millis(1));
    }

    #[test]
    fn a_signal_ends_it() {
        static STOPPED: AtomicBool = AtomicBool::new(false);
        let pace = Pace { stop: &STOPPED, ..Pace::new(Some(Duration::MAX)) };
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                STOPPED.store(true, Ordering::Relaxed);
            });
            while !pace.is_over() {
                poll_busy(&pace);
            }
        });
        assert!(pace.is_over());
    }
}
