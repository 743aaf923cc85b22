// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Cases: what a test inside the virtual machine is.
//!
//! A case states what must come out on every kernel. What a kernel cannot do, or what its compiler did not do to the
//! function, it cannot show there: then the case is *not exercised*, with a [`Lack`] that says why, and never passed.
//! The harness (`tests/vm.rs`) does not take that for granted ([`Lack::holds`]): a release that has the capability may
//! not lack it, and what the compiler did not do is looked for in the image that was booted.

use crate::guest::shape::Shape;
use serde::{Deserialize, Serialize};
use siteseer::{SourceOptions, Target};
use siteseer_sites::Machine;
use siteseer_sites::btf::{Btf, Kind, Type};
use siteseer_sites::with_causes;
use std::fmt;
use std::time::Instant;

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

/// A number that whoever runs the cases may set.
pub(crate) fn number(variable: &str) -> Result<Option<u64>, Failure> {
    let text = std::env::var(variable).ok();
    text.map(|text| text.parse().map_err(|_| format!("{variable}: {text:?} is not a number").into())).transpose()
}

/// What a case that passed showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shown {
    /// For the table.
    pub text: String,
    /// Where the kernel's site data differs from what the case was written for, and the case passed all the same: a
    /// site in another symbol, an argument that has no location or has one.
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
    /// BPF trampolines, and direct calls to reach them.
    Fentry,
    /// kprobe.multi: fprobes, which have come to arm64 with those on the function graph tracer.
    KprobeMulti,
    /// Kprobe sessions that skip the return of a call whose entry was missed.
    KprobeSession,
    /// The tracing-multi link. arm64 has no single direct call for all functions (HAVE_SINGLE_FTRACE_DIRECT_OPS), which
    /// it rests on.
    TracingMulti,
    /// Stacks of their own for the functions of a program.
    PrivateStack,
    /// Programs that may sleep at the kernel's function for tests of fentry (net/bpf/test_run.c), however it is
    /// configured. That shows in a refusal alone; [`Capability::is_had`] goes by the release.
    Sleepable,
    /// A kernel that lets a module serve its site data in `/sys/kernel/btf`, because it has none of its own.
    OthersSiteData,
    /// kprobe.multi at the addresses of instructions: kernels/patches/kprobe-multi-addresses.patch. No release has it.
    RawLink,
}

impl Capability {
    /// The first Linux release that has it on a machine: a kernel as new as that may not lack it. `None` if none has it
    /// yet, or a kernel of any release may lack it.
    pub fn since(self, machine: Machine) -> Option<(u32, u32)> {
        let (x86_64, aarch64) = match self {
            Capability::RdonlyCast => ((6, 2), Some((6, 2))),
            Capability::MissCounts => ((6, 7), Some((6, 7))),
            Capability::Fentry => ((5, 5), Some((6, 4))),
            Capability::KprobeMulti => ((5, 18), Some((6, 14))),
            Capability::KprobeSession => ((6, 14), Some((6, 14))),
            Capability::TracingMulti => ((7, 3), None),
            Capability::PrivateStack => ((6, 13), Some((6, 18))),
            Capability::Sleepable => ((6, 3), Some((6, 3))),
            Capability::OthersSiteData | Capability::RawLink => return None,
        };
        if machine == Machine::X86_64 { Some(x86_64) } else { aarch64 }
    }

