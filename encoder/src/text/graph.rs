// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The control flow of a function from instruction to instruction, made when a search first needs it.

use super::{FALLS, FunctionText, NOP};
use std::cell::{RefCell, RefMut};

/// Control may go on to the next instruction of the piece.
const GOES_ON: u8 = 1;
/// Control may come from the instruction before.
const COMES: u8 = 2;
/// Branches of the function lead to it.
const IS_TARGET: u8 = 4;
/// A no-op.
const IDLE: u8 = 8;

/// Instructions are indices into the function's vectors.
pub(super) struct Graph {
    /// One per instruction.
    marks: Vec<u8>,
    /// Where branches lead, by the branch.
    targets: Adjacent,
    /// The branches that lead to each instruction, by that instruction.
    sources: Adjacent,
    /// What searches work with.
    search: RefCell<Search>,
}

impl Graph {
    pub(super) fn new(text: &FunctionText<'_, '_>) -> Graph {
        let mut marks = vec![0; text.offsets.len()];
        let mut edges: Vec<(u32, u32)> = Vec::with_capacity(text.edges.len());
        for with_target in text.edges.chunk_by(|a, b| a.target == b.target) {
            // What does not begin at an instruction is nowhere that control is known to be.
            let Some((_, target)) = text.index(with_target[0].target) else { continue };
            marks[target] |= IS_TARGET;
            for (_, source) in with_target.iter().filter_map(|edge| text.index(edge.source)) {
                edges.push((source as u32, target as u32));
            }
        }
        for piece in &text.pieces {
            let mut comes = false;
            for index in piece.instructions.clone() {
                let is_first = index == piece.instructions.start;
                let (falls, idle) = (text.flags[index] & FALLS != 0, text.flags[index] & NOP != 0);
                let mark = &mut marks[index];
                *mark |= if comes { COMES } else { 0 } | if idle { IDLE } else { 0 };
                if falls && index + 1 < piece.instructions.end {
                    *mark |= GOES_ON;
                }
                // Padding that nothing reaches leads nowhere.
                comes = falls && (comes || is_first || !idle || *mark & IS_TARGET != 0);
            }
        }
        let count = marks.len();
        Graph {
            targets: Adjacent::new(count, edges.iter().copied()),
            sources: Adjacent::new(count, edges.iter().map(|&(source, target)| (target, source))),
            search: RefCell::new(Search { marks: vec![0; count], ..Search::default() }),
            marks,
        }
    }

    /// The instruction after one, if control may go on to it.
    pub(super) fn next(&self, index: usize) -> Option<usize> {
        (self.marks[index] & GOES_ON != 0).then_some(index + 1)
    }

    /// The instruction before one, if control may come from it.
    pub(super) fn previous(&self, index: usize) -> Option<usize> {
        (self.marks[index] & COMES != 0).then(|| index - 1)
    }

    /// Where the branches of an instruction lead.
    pub(super) fn targets(&self, index: usize) -> &[u32] {
        self.targets.of(index)
    }

    /// The branches that lead to an instruction.
    pub(super) fn sources(&self, index: usize) -> &[u32] {
        self.sources.of(index)
    }

    /// Whether branches lead to an instruction, from wherever.
    pub(super) fn is_target(&self, index: usize) -> bool {
        self.marks[index] & IS_TARGET != 0
    }

    /// Instructions that no known flow leads to: what unknown jumps go to, among others.
    pub(super) fn orphans(&self) -> impl Iterator<Item = usize> {
        let marks = self.marks.iter().enumerate();
        marks.filter(|(_, mark)| *mark & (COMES | IS_TARGET | IDLE) == 0).map(|(index, _)| index)
    }

    /// Begins a search from an instruction, if there is one. One at a time.
    pub(super) fn search(&self, from: Option<usize>) -> RefMut<'_, Search> {
        let mut search = self.search.borrow_mut();
        search.number += 1;
        search.open.clear();
        search.open.extend(from.map(|from| from as u32));
        search
    }
}

/// For each instruction, others.
struct Adjacent {
    /// Where those of each begin, and the end.
    starts: Vec<u32>,
    others: Vec<u32>,
}

impl Adjacent {
    fn new(count: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> Adjacent {
        let mut starts = vec![0; count + 1];
        pairs.clone().for_each(|(one, _)| starts[one as usize + 1] += 1);
        (0..count).for_each(|index| starts[index + 1] += starts[index]);
        let mut others = vec![0; starts[count] as usize];
        let mut free = starts.clone();
        for (one, other) in pairs {
            let place = &mut free[one as usize];
            others[*place as usize] = other;
            *place += 1;
        }
        Adjacent { starts, others }
    }

    fn of(&self, index: usize) -> &[u32] {
        &self.others[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

/// A search's state; the next one has its memory.
#[derive(Default)]
pub(super) struct Search {
    /// The number of the search that came to each instruction last.
    marks: Vec<u32>,
    number: u32,
    /// Where it is to go on.
    open: Vec<u32>,
}

impl Search {
    /// Whether it comes to an instruction for the first time.
    pub(super) fn comes_to(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.marks[index], self.number) != self.number
    }

    /// Whether it has come to an instruction.
    pub(super) fn has_come_to(&self, index: usize) -> bool {
        self.marks[index] == self.number
    }

    /// Has it go on at some instructions later.
    pub(super) fn leave(&mut self, instructions: &[u32]) {
        self.open.extend_from_slice(instructions);
    }

    /// An instruction where it is to go on.
    pub(super) fn resume(&mut self) -> Option<usize> {
        self.open.pop().map(|index| index as usize)
    }
}
