// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! `--where`: which calls are looked at. An expression of comparisons, `FIELD OP VALUE`, with `and`, `or`, `not` and
//! parentheses.
//!
//! Fields have types, which are those of the kernel's BTF: numbers are compared as numbers, a text is equal or fits a
//! glob. A field that a call does not have (an argument without a location) makes a comparison neither true nor false,
//! and `not` does not change that: a call is looked at only if the expression is true of it, whatever the value would
//! be.
//!
//! What a kernel program can decide it decides ([`kernel`]); the rest is decided here, of what it sends.

pub(crate) mod kernel;
mod parse;

use siteseer::internals::function::{Function, Parameter};
use siteseer::internals::pattern::Glob;
use siteseer_sites::access::Path;
use siteseer_sites::btf::{Btf, Kind};
use std::collections::BTreeMap;

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    Compare(Comparison),
}

/// A field, and what it is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) field: String,
    pub(crate) operator: Operator,
    /// As it was typed, without quotation marks.
    pub(crate) value: String,
    /// Of `~`.
    glob: Option<Glob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Like,
    NotLike,
}

impl Operator {
    fn sign(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::AtMost => "<=",
            Operator::Greater => ">",
            Operator::AtLeast => ">=",
            Operator::Like => "~",
            Operator::NotLike => "!~",
        }
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    /// A number of so many bits: an integer, a truth value, a pointer.
    Number { bits: u32, signed: bool },
    /// A number. Some of its values have names.
    Enum { bits: u32, signed: bool, names: Vec<(String, i64)> },
    /// A pointer to text, which is both.
    Pointer { bits: u32 },
    /// Text.
    Text,
    /// A structure: its text, as it is printed.
    Whole,
}

impl Type {
    /// The type of a parameter.
    pub(crate) fn of(parameter: &Parameter, btf: Option<&Btf<'_>>) -> Type {
        let bits = parameter.size.saturating_mul(8);
        if parameter.composite || parameter.slots != 1 || !matches!(bits, 8 | 16 | 32 | 64) {
            return Type::Whole;
        }
        let resolved = btf.and_then(|btf| btf.resolve(parameter.ty));
        match resolved {
            Some(ty) if matches!(ty.kind(), Kind::Enum | Kind::Enum64) => {
                let names = ty.enumerators().map(|known| (known.name.to_owned(), known.value)).collect();
                Type::Enum { bits, signed: ty.flag(), names }
            }
            Some(ty) if ty.kind() == Kind::Ptr => Type::Pointer { bits },
            _ => Type::Number { bits, signed: parameter.signed },
        }
    }

    /// Bits and whether there is a sign, of what is a number.
    pub(crate) fn number(&self) -> Option<(u32, bool)> {
        match *self {
            Type::Number { bits, signed } | Type::Enum { bits, signed, .. } => Some((bits, signed)),
            Type::Pointer { bits } => Some((bits, false)),
            Type::Text | Type::Whole => None,
        }
    }
}

/// A field of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Value {
    /// The number, as its type has it.
    pub(crate) number: Option<i128>,
    /// Bits of that.
    pub(crate) bits: u32,
    /// What is printed of it, and what it points to.
    pub(crate) texts: Vec<String>,
    /// Whether the text may go on after what is known of it.
    pub(crate) cut: bool,
}

impl Value {
    /// A number that has no sign.
    pub(crate) fn unsigned(number: u32) -> Value {
        Value { number: Some(i128::from(number)), bits: 32, ..Value::default() }
    }

    pub(crate) fn text(text: &str) -> Value {
        Value { texts: vec![text.to_owned()], ..Value::default() }
    }

    /// The first slot of an argument, or what was returned, and its text.
    pub(crate) fn of(ty: &Type, slot: u64, texts: Vec<String>) -> Value {
        let Some((bits, signed)) = ty.number() else { return Value { texts, ..Value::default() } };
        let shift = 64 - bits;
        let number = match signed {
            true => i128::from((slot << shift) as i64 >> shift),
            false => i128::from(slot << shift >> shift),
        };
        Value { number: Some(number), bits, texts, cut: false }
    }
}

/// A number as C writes it: decimal, `0x`, octal after a `0`, negative; also the words that stand for numbers.
pub(super) fn number(text: &str) -> Option<i128> {
    match text {
        "NULL" | "false" => return Some(0),
        "true" => return Some(1),
        _ => {}
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let plain =
        |digits: &str, base| i128::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with(['+', '-']));
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => plain(hex, 16)?,
        None if digits.len() > 1 && digits.starts_with('0') => plain(digits, 8)?,
        None => plain(digits, 10)?,
    };
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    Some(sign * value).filter(|value| range.contains(value))
}

