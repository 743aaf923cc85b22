// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Expressions of GCC's that depend on bits that the value does not have.
//!
//! DWARF computes with 64 bits. Where the compiler's expression is narrower, what is above it must be masked out before
//! an operation that looks at it. One is `x >> 2`, if `x` has 32 bits and its register has anything in the upper half.
//! GCC leaves such masks out. It also inverts and negates truths as if they were bytes. Sums, products, `~x` and `-x`
//! have the right low bits, whatever is above.

use siteseer_sites::location::{Located, Location, Op};

/// What is known of a value on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Value {
    /// All that is above it is zero.
    is_exact: bool,
    /// All that was above it was shifted out.
    is_at_the_top: bool,
    /// It was loaded, and nothing tells with which sign: GCC leaves the extension out, too.
    is_loaded: bool,
}

impl Value {
    const EXACT: Value = Value { is_exact: true, is_at_the_top: false, is_loaded: false };
    const ANY: Value = Value { is_exact: false, is_at_the_top: false, is_loaded: false };

    fn exact_if(is_exact: bool) -> Value {
        Value { is_exact, ..Value::ANY }
    }
}

/// Whether a value that is, or was, narrower than 8 bytes is computed by operations with a result that depends on the
/// bits above it.
pub(crate) fn is_depended_on(located: &Located) -> bool {
    let Location::Computed(computed) = &located.at else { return false };
    computed.slots.iter().any(|ops| is_depended_on_in(ops, located.size))
}

fn is_depended_on_in(ops: &[Op], size: u32) -> bool {
    let mut stack: Vec<Value> = Vec::with_capacity(Op::MAX_DEPTH);
    for (index, op) in ops.iter().enumerate() {
        let after = &ops[index + 1..];
        let has_after = |most: u8| {
            after.iter().any(|op| matches!(op, Op::ZeroExtend(bits) | Op::SignExtend(bits) if *bits <= most))
        };
        // What is extended afterwards was narrow, whatever it is passed as. More than 32 bits are those of a value of
        // 64 that was shifted.
        let is_narrow = size < 8 || has_after(32);
        let top = if op.arity() > 0 { stack.pop().unwrap_or_default() } else { Value::ANY };
        let second = if op.arity() > 1 { stack.pop().unwrap_or_default() } else { Value::ANY };
        let are_exact = top.is_exact && second.is_exact;
        let (result, is_right) = match op {
            // Nothing is above a small constant, or above what was loaded or extended.
            Op::Constant(constant) => (Value::exact_if(*constant <= i32::MAX as u64), true),
            Op::Load(bytes) => (Value { is_loaded: *bytes < 8, ..Value::EXACT }, true),
            Op::Address(_) | Op::ZeroExtend(_) => (Value::EXACT, true),
            Op::Register(_) | Op::SignExtend(_) | Op::Add | Op::Sub | Op::Mul => (Value::ANY, true),
            Op::Neg | Op::Not => (Value::ANY, size > 1 && !has_after(8)),
            Op::And => (Value::exact_if(top.is_exact || second.is_exact), true),
            Op::Or | Op::Xor => (Value::exact_if(are_exact), true),
            Op::Shl => {
                let by = if let Some(Op::Constant(by)) = index.checked_sub(1).map(|at| ops[at]) { by } else { 0 };
                (Value { is_at_the_top: matches!(by, 32 | 48 | 56), ..Value::ANY }, true)
            }
            // What is shifted out depends on the whole count, too.
            Op::Shr => (second, are_exact && !second.is_loaded),
            Op::Sar | Op::LtS | Op::LeS => (Value::EXACT, false),
            Op::DivU | Op::ModU | Op::LtU | Op::LeU => (Value::EXACT, are_exact),
            Op::Eq | Op::Ne => {
                let is_shifted_constant = matches!(index.checked_sub(1).map(|at| ops[at]), Some(Op::Constant(_)));
                (Value::EXACT, are_exact || second.is_at_the_top && (is_shifted_constant || top.is_at_the_top))
            }
        };
        // A truth that is inverted as a byte is wrong however wide it is then.
        let is_of_truth = matches!(op, Op::Neg | Op::Not);
        if !is_right && (is_narrow || is_of_truth) {
            return true;
        }
        stack.push(result);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::Computed;

    fn is_wrong(size: u32, ops: &[Op]) -> bool {
        let at = Location::Computed(Computed { slots: [ops.into()].into() });
        is_depended_on(&Located::certain(size, false, at))
    }

    #[test]
    fn shifts_see_what_is_above() {
        let shifted = [Op::Register(5), Op::Not, Op::Constant(2), Op::Shr];
        assert!(is_wrong(4, &shifted));
        assert!(!is_wrong(8, &shifted));
        assert!(is_wrong(8, &[&shifted[..], &[Op::ZeroExtend(32)]].concat()), "of 4 bytes, passed as 8");
        let load = [Op::Register(5), Op::Load(4)];
        assert!(is_wrong(4, &[&load[..], &[Op::Constant(2), Op::Shr]].concat()), "all of it is there, but which sign?");
        let extended = [Op::ZeroExtend(32), Op::Constant(2), Op::Shr];
        assert!(!is_wrong(4, &[&load[..], &extended].concat()), "the extension is there");
        let field = [Op::Register(5), Op::Constant(255), Op::And, Op::Constant(2), Op::Shr];
        assert!(!is_wrong(4, &field), "the mask is there");
        let page = [Op::Register(5), Op::Constant(12), Op::Shr, Op::ZeroExtend(52)];
        assert!(!is_wrong(8, &page), "all bits of 64");
        assert!(is_wrong(4, &[Op::Register(5), Op::Load(4), Op::Constant(2), Op::Sar]), "which sign?");
    }

    #[test]
    fn low_bits_are_right_whatever_is_above() {
        assert!(!is_wrong(4, &[Op::Register(5), Op::Constant(15), Op::And]));
        assert!(!is_wrong(4, &[Op::Register(5), Op::Not, Op::Constant(15), Op::And]));
        assert!(!is_wrong(8, &[Op::Register(5), Op::Neg, Op::ZeroExtend(32)]));
        assert!(is_wrong(1, &[Op::Register(5), Op::Neg]), "a truth");
        assert!(is_wrong(1, &[Op::Register(5), Op::Not, Op::ZeroExtend(8), Op::Constant(1), Op::Ne]));
        assert!(is_wrong(8, &[Op::Register(5), Op::Not, Op::ZeroExtend(8)]), "a truth, passed as 8 bytes");
    }

    #[test]
    fn comparisons_see_what_is_above() {
        assert!(!is_wrong(1, &[Op::Register(7), Op::Load(4), Op::Constant(0), Op::Ne]), "all of it is there");
        assert!(is_wrong(1, &[Op::Register(5), Op::Constant(0), Op::Ne]));
        let at_the_top = [Op::Register(5), Op::Constant(32), Op::Shl, Op::Constant(1 << 32), Op::Eq];
        assert!(!is_wrong(1, &at_the_top), "nothing is left of what was above it");
        let load = [Op::Register(7), Op::Load(4)];
        let least = [&[Op::Constant(8)], &load[..], &[Op::LtU, Op::Neg], &load[..], &[Op::And]].concat();
        assert!(!is_wrong(4, &least), "a truth of 4 bytes is what GCC says");
        assert!(is_wrong(4, &[Op::Register(5), Op::Constant(8), Op::LtU]));
        assert!(is_wrong(4, &[&load[..], &[Op::Constant(8), Op::LtS]].concat()), "which sign?");
    }
}
