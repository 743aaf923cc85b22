// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! Which compiler made a unit, as its `DW_AT_producer` says.

/// Who compiled a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compiler {
    Gcc,
    /// With its major version.
    Clang(u32),
    #[default]
    Other,
}

/// What comes before the version in clang's name for itself.
pub(crate) const CLANG: &str = "clang version ";

/// The major version in a producer like `Debian clang version 19.1.7 (3)`; 0 if it cannot be read.
pub(crate) fn clang_version(producer: &str) -> Option<u32> {
    let (_, version) = producer.split_once(CLANG)?;
    let digits = version.bytes().take_while(u8::is_ascii_digit).count();
    Some(version[..digits].parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers() {
        assert_eq!(clang_version("Debian clang version 19.1.7 (3+b1)"), Some(19));
        assert_eq!(clang_version("clang version 22.0.0git"), Some(22));
        assert_eq!(clang_version("Android (1, based on r1) clang version 9"), Some(9));
        assert_eq!(clang_version("clang version trunk"), Some(0));
        assert_eq!(clang_version("GNU C11 14.2.0 -mno-sse"), None);
    }
}
