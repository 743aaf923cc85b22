// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! BPF instructions: their layout, how they are made, and how they read.
//!
//! The encoding is that of RFC 9669 (BPF Instruction Set Architecture) and include/uapi/linux/bpf.h. The text is
//! the one that the kernel's verifier prints (kernel/bpf/disasm.c), so that a listing of ours can be laid beside a
//! verifier log.

use crate::bpf::helper;
use std::fmt::{self, Write as _};

/// Instruction classes: the low three bits of the code.
pub mod class {
    /// Non-standard loads: 64-bit immediates, packet access.
    pub const LD: u8 = 0;
    /// Load from memory.
    pub const LDX: u8 = 1;
    /// Store an immediate.
    pub const ST: u8 = 2;
    /// Store a register, atomic operations.
    pub const STX: u8 = 3;
    /// 32-bit arithmetic.
    pub const ALU: u8 = 4;
    /// Jumps with 64-bit comparison, calls, exit.
    pub const JMP: u8 = 5;
    /// Jumps with 32-bit comparison.
    pub const JMP32: u8 = 6;
    /// 64-bit arithmetic.
    pub const ALU64: u8 = 7;
}

/// Modes of loads and stores: the high three bits of the code.
pub mod mode {
    /// 64-bit immediate.
    pub const IMM: u8 = 0x00;
    /// Plain memory.
    pub const MEM: u8 = 0x60;
    /// Plain memory, sign-extending.
    pub const MEMSX: u8 = 0x80;
    /// Atomic operation.
    pub const ATOMIC: u8 = 0xc0;
}

/// Atomic operations: the immediate of an atomic store.
pub mod atomic {
    /// Modifier: the old value is returned.
    pub const FETCH: i32 = 0x01;
    /// Exchange (includes [`FETCH`]).
    pub const XCHG: i32 = 0xe1;
    /// Compare and exchange with r0 (includes [`FETCH`]).
    pub const CMPXCHG: i32 = 0xf1;
    /// Load-acquire.
    pub const LOAD_ACQ: i32 = 0x100;
    /// Store-release.
    pub const STORE_REL: i32 = 0x110;
}

/// Values of the source register that give a call or a 64-bit immediate its meaning.
pub mod pseudo {
    /// 64-bit immediate: a map's file descriptor.
    pub const MAP_FD: u8 = 1;
    /// 64-bit immediate: an address inside the value of a map given by file descriptor.
    pub const MAP_VALUE: u8 = 2;
    /// 64-bit immediate: an instruction offset, the address of a subprogram.
    pub const FUNC: u8 = 4;
    /// Call: an instruction offset, a subprogram.
    pub const CALL: u8 = 1;
    /// Call: a kernel function by BTF id.
    pub const KFUNC_CALL: u8 = 2;
}

/// Width of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 1 byte.
    B,
    /// 2 bytes.
    H,
    /// 4 bytes.
    W,
    /// 8 bytes.
    D,
}

impl Width {
    /// The width of so many bytes.
    pub fn of_bytes(bytes: u32) -> Option<Width> {
        match bytes {
            1 => Some(Width::B),
            2 => Some(Width::H),
            4 => Some(Width::W),
            8 => Some(Width::D),
            _ => None,
        }
    }

    /// Bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Width::B => 1,
            Width::H => 2,
            Width::W => 4,
            Width::D => 8,
        }
    }

    fn code(self) -> u8 {
        match self {
            Width::W => 0x00,
            Width::H => 0x08,
            Width::B => 0x10,
            Width::D => 0x18,
        }
    }

    fn of_code(code: u8) -> Width {
        match code & 0x18 {
            0x00 => Width::W,
            0x08 => Width::H,
            0x10 => Width::B,
            _ => Width::D,
        }
    }
}

/// Arithmetic operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Alu {
    /// `+=`
    Add = 0x00,
    /// `-=`
    Sub = 0x10,
    /// `*=`
    Mul = 0x20,
    /// `/=`, unsigned
    Div = 0x30,
    /// `|=`
    Or = 0x40,
    /// `&=`
    And = 0x50,
    /// `<<=`
    Lsh = 0x60,
    /// `>>=`, zeros enter
    Rsh = 0x70,
    /// negation
    Neg = 0x80,
    /// `%=`, unsigned
    Mod = 0x90,
    /// `^=`
    Xor = 0xa0,
    /// `=`
    Mov = 0xb0,
    /// `>>=`, the sign enters
    Arsh = 0xc0,
}

