// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a program is not run at a site.
//!
//! A refusal is not a failure of ours: it says what stands between the program and the site, before the kernel is
//! asked. Instruction numbers are those of the user's program as libbpf relocated it.

use crate::site::unavailable::Unavailable;
use thiserror::Error;

/// Why a program cannot be run by a trampoline, at any site or at sites of one location prototype.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The program calls a helper that cannot work where it would run.
    #[error("instruction {insn} calls {helper}: {why}")]
    HelperNotAllowed {
        /// Name of the helper.
        helper: &'static str,
        /// The call.
        insn: usize,
        /// Why it cannot work.
        why: &'static str,
    },
    /// The program calls `bpf_tail_call`.
    #[error(
        "instruction {insn} calls bpf_tail_call: the program called would get the probe's registers instead of the \
         function's arguments"
    )]
    TailCall {
        /// The call.
        insn: usize,
    },
    /// The program writes to its context.
    #[error("instruction {insn} writes to the context, which holds the function's arguments and is read-only")]
    ContextModified {
        /// The store.
        insn: usize,
    },
    /// The program reads before its context.
    #[error("instruction {insn} reads {bytes} bytes before the context")]
    ReadsBeforeContext {
        /// The load.
        insn: usize,
        /// How far before it.
        bytes: u32,
    },
    /// A helper gets a pointer into the context where it wants the context.
    #[error("instruction {insn} passes ctx{offset:+} to {helper}, which takes the context itself")]
    DisplacedContext {
        /// The call.
        insn: usize,
        /// Name of the helper.
        helper: &'static str,
        /// What was added to the context.
        offset: i32,
    },
    /// The program reads a slot that the function's parameters do not reach.
    #[error("the program reads argument slot {slot}, but the function's parameters take only {have}")]
    ReadsSlotBeyond {
        /// Index of the slot.
        slot: u32,
        /// Slots that the parameters take.
        have: u32,
    },
    /// The program reads a parameter that has no location at the site, or only a doubtful one.
    #[error("parameter {parameter}, which the program reads, has no value here: {reason}")]
    ArgumentMissing {
        /// Index of the parameter.
        parameter: usize,
        /// Why it has none.
        reason: Unavailable,
    },
    /// The program reads a parameter that is an address in the kernel's image, and the program is compiled for a kernel
    /// that does not run.
    #[error(
        "parameter {parameter}, which the program reads, is an address in the kernel here: KASLR moves it, and only a loader \
         that knows the running kernel can fill it in"
    )]
    ArgumentDisplaced {
        /// Index of the parameter.
        parameter: usize,
    },
    /// The program is compiled for a kernel that does not run, and no symbol says where the site is.
    #[error("several symbols have the name of the symbol that holds it, and its distance from _stext is not known")]
    NotBySymbol,
    /// The program follows a pointer to a structure of a module's own.
    #[error(
        "the program dereferences parameter {parameter} directly, and its type is a module's own, which bpf_rdonly_cast does not \
         know: use BPF_CORE_READ or bpf_probe_read_kernel instead"
    )]
    ForeignType {
        /// Index of the parameter.
        parameter: usize,
    },
    /// The program follows a returned pointer to a structure of a module's own.
    #[error(
        "the program dereferences the return value directly, and its type is a module's own, which bpf_rdonly_cast does not know: \
         use BPF_CORE_READ or bpf_probe_read_kernel instead"
    )]
    ForeignTypeOfReturn,
    /// The program runs at a probe at the return, where nothing tells what the arguments were.
    #[error("the program reads parameter {parameter}, and a return probe has the return value only")]
    ArgumentGone {
        /// Index of the parameter.
        parameter: usize,
    },
    /// The program reads the return value of a function that has none.
    #[error("the program reads the return value, and the function returns nothing")]
    ReturnsNothing,
    /// The program reads a return value that is not available.
    #[error("the program reads the return value, which is not available here: {reason}")]
    ReturnMissing {
        /// Why.
        reason: Unavailable,
    },
    /// The location of the return value does not make sense on this machine.
    #[error("the location of the return value is malformed")]
    MalformedReturn,
    /// A program for the entry was to run at a return, or the other way round.
    #[error("a program for a function's entry cannot run at its return, nor one for the return at the entry")]
    WrongEnd,
    /// The kernel has no kprobe sessions, or such as do not skip the return of a call whose entry was missed.
    #[error("this kernel has no kprobe sessions that could keep the arguments for the return (Linux 6.14)")]
    NoSession,
    /// A parameter's location does not make sense on this machine.
    #[error("the location of parameter {parameter} is malformed")]
    MalformedLocation {
        /// Index of the parameter.
        parameter: usize,
    },
    /// The program follows a pointer parameter, and the kernel has no way to give it its type.
    #[error(
        "the program dereferences parameter {parameter} directly, and this kernel has no bpf_rdonly_cast (Linux 6.2) \
         to give it its type: use BPF_CORE_READ or bpf_probe_read_kernel instead"
    )]
    NoRdonlyCast {
        /// Index of the parameter.
        parameter: usize,
    },
    /// The program follows a returned pointer, and the kernel has no way to give it its type.
    #[error(
        "the program dereferences the return value directly, and this kernel has no bpf_rdonly_cast (Linux 6.2) to give \
         it its type: use BPF_CORE_READ or bpf_probe_read_kernel instead"
    )]
    NoRdonlyCastOfReturn,
    /// Trampoline and program together need more stack than BPF has.
    #[error(
        "stack: the program needs {program} bytes of it (on its deepest path of calls) and the trampoline \
         {trampoline}, together more than the {limit} that BPF has"
    )]
    StackOverflow {
        /// Bytes of the program.
        program: u32,
        /// Bytes of the trampoline.
        trampoline: u32,
        /// What there is.
        limit: u32,
    },
    /// Code was inserted, and a jump over it no longer fits.
    #[error("the jump at instruction {insn} is too far for its offset once the context's helpers are rewritten")]
    JumpTooFar {
        /// The jump.
        insn: usize,
    },
    /// The program is beyond what is analysed.
    #[error("the program is too complex to find out which arguments it reads")]
    TooComplex,
    /// The instructions are not a BPF program.
    #[error("instruction {insn}: {what}")]
    Malformed {
        /// Where.
        insn: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The object's BTF cannot be read.
    #[error("the program's BTF: {0}")]
    MalformedBtf(&'static str),
}
