// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Cases: what a test inside the virtual machine is.
//!
//! A case states what must come out on every kernel. What a kernel cannot do, or what its compiler did not do to the function,
//! it cannot show there: then the case is *not exercised*, with a [`Lack`] that says why, and never passed. The harness
//! (`tests/vm.rs`) decides whether the kernel that it booted may lack that.

use serde::{Deserialize, Serialize};
use siteseer::{SourceOptions, Target};
use siteseer_sites::btf::{Btf, Kind, Type};
use std::fmt;

/// What a case fails with; a [`Lack`] among them says that it was not exercised.
pub type Failure = Box<dyn std::error::Error>;

/// What a case does.
pub type Body = dyn Fn(&Target) -> Result<Shown, Failure>;

/// One case.
pub struct Case {
    /// Its name, with the group before the colons.
    pub name: String,
    /// Runs it.
    pub run: Box<Body>,
}

/// What a case that passed showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// For the table.
    pub text: String,
    /// Where the kernel's site data differ from what the case was written for, and it held all the same: a site in another
    /// symbol, an argument that has no location or has one.
    pub differences: Vec<String>,
}

impl From<String> for Shown {
    fn from(text: String) -> Shown {
        Shown { text, differences: Vec::new() }
    }
}

/// A capability of the kernel that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capability {
    /// The kfunc `bpf_rdonly_cast()`: typed pointers are followed directly.
    RdonlyCast,
    /// Calls for which the kernel does not run a kprobe's program are counted (`recursion_misses`).
    MissCounts,
    /// BPF trampolines, and direct calls to reach them (arm64 since 6.4).
    Fentry,
    /// Kprobe sessions that skip the return of a call whose entry was missed.
    KprobeSession,
    /// The tracing-multi link.
    TracingMulti,
}

impl Capability {
    /// The first Linux release that has it: a kernel as new as that may not lack it.
    pub fn since(self) -> (u32, u32) {
        match self {
            Capability::RdonlyCast => (6, 2),
            Capability::MissCounts => (6, 7),
            Capability::Fentry => (6, 4),
            Capability::KprobeSession => (6, 14),
            Capability::TracingMulti => (7, 3),
        }
    }

    /// Whether the running kernel has it.
    pub fn is_had(self, target: &Target) -> bool {
        match self {
            Capability::RdonlyCast => target.kernel().rdonly_cast.is_some(),
            Capability::Fentry => target.kernel().fentry,
            Capability::KprobeSession => target.kernel().kprobe_session.is_some(),
            Capability::TracingMulti => target.kernel().tracing_multi,
            // The same series made links tell the count: a member `missed` in one of bpf_link_info's structures.
            Capability::MissCounts => target.kernel().btf.as_deref().is_some_and(|data| {
                Btf::parse(data).is_ok_and(|btf| {
                    btf.find(Kind::Struct, "bpf_link_info").is_some_and(|info| has_member(&btf, info, "missed"))
                })
            }),
        }
    }
}

/// Whether a structure or union has a member of this name, in it or in an anonymous structure inside.
fn has_member(btf: &Btf<'_>, ty: Type<'_>, name: &str) -> bool {
    ty.members().any(|member| {
        let inner = || btf.ty(member.ty).filter(|ty| matches!(ty.kind(), Kind::Struct | Kind::Union));
        member.name == name || inner().is_some_and(|ty| ty.name().is_empty() && has_member(btf, ty, name))
    })
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::RdonlyCast => "the kernel has no bpf_rdonly_cast()",
            Capability::MissCounts => "the kernel does not count the calls that it runs no program for",
            Capability::Fentry => "the kernel has no fentry",
            Capability::KprobeSession => "the kernel has no kprobe sessions that can be relied on",
            Capability::TracingMulti => "the kernel has no tracing-multi links",
        })
    }
}

/// Why a case was not exercised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lack {
    /// The kernel cannot do what the case is about.
    Capability(Capability),
    /// The kernel's site data show that its compiler did not do what the case is about; what it did instead.
    Sites(String),
}