/// Conditions of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cond {
    /// `==`
    Eq = 0x10,
    /// `!=`
    Ne = 0x50,
    /// `>`, unsigned
    Gt = 0x20,
    /// `>=`, unsigned
    Ge = 0x30,
    /// `<`, unsigned
    Lt = 0xa0,
    /// `<=`, unsigned
    Le = 0xb0,
    /// `<`, signed
    SLt = 0xc0,
    /// `<=`, signed
    SLe = 0xd0,
}

/// One instruction, laid out as `struct bpf_insn` on a little-endian machine. A 64-bit immediate takes two.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Insn {
    /// Operation.
    pub code: u8,
    /// Destination register in the low four bits, source register in the high ones.
    pub dst_src: u8,
    /// Signed offset.
    pub off: i16,
    /// Signed immediate.
    pub imm: i32,
}

const JA: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const SOURCE_REGISTER: u8 = 0x08;

impl Insn {
    /// An instruction from its parts.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { code, dst_src: (dst & 15) | (src << 4), off, imm }
    }

    /// From the bytes of `struct bpf_insn`, little-endian.
    pub fn from_bytes(bytes: [u8; 8]) -> Insn {
        let [code, dst_src, o0, o1, i0, i1, i2, i3] = bytes;
        Insn { code, dst_src, off: i16::from_le_bytes([o0, o1]), imm: i32::from_le_bytes([i0, i1, i2, i3]) }
    }

    /// The bytes of `struct bpf_insn`, little-endian.
    pub fn to_bytes(self) -> [u8; 8] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.code, self.dst_src, o0, o1, i0, i1, i2, i3]
    }

    /// `dst = src`
    pub const fn mov(dst: u8, src: u8) -> Insn {
        Insn::alu(Alu::Mov, dst, src)
    }

    /// `dst = imm`, sign-extended
    pub const fn mov_imm(dst: u8, imm: i32) -> Insn {
        Insn::alu_imm(Alu::Mov, dst, imm)
    }

    /// `dst op= src`, 64 bits
    pub const fn alu(op: Alu, dst: u8, src: u8) -> Insn {
        Insn::new(class::ALU64 | SOURCE_REGISTER | op as u8, dst, src, 0, 0)
    }

    /// `dst op= imm`, 64 bits
    pub const fn alu_imm(op: Alu, dst: u8, imm: i32) -> Insn {
        Insn::new(class::ALU64 | op as u8, dst, 0, 0, imm)
    }

    /// `dst = *(width *)(src + off)`, zero-extended
    pub fn load(width: Width, dst: u8, src: u8, off: i16) -> Insn {
        Insn::new(class::LDX | mode::MEM | width.code(), dst, src, off, 0)
    }

    /// `*(width *)(dst + off) = src`
    pub fn store(width: Width, dst: u8, off: i16, src: u8) -> Insn {
        Insn::new(class::STX | mode::MEM | width.code(), dst, src, off, 0)
    }

    /// `*(width *)(dst + off) = imm`, sign-extended
    pub fn store_imm(width: Width, dst: u8, off: i16, imm: i32) -> Insn {
        Insn::new(class::ST | mode::MEM | width.code(), dst, 0, off, imm)
    }

    /// `lock *(u64 *)(dst + off) += src`
    pub fn atomic_add(dst: u8, off: i16, src: u8) -> Insn {
        Insn::new(class::STX | mode::ATOMIC | Width::D.code(), dst, src, off, 0)
    }

    /// A 64-bit immediate load; `kind` is one of [`pseudo`]'s or 0 for a plain number.
    pub const fn load64(dst: u8, kind: u8, value: u64) -> [Insn; 2] {
        [
            Insn::new(class::LD | mode::IMM | 0x18, dst, kind, 0, value as u32 as i32),
            Insn::new(0, 0, 0, 0, (value >> 32) as u32 as i32),
        ]
    }

    /// `goto +off`
    pub const fn jump(off: i16) -> Insn {
        Insn::new(class::JMP | JA, 0, 0, off, 0)
    }

    /// `if dst cond src goto +off`, 64 bits
    pub const fn jump_if(cond: Cond, dst: u8, src: u8, off: i16) -> Insn {
        Insn::new(class::JMP | SOURCE_REGISTER | cond as u8, dst, src, off, 0)
    }

    /// `if dst cond imm goto +off`, 64 bits
    pub const fn jump_if_imm(cond: Cond, dst: u8, imm: i32, off: i16) -> Insn {
        Insn::new(class::JMP | cond as u8, dst, 0, off, imm)
    }

    /// `if wdst cond imm goto +off`, 32 bits
    pub const fn jump32_if_imm(cond: Cond, dst: u8, imm: i32, off: i16) -> Insn {
        Insn::new(class::JMP32 | cond as u8, dst, 0, off, imm)
    }

    /// A helper call.
    pub const fn call(helper: u32) -> Insn {
        Insn::new(class::JMP | CALL, 0, 0, 0, helper as i32)
    }

    /// A call of a subprogram `distance` instructions after the next one.
    pub const fn call_subprogram(distance: i32) -> Insn {
        Insn::new(class::JMP | CALL, 0, pseudo::CALL, 0, distance)
    }

    /// A call of a function of vmlinux by its BTF id.
    pub const fn call_kfunc(id: u32) -> Insn {
        Insn::new(class::JMP | CALL, 0, pseudo::KFUNC_CALL, 0, id as i32)
    }

    /// `exit`
    pub const fn exit() -> Insn {
        Insn::new(class::JMP | EXIT, 0, 0, 0, 0)
    }

    /// Destination register.
    pub const fn dst(self) -> u8 {
        self.dst_src & 15
    }

    /// Source register.
    pub const fn src(self) -> u8 {
        self.dst_src >> 4
    }

    /// Class, one of [`class`].
    pub const fn class(self) -> u8 {
        self.code & 7
    }

    /// Operation bits of an arithmetic or jump instruction.
    pub const fn op(self) -> u8 {
        self.code & 0xf0
    }

    /// Mode of a load or store, one of [`mode`].
    pub const fn mode(self) -> u8 {
        self.code & 0xe0
    }

    /// Width of a load or store.
    pub fn width(self) -> Width {
        Width::of_code(self.code)
    }

    /// Whether the second operand is the source register, not the immediate.
    pub const fn uses_source(self) -> bool {
        self.code & SOURCE_REGISTER != 0
    }

    /// Whether this is the first half of a 64-bit immediate.
    pub const fn is_load64(self) -> bool {
        self.code == class::LD | mode::IMM | 0x18
    }

    /// Whether this is an exit.
    pub const fn is_exit(self) -> bool {
        self.code == class::JMP | EXIT
    }

    /// Whether this is a call of any kind.
    pub const fn is_call(self) -> bool {
        self.class() == class::JMP && self.op() == CALL
    }

    /// The helper that this calls.
    pub fn helper(self) -> Option<u32> {
        (self.code == class::JMP | CALL && self.src() == 0).then_some(self.imm as u32)
    }

    /// Whether this calls a subprogram.
    pub fn is_subprogram_call(self) -> bool {
        self.code == class::JMP | CALL && self.src() == pseudo::CALL
    }

    /// Whether this calls a kernel function.
    pub fn is_kfunc_call(self) -> bool {
        self.code == class::JMP | CALL && self.src() == pseudo::KFUNC_CALL
    }

    /// Whether this loads a subprogram's address (its distance is the immediate, as in a call).
    pub fn is_subprogram_address(self) -> bool {
        self.is_load64() && self.src() == pseudo::FUNC
    }

    /// Whether this jumps to a computed place.
    pub fn is_indirect_jump(self) -> bool {
        self.code == class::JMP | JA | SOURCE_REGISTER
    }

    /// Whether this is a direct jump, conditional or not.
    pub fn is_jump(self) -> bool {
        matches!(self.class(), class::JMP | class::JMP32)
            && !matches!(self.op(), CALL | EXIT)
            && !self.is_indirect_jump()
    }

    /// Whether control never goes on to the next instruction.
    pub fn is_goto(self) -> bool {
        self.is_jump() && self.op() == JA
    }

    /// Distance of a direct jump from the next instruction. `gotol` keeps it in the immediate.
    pub fn jump_distance(self) -> i32 {
        if self.is_long_goto() { self.imm } else { i32::from(self.off) }
    }

    /// The same jump with another distance, if the instruction has room for it.
    pub fn with_jump_distance(self, distance: i64) -> Option<Insn> {
        if self.is_long_goto() {
            Some(Insn { imm: i32::try_from(distance).ok()?, ..self })
        } else {
            Some(Insn { off: i16::try_from(distance).ok()?, ..self })
        }
    }

    fn is_long_goto(self) -> bool {
        self.code == class::JMP32 | JA
    }
}

