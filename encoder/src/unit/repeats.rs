// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Further entries of copies, if the compiler does not mark them: the first statement of the body, made again.
//!
//! Clang's debug information has one copy for all bodies of a loop that it unrolled around a call, and for all
//! beginnings that it duplicated. Its line table has a row for the first statement in each of them. So has the test of
//! a loop with which the body begins, and a statement with instructions that are mixed with those of others. Control
//! flow tells them apart:
//!
//! * A loop of the body's own comes back to its test without leaving the body.
//! * Between two calls something happens that can be seen: the body of the first is run. Between two parts of one
//!   statement nothing needs to. If the body returns early, nothing needs to happen between calls, either; but then the
//!   body has branched, and control comes in again from the caller's instructions.
//!
//! Often a copy does not begin with a row of its first statement: instructions of others come before it, or bodies of
//! one statement follow each other in one row. The machine code shows these: the first thing that a body does that can
//! be seen is there again, in a row of the same place in the source, and control comes to it without passing the entry.
//!
//! If something that the body does can come both before and after such a place, that place is in the middle of the
//! body: in a loop of its own that was unrolled, mostly. And if such a place is in a straight line after the entry, and
//! nothing after it does again what the body did first, it is the second half of a statement that is mixed with others.
//!
//! *GCC* marks entries, but loses the marks of some loops that it unrolls. Its statements have rows even where nothing
//! is left of them, so the order of rows tells: where the first statement comes again, and a statement of the caller is
//! the one before it, there the caller has called again. That is believed in a straight line alone: elsewhere rows come
//! out of order, when instructions of several statements are mixed. If the body's own statement is the one before it,
//! the body has a loop, or is a recursion that became one, and nothing tells which.
//!
//! That is what compilers do as a rule, not what they promise (a loop of the body's own may be unrolled until nothing
//! comes back), so such a site is one at which hits may outnumber calls.

use crate::debug::lines::{Lines, Place, Row};
use crate::debug::loclist::Point;
use crate::text::FunctionText;
use crate::unit::assigned::Body;
use std::ops::Range;

/// What is known about further entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) entries: Vec<u64>,
    /// Whether there is something that looks like an entry, but may not be one.
    pub(crate) is_unclear: bool,
    /// Whether they may be a loop of the body's own: then only one hit belongs to a call.
    pub(crate) may_be_own: bool,
}

/// Finds where the statement at a copy's entry begins again, as a new call. `own` are the ranges of the innermost copy
/// that the entry is in; `body` those of the copy. `copy_at` tells the innermost copy that an address is in.
pub(crate) fn find(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    entry: u64,
    own: &[Range<u64>],
    body: &[Range<u64>],
    copy_at: impl Fn(u64) -> Option<usize>,
) -> Again {
    let rows = || own.iter().filter(|range| !range.is_empty()).flat_map(|range| lines.statements(range));
    let first = rows().find(|row| row.point.address == entry);
    let mut again: Vec<u64> = first.map_or_else(Vec::new, |first| {
        rows()
            .filter(|row| row.place == first.place && row.point.address != entry)
            .map(|row| row.point.address)
            .filter(|address| holds(body, *address))
            .collect()
    });
    let acts = text.first_acts(entry);
    let mut repeated = acts_again(lines, text, &acts, &[entry], body, copy_at);
    // In a loop inside of the copy: recursion that became one, or the body's own.
    let all = repeated.len();
    repeated.retain(|&address| text.is_boundary(address) && !text.comes_back(address, body));
    let is_unclear = repeated.len() < all;
    if again.is_empty() && repeated.is_empty() {
        return Again { is_unclear, ..Again::default() };
    }
    again.sort_unstable();
    again.dedup();
    again.retain(|&address| text.is_boundary(address) && !text.comes_back(address, body));
    again.retain(|&address| !is_second_half(lines, text, &acts, entry, address, body));
    let leads_to_one = |address: &u64| text.first_acts(*address).iter().any(|act| repeated.contains(act));
    let is_anew =
        |address: &u64| text.is_entered_from_outside(*address, body) && text.is_past_branch(entry, *address, body);
    let known: Vec<u64> = again.iter().copied().filter(|address| leads_to_one(address) || is_anew(address)).collect();
    text.begin_anew(entry, &mut again, &known);
    // What begins with a statement that is known is known.
    let known: Vec<u64> = again.iter().flat_map(|&address| text.first_acts(address)).collect();
    again.extend(repeated.into_iter().filter(|act| !known.contains(act)));
    again.sort_unstable();
    again.dedup();
    if again.is_empty() {
        return Again { is_unclear, ..Again::default() };
    }
    let all = text.all_acts(body);
    let (mut before, mut after) = (all.clone(), all);
    text.keep_reached(&[entry], &again, &mut before);
    text.keep_reached(&again, &[entry], &mut after);
    // If the body does something both before and after a place, that place is in the middle of it.
    if after.iter().any(|act| before.contains(act) && !again.contains(act)) {
        return Again { is_unclear: true, ..Again::default() };
    }
    // If it does something only after the place, the place may still be in the middle of it.
    before.push(entry);
    let place = |act: &u64| lines.row_at(*act).map(|row| row.place).filter(|place| place.line != 0);
    let done: Vec<_> = before.iter().filter_map(place).collect();
    let may_be_own = after.iter().filter_map(place).any(|place| !done.contains(&place));
    Again { entries: again, is_unclear, may_be_own }
}

