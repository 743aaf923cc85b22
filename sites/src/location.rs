// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where the value of one argument is at one site.
//!
//! Upstream's LOC_PARAM knows a closed list of shapes: a constant, an address constant, a register, a pair of
//! registers, a register plus an offset, and memory at a register plus an offset. They are the first variants of
//! [`Location`]. DWARF knows more: masks, shifts, sums of registers, loads of loads, structures whose pieces lie
//! in different places. What can be computed from registers, constants and reads is kept as [`Computed`]: for each
//! 8-byte slot of the argument a short straight-line program, which the loader compiles into the trampoline. There
//! is no control flow in it and nothing is interpreted at run time. A reader that knows upstream's kinds alone sees
//! "no location" there.
//!
//! An argument that has no location has a reason, one of [`Missing`]. One whose location may be wrong has a [`Doubt`].

use crate::doubt::Doubt;
use crate::machine::{Machine, Register};
use std::fmt;

/// The outcome for one parameter at one site.
pub type Argument = Result<Located, Missing>;

/// A located argument: where it is, how wide its value is, how the value is extended to its slot, and whether the
/// location is certain.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Located {
    /// Bytes of the parameter's type. Up to 8 it takes one 8-byte slot, else `(size + 7) / 8` of them.
    pub size: u32,
    /// Whether a value narrower than its slot is sign-extended (else zero-extended).
    pub signed: bool,
    /// Where the value is.
    pub at: Location,
    /// Why the location may be wrong; `None`: it is certain.
    pub doubt: Option<Doubt>,
}

/// Where a value is at a site's probe address. Addresses are link-time addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// A constant of at most 8 bytes.
    Constant(u64),
    /// A link-time address inside the kernel's (or module's) image: a constant to which the image's
    /// displacement at run time is added.
    Address(u64),
    /// The register.
    Register(Register),
    /// A 16-byte value: first 8 bytes in the first register, the rest in the second.
    RegisterPair(Register, Register),
    /// The register plus an offset; nothing is read.
    RegisterOffset(Register, i32),
    /// `size` bytes of memory at register plus offset.
    Memory(Register, i32),
    /// A value computed per 8-byte slot.
    Computed(Computed),
}

impl Location {
    /// Whether the value is the same at each hit: neither a register nor memory is read for it.
    pub fn is_fixed(&self) -> bool {
        match self {
            Location::Constant(_) | Location::Address(_) => true,
            Location::Computed(computed) => {
                !computed.slots.iter().flatten().any(|op| matches!(op, Op::Register(_) | Op::Load(_)))
            }
            _ => false,
        }
    }
}

/// A value for which upstream has no shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Computed {
    /// One program per 8-byte slot of the argument, in order of memory. Each leaves one value.
    pub slots: Box<[Box<[Op]>]>,
}

/// One step of a slot's program: a stack machine of 64-bit values, without control flow.
///
/// A program is well formed if no operation finds the stack too short, the stack never holds more than
/// [`Op::MAX_DEPTH`] values, it has at most [`Op::MAX_OPS`] steps, and one value is left: see [`Op::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Push a constant.
    Constant(u64),
    /// Push a link-time address, displaced at run time as [`Location::Address`] is.
    Address(u64),
    /// Push a register.
    Register(Register),
    /// Replace the address on top by the 1, 2, 4 or 8 bytes of kernel memory there, zero-extended.
    Load(u8),
    /// Replace the top by its low bits, zero-extended (1 to 63).
    ZeroExtend(u8),
    /// Replace the top by its low bits, sign-extended (1 to 63).
    SignExtend(u8),
    /// Two's complement negation.
    Neg,
    /// Bitwise complement.
    Not,
    /// Second plus top. The binary operations replace both by the result.
    Add,
    /// Second minus top.
    Sub,
    /// Second times top.
    Mul,
    /// Second divided by top, unsigned; 0 where top is 0, as BPF defines it.
    DivU,
    /// Second modulo top, unsigned; second where top is 0, as BPF defines it.
    ModU,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Second shifted left by top; 0 where top is 64 or more.
    Shl,
    /// Second shifted right by top, zeros enter; 0 where top is 64 or more.
    Shr,
    /// Second shifted right by top, the sign enters; only the sign is left where top is 64 or more.
    Sar,
    /// 1 if second equals top, else 0.
    Eq,
    /// 1 if second differs from top, else 0.
    Ne,
    /// 1 if second is less than top, signed, else 0.
    LtS,
    /// 1 if second is at most top, signed, else 0.
    LeS,
    /// 1 if second is less than top, unsigned, else 0.
    LtU,
    /// 1 if second is at most top, unsigned, else 0.
    LeU,
}

