// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The policy that a program states for itself.
//!
//! ```c
//! SITESEER_POLICY(program, complete);
//! ```
//!
//! is a variable `__siteseer_policy_PROGRAM`, a pointer to a structure that is declared and never defined: `struct
//! siteseer_policy_complete`. As with `SITESEER_PROTO`, only its type is read. A value would have to be read from the
//! object's file, which libbpf does not keep.

use super::DeclaredError;
use crate::program::policy::Policy;
use siteseer_sites::btf::{Btf, Kind};

/// The section of the variables.
const SECTION: &str = ".siteseer.policy";
/// What their names begin with; the program's name follows.
const PREFIX: &str = "__siteseer_policy_";
/// What the names of the structures begin with; the policy's name follows.
const STRUCTURE: &str = "siteseer_policy_";

/// The policy that the object's BTF has for the program of that name; `None` if the program states none.
pub(super) fn find(btf: &Btf<'_>, program: &str) -> Result<Option<Policy>, DeclaredError> {
    let Some(variable) = super::variable(btf, SECTION, PREFIX, program) else { return Ok(None) };
    let pointer = variable.target().and_then(|id| btf.resolve(id)).filter(|ty| ty.kind() == Kind::Ptr);
    let structure = pointer.and_then(|pointer| btf.resolve(pointer.target()?));
    let name = structure.map(|structure| structure.name()).unwrap_or_default();
    let policy = name.strip_prefix(STRUCTURE).and_then(Policy::named);
    let unknown = || DeclaredError::NotAPolicy { program: program.to_owned(), found: name.to_owned() };
    policy.ok_or_else(unknown).map(Some)
}