/// Whether a place in a straight line after a body's entry, in the statement of the entry, is of the same call:
/// nothing is done again at or after it that the body does first, at `acts`.
fn is_second_half(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    acts: &[u64],
    entry: u64,
    address: u64,
    body: &[Range<u64>],
) -> bool {
    let place = |act: u64| lines.row_at(act).map(|row| row.place).filter(|place| place.line != 0);
    let own: Vec<u64> = acts.iter().copied().filter(|&act| holds(body, act)).collect();
    if own.is_empty() || !text.is_straight(entry, address) {
        return false;
    }
    let mut later = text.all_acts(body);
    let is_there = later.contains(&address);
    text.keep_reached(&[address], &[entry], &mut later);
    later.extend(is_there.then_some(address));
    let is_again = |&other: &u64| {
        own.iter().any(|&act| text.is_alike(act, other) || place(act).is_some() && place(act) == place(other))
    };
    !later.iter().any(is_again)
}

/// Where what a body does first, at `acts`, is done again without passing an entry. What two calls in the body do, of
/// one function, is not the same; `copy_at` tells their copies.
fn acts_again(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    acts: &[u64],
    entries: &[u64],
    body: &[Range<u64>],
    copy_at: impl Fn(u64) -> Option<usize>,
) -> Vec<u64> {
    let place = |act: u64| lines.row_at(act).map(|row| row.place).filter(|place| place.line != 0);
    let own = acts.iter().filter(|&&act| holds(body, act));
    let placed: Vec<(u64, Place)> = own.filter_map(|&act| Some((act, place(act)?))).collect();
    let mut again = Vec::new();
    if placed.is_empty() {
        return again;
    }
    for (place, run) in body.iter().filter(|range| !range.is_empty()).flat_map(|range| lines.runs(range)) {
        for &(act, _) in placed.iter().filter(|placed| placed.1 == place) {
            let others = text.instructions(run.start, run.end).filter(|other| !acts.contains(other));
            again.extend(others.filter(|&other| text.is_alike(act, other) && copy_at(act) == copy_at(other)));
        }
    }
    if !again.is_empty() {
        again.sort_unstable();
        again.dedup();
        text.keep_reached(&[acts, entries].concat(), entries, &mut again);
    }
    again
}

/// Finds where the first statement at or after an entry comes again right after a statement of the caller; `is_callers`
/// tells these.
pub(crate) fn after_caller(
    lines: &Lines,
    entry: Point,
    body: &[Range<u64>],
    is_callers: impl Fn(Place) -> bool,
) -> Vec<Point> {
    let mut rows: Vec<&Row> = Vec::new();
    for range in body.iter().filter(|range| !range.is_empty()) {
        rows.extend(lines.statements(range));
    }
    rows.sort_by_key(|row| row.point);
    let Some(first) = rows.iter().position(|row| row.point >= entry && !is_callers(row.place)) else {
        return Vec::new();
    };
    let place = rows[first].place;
    let pairs = rows[first..].windows(2);
    pairs.filter(|pair| pair[1].place == place && is_callers(pair[0].place)).map(|pair| pair[1].point).collect()
}

