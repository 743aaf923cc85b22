// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Switches of the kernel's that keep attached programs from running, or keep programs from being attached.
//!
//! Probes can be registered while all of them are switched off; then nothing fires, and nothing says so.

use crate::plan::Plan;
use crate::plan::mechanism::Mechanism;
use siteseer_sites::Machine;
use siteseer_sites::site::SiteKind;
use std::fmt;
use std::fs;
use std::io;
use std::iter::Sum;
use std::path::Path;

/// `0` while all kprobes are disarmed (Documentation/trace/kprobes.rst).
const KPROBES: &str = "/sys/kernel/debug/kprobes/enabled";
/// Where it is, if the kernel has debugfs; the folder is there whether that is mounted or not.
const DEBUGFS: &str = "/sys/kernel/debug";
/// `0` while ftrace calls nobody (Documentation/trace/ftrace.rst).
const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// How a switch is set.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Switch {
    On,
    Off,
    /// Why it is not known.
    Unknown(String),
}

impl Switch {
    /// One that is missing together with its folder cannot be switched.
    fn read(path: &str, folder: &str) -> Switch {
        match fs::read_to_string(path) {
            Ok(text) if text.trim() == "0" => Switch::Off,
            Ok(_) => Switch::On,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !Path::new(folder).exists() => Switch::On,
            Err(error) => Switch::Unknown(error.to_string()),
        }
    }
}

/// At how many sites programs run by mechanisms that may be switched off. A site can be among both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reliance {
    kprobes: usize,
    ftrace: usize,
}

impl Reliance {
    /// That of what a plan attaches.
    pub(super) fn of(plan: &Plan, machine: Machine) -> Reliance {
        let sites = plan.sites.iter().filter_map(|planned| Some((planned.decision.mechanism()?, &planned.site)));
        sites
            .map(|(mechanism, site)| {
                let on_entry = !matches!(site.kind, SiteKind::Inline) && site.traceable == Some(true);
                Reliance::at(mechanism, on_entry && is_at_ftrace(machine, site.offset()))
            })
            .sum()
    }

    fn at(mechanism: Mechanism, at_ftrace: bool) -> Reliance {
        match mechanism {
            Mechanism::Kprobe | Mechanism::Kretprobe => Reliance { kprobes: 1, ftrace: at_ftrace.into() },
            Mechanism::KprobeMulti | Mechanism::KretprobeMulti | Mechanism::KprobeSession => {
                Reliance { kprobes: 0, ftrace: 1 }
            }
            // The kernel does not switch these off: it refuses the switch, or goes without ftrace.
            Mechanism::Fentry | Mechanism::Fexit | Mechanism::TracingMulti | Mechanism::TracingMultiExit => {
                Reliance::default()
            }
        }
    }
}

impl Sum for Reliance {
    fn sum<I: Iterator<Item = Reliance>>(all: I) -> Reliance {
        all.fold(Reliance::default(), |sum, one| Reliance {
            kprobes: sum.kprobes + one.kprobes,
            ftrace: sum.ftrace + one.ftrace,
        })
    }
}

/// Whether a kprobe so far after the symbol of a function that ftrace knows is put there by ftrace. On x86-64, ftrace's
/// call is the first instruction, or the first after ENDBR, and the kernel moves a kprobe on ENDBR to it
/// (`arch_adjust_kprobe_addr()`, `arm_kprobe_ftrace()`). arm64 has no such kprobes (`HAVE_KPROBES_ON_FTRACE`).
fn is_at_ftrace(machine: Machine, offset: u64) -> bool {
    const ENDBR: u64 = 4;
    machine == Machine::X86_64 && (offset == 0 || offset == ENDBR)
}

/// Which mechanisms are switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Switches {
    kprobes: Switch,
    ftrace: Switch,
}

impl Switches {
    /// Those of the running kernel.
    pub(super) fn running() -> Switches {
        Switches { kprobes: Switch::read(KPROBES, DEBUGFS), ftrace: Switch::read(FTRACE, FTRACE) }
    }

    /// What keeps programs from running: sentences for people.
    pub(super) fn off(&self, reliance: Reliance) -> Vec<String> {
        let note = |(switch, sites, what, path): (&Switch, usize, &str, &str)| {
            (*switch == Switch::Off && sites > 0).then(|| {
                format!("{what} switched off ({path} is 0): at {} the program does not run before that is 1", At(sites))
            })
        };
        self.each(reliance).into_iter().filter_map(note).collect()
    }

