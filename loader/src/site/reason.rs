// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a site is not attached: one closed list, whichever phase finds out.

use super::bpf::{TailSlot, write_slots};
use super::refusal::Refusal;
use super::unavailable::Unavailable;
use siteseer_sites::site::Unprobeable;
use std::fmt;

/// A parameter that the program reads and a site does not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MissingArgument {
    /// Index of the parameter.
    pub index: usize,
    /// Its name, if the prototype has one.
    pub name: String,
    /// Why the site does not have it.
    pub why: Unavailable,
}

/// Why a site is not attached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel's image says that no probe can be there.
    Unprobeable(Unprobeable),
    /// The running kernel's blacklist says so.
    Blacklisted,
    /// The running kernel refuses kprobe events in functions that ftrace does not know.
    Notrace,
    /// The site is in the last function of a module's text, which this kernel takes to go on after its end when it
    /// looks whether a kprobe can be optimised: it may crash. See `Kernel::decodes_past_modules`.
    EndsModule,
    /// A program there may stop the kernel, or run for itself: why. Unless it is allowed.
    Risky(&'static str),
    /// The site lacks arguments that the program reads, or has them in doubtful locations only.
    MissingArguments(Vec<MissingArgument>),
    /// The copy's entry is not known for certain: a probe might hit at other moments than calls.
    EntryUncertain,
    /// The copy's entry is reached again by a loop inside of it, or shared with another copy: hits may outnumber
    /// calls. Only under the policy `complete`.
    MayRepeat,
    /// Control may come into the copy by another way than its entry: some calls may not be seen. Only under the policy
    /// `complete`.
    MayMiss,
    /// An out-of-line copy that the site data does not describe: where its arguments are is not known.
    NoLocationData,
    /// The function has no prototype in BTF, and the program reads arguments.
    NoPrototype,
    /// The program states its parameter types, and those of this copy are not known.
    PrototypeUnknown,
    /// A file was named, and where this copy is declared is not known.
    FileUnknown,
    /// The kernel's symbol is not where the site data has it.
    SymbolMismatch,
    /// The site data puts the site outside of the symbol that is said to hold it.
    OutsideSymbol,
    /// The kernel's code at the site is not that of the image that the site data was made from.
    CodeDiffers,
    /// The site is in a module that has no site data.
    InModule(String),
    /// The kernel has no mechanism that could reach the site.
    NoMechanism,
    /// A program that runs at the return, and an inlined copy: it has no return.
    ExitOfInline,
    /// A program that runs at the return: why no probe can be put on this one.
    NoExit(&'static str),
    /// The program reads the return value, and the compiler may have removed it from this copy.
    ReturnRemoved,
    /// The program may sleep, and only a real fentry or fexit program can.
    Sleepable,
    /// The BPF program that is the target is entered by tail call, after the probe. Only under the policy `complete`.
    TailCalled(Vec<TailSlot>),
    /// An extension has taken the place of the function of a BPF program.
    Extended {
        /// Id of the extension program.
        program: u32,
        /// Its name.
        name: String,
    },
    /// A function of a BPF program, where neither fentry nor fexit can have what the program needs.
    OnlyTracing,
    /// A live patch redirects the function's calls before they come to the probe, which stands some bytes after the
    /// entry.
    Redirected {
        /// The patch.
        patch: String,
    },
    /// It could not be attached, and a live patch has replaced the function around it: its code does not run.
    LivePatched {
        /// The patch.
        patch: String,
        /// Why it could not be attached.
        otherwise: Box<Reason>,
    },
    /// The program at the other end of the same calls does not reach the site, and the two are kept together.
    Unpaired {
        /// Its name.
        program: String,
    },
    /// The program cannot run there.
    Refused(Refusal),
    /// The kernel refused the probe.
    Kernel {
        /// The error's number.
        errno: i32,
        /// What refused it: `kprobe`, `kprobe.multi`, `fentry`, ...
        mechanism: &'static str,
        /// What the verifier says about it, where it was asked.
        said: Option<String>,
    },
}

impl Reason {
    /// Whether code there never runs, so that nothing is missed.
    pub fn is_dead(&self) -> bool {
        match self {
            Reason::Unprobeable(why) => why.is_dead(),
            Reason::LivePatched { .. } => true,
            _ => false,
        }
    }

    /// Whether it stands against kprobes only, so that what goes by ftrace can still be there.
    pub(crate) fn is_about_kprobes(&self) -> bool {
        matches!(self, Reason::Blacklisted | Reason::EndsModule | Reason::Unprobeable(Unprobeable::Blacklisted))
    }

    /// Whether it is that ftrace does not know the function, to which some kernels have no objection
    /// (`Kernel::notrace_events`).
    pub(crate) fn is_notrace(&self) -> bool {
        matches!(self, Reason::Notrace | Reason::Unprobeable(Unprobeable::Notrace))
    }

    /// A stable identifier for machines, and what reports count by.
    pub fn key(&self) -> &'static str {
        match self {
            Reason::Unprobeable(why) => why.key(),
            Reason::Blacklisted => "blacklisted",
            Reason::Notrace => "notrace",
            Reason::EndsModule => "ends_module",
            Reason::Risky(_) => "risky",
            Reason::MissingArguments(_) => "missing_arguments",
            Reason::EntryUncertain => "entry_uncertain",
            Reason::MayRepeat => "may_repeat",
            Reason::MayMiss => "may_miss",
            Reason::NoLocationData => "no_location_data",
            Reason::NoPrototype => "no_prototype",
            Reason::PrototypeUnknown => "prototype_unknown",
            Reason::FileUnknown => "file_unknown",
            Reason::SymbolMismatch => "symbol_mismatch",
            Reason::OutsideSymbol => "outside_symbol",
            Reason::CodeDiffers => "code_differs",
            Reason::InModule(_) => "in_module",
            Reason::NoMechanism => "no_mechanism",
            Reason::ExitOfInline => "exit_of_inline",
            Reason::NoExit(_) => "no_exit",
            Reason::ReturnRemoved => "return_removed",
            Reason::Sleepable => "sleepable",
            Reason::TailCalled(_) => "tail_called",
            Reason::Extended { .. } => "extended",
            Reason::OnlyTracing => "only_tracing",
            Reason::Redirected { .. } => "redirected",
            Reason::LivePatched { .. } => "live_patched",
            Reason::Unpaired { .. } => "unpaired",
            Reason::Refused(_) => "refused",
            Reason::Kernel { .. } => "kernel",
        }
    }

    /// What the user can do about it, if anything.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Reason::MissingArguments(arguments) if arguments.iter().all(|argument| argument.why.is_doubt()) => Some(
                "the option accept_doubt attaches it, and the argument may then be wrong there; or read it by \
                 siteseer_arg() of siteseer.bpf.h, which tells the program when a site does not have it",
            ),
            Reason::MissingArguments(_) => Some(
                "read it by siteseer_arg() of siteseer.bpf.h, which tells the program when a site does not have it",
            ),
            Reason::Risky(_) => Some("the option allow_risky attaches it"),
            Reason::MayRepeat => Some("the policy best_effort attaches it, and hits may then outnumber calls"),
            Reason::MayMiss => Some("the policy best_effort attaches it, and some calls may then not be seen"),
            Reason::NoLocationData => {
                Some("encode site data from a debug vmlinux of this very kernel, or do not read arguments")
            }
            Reason::NoPrototype => Some("a program that reads no arguments can be attached"),
            Reason::PrototypeUnknown | Reason::FileUnknown => Some(
                "encode site data from a debug vmlinux of this very kernel, or do not tell functions of the name apart",
            ),
            Reason::NoMechanism => Some("a kernel with CONFIG_KPROBE_EVENTS is needed"),
            Reason::ExitOfInline => {
                Some("the policy best_effort attaches the other copies, and calls of these are missed")
            }
            Reason::ReturnRemoved => Some("a program that does not read the return value can be attached"),
            Reason::Sleepable => Some("a program that does not sleep (without .s) can be attached"),
            Reason::TailCalled(_) => {
                Some("the policy best_effort attaches it, and sees all calls but those that come by tail call")
            }
            Reason::Extended { .. } => Some("attach to the extension program: what calls the function ends up there"),
            Reason::Unpaired { .. } => Some(
                "attach it separately (AttachOptions::paired(false)): it then runs there, and entries and returns are \
                 not of the same calls",
            ),
            Reason::OnlyTracing => {
                Some("put the program in SEC(\"fentry/...\") or SEC(\"fexit/...\"), on a kernel that has them")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Unprobeable(why) => why.fmt(f),
            Reason::Blacklisted => f.write_str("on the running kernel's kprobe blacklist"),
            Reason::Notrace => f.write_str("in a notrace function, where the kernel refuses kprobe events"),
            Reason::EndsModule => f.write_str(
                "in the last function of its module's text, where this kernel may crash over a kprobe: it looks past the end",
            ),
            Reason::Risky(why) => write!(f, "a program there is a risk: {why}"),
            Reason::MissingArguments(arguments) => {
                for (nth, argument) in arguments.iter().enumerate() {
                    let comma = if nth == 0 { "" } else { "; " };
                    match argument.name.as_str() {
                        "" => write!(f, "{comma}argument {}: {}", argument.index, argument.why)?,
                        name => write!(f, "{comma}{name}: {}", argument.why)?,
                    }
                }
                Ok(())
            }
            Reason::EntryUncertain => f.write_str("the debug information does not say where this copy is entered"),
            Reason::MayMiss => {
                f.write_str("control may come into it by another way than its entry: some calls may not be seen")
            }
            Reason::MayRepeat => f.write_str(
                "its entry is also reached by a loop inside of it, or by another copy: hits may outnumber calls",
            ),
            Reason::NoLocationData => {
                f.write_str("the site data does not describe this copy: where its arguments are is not known")
            }
            Reason::NoPrototype => f.write_str("the kernel's BTF has no prototype for it"),
            Reason::PrototypeUnknown => f.write_str(
                "its parameter types are not known: it may be another function of this name than the program states",
            ),
            Reason::FileUnknown => f.write_str(
                "where it is declared is not known: it may be another function of this name than the one in the file",
            ),
            Reason::SymbolMismatch => f.write_str("the kernel has another symbol there than the site data"),
            Reason::OutsideSymbol => f.write_str("the site data puts it outside of the symbol that holds it"),
            Reason::CodeDiffers => f.write_str("the kernel has other instructions there than the site data"),
            Reason::InModule(module) => write!(f, "in module {module}, which has no site data"),
            Reason::NoMechanism => f.write_str("this kernel has no kprobes"),
            Reason::ExitOfInline => f.write_str("an inlined copy has no return that a probe could be put on"),
            Reason::NoExit(why) => write!(f, "no probe can be put on its return: {why}"),
            Reason::ReturnRemoved => {
                f.write_str("the compiler may have removed the return value, which the program reads, from this copy")
            }
            Reason::Sleepable => f.write_str("sleepable programs cannot run at a kprobe"),
            Reason::TailCalled(slots) => {
                f.write_str("it is also entered by tail call, after the probe, from ")?;
                write_slots(f, slots)
            }
            Reason::Extended { program, name } => {
                write!(f, "the extension program {name} (id {program}) has taken its place")
            }
            Reason::OnlyTracing => {
                f.write_str("in a BPF program, where only real fentry and fexit programs can be attached")
            }
            Reason::Redirected { patch } => {
                write!(f, "the live patch {patch} redirects its calls before they come to the probe")
            }
            Reason::LivePatched { patch, otherwise } => {
                write!(f, "in a function that the live patch {patch} has replaced ({otherwise})")
            }
            Reason::Unpaired { program } => {
                write!(f, "the program {program}, at the other end of the same calls, does not reach it")
            }
            Reason::Refused(refusal) => refusal.fmt(f),
            Reason::Kernel { mechanism, said: Some(said), .. } => {
                write!(f, "the kernel refused the {mechanism}: {said}")
            }
            Reason::Kernel { errno, mechanism, said: None } => match meaning(*errno, mechanism) {
                Some(meaning) => write!(f, "the kernel refused the {mechanism}: {meaning}"),
                None => write!(f, "the kernel refused the {mechanism}: {}", std::io::Error::from_raw_os_error(*errno)),
            },
        }
    }
}

