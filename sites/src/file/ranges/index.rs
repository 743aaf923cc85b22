// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! All chains, decoded once: a lookup is then one binary search in numbers, for those who have millions of addresses.

use super::super::read::FileError;
use super::super::site::Source;
use super::read::{Chains, NOTHING, Node, RangesError};
use crate::site::SourceLine;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

/// All chains of an image or module, in memory, independent of the file.
#[derive(Debug, Clone)]
pub struct ChainIndex {
    base: u64,
    /// Where each run begins, from the base, sorted; also where text without a function begins.
    starts: Vec<u32>,
    /// For each so many bytes ([`ChainIndex::shift`]), the first run that begins after them: what a search need not
    /// look at.
    buckets: Vec<u32>,
    shift: u32,
    runs: Vec<IndexedRun>,
    nodes: Vec<IndexedNode>,
    copies: usize,
    functions: Vec<Range<u32>>,
    files: Vec<Range<u32>>,
    /// The names of functions and files.
    text: String,
}

/// How many copies may be read for each byte of data. A function's tree is read for each of its pieces; in a file that
/// was made to deceive, a great many pieces may refer to one great tree.
const MOST_WORK: usize = 64;

/// As many first steps of a search are kept as fit into a processor's cache.
const MOST_BUCKETS: u32 = 1 << 17;

#[derive(Debug, Clone, Copy)]
struct IndexedRun {
    /// [`NOTHING`]: no function is known.
    node: u32,
    line: SourceLine,
}

#[derive(Debug, Clone, Copy)]
struct IndexedNode {
    parent: u32,
    function: u32,
    call: SourceLine,
}

/// A function of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedFrame<'i> {
    /// As [`Frame::function`](super::Frame::function).
    pub function: &'i str,
    /// As [`Frame::line`](super::Frame::line).
    pub line: Option<Source<'i>>,
}

/// The functions of a chain, from the innermost copy outwards.
#[derive(Debug, Clone)]
pub struct IndexedFrames<'i> {
    index: &'i ChainIndex,
    node: u32,
    line: SourceLine,
}

impl Chains<'_, '_> {
    /// Decodes all chains.
    ///
    /// # Errors
    /// [`FileError::Ranges`] if any part of the section is damaged.
    pub fn index(&self) -> Result<ChainIndex, FileError> {
        let index = self.build().and_then(|index| self.checked(index)).map_err(FileError::Ranges)?;
        self.file.whole()?;
        Ok(index)
    }

    fn build(&self) -> Result<ChainIndex, RangesError> {
        let mut index = ChainIndex {
            base: self.base,
            starts: Vec::new(),
            buckets: Vec::new(),
            shift: 0,
            runs: Vec::new(),
            nodes: Vec::new(),
            copies: 0,
            functions: Vec::with_capacity(self.functions.len()),
            files: Vec::with_capacity(self.files.len()),
            text: String::new(),
        };
        for number in 0..self.functions.len() as u32 {
            let name = self.name(number)?;
            index.functions.push(index.text.len() as u32..(index.text.len() + name.len()) as u32);
            index.text.push_str(name);
        }
        for number in 0..self.files.len() as u32 {
            let name = self.file_name(number)?;
            index.files.push(index.text.len() as u32..(index.text.len() + name.len()) as u32);
            index.text.push_str(name);
        }
        if u32::try_from(index.text.len()).is_err() {
            return Err(RangesError::Table("string"));
        }
        // For each tree that was read, by the offset of its piece: its first node.
        let mut tree_at: HashMap<usize, u32> = HashMap::new();
        let (mut nodes, mut last) = (Vec::new(), Vec::new());
        let mut end = 0u32;
        let mut work = 0usize;
        let most = MOST_WORK.saturating_mul(self.data.len()).saturating_add(MOST_WORK * 1024);
        for (nth, piece) in self.pieces.iter().enumerate() {
            let wrong = || RangesError::corrupt("piece", nth);
            let from = self.data.get(piece.data.get() as usize..).ok_or_else(wrong)?;
            let mut input = self.piece(nth, &mut nodes).ok_or_else(wrong)?;
            let back = self.back(nth, &mut super::super::leb::Input(from)).ok_or_else(wrong)?;
            let at = (piece.data.get() as usize).checked_sub(back).ok_or_else(wrong)?;
            let first = match tree_at.get(&at) {
                Some(&first) => first,
                None => {
                    let first = index.add_tree(&nodes);
                    tree_at.insert(at, first);
                    first
                }
            };
            let mut here = piece.address.get();
            if here < end {
                return Err(wrong());
            }
            index.begin_gap(end, here);
            let runs = &mut index.runs;
            let starts = &mut index.starts;
            let read = self.runs(&mut input, &nodes, &mut last, |run| {
                starts.push(here);
                runs.push(IndexedRun { node: first + run.node, line: run.line });
                here = here.checked_add(run.size)?;
                Some(ControlFlow::Continue(()))
            });
            read.ok_or_else(wrong)?;
            self.touch_data(from, input.0);
            end = here;
            work += nodes.len();
            if work > most {
                return Err(wrong());
            }
        }
        index.begin_gap(end, u32::MAX);
        index.check()?;
        index.fill_buckets(end);
        Ok(index)
    }
}

