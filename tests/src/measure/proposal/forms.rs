// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which forms of location earn their place: the arguments at inlined copies that each form gives, those that
//! upstream's kinds have and those that they lack.

use siteseer_sites::location::{Argument, LocationKind, Op};
use siteseer_sites::{Location, SiteKind, SiteSet};
use std::collections::{BTreeMap, BTreeSet};

/// A form of location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// One that upstream's LOC_PARAM has.
    Upstream(LocationKind),
    /// Parts of a register: masks, shifts, extensions.
    Bits,
    /// A sum, difference or product of registers and constants, without reading memory.
    Arithmetic,
    /// One read of memory, and something computed from it or for its address.
    Load,
    /// Reads of memory at addresses that were read from memory.
    Chain,
    /// A comparison.
    Comparison,
    /// A structure whose parts are in different places.
    Pieces,
}

impl Form {
    /// The row's name, and the flags of LOC_PARAM that express it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Form::Upstream(LocationKind::Constant) => ("constant", "CONST"),
            Form::Upstream(LocationKind::Address) => ("address in the image", "CONST, ADDR"),
            Form::Upstream(LocationKind::Register) => ("register", "REG"),
            Form::Upstream(LocationKind::RegisterPair) => ("two registers", "REG, two words"),
            Form::Upstream(LocationKind::RegisterOffset) => ("register plus offset", "REG, OFFSET"),
            Form::Upstream(LocationKind::Memory) => ("memory at register plus offset", "REG, DEREF, OFFSET"),
            Form::Upstream(LocationKind::Computed) => ("another value", "none"),
            Form::Bits => ("bits of a register", "none"),
            Form::Arithmetic => ("sum, difference or product of registers", "none"),
            Form::Load => ("one read, computed further", "none"),
            Form::Chain => ("reads of what was read", "none"),
            Form::Comparison => ("comparison", "none"),
            Form::Pieces => ("structure in pieces", "none"),
        }
    }
}

/// The form of a location.
pub fn form(location: &Location) -> Form {
    let Location::Computed(computed) = location else { return Form::Upstream(location.kind()) };
    if computed.slots.len() > 1 {
        return Form::Pieces;
    }
    let program = computed.slots.first().map_or(&[][..], |slot| slot);
    let loads = program.iter().filter(|op| matches!(op, Op::Load(_))).count();
    let compares = program.iter().any(|op| matches!(op, Op::Eq | Op::Ne | Op::LtS | Op::LeS | Op::LtU | Op::LeU));
    let registers = program.iter().filter(|op| matches!(op, Op::Register(_))).count();
    let shifts = program
        .iter()
        .any(|op| matches!(op, Op::ZeroExtend(_) | Op::SignExtend(_) | Op::And | Op::Shl | Op::Shr | Op::Sar | Op::Or));
    match (compares, loads) {
        (true, _) => Form::Comparison,
        (false, 0) if registers <= 1 && shifts => Form::Bits,
        (false, 0) => Form::Arithmetic,
        (false, 1) => Form::Load,
        (false, _) => Form::Chain,
    }
}

/// Arguments of inlined copies by form: those that are certain, and those that are not.
#[derive(Debug, Clone, Default)]
pub struct Forms {
    arguments: usize,
    forms: BTreeMap<Form, (usize, usize)>,
}

/// Counts the arguments of a kernel.
pub fn count(set: &SiteSet) -> Forms {
    let mut counts = Forms::default();
    let mut uses = vec![0usize; set.prototypes.len()];
    for site in set.sites.iter().filter(|site| site.kind == SiteKind::Inline) {
        if let Some(uses) = uses.get_mut(site.prototype as usize) {
            *uses += 1;
        }
    }
    for (prototype, &uses) in set.prototypes.iter().zip(&uses) {
        for argument in prototype.iter() {
            counts.arguments += uses;
            if let Argument::Ok(located) = argument {
                let (certain, doubtful) = counts.forms.entry(form(&located.at)).or_default();
                *(if located.is_certain() { certain } else { doubtful }) += uses;
            }
        }
    }
    counts
}

impl Forms {
    /// The shares of a form: of certain arguments, and of doubtful ones.
    fn cell(&self, form: Form) -> String {
        let (certain, doubtful) = self.forms.get(&form).copied().unwrap_or_default();
        let share = |count: usize| 100.0 * count as f64 / self.arguments.max(1) as f64;
        format!("{:.2}% + {:.2}%", share(certain), share(doubtful))
    }
}

/// A row for each form, a column for each kernel: the shares of certain and of doubtful arguments. Forms of upstream's
/// come first.
pub fn rows(kernels: &[(String, Forms)]) -> (Vec<&str>, Vec<Vec<String>>) {
    let mut header = vec!["form", "flags of LOC_PARAM"];
    header.extend(kernels.iter().map(|(name, _)| name.as_str()));
    let forms: BTreeSet<Form> = kernels.iter().flat_map(|(_, counts)| counts.forms.keys().copied()).collect();
    let row = |form: Form| {
        let (name, flags) = form.names();
        let cells = kernels.iter().map(|(_, counts)| counts.cell(form));
        [name.to_owned(), flags.to_owned()].into_iter().chain(cells).collect()
    };
    (header, forms.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::Computed;

    #[test]
    fn forms_of_computed_values() {
        let one = |ops: &[Op]| form(&Location::Computed(Computed { slots: vec![ops.into()].into() }));
        assert_eq!(one(&[Op::Register(1), Op::ZeroExtend(8)]), Form::Bits);
        assert_eq!(one(&[Op::Register(1), Op::Register(2), Op::Add]), Form::Arithmetic);
        assert_eq!(one(&[Op::Register(1), Op::Load(8), Op::Constant(4), Op::Add]), Form::Load);
        assert_eq!(one(&[Op::Register(1), Op::Load(8), Op::Load(4)]), Form::Chain);
        assert_eq!(one(&[Op::Register(1), Op::Constant(4), Op::Eq]), Form::Comparison);
        assert_eq!(form(&Location::Register(3)), Form::Upstream(LocationKind::Register));
    }
}
