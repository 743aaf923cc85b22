// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The values that the dataflow tells apart, and how they merge.

use std::collections::BTreeMap;

/// The most offsets that are told apart; more count as any.
const MAX_OFFSETS: usize = 8;

/// A set of possible offsets from some base: none (the value has not that base), a few, or any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Offsets {
    any: bool,
    len: u8,
    at: [i32; MAX_OFFSETS],
}

impl Offsets {
    pub(super) const NONE: Offsets = Offsets { any: false, len: 0, at: [0; MAX_OFFSETS] };
    pub(super) const ANY: Offsets = Offsets { any: true, len: 0, at: [0; MAX_OFFSETS] };

    pub(super) fn one(offset: i32) -> Offsets {
        let mut at = [0; MAX_OFFSETS];
        at[0] = offset;
        Offsets { any: false, len: 1, at }
    }

    pub(super) fn is_none(&self) -> bool {
        !self.any && self.len == 0
    }

    pub(super) fn is_any(&self) -> bool {
        self.any
    }

    /// The offsets in increasing order; empty where any is possible.
    pub(super) fn known(&self) -> &[i32] {
        self.at.get(..usize::from(self.len)).unwrap_or(&[])
    }

    pub(super) fn single(&self) -> Option<i32> {
        match (self.any, self.known()) {
            (false, [one]) => Some(*one),
            _ => None,
        }
    }

    pub(super) fn join(self, other: Offsets) -> Offsets {
        if self.any || other.any {
            return Offsets::ANY;
        }
        let mut out = Offsets::NONE;
        let (mut left, mut right) = (self.known(), other.known());
        loop {
            let next = match (left, right) {
                ([], []) => return out,
                ([a, rest @ ..], []) => {
                    left = rest;
                    *a
                }
                ([], [b, rest @ ..]) => {
                    right = rest;
                    *b
                }
                ([a, ..], [b, ..]) => {
                    let least = *a.min(b);
                    left = if *a == least { &left[1..] } else { left };
                    right = if *b == least { &right[1..] } else { right };
                    least
                }
            };
            match out.at.get_mut(usize::from(out.len)) {
                Some(place) => *place = next,
                None => return Offsets::ANY,
            }
            out.len += 1;
        }
    }

    /// All offsets moved by a known distance, or any if it is not known.
    pub(super) fn moved(self, by: Option<i64>) -> Offsets {
        if self.is_none() || self.any {
            return self;
        }
        let mut out = self;
        for place in out.at.iter_mut().take(usize::from(self.len)) {
            match by.and_then(|by| i64::from(*place).checked_add(by)).and_then(|sum| i32::try_from(sum).ok()) {
                // Far outside of any context or stack, where no further moves matter.
                Some(sum) if sum.unsigned_abs() < 1 << 20 => *place = sum,
                _ => return Offsets::ANY,
            }
        }
        out
    }
}

/// What a register or stack slot may hold. All that is set is possible; what is not set is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Value {
    /// The context plus an offset.
    pub(super) context: Offsets,
    /// The frame pointer of this very frame plus an offset.
    pub(super) stack: Offsets,
    /// The value of one of these argument slots (bit n: slot n), or that plus a constant.
    pub(super) slots: u64,
    /// Something else.
    pub(super) other: bool,
    /// This number and nothing else.
    pub(super) number: Option<i64>,
}

impl Value {
    pub(super) const UNKNOWN: Value =
        Value { context: Offsets::NONE, stack: Offsets::NONE, slots: 0, other: true, number: None };

    pub(super) fn number(number: i64) -> Value {
        Value { number: Some(number), ..Value::UNKNOWN }
    }

    pub(super) fn context() -> Value {
        Value { context: Offsets::one(0), other: false, ..Value::UNKNOWN }
    }

    pub(super) fn frame_pointer() -> Value {
        Value { stack: Offsets::one(0), other: false, ..Value::UNKNOWN }
    }

    /// The value of an argument slot.
    pub(super) fn slot(slot: u32) -> Value {
        match 1u64.checked_shl(slot) {
            Some(slots) => Value { slots, ..Value::UNKNOWN },
            None => Value::UNKNOWN,
        }
    }

    pub(super) fn join(self, other: Value) -> Value {
        Value {
            context: self.context.join(other.context),
            stack: self.stack.join(other.stack),
            slots: self.slots | other.slots,
            other: self.other || other.other,
            number: if self.number == other.number { self.number } else { None },
        }
    }

