// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Faults on purpose: what looks for faults is believed only if it finds these.
//!
//! The kernel makes them itself (CONFIG_LKDTM, Documentation/fault-injection/provoke-crashes.rst). They come in one
//! boot, each after a line of the kernel's log, and the last one ends it. A guest that goes away, and one that does
//! nothing any more, have a boot each.

use super::mark;
use crate::guest::calls::fork;
use crate::guest::case::Failure;
use siteseer_vmtest::splat;
use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

/// A fault.
pub struct Fault {
    /// Its name in `provoke-crash/DIRECT`.
    crashpoint: &'static str,
    /// Texts. For each, the kernel's log must have a splat that contains it.
    found: &'static [&'static str],
    /// How long the kernel may take to notice.
    seconds: u64,
}

const fn fault(crashpoint: &'static str, found: &'static [&'static str], seconds: u64) -> Fault {
    Fault { crashpoint, found, seconds }
}

/// Lockdep ends with the first fault that it cannot go on after, so its own comes first. Tasks that hang are not
/// reported after a process died in the kernel.
pub const FAULTS: [Fault; 9] = [
    fault("SPINLOCKUP", &["lock held when returning to user space"], 2),
    fault("WARNING", &["WARNING:"], 2),
    fault("ARRAY_BOUNDS", &["UBSAN:"], 2),
    fault("WRITE_AFTER_FREE", &["KASAN:"], 2),
    fault("HUNG_TASK", &["INFO: task "], 25),
    fault("BUG", &["kernel BUG at"], 2),
    fault("EXCEPTION", &["Oops"], 2),
    fault("SOFTLOCKUP", &["soft lockup", "rcu: INFO:"], 60),
    fault("PANIC", &["Kernel panic - not syncing"], 10),
];

/// Another fault: the guest goes away, without a message.
pub const GONE: &str = "gone";
/// Another fault: the guest does nothing any more.
pub const STILL: &str = "still";

/// What the log has before a fault.
const PLANTED: &str = "planted";

/// What the guest does: all [`FAULTS`], or the one that is named.
///
/// # Errors
/// If it is still there.
pub fn run(what: Option<&str>) -> Result<(), Failure> {
    match what {
        Some(GONE) => {
            // SAFETY: it needs no memory, and does not return.
            unsafe { libc::reboot(libc::RB_AUTOBOOT) };
        }
        Some(STILL) => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        _ => {
            for (file, seconds) in [
                ("/proc/sys/kernel/hung_task_timeout_secs", "5"),
                ("/proc/sys/kernel/hung_task_check_interval_secs", "2"),
                ("/proc/sys/kernel/watchdog_thresh", "5"),
                ("/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout", "5"),
            ] {
                fs::write(file, seconds).map_err(|error| format!("{file}: {error}"))?;
            }
            for fault in &FAULTS {
                mark(&format!("{PLANTED} {}", fault.crashpoint))?;
                provoke(fault.crashpoint)?;
                // A processor that is stuck is noticed by RCU if somebody waits for it.
                wait_for_rcu()?;
                thread::sleep(Duration::from_secs(fault.seconds));
            }
        }
    }
    Err("a fault that was planted has not ended the guest".into())
}

/// Has a process of its own do something that may not return.
fn apart(work: impl FnOnce()) -> io::Result<()> {
    fork(|| {
        work();
        0
    })?;
    Ok(())
}

/// On the second processor, so that this one can go on; the last fault comes when that is stuck.
fn provoke(crashpoint: &'static str) -> io::Result<()> {
    let processor = usize::from(FAULTS.last().is_none_or(|last| last.crashpoint != crashpoint));
    apart(|| {
        // SAFETY: the set lives through the call.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(processor, &mut one);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one);
        }
        // What it does to this process is in the kernel's log.
        let _ = fs::write("/sys/kernel/debug/provoke-crash/DIRECT", crashpoint);
    })
}

/// Waits for a grace period.
fn wait_for_rcu() -> io::Result<()> {
    apart(|| {
        // SAFETY: a system call without memory.
        unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    })
}

/// Which of [`FAULTS`] a console does not show as splats. What follows a fault's line, up to the next one, is its own.
pub fn missed(console: &str) -> Vec<String> {
    let line = |fault: &Fault| format!("siteseer: {PLANTED} {}", fault.crashpoint);
    let mut missed = Vec::new();
    for (nth, fault) in FAULTS.iter().enumerate() {
        let after = console.split_once(&line(fault)).map_or("", |(_, after)| after);
        let own = FAULTS.get(nth + 1).and_then(|next| after.split_once(&line(next))).map_or(after, |(own, _)| own);
        let splats = splat::find(own);
        for text in fault.found {
            if !splats.iter().any(|splat| splat.text.contains(text)) {
                missed.push(format!("{} ({text})", fault.crashpoint));
            }
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_counts_where_it_was_planted() {
        let mut console = String::new();
        for fault in &FAULTS {
            console += &format!("[    1.000000] siteseer: planted {}\n", fault.crashpoint);
            for text in fault.found {
                console += &format!("[    1.000001] BUG: {text}\n[    1.000002] ---[ end trace 0 ]---\n");
            }
        }
        assert_eq!(missed(&console), Vec::<String>::new());
        let silent = console.replace("BUG: KASAN:", "fine");
        assert_eq!(missed(&silent), ["WRITE_AFTER_FREE (KASAN:)"]);
        let exchanged = console.replace("planted BUG", "planted nothing");
        assert_eq!(missed(&exchanged), ["BUG (kernel BUG at)"], "not those of another place");
        assert_eq!(missed("").len(), FAULTS.iter().map(|fault| fault.found.len()).sum::<usize>());
    }
}
