// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Places in text as people, the kernel and tracers write them: `0xffffffff81234567`, `vfs_read+0x1f`,
//! `vfs_read+0x1f/0x80 [module]`, `module:vfs_read+31`.

use std::fmt;
use std::str::FromStr;

/// A place in text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    /// The module, if one is named; `vmlinux` is the image.
    pub(super) module: Option<String>,
    pub(super) at: At,
}

/// How a place is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum At {
    /// An address: at run time for the running kernel, at link time for an image.
    Address(u64),
    /// So many bytes after a symbol.
    Symbol {
        name: String,
        offset: u64,
        /// How long the function is, as the kernel prints it: that tells functions of one name apart.
        size: Option<u64>,
    },
}

/// Why something is not a place in text.
#[derive(Debug, thiserror::Error)]
#[error("it is neither an address (0x...) nor [module:]symbol[+offset[/size]]")]
pub(super) struct NotAPlace;

impl FromStr for Query {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Query, NotAPlace> {
        let (text, in_brackets) = match text.trim().split_once(char::is_whitespace) {
            Some((place, rest)) => (place, Some(module_in_brackets(rest.trim()).ok_or(NotAPlace)?)),
            None => (text.trim(), None),
        };
        // As the kernel writes names of modules.
        let module_name = |module: &str| module.replace('-', "_");
        if let Some(address) = address(text) {
            return Ok(Query { module: in_brackets.map(module_name), at: At::Address(address) });
        }
        let (module, text) = match text.split_once(':') {
            Some((module, rest)) if is_name(module) => (Some(module), rest),
            Some(_) => return Err(NotAPlace),
            None => (None, text),
        };
        let at = symbol(text).ok_or(NotAPlace)?;
        Ok(Query { module: module.or(in_brackets).map(module_name), at })
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.at, &self.module) {
            (At::Address(address), None) => write!(f, "{address:#x}"),
            // After a colon it would be a symbol.
            (At::Address(address), Some(module)) => write!(f, "{address:#x} [{module}]"),
            (At::Symbol { name, offset, .. }, None) => write!(f, "{name}+{offset:#x}"),
            (At::Symbol { name, offset, .. }, Some(module)) => write!(f, "{module}:{name}+{offset:#x}"),
        }
    }
}

/// An address: with `0x`, or all sixteen digits as the kernel and perf print it.
pub(super) fn address(text: &str) -> Option<u64> {
    let digits = match text.strip_prefix("0x") {
        Some(digits) => digits,
        None if text.len() == 16 => text,
        None => return None,
    };
    hexadecimal(digits)
}

/// Digits alone: the standard library's parser takes a sign, too.
pub(super) fn hexadecimal(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_number { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// A number as the kernel (hexadecimal, with `0x`) or bpftrace (decimal) writes it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// `symbol`, `symbol+offset`, `symbol+offset/size`.
pub(super) fn symbol(text: &str) -> Option<At> {
    let (name, offset, size) = match text.split_once('+') {
        None => (text, 0, None),
        Some((name, rest)) => match rest.split_once('/') {
            None => (name, number(rest)?, None),
            Some((offset, size)) => (name, number(offset)?, Some(number(size)?)),
        },
    };
    is_name(name).then(|| At::Symbol { name: name.to_owned(), offset, size })
}

/// Whether that may be the name of a symbol: letters, digits, and what compilers put into the names of clones.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$' | b'-');
    text.bytes().next().is_some_and(|first| !first.is_ascii_digit()) && text.bytes().all(is_part)
}

/// `[module]`, or `[module buildid]`, as the kernel prints it after a symbol.
pub(super) fn module_in_brackets(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let name = inside.split_whitespace().next()?;
    is_name(name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(module: Option<&str>, name: &str, offset: u64, size: Option<u64>) -> Query {
        Query { module: module.map(str::to_owned), at: At::Symbol { name: name.to_owned(), offset, size } }
    }

    #[test]
    fn places_as_they_are_written() {
        let parse = |text: &str| text.parse::<Query>().unwrap_or_else(|error| panic!("{text}: {error}"));
        let raw = Query { module: None, at: At::Address(0xffff_ffff_8123_4567) };
        assert_eq!(parse("0xffffffff81234567"), raw);
        assert_eq!(parse("ffffffff81234567"), raw);
        assert_eq!(parse("vfs_read"), at(None, "vfs_read", 0, None));
        assert_eq!(parse("vfs_read+0x1f"), at(None, "vfs_read", 0x1f, None));
        assert_eq!(parse("vfs_read+31"), at(None, "vfs_read", 31, None));
        assert_eq!(parse("vfs_read.isra.0+0x1f/0x80"), at(None, "vfs_read.isra.0", 0x1f, Some(0x80)));
        assert_eq!(parse("nf_hook+0x1/0x2 [nf_tables]"), at(Some("nf_tables"), "nf_hook", 1, Some(2)));
        assert_eq!(parse("nf_hook+0x1/0x2 [nf_tables 0123abcd]"), at(Some("nf_tables"), "nf_hook", 1, Some(2)));
        assert_eq!(parse("nf-tables:nf_hook+7"), at(Some("nf_tables"), "nf_hook", 7, None));
        assert_eq!(parse("vmlinux:vfs_read"), at(Some("vmlinux"), "vfs_read", 0, None));
        assert_eq!(parse("dead"), at(None, "dead", 0, None), "a name, though its letters are digits");
    }

    #[test]
    fn what_is_shown_can_be_asked_for() {
        for text in ["0xffffffffc0123456 [nf-tables]", "0x10", "nf-tables:nf_hook+7", "vfs_read"] {
            let query: Query = text.parse().unwrap();
            let shown = query.to_string();
            assert_eq!(shown.parse::<Query>().ok(), Some(query), "{text}: {shown}");
        }
    }

    #[test]
    fn what_is_no_place() {
        for text in [
            "",
            "+5",
            "vfs_read+",
            "vfs_read+-5",
            "vfs_read+0x",
            "0x",
            "0xg",
            "1abc",
            "a+1/",
            "a b",
            "a+1 (b)",
            "a:b:c",
            "+0x5/1",
        ] {
            assert!(text.parse::<Query>().is_err(), "{text}");
        }
    }
}