    /// Whether the running kernel has it.
    pub fn is_had(self, target: &Target) -> bool {
        match self {
            Capability::RdonlyCast => target.kernel().rdonly_cast.is_some(),
            Capability::Fentry => target.kernel().fentry,
            Capability::KprobeMulti => target.kernel().kprobe_multi,
            Capability::KprobeSession => target.kernel().kprobe_session.is_some(),
            Capability::TracingMulti => target.kernel().tracing_multi,
            Capability::PrivateStack => target.kernel().private_stack,
            Capability::Sleepable => may_lack(self, &target.kernel().release, target.machine()).is_err(),
            Capability::OthersSiteData => !crate::guest::own_data::is_the_kernels(),
            Capability::RawLink => target.kernel().btf.as_deref().is_some_and(|data| {
                let is_it = |ty: Type<'_>| ty.enumerators().any(|named| named.name == "BPF_F_KPROBE_MULTI_RAW");
                Btf::parse(data).is_ok_and(|btf| btf.types().any(is_it))
            }),
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
            Capability::KprobeMulti => "the kernel has no kprobe.multi",
            Capability::KprobeSession => "the kernel has no kprobe sessions that can be relied on",
            Capability::TracingMulti => "the kernel has no tracing-multi links",
            Capability::PrivateStack => "the functions of a program share a stack of 512 bytes",
            Capability::Sleepable => "the kernel has no function where it lets programs sleep in every configuration",
            Capability::OthersSiteData => "the kernel serves site data of its own, which nothing can replace",
            Capability::RawLink => "the kernel has no kprobe.multi at the addresses of instructions",
        })
    }
}

/// Why a case was not exercised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lack {
    /// The kernel cannot do what the case is about.
    Capability(Capability),
    /// The compiler did not do what the case is about: no function of the kernel's has any of these shapes.
    Shapes(Vec<Shape>),
}

impl Lack {
    /// Whether a kernel lacks it: a capability only if it came with a later release (`release` is `uname -r`), a shape
    /// only if the image has none of it.
    ///
    /// # Errors
    /// A sentence, if the kernel has it, or must have it.
    pub fn holds(&self, release: &str, image: &Target) -> Result<(), String> {
        match self {
            Lack::Capability(capability) => may_lack(*capability, release, image.machine()),
            Lack::Shapes(shapes) if shapes.is_empty() => Err("not exercised, and nothing is missing".to_owned()),
            Lack::Shapes(shapes) => shapes.iter().try_for_each(|shape| match shape.is_had(image) {
                Ok(false) => Ok(()),
                Ok(true) => Err(format!("not exercised on {release}: {self}; but the kernel's image has {shape}")),
                Err(error) => Err(format!("not exercised on {release}: {self}; the image cannot be asked: {error}")),
            }),
        }
    }
}

/// Whether a kernel of this release (`uname -r`) may lack a capability.
fn may_lack(capability: Capability, release: &str, machine: Machine) -> Result<(), String> {
    let Some(since @ (major, minor)) = capability.since(machine) else { return Ok(()) };
    let mut numbers = release.split(['.', '-', '+']).map_while(|word| word.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next()).ok_or_else(|| format!("{release:?} is not a kernel release"))?;
    if version < since {
        return Ok(());
    }
    Err(format!("not exercised on {release}: {capability}, and Linux can since {major}.{minor}"))
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Capability(capability) => capability.fmt(f),
            Lack::Shapes(shapes) => {
                f.write_str("the compiler made none of these: ")?;
                shapes
                    .iter()
                    .enumerate()
                    .try_for_each(|(nth, shape)| write!(f, "{}{shape}", if nth == 0 { "" } else { "; " }))
            }
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

/// The first of what a case can be shown by that the running kernel has, by its shape.
///
/// # Errors
/// [`Lack::Shapes`] if it has none, and if it cannot be asked.
pub fn choose<'c, C>(target: &Target, choices: &'c [C], shape: impl Fn(&C) -> Shape) -> Result<&'c C, Failure> {
    let mut shapes = Vec::new();
    for choice in choices {
        let shape = shape(choice);
        if shape.is_had(target)? {
            return Ok(choice);
        }
        shapes.push(shape);
    }
    Err(Lack::Shapes(shapes).into())
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

/// The outcome of a case: one line of the guest's results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The case.
    pub name: String,
    /// How it ended.
    pub ending: Ending,
    /// What it showed, or why it failed or was not exercised.
    pub detail: String,
    /// How long it took, in milliseconds of the guest's clock.
    pub milliseconds: u64,
    /// Bytes of memory that the process of all cases had afterwards: a library that keeps what it read shows here.
    /// `None` if the kernel did not tell.
    pub resident: Option<u64>,
}

