// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Who decides where the arguments of an out-of-line copy are: the calling convention, or the debug information.
//!
//! A copy that has the source's signature has its arguments where the calling convention puts them, whether the debug
//! information mentions them or not. A compiler may change the signature of a copy if it sees all of its callers. The
//! debug information describes what it made of the parameters, and the convention says nothing about the source's.
//! The first row of this table that fits a copy decides ([`Copy::signature`]):
//!
//! | copy | signature | why |
//! |---|---|---|
//! | in a language other than C | changed | its calling convention is not C's |
//! | `foo.isra.0`, `foo.constprop.0`, `foo.part.0` | changed | the name says so |
//! | a global or weak symbol with the function's own name | the source's | callers that the compiler does not see go by it |
//! | `DW_CC_nocall` | changed | the compiler says so |
//! | by GCC | the source's | GCC renames what it changes |
//! | by clang, entered through pointers alone | the source's | such callers go by the type |
//! | by clang, a parameter out of place that its version may change without a mark | changed | see [`clang`] |
//! | by another compiler, a parameter out of place | changed | nothing is known of its marks |
//! | any other | the source's | |
//!
//! *The source's signature.* The convention decides, whatever the debug information says. GCC describes a parameter
//! that its variable tracking gave up on by one expression for the whole function, without a list: the variable's home,
//! where the prologue puts the value. At the entry the value is not there yet, and fentry reads it where the caller put
//! it. Clang describes a parameter that is assigned to at once by the assigned value. The one exception is an argument
//! that clang's callers may not pass at all ([`Missing::Unread`]).
//!
//! *A changed signature.* GCC's lists are right at the entry, and so are its constants, unless clones were folded or
//! made by LTO. What is computed from other parameters is doubtful. An expression without a list is a home here, too,
//! unless the copy never writes that register, or the caller wrote that memory. An entry value is of a register in
//! which the clone may never get that parameter ([`Surroundings::is_whole`]). What clang's debug information says is
//! sorted by [`clang::keep_what_was_passed`]; what it has in memory, callers may not have filled, and in functions that
//! set up a frame on some ways alone it counts from below that.
//!
//! [`Surroundings::is_whole`]: crate::unit::arguments::Surroundings::is_whole

use crate::debug::compiler::Compiler;
use crate::unit::arguments::{Form, Found};
use crate::unit::clang::{self, Passed};
use crate::unit::doubt;
use crate::unit::outofline::Role;
use siteseer_sites::abi::ParamShape;
use siteseer_sites::location::{Argument, Located, Location, Missing, Op};
use siteseer_sites::machine::Register;
use siteseer_sites::{Doubt, Machine};

/// What is known about an out-of-line copy besides its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy<'s> {
    pub(crate) role: Role<'s>,
    /// The name of the symbol that gives it the role.
    pub(crate) symbol: &'s str,
    pub(crate) compiler: Compiler,
    /// Whether GCC made it when it linked.
    pub(crate) is_by_gcc_lto: bool,
    /// Whether it is written in C.
    pub(crate) is_c: bool,
    /// Whether a symbol with the function's own name is visible to other objects.
    pub(crate) is_global: bool,
    /// `DW_CC_nocall`.
    pub(crate) nocall: bool,
    /// Whether code calls it by name. Known only for clang's copies.
    pub(crate) is_called: bool,
}

/// Which signature a copy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    /// The source's.
    Source,
    /// Another one, or possibly another one.
    Changed,
}