impl Lack {
    /// Whether a kernel of this release (`uname -r`) may lack it: a capability only if it came with a later one.
    ///
    /// # Errors
    /// A sentence, if it must have it.
    pub fn may_be_on(&self, release: &str) -> Result<(), String> {
        let Lack::Capability(capability) = self else { return Ok(()) };
        let mut numbers = release.split(['.', '-', '+']).map_while(|word| word.parse::<u32>().ok());
        let version = numbers.next().zip(numbers.next()).ok_or_else(|| format!("{release:?} is no kernel release"))?;
        let since @ (major, minor) = capability.since();
        if version < since {
            return Ok(());
        }
        Err(format!("not exercised on {release}: {self}, and Linux can since {major}.{minor}"))
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Capability(capability) => capability.fmt(f),
            Lack::Sites(found) => f.write_str(found),
        }
    }
}

impl std::error::Error for Lack {}

/// Leaves the case, not exercised, if the running kernel lacks a capability.
///
/// # Errors
/// [`Lack::Capability`].
pub fn need(target: &Target, capability: Capability) -> Result<(), Lack> {
    if capability.is_had(target) { Ok(()) } else { Err(Lack::Capability(capability)) }
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// What it states holds. The differences are [`Shown::differences`].
    Passed {
        /// Differences.
        differences: Vec<String>,
    },
    /// It could not be shown on this kernel.
    NotExercised(Lack),
    /// It does not hold.
    Failed,
}

/// What became of a case: one line of the guest's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The case.
    pub name: String,
    /// How it ended.
    pub ending: Ending,
    /// What it showed, or why it failed or was not exercised.
    pub detail: String,
}

/// All cases, in the order in which they run.
pub fn cases() -> Vec<Case> {
    let mut all = crate::truth::cases();
    all.extend(crate::typed::cases());
    all.extend(crate::fentry::cases());
    all.extend(crate::namesakes::cases());
    all.extend(crate::refusals::cases());
    all.extend(crate::denied::cases());
    all.extend(crate::context::cases());
    all.extend(crate::tools::cases());
    all.extend(crate::reach::cases());
    all.extend(crate::bpf_target::cases());
    all.extend(crate::explain::cases());
    all.extend(crate::trampolines::cases());
    all.extend(crate::libbpf::cases());
    all.extend(crate::killed::cases());
    all
}

/// A case of a group whose results are text alone.
pub(crate) fn case(group: &str, name: &str, run: fn(&Target) -> Result<String, Failure>) -> Case {
    Case { name: format!("{group}::{name}"), run: Box::new(move |target| run(target).map(Shown::from)) }
}

/// Runs the cases whose names are given (all, if none is) and hands each verdict out as soon as there is one.
///
/// # Errors
/// If the kernel cannot be used at all.
pub fn run(names: &[String], mut report: impl FnMut(Verdict)) -> Result<(), Failure> {
    siteseer::register_with(siteseer::register::Options::default().plan_at_load(false))?;
    let target = Target::running(&SourceOptions::default())?;
    for case in cases() {
        if !names.is_empty() && !names.contains(&case.name) {
            continue;
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.run)(&target)));
        let (ending, detail) = match result {
            Ok(Ok(shown)) => (Ending::Passed { differences: shown.differences }, shown.text),
            Ok(Err(failure)) => match failure.downcast::<Lack>() {
                Ok(lack) => (Ending::NotExercised((*lack).clone()), lack.to_string()),
                Err(failure) => (Ending::Failed, failure.to_string()),
            },
            Err(_) => (Ending::Failed, "it panicked; the console has the message".to_owned()),
        };
        report(Verdict { name: case.name, ending, detail });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_new_enough_may_not_lack_a_capability() {
        let lack = Lack::Capability(Capability::RdonlyCast);
        assert_eq!(lack.may_be_on("6.1.0-50-cloud-amd64"), Ok(()));
        for release in ["6.2.0", "6.12.107+deb13-cloud-arm64", "7.0"] {
            let why = lack.may_be_on(release).unwrap_err();
            assert!(why.contains(release) && why.contains("bpf_rdonly_cast") && why.contains("6.2"), "{why}");
        }
        assert!(lack.may_be_on("unknown").is_err());
        assert_eq!(Lack::Sites("no copy".to_owned()).may_be_on("7.3.4"), Ok(()));
    }
}
