// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ways that control takes through a body (the ranges of one inlined copy): how it comes in, whether it comes back, and
//! whether it can come in past the entry.
//!
//! DWARF gives a copy one entry. The compiler may have made several: it duplicates the first instructions of a body for two
//! ways that lead into it (jump threading, block reordering), and a probe at one of them does not see calls that come by
//! the other. The text shows it: control comes into the body at an instruction that is reached without passing the entry,
//! and goes on to the function's end without passing it.
//!
//! The text shows more than that. An instruction of the body may have been moved up to where it runs whether the call is
//! made or not: it lies on every way to the entry, and does not count. But the end of a body may be shared with other code
//! that does the same, and that looks like another way in; nothing tells the two apart for certain. It counts: what is said
//! of such a site is that calls *may* be missed.

use super::{FALLS, FunctionText, NOP};
use std::ops::Range;

impl FunctionText<'_, '_> {
    /// Rule 7 of the encoder: whether control can come to `entry` again from inside the body.
    ///
    /// That is so if a branch of the body goes to the entry, or into the straight run of the body's instructions that
    /// leads up to it. An indirect jump in the body that may go anywhere counts as one that does.
    pub fn reentered_from(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let Some((piece, mut index)) = self.index(entry) else { return false };
        let holds = |address: u64| body.iter().any(|r| r.contains(&address));
        // A jump table never leads back to before the function's prologue.
        if entry != self.entry && self.indirect.iter().any(|&source| holds(source)) {
            return true;
        }
        loop {
            let address = self.address(piece, index);
            if self.edges_to(address).iter().any(|edge| holds(edge.source)) {
                return true;
            }
            // The instruction before leads here, and belongs to the body: its predecessors count too.
            match self.fall_through_into(piece, index) {
                Some(previous) if holds(self.address(piece, previous)) => index = previous,
                _ => return false,
            }
        }
    }

    /// Where control enters a body (the ranges of one inlined copy) from the rest of the function, by address: the
    /// first of its instructions on each path from the function's entry. Empty if nothing is known to lead there.
    pub fn entries(&self, body: &[Range<u64>]) -> Vec<u64> {
        let mut candidates = self.entry_candidates(body);
        // A jump from outside that may go anywhere may come in where nothing else leads to. A jump of the body's own may be
        // what leads there, too: then the first hits tell.
        candidates.extend(self.unknown_targets(body));
        candidates.sort_unstable();
        candidates.dedup();
        if candidates.len() <= 1 {
            return candidates;
        }
        // A body whose instructions are interleaved with others is left and entered again within one call: only the
        // first hit on a path is an entry.
        let hits = self.first_hits(body);
        if !hits.is_empty() {
            candidates = hits;
        }
        candidates
    }

    /// Of several places where control enters a body, the one from which the body leads to all others; `None` if there is none, or
    /// more than one. The others are where other code shares the body's end, or a second way in.
    pub fn principal(&self, entries: &[u64], body: &[Range<u64>]) -> Option<u64> {
        let mut seen = Seen::default();
        let mut found = entries.iter().copied().filter(|&entry| self.leads_to_all(entry, entries, body, &mut seen));
        found.next().filter(|_| found.next().is_none())
    }

    /// Whether all of some instructions of a body are reached from one of it without leaving it.
    fn leads_to_all(&self, from: u64, all: &[u64], body: &[Range<u64>], seen: &mut Seen) -> bool {
        let holds = |address: u64| body.iter().any(|r| r.contains(&address));
        seen.begin(self.offsets.len());
        let mut left: Vec<u64> = all.iter().copied().filter(|&address| address != from).collect();
        let mut open: Vec<(usize, usize)> = self.index(from).into_iter().collect();
        while let Some((piece, mut index)) = open.pop() {
            loop {
                let address = self.address(piece, index);
                if !holds(address) || !seen.add(index) {
                    break;
                }
                left.retain(|&other| other != address);
                open.extend(self.targets_of(address));
                if self.flags[index] & FALLS == 0 || index + 1 >= self.pieces[piece].instructions.end {
                    break;
                }
                index += 1;
            }
        }
        left.is_empty()
    }

    /// Whether control may come through a body and never pass `entry`, so that a probe there misses a call.
    pub fn bypasses(&self, entry: u64, body: &[Range<u64>]) -> bool {
        let mut others = self.entry_candidates(body);
        // What nothing else leads to is taken for a case of the body's own switch, if it has one.
        if !self.indirect.iter().any(|&source| body.iter().any(|range| range.contains(&source))) {
            others.extend(self.unknown_targets(body));
        }
        others.retain(|&other| other != entry);
        let mut seen = Seen::default();
        let Some(at) = self.index(entry) else { return !others.is_empty() };
        others.into_iter().filter_map(|address| Some((address, self.index(address)?))).any(|(address, other)| {
            // The search that mostly ends soon comes first: what was moved up before the entry runs into it.
            self.leads_to_the_end(other, entry, &mut seen)
                && self.is_reached(other, entry, &mut seen)
                && self.is_reached(at, address, &mut seen)
        })
    }

