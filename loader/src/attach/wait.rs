// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Waiting until programs that were running at kprobes have ended.
//!
//! Closing the link of an event that stays open takes the program away from it; only newer kernels wait there for those
//! that have begun. They run in a read-side section of RCU, so one grace period is enough. Two system calls wait for
//! one:
//!
//! * membarrier(2), MEMBARRIER_CMD_GLOBAL (kernel/sched/membarrier.c). It is refused where CPUs run without a tick
//!   (nohz_full), and by seccomp.
//! * an update of a map that holds maps (`maybe_wait_bpf_programs()` in kernel/bpf/syscall.c), where the kernel waits
//!   so that no program uses the old element any more.

use crate::bpf::map::{self, Map};
use libbpf_sys as sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Waits until every program that had begun at a kprobe has ended.
///
/// # Errors
/// If neither call is available. Then it has not waited.
pub(crate) fn wait_for_programs() -> io::Result<()> {
    membarrier().or_else(|_| update_map_of_maps())
}

fn membarrier() -> io::Result<()> {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: plain numbers.
    match unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn update_map_of_maps() -> io::Result<()> {
    let inner = Map::plain(sys::BPF_MAP_TYPE_ARRAY, c"siteseer_none", 4, 4, 1).create()?;
    let outer = Map::plain(sys::BPF_MAP_TYPE_ARRAY_OF_MAPS, c"siteseer_wait", 4, 4, 1);
    let outer = Map { inner: Some(inner.as_fd()), ..outer }.create()?;
    map::update(outer.as_fd(), &0u32.to_ne_bytes(), &inner.as_raw_fd().to_ne_bytes())
}

/// What the fallback needs the kernel for is tested in guests; here, that a refusal is not taken for an answer.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_not_a_grace_period() {
        let refused = std::thread::spawn(|| {
            super::super::background::tests::refuse(&[libc::SYS_membarrier, libc::SYS_bpf], libc::EPERM);
            (membarrier().is_err(), wait_for_programs().map_err(|error| error.raw_os_error()))
        });
        assert_eq!(refused.join().unwrap(), (true, Err(Some(libc::EPERM))));
    }
}
