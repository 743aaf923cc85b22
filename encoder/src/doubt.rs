// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which located arguments are doubtful.

use crate::loclist::ListEntry;
use gimli::{Encoding, Expression, Operation};

/// What an entry of a location list says of a value, without the place in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    /// A constant: its bytes.
    Constant(Vec<u8>),
    /// What a register or memory holds, perhaps narrowed.
    Held,
    /// What is computed: its operations, without registers and offsets.
    Computed(Vec<u8>),
    /// The value at the function's entry, or nothing that can be told.
    Unknown,
}

/// Whether the entries of a list give a parameter more than one value, and not only more than one place: the body assigns to it.
pub(crate) fn changes_value(list: &[ListEntry<'_>], encoding: Encoding) -> bool {
    let mut first: Option<(Value, &ListEntry<'_>)> = None;
    for entry in list.iter().filter(|entry| !entry.is_empty()) {
        if first.as_ref().is_some_and(|(_, first)| first.expression == entry.expression) {
            continue;
        }
        let value = value(entry, encoding);
        match (&first, value) {
            (_, Value::Unknown) => {}
            (Some((first, _)), value) if *first == value => {}
            (Some(_), _) => return true,
            (None, value) => first = Some((value, entry)),
        }
    }
    false
}

fn value(entry: &ListEntry<'_>, encoding: Encoding) -> Value {
    let mut operations = Expression(entry.expression).operations(encoding);
    let (mut held, mut computed, mut on_stack) = (false, Vec::new(), false);
    loop {
        match operations.next() {
            Ok(Some(operation)) => match operation {
                Operation::EntryValue { .. } | Operation::ImplicitPointer { .. } => return Value::Unknown,
                Operation::Register { .. } | Operation::FrameOffset { .. } | Operation::CallFrameCFA => held = true,
                Operation::RegisterOffset { offset, .. } => {
                    held = true;
                    if offset != 0 {
                        computed.push(0x22);
                    }
                }
                Operation::StackValue => on_stack = true,
                Operation::And | Operation::Convert { .. } | Operation::Piece { .. } | Operation::Nop => {}
                Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. } | Operation::Address { .. } => {}
                Operation::ImplicitValue { .. } => on_stack = true,
                _ => computed.push(1),
            },
            Ok(None) => break,
            Err(_) => return Value::Unknown,
        }
    }
    match (held, on_stack) {
        (false, true) => Value::Constant(entry.expression.slice().to_vec()),
        (true, true) if !computed.is_empty() => Value::Computed(computed),
        (true, _) => Value::Held,
        (false, false) => Value::Unknown,
    }
}