/// All cases, in the order in which they run.
pub fn cases() -> Vec<Case> {
    let mut all = crate::guest::truth::cases();
    all.extend(crate::guest::typed::cases());
    all.extend(crate::guest::fentry::cases());
    all.extend(crate::guest::namesakes::cases());
    all.extend(crate::guest::lookups::cases());
    all.extend(crate::guest::starts::cases());
    all.extend(crate::guest::refusals::cases());
    all.extend(crate::guest::refused::cases());
    all.extend(crate::guest::code::cases());
    all.extend(crate::guest::denied::cases());
    all.extend(crate::guest::context::cases());
    all.extend(crate::guest::tools::cases());
    all.extend(crate::guest::trace_tool::cases());
    all.extend(crate::compare::reach::cases());
    all.extend(crate::guest::bpf_target::cases());
    all.extend(crate::guest::explain::cases());
    all.extend(crate::guest::trampolines::cases());
    all.extend(crate::guest::sharing::cases());
    all.extend(crate::guest::libbpf::cases());
    all.extend(crate::guest::jumps::cases());
    all.extend(crate::guest::killed::cases());
    all.extend(crate::guest::faults::cases());
    all.extend(crate::guest::modules::cases());
    all.extend(crate::guest::own_data::cases());
    all.extend(crate::guest::raw_link::cases());
    all.extend(crate::guest::soak::cases());
    all.extend(crate::measure::armed::cases());
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
    siteseer::register_with(siteseer::RegisterOptions::default().plan_at_load(false))?;
    let target = Target::running(&SourceOptions::default())?;
    for case in cases() {
        if !names.is_empty() && !names.contains(&case.name) {
            continue;
        }
        let begin = Instant::now();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.run)(&target)));
        let (ending, detail) = match result {
            Ok(Ok(shown)) => (Ending::Passed { differences: shown.differences }, shown.text),
            Ok(Err(failure)) => match failure.downcast::<Lack>() {
                Ok(lack) => (Ending::NotExercised((*lack).clone()), lack.to_string()),
                Err(failure) => (Ending::Failed, with_causes(&*failure)),
            },
            Err(_) => (Ending::Failed, "it panicked; the console has the message".to_owned()),
        };
        let milliseconds = begin.elapsed().as_millis() as u64;
        report(Verdict { name: case.name, ending, detail, milliseconds, resident: resident() });
    }
    Ok(())
}

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    let of_this = procfs::process::Process::myself().and_then(|process| process.statm());
    of_this.ok().map(|pages| pages.resident * procfs::page_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_new_enough_may_not_lack_a_capability() {
        let lacks = |release, machine| may_lack(Capability::RdonlyCast, release, machine);
        assert_eq!(lacks("6.1.0-50-cloud-amd64", Machine::X86_64), Ok(()));
        for release in ["6.2.0", "6.12.107+deb13-cloud-arm64", "7.0"] {
            let why = lacks(release, Machine::Aarch64).unwrap_err();
            assert!(why.contains(release) && why.contains("bpf_rdonly_cast") && why.contains("6.2"), "{why}");
        }
        assert!(lacks("unknown", Machine::X86_64).is_err());
    }

    #[test]
    fn machines_come_to_it_at_different_times() {
        let old = "6.12.107+deb13-cloud";
        assert_eq!(may_lack(Capability::KprobeMulti, old, Machine::Aarch64), Ok(()));
        assert!(may_lack(Capability::KprobeMulti, old, Machine::X86_64).is_err());
        assert_eq!(may_lack(Capability::TracingMulti, "7.3.4", Machine::Aarch64), Ok(()));
        assert!(may_lack(Capability::TracingMulti, "7.3.4", Machine::X86_64).is_err());
    }
}