impl Copy<'_> {
    /// Which signature the copy has: the table above.
    pub(crate) fn signature(&self, parameters: &[Passed]) -> Signature {
        let changed = if !self.is_c || self.role.is_changed() {
            true
        } else if self.is_global && self.role == Role::Body {
            false
        } else if self.nocall {
            true
        } else {
            match self.compiler {
                Compiler::Gcc => false,
                Compiler::Clang(version) => self.is_called && clang::may_be_unmarked(version, parameters),
                Compiler::Other => clang::may_be_unmarked(0, parameters),
            }
        };
        if changed { Signature::Changed } else { Signature::Source }
    }

    /// Whether constants may be those of another copy, or of a later assignment. GCC makes `.constprop` clones of
    /// constants that are passed; it folds such clones once they no longer look at them, and `.isra` ones, too. In a
    /// clone that is `.isra` alone a constant is what the body assigned to a parameter that was removed; a clone that
    /// GCC makes when it links may be called `.constprop` then, too. Clang's may be those of a later assignment
    /// anywhere.
    fn are_constants_doubtful(&self) -> bool {
        match self.compiler {
            Compiler::Gcc => self.is_by_gcc_lto || self.symbol.contains(".isra."),
            Compiler::Clang(_) | Compiler::Other => true,
        }
    }

    /// Whether callers may not pass an argument whole: clang leaves out stores to a structure that it passes on the
    /// stack if the body that it sees does not load them, and one of two registers if the body does not look at it.
    pub(crate) fn may_be_unfilled(&self, abi: &Argument, shape: &ParamShape, passed: &Passed) -> bool {
        let is_by_parts = match abi {
            Ok(Located { at: Location::Memory(..), .. }) => shape.composite,
            Ok(Located { at: Location::RegisterPair(..), .. }) => !passed.is_read_whole,
            _ => false,
        };
        is_by_parts && self.is_called && matches!(self.compiler, Compiler::Clang(_))
    }

    /// Whether callers may leave out an argument that the copy does not look at.
    pub(crate) fn may_be_left_out(&self, parameter: &Passed) -> bool {
        self.is_called && matches!(self.compiler, Compiler::Clang(_)) && !parameter.is_read
    }
}

/// The arguments of a copy that has the source's signature.
///
/// `abi` is what the calling convention says. If it is not known, only the debug information is left.
pub(crate) fn of_source(
    copy: &Copy<'_>,
    found: Vec<Found>,
    abi: Vec<Argument>,
    shapes: &[ParamShape],
    passed: &[Passed],
) -> Vec<Argument> {
    // A parameter without a size leaves open where the later ones are.
    let known = abi.iter().take_while(|argument| **argument != Err(Missing::NoType)).count();
    found
        .into_iter()
        .zip(abi)
        .zip(passed)
        .enumerate()
        .map(|(index, ((found, abi), passed))| match found {
            _ if copy.may_be_left_out(passed) && index < known => Err(Missing::Unread),
            _ if index < known && copy.may_be_unfilled(&abi, &shapes[index], passed) => {
                abi.map(|located| located.doubtful(Doubt::Unfilled))
            }
            _ if index < known => abi,
            Found { late: true, .. } => Err(Missing::AfterEntry),
            Found { form: Form::Expression, argument: Ok(_), .. } => Err(Missing::Home),
            Found { argument, .. } => argument,
        })
        .collect()
}

/// The arguments of a copy with a signature that is not, or may not be, the source's.
pub(crate) fn of_changed(
    copy: &Copy<'_>,
    machine: Machine,
    found: Vec<Found>,
    mut is_kept: impl FnMut(Register) -> bool,
) -> Vec<Argument> {
    let is_marked = copy.nocall || copy.role.is_changed();
    let is_by_clang = matches!(copy.compiler, Compiler::Clang(_));
    let begin_at_entry = found.iter().any(|found| found.form == Form::Covering && found.argument.is_ok());
    let mut arguments: Vec<Argument> = found
        .into_iter()
        .map(|found| match found.argument {
            // It was found after the prologue, and is not of the prologue's making: see `clang`.
            Ok(_) if is_by_clang && begin_at_entry && found.form == Form::Nothing => Err(Missing::AfterEntry),
            // A late view of an out-of-line function's entry is after something that the function did.
            Ok(_) if found.late => Err(Missing::AfterEntry),
            Ok(located) if found.form == Form::Expression && !is_at_entry(&located, machine, &mut is_kept) => {
                Err(Missing::Home)
            }
            Err(Missing::NotMentioned) if is_marked => Err(Missing::Removed),
            argument => argument,
        })
        .collect();
    if is_by_clang {
        clang::keep_what_was_passed(machine, &mut arguments);
    }
    for located in arguments.iter_mut().flatten() {
        if is_constant(&located.at) && copy.are_constants_doubtful() {
            located.doubt = Some(Doubt::Constant);
        } else if doubt::is_computed(located, machine) {
            located.doubt = Some(Doubt::Stale);
        } else if matches!((copy.compiler, &located.at), (Compiler::Clang(_), Location::Memory(..))) {
            located.doubt = Some(Doubt::Unfilled);
        }
    }
    if !is_by_clang {
        doubt_shared(&mut arguments);
    }
    arguments
}

