// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Programs at both ends of the same calls: `fentry` (or `kprobe_maybe_inline`) and `fexit` programs of one object on
//! one function.
//!
//! They work together: what the one keeps at the entry the other looks for at the return. An inlined copy has an
//! entry and no return. A program that is at its entry would keep what nobody takes, so such programs are kept to the
//! calls that both reach. A `kprobe_maybe_inline` program asks for inlined copies by its name: it is not kept unless
//! it is told to, and its report says at how many sites it is alone.
//!
//! Programs of one object are known by the object's BTF: the kernel gives its id to no other.

use super::decide::asks_siteseer;
use crate::bpf::objects::info_by_fd;
use crate::plan::mechanism::Pair;
use crate::plan::report::Report;
use crate::program::object::{Loaded, Program};
use crate::program::section::{Told, Wanted};
use libbpf_sys as sys;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A program at one end of a function's calls.
#[derive(Debug)]
pub(super) struct End {
    /// The id of its object's BTF.
    object: u32,
    name: String,
    exit: bool,
    wanted: Wanted,
    told: Told,
    /// Whether it knows of siteseer, and so of copies without a return.
    knows: bool,
    /// The sites that it reaches.
    reached: BTreeSet<u64>,
}

impl End {
    /// What is to be known about a program that is being loaded; `None` if its object has no BTF.
    pub(super) fn of(
        program: Program<'_>,
        loaded: &Loaded<'_>,
        btf: BorrowedFd<'_>,
        reached: BTreeSet<u64>,
    ) -> Option<End> {
        let mut info = sys::bpf_btf_info::default();
        // SAFETY: no pointers are in it.
        unsafe { info_by_fd(btf.as_raw_fd(), &mut info) }.ok()?;
        (info.id != 0).then_some(())?;
        Some(End {
            object: info.id,
            name: loaded.name.clone(),
            exit: loaded.form.kind.is_exit(),
            wanted: program.wanted().ok()?,
            told: loaded.told,
            knows: asks_siteseer(loaded.insns),
            reached,
        })
    }

    /// Whether it is kept to the calls that the other end reaches, if nothing is said.
    pub(super) fn is_kept(&self) -> bool {
        !self.knows
    }

    fn is_other_end_of(&self, end: &End) -> bool {
        // `bpf_program__set_attach_target()` names the function, whatever the sections name: those of one tool that is
        // for any function are `fentry/dummy_fentry` and `fexit/dummy_fexit`.
        let is_same = match (self.told, end.told) {
            (Told::Kernel { .. }, Told::Kernel { .. }) => self.told == end.told,
            _ => (&self.wanted, self.told) == (&end.wanted, end.told),
        };
        is_same && self.object == end.object && self.exit != end.exit
    }
}

/// The programs at the other end of a program's calls, as one.
pub(super) fn other_end(of: &End) -> Option<Pair> {
    let ends = super::programs::ends();
    let mut others = ends.iter().filter(|end| end.is_other_end_of(of));
    let first = others.next()?;
    let reached = others.fold(first.reached.clone(), |reached, end| &reached | &end.reached);
    Some(Pair { program: first.name.clone(), reached })
}

/// What is to be said about a program that is at calls with an unseen other end.
pub(super) fn note(pair: &Pair, report: &Report) -> Option<String> {
    let alone = report.attached().filter(|site| !pair.reached.contains(&site.address)).count();
    let both = report.attached().count() - alone;
    (alone > 0).then(|| {
        let program = &pair.program;
        format!("the program {program}, at the other end of the same calls, reaches {both} of these sites, and {alone} of them not")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(section: &str, exit: bool, told: Told) -> End {
        let wanted = Wanted { module: None, function: Some(section.to_owned()) };
        End { object: 1, name: section.to_owned(), exit, wanted, told, knows: false, reached: BTreeSet::new() }
    }

    #[test]
    fn the_attach_target_decides_which_programs_are_ends_of_the_same_calls() {
        let [foo, bar] = [7, 8].map(|btf_id| Told::Kernel { object: 0, btf_id });
        let entry = end("dummy_fentry", false, foo);
        assert!(entry.is_other_end_of(&end("dummy_fexit", true, foo)), "the sections' names do not matter");
        assert!(!entry.is_other_end_of(&end("dummy_fentry", true, bar)), "another function");
        assert!(!entry.is_other_end_of(&end("dummy_fexit", false, foo)), "the same end");
        let entry = end("foo", false, Told::Nothing);
        assert!(entry.is_other_end_of(&end("foo", true, Told::Nothing)));
        assert!(!entry.is_other_end_of(&end("bar", true, Told::Nothing)));
        assert!(!entry.is_other_end_of(&End { object: 2, ..end("foo", true, Told::Nothing) }), "another object");
    }
}
