// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `SEC("fentry/[module:]foo")`, `SEC("fexit/...")`, `SEC("kprobe_maybe_inline/...")`: how a program gets from libbpf to us.
//!
//! libbpf lets a library register handlers for section names; they come before its own, so the names that it knows
//! (`fentry`, `fexit`) can be taken over too. When it loads an object it
//! relocates each program (maps, CO-RE, subprograms, kfuncs), and then, just before the load, calls the
//! handler's `prog_prepare_load_fn`. The program that we are handed there cannot be loaded as it stands: its context is an
//! array of arguments that only the trampoline makes, and it may call accessors that no kernel has. So it is put
//! behind a *guard*,
//!
//! ```text
//! r0 = 0
//! if r0 != 0 goto +1
//! exit
//! r0 = KIND            what bpf_program__set_attach_target() said, if it was called:
//! r0 = OBJECT          libbpf keeps it and has no way to ask for it
//! r0 = FUNCTION
//! ```
//!
//! which leaves the rest reachable in the control flow graph and dead for the verifier: it is never explored, so it
//! loads whatever it does. libbpf goes on believing that it has loaded the program, keeps the relocated instructions, and
//! gives them back through `bpf_program__insns()` when the program is attached: no registry of our own, and nothing to free.
//!
//! What is loaded has the program type that the section stands for, because the kernel looks at the maps that a program
//! refers to even where it is dead, and takes fewer of them in a KPROBE program (no spin locks, timers, lists:
//! `check_map_prog_compatibility()` in kernel/bpf/verifier.c). A TRACING program needs a function to be for: one that
//! every kernel has ([`crate::kernel::ANCHORS`]). It is never attached to it. The guard does not sleep, whatever the program does.
//!
//! The kernel holds the object's BTF only if the program that is loaded refers to it. Line information does that, so it is
//! passed on, moved behind the guard. Function information is not: with it, kernels before 6.8 verify every
//! global function of the object on its own.
//!
//! libbpf's table of handlers is global and not locked. [`register`] locks itself against itself; do not open objects in
//! another thread while it runs for the first time, nor register other handlers at the same time.

use crate::kernel::ANCHORS;
use crate::object::{check, program_info};
use libbpf_sys as sys;
use std::cell::RefCell;
use std::ffi::{CStr, c_int, c_long};
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, OnceLock};

/// libbpf refused a handler.
#[derive(Debug, thiserror::Error)]
#[error("libbpf does not take a handler for SEC(\"{section}\"): {error}")]
pub struct RegisterError {
    section: &'static str,
    error: std::io::Error,
}

/// What a section's name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// `kprobe_maybe_inline`: at the entry, by best effort.
    #[default]
    KprobeMaybeInline,
    /// `fentry`: at the entry, everywhere.
    Fentry,
    /// `fexit`: at the return, everywhere.
    Fexit,
}

impl Kind {
    /// The section's name without its function.
    pub fn word(self) -> &'static str {
        match self {
            Kind::KprobeMaybeInline => "kprobe_maybe_inline",
            Kind::Fentry => "fentry",
            Kind::Fexit => "fexit",
        }
    }

    /// Whether the program runs at the function's return.
    pub fn is_exit(self) -> bool {
        self == Kind::Fexit
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What kind of program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Form {
    /// The section.
    pub kind: Kind,
    /// Whether it may sleep: `fentry.s`, `fexit.s`.
    pub sleepable: bool,
}

/// The sections, as libbpf matches them.
const SECTIONS: [(&str, &CStr, Form); 5] = [
    ("kprobe_maybe_inline", c"kprobe_maybe_inline+", Form { kind: Kind::KprobeMaybeInline, sleepable: false }),
    ("fentry", c"fentry+", Form { kind: Kind::Fentry, sleepable: false }),
    ("fentry.s", c"fentry.s+", Form { kind: Kind::Fentry, sleepable: true }),
    ("fexit", c"fexit+", Form { kind: Kind::Fexit, sleepable: false }),
    ("fexit.s", c"fexit.s+", Form { kind: Kind::Fexit, sleepable: true }),
];

impl Form {
    /// Program type and expected attach type of what libbpf loads.
    fn types(self) -> (sys::bpf_prog_type, sys::bpf_attach_type) {
        match self.kind {
            Kind::KprobeMaybeInline => (sys::BPF_PROG_TYPE_KPROBE, 0),
            Kind::Fentry => (sys::BPF_PROG_TYPE_TRACING, sys::BPF_TRACE_FENTRY),
            Kind::Fexit => (sys::BPF_PROG_TYPE_TRACING, sys::BPF_TRACE_FEXIT),
        }
    }
}

/// What a section name asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The module before the colon, if any; `vmlinux` is the kernel's image.
    pub module: Option<String>,
    /// The function; `None` in a bare `SEC("fentry")`, whose function is given when attaching.
    pub function: Option<String>,
}

