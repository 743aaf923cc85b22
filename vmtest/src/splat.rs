// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! Splats: what a kernel prints when something in it went wrong.
//!
//! The kernel goes on after most of them, so a test passes on a kernel that has just reported a broken list or a
//! lock held too long. So the console is searched for them. What programs print is not meant, though: a test may well
//! say "BUG:" about something. Kernel messages are told by their time stamp (the host asks for `printk.time=1`), which
//! may follow a program's unfinished line; only the few texts that nobody prints by accident count anywhere.
//!
//! A splat is the matching line and those that follow it, up to its end marker or [`MAX_LINES`], so that the report
//! says what happened. Further matches inside are part of it (a warning, its "Call Trace:").

/// The most lines kept of one splat.
pub const MAX_LINES: usize = 80;

/// One splat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splat {
    /// Which pattern matched.
    pub pattern: &'static str,
    /// The matching line and those after it.
    pub text: String,
}

/// How a pattern is looked for.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// At the start of a kernel message. Boot messages have these words in the middle without being a splat:
    /// "RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable".
    Start,
    /// Anywhere in a kernel message.
    Within,
    /// Anywhere on the console.
    Anywhere,
}

/// Texts, by their source: kernel/panic.c, lib/bug.c, lib/dump_stack.c, arch/*/kernel/{dumpstack,traps}.c,
/// kernel/locking/lockdep.c, kernel/rcu/tree_stall.h, kernel/watchdog.c, kernel/hung_task.c, mm/kasan, lib/ubsan.c,
/// mm/kfence, mm/slub.c, kernel/sched/core.c.
const PATTERNS: &[(Place, &str)] = &[
    (Place::Anywhere, "------------[ cut here ]------------"),
    (Place::Anywhere, "Kernel panic - not syncing"),
    (Place::Start, "WARNING:"),
    (Place::Start, "BUG "),
    (Place::Within, "BUG:"),
    (Place::Within, "kernel BUG at"),
    (Place::Within, "Oops:"),
    (Place::Start, "Oops"),
    (Place::Within, "Internal error:"),
    (Place::Within, "Unable to handle kernel"),
    (Place::Within, "general protection fault, "),
    (Place::Within, "general protection fault:"),
    (Place::Within, "invalid opcode: 0"),
    (Place::Within, "double fault: 0"),
    (Place::Within, "stack segment: 0"),
    (Place::Within, "unchecked MSR access error"),
    (Place::Within, "kernel tried to execute"),
    (Place::Within, "KASAN:"),
    (Place::Within, "KCSAN:"),
    (Place::Within, "KMSAN:"),
    (Place::Within, "KFENCE: "),
    (Place::Within, "UBSAN:"),
    (Place::Within, "CFI failure at"),
    (Place::Within, "rcu: INFO:"),
    (Place::Within, "INFO: rcu"),
    (Place::Within, "INFO: task "),
    (Place::Within, "INFO: lockdep"),
    (Place::Within, "INFO: trying to register non-static key"),
    (Place::Within, "INFO: possible"),
    (Place::Within, "detected stall"),
    (Place::Within, "soft lockup"),
    (Place::Within, "hard LOCKUP"),
    (Place::Within, "Hard LOCKUP"),
    (Place::Within, "possible circular locking"),
    (Place::Within, "possible recursive locking"),
    (Place::Within, "inconsistent lock state"),
    (Place::Within, "suspicious RCU usage"),
    (Place::Within, "DEBUG_LOCKS_WARN_ON"),
    (Place::Within, "bad unlock balance"),
    (Place::Within, "sleeping function called from invalid context"),
    (Place::Within, "scheduling while atomic"),
    (Place::Within, "refcount_t: "),
    (Place::Within, "list_add corruption"),
    (Place::Within, "list_del corruption"),
    (Place::Within, "stack-protector: "),
    (Place::Within, "Bad page state"),
    (Place::Within, "kmemleak: "),
    (Place::Within, "unregister_netdevice: waiting for"),
    (Place::Within, "nobody cared"),
    (Place::Within, "SError Interrupt"),
    (Place::Within, "Bad mode in"),
    (Place::Within, "Out of memory: Killed"),
    (Place::Start, "Call Trace:"),
    (Place::Start, "Call trace:"),
    (Place::Start, "Backtrace:"),
];

