// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which hit belongs to which call.
//!
//! Both are in order, and both know how many stores of numbers came before them. A hit that is in its place comes after
//! as many stores as its call. The compiler may have put the place where a body is said to begin after effects of the
//! body, so a hit may be late, but not later than the call's end. It may also have put effects of the caller after this
//! place, so a hit may be early by one. In a straight line a hit may even come after the effects of what follows the
//! call, or before those of several calls that come before it. The cheapest of all pairings in order is taken. What is
//! not paired is a call without a hit or a hit without a call.
//!
//! Where recursion was inlined into itself, a hit of the inner call comes before the end of the outer one, and may be
//! mistaken for a late hit of it: if one call is missed, all values that follow would be wrong. So values decide where
//! the times leave a choice: a pair with different values costs more than a late one, but less than an early one, and
//! far less than to leave a call and a hit alone. A wrong value does not find another call by that, since a call has
//! its hit in its place.
//!
//! *Where the call is* in the source decides, too: the hits of an inlined copy are of the call that was inlined. Where
//! the compiler merged two calls, the hits of one copy are of both, so a pair of two places costs less than to leave
//! both alone.
//!
//! The compiler may also reorder the beginnings of two copies, where neither has an effect before the other's: their
//! hits come in the other order. Two hits in a row of different sites are crossed if by that all places and values
//! agree, and not otherwise.
//!
//! Of two hits that one call may have, the one at a site that is marked stays alone: the mark says that it may. It does
//! so, too, if neither the place nor the values are those of the call that it could be taken for.
//!
//! A function itself is entered by the call. So a hit there is in its place, or of no call: equal functions that were
//! made one have each other's.

use std::ops::Range;

/// A call as the alignment sees it: after how many stores it begins, and after how many it ends.
pub(crate) type Span = Range<usize>;

/// What a call or a hit that stays alone costs. A pair costs less than two of them.
const ALONE: u32 = 32;
/// What a hit costs that stays alone, if a mark announced that.
const ANNOUNCED: u32 = 8;
const LATE: u32 = 2;
const EARLY: u32 = 8;
const DIFFERENT: u32 = 6;
const ELSEWHERE: u32 = 12;
/// Both: more than a call and a hit that stay alone if that was announced, less than if it was not.
const OTHER: u32 = 44;
/// What two hits that come in the other order cost beside their times: less than two values that differ.
const CROSSED: u32 = 2;
/// How many effects of what follows a call a hit may come after, and what that costs at least.
const MAX_AFTER: usize = 20;
const AFTER: u32 = 4;
/// How many effects of the caller a hit may come before, and what that costs at least.
const MAX_BEFORE: usize = 4;
const BEFORE: u32 = 24;

/// What it costs to take a hit for a call's.
fn cost(call: &Span, hit: usize) -> Option<u32> {
    if hit == call.start {
        Some(0)
    } else if hit > call.start && hit <= call.end {
        Some(LATE + 2 * ((hit - call.start) as u32 / 4).min(8))
    } else if hit + 1 == call.start {
        Some(EARLY)
    } else if hit + MAX_BEFORE >= call.start && hit < call.start {
        Some(BEFORE + 2 * (call.start - hit) as u32)
    } else if hit > call.end && hit <= call.end + MAX_AFTER {
        Some(AFTER + (hit - call.end) as u32)
    } else {
        None
    }
}

#[derive(Clone, Copy)]
enum Step {
    Pair,
    /// This call has the hit before, and the call before has this hit.
    Crossed,
    CallAlone,
    HitAlone,
}

/// What is known of calls and hits, beside their times.
pub(crate) trait Known {
    /// Whether what was read at a hit is not what was passed in a call.
    fn differ(&self, call: usize, hit: usize) -> bool;
    /// Whether a hit is at a site of another call in the source.
    fn is_elsewhere(&self, call: usize, hit: usize) -> bool;
    /// The site of a hit.
    fn site(&self, hit: usize) -> usize;
    /// Whether hits at the site are said to be perhaps of no call.
    fn is_marked(&self, hit: usize) -> bool;
    /// Whether the site is a function's own.
    fn is_called(&self, hit: usize) -> bool;
}

