// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `SEC("fentry/[module:]foo")`, `SEC("fexit/...")`, `SEC("kprobe_maybe_inline/...")`: what the names mean, and the
//! guard behind which libbpf loads such a program.
//!
//! libbpf relocates each program of an object (maps, CO-RE, subprograms, kfuncs), and then, just before the load, hands
//! it to [`crate::register()`]. A program that takes siteseer cannot be loaded as it stands: its context is an array of
//! arguments that only the trampoline makes, and it may call accessors that no kernel has. So it is put behind a
//! *guard*,
//!
//! ```text
//! r0 = 1
//! if r0 != 1 goto +1
//! exit
//! ```
//!
//! which leaves the rest reachable in the control flow graph and dead for the verifier: it is never explored, so it
//! loads whatever it does. libbpf goes on believing that it has loaded the program, keeps the relocated instructions,
//! and gives them back through `bpf_program__insns()` when the program is attached.
//!
//! What is loaded has the program type that the section stands for, because the kernel looks at the maps that a program
//! refers to even where it is dead, and takes fewer of them in a KPROBE program (no spin locks, timers, lists:
//! `check_map_prog_compatibility()` in kernel/bpf/verifier.c). The guard does not sleep, whatever the program does.
//!
//! Nobody but siteseer can attach what is behind a guard: a link to it would work, and the program would never run. A
//! TRACING program is loaded as an iterator over a map's elements. `BPF_LINK_CREATE` for fentry and
//! `BPF_RAW_TRACEPOINT_OPEN` refuse that, and a link of the iterator itself needs a map. A KPROBE program is loaded for
//! uprobe.multi, which kprobes refuse from Linux 6.6 on. The guard of a TRACING program returns 1, which the verifier
//! allows to an iterator and refuses to fentry and fexit programs: a copy that somebody makes of the instructions is
//! not loaded.
//!
//! The kernel holds the object's BTF only if the program that is loaded refers to it. Line information does that, so it
//! is passed on, moved behind the guard. Function information is not: with it, kernels before 6.8 verify every global
//! function of the object on its own.

use libbpf_sys as sys;
use std::ffi::CStr;
use std::fmt;

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
pub(crate) const SECTIONS: [(&str, &CStr, Form); 5] = [
    ("kprobe_maybe_inline", c"kprobe_maybe_inline+", Form { kind: Kind::KprobeMaybeInline, sleepable: false }),
    ("fentry", c"fentry+", Form { kind: Kind::Fentry, sleepable: false }),
    ("fentry.s", c"fentry.s+", Form { kind: Kind::Fentry, sleepable: true }),
    ("fexit", c"fexit+", Form { kind: Kind::Fexit, sleepable: false }),
    ("fexit.s", c"fexit.s+", Form { kind: Kind::Fexit, sleepable: true }),
];

impl Form {
    /// Program type and expected attach type of what libbpf loads.
    pub(crate) fn types(self) -> (sys::bpf_prog_type, sys::bpf_attach_type) {
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
    /// The function; `None` in a bare `SEC("fentry")`: its function is given when attaching.
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

/// The sections of programs that libbpf attaches to a function's symbol and nowhere else, and whether they run at the
/// return.
const PLAIN: [(&str, bool); 7] = [
    ("kprobe", false),
    ("kretprobe", true),
    ("kprobe.multi", false),
    ("kretprobe.multi", true),
    ("kprobe.session", false),
    ("fmod_ret", false),
    ("fmod_ret.s", false),
];

/// What the section of a program names that libbpf attaches to a function's symbol and nowhere else: a kprobe, for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The function: `foo` for `SEC("kprobe/foo+8")`. `None` for a section that names none, or a pattern.
    pub wanted: Option<Wanted>,
    /// Whether the program runs at the return.
    pub exit: bool,
}

impl Plain {
    /// Parses a section's name; `None` if it is of another kind.
    pub fn parse(section: &str) -> Option<Plain> {
        let (word, rest) = section.split_once('/').map_or((section, None), |(word, rest)| (word, Some(rest)));
        let &(_, exit) = PLAIN.iter().find(|(known, _)| *known == word)?;
        let named = rest.map(|rest| rest.split_once('+').map_or(rest, |(function, _)| function));
        Some(Plain { wanted: named.and_then(|named| Wanted::parse(named).ok()), exit })
    }
}

/// What `bpf_program__set_attach_target()` was told before the object was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    /// It was not called.
    Nothing,
    /// A function of a BPF program; 0 for the one that the section names.
    Program { prog_id: u32, btf_id: u32 },
    /// A function of the kernel: in the BTF object of this id, 0 for that of its image.
    Kernel { object: u32, btf_id: u32 },
}