impl Op {
    /// The most steps that a slot's program may have.
    pub const MAX_OPS: usize = 64;
    /// The most values that a slot's program may hold at once: they live in BPF registers and stack slots.
    pub const MAX_DEPTH: usize = 8;

    /// How many values the operation takes from the stack; every operation leaves one.
    pub fn arity(self) -> usize {
        match self {
            Op::Constant(_) | Op::Address(_) | Op::Register(_) => 0,
            Op::Load(_) | Op::ZeroExtend(_) | Op::SignExtend(_) | Op::Neg | Op::Not => 1,
            _ => 2,
        }
    }

    /// Checks that a slot's program is well formed on a machine: operands, depth, length and the one result.
    pub fn check(program: &[Op], machine: Machine) -> bool {
        let mut depth = 0usize;
        for op in program {
            let operand_ok = match *op {
                Op::Register(register) => machine.register_name(register).is_some(),
                Op::Load(bytes) => matches!(bytes, 1 | 2 | 4 | 8),
                Op::ZeroExtend(bits) | Op::SignExtend(bits) => (1..64).contains(&bits),
                _ => true,
            };
            if !operand_ok || depth < op.arity() {
                return false;
            }
            depth = depth - op.arity() + 1;
            if depth > Op::MAX_DEPTH {
                return false;
            }
        }
        depth == 1 && program.len() <= Op::MAX_OPS
    }

    /// Whether the program reads memory.
    pub fn reads_memory(program: &[Op]) -> bool {
        program.iter().any(|op| matches!(op, Op::Load(_)))
    }
}

/// Why an argument has no location at a site.
///
/// The discriminants are stored in site files: they may be added to, not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Missing {
    /// The debug information of this copy does not mention the parameter.
    NotMentioned = 1,
    /// The parameter is mentioned, without a location or a constant: it was optimised away.
    OptimisedOut = 2,
    /// There is a location list, and nothing in it holds where the body starts.
    NotAtEntry = 3,
    /// The list's entry at the site is empty: the compiler says that there is no value.
    Empty = 4,
    /// Only `DW_OP_entry_value`: the value that a register had when the *enclosing* function was entered.
    EntryValue = 5,
    /// `DW_OP_implicit_pointer`: a pointer to an object that exists nowhere.
    ImplicitPointer = 6,
    /// A structure with a location for only some of its pieces.
    Partial = 7,
    /// The location refers to another debug entry's value (`DW_OP_GNU_parameter_ref`, `DW_OP_GNU_variable_value`,
    /// `DW_OP_call*`).
    Reference = 8,
    /// The location uses an operation or a register that cannot be computed at a probe.
    Unsupported = 9,
    /// A frame-base location where the call frame information does not say where the frame is.
    NoFrame = 10,
    /// The list's entry begins at the site's address, but after the body's first step there (a location view
    /// after the entry view), and the debug information shows that the body changes the parameter.
    AfterEntry = 11,
    /// The debug information of the location is malformed.
    Malformed = 12,
    /// The parameter's type has no size that can be passed in slots.
    NoType = 13,
    /// An out-of-line copy whose signature the compiler changed does not have the parameter.
    Removed = 14,
    /// The reader of the site data knows upstream's kinds only, which say that there is no location, not why.
    Unknown = 15,
    /// The debug information shows that the body of this out-of-line copy does not look at the parameter: calls that
    /// the compiler saw may leave anything in its place.
    Unread = 16,
    /// The debug information knows only that the structure was cleared. Clang fills variables with zeros
    /// (`-ftrivial-auto-var-init=zero`), and may lose track of what was put into them.
    Cleared = 17,
    /// An out-of-line copy for which the debug information has one expression for all addresses: where the variable
    /// lives once the prologue has put it there, which is not where the value is when the copy is entered.
    Home = 18,
    /// The probe is before the entry, and an instruction in between computes the argument: see [`Marks::MOVED_BACK`].
    ///
    /// [`Marks::MOVED_BACK`]: crate::Marks::MOVED_BACK
    Overwritten = 19,
}

