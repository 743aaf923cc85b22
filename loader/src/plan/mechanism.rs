// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ways to make the kernel run a program at a site, best first, and which sites each can reach.
//!
//! A table: a mechanism that is added is a row here and a file in `attach`. What each row asks is about the site, the
//! program and the kernel, never about the function's name: an ambiguous name reaches the wrong function. fentry and
//! its kin are the exception, because the kernel takes a name for them: they are for bodies whose name means one symbol
//! and one FUNC ([`Candidate::exact`]), and whose arguments are where the calling convention puts them, because there
//! the kernel looks.
//!
//! At a return there is the return value and nothing else. What the program reads of the arguments must have been kept
//! since the entry: fexit does, and a kprobe session lets us.
//!
//! The kernel may refuse a mechanism that its tables allow (a prototype that its trampolines cannot carry, a live
//! patch). The site is then planned again without that mechanism (`Barred`). If no other mechanism is left, the report
//! gives the refusal as the reason.

use crate::kernel::Kernel;
use crate::program::Uses;
use crate::program::section::{Form, Kind};
use crate::site::reason::Reason;
use crate::target::function::{Candidate, Prototype};
use crate::trampoline::Probe;
use crate::trampoline::arch::Arch;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::Register;
use siteseer_sites::site::{Marks, SiteKind};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// A way to make the kernel run a program at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// fentry: the kernel's own trampoline.
    Fentry,
    /// fexit: the same, at the return.
    Fexit,
    /// One fentry program on many functions by one link.
    TracingMulti,
    /// One fexit program on many functions by one link.
    TracingMultiExit,
    /// kprobe.multi by address: one link for the entries of many out-of-line copies.
    KprobeMulti,
    /// A kprobe session: one link for entries and returns.
    KprobeSession,
    /// kprobe.multi with the return flag: one link for the returns of many out-of-line copies.
    KretprobeMulti,
    /// A perf kprobe at an absolute address: one event and one link per site.
    Kprobe,
    /// A perf kretprobe.
    Kretprobe,
}

impl Mechanism {
    /// The mechanisms, best first.
    pub const ALL: [Mechanism; 9] = [
        Mechanism::Fentry,
        Mechanism::Fexit,
        Mechanism::TracingMulti,
        Mechanism::TracingMultiExit,
        Mechanism::KprobeMulti,
        Mechanism::KprobeSession,
        Mechanism::KretprobeMulti,
        Mechanism::Kprobe,
        Mechanism::Kretprobe,
    ];

    /// What the trampoline must know of it.
    #[doc(hidden)]
    pub fn probe(self) -> Probe {
        match self {
            Mechanism::Fentry => Probe::Fentry,
            Mechanism::Fexit => Probe::Fexit,
            Mechanism::TracingMulti => Probe::TracingMulti,
            Mechanism::TracingMultiExit => Probe::TracingMultiExit,
            Mechanism::KprobeMulti => Probe::KprobeMulti,
            Mechanism::KprobeSession => Probe::Session,
            Mechanism::KretprobeMulti | Mechanism::Kretprobe => Probe::Kretprobe,
            Mechanism::Kprobe => Probe::Kprobe,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Mechanism::Fentry => "fentry",
            Mechanism::Fexit => "fexit",
            Mechanism::TracingMulti | Mechanism::TracingMultiExit => "tracing-multi",
            Mechanism::KprobeMulti => "kprobe.multi",
            Mechanism::KprobeSession => "kprobe session",
            Mechanism::KretprobeMulti => "kretprobe.multi",
            Mechanism::Kprobe => "kprobe",
            Mechanism::Kretprobe => "kretprobe",
        }
    }

    /// The mechanism by which one program serves many sites of this one.
    pub(crate) fn of_many(self) -> Option<Mechanism> {
        match self {
            Mechanism::Fentry => Some(Mechanism::TracingMulti),
            Mechanism::Fexit => Some(Mechanism::TracingMultiExit),
            _ => None,
        }
    }