/// Whether a function's own first act may be done again without passing its entry: in a loop that the body begins with,
/// or in one that its calls of itself became.
///
/// `start` is after what tracers put in the function.
pub(crate) fn begins_with_loop(
    text: &FunctionText<'_, '_>,
    lines: &Lines,
    start: u64,
    ranges: &[Range<u64>],
    copy_at: impl Fn(u64) -> Option<usize>,
) -> bool {
    let acts = text.first_acts(start);
    acts.iter().any(|&act| holds(ranges, act) && text.comes_back(act, ranges))
        || !acts_again(lines, text, &acts, &[start], ranges, &copy_at).is_empty()
        // What comes first may have been moved out of the loop.
        || !acts_again(lines, text, &text.acts_in_line(start), &[start], ranges, &copy_at).is_empty()
}

/// Finds where GCC's copy that lost its markers begins again in a straight line: the first store of the body itself is
/// made again, in a row of the same place in the source. If this is a loop of the body's own, there are statements
/// between the two stores. If these are calls, the only thing between them is that control was out of the body.
/// Elsewhere than in a straight line it may be so, too.
pub(crate) fn in_line(lines: &Lines, text: &FunctionText<'_, '_>, entry: u64, body: &Body<'_, '_, '_>) -> Again {
    let is_own = |&act: &u64| body.owns(act) && text.stores(act);
    let first = text.first_acts(entry);
    let own: Vec<u64> = first.iter().copied().filter(is_own).collect();
    let (act, is_first) = match own[..] {
        [act] => (act, true),
        // Instructions of others come first: of copies in the body, or of what is around it, mixed with the body's.
        [] => {
            let own = body
                .ranges
                .iter()
                .filter_map(|range| text.instructions(range.start.max(entry), range.end).find(is_own));
            let Some(act) = own.min() else { return Again::default() };
            (act, !first.iter().any(|&first| holds(body.ranges, first)) && text.is_straight(entry, act))
        }
        _ => return Again::default(),
    };
    let is_anew = |other: u64| {
        let is_left = text.instructions(act, other).any(|at| !holds(body.ranges, at));
        is_left || lines.statements(&(act + 1..other.saturating_add(1))).is_empty()
    };
    let mut again = acts_again(lines, text, &[act], &[entry], body.ranges, |_| None);
    again.retain(|&other| other > act && text.is_boundary(other) && body.owns(other) && is_anew(other));
    let all = again.len();
    again.retain(|&other| is_first && text.is_straight(act, other));
    Again { is_unclear: again.len() < all, entries: again, may_be_own: false }
}

/// Where the statements of a function are in the source, as far as declarations tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnLines {
    /// Where the function is declared.
    pub(crate) declared: Place,
    /// The line that is no longer the function's, because its caller is declared there.
    pub(crate) end: u32,
    /// Whether the first row is of no statement: out of line, it is of the brace where the function begins.
    pub(crate) has_opening: bool,
    /// How many copies of the function are inside: each begins with the first statement, too.
    pub(crate) inside: usize,
}

impl OwnLines {
    fn holds(&self, place: Place) -> bool {
        place.file == self.declared.file
            && (self.declared.line..self.end).contains(&place.line)
            && place != self.declared
    }
}

