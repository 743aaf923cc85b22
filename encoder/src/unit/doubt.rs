// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which located arguments are doubtful.
//!
//! Compilers' debug information is wrong about some values, and nothing in a location tells which. What can be told is
//! which locations are prone to it. This depends on the compiler, on how the location is given, and on what all copies
//! of the function say about the parameter. The rates are those that random programs show (docs/truth.md).
//!
//! *By form.* GCC's view of a parameter in memory or computed, one view after the entry, may be of a step of the body;
//! in a register or as a constant it is what was passed. GCC's expressions leave out masks where 64 bits are wider
//! than the value, and name variables that are written later, or not at all. What it computes from a counter may be
//! computed from what the counter was a step before. Its one expression for a parameter of an
//! inlined copy is the place that it has in most of the copy. What is located only after the entry, where the probe is
//! moved to, may be what the body made of it. A clone that first got a constant and then lost the parameter
//! (`.constprop.0.isra.0`) may stand for clones with other constants, since their code is equal. Clang computes a
//! value again from others when it has lost it, and goes on to say so after these have changed; its constants outside
//! of `DW_AT_const_value` are as often those of later assignments.
//!
//! *By evidence.* Location lists show that the body assigns to a parameter: the list goes from one constant to another
//! within one copy, or from one location to another at one address, where the machine does nothing. By GCC, so does a
//! list of the function itself that goes to no location there. A copy with several entries does not count, because its
//! list covers several calls. What GCC says about constants of such a parameter,
//! and what it computes by an expression, is doubtful, because its views do not order them relative to the padding
//! before the entry, and may be lost. Clang has no views, so everything that it says about such a parameter in inlined
//! copies is doubtful. If clang gives a parameter as computed in all copies, and as it is in none, the body does the
//! computation. If clang gives a parameter in a register that the body itself has made, the body assigns to it (see
//! `assigned`), and so it does if the list of the function itself goes from where it is passed to a constant: clang
//! puts no constant in place of a variable after a comparison. If a parameter is a constant in all copies, nothing
//! tells whether the body assigns to it: `p + 1` differs from copy to copy as `p` does. Clang's constant is known to be
//! what was passed only if some copy, or the function itself, has the parameter as it is, and none shows an assignment.
//! If two parameters are at one place in all copies, the body may assign one of them to the other. If one entry of a
//! copy by GCC has a constant, and another entry of the copy has nothing, the constant is doubtful: the compiler may
//! have merged a beginning that it duplicated for this constant with another one.
//!
//! *By other calls.* GCC removes parameters that a body does not look at, and keeps what callers pass for them in
//! variables of the debug information, one for each parameter and not for each call (`decl_debug_args` in
//! gcc/ipa-param-manipulation.cc). If it loses what a call passes, the variable has what the call before it passed.
//! Such parameters are bound one view after the others, and those of a recursion that was inlined into itself may be
//! bound anywhere: constants of these are doubtful if a copy before in the same function has the same one. In such a
//! recursion, what an expression computes may be of a call around it.
//!
//! *By the code.* An expression that reads a slot of the stack is doubtful if nothing reads that slot any more: the
//! variable has moved to a register, and what it gets there is not stored (see [`crate::text`]). Other registers are
//! doubtful because of what the caller's parameters were and are: see `exchanged` and `members`.

use crate::debug::compiler::Compiler;
use crate::debug::loclist::ListEntry;
use crate::text::InPlace;
use crate::unit::arguments::{Form, Found};
use crate::unit::width;
use gimli::{Encoding, Expression, Operation};
use siteseer_sites::Doubt;
use siteseer_sites::location::{Located, Location, Op};
use siteseer_sites::machine::{Machine, Register};
use std::ops::Range;

/// What the copies of a function show of one of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Evidence {
    flags: u8,
    /// The other parameters that are where it is in some copy, as bits.
    beside: u16,
    /// Those that are somewhere else in some copy.
    apart: u16,
}

impl Evidence {
    /// The body assigns to it.
    pub(crate) const ASSIGNED: Evidence = Evidence::flag(1 << 0);
    /// Some copy has it computed.
    const COMPUTED: Evidence = Evidence::flag(1 << 1);
    /// Some copy has it in a register or in memory, as it is, and nothing speaks against that.
    pub(crate) const PLAIN: Evidence = Evidence::flag(1 << 2);
    /// It does so before it does anything else.
    pub(crate) const AT_ONCE: Evidence = Evidence::flag(1 << 3);

