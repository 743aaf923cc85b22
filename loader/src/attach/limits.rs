// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How many files may be open: one per site and one per trampoline are needed.
//!
//! The limit is the application's. It is raised where it is too low, as long as there are links, and is what it was
//! when the last of them is gone, unless somebody else has set it meanwhile. (While they are there, a lower limit
//! would keep the application from opening anything: it bounds the numbers of descriptors, and the links have taken
//! the low ones.)

use super::AttachError;
use crate::forked::ForkLock;
use procfs::process::Process;
use std::io;
use std::sync::MutexGuard;

/// Left for everything else that the process may want to open meanwhile.
const SPARE: u64 = 64;

/// What was done to the limit.
struct State {
    /// How many links there are.
    holders: usize,
    /// What it was, and what it was raised to last.
    raised: Option<(Limit, Limit)>,
}

static STATE: ForkLock<State> = ForkLock::new(|| State { holders: 0, raised: None });

fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// The soft limit and the hard one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    soft: u64,
    hard: u64,
}

impl Limit {
    fn current() -> io::Result<Limit> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structure lives through the call.
        match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
            0 => Ok(Limit { soft: limit.rlim_cur, hard: limit.rlim_max }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn set(self) -> io::Result<()> {
        let limit = libc::rlimit { rlim_cur: self.soft, rlim_max: self.hard };
        // SAFETY: as above.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Keeps the limit raised.
#[derive(Debug)]
pub(crate) struct KeptFiles(());

impl KeptFiles {
    /// As long as the result lives.
    pub(super) fn keep() -> KeptFiles {
        state().holders += 1;
        KeptFiles(())
    }
}

impl Drop for KeptFiles {
    fn drop(&mut self) {
        let mut state = state();
        state.holders = state.holders.saturating_sub(1);
        if state.holders == 0
            && let Some((before, raised)) = state.raised.take()
            && Limit::current().is_ok_and(|now| now == raised)
        {
            // Lower is always allowed.
            let _ = before.set();
        }
    }
}

/// Raises the limit on open files, if it is too low for so many more.
pub(super) fn raise_files(more: u64) -> Result<(), AttachError> {
    let open = Process::myself().and_then(|process| process.fd_count()).map_or(SPARE, |count| count as u64);
    let needed = open + more + SPARE;
    let mut state = state();
    let Ok(now) = Limit::current() else { return Ok(()) };
    if now.soft >= needed {
        return Ok(());
    }
    let raised = Limit { soft: needed, hard: now.hard.max(needed) };
    raised.set().map_err(|error| AttachError::Files { needed, limit: now.hard, error })?;
    // What somebody else has set since is what it was.
    let before = state.raised.filter(|(_, last)| *last == now).map_or(now, |(before, _)| before);
    state.raised = Some((before, raised));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serial_test::serial;

    /// The limits that a process sees while there are links, and after that; in a process of its own.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child works on its own limits, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let code = i32::from(!child());
                // SAFETY: ends the child.
                unsafe { libc::_exit(code) }
            }
            pid => {
                let mut status = 0;
                // SAFETY: a child of this process.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }

    #[test]
    #[serial]
    fn the_limit_is_what_it_was_when_the_last_link_is_gone() {
        assert!(in_child(|| {
            *state() = State { holders: 0, raised: None };
            let hard = Limit::current().map_or(0, |limit| limit.hard);
            let own = Limit { soft: 200, hard };
            if own.set().is_err() {
                return false;
            }
            let soft = || Limit::current().map_or(0, |limit| limit.soft);
            let (one, two) = (KeptFiles::keep(), KeptFiles::keep());
            let raised = raise_files(300).is_ok() && soft() >= 364 && raise_files(400).is_ok() && soft() >= 464;
            drop(one);
            let kept = soft() >= 464;
            drop(two);
            raised && kept && Limit::current().is_ok_and(|now| now == own)
        }));
    }

    #[test]
    #[serial]
    fn a_forked_child_keeps_files() {
        assert!(crate::forked::tests::child_ends(state, || {
            let kept = KeptFiles::keep();
            let counted = state().holders == 1;
            drop(kept);
            counted && raise_files(0).is_ok()
        }));
    }

    #[test]
    #[serial]
    fn a_limit_that_the_application_set_stays() {
        assert!(in_child(|| {
            *state() = State { holders: 0, raised: None };
            let hard = Limit::current().map_or(0, |limit| limit.hard);
            let set = |soft| Limit { soft, hard }.set().is_ok();
            let ready = set(200);
            let one = KeptFiles::keep();
            let raised = raise_files(300).is_ok() && set(900);
            drop(one);
            ready && raised && Limit::current().is_ok_and(|now| now.soft == 900)
        }));
    }
}