/// The number of a type's values that are so many bits wide which a constant is equal to: a negative one is its two's
/// complement, as in C. `None` if there is none.
fn congruent(constant: i128, bits: u32) -> Option<u64> {
    let span = 1i128 << bits;
    (-(span / 2)..span).contains(&constant).then(|| constant.rem_euclid(span) as u64)
}

/// The fields that every call has, and their types.
const FIELDS: [(&str, Type); 7] = [
    ("kind", Type::Text),
    ("in", Type::Text),
    ("module", Type::Text),
    ("comm", Type::Text),
    ("pid", Type::Number { bits: 32, signed: false }),
    ("tid", Type::Number { bits: 32, signed: false }),
    ("cpu", Type::Number { bits: 32, signed: false }),
];
/// What a function returned, where that is traced.
pub(crate) const RESULT: &str = "retval";

/// The types that fields of each name may have, in the functions that are traced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    types: BTreeMap<String, Vec<Type>>,
    /// Whether some call has fields that are not known here.
    open: bool,
    /// Whether calls are looked at when they return.
    returns: bool,
}

impl Fields {
    /// Adds a member of a structure.
    pub(crate) fn add(&mut self, name: &str, ty: Type) {
        let known = self.types.entry(name.to_owned()).or_default();
        if !known.contains(&ty) {
            known.push(ty);
        }
    }

    /// The fields of calls of these functions.
    pub(crate) fn of<'f, 'b: 'f>(
        functions: impl Iterator<Item = &'f Function>,
        returns: bool,
        btf: impl Fn(Option<&str>) -> Option<&'f Btf<'b>>,
    ) -> Fields {
        let mut fields = Fields { returns, ..Fields::default() };
        for (name, ty) in FIELDS {
            fields.types.insert(name.to_owned(), vec![ty]);
        }
        for prototype in functions.flat_map(|function| &function.prototypes) {
            // Of a copy without a prototype it is not known what it has.
            fields.open |= prototype.func.is_none();
            let btf = btf(prototype.module.as_deref());
            let parameters = prototype.parameters.iter().enumerate();
            let arguments =
                parameters.map(|(nth, parameter)| (argument_name(nth, parameter), Type::of(parameter, btf)));
            let result = prototype.result.as_ref().filter(|_| returns);
            let result = result.map(|result| (RESULT.to_owned(), Type::of(result, btf)));
            for (name, ty) in arguments.chain(result) {
                let known = fields.types.entry(name).or_default();
                if !known.contains(&ty) {
                    known.push(ty);
                }
            }
        }
        fields
    }
}

/// A parameter's name in what is printed, and in conditions.
pub(crate) fn argument_name(nth: usize, parameter: &Parameter) -> String {
    if parameter.name.is_empty() { format!("arg{nth}") } else { parameter.name.clone() }
}

impl Filter {
    /// Takes several for one.
    pub(crate) fn all(filters: impl IntoIterator<Item = Filter>) -> Option<Filter> {
        filters.into_iter().reduce(|a, b| Filter::And(a.into(), b.into()))
    }

    /// The paths to members of structures in it.
    pub(crate) fn paths(&self) -> Vec<&str> {
        let mut all = Vec::new();
        self.comparisons(&mut all);
        let names = all.into_iter().map(|comparison| comparison.field.as_str());
        names.filter(|name| Path::is_meant(name)).collect()
    }

    /// Its comparisons.
    fn comparisons<'f>(&'f self, found: &mut Vec<&'f Comparison>) {
        match self {
            Filter::Not(one) => one.comparisons(found),
            Filter::And(a, b) | Filter::Or(a, b) => {
                a.comparisons(found);
                b.comparisons(found);
            }
            Filter::Compare(comparison) => found.push(comparison),
        }
    }

    /// Checks that each comparison makes sense for some call.
    pub(crate) fn check(&self, fields: &Fields) -> Result<(), String> {
        let mut all = Vec::new();
        self.comparisons(&mut all);
        all.into_iter().try_for_each(|comparison| comparison.check(fields)).map_err(|why| format!("--where: {why}"))
    }

    /// Whether it is true of a call; `None` if that is not known.
    pub(crate) fn holds(&self, field: &dyn Fn(&str) -> Option<Value>) -> Option<bool> {
        match self {
            Filter::Not(one) => one.holds(field).map(|holds| !holds),
            Filter::And(a, b) => match (a.holds(field), b.holds(field)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (a, b) => a.zip(b).map(|_| true),
            },
            Filter::Or(a, b) => match (a.holds(field), b.holds(field)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (a, b) => a.zip(b).map(|_| false),
            },
            Filter::Compare(comparison) => comparison.holds(&field(&comparison.field)?),
        }
    }
}

