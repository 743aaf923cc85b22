// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Functions of Rust: the kernel's symbols and the site data contain mangled names; people write paths.
//!
//! A mangled name (rustc's "v0" scheme, which the kernel is compiled with) is unique, and is a function's name wherever
//! one is stored or looked up. Its path is how Rust writes it: `<core::slice::iter::Iter<u8> as
//! core::iter::Iterator>::next`. People leave the rest out: `core::slice::iter::Iter::next`. One such path may stand
//! for many functions, since each instance of a generic function is one.

use rustc_demangle::try_demangle;
use std::borrow::Cow;

/// What mangled names begin with.
pub const MANGLED: &str = "_R";

/// The path of a function of Rust, by its mangled name; `None` for every other name.
pub fn full(name: &str) -> Option<String> {
    if !name.starts_with(MANGLED) {
        return None;
    }
    // Without the hashes of the crates.
    try_demangle(name).ok().map(|name| format!("{name:#}")).filter(|path| path.contains("::"))
}

/// A function's name as people read it: the path of one of Rust, and any other name as it is.
pub fn shown(name: &str) -> Cow<'_, str> {
    full(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

/// A path without the arguments of generics and without traits: `core::slice::iter::Iter::next`.
pub fn short(full: &str) -> String {
    let mut text = String::new();
    let mut rest = full;
    // `<TYPE as TRAIT>::next` and `<TYPE>::new`: methods go by the type.
    if let Some(inner) = rest.strip_prefix('<') {
        let end = closing(inner);
        let own = &inner[..end];
        let own = match at_top(own, " as ") {
            Some(at) => &own[..at],
            None => own,
        };
        text.push_str(&short(own));
        rest = inner.get(end + 1..).unwrap_or_default();
    }
    while let Some(at) = rest.find('<') {
        let (before, after) = rest.split_at(at);
        text.push_str(before.strip_suffix("::").unwrap_or(before));
        let inner = &after[1..];
        rest = inner.get(closing(inner) + 1..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

/// Where the `>` is that closes what was opened before the text; the text's end if there is none.
fn closing(text: &str) -> usize {
    at_top(text, ">").unwrap_or(text.len())
}

/// Where something is that is not between `<` and `>`. The arrow of a function's type closes nothing.
fn at_top(text: &str, wanted: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let is_arrow = previous == '-' && c == '>';
        if depth == 0 && !is_arrow && text[at..].starts_with(wanted) {
            return Some(at);
        }
        match c {
            '<' => depth += 1,
            '>' if !is_arrow => depth = depth.checked_sub(1)?,
            _ => {}
        }
        previous = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_kernel() {
        // In Debian's 7.3 kernel.
        let name = "_RNvMNtCsb5MLIFMWygY_6kernel5errorNtB2_5Error10from_errno";
        assert_eq!(full(name).as_deref(), Some("<kernel::error::Error>::from_errno"));
        assert_eq!(short(&full(name).unwrap()), "kernel::error::Error::from_errno");
        let name = "_RINvMNtCs2lKf6AS60Zg_4core3stre3getINtNtNtB5_3ops5range7RangeTojEEB5_";
        assert_eq!(full(name).as_deref(), Some("<str>::get::<core::ops::range::RangeTo<usize>>"));
        assert_eq!(short(&full(name).unwrap()), "str::get");
        assert_eq!(shown("vfs_read"), "vfs_read");
        for other in ["vfs_read", "_R", "_Rust", "_RNvX", "_ZN4core3fmt5write17h0123456789abcdefE", ""] {
            assert_eq!(full(other), None, "{other}");
        }
    }

    #[test]
    fn what_people_leave_out() {
        for (path, wanted) in [
            ("core::ptr::drop_in_place::<alloc::Vec<u8>>", "core::ptr::drop_in_place"),
            ("<core::slice::iter::Iter<u8> as core::iter::Iterator>::next", "core::slice::iter::Iter::next"),
            ("<<a::B as c::D>::E as f::G<h::I>>::j", "a::B::E::j"),
            ("a::b::<fn(u8) -> c::D<e>>::{closure#0}", "a::b::{closure#0}"),
            ("<a::B<fn() -> u8> as c::D>::e", "a::B::e"),
            ("<[u8]>::get::<usize>", "[u8]::get"),
            ("a::b", "a::b"),
            // None of these is a path; nothing is said of what comes of them.
            ("<a", "a"),
            ("a>b<", "a>b"),
            ("", ""),
        ] {
            assert_eq!(short(path), wanted, "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_short_form(text in "[<>a: -]{0,40}") {
            let _ = short(&text);
        }
    }
}
