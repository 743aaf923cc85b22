// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What really happened: the log of the build that is not optimised.

use crate::random::callers::{Callers, Place};
use crate::random::observe::STACK_RANGE;
use crate::random::program::{Parameter, Program, Type};
use crate::random::symbols::Symbols;

/// An argument that was passed, in words that hold in every build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    /// The slots, extended as the type is, and which of their bits have a meaning: a structure has padding.
    Bits { slots: Vec<u64>, mask: Vec<u64> },
    /// A pointer into a variable, by the place of the variable among [`Symbols`] of the build that told.
    Variable { name: String, size: u64, offset: u64 },
    /// A pointer into the stack: where there is each build's own affair.
    Stack,
    /// A pointer to a function of the program.
    Function(usize),
}

/// One call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    /// The function, as the log calls it.
    pub(crate) function: usize,
    /// Whether the function called itself.
    pub(crate) is_recursive: bool,
    /// Where it was called, if that is known.
    pub(crate) place: Option<Place>,
    /// How many stores of numbers came before it, and how many until it returned.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Which of the stores is its own; a body may return before it.
    pub(crate) store: Option<usize>,
    pub(crate) arguments: Vec<Argument>,
}

/// What one run did.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// In the order in which they began.
    pub(crate) calls: Vec<Call>,
    /// The numbers that were stored.
    pub(crate) stores: Vec<u64>,
}

/// A log that is not one.
#[derive(Debug, thiserror::Error)]
#[error("the log of the unoptimised build makes no sense at word {at}")]
pub(crate) struct BadLog {
    at: usize,
}

const ENTER: u64 = 1;
const STORE: u64 = 2;
const LEAVE: u64 = 3;

impl Trace {
    /// Reads a log of a build with these symbols; `callers` tells where it calls.
    pub(crate) fn parse(
        words: &[u64],
        program: &Program,
        symbols: &Symbols,
        callers: &Callers<'_>,
    ) -> Result<Trace, BadLog> {
        let mut trace = Trace::default();
        let mut open: Vec<usize> = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let here = at;
            let bad = || BadLog { at: here };
            let id = (word & 0xff_ffff) as usize;
            at += 1;
            match word >> 56 {
                ENTER => {
                    let function = program.function(id).ok_or_else(bad)?;
                    let place = callers.place(*words.get(at).ok_or_else(bad)?);
                    at += 1;
                    let mut arguments = Vec::new();
                    for parameter in &function.parameters {
                        arguments.push(argument(words, &mut at, parameter, symbols).ok_or_else(bad)?);
                    }
                    let is_recursive = open.last().is_some_and(|caller| trace.calls[*caller].function == id);
                    open.push(trace.calls.len());
                    let begin = trace.stores.len();
                    trace.calls.push(Call {
                        function: id,
                        is_recursive,
                        place,
                        begin,
                        end: begin,
                        store: None,
                        arguments,
                    });
                }
                STORE => {
                    let call = open.last().and_then(|call| trace.calls.get_mut(*call)).ok_or_else(bad)?;
                    call.store.get_or_insert(trace.stores.len());
                    trace.stores.push(id as u64);
                }
                LEAVE => {
                    let call = open.pop().and_then(|call| trace.calls.get_mut(call)).ok_or_else(bad)?;
                    if call.function != id {
                        return Err(bad());
                    }
                    call.end = trace.stores.len();
                }
                _ => return Err(bad()),
            }
        }
        Ok(trace)
    }
}

/// Reads what a parameter was passed, and goes on to what follows it.
fn argument(words: &[u64], at: &mut usize, parameter: &Parameter, symbols: &Symbols) -> Option<Argument> {
    let mut take = |count: usize| {
        let taken = words.get(*at..at.checked_add(count)?)?;
        *at += count;
        Some(taken.to_vec())
    };
    match parameter.ty {
        Type::Record => {
            let count = usize::try_from(take(1)?[0]).ok()?.div_ceil(8);
            Some(Argument::Bits { slots: take(count)?, mask: take(count)? })
        }
        Type::Object | Type::Callback | Type::Pointer => {
            let pointer = take(1)?[0];
            let function = symbols.function(pointer).filter(|_| parameter.ty == Type::Callback).map(Argument::Function);
            let on_stack = STACK_RANGE.contains(&pointer).then_some(Argument::Stack);
            let variable = symbols.variable(pointer).map(|(name, size, offset)| Argument::Variable {
                name: name.to_owned(),
                size,
                offset,
            });
            let number = Argument::Bits { slots: vec![pointer], mask: vec![!0] };
            Some(function.or(on_stack).or(variable).unwrap_or(number))
        }
        ty => {
            let size = ty.size() as usize;
            let slots = take(size.div_ceil(8))?;
            let extended = |(index, slot): (usize, &u64)| extend(*slot, (size - 8 * index).min(8), ty.is_signed());
            let slots: Vec<u64> = slots.iter().enumerate().map(extended).collect();
            Some(Argument::Bits { mask: vec![!0; slots.len()], slots })
        }
    }
}

/// Extends the low bytes of a slot.
fn extend(value: u64, bytes: usize, signed: bool) -> u64 {
    let shift = 64 - 8 * bytes as u32;
    if signed { (((value << shift) as i64) >> shift) as u64 } else { (value << shift) >> shift }
}