/// Whether the first statement of a body by GCC may come again without its entry: in a loop that the body begins with,
/// or in the one that its calls of itself became, which may be unrolled.
///
/// Further rows of a statement follow it where it ends, too, which may be the head of the next statement's loop. So
/// rows of one place in succession count once, by the first of them. Where the compiler repeated the statement, a later
/// statement of the body before it tells a turn of a loop from an entry. The statements of a macro are at one place,
/// and copies of other functions may be between them. If nothing is left of the body at its entry, its statements there
/// last until the next call of the function. The loop of a statement that clears a variable is not one of the body.
/// `others` are the body's other entries.
pub(crate) fn first_statement_comes_again(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    entry: Point,
    others: &[u64],
    body: &[Range<u64>],
    own: &OwnLines,
) -> bool {
    let mut rows: Vec<&Row> = Vec::new();
    for range in body {
        let statements = lines.statements(range);
        if !range.is_empty() {
            rows.extend(statements);
        } else if range.start == entry.address {
            let is_next_call = |row: &&Row| row.point > entry && row.place == own.declared;
            rows.extend(statements.iter().take_while(|row| !is_next_call(row)));
        }
    }
    rows.sort_by_key(|row| row.point);
    rows.dedup_by_key(|row| row.point);
    rows.retain(|row| row.point >= entry);
    let opening = rows.first().map(|row| row.place).filter(|_| own.has_opening);
    let is_first = |row: &&&Row| own.holds(row.place) && Some(row.place) != opening;
    let Some(mut first) = rows.iter().find(is_first) else { return false };
    // The entry may lie in an empty range: then the next row is any statement's. Or it comes before a loop that is
    // entered in its middle.
    if rows[0].point.address != entry.address && !text.falls_through(entry.address, first.point.address) {
        let at = |address: u64| rows.iter().filter(move |row| row.point.address == address).find(is_first);
        match text.way_from(entry.address).find_map(at) {
            Some(other) => first = other,
            None => return false,
        }
    }
    let from = first.point.address;
    let avoided = Some(entry.address);
    // In a straight line, the caller's instructions are mixed with the body's.
    let is_in_line = |address: u64| {
        text.is_straight(from, address) && !others.iter().any(|other| (from + 1..address + 1).contains(other))
    };
    let is_after =
        |address: u64| address == from || is_in_line(address) || text.comes_avoiding(from, address, avoided, body);
    let is_turn = |pair: &[&Row]| {
        let is_later = own.holds(pair[0].place) && pair[0].place.line > first.place.line;
        is_later && pair[1].place == first.place && is_after(pair[1].point.address)
    };
    let comes_back = |to: u64| {
        // No statement begins in it.
        let is_whole =
            |range: &Range<u64>| rows.iter().all(|row| !(range.start + 1..range.end).contains(&row.point.address));
        match text.clearing_loop(to).filter(is_whole) {
            Some(clears) => avoided != Some(to) && text.comes_avoiding(clears.end, to, avoided, body),
            None => text.comes_back_avoiding(to, avoided, body),
        }
    };
    let mut begins = rows.chunk_by(|a, b| a.place == b.place).filter(|same| same[0].place == first.place);
    rows.windows(2).filter(|pair| is_turn(pair)).count() > own.inside
        || begins.any(|same| comes_back(same[0].point.address))
}

/// Whether what a body by GCC does first is done again without an entry, by code that has no rows of statements: GCC
/// inlines a function into itself without a trace in the debug entries. Then the code may be in no copy, either, so it
/// is searched for in `around`, the ranges of the function that the body is in. `is_others` tells what is in another
/// copy.
///
/// What the first statement does counts wherever it is: it may have been moved to before the entry, or into the loop
/// that the body's calls of itself became. If it is done before the entry and after it, these are two calls: GCC may
/// have lost the markers of a loop's turn that it peeled.
pub(crate) fn first_acts_come_again(
    lines: &Lines,
    text: &FunctionText<'_, '_>,
    entries: &[u64],
    body: &Body<'_, '_, '_>,
    own: &OwnLines,
    around: &[Range<u64>],
    is_others: impl Fn(u64) -> bool,
) -> bool {
    let place = |act: u64| lines.row_at(act).map(|row| row.place).filter(|place| own.holds(*place));
    let mut acts: Vec<u64> = entries.iter().flat_map(|&entry| text.first_acts(entry)).collect();
    acts.retain(|act| body.owns(*act) && place(*act).is_some());
    let begins = |entry: &u64| lines.statements(&(*entry..*entry + 1)).iter().find(|row| own.holds(row.place));
    let first: Vec<Place> = entries.iter().filter_map(begins).map(|row| row.place).collect();
    let mut of_first = if first.is_empty() { Vec::new() } else { text.all_acts(body.ranges) };
    of_first.retain(|act| body.owns(*act) && place(*act).is_some_and(|place| first.contains(&place)));
    let comes_back = |act: &u64| {
        let [entry] = *entries else { return false };
        text.clearing_loop(*act).is_none() && text.comes_back_avoiding(*act, Some(entry), body.ranges)
    };
    // The call before may have lost its entry: then what it does comes to this one in a straight line.
    let comes_before = |&entry: &u64| {
        let is_before = |act: &u64| *act < entry && text.is_straight(*act, entry);
        let is_after = |act: &u64, entry: u64| entry <= *act && text.falls_through(entry, *act);
        let is_without = |act: &u64| is_before(act) && !entries.iter().any(|&other| is_after(act, other));
        let mut earlier = of_first.iter().filter(|act| is_without(act));
        earlier.any(|&act| of_first.iter().any(|other| is_after(other, entry) && text.is_alike(act, *other)))
    };
    of_first.iter().any(comes_back)
        || entries.iter().any(comes_before)
        || [&acts, &of_first]
            .iter()
            .any(|acts| acts_again(lines, text, acts, entries, around, |_| None).into_iter().any(|act| !is_others(act)))
}

