// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Where a body begins, if that is not where the debug information has its entry.
//!
//! The compiler moves what a body computes up past what others do, and keeps an entry where it has lost its code:
//! before a branch that decides whether the body runs, after what the body does first, or on each of two ways that
//! join. What can be seen ([`acts`](super::acts)) stays where the source has it, so that it tells where the body
//! begins. The head of a loop is aligned by padding, which control comes through only once.

use super::paths::holds;
use super::{Acts, Edge, Effects, FALLS, FunctionText, NOP};
use std::ops::{ControlFlow, Range};

/// What was moved up: see [`FunctionText::moved_before`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MovedUp {
    /// Where the body begins.
    pub(crate) begin: u64,
    /// What it does there first that can be seen.
    pub(crate) act: u64,
}

impl FunctionText<'_, '_> {
    /// Where a body goes on after instructions of others that do something that can be seen, if control gets there in a
    /// straight line before the body does such a thing itself: instructions that only compute were moved up from there.
    pub(crate) fn past_others(&self, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        let (piece, mut index) = self.index(entry)?;
        let mut effects = Effects::new(self.image.machine());
        let (mut found, mut others_act) = (None, false);
        while index < self.pieces[piece].instructions.end {
            let address = self.address(piece, index);
            if address != entry && !self.edges_to(address).is_empty() {
                break;
            }
            let acts = match effects.acts(self.image, address, self.frame_pointer) {
                Acts::Jumps(target) if self.index(target).is_some() => break,
                Acts::No => false,
                _ => true,
            };
            if holds(body, address) {
                if std::mem::take(&mut others_act) {
                    found = Some(address);
                }
                if acts {
                    break;
                }
            } else if acts {
                others_act = true;
            }
            if self.flags[index] & FALLS == 0 {
                break;
            }
            index += 1;
        }
        found
    }

    /// The same, if branches are on the way. Each way from the instructions that were moved up passes something of
    /// others that can be seen before control gets to the rest of the body, which has one way in, and does such a thing
    /// itself. Or a loop of others is around the rest of the body, and not around what was moved up.
    pub(crate) fn past_branches(&self, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        // A jump to an unknown place may be a way that nothing can be seen on.
        if self.has_unknown_targets() {
            return None;
        }
        let mut rest = body.to_vec();
        let mut found = None;
        let mut from = entry;
        // Instructions may have been moved up to several places.
        for _ in body {
            let Some(after) = self.after_computing(from, &rest) else { break };
            rest = without(&rest, &(from..self.address_of(after)));
            let acts = self.all_acts(&rest);
            let [begin] = self.entries(&rest)[..] else { break };
            if acts.is_empty() || self.leads_quietly(after, &rest) && !self.is_looped(after, begin, &rest) {
                break;
            }
            (found, from) = (Some(begin), begin);
        }
        found
    }

    /// The first instruction after those of a body that follow each other from an address on, and only compute; it is
    /// not the body's.
    fn after_computing(&self, from: u64, body: &[Range<u64>]) -> Option<usize> {
        let graph = self.graph();
        let (_, first) = self.index(from)?;
        let mut effects = Effects::new(self.image.machine());
        let mut index = first;
        while holds(body, self.address_of(index)) {
            let is_joined = index != first && graph.is_target(index);
            if is_joined || !graph.targets(index).is_empty() || self.acts(&mut effects, self.address_of(index)) {
                return None;
            }
            index = graph.next(index)?;
        }
        (index > first).then_some(index)
    }

    /// Whether a branch after the beginning of a body comes back to the straight line from an instruction to this
    /// beginning. Neither the branch nor where it comes to is the body's.
    fn is_looped(&self, from: usize, begin: u64, body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let mut at = Some(from);
        while let Some(index) = at.filter(|&index| self.address_of(index) < begin) {
            let is_from_after = |edge: &Edge| edge.source >= begin && !holds(body, edge.source);
            if self.edges_to(self.address_of(index)).iter().any(is_from_after) {
                return true;
            }
            at = graph.next(index).filter(|_| graph.targets(index).is_empty());
        }
        false
    }