    const fn flag(flags: u8) -> Evidence {
        Evidence { flags, beside: 0, apart: 0 }
    }

    fn has(self, other: Evidence) -> bool {
        self.flags & other.flags == other.flags
    }

    /// What one copy's location shows.
    pub(crate) fn of(found: &Found, machine: Machine) -> Evidence {
        match &found.argument {
            Ok(located) if is_computed(located, machine) => Evidence::COMPUTED,
            Ok(Located {
                at: Location::Register(_) | Location::RegisterPair(..) | Location::Memory(..),
                doubt: None,
                ..
            }) if found.form != Form::Nothing => Evidence::PLAIN,
            _ => Evidence::default(),
        }
    }

    /// What one copy shows of one of its parameters, compared with the others.
    pub(crate) fn of_places(found: &[Found], index: usize) -> Evidence {
        let Some(Ok(one)) = found.get(index).map(|found| &found.argument) else { return Evidence::default() };
        let mut evidence = Evidence::default();
        for (bit, other) in (0..u16::BITS).zip(found).filter(|(bit, _)| *bit as usize != index) {
            match &other.argument {
                Ok(other) if is_one_place(one, other) => evidence.beside |= 1 << bit,
                Ok(_) => evidence.apart |= 1 << bit,
                Err(_) => {}
            }
        }
        evidence
    }

    /// Whether nothing is shown.
    pub(crate) fn is_empty(self) -> bool {
        self == Evidence::default()
    }

    /// What both show.
    pub(crate) fn and(&mut self, other: Evidence) {
        self.flags |= other.flags;
        self.beside |= other.beside;
        self.apart |= other.apart;
    }

    /// Why a location in an inlined copy is doubtful, given all copies' evidence on its parameter, and why it was
    /// without.
    pub(crate) fn doubt(self, compiler: Compiler, machine: Machine, located: &Located) -> Option<Doubt> {
        let assigned = self.has(Evidence::ASSIGNED);
        let is_plain = self.has(Evidence::PLAIN);
        let always_computed = self.has(Evidence::COMPUTED) && !is_plain;
        let is_anothers = self.beside & !self.apart != 0;
        match compiler {
            Compiler::Gcc if assigned && is_constant_or_expression(&located.at) => {
                located.doubt.or(Some(Doubt::Assigned))
            }
            Compiler::Gcc => located.doubt,
            Compiler::Clang(_) | Compiler::Other => {
                let is_register = matches!(located.at, Location::Register(_) | Location::RegisterPair(..));
                let is_changed = if is_register { self.has(Evidence::AT_ONCE) } else { assigned };
                if is_changed || is_anothers || always_computed {
                    return located.doubt.or(Some(Doubt::Assigned));
                }
                match located.doubt {
                    Some(Doubt::Constant) if is_plain => None,
                    None if !is_plain && is_constant(&located.at) => Some(Doubt::Constant),
                    None if !is_plain && is_computed(located, machine) => Some(Doubt::Stale),
                    doubt => doubt,
                }
            }
        }
    }
}

/// Why what was found for an argument of an inlined copy is doubtful, whatever other copies say.
pub(crate) fn of_form(compiler: Compiler, machine: Machine, found: &Found, located: &Located) -> Option<Doubt> {
    let is_constant = is_constant(&located.at);
    let is_computed = is_computed(located, machine);
    if found.form == Form::EntryValue {
        return Some(Doubt::EntryValue);
    }
    match compiler {
        Compiler::Gcc if found.late => {
            (is_computed || matches!(located.at, Location::Memory(..))).then_some(Doubt::LateView)
        }
        Compiler::Gcc if found.form == Form::Nothing => (is_constant || is_computed).then_some(Doubt::Stale),
        Compiler::Gcc if found.form == Form::Expression && !is_constant => Some(Doubt::Home),
        Compiler::Gcc => (width::is_depended_on(located) || is_negated_truth(found, located)).then_some(Doubt::Stale),
        Compiler::Clang(_) | Compiler::Other if found.form == Form::Nothing => Some(Doubt::Assigned),
        // Of 128 bits, clang may keep those alone that the body looks at.
        Compiler::Clang(_) | Compiler::Other
            if matches!(located.at, Location::Computed(_) | Location::RegisterPair(..)) =>
        {
            Some(Doubt::Stale)
        }
        Compiler::Clang(_) | Compiler::Other => match found.form {
            // It was computed, from another constant.
            Form::Expression if is_constant => Some(Doubt::Stale),
            Form::Covering if is_constant => Some(Doubt::Constant),
            _ => None,
        },
    }
}

