// SPDX-License-Identifier: LGPL-2.1-only OR BSD-2-Clause
//! The layout section: how many bytes follow a type, by kind.
//!
//! A reader that meets a kind it does not know cannot find the next type. A file may therefore say, for each kind
//! by number, how many bytes follow its types once and per element. What this reader knows it takes from
//! [`Kind::tail`]; the section serves for the rest.

use super::kinds::{Kind, RawLayout};
use zerocopy::{FromBytes, IntoBytes};

/// The layout section of a file, possibly empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout<'a> {
    entries: &'a [RawLayout],
}

impl<'a> Layout<'a> {
    pub(super) fn parse(section: &'a [u8]) -> Layout<'a> {
        // A rest that is not a whole entry describes nothing.
        let whole = section.len() / size_of::<RawLayout>() * size_of::<RawLayout>();
        let entries = section.get(..whole).and_then(|bytes| <[RawLayout]>::ref_from_bytes(bytes).ok());
        Layout { entries: entries.unwrap_or_default() }
    }

    /// Bytes that follow a type of the kind once and per element, if the section says so.
    pub fn tail(&self, kind: Kind) -> Option<(u8, u8)> {
        self.entries.get(usize::from(kind.code())).map(|entry| (entry.info_size, entry.element_size))
    }

    /// Whether the file has no layout section.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The layout section of the kinds up to and with [`Kind::Locsec`].
pub(super) fn section() -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in 0..=Kind::LAST {
        let (info_size, element_size) = Kind::from_code(code).tail().unwrap_or((0, 0));
        bytes.extend_from_slice(RawLayout { info_size, element_size, flags: 0.into() }.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = section();
        bytes.push(1);
        let layout = Layout::parse(&bytes);
        for code in 1..=Kind::LAST {
            let kind = Kind::from_code(code);
            assert_eq!(layout.tail(kind), kind.tail());
        }
        assert_eq!(layout.tail(Kind::Other(23)), None);
        assert!(Layout::parse(&[1, 2, 3]).is_empty());
    }
}