fn holds(body: &[Range<u64>], address: u64) -> bool {
    body.iter().any(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::test_image::TEXT;
    use crate::text::tests::x86;
    use std::slice;

    /// A function that is declared in line 9 and ends before line 50.
    const OWN: OwnLines =
        OwnLines { declared: Place { file: 1, line: 9, column: 0 }, end: 50, has_opening: false, inside: 0 };

    fn row(at: u64, line: u32) -> Row {
        Row { point: Point { address: TEXT + at, view: 0 }, place: Place { file: 1, line, column: 0 } }
    }

    fn lines(rows: &[(u64, u32, u32)]) -> Lines {
        Lines::of(rows.iter().map(|&(address, view, line)| Row {
            point: Point { address, view },
            place: Place { file: 1, line, column: 0 },
        }))
    }

    #[test]
    fn a_first_statement_after_the_callers_is_a_call() {
        // The caller's loop is at line 50, the body is lines 10 and 11, with a loop of its own at 10.
        let lines = lines(&[(0, 0, 50), (0, 1, 10), (4, 0, 11), (4, 1, 10), (8, 0, 50), (8, 1, 10), (8, 2, 11)]);
        let again =
            after_caller(&lines, Point { address: 0, view: 1 }, slice::from_ref(&(0..12)), |place| place.line >= 50);
        assert_eq!(again, [Point { address: 8, view: 1 }]);
        assert!(
            after_caller(&lines, Point { address: 0, view: 1 }, slice::from_ref(&(0..8)), |place| place.line >= 50)
                .is_empty()
        );
    }

    #[test]
    fn a_statement_that_is_mixed_with_another_begins_once() {
        // 0: mov (%rsi),%eax; 2: mov %ecx,(%rdi); 4: mov %eax,8(%rdi); 7: mov (%rsi),%eax; 9: mov %ecx,(%rdi); 11: ret
        let code = [0x8b, 0x06, 0x89, 0x0f, 0x89, 0x47, 0x08, 0x8b, 0x06, 0x89, 0x0f, 0xc3];
        x86(&code, |text| {
            let find = |end: u64, rows: &[(u64, u32)]| {
                let rows: Vec<_> = rows.iter().map(|&(at, line)| (TEXT + at, 0, line)).collect();
                let body = TEXT..TEXT + end;
                let body = slice::from_ref(&body);
                super::find(&lines(&rows), text, TEXT, body, body, |_| Some(0)).entries
            };
            assert!(find(7, &[(0, 11), (2, 12), (4, 11)]).is_empty(), "the second half");
            assert_eq!(find(11, &[(0, 11), (2, 12), (4, 13), (7, 11), (9, 12)]), [TEXT + 7], "it does all again");
        });
    }

    #[test]
    fn what_two_calls_in_a_body_do_is_not_done_again() {
        // 0: mov %eax,(%rdi); 2: mov %ecx,8(%rdi); 5: mov %eax,(%rdi); 7: ret
        x86(&[0x89, 0x07, 0x89, 0x4f, 0x08, 0x89, 0x07, 0xc3], |text| {
            let lines = lines(&[(TEXT, 0, 10), (TEXT + 2, 0, 11), (TEXT + 5, 0, 10)]);
            let body = TEXT..TEXT + 7;
            let body = slice::from_ref(&body);
            let begins = |second: usize| {
                let copy_at = |address: u64| Some(if address < TEXT + 5 { 1 } else { second });
                begins_with_loop(text, &lines, TEXT, body, copy_at)
            };
            assert!(begins(1), "one call, with two bodies");
            assert!(!begins(2));
        });
    }

    #[test]
    fn a_store_that_is_made_again_is_a_call_unless_a_statement_makes_it() {
        // 0: mov %eax,(%rdi); 2: inc %eax; 4: mov %eax,(%rdi); 6: mov %ecx,8(%rdi); 9: ret
        let code = [0x89, 0x07, 0xff, 0xc0, 0x89, 0x07, 0x89, 0x4f, 0x08, 0xc3];
        x86(&code, |text| {
            let find = |ranges: &[Range<u64>], nested: &[Range<u64>], rows: &[(u64, u32, u32)]| {
                let rows: Vec<_> = rows.iter().map(|&(at, view, line)| (TEXT + at, view, line)).collect();
                in_line(&lines(&rows), text, TEXT, &Body { text, ranges, nested }).entries
            };
            let whole = slice::from_ref(&(TEXT..TEXT + 9));
            assert_eq!(find(whole, &[], &[(0, 0, 10)]), [TEXT + 4], "no statement lies between them");
            assert!(find(whole, &[], &[(0, 0, 10), (4, 0, 10)]).is_empty(), "a loop of the body's own");
            assert!(find(whole, &[], &[(0, 0, 10), (4, 0, 11)]).is_empty(), "another statement");
            let parts = [TEXT..TEXT + 2, TEXT + 4..TEXT + 9];
            assert_eq!(find(&parts, &[], &[(0, 0, 10), (2, 0, 50), (4, 0, 10)]), [TEXT + 4], "control was outside");
            assert!(find(whole, whole, &[(0, 0, 10)]).is_empty(), "of a copy in it");
        });
    }

    #[test]
    fn bodies_whose_first_stores_are_mixed_with_others_are_unclear() {
        // 0: mov %eax,(%rdi); 2: mov %ecx,(%rsi); 4: mov %ecx,(%rsi); 6: ret. The first store is of a copy in the body.
        x86(&[0x89, 0x07, 0x89, 0x0e, 0x89, 0x0e, 0xc3], |text| {
            let lines = lines(&[(TEXT, 0, 50), (TEXT + 2, 0, 10)]);
            let nested = slice::from_ref(&(TEXT..TEXT + 2));
            let again =
                |body: Range<u64>| in_line(&lines, text, TEXT, &Body { text, ranges: slice::from_ref(&body), nested });
            assert_eq!(again(TEXT..TEXT + 6), Again { is_unclear: true, ..Again::default() });
            assert_eq!(again(TEXT..TEXT + 4), Again::default(), "it is made once");
            // It is what is around the body that stores first.
            let again =
                in_line(&lines, text, TEXT, &Body { text, ranges: &[TEXT..TEXT, TEXT + 2..TEXT + 6], nested: &[] });
            assert_eq!(again, Again { entries: vec![TEXT + 4], ..Again::default() });
        });
        // 0: mov %eax,(%rdi); 2: push %rcx; 3: push %rcx; 4: ret
        x86(&[0x89, 0x07, 0x51, 0x51, 0xc3], |text| {
            let lines = lines(&[(TEXT, 0, 50), (TEXT + 2, 0, 10)]);
            let body = Body { text, ranges: &[TEXT..TEXT, TEXT + 2..TEXT + 4], nested: &[] };
            assert_eq!(in_line(&lines, text, TEXT, &body), Again::default(), "arguments for a call");
        });
    }

    #[test]
    fn a_loop_that_begins_after_the_entry_comes_back_to_the_first_statement() {
        // 0: xor %eax,%eax; 2: mov %eax,(%rdi); 4: dec %esi; 6: jne 2; 8: ret. Nothing is left of the body at its
        // entry.
        x86(&[0x31, 0xc0, 0x89, 0x07, 0xff, 0xce, 0x75, 0xfa, 0xc3], |text| {
            let lines = lines(&[(TEXT + 2, 0, 10), (TEXT + 4, 0, 11)]);
            let declared = Place { file: 1, line: 9, column: 0 };
            let own = OwnLines { declared, end: 50, has_opening: false, inside: 0 };
            let comes_again = |end: u64| {
                let body = [TEXT..TEXT, TEXT + 2..TEXT + end];
                first_statement_comes_again(&lines, text, Point { address: TEXT, view: 0 }, &[], &body, &own)
            };
            assert!(comes_again(8));
            assert!(!comes_again(6), "the jump back is the caller's");
        });
    }

    #[test]
    fn a_loop_that_is_entered_in_its_middle_comes_back_to_the_first_statement() {
        // 0: xor %eax,%eax; 2: jmp 6; 4: inc %ecx; 6: mov %eax,(%rdi); 8: dec %esi; 10: jne 4; 12: ret
        x86(&[0x31, 0xc0, 0xeb, 0x02, 0xff, 0xc1, 0x89, 0x07, 0xff, 0xce, 0x75, 0xf8, 0xc3], |text| {
            let comes_again = |rows: &[(u64, u32, u32)]| {
                let body = slice::from_ref(&(TEXT..TEXT + 12));
                let entry = Point { address: TEXT, view: 0 };
                first_statement_comes_again(&lines(rows), text, entry, &[], body, &OWN)
            };
            assert!(comes_again(&[(TEXT + 4, 0, 12), (TEXT + 6, 0, 10), (TEXT + 8, 0, 11)]));
            assert!(!comes_again(&[(TEXT + 4, 0, 12)]), "the way to it branches");
        });
    }

    #[test]
    fn turns_in_a_straight_line_may_be_mixed_with_what_is_around_the_body() {
        // 0: mov %eax,(%rdi); 2: inc %ecx; 4: mov %eax,(%rdi); 6: ret
        x86(&[0x89, 0x07, 0xff, 0xc1, 0x89, 0x07, 0xc3], |text| {
            let comes_again = |others: &[u64]| {
                let rows = [(TEXT, 0, 10), (TEXT + 4, 0, 11), (TEXT + 4, 1, 10)];
                let body = [TEXT..TEXT + 2, TEXT + 4..TEXT + 6];
                let entry = Point { address: TEXT, view: 0 };
                first_statement_comes_again(&lines(&rows), text, entry, others, &body, &OWN)
            };
            assert!(comes_again(&[TEXT]));
            assert!(!comes_again(&[TEXT, TEXT + 4]), "it is an entry");
        });
    }

    #[test]
    fn the_loop_of_a_statement_that_clears_a_variable_is_not_a_turn() {
        // 0: nopl (3 bytes); 3: xor %eax,%eax; 5: movq $0,0x30(%rsp,%rax); 14: add $8,%eax; 17: cmp $0x60,%eax;
        // 20: jb 5; 22: nop (2 bytes), or jmp 5; 24: ret
        let code = |last: [u8; 2]| {
            let clear = [0x48, 0xc7, 0x44, 0x04, 0x30, 0, 0, 0, 0, 0x83, 0xc0, 0x08, 0x83, 0xf8, 0x60, 0x72, 0xef];
            [&[0x0f, 0x1f, 0x00, 0x31, 0xc0][..], &clear, &last, &[0xc3]].concat()
        };
        let comes_again = |last: [u8; 2], rows: &[(u64, u32)]| {
            let mut found = false;
            x86(&code(last), |text| {
                let rows: Vec<_> = rows.iter().map(|&(at, line)| (TEXT + at, 0, line)).collect();
                let declared = Place { file: 1, line: 9, column: 0 };
                let own = OwnLines { declared, end: 50, has_opening: false, inside: 0 };
                let body = slice::from_ref(&(TEXT..TEXT + 25));
                found =
                    first_statement_comes_again(&lines(&rows), text, Point { address: TEXT, view: 0 }, &[], body, &own);
            });
            found
        };
        let (pad, back) = ([0x66, 0x90], [0xeb, 0xed]);
        assert!(!comes_again(pad, &[(5, 10), (22, 11)]));
        assert!(comes_again(pad, &[(5, 10), (14, 11), (17, 10), (22, 12)]), "another statement in the loop");
        assert!(comes_again(back, &[(5, 10), (22, 11)]), "the body comes back to the loop");
    }

    #[test]
    fn statements_that_come_again_at_an_empty_entry_are_turns_unless_the_function_is_called_again() {
        // 0: mov %eax,(%rdi); 2: mov %eax,(%rdi); 4: ret
        x86(&[0x89, 0x07, 0x89, 0x07, 0xc3], |text| {
            let declared = Place { file: 1, line: 9, column: 0 };
            let own = OwnLines { declared, end: 50, has_opening: false, inside: 0 };
            let comes_again = |of_rows: &[u32]| {
                let rows: Vec<_> = (0..).zip(of_rows).map(|(view, &line)| (TEXT, view, line)).collect();
                let body = slice::from_ref(&(TEXT..TEXT));
                first_statement_comes_again(&lines(&rows), text, Point { address: TEXT, view: 0 }, &[], body, &own)
            };
            assert!(comes_again(&[9, 10, 11, 10, 11]));
            assert!(!comes_again(&[9, 10, 11]));
            assert!(!comes_again(&[9, 10, 11, 9, 10, 11]), "the statements of another copy");
        });
    }

    #[test]
    fn what_is_done_first_comes_again_without_a_statement() {
        // 0: mov %eax,(%rdi); 2: mov %ecx,8(%rdi); 5: mov %eax,(%rdi); 7: ret
        let code = [0x89, 0x07, 0x89, 0x4f, 0x08, 0x89, 0x07, 0xc3];
        x86(&code, |text| {
            let again = |second_line, body: Range<u64>, others: Range<u64>| {
                let lines = Lines::of([row(0, 10)]).with_others([row(2, 11), row(5, second_line)]);
                let body = Body { text, ranges: slice::from_ref(&body), nested: &[] };
                let around = slice::from_ref(&(TEXT..TEXT + 8));
                first_acts_come_again(&lines, text, &[TEXT], &body, &OWN, around, |at| others.contains(&at))
            };
            assert!(again(10, TEXT..TEXT + 8, 0..0));
            assert!(again(10, TEXT..TEXT + 5, 0..0), "it is in no copy");
            assert!(!again(10, TEXT..TEXT + 5, TEXT + 5..TEXT + 7), "it is another copy's");
            assert!(!again(11, TEXT..TEXT + 8, 0..0), "another statement does it");
            assert!(!again(10, TEXT + 2..TEXT + 8, 0..0), "what comes first is not the body's");
        });
    }

    #[test]
    fn what_is_done_before_the_entry_and_after_it_is_of_two_calls() {
        // 0: mov %eax,(%rdi); 2: inc %ecx; 4: mov %eax,(%rdi); 6: ret
        x86(&[0x89, 0x07, 0xff, 0xc1, 0x89, 0x07, 0xc3], |text| {
            let again = |entries: &[u64], lines_of_stores: [u32; 2]| {
                let [first, second] = lines_of_stores;
                let lines = Lines::of([row(4, second)]).with_others([row(0, first), row(2, 60)]);
                let ranges = [TEXT..TEXT + 2, TEXT + 4..TEXT + 6];
                let body = Body { text, ranges: &ranges, nested: &[] };
                first_acts_come_again(&lines, text, entries, &body, &OWN, &ranges, |_| false)
            };
            assert!(again(&[TEXT + 4], [10, 10]), "nothing marks the first one");
            assert!(!again(&[TEXT, TEXT + 4], [10, 10]), "each has its entry");
            assert!(!again(&[TEXT + 4], [11, 10]), "another statement does it");
        });
        // 0: mov %eax,(%rdi); 2: inc %ecx; 4: mov %edx,8(%rdi); 7: ret
        x86(&[0x89, 0x07, 0xff, 0xc1, 0x89, 0x57, 0x08, 0xc3], |text| {
            let lines = Lines::of([row(4, 10)]).with_others([row(0, 10), row(2, 60)]);
            let ranges = [TEXT..TEXT + 2, TEXT + 4..TEXT + 7];
            let body = Body { text, ranges: &ranges, nested: &[] };
            let again = first_acts_come_again(&lines, text, &[TEXT + 4], &body, &OWN, &ranges, |_| false);
            assert!(!again, "one part of it was moved to before the entry");
        });
    }

    #[test]
    fn what_the_first_statement_does_counts_wherever_it_is() {
        // 0: mov %eax,(%rdi); 2: inc %eax; 4: mov %eax,(%rdi); 6: jne 0; 8: ret
        let code = [0x89, 0x07, 0xff, 0xc0, 0x89, 0x07, 0x75, 0xf8, 0xc3];
        x86(&code, |text| {
            let again = |entry: u64, body: Range<u64>, lines: &Lines| {
                let body = Body { text, ranges: slice::from_ref(&body), nested: &[] };
                let around = slice::from_ref(&(TEXT..TEXT + 9));
                first_acts_come_again(lines, text, &[TEXT + entry], &body, &OWN, around, |_| false)
            };
            // The entry is after the first store, which is made again outside of the copy.
            let moved = Lines::of([row(2, 10), row(8, 99)]).with_others([row(0, 10), row(4, 10), row(6, 99)]);
            assert!(again(2, TEXT..TEXT + 4, &moved));
            let other = Lines::of([row(2, 10), row(8, 99)]).with_others([row(0, 10), row(4, 11), row(6, 99)]);
            assert!(!again(2, TEXT..TEXT + 4, &other), "another statement does it");
        });
        // 0: xor %eax,%eax; 2: mov %eax,(%rdi); 4: inc %eax; 6: jne 2; 8: ret
        x86(&[0x31, 0xc0, 0x89, 0x07, 0xff, 0xc0, 0x75, 0xfa, 0xc3], |text| {
            let whole = TEXT..TEXT + 9;
            let again = |stores: u32| {
                let lines = Lines::of([row(0, 10), row(4, 12)]).with_others([row(2, stores)]);
                let body = Body { text, ranges: slice::from_ref(&whole), nested: &[] };
                first_acts_come_again(&lines, text, &[TEXT], &body, &OWN, slice::from_ref(&whole), |_| false)
            };
            assert!(again(10), "a loop that begins in the middle of the first statement");
            assert!(!again(11), "the loop of a later statement");
        });
    }
}
