// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where the probe of an inlined copy goes.
//!
//! *The entry.* GCC says where a copy is entered: by a marker in the line table for each entry (see `markers`), and by
//! `DW_AT_entry_pc` for the first. For two copies in a hundred it does not; clang never does. There the text is asked
//! where control comes into the copy's ranges from outside. If there is one answer, it is the entry. If there are
//! several, the entry is the one from which the copy leads to the others, if there is such a one: the others are mostly
//! ends that other code shares. Else the copy's low address is taken if it is one of them, and the site is marked as
//! uncertain. Instructions that only compute may have been moved up from there, before what the caller does, or out of
//! a loop of the caller's: then the entry is where the copy goes on after that.
//!
//! *A copy without instructions* at its entry (all of it, or its beginning, was folded into what is around it) still
//! has an address: of an instruction that is not the copy's. A probe there is hit when control comes to that
//! instruction. If it can come both by a branch and from the instruction before, one of the two may not be by way of
//! the copy: such a site is marked in the same way.
//!
//! *A branch of the caller's* comes after a marker if the compiler tried to do without the branch, or moved up before
//! it what the body computes first. What the body does first, on one way of the branch alone, is where the copy is
//! entered. If that way does not begin with it, the site stays where the marker is, and is marked as uncertain. If the
//! branch leads to another marker of the copy, the copy is entered on the other way.
//!
//! *A body that was moved up* leaves its marker where it was: two branches that begin with the same are made to do this
//! before they part. If nothing that can be seen is left of the body there, it is entered where it does this. But if
//! both branches begin with a call of the function, and both markers are left, each call passes its own. And if the way
//! from one marker joins that from another before the body does anything more, the call is counted at the other.
//!
//! *Padding* that aligns the head of a loop belongs to the copy in clang's debug information, if the loop begins with
//! the copy. A loop around the copy comes back to the instruction after it, which is the entry then.
//!
//! *Moving.* Clang, and sometimes GCC, locates an argument only a few instructions into the copy, after those that
//! compute it. The probe may then move forward, inside the basic block, if no instruction that it passes stores to
//! memory or may leave the block, and if no statement of the body begins there: the statement may assign to the
//! parameter. What was located at the entry must still be where it was; and what is gained must be the parameter's
//! first location in the block, since a later one may be what the body made of it.
//!
//! *A probe that would be refused* there is placed elsewhere: see `rescue`.
//!
//! *After a first branch.* A body that begins with `if (!size) return` is a branch on zero from its first instruction
//! on. Clang often locates `size` only after this branch, where it is needed: in the register that the branch is on. It
//! was there at the entry too, on both ways. If the register is not zero, the debug information says so, and the branch
//! changes nothing. If it is zero, so is the parameter, because the body's branch asks for that. This is wrong if the
//! body asks about something else that is in the same register, so all other arguments must be known, and be elsewhere.

use crate::debug::loclist::{ListEntry, Point};
use crate::text::probeable::Prober;
use crate::text::{FunctionText, RegisterSet};
use crate::unit::arguments::{At, Found, Gathered, Given, Surroundings};
use crate::unit::origin::Origin;
use siteseer_sites::location::{Located, Location, Missing, Op};
use std::ops::Range;

/// Where a copy is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) address: u64,
    /// The step of the source at which arguments are looked up.
    pub(crate) view: u32,
    /// Whether calls may be missed there, or hits be none.
    pub(crate) uncertain: bool,
    /// Whether it was found by the body's first statement: see `repeats`.
    pub(crate) by_statement: bool,
    /// Whether it was found from what the body does first. What the debug information says there may be about the call
    /// before.
    pub(crate) by_act: bool,
}

impl Entry {
    fn at(address: u64, view: u32) -> Entry {
        Entry { address, view, uncertain: false, by_statement: false, by_act: false }
    }
}

/// An entry where the body's first statement begins again.
pub(crate) fn by_statement(address: u64) -> Entry {
    by_row(Point { address, view: 0 })
}

/// An entry of GCC's where what the body does first is done again.
pub(crate) fn by_act(address: u64) -> Entry {
    Entry { by_act: true, ..by_statement(address) }
}

/// The same, where the step of the source is known.
pub(crate) fn by_row(point: Point) -> Entry {
    Entry { by_statement: true, ..Entry::at(point.address, point.view) }
}