impl Comparison {
    fn check(&self, fields: &Fields) -> Result<(), String> {
        let Some(types) = fields.types.get(&self.field) else {
            if self.field == RESULT {
                return Err(match fields.returns {
                    false => format!("{RESULT} is known only when a call returns: give --returns"),
                    true => {
                        format!("{RESULT}: the type of what the function returns is not known, or it returns nothing")
                    }
                });
            }
            if fields.open {
                return Ok(());
            }
            // Members of structures are not among what every call has.
            let known = fields.types.keys().map(String::as_str).filter(|name| !Path::is_meant(name));
            let known: Vec<&str> = known.collect();
            return Err(format!("no call has a field {}; there are: {}", self.field, known.join(", ")));
        };
        let mut why = Err(String::new());
        for ty in types {
            why = self.fits(ty);
            if why.is_ok() {
                break;
            }
        }
        why
    }

    /// Whether a field of that type can be compared so.
    fn fits(&self, ty: &Type) -> Result<(), String> {
        let Comparison { field, operator, value, .. } = self;
        let ordered = matches!(operator, Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast);
        let like = matches!(operator, Operator::Like | Operator::NotLike);
        match ty {
            Type::Number { .. } if like => Err(format!("{field} is a number: ~ is for text")),
            Type::Number { .. } if number(value).is_none() => Err(format!("{field} is a number, and {value} is not")),
            Type::Enum { names, .. } if !like => {
                if number(value).is_some() || (!ordered && names.iter().any(|(name, _)| name == value)) {
                    return Ok(());
                }
                let known: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).take(12).collect();
                Err(format!("{field} is one of {}, and {value} is none of them", known.join(", ")))
            }
            Type::Text | Type::Whole if ordered => {
                Err(format!("{field} is text, which has no order: = and ~ are for text"))
            }
            Type::Pointer { .. } if ordered && number(value).is_none() => {
                Err(format!("{field} is a pointer, and {value} is not a number"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a text fits a glob, if only the beginning of the text is known; `None` if that does not decide.
    fn begins_like(&self, texts: &[String]) -> Option<bool> {
        let begin =
            self.value.strip_suffix('*').filter(|begin| Glob::new(begin).is_ok_and(|glob| glob.is_literal()))?;
        texts.iter().all(|text| begin.len() <= text.len()).then(|| texts.iter().any(|text| text.starts_with(begin)))
    }

    fn holds(&self, actual: &Value) -> Option<bool> {
        if let Some(glob) = &self.glob {
            if actual.texts.is_empty() {
                return None;
            }
            let like = if actual.cut {
                self.begins_like(&actual.texts)?
            } else {
                actual.texts.iter().any(|text| glob.matches(text))
            };
            return Some(like == (self.operator == Operator::Like));
        }
        let (Some(number_of), Some(constant)) = (actual.number, number(&self.value)) else {
            if actual.texts.is_empty() {
                return None;
            }
            // The whole text is longer than what is known of it, or just that.
            if actual.cut && actual.texts.iter().any(|text| self.value.starts_with(text.as_str())) {
                return None;
            }
            let same = actual.texts.contains(&self.value);
            return match self.operator {
                Operator::Equal => Some(same),
                Operator::NotEqual => Some(!same),
                _ => None,
            };
        };
        let equal = congruent(constant, actual.bits) == congruent(number_of, actual.bits);
        Some(match self.operator {
            Operator::NotEqual => !equal,
            Operator::Less => number_of < constant,
            Operator::AtMost => number_of <= constant,
            Operator::Greater => number_of > constant,
            Operator::AtLeast => number_of >= constant,
            _ => equal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<Value> {
        let int = Type::Number { bits: 32, signed: true };
        let unsigned = Type::Number { bits: 32, signed: false };
        Some(match name {
            "cap" => Value::of(&int, 21, vec!["21".to_owned()]),
            // What is above the 32 bits is anything.
            "error" => Value::of(&int, 0x5555_ffff_fffe, vec!["-2".to_owned()]),
            "mode" => Value::of(&unsigned, 0o640, vec!["416".to_owned()]),
            "flags" => Value::of(&unsigned, 0xffff_ffff, vec!["4294967295".to_owned()]),
            "path" => {
                Value::of(&Type::Pointer { bits: 64 }, 0x7ffe, vec!["0x7ffe".to_owned(), "/etc/passwd".to_owned()])
            }
            "type" => Value::of(
                &Type::Enum { bits: 32, signed: false, names: Vec::new() },
                1,
                vec!["PIDTYPE_TGID".to_owned()],
            ),
            "long" => Value { cut: true, ..Value::text("abcd") },
            "comm" => Value::text("bash"),
            _ => return None,
        })
    }

    fn holds(filter: &str) -> Option<bool> {
        filter.parse::<Filter>().unwrap_or_else(|why| panic!("{filter}: {why}")).holds(&value)
    }

    #[test]
    fn comparisons() {
        for yes in [
            "cap = 21",
            "cap=0x15",
            "cap == 025",
            "cap>=21",
            "cap < 22",
            "cap != 22",
            "error = -2",
            "error < 0",
            "mode = 0640",
            "flags = -1",
            "flags > 0",
            "error = 0xfffffffe",
            "path = 0x7ffe",
            "path != NULL",
            "path ~ /etc/*",
            "path = /etc/passwd",
            "path = \"/etc/passwd\"",
            "type = PIDTYPE_TGID",
            "type = 1",
            "comm ~ ba*",
            "comm !~ z*",
            "comm = bash",
            "comm ~ b?s[a-h]",
            "long ~ abc*",
            "long ~ abcd*",
            "long !~ x*",
            "long != abc",
            "long != abx",
        ] {
            assert_eq!(holds(yes), Some(true), "{yes}");
        }
        for no in ["cap = 22", "cap > 21", "mode = 640", "flags < 0", "path ~ /etc", "comm = ba*", "error > 0"] {
            assert_eq!(holds(no), Some(false), "{no}");
        }
        // An argument that the call does not have, and an order of texts.
        for unknown in [
            "size = 1",
            "not size = 1",
            "comm < zsh",
            "long = abcd",
            "long != abcde",
            "long ~ abcde*",
            "long ~ *d",
            "cap = 21 and size = 1",
            "cap = 1 or size = 1",
        ] {
            assert_eq!(holds(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn expressions() {
        assert_eq!(holds("cap = 21 and comm = bash"), Some(true));
        assert_eq!(holds("cap=1 || comm~b* && mode=0640"), Some(true));
        assert_eq!(holds("(cap=1 or comm=bash) and mode=1"), Some(false));
        assert_eq!(holds("not (cap=1 or mode=1)"), Some(true));
        assert_eq!(holds("!(cap=21) or !!(mode=0640)"), Some(true));
        // What decides does, whatever the other one is.
        assert_eq!(holds("cap = 21 or size = 1"), Some(true));
        assert_eq!(holds("cap = 1 and size = 1"), Some(false));
    }

    #[test]
    fn fields_and_their_types() {
        let mut fields = Fields::default();
        let mut add = |name: &str, ty: Type| fields.types.entry(name.to_owned()).or_default().push(ty);
        add("size", Type::Number { bits: 64, signed: false });
        add("size", Type::Text);
        add("mode", Type::Number { bits: 16, signed: false });
        add("comm", Type::Text);
        add("type", Type::Enum { bits: 32, signed: false, names: vec![("ONE".to_owned(), 1)] });
        let check = |filter: &str| filter.parse::<Filter>().unwrap().check(&fields);
        for right in ["mode = 07", "size = big", "comm ~ x*", "type = ONE", "type > 0"] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, why) in [
            ("mod = 1", "no call has a field mod; there are: comm, mode, size, type"),
            ("mode = big", "mode is a number, and big is not"),
            ("mode ~ 1*", "mode is a number: ~ is for text"),
            ("comm < b", "comm is text, which has no order: = and ~ are for text"),
            ("type = TWO", "type is one of ONE, and TWO is none of them"),
            ("retval = 1", "retval is known only when a call returns: give --returns"),
        ] {
            assert_eq!(check(&format!("comm = a and not {wrong}")), Err(format!("--where: {why}")));
        }
        let returns = Fields { returns: true, ..fields.clone() };
        let why = "--where: retval: the type of what the function returns is not known, or it returns nothing";
        assert_eq!("retval = 1".parse::<Filter>().unwrap().check(&returns), Err(why.to_owned()));
    }
}
