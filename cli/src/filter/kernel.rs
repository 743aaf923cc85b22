// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What of an expression the kernel's program can decide, as operations for it ([`siteseer_bpf_progs::filter`]).

use super::{Comparison, FIELDS, Filter, Operator, RESULT, Type, argument_name, congruent, number};
use siteseer::internals::function::Prototype;
use siteseer::internals::pattern::Glob;
use siteseer_bpf_progs::filter::{self, Comparison as Relation, Field, Operation, PARAMETERS};
use siteseer_sites::btf::Btf;

/// The bits of a parameter's number by which the program finds no parameter.
const NOWHERE: u32 = 31;

/// A function as far as its arguments go.
pub(crate) struct Calls<'f, 'b> {
    /// Its prototypes, with the types that they are of.
    pub(crate) prototypes: Vec<(&'f Prototype, Option<&'f Btf<'b>>)>,
    /// Members of structures, in the order in which the program reads them. `None` for those that the function does not
    /// have.
    pub(crate) members: Vec<Option<Member<'f>>>,
    /// Whether the program that decides sees what was returned.
    pub(crate) returns: bool,
}

/// A member of a structure, as far as a comparison goes.
pub(crate) struct Member<'f> {
    /// As it was written.
    pub(crate) name: &'f str,
    pub(crate) ty: &'f Type,
    /// Whether the program reads it as text, too.
    pub(crate) is_text: bool,
}

impl Calls<'_, '_> {
    /// Where an argument is and its type: the same in all prototypes, or an error. `None` if no call has it.
    pub(crate) fn argument(&self, name: &str) -> Result<Option<(usize, Type)>, String> {
        let mut found = None;
        for (nth_prototype, (prototype, btf)) in self.prototypes.iter().enumerate() {
            let here = prototype.parameters.iter().enumerate().find(|(nth, one)| argument_name(*nth, one) == name);
            let here = here.map(|(nth, parameter)| (nth, Type::of(parameter, *btf)));
            if nth_prototype > 0 && here != found {
                return Err(format!("{name} is not the same in all functions of the name"));
            }
            found = here;
        }
        Ok(found)
    }

    /// The type of what is returned: the same in all prototypes, or an error. `None` if nothing is.
    fn result(&self) -> Result<Option<Type>, String> {
        let of = |(prototype, btf): &(&Prototype, Option<&Btf<'_>>)| {
            prototype.result.as_ref().map(|result| Type::of(result, *btf))
        };
        let mut types = self.prototypes.iter().map(of);
        let first = types.next().flatten();
        match types.all(|ty| ty == first) {
            true => Ok(first),
            false => Err(format!("{RESULT} is not the same in all functions of the name")),
        }
    }
}

/// The constants of the program for as much of an expression as it can decide, and why it cannot decide the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) constants: (Vec<u8>, Vec<u8>),
    pub(crate) left: Option<String>,
}

/// Compiles an expression for a function. If several parts must all hold, those that cannot be compiled are left out.
pub(crate) fn compile(filter: &Filter, calls: &Calls<'_, '_>) -> Compiled {
    let (mut operations, mut left) = (Vec::new(), None);
    conjuncts(filter, &mut |part| {
        let mut more = Vec::new();
        let result = emit(part, calls, &mut more).and_then(|()| {
            let mut both = [&operations[..], &more[..]].concat();
            if !operations.is_empty() {
                both.push(Operation::And);
            }
            filter::constants(&both).ok_or("it is too long")?;
            operations = both;
            Ok(())
        });
        left = left.take().or(result.err());
    });
    // Each part was tried.
    let constants = filter::constants(&operations).unwrap_or_default();
    Compiled { constants, left }
}

fn conjuncts(filter: &Filter, each: &mut dyn FnMut(&Filter)) {
    match filter {
        Filter::And(a, b) => {
            conjuncts(a, each);
            conjuncts(b, each);
        }
        other => each(other),
    }
}

fn emit(filter: &Filter, calls: &Calls<'_, '_>, to: &mut Vec<Operation>) -> Result<(), String> {
    match filter {
        Filter::Not(one) => {
            emit(one, calls, to)?;
            to.push(Operation::Not);
        }
        Filter::And(a, b) | Filter::Or(a, b) => {
            emit(a, calls, to)?;
            emit(b, calls, to)?;
            to.push(if matches!(filter, Filter::And(..)) { Operation::And } else { Operation::Or });
        }
        Filter::Compare(comparison) => compare(comparison, calls, to)?,
    }
    Ok(())
}

