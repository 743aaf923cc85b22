// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What is promised when the kernel or the machine does not do what it usually does: a system call that waits is
//! refused, a kprobe is hit while another one is handled, a processor is off. docs/reliability.md has the list.

mod cpus;
mod missed;
mod refuse;
mod text;
mod waits;

use crate::guest::case::{Case, case};
pub(crate) use cpus::Off;
use std::io;

/// All cases of this group.
pub fn cases() -> Vec<Case> {
    vec![
        case("faults", "detaching_waits_without_membarrier", waits::detaching_waits_without_membarrier),
        case("faults", "hits_inside_of_another_kprobe_are_counted", missed::hits_inside_of_another_kprobe_are_counted),
        case("faults", "counts_are_exact_while_a_processor_is_off", cpus::off_and_on),
        case("faults", "attaching_without_the_first_processor", cpus::without_the_first),
        case("faults", "unread_text_is_told", text::unread_text_is_told),
    ]
}

/// Keeps a thread (0: this one), and those that it starts, to a processor.
pub(crate) fn keep_to(thread: libc::pid_t, cpu: usize) -> io::Result<()> {
    // SAFETY: the set is plain bits, of the size that is said.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        match libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
