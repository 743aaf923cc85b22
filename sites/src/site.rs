// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! One place where the body of a function starts executing.

use std::fmt;

/// What a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SiteKind {
    /// The out-of-line symbol that has the function's own name.
    Body = 0,
    /// An out-of-line symbol made from the function: `foo.isra.0`, `foo.constprop.2`, `foo.llvm.1234`, `foo.1234`.
    Clone = 1,
    /// A copy inside a caller.
    Inline = 2,
}

impl SiteKind {
    /// The kind's word: `body`, `clone`, `inline`.
    pub fn word(self) -> &'static str {
        match self {
            SiteKind::Body => "body",
            SiteKind::Clone => "clone",
            SiteKind::Inline => "inline",
        }
    }

    /// The kind with that discriminant.
    pub fn from_code(code: u8) -> Option<SiteKind> {
        [SiteKind::Body, SiteKind::Clone, SiteKind::Inline].get(usize::from(code)).copied()
    }
}

impl fmt::Display for SiteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What is to be known about a site besides its address and arguments: a set of flags.
///
/// The bits are stored in site files: they may be added to, not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Marks(pub u8);

impl Marks {
    /// The entry can be reached again from inside the same body (a loop header), or another copy of the function begins
    /// at the same address: hits may outnumber calls.
    pub const MAY_REPEAT: Marks = Marks(1 << 0);
    /// The debug information does not say where the body is entered, and the text has more than one candidate.
    pub const ENTRY_UNCERTAIN: Marks = Marks(1 << 1);
    /// The compiler changed the copy's signature: arguments are only where the site says, never where the ABI
    /// would have them.
    pub const SIGNATURE_CHANGED: Marks = Marks(1 << 2);
    /// Some argument's location starts at the site's address after the entry view, with nothing that shows that the
    /// body changed it before.
    pub const LATE_VIEW: Marks = Marks(1 << 3);
    /// With [`Marks::SIGNATURE_CHANGED`]: the copy returns the function's value all the same, where the ABI has it.
    /// See [`Marks::returns_value`].
    pub const RETURN_KEPT: Marks = Marks(1 << 4);
    /// Control may come into the copy by another way than its entry (the compiler duplicated its beginning, or only its
    /// end is shared with other code): some calls may not be seen there.
    pub const MAY_MISS: Marks = Marks(1 << 5);
    /// The probe is before the entry, at an instruction of the caller's that runs exactly when the body does: the
    /// kernel would refuse it at the entry.
    pub const MOVED_BACK: Marks = Marks(1 << 6);

    /// How many bytes after the body's start the probe is, by the distance that a site has; negative if it is before.
    pub fn signed_distance(self, moved: u8) -> i16 {
        if self.contains(Marks::MOVED_BACK) { -i16::from(moved) } else { i16::from(moved) }
    }

    /// Whether what the ABI's return register holds when an out-of-line copy returns is the function's return value, if
    /// the function has one. A changed copy may have lost it, if no caller used it.
    pub fn returns_value(self) -> bool {
        !self.contains(Marks::SIGNATURE_CHANGED) || self.contains(Marks::RETURN_KEPT)
    }

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Marks) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Marks {
    type Output = Marks;
    fn bitor(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Marks {
    fn bitor_assign(&mut self, other: Marks) {
        self.0 |= other.0;
    }
}

/// Why a probe cannot be put on a site, as far as the kernel's image tells.
///
/// The discriminants are stored in site files: they may be added to, not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unprobeable {
    /// `.init.text`: freed after boot, it can no longer run.
    Init = 1,
    /// `.exit.text` of the kernel image: discarded at boot.
    Exit = 2,
    /// `.noinstr.text`.
    Noinstr = 3,
    /// `.entry.text`: the kernel's entry code.
    Entry = 4,
    /// `.kprobes.text` or `NOKPROBE_SYMBOL()`: the kernel's kprobe blacklist.
    Blacklisted = 5,
    /// In a function that ftrace does not know (`notrace`): kprobe events refuse it (kernel/trace/trace_kprobe.c).
    Notrace = 6,
    /// On a jump label's patch site (`jump_label_text_reserved()`).
    JumpLabel = 7,
    /// On a static call's patch site (`static_call_text_reserved()`).
    StaticCall = 8,
    /// On a `BUG()` or `WARN()` trap instruction (`find_bug()`).
    Bug = 9,
    /// Not at the first byte of an instruction. Site files made before [`Unprobeable::Unsteppable`] have it for both.
    NotAnInstruction = 10,
    /// In the kCFI preamble before a function.
    CfiPreamble = 11,
    /// Text that is neither kernel text nor a module's.
    NotText = 12,
    /// In a section that the kernel has put somewhere, without saying where.
    Unplaced = 13,
    /// On an instruction that kprobes neither step nor emulate, or that ftrace patches (`arch_prepare_kprobe()`,
    /// `check_ftrace_location()`).
    Unsteppable = 14,
}

impl Unprobeable {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Unprobeable; 14] = [
        Unprobeable::Init,
        Unprobeable::Exit,
        Unprobeable::Noinstr,
        Unprobeable::Entry,
        Unprobeable::Blacklisted,
        Unprobeable::Notrace,
        Unprobeable::JumpLabel,
        Unprobeable::StaticCall,
        Unprobeable::Bug,
        Unprobeable::NotAnInstruction,
        Unprobeable::CfiPreamble,
        Unprobeable::NotText,
        Unprobeable::Unplaced,
        Unprobeable::Unsteppable,
    ];

    /// The reason with that discriminant.
    pub fn from_code(code: u8) -> Option<Unprobeable> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }

    /// Whether code there no longer runs once the kernel is up, so that nothing is missed by not probing it.
    pub fn is_dead(self) -> bool {
        matches!(self, Unprobeable::Init | Unprobeable::Exit)
    }

    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            Unprobeable::Init => "init",
            Unprobeable::Exit => "exit",
            Unprobeable::Noinstr => "noinstr",
            Unprobeable::Entry => "entry",
            Unprobeable::Blacklisted => "blacklisted",
            Unprobeable::Notrace => "notrace",
            Unprobeable::JumpLabel => "jump_label",
            Unprobeable::StaticCall => "static_call",
            Unprobeable::Bug => "bug",
            Unprobeable::NotAnInstruction => "not_an_instruction",
            Unprobeable::CfiPreamble => "cfi_preamble",
            Unprobeable::NotText => "not_text",
            Unprobeable::Unplaced => "unplaced",
            Unprobeable::Unsteppable => "unsteppable",
        }
    }
}

