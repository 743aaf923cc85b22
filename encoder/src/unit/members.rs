// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arguments that GCC says are what a member of the caller's structure was when the caller was called.
//!
//! A caller gets a structure in registers, assigns to a member of it, and passes that member to an inlined function.
//! GCC binds the function's parameter to the member; when it replaces the structure by variables (`-ftree-sra`), it
//! leaves that binding alone. Nothing assigns to the structure any more, so that the binding is to what the caller got
//! (docs/reports/gcc-assigned-member; GCC 14 to 16). The location is a register that still has it, or an expression
//! that undoes the assignment. If there is neither, the argument is missing.
//!
//! The list of the structure may be wrong there, too.
//!
//! A caller may well pass what it got. So the argument is doubtful if the list of the structure has named a register
//! with a value that was made in the caller, and the argument is in a register that has what the caller got, or is
//! computed from a register that the structure came in and that was written since.

use super::UnitEncoder;
use super::copies::InlinedCopy;
use super::start_of;
use crate::debug::loclist::{ListEntry, Point};
use crate::text::{FunctionText, register_copy};
use crate::unit::arguments::Given;
use gimli::{Encoding, Expression, Operation};
use siteseer_sites::Doubt;
use siteseer_sites::location::{Location, Op};
use siteseer_sites::machine::Register;

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Marks the arguments of a copy that may be what a member was when the function around it was entered.
    pub(super) fn doubt_members(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, point: Point) {
        let located = self.found.iter().filter_map(|found| found.argument.as_ref().ok());
        if located.flat_map(|located| sources(&located.at)).next().is_none() {
            return;
        }
        let mut own = std::mem::take(&mut self.own);
        self.gather_own(copy, &mut own);
        let encoding = self.unit.unit.encoding();
        let start = start_of(copy.function);
        let parameters = own.origin.iter().flat_map(|origin| &origin.parameters).zip(&own.gathered.given);
        let came_in: Vec<Register> = parameters
            .filter(|(parameter, _)| parameter.ty.as_ref().is_ok_and(|ty| ty.is_composite))
            .filter_map(|(_, given)| if let Given::List(range) = given { Some(own.gathered.list(range)) } else { None })
            .filter(|list| is_assigned(list, start, point, copy.text, encoding))
            .flat_map(|list| came_in(list, start, encoding))
            .collect();
        if !came_in.is_empty() {
            for located in self.found.iter_mut().filter_map(|found| found.argument.as_mut().ok()) {
                if sources(&located.at).any(|source| had(&came_in, source, copy.text, point.address)) {
                    located.doubt = Some(Doubt::Stale);
                }
            }
        }
        self.own = own;
    }
}