fn compare(comparison: &Comparison, calls: &Calls<'_, '_>, to: &mut Vec<Operation>) -> Result<(), String> {
    let Comparison { field, .. } = comparison;
    let task = match field.as_str() {
        "pid" => Some(Field::Tgid),
        "tid" => Some(Field::Pid),
        "cpu" => Some(Field::Cpu),
        _ => None,
    };
    let mut members = calls.members.iter().enumerate().filter_map(|(nth, member)| Some((nth, member.as_ref()?)));
    if let Some((nth, member)) = members.find(|(_, member)| member.name == *field) {
        return of_member(comparison, nth, member, to);
    }
    // An argument comes before a field of the task that is named so.
    let (field, ty) = match (calls.argument(field)?, task) {
        (Some((nth, ty)), _) => {
            let (bits, _) = ty.number().ok_or_else(|| format!("{field} is not a number"))?;
            if nth >= PARAMETERS {
                return Err(format!("{field} is beyond the {PARAMETERS} arguments that the kernel's program looks at"));
            }
            (Field::Argument { nth: nth as u32, bits }, ty)
        }
        (None, Some(task)) => (task, Type::Number { bits: 32, signed: false }),
        (None, None) if field == "comm" => {
            return text(comparison, filter::COMM_LEN, to, |text, prefix| Operation::Comm { text, prefix });
        }
        (None, None) if field == RESULT && calls.returns => match calls.result()? {
            Some(ty) => {
                let (bits, _) = ty.number().ok_or_else(|| format!("{field} is not a number"))?;
                (Field::Result { bits }, ty)
            }
            None => return nowhere(to),
        },
        (None, None) if field == RESULT => {
            return Err(format!("{field} is not known when a call begins"));
        }
        (None, None) if FIELDS.iter().any(|(known, _)| known == field) => {
            return Err(format!("{field} is not known to the kernel's program"));
        }
        (None, None) => return nowhere(to),
    };
    number_of(comparison, field, &ty, to)
}

/// If a function lacks the field, the condition is true for none of its calls.
fn nowhere(to: &mut Vec<Operation>) -> Result<(), String> {
    to.push(Operation::Compare(Field::Argument { nth: NOWHERE, bits: 64 }, Relation::Equal, 0));
    Ok(())
}

/// Compares a member of a structure.
fn of_member(comparison: &Comparison, nth: usize, member: &Member<'_>, to: &mut Vec<Operation>) -> Result<(), String> {
    let Comparison { field, value, .. } = comparison;
    if nth >= filter::FIELDS {
        return Err(format!("{field} is beyond the {} members that the kernel's program compares", filter::FIELDS));
    }
    if member.is_text && (number(value).is_none() || *member.ty == Type::Text) {
        let operation = |text, prefix| Operation::Text { member: nth as u32, text, prefix };
        return text(comparison, filter::TEXT_LEN, to, operation);
    }
    let (bits, _) = member.ty.number().ok_or_else(|| format!("{field} is not a number"))?;
    number_of(comparison, Field::Member { nth: nth as u32, bits }, member.ty, to)
}

/// Compares a field that is a number.
fn number_of(comparison: &Comparison, field: Field, ty: &Type, to: &mut Vec<Operation>) -> Result<(), String> {
    let Comparison { value, operator, .. } = comparison;
    let named = match ty {
        Type::Enum { names, .. } => names.iter().find(|(name, _)| name == value).map(|&(_, value)| i128::from(value)),
        _ => None,
    };
    let constant = named.or_else(|| number(value)).ok_or_else(|| format!("{value} is text"))?;
    let Some((bits, signed)) = ty.number() else { return Err(format!("{value} is text")) };
    if matches!(operator, Operator::Like | Operator::NotLike) {
        return Err(format!("{} is for text", operator.sign()));
    }
    let mut push = |relation, value| to.push(Operation::Compare(field, relation, value));
    let negated = match operator {
        Operator::Equal | Operator::NotEqual => {
            // What no value of so few bits is.
            push(Relation::Equal, congruent(constant, bits).unwrap_or(u64::MAX));
            *operator == Operator::NotEqual
        }
        Operator::Less | Operator::AtLeast => {
            let (relation, value) = below(signed, constant)?;
            push(relation, value);
            *operator == Operator::AtLeast
        }
        // What has no sign is above any negative number: not below 0.
        _ if !signed && constant < 0 => {
            push(Relation::Below, 0);
            *operator == Operator::Greater
        }
        _ => {
            let (relation, value) = above(signed, constant)?;
            push(relation, value);
            *operator == Operator::AtMost
        }
    };
    if negated {
        to.push(Operation::Not);
    }
    Ok(())
}

