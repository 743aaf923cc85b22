// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The arguments of one site at one address.
//!
//! For each parameter of the abstract function, in order: what the copy's debug information gives for it, which part
//! of that holds at the site's entry, and where that says the value is.
//!
//! *Late views.* GCC binds a parameter just before the marker of the copy's entry, as a rule: the location list has
//! an entry that holds at `DW_AT_GNU_entry_view`. For one argument in forty it binds it just after: the list's entry
//! begins at the same address, one view later. Since every statement of the body takes a view of its own before its
//! effects can be seen, an entry that begins at entry view + 1 was bound before any statement took effect, and tells
//! the value that was passed. Two more views, and a statement's effect may be in it: refused. Statements that share
//! the entry's own place in the source (bodies that a macro wrote) take no view, so there is a second guard: if
//! any list of the same parameter, in any copy of the function, changes from one location to another between two views
//! of one address, where the machine does nothing, then the body assigns to the parameter, and its late views are
//! refused, everywhere. The same guard covers arguments that are found by moving the probe.

use crate::debug::cfi::Cursor;
use crate::debug::loclist::{self, Choice, ListEntry, Point};
use crate::debug::slice::Slice;
use crate::debug::units::DebugUnit;
use crate::debug::walk::{RawParameter, RawValue};
use crate::elf::image::Image;
use crate::lower::{self, BaseType, Environment, Meaning, ParamType};
use crate::text::FunctionText;
use crate::types;
use crate::unit::doubt;
use crate::unit::origin::{Origin, OriginParameter};
use gimli::{AttributeValue, DebugAddrIndex, Expression, Operation, UnitOffset};
use siteseer_sites::location::{Argument, Location, Missing, Op};
use siteseer_sites::machine::{Machine, Register};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// What the debug information of a copy gives for one parameter.
#[derive(Debug, Clone)]
pub(crate) enum Given<'a> {
    /// The copy does not mention the parameter.
    NotMentioned,
    /// The copy mentions it, without a value.
    Nothing,
    /// A value that cannot be read.
    Malformed,
    /// A constant.
    Constant(AttributeValue<Slice<'a>>),
    /// One expression for all addresses.
    Expression(Slice<'a>),
    /// A location list: a part of [`Gathered::entries`].
    List(Range<u32>),
}

/// What is given for each parameter of a site. The buffers are used again from site to site.
#[derive(Debug, Default)]
pub(crate) struct Gathered<'a> {
    pub(crate) given: Vec<Given<'a>>,
    /// What is given for parameters that are mentioned more than once, with their indices. GCC does that where it
    /// made a copy of the parameter for a body that was itself inlined before.
    again: Vec<(usize, Given<'a>)>,
    entries: Vec<ListEntry<'a>>,
    list: Vec<ListEntry<'a>>,
}

impl<'a> Gathered<'a> {
    /// Gathers what `raw` gives for the parameters of a function.
    ///
    /// `root` finds the abstract parameter that an entry refers to, where it does not do so directly.
    pub(crate) fn gather(
        &mut self,
        unit: &DebugUnit<'a, '_>,
        origin: &Origin<'a>,
        raw: &[RawParameter<'a>],
        mut root: impl FnMut(usize) -> Option<usize>,
    ) {
        self.given.clear();
        self.again.clear();
        self.entries.clear();
        self.given.resize(origin.parameters.len(), Given::NotMentioned);
        for parameter in raw {
            let index = origin.parameter_at(parameter.origin).or_else(|| origin.parameter_at(root(parameter.origin)?));
            let Some(index) = index else { continue };
            let value = self.read(unit, parameter.value);
            match (&self.given[index], value) {
                (Given::NotMentioned | Given::Nothing, value) => self.given[index] = value,
                (_, Given::Nothing) => {}
                (_, value) => self.again.push((index, value)),
            }
        }
        for (given, parameter) in self.given.iter_mut().zip(&origin.parameters) {
            if let (Given::NotMentioned | Given::Nothing, Some(constant)) = (&given, parameter.constant) {
                *given = Given::Constant(constant);
            }
        }
    }

    fn read(&mut self, unit: &DebugUnit<'a, '_>, value: RawValue<'a>) -> Given<'a> {
        match value {
            RawValue::Absent => Given::Nothing,
            RawValue::Malformed => Given::Malformed,
            RawValue::Constant(value) => Given::Constant(value),
            // An empty expression says that the value is nowhere.
            RawValue::Expression(expression) if expression.is_empty() => Given::Nothing,
            RawValue::Expression(expression) => Given::Expression(expression),
            RawValue::List { offset, views } => {
                let debug = unit.debug;
                if loclist::read(&debug.dwarf, &unit.unit, &debug.lists, offset, views, &mut self.list).is_err() {
                    return Given::Malformed;
                }
                let start = self.entries.len();
                self.entries.append(&mut self.list);
                match (u32::try_from(start), u32::try_from(self.entries.len())) {
                    (Ok(start), Ok(end)) => Given::List(start..end),
                    _ => Given::Malformed,
                }
            }
        }
    }

    /// The entries of a list.
    pub(crate) fn list(&self, range: &Range<u32>) -> &[ListEntry<'a>] {
        &self.entries[range.start as usize..range.end as usize]
    }

    /// Moves the bounds that lists give as later views of a function's entry to the address after its call to ftrace,
    /// because those steps are there: see [`after_fentry`](crate::text::after_fentry). The argument is to call it.
    pub(crate) fn settle(&mut self, entry: u64, after: impl FnOnce() -> Option<u64>) {
        self.settle_steps(|point| point.address == entry && point.view > 0, after);
    }

    /// Does the same for padding before a copy's entry at the head of a loop: the label of a list may come before the
    /// padding, and the steps that its views are of after it. `is_step` tells whether the line table has a later step
    /// of an address.
    pub(crate) fn settle_padding(&mut self, padding: u64, entry: u64, is_step: impl Fn(Point) -> bool) {
        let is_moved = |point: &Point| {
            point.address == padding
                && point.view > 0
                && !is_step(*point)
                && is_step(Point { address: entry, ..*point })
        };
        self.settle_steps(is_moved, || Some(entry));
    }

    fn settle_steps(&mut self, is_moved: impl Fn(&Point) -> bool, after: impl FnOnce() -> Option<u64>) {
        if !self.entries.iter().any(|entry| is_moved(&entry.begin) || is_moved(&entry.end)) {
            return;
        }
        let Some(after) = after() else { return };
        for entry in &mut self.entries {
            for point in [&mut entry.begin, &mut entry.end] {
                if is_moved(point) {
                    point.address = after;
                }
            }
        }
    }

    /// The parameters with a list that goes from one constant to another: in a copy with one entry, the body assigns to
    /// them.
    pub(crate) fn changing(&self, encoding: gimli::Encoding) -> impl Iterator<Item = usize> + '_ {
        self.with_lists(move |list| doubt::changes_constant(list, encoding))
    }

    /// The parameters with a list that goes from something else to a constant.
    pub(crate) fn becoming_constant(&self, encoding: gimli::Encoding) -> impl Iterator<Item = usize> + '_ {
        self.with_lists(move |list| doubt::becomes_constant(list, encoding))
    }

    /// The parameters with a list that changes between two views of one address: the body assigns to them.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = usize> + '_ {
        self.with_lists(changes_in_place)
    }

    /// The parameters with a list that ends between two views of one address, where the machine does nothing.
    pub(crate) fn lost(&self) -> impl Iterator<Item = usize> + '_ {
        self.with_lists(ends_in_place)
    }

    /// The parameters with such a list.
    fn with_lists(&self, is_such: impl Fn(&[ListEntry<'a>]) -> bool) -> impl Iterator<Item = usize> {
        self.given.iter().enumerate().filter_map(move |(index, given)| {
            let Given::List(range) = given else { return None };
            is_such(self.list(range)).then_some(index)
        })
    }
}

/// Whether a list goes from one location to another between two views of an address.
fn changes_in_place(list: &[ListEntry<'_>]) -> bool {
    list.windows(2).any(|pair| {
        let (before, after) = (&pair[0], &pair[1]);
        // The first holds at the address, at an earlier view, and not only up to it.
        before.end == after.begin
            && (before.end.view > 0 || before.begin.address == before.end.address)
            && !before.is_empty()
            && !after.is_empty()
            && before.expression != after.expression
    })
}

/// Whether a list goes from a location to none between two views of an address.
fn ends_in_place(list: &[ListEntry<'_>]) -> bool {
    let goes_on = |end: Point| list.iter().any(|entry| entry.begin == end && !entry.is_empty());
    list.iter().any(|entry| !entry.is_empty() && entry.end.view > 0 && !goes_on(entry.end))
}

/// How the debug information gives a value, as far as trust in it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// Not at all.
    #[default]
    Nothing,
    /// `DW_AT_const_value`.
    Constant,
    /// One expression for all addresses.
    Expression,
    /// An entry of a location list that covers the address, whatever the view.
    Covering,
    /// An entry of zero width at the address, or one that holds at the site's view alone.
    View,
    /// From the value that a register held when the enclosing function was entered.
    EntryValue,
}

impl Form {
    /// Its name: see [`Observed::forms`](crate::Observed::forms).
    pub(crate) fn word(self) -> &'static str {
        match self {
            Form::Nothing => "nothing",
            Form::Constant => "constant",
            Form::Expression => "expression",
            Form::Covering => "list",
            Form::View => "view",
            Form::EntryValue => "entry value",
        }
    }
}

/// What was found for one argument.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) argument: Argument,
    /// How the debug information gives it.
    pub(crate) form: Form,
    /// Whether the debug information has any location for it at the site's entry, as the census counts: a covering
    /// or holding entry, an expression or a constant; not an entry value, an implicit pointer or an empty expression.
    pub(crate) usable: bool,
    /// Whether the location begins after the entry view.
    pub(crate) late: bool,
}