impl ChainIndex {
    /// Adds the nodes of a tree, and returns the number of the first.
    fn add_tree(&mut self, nodes: &[Node]) -> u32 {
        let first = self.nodes.len() as u32;
        self.copies += nodes.len() - 1;
        self.nodes.extend(nodes.iter().map(|node| IndexedNode {
            parent: if node.parent == NOTHING { NOTHING } else { first + node.parent },
            function: node.function,
            call: node.call,
        }));
        first
    }

    /// Notes that no function is known from one place to the next.
    fn begin_gap(&mut self, from: u32, to: u32) {
        if from < to {
            self.starts.push(from);
            self.runs.push(IndexedRun { node: NOTHING, line: SourceLine::UNKNOWN });
        }
    }

    /// Whether all files that are referred to are there; functions were looked at when they were read.
    fn check(&self) -> Result<(), RangesError> {
        let places = self.runs.iter().map(|run| run.line).chain(self.nodes.iter().map(|node| node.call));
        for place in places {
            if place.file != SourceLine::NO_FILE && place.file as usize >= self.files.len() {
                return Err(RangesError::Corrupt { what: "file", index: place.file });
            }
        }
        Ok(())
    }

    /// Makes the first step of searches, for text that ends there.
    fn fill_buckets(&mut self, end: u32) {
        self.shift = (0..32).find(|shift| end >> shift < MOST_BUCKETS).unwrap_or(31);
        let mut run = 0usize;
        for bucket in 0..=end >> self.shift {
            while self.starts.get(run).is_some_and(|&start| start >> self.shift < bucket) {
                run += 1;
            }
            self.buckets.push(run as u32);
        }
    }

    /// The last run that begins at or before a place.
    fn run_at(&self, offset: u32) -> Option<&IndexedRun> {
        let bucket = (offset >> self.shift) as usize;
        let bound = |bucket: usize| self.buckets.get(bucket).map_or(self.starts.len(), |&run| run as usize);
        let (from, to) = (bound(bucket), bound(bucket + 1));
        let after = from + self.starts.get(from..to)?.partition_point(|&start| start <= offset);
        self.runs.get(after.checked_sub(1)?)
    }

    /// How many inlined copies there are.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// How many runs of instructions are told apart.
    pub fn runs(&self) -> usize {
        self.runs.iter().filter(|run| run.node != NOTHING).count()
    }

    /// The functions that a link-time address is in, from the innermost copy outwards. `None` if the debug information
    /// has no function there.
    pub fn at(&self, address: u64) -> Option<IndexedFrames<'_>> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let run = self.run_at(offset)?;
        (run.node != NOTHING).then_some(IndexedFrames { index: self, node: run.node, line: run.line })
    }

    fn source(&self, at: SourceLine) -> Option<Source<'_>> {
        let name = self.files.get(at.file as usize)?;
        Some(Source { file: self.text(name), line: at.line })
    }

    fn text(&self, range: &Range<u32>) -> &str {
        self.text.get(range.start as usize..range.end as usize).unwrap_or_default()
    }
}

impl<'i> Iterator for IndexedFrames<'i> {
    type Item = IndexedFrame<'i>;

    fn next(&mut self) -> Option<IndexedFrame<'i>> {
        let node = self.index.nodes.get(self.node as usize)?;
        let name = self.index.functions.get(node.function as usize);
        let function = name.map_or("", |name| self.index.text(name));
        let frame = IndexedFrame { function, line: self.index.source(self.line) };
        self.node = node.parent;
        self.line = node.call;
        Some(frame)
    }
}
