// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Trampolines: generated BPF code that makes any probe look like fentry or fexit.
//!
//! # The idea
//! The user's program is written for fentry: its context is an array of 8-byte slots, one per argument; for fexit with
//! one more, the return value. At an inline site there is no such array. There are registers, and debug information
//! that says which of them holds what. So for each location prototype a main program is generated that gathers the
//! arguments into an array on its stack and calls the user's program, now an ordinary static subprogram, with a
//! pointer to it. Nothing is interpreted at run time: an argument in a register costs two instructions.
//!
//! ```text
//!     stack of the trampoline                            what the user's program sees
//!     r10 -8*(words)      slot 0                         ctx[0]
//!                         slot 1                         ctx[1]
//!                         ...
//!                         copies, states (see below)
//!     below slot 0:       the real context               ctx[-1]
//!                         the probe's address            ctx[-2]
//!                         scratch
//! ```
//!
//! # What runs it
//! | [`Probe`] | program type | where the values come from |
//! |---|---|---|
//! | `Kprobe`, `KprobeMulti` | KPROBE | registers and memory at the probe, by the location prototype |
//! | `Fentry`, `Fexit` | TRACING | the kernel's own array: the program is left as it is |
//! | `TracingMulti`, `TracingMultiExit` | TRACING | `bpf_get_func_arg` and `bpf_get_func_ret` |
//! | `Kretprobe` | KPROBE | registers at the return: the return value, and no argument |
//! | `Session` | KPROBE | registers at the entry, kept (`session`), and at the return |
//!
//! A tracing-multi program is verified against `int bpf_multi_func(void)` (kernel/bpf/syscall.c). The context of that
//! has neither arguments nor a return value, so that every load from it is refused, and the helpers, which look at the
//! number of arguments that the function has, are the only way. What they give are numbers; pointers get their types as
//! at a kprobe.
//!
//! A function that returns nothing has no slot for it: the verifier refuses the load under fexit
//! (`btf_ctx_access()`), and it is refused here. `bpf_get_func_ret`, which would give what rax happens to hold,
//! is refused as well.
//!
//! # What is gathered
//! Only what the program reads ([`Uses`]). A parameter that has no location and is not read does not matter, and two
//! prototypes that differ only in such parameters share a trampoline ([`Spec::key`]).
//!
//! Values are canonical: a parameter of 4 bytes is extended to its slot by its signedness, whatever the upper half of
//! the register holds. (fentry hands over the raw register; C code that reads an `int` argument cannot tell.)
//!
//! A pointer to a structure, if the program reads it whole, goes through the kfunc `bpf_rdonly_cast`: spilled to
//! the array, it keeps its BTF type, and the user's program follows it directly, as under fentry. It is "untrusted"
//! to the verifier: reading through it is fine (a bad address reads as 0, as under fentry), passing it to a kfunc that
//! wants a trusted pointer is not. A kernel without that kfunc (before 6.2) gets the plain number; that is enough for
//! a program that reads memory through helpers, and one that does not is refused beforehand.
//!
//! # Many location prototypes
//! A program for each is the fastest, and of some functions there are thousands. Beyond a bound (`plan`) one program
//! serves many ([`generate_shared`]): its trampoline gathers in one of several ways, and the cookie of the site's link
//! says in which. See `dispatch`.
//!
//! # What cannot be gathered
//! Memory is read by `bpf_probe_read_kernel`. If that fails, the user's program is not run: a zero in place of a
//! value would be a lie. The loss is counted in a map. An argument that is asked for through `siteseer_arg` alone is
//! different: that call can fail, so it gets -EFAULT, and the program runs. Its outcome is kept in a word of state
//! beside the array.
//!
//! # The user's code
//! It is changed as little as possible (`rewrite`). Helpers that take the context get the real one from `ctx[-1]`:
//! the pointer survives in the array because the verifier tracks spilled pointers, also across the call. Helpers that
//! look into fentry's context, and the accessors of siteseer.bpf.h, become loads from the array. A function that sees
//! the array must be static in BTF: the verifier checks a global function by itself, believing its BTF about the
//! argument, and there the array would be a kprobe's context.
//!
//! # Where the probe is
//! `ctx[-2]` is the address of the probe, which [`crate::trampoline::arch`] tells how to know. `siteseer_site` looks it
//! up in a hash map from address to [`SiteRecord`].
//!
//! # Which helpers
//! A helper that only programs of type TRACING may call is refused where a kprobe runs the program; so is one that may
//! sleep. A stack trace is refused where it would not be the one that fentry gives: in a kprobe session, because its
//! registers at the return do not lead to the caller on many kernels, and under tracing-multi, where the trampoline is
//! a frame of it. A tail call leaves the trampoline, and its target finds the context that the kernel gives: only under
//! real fentry and fexit is that the one which the program had.
//!
//! # Limits
//! BPF's stack is 512 bytes for the whole path of calls, and the array takes some of them. Where the kernel gives BPF
//! programs private stacks (`bpf_enable_priv_stack()` in kernel/bpf/verifier.c: JIT of x86-64 since 6.13, of arm64
//! later; types KPROBE and TRACING among others; no tail calls), a frame of 64 bytes and more has 512 bytes to itself,
//! and only the smaller ones share: 8 of them, as deep as calls may go, are less than 512. So with
//! [`KernelIds::private_stack`] each frame is held to the limit, and their sum is not.
//!
//! Values are little-endian. Real fentry and fexit need no trampoline; only the accessor calls are replaced, which
//! extend a narrow argument there too: the kernel's array has the register as it was.