impl Found {
    fn missing(reason: Missing) -> Found {
        Found { argument: Err(reason), form: Form::Nothing, usable: false, late: false }
    }

    /// What two mentions of a parameter say together: what holds at the entry view counts more than what begins
    /// after it, and where two that count the same disagree, neither does.
    fn or(self, other: Found) -> Found {
        let usable = self.usable || other.usable;
        let argument = match (&self.argument, &other.argument) {
            (Ok(one), Ok(other_one)) if self.late == other.late => {
                if one == other_one {
                    self.argument
                } else {
                    Err(Missing::AfterEntry)
                }
            }
            (Ok(_), Ok(_)) => return Found { usable, ..if self.late { other } else { self } },
            (Err(_), Ok(_)) => return Found { usable, ..other },
            (_, Err(_)) => return Found { usable, ..self },
        };
        Found { late: self.late && argument.is_ok(), argument, usable, form: self.form }
    }
}

/// Where a function's text and frame are: what expressions need beside the address.
pub(crate) struct Surroundings<'x, 'a, 'd> {
    pub(crate) image: &'x Image<'a>,
    pub(crate) unit: &'x DebugUnit<'a, 'd>,
    pub(crate) frames: &'x RefCell<Cursor<'d, 'a>>,
    pub(crate) frame_base: Option<Slice<'a>>,
    pub(crate) text: Option<&'x FunctionText<'d, 'a>>,
    /// Where the enclosing out-of-line function is entered.
    pub(crate) entry: u64,
    /// Whether it is entered with the source's arguments where the calling convention puts them. A copy with a changed
    /// signature may never get a parameter in the register that an entry value names.
    pub(crate) is_whole: bool,
}