    /// The value plus a distance, known or not.
    pub(super) fn moved(self, by: Option<i64>) -> Value {
        Value {
            context: self.context.moved(by),
            stack: self.stack.moved(by),
            slots: self.slots,
            other: self.other,
            number: self.number.zip(by).map(|(number, by)| number.wrapping_add(by)),
        }
    }

    /// Whether it is a pointer into the frame, at one place, and cannot be anything else.
    pub(super) fn certain_stack_offset(&self) -> Option<i32> {
        (self.context.is_none() && !self.other && self.slots == 0).then(|| self.stack.single()).flatten()
    }

    /// The value as another function sees it: a pointer into the caller's frame means nothing to it.
    pub(super) fn abroad(self) -> Value {
        if self.stack.is_none() { self } else { Value { stack: Offsets::NONE, other: true, number: None, ..self } }
    }
}

/// What is known where control reaches an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// r0 to r10.
    pub(super) registers: [Value; 11],
    /// The 8-byte words of the frame, by distance from the frame pointer (-8, -16, ...). What is not there is
    /// [`Value::UNKNOWN`].
    pub(super) frame: BTreeMap<i32, Value>,
}

impl State {
    /// The state at a function's start.
    pub(super) fn entry(arguments: [Value; 5]) -> State {
        let mut registers = [Value::UNKNOWN; 11];
        for (register, argument) in registers.iter_mut().skip(1).zip(arguments) {
            *register = argument;
        }
        registers[10] = Value::frame_pointer();
        State { registers, frame: BTreeMap::new() }
    }

    /// Merges another state into this one; whether that changed it.
    pub(super) fn merge(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            let joined = mine.join(*theirs);
            changed |= joined != *mine;
            *mine = joined;
        }
        let places: Vec<i32> = self.frame.keys().chain(other.frame.keys()).copied().collect();
        for place in places {
            let mine = self.word(place);
            let joined = mine.join(other.word(place));
            if joined != mine {
                self.set_word(place, joined);
                changed = true;
            }
        }
        changed
    }

    /// The word of the frame at a distance from the frame pointer.
    pub(super) fn word(&self, place: i32) -> Value {
        self.frame.get(&place).copied().unwrap_or(Value::UNKNOWN)
    }

    pub(super) fn set_word(&mut self, place: i32, value: Value) {
        if value == Value::UNKNOWN {
            self.frame.remove(&place);
        } else {
            self.frame.insert(place, value);
        }
    }

    /// Whether some word of the frame may hold the context.
    pub(super) fn frame_holds_context(&self) -> bool {
        self.frame.values().any(|value| !value.context.is_none())
    }

    /// Forgets what is certain of the frame, because someone else may have written to it.
    pub(super) fn blur_frame(&mut self) {
        for value in self.frame.values_mut() {
            *value = value.join(Value::UNKNOWN);
        }
        self.frame.retain(|_, value| *value != Value::UNKNOWN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_at_the_end_of_their_range() {
        let far = Offsets::one(0).moved(Some(i64::from(i32::MIN)));
        assert!(far.any, "no context and no stack is so large");
        assert!(Offsets::one(-8).moved(Some(16)) == Offsets::one(8));
        assert!(Offsets::one(8).moved(Some(i64::MAX)).any);
    }

    #[test]
    fn offsets_join_as_sets_and_saturate() {
        let two = Offsets::one(8).join(Offsets::one(-8));
        assert_eq!(two.known(), [-8, 8]);
        assert_eq!(two.join(Offsets::one(8)), two);
        assert_eq!(two.moved(Some(8)).known(), [0, 16]);
        assert!(two.moved(None).is_any());
        let many = (0..20).fold(Offsets::NONE, |set, n| set.join(Offsets::one(n)));
        assert!(many.is_any());
        assert!(Offsets::one(i32::MAX).moved(Some(1)).is_any());
    }

    #[test]
    fn numbers_survive_only_where_all_paths_agree() {
        assert_eq!(Value::number(1).join(Value::number(1)).number, Some(1));
        assert_eq!(Value::number(1).join(Value::number(2)).number, None);
        assert_eq!(Value::number(1).join(Value::context()).number, None);
        let either = Value::number(1).join(Value::context());
        assert_eq!(either.context.single(), Some(0));
        assert!(either.other);
    }
}