pub mod arch;
pub(crate) mod btf;
mod dispatch;
mod expression;
mod gather;
mod layout;
mod rewrite;
mod session;

use crate::bpf::insn::{self, Insn};
use crate::program::{FuncInfo, LineInfo, UserProgram, Uses};
use crate::site::refusal::Refusal;
use crate::site::unavailable::Unavailable;
use layout::Layout;
use siteseer_sites::location::Located;
use siteseer_sites::machine::Machine;

/// The stack of a BPF program, all frames together (`MAX_BPF_STACK`).
const STACK_LIMIT: u32 = 512;

/// What runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Probe {
    /// A kprobe, perf or tracefs: program type KPROBE.
    Kprobe,
    /// A kprobe.multi link: program type KPROBE, expected attach type TRACE_KPROBE_MULTI. It runs from ftrace, which
    /// need not save registers other than those that pass arguments and the stack pointer: locations in others are
    /// for the planner to keep away from it.
    KprobeMulti,
    /// fentry: program type TRACING. The kernel gathers the arguments; they are where the ABI puts them.
    Fentry,
    /// fexit: as [`Probe::Fentry`], at the return, with the return value in the slot after the arguments.
    Fexit,
    /// fentry of a tracing-multi link: one program on many functions, program type TRACING, expected attach type
    /// TRACE_FENTRY_MULTI.
    TracingMulti,
    /// fexit of a tracing-multi link.
    TracingMultiExit,
    /// The return of a function, by a perf kretprobe or a kprobe.multi link with the return flag: program type KPROBE.
    /// There is the return value, and nothing of the entry.
    Kretprobe,
    /// A kprobe session: program type KPROBE, expected attach type TRACE_KPROBE_SESSION. It runs at the entry, where
    /// the trampoline saves what the program will read, and at the return, where the program is run.
    Session,
}

impl Probe {
    /// Whether the program is of type TRACING, not KPROBE.
    pub fn is_tracing(self) -> bool {
        matches!(self, Probe::Fentry | Probe::Fexit | Probe::TracingMulti | Probe::TracingMultiExit)
    }

    /// Whether the user's program runs at the function's return.
    pub fn is_exit(self) -> bool {
        matches!(self, Probe::Fexit | Probe::TracingMultiExit | Probe::Kretprobe | Probe::Session)
    }
}

/// One parameter of the function at the sites in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Bytes of its type. Decides how many slots it takes, also where it has no location.
    pub size: u32,
    /// Where its value is, or why the program cannot have it.
    pub argument: Result<Located, Unavailable>,
    /// For a pointer to a structure or union: that type's id in vmlinux's BTF.
    pub typed: Option<u32>,
    /// Whether it points to a structure or union that vmlinux's BTF does not have, so that no trampoline can give it
    /// its type.
    pub foreign: bool,
}

impl Parameter {
    /// How many slots of the context it takes.
    pub fn slots(&self) -> u32 {
        self.size.div_ceil(8).max(1)
    }
}

/// A kfunc that the kernel gave a context argument in a later version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kfunc {
    /// BTF id of its FUNC.
    pub id: u32,
    /// Whether its prototype has the context as parameter.
    pub takes_context: bool,
}

/// What the running kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelIds {
    /// BTF id of the kfunc `bpf_rdonly_cast`, if there is one.
    pub rdonly_cast: Option<u32>,
    /// The kfunc `bpf_session_is_return`; none before Linux 6.14, where a session's return may run without its entry.
    pub session_is_return: Option<Kfunc>,
    /// The kfunc `bpf_session_cookie`, likewise.
    pub session_cookie: Option<Kfunc>,
    /// Whether large frames of kprobe programs have stacks of their own (x86-64 since 6.13, arm64 later), so that the
    /// 512 bytes are per function.
    pub private_stack: bool,
    /// Whether it is not known where the kernel lies: then an address constant is not a location.
    pub unplaced: bool,
}