    /// Whether control comes from an instruction to a body without passing anything that can be seen.
    fn leads_quietly(&self, from: usize, body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let mut effects = Effects::new(self.image.machine());
        let mut search = graph.search(Some(from));
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at.filter(|&index| search.comes_to(index)) {
                let address = self.address_of(index);
                if holds(body, address) {
                    return true;
                }
                if self.acts(&mut effects, address) {
                    break;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        false
    }

    /// The first branch after an address: where it goes on, and where it leads. It is in a straight line from the
    /// address, and is not the body's. The body does nothing in that line that can be seen.
    fn first_branch(&self, entry: u64, body: &[Range<u64>]) -> Option<(u64, u64)> {
        let (piece, mut index) = self.index(entry)?;
        let mut effects = Effects::new(self.image.machine());
        loop {
            let address = self.address(piece, index);
            if address != entry && !self.edges_to(address).is_empty() {
                return None;
            }
            let falls = self.flags[index] & FALLS != 0 && index + 1 < self.pieces[piece].instructions.end;
            let next = falls.then(|| self.address(piece, index + 1))?;
            match (effects.acts(self.image, address, self.frame_pointer), holds(body, address)) {
                (Acts::Jumps(target), false) if self.index(target).is_some() => return Some((next, target)),
                (Acts::Jumps(_), _) | (Acts::Yes, true) => return None,
                _ => index += 1,
            }
        }
    }

    /// What a body does first on the way from `one`, if the way from `other` does not come to it first, too. Ways end
    /// at the body's entry: a loop may come past that again.
    fn act_on_one_way(&self, one: u64, other: u64, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        let act = |from: u64| self.first_acts_avoiding(from, Some(entry)).into_iter().find(|&act| holds(body, act));
        act(one).filter(|_| act(other).is_none())
    }

    /// Where a body begins, if control comes to it from an address on one way of a branch alone, and that branch is not
    /// the body's: it is in a straight line from the address, and nothing of the body is. The other way does not lead
    /// to the body, except past the address again.
    pub(crate) fn after_branch(&self, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        let (next, target) = self.first_branch(entry, body)?;
        let (begin, other) = match (holds(body, next), holds(body, target)) {
            (true, false) => (next, target),
            (false, true) => (target, next),
            _ => return None,
        };
        self.act_on_one_way(begin, other, entry, body)?;
        let ((_, start), (_, from), (_, to)) = (self.index(entry)?, self.index(other)?, self.index(begin)?);
        (!self.leads_to(from, to, start)).then_some(begin)
    }

    /// Where a body begins at an entry of it, if the first branch after that entry leads to another of its entries, and
    /// the body has done nothing before the branch that can be seen: on the way that does not lead there, which begins
    /// with what the body does.
    pub(crate) fn after_branch_to(&self, other: u64, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        let (piece, mut index) = self.index(entry)?;
        let mut effects = Effects::new(self.image.machine());
        let (branch, next, target) = loop {
            let address = self.address(piece, index);
            if address != entry && !self.edges_to(address).is_empty() {
                return None;
            }
            let falls = self.flags[index] & FALLS != 0 && index + 1 < self.pieces[piece].instructions.end;
            let next = falls.then(|| self.address(piece, index + 1))?;
            match effects.acts(self.image, address, self.frame_pointer) {
                Acts::Jumps(target) => break (address, next, target),
                Acts::Yes if holds(body, address) => return None,
                _ => index += 1,
            }
        };
        let mut leads_there = |from: u64| {
            let mut is_quiet = || self.instructions(from, other).all(|at| !self.acts(&mut effects, at));
            from == other || self.falls_through(from, other) && is_quiet()
        };
        let begin = match (leads_there(next), leads_there(target)) {
            (true, false) => target,
            (false, true) => next,
            _ => return None,
        };
        let comes_otherwise = |edge: &Edge| edge.source != branch;
        let is_reached_otherwise = self.edges_to(begin).iter().any(comes_otherwise)
            || begin == target
                && self.index(begin).is_some_and(|(piece, at)| self.fall_through_into(piece, at).is_some());
        let acts = self.first_acts_avoiding(begin, Some(entry));
        (!is_reached_otherwise && acts.iter().any(|&act| holds(body, act))).then_some(begin)
    }

    /// Whether two of a body's entries are of one call: control goes from the first one to the second in one way, and
    /// does nothing before that can be seen; the body does something after it.
    ///
    /// An entry may also come after what the body does first. If that is not of a call that another entry stands for,
    /// and control comes from it to the second entry only past the first one, each is of a call of its own.
    pub(crate) fn is_entered_again(&self, first: u64, second: u64, entries: &[u64], body: &[Range<u64>]) -> bool {
        // A jump to an unknown place may come from what the body does first.
        if first == second || self.has_unknown_targets() || !self.goes_quietly(first, second) {
            return false;
        }
        if !self.first_acts(second).iter().any(|&act| holds(body, act)) {
            return false;
        }
        let others = entries.iter().filter(|&&entry| entry != first);
        let mut others: Vec<usize> = others.filter_map(|&other| self.index(other)).map(|(_, index)| index).collect();
        others.sort_unstable();
        let mut effects = Effects::new(self.image.machine());
        let mut before = Vec::new();
        self.any_before(first, &mut |address| {
            let Some((_, index)) = self.index(address) else { return ControlFlow::Continue(()) };
            if others.binary_search(&index).is_ok() {
                return ControlFlow::Break(false);
            }
            if holds(body, address) && self.acts(&mut effects, address) {
                before.push((index, address));
            }
            ControlFlow::Continue(())
        });
        let is_others = |&(index, _): &(usize, u64)| !self.is_reached(index, &others);
        before.iter().all(|act| is_others(act) || self.leads_past_quietly(act.1, first, second))
    }

    /// Whether control goes from one instruction to another in one way, and does nothing before that can be seen.
    fn goes_quietly(&self, from: u64, to: u64) -> bool {
        let mut effects = Effects::new(self.image.machine());
        let mut way = self.way_from(from);
        way.find(|&address| address == to || self.acts(&mut effects, address)) == Some(to)
    }

    /// Whether control may come from after an instruction to another one, not past a third, and do nothing before that
    /// can be seen.
    fn leads_past_quietly(&self, from: u64, past: u64, to: u64) -> bool {
        let indices = [from, past, to].map(|address| self.index(address).map(|(_, index)| index));
        let [Some(from), Some(past), Some(to)] = indices else { return false };
        let graph = self.graph();
        let mut search = graph.search(None);
        // As if the search had been there.
        search.comes_to(past);
        let after: Vec<u32> =
            graph.targets(from).iter().copied().chain(graph.next(from).map(|next| next as u32)).collect();
        for next in after {
            let next = self.address_of(next as usize);
            self.go_quietly(next, &mut search, &mut Effects::new(self.image.machine()), &mut |_| ());
        }
        search.has_come_to(to)
    }

    /// Whether a body is on one way of the first branch after an address, and not on the other, and neither way begins
    /// with it. The branch is not the body's, as for [`FunctionText::after_branch`].
    pub(crate) fn leads_past(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let Some((next, target)) = self.first_branch(entry, body) else { return false };
        if holds(body, next) || holds(body, target) {
            return false;
        }
        let is_past = |one: u64, other: u64| {
            let act = self.act_on_one_way(one, other, entry, body)?;
            let ((_, start), (_, from), (_, to)) = (self.index(entry)?, self.index(other)?, self.index(act)?);
            Some(!self.leads_to(from, to, start))
        };
        is_past(next, target) == Some(true) || is_past(target, next) == Some(true)
    }

    /// Whether a body only computes at its entry, and the rest of it is on one way of a branch that is not the body's:
    /// what computes may have been moved up from there.
    pub(crate) fn computes_before_branch(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let after = self.after_computing(entry, body).map(|after| self.address_of(after));
        after.is_some_and(|after| self.after_branch(after, body).is_some() || self.leads_past(after, body))
    }

    /// Where a body begins that was moved up from its entry to before a branch. All that it does that can be seen comes
    /// before the entry, on every way to it, and control may go from there past the entry.
    pub(crate) fn moved_before(&self, entry: u64, body: &[Range<u64>]) -> Option<MovedUp> {
        if holds(body, entry) {
            return None;
        }
        let acts = self.all_acts(body);
        let first = acts.iter().copied().min().filter(|&first| first < entry && !self.is_straight(first, entry))?;
        let ((_, act), (_, at)) = (self.index(first)?, self.index(entry)?);
        let comes_after = |&other: &u64| self.index(other).is_none_or(|(_, other)| self.leads_to(at, other, act));
        if self.is_reached(at, &[act]) || acts.iter().filter(|&&other| other != first).any(comes_after) {
            return None;
        }
        let start = body.iter().find(|range| range.contains(&first))?.start;
        let begin = if self.is_straight(start, first) { start } else { first };
        Some(MovedUp { begin, act: first })
    }

    /// Whether each way to an address passes an instruction, `from`, and a branch after it. On one of the ways at
    /// least, control does not pass `avoided` in between.
    pub(crate) fn is_on_another_way(&self, from: u64, to: u64, avoided: Option<u64>) -> bool {
        let index = |address| self.index(address).map(|(_, index)| index);
        let (Some(first), Some(last)) = (index(from), index(to)) else { return false };
        let avoided = avoided.and_then(index).unwrap_or(usize::MAX);
        first != last
            && !self.is_straight(from, to)
            && self.leads_to(first, last, avoided)
            && !self.is_reached(last, &[first])
    }

    /// Where a loop comes back to that is in a body except for its first instructions: in a straight line before the
    /// body's entry, from a branch of the body.
    pub(crate) fn loop_before(&self, entry: u64, body: &[Range<u64>]) -> Option<u64> {
        let (piece, mut index) = self.index(entry)?;
        while self.edges_to(self.address(piece, index)).is_empty() {
            index = self.fall_through_into(piece, index)?;
        }
        let head = self.address(piece, index);
        let is_bodys = |edge: &Edge| edge.source > head && holds(body, edge.source);
        (head != entry && !holds(body, head) && self.edges_to(head).iter().any(is_bodys)).then_some(head)
    }

    /// Whether the first branch after an address leads back into a body, and past it otherwise: the test of a loop
    /// around the body.
    pub(crate) fn loops_back_from(&self, address: u64, body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let mut at = self.index(address).map(|(_, index)| index);
        while let Some(index) = at.filter(|&index| !holds(body, self.address_of(index))) {
            let (targets, next) = (graph.targets(index), graph.next(index));
            let is_bodys = |index: usize| holds(body, self.address_of(index));
            if let ([target], Some(next)) = (targets, next) {
                return *target as usize <= index && is_bodys(*target as usize) && !is_bodys(next);
            }
            at = next.filter(|_| targets.is_empty());
        }
        false
    }

    /// Where a body begins after the padding that its first range may begin with. The compiler aligns the head of a
    /// loop by this padding. When a loop that is not the body's comes back to the head, the body starts again without
    /// the padding.
    pub fn past_padding(&self, body: &[Range<u64>]) -> Option<u64> {
        let range = body.iter().find(|range| !range.is_empty())?;
        let (piece, first) = self.index(range.start)?;
        let mut index = first;
        while self.flags[index] & NOP != 0 && self.is_idle(self.address(piece, index)) {
            index += 1;
            if index == self.pieces[piece].instructions.end {
                return None;
            }
        }
        let head = self.address(piece, index);
        let comes_back = || self.edges_to(head).iter().any(|edge| !holds(body, edge.source));
        (index > first && range.contains(&head) && comes_back()).then_some(head)
    }

    /// Where the padding begins that aligns an address that is jumped to. Control need not come through it.
    pub(crate) fn padding_before(&self, address: u64) -> Option<u64> {
        let (piece, index) = self.index(address).filter(|_| !self.edges_to(address).is_empty())?;
        let before =
            (self.pieces[piece].instructions.start..index).rev().map(|before| (before, self.address(piece, before)));
        let padding = before.take_while(|&(before, at)| self.flags[before] & NOP != 0 && self.is_idle(at));
        padding.last().map(|(_, at)| at)
    }

    /// Whether a no-op stays one.
    fn is_idle(&self, address: u64) -> bool {
        let tables = self.image.tables();
        tables.jump_label_at(address).is_none()
            && !tables.in_alternative(address)
            && tables.ftrace.binary_search(&address).is_err()
    }
}

/// A body without some of its instructions.
fn without(body: &[Range<u64>], gone: &Range<u64>) -> Vec<Range<u64>> {
    let parts =
        body.iter().flat_map(|range| [range.start..range.end.min(gone.start), range.start.max(gone.end)..range.end]);
    parts.filter(|part| !part.is_empty()).collect()
}
