// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which inlined copy each instruction belongs to, in memory: what the encoder gathers if it is asked to, and what the
//! section `.BTF.inline.ranges` is written from.
//!
//! A site says where a copy is entered. To turn any address into a chain of functions requires more: how far each copy
//! reaches, where it was called, and which copy it is in, also for copies that have no site. The debug information
//! gives each copy a list of ranges, and a copy's ranges lie inside those of the copy around it. Here the ranges are
//! flattened: each function's text is cut into *runs*, and each run belongs to the innermost copy there. The boundary
//! of a nest of copies is then stored once, and a lookup is one search.

use crate::site::SourceLine;
use std::ops::Range;

/// Which inlined copy each instruction of an image or module belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges {
    /// The functions that are named here, each name and declaration once.
    pub functions: Vec<Named>,
    /// Names of source files: what [`SourceLine::file`] is an index of here.
    pub files: Vec<String>,
    /// The functions that have text of their own.
    pub trees: Vec<Tree>,
    /// The copies of all trees.
    pub copies: Vec<Copy>,
    /// The contiguous parts of text, sorted by their addresses. They do not overlap.
    pub pieces: Vec<Piece>,
    /// The runs of all pieces.
    pub runs: Vec<Run>,
    /// Whether the runs have source lines.
    pub has_lines: bool,
}

/// A function by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Named {
    /// Name in the source.
    pub name: String,
    /// Where it is declared.
    pub declared: SourceLine,
}

/// A function that has text of its own, with the copies that were inlined there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Index of the function. `None` if the debug information has lines of the text, and no function.
    pub function: Option<u32>,
    /// Its copies: a part of [`Ranges::copies`]. A copy comes right after the one that it is in, or after others in
    /// that.
    pub copies: Range<u32>,
}

/// An inlined copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Index of the function.
    pub function: u32,
    /// What it is in: 0 is the tree's function, *n* is the tree's *n*-th copy, counted from 1.
    pub parent: u32,
    /// Where it was called.
    pub call: SourceLine,
}

/// A contiguous part of a function's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Link-time address.
    pub address: u64,
    /// Index of the function's tree. The pieces of a tree need not be neighbours: `foo.cold` is a piece of `foo`.
    pub tree: u32,
    /// Its runs: a part of [`Ranges::runs`]. Each begins where the one before ends.
    pub runs: Range<u32>,
}

/// Instructions that belong to the same copy, and if lines are kept, to the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Bytes.
    pub size: u32,
    /// As [`Copy::parent`]: 0 is the function, *n* is its *n*-th copy.
    pub copy: u32,
    /// The source line; [`SourceLine::UNKNOWN`] if lines are not kept.
    pub line: SourceLine,
}