/// For each call, the index of its hit.
pub(crate) fn align(calls: &[Span], hits: &[usize], known: &impl Known) -> Vec<Option<usize>> {
    let width = hits.len() + 1;
    let differ = |call: usize, hit: usize| known.differ(call, hit);
    let (site, is_called) = (|hit: usize| known.site(hit), |hit: usize| known.is_called(hit));
    let cost = |call: &Span, hit: usize| {
        let in_place = hits[hit] == call.start || !is_called(hit);
        if in_place { cost(call, hits[hit]) } else { None }
    };
    let alone = |hit: usize| if known.is_marked(hit) { ANNOUNCED } else { ALONE };
    let penalty = |call: usize, hit: usize| match (known.is_elsewhere(call, hit), differ(call, hit)) {
        (false, false) => 0,
        (false, true) => DIFFERENT,
        (true, false) => ELSEWHERE,
        (true, true) => OTHER,
    };
    let crossed = |row: usize, column: usize| {
        let (before, after) = (row.checked_sub(1)?, column.checked_sub(1)?);
        // The hit that comes first has the other call's effect after it, too.
        let is_before_both = hits[after] + 2 == calls[row].start;
        let second = if is_before_both { 2 * EARLY } else { cost(&calls[row], after)? };
        let cost = cost(&calls[before], column)? + second + CROSSED;
        let is_better = site(after) != site(column)
            && (penalty(before, after) > 0 || penalty(row, column) > 0)
            && penalty(before, column) == 0
            && penalty(row, after) == 0;
        is_better.then_some(cost)
    };
    let mut steps = vec![Step::HitAlone; (calls.len() + 1) * width];
    let before = (0..hits.len()).scan(0, |cost, hit| {
        *cost += alone(hit);
        Some(*cost)
    });
    let mut above: Vec<u32> = std::iter::once(0).chain(before).collect();
    let mut above_that = Vec::new();
    for (row, call) in calls.iter().enumerate() {
        let mut here = Vec::with_capacity(width);
        here.push(above[0] + ALONE);
        steps[(row + 1) * width] = Step::CallAlone;
        for column in 0..hits.len() {
            let mut best = (above[column + 1] + ALONE, Step::CallAlone);
            if here[column] + alone(column) < best.0 {
                best = (here[column] + alone(column), Step::HitAlone);
            }
            if let Some(cost) = cost(call, column)
                && above[column] + cost <= best.0
            {
                let cost = cost + penalty(row, column);
                if above[column] + cost <= best.0 {
                    best = (above[column] + cost, Step::Pair);
                }
            }
            if let Some(cost) = crossed(row, column)
                && above_that[column - 1] + cost < best.0
            {
                best = (above_that[column - 1] + cost, Step::Crossed);
            }
            steps[(row + 1) * width + column + 1] = best.1;
            here.push(best.0);
        }
        above_that = above;
        above = here;
    }
    let mut pairs = vec![None; calls.len()];
    let (mut row, mut column) = (calls.len(), hits.len());
    while row > 0 || column > 0 {
        match steps[row * width + column] {
            Step::Pair => {
                row -= 1;
                column -= 1;
                pairs[row] = Some(column);
            }
            Step::Crossed => {
                row -= 2;
                column -= 2;
                (pairs[row], pairs[row + 1]) = (Some(column + 1), Some(column));
            }
            Step::CallAlone => row -= 1,
            Step::HitAlone => column -= 1,
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    /// Hits of sites of their own, about which nothing speaks against any call.
    #[derive(Default)]
    struct Told {
        differ: Option<fn(usize, usize) -> bool>,
        elsewhere: Option<fn(usize, usize) -> bool>,
        marked: Option<usize>,
        one_site: bool,
        called: bool,
    }

    impl Known for Told {
        fn differ(&self, call: usize, hit: usize) -> bool {
            self.differ.is_some_and(|differ| differ(call, hit))
        }

        fn is_elsewhere(&self, call: usize, hit: usize) -> bool {
            self.elsewhere.is_some_and(|elsewhere| elsewhere(call, hit))
        }

        fn site(&self, hit: usize) -> usize {
            if self.one_site { 0 } else { hit }
        }

        fn is_marked(&self, hit: usize) -> bool {
            self.marked == Some(hit)
        }

        fn is_called(&self, _: usize) -> bool {
            self.called
        }
    }

    fn align(calls: &[Span], hits: &[usize]) -> Vec<Option<usize>> {
        super::align(calls, hits, &Told::default())
    }

    #[test]
    fn a_loop_with_one_hit_has_lost_the_later_calls() {
        assert_eq!(align(&[1..2, 2..3, 3..4], &[1]), [Some(0), None, None]);
        assert_eq!(align(&[1..2, 2..3, 3..4], &[3]), [None, None, Some(0)]);
    }

    #[test]
    fn late_hits_are_hits() {
        assert_eq!(align(&[1..2, 2..3], &[2, 3]), [Some(0), Some(1)]);
        let call = 5..9;
        assert_eq!(align(slice::from_ref(&call), &[8]), [Some(0)]);
        assert_eq!(align(slice::from_ref(&call), &[9 + MAX_AFTER]), [Some(0)], "after what follows it");
        assert_eq!(align(slice::from_ref(&call), &[10 + MAX_AFTER]), [None]);
    }

    #[test]
    fn hits_of_several_calls_may_come_before_the_effects_of_all() {
        assert_eq!(align(&[2..3, 3..4, 4..5], &[1, 1, 1]), [Some(0), Some(1), Some(2)]);
        let call = MAX_BEFORE + 1..MAX_BEFORE + 2;
        assert_eq!(align(slice::from_ref(&call), &[0]), [None]);
    }

    #[test]
    fn a_second_hit_of_one_call_stays_alone() {
        let call = 1..2;
        assert_eq!(align(slice::from_ref(&call), &[1, 1]).iter().flatten().count(), 1);
        assert_eq!(align(&[1..2, 7..8], &[1, 1, 7]).iter().flatten().count(), 2);
    }

    #[test]
    fn of_two_hits_the_marked_one_stays_alone() {
        let call = 1..2;
        for marked in 0..2 {
            let told = Told { marked: Some(marked), ..Told::default() };
            let pairs = super::align(slice::from_ref(&call), &[1, 1], &told);
            assert_eq!(pairs, [Some(1 - marked)]);
        }
    }

    #[test]
    fn a_marked_hit_is_not_of_a_call_that_it_has_nothing_in_common_with() {
        // The first call has two hits, and the second one has none.
        let is_second = |call: usize, _: usize| call == 1;
        let told = |marked| Told { differ: Some(is_second), elsewhere: Some(is_second), marked, ..Told::default() };
        assert_eq!(super::align(&[1..2, 2..3], &[1, 1], &told(Some(1))), [Some(0), None]);
        assert_eq!(super::align(&[1..2, 2..3], &[1, 1], &told(Some(0))), [Some(1), None]);
        assert_eq!(super::align(&[1..2, 2..3], &[1, 1], &told(None)), [Some(0), Some(1)], "a wrong value is told");
    }

    #[test]
    fn a_function_itself_is_entered_by_its_calls() {
        let calls = [1..3, 5..6];
        let align = |hits: &[usize]| super::align(&calls, hits, &Told { called: true, ..Told::default() });
        assert_eq!(align(&[1, 5]), [Some(0), Some(1)]);
        assert_eq!(align(&[2, 5]), [None, Some(1)], "not late");
        assert_eq!(align(&[1, 4]), [Some(0), None], "not early");
    }

    #[test]
    fn values_tell_late_hits_of_recursion_apart() {
        // Each call stores once and calls the next; all hits come after the store, and the fourth call has none.
        let calls = [0..4, 1..4, 2..4, 3..4, 4..8, 5..8, 6..8, 7..8];
        let hits = [1, 2, 3, 5, 6, 7, 8];
        let differ = |call, hit| [0, 1, 2, 4, 5, 6, 7][hit] != call;
        let pairs = super::align(&calls, &hits, &Told { differ: Some(differ), one_site: true, ..Told::default() });
        assert_eq!(pairs, [Some(0), Some(1), Some(2), None, Some(3), Some(4), Some(5), Some(6)]);
    }

    #[test]
    fn a_wrong_value_does_not_find_another_call() {
        // Each hit reads what the next call is passed.
        let calls = [0..1, 1..2, 2..3, 3..4];
        let told = Told { differ: Some(|call, hit| call != hit + 1), ..Told::default() };
        let pairs = super::align(&calls, &[0, 1, 2, 3], &told);
        assert_eq!(pairs, [Some(0), Some(1), Some(2), Some(3)]);
        let nested = [0..4, 1..4, 2..4, 3..4];
        let pairs = super::align(&nested, &[0, 1, 2, 3], &told);
        assert_eq!(pairs, [Some(0), Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn beginnings_that_were_reordered_cross() {
        // The second call's hit comes first, before the first call's store.
        let calls = [1..2, 2..3];
        let told = Told { differ: Some(|call, hit| call == hit), ..Told::default() };
        assert_eq!(super::align(&calls, &[1, 1], &told), [Some(1), Some(0)]);
        assert_eq!(super::align(&calls, &[0, 1], &told), [Some(1), Some(0)], "before the caller's store, too");
        let in_order = [Some(0), Some(1)];
        let at_one = Told { one_site: true, ..told };
        assert_eq!(super::align(&calls, &[1, 1], &at_one), in_order, "hits of one site stay in order");
        let never = Told { differ: Some(|_, _| true), ..Told::default() };
        assert_eq!(super::align(&calls, &[1, 1], &never), in_order, "values that are wrong either way");
    }

    #[test]
    fn a_hit_is_of_the_call_that_was_inlined() {
        // Both hits are late, and in the other order.
        let told = Told { elsewhere: Some(|call, hit| call == hit), ..Told::default() };
        assert_eq!(super::align(&[1..2, 2..3], &[2, 3], &told), [Some(1), Some(0)]);
        // A call without a hit, and one with a late hit.
        let second = Told { elsewhere: Some(|call, _| call == 0), ..Told::default() };
        assert_eq!(super::align(&[1..2, 2..3], &[2], &second), [None, Some(0)]);
        let call = 1..2;
        assert_eq!(super::align(slice::from_ref(&call), &[1], &second), [Some(0)], "the two calls were merged");
    }
}
