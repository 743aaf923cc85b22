// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! What clang does to signatures, and how much of it its debug information tells.
//!
//! Clang drops arguments that a function does not need, and passes what a pointer points to in its place, under the
//! same name. It marks a function that lost an argument or its return value with `DW_CC_nocall` only from version 16
//! on, and a function that had a pointer argument replaced only from version 23 on
//! (llvm/lib/Transforms/IPO/DeadArgumentElimination.cpp, ArgumentPromotion.cpp). Before these versions, such a function
//! looks like any other: the arguments after the one that is gone may even be where the source's signature would have
//! them. What gives it away is a parameter that is not where the calling convention puts it. A function with an
//! argument that might be replaced is treated as changed.
//!
//! *What callers pass.* A signature that stays is not a promise either. If a function looks at nothing of an argument,
//! clang makes the calls that it sees pass whatever is in the register (`removeDeadArgumentsFromCallers()` in
//! DeadArgumentElimination.cpp). The function's own debug information then has no value for the argument that is read
//! from where it would be passed. All of this requires a call by name: a function that is entered through pointers
//! alone gets what its type says.
//!
//! *Where a location begins.* What a function does before its first own instruction (the call to ftrace, landing pads,
//! pushes) comes before all its locations. A register that is not written on the way already has the value at the
//! entry. If the signature has changed, and some locations begin at the entry, one that begins later is of what the
//! body has assigned.
//!
//! *What a location says.* Clang has no views (see `loclist`): for a parameter that the body assigns to before it does
//! anything, it only gives what was assigned. `never = value` makes the register of `value` that of a parameter that is
//! not passed at all. If the signature is the source's, the calling convention is more reliable. If it is not, the
//! arguments that are left keep their order: if the registers of the parameters are not in the convention's order, the
//! body has assigned to some of them, and none of them can be believed.

use crate::text::line_preserves;
use crate::unit::arguments::{At, Found, Gathered, Given};
use crate::unit::assigned;
use crate::unit::entry::first_after;
use crate::unit::origin::Origin;
use siteseer_sites::Machine;
use siteseer_sites::abi::argument_registers;
use siteseer_sites::location::{Argument, Located, Location, Missing, Op};
use siteseer_sites::machine::Register;

/// From this version on clang marks functions that lost an argument or their return value.
pub(crate) const MARKS_DEAD: u32 = 16;
/// From this version on, clang marks functions in which it replaced a pointer argument with the value that it points
/// to.
const MARKS_PROMOTED: u32 = 23;

/// Looks after the prologue for arguments that have no location at the entry of an out-of-line function.
pub(crate) fn look_past_prologue<'a>(
    at: &At<'_, 'a, '_>,
    gathered: &Gathered<'a>,
    origin: &Origin<'a>,
    found: &mut [Found],
) {
    for (index, found) in found.iter_mut().enumerate() {
        if found.argument != Err(Missing::NotAtEntry) {
            continue;
        }
        let Given::List(range) = &gathered.given[index] else { continue };
        let Some(first) = first_after(gathered.list(range), at.address) else { continue };
        if first.begin.address - at.address > u64::from(u8::MAX) {
            continue;
        }
        let after = At::new(at.surroundings, first.begin.address);
        let Ok(located) = after.lower(first.expression, &origin.parameters[index]) else { continue };
        let registers: &[u16] = match &located.at {
            Location::Register(register) => &[*register],
            Location::RegisterPair(low, high) => &[*low, *high],
            _ => continue,
        };
        let image = at.surroundings.image;
        if registers.iter().all(|register| line_preserves(image, at.address, first.begin.address, *register)) {
            found.argument = Ok(located);
        }
    }
}

