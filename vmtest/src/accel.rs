// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause

//! KVM or TCG, and how to know.
//!
//! `/dev/kvm` says little. On nested hosts QEMU may abort while it sets up a virtual CPU, or the guest may die in early
//! boot and print nothing. So [`Accel::Auto`] proves KVM by using it: the first run on a machine tries it, with a short
//! limit until init's sign of life, and falls back to TCG. The verdict is remembered per host kernel, CPU and QEMU
//! version, so that the attempt costs time once. A kernel that reaches init under neither says nothing about KVM, and
//! nothing is remembered then.

use std::{fmt, fs, io::Write, path::PathBuf, process::Command, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use siteseer_kernels::{Arch, cache};

/// How long a guest under unproven KVM may take to reach init.
pub(crate) const PROOF_LIMIT: Duration = Duration::from_secs(15);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// KVM where it works, else TCG.
    #[default]
    Auto,
    /// QEMU's own translation of instructions: works everywhere, slowly.
    Tcg,
    /// The host's virtualisation, or an error.
    Kvm,
}

impl FromStr for Accel {
    type Err = String;

    fn from_str(name: &str) -> Result<Accel, String> {
        match name {
            "auto" => Ok(Accel::Auto),
            "tcg" => Ok(Accel::Tcg),
            "kvm" => Ok(Accel::Kvm),
            _ => Err(format!("unknown accelerator {name:?} (there are auto, tcg and kvm)")),
        }
    }
}

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's translation.
    Tcg,
    /// The host's virtualisation.
    Kvm,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accelerator::Tcg => "tcg",
            Accelerator::Kvm => "kvm",
        })
    }
}

/// Whether KVM can be tried at all; the error says why not.
pub(crate) fn kvm_accessible(arch: Arch) -> Result<(), String> {
    if Arch::host() != Some(arch) {
        return Err(format!("this machine is not {arch}"));
    }
    match fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("/dev/kvm: {error}")),
    }
}

/// What is known about KVM on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// What the verdict is about; another host, kernel or QEMU has to be tried again.
    host: String,
    pub(crate) works: bool,
    /// How it was found out.
    pub(crate) reason: String,
}

/// Remembers the verdict on one host.
pub(crate) struct Memory {
    host: String,
    path: Option<PathBuf>,
}

impl Memory {
    pub(crate) fn new(qemu: &std::path::Path) -> Memory {
        let path = cache::directory().map(|directory| directory.join("vmtest").join("kvm.json"));
        Memory { host: describe_host(qemu), path }
    }

    pub(crate) fn recall(&self) -> Option<Verdict> {
        let text = fs::read(self.path.as_ref()?).ok()?;
        let verdict: Verdict = serde_json::from_slice(&text).ok()?;
        (verdict.host == self.host).then_some(verdict)
    }

    /// Failing to remember costs time, no more.
    pub(crate) fn remember(&self, works: bool, reason: String) {
        let verdict = Verdict { host: self.host.clone(), works, reason };
        let write = || {
            let path = self.path.as_ref()?;
            let directory = path.parent()?;
            fs::create_dir_all(directory).ok()?;
            // Two runs may end at once: never a half-written file.
            let mut file = tempfile::NamedTempFile::new_in(directory).ok()?;
            file.write_all(&serde_json::to_vec_pretty(&verdict).ok()?).ok()?;
            file.persist(path).ok()
        };
        let _ = write();
    }
}

fn describe_host(qemu: &std::path::Path) -> String {
    let kernel = nix::sys::utsname::uname()
        .map(|name| format!("{} {}", name.release().to_string_lossy(), name.version().to_string_lossy()))
        .unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo
        .lines()
        .filter(|line| {
            ["model name", "CPU implementer", "CPU part", "microcode"].iter().any(|key| line.starts_with(key))
        })
        .take(3)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ");
    let version = Command::new(qemu).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).lines().next().unwrap_or_default().to_owned();
    format!("{kernel}; {cpu}; {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_of_its_host_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = Some(directory.path().join("sub").join("kvm.json"));
        let memory = Memory { host: "a".to_owned(), path: path.clone() };
        assert_eq!(memory.recall(), None);
        memory.remember(false, "QEMU aborted".to_owned());
        let verdict = memory.recall().unwrap();
        assert!(!verdict.works && verdict.reason == "QEMU aborted");
        assert_eq!(Memory { host: "b".to_owned(), path: path.clone() }.recall(), None);
        std::fs::write(path.as_ref().unwrap(), "not json").unwrap();
        assert_eq!(memory.recall(), None);
    }

    #[test]
    fn kvm_runs_no_foreign_architecture() {
        for arch in Arch::ALL {
            if Some(arch) != Arch::host() {
                assert!(kvm_accessible(arch).unwrap_err().contains("this machine is not"));
            }
        }
    }
}