/// A section name that is not ours, or lacks a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// Another section.
    #[error(
        "SEC(\"{section}\") is none of SEC(\"fentry/[module:]function\"), SEC(\"fexit/...\"), SEC(\"fentry.s/...\"), \
         SEC(\"fexit.s/...\"), SEC(\"kprobe_maybe_inline/...\")"
    )]
    Foreign {
        /// The section's name.
        section: String,
    },
    /// A part is empty or has a character that no symbol has.
    #[error("\"{text}\" is not [module:]function")]
    Malformed {
        /// What was found after the slash.
        text: String,
    },
}

impl Wanted {
    /// Parses `[module:]function`.
    ///
    /// # Errors
    /// [`SectionError::Malformed`].
    pub fn parse(text: &str) -> Result<Wanted, SectionError> {
        let symbol = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
        };
        let malformed = || SectionError::Malformed { text: text.to_owned() };
        let (module, function) = match text.split_once(':') {
            Some((module, function)) => (Some(module), function),
            None => (None, text),
        };
        let module_ok =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
        if !symbol(function) || !module.is_none_or(module_ok) {
            return Err(malformed());
        }
        Ok(Wanted { module: module.map(str::to_owned), function: Some(function.to_owned()) })
    }
}

/// A whole section name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// What kind of program is in it.
    pub form: Form,
    /// The function.
    pub wanted: Wanted,
}

impl Section {
    /// Parses a section's name.
    ///
    /// # Errors
    /// [`SectionError`].
    pub fn parse(section: &str) -> Result<Section, SectionError> {
        let (name, rest) = match section.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (section, None),
        };
        let foreign = || SectionError::Foreign { section: section.to_owned() };
        let (_, _, form) = *SECTIONS.iter().find(|(word, ..)| *word == name).ok_or_else(foreign)?;
        Ok(Section { form, wanted: rest.map(Wanted::parse).transpose()?.unwrap_or_default() })
    }
}

/// What `bpf_program__set_attach_target()` was told before the object was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was not called.
    Nothing,
    /// A function of a BPF program; 0 for the one that the section names.
    Program { prog_id: u32, btf_id: u32 },
    /// A function of the kernel: in the BTF object of this id, 0 for that of its image.
    Kernel { object: u32, btf_id: u32 },
}

const NOTE: usize = 3;
const GUARD: usize = 3 + NOTE;

/// `r0 = 0; if r0 != 0 goto +1; exit`, and what was told.
fn guard(told: Told) -> [sys::bpf_insn; GUARD] {
    let insn = |code: u32, off: i16, imm: u32| {
        let mut insn = sys::bpf_insn { code: code as u8, off, imm: imm as i32, ..Default::default() };
        insn.set_dst_reg(0);
        insn
    };
    let mov = |imm: u32| insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, 0, imm);
    let (kind, object, function) = match told {
        Told::Nothing => (0, 0, 0),
        Told::Program { prog_id, btf_id } => (1, prog_id, btf_id),
        Told::Kernel { object, btf_id } => (2, object, btf_id),
    };
    [
        mov(0),
        insn(sys::BPF_JMP | sys::BPF_JNE | sys::BPF_K, 1, 0),
        insn(sys::BPF_JMP | sys::BPF_EXIT, 0, 0),
        mov(kind),
        mov(object),
        mov(function),
    ]
}

fn bytes(insn: &sys::bpf_insn) -> (u8, u8, u8, i16, i32) {
    (insn.code, insn.dst_reg(), insn.src_reg(), insn.off, insn.imm)
}

/// The instructions behind the guard and what it notes, or `None` if the program was not loaded through our handler.
pub(crate) fn behind_guard(insns: &[sys::bpf_insn]) -> Option<(&[sys::bpf_insn], Told)> {
    let (head, rest) = insns.split_at_checked(GUARD)?;
    let [.., kind, object, function] = head else { return None };
    let (object, function) = (object.imm as u32, function.imm as u32);
    let told = match kind.imm {
        0 => Told::Nothing,
        1 => Told::Program { prog_id: object, btf_id: function },
        2 => Told::Kernel { object, btf_id: function },
        _ => return None,
    };
    head.iter().zip(&guard(told)).all(|(a, b)| bytes(a) == bytes(b)).then_some((rest, told))
}