/// Drops arguments in a register that the debug information says has a part of another parameter at the entry. Only one
/// of the two is passed there: `p = s.member` makes the register of the member that of `p`, too.
pub(crate) fn drop_what_is_in_parts_of_others<'a>(at: &At<'_, 'a, '_>, gathered: &Gathered<'a>, found: &mut [Found]) {
    let is_partial = |found: &Found| found.argument == Err(Missing::Partial);
    if !found.iter().any(is_partial) {
        return;
    }
    let encoding = at.surroundings.unit.unit.encoding();
    let parts: Vec<Register> = (gathered.given.iter().zip(&*found))
        .filter(|(_, found)| is_partial(found))
        .filter_map(|(given, _)| match given {
            Given::Expression(expression) => Some(*expression),
            Given::List(range) => gathered.list(range).iter().find(|entry| entry.covers(at.address))?.expression.into(),
            _ => None,
        })
        .flat_map(|expression| assigned::registers(expression, encoding))
        .collect();
    for found in found {
        let is_shared = |located: &Located| registers(&located.at).any(|register| parts.contains(&register));
        if found.argument.as_ref().is_ok_and(is_shared) {
            found.argument = Err(Missing::AfterEntry);
        }
    }
}

/// What is known about one parameter of an out-of-line function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    /// Whether the debug information has a value for it that is read from there.
    pub(crate) is_read: bool,
    /// Whether that value is read from all registers that it is passed in.
    pub(crate) is_read_whole: bool,
    /// Whether it is where the calling convention puts it.
    pub(crate) in_place: bool,
    /// Whether it may be passed as what it points to.
    pub(crate) is_memory: bool,
}

impl Passed {
    /// Of a parameter, as found and as the calling convention has it.
    pub(crate) fn new(found: &Argument, abi: &Argument, is_memory: bool) -> Passed {
        let in_place = match (found, abi) {
            (Ok(found), Ok(abi)) => found.at == abi.at || is_in_pieces(found) && is_in_registers(abi),
            _ => false,
        };
        let is_read = match (found, abi) {
            // What is computed from something else is not: the body assigns to it, and callers pass whatever is there.
            (Ok(found), Ok(abi)) => found.at == abi.at || registers(&abi.at).any(|register| reads(&found.at, register)),
            _ => false,
        };
        let is_read_whole = match (found, abi) {
            (Ok(found), Ok(abi)) => found.at == abi.at || registers(&abi.at).all(|register| reads(&found.at, register)),
            _ => false,
        };
        Passed { is_read, is_read_whole, in_place, is_memory }
    }
}

/// The registers that an argument is passed in.
fn registers(location: &Location) -> impl Iterator<Item = Register> {
    let pair = match location {
        Location::Register(register) => [Some(*register), None],
        Location::RegisterPair(low, high) => [Some(*low), Some(*high)],
        _ => [None, None],
    };
    pair.into_iter().flatten()
}

/// Whether it takes a register to know what is at a location.
fn reads(location: &Location, register: Register) -> bool {
    match location {
        Location::Register(its) | Location::RegisterOffset(its, _) | Location::Memory(its, _) => *its == register,
        Location::RegisterPair(low, high) => [*low, *high].contains(&register),
        Location::Computed(computed) => computed.slots.iter().any(|program| program.contains(&Op::Register(register))),
        _ => false,
    }
}

/// A structure with members that the debug information gives one by one.
fn is_in_pieces(located: &Located) -> bool {
    matches!(located.at, Location::Computed(_))
}

fn is_in_registers(located: &Located) -> bool {
    matches!(located.at, Location::Register(_) | Location::RegisterPair(..))
}

/// Whether clang (of that major version) may have changed the signature of a function that is called by name without a
/// mark.
pub(crate) fn may_be_unmarked(version: u32, parameters: &[Passed]) -> bool {
    parameters
        .iter()
        .any(|passed| !passed.in_place && (version < MARKS_DEAD || passed.is_memory && version < MARKS_PROMOTED))
}