/// What a trampoline is to be made for: a location prototype and everything else that differs between sites.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// The architecture.
    pub machine: Machine,
    /// What runs the program.
    pub probe: Probe,
    /// The function's parameters.
    pub parameters: &'a [Parameter],
    /// The function's return value, at an exit: its type's size, and where the ABI puts it. `None` for a function that
    /// returns nothing.
    pub ret: Option<&'a Parameter>,
    /// Whether the sites are inline sites, where the kernel does not know which function it is in.
    pub inline: bool,
    /// The user's BPF cookie.
    pub cookie: u64,
    /// Run-time address minus link-time address of the image that the locations' addresses are in.
    pub displacement: u64,
    /// What the kernel offers.
    pub kernel: KernelIds,
}

/// A map that is created when the program is attached. Until then the code has a relocation in place of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnMap {
    /// The map of sites: a hash map from address (u64) to [`SiteRecord`].
    Sites,
    /// The map that counts calls lost to memory that could not be read: an array or per-CPU array of one u64.
    Faults,
    /// What [`Image::saved`] asks for.
    Saved,
}

/// A map that keeps what the program reads of a call from its entry to its return: a BPF_MAP_TYPE_HASH that is not
/// preallocated (BPF_F_NO_PREALLOC). Each loaded program needs one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SavedMap {
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most calls that it can hold at a time.
    pub max_entries: u32,
}

impl Spec<'_> {
    /// What must be equal for one program to serve them all ([`generate_shared`]): all but where things are.
    ///
    /// # Errors
    /// As [`generate`], for reasons that the locations have.
    pub fn outline(&self, uses: &Uses) -> Result<Key, Refusal> {
        Layout::new(uses, self).map(|layout| Key(layout.outline()))
    }

    /// What makes the image: two specs with equal keys give equal images for the program of these uses.
    ///
    /// # Errors
    /// As [`generate`], for reasons that the locations have.
    pub fn key(&self, uses: &Uses) -> Result<Key, Refusal> {
        Layout::new(uses, self).map(Key)
    }
}

/// What distinguishes the images that one program gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(Layout);

/// `struct siteseer_site` of siteseer.bpf.h: the value type of the map of sites.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteRecord {
    /// Which of the link's sites this is.
    pub id: u32,
    /// 0 body, 1 clone, 2 inline: as [`siteseer_sites::SiteKind`].
    pub kind: u32,
    /// Run-time address of the probe.
    pub address: u64,
    /// Run-time address of the symbol that contains it.
    pub symbol: u64,
    /// Distance of the probe from that symbol.
    pub offset: u32,
    /// Reserved, 0.
    pub reserved: u32,
}

impl SiteRecord {
    /// As the map's value.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [
            u64::from(self.id) | u64::from(self.kind) << 32,
            self.address,
            self.symbol,
            u64::from(self.offset) | u64::from(self.reserved) << 32,
        ];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// A program ready for BPF_PROG_LOAD, except the maps that are created when it is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Instructions; those that load one of [`Image::maps`] have descriptor 0.
    pub insns: Vec<Insn>,
    /// Relocations: the instructions that load the address of a map, and the map.
    pub maps: Vec<(usize, OwnMap)>,
    /// The map that it needs as [`OwnMap::Saved`], if it needs one.
    pub saved: Option<SavedMap>,
    /// Functions; empty if the user's program has none.
    pub func_info: Vec<FuncInfo>,
    /// Source lines; empty if the user's program has none.
    pub line_info: Vec<LineInfo>,
    /// BTF that the two refer to, to be loaded first.
    pub btf: Option<Vec<u8>>,
    /// Whether it calls what the kernel lets only programs with a GPL-compatible licence call.
    pub gpl_only: bool,
    /// Bytes of the trampoline's own stack frame.
    pub stack: u32,
    /// How many instructions come before the user's.
    pub user_start: usize,
    /// Where each of the user's instructions, or what stands before it, is; one more for the end.
    pub positions: Vec<usize>,
    /// What the trampoline's instructions from an index on are for, as text.
    pub texts: Vec<(u32, String)>,
}

impl Image {
    /// The instructions with the descriptors of its maps.
    pub fn with_maps(&self, descriptor: impl Fn(OwnMap) -> i32) -> Vec<Insn> {
        let mut insns = self.insns.clone();
        for &(at, map) in &self.maps {
            if let Some(insn) = insns.get_mut(at) {
                insn.imm = descriptor(map);
            }
        }
        insns
    }