/// The registers that a structure came in, by its list.
fn came_in(list: &[ListEntry<'_>], start: u64, encoding: Encoding) -> Vec<Register> {
    let first = list.iter().find(|entry| entry.begin.address <= start && !entry.is_empty());
    first.map_or(Vec::new(), |first| registers(first, encoding))
}

/// Whether a list has named, up to a point, a register with a value that was made in the function.
fn is_assigned(
    list: &[ListEntry<'_>],
    start: u64,
    point: Point,
    text: &FunctionText<'_, '_>,
    encoding: Encoding,
) -> bool {
    let later = list.iter().filter(|entry| entry.begin.address > start && entry.begin <= point);
    later.into_iter().any(|entry| {
        let begin = entry.begin.address;
        registers(entry, encoding)
            .into_iter()
            .any(|register| text.makers().may_be_made_by(register, begin, |makers, at| makers.makes(at, register)))
    })
}

/// Whether a value may be made from what a register had at the function's entry: one of those that a structure came in.
fn had(came_in: &[Register], source: Source, text: &FunctionText<'_, '_>, address: u64) -> bool {
    let Source { register, is_whole } = source;
    let mut makers = text.makers();
    if came_in.contains(&register) {
        return !is_whole || !makers.has_written(register, address);
    }
    makers.may_be_made_by(register, address, |_, at| {
        let copied = register_copy(text.image(), at).filter(|(to, _)| *to == register);
        copied.is_some_and(|(_, from)| came_in.contains(&from))
    })
}

/// The registers that have parts of a value.
fn registers(entry: &ListEntry<'_>, encoding: Encoding) -> Vec<Register> {
    let mut operations = Expression(entry.expression).operations(encoding);
    let mut registers = Vec::new();
    while let Ok(Some(operation)) = operations.next() {
        if let Operation::Register { register } = operation {
            registers.push(register.0);
        }
    }
    registers
}

/// A register that a value is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    register: Register,
    /// Whether the value is what the register has, or a part of that.
    is_whole: bool,
}

/// The registers that a value is made from, and not read from memory by.
fn sources(at: &Location) -> impl Iterator<Item = Source> {
    let (registers, slots) = match at {
        Location::Register(register) => ([Some((*register, true)), None], &[][..]),
        Location::RegisterPair(one, other) => ([Some((*one, true)), Some((*other, true))], &[][..]),
        Location::RegisterOffset(register, _) => ([Some((*register, false)), None], &[][..]),
        Location::Computed(computed) => ([None, None], &*computed.slots),
        Location::Constant(_) | Location::Address(_) | Location::Memory(..) => ([None, None], &[][..]),
    };
    let of_slots = slots.iter().filter(|ops| !ops.iter().any(|op| matches!(op, Op::Load(_)))).flat_map(|ops| {
        let is_whole = matches!(**ops, [Op::Register(_)] | [Op::Register(_), Op::ZeroExtend(_) | Op::SignExtend(_)]);
        ops.iter()
            .filter_map(move |op| if let Op::Register(register) = *op { Some((register, is_whole)) } else { None })
    });
    registers.into_iter().flatten().chain(of_slots).map(|(register, is_whole)| Source { register, is_whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;
    use siteseer_sites::location::Computed;

    /// 0: mov %rsi,%rbx; 3: mov %rdx,%rax; 6: not %rsi; 9: mov (%rdi),%rcx; 12: ret
    const CODE: [u8; 13] = [0x48, 0x89, 0xf3, 0x48, 0x89, 0xd0, 0x48, 0xf7, 0xd6, 0x48, 0x8b, 0x0f, 0xc3];

    #[test]
    fn what_a_structure_was() {
        x86(&CODE, |text| {
            let had = |register, is_whole| had(&[4, 1], Source { register, is_whole }, text, TEXT + 12);
            assert!(had(3, true) && had(3, false), "rbx has what rsi had");
            assert!(had(4, false), "an expression may undo what was assigned");
            assert!(!had(4, true), "rsi has what was assigned");
            assert!(had(1, true) && had(0, true), "rdx, and what it was copied to");
            assert!(!had(2, true), "rcx has something else");
        });
    }

    #[test]
    fn structures_that_are_assigned_to() {
        let encoding = Encoding { format: gimli::Format::Dwarf32, version: 5, address_size: 8 };
        let point = |at: u64| Point { address: TEXT + at, view: 0 };
        let entry = |begin: u64, end: u64, expression: &'static [u8]| ListEntry {
            begin: point(begin),
            end: point(end),
            expression: gimli::EndianSlice::new(expression, gimli::LittleEndian),
        };
        // DW_OP_reg4, DW_OP_reg3 and DW_OP_reg1; DW_OP_piece 8 after each
        let (rsi, rbx, both) = (&[0x54][..], &[0x53][..], &[0x54, 0x93, 8, 0x51, 0x93, 8][..]);
        x86(&CODE, |text| {
            let is_assigned = |list: &[ListEntry<'_>], at| is_assigned(list, TEXT, point(at), text, encoding);
            let list = [entry(0, 9, rsi), entry(9, 12, both)];
            assert!(!is_assigned(&list, 6) && is_assigned(&list, 9) && is_assigned(&list, 12));
            assert!(!is_assigned(&[entry(0, 3, rsi), entry(3, 12, rbx)], 12), "it has moved");
            assert!(!is_assigned(&[entry(0, 3, rsi), entry(3, 6, rsi)], 12), "its list has two parts");
            assert_eq!(came_in(&list, TEXT, encoding), [4]);
            assert_eq!(came_in(&list[1..], TEXT, encoding), [], "it is not known");
        });
    }

    #[test]
    fn what_values_are_made_from() {
        let of = |at: Location| sources(&at).map(|source| (source.register, source.is_whole)).collect::<Vec<_>>();
        let computed =
            |slots: &[&[Op]]| of(Location::Computed(Computed { slots: slots.iter().map(|&ops| ops.into()).collect() }));
        assert_eq!(of(Location::RegisterPair(4, 1)), [(4, true), (1, true)]);
        assert_eq!(of(Location::RegisterOffset(4, -4)), [(4, false)]);
        assert_eq!(of(Location::Memory(4, 0)), []);
        let (part, inverted) = ([Op::Register(4), Op::SignExtend(32)], [Op::Register(5), Op::Not]);
        assert_eq!(computed(&[&part, &inverted]), [(4, true), (5, false)]);
        assert_eq!(computed(&[&[Op::Register(4), Op::Load(8)]]), [], "of memory");
    }
}