impl Missing {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Missing; 19] = [
        Missing::NotMentioned,
        Missing::OptimisedOut,
        Missing::NotAtEntry,
        Missing::Empty,
        Missing::EntryValue,
        Missing::ImplicitPointer,
        Missing::Partial,
        Missing::Reference,
        Missing::Unsupported,
        Missing::NoFrame,
        Missing::AfterEntry,
        Missing::Malformed,
        Missing::NoType,
        Missing::Removed,
        Missing::Unknown,
        Missing::Unread,
        Missing::Cleared,
        Missing::Home,
        Missing::Overwritten,
    ];

    /// The reason with that discriminant.
    pub fn from_code(code: u8) -> Option<Missing> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }

    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            Missing::NotMentioned => "not_mentioned",
            Missing::OptimisedOut => "optimised_out",
            Missing::NotAtEntry => "not_at_entry",
            Missing::Empty => "empty",
            Missing::EntryValue => "entry_value",
            Missing::ImplicitPointer => "implicit_pointer",
            Missing::Partial => "partial",
            Missing::Reference => "reference",
            Missing::Unsupported => "unsupported",
            Missing::NoFrame => "no_frame",
            Missing::AfterEntry => "after_entry",
            Missing::Malformed => "malformed",
            Missing::NoType => "no_type",
            Missing::Removed => "removed",
            Missing::Unknown => "unknown",
            Missing::Unread => "unread",
            Missing::Cleared => "cleared",
            Missing::Home => "home",
            Missing::Overwritten => "overwritten",
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::NotMentioned => "this copy's debug information does not mention it",
            Missing::OptimisedOut => "optimised out",
            Missing::NotAtEntry => "has no value yet where the body starts",
            Missing::Empty => "the compiler says that it has no value here",
            Missing::EntryValue => "known only as a value at the enclosing function's entry",
            Missing::ImplicitPointer => "points to an object that was optimised out",
            Missing::Partial => "only some of its bytes have a location",
            Missing::Reference => "described through another variable",
            Missing::Unsupported => "its location cannot be computed at a probe",
            Missing::NoFrame => "in a stack frame that the call frame information does not describe",
            Missing::AfterEntry => "its first location follows a change made by the body",
            Missing::Malformed => "its debug information is malformed",
            Missing::NoType => "its type has no size",
            Missing::Removed => "removed from this copy's signature",
            Missing::Unknown => "no location in the site data",
            Missing::Unread => "the body does not look at it, and callers may pass anything in its place",
            Missing::Cleared => "known only as a structure that was cleared, not what was put into it",
            Missing::Home => "located only after the function has set up its frame",
            Missing::Overwritten => {
                "computed between the probe and the instruction at the entry, which cannot be probed"
            }
        })
    }
}

/// The kinds of location that a census tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationKind {
    /// [`Location::Constant`].
    Constant,
    /// [`Location::Address`].
    Address,
    /// [`Location::Register`].
    Register,
    /// [`Location::RegisterPair`].
    RegisterPair,
    /// [`Location::RegisterOffset`].
    RegisterOffset,
    /// [`Location::Memory`].
    Memory,
    /// [`Location::Computed`].
    Computed,
}

impl LocationKind {
    /// All kinds.
    pub const ALL: [LocationKind; 7] = [
        LocationKind::Constant,
        LocationKind::Address,
        LocationKind::Register,
        LocationKind::RegisterPair,
        LocationKind::RegisterOffset,
        LocationKind::Memory,
        LocationKind::Computed,
    ];

    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            LocationKind::Constant => "constant",
            LocationKind::Address => "address",
            LocationKind::Register => "register",
            LocationKind::RegisterPair => "register_pair",
            LocationKind::RegisterOffset => "register_offset",
            LocationKind::Memory => "memory",
            LocationKind::Computed => "computed",
        }
    }
}

impl Location {
    /// The kind of this location.
    pub fn kind(&self) -> LocationKind {
        match self {
            Location::Constant(_) => LocationKind::Constant,
            Location::Address(_) => LocationKind::Address,
            Location::Register(_) => LocationKind::Register,
            Location::RegisterPair(..) => LocationKind::RegisterPair,
            Location::RegisterOffset(..) => LocationKind::RegisterOffset,
            Location::Memory(..) => LocationKind::Memory,
            Location::Computed(_) => LocationKind::Computed,
        }
    }
}

impl Located {
    /// An argument whose location is certain.
    pub fn certain(size: u32, signed: bool, at: Location) -> Located {
        Located { size, signed, at, doubt: None }
    }