/// The surroundings, at one address.
pub(crate) struct At<'s, 'a, 'd> {
    pub(crate) surroundings: &'s Surroundings<'s, 'a, 'd>,
    pub(crate) address: u64,
    cfa: Cell<Option<Result<(Register, i64), Missing>>>,
}

impl<'s, 'a, 'd> At<'s, 'a, 'd> {
    pub(crate) fn new(surroundings: &'s Surroundings<'s, 'a, 'd>, address: u64) -> Self {
        At { surroundings, address, cfa: Cell::new(None) }
    }

    /// Finds one argument at the entry of a site, at the given view.
    pub(crate) fn find(
        &self,
        gathered: &Gathered<'a>,
        index: usize,
        parameter: &OriginParameter<'a>,
        view: u32,
    ) -> Found {
        let found = self.find_given(gathered, &gathered.given[index], parameter, view);
        gathered
            .again
            .iter()
            .filter(|(again, _)| *again == index)
            .fold(found, |found, (_, given)| found.or(self.find_given(gathered, given, parameter, view)))
    }

    fn find_given(
        &self,
        gathered: &Gathered<'a>,
        given: &Given<'a>,
        parameter: &OriginParameter<'a>,
        view: u32,
    ) -> Found {
        let (expression, form) = match given {
            Given::NotMentioned => return Found::missing(Missing::NotMentioned),
            Given::Nothing => return Found::missing(Missing::OptimisedOut),
            Given::Malformed => return Found::missing(Missing::Malformed),
            Given::Constant(value) => {
                let argument = parameter
                    .ty
                    .as_ref()
                    .map_err(|missing| *missing)
                    .and_then(|ty| lower::lower_const(value, ty, self));
                return Found { argument, form: Form::Constant, usable: true, late: false };
            }
            Given::Expression(expression) => (*expression, Form::Expression),
            Given::List(range) => {
                let list = gathered.list(range);
                let point = Point { address: self.address, view };
                match loclist::choose(list, point) {
                    Choice::Nothing => return Found::missing(Missing::NotAtEntry),
                    Choice::Holds(entry) => (list[entry].expression, form_of(&list[entry], self.address)),
                    Choice::Late(entry) => {
                        let form = form_of(&list[entry], self.address);
                        let usable = list[entry].covers(self.address) && is_direct(list[entry].expression, self);
                        if list[entry].begin.view != view.saturating_add(1) {
                            return Found { argument: Err(Missing::AfterEntry), form, usable, late: false };
                        }
                        let argument = self.lower(list[entry].expression, parameter);
                        return Found { late: argument.is_ok(), argument, form, usable };
                    }
                }
            }
        };
        if expression.is_empty() {
            return Found::missing(Missing::Empty);
        }
        let argument = self.lower(expression, parameter);
        let usable = is_direct(expression, self);
        Found { argument, form: if usable { form } else { Form::EntryValue }, usable, late: false }
    }

