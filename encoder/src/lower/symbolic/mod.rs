// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Terms: 64-bit values computed from registers, constants, addresses and reads, kept in a normal form.
//!
//! The functions of [`Terms`] build terms, and each function simplifies as it builds: constants fold, sums keep their
//! constant part apart, shift pairs and masks become extensions, operands of commutative operations are sorted. Equal
//! terms have one identity (hash-consing), so that two ways to write a value mostly end as the same program, and sites
//! that share it share a prototype. Everything is exact modulo 2^64; nothing here is a heuristic.
//!
//! For each term two widths are kept: how many low bits can be set at all, and from how many low bits the value
//! is the sign extension. They decide when an extension is redundant. [`Terms::narrow`] goes the other way: it drops
//! from a term what only matters above the bits that are asked for.
//!
//! Growth is bounded: a term that unfolds to more than [`MAX_SIZE`] operations, or more than [`MAX_TERMS`] terms,
//! set [`Terms::overflowed`], and whatever is built from then on is not to be used.

mod bits;

use siteseer_sites::evaluate::{binary, extend};
use siteseer_sites::location::Op;
use siteseer_sites::machine::Register;
use std::cmp::Ordering;
use std::collections::HashMap;

/// The most operations that a term may unfold to on the way: more than a program may have, because
/// simplification makes them fewer.
const MAX_SIZE: u32 = 4 * Op::MAX_OPS as u32;
/// The most terms of one expression.
const MAX_TERMS: usize = 512;

/// A value, by its index in [`Terms`]. Equal identities mean equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term(u32);

/// How a term is made: its last operation and the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Constant(u64),
    Address(u64),
    Register(Register),
    Unary(Op, Term),
    Binary(Op, Term, Term),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    node: Node,
    /// Operations of the program that computes it.
    size: u32,
    /// Stack slots of the program that computes it.
    depth: u32,
    /// The value is less than 2 to this power.
    unsigned_bits: u32,
    /// The value is the sign extension of this many low bits.
    signed_bits: u32,
}

/// The terms of one expression.
#[derive(Debug, Default)]
pub(super) struct Terms {
    entries: Vec<Entry>,
    /// What [`Terms::narrow`] made of a term for a number of bits; without it nested shifts would be walked again
    /// and again.
    narrowed: HashMap<(u32, u32), Term>,
    /// A term became too large: no term is to be trusted.
    pub(super) overflowed: bool,
}

/// What a sum has besides its proper part: a constant, or an address to which constants have been added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Constant(u64),
    Address(u64),
}

fn low_mask(bits: u32) -> u64 {
    extend(u64::MAX, bits, false)
}

impl Terms {
    pub(super) fn node(&self, term: Term) -> Node {
        // Identities come from `make` alone, so the index is in range.
        self.entries[term.0 as usize].node
    }

    fn entry(&self, term: Term) -> &Entry {
        &self.entries[term.0 as usize]
    }

    fn unsigned_bits(&self, term: Term) -> u32 {
        self.entry(term).unsigned_bits
    }

    fn signed_bits(&self, term: Term) -> u32 {
        self.entry(term).signed_bits
    }