/// Instructions of the guard.
pub(crate) const GUARD: usize = 3;

/// What a guard returns: no fentry or fexit program may return 1.
fn returned(kind: Kind) -> i32 {
    match kind {
        Kind::KprobeMaybeInline => 0,
        Kind::Fentry | Kind::Fexit => 1,
    }
}

/// `r0 = N; if r0 != N goto +1; exit`.
fn guard(kind: Kind) -> [sys::bpf_insn; GUARD] {
    let insn = |code: u32, off: i16, imm: i32| {
        let mut insn = sys::bpf_insn { code: code as u8, off, imm, ..Default::default() };
        insn.set_dst_reg(0);
        insn
    };
    let returned = returned(kind);
    [
        insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, 0, returned),
        insn(sys::BPF_JMP | sys::BPF_JNE | sys::BPF_K, 1, returned),
        insn(sys::BPF_JMP | sys::BPF_EXIT, 0, 0),
    ]
}

fn bytes(insn: &sys::bpf_insn) -> (u8, u8, u8, i16, i32) {
    (insn.code, insn.dst_reg(), insn.src_reg(), insn.off, insn.imm)
}

/// A program behind the guard.
pub(crate) fn guarded(kind: Kind, insns: &[sys::bpf_insn]) -> Vec<sys::bpf_insn> {
    guard(kind).iter().chain(insns).copied().collect()
}

/// The instructions behind the guard, or `None` if there is none.
pub(crate) fn unguarded(kind: Kind, insns: &[sys::bpf_insn]) -> Option<&[sys::bpf_insn]> {
    let (head, rest) = insns.split_at_checked(GUARD)?;
    head.iter().zip(&guard(kind)).all(|(a, b)| bytes(a) == bytes(b)).then_some(rest)
}

/// Module names as the kernel has them: files may have dashes.
pub(crate) fn kernel_name(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_plain_programs() {
        let parsed = |section: &str| {
            let plain = Plain::parse(section)?;
            let named =
                plain.wanted.map(|wanted| (wanted.module.unwrap_or_default(), wanted.function.unwrap_or_default()));
            Some((named, plain.exit))
        };
        let named = |module: &str, function: &str| Some((module.to_owned(), function.to_owned()));
        assert_eq!(parsed("kprobe/foo"), Some((named("", "foo"), false)));
        assert_eq!(parsed("kprobe/foo+0x10"), Some((named("", "foo"), false)));
        assert_eq!(parsed("kretprobe/ext4:foo"), Some((named("ext4", "foo"), true)));
        assert_eq!(parsed("kprobe.multi/vfs_*"), Some((None, false)));
        assert_eq!(parsed("kretprobe.multi"), Some((None, true)));
        assert_eq!(parsed("fmod_ret.s/foo"), Some((named("", "foo"), false)));
        for other in ["fentry/foo", "kprobe_maybe_inline/foo", "uprobe/foo", "ksyscall/read", "kprobes/foo", ""] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    // Proves S1.1.
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

    // Proves S1.4.
    #[test]
    fn the_guard_is_recognised() {
        for kind in [Kind::KprobeMaybeInline, Kind::Fentry, Kind::Fexit] {
            let exit = guard(kind)[2];
            let program = guarded(kind, &[exit]);
            assert_eq!(unguarded(kind, &program).map(<[_]>::len), Some(1));
            assert!(unguarded(kind, &program[1..]).is_none());
            assert!(unguarded(kind, &guard(kind)[..GUARD - 1]).is_none());
        }
        assert!(unguarded(Kind::Fentry, &guarded(Kind::KprobeMaybeInline, &[])).is_none());
        assert_eq!(bytes(&guard(Kind::KprobeMaybeInline)[0]), (0xb7, 0, 0, 0, 0));
        assert_eq!(
            guard(Kind::Fexit).map(|insn| bytes(&insn)),
            [(0xb7, 0, 0, 0, 1), (0x55, 0, 0, 1, 1), (0x95, 0, 0, 0, 0)]
        );
    }
}
