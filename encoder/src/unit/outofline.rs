// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Out-of-line sites that a name cannot tell.
//!
//! Most functions need no entry: the symbol `foo` is the function `foo`, entered as BTF says. An entry is made if that
//! is not so: a clone under another name (`foo.isra.0`); one of several functions of the name; a function that BTF does
//! not have, or has with another prototype; and a function with a signature that the compiler changed without changing
//! the name.
//!
//! Which it is, the symbols at the function's address say. GCC and clang build names of clones by suffixes; what
//! matters is whether the suffix stands for a changed signature. One that only tells apart (`foo.17` beside `foo`, in a
//! link that is optimised as a whole) says that there is another function of the name. `foo.part.0` is not `foo` at
//! all, but what is left of it after its head was inlined elsewhere: it becomes a function of its own name, which is
//! never reached by asking for `foo`. `foo.cold` is a continuation and no function.
//!
//! Where the arguments of such a copy are: see [`signature`](crate::unit::signature).

use crate::elf::image::Image;
use hashbrown::HashSet;
use siteseer_sites::SiteKind;

/// The names of functions for which the image has another function, under the same name with a suffix that only tells
/// them apart.
pub(crate) fn namesakes<'a>(image: &Image<'a>) -> HashSet<&'a str> {
    let stem = |name: &'a str| {
        let (stem, _) = name.split_once('.')?;
        (role_of(name, stem) == Role::Clone { changed: false }).then_some(stem)
    };
    image.symbols().iter().filter_map(|symbol| stem(symbol.name)).collect()
}

/// What a symbol is to the function that has its text there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<'s> {
    /// The function itself.
    Body,
    /// Made from the function.
    Clone {
        /// Whether its suffix stands for a changed signature.
        changed: bool,
    },
    /// What is left of it; the symbol's name.
    Part(&'s str),
    /// A continuation, or no function of that name.
    Nothing,
}

impl Role<'_> {
    /// Whether the name says that the signature is not the source's.
    pub(crate) fn is_changed(self) -> bool {
        matches!(self, Role::Part(_) | Role::Clone { changed: true })
    }

    /// The kind of site, if it is one.
    pub(crate) fn kind(self) -> Option<SiteKind> {
        match self {
            Role::Body | Role::Part(_) => Some(SiteKind::Body),
            Role::Clone { .. } => Some(SiteKind::Clone),
            Role::Nothing => None,
        }
    }
}

/// The role of the symbols at one address, best first: the function's own name, then a clone of it.
pub(crate) fn role<'s>(symbols: impl IntoIterator<Item = &'s str>, function: &str) -> Role<'s> {
    let mut best = Role::Nothing;
    for symbol in symbols {
        let role = role_of(symbol, function);
        best = match (best, role) {
            (_, Role::Body) | (Role::Body, _) => return Role::Body,
            (Role::Clone { .. }, _) | (_, Role::Nothing) => best,
            (Role::Nothing | Role::Part(_), role) => role,
        };
    }
    best
}

fn role_of<'s>(symbol: &'s str, function: &str) -> Role<'s> {
    let Some(suffix) = symbol.strip_prefix(function) else { return Role::Nothing };
    if suffix.is_empty() {
        return Role::Body;
    }
    let Some(suffix) = suffix.strip_prefix('.') else { return Role::Nothing };
    let mut words = suffix.split('.');
    if words.clone().any(|word| word == "cold") {
        return Role::Nothing;
    }
    if words.clone().any(|word| word == "part") {
        return Role::Part(symbol);
    }
    // GCC: isra (parameters removed or split), constprop (constant parameters removed), simdclone. GCC's lto_priv and
    // localalias, clang's llvm (ThinLTO promotion) and __uniq, and plain numbers (full LTO) only tell apart.
    let keeps = |word: &str| {
        matches!(word, "llvm" | "lto_priv" | "localalias" | "__uniq" | "str")
            || word.bytes().all(|byte| byte.is_ascii_digit())
    };
    Role::Clone { changed: !words.all(keeps) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        let role = |symbol| role_of(symbol, "foo");
        assert_eq!(role("foo"), Role::Body);
        for same in ["foo.llvm.1234", "foo.17", "foo.lto_priv.0", "foo.localalias", "foo.__uniq.99"] {
            assert_eq!(role(same), Role::Clone { changed: false }, "{same}");
        }
        for changed in ["foo.isra.0", "foo.constprop.2", "foo.isra.0.constprop.1", "foo.llvm.3.isra.0", "foo.unheard"] {
            assert_eq!(role(changed), Role::Clone { changed: true }, "{changed}");
        }
        for part in ["foo.part.0", "foo.isra.0.part.1", "foo.part.0.constprop.0"] {
            assert_eq!(role(part), Role::Part(part));
        }
        for nothing in ["foo.cold", "foo.isra.0.cold", "foo.part.0.cold", "food", "fo", "__pfx_foo", "foo_x.isra.0"] {
            assert_eq!(role(nothing), Role::Nothing, "{nothing}");
        }
    }

    #[test]
    fn the_own_name_wins_among_aliases() {
        assert_eq!(role(["alias", "foo"], "foo"), Role::Body);
        assert_eq!(role(["foo.isra.0", "foo"], "foo"), Role::Body);
        assert_eq!(role(["foo.part.0", "foo.isra.0"], "foo"), Role::Clone { changed: true });
        assert_eq!(role(["alias"], "foo"), Role::Nothing);
    }
}