impl fmt::Display for Unprobeable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unprobeable::Init => "in .init.text, freed after boot: it no longer runs",
            Unprobeable::Exit => "in .exit.text, discarded at boot: it never runs",
            Unprobeable::Noinstr => "in .noinstr.text, which must not be instrumented",
            Unprobeable::Entry => "in .entry.text, which must not be instrumented",
            Unprobeable::Blacklisted => "on the kernel's kprobe blacklist",
            Unprobeable::Notrace => "in a notrace function, where the kernel refuses kprobe events",
            Unprobeable::JumpLabel => "on a jump label, which the kernel patches itself",
            Unprobeable::StaticCall => "on a static call, which the kernel patches itself",
            Unprobeable::Bug => "on a BUG or WARN trap",
            Unprobeable::NotAnInstruction => "not at the start of an instruction",
            Unprobeable::CfiPreamble => "in a kCFI preamble",
            Unprobeable::NotText => "not in kernel text",
            Unprobeable::Unplaced => "in a section whose address is not known",
            Unprobeable::Unsteppable => {
                "on an instruction that kprobes can neither step nor emulate, or that ftrace patches"
            }
        })
    }
}

/// A place in the source. The file is an index into [`crate::SiteSet::files`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SourceLine {
    /// Index of the file, or [`SourceLine::NO_FILE`].
    pub file: u32,
    /// Line, from 1; 0 where it is not known.
    pub line: u32,
}

impl SourceLine {
    /// No file is known.
    pub const NO_FILE: u32 = u32::MAX;
    /// Nothing is known.
    pub const UNKNOWN: SourceLine = SourceLine { file: Self::NO_FILE, line: 0 };
}

/// One site, as the encoder makes it. Indices refer to the tables of the [`crate::SiteSet`] that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Index of the function whose body starts here.
    pub function: u32,
    /// What the site is.
    pub kind: SiteKind,
    /// Link-time address of the probe.
    pub address: u64,
    /// How many bytes before the probe the body starts: the probe may be moved forward inside the entry block. With
    /// [`Marks::MOVED_BACK`], how many bytes after it.
    pub moved: u8,
    /// Index of the text section.
    pub section: u16,
    /// Index of the location prototype.
    pub prototype: u32,
    /// Index of the out-of-line symbol that contains the site (for a body or clone: itself).
    pub container: u32,
    /// Where an inline site was called, or where a body or clone was declared.
    pub source: SourceLine,
    /// Where the function was declared.
    pub declared: SourceLine,
    /// For an inline site whose caller is itself an inlined copy: the index of that copy's site.
    pub parent: Option<u32>,
    /// Flags.
    pub marks: Marks,
    /// Why it cannot be probed, if so.
    pub unprobeable: Option<Unprobeable>,
}

impl Site {
    /// Link-time address at which the body starts.
    pub fn entry(&self) -> u64 {
        self.address.wrapping_add_signed(-i64::from(self.marks.signed_distance(self.moved)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_is_before_the_probe_or_after_it() {
        let site = |moved: u8, marks: Marks| Site {
            function: 0,
            kind: SiteKind::Inline,
            address: 0x1000,
            moved,
            section: 0,
            prototype: 0,
            container: 0,
            source: SourceLine::UNKNOWN,
            declared: SourceLine::UNKNOWN,
            parent: None,
            marks,
            unprobeable: None,
        };
        assert_eq!(site(0, Marks::MAY_MISS).entry(), 0x1000);
        assert_eq!(site(255, Marks::MAY_MISS).entry(), 0xf01);
        assert_eq!(site(255, Marks::MAY_MISS | Marks::MOVED_BACK).entry(), 0x10ff);
    }
}
