// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! How much `unsafe` a crate has: counted in its tokens, so that comments, texts and names of lints do not count. Code
//! that is compiled for tests alone does not count either.

use crate::{SupplyError, entries, read};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::Path;

/// What is unsafe in a crate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsafe {
    /// `unsafe { }`.
    pub blocks: usize,
    /// `unsafe fn`, `unsafe extern`, function pointers too.
    pub functions: usize,
    /// `unsafe impl` and `unsafe trait`.
    pub impls: usize,
}

/// What is unsafe in the sources of a folder.
///
/// # Errors
/// [`SupplyError::Read`], [`SupplyError::Tokens`].
pub fn in_folder(folder: &Path) -> Result<Unsafe, SupplyError> {
    let mut sum = Unsafe::default();
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_test = name == "tests" || name == "tests.rs";
        if is_test {
            continue;
        }
        let found = if path.is_dir() {
            in_folder(&path)?
        } else if name.ends_with(".rs") {
            let text = read(&path)?;
            in_tokens(text.parse().map_err(|_| SupplyError::Tokens { path: path.clone() })?)
        } else {
            Unsafe::default()
        };
        sum = sum.plus(found);
    }
    Ok(sum)
}

impl Unsafe {
    fn plus(self, other: Unsafe) -> Unsafe {
        Unsafe {
            blocks: self.blocks + other.blocks,
            functions: self.functions + other.functions,
            impls: self.impls + other.impls,
        }
    }
}

fn is_ident(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

/// Whether tokens are `#[cfg(test)]`.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else { return false };
    hash.as_char() == '#' && attribute.stream().to_string().replace(' ', "") == "cfg(test)"
}

fn in_tokens(stream: TokenStream) -> Unsafe {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut sum = Unsafe::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if is_for_tests(&tokens[at..]) {
            // As far as the item goes: its braces, or its semicolon.
            let is_end = |token: &TokenTree| match token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(mark) => mark.as_char() == ';',
                _ => false,
            };
            at += tokens[at..].iter().position(is_end).map_or(tokens.len(), |end| end + 1);
            continue;
        }
        if let TokenTree::Group(group) = token {
            sum = sum.plus(in_tokens(group.stream()));
        }
        if is_ident(token, "unsafe") {
            match tokens.get(at + 1) {
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => sum.blocks += 1,
                Some(next) if is_ident(next, "impl") || is_ident(next, "trait") => sum.impls += 1,
                Some(next) if is_ident(next, "fn") || is_ident(next, "extern") => sum.functions += 1,
                _ => {}
            }
        }
        at += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts() {
        let text = r#"
            // unsafe { in a comment }
            #![deny(unsafe_op_in_unsafe_fn)]
            const TEXT: &str = "unsafe { }";
            unsafe impl Send for A {}
            unsafe fn f(g: unsafe extern "C" fn()) { unsafe { g() } }
            #[no_mangle]
            fn h() { let x = || unsafe { 1 }; }
            #[cfg(test)]
            use a::unsafe_b;
            #[cfg(test)]
            mod tests { fn t() { unsafe { f() } } }
            fn i() { unsafe { } }
        "#;
        assert_eq!(in_tokens(text.parse().unwrap()), Unsafe { blocks: 3, functions: 2, impls: 1 });
    }
}
