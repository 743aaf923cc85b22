// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The ways in which perf and we disagree, and where each is known from.

use std::fmt;

/// Why perf and we disagree on a site or an argument. Every class but the last is decided by evidence: what DWARF says
/// there, and what perf's rules make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A site outside of `.text`.
    OutOfText,
    /// A copy called from the line where its function is declared.
    CalledAtDeclaration,
    /// What is left of a split function.
    SplitRest,
    /// A part of a function that is not a site.
    Fragment,
    /// An out-of-line function without DWARF.
    NoDwarf,
    /// Several copies at one address.
    Collapsed,
    /// A copy for which DWARF does not state the entry.
    OtherEntry,
    /// A further entry of a copy that has several.
    FurtherEntry,
    /// A copy in a weak function that another file overrides.
    OverriddenWeak,
    /// An argument for which only an entry of zero width holds at the entry view.
    ZeroWidth,
    /// An entry that covers the address but does not hold at the entry view.
    NotAtEntryView,
    /// An argument whose only entry begins at the address, after the entry view.
    LateView,
    /// An argument that DWARF does not locate, where the ABI puts it.
    ByAbi,
    /// A location of more than one operation.
    FirstOperation,
    /// An object in memory whose address is known at link time.
    StaticMemory,
    /// A variable of the same name further inside.
    InnerVariable,
    /// An entry that holds further on only.
    FurtherOn,
    /// `DW_OP_entry_value` of a register that is unchanged.
    EntryValue,
    /// Our probe is some instructions after the entry.
    Moved,
    /// Other text, the same value.
    ValueEqual,
    /// Nothing of these.
    Unexplained,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 21] = [
        Class::OutOfText,
        Class::CalledAtDeclaration,
        Class::SplitRest,
        Class::Fragment,
        Class::NoDwarf,
        Class::Collapsed,
        Class::OtherEntry,
        Class::FurtherEntry,
        Class::OverriddenWeak,
        Class::ZeroWidth,
        Class::NotAtEntryView,
        Class::LateView,
        Class::ByAbi,
        Class::FirstOperation,
        Class::StaticMemory,
        Class::InnerVariable,
        Class::FurtherOn,
        Class::EntryValue,
        Class::Moved,
        Class::ValueEqual,
        Class::Unexplained,
    ];

    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            Class::OutOfText => "out_of_text",
            Class::CalledAtDeclaration => "called_at_declaration",
            Class::SplitRest => "split_rest",
            Class::Fragment => "fragment",
            Class::NoDwarf => "no_dwarf",
            Class::Collapsed => "collapsed",
            Class::OtherEntry => "other_entry",
            Class::FurtherEntry => "further_entry",
            Class::OverriddenWeak => "overridden_weak",
            Class::ZeroWidth => "zero_width",
            Class::NotAtEntryView => "not_at_entry_view",
            Class::LateView => "late_view",
            Class::ByAbi => "by_abi",
            Class::FirstOperation => "first_operation",
            Class::StaticMemory => "static_memory",
            Class::InnerVariable => "inner_variable",
            Class::FurtherOn => "further_on",
            Class::EntryValue => "entry_value",
            Class::Moved => "moved",
            Class::ValueEqual => "value_equal",
            Class::Unexplained => "unexplained",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::OutOfText => "perf leaves out what is not in .text; we list it, with the reason if it cannot be probed",
            Class::CalledAtDeclaration => {
                "perf leaves out a copy whose call is on the line of its declaration, whatever the column; we leave out rests of split functions only"
            }
            Class::SplitRest => "perf lists what is left of a split function, where the function goes on; it is not a site",
            Class::Fragment => "perf lists a part of a function (.part, .cold), where it goes on; it is not a site",
            Class::NoDwarf => "an out-of-line function that DWARF does not describe: we know it from the symbols",
            Class::Collapsed => "several copies of the function begin at one address; one of us lists fewer",
            Class::OtherEntry => {
                "DWARF does not state where the copy is entered: perf takes the start of its first range, even of an empty one; we take where control enters"
            },
            Class::FurtherEntry => {
                "a loop that was unrolled, or jump threading, gave the copy several entries, and the line table marks each; perf lists one"
            }
            Class::OverriddenWeak => {
                "in a weak function that another file overrides: perf names the place by its symbol, which is elsewhere"
            }
            Class::ZeroWidth => {
                "only an entry of zero width holds at the entry view; perf does not know views and finds nothing, or another entry"
            }
            Class::NotAtEntryView => {
                "perf takes an entry that covers the address but does not hold at the entry view; ours is what holds there, or nothing does"
            }
            Class::LateView => "the first entry begins at the address after the entry view; we take it and mark the site",
            Class::ByAbi => "DWARF has no location at the function's first instruction; we take the ABI's",
            Class::FirstOperation => "perf looks at the first operation of the location only; ours is what all of it computes",
            Class::StaticMemory => "in memory at an address known at link time; perf prints the parameter's own name for the symbol there",
            Class::InnerVariable => "perf takes another variable of the same name, further inside, for the parameter",
            Class::FurtherOn => "nothing holds at the entry; perf takes the first entry further on in the function",
            Class::EntryValue => "a value at the entry of the function around, in a register that is unchanged since; perf does not know it",
            Class::Moved => "our probe is later in the entry block, where its arguments are located",
            Class::ValueEqual => "other text for the same value",
            Class::Unexplained => "not explained",
        })
    }
}