    /// A frame base in a register, plus an offset. Clang writes them; they hold once the function has set up its frame.
    fn in_frame(&self, register: Register, offset: i64) -> Result<(Register, i64), Missing> {
        let frame = self.surroundings.frames.borrow_mut().frame_at(self.address, register).ok_or(Missing::NoFrame)?;
        let offset = frame.offset.checked_add(offset).ok_or(Missing::NoFrame)?;
        Ok((frame.register, offset))
    }

    /// Lowers an expression for a parameter.
    pub(crate) fn lower(&self, expression: Slice<'a>, parameter: &OriginParameter<'a>) -> Argument {
        let ty: &ParamType = parameter.ty.as_ref().map_err(|missing| *missing)?;
        let argument = lower::lower(Expression(expression), self.surroundings.unit.unit.encoding(), ty, self);
        match &argument {
            Ok(located) if ty.is_composite && is_zero(&located.at) && self.surroundings.unit.clang().is_some() => {
                Err(Missing::Cleared)
            }
            _ => argument,
        }
    }
}

/// The form of an entry of a list, at an address.
fn form_of(entry: &ListEntry<'_>, address: u64) -> Form {
    if entry.covers(address) { Form::Covering } else { Form::View }
}

/// Whether all that is known of a value is that it is zero.
fn is_zero(location: &Location) -> bool {
    match location {
        Location::Constant(value) => *value == 0,
        Location::Computed(computed) => computed.slots.iter().all(|program| program[..] == [Op::Constant(0)]),
        _ => false,
    }
}

/// What the rest of a frame base's expression adds to the register and offset that it begins with: clang counts from
/// below the CFA where it lets the stack pointer stand for the frame.
fn constant_after(mut operations: gimli::OperationIter<Slice<'_>>) -> Option<i64> {
    let mut sum = 0i64;
    while let Some(operation) = operations.next().ok()? {
        let added = match operation {
            Operation::PlusConstant { value } => i64::try_from(value).ok()?,
            constant @ (Operation::SignedConstant { .. } | Operation::UnsignedConstant { .. }) => {
                let value = match constant {
                    Operation::SignedConstant { value } => value,
                    Operation::UnsignedConstant { value } => i64::try_from(value).ok()?,
                    _ => return None,
                };
                match operations.next().ok()?? {
                    Operation::Plus => value,
                    Operation::Minus => value.checked_neg()?,
                    _ => return None,
                }
            }
            _ => return None,
        };
        sum = sum.checked_add(added)?;
    }
    Some(sum)
}