/// Messages that hold such a text and report nothing wrong.
const HARMLESS: &[&str] = &["kmemleak: Kernel memory leak detector", "kmemleak: Automatic memory scanning"];

/// The message of a kernel line: what follows `[    1.234567] ` or `[    1.234567][   T12] `. None if there is no time
/// stamp, so the line is not the kernel's.
fn message(line: &str) -> Option<&str> {
    let mut rest = line;
    while let Some(at) = rest.find('[') {
        rest = &rest[at + 1..];
        let stamp = rest.trim_start_matches(' ');
        let Some((seconds, after)) = stamp.split_once('.') else {
            continue;
        };
        if seconds.is_empty() || !seconds.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Some((micros, after)) = after.split_at_checked(6) else {
            continue;
        };
        if !micros.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Some(after) = after.strip_prefix(']') else {
            continue;
        };
        // CONFIG_PRINTK_CALLER and CONFIG_PRINTK_EXECUTION_CTX add who printed it, directly after.
        let after = match after.strip_prefix('[').and_then(|caller| caller.split_once(']')) {
            Some((_, after)) => after,
            None => after,
        };
        return Some(after.trim_start());
    }
    None
}

fn matching(line: &str) -> Option<&'static str> {
    let message = message(line);
    if HARMLESS.iter().any(|text| message.is_some_and(|message| message.contains(text))) {
        return None;
    }
    PATTERNS
        .iter()
        .find(|(place, text)| match place {
            Place::Anywhere => line.contains(text),
            Place::Start => message.is_some_and(|message| message.starts_with(text)),
            Place::Within => message.is_some_and(|message| message.contains(text)),
        })
        .map(|(_, text)| *text)
}

/// All splats on a console, in order.
pub fn find(console: &str) -> Vec<Splat> {
    let mut splats: Vec<Splat> = Vec::new();
    let mut left = 0;
    for line in console.lines() {
        let line = line.trim_end_matches('\r');
        if left > 0 {
            if let Some(splat) = splats.last_mut() {
                splat.text.push('\n');
                splat.text.push_str(line);
            }
            left -= 1;
            if line.contains("---[ end ") {
                left = 0;
            }
        } else if let Some(pattern) = matching(line) {
            splats.push(Splat { pattern, text: line.to_owned() });
            left = MAX_LINES - 1;
        }
    }
    splats
}

/// Taint flags that a fault of the kernel sets (Documentation/admin-guide/tainted-kernels.rst): bad page, died (oops),
/// warned, soft lockup. Others (an unsigned module, a live patch) are the test's own doing.
const FAULT_TAINTS: &[(u32, &str)] =
    &[(5, "bad page"), (7, "the kernel died"), (9, "the kernel warned"), (14, "soft lockup")];