/// Whether a value is a number, or what an expression makes of one: not a structure that is in several places.
fn is_constant_or_expression(location: &Location) -> bool {
    match location {
        Location::Constant(_) => true,
        Location::Computed(computed) => computed.slots.len() == 1,
        _ => false,
    }
}

/// Whether two parameters may have one value, as far as their locations tell.
fn is_one_place(one: &Located, other: &Located) -> bool {
    match (&one.at, &other.at) {
        (Location::Constant(one_value), Location::Constant(other_value)) => {
            let bits = 8 * one.size.min(other.size).clamp(1, 8);
            (one_value ^ other_value) << (64 - bits) == 0
        }
        (one, other) => one == other,
    }
}

/// Whether a value is the same in all calls.
fn is_constant(location: &Location) -> bool {
    matches!(location, Location::Constant(_) | Location::Address(_))
}

/// The registers that a value is computed from, other than the stack pointer.
pub(crate) fn computed_from(located: &Located, machine: Machine) -> Vec<Register> {
    match &located.at {
        Location::Computed(computed) => {
            let register = |op: &Op| if let Op::Register(register) = *op { Some(register) } else { None };
            computed.slots.iter().flatten().filter_map(register).filter(|one| *one != machine.stack_pointer()).collect()
        }
        Location::RegisterOffset(register, _) if is_computed(located, machine) => vec![*register],
        _ => Vec::new(),
    }
}

/// What a value is computed by from a register alone, first of all.
pub(crate) fn changes(located: &Located) -> impl Iterator<Item = (Register, InPlace)> {
    let slots = if let Location::Computed(computed) = &located.at { &*computed.slots } else { &[] };
    let rests = slots.iter().flat_map(|ops| (0..ops.len()).map(|nth| &ops[nth..]));
    rests.filter_map(|ops| match *ops {
        [Op::Register(register), Op::Constant(step), Op::Add, ..] => {
            Some((register, InPlace::Adds(step.cast_signed())))
        }
        [Op::Register(register), Op::Constant(step), Op::Sub, ..] => {
            Some((register, InPlace::Adds(step.cast_signed().wrapping_neg())))
        }
        [Op::Register(register), Op::Not, ..] => Some((register, InPlace::Inverts)),
        [Op::Register(register), Op::Neg, ..] => Some((register, InPlace::Negates)),
        _ => None,
    })
}

/// Whether a value is computed from what is in registers or memory, and not there itself. An address in the frame is
/// one that nothing else could stand for.
pub(crate) fn is_computed(located: &Located, machine: Machine) -> bool {
    match &located.at {
        Location::Computed(_) => true,
        Location::RegisterOffset(register, offset) => *offset != 0 && *register != machine.stack_pointer(),
        _ => false,
    }
}

/// The bytes of the variables with fixed addresses that a value is to be read from; all addresses if the offset is not
/// known. If code read them there, the value would be in a register. GCC has removed this read, and then nothing
/// keeps the store that the read was of: it may be gone, or come after the site.
pub(crate) fn removed_loads(at: &Location) -> Vec<Range<u64>> {
    let Location::Computed(computed) = at else { return Vec::new() };
    let mut loads = Vec::new();
    for ops in &computed.slots {
        for (index, op) in ops.iter().enumerate() {
            let Op::Address(address) = *op else { continue };
            loads.extend(match ops[index + 1..] {
                [Op::Load(size), ..] => Some(address..address.saturating_add(size.into())),
                [Op::Constant(offset), Op::Add, Op::Load(size), ..] => {
                    let address = address.wrapping_add(offset);
                    Some(address..address.saturating_add(size.into()))
                }
                ref rest => rest.iter().any(|op| matches!(op, Op::Load(_))).then_some(0..u64::MAX),
            });
        }
    }
    loads
}

