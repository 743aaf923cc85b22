// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The control flow of a function from instruction to instruction, made when a search first needs it.

use super::{FALLS, FunctionText, NOP};

/// Control may go on to the next instruction of the piece.
const GOES_ON: u8 = 1;
/// Control may come from the instruction before.
const COMES: u8 = 2;
/// Branches of the function lead from it.
const BRANCHES: u8 = 4;
/// Branches of the function lead to it.
const IS_TARGET: u8 = 8;
/// A no-op.
const IDLE: u8 = 16;

/// Instructions are indices into the function's vectors.
pub(super) struct Graph {
    /// One per instruction.
    marks: Vec<u8>,
    /// Branches between instructions as (source, target), sorted.
    by_source: Vec<(u32, u32)>,
    /// The same as (target, source), sorted.
    by_target: Vec<(u32, u32)>,
}

impl Graph {
    pub(super) fn new(text: &FunctionText<'_, '_>) -> Graph {
        let mut marks = vec![0; text.offsets.len()];
        let mut by_source = Vec::with_capacity(text.edges.len());
        for edge in &text.edges {
            // What does not begin at an instruction is nowhere that control is known to be.
            let (target, source) = (text.index(edge.target), text.index(edge.source));
            if let Some((_, target)) = target {
                marks[target] |= IS_TARGET;
            }
            if let (Some((_, target)), Some((_, source))) = (target, source) {
                marks[source] |= BRANCHES;
                by_source.push((source as u32, target as u32));
            }
        }
        let mut by_target: Vec<(u32, u32)> = by_source.iter().map(|&(source, target)| (target, source)).collect();
        by_source.sort_unstable();
        by_target.sort_unstable();
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
        Graph { marks, by_source, by_target }
    }

    /// How many instructions there are.
    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    /// The instruction behind one, if control may go on to it.
    pub(super) fn next(&self, index: usize) -> Option<usize> {
        (self.marks[index] & GOES_ON != 0).then_some(index + 1)
    }

    /// The instruction before one, if control may come from it.
    pub(super) fn previous(&self, index: usize) -> Option<usize> {
        (self.marks[index] & COMES != 0).then(|| index - 1)
    }

    /// Where the branches of an instruction lead.
    pub(super) fn targets(&self, index: usize) -> impl Iterator<Item = usize> {
        let branches = self.marks[index] & BRANCHES != 0;
        branches.then(|| others(&self.by_source, index)).into_iter().flatten()
    }

    /// Whose branches lead to an instruction.
    pub(super) fn sources(&self, index: usize) -> impl Iterator<Item = usize> {
        let is_target = self.marks[index] & IS_TARGET != 0;
        is_target.then(|| others(&self.by_target, index)).into_iter().flatten()
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
}

/// What sorted pairs have beside an index.
fn others(pairs: &[(u32, u32)], index: usize) -> impl Iterator<Item = usize> {
    let start = pairs.partition_point(|&(from, _)| (from as usize) < index);
    pairs[start..].iter().take_while(move |&&(from, _)| from as usize == index).map(|&(_, to)| to as usize)
}

/// The instructions that a search has come to.
pub(super) struct Seen {
    /// The number of the search that came to each.
    marks: Vec<u32>,
    search: u32,
}

impl Seen {
    pub(super) fn new(graph: &Graph) -> Seen {
        Seen { marks: vec![0; graph.len()], search: 0 }
    }

    /// Begins a search.
    pub(super) fn begin(&mut self) {
        self.search += 1;
    }

    /// Whether the search comes to an instruction for the first time.
    pub(super) fn add(&mut self, index: usize) -> bool {
        std::mem::replace(&mut self.marks[index], self.search) != self.search
    }
}