    /// The same location, with a doubt.
    pub fn doubtful(self, doubt: Doubt) -> Located {
        Located { doubt: Some(doubt), ..self }
    }

    /// Whether nothing is known that would make the location wrong.
    pub fn is_certain(&self) -> bool {
        self.doubt.is_none()
    }

    /// How many 8-byte slots of the context the argument takes.
    pub fn slots(&self) -> usize {
        self.size.div_ceil(8).max(1) as usize
    }

    /// The location as text: `5`, `&0xffffffff82a4c1e0`, `rdi`, `rdi:rsi`, `rdi+8`, `*(rsp+16)`,
    /// `*(rdi+8) & 0xff`, `{rdi, 0}` (one expression per slot).
    pub fn display(&self, machine: Machine) -> impl fmt::Display + '_ {
        LocatedText { located: self, machine }
    }
}

struct LocatedText<'a> {
    located: &'a Located,
    machine: Machine,
}

fn register(machine: Machine, number: Register) -> String {
    machine.register_name(number).map_or_else(|| format!("reg{number}"), str::to_owned)
}

fn plus(base: &str, offset: i64) -> String {
    match offset {
        0 => base.to_owned(),
        o if o < 0 => format!("{base}-{}", o.unsigned_abs()),
        o => format!("{base}+{o}"),
    }
}

impl fmt::Display for LocatedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.machine;
        match &self.located.at {
            Location::Constant(value) => f.write_str(&constant(*value, self.located)),
            Location::Address(address) => write!(f, "&{address:#x}"),
            Location::Register(r) => f.write_str(&register(m, *r)),
            Location::RegisterPair(a, b) => write!(f, "{}:{}", register(m, *a), register(m, *b)),
            Location::RegisterOffset(r, o) => f.write_str(&plus(&register(m, *r), i64::from(*o))),
            Location::Memory(r, o) => write!(f, "*({})", plus(&register(m, *r), i64::from(*o))),
            Location::Computed(computed) => {
                let texts: Vec<String> = computed.slots.iter().map(|slot| infix(slot, m)).collect();
                match &texts[..] {
                    [one] => f.write_str(one),
                    many => write!(f, "{{{}}}", many.join(", ")),
                }
            }
        }
    }
}

fn constant(value: u64, located: &Located) -> String {
    let bits = located.size.clamp(1, 8) * 8;
    let shifted = 64 - bits;
    if located.signed {
        format!("{}", ((value << shifted) as i64) >> shifted)
    } else {
        let value = (value << shifted) >> shifted;
        if value > 0xffff { format!("{value:#x}") } else { format!("{value}") }
    }
}

/// A slot's program written as an expression in C's operators.
fn infix(program: &[Op], machine: Machine) -> String {
    // Each entry: text, and whether it must be bracketed inside a larger expression.
    let mut stack: Vec<(String, bool)> = Vec::new();
    for op in program {
        let bracket = |(text, compound): (String, bool)| if compound { format!("({text})") } else { text };
        let mut pop = || stack.pop().unwrap_or_else(|| ("?".to_owned(), false));
        let entry = match *op {
            Op::Constant(v) if (v as i64) < 0 && (v as i64) > -0x10000 => (format!("{}", v as i64), false),
            Op::Constant(v) if v > 0xffff => (format!("{v:#x}"), false),
            Op::Constant(v) => (format!("{v}"), false),
            Op::Address(a) => (format!("&{a:#x}"), false),
            Op::Register(r) => (register(machine, r), false),
            Op::Load(8) => (format!("*({})", pop().0), false),
            Op::Load(bytes) => (format!("*(u{} *)({})", u32::from(bytes) * 8, pop().0), false),
            Op::ZeroExtend(bits) => (format!("(u{bits})({})", pop().0), false),
            Op::SignExtend(bits) => (format!("(s{bits})({})", pop().0), false),
            Op::Neg => (format!("-{}", bracket(pop())), true),
            Op::Not => (format!("~{}", bracket(pop())), true),
            binary => {
                let (right, left) = (bracket(pop()), bracket(pop()));
                (format!("{left} {} {right}", binary.symbol()), true)
            }
        };
        stack.push(entry);
    }
    stack.pop().map_or_else(|| "?".to_owned(), |(text, _)| text)
}