/// Whether a constant of a list is what GCC makes of `!x` where it knows `x`, shifted to the left, if it is: it inverts
/// all bits of a byte, not one bit.
fn is_negated_truth(found: &Found, located: &Located) -> bool {
    let Location::Constant(value) = located.at else { return false };
    let zeros = value.trailing_zeros();
    found.form != Form::Constant && matches!((zeros, value.checked_shr(zeros)), (_, Some(0xff)) | (1.., Some(0x7f)))
}

/// Whether a list goes from one constant to another.
pub(crate) fn changes_constant(list: &[ListEntry<'_>], encoding: Encoding) -> bool {
    list.windows(2).any(|pair| {
        pair[0].end.address == pair[1].begin.address
            && pair[0].expression != pair[1].expression
            && pair.iter().all(|entry| has_constant(entry, encoding))
    })
}

/// Whether a list goes from something else to a constant.
pub(crate) fn becomes_constant(list: &[ListEntry<'_>], encoding: Encoding) -> bool {
    let Some((first, rest)) = list.split_first() else { return false };
    !has_constant(first, encoding) && rest.iter().any(|entry| has_constant(entry, encoding))
}

/// Whether an entry of a list has a constant: a value that takes neither a register nor memory.
fn has_constant(entry: &ListEntry<'_>, encoding: Encoding) -> bool {
    let mut operations = Expression(entry.expression).operations(encoding);
    let mut is_value = false;
    while let Ok(Some(operation)) = operations.next() {
        match operation {
            Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. } | Operation::Convert { .. } => {}
            Operation::StackValue | Operation::ImplicitValue { .. } => is_value = true,
            _ => return false,
        }
    }
    is_value
}

/// Whether a location is of what is below the stack pointer.
pub(crate) fn is_below_stack(at: &Location, machine: Machine) -> bool {
    match at {
        Location::Memory(base, offset) | Location::RegisterOffset(base, offset) => {
            *base == machine.stack_pointer() && *offset < 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::loclist::Point;
    use crate::debug::slice::Slice;
    use siteseer_sites::location::Computed;

    const SP: u16 = 7;

    fn found(at: Location, form: Form, late: bool) -> Found {
        Found { argument: Ok(Located::certain(8, false, at)), form, usable: true, late }
    }

    fn doubt(compiler: Compiler, at: Location, form: Form, late: bool) -> Option<Doubt> {
        let found = found(at, form, late);
        of_form(compiler, Machine::X86_64, &found, found.argument.as_ref().unwrap())
    }

    #[test]
    fn forms() {
        let (gcc, clang) = (Compiler::Gcc, Compiler::Clang(22));
        let (register, memory, constant) = (Location::Register(5), Location::Memory(SP, 8), Location::Constant(3));
        for (at, late) in [(&register, None), (&constant, None), (&memory, Some(Doubt::LateView))] {
            assert_eq!(doubt(gcc, at.clone(), Form::Covering, true), late, "{at:?}");
            assert_eq!(doubt(gcc, at.clone(), Form::Covering, false), None, "{at:?}");
        }
        assert_eq!(doubt(gcc, register.clone(), Form::Expression, false), Some(Doubt::Home));
        assert_eq!(doubt(gcc, memory.clone(), Form::Expression, false), Some(Doubt::Home));
        assert_eq!(doubt(gcc, register.clone(), Form::Nothing, false), None, "the probe was moved there");
        assert_eq!(doubt(gcc, Location::RegisterOffset(5, 8), Form::Nothing, false), Some(Doubt::Stale));
        assert_eq!(doubt(clang, memory, Form::Nothing, false), Some(Doubt::Assigned));
        assert_eq!(doubt(clang, constant.clone(), Form::Constant, false), None);
        assert_eq!(doubt(clang, constant.clone(), Form::Covering, false), Some(Doubt::Constant));
        assert_eq!(doubt(clang, constant, Form::Expression, false), Some(Doubt::Stale));
        assert_eq!(doubt(clang, register.clone(), Form::Covering, false), None);
        assert_eq!(doubt(clang, Location::RegisterPair(5, 4), Form::Covering, false), Some(Doubt::Stale), "half of it");
        assert_eq!(doubt(gcc, Location::RegisterPair(5, 4), Form::Covering, false), None);
        assert_eq!(doubt(gcc, register, Form::EntryValue, false), Some(Doubt::EntryValue));
        assert_eq!(doubt(clang, Location::RegisterOffset(5, 8), Form::Covering, false), None, "other copies tell");
        assert_eq!(doubt(clang, Location::RegisterOffset(SP, 8), Form::Covering, false), None, "a variable's address");
    }

    #[test]
    fn a_truth_that_gcc_inverts_as_a_byte() {
        let (gcc, clang) = (Compiler::Gcc, Compiler::Clang(22));
        let doubt = |compiler, value, form| doubt(compiler, Location::Constant(value), form, false);
        assert_eq!(doubt(gcc, 0xff, Form::Covering), Some(Doubt::Stale));
        assert_eq!(doubt(gcc, 0xfe, Form::View), Some(Doubt::Stale));
        assert_eq!(doubt(gcc, 0xff << 1, Form::Covering), Some(Doubt::Stale), "it is shifted");
        assert_eq!(doubt(gcc, 0, Form::Covering), None);
        assert_eq!(doubt(gcc, 0xff, Form::Constant), None, "it is not of a list");
        assert_eq!(doubt(gcc, 0xfd, Form::Covering), None);
        assert_eq!(doubt(clang, 0xff, Form::Constant), None);
    }

    #[test]
    fn what_is_done_to_registers() {
        let changes_of = |ops: &[Op]| {
            let at = Location::Computed(Computed { slots: [ops.into()].into() });
            changes(&Located::certain(4, true, at)).collect::<Vec<_>>()
        };
        let minus_one = u64::MAX;
        let last = [Op::Register(0), Op::Constant(minus_one), Op::Add, Op::ZeroExtend(8), Op::Neg];
        assert_eq!(changes_of(&last), [(0, InPlace::Adds(-1))]);
        let sub = [Op::Register(5), Op::Constant(2), Op::Sub, Op::Not];
        assert_eq!(changes_of(&sub), [(5, InPlace::Adds(-2))]);
        assert_eq!(changes_of(&[Op::Register(5), Op::Constant(2), Op::Mul]), []);
        let two = [Op::Register(5), Op::Not, Op::Register(4), Op::Neg, Op::Or];
        assert_eq!(changes_of(&two), [(5, InPlace::Inverts), (4, InPlace::Negates)]);
    }

    #[test]
    fn evidence() {
        let (gcc, clang) = (Compiler::Gcc, Compiler::Clang(22));
        let of = |at: Location| Evidence::of(&found(at, Form::Covering, false), Machine::X86_64);
        let (register, constant) = (Location::Register(5), Location::Constant(3));
        let doubt = |evidence: Evidence, compiler, at: &Location| {
            evidence.doubt(compiler, Machine::X86_64, &Located::certain(8, false, at.clone()))
        };
        assert_eq!(doubt(Evidence::ASSIGNED, gcc, &register), None);
        for (compiler, at) in [(gcc, &constant), (clang, &constant), (clang, &Location::RegisterOffset(5, 1))] {
            assert_eq!(doubt(Evidence::ASSIGNED, compiler, at), Some(Doubt::Assigned), "{compiler:?} {at:?}");
        }
        let negated = Location::Computed(Computed { slots: [[Op::Register(5), Op::Not].as_slice().into()].into() });
        assert_eq!(doubt(Evidence::ASSIGNED, gcc, &negated), Some(Doubt::Assigned));
        let parts = [[Op::Register(5)].as_slice().into(), [Op::Register(4)].as_slice().into()].into();
        assert_eq!(doubt(Evidence::ASSIGNED, gcc, &Location::Computed(Computed { slots: parts })), None, "a structure");
        assert_eq!(doubt(Evidence::ASSIGNED, gcc, &Location::RegisterOffset(5, 1)), None);
        assert_eq!(doubt(Evidence::ASSIGNED, clang, &register), None, "at the entry it is what was passed");
        let mut at_once = Evidence::ASSIGNED;
        at_once.and(Evidence::AT_ONCE);
        assert_eq!(doubt(at_once, clang, &register), Some(Doubt::Assigned));
        let mut computed = of(Location::RegisterOffset(5, 1));
        assert_eq!(doubt(computed, clang, &constant), Some(Doubt::Assigned));
        assert_eq!(doubt(computed, gcc, &constant), None);
        computed.and(of(register));
        assert_eq!(doubt(computed, clang, &constant), None, "a caller computed it");
        assert_eq!(doubt(computed, clang, &Location::RegisterOffset(5, 1)), None);
    }

    #[test]
    fn constants_of_all_copies() {
        let doubt = |evidence: Evidence, at: Location| {
            evidence.doubt(Compiler::Clang(22), Machine::X86_64, &Located::certain(8, false, at))
        };
        let mut evidence = Evidence::default();
        for constant in [Location::Constant(3), Location::Address(0x1000)] {
            assert_eq!(doubt(evidence, constant), Some(Doubt::Constant), "no copy has it as it is");
        }
        let in_list = Located::certain(8, false, Location::Constant(3)).doubtful(Doubt::Constant);
        let doubt_of_list = |evidence: Evidence| evidence.doubt(Compiler::Clang(22), Machine::X86_64, &in_list);
        assert_eq!(doubt_of_list(evidence), Some(Doubt::Constant));
        evidence.and(Evidence::PLAIN);
        assert_eq!(doubt(evidence, Location::Constant(3)), None, "some copy has it as it is");
        assert_eq!(doubt_of_list(evidence), None);
        evidence.and(Evidence::ASSIGNED);
        assert_eq!(doubt_of_list(evidence), Some(Doubt::Constant));
    }

    #[test]
    fn parameters_at_one_place_in_all_copies() {
        let (five, four) = (Location::Register(5), Location::Register(4));
        let copy = |places: [&Location; 2]| places.map(|at| found(at.clone(), Form::Covering, false));
        let doubt = |evidence: Evidence, compiler| {
            evidence.doubt(compiler, Machine::X86_64, &Located::certain(8, false, five.clone()))
        };
        let mut evidence = Evidence::PLAIN;
        evidence.and(Evidence::of_places(&copy([&five, &five]), 0));
        assert_eq!(doubt(evidence, Compiler::Clang(22)), Some(Doubt::Assigned), "the body may assign one to the other");
        assert_eq!(doubt(evidence, Compiler::Gcc), None, "its views tell");
        evidence.and(Evidence::of_places(&copy([&five, &four]), 0));
        assert_eq!(doubt(evidence, Compiler::Clang(22)), None);
    }

    #[test]
    fn lists_that_come_to_another_constant() {
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let entry = |begin, end, expression: &'static [u8]| ListEntry {
            begin: Point { address: begin, view: 0 },
            end: Point { address: end, view: 0 },
            expression: Slice::new(expression, gimli::LittleEndian),
        };
        // DW_OP_lit3, DW_OP_stack_value; DW_OP_lit4, DW_OP_stack_value; DW_OP_reg5
        let (three, four, register): (&[u8], &[u8], &[u8]) = (&[0x33, 0x9f], &[0x34, 0x9f], &[0x55]);
        let changes = |list: &[ListEntry<'_>]| changes_constant(list, encoding);
        assert!(changes(&[entry(0, 4, three), entry(4, 8, four)]));
        assert!(!changes(&[entry(0, 4, three), entry(6, 8, four)]), "on two ways, perhaps");
        assert!(!changes(&[entry(0, 4, three), entry(4, 8, three)]));
        assert!(!changes(&[entry(0, 4, three), entry(4, 8, register)]), "it may be the same value");
        let becomes = |list: &[ListEntry<'_>]| becomes_constant(list, encoding);
        assert!(becomes(&[entry(0, 4, register), entry(4, 8, three)]));
        assert!(becomes(&[entry(0, 4, register), entry(6, 8, register), entry(8, 9, three)]));
        assert!(!becomes(&[entry(0, 4, three), entry(4, 8, four)]), "it was passed, perhaps");
        assert!(!becomes(&[entry(0, 4, register)]) && !becomes(&[]));
    }

    #[test]
    fn below_the_stack_is_nothing() {
        for machine in [Machine::X86_64, Machine::Aarch64] {
            let (stack, other) = (machine.stack_pointer(), 3);
            assert!(is_below_stack(&Location::Memory(stack, -8), machine));
            assert!(is_below_stack(&Location::RegisterOffset(stack, -24), machine));
            assert!(!is_below_stack(&Location::Memory(stack, 0), machine));
            assert!(!is_below_stack(&Location::Memory(other, -8), machine));
        }
    }
}