/// Registers the sections with libbpf, once per process. Call it before opening objects that use them.
///
/// From then on every object of the process that libbpf opens has its `fentry` and `fexit` programs here: they are
/// attached by [`crate::Attach`], not by libbpf's own calls.
///
/// # Errors
/// [`RegisterError`] if libbpf refuses.
pub fn register() -> Result<(), RegisterError> {
    static REGISTERED: Mutex<usize> = Mutex::new(0);
    let mut registered = REGISTERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (section, handler, form) in SECTIONS.iter().skip(*registered) {
        let (program_type, attach_type) = form.types();
        let tracing = program_type == sys::BPF_PROG_TYPE_TRACING;
        let opts = sys::libbpf_prog_handler_opts {
            sz: size_of::<sys::libbpf_prog_handler_opts>() as sys::size_t,
            cookie: c_long::from(tracing),
            prog_prepare_load_fn: Some(prepare_load),
            prog_attach_fn: Some(attach),
            ..Default::default()
        };
        // SAFETY: the string and the options live through the call, and libbpf copies both. The table of handlers is not locked: our
        // own calls are, by the mutex; the rest is the caller's promise, stated above.
        let result = unsafe { sys::libbpf_register_prog_handler(handler.as_ptr(), program_type, attach_type, &opts) };
        if result < 0 {
            return Err(RegisterError { section, error: std::io::Error::from_raw_os_error(-result) });
        }
        *registered += 1;
    }
    Ok(())
}

/// Skeletons attach every program of an object. A `kprobe_maybe_inline` program is passed over (no link, no error); one
/// that libbpf itself would have attached must not stay unattached without a word.
unsafe extern "C" fn attach(_: *const sys::bpf_program, tracing: c_long, link: *mut *mut sys::bpf_link) -> c_int {
    if !link.is_null() {
        // SAFETY: libbpf passes the place where it wants the link.
        unsafe { *link = ptr::null_mut() };
    }
    if tracing != 0 { -libc::EOPNOTSUPP } else { 0 }
}

thread_local! {
    /// The moved line information of the program that libbpf is loading in this thread. libbpf hands the pointer to the system
    /// call right after the callback, and never frees it.
    static LINES: RefCell<Vec<sys::bpf_line_info>> = const { RefCell::new(Vec::new()) };
}

/// A function that a program of type TRACING can be loaded for.
fn anchor() -> Option<u32> {
    static ANCHOR: OnceLock<Option<u32>> = OnceLock::new();
    *ANCHOR.get_or_init(|| {
        ANCHORS.iter().find_map(|name| {
            // SAFETY: the string lives through the call.
            let id = unsafe { sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), sys::BPF_TRACE_FENTRY) };
            u32::try_from(id).ok().filter(|&id| id != 0)
        })
    })
}

/// What the program's options say of its target.
fn told(opts: &sys::bpf_prog_load_opts) -> std::io::Result<Told> {
    let btf_id = opts.attach_btf_id;
    if opts.attach_prog_fd != 0 {
        // SAFETY: libbpf checked nothing of it, but the caller's descriptor is open through the load, or the call says EBADF.
        let program = unsafe { BorrowedFd::borrow_raw(opts.attach_prog_fd as RawFd) };
        return Ok(Told::Program { prog_id: program_info(program)?.id, btf_id });
    }
    if btf_id == 0 {
        return Ok(Told::Nothing);
    }
    let mut object = 0;
    if opts.attach_btf_obj_fd != 0 {
        let mut info = sys::bpf_btf_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: the structure lives through the call.
        check(unsafe { sys::bpf_btf_get_info_by_fd(opts.attach_btf_obj_fd as c_int, &mut info, &mut len) })?;
        object = info.id;
    }
    Ok(Told::Kernel { object, btf_id })
}

