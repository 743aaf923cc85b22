// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Code for computed locations: a stack machine's program, compiled.
//!
//! r7 to r9 are the first three places of the expression's stack; they survive calls, so a memory read in the middle of
//! an expression needs no spilling. Deeper places are words of scratch. Constants are not put anywhere until an
//! operation needs them, and operations on constants alone are done here.

use super::gather::{FRAME, Gather, fits, near};
use super::layout::Item;
use crate::bpf::insn::{Alu, Cond, Insn, Width};
use crate::site::refusal::Refusal;
use siteseer_sites::evaluate::{binary, extend};
use siteseer_sites::location::Op;

/// Where an expression's first places are.
const PLACES: [u8; 3] = [7, 8, 9];

/// One value of an expression's stack.
#[derive(Clone, Copy)]
enum Entry {
    Constant(u64),
    /// In the place that belongs to its depth.
    Placed,
}

impl Gather {
    /// Computes an expression; gives the register that holds the result.
    pub(super) fn expression(&mut self, program: &[Op], item: &Item) -> Result<u8, Refusal> {
        let malformed = || item.malformed();
        let mut stack: Vec<Entry> = Vec::new();
        for op in program {
            let entry = match op.arity() {
                0 => match *op {
                    Op::Constant(value) | Op::Address(value) => Entry::Constant(value),
                    Op::Register(register) => {
                        let depth = stack.len();
                        let work = work_register(depth);
                        self.register(work, register, 64, false, item)?;
                        self.put(depth, work)?
                    }
                    _ => return Err(malformed()),
                },
                1 => {
                    let top = stack.pop().ok_or_else(malformed)?;
                    self.unary(*op, stack.len(), top)?.ok_or_else(malformed)?
                }
                _ => {
                    let top = stack.pop().ok_or_else(malformed)?;
                    let second = stack.pop().ok_or_else(malformed)?;
                    match (second, top) {
                        (Entry::Constant(second), Entry::Constant(top)) => {
                            Entry::Constant(binary(*op, second, top).ok_or_else(malformed)?)
                        }
                        _ => self.binary(*op, stack.len(), second, top)?.ok_or_else(malformed)?,
                    }
                }
            };
            stack.push(entry);
        }
        match stack[..] {
            [entry] => self.fetch(0, entry, work_register(0)),
            _ => Err(malformed()),
        }
    }

    fn unary(&mut self, op: Op, depth: usize, top: Entry) -> Result<Option<Entry>, Refusal> {
        if let Entry::Constant(value) = top {
            let folded = match op {
                Op::ZeroExtend(bits) => Some(extend(value, u32::from(bits), false)),
                Op::SignExtend(bits) => Some(extend(value, u32::from(bits), true)),
                Op::Neg => Some(value.wrapping_neg()),
                Op::Not => Some(!value),
                _ => None,
            };
            if let Some(value) = folded {
                return Ok(Some(Entry::Constant(value)));
            }
        }
        let work = work_register(depth);
        match op {
            Op::Load(bytes) => {
                let Some(width) = Width::of_bytes(u32::from(bytes)) else { return Ok(None) };
                let address = self.fetch(depth, top, 3)?;
                if address != 3 {
                    self.push(Insn::mov(3, address));
                }
                let buffer = self.scratch_word(0);
                self.address_of(1, buffer)?;
                self.read_kernel(width.bytes())?;
                self.push(Insn::load(width, work, FRAME, near(buffer)?));
            }
            _ => {
                let value = self.fetch(depth, top, work)?;
                if value != work {
                    self.push(Insn::mov(work, value));
                }
                match op {
                    Op::ZeroExtend(bits) => self.extend(work, u32::from(bits), false),
                    Op::SignExtend(bits) => self.extend(work, u32::from(bits), true),
                    Op::Neg => self.push(Insn::alu_imm(Alu::Neg, work, 0)),
                    Op::Not => self.push(Insn::alu_imm(Alu::Xor, work, -1)),
                    _ => return Ok(None),
                }
            }
        }
        self.put(depth, work).map(Some)
    }