/// What taint flags say about faults: none if they say nothing.
pub fn taint_text(taint: u64) -> Option<String> {
    let faults: Vec<&str> =
        FAULT_TAINTS.iter().filter(|(bit, _)| taint >> bit & 1 == 1).map(|(_, text)| *text).collect();
    (!faults.is_empty()).then(|| format!("the kernel's taint flags ({taint}) say: {}", faults.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(console: &str) -> Vec<&'static str> {
        find(console).into_iter().map(|splat| splat.pattern).collect()
    }

    #[test]
    fn every_kind_of_splat_is_found() {
        for text in [
            "WARNING: CPU: 0 PID: 1 at kernel/bpf/verifier.c:123 check+0x1/0x2",
            "WARNING: kernel/trace/ftrace.c:1 at ftrace_bug+0x1/0x2, CPU#1: init/1",
            "WARNING: possible circular locking dependency detected",
            "WARNING: suspicious RCU usage",
            "BUG: kernel NULL pointer dereference, address: 0000000000000000",
            "BUG kmalloc-64 (Not tainted): Poison overwritten",
            "BUG: KASAN: slab-use-after-free in foo+0x1/0x2",
            "BUG: KFENCE: out-of-bounds read in foo",
            "BUG: sleeping function called from invalid context at mm/slab.h:1",
            "BUG: scheduling while atomic: init/1/0x00000002",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [init:1]",
            "watchdog: CPU1: Watchdog detected hard LOCKUP on cpu 1",
            "kernel BUG at mm/slub.c:1!",
            "Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
            "general protection fault: 0000 [#1] SMP",
            "Internal error: Oops: 0000000096000004 [#1] SMP",
            "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000",
            "UBSAN: array-index-out-of-bounds in kernel/x.c:1:2",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "INFO: rcu_tasks detected stalls on tasks:",
            "INFO: task init:1 blocked for more than 120 seconds.",
            "INFO: trying to register non-static key.",
            "unchecked MSR access error: RDMSR from 0x10a at rIP: 0xffffffff81000000",
            "CFI failure at foo+0x1/0x2 (target: bar; expected type: 0x1)",
            "refcount_t: underflow; use-after-free.",
            "list_add corruption. prev->next should be next",
            "Call Trace:",
            "Call trace:",
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
            "DEBUG_LOCKS_WARN_ON(lock->magic != lock)",
        ] {
            for prefix in [
                "[    1.234567] ",
                "[   12.345678][    T1] ",
                "[12345.678901][ T1 init/0] ",
                "unfinished[    0.000001] ",
            ] {
                let found = find(&format!("[    1.0] before\n{prefix}{text}\n[    1.3] after"));
                assert_eq!(found.len(), 1, "{prefix}{text}");
                assert!(found[0].text.starts_with(&format!("{prefix}{text}")), "{}", found[0].text);
            }
        }
    }

    #[test]
    fn words_of_programs_and_of_harmless_messages_are_not_splats() {
        for line in [
            "WARNING: this is the test's own",
            "test bug ... ok BUG: no",
            "Call Trace: printed by a tool",
            "[ok] BUG: 1.5 [x] Oops: ",
            "[    0.512345] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible",
            "[    0.512345] RETBleed: WARNING: Spectre v2 mitigation leaves CPU vulnerable to RETBleed attacks, data leaks possible!",
            "[    0.512345] MDS: Vulnerable: Clear CPU buffers attempted, no microcode",
            "[    0.100000] Kernel command line: console=ttyS0 panic=-1 oops=panic",
            "[    0.100000] rcu: \tRCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).",
            "[    2.100000] init[1]: segfault at 0 ip 0000000000401000 sp 00007ffe error 4",
            "[    2.100000] kmemleak: Kernel memory leak detector initialized (mem pool available: 1)",
        ] {
            assert_eq!(patterns(line), Vec::<&str>::new(), "{line}");
        }
    }

    #[test]
    fn a_splat_ends_at_its_marker_and_holds_its_trace() {
        let console = "[    1.000000] ------------[ cut here ]------------\r\n\
                       [    1.000001] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2\r\n\
                       [    1.000002] Call Trace:\r\n\
                       [    1.000003] ---[ end trace 0000000000000000 ]---\r\n\
                       fine\r\n\
                       [    2.000000] BUG: second\r\n";
        let found = find(console);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].text.lines().count(), 4);
        assert!(found[0].text.contains("a.c:1"));
        assert!(found[1].text.starts_with("[    2.000000] BUG: second"));
    }

    #[test]
    fn a_panic_without_time_stamps_is_found() {
        assert_eq!(
            patterns("Kernel panic - not syncing: VFS: Unable to mount root fs"),
            ["Kernel panic - not syncing"]
        );
    }

    #[test]
    fn a_splat_is_not_endless() {
        let console = format!("[    1.000000] Call Trace:\n{}", "[    1.000001]  foo+0x1/0x2\n".repeat(1000));
        let found = find(&console);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text.lines().count(), MAX_LINES);
    }

    #[test]
    fn taint_flags_of_faults_are_told_from_those_of_tests() {
        assert_eq!(taint_text(0), None);
        assert_eq!(taint_text(1 << 12 | 1 << 13), None, "out-of-tree and unsigned modules are not faults");
        assert!(taint_text(1 << 9).unwrap().contains("warned"));
        assert!(taint_text(1 << 7 | 1 << 9).unwrap().contains("died"));
    }
}
