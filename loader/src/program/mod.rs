// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The user's program, and what can be known about it without running it: which arguments it reads.
//!
//! A program is attached to a site if the site can supply what the program reads, so "what it reads" must not be an
//! underestimate (an argument would be garbage), and should not be an overestimate (a site would be refused for an
//! argument that nobody wants). The analysis is a forward dataflow over the control flow graph (`dataflow`). It
//! follows, through registers and the program's own stack, three kinds of value: the context plus a constant, a
//! pointer to the program's own stack, and the value of an argument slot. A register that may hold the context counts
//! as holding it. A load through it marks the slot. Subprograms are analysed with what each call gives them.
//!
//! Where the context leaves what is followed (it is stored in a map, or passed to a helper as a buffer, or lies on
//! a stack that a callback can see), every slot counts as read: right, and rarely met, because such a program is
//! mostly refused by the verifier as an fentry program anyway.
//!
//! A program at the return is analysed in the same way: its return value is one more slot, and which one is known when
//! the function is. Which helpers may be called depends on what runs the program, so that a helper that cannot work is
//! refused here only if it works nowhere; the rest is for the trampoline to refuse.
//!
//! Writing to the context is refused: fentry's is read-only, and the verifier would not notice here, where it is an
//! array on our stack.

mod dataflow;
pub mod declared;
mod liveness;
pub mod object;
pub mod object_file;
pub(crate) mod passed;
pub mod path;
pub mod pattern;
pub mod policy;
pub mod section;
mod validate;
mod value;

pub use crate::bpf::info::{FuncInfo, LineInfo};
use crate::bpf::insn::Insn;
use crate::site::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// A program as libbpf hands it over: relocated, its subprograms after it, ready for BPF_PROG_LOAD.
#[derive(Debug, Clone, Default)]
pub struct UserProgram {
    /// Name.
    pub name: String,
    /// Instructions. The main program starts at 0.
    pub insns: Vec<Insn>,
    /// Functions, by increasing offset; empty if unknown.
    pub func_info: Vec<FuncInfo>,
    /// Source lines, by increasing offset; empty if unknown.
    pub line_info: Vec<LineInfo>,
    /// The object's BTF, as it was loaded into the kernel.
    pub btf: Option<Vec<u8>>,
    /// Whether it runs at functions' returns (fexit): its context has one more slot after those of the arguments, with
    /// the return value.
    pub exit: bool,
    /// How many parameters the kernel functions that it calls have, by BTF id (the call's immediate). One that is not
    /// here is taken to read all five argument registers, so that a context left in one counts as passed to it.
    pub kfunc_arguments: BTreeMap<i32, u8>,
}

impl UserProgram {
    /// The first instructions of all functions: the main program and what is called or referred to, in order.
    pub fn function_starts(&self) -> BTreeSet<usize> {
        let referred = self.insns.iter().enumerate().filter_map(|(at, insn)| {
            (insn.is_subprogram_call() || insn.is_subprogram_address())
                .then(|| usize::try_from(at as i64 + 1 + i64::from(insn.imm)).ok())
                .flatten()
        });
        std::iter::once(0).chain(referred).collect()
    }
}

/// A set of argument slots (or parameters), or all of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct IndexSet {
    all: bool,
    some: BTreeSet<u32>,
}

impl IndexSet {
    /// The set of everything.
    pub fn all() -> IndexSet {
        IndexSet { all: true, some: BTreeSet::new() }
    }

    /// Adds one.
    pub fn insert(&mut self, index: u32) {
        if !self.all {
            self.some.insert(index);
        }
    }

    /// Adds everything.
    pub fn insert_all(&mut self) {
        *self = IndexSet::all();
    }

    /// Whether it is in.
    pub fn contains(&self, index: u32) -> bool {
        self.all || self.some.contains(&index)
    }

    /// Whether any of a range is in.
    pub fn intersects(&self, range: std::ops::Range<u32>) -> bool {
        !range.is_empty() && (self.all || self.some.range(range).next().is_some())
    }

    /// Whether it is the set of everything.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Whether nothing is in.
    pub fn is_empty(&self) -> bool {
        !self.all && self.some.is_empty()
    }

    /// The members that were named, in order; none where everything is in.
    pub fn named(&self) -> impl Iterator<Item = u32> + '_ {
        self.some.iter().copied()
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> IndexSet {
        IndexSet { all: false, some: indices.into_iter().collect() }
    }
}

/// What a program asks of the place where it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Slots of the context that it loads on some path. Each must be supplied.
    pub slots: IndexSet,
    /// Slots read through `bpf_get_func_arg`. Those that the function has must be supplied.
    pub indexed: IndexSet,
    /// Parameters asked for through siteseer.bpf.h's fallible accessors.
    pub fallible: IndexSet,
    /// Slots that it loads in part, or together with a part of a neighbour.
    pub narrow: IndexSet,
    /// Slots whose value it uses as a pointer: loads memory through it.
    pub dereferenced: IndexSet,
    /// Slots whose value it computes with, as one cannot with a typed pointer.
    pub arithmetic: IndexSet,
    /// Whether a helper needs the real context.
    pub context: bool,
    /// Whether it asks for the function's address.
    pub func_ip: bool,
    /// Whether it asks for the return value by `bpf_get_func_ret`.
    pub returned: bool,
    /// Whether it may hand an argument, or what an argument points to, to a helper or kernel function that accepts only
    /// pointers which the verifier trusts: those of real fentry and fexit, not those of a gathering trampoline.
    pub wants_trusted: bool,
    /// Whether it asks which site it is at.
    pub site: bool,
    /// Whether it asks for its cookie.
    pub cookie: bool,
    /// Whether it asks how many arguments there are.
    pub argument_count: bool,
    /// Helper calls that can be reached: number and instruction.
    pub helpers: Vec<(u32, usize)>,
    /// Calls of kernel functions that can be reached: BTF id and instruction.
    pub kfuncs: Vec<(i32, usize)>,
    /// Bytes of stack on its deepest path of calls, as far as they are known beforehand.
    pub stack: u32,
    /// Bytes of stack of each function, by first instruction.
    pub frames: BTreeMap<usize, u32>,
    /// First instructions of the functions that must be static in the BTF they are loaded with: those that see the
    /// context. (The verifier checks a global function alone, with a context of the program type's kind.)
    pub made_static: BTreeSet<usize>,
    /// Which parameter (and slot of it) an accessor call asks for, where that is a constant, by instruction.
    pub constant_indices: BTreeMap<usize, [Option<u32>; 2]>,
}

impl Uses {
    /// Whether the program uses the value of this slot as a pointer.
    pub fn dereferences(&self, slot: u32) -> bool {
        self.dereferenced.contains(slot)
    }

    /// Whether the program reads any of these slots in a way that requires that they be supplied.
    pub fn requires(&self, slots: std::ops::Range<u32>) -> bool {
        self.slots.intersects(slots.clone()) || self.indexed.intersects(slots)
    }

    /// Whether a program at the return of a function whose arguments take so many slots reads the return value, which
    /// is in the slot after them. (`bpf_get_func_arg` does not reach it.)
    pub fn requires_return(&self, argument_slots: u32) -> bool {
        self.returned || self.slots.intersects(argument_slots..u32::MAX)
    }
}

/// Finds out what a program uses.
///
/// # Errors
/// A [`Refusal`] if the program can run at no site: it calls a helper that works nowhere, writes to the context,
/// or is not well formed.
pub fn analyse(program: &UserProgram) -> Result<Uses, Refusal> {
    dataflow::analyse(program)
}

#[cfg(test)]
mod tests;
