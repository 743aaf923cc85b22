// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Places where the kernel accepts a probe, and a program there can stop the kernel or runs for itself.
//!
//! What the kernel refuses by itself (notrace, the kprobe blacklist, `.noinstr.text`) has no line here; that covers the
//! way from a hit to the program, and in newer kernels the ring buffers. What counts is where a site is, not which
//! function it is a copy of: thousands of copies of rcu_read_lock() are harmless, and one is not.
//!
//! A site is refused for one of these reasons unless the caller allows it: whoever names a busy function does not know
//! that one of its copies is here, and a warning is of no use on a machine that hangs. A body that plain libbpf would
//! attach to by fentry is attached under [`Policy::AtLeastLibbpf`](super::Policy::AtLeastLibbpf).

use crate::kernel::Kernel;
use crate::site::candidate::Candidate;

/// Why programs should not be there.
struct Risk {
    /// Symbols of the image that hold such sites.
    symbols: &'static [&'static str],
    /// The reason, after `a program there is a risk: `.
    why: &'static str,
    /// The Linux release that no longer has the problem.
    until: Option<(u32, u32)>,
}

const RISKS: [Risk; 2] = [
    // kernel/bpf/trampoline.c, kernel/trace/bpf_trace.c. The kernel's own list for fentry is `btf_id_deny` in
    // kernel/bpf/verifier.c.
    Risk {
        symbols: &[
            "__rcu_read_lock",
            "__rcu_read_unlock",
            "migrate_disable",
            "migrate_enable",
            "preempt_count_add",
            "preempt_count_sub",
            "rcu_read_unlock_strict",
        ],
        why: "the kernel calls this function before or after every BPF program, so that each run of any program would lead to \
              another hit; the kernel refuses fentry here for this reason",
        until: None,
    },
    // kernel/bpf/ringbuf.c: `__bpf_ringbuf_reserve()` calls the first with rb->spinlock held, and the second ends with
    // it held. Since 6.15 it is an rqspinlock, which notices.
    Risk {
        symbols: &["_raw_spin_unlock_irqrestore", "native_queued_spin_lock_slowpath", "queued_spin_lock_slowpath"],
        why: "it also runs while another program holds the lock of a ring buffer; before Linux 6.15, a program here that \
              writes to the same ring buffer waits forever",
        until: Some((6, 15)),
    },
];

/// Why a program should not be at a site.
pub(super) fn of(site: &Candidate, kernel: &Kernel) -> Option<&'static str> {
    if site.module.is_some() || site.bpf.is_some() {
        return None;
    }
    // Clones do what the function does.
    let symbol = site.symbol.split('.').next()?;
    let is_mended =
        |risk: &Risk| risk.until.is_some_and(|until| release(&kernel.release).is_some_and(|now| now >= until));
    RISKS.iter().find(|risk| risk.symbols.contains(&symbol) && !is_mended(risk)).map(|risk| risk.why)
}

/// The first two numbers of a release. That of an image is not known.
fn release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map_while(|word| word.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_numbers() {
        assert_eq!(release("6.12.107+deb13-cloud-amd64"), Some((6, 12)));
        assert_eq!(release("7.3"), Some((7, 3)));
        assert_eq!(release("6.15-rc1"), Some((6, 15)));
        assert_eq!(release(""), None);
    }

    #[test]
    fn no_symbol_has_two_risks() {
        let mut all: Vec<&str> = RISKS.iter().flat_map(|risk| risk.symbols).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