/// Marks parameters that are in one register at the entry. The copy gets one of them there. GCC removed the other, and
/// what it says about that may be what a call in the function passes.
fn doubt_shared(arguments: &mut [Argument]) {
    let register = |argument: &Argument| match argument {
        Ok(Located { at: Location::Register(register), .. }) => Some(*register),
        _ => None,
    };
    let registers: Vec<Option<Register>> = arguments.iter().map(register).collect();
    for (argument, register) in arguments.iter_mut().zip(&registers) {
        if let Ok(located) = argument
            && register.is_some()
            && registers.iter().filter(|other| *other == register).count() > 1
        {
            located.doubt.get_or_insert(Doubt::OtherCall);
        }
    }
}

/// Whether the home of a parameter that an expression without a list tells holds its value at the entry, too: in a
/// register that the copy never writes, in what the caller left on the stack, or nowhere because it is a constant.
fn is_at_entry(home: &Located, machine: Machine, is_kept: &mut impl FnMut(Register) -> bool) -> bool {
    // The return address is below what the caller left.
    let first_left = match machine {
        Machine::X86_64 => 8,
        Machine::Aarch64 => 0,
    };
    match &home.at {
        Location::Constant(_) | Location::Address(_) => true,
        Location::Memory(base, offset) if *base == machine.stack_pointer() => *offset >= first_left,
        Location::Register(register) | Location::RegisterOffset(register, _) | Location::Memory(register, _) => {
            is_kept(*register)
        }
        Location::RegisterPair(low, high) => is_kept(*low) && is_kept(*high),
        Location::Computed(computed) => computed.slots.iter().flatten().all(|op| match op {
            Op::Register(register) => is_kept(*register),
            _ => true,
        }),
    }
}

