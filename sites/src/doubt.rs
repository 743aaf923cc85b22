// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Why a located argument may be wrong.
//!
//! A location is as good as the debug information that it comes from, and compilers are known to get some of it wrong:
//! a constant of a later assignment that covers the whole copy, a register that is named before it is loaded. Which
//! compiler, which form of a location and which function are prone to it can be known, though not which of these
//! locations are wrong. Such an argument keeps its location and has a [`Doubt`]. An argument without one is *certain*.
//!
//! Programs read certain arguments. A doubtful one counts as missing, unless the application accepts doubt.

use std::fmt;

/// Why an argument's location may not hold the value that the function was called with.
///
/// The discriminants are stored in site files: they may be added to, not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Doubt {
    /// The body assigns to the parameter, here or in another copy of the function. This location may be that of the
    /// assigned value.
    Assigned = 1,
    /// The location begins at the site's address, but after the entry view: the body may have changed the value.
    LateView = 2,
    /// A constant that this compiler's location lists are known to get wrong: a later assignment's, which covers the
    /// copy from its start, or one of a copy whose signature was changed.
    Constant = 3,
    /// A register, or a slot of the stack, that nothing has written between the entry of the enclosing function and the
    /// site. Or a register with another parameter of that function, which has another type.
    Unwritten = 4,
    /// An expression for a value that the compiler has narrowed, or computes in another way by now, or for a counter
    /// before its last step. Or a register that the body does not read in the parameter's whole width: clang need not
    /// compute the rest. Or a variable with a fixed address that GCC does not read for it any more. Or what a member of
    /// the caller's structure may have been before the caller assigned to it.
    Stale = 5,
    /// The value that a register had at the function's entry, in a copy that may not receive the parameter there.
    EntryValue = 6,
    /// Zeros that clang fills variables with (`-ftrivial-auto-var-init=zero`), where it may have lost track of what
    /// was put into them.
    Cleared = 7,
    /// An expression without a list: the place that the variable has in most of the body, not necessarily at its entry.
    Home = 8,
    /// A structure that clang passes on the stack, or a value in two registers. Callers that it sees may pass only what
    /// the body looks at.
    Unfilled = 9,
    /// The compiler merged this copy's code with that of another copy of the function, or both begin at one address.
    /// Calls of that copy come here too. The location is that of one of the two.
    Merged = 10,
    /// A constant at a site that the body may come back to: if that is a recursion which became a loop, the constant is
    /// of one of the calls. Or an argument of a function that control comes back to the entry of: its later calls need
    /// not have it where the first one has. Or a constant that an earlier call of the same function passed: GCC may go
    /// on to say so for later calls.
    OtherCall = 11,
}

impl Doubt {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Doubt; 11] = [
        Doubt::Assigned,
        Doubt::LateView,
        Doubt::Constant,
        Doubt::Unwritten,
        Doubt::Stale,
        Doubt::EntryValue,
        Doubt::Cleared,
        Doubt::Home,
        Doubt::Unfilled,
        Doubt::Merged,
        Doubt::OtherCall,
    ];

    /// The reason with that discriminant.
    pub fn from_code(code: u8) -> Option<Doubt> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }

    /// A stable identifier for machines.
    pub fn key(self) -> &'static str {
        match self {
            Doubt::Assigned => "assigned",
            Doubt::LateView => "late_view",
            Doubt::Constant => "constant",
            Doubt::Unwritten => "unwritten",
            Doubt::Stale => "stale",
            Doubt::EntryValue => "entry_value",
            Doubt::Cleared => "cleared",
            Doubt::Home => "home",
            Doubt::Unfilled => "unfilled",
            Doubt::Merged => "merged",
            Doubt::OtherCall => "other_call",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::Assigned => "the body assigns to it, and the location may be that of the assigned value",
            Doubt::LateView => "its location begins after the entry view, and the body may have changed it",
            Doubt::Constant => "a constant that may be that of a later assignment",
            Doubt::Unwritten => "in a register or on the stack, where nothing has been written before the site",
            Doubt::Stale => "an expression for a value that the compiler narrowed or rewrote",
            Doubt::EntryValue => "a value at the entry, in a register that may not receive the parameter",
            Doubt::Cleared => "zeros that clang may have filled in before the value was known",
            Doubt::Home => "in the variable's home, which the body may not have filled at its entry",
            Doubt::Unfilled => "a structure or a wide number: callers may pass only the part that the body looks at",
            Doubt::Merged => "another copy of the function goes on here, and it may have passed another value",
            Doubt::OtherCall => "another call may begin there or have come before, and it may be that call's value",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_stable_codes() {
        for (index, doubt) in Doubt::ALL.iter().enumerate() {
            assert_eq!(*doubt as usize, index + 1);
            assert_eq!(Doubt::from_code(*doubt as u8), Some(*doubt));
        }
        assert_eq!(Doubt::from_code(0), None);
        assert_eq!(Doubt::from_code(200), None);
    }

    #[test]
    fn keys_and_sentences_differ() {
        let keys: std::collections::BTreeSet<&str> = Doubt::ALL.iter().map(|doubt| doubt.key()).collect();
        let sentences: std::collections::BTreeSet<String> = Doubt::ALL.iter().map(Doubt::to_string).collect();
        assert_eq!((keys.len(), sentences.len()), (Doubt::ALL.len(), Doubt::ALL.len()));
    }
}
