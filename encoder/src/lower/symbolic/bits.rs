// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Terms of single bits: masks, shifts, extensions, and what is left of a term when only its low bits are wanted.

use siteseer_sites::evaluate::extend;
use siteseer_sites::location::Op;

use super::{Node, Term, Terms, low_mask};

impl Terms {
    pub(in crate::lower) fn mask(&mut self, term: Term, mask: u64) -> Term {
        let term = self.narrow(term, 64 - mask.leading_zeros());
        let possible = low_mask(self.unsigned_bits(term));
        let mask = mask & possible;
        if mask == possible {
            return term;
        }
        if mask == 0 {
            return self.constant(0);
        }
        if mask & mask.wrapping_add(1) == 0 {
            return self.zero_extend(mask.trailing_ones(), term);
        }
        match self.node(term) {
            // Narrowing may have brought a constant to light.
            Node::Constant(value) => self.constant(value & mask),
            Node::Binary(Op::And, inner, other) => match self.as_constant(other) {
                Some(other) => self.mask(inner, mask & other),
                None => self.raw_mask(term, mask),
            },
            Node::Unary(Op::ZeroExtend(bits), inner) if mask <= low_mask(u32::from(bits)) => self.mask(inner, mask),
            _ => self.raw_mask(term, mask),
        }
    }

    fn raw_mask(&mut self, term: Term, mask: u64) -> Term {
        let mask = self.constant(mask);
        self.make(Node::Binary(Op::And, term, mask))
    }

    pub(in crate::lower) fn shl(&mut self, a: Term, b: Term) -> Term {
        match self.as_constant(b) {
            Some(amount) => self.shl_by(a, amount.min(64) as u32),
            None => self.make(Node::Binary(Op::Shl, a, b)),
        }
    }

    pub(in crate::lower) fn shr(&mut self, a: Term, b: Term) -> Term {
        match self.as_constant(b) {
            Some(amount) => self.shr_by(a, amount.min(64) as u32),
            None => self.make(Node::Binary(Op::Shr, a, b)),
        }
    }

    pub(in crate::lower) fn sar(&mut self, a: Term, b: Term) -> Term {
        match self.as_constant(b) {
            Some(amount) => self.sar_by(a, amount.min(64) as u32),
            None => self.make(Node::Binary(Op::Sar, a, b)),
        }
    }

    pub(in crate::lower) fn shl_by(&mut self, term: Term, amount: u32) -> Term {
        if amount == 0 {
            return term;
        }
        if amount >= 64 {
            return self.constant(0);
        }
        let term = self.narrow(term, 64 - amount);
        match self.node(term) {
            Node::Constant(value) => return self.constant(value << amount),
            Node::Binary(Op::Shl, inner, other) => {
                if let Some(other) = self.as_constant(other) {
                    return self.shl_by(inner, amount + other.min(64) as u32);
                }
            }
            Node::Binary(Op::Add, inner, tail) => {
                if let Some(tail) = self.as_constant(tail) {
                    let inner = self.shl_by(inner, amount);
                    return self.offset(inner, tail << amount);
                }
            }
            _ => {}
        }
        let amount = self.constant(u64::from(amount));
        self.make(Node::Binary(Op::Shl, term, amount))
    }

    pub(in crate::lower) fn shr_by(&mut self, term: Term, amount: u32) -> Term {
        if amount == 0 {
            return term;
        }
        if amount >= 64 {
            return self.constant(0);
        }
        match self.node(term) {
            Node::Constant(value) => return self.constant(value >> amount),
            Node::Unary(Op::ZeroExtend(bits), inner) => {
                return match u32::from(bits).checked_sub(amount) {
                    None | Some(0) => self.constant(0),
                    Some(left) => {
                        let inner = self.shr_by(inner, amount);
                        self.zero_extend(left, inner)
                    }
                };
            }
            Node::Binary(op @ (Op::Shl | Op::Shr), inner, other) => {
                if let Some(other) = self.as_constant(other) {
                    let other = other.min(64) as u32;
                    if op == Op::Shr {
                        return self.shr_by(inner, amount + other);
                    }
                    let moved = if other > amount {
                        self.shl_by(inner, other - amount)
                    } else {
                        self.shr_by(inner, amount - other)
                    };
                    return self.zero_extend(64 - amount, moved);
                }
            }
            _ => {}
        }
        let amount = self.constant(u64::from(amount));
        self.make(Node::Binary(Op::Shr, term, amount))
    }

    pub(in crate::lower) fn sar_by(&mut self, term: Term, amount: u32) -> Term {
        let amount = amount.min(63);
        if amount == 0 {
            return term;
        }
        if self.unsigned_bits(term) < 64 {
            return self.shr_by(term, amount);
        }
        match self.node(term) {
            Node::Constant(value) => return self.constant(((value as i64) >> amount) as u64),
            Node::Unary(Op::SignExtend(bits), inner) => {
                let amount = amount.min(u32::from(bits) - 1);
                let inner = self.shr_by(inner, amount);
                return self.sign_extend(u32::from(bits) - amount, inner);
            }
            Node::Binary(op @ (Op::Shl | Op::Sar), inner, other) => {
                if let Some(other) = self.as_constant(other) {
                    let other = other.min(64) as u32;
                    if op == Op::Sar {
                        return self.sar_by(inner, amount + other);
                    }
                    let moved = if other > amount {
                        self.shl_by(inner, other - amount)
                    } else {
                        self.shr_by(inner, amount - other)
                    };
                    return self.sign_extend(64 - amount, moved);
                }
            }
            _ => {}
        }
        let amount = self.constant(u64::from(amount));
        self.make(Node::Binary(Op::Sar, term, amount))
    }

