// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Execution of a DWARF expression (DWARF 5 section 2.5) on symbolic values.

use gimli::{Encoding, Operation, Reader};
use siteseer_sites::location::{Missing, Op};
use siteseer_sites::machine::Register;

use super::pieces::{Piece, Place};
use super::symbolic::{Term, Terms};
use super::{BaseType, Environment, Meaning};
use crate::debug::slice::Slice;

/// The most operations that are executed: a backward branch may loop.
const MAX_STEPS: usize = 256;
/// The largest number of conditional branches with a condition that is not constant on one path: each doubles the work.
const MAX_FORKS: u32 = 4;
/// The most values on the stack.
const MAX_STACK: usize = 64;
/// The most pieces of an object.
const MAX_PIECES: usize = 64;

/// The type of a value on the stack. Values are kept extended to 64 bits by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// The generic type: as wide as an address, of no particular signedness.
    Generic,
    /// A base type of 1 to 64 bits.
    Integer { bits: u32, signed: bool },
}

impl Type {
    fn bits(self) -> u32 {
        match self {
            Type::Generic => 64,
            Type::Integer { bits, .. } => bits,
        }
    }

    /// Whether an operation that DWARF calls signed on the generic type is to be signed.
    fn is_signed(self) -> bool {
        !matches!(self, Type::Integer { signed: false, .. })
    }
}

/// An entry of the stack: a value, or why it cannot be known.
#[derive(Debug, Clone, Copy)]
struct Value {
    term: Result<Term, Missing>,
    ty: Type,
}

impl Value {
    fn generic(term: Term) -> Value {
        Value { term: Ok(term), ty: Type::Generic }
    }

    fn missing(reason: Missing) -> Value {
        Value { term: Err(reason), ty: Type::Generic }
    }
}

/// What the operation at hand leads to, beside its effect on the stack.
enum Step<'a> {
    Continue,
    /// A location is complete; only a piece operation may follow.
    Located(Result<Place<'a>, Missing>),
    /// A piece of what is on the stack, or of nothing.
    Piece {
        bits: u64,
        offset: Option<u64>,
    },
    /// Continue at another operation.
    Jump(i16),
    /// Continue at another operation if the condition is not zero.
    Fork {
        condition: Term,
        distance: i16,
    },
}

struct Machine<'e, 'a, E> {
    env: &'e E,
    terms: &'e mut Terms,
    stack: Vec<Value>,
    bytecode: Slice<'a>,
    encoding: Encoding,
    /// Operations executed so far, on all paths.
    steps: usize,
}

/// The pieces of an object that an expression describes: one without a size if there are no piece operations.
pub(super) fn run<'a>(
    expression: gimli::Expression<Slice<'a>>,
    encoding: Encoding,
    env: &impl Environment,
    terms: &mut Terms,
) -> Result<Vec<Piece<'a>>, Missing> {
    if encoding.address_size != 8 {
        return Err(Missing::Unsupported);
    }
    let mut machine = Machine { env, terms, stack: Vec::new(), bytecode: expression.0, encoding, steps: 0 };
    machine.path(expression.0, Vec::new(), MAX_FORKS)
}

/// The next operation. An unknown one is told apart from a broken one: there are vendors' operations, and DWARF grows.
fn parse<'a>(next: &mut Slice<'a>, encoding: Encoding) -> Result<Operation<Slice<'a>>, Missing> {
    const FIRST_UNASSIGNED: u8 = 0xaa;
    Operation::parse(next, encoding).map_err(|error| match error {
        gimli::Error::InvalidExpression(opcode) if opcode.0 >= FIRST_UNASSIGNED => Missing::Unsupported,
        _ => Missing::Malformed,
    })
}