/// The text of the instructions, one line each, numbered as the verifier does: a 64-bit immediate is one line and
/// counts as two.
pub fn listing(insns: &[Insn]) -> String {
    let mut out = String::new();
    let mut index = 0;
    while let Some(&insn) = insns.get(index) {
        let next = insns.get(index + 1).copied().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{index:>4}: {}", Text { insn, next });
        index += if insn.is_load64() { 2 } else { 1 };
    }
    out
}

struct Text {
    insn: Insn,
    next: Insn,
}

fn alu_symbol(op: u8) -> &'static str {
    match op {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x90 => "%=",
        0xa0 => "^=",
        0xb0 => "=",
        0xc0 => "s>>=",
        _ => "?=",
    }
}

fn jump_symbol(op: u8) -> &'static str {
    match op {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => "?",
    }
}

impl Text {
    fn arithmetic(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        let prefix = if insn.class() == class::ALU64 { 'r' } else { 'w' };
        let dst = insn.dst();
        if insn.op() == Alu::Neg as u8 {
            return write!(f, "{prefix}{dst} = -{prefix}{dst}");
        }
        if insn.op() == 0xd0 {
            let swap = match (insn.class(), insn.uses_source()) {
                (class::ALU64, _) => "bswap",
                (_, true) => "be",
                (_, false) => "le",
            };
            return write!(f, "r{dst} = {swap}{} r{dst}", insn.imm);
        }
        let symbol = alu_symbol(insn.op());
        if !insn.uses_source() {
            write!(f, "{prefix}{dst} {symbol} {}", insn.imm)
        } else if insn.op() == Alu::Mov as u8 && insn.off != 0 {
            write!(f, "{prefix}{dst} {symbol} (s{}){prefix}{}", insn.off, insn.src())
        } else {
            write!(f, "{prefix}{dst} {symbol} {prefix}{}", insn.src())
        }
    }

