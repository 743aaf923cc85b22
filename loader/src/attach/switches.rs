// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Switches of the kernel's that keep attached programs from running, or keep programs from being attached.
//!
//! Probes can be registered while all of them are switched off; then nothing fires, and nothing says so.

use crate::plan::mechanism::Mechanism;
use std::fs;
use std::path::Path;

/// `0` while all kprobes are disarmed (Documentation/trace/kprobes.rst).
const KPROBES: &str = "/sys/kernel/debug/kprobes/enabled";
/// `0` while ftrace calls nobody (Documentation/trace/ftrace.rst).
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Which mechanisms are switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Switches {
    kprobes_off: bool,
    ftrace_off: bool,
}

impl Switches {
    /// Those of the running kernel. One that cannot be read is taken to be on, as it nearly always is.
    pub(super) fn running() -> Switches {
        let is_off = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
        Switches { kprobes_off: is_off(KPROBES), ftrace_off: is_off(FTRACE) }
    }

    /// What keeps programs from running that are attached by these mechanisms: sentences for people.
    pub(super) fn in_the_way(self, mechanisms: impl Iterator<Item = Mechanism>) -> Vec<String> {
        let (mut by_kprobe, mut by_ftrace) = (0usize, 0usize);
        for mechanism in mechanisms {
            match mechanism {
                Mechanism::Kprobe | Mechanism::Kretprobe => by_kprobe += 1,
                Mechanism::KprobeMulti | Mechanism::KretprobeMulti | Mechanism::KprobeSession => by_ftrace += 1,
                // The kernel does not switch these off: it refuses the switch, or goes without ftrace.
                Mechanism::Fentry | Mechanism::Fexit | Mechanism::TracingMulti | Mechanism::TracingMultiExit => {}
            }
        }
        let note = |off: bool, sites: usize, what: &str, path: &str| {
            (off && sites > 0).then(|| {
                let plural = if sites == 1 { "" } else { "s" };
                format!("{what} switched off ({path} is 0): at {sites} site{plural} the program does not run before that is 1")
            })
        };
        let kprobes = note(self.kprobes_off, by_kprobe, "kprobes are", KPROBES);
        kprobes.into_iter().chain(note(self.ftrace_off, by_ftrace, "ftrace is", FTRACE)).collect()
    }
}

/// How the kernel is locked down, if it is: kernel_lockdown(7).
pub(super) fn lockdown() -> Option<String> {
    mode_of(&fs::read_to_string(Path::new(LOCKDOWN)).ok()?)
}

/// The mode in brackets: `none [integrity] confidentiality`.
fn mode_of(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (mode, _) = rest.split_once(']')?;
    (mode != "none").then(|| mode.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_is_told_where_it_matters() {
        let both = [Mechanism::Kprobe, Mechanism::Kprobe, Mechanism::KprobeMulti, Mechanism::Fentry];
        let said = |kprobes_off, ftrace_off, mechanisms: &[Mechanism]| {
            Switches { kprobes_off, ftrace_off }.in_the_way(mechanisms.iter().copied())
        };
        assert!(said(false, false, &both).is_empty());
        let all = said(true, true, &both);
        assert!(all[0].starts_with("kprobes are switched off") && all[0].contains("at 2 sites the"), "{all:?}");
        assert!(all[1].starts_with("ftrace is switched off") && all[1].contains("at 1 site the"), "{all:?}");
        assert!(said(true, true, &[Mechanism::Fentry]).is_empty());
    }

    #[test]
    fn the_mode_of_a_lockdown() {
        assert_eq!(mode_of("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(mode_of("[none] integrity confidentiality\n"), None);
        assert_eq!(mode_of("nothing\n"), None);
    }
}