/// An entry that the debug information gives, by a marker or `DW_AT_entry_pc`. `is_shared` tells whether what the body
/// does first is also of a call on another way, with an entry of its own.
pub(crate) fn given(
    point: Point,
    body: &[Range<u64>],
    text: &FunctionText<'_, '_>,
    is_shared: impl Fn(u64) -> bool,
) -> Entry {
    let moved_up = || text.moved_before(point.address, body).filter(|moved| !is_shared(moved.act));
    match text.after_branch(point.address, body).or_else(|| moved_up().map(|moved| moved.begin)) {
        Some(address) => Entry::at(address, 0),
        None => {
            let uncertain = is_beside(point.address, body, text);
            Entry { uncertain, ..Entry::at(point.address, point.view) }
        }
    }
}

/// An entry that a marker gives, if the branch after the marker leads to another marker of the copy.
pub(crate) fn given_of_several(
    point: Point,
    mut others: impl Iterator<Item = u64>,
    body: &[Range<u64>],
    text: &FunctionText<'_, '_>,
) -> Option<Entry> {
    others.find_map(|other| text.after_branch_to(other, point.address, body)).map(|begin| Entry::at(begin, 0))
}

/// Whether an address is not the body's, and control may come there without the body: in one of two ways, or because
/// the test of a loop around the body comes after it, or a branch that leads past the body.
fn is_beside(address: u64, body: &[Range<u64>], text: &FunctionText<'_, '_>) -> bool {
    !body.iter().any(|range| range.contains(&address))
        && (text.has_two_ways_in(address) || text.loops_back_from(address, body) || text.leads_past(address, body))
}

/// Finds where a copy without a marker is entered; `entry` is `DW_AT_entry_pc`, `view` the step of the source there,
/// and `is_shared` as for [`given`].
///
/// Clang moves instructions of a copy up past branches and calls. GCC moves loads up past branches: then it is not
/// known whether the copy begins with them.
pub(crate) fn find(
    entry: Option<u64>,
    view: u32,
    is_by_clang: bool,
    body: &[Range<u64>],
    text: &FunctionText<'_, '_>,
    is_shared: impl Fn(u64) -> bool,
) -> Option<Entry> {
    let at = |address, uncertain| Entry { uncertain, ..Entry::at(address, view) };
    if body.iter().all(Range::is_empty) {
        let address = entry.or(body.first().map(|range| range.start))?;
        return Some(at(address, is_beside(address, &[], text)));
    }
    if let Some(address) = entry {
        return Some(given(Point { address, view }, body, text, is_shared));
    }
    let parts = parts(body, text);
    let low = parts[0].start;
    let entries = text.entries(&parts);
    let (address, uncertain) = match entries[..] {
        [] => (low, parts.len() > 1),
        [address] => (address, false),
        _ if let Some(address) = text.principal(&entries, &parts) => (address, false),
        [address, ..] => (if entries.contains(&low) { low } else { address }, true),
    };
    let past_branches = || if is_by_clang { text.past_branches(address, body) } else { None };
    if let Some(address) = text.past_others(address, body).or_else(past_branches) {
        return Some(at(address, uncertain));
    }
    Some(at(address, uncertain || !is_by_clang && text.computes_before_branch(address, body)))
}

/// The ranges of a copy that have instructions, without the padding that it may begin with.
fn parts(body: &[Range<u64>], text: &FunctionText<'_, '_>) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = body.iter().filter(|range| !range.is_empty()).cloned().collect();
    if let (Some(first), Some(head)) = (parts.first_mut(), text.past_padding(body)) {
        first.start = head;
    }
    parts
}

/// Where control comes into a copy from outside: what [`find`] chooses from.
pub(crate) fn ways_in(body: &[Range<u64>], text: &FunctionText<'_, '_>) -> Vec<u64> {
    text.entries(&parts(body, text))
}

/// Where a probe moves from.
pub(crate) struct Start<F> {
    pub(crate) address: u64,
    /// Finds the next statement of the body.
    pub(crate) next_statement: F,
}

/// A better place for the probe, and what is located there.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) address: u64,
    /// By parameter, what is gained.
    pub(crate) gained: Vec<(usize, Located)>,
}