    pub(super) fn as_constant(&self, term: Term) -> Option<u64> {
        match self.node(term) {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// The register and offset that a term is the sum of.
    pub(super) fn as_register_offset(&self, term: Term) -> Option<(Register, i64)> {
        match self.node(term) {
            Node::Register(register) => Some((register, 0)),
            Node::Binary(Op::Add, base, offset) => match (self.node(base), self.node(offset)) {
                (Node::Register(register), Node::Constant(offset)) => Some((register, offset as i64)),
                _ => None,
            },
            _ => None,
        }
    }

    fn make(&mut self, node: Node) -> Term {
        if let Some(index) = self.entries.iter().rposition(|entry| entry.node == node) {
            return Term(index as u32);
        }
        let entry = self.measure(node);
        if entry.unsigned_bits == 0 && node != Node::Constant(0) {
            return self.constant(0);
        }
        if entry.size > MAX_SIZE || self.entries.len() >= MAX_TERMS {
            self.overflowed = true;
            return match self.entries.first() {
                Some(_) => Term(0),
                None => self.constant(0),
            };
        }
        self.entries.push(entry);
        Term(self.entries.len() as u32 - 1)
    }

    /// Size, depth and widths of a node from those of its operands.
    fn measure(&self, node: Node) -> Entry {
        let (size, depth, unsigned_bits, signed_bits) = match node {
            Node::Constant(value) => {
                let signed = 65 - value.leading_zeros().max(value.leading_ones());
                (1, 1, 64 - value.leading_zeros(), signed)
            }
            Node::Address(_) | Node::Register(_) => (1, 1, 64, 64),
            Node::Unary(op, operand) => {
                let x = self.entry(operand);
                let (unsigned, signed) = match op {
                    Op::Load(bytes) => (u32::from(bytes) * 8, 64),
                    Op::ZeroExtend(bits) => (x.unsigned_bits.min(u32::from(bits)), 64),
                    Op::SignExtend(bits) => (64, x.signed_bits.min(u32::from(bits))),
                    Op::Not => (64, x.signed_bits),
                    _ => (64, 64),
                };
                (x.size + 1, x.depth, unsigned, signed)
            }
            Node::Binary(op, left, right) => {
                let (l, r) = (self.entry(left), self.entry(right));
                let wider_unsigned = l.unsigned_bits.max(r.unsigned_bits);
                let wider_signed = l.signed_bits.max(r.signed_bits);
                let amount = self.as_constant(right).map(|k| k.min(64) as u32);
                let (unsigned, signed) = match (op, amount) {
                    (Op::Add, _) => (wider_unsigned + 1, wider_signed + 1),
                    (Op::Sub, _) => (64, wider_signed + 1),
                    (Op::Mul, _) => (l.unsigned_bits + r.unsigned_bits, l.signed_bits + r.signed_bits),
                    (Op::And, _) => (l.unsigned_bits.min(r.unsigned_bits), wider_signed),
                    (Op::Or | Op::Xor, _) => (wider_unsigned, wider_signed),
                    (Op::Shl, Some(k)) => (l.unsigned_bits + k, l.signed_bits + k),
                    (Op::Shr, Some(k)) => (l.unsigned_bits.saturating_sub(k), 64),
                    (Op::Shr | Op::DivU, _) => (l.unsigned_bits, 64),
                    (Op::Sar, Some(k)) => (64, l.signed_bits.saturating_sub(k).max(1)),
                    (Op::Sar, None) => (64, l.signed_bits),
                    (Op::ModU, Some(k)) if k != 0 => (l.unsigned_bits.min(r.unsigned_bits), 64),
                    (Op::ModU, _) => (l.unsigned_bits, 64),
                    (Op::Eq | Op::Ne | Op::LtS | Op::LeS | Op::LtU | Op::LeU, _) => (1, 64),
                    _ => (64, 64),
                };
                (l.size + r.size + 1, l.depth.max(r.depth + 1), unsigned, signed)
            }
        };
        let unsigned_bits = unsigned_bits.min(64);
        let signed_bits = signed_bits.min(unsigned_bits + 1).min(64);
        Entry { node, size, depth, unsigned_bits, signed_bits }
    }

    /// The order in which operands of commutative operations stand: those that need a deep stack first, because
    /// then nothing else is on it yet; constants last.
    fn order(&self, a: Term, b: Term) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        let kind = |term| match self.node(term) {
            Node::Unary(..) => 0u8,
            Node::Binary(..) => 1,
            Node::Register(_) => 2,
            Node::Address(_) => 3,
            Node::Constant(_) => 4,
        };
        let depth = |term| self.entry(term).depth;
        depth(b).cmp(&depth(a)).then(kind(a).cmp(&kind(b))).then_with(|| match (self.node(a), self.node(b)) {
            (Node::Constant(x), Node::Constant(y)) | (Node::Address(x), Node::Address(y)) => x.cmp(&y),
            (Node::Register(x), Node::Register(y)) => x.cmp(&y),
            (Node::Unary(f, x), Node::Unary(g, y)) => rank(f).cmp(&rank(g)).then_with(|| self.order(x, y)),
            (Node::Binary(f, x, v), Node::Binary(g, y, w)) => {
                rank(f).cmp(&rank(g)).then_with(|| self.order(x, y)).then_with(|| self.order(v, w))
            }
            _ => Ordering::Equal,
        })
    }

    pub(super) fn constant(&mut self, value: u64) -> Term {
        self.make(Node::Constant(value))
    }

    pub(super) fn address(&mut self, address: u64) -> Term {
        self.make(Node::Address(address))
    }

    pub(super) fn register(&mut self, register: Register) -> Term {
        self.make(Node::Register(register))
    }

    pub(super) fn register_offset(&mut self, register: Register, offset: i64) -> Term {
        let base = self.register(register);
        self.offset(base, offset as u64)
    }

    /// A term plus a constant.
    pub(super) fn offset(&mut self, term: Term, offset: u64) -> Term {
        let offset = self.constant(offset);
        self.add(term, offset)
    }

    /// The little-endian value of 1 to 8 bytes of memory, zero-extended; nothing else is read.
    pub(super) fn load(&mut self, bytes: u32, address: Term) -> Term {
        let whole = [8, 4, 2, 1].into_iter().find(|whole| *whole <= bytes).unwrap_or(1);
        let low = self.make(Node::Unary(Op::Load(whole as u8), address));
        if whole >= bytes {
            return low;
        }
        let rest = self.offset(address, u64::from(whole));
        let rest = self.load(bytes - whole, rest);
        let rest = self.shl_by(rest, whole * 8);
        self.or(low, rest)
    }

    fn split(&mut self, term: Term) -> (Option<Term>, Tail) {
        let leaf = |node| match node {
            Node::Constant(value) => Some(Tail::Constant(value)),
            Node::Address(address) => Some(Tail::Address(address)),
            _ => None,
        };
        let node = self.node(term);
        if let Some(tail) = leaf(node) {
            return (None, tail);
        }
        match node {
            Node::Binary(Op::Add, proper, tail) => match leaf(self.node(tail)) {
                Some(tail) if leaf(self.node(proper)).is_none() => (Some(proper), tail),
                _ => (Some(term), Tail::Constant(0)),
            },
            Node::Binary(Op::Sub, tail, proper) => match leaf(self.node(tail)) {
                Some(tail) if leaf(self.node(proper)).is_none() => {
                    (Some(self.make(Node::Unary(Op::Neg, proper))), tail)
                }
                _ => (Some(term), Tail::Constant(0)),
            },
            _ => (Some(term), Tail::Constant(0)),
        }
    }

    fn join(&mut self, proper: Option<Term>, tail: Tail) -> Term {
        let leaf = match tail {
            Tail::Constant(value) => self.constant(value),
            Tail::Address(address) => self.address(address),
        };
        match proper {
            None => leaf,
            Some(proper) if tail == Tail::Constant(0) => proper,
            Some(proper) => match self.node(proper) {
                Node::Unary(Op::Neg, operand) => self.make(Node::Binary(Op::Sub, leaf, operand)),
                _ => self.make(Node::Binary(Op::Add, proper, leaf)),
            },
        }
    }

    pub(super) fn add(&mut self, a: Term, b: Term) -> Term {
        let ((x, s), (y, t)) = (self.split(a), self.split(b));
        let tail = match (s, t) {
            (Tail::Constant(s), Tail::Constant(t)) => Tail::Constant(s.wrapping_add(t)),
            (Tail::Address(s), Tail::Constant(t)) | (Tail::Constant(t), Tail::Address(s)) => {
                Tail::Address(s.wrapping_add(t))
            }
            (Tail::Address(_), Tail::Address(_)) => return self.sorted(Op::Add, a, b),
        };
        let proper = match (x, y) {
            (Some(x), Some(y)) => match (self.node(x), self.node(y)) {
                (Node::Unary(Op::Neg, x), Node::Unary(Op::Neg, y)) => {
                    let sum = self.commute(Op::Add, x, y);
                    Some(self.make(Node::Unary(Op::Neg, sum)))
                }
                (_, Node::Unary(Op::Neg, y)) => self.difference(x, y),
                (Node::Unary(Op::Neg, x), _) => self.difference(y, x),
                _ => Some(self.commute(Op::Add, x, y)),
            },
            (one, None) | (None, one) => one,
        };
        self.join(proper, tail)
    }

    pub(super) fn sub(&mut self, a: Term, b: Term) -> Term {
        let ((x, s), (y, t)) = (self.split(a), self.split(b));
        let tail = match (s, t) {
            (Tail::Constant(s), Tail::Constant(t)) | (Tail::Address(s), Tail::Address(t)) => {
                Tail::Constant(s.wrapping_sub(t))
            }
            (Tail::Address(s), Tail::Constant(t)) => Tail::Address(s.wrapping_sub(t)),
            (Tail::Constant(_), Tail::Address(_)) => return self.make(Node::Binary(Op::Sub, a, b)),
        };
        let proper = match (x, y) {
            (Some(x), Some(y)) => match (self.node(x), self.node(y)) {
                (Node::Unary(Op::Neg, x), Node::Unary(Op::Neg, y)) => self.difference(y, x),
                (_, Node::Unary(Op::Neg, y)) => Some(self.commute(Op::Add, x, y)),
                (Node::Unary(Op::Neg, x), _) => {
                    let sum = self.commute(Op::Add, x, y);
                    Some(self.make(Node::Unary(Op::Neg, sum)))
                }
                _ => self.difference(x, y),
            },
            (None, Some(y)) => Some(self.negated(y)),
            (x, None) => x,
        };
        self.join(proper, tail)
    }

    /// The difference of two terms without tails; none if it is nothing.
    fn difference(&mut self, x: Term, y: Term) -> Option<Term> {
        (x != y).then(|| self.make(Node::Binary(Op::Sub, x, y)))
    }

    /// The negation of a term without a tail.
    fn negated(&mut self, term: Term) -> Term {
        match self.node(term) {
            Node::Unary(Op::Neg, operand) => operand,
            Node::Binary(Op::Sub, x, y) => self.make(Node::Binary(Op::Sub, y, x)),
            _ => self.make(Node::Unary(Op::Neg, term)),
        }
    }

    pub(super) fn neg(&mut self, term: Term) -> Term {
        let zero = self.constant(0);
        self.sub(zero, term)
    }

    pub(super) fn not(&mut self, term: Term) -> Term {
        match self.node(term) {
            Node::Constant(value) => self.constant(!value),
            Node::Unary(Op::Not, operand) => operand,
            _ => self.make(Node::Unary(Op::Not, term)),
        }
    }

    fn sorted(&mut self, op: Op, a: Term, b: Term) -> Term {
        let (a, b) = if self.order(a, b).is_gt() { (b, a) } else { (a, b) };
        self.make(Node::Binary(op, a, b))
    }

    fn operands(&self, op: Op, term: Term, into: &mut Vec<Term>) {
        match self.node(term) {
            Node::Binary(inner, a, b) if inner == op => {
                self.operands(op, a, into);
                self.operands(op, b, into);
            }
            _ => into.push(term),
        }
    }

    /// An associative and commutative operation on all operands of both sides, sorted; constants are folded into
    /// the last one.
    fn commute(&mut self, op: Op, a: Term, b: Term) -> Term {
        let mut operands = Vec::with_capacity(4);
        self.operands(op, a, &mut operands);
        self.operands(op, b, &mut operands);
        let mut constant = None;
        operands.retain(|term| match self.as_constant(*term) {
            None => true,
            Some(value) => {
                constant = match constant {
                    None => Some(value),
                    Some(other) => binary(op, other, value),
                };
                false
            }
        });
        operands.sort_by(|x, y| self.order(*x, *y));
        match op {
            Op::And | Op::Or => operands.dedup(),
            Op::Xor => {
                let mut kept: Vec<Term> = Vec::with_capacity(operands.len());
                for term in operands {
                    match kept.last() {
                        Some(last) if *last == term => {
                            kept.pop();
                        }
                        _ => kept.push(term),
                    }
                }
                operands = kept;
            }
            _ => {}
        }
        let mut result = None;
        for term in operands {
            result = Some(match result {
                None => term,
                Some(left) => self.make(Node::Binary(op, left, term)),
            });
        }
        match (result, constant) {
            (Some(result), None) => result,
            (Some(result), Some(constant)) => self.with_constant(op, result, constant),
            (None, Some(constant)) => self.constant(constant),
            // Only exclusive ors cancel to nothing.
            (None, None) => self.constant(0),
        }
    }

    /// The operation of `commute` on a term that is not a constant and a constant.
    fn with_constant(&mut self, op: Op, term: Term, constant: u64) -> Term {
        match (op, constant) {
            (Op::And | Op::Mul, 0) => return self.constant(0),
            (Op::Or, u64::MAX) => return self.constant(u64::MAX),
            (Op::And, u64::MAX) | (Op::Or | Op::Xor | Op::Add, 0) | (Op::Mul, 1) => return term,
            (Op::Xor, u64::MAX) => return self.not(term),
            (Op::Mul, u64::MAX) => return self.neg(term),
            (Op::Mul, power) if power.is_power_of_two() => return self.shl_by(term, power.trailing_zeros()),
            (Op::And, mask) => return self.mask(term, mask),
            _ => {}
        }
        let constant = self.constant(constant);
        self.make(Node::Binary(op, term, constant))
    }

    pub(super) fn mul(&mut self, a: Term, b: Term) -> Term {
        self.commute(Op::Mul, a, b)
    }

    pub(super) fn and(&mut self, a: Term, b: Term) -> Term {
        self.commute(Op::And, a, b)
    }

    pub(super) fn or(&mut self, a: Term, b: Term) -> Term {
        self.commute(Op::Or, a, b)
    }

    pub(super) fn xor(&mut self, a: Term, b: Term) -> Term {
        self.commute(Op::Xor, a, b)
    }

    pub(super) fn div_unsigned(&mut self, a: Term, b: Term) -> Term {
        match (self.as_constant(a), self.as_constant(b)) {
            (Some(x), Some(y)) => self.constant(x.checked_div(y).unwrap_or(0)),
            (_, Some(power)) if power.is_power_of_two() => self.shr_by(a, power.trailing_zeros()),
            _ => self.make(Node::Binary(Op::DivU, a, b)),
        }
    }

    pub(super) fn mod_unsigned(&mut self, a: Term, b: Term) -> Term {
        match (self.as_constant(a), self.as_constant(b)) {
            (Some(x), Some(y)) => self.constant(x.checked_rem(y).unwrap_or(x)),
            (_, Some(1)) => self.constant(0),
            (_, Some(power)) if power.is_power_of_two() => self.zero_extend(power.trailing_zeros(), a),
            _ => self.make(Node::Binary(Op::ModU, a, b)),
        }
    }

    /// A value's sign as 0 or -1, and its absolute value, unsigned (so that the least value has one too).
    fn sign_and_magnitude(&mut self, term: Term) -> (Term, Term) {
        let sign = self.sar_by(term, 63);
        let flipped = self.xor(term, sign);
        (sign, self.sub(flipped, sign))
    }

    /// A magnitude with a sign put to it.
    fn with_sign(&mut self, magnitude: Term, sign: Term) -> Term {
        let flipped = self.xor(magnitude, sign);
        self.sub(flipped, sign)
    }

    pub(super) fn abs(&mut self, term: Term) -> Term {
        self.sign_and_magnitude(term).1
    }

    /// Signed division towards zero, made of the unsigned one; 0 where the divisor is 0.
    pub(super) fn div_signed(&mut self, a: Term, b: Term) -> Term {
        let ((sign_a, a), (sign_b, b)) = (self.sign_and_magnitude(a), self.sign_and_magnitude(b));
        let quotient = self.div_unsigned(a, b);
        let sign = self.xor(sign_a, sign_b);
        self.with_sign(quotient, sign)
    }

    /// The remainder of [`Terms::div_signed`]: it has the dividend's sign.
    pub(super) fn mod_signed(&mut self, a: Term, b: Term) -> Term {
        let ((sign, a), (_, b)) = (self.sign_and_magnitude(a), self.sign_and_magnitude(b));
        let remainder = self.mod_unsigned(a, b);
        self.with_sign(remainder, sign)
    }

    /// A comparison: `op` is one of [`Op::Eq`] to [`Op::LeU`].
    pub(super) fn compare(&mut self, op: Op, a: Term, b: Term) -> Term {
        if let (Some(x), Some(y)) = (self.as_constant(a), self.as_constant(b))
            && let Some(result) = binary(op, x, y)
        {
            return self.constant(result);
        }
        if a == b {
            return self.constant(u64::from(matches!(op, Op::Eq | Op::LeS | Op::LeU)));
        }
        match op {
            Op::Eq | Op::Ne => self.sorted(op, a, b),
            _ => self.make(Node::Binary(op, a, b)),
        }
    }

    /// The first value where the condition is not zero, else the second: `second ^ (first ^ second & -condition)`.
    pub(super) fn select(&mut self, condition: Term, first: Term, second: Term) -> Term {
        let condition = if self.unsigned_bits(condition) <= 1 {
            condition
        } else {
            let zero = self.constant(0);
            self.compare(Op::Ne, condition, zero)
        };
        let mask = self.neg(condition);
        let difference = self.xor(first, second);
        let masked = self.and(difference, mask);
        self.xor(second, masked)
    }

    /// The reads of memory that a term depends on.
    pub(super) fn reads(&self, term: Term, into: &mut Vec<Term>) {
        match self.node(term) {
            Node::Constant(_) | Node::Address(_) | Node::Register(_) => {}
            Node::Unary(op, operand) => {
                if matches!(op, Op::Load(_)) && !into.contains(&term) {
                    into.push(term);
                }
                self.reads(operand, into);
            }
            Node::Binary(_, a, b) => {
                self.reads(a, into);
                self.reads(b, into);
            }
        }
    }

    /// The program that computes a term.
    pub(super) fn emit(&self, term: Term, into: &mut Vec<Op>) {
        match self.node(term) {
            Node::Constant(value) => into.push(Op::Constant(value)),
            Node::Address(address) => into.push(Op::Address(address)),
            Node::Register(register) => into.push(Op::Register(register)),
            Node::Unary(op, operand) => {
                self.emit(operand, into);
                into.push(op);
            }
            Node::Binary(op, a, b) => {
                self.emit(a, into);
                self.emit(b, into);
                into.push(op);
            }
        }
    }
}

/// A number for each operation, to sort by.
fn rank(op: Op) -> (u8, u8) {
    match op {
        Op::Load(bytes) => (0, bytes),
        Op::ZeroExtend(bits) => (1, bits),
        Op::SignExtend(bits) => (2, bits),
        Op::Neg => (3, 0),
        Op::Not => (4, 0),
        Op::Add => (5, 0),
        Op::Sub => (6, 0),
        Op::Mul => (7, 0),
        Op::DivU => (8, 0),
        Op::ModU => (9, 0),
        Op::And => (10, 0),
        Op::Or => (11, 0),
        Op::Xor => (12, 0),
        Op::Shl => (13, 0),
        Op::Shr => (14, 0),
        Op::Sar => (15, 0),
        Op::Eq => (16, 0),
        Op::Ne => (17, 0),
        Op::LtS => (18, 0),
        Op::LeS => (19, 0),
        Op::LtU => (20, 0),
        Op::LeU => (21, 0),
        Op::Constant(_) | Op::Address(_) | Op::Register(_) => (22, 0),
    }
}