/// The kernel's own "not supported" (include/linux/errno.h), which user space has no name for.
const ENOTSUPP: i32 = 524;

/// What an error's number means where a probe is refused: the C library's words for it are about something else.
/// Sources: kernel/kprobes.c, kernel/trace/fprobe.c; for fentry and its kin kernel/bpf/trampoline.c,
/// kernel/trace/ftrace.c.
fn meaning(errno: i32, mechanism: &str) -> Option<&'static str> {
    let tracing = matches!(mechanism, "fentry" | "fexit" | "tracing-multi");
    match errno {
        libc::EBUSY if tracing => {
            Some("the function's entry is taken, by a live patch or another kind of program (EBUSY)")
        }
        libc::E2BIG if tracing => Some("the function has as many such programs as it can have (E2BIG)"),
        ENOTSUPP => Some("the kernel's trampolines cannot carry this function's arguments (ENOTSUPP)"),
        libc::ENOENT if tracing => Some("the kernel does not find the function by its name (ENOENT)"),
        libc::EINVAL if tracing => Some("no such program may be there (EINVAL)"),
        libc::EILSEQ => Some("not at the start of an instruction (EILSEQ)"),
        libc::EINVAL => Some("no probe may be there (EINVAL)"),
        libc::ENOENT | libc::EADDRNOTAVAIL => Some("there is no such place (ENOENT)"),
        libc::EBUSY => Some("the place is in use (EBUSY)"),
        libc::EEXIST => Some("it has one already (EEXIST)"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_refusals_are_about_probes() {
        let text = |errno, mechanism| Reason::Kernel { errno, mechanism, said: None }.to_string();
        let kprobe = |errno| text(errno, "kprobe");
        assert_eq!(kprobe(libc::EILSEQ), "the kernel refused the kprobe: not at the start of an instruction (EILSEQ)");
        assert_eq!(kprobe(libc::EBUSY), "the kernel refused the kprobe: the place is in use (EBUSY)");
        assert!(kprobe(libc::EOPNOTSUPP).starts_with("the kernel refused the kprobe: "));
        for errno in [libc::EBUSY, libc::E2BIG, libc::ENOENT, libc::EINVAL] {
            assert_ne!(text(errno, "fentry"), kprobe(errno).replace("kprobe", "fentry"), "{errno}");
        }
        let said =
            Reason::Kernel { errno: libc::EINVAL, mechanism: "fentry", said: Some("foo is not sleepable".into()) };
        assert_eq!(said.to_string(), "the kernel refused the fentry: foo is not sleepable");
    }

    #[test]
    fn only_freed_text_is_dead() {
        assert!(Reason::Unprobeable(Unprobeable::Init).is_dead());
        assert!(!Reason::Unprobeable(Unprobeable::Noinstr).is_dead());
        assert!(!Reason::Notrace.is_dead());
    }
}