impl Op {
    /// The operator of a binary operation in C's notation; `>>>` is the signed right shift.
    fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::DivU => "/",
            Op::ModU => "%",
            Op::And => "&",
            Op::Or => "|",
            Op::Xor => "^",
            Op::Shl => "<<",
            Op::Shr => ">>",
            Op::Sar => ">>>",
            Op::Eq => "==",
            Op::Ne => "!=",
            Op::LtS | Op::LtU => "<",
            Op::LeS | Op::LeU => "<=",
            _ => "?",
        }
    }
}

impl Computed {
    /// The value's shape with the operands taken out, for counting which forms a kernel uses:
    /// `*(reg+const) & const`, `{reg, const}`.
    pub fn shape(&self) -> String {
        let texts: Vec<String> = self.slots.iter().map(|slot| shape(slot)).collect();
        match &texts[..] {
            [one] => one.clone(),
            many => format!("{{{}}}", many.join(", ")),
        }
    }
}

fn shape(program: &[Op]) -> String {
    let mut stack: Vec<(String, bool)> = Vec::new();
    for op in program {
        let bracket = |(text, compound): (String, bool)| if compound { format!("({text})") } else { text };
        let mut pop = || stack.pop().unwrap_or_else(|| ("?".to_owned(), false));
        let entry = match *op {
            Op::Constant(_) => ("const".to_owned(), false),
            Op::Address(_) => ("address".to_owned(), false),
            Op::Register(_) => ("reg".to_owned(), false),
            Op::Load(_) => (format!("*({})", pop().0), false),
            Op::ZeroExtend(_) => (format!("zext({})", pop().0), false),
            Op::SignExtend(_) => (format!("sext({})", pop().0), false),
            Op::Neg => (format!("-{}", bracket(pop())), true),
            Op::Not => (format!("~{}", bracket(pop())), true),
            binary => {
                let (right, left) = (bracket(pop()), bracket(pop()));
                (format!("{left} {} {right}", binary.symbol()), true)
            }
        };
        stack.push(entry);
    }
    stack.pop().map_or_else(|| "?".to_owned(), |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(size: u32, signed: bool, at: Location) -> String {
        Located::certain(size, signed, at).display(Machine::X86_64).to_string()
    }

    #[test]
    fn text_of_each_kind() {
        assert_eq!(located(4, true, Location::Constant(0xffff_ffff)), "-1");
        assert_eq!(located(4, false, Location::Constant(0xffff_ffff)), "0xffffffff");
        assert_eq!(located(1, false, Location::Constant(0x1_05)), "5");
        assert_eq!(located(8, false, Location::Address(0xffff_ffff_8100_0000)), "&0xffffffff81000000");
        assert_eq!(located(8, false, Location::Register(5)), "rdi");
        assert_eq!(located(16, false, Location::RegisterPair(5, 4)), "rdi:rsi");
        assert_eq!(located(8, false, Location::RegisterOffset(3, -16)), "rbx-16");
        assert_eq!(located(8, false, Location::Memory(7, 8)), "*(rsp+8)");
        assert_eq!(located(8, false, Location::Register(99)), "reg99");
    }

    #[test]
    fn computed_text_and_shape() {
        let masked: Box<[Op]> =
            Box::new([Op::Register(3), Op::Constant(16), Op::Add, Op::Load(4), Op::Constant(0xff), Op::And]);
        let one = Computed { slots: Box::new([masked.clone()]) };
        assert_eq!(one.shape(), "*(reg + const) & const");
        assert_eq!(located(4, false, Location::Computed(one)), "*(u32 *)(rbx + 16) & 255");
        let two = Computed { slots: Box::new([Box::new([Op::Register(5)]) as Box<[Op]>, masked]) };
        assert_eq!(two.shape(), "{reg, *(reg + const) & const}");
    }

    #[test]
    fn programs_are_checked() {
        let m = Machine::X86_64;
        assert!(Op::check(&[Op::Register(5)], m));
        assert!(!Op::check(&[], m));
        assert!(!Op::check(&[Op::Add], m));
        assert!(!Op::check(&[Op::Register(5), Op::Register(4)], m));
        assert!(!Op::check(&[Op::Register(99)], m));
        assert!(!Op::check(&[Op::Register(5), Op::Load(3)], m));
        assert!(!Op::check(&[Op::Constant(1); 9], m));
    }

    #[test]
    fn reasons_have_stable_codes() {
        for (index, reason) in Missing::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index + 1);
            assert_eq!(Missing::from_code(*reason as u8), Some(*reason));
        }
        assert_eq!(Missing::from_code(0), None);
        assert_eq!(Missing::from_code(200), None);
    }
}
