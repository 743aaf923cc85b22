// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Errors in one line, for those who print them.

use std::error::Error;

/// The text of an error and of all its causes. An error here does not repeat what its [`source()`](Error::source) says.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::Btf;
    use crate::file::FileError;
    use crate::subset::SubsetError;

    #[test]
    fn each_cause_is_said_once() {
        let source = Btf::parse(b"").map(drop).unwrap_err();
        let said = source.to_string();
        let file = FileError::Btf { section: ".BTF", source };
        assert_eq!(with_causes(&file), format!(".BTF: {said}"));
        // An error that only passes another one on has its text and its causes.
        assert_eq!(with_causes(&SubsetError::File(file)), format!(".BTF: {said}"));
    }
}
