// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Arguments that GCC says are where another parameter of the caller's is.
//!
//! A caller copies its parameter `p` from the register that it is passed in to another one, `r`, which had its
//! parameter `q`, and binds the parameter of an inlined function to that. When GCC finds that nothing needs the copy,
//! it removes it, and puts a temporary for the binding before the last use of `q` in `r`. So the inlined function's
//! parameter has the location of `q` (docs/reports/gcc-removed-copy).
//!
//! A caller may well pass `q`. But its type is that of the parameter then, and where it is not, the caller converts it.
//! So the argument is doubtful if the register is that of a parameter of another type, while the caller has one of the
//! argument's type elsewhere.

use super::UnitEncoder;
use super::copies::InlinedCopy;
use crate::debug::loclist::Point;
use crate::types::{BaseIndex, TypeRef};
use crate::unit::arguments::At;
use siteseer_sites::Doubt;
use siteseer_sites::abi::argument_registers;
use siteseer_sites::btf::{Kind, TypeId};
use siteseer_sites::location::{Argument, Located, Location};

impl<'a, 'd> UnitEncoder<'a, 'd, '_> {
    /// Marks the arguments of a copy that are where another parameter of the function around it is, at an entry.
    pub(super) fn doubt_exchanged(&mut self, copy: &InlinedCopy<'_, 'a, 'd>, point: Point) {
        let passed_in = argument_registers(self.shared.image.machine());
        let is_passed_there =
            |located: &Located| matches!(located.at, Location::Register(register) if passed_in.contains(&register));
        if !self.found.iter().filter_map(|found| found.argument.as_ref().ok()).any(is_passed_there) {
            return;
        }
        let mut own = std::mem::take(&mut self.own);
        self.gather_own(copy, &mut own);
        if let Some(origin) = own.origin.as_ref().filter(|origin| origin.parameters.len() > 1) {
            let surroundings = copy.surroundings(self.shared.image, self.unit, &self.frames, self.is_whole);
            let at = At::new(&surroundings, point.address);
            let find = |(index, parameter)| at.find(&own.gathered, index, parameter, point.view).argument;
            let callers: Vec<Argument> = origin.parameters.iter().enumerate().map(find).collect();
            for (found, parameter) in self.found.iter_mut().zip(&copy.origin.parameters) {
                let Ok(located) = &mut found.argument else { continue };
                let is_same = |ty: &TypeRef| is_same_type(self.shared.base, ty, &parameter.type_ref);
                let types = origin.parameters.iter().map(|parameter| is_same(&parameter.type_ref));
                if is_passed_there(located) && is_anothers(&located.at, types.zip(&callers)) {
                    located.doubt = Some(Doubt::Unwritten);
                }
            }
        }
        self.own = own;
    }
}

/// Whether a place is that of a caller's parameter of another type, while one of the same type is elsewhere. `callers`
/// has the caller's parameters: whether the type is that of the argument, and where the parameter is.
fn is_anothers<'p>(place: &Location, callers: impl Iterator<Item = (bool, &'p Argument)>) -> bool {
    let (mut has_same, mut has_other, mut same_is_elsewhere) = (false, false, false);
    for (is_same, argument) in callers {
        let Ok(located) = argument else { continue };
        match (located.at == *place, is_same) {
            (true, true) => has_same = true,
            (true, false) => has_other = true,
            (false, true) => same_is_elsewhere = true,
            (false, false) => {}
        }
    }
    has_other && !has_same && same_is_elsewhere
}

/// Whether two types are the same without their qualifiers and typedefs.
fn is_same_type(base: &BaseIndex<'_>, one: &TypeRef, other: &TypeRef) -> bool {
    let plain = |ty: &TypeRef| match ty {
        TypeRef::Base(id) => Some(plain(base, *id)),
        _ => None,
    };
    one == other || plain(one).is_some_and(|one| plain(other) == Some(one))
}

/// A type of the base without qualifiers and typedefs: whether it is a pointer, and what it points to then (0 for
/// `void`), or which one it is.
fn plain(base: &BaseIndex<'_>, id: TypeId) -> (bool, TypeId) {
    let bare = |id: TypeId| base.btf().resolve(id).map_or(0, |ty| ty.id());
    match base.btf().resolve(id) {
        Some(ty) if ty.kind() == Kind::Ptr => (true, ty.target().map_or(0, bare)),
        _ => (false, bare(id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siteseer_sites::location::Missing;

    #[test]
    fn a_place_of_another_parameter() {
        let at = |register| Ok(Located { at: Location::Register(register), size: 8, signed: false, doubt: None });
        let is_anothers = |callers: &[(bool, Argument)]| {
            let callers = callers.iter().map(|(is_same, argument)| (*is_same, argument));
            super::is_anothers(&Location::Register(1), callers)
        };
        assert!(is_anothers(&[(true, at(0)), (false, at(1))]));
        assert!(!is_anothers(&[(true, at(1)), (false, at(0))]), "it is the parameter of its type");
        assert!(!is_anothers(&[(true, at(0)), (false, at(1)), (true, at(1))]), "so it may be");
        assert!(!is_anothers(&[(false, at(0)), (false, at(1))]), "the caller has none of its type");
        assert!(!is_anothers(&[(true, Err(Missing::NotAtEntry)), (false, at(1))]), "nor has it one there any more");
        assert!(!is_anothers(&[(true, at(0)), (false, at(2))]), "the register is not a parameter's");
    }
}
