// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ways that control takes through a body (the ranges of one inlined copy): how it comes in, whether it comes back,
//! and whether it can come in past the entry.
//!
//! DWARF gives a copy one entry. The compiler may have made several: it duplicates the first instructions of a body for
//! two ways that lead into it (jump threading, block reordering), and a probe at one of them does not see calls that
//! come by the other. The text shows it: control comes into the body at an instruction that is reached without passing
//! the entry, and goes on to the function's end without passing it.
//!
//! The text shows more than that. An instruction of the body may have been moved up to where it runs whether the call
//! is made or not: it lies on every way to the entry, and does not count. But the end of a body may be shared with
//! other code that does the same, and that looks like another way in; nothing tells the two apart for certain. It
//! counts: such a site is marked as one at which calls *may* be missed. What the instructions do is better evidence: a
//! compiler may compute ahead of time, or for nothing. But it does not store or call where the source does not.

use super::graph::Graph;
use super::{Edge, Effects, FunctionText};
use std::ops::{ControlFlow, Range};

impl FunctionText<'_, '_> {
    /// Rule 7 of the encoder: whether control can come to `entry` again from inside the body.
    ///
    /// That is so if a branch of the body goes to the entry, or into the straight run of the body's instructions that
    /// leads up to it. An indirect jump in the body that may go anywhere counts as one that does.
    pub fn reentered_from(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let Some((piece, mut index)) = self.index(entry) else { return false };
        // A jump table never leads back to before the function's prologue.
        if entry != self.entry && self.indirect.iter().any(|&source| holds(body, source)) {
            return true;
        }
        loop {
            let address = self.address(piece, index);
            if self.edges_to(address).iter().any(|edge| holds(body, edge.source)) {
                return true;
            }
            // The instruction before leads here, and belongs to the body: its predecessors count too.
            match self.fall_through_into(piece, index) {
                Some(previous) if holds(body, self.address(piece, previous)) => index = previous,
                _ => return false,
            }
        }
    }

    /// Where control enters a body (the ranges of one inlined copy) from the rest of the function, by address: the
    /// first of its instructions on each path from the function's entry. Empty if nothing is known to lead there.
    pub fn entries(&self, body: &[Range<u64>]) -> Vec<u64> {
        let mut candidates = self.entry_candidates(body);
        // A jump from outside that may go anywhere may come in where nothing else leads to. A jump of the body's own
        // may be what leads there, too: then the first hits tell.
        candidates.extend(self.unknown_targets(body));
        candidates.sort_unstable();
        candidates.dedup();
        if candidates.len() <= 1 {
            return candidates;
        }
        // If the instructions of a body are interleaved with others, control leaves and enters the body again within
        // one call: only the first hit on a path is an entry.
        let hits = self.first_hits(body);
        if !hits.is_empty() {
            candidates = hits;
        }
        candidates
    }

    /// Of several places where control enters a body, the one from which the body leads to all others; `None` if there
    /// is none, or more than one. The others are where other code shares the body's end, or a second way in.
    pub fn principal(&self, entries: &[u64], body: &[Range<u64>]) -> Option<u64> {
        let mut found = entries.iter().copied().filter(|&entry| self.leads_to_all(entry, entries, body));
        found.next().filter(|_| found.next().is_none())
    }

    /// Whether all of some instructions of a body are reached from one of it without leaving it.
    fn leads_to_all(&self, from: u64, all: &[u64], body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let mut search = graph.search(self.index(from).map(|(_, index)| index));
        let mut left: Vec<u64> = all.iter().copied().filter(|&address| address != from).collect();
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                let address = self.address_of(index);
                if !holds(body, address) || !search.comes_to(index) {
                    break;
                }
                left.retain(|&other| other != address);
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        left.is_empty()
    }