/// Nothing that has no sign is below a negative number, nor below 0.
fn below(signed: bool, constant: i128) -> Result<(Relation, u64), String> {
    Ok(match signed {
        true => (Relation::SignedBelow, with_sign(constant)?),
        false => (Relation::Below, constant.max(0) as u64),
    })
}

fn above(signed: bool, constant: i128) -> Result<(Relation, u64), String> {
    Ok(match signed {
        true => (Relation::SignedAbove, with_sign(constant)?),
        false => (Relation::Above, constant as u64),
    })
}

fn with_sign(constant: i128) -> Result<u64, String> {
    let narrow = i64::try_from(constant).map_err(|_| format!("{constant} is beyond the field's values"))?;
    Ok(narrow as u64)
}

/// Text is compared by its beginning, of so many bytes with a NUL.
fn text(
    comparison: &Comparison,
    len: usize,
    to: &mut Vec<Operation>,
    operation: impl FnOnce(String, bool) -> Operation,
) -> Result<(), String> {
    let Comparison { value, operator, .. } = comparison;
    let (text, prefix) = match operator {
        Operator::Equal | Operator::NotEqual => (value.clone(), false),
        Operator::Like | Operator::NotLike => {
            let begins = value.strip_suffix('*').unwrap_or(value);
            let literal = Glob::new(begins).is_ok_and(|glob| glob.is_literal());
            if !literal {
                return Err(format!("the kernel's program cannot compare a text with the pattern {value}"));
            }
            (begins.to_owned(), begins.len() < value.len())
        }
        _ => return Err(format!("{} is for numbers", operator.sign())),
    };
    if text.len() >= len {
        return Err(format!("{text} is longer than the {} bytes that the kernel's program compares", len - 1));
    }
    to.push(operation(text, prefix));
    if matches!(operator, Operator::NotEqual | Operator::NotLike) {
        to.push(Operation::Not);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations for a function without parameters.
    fn operations(filter: &str) -> Result<Vec<Operation>, String> {
        let mut to = Vec::new();
        emit(
            &filter.parse().unwrap(),
            &Calls { prototypes: Vec::new(), members: Vec::new(), returns: false },
            &mut to,
        )?;
        Ok(to)
    }

    #[test]
    fn postfix_order() {
        let pid = |relation, value| Operation::Compare(Field::Tgid, relation, value);
        let comm = |text: &str, prefix| Operation::Comm { text: text.to_owned(), prefix };
        assert_eq!(
            operations("pid >= 7 and not (comm ~ ba* or comm != sh)").unwrap(),
            [
                pid(Relation::Below, 7),
                Operation::Not,
                comm("ba", true),
                comm("sh", false),
                Operation::Not,
                Operation::Or,
                Operation::Not,
                Operation::And,
            ]
        );
        assert_eq!(operations("pid = -1").unwrap(), [pid(Relation::Equal, 0xffff_ffff)]);
        // No function has it: it is true of no call.
        let nowhere = Field::Argument { nth: NOWHERE, bits: 64 };
        assert_eq!(operations("size > 5").unwrap(), [Operation::Compare(nowhere, Relation::Equal, 0)]);
        // A field without a sign is above all negative numbers.
        assert_eq!(operations("pid > -1").unwrap(), [pid(Relation::Below, 0), Operation::Not]);
        assert_eq!(operations("pid <= -1").unwrap(), [pid(Relation::Below, 0)]);
        assert_eq!(operations("pid < -1").unwrap(), [pid(Relation::Below, 0)]);
        for beyond in ["kind = inline", "comm ~ *sh", "comm = a_very_long_name"] {
            assert!(operations(beyond).is_err(), "{beyond}");
        }
    }

    #[test]
    fn what_cannot_be_decided_there_is_left() {
        let none = Calls { prototypes: Vec::new(), members: Vec::new(), returns: false };
        let compile = |filter: &str| compile(&filter.parse().unwrap(), &none);
        let all = compile("pid = 7 and comm = sh");
        assert_eq!(all.left, None);
        let some = compile("pid = 7 and kind = inline and comm = sh");
        assert_eq!((some.constants, some.left.unwrap().contains("kind")), (all.constants, true));
        let none = compile("pid = 7 or kind = inline");
        assert_eq!((none.constants, none.left.is_some()), (filter::constants(&[]).unwrap(), true));
        let long = vec!["pid != 7"; 20].join(" and ");
        assert_eq!(compile(&long).left.as_deref(), Some("it is too long"));
    }
}