/// Puts the program behind the guard.
unsafe extern "C" fn prepare_load(
    program: *mut sys::bpf_program,
    opts: *mut sys::bpf_prog_load_opts,
    tracing: c_long,
) -> c_int {
    // SAFETY: libbpf passes its own options, whose size it has set.
    let Some(opts) = (unsafe { opts.as_mut() }) else { return -libc::EINVAL };
    let noted = match told(opts) {
        Ok(told) => told,
        Err(error) => return -error.raw_os_error().unwrap_or(libc::EINVAL),
    };
    if tracing != 0 {
        let Some(anchor) = anchor() else { return -libc::EOPNOTSUPP };
        opts.attach_btf_id = anchor;
        opts.attach_prog_fd = 0;
        opts.attach_btf_obj_fd = 0;
    }
    opts.prog_flags &= !sys::BPF_F_SLEEPABLE;
    let guard = guard(noted);
    // SAFETY: libbpf passes a live program; the instructions are read before they are replaced.
    let insns = unsafe {
        let first = sys::bpf_program__insns(program);
        let count = sys::bpf_program__insn_cnt(program) as usize;
        if first.is_null() {
            return -libc::EINVAL;
        }
        std::slice::from_raw_parts(first, count)
    };
    if behind_guard(insns).is_none() {
        let mut guarded = guard.to_vec();
        guarded.extend_from_slice(insns);
        // SAFETY: as above; libbpf copies the new instructions.
        let set = unsafe { sys::bpf_program__set_insns(program, guarded.as_mut_ptr(), guarded.len() as sys::size_t) };
        if set < 0 {
            return set;
        }
    }
    opts.func_info = ptr::null();
    opts.func_info_cnt = 0;
    let same_record = opts.line_info_rec_size as usize == size_of::<sys::bpf_line_info>();
    if opts.line_info.is_null() || opts.line_info_cnt == 0 || !same_record {
        opts.line_info = ptr::null();
        opts.line_info_cnt = 0;
        return 0;
    }
    LINES.with_borrow_mut(|lines| {
        // SAFETY: libbpf's array has that many records of that size, just compared.
        let own = unsafe {
            std::slice::from_raw_parts(opts.line_info.cast::<sys::bpf_line_info>(), opts.line_info_cnt as usize)
        };
        lines.clear();
        lines.extend(own.iter().enumerate().map(|(index, line)| {
            // The first one stays at the first instruction: every (sub)program must begin with one.
            let moved = if index == 0 { 0 } else { line.insn_off + guard.len() as u32 };
            sys::bpf_line_info { insn_off: moved, ..*line }
        }));
        opts.line_info = lines.as_ptr().cast();
    });
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names() {
        let section = |kind: Kind, sleepable: bool, module: Option<&str>, function: Option<&str>| {
            let wanted = Wanted { module: module.map(str::to_owned), function: function.map(str::to_owned) };
            Ok(Section { form: Form { kind, sleepable }, wanted })
        };
        let maybe = |module, function| section(Kind::KprobeMaybeInline, false, module, function);
        assert_eq!(Section::parse("kprobe_maybe_inline"), maybe(None, None));
        assert_eq!(Section::parse("kprobe_maybe_inline/foo"), maybe(None, Some("foo")));
        assert_eq!(Section::parse("kprobe_maybe_inline/foo.part.0"), maybe(None, Some("foo.part.0")));
        assert_eq!(Section::parse("kprobe_maybe_inline/xfs:foo"), maybe(Some("xfs"), Some("foo")));
        assert_eq!(Section::parse("fentry"), section(Kind::Fentry, false, None, None));
        assert_eq!(Section::parse("fentry/vmlinux:foo"), section(Kind::Fentry, false, Some("vmlinux"), Some("foo")));
        assert_eq!(Section::parse("fentry.s/foo"), section(Kind::Fentry, true, None, Some("foo")));
        assert_eq!(Section::parse("fexit/foo"), section(Kind::Fexit, false, None, Some("foo")));
        assert_eq!(Section::parse("fexit.s/foo"), section(Kind::Fexit, true, None, Some("foo")));
        for bad in ["kprobe_maybe_inline/", "fentry/:foo", "fexit/m:", "fentry.s/a b"] {
            assert!(matches!(Section::parse(bad), Err(SectionError::Malformed { .. })), "{bad}");
        }
        for foreign in ["kprobe/foo", "kprobe_maybe_inlined/foo", "kprobe_maybe_inline.s/foo", "fmod_ret/foo", ""] {
            assert!(matches!(Section::parse(foreign), Err(SectionError::Foreign { .. })), "{foreign}");
        }
    }

    #[test]
    fn the_guard_is_recognised() {
        let told =
            [Told::Nothing, Told::Program { prog_id: 17, btf_id: 0 }, Told::Kernel { object: 0, btf_id: u32::MAX }];
        for told in told {
            let exit = guard(told)[2];
            let mut program = guard(told).to_vec();
            program.push(exit);
            let (rest, noted) = behind_guard(&program).unwrap();
            assert_eq!((rest.len(), noted), (1, told));
            assert!(behind_guard(&program[1..]).is_none());
            assert!(behind_guard(&guard(told)[..GUARD - 1]).is_none());
            assert_eq!(bytes(&guard(told)[0]), (0xb7, 0, 0, 0, 0));
            assert_eq!(bytes(&guard(told)[1]), (0x55, 0, 0, 1, 0));
            assert_eq!(bytes(&guard(told)[2]), (0x95, 0, 0, 0, 0));
        }
        let mut unknown = guard(Told::Nothing);
        unknown[3].imm = 3;
        assert!(behind_guard(&unknown).is_none());
    }

    #[test]
    fn registering_twice_is_once() {
        register().unwrap();
        register().unwrap();
    }
}