    /// Whether control may come through a body and pass none of some entries, so that probes there miss a call.
    ///
    /// An instruction that stores or calls shows that the body runs. Where each way into the body is known to be among
    /// the entries (`all_known`), nothing else counts: what only computes may have been moved to where no call is made.
    /// And control that comes right from another copy of the function (`is_other_copy`), with which this one shares its
    /// end, has passed that copy's entry.
    pub fn bypasses(
        &self,
        entries: &[u64],
        body: &[Range<u64>],
        all_known: bool,
        is_other_copy: &dyn Fn(u64) -> bool,
    ) -> bool {
        let mut others = Vec::new();
        let mut add = |candidate| {
            if !entries.contains(&candidate) && !others.contains(&candidate) {
                others.push(candidate);
            }
        };
        // Mostly control comes in at the entries alone.
        self.for_ways_in(body, &mut |candidate, source| {
            let is_shared = || all_known && source.is_some_and(is_other_copy);
            if !entries.contains(&candidate) && !is_shared() {
                add(candidate);
            }
        });
        // An instruction that nothing else leads to is treated as a case of the body's own switch, if it has one.
        if !self.indirect.iter().any(|&source| holds(body, source)) {
            self.unknown_targets(body).into_iter().for_each(add);
        }
        if others.is_empty() {
            return false;
        }
        let mut avoided = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some((_, index)) = self.index(*entry) else { return true };
            avoided.push(index);
        }
        avoided.sort_unstable();
        others.into_iter().filter_map(|address| self.index(address)).any(|(_, other)| {
            // The search that mostly ends soon comes first: what was moved up before the entry runs into it.
            self.leads_to_the_end(other, &avoided)
                && self.is_reached(other, &avoided)
                && (!all_known && avoided.iter().any(|&at| self.is_reached(at, &[other]))
                    || self.acts_after(other, &avoided, body))
        })
    }

    /// Whether an instruction of the body that stores or calls runs after `from`, on a way to where control leaves the
    /// function, and none of `avoided` does.
    fn acts_after(&self, from: usize, avoided: &[usize], body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let mut effects = Effects::new(self.image.machine());
        let mut acting = Vec::new();
        let mut search = graph.search(Some(from));
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if avoided.binary_search(&index).is_ok() || !search.comes_to(index) {
                    break;
                }
                let address = self.address_of(index);
                if holds(body, address) && self.acts(&mut effects, address) {
                    acting.push(index);
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        drop(search);
        acting.into_iter().any(|index| self.leads_to_the_end(index, avoided))
    }

    /// Whether control can go from an instruction to where it leaves the function, and not pass one of `avoided`.
    fn leads_to_the_end(&self, from: usize, avoided: &[usize]) -> bool {
        let graph = self.graph();
        let mut search = graph.search(Some(from));
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if avoided.binary_search(&index).is_ok() || !search.comes_to(index) {
                    break;
                }
                let targets = graph.targets(index);
                search.leave(targets);
                at = graph.next(index);
                if at.is_none() && targets.is_empty() {
                    return true;
                }
            }
        }
        false
    }

    /// Whether control can come to an instruction from the function's entry, and not pass one of `avoided`. Where jumps
    /// may go anywhere, an instruction that nothing is known to lead to is reached.
    pub(super) fn is_reached(&self, to: usize, avoided: &[usize]) -> bool {
        let graph = self.graph();
        let entry = self.index(self.entry).map(|(_, index)| index);
        let mut search = graph.search(Some(to));
        while let Some(last) = search.resume() {
            let mut at = Some(last);
            while let Some(index) = at {
                if avoided.binary_search(&index).is_ok() || !search.comes_to(index) {
                    break;
                }
                if Some(index) == entry {
                    return true;
                }
                search.leave(graph.sources(index));
                at = graph.previous(index);
                if at.is_none() && !graph.is_target(index) && self.has_unknown_targets() {
                    return true;
                }
            }
        }
        false
    }

    /// Where control goes from a range that is one unconditional jump.
    pub(crate) fn only_jump(&self, range: &Range<u64>) -> Option<u64> {
        let (_, index) = self.index(range.start)?;
        let is_one = self.instructions(range.start, range.end).nth(1).is_none();
        let graph = self.graph();
        match graph.targets(index) {
            &[target] if is_one && graph.next(index).is_none() => Some(self.address_of(target as usize)),
            _ => None,
        }
    }

    /// The instructions that jump to an address.
    pub(crate) fn jumps_to(&self, target: u64) -> impl Iterator<Item = u64> + '_ {
        self.edges_to(target).iter().map(|edge| edge.source)
    }

    /// Whether an entry is before a loop of the caller's in which the body runs: instructions that only compute, and
    /// compute the same in each turn, were moved out of the loop. It is the caller's loop if the jump back is not in
    /// the body, or does not lead into it.
    pub(crate) fn was_moved_out_of_loop(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let Some((_, start)) = self.index(entry) else { return false };
        let Some(end) = body.iter().filter(|range| !range.is_empty()).map(|range| range.end).max() else {
            return false;
        };
        let is_own = |edge: &Edge| holds(body, edge.source) && holds(body, edge.target);
        let comes_back = |edge: &&Edge| edge.source >= edge.target && !is_own(edge);
        let mut loops = self.edges_between(entry.saturating_add(1), end).iter().filter(comes_back).peekable();
        if loops.peek().is_none() {
            return false;
        }
        let acts = self.all_acts(body);
        loops.any(|&Edge { target, source }| {
            let (Some((_, target)), Some((_, source))) = (self.index(target), self.index(source)) else { return false };
            let mut acts = acts.iter().filter_map(|&act| self.index(act)).map(|(_, act)| act);
            acts.any(|act| self.leads_to(target, act, start) && self.leads_to(act, source, start))
        })
    }

    /// Whether a body does something that can be seen, then others do, and then the body again, without a way past its
    /// entry: it has begun again somewhere else.
    pub(crate) fn comes_again_after_others(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let own = self.all_acts(body);
        if own.is_empty() {
            return false;
        }
        let pieces: Vec<Range<u64>> = self.pieces.iter().map(|piece| piece.start..piece.end).collect();
        let mut others = self.all_acts(&pieces);
        others.retain(|&act| !holds(body, act));
        self.keep_reached(&own, &[entry], &mut others);
        let mut again = own;
        self.keep_reached(&others, &[entry], &mut again);
        !again.is_empty()
    }

    /// Whether control may come from one instruction to another, and not pass `avoided`.
    pub(super) fn leads_to(&self, from: usize, to: usize, avoided: usize) -> bool {
        let graph = self.graph();
        let mut search = graph.search(Some(from));
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if index == avoided || !search.comes_to(index) {
                    break;
                }
                if index == to {
                    return true;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        false
    }

    /// Whether there is an instruction before an address, on some way from the function's entry, that a visitor looks
    /// for. The visitor is asked about each instruction on these ways, the last first: `Break(true)` if it is found,
    /// `Break(false)` if those before it do not matter.
    pub(super) fn any_before(&self, to: u64, visit: &mut dyn FnMut(u64) -> ControlFlow<bool>) -> bool {
        let graph = self.graph();
        let Some((_, to)) = self.index(to) else { return true };
        let mut search = graph.search(None);
        search.leave(graph.sources(to));
        search.leave(graph.previous(to).map(|previous| previous as u32).as_slice());
        while let Some(last) = search.resume() {
            let mut at = Some(last);
            while let Some(index) = at {
                if !search.comes_to(index) {
                    break;
                }
                match visit(self.address_of(index)) {
                    ControlFlow::Break(true) => return true,
                    ControlFlow::Break(false) => break,
                    ControlFlow::Continue(()) => {}
                }
                search.leave(graph.sources(index));
                at = graph.previous(index);
            }
        }
        false
    }

    /// Whether control may come from an instruction of a body to the same again, and not leave the body.
    pub(crate) fn comes_back(&self, to: u64, body: &[Range<u64>]) -> bool {
        self.comes_back_avoiding(to, None, body)
    }

    /// The same, and not pass an address, if one is given.
    pub(crate) fn comes_back_avoiding(&self, to: u64, avoided: Option<u64>, body: &[Range<u64>]) -> bool {
        avoided != Some(to) && self.comes_avoiding(to, to, avoided, body)
    }

    /// Whether control comes from after one instruction to another inside of a body without passing `avoided`.
    pub(crate) fn comes_avoiding(&self, from: u64, to: u64, avoided: Option<u64>, body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let (Some((_, start)), Some((_, end))) = (self.index(from), self.index(to)) else { return false };
        let mut search = graph.search(None);
        search.leave(graph.targets(start));
        search.leave(graph.next(start).map(|next| next as u32).as_slice());
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if index == end {
                    return true;
                }
                let address = self.address_of(index);
                if avoided == Some(address) || !holds(body, address) || !search.comes_to(index) {
                    break;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        false
    }

    /// Of some instructions, keeps those that control can come to from the entry, or from one kept before, only after
    /// something that can be seen; and those of them that are known to be kept.
    pub(crate) fn begin_anew(&self, entry: u64, again: &mut Vec<u64>, known: &[u64]) {
        let mut search = self.graph().search(None);
        let mut effects = Effects::new(self.image.machine());
        self.go_quietly(entry, &mut search, &mut effects, &mut |_| {});
        again.retain(|&address| {
            let Some((_, index)) = self.index(address) else { return false };
            let is_new = !search.has_come_to(index) || known.contains(&address);
            if is_new {
                self.go_quietly(address, &mut search, &mut effects, &mut |_| {});
            }
            is_new
        });
    }

    /// Whether control comes to an instruction of a body from other instructions alone.
    pub(crate) fn is_entered_from_outside(&self, address: u64, body: &[Range<u64>]) -> bool {
        let Some((piece, index)) = self.index(address) else { return false };
        let before = self.fall_through_into(piece, index).map(|before| self.address(piece, before));
        before.into_iter().chain(self.jumps_to(address)).all(|source| !holds(body, source))
    }

    /// Whether control comes from one instruction to another only past a branch of a body.
    pub(crate) fn is_past_branch(&self, from: u64, to: u64, body: &[Range<u64>]) -> bool {
        let graph = self.graph();
        let (Some((_, start)), Some((_, end))) = (self.index(from), self.index(to)) else { return false };
        let mut search = graph.search(Some(start));
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if index == end {
                    return false;
                }
                let (targets, next) = (graph.targets(index), graph.next(index));
                let is_branch = !targets.is_empty() && next.is_some() && holds(body, self.address_of(index));
                if is_branch || !search.comes_to(index) {
                    break;
                }
                search.leave(targets);
                at = next;
            }
        }
        true
    }

    /// The instructions before an address that lead there in a straight line, the last first.
    pub(crate) fn line_before(&self, address: u64) -> impl Iterator<Item = u64> + '_ {
        let mut at = self.index(address);
        std::iter::from_fn(move || {
            let (piece, index) = at?;
            let previous = self.fall_through_into(piece, index)?;
            let address = self.address(piece, previous);
            // What else leads there may be the statement's, too.
            at = Some((piece, previous)).filter(|_| self.edges_to(address).is_empty());
            Some(address)
        })
    }

    /// Keeps those of the instructions `of` that control can reach after an instruction in `from`, without passing any
    /// of `avoided`.
    pub(crate) fn keep_reached(&self, from: &[u64], avoided: &[u64], of: &mut Vec<u64>) {
        let graph = self.graph();
        let avoided: Vec<usize> = avoided.iter().filter_map(|&at| self.index(at)).map(|(_, index)| index).collect();
        let mut search = graph.search(None);
        for (_, start) in from.iter().filter_map(|&from| self.index(from)) {
            search.leave(graph.targets(start));
            search.leave(graph.next(start).map(|next| next as u32).as_slice());
        }
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if avoided.contains(&index) || !search.comes_to(index) {
                    break;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        of.retain(|&address| self.index(address).is_some_and(|(_, index)| search.has_come_to(index)));
    }

    /// The instructions that control comes to from an address on, up to where it may go two ways.
    pub(crate) fn way_from(&self, from: u64) -> impl Iterator<Item = u64> {
        /// A way may be a loop.
        const FARTHEST: usize = 64;
        let graph = self.graph();
        let step = |index: &usize| match (graph.targets(*index), graph.next(*index)) {
            ([], next) => next,
            ([target], None) => Some(*target as usize),
            _ => None,
        };
        let way = std::iter::successors(self.index(from).map(|(_, index)| index), step);
        way.take(FARTHEST).map(|index| self.address_of(index))
    }

    /// Whether control comes to an instruction both by a branch and from the instruction before it: what the debug
    /// information says about the address may hold for one of the two ways only.
    pub fn has_two_ways_in(&self, address: u64) -> bool {
        let Some((piece, index)) = self.index(address) else { return true };
        let is_fallen_into = address == self.entry || self.fall_through_into(piece, index).is_some();
        is_fallen_into && (!self.edges_to(address).is_empty() || self.has_unknown_targets())
    }

    /// The body's instructions that control can come to from outside the body.
    fn entry_candidates(&self, body: &[Range<u64>]) -> Vec<u64> {
        let mut found = Vec::new();
        self.for_entry_candidates(body, &mut |candidate| found.push(candidate));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Calls `found` with each of these instructions, some more than once.
    fn for_entry_candidates(&self, body: &[Range<u64>], found: &mut impl FnMut(u64)) {
        self.for_ways_in(body, &mut |candidate, _| found(candidate));
    }

    /// Calls `found` with each of these instructions, and where control comes from, unless it is the function's entry.
    fn for_ways_in(&self, body: &[Range<u64>], found: &mut impl FnMut(u64, Option<u64>)) {
        for range in body.iter().filter(|r| r.start < r.end) {
            if let Some((piece, index)) = self.index(range.start)
                && let Some(previous) = self.fall_through_into(piece, index)
            {
                let source = self.address(piece, previous);
                if !holds(body, source) {
                    found(range.start, Some(source));
                }
            }
            if range.contains(&self.entry) {
                found(self.entry, None);
            }
            let edges = self.edges_between(range.start, range.end - 1).iter();
            edges.filter(|edge| !holds(body, edge.source)).for_each(|edge| found(edge.target, Some(edge.source)));
        }
    }

    /// The body's instructions that only a jump from outside the body that may go anywhere can lead to.
    fn unknown_targets(&self, body: &[Range<u64>]) -> Vec<u64> {
        if self.indirect.iter().all(|&source| holds(body, source)) {
            return Vec::new();
        }
        let orphans = self.graph().orphans().map(|index| self.address_of(index));
        orphans.filter(|&address| holds(body, address) && address != self.entry).collect()
    }

    /// The first instruction of the body on each path from the function's entry.
    fn first_hits(&self, body: &[Range<u64>]) -> Vec<u64> {
        let graph = self.graph();
        let mut hits = Vec::new();
        let mut search = graph.search(self.index(self.entry).map(|(_, index)| index));
        if self.has_unknown_targets() {
            graph.orphans().for_each(|index| search.leave(&[index as u32]));
        }
        while let Some(first) = search.resume() {
            let mut at = Some(first);
            while let Some(index) = at {
                if !search.comes_to(index) {
                    break;
                }
                let address = self.address_of(index);
                if holds(body, address) {
                    hits.push(address);
                    break;
                }
                search.leave(graph.targets(index));
                at = graph.next(index);
            }
        }
        hits.sort_unstable();
        hits
    }

    pub(super) fn graph(&self) -> &Graph {
        self.graph.get_or_init(|| Graph::new(self))
    }

    /// The address of an instruction of whichever piece.
    pub(super) fn address_of(&self, index: usize) -> u64 {
        let piece = self.pieces.partition_point(|piece| piece.instructions.end <= index);
        self.address(piece, index)
    }
}

/// Whether a body holds an address.
pub(super) fn holds(body: &[Range<u64>], address: u64) -> bool {
    body.iter().any(|range| range.contains(&address))
}