/// Looks for a place in the entry's block where more arguments are located than at the entry.
pub(crate) fn move_probe<'a>(
    surroundings: &Surroundings<'_, 'a, '_>,
    prober: &mut Prober<'_, '_>,
    entry: Start<impl FnOnce() -> Option<u64>>,
    origin: &Origin<'a>,
    gathered: &Gathered<'a>,
    found: &[Found],
) -> Option<Moved> {
    let text = surroundings.text?;
    let first: Vec<(usize, ListEntry<'a>)> = found
        .iter()
        .enumerate()
        .filter(|(_, found)| found.argument == Err(Missing::NotAtEntry))
        .filter_map(|(index, _)| match &gathered.given[index] {
            Given::List(range) => Some((index, first_after(gathered.list(range), entry.address)?)),
            _ => None,
        })
        .collect();
    let nearest = first.iter().map(|(_, entry)| entry.begin.address).min()?;
    let farthest = entry.address.saturating_add(u64::from(u8::MAX));
    if nearest > farthest {
        return None;
    }
    let needed =
        found.iter().filter_map(|found| found.argument.as_ref().ok()).fold(RegisterSet::default(), registers_of);
    let end = (entry.next_statement)().unwrap_or(u64::MAX);
    if nearest > end {
        return None;
    }
    let entry_is_refused = prober.check(text, entry.address).is_some();
    let mut written = RegisterSet::default();
    let mut best: Option<Moved> = None;
    for step in text.walk_block(entry.address) {
        if step.ends || step.stores {
            break;
        }
        written = written.union(step.writes);
        if written.meets(needed) || step.next > farthest.min(end) {
            break;
        }
        if step.next < nearest {
            continue;
        }
        let at = At::new(surroundings, step.next);
        let gained: Vec<(usize, Located)> = first
            .iter()
            .filter(|(_, entry)| holds_somewhere_at(entry, step.next))
            .filter_map(|(index, entry)| Some((*index, at.lower(entry.expression, &origin.parameters[*index]).ok()?)))
            .collect();
        if gained.len() > best.as_ref().map_or(0, |best| best.gained.len())
            && (entry_is_refused || prober.check(text, step.next).is_none())
        {
            best = Some(Moved { address: step.next, gained });
        }
    }
    best
}

/// Takes away what a list does not say for certain at an entry that was found by the body's first statement: an entry
/// of the list that began before may be the value of the call before. So may a constant for all calls, if these are not
/// known from their statements.
pub(crate) fn keep_own(found: &mut [Found], gathered: &Gathered<'_>, entry: &Entry) {
    for (found, given) in found.iter_mut().zip(&gathered.given) {
        let is_constant =
            matches!(&found.argument, Ok(Located { at: Location::Constant(_) | Location::Address(_), .. }));
        let is_for_all = |begins: bool| begins && !(entry.by_act && is_constant);
        let is_own = match given {
            Given::List(range) => {
                let list = gathered.list(range);
                let begins = |part: &ListEntry<'_>| part.begin.address == entry.address && !part.is_empty();
                list.iter().any(begins) || is_for_all(list.len() == 1)
            }
            _ => is_for_all(true),
        };
        if !is_own && found.argument.is_ok() {
            found.argument = Err(Missing::NotAtEntry);
            found.late = false;
        }
    }
}

/// Finds the argument that the body's first branch is on, if it is located only after that branch. Returns its index
/// and its location, which holds at the entry too.
pub(crate) fn after_branch<'a>(
    surroundings: &Surroundings<'_, 'a, '_>,
    text: &FunctionText<'_, '_>,
    entry: Entry,
    body: &[Range<u64>],
    origin: &Origin<'a>,
    gathered: &Gathered<'a>,
    found: &[Found],
) -> Option<(usize, Located)> {
    let mut missing = found.iter().enumerate().filter(|(_, found)| found.argument.is_err());
    let (index, Found { argument: Err(Missing::NotAtEntry), .. }) = missing.next()? else { return None };
    let Given::List(range) = &gathered.given[index] else { return None };
    if missing.next().is_some() || entry.uncertain || !body.iter().any(|range| range.contains(&entry.address)) {
        return None;
    }
    let branch = text.zero_branch(entry.address)?;
    let first = gathered.list(range).iter().filter(|entry| !entry.is_empty()).min_by_key(|entry| entry.begin)?;
    if first.begin.address != branch.not_zero || first.begin.view != 0 {
        return None;
    }
    let at = At::new(surroundings, branch.not_zero);
    let located = at.lower(first.expression, &origin.parameters[index]).ok()?;
    let others =
        found.iter().filter_map(|found| found.argument.as_ref().ok()).fold(RegisterSet::default(), registers_of);
    let is_tested = located.at == Location::Register(branch.register) && located.size == u32::from(branch.size);
    (is_tested && !others.contains(branch.register)).then_some((index, located))
}

/// The entry of a list that begins first after an address, if it says anything.
pub(crate) fn first_after<'a>(list: &[ListEntry<'a>], address: u64) -> Option<ListEntry<'a>> {
    list.iter()
        .filter(|entry| entry.begin.address > address)
        .min_by_key(|entry| entry.begin)
        .copied()
        .filter(|entry| !entry.is_empty())
}

/// Whether an entry holds at an address, at whichever view.
fn holds_somewhere_at(entry: &ListEntry<'_>, address: u64) -> bool {
    entry.covers(address) || (entry.begin.address == address && entry.begin < entry.end)
}

