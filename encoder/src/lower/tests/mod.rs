// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Lowering: a table of expressions with their text, and properties: what is lowered has the value that
//! gimli's evaluator finds, no bytes make it panic, and memory outside of an object is not read.

mod properties;
mod table;

use super::*;
use gimli::constants::*;
use gimli::{
    DebugAddrIndex, DwOp, Encoding, EndianSlice, EvaluationResult, Expression, Format, LittleEndian, UnitOffset, Value,
};
use proptest::prelude::*;
use siteseer_sites::evaluate::evaluate;
use siteseer_sites::location::{Located, Location, Op};

const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 5, address_size: 8 };
const IMAGE: u64 = 0xffff_ffff_8100_0000;
const FRAME: (Register, i64) = (6, 16);
const CFA: (Register, i64) = (7, 8);
/// Base types by their offset: 1 to 8 are s8, u8, s16, ... u64; then float, 128 bits, and clang's single bits.
const TYPES: [BaseType; 12] = [
    integer(8, true),
    integer(8, false),
    integer(16, true),
    integer(16, false),
    integer(32, true),
    integer(32, false),
    integer(64, true),
    integer(64, false),
    BaseType { bits: 64, signed: true, float: true },
    integer(128, true),
    integer(1, false),
    integer(1, true),
];

const fn integer(bits: u32, signed: bool) -> BaseType {
    BaseType { bits, signed, float: false }
}

struct Probe {
    frame: Result<(Register, i64), Missing>,
}

const PROBE: Probe = Probe { frame: Ok(FRAME) };

impl Environment for Probe {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }
    fn frame_base(&self) -> Result<(Register, i64), Missing> {
        self.frame
    }
    fn cfa(&self) -> Result<(Register, i64), Missing> {
        Ok(CFA)
    }
    fn base_type(&self, offset: UnitOffset) -> Option<BaseType> {
        TYPES.get(offset.0.checked_sub(1)?).copied()
    }
    fn address(&self, index: DebugAddrIndex) -> Option<u64> {
        [IMAGE + 0x40, 0x1000].get(index.0).copied()
    }
    fn entry_value(&self, register: Register) -> Option<Register> {
        // rdi has been moved to rbx; the other registers are lost.
        (register == 5).then_some(3)
    }
    fn meaning(&self, address: u64) -> Meaning {
        if address >= IMAGE { Meaning::Image } else { Meaning::Absolute }
    }
}

/// An expression under construction.
#[derive(Debug, Clone, Default)]
struct Code(Vec<u8>);

impl Code {
    fn op(mut self, op: DwOp) -> Code {
        self.0.push(op.0);
        self
    }
    fn u8(mut self, value: u8) -> Code {
        self.0.push(value);
        self
    }
    fn bytes(mut self, bytes: &[u8]) -> Code {
        self.0.extend_from_slice(bytes);
        self
    }
    fn uleb(mut self, mut value: u64) -> Code {
        loop {
            let more = value > 0x7f;
            self.0.push(value as u8 & 0x7f | u8::from(more) << 7);
            value >>= 7;
            if !more {
                return self;
            }
        }
    }
    fn sleb(mut self, mut value: i64) -> Code {
        loop {
            let byte = value as u8 & 0x7f;
            value >>= 7;
            let done = value == if byte & 0x40 == 0 { 0 } else { -1 };
            self.0.push(byte | u8::from(!done) << 7);
            if done {
                return self;
            }
        }
    }
    fn reg(self, register: u8) -> Code {
        self.op(DwOp(DW_OP_reg0.0 + register))
    }
    fn breg(self, register: u8, offset: i64) -> Code {
        self.op(DwOp(DW_OP_breg0.0 + register)).sleb(offset)
    }
    fn constant(self, value: u64) -> Code {
        if value < 32 { self.op(DwOp(DW_OP_lit0.0 + value as u8)) } else { self.op(DW_OP_constu).uleb(value) }
    }
    fn address(self, address: u64) -> Code {
        self.op(DW_OP_addr).bytes(&address.to_le_bytes())
    }
    fn piece(self, bytes: u64) -> Code {
        self.op(DW_OP_piece).uleb(bytes)
    }
    fn bit_piece(self, bits: u64, offset: u64) -> Code {
        self.op(DW_OP_bit_piece).uleb(bits).uleb(offset)
    }
    fn value(self) -> Code {
        self.op(DW_OP_stack_value)
    }
    fn convert(self, ty: u64) -> Code {
        self.op(DW_OP_convert).uleb(ty)
    }
    fn implicit(self, bytes: &[u8]) -> Code {
        self.op(DW_OP_implicit_value).uleb(bytes.len() as u64).bytes(bytes)
    }
}

fn code() -> Code {
    Code::default()
}

fn lower_in(probe: &Probe, bytes: &[u8], ty: &ParamType) -> Argument {
    lower(Expression(EndianSlice::new(bytes, LittleEndian)), ENCODING, ty, probe)
}

fn text(code: &Code, ty: &ParamType) -> String {
    match lower_in(&PROBE, &code.0, ty) {
        Ok(located) => {
            assert_eq!((located.size, located.signed), (ty.size, ty.signed));
            located.display(Machine::X86_64).to_string()
        }
        Err(reason) => reason.key().to_owned(),
    }
}

fn u(size: u32) -> ParamType {
    ParamType::scalar(size, false)
}

fn s(size: u32) -> ParamType {
    ParamType::scalar(size, true)
}

/// A composite, with its ranges of data as first and last bit, exclusive.
fn composite(size: u32, data: &[(u32, u32)]) -> ParamType {
    let data = data.iter().map(|(start, end)| *start..*end).collect();
    ParamType { size, signed: false, is_composite: true, data, is_irregular: false }
}

#[track_caller]
fn check(code: Code, ty: &ParamType, expected: &str) {
    assert_eq!(text(&code, ty), expected, "{:02x?}", code.0);
}