    /// The instructions as text, in the verifier's notation.
    pub fn listing(&self) -> String {
        insn::listing(&self.insns)
    }
}

/// Generates the program that runs the user's at sites of one location prototype.
///
/// # Errors
/// A [`Refusal`] if an argument that the program reads is missing, or it cannot be run there for another reason.
pub fn generate(program: &UserProgram, uses: &Uses, spec: &Spec<'_>) -> Result<Image, Refusal> {
    generate_shared(program, uses, std::slice::from_ref(spec))
}

/// Generates one program that runs the user's at kprobes of several location prototypes. Which one, the cookie of the
/// link tells that runs it: their numbers, from 1 on. With any other it is not run, and the loss is counted.
///
/// # Errors
/// As [`generate`], and [`Refusal::TooComplex`] if they are too many, or differ in more than where things are.
pub fn generate_shared(program: &UserProgram, uses: &Uses, specs: &[Spec<'_>]) -> Result<Image, Refusal> {
    let Some(spec) = specs.first() else { return Err(Refusal::TooComplex) };
    if program.exit != spec.probe.is_exit() {
        return Err(Refusal::WrongEnd);
    }
    rewrite::check_helpers(uses, spec.probe)?;
    let layouts: Vec<Layout> = specs.iter().map(|spec| Layout::new(uses, spec)).collect::<Result<_, _>>()?;
    let (layout, alternatives) = dispatch::together(layouts)?;
    let user = rewrite::rewrite(program, uses, &layout)?;
    let mut info = rewrite::info(program, &user.positions);
    if matches!(layout.probe, Probe::Fentry | Probe::Fexit) {
        let gpl_only = uses.site;
        let btf = (!info.functions.is_empty()).then(|| program.btf.clone()).flatten();
        return Ok(Image {
            insns: user.insns,
            maps: user.site_maps.into_iter().map(|at| (at, OwnMap::Sites)).collect(),
            saved: None,
            func_info: info.functions,
            line_info: info.lines,
            btf,
            gpl_only,
            stack: 0,
            user_start: 0,
            positions: user.positions,
            texts: Vec::new(),
        });
    }
    let trampoline = gather::emit(&layout, &alternatives).map_err(|refusal| match refusal {
        Refusal::StackOverflow { trampoline, limit, .. } => {
            Refusal::StackOverflow { program: uses.stack, trampoline, limit }
        }
        other => other,
    })?;
    let needed = trampoline.stack.max(1).next_multiple_of(16);
    if trampoline.stack > STACK_LIMIT || (!spec.kernel.private_stack && needed + uses.stack > STACK_LIMIT) {
        return Err(Refusal::StackOverflow { program: uses.stack, trampoline: needed, limit: STACK_LIMIT });
    }
    let user_start = trampoline.insns.len();
    info.shift(user_start)?;
    let mut maps = trampoline.maps;
    maps.extend(user.site_maps.iter().map(|at| (user_start + at, OwnMap::Sites)));
    let mut insns = trampoline.insns;
    insns.extend(user.insns);
    let mut btf = None;
    if let (Some(original), Some(main)) = (&program.btf, info.functions.first().copied()) {
        let statics = program.func_info.iter().zip(&info.functions);
        let statics = statics
            .filter(|(old, _)| usize::try_from(old.insn_off).is_ok_and(|start| uses.made_static.contains(&start)))
            .map(|(_, new)| new.type_id);
        let texts: Vec<&str> = trampoline.lines.iter().map(|(_, text)| text.as_str()).collect();
        let amended = btf::amend(original, statics, main.type_id, &texts)?;
        info.functions.insert(0, FuncInfo { insn_off: 0, type_id: amended.function });
        if !info.lines.is_empty() {
            let own = trampoline.lines.iter().zip(amended.texts).zip(1u32..);
            let own = own.map(|(((insn_off, _), line_off), line)| LineInfo {
                insn_off: *insn_off,
                file_name_off: amended.file,
                line_off,
                line_col: line << 10,
            });
            info.lines.splice(0..0, own);
        }
        btf = Some(amended.bytes);
    } else {
        info = rewrite::Info::default();
    }
    Ok(Image {
        insns,
        maps,
        saved: layout.session.as_ref().and_then(|session| session.map()),
        func_info: info.functions,
        line_info: info.lines,
        btf,
        gpl_only: trampoline.gpl_only,
        stack: trampoline.stack,
        user_start,
        positions: user.positions.iter().map(|position| user_start + position).collect(),
        texts: trampoline.lines,
    })
}

#[cfg(test)]
mod tests;