    /// Whether each site needs a program of its own, loaded for that very function.
    pub(crate) fn is_for_one(self) -> bool {
        self.of_many().is_some()
    }

    /// Whether what it hands over of the entry is nothing.
    pub(crate) fn lacks_arguments(self) -> bool {
        matches!(self, Mechanism::KretprobeMulti | Mechanism::Kretprobe)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// `bpf_get_stackid` and `bpf_get_stack`.
const STACK_HELPERS: [u32; 2] = [27, 67];

/// The program at the other end of the same calls: at the return of the function that this one is at the entry of, or
/// the reverse.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pair {
    /// Its name.
    pub(crate) program: String,
    /// The addresses of the sites that it reaches.
    pub(crate) reached: BTreeSet<u64>,
}

/// What is not to be tried: what the kernel refused in an earlier attempt, by the probe's address and the mechanism,
/// and sites that the other program of a pair does not reach.
#[derive(Debug, Clone, Default)]
pub(crate) struct Barred {
    sites: HashMap<(u64, Mechanism), Reason>,
    /// The program that this one is kept to.
    pub(crate) pair: Option<Arc<Pair>>,
    /// That location prototypes share programs.
    pub(crate) sharing: bool,
}

impl Barred {
    /// Notes a refusal. Whether it is a new one.
    pub(crate) fn add(&mut self, address: u64, mechanism: Mechanism, reason: Reason) -> bool {
        self.sites.insert((address, mechanism), reason).is_none()
    }

    /// Nothing but what the other program of a pair does not reach.
    pub(crate) fn kept_to(pair: Option<Arc<Pair>>) -> Barred {
        Barred { pair, ..Barred::default() }
    }

    /// Why the other program of a pair stands against a site.
    pub(crate) fn unpaired(&self, address: u64) -> Option<Reason> {
        let pair = self.pair.as_ref().filter(|pair| !pair.reached.contains(&address))?;
        Some(Reason::Unpaired { program: pair.program.clone() })
    }

    pub(crate) fn get(&self, address: u64, mechanism: Mechanism) -> Option<&Reason> {
        self.sites.get(&(address, mechanism))
    }
}

/// A site and a program, to find a mechanism for.
pub(crate) struct Choice<'a> {
    pub(crate) candidate: &'a Candidate,
    pub(crate) prototype: &'a Prototype,
    pub(crate) uses: &'a Uses,
    pub(crate) form: Form,
    pub(crate) kernel: &'a Kernel,
    pub(crate) barred: &'a Barred,
    pub(crate) accept_doubt: bool,
}

