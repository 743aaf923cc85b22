// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Whether a licence allows a crate to be linked into what is shipped: SPDX expressions.

/// What may be linked: it asks for a notice, or for nothing. In deny.toml, too.
pub const LINKED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "LGPL-2.1-only",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// What tests may use as well: it is not given to anybody.
const TESTED: [&str; 1] = ["GPL-2.0"];

/// Whether a crate under this expression may be linked into what is shipped, or, if it is not shipped, may be used.
pub fn allows(expression: &str, shipped: bool) -> bool {
    let allowed = |licence: &str| LINKED.contains(&licence) || (!shipped && TESTED.contains(&licence));
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let value = either(&mut rest, &allowed);
    value == Some(true) && rest.is_empty()
}

/// An expression as SPDX has it: older manifests have a slash for OR.
pub fn normal(expression: &str) -> String {
    expression.replace('/', " OR ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `A OR B`. `None` if it is malformed.
fn either(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut value = both(words, allowed)?;
    while let Some((&"OR", rest)) = words.split_first() {
        *words = rest;
        value |= both(words, allowed)?;
    }
    Some(value)
}

/// `A AND B`, which binds tighter.
fn both(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    let mut value = one(words, allowed)?;
    while let Some((&"AND", rest)) = words.split_first() {
        *words = rest;
        value &= one(words, allowed)?;
    }
    Some(value)
}

fn one(words: &mut &[&str], allowed: &impl Fn(&str) -> bool) -> Option<bool> {
    let (&first, rest) = words.split_first()?;
    *words = rest;
    if first == "(" {
        let value = either(words, allowed)?;
        let (&")", rest) = words.split_first()? else { return None };
        *words = rest;
        return Some(value);
    }
    if let Some((&"WITH", rest)) = words.split_first() {
        let (exception, rest) = rest.split_first()?;
        *words = rest;
        return Some(allowed(&format!("{first} WITH {exception}")));
    }
    Some(allowed(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for (expression, shipped, expected) in [
            ("MIT", true, true),
            ("MIT OR GPL-3.0-only", true, true),
            ("MIT AND GPL-3.0-only", true, false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true, true),
            ("GPL-3.0-only OR MIT AND Zlib", true, true),
            ("(GPL-3.0-only OR MIT) AND GPL-3.0-only", true, false),
            ("Apache-2.0 WITH LLVM-exception", true, true),
            ("GPL-2.0-only WITH Linux-syscall-note", true, false),
            ("MIT/Apache-2.0", true, true),
            ("GPL-2.0", true, false),
            ("GPL-2.0", false, true),
            ("", true, false),
            ("MIT OR", true, false),
            ("MIT Zlib", true, false),
        ] {
            assert_eq!(allows(expression, shipped), expected, "{expression}");
        }
        assert_eq!(normal("MIT / Apache-2.0"), "MIT OR Apache-2.0");
    }
}