    /// The same, and what is not known.
    pub(super) fn notes(&self, reliance: Reliance) -> Vec<String> {
        let unknown = |(switch, sites, what, path): (&Switch, usize, &str, &str)| match switch {
            Switch::Unknown(why) if sites > 0 => Some(format!(
                "whether {what} switched off is not known ({path}: {why}): if so, the program does not run at {}",
                At(sites)
            )),
            _ => None,
        };
        let mut notes = self.off(reliance);
        notes.extend(self.each(reliance).into_iter().filter_map(unknown));
        notes
    }

    fn each(&self, reliance: Reliance) -> [(&Switch, usize, &'static str, &'static str); 2] {
        [
            (&self.kprobes, reliance.kprobes, "kprobes are", KPROBES),
            (&self.ftrace, reliance.ftrace, "ftrace is", FTRACE),
        ]
    }
}

/// So many sites.
struct At(usize);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let At(sites) = self;
        write!(f, "{sites} site{}", if *sites == 1 { "" } else { "s" })
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

    fn reliance(sites: &[(Mechanism, bool)]) -> Reliance {
        sites.iter().map(|&(mechanism, at_ftrace)| Reliance::at(mechanism, at_ftrace)).sum()
    }

    #[test]
    fn what_is_switched_off_is_told_where_it_matters() {
        let sites = [Mechanism::Kprobe, Mechanism::Kprobe, Mechanism::KprobeMulti, Mechanism::Fentry];
        let all = reliance(&sites.map(|mechanism| (mechanism, false)));
        let said = |kprobes, ftrace, reliance| Switches { kprobes, ftrace }.off(reliance);
        assert!(said(Switch::On, Switch::On, all).is_empty());
        let told = said(Switch::Off, Switch::Off, all);
        assert!(told[0].starts_with("kprobes are switched off") && told[0].contains("at 2 sites the"), "{told:?}");
        assert!(told[1].starts_with("ftrace is switched off") && told[1].contains("at 1 site the"), "{told:?}");
        assert!(said(Switch::Off, Switch::Off, reliance(&[(Mechanism::Fentry, true)])).is_empty());
    }

    #[test]
    fn a_kprobe_on_ftraces_place_needs_both() {
        let kprobe = reliance(&[(Mechanism::Kprobe, true)]);
        let told = Switches { kprobes: Switch::On, ftrace: Switch::Off }.off(kprobe);
        assert!(told.len() == 1 && told[0].starts_with("ftrace is switched off"), "{told:?}");
        let told = Switches { kprobes: Switch::Off, ftrace: Switch::On }.off(kprobe);
        assert!(told.len() == 1 && told[0].starts_with("kprobes are switched off"), "{told:?}");
        assert!(is_at_ftrace(Machine::X86_64, 0) && is_at_ftrace(Machine::X86_64, 4));
        assert!(!is_at_ftrace(Machine::X86_64, 9) && !is_at_ftrace(Machine::Aarch64, 0));
    }

    #[test]
    fn what_cannot_be_read_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let read = |name: &str| Switch::read(&file(name), &file(""));
        fs::write(file("off"), "0\n").unwrap();
        fs::write(file("on"), "1\n").unwrap();
        assert_eq!((read("off"), read("on")), (Switch::Off, Switch::On));
        // debugfs is not mounted.
        let Switch::Unknown(why) = read("none") else { panic!("known") };
        assert_eq!(Switch::read(&file("none/at/all"), &file("none")), Switch::On, "the kernel has no debugfs");
        let switches = Switches { kprobes: Switch::Unknown(why), ftrace: Switch::On };
        let sites = reliance(&[(Mechanism::Kprobe, false)]);
        assert!(switches.off(sites).is_empty());
        let notes = switches.notes(sites);
        assert!(notes.len() == 1 && notes[0].starts_with("whether kprobes are switched off is not known"), "{notes:?}");
        assert!(switches.notes(reliance(&[(Mechanism::Fentry, false)])).is_empty());
    }

    #[test]
    fn the_mode_of_a_lockdown() {
        assert_eq!(mode_of("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(mode_of("[none] integrity confidentiality\n"), None);
        assert_eq!(mode_of("nothing\n"), None);
    }
}