impl Choice<'_> {
    /// The best mechanism that reaches the site.
    pub(crate) fn best(&self) -> Result<Mechanism, Reason> {
        let mut refused = None;
        for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| self.reaches(*mechanism)) {
            match self.barred.get(self.candidate.address, mechanism) {
                None => return Ok(mechanism),
                Some(reason) => refused = refused.or(Some(reason)),
            }
        }
        Err(refused.cloned().unwrap_or_else(|| self.why_not()))
    }

    fn reaches(&self, mechanism: Mechanism) -> bool {
        let Choice { candidate, uses, kernel, .. } = self;
        if mechanism.probe().is_exit() != self.form.kind.is_exit() {
            return false;
        }
        if self.form.sleepable && !mechanism.probe().is_tracing() {
            return false;
        }
        if candidate.bpf.is_some() && !mechanism.is_for_one() {
            return false;
        }
        // The registers that kprobe.multi hands over do not give a stack trace on every kernel.
        let wants_registers = if self.form.kind.is_exit() { self.walks_the_stack() } else { uses.context };
        let multi = kernel.kprobe_multi && self.is_traced_entry() && !wants_registers;
        match mechanism {
            Mechanism::Fentry => self.reached_by_name() && self.is_as_promised(),
            Mechanism::Fexit => self.reached_by_name(),
            // Never the best for one site: the plan gathers those that they can serve together.
            Mechanism::TracingMulti | Mechanism::TracingMultiExit => false,
            Mechanism::KprobeMulti => multi && self.passed_in_registers(),
            Mechanism::KprobeSession => {
                multi && self.wants_arguments() && kernel.kprobe_session.is_some() && self.passed_in_registers()
            }
            Mechanism::KretprobeMulti => multi && !self.requires_arguments(),
            Mechanism::Kprobe => kernel.kprobe_pmu.is_some() && kernel.obstacle(candidate).is_none(),
            Mechanism::Kretprobe => {
                kernel.kprobe_pmu.is_some()
                    && kernel.kretprobe.is_some()
                    && kernel.obstacle(candidate).is_none()
                    && candidate.is_entry()
                    && !self.requires_arguments()
            }
        }
    }

    /// What stands in the way where nothing reaches the site.
    fn why_not(&self) -> Reason {
        if self.candidate.bpf.is_some() {
            return Reason::OnlyTracing;
        }
        if let Some(obstacle) = self.kernel.obstacle(self.candidate) {
            return obstacle.clone();
        }
        if self.form.sleepable {
            return Reason::Sleepable;
        }
        if !self.form.kind.is_exit() {
            return Reason::NoMechanism;
        }
        let kernel = self.kernel;
        Reason::NoExit(if !self.candidate.is_entry() {
            "what is known of it begins after its entry"
        } else if !self.requires_arguments() {
            "this kernel has neither kretprobes nor their multi form"
        } else if kernel.unplaced {
            "the program reads arguments, and only siteseer's own loader keeps them from the entry, by a kprobe session"
        } else if !(kernel.kprobe_multi && kernel.kprobe_session.is_some()) {
            "the program reads arguments, and this kernel has no kprobe sessions (Linux 6.14) to keep them from the entry"
        } else if !self.is_traced_entry() {
            "the program reads arguments, and ftrace does not know the function, so that a kprobe session cannot keep them"
        } else if self.walks_the_stack() {
            "the program reads arguments, and asks for a stack trace, for which a kprobe session has no registers"
        } else {
            "the program reads arguments that are not in registers at the entry, where a kprobe session could keep them"
        })
    }

    /// Whether it asks for a stack trace.
    fn walks_the_stack(&self) -> bool {
        self.uses.helpers.iter().any(|(helper, _)| STACK_HELPERS.contains(helper))
    }

    /// Whether ftrace can put something on the entry.
    fn is_traced_entry(&self) -> bool {
        self.candidate.is_entry() && self.candidate.traceable == Some(true)
    }

    /// Whether a program loaded for the FUNC's name runs at this very site, with its arguments.
    fn reached_by_name(&self) -> bool {
        // A BPF program is patched without ftrace's direct calls: where those are missing (arm64 before 6.4) it may go.
        (self.kernel.fentry || self.candidate.bpf.is_some())
            && self.candidate.exact.is_some()
            && self.candidate.is_entry()
            && self.candidate.traceable != Some(false)
            && self.passed_by_convention()
            && self.is_of_readable_numbers()
    }

    /// Whether the verifier lets a tracing program read what it reads: no number of more than 64 bits
    /// (`btf_ctx_access()`, kernel/bpf/btf.c, wants `btf_type_is_small_int()`).
    fn is_of_readable_numbers(&self) -> bool {
        self.parameters().filter(|(_, _, read)| *read).all(|(index, _, _)| {
            self.prototype.parameters.get(index).is_none_or(|parameter| parameter.composite || parameter.size <= 8)
        })
    }

    /// What the program reads of each parameter: its index, its slots, whether they are required, and whether it is
    /// read at all.
    fn parameters(&self) -> impl Iterator<Item = (usize, bool, bool)> + '_ {
        let mut first = 0;
        self.prototype.parameters.iter().zip(0u32..).map(move |(parameter, index)| {
            let slots = first..first + parameter.slots;
            first = slots.end;
            let required = self.uses.requires(slots);
            (index as usize, required, required || self.uses.fallible.contains(index))
        })
    }

    /// Whether an argument must be there.
    fn requires_arguments(&self) -> bool {
        self.parameters().any(|(_, required, _)| required)
    }

    /// Whether an argument is asked for, and it may do without.
    fn wants_arguments(&self) -> bool {
        self.parameters().any(|(_, _, read)| read)
    }

    /// Whether everything that the program reads is where the calling convention puts it: an argument of a function
    /// whose signature the compiler changed is elsewhere, or nowhere.
    pub(crate) fn passed_by_convention(&self) -> bool {
        let convention = self.prototype.by_convention(self.kernel.machine);
        self.parameters().filter(|(_, _, read)| *read).all(|(index, _, _)| {
            match (self.candidate.available(index, self.accept_doubt), convention.get(index)) {
                (Ok(here), Some(Ok(there))) => here.at == there.at && here.size == there.size,
                _ => false,
            }
        })
    }

    /// Whether a real fentry program sees what its section promises. The kernel stores the whole register of a narrow
    /// argument, whatever is above it, and its stack traces begin in its own trampoline; every fentry program knows. A
    /// `kprobe_maybe_inline` program is promised the extended value, and traces that begin at the site.
    fn is_as_promised(&self) -> bool {
        let wide = |index: usize| self.prototype.parameters.get(index).is_some_and(|p| p.size.is_multiple_of(8));
        self.form.kind != Kind::KprobeMaybeInline
            || (!self.walks_the_stack() && self.parameters().all(|(index, required, _)| !required || wide(index)))
    }

    /// Whether everything that the program may read is in registers that pass arguments: since 6.14 a kprobe.multi
    /// program sees no others (`ftrace_regs`, arch/*/include/asm/ftrace.h).
    fn passed_in_registers(&self) -> bool {
        let passing = Arch::of(self.kernel.machine).passing;
        self.parameters().filter(|(_, _, read)| *read).all(|(index, _, _)| {
            match self.candidate.available(index, self.accept_doubt) {
                Ok(located) => registers(located).iter().all(|register| passing.contains(register)),
                Err(_) => true,
            }
        })
    }
}

