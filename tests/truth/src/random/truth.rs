// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What really happened: the log of the build that is not optimised.

use crate::random::program::{Program, Type};
use std::collections::HashMap;

/// One call of a function.
#[derive(Debug)]
pub(crate) struct Call {
    /// The function, as the log calls it.
    pub(crate) function: usize,
    /// Whether the function called itself.
    pub(crate) is_recursive: bool,
    /// How many stores of numbers came before it, and how many until it returned.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Which of the stores is its own; a body may return before it.
    pub(crate) store: Option<usize>,
    /// The slots of each argument, extended as its type is; for a pointer to a function, which function it is.
    pub(crate) arguments: Vec<Vec<u64>>,
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
    /// Reads a log. `functions` tells which function is at an address: of a pointer to one, its number is kept.
    pub(crate) fn parse(words: &[u64], program: &Program, functions: &HashMap<u64, usize>) -> Result<Trace, BadLog> {
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
                    let mut arguments = Vec::new();
                    for parameter in &function.parameters {
                        let (size, signed) = (parameter.ty.size() as usize, parameter.ty.is_signed());
                        let count = size.div_ceil(8);
                        let slots = words.get(at..at + count).ok_or_else(bad)?;
                        at += count;
                        let extended = |(index, slot): (usize, &u64)| extend(*slot, (size - 8 * index).min(8), signed);
                        let mut slots: Vec<u64> = slots.iter().enumerate().map(extended).collect();
                        if parameter.ty == Type::Callback
                            && let Some(function) = functions.get(&slots[0])
                        {
                            slots[0] = *function as u64;
                        }
                        arguments.push(slots);
                    }
                    let is_recursive = open.last().is_some_and(|caller| trace.calls[*caller].function == id);
                    open.push(trace.calls.len());
                    let begin = trace.stores.len();
                    trace.calls.push(Call { function: id, is_recursive, begin, end: begin, store: None, arguments });
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

/// Extends the low bytes of a slot.
fn extend(value: u64, bytes: usize, signed: bool) -> u64 {
    let shift = 64 - 8 * bytes as u32;
    if signed { (((value << shift) as i64) >> shift) as u64 } else { (value << shift) >> shift }
}