    fn binary(&mut self, op: Op, depth: usize, second: Entry, top: Entry) -> Result<Option<Entry>, Refusal> {
        let work = work_register(depth);
        let left = self.fetch(depth, second, work)?;
        if left != work {
            self.push(Insn::mov(work, left));
        }
        match op {
            Op::Shl => self.shift(Alu::Lsh, work, depth + 1, top)?,
            Op::Shr => self.shift(Alu::Rsh, work, depth + 1, top)?,
            Op::Sar => self.shift(Alu::Arsh, work, depth + 1, top)?,
            Op::Add => self.plain(Alu::Add, work, depth + 1, top)?,
            Op::Sub => self.plain(Alu::Sub, work, depth + 1, top)?,
            Op::Mul => self.plain(Alu::Mul, work, depth + 1, top)?,
            Op::And => self.plain(Alu::And, work, depth + 1, top)?,
            Op::Or => self.plain(Alu::Or, work, depth + 1, top)?,
            Op::Xor => self.plain(Alu::Xor, work, depth + 1, top)?,
            // The verifier refuses a division by a constant 0, although BPF defines its result.
            Op::DivU if matches!(top, Entry::Constant(0)) => self.push(Insn::mov_imm(work, 0)),
            Op::ModU if matches!(top, Entry::Constant(0)) => {}
            Op::DivU => self.plain(Alu::Div, work, depth + 1, top)?,
            Op::ModU => self.plain(Alu::Mod, work, depth + 1, top)?,
            Op::Eq => self.compare(Cond::Eq, work, depth + 1, top)?,
            Op::Ne => self.compare(Cond::Ne, work, depth + 1, top)?,
            Op::LtS => self.compare(Cond::SLt, work, depth + 1, top)?,
            Op::LeS => self.compare(Cond::SLe, work, depth + 1, top)?,
            Op::LtU => self.compare(Cond::Lt, work, depth + 1, top)?,
            Op::LeU => self.compare(Cond::Le, work, depth + 1, top)?,
            _ => return Ok(None),
        }
        self.put(depth, work).map(Some)
    }

    fn plain(&mut self, op: Alu, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        match top {
            Entry::Constant(value) if fits(value) => {
                self.push(Insn::alu_imm(op, work, value as i32));
            }
            _ => {
                let right = self.fetch(depth, top, 2)?;
                self.push(Insn::alu(op, work, right));
            }
        }
        Ok(())
    }

    /// A shift, with amounts of 64 and more as the model defines them; BPF itself takes the amount modulo 64.
    fn shift(&mut self, op: Alu, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        let arithmetic = op == Alu::Arsh;
        match top {
            Entry::Constant(0) => {}
            Entry::Constant(amount @ 1..=63) => self.push(Insn::alu_imm(op, work, amount as i32)),
            Entry::Constant(_) if arithmetic => self.push(Insn::alu_imm(op, work, 63)),
            Entry::Constant(_) => self.push(Insn::mov_imm(work, 0)),
            Entry::Placed => {
                let amount = self.fetch(depth, top, 2)?;
                if amount != 2 {
                    self.push(Insn::mov(2, amount));
                }
                if arithmetic {
                    self.push(Insn::jump_if_imm(Cond::Le, 2, 63, 1));
                    self.push(Insn::mov_imm(2, 63));
                    self.push(Insn::alu(op, work, 2));
                } else {
                    self.push(Insn::jump_if_imm(Cond::Le, 2, 63, 2));
                    self.push(Insn::mov_imm(work, 0));
                    self.push(Insn::jump(1));
                    self.push(Insn::alu(op, work, 2));
                }
            }
        }
        Ok(())
    }

    /// 1 if the comparison holds, else 0.
    fn compare(&mut self, cond: Cond, work: u8, depth: usize, top: Entry) -> Result<(), Refusal> {
        let right = match top {
            Entry::Constant(value) if i32::try_from(value).is_ok() => Err(value as i32),
            _ => Ok(self.fetch(depth, top, 2)?),
        };
        self.push(Insn::mov_imm(3, 1));
        self.push(match right {
            Ok(register) => Insn::jump_if(cond, work, register, 1),
            Err(imm) => Insn::jump_if_imm(cond, work, imm, 1),
        });
        self.push(Insn::mov_imm(3, 0));
        self.push(Insn::mov(work, 3));
        Ok(())
    }

    /// The register that holds a value: its place, or `temporary` after loading it there.
    fn fetch(&mut self, depth: usize, entry: Entry, temporary: u8) -> Result<u8, Refusal> {
        match (entry, PLACES.get(depth)) {
            (Entry::Constant(value), _) => {
                self.constant(temporary, value);
                Ok(temporary)
            }
            (Entry::Placed, Some(register)) => Ok(*register),
            (Entry::Placed, None) => {
                let place = self.scratch_word(depth + 1 - PLACES.len());
                self.load(temporary, place)?;
                Ok(temporary)
            }
        }
    }

    /// Puts a value that is in the work register of its depth into its place.
    fn put(&mut self, depth: usize, work: u8) -> Result<Entry, Refusal> {
        if depth >= PLACES.len() {
            let place = self.scratch_word(depth + 1 - PLACES.len());
            self.store(place, work)?;
        }
        Ok(Entry::Placed)
    }
}

/// How many low bits a program's result can have set, as far as its last steps tell.
pub(super) fn significant_bits(program: &[Op]) -> u32 {
    match program {
        [.., Op::Constant(mask), Op::And] => u64::BITS - mask.leading_zeros(),
        [.., Op::ZeroExtend(bits)] => u32::from(*bits),
        [.., Op::Load(bytes)] => u32::from(*bytes) * 8,
        [.., Op::Eq | Op::Ne | Op::LtS | Op::LeS | Op::LtU | Op::LeU] => 1,
        _ => u64::BITS,
    }
}

/// The register that a value of some depth is computed in.
fn work_register(depth: usize) -> u8 {
    PLACES.get(depth).copied().unwrap_or(1)
}