/// Adds the registers that a location is computed from.
pub(crate) fn registers_of(mut set: RegisterSet, located: &Located) -> RegisterSet {
    match &located.at {
        Location::Constant(_) | Location::Address(_) => {}
        Location::Register(a) | Location::RegisterOffset(a, _) | Location::Memory(a, _) => set.insert(*a),
        Location::RegisterPair(a, b) => {
            set.insert(*a);
            set.insert(*b);
        }
        Location::Computed(computed) => {
            for op in computed.slots.iter().flatten() {
                if let Op::Register(register) = op {
                    set.insert(*register);
                }
            }
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debug::slice::Slice;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;
    use siteseer_sites::location::Computed;
    use std::slice;

    fn entry(begin: (u64, u32), end: (u64, u32), expression: &'static [u8]) -> ListEntry<'static> {
        ListEntry {
            begin: Point { address: begin.0, view: begin.1 },
            end: Point { address: end.0, view: end.1 },
            expression: Slice::new(expression, gimli::LittleEndian),
        }
    }

    #[test]
    fn without_a_marker_what_was_moved_up_is_not_the_entry() {
        // 0: mov $3,%ecx; 5: mov %eax,(%rdi); 7: div %ecx; 9: mov %edx,(%rsi); 11: ret. The store at 5 is the caller's.
        let code = [0xb9, 3, 0, 0, 0, 0x89, 0x07, 0xf7, 0xf1, 0x89, 0x16, 0xc3];
        x86(&code, |text| {
            let body = [TEXT..TEXT + 5, TEXT + 7..TEXT + 11];
            let find = |given, body: &[Range<u64>]| find(given, 0, true, body, text, |_| false).unwrap().address - TEXT;
            assert_eq!(find(None, &body), 7);
            assert_eq!(find(Some(TEXT), &body), 0, "the debug entry says so");
            assert_eq!(find(None, slice::from_ref(&(TEXT..TEXT + 11))), 0, "the store is the body's");
        });
    }

    #[test]
    fn a_marker_that_the_body_left_behind_is_not_the_entry() {
        // 0: movl $5,(%rdi); 6: test %esi,%esi; 8: je 12; 10: mov %esi,%eax; 12: ret
        let code = [0xc7, 0x07, 5, 0, 0, 0, 0x85, 0xf6, 0x74, 0x02, 0x89, 0xf0, 0xc3];
        x86(&code, |text| {
            let body = [TEXT..TEXT + 6, TEXT + 10..TEXT + 10];
            let given = |is_shared| given(Point { address: TEXT + 10, view: 3 }, &body, text, |_| is_shared);
            let of = |entry: Entry| (entry.address, entry.view, entry.uncertain);
            assert_eq!(of(given(false)), (TEXT, 0, false));
            assert_eq!(of(given(true)), (TEXT + 10, 3, false), "another call left its own there");
        });
    }

    // Proves S2.5.
    #[test]
    fn the_first_binding_is_the_first_by_address() {
        let list = [entry((0x30, 0), (0x40, 0), &[0x51]), entry((0x14, 0), (0x20, 0), &[0x50])];
        assert_eq!(first_after(&list, 0x10).unwrap().begin.address, 0x14);
        assert_eq!(first_after(&list, 0x14).unwrap().begin.address, 0x30);
        assert!(first_after(&list, 0x30).is_none());
        let vanished = [entry((0x14, 0), (0x20, 0), &[]), entry((0x20, 0), (0x30, 0), &[0x50])];
        assert!(first_after(&vanished, 0x10).is_none(), "a later location may not be the first value");
    }

    #[test]
    fn an_entry_of_zero_width_holds_at_its_address() {
        let zero = entry((0x14, 1), (0x14, 3), &[0x50]);
        assert!(holds_somewhere_at(&zero, 0x14));
        assert!(!holds_somewhere_at(&zero, 0x15));
        assert!(!holds_somewhere_at(&entry((0x14, 1), (0x14, 1), &[0x50]), 0x14));
    }

    #[test]
    fn registers_of_each_kind() {
        let set = |at| registers_of(RegisterSet::default(), &Located::certain(8, false, at));
        assert!(set(Location::Constant(3)).is_empty());
        assert!(set(Location::Memory(7, 16)).contains(7));
        let pair = set(Location::RegisterPair(5, 4));
        assert!(pair.contains(5) && pair.contains(4));
        let computed = Computed { slots: Box::new([Box::new([Op::Register(3), Op::Load(8)]) as Box<[Op]>]) };
        assert!(set(Location::Computed(computed)).contains(3));
    }
}