impl<'a, E: Environment> Machine<'_, 'a, E> {
    /// Executes from an operation to the end of the expression.
    fn path(&mut self, mut next: Slice<'a>, mut pieces: Vec<Piece<'a>>, forks: u32) -> Result<Vec<Piece<'a>>, Missing> {
        while !next.is_empty() {
            self.steps += 1;
            if self.steps > MAX_STEPS || self.stack.len() > MAX_STACK || pieces.len() > MAX_PIECES {
                return Err(Missing::Unsupported);
            }
            let operation = parse(&mut next, self.encoding)?;
            match self.step(operation)? {
                Step::Continue => {}
                Step::Jump(distance) => next = self.target(next, distance)?,
                Step::Fork { condition, distance } => {
                    let forks = forks.checked_sub(1).ok_or(Missing::Unsupported)?;
                    let stack = self.stack.clone();
                    let target = self.target(next, distance)?;
                    let taken = self.path(target, pieces.clone(), forks)?;
                    self.stack = stack;
                    let passed = self.path(next, pieces, forks)?;
                    return self.join(condition, taken, passed);
                }
                Step::Located(mut place) => {
                    let mut after = next;
                    if let Ok(Operation::Uninitialized) = parse(&mut after, self.encoding) {
                        place = Err(Missing::Unsupported);
                        next = after;
                    }
                    if next.is_empty() {
                        // After pieces, what has no size is not defined.
                        return if pieces.is_empty() { Ok(vec![Piece::whole(place)]) } else { Err(Missing::Malformed) };
                    }
                    match parse(&mut next, self.encoding)? {
                        Operation::Piece { size_in_bits, bit_offset } => {
                            pieces.push(Piece { bits: Some(size_in_bits), offset: bit_offset.unwrap_or(0), place });
                        }
                        _ => return Err(Missing::Malformed),
                    }
                }
                Step::Piece { bits, offset } => {
                    let place = match self.stack.pop() {
                        None => Err(Missing::Empty),
                        Some(value) => value.term.map(Place::Memory),
                    };
                    pieces.push(Piece { bits: Some(bits), offset: offset.unwrap_or(0), place });
                }
            }
            if self.terms.overflowed {
                return Err(Missing::Unsupported);
            }
        }
        if !pieces.is_empty() {
            return Ok(pieces);
        }
        // What is on top of the stack is the address of the object.
        let value = self.pop()?;
        Ok(vec![Piece::whole(value.term.map(Place::Memory))])
    }

    /// Where a branch leads, counted from the operation after it.
    fn target(&self, next: Slice<'a>, distance: i16) -> Result<Slice<'a>, Missing> {
        let at = next.offset_from(self.bytecode) as i64 + i64::from(distance);
        let at = usize::try_from(at).ok().filter(|at| *at <= self.bytecode.len()).ok_or(Missing::Malformed)?;
        let mut target = self.bytecode;
        target.skip(at).map_err(|_| Missing::Malformed)?;
        Ok(target)
    }

    /// What two paths have found, put together by the condition that parted them.
    fn join(
        &mut self,
        condition: Term,
        taken: Vec<Piece<'a>>,
        passed: Vec<Piece<'a>>,
    ) -> Result<Vec<Piece<'a>>, Missing> {
        if taken.len() != passed.len() {
            return Err(Missing::Unsupported);
        }
        let joined = taken.into_iter().zip(passed).map(|(taken, passed)| {
            if (taken.bits, taken.offset) != (passed.bits, passed.offset) {
                return Err(Missing::Unsupported);
            }
            let place = match (taken.place, passed.place) {
                (a, b) if a == b => a,
                (Err(reason), _) | (_, Err(reason)) => Err(reason),
                (Ok(Place::Value(a)), Ok(Place::Value(b))) => self.select(condition, a, b).map(Place::Value),
                (Ok(Place::Memory(a)), Ok(Place::Memory(b))) => self.select(condition, a, b).map(Place::Memory),
                _ => Err(Missing::Unsupported),
            };
            Ok(Piece { place, ..taken })
        });
        joined.collect()
    }

    /// One of two values. Both are computed, so none may read what the other path would not have read: it might not
    /// be readable.
    fn select(&mut self, condition: Term, taken: Term, passed: Term) -> Result<Term, Missing> {
        let reads = |term| {
            let mut reads = Vec::new();
            self.terms.reads(term, &mut reads);
            reads
        };
        let (by_condition, by_taken, by_passed) = (reads(condition), reads(taken), reads(passed));
        let safe = |reads: &[Term], others: &[Term]| {
            reads.iter().all(|read| others.contains(read) || by_condition.contains(read))
        };
        if safe(&by_taken, &by_passed) && safe(&by_passed, &by_taken) {
            Ok(self.terms.select(condition, taken, passed))
        } else {
            Err(Missing::Unsupported)
        }
    }

    fn pop(&mut self) -> Result<Value, Missing> {
        self.stack.pop().ok_or(Missing::Malformed)
    }

    fn push(&mut self, value: Value) {
        self.stack.push(value);
    }

    /// Pushes the result of an operation: brought back into its type's range.
    fn push_result(&mut self, term: Result<Term, Missing>, ty: Type) {
        let term = term.map(|term| self.fit(term, ty));
        self.push(Value { term, ty });
    }

    fn fit(&mut self, term: Term, ty: Type) -> Term {
        match ty {
            Type::Generic => term,
            Type::Integer { bits, signed } => self.terms.extend(bits, signed, term),
        }
    }

    /// The type at an offset of the unit; offset 0 is the generic type.
    fn ty(&self, offset: gimli::UnitOffset) -> Result<Result<Type, Missing>, Missing> {
        if offset.0 == 0 {
            return Ok(Ok(Type::Generic));
        }
        Ok(match self.env.base_type(offset).ok_or(Missing::Malformed)? {
            BaseType { bits: bits @ 1..=64, signed, float: false } => Ok(Type::Integer { bits, signed }),
            _ => Err(Missing::Unsupported),
        })
    }

    /// A register's value at the probe.
    fn read(&mut self, register: gimli::Register) -> Result<Term, Missing> {
        let number = self.readable(register)?;
        Ok(self.terms.register(number))
    }

    fn readable(&self, register: gimli::Register) -> Result<Register, Missing> {
        match self.env.machine().register_name(register.0) {
            Some(_) => Ok(register.0),
            None => Err(Missing::Unsupported),
        }
    }

    fn unary(&mut self, apply: impl FnOnce(&mut Terms, Term) -> Term) -> Result<(), Missing> {
        let value = self.pop()?;
        let term = value.term.map(|term| apply(self.terms, term));
        self.push_result(term, value.ty);
        Ok(())
    }

    /// The two operands of an operation, and the type that they have in common.
    ///
    /// DWARF wants one type. Where it makes no difference to the result, 64-bit types may differ: clang mixes the
    /// generic type and 64-bit base types. What was an operation on a narrow integer and a constant in its IR it writes
    /// with a constant of the generic type: one of the other operand's type is meant.
    fn operands(&mut self, signedness_matters: bool) -> Result<Result<(Term, Term, Type), Missing>, Missing> {
        let mut right = self.pop()?;
        let mut left = self.pop()?;
        let ty = if left.ty == right.ty {
            left.ty
        } else if !signedness_matters && left.ty.bits() == 64 && right.ty.bits() == 64 {
            Type::Generic
        } else if !signedness_matters && self.is_constant(&right) {
            right.term = right.term.map(|term| self.fit(term, left.ty));
            left.ty
        } else if !signedness_matters && self.is_constant(&left) {
            left.term = left.term.map(|term| self.fit(term, right.ty));
            right.ty
        } else {
            return Ok(Err(left.term.and(right.term).err().unwrap_or(Missing::Unsupported)));
        };
        Ok(left.term.and_then(|left| right.term.map(|right| (left, right, ty))))
    }

    /// Whether a value is a constant of the generic type.
    fn is_constant(&self, value: &Value) -> bool {
        value.ty == Type::Generic && value.term.is_ok_and(|term| self.terms.as_constant(term).is_some())
    }

    fn binary(
        &mut self,
        signedness_matters: bool,
        apply: impl FnOnce(&mut Terms, Term, Term, Type) -> Term,
    ) -> Result<(), Missing> {
        match self.operands(signedness_matters)? {
            Err(reason) => self.push(Value::missing(reason)),
            Ok((left, right, ty)) => {
                let term = apply(self.terms, left, right, ty);
                self.push_result(Ok(term), ty);
            }
        }
        Ok(())
    }

    /// A shift: the amount may have a type of its own.
    fn shift(&mut self, apply: impl FnOnce(&mut Terms, Term, Term, u32) -> Term) -> Result<(), Missing> {
        let amount = self.pop()?;
        let value = self.pop()?;
        let bits = value.ty.bits();
        let term = match (value.term, amount.term) {
            // GCC takes some fields out of values by counts below zero, which give nothing that the program has.
            (Ok(_), Ok(amount)) if self.terms.as_constant(amount).is_some_and(|amount| amount >= u64::from(bits)) => {
                Err(Missing::Malformed)
            }
            (Ok(value), Ok(amount)) => Ok(apply(self.terms, value, amount, bits)),
            (Err(reason), _) | (_, Err(reason)) => Err(reason),
        };
        self.push_result(term, value.ty);
        Ok(())
    }

    /// A comparison. Its result has the generic type. `greater` exchanges the operands.
    fn compare(&mut self, signed: Op, unsigned: Op, greater: bool) -> Result<(), Missing> {
        let value = match self.operands(signed != unsigned)? {
            Err(reason) => Value::missing(reason),
            Ok((left, right, ty)) => {
                let op = if ty.is_signed() { signed } else { unsigned };
                let (left, right) = if greater { (right, left) } else { (left, right) };
                Value::generic(self.terms.compare(op, left, right))
            }
        };
        self.push(value);
        Ok(())
    }

    fn step(&mut self, operation: Operation<Slice<'a>>) -> Result<Step<'a>, Missing> {
        match operation {
            Operation::Skip { target } => Ok(Step::Jump(target)),
            Operation::Bra { target } => {
                let condition = self.pop()?.term?;
                Ok(match self.terms.as_constant(condition) {
                    Some(0) => Step::Continue,
                    Some(_) => Step::Jump(target),
                    None => Step::Fork { condition, distance: target },
                })
            }

            Operation::Register { register } => Ok(Step::Located(self.readable(register).map(Place::Register))),
            Operation::ImplicitValue { data } => Ok(Step::Located(Ok(Place::Bytes(data.slice())))),
            Operation::StackValue => Ok(Step::Located(self.pop()?.term.map(Place::Value))),
            Operation::ImplicitPointer { .. } => Ok(Step::Located(Err(Missing::ImplicitPointer))),
            Operation::Piece { size_in_bits, bit_offset } => Ok(Step::Piece { bits: size_in_bits, offset: bit_offset }),
            operation => self.on_the_stack(operation).map(|()| Step::Continue),
        }
    }

    /// Operations on the stack alone, and those that nothing is known of.
    fn on_the_stack(&mut self, operation: Operation<Slice<'a>>) -> Result<(), Missing> {
        match operation {
            Operation::Nop => {}
            Operation::Drop => {
                self.pop()?;
            }
            Operation::Pick { index } => {
                let at = self.stack.len().checked_sub(usize::from(index) + 1).ok_or(Missing::Malformed)?;
                let value = *self.stack.get(at).ok_or(Missing::Malformed)?;
                self.push(value);
            }
            Operation::Swap => {
                let (top, second) = (self.pop()?, self.pop()?);
                self.stack.extend([top, second]);
            }
            Operation::Rot => {
                let (top, second, third) = (self.pop()?, self.pop()?, self.pop()?);
                self.stack.extend([top, third, second]);
            }
            Operation::ParameterRef { .. } | Operation::VariableValue { .. } => {
                self.push(Value::missing(Missing::Reference));
            }
            // What the other expression leaves on the stack is not known, so nothing after it is either.
            Operation::Call { .. } => return Err(Missing::Reference),
            Operation::TLS => {
                self.pop()?;
                self.push(Value::missing(Missing::Unsupported));
            }
            Operation::PushObjectAddress => self.push(Value::missing(Missing::Unsupported)),
            Operation::Uninitialized => {
                self.pop()?;
                self.push(Value::missing(Missing::Unsupported));
            }
            Operation::WasmLocal { .. } | Operation::WasmGlobal { .. } | Operation::WasmStack { .. } => {
                return Err(Missing::Unsupported);
            }
            operation => return self.pushed(operation),
        }
        Ok(())
    }

    /// Operations that push what the code, the frame or a register has.
    fn pushed(&mut self, operation: Operation<Slice<'a>>) -> Result<(), Missing> {
        match operation {
            Operation::UnsignedConstant { value } => self.push_constant(value),
            Operation::SignedConstant { value } => self.push_constant(value as u64),
            Operation::ConstantIndex { index } => {
                let value = self.env.address(index).ok_or(Missing::Malformed)?;
                self.push_constant(value);
            }
            Operation::Address { address } => self.push_address(address),
            Operation::AddressIndex { index } => {
                let address = self.env.address(index).ok_or(Missing::Malformed)?;
                self.push_address(address);
            }
            Operation::TypedLiteral { base_type, value } => {
                let ty = self.ty(base_type)?;
                let bytes = value.slice();
                let value = match ty {
                    Err(reason) => Value::missing(reason),
                    Ok(ty) if bytes.len() * 8 < ty.bits() as usize || bytes.len() > 8 => {
                        return Err(Missing::Malformed);
                    }
                    Ok(ty) => {
                        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                        let term = self.terms.constant(value);
                        Value { term: Ok(self.fit(term, ty)), ty }
                    }
                };
                self.push(value);
            }

            Operation::RegisterOffset { register, offset, base_type } => {
                let value = self.register_value(register, offset, base_type, Ok)?;
                self.push(value);
            }
            Operation::FrameOffset { offset } => {
                let base = self.env.frame_base();
                self.push_frame(base, offset);
            }
            Operation::CallFrameCFA => {
                let cfa = self.env.cfa();
                self.push_frame(cfa, 0);
            }
            Operation::EntryValue { expression } => {
                let value = self.entry_value(expression)?;
                self.push(value);
            }
            operation => return self.computed(operation),
        }
        Ok(())
    }

    /// Operations that make something of what is on the stack.
    fn computed(&mut self, operation: Operation<Slice<'a>>) -> Result<(), Missing> {
        match operation {
            Operation::Deref { base_type, size, space } => self.deref(base_type, size, space)?,
            Operation::Convert { base_type } => {
                let value = self.pop()?;
                match self.ty(base_type)? {
                    Err(reason) => self.push(Value::missing(value.term.err().unwrap_or(reason))),
                    Ok(ty) => self.push_result(value.term, ty),
                }
            }
            Operation::Reinterpret { base_type } => {
                let value = self.pop()?;
                match self.ty(base_type)? {
                    Ok(ty) if ty.bits() == value.ty.bits() => self.push_result(value.term, ty),
                    Ok(_) => self.push(Value::missing(value.term.err().unwrap_or(Missing::Malformed))),
                    Err(reason) => self.push(Value::missing(value.term.err().unwrap_or(reason))),
                }
            }

            Operation::Neg => self.unary(Terms::neg)?,
            Operation::Not => self.unary(Terms::not)?,
            Operation::Abs => {
                let signed = self.stack.last().is_none_or(|value| value.ty.is_signed());
                self.unary(|terms, x| if signed { terms.abs(x) } else { x })?;
            }
            Operation::PlusConstant { value } => self.unary(|terms, x| terms.offset(x, value))?,
            Operation::Plus => self.binary(false, |terms, a, b, _| terms.add(a, b))?,
            Operation::Minus => self.binary(false, |terms, a, b, _| terms.sub(a, b))?,
            Operation::Mul => self.binary(false, |terms, a, b, _| terms.mul(a, b))?,
            Operation::And => self.binary(false, |terms, a, b, _| terms.and(a, b))?,
            Operation::Or => self.binary(false, |terms, a, b, _| terms.or(a, b))?,
            Operation::Xor => self.binary(false, |terms, a, b, _| terms.xor(a, b))?,
            // Division is signed on the generic type, the modulus is not (DWARF 5 section 2.5.1.4, and gdb's reading of
            // it).
            Operation::Div => self.binary(true, |terms, a, b, ty| match ty {
                Type::Integer { signed: false, .. } => terms.div_unsigned(a, b),
                _ => terms.div_signed(a, b),
            })?,
            Operation::Mod => self.binary(true, |terms, a, b, ty| match ty {
                Type::Integer { signed: true, .. } => terms.mod_signed(a, b),
                _ => terms.mod_unsigned(a, b),
            })?,
            // A right shift looks at the type's own bits, whatever the type's signedness has put above them.
            Operation::Shl => self.shift(|terms, a, b, _| terms.shl(a, b))?,
            Operation::Shr => self.shift(|terms, a, b, bits| {
                let a = terms.zero_extend(bits, a);
                terms.shr(a, b)
            })?,
            Operation::Shra => self.shift(|terms, a, b, bits| {
                let a = terms.sign_extend(bits, a);
                terms.sar(a, b)
            })?,
            Operation::Eq => self.compare(Op::Eq, Op::Eq, false)?,
            Operation::Ne => self.compare(Op::Ne, Op::Ne, false)?,
            Operation::Lt => self.compare(Op::LtS, Op::LtU, false)?,
            Operation::Le => self.compare(Op::LeS, Op::LeU, false)?,
            Operation::Gt => self.compare(Op::LtS, Op::LtU, true)?,
            Operation::Ge => self.compare(Op::LeS, Op::LeU, true)?,
            // All others are done already.
            _ => return Err(Missing::Unsupported),
        }
        Ok(())
    }

    fn push_constant(&mut self, value: u64) {
        let term = self.terms.constant(value);
        self.push(Value::generic(term));
    }

    fn push_address(&mut self, address: u64) {
        let value = match self.env.meaning(address) {
            Meaning::Image => Value::generic(self.terms.address(address)),
            Meaning::Absolute => Value::generic(self.terms.constant(address)),
            Meaning::Elsewhere => Value::missing(Missing::Unsupported),
        };
        self.push(value);
    }

    fn push_frame(&mut self, base: Result<(Register, i64), Missing>, offset: i64) {
        let value = match base.and_then(|(register, base)| Ok((self.readable(gimli::Register(register))?, base))) {
            Err(reason) => Value::missing(reason),
            Ok((register, base)) => Value::generic(self.terms.register_offset(register, base.wrapping_add(offset))),
        };
        self.push(value);
    }

    /// `DW_OP_breg` and `DW_OP_regval_type`: of a base type the low bits of the register count.
    fn register_value(
        &mut self,
        register: gimli::Register,
        offset: i64,
        base_type: gimli::UnitOffset,
        substitute: impl FnOnce(Register) -> Result<Register, Missing>,
    ) -> Result<Value, Missing> {
        let ty = match self.ty(base_type)? {
            Ok(ty) => ty,
            Err(reason) => return Ok(Value::missing(reason)),
        };
        let register = match self.readable(register).and_then(substitute) {
            Ok(register) => gimli::Register(register),
            Err(reason) => return Ok(Value::missing(reason)),
        };
        let term = match self.read(register) {
            Ok(term) => self.terms.offset(term, offset as u64),
            Err(reason) => return Ok(Value::missing(reason)),
        };
        Ok(Value { term: Ok(self.fit(term, ty)), ty })
    }

    /// The value that a register had where the enclosing function was entered, if some register still holds it.
    fn entry_value(&mut self, expression: Slice<'_>) -> Result<Value, Missing> {
        let mut next = expression;
        // Inside, addresses have the size that was checked for the whole expression.
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let (register, offset, base_type) = match parse(&mut next, encoding)? {
            Operation::Register { register } => (register, 0, gimli::UnitOffset(0)),
            Operation::RegisterOffset { register, offset, base_type } => (register, offset, base_type),
            _ => return Ok(Value::missing(Missing::EntryValue)),
        };
        if !next.is_empty() {
            return Ok(Value::missing(Missing::EntryValue));
        }
        let env = self.env;
        self.register_value(register, offset, base_type, |register| {
            env.entry_value(register).ok_or(Missing::EntryValue)
        })
    }

    fn deref(&mut self, base_type: gimli::UnitOffset, size: u8, space: bool) -> Result<(), Missing> {
        let address = self.pop()?;
        if space {
            self.pop()?;
            self.push(Value::missing(Missing::Unsupported));
            return Ok(());
        }
        let value = match (address.term, self.ty(base_type)?) {
            (Err(reason), _) | (_, Err(reason)) => Value::missing(reason),
            (Ok(_), Ok(ty)) if !(1..=8).contains(&size) || (ty != Type::Generic && ty.bits() > u32::from(size) * 8) => {
                return Err(Missing::Malformed);
            }
            (Ok(address), Ok(ty)) => {
                let term = self.terms.load(u32::from(size), address);
                Value { term: Ok(self.fit(term, ty)), ty }
            }
        };
        self.push(value);
        Ok(())
    }
}
