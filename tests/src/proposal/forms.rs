// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which forms of location earn their place: the arguments at inlined copies that each form gives, those that upstream's kinds have
//! and those that they lack.

use super::share;
use siteseer_sites::location::{Argument, LocationKind, Op};
use siteseer_sites::{Location, SiteKind, SiteSet};
use std::collections::BTreeMap;

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

/// The header of [`Forms::rows`].
pub const HEADER: [&str; 5] = ["form", "flags of LOC_PARAM", "certain", "doubtful", "kernel"];

impl Forms {
    /// A row for each form.
    pub fn rows(&self, kernel: &str) -> Vec<Vec<String>> {
        let row = |(form, &(certain, doubtful)): (&Form, &(usize, usize))| {
            let (name, flags) = form.names();
            let share = |count| share(count, self.arguments);
            vec![name.to_owned(), flags.to_owned(), share(certain), share(doubtful), kernel.to_owned()]
        };
        self.forms.iter().map(row).collect()
    }
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
