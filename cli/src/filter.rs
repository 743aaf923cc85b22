// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--where`: which calls are printed. A condition is `FIELD OP VALUE`; a field is one of the call's own (kind, in, pid,
//! tid, cpu, comm) or an argument's name.

use std::cmp::Ordering;
use std::str::FromStr;

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// What is looked at.
    pub(crate) field: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Longer ones first, so that `<=` is not taken for `<`.
const OPERATORS: [(&str, Operator); 7] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let found = OPERATORS
            .iter()
            .filter_map(|&(sign, operator)| text.find(sign).map(|at| (at, sign, operator)))
            // The leftmost; of two at one place the longer, which stands first.
            .min_by_key(|&(at, sign, _)| (at, 2 - sign.len()));
        let Some((at, sign, operator)) = found else {
            return Err("expected FIELD OP VALUE, with one of = != < <= > >= between".to_owned());
        };
        let (field, value) = (text[..at].trim(), text[at + sign.len()..].trim());
        if field.is_empty() || value.is_empty() {
            return Err("expected a field before and a value after the comparison".to_owned());
        }
        Ok(Condition { field: field.to_owned(), operator, value: value.to_owned() })
    }
}

/// A number as C writes it: decimal, `0x`, octal after a `0`, negative; a negative one is its two's complement.
fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => i128::from_str_radix(digits, 8).ok()?,
        None => digits.parse().ok()?,
    };
    Some(sign * value)
}

/// The fields that every call has.
pub(crate) const FIELDS: [&str; 6] = ["kind", "in", "pid", "tid", "cpu", "comm"];

impl Condition {
    /// Checks that some call can have the field: one of its own, or an argument of a function that is traced.
    pub(crate) fn check<'a>(&self, arguments: impl Iterator<Item = &'a str>) -> Result<(), String> {
        let mut known: Vec<&str> = FIELDS.into_iter().chain(arguments).collect();
        if known.contains(&self.field.as_str()) {
            return Ok(());
        }
        known.sort_unstable();
        known.dedup();
        Err(format!("--where: no call has a field {}; there are: {}", self.field, known.join(", ")))
    }

    /// Whether a field with that text fulfils it. Numbers are compared as numbers, everything else as text, which is
    /// equal or not and in no order.
    pub(crate) fn holds(&self, actual: &str) -> bool {
        let order = match (number(actual), number(&self.value)) {
            (Some(actual), Some(wanted)) => actual.cmp(&wanted),
            (None, None) if actual == self.value => Ordering::Equal,
            _ => return self.operator == Operator::NotEqual,
        };
        let textual = number(&self.value).is_none();
        match self.operator {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => !textual && order.is_lt(),
            Operator::AtMost => !textual && order.is_le(),
            Operator::Greater => !textual && order.is_gt(),
            Operator::AtLeast => !textual && order.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, actual: &str) -> bool {
        condition.parse::<Condition>().unwrap().holds(actual)
    }

    #[test]
    fn conditions() {
        assert!(holds("cap = 21", "21"));
        assert!(holds("cap=0x15", "21"));
        assert!(!holds("cap != 21", "21"));
        assert!(holds("size>=4096", "8192"));
        assert!(holds("size <= -1", "-2"));
        assert!(!holds("size<4096", "4096"));
        assert!(holds("mode = 0640", "416") && !holds("mode = 0640", "640"));
        assert!(holds("mode=0", "0") && !holds("mode=089", "89"));
        assert!(holds("kind=inline", "inline"));
        assert!(holds("kind!=inline", "body"));
        assert!(!holds("comm<zsh", "bash"));
        assert!(holds("pointer=0xffff888003c1e000", "0xffff888003c1e000"));
        assert_eq!("a<=b".parse::<Condition>().unwrap().operator, Operator::AtMost);
    }

    #[test]
    fn a_field_that_no_call_has() {
        let check = |condition: &str| condition.parse::<Condition>().unwrap().check(["size", "mode"].into_iter());
        assert_eq!((check("mode=1"), check("comm=sh")), (Ok(()), Ok(())));
        assert!(check("mod=1").unwrap_err().ends_with("there are: comm, cpu, in, kind, mode, pid, size, tid"));
    }

    #[test]
    fn nonsense() {
        for text in ["", "cap", "=21", "cap=", "  =  "] {
            assert!(text.parse::<Condition>().is_err(), "{text}");
        }
    }
}