/// Whether a value is the same in all calls of the copy.
fn is_constant(location: &Location) -> bool {
    matches!(location, Location::Constant(_) | Location::Address(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::abi::abi_arguments;

    const RDI: Location = Location::Register(5);
    const RSI: Location = Location::Register(4);
    const RBX: Location = Location::Register(3);

    fn copy(role: Role<'_>, compiler: Compiler) -> Copy<'_> {
        Copy {
            role,
            symbol: "foo",
            compiler,
            is_by_gcc_lto: false,
            is_c: true,
            is_global: false,
            nocall: false,
            is_called: true,
        }
    }

    fn found(at: Location, form: Form) -> Found {
        Found { argument: Ok(Located::certain(8, false, at)), form, usable: true, late: false }
    }

    fn places(arguments: &[Argument]) -> Vec<Result<Location, Missing>> {
        arguments.iter().map(|argument| argument.clone().map(|located| located.at)).collect()
    }

    const SCALAR: ParamShape = ParamShape::scalar(8, false);

    #[test]
    fn two_parameters_in_one_register_are_doubtful() {
        let clone = copy(Role::Clone { changed: true }, Compiler::Gcc);
        let found = [RDI, RSI, RSI].map(|at| found(at, Form::Covering)).to_vec();
        let arguments = of_changed(&clone, Machine::X86_64, found, |_| true);
        let doubts: Vec<Option<Doubt>> = arguments.iter().flatten().map(|located| located.doubt).collect();
        assert_eq!(doubts, [None, Some(Doubt::OtherCall), Some(Doubt::OtherCall)]);
    }

    #[test]
    fn the_table() {
        let moved = [Passed { is_read: false, is_read_whole: false, in_place: false, is_memory: true }];
        let in_place = [Passed { is_read: true, is_read_whole: true, in_place: true, is_memory: true }];
        let body = |compiler| copy(Role::Body, compiler);
        let (source, changed) = (Signature::Source, Signature::Changed);
        assert_eq!(Copy { is_c: false, is_global: true, ..body(Compiler::Gcc) }.signature(&in_place), changed);
        for role in [Role::Part("foo.part.0"), Role::Clone { changed: true }] {
            assert_eq!(Copy { is_global: true, ..copy(role, Compiler::Gcc) }.signature(&in_place), changed);
        }
        for compiler in [Compiler::Gcc, Compiler::Clang(14), Compiler::Other] {
            let global = Copy { is_global: true, nocall: true, ..body(compiler) };
            assert_eq!(global.signature(&moved), source, "{compiler:?}: callers elsewhere go by the source");
            assert_eq!(Copy { is_global: false, ..global }.signature(&in_place), changed, "{compiler:?}");
        }
        assert_eq!(body(Compiler::Gcc).signature(&moved), source);
        assert_eq!(body(Compiler::Clang(22)).signature(&moved), changed);
        assert_eq!(body(Compiler::Clang(22)).signature(&in_place), source);
        assert_eq!(body(Compiler::Clang(23)).signature(&moved), source, "it would be marked");
        assert_eq!(Copy { is_called: false, ..body(Compiler::Clang(14)) }.signature(&moved), source);
        assert_eq!(body(Compiler::Other).signature(&moved), changed);
        let promoted = Copy { is_global: true, ..copy(Role::Clone { changed: false }, Compiler::Clang(22)) };
        assert_eq!(promoted.signature(&moved), changed, "it was local when its callers were compiled");
    }

    #[test]
    fn the_convention_wins_over_homes() {
        let abi = abi_arguments(Machine::X86_64, &[SCALAR, SCALAR], None);
        let read = Passed { is_read: true, is_read_whole: true, in_place: true, is_memory: false };
        let homes = || vec![found(Location::Memory(7, -24), Form::Expression), found(RBX, Form::Expression)];
        let gcc = copy(Role::Body, Compiler::Gcc);
        let arguments = of_source(&gcc, homes(), abi.clone(), &[SCALAR; 2], &[read, read]);
        assert_eq!(places(&arguments), [Ok(RDI), Ok(RSI)]);
        // The first parameter has no size: where the second one is, only a list could tell.
        let unknown = vec![Err(Missing::NoType), abi[0].clone()];
        let arguments = of_source(&gcc, homes(), unknown.clone(), &[SCALAR; 2], &[read, read]);
        assert_eq!(places(&arguments), [Err(Missing::Home), Err(Missing::Home)]);
        let listed = vec![found(RDI, Form::Covering), found(RSI, Form::Covering)];
        assert_eq!(places(&of_source(&gcc, listed, unknown, &[SCALAR; 2], &[read, read])), [Ok(RDI), Ok(RSI)]);
    }

    #[test]
    fn arguments_that_clang_leaves_out() {
        let abi = abi_arguments(Machine::X86_64, &[SCALAR], None);
        let unread = [Passed { is_read: false, is_read_whole: false, in_place: false, is_memory: false }];
        let arguments = |copy: Copy<'_>| {
            let home = vec![found(Location::Constant(3), Form::Covering)];
            places(&of_source(&copy, home, abi.clone(), &[SCALAR], &unread))
        };
        let by_clang = copy(Role::Body, Compiler::Clang(22));
        assert_eq!(arguments(by_clang), [Err(Missing::Unread)]);
        assert_eq!(arguments(Copy { is_called: false, ..by_clang }), [Ok(RDI)]);
        assert_eq!(arguments(copy(Role::Body, Compiler::Gcc)), [Ok(RDI)]);
    }

    #[test]
    fn what_begins_after_the_entry_of_a_changed_function_by_clang_was_assigned() {
        let arguments = |first: Form, compiler| {
            let found = vec![found(RDI, first), found(RSI, Form::Nothing)];
            places(&of_changed(&copy(Role::Body, compiler), Machine::X86_64, found, |_| true))
        };
        let clang = Compiler::Clang(22);
        assert_eq!(arguments(Form::Covering, clang), [Ok(RDI), Err(Missing::AfterEntry)]);
        assert_eq!(arguments(Form::Nothing, clang), [Ok(RDI), Ok(RSI)], "all begin after the prologue");
        assert_eq!(arguments(Form::Covering, Compiler::Gcc), [Ok(RDI), Ok(RSI)]);
    }

    #[test]
    fn constants_of_clones_that_were_folded_or_assign_them_are_doubtful() {
        let doubt_of = |symbol, compiler, is_by_gcc_lto| {
            let copy = Copy { symbol, is_by_gcc_lto, ..copy(Role::Clone { changed: true }, compiler) };
            let found = vec![found(Location::Constant(5), Form::Covering), found(RDI, Form::Covering)];
            let arguments = of_changed(&copy, Machine::X86_64, found, |_| true);
            assert!(arguments[1].as_ref().unwrap().is_certain());
            arguments[0].as_ref().unwrap().doubt
        };
        let doubt = |symbol, compiler| doubt_of(symbol, compiler, false);
        assert_eq!(doubt("foo.constprop.0", Compiler::Gcc), None);
        assert_eq!(doubt_of("foo.constprop.0", Compiler::Gcc, true), Some(Doubt::Constant));
        assert_eq!(doubt("foo.constprop.0.isra.0", Compiler::Gcc), Some(Doubt::Constant));
        assert_eq!(doubt("foo", Compiler::Clang(22)), Some(Doubt::Constant));
    }

    #[test]
    fn structures_on_the_stack_that_callers_may_not_fill() {
        let big = ParamShape { size: 24, composite: true, ..SCALAR };
        let abi = abi_arguments(Machine::X86_64, &[big], None);
        let read = [Passed { is_read: true, is_read_whole: true, in_place: true, is_memory: true }];
        let doubt = |copy: Copy<'_>| {
            let home = vec![found(Location::Memory(7, 8), Form::Expression)];
            of_source(&copy, home, abi.clone(), &[big], &read)[0].as_ref().unwrap().doubt
        };
        let by_clang = copy(Role::Body, Compiler::Clang(22));
        assert_eq!(doubt(by_clang), Some(Doubt::Unfilled));
        assert_eq!(doubt(Copy { is_called: false, ..by_clang }), None);
        assert_eq!(doubt(copy(Role::Body, Compiler::Gcc)), None);
    }

    #[test]
    fn one_of_two_registers_that_clang_may_leave_out() {
        let abi = abi_arguments(Machine::X86_64, &[ParamShape { size: 12, composite: true, ..SCALAR }], None);
        let pair = abi[0].as_ref().unwrap().at.clone();
        assert!(matches!(pair, Location::RegisterPair(..)), "{pair:?}");
        let doubt = |copy: Copy<'_>, is_read_whole| {
            let passed = [Passed { is_read: true, is_read_whole, in_place: true, is_memory: true }];
            let found = vec![found(pair.clone(), Form::Covering)];
            of_source(&copy, found, abi.clone(), &[SCALAR], &passed)[0].as_ref().unwrap().doubt
        };
        let by_clang = copy(Role::Body, Compiler::Clang(22));
        assert_eq!(doubt(by_clang, false), Some(Doubt::Unfilled));
        assert_eq!(doubt(by_clang, true), None);
        assert_eq!(doubt(Copy { is_called: false, ..by_clang }, false), None);
        assert_eq!(doubt(copy(Role::Body, Compiler::Gcc), false), None);
    }

    #[test]
    fn homes_in_clones() {
        let clone = copy(Role::Clone { changed: true }, Compiler::Gcc);
        let arguments =
            |found: Vec<Found>| places(&of_changed(&clone, Machine::X86_64, found, |register| register == 5));
        let (listed, home) = (|at| found(at, Form::Covering), |at| found(at, Form::Expression));
        let constant = || Location::Constant(5);
        assert_eq!(arguments(vec![home(constant()), home(RDI), listed(RSI)]), [Ok(constant()), Ok(RDI), Ok(RSI)]);
        assert_eq!(arguments(vec![home(RSI), listed(RBX)]), [Err(Missing::Home), Ok(RBX)], "the copy writes rsi");
        assert_eq!(arguments(vec![home(Location::Memory(7, -24))]), [Err(Missing::Home)]);
        assert_eq!(arguments(vec![home(Location::Memory(7, 0))]), [Err(Missing::Home)], "the return address");
        assert_eq!(arguments(vec![home(Location::Memory(7, 8))]), [Ok(Location::Memory(7, 8))]);
        assert_eq!(arguments(vec![Found { late: true, ..listed(RDI) }]), [Err(Missing::AfterEntry)]);
        let gone = Found { argument: Err(Missing::NotMentioned), ..home(RDI) };
        assert_eq!(arguments(vec![gone, listed(RDI)]), [Err(Missing::Removed), Ok(RDI)]);
    }
}