    /// Whether control can go from an instruction to where it leaves the function, and not pass `avoided`.
    fn leads_to_the_end(&self, from: (usize, usize), avoided: u64, seen: &mut Seen) -> bool {
        seen.begin(self.offsets.len());
        let mut open = vec![from];
        while let Some((piece, mut index)) = open.pop() {
            loop {
                let address = self.address(piece, index);
                if address == avoided || !seen.add(index) {
                    break;
                }
                let before = open.len();
                open.extend(self.targets_of(address));
                if self.flags[index] & FALLS == 0 || index + 1 >= self.pieces[piece].instructions.end {
                    if open.len() == before {
                        return true;
                    }
                    break;
                }
                index += 1;
            }
        }
        false
    }

    /// Whether control can come to an instruction from the function's entry, and not pass `avoided`. Where jumps may go anywhere,
    /// an instruction that nothing is known to lead to is reached.
    fn is_reached(&self, to: (usize, usize), avoided: u64, seen: &mut Seen) -> bool {
        seen.begin(self.offsets.len());
        let mut open = vec![to];
        while let Some((piece, mut index)) = open.pop() {
            loop {
                let address = self.address(piece, index);
                if address == avoided || !seen.add(index) {
                    break;
                }
                if address == self.entry {
                    return true;
                }
                let edges = self.edges_to(address);
                open.extend(edges.iter().filter_map(|edge| self.index(edge.source)));
                match self.fall_through_into(piece, index) {
                    Some(previous) => index = previous,
                    None if edges.is_empty() && self.has_unknown_targets() => return true,
                    None => break,
                }
            }
        }
        false
    }

    /// The instructions that the branches of one go to.
    fn targets_of(&self, source: u64) -> impl Iterator<Item = (usize, usize)> + '_ {
        let by_source = self.by_source.get_or_init(|| {
            let mut by_source: Vec<(u64, u64)> = self.edges.iter().map(|edge| (edge.source, edge.target)).collect();
            by_source.sort_unstable();
            by_source
        });
        let start = by_source.partition_point(|&(from, _)| from < source);
        let targets = by_source[start..].iter().take_while(move |&&(from, _)| from == source);
        targets.filter_map(|&(_, target)| self.index(target))
    }

    /// The body's instructions that control can come to from outside the body.
    fn entry_candidates(&self, body: &[Range<u64>]) -> Vec<u64> {
        let holds = |address: u64| body.iter().any(|r| r.contains(&address));
        let mut found = Vec::new();
        for range in body.iter().filter(|r| r.start < r.end) {
            if let Some((piece, index)) = self.index(range.start) {
                let from_outside = match self.fall_through_into(piece, index) {
                    Some(previous) => !holds(self.address(piece, previous)),
                    None => false,
                };
                if from_outside {
                    found.push(range.start);
                }
            }
            if range.contains(&self.entry) {
                found.push(self.entry);
            }
            let edges = self.edges_between(range.start, range.end - 1);
            found.extend(edges.iter().filter(|edge| !holds(edge.source)).map(|edge| edge.target));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The body's instructions that only a jump from outside the body that may go anywhere can lead to.
    fn unknown_targets(&self, body: &[Range<u64>]) -> Vec<u64> {
        let holds = |address: u64| body.iter().any(|r| r.contains(&address));
        if self.indirect.iter().all(|&source| holds(source)) {
            return Vec::new();
        }
        let orphans = self.orphans().into_iter().map(|(piece, index)| self.address(piece, index));
        orphans.filter(|&address| holds(address) && address != self.entry).collect()
    }

    /// The first instruction of the body on each path from the function's entry.
    fn first_hits(&self, body: &[Range<u64>]) -> Vec<u64> {
        let holds = |address: u64| body.iter().any(|r| r.contains(&address));
        let mut visited = vec![false; self.offsets.len()];
        let mut hits = Vec::new();
        let mut open: Vec<(usize, usize)> = self.index(self.entry).into_iter().collect();
        if self.has_unknown_targets() {
            open.extend(self.orphans());
        }
        while let Some((piece, mut index)) = open.pop() {
            loop {
                if std::mem::replace(&mut visited[index], true) {
                    break;
                }
                let address = self.address(piece, index);
                if holds(address) {
                    hits.push(address);
                    break;
                }
                open.extend(self.targets_of(address));
                if self.flags[index] & FALLS == 0 || index + 1 >= self.pieces[piece].instructions.end {
                    break;
                }
                index += 1;
            }
        }
        hits.sort_unstable();
        hits
    }

    /// Instructions that no known flow leads to: what unknown jumps go to, among others.
    fn orphans(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (number, piece) in self.pieces.iter().enumerate() {
            for index in piece.instructions.clone() {
                if self.flags[index] & NOP == 0
                    && self.fall_through_into(number, index).is_none()
                    && self.edges_to(self.address(number, index)).is_empty()
                {
                    found.push((number, index));
                }
            }
        }
        found
    }
}

/// The instructions that a search has come to, by index.
#[derive(Default)]
struct Seen {
    /// The number of the search that came to each.
    marks: Vec<u32>,
    search: u32,
}

impl Seen {
    /// Begins a search.
    fn begin(&mut self, instructions: usize) {
        self.marks.resize(instructions, 0);
        self.search += 1;
    }

    /// Whether the search comes to an instruction for the first time.
    fn add(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.marks[index], self.search) != self.search
    }
}