    fn memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        let bits = insn.width().bytes() * 8;
        let sign = if insn.mode() == mode::MEMSX { 's' } else { 'u' };
        let (dst, src, off) = (insn.dst(), insn.src(), insn.off);
        match (insn.class(), insn.mode()) {
            (class::LDX, _) => write!(f, "r{dst} = *({sign}{bits} *)(r{src} {off:+})"),
            (class::ST, _) => write!(f, "*(u{bits} *)(r{dst} {off:+}) = {}", insn.imm),
            (_, mode::ATOMIC) if insn.imm == 0 => write!(f, "lock *(u{bits} *)(r{dst} {off:+}) += r{src}"),
            (_, mode::ATOMIC) => write!(f, "atomic {:#x} *(u{bits} *)(r{dst} {off:+}), r{src}", insn.imm),
            _ => write!(f, "*(u{bits} *)(r{dst} {off:+}) = r{src}"),
        }
    }

    fn jump(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        if let Some(id) = insn.helper() {
            return match helper::name(id) {
                Some(name) => write!(f, "call {name}#{id}"),
                None => write!(f, "call unknown#{id:#x}"),
            };
        }
        let prefix = if insn.class() == class::JMP { 'r' } else { 'w' };
        let distance = insn.jump_distance();
        if insn.is_exit() {
            write!(f, "exit")
        } else if insn.is_subprogram_call() {
            write!(f, "call pc{:+}", insn.imm)
        } else if insn.is_call() {
            write!(f, "call kernel-function#{}", insn.imm)
        } else if insn.is_indirect_jump() {
            write!(f, "gotox r{}", insn.dst())
        } else if insn.is_goto() {
            write!(f, "goto pc{distance:+}")
        } else if insn.op() == 0xe0 {
            write!(f, "may_goto pc{distance:+}")
        } else if insn.uses_source() {
            let symbol = jump_symbol(insn.op());
            write!(f, "if {prefix}{} {symbol} {prefix}{} goto pc{distance:+}", insn.dst(), insn.src())
        } else {
            let symbol = jump_symbol(insn.op());
            write!(f, "if {prefix}{} {symbol} {} goto pc{distance:+}", insn.dst(), insn.imm)
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        write!(f, "({:02x}) ", insn.code)?;
        match insn.class() {
            class::ALU | class::ALU64 => self.arithmetic(f),
            class::JMP | class::JMP32 => self.jump(f),
            class::LD if insn.is_load64() => {
                let value = u64::from(insn.imm as u32) | u64::from(self.next.imm as u32) << 32;
                match insn.src() {
                    0 => write!(f, "r{} = {value:#x} ll", insn.dst()),
                    pseudo::MAP_FD => write!(f, "r{} = map[fd {}] ll", insn.dst(), insn.imm),
                    pseudo::FUNC => write!(f, "r{} = subprogram pc{:+} ll", insn.dst(), insn.imm),
                    kind => write!(f, "r{} = {kind}:{value:#x} ll", insn.dst()),
                }
            }
            class::LD => write!(f, "packet load {:#x}", insn.imm),
            _ => self.memory(f),
        }
    }
}

impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Text { insn: *self, next: Insn::default() }.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_struct_bpf_insn() {
        let insn = Insn::load(Width::D, 6, 1, -8);
        assert_eq!(insn.to_bytes(), [0x79, 0x16, 0xf8, 0xff, 0, 0, 0, 0]);
        assert_eq!(Insn::from_bytes(insn.to_bytes()), insn);
        assert_eq!(Insn::call(113).to_bytes(), [0x85, 0, 0, 0, 113, 0, 0, 0]);
        assert_eq!(Insn::call_kfunc(5).to_bytes(), [0x85, 0x20, 0, 0, 5, 0, 0, 0]);
        assert_eq!(Insn::exit().to_bytes(), [0x95, 0, 0, 0, 0, 0, 0, 0]);
        let [low, high] = Insn::load64(2, 0, 0x1122_3344_5566_7788);
        assert_eq!(low.to_bytes(), [0x18, 2, 0, 0, 0x88, 0x77, 0x66, 0x55]);
        assert_eq!(high.to_bytes(), [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]);
    }

    #[test]
    fn text_is_the_verifiers() {
        let text = |insn: Insn| insn.to_string();
        assert_eq!(text(Insn::mov(6, 1)), "(bf) r6 = r1");
        assert_eq!(text(Insn::load(Width::W, 1, 6, 112)), "(61) r1 = *(u32 *)(r6 +112)");
        assert_eq!(text(Insn::store(Width::D, 10, -8, 1)), "(7b) *(u64 *)(r10 -8) = r1");
        assert_eq!(text(Insn::store_imm(Width::D, 10, -8, -1)), "(7a) *(u64 *)(r10 -8) = -1");
        assert_eq!(text(Insn::alu_imm(Alu::Arsh, 1, 32)), "(c7) r1 s>>= 32");
        assert_eq!(text(Insn::jump_if_imm(Cond::Ne, 0, 0, 3)), "(55) if r0 != 0 goto pc+3");
        assert_eq!(text(Insn::call(113)), "(85) call bpf_probe_read_kernel#113");
        assert_eq!(text(Insn::call_subprogram(2)), "(85) call pc+2");
        assert_eq!(text(Insn::atomic_add(0, 0, 1)), "(db) lock *(u64 *)(r0 +0) += r1");
        assert_eq!(listing(&Insn::load64(1, pseudo::MAP_FD, 7)), "   0: (18) r1 = map[fd 7] ll\n");
    }

    #[test]
    fn jumps_are_told_apart() {
        assert!(Insn::jump(1).is_goto());
        assert!(!Insn::jump_if(Cond::Lt, 1, 2, 3).is_goto());
        assert!(Insn::jump_if(Cond::Lt, 1, 2, 3).is_jump());
        assert!(!Insn::exit().is_jump());
        assert!(!Insn::call(1).is_jump());
        let long = Insn::new(0x06, 0, 0, 0, 70_000);
        assert_eq!(long.jump_distance(), 70_000);
        assert_eq!(long.with_jump_distance(80_000).map(Insn::jump_distance), Some(80_000));
        assert_eq!(Insn::jump(1).with_jump_distance(40_000), None);
    }
}