/// Whether an expression has no entry value or implicit pointer in it.
fn is_direct(expression: Slice<'_>, at: &At<'_, '_, '_>) -> bool {
    // Their opcodes: DW_OP_implicit_pointer, DW_OP_entry_value, and the GNU forms of both. Few expressions have such
    // a byte at all.
    const OPCODES: [u8; 4] = [0xa0, 0xa3, 0xf2, 0xf3];
    if !expression.slice().iter().any(|byte| OPCODES.contains(byte)) {
        return true;
    }
    let mut operations = Expression(expression).operations(at.surroundings.unit.unit.encoding());
    loop {
        match operations.next() {
            Ok(Some(Operation::EntryValue { .. } | Operation::ImplicitPointer { .. })) => return false,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return true,
        }
    }
}

impl Environment for At<'_, '_, '_> {
    fn machine(&self) -> Machine {
        self.surroundings.image.machine()
    }

    fn frame_base(&self) -> Result<(Register, i64), Missing> {
        let expression = self.surroundings.frame_base.ok_or(Missing::NoFrame)?;
        let mut operations = Expression(expression).operations(self.surroundings.unit.unit.encoding());
        let base = match operations.next() {
            Ok(Some(Operation::CallFrameCFA)) => self.cfa()?,
            Ok(Some(Operation::Register { register })) => self.in_frame(register.0, 0)?,
            Ok(Some(Operation::RegisterOffset { register, offset, .. })) => self.in_frame(register.0, offset)?,
            _ => return Err(Missing::NoFrame),
        };
        let offset = constant_after(operations).ok_or(Missing::NoFrame)?;
        Ok((base.0, base.1.checked_add(offset).ok_or(Missing::NoFrame)?))
    }

    fn cfa(&self) -> Result<(Register, i64), Missing> {
        if let Some(cfa) = self.cfa.get() {
            return cfa;
        }
        let cfa = self
            .surroundings
            .frames
            .borrow_mut()
            .cfa_at(self.address)
            .map(|cfa| (cfa.register, cfa.offset))
            .ok_or(Missing::NoFrame);
        self.cfa.set(Some(cfa));
        cfa
    }

    fn base_type(&self, offset: UnitOffset) -> Option<BaseType> {
        let unit = self.surroundings.unit;
        types::base_type(&unit.debug.dwarf, &unit.unit, offset)
    }

    fn address(&self, index: DebugAddrIndex) -> Option<u64> {
        self.surroundings.unit.debug.dwarf.address(&self.surroundings.unit.unit, index).ok()
    }

    fn entry_value(&self, register: Register) -> Option<Register> {
        if !self.surroundings.is_whole {
            return None;
        }
        if self.address == self.surroundings.entry {
            return Some(register);
        }
        let text = self.surroundings.text?;
        text.prefix_preserves(self.surroundings.entry, self.address, register).then_some(register)
    }

    fn meaning(&self, address: u64) -> Meaning {
        let image = self.surroundings.image;
        if image.loaded().contains(&address) && !image.is_per_cpu(address) {
            Meaning::Image
        } else if image.is_relocatable() {
            // A symbol that the module imports, or one without a section, such as a checksum.
            Meaning::Elsewhere
        } else {
            Meaning::Absolute
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::{Computed, Located};

    #[test]
    fn structures_of_zeros() {
        let computed = |slots: &[&[Op]]| {
            Location::Computed(Computed { slots: slots.iter().map(|program| (*program).into()).collect() })
        };
        let zero: &[Op] = &[Op::Constant(0)];
        assert!(is_zero(&Location::Constant(0)) && is_zero(&computed(&[zero, zero])));
        assert!(!is_zero(&Location::Constant(1)) && !is_zero(&computed(&[zero, &[Op::Register(5)]])));
        assert!(!is_zero(&Location::Register(0)));
    }

    #[test]
    fn a_frame_base_may_be_off_by_a_constant() {
        let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let after = |bytes: &'static [u8]| {
            constant_after(Expression(Slice::new(bytes, gimli::LittleEndian)).operations(encoding))
        };
        assert_eq!(after(&[]), Some(0));
        // consts -128, plus; plus_uconst 8; lit16, minus
        assert_eq!(after(&[0x11, 0x80, 0x7f, 0x22]), Some(-128));
        assert_eq!(after(&[0x23, 8, 0x40, 0x1c]), Some(-8));
        for other in [&[0x11, 0x80, 0x7f][..], &[0x11, 0x80, 0x7f, 0x1e], &[0x06], &[0x22], &[0x23]] {
            assert_eq!(after(other), None, "{other:x?}");
        }
    }

    #[test]
    fn lists_that_end_where_the_machine_does_nothing() {
        let entry = |begin: (u64, u32), end: (u64, u32)| ListEntry {
            begin: Point { address: begin.0, view: begin.1 },
            end: Point { address: end.0, view: end.1 },
            expression: Slice::new(&[0x54], gimli::LittleEndian),
        };
        assert!(ends_in_place(&[entry((0, 0), (0, 1))]));
        assert!(ends_in_place(&[entry((0, 0), (4, 2)), entry((8, 0), (12, 0))]), "it goes on elsewhere");
        assert!(!ends_in_place(&[entry((0, 0), (0, 1)), entry((0, 1), (8, 0))]), "it goes on");
        assert!(!ends_in_place(&[entry((0, 0), (8, 0))]), "the machine may have written the register");
    }

    fn found(register: Result<Register, Missing>, late: bool) -> Found {
        let argument = register.map(|register| Located::certain(8, false, Location::Register(register)));
        Found { argument, form: Form::Covering, usable: late, late }
    }

    #[test]
    fn what_holds_at_the_entry_view_wins_over_what_begins_later() {
        let (early, late) = (found(Ok(5), false), found(Ok(3), true));
        for found in [early.clone().or(late.clone()), late.clone().or(early.clone())] {
            assert_eq!((found.argument, found.late, found.usable), (early.argument.clone(), false, true));
        }
        let missing = found(Err(Missing::OptimisedOut), false);
        assert_eq!(missing.clone().or(late.clone()).argument, late.argument);
        assert_eq!(late.clone().or(missing).argument, late.argument);
    }

    #[test]
    fn mentions_that_disagree_cancel_each_other() {
        assert_eq!(found(Ok(5), false).or(found(Ok(3), false)).argument, Err(Missing::AfterEntry));
        let both_late = found(Ok(5), true).or(found(Ok(3), true));
        assert_eq!((both_late.argument, both_late.late), (Err(Missing::AfterEntry), false));
        assert!(found(Ok(5), false).or(found(Ok(5), false)).argument.is_ok());
    }

    fn entry(begin: (u64, u32), end: (u64, u32), expression: &'static [u8]) -> ListEntry<'static> {
        ListEntry {
            begin: Point { address: begin.0, view: begin.1 },
            end: Point { address: end.0, view: end.1 },
            expression: Slice::new(expression, gimli::LittleEndian),
        }
    }

    #[test]
    fn steps_after_padding_are_at_the_entry() {
        // The padding is at 0x1c, the entry at 0x20. The line table has one row of 0x1c, and four of 0x20.
        let is_step = |point: Point| point.address == 0x20 && (1..4).contains(&point.view);
        let entries = vec![
            entry((0x1c, 1), (0x1c, 3), &[0x33]),
            entry((0x1c, 3), (0x24, 1), &[0x34]),
            entry((0x1c, 0), (0x1c, 9), &[0x35]),
        ];
        let mut gathered = Gathered { entries, ..Gathered::default() };
        gathered.settle_padding(0x1c, 0x20, is_step);
        let bounds: Vec<_> = gathered
            .entries
            .iter()
            .map(|entry| ((entry.begin.address, entry.begin.view), (entry.end.address, entry.end.view)))
            .collect();
        assert_eq!(bounds[..2], [((0x20, 1), (0x20, 3)), ((0x20, 3), (0x24, 1))]);
        assert_eq!(bounds[2], ((0x1c, 0), (0x1c, 9)), "no step of either address");
    }

    #[test]
    fn a_change_where_no_instruction_runs_is_an_assignment() {
        // n is rdi, then rdi * 4, at one address.
        assert!(changes_in_place(&[entry((8, 0), (8, 2), &[0x55]), entry((8, 2), (12, 0), &[0x50])]));
        assert!(changes_in_place(&[entry((4, 0), (8, 2), &[0x55]), entry((8, 2), (12, 0), &[0x50])]));
        // The first ends where an instruction ends that may have moved the value.
        assert!(!changes_in_place(&[entry((4, 0), (8, 0), &[0x55]), entry((8, 0), (12, 0), &[0x50])]));
        // The same location again, or a gap.
        assert!(!changes_in_place(&[entry((8, 0), (8, 2), &[0x55]), entry((8, 2), (12, 0), &[0x55])]));
        assert!(!changes_in_place(&[entry((8, 0), (8, 2), &[0x55]), entry((8, 3), (12, 0), &[0x50])]));
    }
}