    /// The low bits of a term, zero-extended.
    pub(in crate::lower) fn zero_extend(&mut self, bits: u32, term: Term) -> Term {
        if bits == 0 {
            return self.constant(0);
        }
        if bits >= 64 || self.unsigned_bits(term) <= bits {
            return term;
        }
        let term = self.narrow(term, bits);
        if let Node::Constant(value) = self.node(term) {
            return self.constant(extend(value, bits, false));
        }
        if self.unsigned_bits(term) <= bits {
            return term;
        }
        if let Node::Binary(Op::And, inner, mask) = self.node(term)
            && let Some(mask) = self.as_constant(mask)
        {
            let mask = mask & low_mask(bits);
            if mask & mask.wrapping_add(1) != 0 {
                return self.raw_mask(inner, mask);
            }
        }
        self.make(Node::Unary(Op::ZeroExtend(bits as u8), term))
    }

    /// The low bits of a term, sign-extended.
    pub(in crate::lower) fn sign_extend(&mut self, bits: u32, term: Term) -> Term {
        if bits == 0 {
            return self.constant(0);
        }
        if bits >= 64 || self.signed_bits(term) <= bits {
            return term;
        }
        let term = self.narrow(term, bits);
        if let Node::Constant(value) = self.node(term) {
            return self.constant(extend(value, bits, true));
        }
        if self.signed_bits(term) <= bits {
            return term;
        }
        if let Node::Binary(Op::Shr, inner, amount) = self.node(term)
            && let Some(amount) = self.as_constant(amount)
            && amount == u64::from(64 - bits)
        {
            return self.sar_by(inner, 64 - bits);
        }
        self.make(Node::Unary(Op::SignExtend(bits as u8), term))
    }

    pub(in crate::lower) fn extend(&mut self, bits: u32, signed: bool, term: Term) -> Term {
        if signed { self.sign_extend(bits, term) } else { self.zero_extend(bits, term) }
    }

    /// A simpler term with the same low bits. What it has above them is arbitrary.
    pub(in crate::lower) fn narrow(&mut self, term: Term, bits: u32) -> Term {
        if bits >= 64 || self.overflowed {
            return term;
        }
        if bits == 0 {
            return self.constant(0);
        }
        match self.node(term) {
            Node::Constant(value) => return self.constant(extend(value, bits, true)),
            Node::Address(_) | Node::Register(_) => return term,
            _ => {}
        }
        if let Some(known) = self.narrowed.get(&(term.0, bits)) {
            return *known;
        }
        let narrowed = self.narrow_operation(term, bits);
        self.narrowed.insert((term.0, bits), narrowed);
        self.narrowed.insert((narrowed.0, bits), narrowed);
        narrowed
    }

    fn narrow_operation(&mut self, term: Term, bits: u32) -> Term {
        let narrowed = match self.node(term) {
            Node::Constant(_) | Node::Address(_) | Node::Register(_) => term,
            Node::Unary(op, operand) => match op {
                Op::ZeroExtend(kept) | Op::SignExtend(kept) if u32::from(kept) >= bits => operand,
                Op::Load(bytes) => {
                    let enough = bits.div_ceil(8).next_power_of_two();
                    if enough < u32::from(bytes) { self.load(enough, operand) } else { term }
                }
                Op::Neg => {
                    let operand = self.narrow(operand, bits);
                    self.neg(operand)
                }
                Op::Not => {
                    let operand = self.narrow(operand, bits);
                    self.not(operand)
                }
                _ => term,
            },
            Node::Binary(op, a, b) => match op {
                Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor => {
                    let (a, b) = (self.narrow(a, bits), self.narrow(b, bits));
                    match op {
                        Op::Add => self.add(a, b),
                        Op::Sub => self.sub(a, b),
                        _ => self.commute(op, a, b),
                    }
                }
                Op::Shl | Op::Shr | Op::Sar => match (op, self.as_constant(b)) {
                    (Op::Shl, Some(amount)) if amount >= u64::from(bits) => self.constant(0),
                    (Op::Shl, Some(amount)) => {
                        let a = self.narrow(a, bits - amount as u32);
                        self.shl_by(a, amount as u32)
                    }
                    (_, Some(amount)) if amount + u64::from(bits) <= 64 => {
                        let a = self.narrow(a, bits + amount as u32);
                        self.shr_by(a, amount as u32)
                    }
                    _ => term,
                },
                _ => term,
            },
        };
        // What has changed may now stand under an extension that is not needed either.
        match self.node(narrowed) {
            Node::Unary(Op::ZeroExtend(kept) | Op::SignExtend(kept), operand) if u32::from(kept) >= bits => {
                self.narrow(operand, bits)
            }
            _ if narrowed != term && self.entry(narrowed).size < self.entry(term).size => self.narrow(narrowed, bits),
            _ => narrowed,
        }
    }
}