/// Whether a copy's return value is where the calling convention puts it. GCC's IPA-SRA drops one that nobody uses, and
/// names the copy `.isra`; what else it does to a clone, and names `.constprop`, takes parameters away and never the
/// return value (gcc/ipa-sra.cc, gcc/ipa-cp.cc). clang drops it without renaming, and its debug information says no
/// more than that the signature was changed. The site data tells about copies that are so named or marked and return it
/// all the same.
pub(crate) fn keeps_return(candidate: &Candidate) -> bool {
    let named = |word: &str| {
        candidate.kind == SiteKind::Clone && candidate.symbol.split('.').skip(1).any(|suffix| suffix == word)
    };
    candidate.marks.contains(Marks::RETURN_KEPT)
        || !named("isra") && (named("constprop") || !candidate.marks.contains(Marks::SIGNATURE_CHANGED))
}

/// The registers that a location depends on.
fn registers(located: &Located) -> Vec<Register> {
    match &located.at {
        Location::Constant(_) | Location::Address(_) => Vec::new(),
        Location::Register(register) | Location::RegisterOffset(register, _) | Location::Memory(register, _) => {
            vec![*register]
        }
        Location::RegisterPair(first, second) => vec![*first, *second],
        Location::Computed(computed) => {
            let ops = computed.slots.iter().flat_map(|slot| slot.iter());
            ops.filter_map(|op| if let Op::Register(register) = op { Some(*register) } else { None }).collect()
        }
    }
}