/// Drops what cannot be the arguments of a function with a signature that clang changed: what the body computed, and
/// all arguments if their registers are not in order.
pub(crate) fn keep_what_was_passed(machine: Machine, arguments: &mut [Argument]) {
    let order = argument_registers(machine);
    let mut next = 0;
    let mut in_order = true;
    for argument in arguments.iter_mut() {
        let Ok(located) = argument else { continue };
        let registers: &[u16] = match &located.at {
            Location::Register(register) => &[*register],
            Location::RegisterPair(low, high) => &[*low, *high],
            Location::Constant(_) | Location::Address(_) => &[],
            Location::Memory(base, _) if *base == machine.stack_pointer() => &[],
            // A structure by reference.
            Location::Memory(base, 0) if located.size > 16 => &[*base],
            Location::Computed(_) if located.size > 8 => &[],
            _ => {
                *argument = Err(Missing::AfterEntry);
                continue;
            }
        };
        for register in registers {
            match order.iter().position(|known| known == register) {
                Some(position) if position >= next => next = position + 1,
                _ => in_order = false,
            }
        }
    }
    if !in_order {
        for argument in arguments.iter_mut().filter(|argument| argument.is_ok()) {
            *argument = Err(Missing::AfterEntry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::Computed;

    fn at(location: Location) -> Argument {
        Ok(Located::certain(8, false, location))
    }

    #[test]
    fn versions_that_do_not_mark() {
        let passed = |in_place, is_memory| Passed { is_read: in_place, is_read_whole: in_place, in_place, is_memory };
        let unmarked = |version, parameters: &[Passed]| may_be_unmarked(version, parameters);
        assert!(unmarked(15, &[passed(false, false)]) && unmarked(0, &[passed(true, true), passed(false, true)]));
        assert!(!unmarked(16, &[passed(false, false)]) && unmarked(22, &[passed(false, false), passed(false, true)]));
        assert!(!unmarked(23, &[passed(false, true)]) && !unmarked(15, &[]) && !unmarked(15, &[passed(true, true)]));
    }

    #[test]
    fn what_is_not_looked_at_may_not_be_passed() {
        let rdi = at(Location::Register(5));
        let is_read = |found: &Argument| Passed::new(found, &rdi, false).is_read;
        let doubled = |register| {
            let ops = vec![Op::Register(register), Op::Constant(1), Op::Shl];
            at(Location::Computed(Computed { slots: [ops.into_boxed_slice()].into() }))
        };
        for read in [rdi.clone(), at(Location::RegisterOffset(5, 3)), doubled(5)] {
            assert!(is_read(&read), "{read:?}");
        }
        // Of another parameter, or of none: assigned by the body.
        for other in [Err(Missing::OptimisedOut), at(Location::Register(4)), at(Location::Constant(5)), doubled(4)] {
            assert!(!is_read(&other), "{other:?}");
        }
    }

    #[test]
    fn a_parameter_in_place() {
        let is_in_place = |found: &Argument, abi: &Argument| Passed::new(found, abi, true).in_place;
        let rdi = at(Location::Register(5));
        assert!(is_in_place(&rdi, &rdi));
        assert!(!is_in_place(&at(Location::Register(4)), &rdi));
        assert!(!is_in_place(&at(Location::Constant(3)), &rdi));
        assert!(!is_in_place(&Err(Missing::OptimisedOut), &rdi));
    }

    #[test]
    fn what_was_passed_is_in_order() {
        let kept = |locations: &[Location]| {
            let mut arguments: Vec<Argument> = locations.iter().cloned().map(at).collect();
            keep_what_was_passed(Machine::X86_64, &mut arguments);
            arguments.iter().map(Argument::is_ok).collect::<Vec<bool>>()
        };
        let (rdi, rsi, rax) = (Location::Register(5), Location::Register(4), Location::Register(0));
        assert_eq!(kept(&[Location::Constant(3), rdi.clone(), rsi.clone()]), [true, true, true]);
        assert_eq!(kept(&[rdi.clone(), rdi.clone(), rsi.clone()]), [false, false, false], "the first was assigned");
        assert_eq!(kept(&[rsi.clone(), rdi.clone()]), [false, false]);
        assert_eq!(kept(&[rdi.clone(), rax]), [false, false], "nothing is passed in rax");
        assert_eq!(kept(&[Location::RegisterOffset(5, 3), rsi.clone()]), [false, true], "computed by the body");
        assert_eq!(kept(&[Location::RegisterPair(5, 4), Location::Register(1)]), [true, true]);
        assert_eq!(kept(&[rdi, rsi, Location::Memory(7, 8)]), [true, true, true]);
    }
}
